"""The recall to be expected of any number of probed cells, from sampled rows whose neighbors are known; the choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigembed.blocks.owners import by_owner, owner_of
from bigembed.blocks.rows import Array, map_blocks
from bigembed.neighbors.ordering.order import ListedCells, Ordered
from bigembed.neighbors.search.probes import probe_ranks
from bigembed.neighbors.search.shortlist import leave_near_blocks, listed_cells
from bigembed.store.arrays.io import read_array, read_rows
from bigembed.store.blockwise.exchange import Exchange

LONGER = (512, 1024)
"""Lengths of shortlists that are tried, one after the other, where the stored ones are not :func:`ample`. A row far
from the center of its cell has near rows in cells that are not near that center: the more of them the denser the rows
and the higher their dimension (mixture of 16 columns: of the neighbors of 10⁷ rows .9982 are in 256 cells, of those of
3·10⁷ rows .9735, and .9987 in 512)."""
AMPLE = 4
"""Cells of a shortlist for each that a row probes, from which a longer one saves next to nothing."""
FEWER = 0.9
"""Share of the probed cells that a longer shortlist that is worth its room needs at most."""


def best_curve(
    sampled: str, ordered: Ordered, shortlist: str, length: int, target: float, exchange: Exchange, longer: bool = True
) -> Array:
    """The curve of the stored shortlists of a ``length``; where these are not :func:`ample`, and ``longer`` ones may be
    made, the best of theirs.

    ``sampled``: where the stage keeps ids (q,), rows (q, d) and neighbors (q, k) of the sampled rows.
    """
    (curve,) = recall_curves(sampled, ordered, [length], exchange, shortlist)
    cells, pairs = int(read_array(f"{ordered.path}/cell_block_starts")[-1]), read_array(f"{sampled}neighbors").size
    if not longer or len(curve) == cells or ample(curve, target, pairs):
        return curve
    leave_near_blocks(ordered, exchange)
    for other in recall_curves(sampled, ordered, sorted({min(more, cells) for more in LONGER}), exchange):
        curve = better(curve, other, target, pairs)
        if ample(curve, target, pairs):
            break
    return curve


def ample(curve: Array, target: float, pairs: int) -> bool:
    """Whether a curve (S,) reaches the target with a small part of the shortlists."""
    return bool(len(reached := enough(curve, target, pairs)) and AMPLE * (reached[0] + 1) <= len(curve))


def better(curve: Array, longer: Array, target: float, pairs: int) -> Array:
    """The curve of longer shortlists if it reaches the target with fewer cells, or where the other does not reach it;
    of two that do not the higher."""
    few, many = (enough(one, target, pairs) for one in (longer, curve))
    if len(few) and len(many):
        return longer if few[0] + 1 <= FEWER * (many[0] + 1) else curve
    if len(few) or len(many):
        return longer if len(few) else curve
    return longer if longer[-1] > curve[-1] else curve


def recall_curves(
    sampled: str, ordered: Ordered, lengths: Sequence[int], exchange: Exchange, shortlist: str = ""
) -> list[Array]:
    """Share of the true neighbors that lie in the T cells nearest to a row, for T = 1, 2, …, S, of shortlists of each
    of some lengths S, ascending: the stored ones, or without a ``shortlist`` others that are made, of the near blocks.
    """
    own = owner_of(read_array(f"{ordered.path}/cell_starts"), read_array(f"{sampled}ids"))
    tasks = list(by_owner(read_array(f"{ordered.path}/cell_block_starts"), own))
    found = map_blocks(
        counts_block, tasks, sampled=sampled, ordered=ordered, lengths=lengths, exchange=exchange, shortlist=shortlist
    )
    totals = [np.sum(counts, axis=0) for counts in zip(*found, strict=True)]
    return [np.cumsum(counts)[:-1] / counts.sum() for counts in totals]


def counts_block(
    b: int, at: Array, cells: Array, *, sampled: str, ordered: Ordered, lengths: Sequence[int], exchange: Exchange,
    shortlist: str,
) -> list[Array]:  # fmt: skip
    """Of the sampled rows ``at`` some places, in some cells of a block: how many true neighbors are in the cell of each
    rank, and last in none that is listed; (S + 1,) for each length S."""
    rows, near = read_rows(f"{sampled}rows", at), read_rows(f"{sampled}neighbors", at)
    if shortlist:
        lists = read_array(f"{shortlist}/shortlist/{b}")[cells]
    else:
        first = int(read_array(f"{ordered.path}/cell_block_starts", b, b + 1)[0])
        lists = listed_cells(b, first + cells, ordered, exchange, lengths[-1])
    listed = ListedCells.read(ordered, np.unique(lists[lists >= 0]))
    lists = listed.places(lists)
    wanted = listed.places(owner_of(read_array(f"{ordered.path}/cell_starts"), near))
    counts = [np.zeros(min(length, lists.shape[1]) + 1) for length in lengths]
    for row, cell_list, cells_of_near in zip(rows, lists, wanted, strict=True):
        for count in counts:
            ranks = probe_ranks(row, cell_list[: len(count) - 1], listed.centers, cells_of_near)
            count += np.bincount(np.minimum(ranks, len(count) - 1), minlength=len(count))
    return counts


def enough(curve: Array, target: float, pairs: int) -> Array:
    """Numbers of cells, less one, whose recall is above the target by two standard errors; of a target of 1 those that
    find all."""
    return np.flatnonzero(curve >= np.minimum(target + 2 * _error(curve, pairs), 1))


def choose_probes(curve: Array, target: float, pairs: int) -> int:
    """The fewest cells whose recall is above the target by two standard errors; where none reaches it, the fewest whose
    recall is within one of that of the whole shortlist; for a target of 1 the whole.

    >>> choose_probes(np.array([0.8, 0.9, 0.9]), 0.5, 100), choose_probes(np.array([0.8, 0.9, 0.9]), 0.99, 100)
    (1, 2)
    """
    if target >= 1:
        return len(curve)
    reached = enough(curve, target, pairs)
    return int(reached[0] if len(reached) else np.argmax(curve >= curve[-1] - _error(curve, pairs)[-1])) + 1


def _error(curve: Array, pairs: int) -> Array:
    return np.asarray(np.sqrt(np.maximum(curve * (1 - curve), 0) / max(1, pairs)))
