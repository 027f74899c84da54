"""The search of every block in the cells that its rows probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.distance import PAIRS, named
from bigembed.neighbors import empty_lists, exact_block
from bigembed.neighbors.graph_blocks import senders_of
from bigembed.neighbors.order import CellIndex, ListedCells, Ordered
from bigembed.neighbors.search import LINKED, TRUTH, describe_search, probes
from bigembed.neighbors.search.by_metric import ByMetric, Cells, by_metric, search_cells, search_own
from bigembed.neighbors.search.ground_truth import EXACT_ROWS
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, by_owner, map_blocks, offsets
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange

# ------------------------------------------------------------------------------------------------------ cell spans
# Cells of the ordered rows, read in spans, block by block: what a query and the filling of components sweep over.

GAP_BYTES = 1 << 20
"""Cells nobody asked for are read too where they lie between others and are fewer bytes than this."""


@dataclass(frozen=True)
class CellSpan:
    """Consecutive cells of one block."""

    block: int
    start: int
    """First row of the span, counted inside its block."""
    stop: int
    cells: Cells

    def read(self, path: str) -> Array:
        """The span's rows of a per-row array that is stored by block under ``path/b``."""
        return read_array(f"{path}/{self.block}", self.start, self.stop)


class StoredCells(CellIndex):
    """All cells, whose rows are read in spans."""

    def spans(self, cells: Array, blocks_first: Array | None = None) -> Iterator[CellSpan]:
        """Spans that hold all of ``cells`` (ascending), each read once; ``blocks_first`` come before other blocks."""
        owner = self.block_of(cells)
        blocks = np.unique(owner)
        if blocks_first is not None:
            blocks = np.concatenate([blocks[np.isin(blocks, blocks_first)], blocks[~np.isin(blocks, blocks_first)]])
        for b in blocks.tolist():
            mine = cells[owner == b]
            apart = (self.starts[mine[1:]] - self.starts[mine[:-1] + 1]) * self._row_bytes() > GAP_BYTES
            for run in np.split(mine, np.flatnonzero(apart) + 1):
                yield self._read(b, int(run[0]), int(run[-1]) + 1)

    def _row_bytes(self) -> int:
        return int(self.centers.shape[1] * self.centers.itemsize)

    def _read(self, b: int, first: int, last: int) -> CellSpan:
        base = self.ordered.starts[b]
        start, stop = int(self.starts[first]), int(self.starts[last])
        rows = self.ordered.compared(b, start - base, stop - base)
        ids = np.arange(start, stop, dtype=np.int64)
        numbers = np.arange(first, last)
        cells = Cells(numbers, self.starts[first : last + 1] - start, rows, ids, self.centers[first:last])
        return CellSpan(b, start - base, stop - base, cells)


# ----------------------------------------------------------------------------------------------------- every block

Found = tuple[int, list[int]]
"""Pairs that the search of a block compared, and the blocks whose cells its rows probe."""
Descend = Callable[[Context, Ordered, Shape, int, float], dict[str, Any]]
"""The search of k neighbors of all rows with a target for the recall; what the stage returns."""
PROBES = 80
"""Bytes of a row that a plan counts with for the cells that it probes, and its part of longer shortlists: 64 and 11 of
512 cells; recall decides."""
COMPARED = 1300
"""Pairs of a row and another that a plan counts with, when the cells are probed."""


def list_arrays(n: int, k: int, dtype: Any) -> Arrays:
    """Declare lists of the k nearest neighbors of each row."""
    return [
        ArraySpec("neighbors/*", n, k, "i8"),
        ArraySpec("squared/*", n, k, dtype),
        ArraySpec("rho_squared/*", n, dtype=dtype),
        ArraySpec("kappa/*", n, dtype="i8"),
    ]


def search_stage(shape: Shape, n_neighbors: int, descend: Descend) -> Stage:
    """The k nearest rows of every row among the cells that it probes, or as ``descend`` finds them from there."""
    n, row_bytes, block, by = shape.n, shape.row_bytes, shape.largest_block, by_metric(shape)

    cost = Cost.of(
        reads=[ArraySpec("rows", n, row_bytes, "u1", 2)],
        writes=[
            *list_arrays(n, n_neighbors, shape.dtype),
            ArraySpec("probed/*", n, PROBES, "u1"),
            ArraySpec("shortlist/*", 0, 0, "i4"),
            *(ArraySpec(f"{name}/*", 0, dtype=dtype) for name, dtype in (("asked_indptr", "i8"), ("asked", "i4"))),
        ],
        leaves=[ArraySpec("rows of cells nearby", n, row_bytes, "u1")],
        task=[
            ArraySpec("rows", block, row_bytes, "u1", 3),
            ArraySpec("lists", block, 3 * n_neighbors + 120, "f4"),
            buffer("tiles of distances", 32 << 20),
        ],
        passes=2,
        scalar_ops=n * min(n, COMPARED),
        terms=n * min(n, compared_by(by, n)) * by.listed if by else 0.0,
        maps=3,
    )
    parameters = {"n_neighbors": n_neighbors, "probed": True}
    run = partial(run_search, shape=shape, n_neighbors=n_neighbors, descend=descend)
    return Stage("search", ("order", "shortlist", TRUTH), parameters, run, cost)


def run_search(context: Context, shape: Shape, n_neighbors: int, descend: Descend) -> dict[str, Any]:
    n, by = shape.n, by_metric(shape)
    ordered = Ordered.open(context.of("order"))
    blocks = [(b,) for b in range(len(ordered.blocks))]
    decided = context.results(TRUTH)
    n_probes = decided["n_probes"]
    context.note(describe_search(decided))
    if decided.get("algorithm") in LINKED:
        return descend(context, ordered, shape, n_neighbors, decided["target"])
    shortlist, longer = context.of("shortlist"), {}
    if "shortlist" in decided:
        probes.leave_near_blocks(ordered, context.exchange)
        probes.write_shortlists(ordered, context.exchange, decided["shortlist"], context.path(""))
        shortlist, longer = context.path("").rstrip("/"), {"shortlist": decided["shortlist"]}
    compute: Callable[..., Found]
    shared: dict[str, Any]
    if n <= EXACT_ROWS and len(blocks) == 1:
        compute, shared = all_pairs_block, {"by": by}
        n_probes = context.results("order")["cells"]  # a query then compares every pair too
    elif by is not None:
        compute, shared = search_by_metric, {"shortlist": shortlist, "n_probes": n_probes, "by": by}
    else:
        compute, shared = search_block, {"shortlist": shortlist, "n_probes": n_probes}
        map_blocks(leave_cells_block, blocks, ordered=ordered, exchange=context.exchange)
    found = map_blocks(
        compute, blocks, ordered=ordered, k=n_neighbors, exchange=context.exchange, out=context.path(""), **shared
    )
    pairs = write_asked(found, ordered=ordered, exchange=context.exchange, out=context.path(""))
    return {"n_neighbors": n_neighbors, "n_probes": n_probes, "compared_per_row": pairs / n, **longer}


def compared_by(by: ByMetric, n: int) -> int:
    """Rows that a row is compared with pair by pair, for a plan: all of few; of many, where the metric goes with the
    Euclidean distances by which they are ordered, few, else most of a shortlist."""
    if n <= EXACT_ROWS:
        return n
    dense = by.every == by.listed
    ordered = dense and by.metric.name in named(PAIRS) and by.metric.name != "hamming"
    return COMPARED if ordered else probes.SHORTLIST * 192


def all_pairs_block(b: int, *, ordered: Ordered, k: int, by: ByMetric | None, exchange: Exchange, out: str) -> Found:
    """Every pair of the only block."""
    rows = ordered.rows(b)
    if by is None:
        ids, squared = exact_block(rows, k)
    else:
        numbers, compared = np.arange(len(rows), dtype=np.int64), ordered.compared(b)
        ids, squared = empty_lists(len(rows), k, np.dtype(by.dtype))
        by.update_lists(ids, squared, compared, numbers, compared, numbers)
    cells = len(ordered.cells(b)[0]) - 1
    everywhere = np.stack(np.meshgrid(np.arange(cells), np.arange(cells), indexing="ij"), axis=-1).reshape(-1, 2)
    return len(rows) ** 2, _finish(b, ids, squared, everywhere, ordered, exchange, out)


def search_block(
    b: int, *, ordered: Ordered, k: int, shortlist: str, n_probes: int, exchange: Exchange, out: str
) -> Found:
    """Search one block: its own cells first, then cells of other blocks, a bounded piece at a time."""
    rows = ordered.rows(b)
    cell_offsets, centers = ordered.cells(b)
    first = int(read_array(f"{ordered.path}/cell_block_starts", b, b + 1)[0])
    probing, listed = probed_block(b, rows, cell_offsets, ordered, k, shortlist, n_probes, out)
    ids, squared = empty_lists(len(rows), k, rows.dtype)
    row_ids = np.arange(ordered.starts[b], ordered.starts[b + 1], dtype=np.int64)
    own = Cells(np.arange(first, first + len(centers)), cell_offsets, rows, row_ids, centers)
    pairs = search_own(ids, squared, rows, row_ids, probing, own)
    probed = listed.some(np.searchsorted(listed.numbers, probing.cells))
    for piece in foreign_pieces(b, probed, ordered, exchange):
        pairs += search_cells(ids, squared, rows, row_ids, probing, piece)
    asking = probes.asking_cells(probing, cell_offsets) + np.array([first, 0])
    return pairs, _finish(b, ids, squared, asking, ordered, exchange, out)


def probed_block(
    b: int, rows: Array, cell_offsets: Array, ordered: Ordered, k: int, shortlist: str, n_probes: int, out: str
) -> tuple[probes.Probing, ListedCells]:
    """Which cells the rows of a block probe, which is written, too; and the cells on its shortlists."""
    lists = read_array(f"{shortlist}/shortlist/{b}")
    cells = ListedCells.read(ordered, np.unique(lists[lists >= 0]))
    short = cells.places(lists)
    probed = probes.probe_block(rows, cell_offsets, short, cells.centers, n_probes, sizes=cells.sizes, least=k + 1)
    write_array(f"{out}probed/{b}", probes.pack_probes(probed, cell_offsets, short))
    return probes.group_probes(np.where(probed >= 0, cells.numbers.astype(np.int32)[probed], np.int32(-1))), cells


def search_by_metric(
    b: int, *, ordered: Ordered, k: int, shortlist: str, n_probes: int, by: ByMetric, exchange: Exchange, out: str
) -> Found:
    """Search one block, pair by pair: its own cells first, then the cells of other blocks, read in spans."""
    rows, cells, cell_offsets, pairs = ordered.rows(b), StoredCells(ordered), ordered.cells(b)[0], 0
    probing, _ = probed_block(b, rows, cell_offsets, ordered, k, shortlist, n_probes, out)
    row_ids = np.arange(ordered.starts[b], ordered.starts[b + 1], dtype=np.int64)
    ids, squared = empty_lists(len(rows), k, np.dtype(by.dtype))
    compared = ordered.compared(b)
    for span in cells.spans(probing.cells, np.array([b])):
        pairs += by.search_cells(ids, squared, compared, row_ids, probing, span.cells)
    asking = probes.asking_cells(probing, cell_offsets) + np.array([int(cells.block_starts[b]), 0])
    return pairs, _finish(b, ids, squared, asking, ordered, exchange, out)


def leave_cells_block(b: int, *, ordered: Ordered, exchange: Exchange) -> None:
    """Leave every cell of the block as a separate piece: other blocks want few, and not side by side."""
    rows, (cell_offsets, _) = ordered.rows(b), ordered.cells(b)
    exchange.put("cells", b, {str(c): part for c, part in enumerate(np.split(rows, cell_offsets[1:-1]))})


def foreign_pieces(b: int, cells: ListedCells, ordered: Ordered, exchange: Exchange) -> Iterator[Cells]:
    """Those of some cells that lie in other blocks, block by block."""
    block_starts = read_array(f"{ordered.path}/cell_block_starts")
    for block, at, inside in by_owner(block_starts, cells.numbers):
        if block == b:
            continue
        parts = exchange.get_many("cells", block, [str(c) for c in inside])
        wanted = cells.some(at)
        ids = [np.arange(start, start + len(part)) for start, part in zip(wanted.starts, parts, strict=True)]
        sizes = offsets(len(part) for part in parts)
        yield Cells(wanted.numbers, sizes, np.concatenate(parts), np.concatenate(ids), wanted.centers)


def write_lists(out: str, b: int, ids: Array, squared: Array) -> None:
    """The lists of one block, and ρ² and κ, distance and id of the last of each."""
    write_array(f"{out}neighbors/{b}", ids)
    write_array(f"{out}squared/{b}", squared)
    write_array(f"{out}rho_squared/{b}", squared[:, -1])
    write_array(f"{out}kappa/{b}", ids[:, -1])


def _finish(
    b: int, ids: Array, squared: Array, asking: Array, ordered: Ordered, exchange: Exchange, out: str
) -> list[int]:
    """Write the lists; leave with each block which home cells (column 0) probe its cells (column 1). Which blocks."""
    write_lists(out, b, ids, squared)
    block_starts = read_array(f"{ordered.path}/cell_block_starts")
    pieces = {str(block): asking[at] for block, at, _ in by_owner(block_starts, asking[:, 1])}
    exchange.put("asking", b, pieces)
    return [int(block) for block in pieces]


def write_asked(found: list[Found], *, ordered: Ordered, exchange: Exchange, out: str) -> int:
    """After the search of all blocks: for each cell, the cells that probe it. Returns how many pairs were compared."""
    askers = list(enumerate(senders_of([asked for _, asked in found])))
    map_blocks(asked_block, askers, ordered=ordered, exchange=exchange, out=out)
    return sum(pairs for pairs, _ in found)


def asked_block(b: int, askers: list[int], *, ordered: Ordered, exchange: Exchange, out: str) -> None:
    """For each cell of the block, the cells with a row that probes it: CSR of cell numbers."""
    first, stop = read_array(f"{ordered.path}/cell_block_starts", b, b + 2)
    found = [exchange.piece("asking", other, str(b)) for other in askers]
    asking = np.concatenate([np.zeros((0, 2), np.int64), *found])
    asking = asking[np.lexsort((asking[:, 0], asking[:, 1]))]
    counts = np.bincount(asking[:, 1] - first, minlength=stop - first)
    write_array(f"{out}asked_indptr/{b}", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    write_array(f"{out}asked/{b}", asking[:, 0].astype(np.int32))
