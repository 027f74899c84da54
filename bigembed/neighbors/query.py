"""Neighbors of new rows among the ordered rows: the rows that the symmetric graph would join to each.

A new row x goes to its partition and cell as a row of the training set does, and probes the same
cells. It is joined to its k nearest rows there, and to every row j that would have it among its own
k nearest: that probes x's cell, with ‖x − x_j‖ no larger than j's distance to its k-th neighbor
(ties by id). For a row of the training set these are exactly its edges, so its extension is exact.

All new rows of a batch go through the fitted rows together: each block is read once, and compared in
both directions as in the search of the training set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.distance import every_squared
from bigembed.errors import InputTypeError
from bigembed.neighbors import empty_lists, update_lists
from bigembed.neighbors.descent_walk import NOBODY, Edges, Walk, of_rows, walk_memory
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.partition import FEW_ROWS, assign_block
from bigembed.neighbors.search import by_metric as metric_search
from bigembed.neighbors.search import every_block, ground_truth
from bigembed.neighbors.search.probes import group_probes, probe_rows, unpack_probes
from bigembed.neighbors.survey import Shape, compared_of, ordered_of
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.matrix import StoredMatrix

# ---------------------------------------------------------------------------------------------------------- joined
# Edges of new rows: every row that the symmetric graph would join to each, of what was found in both directions.


@dataclass(frozen=True)
class Joined:
    """Edges of new rows, CSR: internal ids of the rows joined to each, squared distances, and ρ of each new row."""

    indptr: Array
    ids: Array
    squared: Array
    rho: Array
    block: Array
    """Block and cell (inside the block) that each new row belongs to."""
    cell: Array


@dataclass(frozen=True)
class Found:
    """Candidates of the edges of n new rows."""

    ids: Array
    """Nearest fitted rows (n, k + 1), by (squared distance, id): one more than wanted: the row itself may be one."""
    squared: Array
    reverse: Edges
    """Pairs: new row, fitted row within whose reach it lies, squared distance, and the largest id that the new row
    may have to be joined (the id decides between equal distances)."""
    twin: Array
    """Lowest id of an equal fitted row (n,)."""


def in_row_order(parts: Sequence[tuple[Array, Joined]], dtype: np.dtype[Any]) -> Joined:
    """The edges of all rows, in their order, of parts: numbers of some rows, and their edges."""
    members = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
    place = np.argsort(members)
    counts = np.concatenate([np.zeros(0, np.int64), *(np.diff(joined.indptr) for _, joined in parts)])
    starts = np.concatenate([[0], np.cumsum(counts)])
    counts = counts[place]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    edges = np.repeat(starts[place] - indptr[:-1], counts) + np.arange(indptr[-1])
    kinds: dict[str, Any] = {"ids": np.int64, "squared": dtype, "rho": float, "block": np.int64, "cell": np.int64}
    ids, squared, rho, block, cell = (
        np.concatenate([np.zeros(0, kind), *(getattr(joined, name) for _, joined in parts)])
        for name, kind in kinds.items()
    )
    return Joined(indptr, ids[edges], squared[edges], rho[place], block[place], cell[place])


def join_all(rows: Any, fitted: Any, block: Array, cell: Array, by: metric_search.ByMetric | None = None) -> Joined:
    """Every fitted row joined to each new row; ρ is the distance to the k-th that is not the row itself."""
    n, k = fitted.shape[0], fitted.shape[0] - 1
    with np.errstate(over="ignore"):
        squared = by.squared(rows, fitted) if by else every_squared(rows, fitted).astype(rows.dtype)
    two = np.sort(np.partition(squared, k - 1, axis=1)[:, k - 1 :], axis=1)
    rho = np.sqrt(np.where((squared == 0).any(axis=1), two[:, 1], two[:, 0]).astype(np.float64))
    ids = np.tile(np.arange(n, dtype=np.int64), len(squared))
    return Joined(n * np.arange(len(squared) + 1, dtype=np.int64), ids, squared.ravel(), rho, block, cell)


def joined_of(found: Found, k: int, block: Array, cell: Array) -> Joined:
    """The union of both directions, and the row itself where it was fitted: by row and id."""
    n, twin = len(found.ids), found.twin
    near = (found.ids >= 0) & (found.ids != twin[:, None])
    near &= np.cumsum(near, axis=1) <= k
    rho = np.sqrt(np.max(np.where(near, found.squared, 0), axis=1).astype(np.float64))
    new, ids, squared, largest = found.reverse
    mine = (twin[new] <= largest) & (ids != twin[new])
    known = np.flatnonzero(twin != NOBODY)
    row = np.concatenate([np.nonzero(near)[0], new[mine], known])
    ids = np.concatenate([found.ids[near], ids[mine], twin[known]])
    squared = np.concatenate([found.squared[near], squared[mine], np.zeros(len(known), squared.dtype)])
    order = np.lexsort((ids, row))
    row, ids, squared = row[order], ids[order], squared[order]
    fresh = np.ones(len(row), bool)
    fresh[1:] = (row[1:] != row[:-1]) | (ids[1:] != ids[:-1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[fresh], minlength=n))]).astype(np.int64)
    return Joined(indptr, ids[fresh], squared[fresh], rho, block, cell)


# ----------------------------------------------------------------------------------------------------------- query

MAX_PAIRS = 1 << 21
"""Pairs found by the reverse search that are held at a time. A batch with more is divided."""
_TILE = 1024


@dataclass(frozen=True)
class Along:
    """The graph along which new rows get their edges (:mod:`bigembed.neighbors.given.query`)."""

    graph: StoredMatrix
    within: str
    """Where the scales of the fitted rows are, if edges longer than those of both ends weigh nothing: such are left
    out; else empty."""
    version: str
    """Digest of what is stored: a process keeps the last blocks that it read under it."""


@dataclass(frozen=True)
class Index:
    """Where a query finds what it needs of a stored graph: paths and small arrays, read in the task."""

    order: str
    search: str
    shortlist: str
    centers: str
    n_neighbors: int
    n_probes: int
    by: metric_search.ByMetric | None = None
    walk: int = 0
    """Length of the lists of rows that walk from the cells along the fitted lists; 0 where cells are enough."""
    along: Along | None = None
    """The graph along which new rows get their edges, where they are not searched."""


def index_of(run: Run, shape: Shape) -> Index:
    """The index of a graph of k nearest neighbors, from its run or a saved model."""
    search = run.results("search")
    if "candidates" in search:
        raise InputTypeError(
            "transform of new rows needs a graph of one space; this one has its candidates in another space. Build "
            "the graph from the rows alone, or fit to the rows"
        )
    return Index(
        run.path("order"),
        run.path("search"),
        run.path("search" if "shortlist" in search else "shortlist"),
        run.path("partition", "centers"),
        search["n_neighbors"],
        search["n_probes"],
        metric_search.by_metric(shape),
        search.get("walk", 0),
    )


class _Crowded(Exception):
    """More pairs than :data:`MAX_PAIRS`."""


def join_rows(rows: Any, index: Index) -> Joined:
    """Edges of prepared new rows (n, d); each row's edges do not depend on the others."""
    parts = list(join_batches(rows, index))
    return in_row_order(parts, rows.dtype)


def join_batches(rows: Any, index: Index) -> Iterator[tuple[Array, Joined]]:
    """Edges of new rows in parts of a bounded number of edges: numbers of some rows, and their edges."""
    fitted = Fitted(index)
    block, cell = locate(rows, fitted.cells.ordered, index.centers)
    if fitted.complete:
        yield from join_whole(rows, fitted.cells.ordered.compared(0), block, cell, index.by)
        return
    waiting = [np.lexsort((cell, block))] if len(rows) else []
    while waiting:
        members = waiting.pop()
        home = fitted.cells.block_starts[block[members]] + cell[members]
        try:
            joined = joined_of(fitted.search(rows[members], home), index.n_neighbors, block[members], cell[members])
        except _Crowded:
            waiting += [members[len(members) // 2 :], members[: len(members) // 2]]
            continue
        yield members, joined


def join_whole(
    rows: Any, whole: Any, block: Array, cell: Array, by: metric_search.ByMetric | None
) -> Iterator[tuple[Array, Joined]]:
    """Join rows to all fitted ones, in parts of about :data:`MAX_PAIRS` pairs."""
    for start, stop in bounds(len(rows), max(1, MAX_PAIRS // whole.shape[0])):
        part = slice(start, stop)
        yield np.arange(start, stop), join_all(compared_of(rows[part]), whole, block[part], cell[part], by)


def locate(given: Any, ordered: Ordered, centers: str) -> tuple[Array, Array]:
    """Block, and cell inside it, of each row, by the centers at a path: decided exactly as for the fitted rows."""
    rows = ordered_of(given)
    block = locate_blocks(rows, ordered, centers)
    cell = np.zeros(len(rows), np.int64)
    for b in np.unique(block):
        mine = np.flatnonzero(block == b)
        cell[mine] = _assigned(rows[mine], ordered.cells(int(b))[1])
    return block, cell


def locate_blocks(rows: Array, ordered: Ordered, centers: str) -> Array:
    """The block of each row (n,)."""
    partitions = read_array(centers)[list(ordered.blocks)]
    return _assigned(rows, partitions)


def _assigned(rows: Array, centers: Array) -> Array:
    """The nearest center of each row, of equal ones the first."""
    return assign_block(rows, np.zeros(len(rows), np.int64), centers, compiled=len(rows) > FEW_ROWS).astype(np.int64)


def join_memory(index: Index, shape: Shape, rows: int) -> int:
    """Bytes that :func:`join_batches` holds for new rows, in addition to them: planned for twice k edges a row."""
    k, cells = index.n_neighbors, len(read_array(f"{index.order}/cell_starts"))
    span = shape.largest_block * (2 * shape.row_bytes + 9 * index.n_probes + 40) + (32 << 20)
    if index.walk:
        span += walk_memory(shape.n, shape.row_bytes, k, index.walk, rows)
    return span + cells * shape.row_bytes + rows * (shape.row_bytes + 24 * k + 20 * index.n_probes + 2 * k * 120)


class Fitted:
    """The fitted rows as a query reads them."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.cells = every_block.StoredCells(Ordered.open(index.order))

    def search(self, given: Any, home: Array) -> Found:
        """Candidates of the edges of rows (n, d) that lie in the cells ``home`` (n,), ascending."""
        rows = compared_of(given)
        n = rows.shape[0]
        ids, squared = empty_lists(n, max(self.index.n_neighbors + 1, self.index.walk), given.dtype)
        twin, twin_squared = empty_lists(n, 1, given.dtype)
        if self._every_pair():
            reverse = self._search_every(rows, ids, squared)
        else:
            probes = self._probes(ordered_of(given), home)
            reverse = self._search_probed(rows, probes, home, ids, squared, twin, twin_squared)
        twin[twin_squared != 0] = NOBODY
        twin = np.minimum(twin[:, 0], np.where(squared[:, 0] == 0, ids[:, 0], NOBODY))
        if self.index.walk:
            return self._walk(rows, ids, squared, reverse, twin)
        return Found(ids, squared, reverse, twin)

    def _walk(self, rows: Any, ids: Array, squared: Array, reverse: Edges, twin: Array) -> Found:
        """From the lists ``ids``, ``squared`` along those of the fitted rows; a row that was fitted has its own."""
        width, walk = self.index.n_neighbors + 1, Walk(self.cells.ordered, self.index.search, self.index.by)
        new, fitted = np.flatnonzero(twin == NOBODY), np.flatnonzero(twin != NOBODY)
        found = [tuple(part[twin[reverse[0]] == NOBODY] for part in reverse)]
        if len(new):
            lists = ids[new], squared[new]
            found.append(of_rows(new, walk.go(rows[new], np.full(len(new), -1), *lists)))
            ids[new], squared[new] = lists
        ids, squared = ids[:, :width].copy(), squared[:, :width].copy()
        if len(fitted):
            ids[fitted], squared[fitted], who = walk.as_fitted(rows[fitted], twin[fitted], width)
            found.append(of_rows(fitted, who))
        return Found(ids, squared, _concatenated(found, squared.dtype), twin)

    def near(self, given: Any, home: Array, own: Array) -> tuple[Array, Array]:
        """Lists of the fitted rows ``own`` (n,), as if they were new: ids and squared distances (n, L)."""
        rows = compared_of(given)
        ids, squared = empty_lists(len(own), self.index.walk, given.dtype)
        twins = empty_lists(len(own), 1, given.dtype)
        self._search_probed(rows, self._probes(ordered_of(given), home), home, ids, squared, *twins, own)
        Walk(self.cells.ordered, self.index.search, self.index.by).go(rows, own, ids, squared)
        return ids, squared

    @property
    def complete(self) -> bool:
        """Whether the graph joins every fitted row to all others: then it joins new rows to all."""
        return len(self.cells.block_starts) == 2 and self.index.n_neighbors == self.cells.starts[-1] - 1

    def _every_pair(self) -> bool:
        """Whether the training set was one small block, each row compared with all others."""
        small = len(self.cells.block_starts) == 2 and self.cells.starts[-1] <= ground_truth.EXACT_ROWS
        return bool(small and self.index.n_probes >= len(self.cells.sizes) and not self.index.walk)

    def _search_every(self, rows: Any, ids: Array, squared: Array) -> Edges:
        """Every pair, without compiled code."""
        whole, n, by = self.cells.ordered.compared(0), rows.shape[0], self.index.by
        numbers, nobody = np.arange(whole.shape[0], dtype=np.int64), np.full(n, -1, np.int64)
        update = by.update_lists if by else update_lists
        for start in range(0, n, _TILE):
            part = slice(start, start + _TILE)
            update(ids[part], squared[part], rows[part], nobody[part], whole, numbers)
        limits, kappa = (read_array(f"{self.index.search}/{name}/0") for name in ("rho_squared", "kappa"))
        row, found, pair_squared = (by.reverse_every if by else metric_search.reverse_every)(whole, limits, rows)
        return found, row.astype(np.int64), pair_squared, np.where(pair_squared == limits[row], kappa[row], NOBODY)

    def _search_probed(
        self, rows: Any, probes: Array, home: Array, ids: Array, squared: Array, twin: Array, twin_squared: Array,
        nobody: Array | None = None,
    ) -> Edges:  # fmt: skip
        """The cells that each row probes, and the rows that probe its cell: block after block."""
        nobody = np.full(len(home), -1, np.int64) if nobody is None else nobody
        search = self.index.by.search_cells if self.index.by else metric_search.search_cells
        own = probes == home[:, None]
        stray = np.flatnonzero(~own.any(axis=1))  # rows that do not probe their own cell, where equal rows would be
        at_home = group_probes(np.where(own, probes, -1))
        elsewhere = group_probes(np.where(own, -1, probes))
        straying = group_probes(home[stray, None].astype(np.int32))
        homes, first = np.unique(home, return_index=True)
        new = metric_search.Cells(homes, np.append(first, len(home)), rows, nobody, self.cells.centers[homes])
        wanted = np.zeros(len(self.cells.sizes) + 1, bool)
        for cells in (at_home.cells, elsewhere.cells, straying.cells, self._asking(homes)):
            wanted[cells] = True
        is_home = np.zeros(len(self.cells.sizes), bool)
        is_home[homes] = True
        found: list[Edges] = []
        for span in self.cells.spans(np.flatnonzero(wanted), np.unique(self.cells.block_of(homes))):
            search(ids, squared, rows, nobody, at_home, span.cells)  # first, so that lists are full of near rows
            search(ids, squared, rows, nobody, elsewhere, span.cells)
            if len(stray):
                lists = twin[stray], twin_squared[stray]
                search(*lists, rows[stray], nobody[stray], straying, span.cells)
                twin[stray], twin_squared[stray] = lists
            found.append(self._reverse(span, is_home, new))
            if sum(len(part[0]) for part in found) > MAX_PAIRS and len(home) > 1:
                raise _Crowded
        return _concatenated(found, squared.dtype)

    def _reverse(self, span: every_block.CellSpan, is_home: Array, new: metric_search.Cells) -> Edges:
        """Pairs of a row of the span and a new row within its reach in a cell that it probes."""
        lists = read_array(f"{self.index.shortlist}/shortlist/{span.block}")
        first = int(span.cells.numbers[0] - self.cells.block_starts[span.block])
        lists = lists[first : first + len(span.cells.numbers)]
        probed = unpack_probes(span.read(f"{self.index.search}/probed"), span.cells.offsets, lists)
        probed[~is_home[probed]] = -1
        limits = span.read(f"{self.index.search}/rho_squared")
        reverse = self.index.by.reverse_cells if self.index.by else metric_search.reverse_cells
        row, found, squared = reverse(span.cells.rows, limits, group_probes(probed), new)
        largest = np.full(len(row), NOBODY)
        if len(ties := np.flatnonzero(squared == limits[row])):
            largest[ties] = span.read(f"{self.index.search}/kappa")[row[ties]]
        return found, span.cells.ids[row], squared, largest

    def _probes(self, rows: Array, home: Array) -> Array:
        """The cells that rows probe, as in the search: int32 (n, T), −1 for an unused entry."""
        block, parts = self.cells.block_of(home), []
        for b in np.unique(block).tolist():
            low, high = np.searchsorted(block, [b, b + 1])
            probes = probe_rows(
                rows[low:high],
                home[low:high] - self.cells.block_starts[b],
                read_array(f"{self.index.shortlist}/shortlist/{b}"),
                self.cells.centers,
                self.index.n_probes,
                self.cells.sizes,
                self.index.n_neighbors + 1,
            )
            parts.append(probes)
        width = max(part.shape[1] for part in parts)
        return np.concatenate(
            [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1) for part in parts]
        )

    def _asking(self, homes: Array) -> Array:
        """The cells with a row that probes one of the cells ``homes``."""
        parts, block = [np.zeros(0, np.int64)], self.cells.block_of(homes)
        for b in np.unique(block).tolist():
            indptr = read_array(f"{self.index.search}/asked_indptr/{b}")
            asked = read_array(f"{self.index.search}/asked/{b}")
            local = homes[block == b] - self.cells.block_starts[b]
            parts += [asked[indptr[c] : indptr[c + 1]] for c in local.tolist()]
        return np.unique(np.concatenate(parts))


def _concatenated(found: list[Edges], dtype: np.dtype[np.generic]) -> Edges:
    new, ids, squared = metric_search.joined_pairs([part[:3] for part in found], dtype)
    return new, ids, squared, np.concatenate([np.zeros(0, np.int64), *(part[3] for part in found)])
