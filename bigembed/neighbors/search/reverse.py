"""The search with the roles exchanged: which fitted rows would have a new row among their own k nearest.

A fitted row j looks, among the new rows of the cells that it probes, for those no farther than its k-th
neighbor. As in :mod:`bigembed.neighbors.search.local` a matrix product only rejects, and what may count is
computed exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.squared import paired_squared, rounding
from bigembed.neighbors.exact import approximate_squared
from bigembed.neighbors.search.local import Cells

if TYPE_CHECKING:
    from bigembed.neighbors.search.probes import Probing

Pairs = tuple[Array, Array, Array]
"""Row, candidate and squared distance of each pair."""
_TILE = 512


def reverse_cells(rows: Array, limits: Array, probing: Probing, new: Cells) -> Pairs:
    """Pairs of one of the ``rows`` (n, d) and a row of a cell of ``new`` that it probes, ‖x − y‖² ≤ its limit.

    ``limits`` (n,) in the dtype of the rows. Rows and candidates are counted in ``rows`` and ``new.rows``.
    """
    from bigembed.neighbors.search.compiled_query import reverse  # imports numba: only here

    place = np.searchsorted(probing.cells, new.numbers)
    asked = np.append(probing.cells, -1)[place] == new.numbers
    starts = np.where(asked, probing.offsets[place], 0)
    stops = np.where(asked, np.append(probing.offsets, 0)[place + 1], 0)
    limits = np.ascontiguousarray(limits)[:, None]
    return reverse(
        starts,
        stops,
        probing.rows,
        new.offsets,
        new.rows,
        new.centers,
        rows,
        limits,
        rounding(rows.shape[1], rows.dtype),
    )


def reverse_every(rows: Array, limits: Array, new: Array) -> Pairs:
    """Pairs of which each row probes everything, without compiled code."""
    found: list[Pairs] = []
    for start in range(0, len(new), _TILE):
        tile = new[start : start + _TILE]
        approximate, slack = approximate_squared(tile, rows)
        candidate, row = np.nonzero(~(approximate > limits + 2 * slack[:, None]))
        with np.errstate(over="ignore"):
            squared = paired_squared(rows[row], tile[candidate]).astype(rows.dtype)
        near = squared <= limits[row]
        found.append((row[near], candidate[near] + start, squared[near]))
    return joined_pairs(found, rows.dtype)


def joined_pairs(found: list[Pairs], dtype: np.dtype[np.generic]) -> Pairs:
    """Pairs of several parts as one."""
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, dtype))
    row, candidate, squared = (np.concatenate(part) for part in zip(nothing, *found, strict=True))
    return row, candidate, squared
