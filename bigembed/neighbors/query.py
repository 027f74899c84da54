"""Neighbors of new rows among the ordered rows: the rows that the symmetric graph would join to each.

A new row x goes to its partition and cell as a row of the training set does, and probes the same
cells. It is joined to its k nearest rows there, and to every row j that would have it among its own
k nearest: that probes x's cell, with ‖x − x_j‖ no larger than j's distance to its k-th neighbor
(ties by id). For a row of the training set these are exactly its edges, so its extension is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.neighbors.exact import approximate_squared, paired_squared
from bigembed.neighbors.order import CellReader, Ordered
from bigembed.neighbors.partition import assign_block
from bigembed.neighbors.probes import probe_block
from bigembed.store.arrays import read_array

_KEPT_BLOCKS = 16
_NEAREST_CELLS = 16
_GROUP = 256


@dataclass(frozen=True)
class Index:
    """Where a query finds what it needs of a stored graph: paths and small arrays, read in the task."""

    order: str
    search: str
    shortlist: str
    centers: str
    n_neighbors: int
    n_probes: int


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


class _Reader:
    """Cells, their rows, and the lists of the blocks that hold them, the last ones kept."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.ordered = Ordered.open(index.order)
        self.cells = CellReader(self.ordered)
        self.sizes = np.diff(self.cells.starts)
        self.kept: dict[int, tuple[Array, Array, Array]] = {}

    def lists(self, b: int) -> tuple[Array, Array, Array]:
        """Squared distance to the k-th neighbor, its id, and the shortlists, of a block."""
        if b not in self.kept:
            while len(self.kept) >= _KEPT_BLOCKS:
                self.kept.pop(next(iter(self.kept)))
            path = self.index.search
            self.kept[b] = (
                read_array(f"{path}/rho_squared/{b}"),
                read_array(f"{path}/kappa/{b}"),
                read_array(f"{self.index.shortlist}/shortlist/{b}"),
            )
        return self.kept[b]

    def probes(self, rows: Array, cell: int) -> Array:
        """The cells that rows of a cell probe, as in the search; −1 is none."""
        b = self.cells.block(cell)
        shortlist = self.lists(b)[2][[cell - int(self.cells.block_starts[b])]]
        return probe_block(
            rows,
            np.array([0, len(rows)]),
            shortlist,
            self.cells.centers,
            self.index.n_probes,
            sizes=self.sizes,
            least=self.index.n_neighbors + 1,
        )

    def gather(self, cells: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Rows of some cells: rows, ids, ρ², κ and the cell of each."""
        parts = []
        for cell in cells.tolist():
            b, ids = self.cells.block(cell), self.cells.ids(cell)
            rho, kappa, _ = self.lists(b)
            local = ids - self.ordered.starts[b]
            parts.append((self.cells.rows(cell), ids, rho[local], kappa[local], np.full(len(ids), cell)))
        joined = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return joined  # type: ignore[return-value]


def join_rows(rows: Array, index: Index) -> Joined:
    """Edges of prepared new rows (n, d); each row's edges do not depend on the others."""
    reader = _Reader(index)
    block, cell = locate(rows, reader)
    number = reader.cells.block_starts[block] + cell
    order = np.argsort(number, kind="stable")
    found: list[tuple[Array, Array, float] | None] = [None] * len(rows)
    for group in np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []:
        for start in range(0, len(group), _GROUP):
            members = group[start : start + _GROUP]
            joined = _join_group(rows[members], int(number[members[0]]), reader)
            for member, part in zip(members, joined, strict=True):
                found[member] = part
    edges = [part for part in found if part is not None]
    sizes = [len(part[0]) for part in edges]
    return Joined(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([part[0] for part in edges] or [np.zeros(0, np.int64)]),
        np.concatenate([part[1] for part in edges] or [np.zeros(0)]),
        np.array([part[2] for part in edges]),
        block,
        cell,
    )


def locate(rows: Array, reader: _Reader) -> tuple[Array, Array]:
    """Block, and cell inside it, of each row: decided exactly as for the rows of the training set."""
    ordered = reader.ordered
    centers = read_array(reader.index.centers)[list(ordered.blocks)]
    block = assign_block(rows, np.zeros(len(rows), np.int64), centers).astype(np.int64)
    cell = np.zeros(len(rows), np.int64)
    for b in np.unique(block):
        mine = block == b
        cell[mine] = assign_block(rows[mine], np.zeros(int(mine.sum()), np.int64), ordered.cells(int(b))[1])
    return block, cell


def _join_group(rows: Array, number: int, reader: _Reader) -> list[tuple[Array, Array, float]]:
    """Edges of rows that belong to one cell."""
    b = reader.cells.block(number)
    local = number - int(reader.cells.block_starts[b])
    probes = reader.probes(rows, number)
    asked_indptr = read_array(f"{reader.index.search}/asked_indptr/{b}")
    asked = read_array(f"{reader.index.search}/asked/{b}")[asked_indptr[local] : asked_indptr[local + 1]]
    cells = np.union1d(probes[probes >= 0], asked).astype(np.int64)
    candidates, ids, rho, kappa, home = reader.gather(cells)
    return [
        _join_row(row, number, mine[mine >= 0], candidates, ids, rho, kappa, home, near, reader)
        for row, mine, near in zip(
            rows, probes, _near(rows, candidates, rho, reader.index.n_neighbors, probes, home), strict=True
        )
    ]


def _near(rows: Array, candidates: Array, rho: Array, k: int, probes: Array, home: Array) -> list[Array]:
    """For each row the candidates that may be joined to it: by a product, rejecting only beyond rounding."""
    approximate, slack = approximate_squared(rows, candidates)
    out = []
    for i in range(len(rows)):
        probed = np.isin(home, probes[i])
        within = approximate[i][probed]
        count = min(k, len(within) - 1)
        reach = np.partition(within, count)[count] + 2 * slack[i] if len(within) else 0.0
        limit = np.where(probed, np.maximum(rho, reach), rho)
        out.append(np.flatnonzero(~(approximate[i] > limit * (1 + 1e-6) + slack[i])))
    return out


def _join_row(
    row: Array,
    number: int,
    probes: Array,
    candidates: Array,
    ids: Array,
    rho: Array,
    kappa: Array,
    home: Array,
    near: Array,
    reader: _Reader,
) -> tuple[Array, Array, float]:
    """Ids and squared distances of the rows joined to one row, by id; and its ρ."""
    repeated = np.broadcast_to(row, (len(near), len(row)))
    squared = paired_squared(repeated, candidates[near]).astype(rho.dtype)
    same = near[squared == 0]
    identity = int(ids[same].min()) if len(same) else np.iinfo(np.int64).max
    probed = np.isin(home[near], probes)
    order = np.lexsort((ids[near], squared))
    nearest = order[probed[order] & (ids[near][order] != identity)][: reader.index.n_neighbors]
    rho_here = float(np.sqrt(np.float64(squared[nearest[-1]]))) if len(nearest) else 0.0
    theirs = (squared < rho[near]) | ((squared == rho[near]) & (identity <= kappa[near]))
    theirs[nearest] = False
    reverse = np.flatnonzero(theirs & (ids[near] != identity))
    reverse = (
        reverse[[_probes_cell(int(near[m]), candidates, home, number, reader) for m in reverse]]
        if len(reverse)
        else reverse
    )
    own = np.flatnonzero(ids[near] == identity)
    chosen = np.concatenate([nearest, reverse, own]).astype(np.int64)
    chosen = chosen[np.argsort(ids[near][chosen])]
    return ids[near][chosen], squared[chosen], rho_here


def _probes_cell(m: int, candidates: Array, home: Array, number: int, reader: _Reader) -> bool:
    """Whether training row m probes the cell ``number``."""
    cell = int(home[m])
    return bool((reader.probes(candidates[m : m + 1], cell) == number).any())


def nearest_kept(ordered: Ordered, labels: str, b: int, rows: Array, cell: Array) -> Array:
    """Internal id of the nearest row of component 0, for rows of block b that lie in its cells ``cell``.

    Searched exactly in the 16 nearest cells (by center) that hold rows of component 0.
    """
    cells = CellReader(ordered)
    open_cells = np.flatnonzero(_cells_with_kept(ordered, labels, cells.starts))
    out = np.empty(len(rows), np.int64)
    for c in np.unique(cell):
        gaps, _ = approximate_squared(cells.centers[[cells.block_starts[b] + c]], cells.centers[open_cells])
        chosen = np.sort(open_cells[np.lexsort((open_cells, gaps[0]))[:_NEAREST_CELLS]])
        candidates, ids = _kept_rows(cells, labels, chosen)
        mine = np.flatnonzero(cell == c)
        for start in range(0, len(mine), _GROUP):
            part = mine[start : start + _GROUP]
            out[part] = ids[_nearest_exact(rows[part], candidates)]
    return out


def _nearest_exact(rows: Array, candidates: Array) -> Array:
    approximate, slack = approximate_squared(rows, candidates)
    out = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        near = np.flatnonzero(~(approximate[i] > approximate[i].min() + 2 * slack[i]))
        exact = paired_squared(np.broadcast_to(rows[i], (len(near), rows.shape[1])), candidates[near])
        out[i] = near[np.argmin(exact)]
    return out


def _cells_with_kept(ordered: Ordered, labels: str, starts: Array) -> Array:
    holds = np.zeros(len(starts) - 1, bool)
    for b in range(len(ordered.blocks)):
        ids = np.flatnonzero(read_array(f"{labels}/{b}") == 0) + ordered.starts[b]
        holds[np.unique(np.searchsorted(starts, ids, side="right") - 1)] = True
    return holds


def _kept_rows(cells: CellReader, labels: str, chosen: Array) -> tuple[Array, Array]:
    """Rows of component 0 in some cells, and their ids."""
    rows, ids = [], []
    for cell in chosen.tolist():
        numbers, b = cells.ids(cell), cells.block(cell)
        base = cells.ordered.starts[b]
        inside = read_array(f"{labels}/{b}", numbers[0] - base, numbers[-1] + 1 - base) == 0
        rows.append(cells.rows(cell)[inside])
        ids.append(numbers[inside])
    return np.concatenate(rows), np.concatenate(ids)
