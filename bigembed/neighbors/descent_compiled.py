"""Compiled kernels of NN-descent (Dong, Charikar, Li 2011) and of the walk of new rows along its lists, or along the
edges of a graph. Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigembed.runtime.arithmetic import squared_distance
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ local join
# Compiled kernels of NN-descent (Dong, Charikar, Li 2011).
#
# Candidates of a row are its list and the rows on whose lists it is; every two of them are compared, unless both were
# its candidates before. A matrix product rejects, what may count is computed exactly
# (:mod:`bigembed.neighbors.search.compiled`), so the lists do not depend on rounding. All arrays are contiguous.

PANEL = 32
"""Fresh candidates that are compared with others by one product."""
NEW = 2
"""Mark of an entry that a list did not have before."""


@njit(cache=True, nogil=True)
def grouped(keys: Array, count: int) -> tuple[Array, Array]:
    """Which of the ``keys`` (m,) from 0 to ``count`` − 1 are the same: offsets (count + 1,) into their places (m,)."""
    offsets = np.zeros(count + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for key in range(count):
        offsets[key + 1] += offsets[key]
    following, order = offsets[:-1].copy(), np.empty(keys.shape[0], np.int32)
    for e in range(keys.shape[0]):
        order[following[keys[e]]] = e
        following[keys[e]] += 1
    return offsets, order


@njit(cache=True, nogil=True)
def _block_of(starts: Array, number: int, guess: int) -> int:
    """The block that holds a row, blocks beginning at ``starts``; ``guess``: one that often does."""
    if starts[guess] <= number < starts[guess + 1]:
        return guess
    low, high = 0, starts.shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if number < starts[middle]:
            high = middle
        else:
            low = middle
    return low


@njit(cache=True, nogil=True)
def grouped_by_block(starts: Array, ids: Array, width: int) -> tuple[Array, Array]:
    """:func:`grouped` by the block that holds each id: the ``width`` first of each row of ``ids`` (n, L), −1 in none.

    Blocks begin at ``starts`` (blocks + 1,). Returns offsets (blocks + 1,) into places row · width + column, int32,
    which ascend within a block.
    """
    blocks, block = starts.shape[0] - 1, 0
    offsets = np.zeros(blocks + 1, np.int64)
    for i in range(ids.shape[0]):
        for t in range(width):
            if ids[i, t] >= 0:
                block = _block_of(starts, ids[i, t], block)
                offsets[block + 1] += 1
    for block in range(blocks):
        offsets[block + 1] += offsets[block]
    following, order, block = offsets[:-1].copy(), np.empty(offsets[blocks], np.int32), 0
    for i in range(ids.shape[0]):
        for t in range(width):
            if ids[i, t] >= 0:
                block = _block_of(starts, ids[i, t], block)
                order[following[block]] = i * width + t
                following[block] += 1
    return offsets, order


@njit(cache=True, nogil=True)
def reversed_entries(
    at: Array, width: int, ids: Array, squared: Array, fresh: Array, first: int, start: int
) -> tuple[Array, Array, Array]:
    """The entries of lists at places ``at`` (m,) of :func:`grouped_by_block`, reversed: from the listed row to the row
    that lists it.

    The lists are of the rows from ``first`` on. Returns the listed rows, counted from ``start``, the rows that list
    them, as 2 id + (1 if fresh), and the squared distances, each (m,).
    """
    rows, marked = np.empty(at.shape[0], np.int32), np.empty(at.shape[0], ids.dtype)
    values = np.empty(at.shape[0], squared.dtype)
    for e in range(at.shape[0]):
        i, t = at[e] // width, at[e] % width
        rows[e], values[e] = ids[i, t] - start, squared[i, t]
        marked[e] = 2 * (first + i) + fresh[i, t]
    return rows, marked, values


@njit(cache=True, nogil=True)
def _sort_in(ids: Array, squared: Array, count: int, number: int, value: float) -> int:
    """Put (value, number) in its place of the ``count`` first, unless it is there or beyond room; how many these are
    then."""
    q = count
    while q > 0 and (squared[q - 1] > value or (squared[q - 1] == value and ids[q - 1] > number)):
        q -= 1
    if q == ids.shape[0] or (q > 0 and squared[q - 1] == value and ids[q - 1] == number):
        return count
    count = min(count + 1, ids.shape[0])
    for p in range(count - 1, q, -1):
        squared[p], ids[p] = squared[p - 1], ids[p - 1]
    squared[q], ids[q] = value, number
    return count


@njit(cache=True, nogil=True)
def sources_of(rows: Array, marked: Array, squared: Array, count: int, most: int) -> tuple[Array, Array]:
    """The sources ``marked`` (m,) that list the ``rows`` (m,) from 0 to ``count`` − 1 at ``squared`` (m,), by rows.

    Offsets (count + 1,) and the sources, all of a row as they came, or the ``most`` nearest.
    """
    everyone, order = grouped(rows, count)
    offsets = np.zeros(count + 1, np.int64)
    for i in range(count):
        offsets[i + 1] = offsets[i] + min(most, everyone[i + 1] - everyone[i])
    out, near = np.empty(offsets[count], marked.dtype), np.empty(most, squared.dtype)
    for i in range(count):
        own, kept = out[offsets[i] : offsets[i + 1]], 0
        for at in range(everyone[i], everyone[i + 1]):
            if everyone[i + 1] - everyone[i] > most:
                kept = _sort_in(own, near, kept, marked[order[at]], squared[order[at]])
            else:
                own[kept] = marked[order[at]]
                kept += 1
    return offsets, out


@njit(cache=True, nogil=True)
def candidates(ids: Array, fresh: Array, width: int, offsets: Array, sources: Array, out: Array) -> tuple[Array, Array]:
    """Candidates of each row, fresh ones first: the ``width`` first of its list ``ids`` (n, L), and its sources.

    Sources are 2 id + (1 if fresh), by rows as of :func:`sources_of`. Each candidate is taken once, and none where no
    one is fresh. Fills ``out`` (n · width + sources,); returns where those of each row start (n + 1,), and how many are
    fresh (n,).
    """
    n, at = ids.shape[0], 0
    starts, new = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        begin = at
        for turn in (1, 0):
            for t in range(width):
                if ids[i, t] >= 0 and fresh[i, t] == turn:
                    out[at] = ids[i, t]
                    at += 1
            for t in range(offsets[i], offsets[i + 1]):
                if sources[t] % 2 != turn:
                    continue
                source, known = sources[t] // 2, False
                for s in range(width):
                    if ids[i, s] == source:
                        known = True
                        break
                if not known:
                    out[at] = source
                    at += 1
            if turn == 1:
                new[i] = at - begin
                if at == begin:
                    break
        starts[i + 1] = at
    return starts, new


@njit(cache=True, nogil=True)
def widest(starts: Array) -> int:
    """The most that stand between two starts that follow each other."""
    most = 0
    for i in range(starts.shape[0] - 1):
        most = max(most, starts[i + 1] - starts[i])
    return most


@njit(cache=True, nogil=True)
def join(
    first: int,
    starts: Array,
    new: Array,
    candidates: Array,
    rows: Array,
    last: Array,
    shrunk: float,
    seen: Array,
    row: Array,
    other: Array,
    squared: Array,
) -> tuple[int, int]:
    """Compare the candidates of each row, from row ``first``, until the output is full.

    Those of row v, candidates[starts[v] : starts[v + 1]], ``new[v]`` fresh ones first, are places in ``rows`` (u, d)
    and ``last`` (u,), the squared distances beyond which their lists take nothing. ``shrunk`` is a factor f such that
    f (‖x‖² + ‖y‖²) − 2 x·y never exceeds the squared distance, however it is rounded; ``seen`` (a power of 2,)
    remembers pairs, to reject most repetitions.
    Fills ``row``, ``other`` and ``squared`` with what may belong on the list of a row, and returns the next row and
    how many there are.
    """
    d, width = rows.shape[1], widest(starts)
    tile, negated = np.empty((width, d), rows.dtype), np.empty((PANEL, d), rows.dtype)
    bounds, near, far = np.empty((3, width), rows.dtype)
    products, one = np.zeros(PANEL * width, rows.dtype), squared.dtype.type
    mask, found = np.uint64(seen.shape[0] - 1), 0
    for v in range(first, new.shape[0]):
        own_new, every, begin = new[v], starts[v + 1] - starts[v], starts[v]
        if own_new == 0 or every < 2:
            continue
        if found + 2 * own_new * every > row.shape[0]:
            return v, found
        here = candidates[begin : begin + every]
        _gather(here, every, rows, last, one(shrunk), tile, bounds, near, far)
        for top in range(0, own_new, PANEL):
            count, columns = min(PANEL, own_new - top), every - top
            for s in range(count):
                for f in range(d):
                    negated[s, f] = -2 * tile[top + s, f]
            panel = products[: count * columns].reshape(count, columns)
            np.dot(negated[:count], tile[top:every].T, panel)
            for s in range(top, top + count):
                a, line = here[s], (s - top) * columns - top
                own, beyond = bounds[s] - near[s], -near[s]
                for t in range(s + 1, every):
                    product = products[line + t]
                    if product + near[t] > own and product + far[t] > beyond:
                        continue
                    b = here[t]
                    low, high = (a, b) if a < b else (b, a)
                    key = (np.uint64(low) << np.uint64(32)) | np.uint64(high)
                    place = ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
                    if seen[place] == key:
                        continue
                    seen[place] = key
                    value = one(squared_distance(rows, a, rows, b))
                    if value <= bounds[s]:
                        row[found], other[found], squared[found] = a, b, value
                        found += 1
                    if value <= bounds[t]:
                        row[found], other[found], squared[found] = b, a, value
                        found += 1
    return new.shape[0], found


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _gather(
    places: Array,
    count: int,
    rows: Array,
    last: Array,
    shrunk: float,
    tile: Array,
    bounds: Array,
    near: Array,
    far: Array,
) -> None:
    """Copy rows less the first of them into ``tile``: what their lists take, ``bounds``; their squared norms times
    ``shrunk``, ``near``; and these less those, ``far``. Sums may be reordered: ``shrunk`` covers every order."""
    middle = rows[places[0]]
    for t in range(count):
        source, total = rows[places[t]], near.dtype.type(0)
        for f in range(rows.shape[1]):
            x = source[f] - middle[f]
            tile[t, f] = x
            total += x * x
        bounds[t], near[t] = last[places[t]], total * shrunk
        far[t] = near[t] - bounds[t]


@njit(cache=True, nogil=True)
def take(rows: Array, numbers: Array, values: Array, ids: Array, squared: Array, fresh: Array) -> None:
    """Take rows ``numbers`` (m,) at squared distances ``values`` (m,) into the lists of ``rows`` (m,), in place.

    Row by row: the nearest of what was found for it, in order, then these and its list into one. What is taken is
    marked :data:`NEW` in ``fresh``.
    """
    offsets, order = grouped(rows, ids.shape[0])
    width = ids.shape[1]
    near, merged = np.empty(width, ids.dtype), np.empty(width, ids.dtype)
    near_squared, merged_squared = np.empty(width, squared.dtype), np.empty(width, squared.dtype)
    marks = np.empty(width, fresh.dtype)
    for i in range(ids.shape[0]):
        count, limit = 0, squared[i, width - 1]
        for at in range(offsets[i], offsets[i + 1]):
            value = values[order[at]]
            if value <= limit:
                count = _sort_in(near, near_squared, count, numbers[order[at]], value)
        if count == 0:
            continue
        a, b = 0, 0
        for t in range(width):
            if b < count and near[b] == ids[i, a]:
                b += 1
            value, same = squared[i, a], b < count and near_squared[b] == squared[i, a]
            if b < count and (ids[i, a] < 0 or near_squared[b] < value or (same and near[b] < ids[i, a])):
                merged[t], merged_squared[t], marks[t] = near[b], near_squared[b], NEW
                b += 1
            else:
                merged[t], merged_squared[t], marks[t] = ids[i, a], value, fresh[i, a]
                a += 1
        for t in range(width):  # (the assignment of whole rows takes two seconds to compile)
            ids[i, t], squared[i, t], fresh[i, t] = merged[t], merged_squared[t], marks[t]


# --------------------------------------------------------------------------------------------------- compiled walk
# Compiled kernels of the walk of new rows along stored lists.
#
# Lists are ordered by (squared distance, id); what is entered does not depend on the order in which it comes.


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


# ------------------------------------------------------------------------------------------------ walk along edges
# Compiled walk to the fitted row nearest to a new one, and the lengths of its edges.

SPACING = 4
"""Of so many rows of a cell a walk looks at one to begin."""
STEPS = 8
"""Rows that a walk goes along, at the most."""


@njit(cache=True, nogil=True)
def nearest_rows(rows: Array, cell: Array, offsets: Array, indptr: Array, indices: Any, table: Array) -> Array:
    """A near one among the n fitted rows of a block for each new row (m, d), int64 (m,).

    It begins at the nearest in the ``cell`` (m,), whose rows begin at ``offsets``, and goes to a nearer one along an
    edge as long as there is one in the block; ``table`` holds the rows of the block, then its halo.
    """
    n, found = indptr.shape[0] - 1, np.empty(rows.shape[0], np.int64)
    for m in range(rows.shape[0]):
        best, least = offsets[cell[m]], np.inf
        for j in range(offsets[cell[m]], offsets[cell[m] + 1], SPACING):
            value = squared_distance(rows, m, table, j)
            if value < least:
                best, least = j, value
        for _ in range(STEPS):
            here = best
            for e in range(indptr[here], indptr[here + 1]):
                j = indices[e]
                if j < n:
                    value = squared_distance(rows, m, table, j)
                    if value < least or (value == least and j < best):
                        best, least = j, value
            if best == here:
                break
        found[m] = best
    return found


@njit(cache=True, nogil=True)
def edge_lengths(
    rows: Array, nearest: Array, indptr: Array, indices: Any, table: Array, starts: Array, columns: Array,
    squared: Array, k: int, reach: Array,
) -> None:  # fmt: skip
    """Squared lengths of the edges of each new row, those of its ``nearest`` row: the other ends go to ``columns``.

    ``starts`` (m + 1,): where the edges of each begin. ``reach`` (m,): the k-th smallest length of a row, one of 0,
    that is to the row itself, left out.
    """
    longest = 0
    for m in range(rows.shape[0]):
        longest = max(longest, starts[m + 1] - starts[m])
    lengths = np.empty(longest)
    for m in range(rows.shape[0]):
        first, at = indptr[nearest[m]], starts[m]
        count = starts[m + 1] - at
        twin = 0
        for e in range(count):
            j = indices[first + e]
            columns[at + e] = j
            squared[at + e] = squared_distance(rows, m, table, j)
            lengths[e] = squared[at + e]
            if lengths[e] == 0:
                twin = 1
        if count > k + twin:
            reach[m] = np.sqrt(np.sort(lengths[:count])[k + twin - 1])
        else:
            reach[m] = np.sqrt(np.max(lengths[:count]))
