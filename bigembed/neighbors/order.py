"""The second pass over the rows: each to its partition, then into cells. It makes the internal row order.

Internal row id = rank in (partition, cell) order. Near rows get near ids, so the graph, its
products and its aggregates become block-local. A partition is the canonical block of all that follows; what writes a
graph over these blocks is at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.distance import CENTERED
from bigembed.neighbors.partition import FEW_ROWS, assign_block, balanced_centers, cells_block
from bigembed.neighbors.survey import Shape, Sketched, ordered_of, prepare
from bigembed.rows import RowBlock, RowSource, work_dtype
from bigembed.rows.passes import map_row_blocks
from bigembed.runtime.blocks import Array, by_owner, is_sparse, map_blocks, offsets, owner_of
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store import at
from bigembed.store.arrays import read_array, read_rows, reading, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, halo_of, write_outbox, write_structure, write_values
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
        return cls(path.rstrip("/"), tuple(map(int, blocks)), tuple(map(int, starts)), columns)

    @property
    def rows_of(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(int(size) for size in np.diff(self.starts))

    def rows(self, block: int, start: int = 0, stop: int | None = None) -> Array:
        """Rows ``start:stop`` of a block; the sketches of sparse rows."""
        return in_work(read_array(f"{self.path}/rows/{self.blocks[block]}", start, stop))

    def compared(self, block: int, start: int = 0, stop: int | None = None) -> Any:
        """Rows ``start:stop`` of a block as distances are taken of them: CSR where they are sparse."""
        if not self.columns:
            return self.rows(block, start, stop)
        place, name = f"{self.path}/points", self.blocks[block]
        stop = self.rows_of[block] if stop is None else stop
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
            many = len(inside) * FEW_OF >= self.rows_of[b]
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


# ------------------------------------------------------------------------------------------------- blocks of a graph
# Blocks as they are written: entries sorted into rows, halos asked for, and what each block owes others.

COUNTED = ("edges", "halo_rows", "zero_edges", "isolated")
REPEATS = "repeats"
"""The array of a graph that says which rows equal others: the lengths of its edges may be gone by then."""


def graph_arrays(n: int, entries: int, values: str = "squared", dtype: Any = "f4") -> Arrays:
    """Declare a graph by row blocks of which so many entries are stored, with halos of as many rows as there are.

    Columns are counted with 32 bits, which those of a block take that has more than 65 536 with its halo.
    """
    halos = [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("halo_rows", "halo_sources")]
    halos += [ArraySpec(f"{name}/*", n, dtype="i4") for name in ("outbox_rows", "outbox_destinations")]
    few = [ArraySpec(name, 0, dtype="i8") for name in ("halo_offsets/*", "outbox_sizes/*", "starts")]
    few += [ArraySpec(f"{REPEATS}/*", 0, 2, "i8")] if values == "squared" else []
    rows = [ArraySpec("indptr/*", n, dtype="i8"), ArraySpec("indices/*", entries, dtype="i4")]
    return [*rows, ArraySpec(f"{values}/*", entries, dtype=dtype), *halos, *few]


def listed_entries(n: int, k: int) -> int:
    """Return how many entries a graph of k neighbors has at the most: those of the lists, the same turned round, and
    the diagonal.

    There are nearly as many where no two rows list each other, as of many equal numbers.

    >>> listed_entries(100, 5), listed_entries(3, 2)
    (1100, 9)
    """
    return min(n * n, n * (2 * k + 1))


def csr_block(b: int, rows: Array, columns: Array, values: Array, starts: Sequence[int]) -> CSRBlock:
    """A CSR block from (local row, global column, value) triples; of equal (row, column) the first value is kept."""
    own = (columns >= starts[b]) & (columns < starts[b + 1])
    far = np.unique(columns[~own])
    local = np.where(own, columns - starts[b], 0).astype(np.int32)
    local[~own] = starts[b + 1] - starts[b] + np.searchsorted(far, columns[~own])
    width = np.int64(starts[b + 1] - starts[b] + len(far))
    _, keep = np.unique(rows * width + local, return_index=True)
    rows, local, values = rows[keep], local[keep], values[keep]
    count = starts[b + 1] - starts[b]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
    return CSRBlock(indptr, local, values, *halo_of(starts, far))


def repeats_in(b: int, block: CSRBlock, starts: Sequence[int]) -> Array:
    """Return rows of block b that an edge of length 0 joins to a row of lower internal id, and the lowest such id.

    Ties among neighbors go to the lower id, so that of rows that are equal each is joined to the first, however many
    they are: the row that a new row that equals them is taken for, too. Of shape (rows that repeat, 2).
    """
    zeros = np.flatnonzero(block.data == 0)
    if len(zeros) < len(block.indptr):  # (the diagonal alone, which is 0 in every row)
        return np.zeros((0, 2), np.int64)
    first = np.searchsorted(zeros, block.indptr[:-1])
    lowest = np.minimum.reduceat(block.ids(b, starts)[block.indices[zeros]], first)
    repeated = np.flatnonzero(lowest < np.arange(starts[b], starts[b + 1]))
    return np.stack([repeated, lowest[repeated]], axis=1)


def write_block(
    b: int, block: CSRBlock, starts: Sequence[int], exchange: Exchange, out: str, values: str = "squared"
) -> dict[str, Any]:
    """Write one block with its diagonal, and ask other blocks for its halo; counts, of edges without the diagonal.

    Of squared lengths it says, too, which rows repeat others: ``repeats``.
    """
    write_structure(out, b, block)
    write_values(f"{out}{values}", b, block.data)
    if values == "squared":
        write_array(f"{out}{REPEATS}/{b}", repeats_in(b, block, starts))
    exchange.put("wanted", b, {str(source): rows for source, rows in block.segments()})
    degrees = np.diff(block.indptr)
    return {
        "edges": len(block.data) - len(degrees),
        "halo_rows": len(block.halo_rows),
        "zero_edges": int(np.count_nonzero(block.data == 0)) - len(degrees),
        "isolated": int(np.count_nonzero(degrees == 1)),
        "halo_of": block.halo_sources.tolist(),
    }


def finish_graph(context: Context, found: Sequence[dict[str, Any]], starts: Sequence[int]) -> dict[str, int]:
    """Of all blocks that :func:`write_block` wrote: what each owes others, ``starts``, and the sums of the counts."""
    askers = senders_of([part["halo_of"] for part in found])
    map_blocks(outbox_block, list(enumerate(askers)), exchange=context.exchange, out=context.path(""))
    write_array(context.path("starts"), np.array(starts, np.int64))
    return {"blocks": len(found)} | {name: sum(part[name] for part in found) for name in COUNTED}


def senders_of(sent: Sequence[Iterable[int]], receivers: int | None = None) -> list[list[int]]:
    """For each block, ascending, the blocks that left something for it; ``sent`` holds the receivers of each.

    ``receivers``: how many there are, if not as many as senders.

    >>> senders_of([[1, 2], [2], []])
    [[], [0], [0, 1]]
    """
    senders: list[list[int]] = [[] for _ in range(len(sent) if receivers is None else receivers)]
    for sender, addressed in enumerate(sent):
        for receiver in addressed:
            senders[receiver].append(sender)
    return senders


def concatenated(sent: list[list[Array]]) -> list[Array]:
    """Concatenate the arrays that several blocks sent, the first of each, the second of each, and so on.

    The list is emptied, so that the parts of one array are freed before the next one is made.

    >>> concatenated([[np.array([1]), np.array([2.0])], [np.array([3]), np.array([4.0])]])
    [array([1, 3]), array([2., 4.])]
    """
    columns = [list(each) for each in zip(*sent, strict=True)]
    sent.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def id_type(n: int) -> Any:
    """Return the type of the ids of n rows: int32 where it holds twice an id and one, too, else int64."""
    return np.int32 if 2 * n < np.iinfo(np.int32).max else np.int64


def outbox_block(b: int, askers: list[int], *, exchange: Exchange, out: str) -> None:
    """Collect which rows of this block the others asked for."""
    write_outbox(out, b, [(other, exchange.piece("wanted", other, str(b))) for other in askers])
