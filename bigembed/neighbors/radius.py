"""The graph that joins all rows within a radius (the ε-graph), exactly, by cells; and of few rows all pairs.

Two cells are compared when their centers are no farther apart than their radii and ε together: no other rows can be
joined. Distances are computed again exactly where rounding could decide, symmetric to the last bit, so both blocks
of an edge find it by themselves. How many edges there will be is estimated first, from sampled rows against all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from bigembed.distance import all_squared, paired_squared
from bigembed.errors import InputError, PlanError
from bigembed.neighbors import approximate_squared, dense_block
from bigembed.neighbors.graph_blocks import REPEATS, csr_block, finish_graph, graph_arrays, repeats_in, write_block
from bigembed.neighbors.order import ListedCells, Ordered
from bigembed.neighbors.query import Joined, join_whole, locate
from bigembed.neighbors.search import ground_truth
from bigembed.neighbors.search.by_metric import ByMetric, Cells, by_metric
from bigembed.neighbors.search.every_block import foreign_pieces, leave_cells_block
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer
from bigembed.store import free_bytes
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import write_outbox, write_structure, write_values

BLOCK_EDGES = 4_000_000
"""Edges that a task holds, some 64 bytes each: with blocks of 65 536 rows, 61 a row."""
EDGE_BYTES = 12
"""Of a stored edge: index and squared length."""
EDGES_PLANNED = 30
"""Of a row, where nothing is known yet."""
WANTED_DEGREE = 15
"""Mean number of neighbors that a proposed radius gives."""
_TILE_ROWS = 4_096
_PAIRS = 1 << 18
_LOOSE = 1 + 1e-6


# --- how many edges ------------------------------------------------------------------------------


def density_stage(shape: Shape, radius: float, seed: int) -> Stage:
    """Radii of the cells; the mean number of rows within ε, from sampled rows against all; the refusal of too many.

    ``histogram``: squared distances of the sampled rows to all, counted, then e of the unit 2ᵉ.
    """

    size = ground_truth.sample_size(shape.n)
    rows = [ArraySpec("rows", size, shape.width, shape.dtype), ArraySpec("ids", size, dtype="i8")]
    cost = Cost.of(
        reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1")],
        writes=[*rows, ArraySpec("histogram", ground_truth.BINS, dtype="i8"), ArraySpec("cell_radii", shape.n // 100)],
        task=[
            ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 2),
            ArraySpec("tiles of distances", size, _TILE_ROWS, times=3),
        ],
        coordinator=[ArraySpec("sampled rows", size, shape.row_bytes, "u1", 4)],
        passes=1,
    )
    return Stage(
        "density",
        ("order",),
        {"radius": radius, "seed": seed, "histogram": True},
        partial(run_density, shape=shape, radius=radius, seed=seed),
        cost,
    )


def run_density(context: Context, shape: Shape, radius: float, seed: int) -> dict[str, Any]:
    ordered = Ordered.open(context.of("order"))
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(ground_truth.choose_block, blocks, ordered=ordered, k=1, seed=seed, exchange=context.exchange)
    chosen = [context.exchange.get_many("chosen", b, ["rows", "ids"]) for (b,) in blocks]
    write_array(context.path("rows"), np.concatenate([rows for rows, _ in chosen]))
    write_array(context.path("ids"), np.concatenate([ids for _, ids in chosen]))
    unit = int(np.frexp(radius)[1])
    fixed: dict[str, Any] = {"radius": radius, "sample": context.path(""), "unit": unit}
    found = map_blocks(density_block, blocks, ordered=ordered, **fixed)
    write_array(context.path("cell_radii"), np.concatenate([part[0] for part in found]))
    degree = np.sum([part[1] for part in found], axis=0) - 1
    histogram = np.sum([part[2] for part in found], axis=0)
    write_array(context.path("histogram"), np.append(histogram, unit))
    out = {
        "radius": radius,
        "sampled": len(degree),
        "mean_degree": float(degree.mean()),
        "standard_error": float(degree.std() / np.sqrt(len(degree))),
        "isolated": float(np.mean(degree == 0)),
        "proposed": float(np.ldexp(_proposed(histogram, len(degree)), unit)),
    }
    _refuse(out, shape.n, max(ordered.rows_of), free_bytes(context.home.root))
    return out


def density_block(b: int, *, ordered: Ordered, radius: float, sample: str, unit: int) -> tuple[Array, Array, Array]:
    """Radii of the cells of one block; how many of its rows lie within ε of each sampled row; their squared distances,
    in units of 2ᵉ (e = ``unit``), counted by the upper half of their float32 bit pattern."""
    rows, (offsets, centers), queries = ordered.rows(b), ordered.cells(b), read_array(f"{sample}rows")
    places = read_array(f"{sample}ids") - ordered.starts[b]
    radii = np.zeros(len(centers))
    for c, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        part = rows[start:stop]
        radii[c] = np.sqrt(paired_squared(part, np.broadcast_to(centers[c], part.shape)).max(initial=0.0))
    within, counts = np.zeros(len(queries), np.int64), np.zeros(ground_truth.BINS, np.int64)
    for start, stop in bounds(len(rows), _TILE_ROWS):
        squared = np.maximum(approximate_squared(queries, rows[start:stop])[0], 0)
        here = np.flatnonzero((places >= start) & (places < stop))
        squared[here, places[here] - start] = 0.0  # of itself, without rounding
        within += np.count_nonzero(squared <= radius**2, axis=1)
        scaled = np.ldexp(squared, -2 * unit).astype(np.float32)
        counts += np.bincount(scaled.ravel().view(np.uint32) >> 16, minlength=ground_truth.BINS)
    return radii, within, counts


def _proposed(histogram: Array, sampled: int) -> float:
    """The radius within which a sampled row has :data:`WANTED_DEGREE` others on average."""
    place = int(np.searchsorted(np.cumsum(histogram), (WANTED_DEGREE + 1) * sampled))
    squared = np.array([(min(place, (1 << 16) - 1) << 16) | 0x8000], np.uint32).view(np.float32)[0]
    return float(np.sqrt(np.float64(squared)))


def _refuse(found: dict[str, Any], n: int, largest: int, free: int) -> None:
    degree = found["mean_degree"] + 2 * found["standard_error"]
    advice = (
        f"radius={found['proposed']:.3g} would join {WANTED_DEGREE} on average; or give n_neighbors, which is the same "
        "everywhere"
    )
    seen = f"radius={found['radius']:.6g} joins a row to {found['mean_degree']:.0f} others on average"
    if degree * largest > BLOCK_EDGES:
        raise PlanError(
            f"{seen} (estimated from {found['sampled']} rows): {degree * largest:.3g} edges in a block of {largest} "
            f"rows, at most {BLOCK_EDGES}. {advice}"
        )
    if 2 * EDGE_BYTES * degree * n > free:
        raise PlanError(
            f"{seen} (estimated from {found['sampled']} rows): {degree * n:.3g} edges, "
            f"{int(2 * EDGE_BYTES * degree * n) >> 20} MiB while they are written, of {free >> 20} MiB free. {advice}"
        )


# --- the graph -----------------------------------------------------------------------------------


def radius_graph_stage(shape: Shape, radius: float) -> Stage:
    """The graph by row blocks: structure, squared distances ≤ ε², outboxes; the diagonal is stored as 0."""

    edges = radius_edges(shape)
    held = min(BLOCK_EDGES, shape.largest_block * shape.n)
    cost = Cost.of(
        reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1", 2)],
        writes=graph_arrays(shape.n, edges, dtype=shape.dtype),
        leaves=[ArraySpec("rows of cells nearby", shape.n, shape.row_bytes, "u1")],
        task=[
            ArraySpec("edges", held, 8),
            ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 4),
            buffer("tiles of distances", 32 << 20),
        ],
        passes=1,
    )
    return Stage("graph", ("order", "density"), {"radius": radius}, partial(run_radius_graph, radius=radius), cost)


def run_radius_graph(context: Context, radius: float) -> dict[str, Any]:
    ordered = Ordered.open(context.of("order"))
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(leave_cells_block, blocks, ordered=ordered, exchange=context.exchange)
    found = map_blocks(
        radius_block,
        blocks,
        ordered=ordered,
        radius=radius,
        radii=context.of("density", "cell_radii"),
        exchange=context.exchange,
        out=context.path(""),
    )
    return finish_graph(context, found, ordered.starts) | {"radius": radius}


def radius_edges(shape: Shape) -> int:
    """Edges that a plan counts with. What a sample estimates decides before any are written."""
    return shape.n * min(shape.n, EDGES_PLANNED)


def radius_block(
    b: int, *, ordered: Ordered, radius: float, radii: str, exchange: Exchange, out: str
) -> dict[str, Any]:
    """One block: every pair within ε that has a row in it."""
    rows, (offsets, centers) = ordered.rows(b), ordered.cells(b)
    cell_radii, every = read_array(radii), read_array(f"{ordered.path}/cell_centers")
    first = int(read_array(f"{ordered.path}/cell_block_starts", b, b + 1)[0])
    near = [near_cells(center, cell_radii[first + c], every, cell_radii, radius) for c, center in enumerate(centers)]
    wanted = np.unique(np.concatenate(near))
    ids = np.arange(ordered.starts[b], ordered.starts[b + 1], dtype=np.int64)
    own = Cells(np.arange(first, first + len(centers)), offsets, rows, ids, centers)
    parts: list[tuple[Array, Array, Array]] = [
        (np.arange(len(rows), dtype=np.int32), ids, np.zeros(len(rows), rows.dtype))
    ]
    total = 0
    for piece in chain([own], foreign_pieces(b, ListedCells.read(ordered, wanted), ordered, exchange)):
        for c, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
            for row, column, squared in pairs_within(
                rows[start:stop], centers[c], cell_radii[first + c], piece, near[c], radius
            ):
                other = piece.ids[column]
                apart = other != ids[start + row]
                parts.append(((start + row[apart]).astype(np.int32), other[apart], squared[apart].astype(rows.dtype)))
                total += int(apart.sum())
        if total > BLOCK_EDGES:
            raise PlanError(
                f"radius={radius:.6g} joins more than {BLOCK_EDGES} pairs in block {b} ({len(rows)} rows, where the "
                "data are densest). Take a smaller radius, or n_neighbors, which is the same everywhere"
            )
    row_of, column_of, value_of = (np.concatenate(part) for part in zip(*parts, strict=True))
    return write_block(b, csr_block(b, row_of, column_of, value_of, ordered.starts), ordered.starts, exchange, out)


def near_cells(center: Array, reach: float, centers: Array, radii: Array, radius: float) -> Array:
    """Cells that may hold a row within ε of a row within ``reach`` of ``center``."""
    squared = paired_squared(centers, np.broadcast_to(center, centers.shape))
    return np.flatnonzero(np.sqrt(squared) <= (reach + radii + radius) * _LOOSE)


def pairs_within(
    rows: Array, center: Array, reach: float, piece: Cells, near: Array, radius: float
) -> Iterator[tuple[Array, Array, Array]]:
    """Pairs (row, row of the piece, squared distance ≤ ε²) of the rows of one cell, in bounded parts."""
    cells = np.flatnonzero(np.isin(piece.numbers, near))
    if not len(cells):
        return
    spans = [np.arange(piece.offsets[c], piece.offsets[c + 1]) for c in cells]
    columns = np.concatenate(spans)
    gaps = np.sqrt(paired_squared(piece.rows[columns], np.broadcast_to(center, (len(columns), rows.shape[1]))))
    columns = columns[gaps <= (reach + radius) * _LOOSE]
    for start in range(0, len(columns), _TILE_ROWS):
        tile = columns[start : start + _TILE_ROWS]
        approximate, slack = approximate_squared(rows, piece.rows[tile])
        row, place = np.nonzero(~(approximate > (radius**2 + slack)[:, None]))
        for first in range(0, len(row), _PAIRS):
            part = slice(first, first + _PAIRS)
            squared = paired_squared(rows[row[part]], piece.rows[tile[place[part]]])
            good = squared <= radius**2
            yield row[part][good], tile[place[part]][good], squared[good]


# -------------------------------------------------------------------------------------------------------- every pair
# The complete graph of some thousand rows as one dense block, and new rows joined to all rows, without a search.
# Distances are bit by bit those of lists of all other rows (:mod:`bigembed.neighbors`).

COMPLETE_ROWS = 4_096
_PAIR_ROWS = 256


def is_dense(n_neighbors: int | None, shape: Shape) -> bool:
    """Whether all pairs are asked for and held as one block; InputError where there are too many rows for that."""
    if n_neighbors is None and not 2 <= shape.n <= COMPLETE_ROWS:
        raise InputError(
            f"n_neighbors=None takes every pair of rows, which is meant for 2 ≤ n ≤ {COMPLETE_ROWS}; got n_samples = "
            f"{shape.n}. {'Give more rows' if shape.n < 2 else 'Give a number of neighbors'}"
        )
    return n_neighbors is None and shape.n <= shape.block


def every_pair_stage(shape: Shape, seed: int) -> Stage:
    """All squared distances as one block of the graph, ``squared/0``.

    Of each row that to its farthest, ``rho_squared``, and to its two nearest, ``nearest``; ``histogram`` of those of
    sampled rows, then e of its unit 2ᵉ. Memory of its one task: 20 n² bytes.
    """

    by = by_metric(shape)
    pairs, item = shape.n**2, np.dtype(shape.dtype).itemsize
    n = shape.n
    writes = [
        ArraySpec("nearest/*", n, 2, shape.dtype),
        ArraySpec("rho_squared/*", n, dtype=shape.dtype),
        ArraySpec("histogram", ground_truth.BINS, dtype="i8"),
    ]
    cost = Cost.of(
        reads=[ArraySpec("rows", n, shape.row_bytes, "u1")],
        writes=[*graph_arrays(n, pairs, "squared", shape.dtype), *writes],
        task=[ArraySpec("distances and columns", pairs, 12 + item, "u1"), ArraySpec("rows", n, shape.d, times=2.5)],
        passes=1,
        scalar_ops=pairs,
        terms=2 * pairs * by.every if by else 0.0,
    )
    parameters = {"n_neighbors": shape.n - 1, "seed": seed}
    return Stage("graph", ("survey", "order"), parameters, partial(run_every_pair, shape=shape, seed=seed), cost)


def run_every_pair(context: Context, shape: Shape, seed: int) -> dict[str, Any]:
    ordered, unit = Ordered.open(context.of("order")), ground_truth.unit_of(context.results("survey"))
    fixed: dict[str, Any] = {"ordered": ordered, "seed": seed, "unit": unit, "out": context.path("")}
    fixed["by"] = by_metric(shape)
    [zeros] = map_blocks(every_pair_block, [(0,)], **fixed)
    n = shape.n
    write_array(context.path("starts"), np.array([0, n], np.int64))
    return {"n_neighbors": n - 1, "blocks": 1, "edges": n * (n - 1), "halo_rows": 0, "zero_edges": zeros}


def every_pair_block(b: int, *, ordered: Ordered, seed: int, unit: int, by: ByMetric | None, out: str) -> int:
    """The only block; how many pairs of rows are equal, each counted from both."""
    rows = ordered.rows(b)
    n = len(rows)
    sampled = ground_truth.spread_rows(n, seed)
    numbers = np.arange(n)
    if by is None:
        counts = ground_truth.distance_counts(rows[sampled], sampled, rows, numbers, unit)
        with np.errstate(over="ignore"):
            squared = all_squared(rows).astype(rows.dtype, copy=False)
    else:
        compared = ordered.compared(b)
        counts = by.counts(compared[sampled], sampled, compared, numbers, unit, ground_truth.BINS)
        squared = by.squared(compared, compared, numbers, numbers)
    write_array(f"{out}histogram", np.append(counts, unit))
    np.fill_diagonal(squared, np.inf)
    two = min(2, n - 1)
    nearest = [np.partition(squared[part], two - 1, axis=1)[:, :two] for part in _tiles(n)]
    np.fill_diagonal(squared, 0)
    write_array(f"{out}nearest/{b}", np.sort(np.concatenate(nearest), axis=1))
    write_array(f"{out}rho_squared/{b}", squared.max(axis=1))
    block = dense_block(squared)
    write_structure(out, b, block)
    write_values(f"{out}squared", b, block.data)
    write_array(f"{out}{REPEATS}/{b}", repeats_in(b, block, ordered.starts))
    write_outbox(out, b, [])
    return n * (n - 1) - int(np.count_nonzero(squared))


def _tiles(n: int) -> Iterator[slice]:
    return (slice(*span) for span in bounds(n, _PAIR_ROWS))


def recalled_stage(n: int, target: float) -> Stage:
    """Recall of a graph of all pairs."""
    found = {"recall": 1.0, "standard_error": 0.0, "target": target, "rows": n, "advice": ""}
    return Stage("recall", ("graph",), {"target": target}, partial(run_recalled, found=found))


def run_recalled(context: Context, found: dict[str, Any]) -> dict[str, Any]:
    return dict(found)


# --- new rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DenseIndex:
    """Where a query finds the fitted rows, all of which are joined to each new one."""

    order: str
    centers: str
    n_neighbors: int
    by: ByMetric | None = None


def join_every(rows: Any, index: DenseIndex) -> Iterator[tuple[Array, Joined]]:
    """Edges of prepared new rows (n, d) in parts of about :data:`~bigembed.neighbors.query.MAX_PAIRS`."""
    ordered = Ordered.open(index.order)
    return join_whole(rows, ordered.compared(0), *locate(rows, ordered, index.centers), index.by)
