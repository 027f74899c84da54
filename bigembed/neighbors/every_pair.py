"""Few rows, stages: the complete graph as one dense block, and new rows joined to all rows, without a search.

For some thousand rows. Distances are bit by bit those of lists of all other rows (:mod:`bigembed.neighbors.exact`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.distance.pairwise import all_squared
from bigembed.errors import InputError
from bigembed.neighbors.exact import dense_block
from bigembed.neighbors.graph_blocks import graph_arrays
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Joined, join_all, locate
from bigembed.neighbors.search.by_metric import ByMetric, by_metric
from bigembed.neighbors.search.ground_truth import BINS, distance_counts, spread_rows, unit_of
from bigembed.neighbors.survey import Shape, compared_of
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import write_array
from bigembed.store.matrix import write_outbox, write_structure, write_values

COMPLETE_ROWS = 4_096
_TILE_ROWS = 256


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
        ArraySpec("histogram", BINS, dtype="i8"),
    ]
    cost = Cost.of(
        reads=[ArraySpec("rows", n, shape.row_bytes, "u1")],
        writes=[*graph_arrays(n, pairs, "squared", shape.dtype), *writes],
        task=[ArraySpec("distances and columns", pairs, 12 + item, "u1"), ArraySpec("rows", n, shape.d, times=2.5)],
        passes=1,
        scalar_ops=pairs,
        terms=2 * pairs * by.every if by else 0.0,
    )
    return Stage(
        "graph",
        ("survey", "order"),
        {"n_neighbors": shape.n - 1, "seed": seed},
        partial(run_every_pair, shape=shape, seed=seed, by=by),
        cost,
    )


def run_every_pair(context: Context, shape: Shape, seed: int, by: Any) -> dict[str, Any]:
    ordered, unit = Ordered.open(context.of("order")), unit_of(context.results("survey"))
    fixed: dict[str, Any] = {"ordered": ordered, "seed": seed, "unit": unit, "out": context.path("")}
    fixed["by"] = by
    [zeros] = map_blocks(every_pair_block, [(0,)], **fixed)
    n = shape.n
    write_array(context.path("starts"), np.array([0, n], np.int64))
    return {"n_neighbors": n - 1, "blocks": 1, "edges": n * (n - 1), "halo_rows": 0, "zero_edges": zeros}


def every_pair_block(b: int, *, ordered: Ordered, seed: int, unit: int, by: ByMetric | None, out: str) -> int:
    """The only block; how many pairs of rows are equal, each counted from both."""
    rows = ordered.rows(b)
    n = len(rows)
    sampled = spread_rows(n, seed)
    numbers = np.arange(n)
    if by is None:
        counts = distance_counts(rows[sampled], sampled, rows, numbers, unit)
        with np.errstate(over="ignore"):
            squared = all_squared(rows).astype(rows.dtype, copy=False)
    else:
        compared = ordered.compared(b)
        counts = by.counts(compared[sampled], sampled, compared, numbers, unit, BINS)
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
    write_outbox(out, b, [])
    return n * (n - 1) - int(np.count_nonzero(squared))


def _tiles(n: int) -> Iterator[slice]:
    return (slice(*span) for span in bounds(n, _TILE_ROWS))


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
    block, cell = locate(rows, ordered, index.centers)
    whole = ordered.compared(0)
    for start, stop in bounds(len(rows), max(1, MAX_PAIRS // whole.shape[0])):
        part = slice(start, stop)
        joined = join_all(compared_of(rows[part]), whole, block[part], cell[part], index.by)
        yield np.arange(start, stop), joined
