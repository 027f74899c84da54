"""The second pass over the rows: each to its partition, then into cells. It makes the internal row order.

Internal row id = rank in (partition, cell) order. Near rows get near ids, so the graph, its
products and its aggregates become block-local. A partition is the canonical block of all that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.distance import CENTERED
from bigembed.neighbors.partition import FEW_ROWS, assign_block, balanced_centers, cells_block
from bigembed.neighbors.survey import Shape, Sketched, ordered_of, prepare
from bigembed.rows import RowBlock, RowSource, require_declared, work_dtype
from bigembed.rows.passes import map_row_blocks
from bigembed.runtime.blocks import Array, by_owner, is_sparse, map_blocks, offsets, owner_of
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store import at
from bigembed.store.arrays import read_array, read_rows, reading, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, row_parts, rows_of_parts, send, stacked

KEPT_BYTES = 128 << 20
FEW_OF = 8
"""A block is read whole where more than one in so many of its rows are asked for."""
CHUNK_BYTES = 1 << 20
"""Stored chunk of the ordered rows: they are mostly read in long runs."""
FILL = 0.5
"""Mean partition over the largest allowed: what uneven clusters need."""


def partition_stage(shape: Shape, seed: int) -> Stage:
    """Centers of the partitions: k-means on the sample, split until the largest estimated share fits."""

    partitions = -(-shape.n // shape.block)
    return Stage(
        "partition",
        ("survey",),
        {"seed": seed, "block": shape.block, "fill": FILL},
        partial(run_partition, shape=shape, seed=seed),
        Cost.of(
            writes=[ArraySpec("centers", 2 * partitions, shape.width, shape.dtype)],
            coordinator=[ArraySpec("sample", shape.sample, shape.row_bytes, "u1", 4)],
        ),
        opens={"survey": ("sample",)},
    )


def run_partition(context: Context, shape: Shape, seed: int) -> dict[str, Any]:
    sample = read_array(context.of("survey", "sample"))
    wanted = 1 if shape.n <= shape.block else int(np.ceil(shape.n / (FILL * shape.block)))
    largest = min(1.0, shape.block / shape.n)
    if wanted == 1:
        centers = sample.mean(axis=0, keepdims=True, dtype=np.float64).astype(sample.dtype)
    else:
        centers = balanced_centers(sample, wanted, largest, seed)
    write_array(context.path("centers"), centers)
    return {"partitions": len(centers)}


def dtype_in_order(source: RowSource, shape: Shape) -> np.dtype[Any]:
    """Return what ordered rows are written as: as they were given, if that is narrower and the metric changes none."""
    worked = np.dtype(shape.dtype)
    plain = shape.compare.text == "euclidean" and not shape.sparse and source.dtype.kind in "buif"
    return source.dtype.newbyteorder("=") if plain and source.dtype.itemsize < worked.itemsize else worked


def order_arrays(shape: Shape, cells: int, dtype: Any = None) -> Arrays:
    """Declare rows in the order of a graph, and their cells; ``dtype`` of the rows, if not the one of all else."""
    n, filled = shape.n, shape.filled
    rows = [ArraySpec("rows/*", n, shape.width, dtype or shape.dtype), ArraySpec("ids/*", n, dtype="i8")]
    centers = [ArraySpec(name, cells, shape.width, shape.dtype) for name in ("cell_centers", "cell_centers_of/*")]
    numbers = [ArraySpec(name, cells, dtype="i8") for name in ("cell_offsets/*", "cell_starts")]
    few = [ArraySpec(name, 0, dtype="i8") for name in ("blocks", "starts", "cell_block_starts")]
    if filled is not None:
        entries = n * filled
        rows += [ArraySpec("points/indptr/*", n, dtype="i8"), ArraySpec("points/indices/*", entries, dtype="i8")]
        rows += [ArraySpec("points/data/*", entries, dtype=shape.dtype), ArraySpec("columns", 0, dtype="i8")]
    return [*rows, *centers, *numbers, *few]


def order_stage(source: RowSource, shape: Shape, cell_size: int, seed: int) -> Stage:
    """Rows in (partition, cell) order, their ids, and the cells. One pass over the input."""

    cells = -(-shape.n // cell_size)
    rows, dtype = ArraySpec("rows", shape.n, shape.row_bytes, "u1"), dtype_in_order(source, shape)
    scattered = rows if shape.sparse else ArraySpec("rows", shape.n, shape.width, dtype)
    cost = Cost.of(
        reads=[rows],
        writes=order_arrays(shape, cells, dtype),
        leaves=[scattered, ArraySpec("numbers", shape.n)],
        task=[ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 6)],
        coordinator=[ArraySpec("centers of cells", cells, shape.row_bytes, "u1", 4)],
        passes=1,
        scalar_ops=40 * shape.n,
        maps=2,
    )
    return Stage(
        "order",
        ("survey", "partition"),
        {"cell_size": cell_size, "seed": seed},
        partial(run_order, source=source, shape=shape, cell_size=cell_size, seed=seed),
        cost,
        opens={"survey": ()},
    )


def run_order(context: Context, source: RowSource, shape: Shape, cell_size: int, seed: int) -> dict[str, Any]:
    centers = context.of("partition", "centers")
    columns = shape.d + int(shape.metric in CENTERED) if shape.sparse else 0
    fixed: dict[str, Any] = {"shape": shape, "dtype": dtype_in_order(source, shape), "exchange": context.exchange}
    spans = map_row_blocks(source, scatter_block, centers=centers, **fixed)
    partitions = context.results("partition")["partitions"]
    scattered = merge_parcels(context.exchange, "scatter", len(spans))
    found = map_blocks(
        order_block,
        [(p,) for p in range(partitions)],
        scattered=scattered,
        cell_size=cell_size,
        seed=seed,
        columns=columns,
        out=context.path(""),
    )
    scattered.drop()
    if columns:
        write_array(context.path("columns"), np.array([columns]))
    kept = [p for p, part in enumerate(found) if part["rows"]]
    starts = offsets(found[p]["rows"] for p in kept)
    cells = [read_array(context.path(f"cell_offsets/{p}")) for p in kept]
    write_array(context.path("blocks"), np.array(kept, np.int64))
    write_array(context.path("starts"), starts)
    write_array(context.path("cell_block_starts"), offsets(len(cell) - 1 for cell in cells))
    write_array(
        context.path("cell_starts"),
        np.concatenate([cell[:-1] + start for cell, start in zip(cells, starts[:-1], strict=True)] + [starts[-1:]]),
    )
    write_array(
        context.path("cell_centers"), np.concatenate([read_array(context.path(f"cell_centers_of/{p}")) for p in kept])
    )
    return {"blocks": len(kept), "largest": int(np.diff(starts).max()), "cells": sum(len(c) - 1 for c in cells)}


def scatter_block(block: RowBlock, *, shape: Shape, dtype: np.dtype[Any], centers: str, exchange: Exchange) -> None:
    """Assign the rows of one block of the input, and leave each partition its rows and ids."""
    given = prepare(block.rows, shape)
    rows = ordered_of(given)
    require_declared(rows, dtype, block.start)
    ids = np.arange(block.start, block.stop, dtype=np.int64)
    partitions = read_array(centers)
    labels = assign_block(rows, ids, partitions, compiled=len(rows) > FEW_ROWS)
    order, starts = by_receiver(labels, len(partitions))
    columns = {"rows": (rows[order].astype(dtype, copy=False), starts), "ids": (ids[order], starts)}
    if shape.sparse:
        compared = given.rows[order]
        entries = compared.indptr[starts]
        counts, *parts = row_parts(compared, "compared").items()
        columns |= {counts[0]: (counts[1], starts)} | {name: (part, entries) for name, part in parts}
    send(exchange, "scatter", block.number, columns)


def order_block(
    partition: int, *, scattered: Delivery, cell_size: int, seed: int, columns: int, out: str
) -> dict[str, int]:
    """Collect one partition, divide it into cells, write it in cell order; ``columns`` of sparse rows, else 0."""
    found = scattered.to(partition)
    rows, ids = found["rows"], found["ids"]
    if not len(rows):
        return {"rows": 0, "cells": 0}
    order, cell_offsets, centers = cells_block(in_work(rows), cell_size, seed + partition)
    chunk_rows = max(1, CHUNK_BYTES // (rows.shape[1] * rows.itemsize))
    write_array(f"{out}rows/{partition}", rows[order], chunk_rows=chunk_rows)
    write_array(f"{out}ids/{partition}", ids[order])
    if columns:
        write_points(f"{out}points", partition, rows_of_parts(found, columns, "compared")[order])
    write_array(f"{out}cell_offsets/{partition}", cell_offsets)
    write_array(f"{out}cell_centers_of/{partition}", centers)
    return {"rows": len(rows), "cells": len(cell_offsets) - 1}


def in_work(rows: Array) -> Array:
    """Return ordered rows as they are worked on, whatever they were written as."""
    return rows.astype(work_dtype(rows.dtype), copy=False)


def write_points(out: str, partition: int, rows: Any) -> None:
    """The sparse rows of a partition, in its order."""
    for name, values in (("indptr", rows.indptr.astype(np.int64)), ("indices", rows.indices), ("data", rows.data)):
        write_array(f"{out}/{name}/{partition}", values)


@dataclass(frozen=True)
class Ordered:
    """The ordered rows: a small handle that a block task uses to read them."""

    path: str
    blocks: tuple[int, ...]
    """Names of the non-empty partitions; block b of everything else is partition ``blocks[b]``."""
    starts: tuple[int, ...]
    """First internal id of each block, and n."""
    columns: int = 0
    """Of sparse rows; 0 where dense ones are ordered."""

    @classmethod
    def open(cls, path: str) -> Ordered:
        """Read the handle of a published stage."""
        blocks, starts = read_array(f"{path}/blocks"), read_array(f"{path}/starts")
        columns = int(read_array(f"{path}/columns")[0]) if (at(path) / "columns").exists() else 0
        return cls(path.rstrip("/"), tuple(blocks.tolist()), tuple(starts.tolist()), columns)

    @property
    def rows_of(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(np.diff(self.starts).tolist())

    def size(self, block: int) -> int:
        """Return the rows of one block."""
        return self.starts[block + 1] - self.starts[block]

    def rows(self, block: int, start: int = 0, stop: int | None = None) -> Array:
        """Rows ``start:stop`` of a block; the sketches of sparse rows."""
        return in_work(read_array(f"{self.path}/rows/{self.blocks[block]}", start, stop))

    def compared(self, block: int, start: int = 0, stop: int | None = None) -> Any:
        """Rows ``start:stop`` of a block as distances are taken of them: CSR where they are sparse."""
        if not self.columns:
            return self.rows(block, start, stop)
        place, name = f"{self.path}/points", self.blocks[block]
        stop = self.size(block) if stop is None else stop
        indptr = read_array(f"{place}/indptr/{name}", start, stop + 1)
        low, high = int(indptr[0]), int(indptr[-1])
        indices, data = (read_array(f"{place}/{part}/{name}", low, high) for part in ("indices", "data"))
        with reading(place, f"rows {start}:{stop}"):
            return csr_array((data, indices, indptr - low), shape=(stop - start, self.columns))

    def located(self, block: int) -> Any:
        """The rows of a block, sparse ones with their sketches."""
        rows = self.rows(block)
        return Sketched(self.compared(block), rows) if self.columns else rows

    def compared_rows(self, ids: Array) -> Any:
        """Rows of ascending internal ids as distances are taken of them."""
        if not self.columns:
            return self.take(ids)
        return stacked([self.compared(b)[rows] for b, _, rows in by_owner(self.starts, ids)])

    def located_rows(self, ids: Array) -> Any:
        """Rows of ascending internal ids, sparse ones with their sketches."""
        rows = self.take(ids)
        return Sketched(self.compared_rows(ids), rows) if self.columns else rows

    def take(self, ids: Array) -> Array:
        """Rows of the given internal ids, of any blocks; only the chunks that hold them are read, of many the block."""
        out: Array | None = None
        for b, place, inside in by_owner(self.starts, ids):
            many = len(inside) * FEW_OF >= self.size(b)
            path = f"{self.path}/rows/{self.blocks[b]}"
            rows = read_array(path)[inside] if many else read_rows(path, inside)
            if out is None:
                out = np.empty((len(ids), rows.shape[1]), work_dtype(rows.dtype))
            out[place] = rows
        return self.rows(0, 0, 0) if out is None else out

    def ids(self, block: int) -> Array:
        """Original row numbers of a block."""
        return read_array(f"{self.path}/ids/{self.blocks[block]}")

    def cells(self, block: int) -> tuple[Array, Array]:
        """Cell offsets inside the block, and cell centers."""
        name = self.blocks[block]
        return read_array(f"{self.path}/cell_offsets/{name}"), read_array(f"{self.path}/cell_centers_of/{name}")


def input_rows(order: str | None, b: int, starts: Sequence[int] | Array) -> Array:
    """Return what the rows of a block of a graph are in the input: by its ``order``, or without one the same.

    ``starts``: the first row of each block.
    """
    return Ordered.open(order).ids(b) if order else np.arange(starts[b], starts[b + 1])


@dataclass(frozen=True)
class ListedCells:
    """Some cells of all, ascending: what one block needs to know of those on its shortlists."""

    numbers: Array
    starts: Array
    """First internal id of each."""
    sizes: Array
    centers: Array

    @classmethod
    def read(cls, ordered: Ordered, numbers: Array) -> ListedCells:
        """The cells of these ascending numbers; only the chunks that hold them are read."""
        ends = read_rows(f"{ordered.path}/cell_starts", np.concatenate([numbers, numbers + 1]))
        starts = ends[: len(numbers)]
        centers = read_rows(f"{ordered.path}/cell_centers", numbers)
        return cls(numbers, starts, ends[len(numbers) :] - starts, centers)

    def places(self, numbers: Array) -> Array:
        """Places of cells among these, −1 for one that is not: in the shape of ``numbers``."""
        place = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[place] == numbers, place, -1)

    def some(self, places: Array) -> ListedCells:
        """Those at some places among these."""
        return ListedCells(self.numbers[places], self.starts[places], self.sizes[places], self.centers[places])


class CellIndex:
    """Where all cells lie, and their centers; rows only as they are asked for."""

    def __init__(self, ordered: Ordered) -> None:
        self.ordered = ordered
        self.block_starts = read_array(f"{ordered.path}/cell_block_starts")
        self.starts = read_array(f"{ordered.path}/cell_starts")
        self.centers = read_array(f"{ordered.path}/cell_centers")
        self.sizes = np.diff(self.starts)

    def block_of(self, cells: Any) -> Any:
        """The block that holds a cell, or each of several."""
        return owner_of(self.block_starts, cells)


class CellReader(CellIndex):
    """Rows of single cells, the last ones kept (:data:`KEPT_BYTES`): what a query or a bridge looks at."""

    def __init__(self, ordered: Ordered) -> None:
        super().__init__(ordered)
        self._kept: dict[int, Any] = {}
        self._bytes = 0

    def ids(self, cell: int) -> Array:
        """Internal ids of the rows of a cell."""
        return np.arange(self.starts[cell], self.starts[cell + 1])

    def rows(self, cell: int) -> Any:
        """Rows of a cell, as distances are taken of them."""
        if cell not in self._kept:
            block = self.block_of(cell)
            base = self.ordered.starts[block]
            part = self.ordered.compared(block, int(self.starts[cell] - base), int(self.starts[cell + 1] - base))
            while self._kept and self._bytes + _size_of(part) > KEPT_BYTES:
                self._bytes -= _size_of(self._kept.pop(next(iter(self._kept))))
            self._kept[cell] = part
            self._bytes += _size_of(part)
        return self._kept[cell]


def _size_of(rows: Any) -> int:
    """Bytes of rows, dense or CSR."""
    return int(rows.data.nbytes + rows.indices.nbytes) if is_sparse(rows) else int(rows.nbytes)
