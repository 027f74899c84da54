"""Rows fewer than their columns: products of all pairs of rows, and the directions in columns that follow from them.

The scatter XᵀX (d, d) of centered rows X and their products XXᵀ (n, n) have the same eigenvalues, besides zeros, and an
eigenvector u of the second gives Xᵀu of the first: classical scaling (seed 000 §2) finds principal components so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from scipy import linalg

from bigembed.rows import RowBlock, RowSource, row_block, row_blocks
from bigembed.rows.passes import Parts, map_row_blocks, reduce_rows
from bigembed.rows.sparse import ENTRY_BYTES
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


# ---------------------------------------------------------------------------------------------------- standardized


@dataclass(frozen=True)
class Standard:
    """What is taken off rows, and what their columns are divided by: z = (x − m) / s."""

    centers: Array
    """Of all rows (1, d), or of each class (c, d) where rows have ``labels``, their numbers."""
    scale: Array | None = None
    """(d,)."""

    def panels(self, block: RowBlock) -> Iterator[tuple[slice, Array]]:
        """Which columns, and z of these (m, some), in double precision; of dense rows."""
        labels = block.aligned.get("labels")
        for part in (slice(*span) for span in bounds(self.centers.shape[1], TILE_COLUMNS)):
            found = block.rows[:, part] - (self.centers[0, part] if labels is None else self.centers[labels, part])
            yield part, found if self.scale is None else found / self.scale[part]


@dataclass(frozen=True)
class StandardizedRows:
    """Rows z, few of many columns, and sums over them. What is taken off them lies in the exchange."""

    source: RowSource
    """Dense rows, with ``labels`` or not, or sparse ones."""
    exchange: Exchange

    @classmethod
    def of(cls, source: RowSource, exchange: Exchange, standard: Standard) -> StandardizedRows:
        """Rows of a source; of what is aligned with them only labels are read."""
        scale = {} if standard.scale is None else {"scale": standard.scale}
        exchange.put("standard", 0, {"centers": standard.centers, **scale})
        labels = {name: one for name, one in source.aligned.items() if name == "labels"}
        return cls(replace(source, aligned=labels), exchange)

    @property
    def standard(self) -> Standard:
        """What is taken off, and what is divided by."""
        (centers,) = self.exchange.mapped("standard", 0, ["centers"])
        return Standard(centers, *self.exchange.look("standard", 0, ["scale"]))

    def products(self) -> Array:
        """z_i·z_j of all pairs, (n, n).

        A task takes some rows and reads all before them: (t + 1)/2 passes in t tasks. (The last ones, which take the
        longest, begin first.)
        """
        n, spans = self.source.shape[0], task_spans(self.source)
        tasks = [(number, *span) for number, span in enumerate(spans)]
        map_blocks(products_block, tasks[::-1], label="products", rows=self)
        found = np.empty((n, n))
        for number, (start, stop) in enumerate(spans):
            part = self.exchange.piece("products", number, "products")
            found[start:stop, :stop] = part
            found[:start, start:stop] = part[:, :start].T
        return found

    def times(self, columns: Array) -> Array:
        """z_i·c of each of some ``columns`` (d, b), (n, b): one pass."""
        self.exchange.put("columns", 0, {"columns": columns})
        return np.concatenate(map_row_blocks(self.source, times_block, label="times", of=self))

    def combined(self, factors: Array) -> Array:
        """Σ_i z_i u_iᵀ, (d, k), for ``factors`` u (n, k): one pass for as many as :data:`SUM_BYTES` hold."""
        d = self.source.shape[1]
        found = np.empty((d, factors.shape[1]), order="F")
        for number, (low, high) in enumerate(bounds(factors.shape[1], _width(d))):
            self.exchange.put("factors", number, {"factors": factors[:, low:high]})
            found[:, low:high] = reduce_rows(
                self.source,
                combined_block,
                self.exchange,
                partial_bytes=8 * d * (high - low),
                label=f"directions {number}",
                of=self,
                number=number,
            )["sum"]
        return found


def task_spans(source: RowSource) -> list[tuple[int, int]]:
    """First row of each task, and one past its last."""
    return bounds(source.shape[0], min(TASK_ROWS, max(LEAST_TASK_ROWS, TASK_BYTES // source.row_bytes)))


def _width(d: int) -> int:
    """Directions that are found in one pass."""
    return max(1, SUM_BYTES // (8 * d))


def products_block(number: int, start: int, stop: int, *, rows: StandardizedRows) -> None:
    """Leave the products of the rows ``start:stop`` with themselves and all rows before."""
    standard, own = rows.standard, row_block(rows.source, start, stop)
    found = np.empty((stop - start, stop))
    for block in row_blocks(rows.source, range(-(-stop // rows.source.block))):
        upto = min(block.stop, stop)
        found[:, block.start : upto] = products(own, block, standard)[:, : upto - block.start]
    rows.exchange.put("products", number, {"products": found})


def products(one: RowBlock, other: RowBlock, standard: Standard) -> Array:
    """z_i·z_j of the rows of two blocks, in double precision.

    >>> one, other = RowBlock(0, 0, np.array([[1.0, 2.0]])), RowBlock(0, 0, np.array([[3.0, 4.0]]))
    >>> products(one, other, Standard(np.array([[1.0, 1.0]]))).tolist()
    [[3.0]]
    """
    if is_sparse(one.rows):
        mean, left, right = standard.centers[0], one.rows.astype(np.float64), other.rows.astype(np.float64)
        return np.asarray((left @ right.T).toarray() - (left @ mean)[:, None] - (right @ mean) + mean @ mean)
    total = np.zeros((len(one.rows), len(other.rows)))
    for (_, left), (_, right) in zip(standard.panels(one), standard.panels(other), strict=True):
        total += left @ right.T
    return total


def times_block(block: RowBlock, *, of: StandardizedRows) -> Array:
    """z·c of one block of dense rows."""
    columns = of.exchange.piece("columns", 0, "columns")
    return np.asarray(sum(part @ columns[where] for where, part in of.standard.panels(block)))


def combined_block(block: RowBlock, *, of: StandardizedRows, number: int) -> Parts:
    """Σ z uᵀ of one block."""
    standard, (factors,) = of.standard, of.exchange.mapped("factors", number, ["factors"])
    own = np.ascontiguousarray(factors[block.start : block.stop])
    if is_sparse(block.rows):
        return {
            "sum": np.asarray(block.rows.T.astype(np.float64) @ own - np.outer(standard.centers[0], own.sum(axis=0)))
        }
    found = np.empty((standard.centers.shape[1], own.shape[1]))
    for where, part in standard.panels(block):
        found[where] = part.T @ own
    return {"sum": found}


# ------------------------------------------------------------------------------------------------------ directions


def orthonormal(directions: Array) -> tuple[Array, Array]:
    """Columns of length 1 and at right angles, by descending length, in the memory of those given; and these lengths.

    They are so already, but for rounding in directions of little length.
    """
    lengths = np.linalg.norm(directions, axis=0)
    order = np.argsort(-lengths, kind="stable")
    if (order != np.arange(len(order))).any():  # (of almost equal ones)
        directions = np.asfortranarray(directions[:, order])
    directions /= lengths[order]
    found, upper = linalg.qr(directions, mode="economic", overwrite_a=True)
    found *= np.where(upper.diagonal() < 0, -1.0, 1.0)
    return found, lengths[order]


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


def numbers_of_row(source: RowSource) -> float:
    """Numbers of a row; of a sparse one its entries, on average."""
    return source.row_bytes / ENTRY_BYTES if source.sparse else source.shape[1]


def passes_of(source: RowSource, k: int) -> float:
    """Times that the rows are read for the products of all pairs and ``k`` directions."""
    return (len(task_spans(source)) + 1) / 2 + ceil(k / _width(source.shape[1]))


def gram_cost(source: RowSource, k: int) -> Cost:
    """What the products of all pairs, their solve and ``k`` directions take."""
    (n, d), numbers = source.shape, numbers_of_row(source)
    tasks, step = len(task_spans(source)), task_spans(source)[0][1]
    panel = ArraySpec("directions of a pass", d, min(k, _width(d)), times=4)
    products = [
        ArraySpec("rows of a task", step, source.row_bytes, "u1", 2),
        ArraySpec("centered columns", step + source.largest_block, min(d, TILE_COLUMNS), times=2),
        ArraySpec("products", step, n),
    ]
    return Cost.of(
        reads=[rows_of(source, passes_of(source, k))],
        leaves=[ArraySpec("products", n, n), *sums_of_groups(source, panel.nbytes // 4)],
        task=[*window_of(source), *largest(products, [panel])],
        coordinator=[ArraySpec("products", n, n, times=4), ArraySpec("directions", d, k, times=2.5)],
        passes=passes_of(source, k),
        flops=n * numbers * (n + 2 * k),
        serial_flops=9 * n**3 + 4 * d * k**2,
        blocks=tasks,
    )
