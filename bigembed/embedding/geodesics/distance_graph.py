"""The neighbor graph of distances that are given: a square array of them, or a sparse matrix of lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.embedding.scaling.gower import refuse_distances
from bigembed.errors import InputError, PlanError
from bigembed.neighbors.given_graph import GIVEN, described, order_stage
from bigembed.neighbors.given_order import EDGES, ordered_stages
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, senders_of, write_block
from bigembed.neighbors.query import Joined
from bigembed.neighbors.radius import BLOCK_EDGES
from bigembed.neighbors.survey import Shape
from bigembed.operators.centered import CenteredOperator
from bigembed.operators.pairs import vector_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.offenders import checked_shape
from bigembed.store.source import RowSource
from bigembed.store.stored_space import StoredSpace
from bigembed.store.tiles import PANEL_BYTES, tiles

Edges = tuple[Array, Array, Array]
"""Rows, columns, lengths."""
NO_EDGES = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True)
class Rule:
    """Which distances of a row are edges: the k smallest (equal ones by column), or those within a radius."""

    n_neighbors: int | None
    radius: float | None

    def of(self, row: Array, column: Array, length: Array) -> Edges:
        """The edges among some pairs, by (row, length, column)."""
        order = np.lexsort((column, length, row))
        if self.n_neighbors is None:
            order = order[length[order] <= self.radius]
        else:
            rank = np.arange(len(row)) - np.searchsorted(row[order], row[order])
            order = order[rank < self.n_neighbors]
        return row[order], column[order], length[order]

    def reach(self, edges: Edges, rows: int) -> Array:
        """Length beyond which a pair is not joined, for each of ``rows`` rows with these edges so far."""
        if self.radius is not None:
            return np.full(rows, self.radius)
        longest, counts = np.full(rows, np.inf), np.bincount(edges[0], minlength=rows)
        full = counts == self.n_neighbors
        longest[full] = edges[2][np.cumsum(counts)[full] - 1]
        return longest


def given_shape(shape: tuple[int, int], dtype: Any) -> Shape:
    """Shape of a square matrix of distances."""
    n, d = shape
    if n != d or n < 2:
        raise InputError(f"metric='precomputed': distances form a square array (n, n), n ≥ 2; got shape {shape}")
    return Shape(n, n, str(np.dtype(dtype)), GIVEN)


def given_stages(source: RowSource, rule: Rule) -> list[Stage]:
    """From an array of distances to the graph, in the order of the input. Two passes over the array."""
    shape = given_shape(checked_shape(source), source.work)
    refuse_few(rule, shape.n)

    def check(context: Context) -> dict[str, Any]:
        space = StoredSpace(None, Exchange(f"{context.exchange.root}/space"), vector_blocks(shape.n))
        CenteredOperator(source, space)
        context.note(f"{shape.n} × {shape.n} distances are finite, symmetric and zero on the diagonal")
        return described(shape)

    def join(context: Context) -> dict[str, Any]:
        spans = [(b, *span) for b, span in enumerate(bounds(shape.n, shape.block))]
        sent = map_blocks(edges_block, spans, source=source, rule=rule, step=shape.block, exchange=context.exchange)
        return join_all(context, shape, sent) | vars(rule)

    size = shape.n * shape.row_bytes
    held = 4 * PANEL_BYTES + 120 * shape.block * min(shape.n, rule.n_neighbors or BLOCK_EDGES // shape.block)
    checked = Cost(passes=1, read=size, memory=4 * PANEL_BYTES)
    joined = Cost(passes=1, read=size, memory=held, scalar_ops=shape.n**2, disk=24 * shape.n, maps=3)
    return [
        Stage("survey", (), {"source": source.fingerprint(), "metric": GIVEN}, check, checked),
        order_stage(shape, vars(rule)),
        Stage("graph", ("survey", "order"), vars(rule), join, joined),
    ]


def sparse_stages(X: Any, rule: Rule) -> list[Stage]:
    """The graph of a sparse matrix of lengths in memory: what is not stored is not joined; stored zeros are.

    Where it has several blocks, they hold near nodes.
    """
    matrix = X.tocsr().astype(np.float64)
    matrix.sum_duplicates()
    shape = given_shape(matrix.shape, np.float64)
    refuse_few(rule, shape.n)
    wrong = np.flatnonzero(~((matrix.data >= 0) & np.isfinite(matrix.data)))
    row = np.repeat(np.arange(shape.n), np.diff(matrix.indptr))
    column = matrix.indices.astype(np.int64)
    if len(wrong):
        i, j, value = row[wrong[0]], column[wrong[0]], matrix.data[wrong[0]]
        raise InputError(
            f"{len(wrong)} lengths of the graph are NaN, infinite or negative, the first that of ({i}, {j}): "
            f"{value:g}; lengths are finite and ≥ 0. Leave missing edges out"
        )
    digest = sha256()
    for part in (row, column, matrix.data):
        digest.update(np.ascontiguousarray(part).tobytes())

    def join(context: Context) -> dict[str, Any]:
        apart = row != column
        rows, columns, lengths = rule.of(row[apart], column[apart], matrix.data[apart])
        sent = []
        for b, (start, stop) in enumerate(bounds(shape.n, shape.block)):
            part = slice(*np.searchsorted(rows, [start, stop]))
            mine = rows[part] - start, columns[part], lengths[part]
            sent.append(leave_edges(b, start, mine, shape.block, context.exchange))
        return join_all(context, shape, sent) | vars(rule)

    survey = Stage("survey", (), {"source": digest.hexdigest(), "metric": GIVEN}, lambda _: described(shape))
    cost = Cost(disk=24 * matrix.nnz)
    if shape.n <= shape.block:
        return [survey, order_stage(shape, vars(rule)), Stage("graph", ("survey", "order"), vars(rule), join, cost)]
    edges = Stage(EDGES, ("survey",), vars(rule), join, cost)
    return [survey, *ordered_stages(edges, "graph", "squared", (shape.n, 2 * matrix.nnz, shape.block), vars(rule))]


def refuse_few(rule: Rule, n: int) -> None:
    """InputError where there are fewer rows than neighbors."""
    if rule.n_neighbors is not None and rule.n_neighbors >= n:
        raise InputError(
            f"n_neighbors={rule.n_neighbors} needs at least {rule.n_neighbors + 1} rows (the row itself is not "
            f"counted); got n_samples = {n}. Lower n_neighbors or give more rows"
        )


# --- one block -----------------------------------------------------------------------------------


def edges_block(
    b: int, start: int, stop: int, *, source: RowSource, rule: Rule, step: int, exchange: Exchange
) -> list[int]:
    """Leave the edges of some rows, each with the block of either end. Returns those blocks."""
    held: dict[int, Edges] = {}
    for first, left, values in tiles(source, start, stop):
        before = held.get(first, NO_EDGES)
        near = values <= rule.reach(before, len(values))[:, None]
        inside = np.arange(max(first, left), min(first + len(values), left + values.shape[1]))
        near[inside - first, inside - left] = False
        row, column = np.nonzero(near)
        found = zip(before, (row, column + left, values[row, column]), strict=True)
        held[first] = rule.of(*(np.concatenate(part) for part in found))
        if sum(len(row) for row, _, _ in held.values()) > BLOCK_EDGES:
            raise PlanError(
                f"the rows {start} to {stop} of the distances have more than {BLOCK_EDGES} edges: the graph is not "
                "sparse. Take a smaller radius, or fewer neighbors"
            )
    parts = [(row + first - start, column, length) for first, (row, column, length) in sorted(held.items())]
    row, column, length = (np.concatenate(part) for part in zip(*parts, strict=True))
    return leave_edges(b, start, (row, column, length), step, exchange)


def leave_edges(b: int, start: int, edges: Edges, step: int, exchange: Exchange) -> list[int]:
    """Leave edges of the rows from ``start`` on as they are, and reversed for the blocks of their other ends."""
    row, column, length = edges
    owner = column // step
    pieces = {f"own {name}": part for name, part in zip("ijd", edges, strict=True)}
    for block in np.unique(owner).tolist():
        mine = owner == block
        turned = column[mine] - block * step, row[mine] + start, length[mine]
        pieces |= {f"{block} {name}": part for name, part in zip("ijd", turned, strict=True)}
    exchange.put("edges", b, pieces)
    return [int(block) for block in np.unique(owner)]


def join_all(context: Context, shape: Shape, sent: Sequence[list[int]]) -> dict[str, Any]:
    """The symmetric graph of what the blocks left for each other."""
    starts = [0, *(stop for _, stop in bounds(shape.n, shape.block))]
    shared: dict[str, Any] = {"exchange": context.exchange, "out": context.path("")}
    found = map_blocks(join_block, list(enumerate(senders_of(sent))), starts=starts, **shared)
    counted = finish_graph(context, found, starts)
    return {name: counted[name] for name in ("blocks", "edges", "halo_rows", "zero_edges")}


def join_block(b: int, senders: list[int], *, starts: list[int], exchange: Exchange, out: str) -> dict[str, Any]:
    """Own edges, those of other ends, and the diagonal as a CSR block; of two lengths of an edge the smaller one."""
    n = starts[b + 1] - starts[b]
    names = [(b, "own"), *((sender, str(b)) for sender in senders)]
    parts = [exchange.get_many("edges", sender, [f"{piece} {name}" for name in "ijd"]) for sender, piece in names]
    parts.append([np.arange(n), np.arange(n) + starts[b], np.zeros(n)])
    row, column, length = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(length, kind="stable")
    squared = np.square(length[order])
    block = csr_block(b, row[order].astype(np.int32), column[order].astype(np.int64), squared, starts)
    return write_block(b, block, exchange, out)


# --- new rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenIndex:
    """How rows of distances to the fitted ones are joined to them."""

    order: str
    rule: Rule
    placed: int = 0
    """Blocks of the input, of a graph whose nodes are in an order of their own."""

    def internal(self, column: Array) -> Array:
        """Nodes of the graph for nodes of the input."""
        if not self.placed:
            return column
        return np.concatenate([read_array(f"{self.order}/places/{b}") for b in range(self.placed)])[column]


def join_given(rows: Array, index: GivenIndex, first: int = 0) -> Joined:
    """Edges of new rows, of which ``rows`` (m, n) holds the distances to all fitted rows.

    ``first`` is the number of the first one.
    """
    refuse_distances(rows, None, first)
    row, column = np.nonzero(np.ones(rows.shape, bool))
    row, column, length = index.rule.of(row, column, rows.ravel().astype(np.float64))
    counts = np.bincount(row, minlength=len(rows))
    none = np.zeros(len(rows), np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Joined(indptr, index.internal(column), np.square(length), none.astype(np.float64), none, none)
