"""Compiled kernels of the walk of new rows along stored lists. Importing this module imports numba.

Lists are ordered by (squared distance, id); what is entered does not depend on the order in which it comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.blocks.rows import Array


@njit(cache=True, nogil=True)
def pick(ids: Array, gone: Array, out: Array) -> int:
    """Fill ``out`` (n, P) with the nearest rows of each list that nobody went to yet, and mark them; how many."""
    count = 0
    for i in range(ids.shape[0]):
        found = 0
        for t in range(ids.shape[1]):
            if ids[i, t] < 0 or found == out.shape[1]:
                break
            if gone[i, t] == 0:
                gone[i, t] = 1
                out[i, found] = ids[i, t]
                found += 1
        for t in range(found, out.shape[1]):
            out[i, t] = -1
        count += found
    return count


@njit(cache=True, nogil=True)
def neighbors_of(places: Array, links: Array, own: Array, seen: Array, query: Array, number: Array) -> int:
    """Fill ``query`` and ``number`` with each row i and what those at ``places`` (n, P) of it in ``links`` (u, W) are
    linked to, in runs of one i; how many. ``own`` (n,) are left out; ``seen`` rejects most repetitions."""
    mask, count = np.uint64(seen.shape[0] - 1), 0
    for i in range(places.shape[0]):
        for p in range(places.shape[1]):
            if places[i, p] < 0:
                break
            for t in range(links.shape[1]):
                found = links[places[i, p], t]
                if found < 0 or found == own[i]:
                    continue
                key = ((np.uint64(i) + np.uint64(1)) << np.uint64(40)) | np.uint64(found)
                place = ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
                if seen[place] != key:
                    seen[place] = key
                    query[count], number[count] = i, found
                    count += 1
    return count


@njit(cache=True, nogil=True)
def enter(query: Array, number: Array, values: Array, ids: Array, squared: Array, gone: Array) -> None:
    """Take rows ``number`` (m,) at squared distances ``values`` (m,) into the lists of ``query`` (m,), in place."""
    for e in range(query.shape[0]):
        _insert(ids[query[e]], squared[query[e]], gone[query[e]], number[e], values[e])


@njit(cache=True, nogil=True)
def _insert(ids: Array, squared: Array, gone: Array, number: int, value: Any) -> None:
    last = squared.shape[0] - 1
    if not (value < squared[last] or (value == squared[last] and (ids[last] < 0 or number < ids[last]))):
        return
    at = last
    while at > 0 and (
        ids[at - 1] < 0 or squared[at - 1] > value or (squared[at - 1] == value and ids[at - 1] > number)
    ):
        at -= 1
    if (at > 0 and ids[at - 1] == number) or (ids[at] == number and squared[at] == value):
        return
    for t in range(last, at, -1):
        ids[t], squared[t], gone[t] = ids[t - 1], squared[t - 1], gone[t - 1]
    ids[at], squared[at], gone[at] = number, value, 0
