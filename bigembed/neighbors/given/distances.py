"""The neighbor graph of a square array of distances larger than memory, or of a sparse matrix of lengths.

The array is walked once in tiles, by tasks that begin and end with its chunks: every entry is checked, and each row
keeps the edges that its rule takes. The edges are then those of any given graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import InputError, PlanError
from bigembed.linalg.pairs import Seen, refuse_asymmetry, refuse_diagonal, refuse_entries
from bigembed.neighbors.given import GIVEN, edge_graph_stages, edge_shape
from bigembed.neighbors.radius import BLOCK_EDGES, EDGES_PLANNED
from bigembed.neighbors.survey import Shape, refuse_few_rows
from bigembed.rows import RowSource
from bigembed.rows.edges import Piece
from bigembed.rows.graph_source import GraphSource, open_graph
from bigembed.rows.passes import checked_shape
from bigembed.rows.tiles import panel_memory, tiles
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange

TASK_ROWS = 2_048
"""Rows of a task, about, and of a piece of the lists."""
LISTS = "lists"
SAMPLED = 400
"""Rows whose distances to all rows are kept, for what judges a map of them."""

Edges = tuple[Array, Array, Array]
"""Rows, columns, lengths."""
NO_EDGES = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True)
class Rule:
    """Which distances of a row are edges: the k smallest (equal ones by column), or those within a radius."""

    n_neighbors: int | None
    radius: float | None = None

    @property
    def per_row(self) -> int:
        """Edges of a row; of a radius those that a plan counts with."""
        return EDGES_PLANNED if self.n_neighbors is None else self.n_neighbors

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
        if self.n_neighbors is None:
            return np.full(rows, self.radius)
        longest, counts = np.full(rows, np.inf), np.bincount(edges[0], minlength=rows)
        full = counts == self.n_neighbors
        longest[full] = edges[2][np.cumsum(counts)[full] - 1]
        return longest


@dataclass(frozen=True)
class PickedEdges:
    """Edges that the first stage picked among the distances, by pieces of :data:`TASK_ROWS` rows."""

    n: int
    per_row: int
    path: str = ""
    """Where the stage is; empty as long as it is planned."""

    @property
    def units(self) -> int:
        return -(-self.n // TASK_ROWS)

    @property
    def entries(self) -> int:
        return self.n * self.per_row

    @property
    def nodes(self) -> int:
        return self.n

    @property
    def grain(self) -> int:
        return 1

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        for b in range(start, stop):
            indptr, column, length = (read_array(f"{self.path}/{name}/{b}") for name in ("indptr", "column", "length"))
            yield np.repeat(np.arange(len(indptr) - 1) + b * TASK_ROWS, np.diff(indptr)), column, length

    def fingerprint(self) -> str:
        return self.path


def given_shape(shape: tuple[int, ...], dtype: Any) -> Shape:
    """Shape of a square matrix of distances."""
    if shape[0] != shape[-1] or shape[0] < 2:
        raise InputError(f"metric='precomputed': distances form a square array (n, n), n ≥ 2; got shape {shape}")
    return Shape(shape[0], shape[0], str(np.dtype(dtype)), GIVEN)


def refuse_few(rule: Rule, n: int) -> None:
    """InputError where there are fewer rows than neighbors, or neither neighbors nor a radius."""
    if rule.n_neighbors is None and rule.radius is None:
        raise InputError(
            "metric='precomputed' takes the nearest of the given distances: give n_neighbors, up to n − 1; "
            "n_neighbors=None, the kernel of every pair, is for rows"
        )
    refuse_few_rows(rule.n_neighbors, n)


def distance_graph(source: RowSource, rule: Rule) -> GraphSource:
    """The graph of the edges that the rule takes of an array of distances, before it is read."""
    shape = given_shape(checked_shape(source), source.work)
    refuse_few(rule, shape.n)
    edges = PickedEdges(shape.n, min(rule.per_row, shape.n - 1))
    known = source.fingerprint()
    return GraphSource(
        (shape.n, shape.n), np.dtype(np.float64), edges=edges, values="distances", symmetrize="min", known=known,
        joins=asdict(rule),
    )  # fmt: skip


def distance_stages(source: RowSource, rule: Rule) -> list[Stage]:
    """From an array of distances to the symmetric graph, with the scale of each row. One pass over the array."""
    graph = distance_graph(source, rule)
    return edge_graph_stages(graph, pick_stage(source, rule, edge_shape(graph)))


def length_graph(X: Any, rule: Rule) -> GraphSource:
    """The graph of the edges that the rule takes of a sparse matrix of lengths in memory: what is not stored is not
    joined, stored zeros are."""
    matrix = X.tocsr().astype(np.float64)
    matrix.sum_duplicates()
    n = given_shape(matrix.shape, np.float64).n
    refuse_few(rule, n)
    wrong = np.flatnonzero(~((matrix.data >= 0) & np.isfinite(matrix.data)))
    row, column = np.repeat(np.arange(n), np.diff(matrix.indptr)), matrix.indices.astype(np.int64)
    if len(wrong):
        i, j, value = row[wrong[0]], column[wrong[0]], matrix.data[wrong[0]]
        raise InputError(
            f"{len(wrong)} lengths of the graph are NaN, infinite or negative, the first that of ({i}, {j}): "
            f"{value:g}; lengths are finite and ≥ 0. Leave missing edges out"
        )
    apart = row != column
    rows, columns, lengths = rule.of(row[apart], column[apart], matrix.data[apart])
    indptr = np.searchsorted(rows, np.arange(n + 1))
    found = open_graph(csr_array((lengths, columns, indptr), shape=(n, n)), values="distances")
    return found.by(**asdict(rule))


# --- the pass over the array ---------------------------------------------------------------------


def pick_stage(source: RowSource, rule: Rule, shape: Shape) -> Stage:
    """Check all distances, and pick the edges of each row: ``indptr/b``, ``column/b`` and ``length/b`` of pieces of
    rows, by (row, length, column); of k neighbors ``reach/b`` and ``last/b``, the squared length and the column of the
    last edge. ``sampled`` (n, s) are the distances of all rows to those of the numbers ``sample``."""
    n, rows = shape.n, task_rows(source)
    per_row, looks = min(n, rule.per_row), len(sampled_rows(n))
    edges = n * per_row
    kept = [ArraySpec("column/*", edges, dtype="i8"), ArraySpec("length/*", edges)]
    kept += [ArraySpec("indptr/*", n, dtype="i8")]
    if rule.n_neighbors is not None:
        kept += [ArraySpec("reach/*", n), ArraySpec("last/*", n, dtype="i8")]
    looked = [ArraySpec("sampled", n, looks, source.work), ArraySpec("sample", looks, dtype="i8")]
    cost = Cost.of(
        reads=[ArraySpec("distances", n, n, source.dtype)],
        writes=[*kept, *looked],
        leaves=[ArraySpec("edges", edges, 3), ArraySpec("counts of the rows by task", n, -(-n // rows))],
        task=[
            buffer("panels of distances", panel_memory(source, rows)),
            ArraySpec("edges", rows, per_row, times=20),
            ArraySpec("sampled", rows, looks, source.work, 2),
            buffer("tiles", 128 << 20),
        ],
        coordinator=[ArraySpec("counts and columns", n, 12)],
        passes=1,
        scalar_ops=5 * n * n,
        maps=2,
    )
    parameters = {"source": source.fingerprint(), "metric": GIVEN, "sampled": SAMPLED, **asdict(rule)}
    return Stage("survey", (), parameters, partial(run_pick, source=source, rule=rule, shape=shape), cost)


def run_pick(context: Context, source: RowSource, rule: Rule, shape: Shape) -> dict[str, Any]:
    n, rows, sample = shape.n, task_rows(source), sampled_rows(shape.n)
    spans = [(number, *span) for number, span in enumerate(bounds(n, rows))]
    shared: dict[str, Any] = {"rule": rule, "exchange": context.exchange}
    kept = context.path("sampled")
    create_rows(kept, (n, len(sample)), source.work, rows, overwrite=True)
    write_array(context.path("sample"), sample)
    refuse_wrong(map_blocks(pick_block, spans, source=source, kept=kept, **shared), n, context.exchange)
    tasks = [
        (b, start, stop, start // rows, (stop - 1) // rows) for b, (start, stop) in enumerate(bounds(n, TASK_ROWS))
    ]
    map_blocks(list_block, tasks, out=context.path(""), **shared)
    context.note(f"{n} × {n} distances are finite, symmetric and zero on the diagonal")
    return {"n": n, "d": n, "dtype": shape.dtype, "metric": GIVEN, "all_pairs": True, "sampled": len(sample)}


def task_rows(source: RowSource) -> int:
    """Rows of a task: about :data:`TASK_ROWS`, up to where chunks end."""
    n, high = source.shape[0], max(1, source.chunks[0])
    return int(min(n, -(-TASK_ROWS // high) * high))


def sampled_rows(n: int) -> Array:
    """Numbers of the rows that are sampled, ascending: the same for any method and its random numbers."""
    return np.sort(np.random.default_rng([0, n]).choice(n, min(n, SAMPLED), replace=False)).astype(np.int64)


def pick_block(
    number: int, start: int, stop: int, *, source: RowSource, rule: Rule, exchange: Exchange, kept: str
) -> dict[str, Any]:
    """Leave the edges of some rows, and what shows whether they are rows of a matrix of distances; keep their distances
    to the sampled ones."""
    seen, sums, sample = Seen(start, stop, source.shape[1]), np.zeros(stop - start), sampled_rows(source.shape[1])
    held: dict[int, Edges] = {}
    looks = np.zeros((stop - start, len(sample)), source.work)
    for first, left, values in tiles(source, start, stop):
        if not seen.admits(values, first, left):
            continue
        held[first] = _nearer(held.get(first, NO_EDGES), values, first, left, rule)
        low, high = np.searchsorted(sample, [left, left + values.shape[1]])
        looks[first - start : first - start + len(values), low:high] = values[:, sample[low:high] - left]
        with np.errstate(over="ignore", invalid="ignore"):
            np.square(values, out=values)
            seen.add(values, first, left)
            sums[first - start : first - start + len(values)] += values.sum(axis=1)
        if sum(len(row) for row, _, _ in held.values()) > BLOCK_EDGES:
            raise PlanError(
                f"the rows {start} to {stop} of the distances have more than {BLOCK_EDGES} edges: the graph is not "
                "sparse. Take a smaller radius, or fewer neighbors"
            )
    if not seen.wrong["rows"]:
        write_rows(kept, start, looks)
        parts = [(row + first, column, length) for first, (row, column, length) in sorted(held.items())]
        row, column, length = (np.concatenate(part) for part in zip(*parts, strict=True))
        pieces = {"row": row, "column": column, "length": length}
        exchange.put(LISTS, number, pieces)
        exchange.put("seen", number, {"rows": np.column_stack([seen.rows, sums]), "columns": seen.columns[:, 0]})
    return seen.wrong


def _nearer(before: Edges, values: Array, first: int, left: int, rule: Rule) -> Edges:
    """The edges of the rows of a tile so far, and those in it."""
    limit, k = rule.reach(before, len(values)), rule.n_neighbors
    if k is not None and values.shape[1] > k + 1 and np.isinf(limit).any():
        limit = np.minimum(limit, np.partition(values, k, axis=1)[:, k])  # (one of these is the row itself, perhaps)
    near = values <= limit[:, None]
    inside = np.arange(max(first, left), min(first + len(values), left + values.shape[1]))
    near[inside - first, inside - left] = False
    row, column = np.nonzero(near)
    if not len(row):
        return before
    found = zip(before, (row, column + left, values[row, column]), strict=True)
    return rule.of(*(np.concatenate(part) for part in found))


def refuse_wrong(found: list[dict[str, Any]], n: int, exchange: Exchange) -> None:
    """InputError unless the rows that tasks looked at are those of a matrix of distances."""
    refuse_entries(found, n)
    parts, turned = [], np.zeros(n)
    for number in range(len(found)):
        rows, columns = exchange.get_many("seen", number, ["rows", "columns"])
        parts.append(rows)
        turned += columns
    product, fourth, diagonal, sums = np.concatenate(parts).T
    refuse_asymmetry(product, turned, fourth)
    refuse_diagonal(diagonal, sums / n)


def list_block(
    b: int, start: int, stop: int, first: int, last: int, *, rule: Rule, exchange: Exchange, out: str
) -> None:
    """Write a piece of the lists, of what the tasks ``first`` to ``last`` left."""
    found = [exchange.get_many(LISTS, number, ["row", "column", "length"]) for number in range(first, last + 1)]
    row, column, length = (np.concatenate(part) for part in zip(*found, strict=True))
    part = slice(*np.searchsorted(row, [start, stop]))
    indptr = np.searchsorted(row[part], np.arange(start, stop + 1))
    write_array(f"{out}indptr/{b}", indptr)
    write_array(f"{out}column/{b}", column[part])
    write_array(f"{out}length/{b}", length[part])
    if rule.n_neighbors is not None:
        write_array(f"{out}reach/{b}", np.square(length[part][indptr[1:] - 1]))
        write_array(f"{out}last/{b}", column[part][indptr[1:] - 1])
