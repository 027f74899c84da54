"""Which cells a row is compared with: the T cells whose centers are nearest to the row itself.

For every cell a **shortlist** of the nearest cells (by center) is made once; the rows of the cell rank
only those. Ranking by row needs 2 to 7 times fewer candidates than one list for all rows of a cell.
A row's probes are decided by exact distances, ties by cell number: the same in every batch, and for
a new row the same as for an equal row of the training set.

What the number of pairs depends on is the dimension that cells see, not n (``benchmarks/pairs_compared.py``). Tried and
left out, at the same recall (mixture of 3·10⁵ rows, 1 630 pairs a row): other orders of the cells (distance to the
plane between two centers, also the largest over the four nearest; distance less the radius, or the root mean square
radius, of the cell) need as many rows or more; a bound relative to the k-th distance instead of a number of cells saves
13 % of them; cells of 96 and 64 rows save 19 and 28 %, and take 11 and 24 % more time. So does an order by the rows
that a normal distribution of the mean and covariance of a cell has within the reach (10⁷ rows: 1 to 8 %, exact reach
given). Where 256 cells of a cell's shortlist lose neighbors of its rows (12 dimensions, 10⁵ rows of one cluster), lists
by sampled rows of the cell lose more, by all of them hardly fewer (recall .9919 for .9889); longer ones do not: of 512
cells 66 reach .992.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.distance import paired_squared
from bigembed.neighbors import approximate_squared, empty_lists, update_lists
from bigembed.neighbors.order import Ordered
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_rows, write_array
from bigembed.store.exchange import Exchange

# ---------------------------------------------------------------------------------------------------------- probes

BYTE = 256
"""Positions on a shortlist that a byte tells apart."""
_FEW_PAIRS = 1 << 14
"""Fewer pairs of centers than this are compared without compiled code."""


def nearest_cells(centers: Array, others: Array, cells: Array, length: int) -> Array:
    """Shortlists: the ``length`` of the ``cells`` int64 (C',) with centers ``others`` (C', d) nearest to each center.

    Returns cell numbers int64 (C, ``length``), by (squared distance of the centers, number), −1 where there are
    not enough. ``cells`` ascend. A cell that is among the others comes first on its own list, with its
    identical copies.
    """
    if len(centers) * len(others) >= _FEW_PAIRS and len(others) >= length:
        from bigembed.neighbors.compiled import nearest_lists  # imports numba: only here

        return cells[nearest_lists(centers, others, length)]
    numbers, squared = empty_lists(len(centers), length, centers.dtype)
    update_lists(numbers, squared, centers, np.full(len(centers), -1), others, cells)
    return numbers


def probe_block(
    rows: Array,
    offsets: Array,
    shortlist: Array,
    centers: Array,
    n_probes: int,
    sizes: Array | None = None,
    least: int = 0,
) -> Array:
    """Numbers of the T cells nearest to each row: int32 (n, width), ascending, −1 is nothing.

    ``rows`` (n, d) are in the order of their cells with ``offsets`` (C+1,); ``shortlist`` (C, S) holds
    positions in ``centers`` (all cells, or those that any shortlist names), −1 for none. T is
    ``n_probes``, or all of a shorter list. With the ``sizes`` of all cells it is raised for a cell on
    whose shortlist are small ones, until any T of them hold ``least`` rows (k + 1, so that every list
    is filled); that depends on the shortlist only, and so is the same for a query.
    """
    wanted = _wanted(shortlist, n_probes, sizes, least)
    listed = [np.sort(cells[cells >= 0]) for cells in shortlist]
    width = max((min(len(cells), t) for cells, t in zip(listed, wanted.tolist())), default=0)
    probes = np.full((len(rows), max(width, n_probes)), -1, dtype=np.int32)
    spans = zip(offsets[:-1].tolist(), offsets[1:].tolist())
    for (start, stop), cells, t in zip(spans, listed, wanted.tolist()):
        if len(cells) <= t:
            probes[start:stop, : len(cells)] = cells
        elif stop > start:
            probes[start:stop, :t] = cells[nearest_centers(rows[start:stop], centers[cells], t)]
    return probes


def probe_rows(
    rows: Array, home: Array, shortlist: Array, centers: Array, n_probes: int, sizes: Array, least: int
) -> Array:
    """:func:`probe_block` for few rows a cell, compiled: ``home`` (n,) is the list of each row in ``shortlist``."""
    from bigembed.neighbors.search.compiled import nearest_cells  # imports numba

    wanted = np.minimum(_wanted(shortlist, n_probes, sizes, least), np.count_nonzero(shortlist >= 0, axis=1))
    probes = np.full((len(rows), max(n_probes, int(wanted.max()))), -1, np.int32)
    nearest_cells(rows, home, _listed(shortlist), wanted, centers, probes)
    return probes


def _wanted(shortlist: Array, n_probes: int, sizes: Array | None, least: int) -> Array:
    """How many cells the rows of each cell probe."""
    if sizes is None:
        return np.full(len(shortlist), n_probes)
    held = np.cumsum(np.sort(np.where(shortlist >= 0, sizes[shortlist], 0), axis=1), axis=1)
    empty = np.count_nonzero(shortlist < 0, axis=1)
    return np.asarray(np.maximum(n_probes, np.count_nonzero(held < least, axis=1) + 1 - empty))


def probe_ranks(row: Array, shortlist: Array, centers: Array, wanted: Array) -> Array:
    """Rank (0 is nearest) of the cells ``wanted`` (w,) for one ``row`` (d,) among its shortlist (S,).

    The rank of a cell that is not on the shortlist is the largest int32. ``centers`` are all centers.
    """
    listed = shortlist[shortlist >= 0]
    squared = paired_squared(np.broadcast_to(row, (len(listed), len(row))), centers[listed])
    rank = np.empty(len(listed), dtype=np.int64)
    rank[np.lexsort((listed, squared))] = np.arange(len(listed))
    order = np.argsort(listed)
    place = np.minimum(np.searchsorted(listed[order], wanted), len(listed) - 1)
    found = listed[order][place] == wanted
    return np.where(found, rank[order][place], np.iinfo(np.int32).max)


def pack_probes(probes: Array, offsets: Array, shortlist: Array) -> Array:
    """Probes (n, T) as positions on the shortlist of each row's cell, sorted by cell number: uint8 (n, T).

    A row with fewer than T probes repeats its last. On lists of S > 256 cells, a bit for each: uint8 (n, ⌈S/8⌉).
    """
    listed = _listed(shortlist)
    if listed.shape[1] > BYTE:
        return _packed_bits(probes, offsets, listed)
    packed = np.zeros(probes.shape, np.uint8)
    count = np.count_nonzero(probes >= 0, axis=1)
    place = np.zeros(int(shortlist.max(initial=0)) + 1, np.uint8)  # of each cell on the list
    for cells, size, start, stop in zip(
        listed, np.count_nonzero(shortlist >= 0, axis=1).tolist(), offsets[:-1].tolist(), offsets[1:].tolist()
    ):
        place[cells[:size]] = np.arange(size)
        packed[start:stop] = place[probes[start:stop]]
    last = np.take_along_axis(packed, np.maximum(count - 1, 0)[:, None], axis=1)
    return np.where(np.arange(probes.shape[1]) < count[:, None], packed, last)


def unpack_probes(packed: Array, offsets: Array, shortlist: Array) -> Array:
    """The probes that :func:`pack_probes` packed."""
    home, listed = np.repeat(np.arange(len(shortlist)), np.diff(offsets)), _listed(shortlist)
    if listed.shape[1] > BYTE:
        row, place = np.nonzero(np.unpackbits(packed, axis=1, count=listed.shape[1]))
        count = np.bincount(row, minlength=len(packed))
        probes = np.full((len(packed), count.max(initial=0)), -1, np.int32)
        probes[np.arange(probes.shape[1]) < count[:, None]] = listed[home[row], place]
        return probes
    probes = listed[home[:, None], packed]
    probes[:, 1:][packed[:, 1:] == packed[:, :-1]] = -1
    return probes


def _packed_bits(probes: Array, offsets: Array, listed: Array) -> Array:
    packed = np.zeros((len(probes), -(-listed.shape[1] // 8)), np.uint8)
    for cells, start, stop in zip(listed, offsets[:-1].tolist(), offsets[1:].tolist()):
        row, at = np.nonzero(probes[start:stop] >= 0)
        bits = np.zeros((stop - start, len(cells)), bool)
        bits[row, np.searchsorted(cells, probes[start:stop][row, at])] = True
        packed[start:stop] = np.packbits(bits, axis=1)
    return packed


def _listed(shortlist: Array) -> Array:
    """Every shortlist by cell number, what is missing behind."""
    nothing = np.iinfo(np.int32).max
    return np.sort(np.where(shortlist >= 0, shortlist, nothing), axis=1).astype(np.int32)


def nearest_centers(rows: Array, centers: Array, wanted: int) -> Array:
    """Positions (m, wanted), ascending, of the nearest centers (S, d), S > wanted, ties by position: exact."""
    approximate, slack = approximate_squared(rows, centers)
    least = np.partition(approximate, wanted - 1, axis=1)[:, wanted - 1]
    close = ~(approximate > (least + 2 * slack)[:, None])
    unclear = np.flatnonzero(np.count_nonzero(close, axis=1) > wanted)
    for start in range(0, len(unclear), 64):
        which = unclear[start : start + 64]
        row, center = np.nonzero(close[which])
        squared = paired_squared(rows[which[row]], centers[center])
        order = np.lexsort((center, squared, row))
        rank = np.arange(len(row)) - np.searchsorted(row, row)  # np.nonzero and the order go row by row
        chosen = order[rank < wanted]
        close[which] = False
        close[which[row[chosen]], center[chosen]] = True
    chosen = np.flatnonzero(close).reshape(len(rows), wanted)
    return chosen - np.arange(len(rows))[:, None] * len(centers)


@dataclass(frozen=True)
class Probing:
    """The probes of a block turned round: for every cell, the rows that probe it."""

    cells: Array
    """Cells that any row probes, ascending, int64 (m,)."""
    offsets: Array
    """int64 (m+1,)."""
    rows: Array
    """Rows inside the block, ascending for each cell, int32."""

    def of(self, cell: int) -> Array:
        """Rows that probe a cell."""
        place = int(np.searchsorted(self.cells, cell))
        if place == len(self.cells) or self.cells[place] != cell:
            return self.rows[:0]
        return self.rows[self.offsets[place] : self.offsets[place + 1]]


def group_probes(probes: Array) -> Probing:
    """Turn probes int32 (n, T), −1 for none, into the rows that probe each cell."""
    if probes.size < _FEW_PAIRS:
        return _group_few(probes)
    from bigembed.neighbors.search.compiled import group  # imports numba: only here

    real = probes[probes >= 0] if probes.min(initial=0) < 0 else probes
    low, high = int(real.min(initial=np.iinfo(np.int32).max)), int(real.max(initial=-1))
    if high < 0:
        return Probing(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32))
    offsets, rows = group(probes, low, high)
    cells = np.flatnonzero(np.diff(offsets))
    return Probing(cells + low, np.append(offsets[cells], offsets[-1]), rows)


def _group_few(probes: Array) -> Probing:
    """Rows that probe each cell, by NumPy instead of compiled code, for few probes."""
    row, place = np.nonzero(probes >= 0)
    probed = probes[row, place]
    order = np.argsort(probed, kind="stable")
    cells, first = np.unique(probed[order], return_index=True)
    return Probing(cells.astype(np.int64), np.append(first, len(order)).astype(np.int64), row[order].astype(np.int32))


def asking_cells(probing: Probing, offsets: Array) -> Array:
    """Which cells of the block have a row that probes which cell: pairs int64 (m, 2), each once.

    Column 0 is the cell of the asking rows, counted inside the block with cell ``offsets`` (C+1,); column
    1 the number of the probed cell, ascending. No sort: the rows of each probed cell ascend, so do
    their cells.
    """
    home = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))[probing.rows]
    first = np.ones(len(home), dtype=bool)
    np.not_equal(home[1:], home[:-1], out=first[1:])
    first[probing.offsets[:-1]] = True
    pairs = np.flatnonzero(first)
    probed = np.repeat(probing.cells, np.diff(np.searchsorted(pairs, probing.offsets)))
    return np.column_stack([home[pairs], probed])


# ------------------------------------------------------------------------------------------------------- shortlist
# Shortlists: for each cell the nearest cells by center, which its rows may probe.

SHORTLIST = 256
NEAR_BLOCKS = 48
"""Blocks whose cells may come onto a shortlist: bounds its cost, which would grow with the square of n."""

TILE_BLOCKS = 64
"""Blocks whose nearest blocks one task finds."""


def shortlist_stage(n: int, row_bytes: int, cell_size: int) -> Stage:
    """For each cell the nearest cells by center, :data:`SHORTLIST` of them: what its rows may probe."""

    cells = -(-n // cell_size)
    centers = ArraySpec("centers of cells", cells, row_bytes, "u1")
    cost = Cost.of(
        reads=[ArraySpec("lists of a block", cells, SHORTLIST, "i4")],
        writes=[ArraySpec("shortlist/*", cells, SHORTLIST, "i4")],
        leaves=[centers],
        task=[replace(centers, times=2), ArraySpec("tiles of distances", 512, SHORTLIST, times=8)],
    )
    return Stage("shortlist", ("order",), {"length": SHORTLIST, "blocks": NEAR_BLOCKS}, run_shortlist, cost)


def run_shortlist(context: Context) -> dict[str, Any]:
    ordered = Ordered.open(context.of("order"))
    leave_near_blocks(ordered, context.exchange)
    write_shortlists(ordered, context.exchange, SHORTLIST, context.path(""))
    return {"length": SHORTLIST}


def leave_near_blocks(ordered: Ordered, exchange: Exchange) -> None:
    """Leave the nearest blocks of every block: what :func:`listed_cells` chooses from."""
    tiles = bounds(len(ordered.blocks), TILE_BLOCKS)
    exchange.put("middles", 0, {"every": np.concatenate(map_blocks(middles_of, tiles, ordered=ordered))})
    map_blocks(near_blocks, tiles, exchange=exchange)


def middles_of(first: int, stop: int, *, ordered: Ordered) -> Array:
    """The mean of the cell centers of each of some blocks, (stop − first, d) float64."""
    starts = read_array(f"{ordered.path}/cell_block_starts", first, stop + 1)
    centers = read_array(f"{ordered.path}/cell_centers", int(starts[0]), int(starts[-1])).astype(np.float64)
    return np.add.reduceat(centers, starts[:-1] - starts[0]) / np.diff(starts)[:, None]


def near_blocks(first: int, stop: int, *, exchange: Exchange) -> None:
    """Leave the :data:`NEAR_BLOCKS` blocks nearest to each of some blocks, ascending."""
    middles = exchange.piece("middles", 0, "every")
    for b in range(first, stop):
        gaps = ((middles - middles[b]) ** 2).sum(axis=1)
        near = np.arange(len(gaps))
        if len(gaps) > NEAR_BLOCKS:
            near = np.flatnonzero(gaps <= np.partition(gaps, NEAR_BLOCKS - 1)[NEAR_BLOCKS - 1])
        near = near[np.lexsort((near, gaps[near]))[:NEAR_BLOCKS]]
        exchange.put("near", b, {"blocks": np.sort(near)})


def write_shortlists(ordered: Ordered, exchange: Exchange, length: int, out: str) -> None:
    """Shortlists of a length for the cells of all blocks, after :func:`leave_near_blocks`."""
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(shortlist_block, blocks, ordered=ordered, exchange=exchange, length=length, out=out)


def shortlist_block(b: int, *, ordered: Ordered, exchange: Exchange, length: int, out: str) -> None:
    """Shortlists of the cells of one block, (C_b, S) int32."""
    first, stop = read_array(f"{ordered.path}/cell_block_starts", b, b + 2).tolist()
    numbers = listed_cells(b, np.arange(first, stop), ordered, exchange, length)
    write_array(f"{out}shortlist/{b}", numbers.astype(np.int32))


def listed_cells(b: int, cells: Array, ordered: Ordered, exchange: Exchange, length: int) -> Array:
    """Shortlists of some cells (C,) of one block, nearest first: (C, S), S the length, of the cells of the blocks
    nearest to it."""
    first = read_array(f"{ordered.path}/cell_block_starts")
    near = exchange.piece("near", b, "blocks").tolist()
    others = np.concatenate([np.arange(first[block], first[block + 1]) for block in near])
    # (Of many blocks in one place, not all are near: maybe not the block itself.)
    centers = read_rows(f"{ordered.path}/cell_centers", cells)
    near_centers = read_rows(f"{ordered.path}/cell_centers", others)
    return nearest_cells(centers, near_centers, others, min(length, int(first[-1])))
