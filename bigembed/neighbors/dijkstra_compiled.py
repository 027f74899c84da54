"""The compiled loop of Dijkstra's algorithm on the rows of one block. Importing this imports numba."""

from __future__ import annotations

from typing import Any

from numba import njit

from bigembed.runtime.blocks import Array


@njit(cache=True, nogil=True)
def settle(
    indptr: Array,
    indices: Array,
    lengths: Array,
    reached: Array,
    changed: Array,
    nodes: Array,
    values: Array,
    heap: Array,
    keys: Array,
    place: Array,
) -> Any:
    """Dijkstra from the given nodes; how many own rows (those of ``changed``) were settled.

    The heap has four children a node: ``heap`` holds nodes, ``keys`` their distances, ``place`` where each node is (−1:
    nowhere). One function, since a call for each edge costs three times the work itself; the given nodes are followed
    like the edges of a row at distance 0.
    """
    own, count, settled = changed.shape[0], 0, 0
    targets, costs, low, high, value = nodes, values, 0, nodes.shape[0], 0.0
    while True:
        for e in range(low, high):
            node, key = targets[e], value + costs[e]
            if key < reached[node]:
                reached[node] = key
                at = place[node]
                if at < 0:
                    at = count
                    count += 1
                while at > 0:
                    above = (at - 1) >> 2
                    if keys[above] <= key:
                        break
                    keys[at] = keys[above]
                    heap[at] = heap[above]
                    place[heap[at]] = at
                    at = above
                keys[at] = key
                heap[at] = node
                place[node] = at
        if count == 0:
            return settled
        nearest, value = heap[0], keys[0]
        place[nearest] = -1
        count -= 1
        if count > 0:  # the last one goes to the root, and down to its place
            node, key, at = heap[count], keys[count], 0
            while True:
                child = 4 * at + 1
                if child >= count:
                    break
                least, best = child, keys[child]
                for other in range(child + 1, min(child + 4, count)):
                    if keys[other] < best:
                        least, best = other, keys[other]
                if best >= key:
                    break
                keys[at] = best
                heap[at] = heap[least]
                place[heap[at]] = at
                at = least
            keys[at] = key
            heap[at] = node
            place[node] = at
        if nearest < own:
            changed[nearest] = True
            settled += 1
        targets, costs, low, high = indices, lengths, indptr[nearest], indptr[nearest + 1]
