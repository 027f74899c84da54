"""Rows fewer than their columns: products of all pairs of rows, and the directions in columns that follow from them.

The scatter XᵀX (d, d) of centered rows X and their products XXᵀ (n, n) have the same eigenvalues, besides zeros, and an
eigenvector u of the second gives Xᵀu of the first: classical scaling (seed 000 §2) finds principal components so.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from scipy import linalg

from bigembed.rows import RowBlock, RowSource, row_blocks
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.stages import ArraySpec, Cost, largest, rows_of, window_of
from bigembed.stages.cost import sums_of_groups
from bigembed.store.exchange import Exchange

MOST_ROWS = 4096
"""Rows up to which their products are formed (n² numbers) and solved densely."""
TASK_ROWS, LEAST_TASK_ROWS = 256, 64
"""Rows that a task compares with all before them: few of very many columns."""
TASK_BYTES = 128 << 20
"""What these may take, beyond the least."""
TILE_COLUMNS = 4096
"""Columns that are centered at a time."""
SUM_BYTES = 64 << 20
"""Directions that one pass over the rows finds; more take more passes."""


# -------------------------------------------------------------------------------------------------------- products


def pair_products(source: RowSource, mean: Array, exchange: Exchange) -> Array:
    """(x_i − m)·(x_j − m) of all pairs of rows, (n, n), which may be dense or sparse.

    A task takes some rows and reads all before them: (t + 1)/2 passes in t tasks. (The last ones, which take the
    longest, begin first.)
    """
    n, spans = source.shape[0], task_spans(source)
    exchange.put("mean", 0, {"mean": mean})
    tasks = [(number, *span) for number, span in enumerate(spans)]
    map_blocks(products_block, tasks[::-1], label="products", source=replace(source, aligned={}), exchange=exchange)
    found = np.empty((n, n))
    for number, (start, stop) in enumerate(spans):
        part = exchange.piece("products", number, "products")
        found[start:stop, :stop] = part
        found[:start, start:stop] = part[:, :start].T
    return found


def task_spans(source: RowSource) -> list[tuple[int, int]]:
    """First row of each task, and one past its last."""
    return bounds(source.shape[0], min(TASK_ROWS, max(LEAST_TASK_ROWS, TASK_BYTES // source.row_bytes)))


def products_block(number: int, start: int, stop: int, *, source: RowSource, exchange: Exchange) -> None:
    """Leave the products of the rows ``start:stop`` with themselves and all rows before."""
    mean, own = exchange.piece("mean", 0, "mean"), source.matrix(start, stop)
    found = np.empty((stop - start, stop))
    for block in row_blocks(source, range(-(-stop // source.block))):
        upto = min(block.stop, stop)
        found[:, block.start : upto] = centered_products(own, block.rows[: upto - block.start], mean)
    exchange.put("products", number, {"products": found})


def centered_products(rows: Any, others: Any, mean: Array) -> Array:
    """(X − 1mᵀ)(Y − 1mᵀ)ᵀ in double precision, of dense rows or of CSR rows.

    >>> centered_products(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]), np.array([1.0, 1.0])).tolist()
    [[3.0]]
    """
    if is_sparse(rows):
        one, other = rows.astype(np.float64), others.astype(np.float64)
        return np.asarray((one @ other.T).toarray() - (one @ mean)[:, None] - (other @ mean) + mean @ mean)
    total = np.zeros((len(rows), len(others)))
    for part in (slice(*span) for span in bounds(len(mean), TILE_COLUMNS)):
        total += (rows[:, part] - mean[part]) @ (others[:, part] - mean[part]).T
    return total


# ------------------------------------------------------------------------------------------------------ directions


def combined_rows(source: RowSource, mean: Array, factors: Array, exchange: Exchange) -> Array:
    """Σ_i (x_i − m) u_iᵀ, (d, k), for ``factors`` u (n, k): one pass for as many as :data:`SUM_BYTES` hold."""
    plain, d = replace(source, aligned={}), len(mean)
    found = np.empty((d, factors.shape[1]))
    for number, (low, high) in enumerate(bounds(factors.shape[1], _width(d))):
        exchange.put("factors", number, {"factors": factors[:, low:high], "mean": mean})
        found[:, low:high] = reduce_rows(
            plain,
            combined_block,
            exchange,
            partial_bytes=8 * d * (high - low),
            label=f"directions {number}",
            operand=exchange,
            number=number,
        )["sum"]
    return found


def _width(d: int) -> int:
    """Directions that are found in one pass."""
    return max(1, SUM_BYTES // (8 * d))


def combined_block(block: RowBlock, *, operand: Exchange, number: int) -> Parts:
    """Σ (x − m) uᵀ of one block."""
    mean, factors = operand.mapped("factors", number, ["mean", "factors"])
    own = np.ascontiguousarray(factors[block.start : block.stop])
    if is_sparse(block.rows):
        return {"sum": np.asarray(block.rows.T.astype(np.float64) @ own - np.outer(mean, own.sum(axis=0)))}
    found = np.empty((len(mean), own.shape[1]))
    for part in (slice(*span) for span in bounds(len(mean), TILE_COLUMNS)):
        found[part] = (block.rows[:, part] - mean[part]).T @ own
    return {"sum": found}


def orthonormal(directions: Array) -> tuple[Array, Array]:
    """Columns of length 1 and at right angles, by descending length, and these lengths.

    They are so already, but for rounding in directions of little length.
    """
    lengths = np.linalg.norm(directions, axis=0)
    order = np.argsort(-lengths, kind="stable")
    found, upper = linalg.qr(directions[:, order] / lengths[order], mode="economic")
    return found * np.where(upper.diagonal() < 0, -1.0, 1.0), lengths[order]


def completed(directions: Array, count: int) -> Array:
    """Orthonormal columns (d, count) of which the first are given.

    The others are projections of unit vectors, of those that lie farthest from what is there.
    """
    there = directions.shape[1]
    while there < count:
        apart = 1 - np.einsum("ij,ij->i", directions, directions)
        units = np.argsort(-apart, kind="stable")[: 2 * (count - there)]
        left = -directions @ directions[units].T
        left[units, np.arange(len(units))] += 1
        found, upper, _ = linalg.qr(left, mode="economic", pivoting=True)
        fresh = int(np.count_nonzero(np.abs(upper.diagonal()) > 0.5 * abs(upper[0, 0])))
        directions = np.hstack([directions, found[:, : min(fresh, count - there)]])
        there = directions.shape[1]
    return directions


# ------------------------------------------------------------------------------------------------------------ cost


def gram_cost(source: RowSource, k: int) -> Cost:
    """What the products of all pairs, their solve and ``k`` directions take."""
    n, d = source.shape
    tasks, step = len(task_spans(source)), task_spans(source)[0][1]
    panel = ArraySpec("directions of a pass", d, min(k, _width(d)), times=4)
    passes = (tasks + 1) / 2 + ceil(k / _width(d))
    products = [
        ArraySpec("rows of a task", step, source.row_bytes, "u1", 2),
        ArraySpec("centered columns", step + source.largest_block, min(d, TILE_COLUMNS), times=2),
        ArraySpec("products", step, n),
    ]
    return Cost.of(
        reads=[rows_of(source, passes)],
        leaves=[ArraySpec("products", n, n), *sums_of_groups(source, panel.nbytes // 4)],
        task=[*window_of(source), *largest(products, [panel])],
        coordinator=[ArraySpec("products", n, n, times=4), ArraySpec("directions", d, k, times=4)],
        passes=passes,
        flops=n * n * d + 2 * n * d * k,
        serial_flops=9 * n**3 + 4 * d * k**2,
        blocks=tasks,
    )
