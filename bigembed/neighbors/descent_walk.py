"""New rows among rows whose lists NN-descent found: from the nearest cells along the lists, nearest rows first.

A new row visits the nearest rows on its list that it has not visited yet. The rows that these list, and the nearest
that list them, are candidates for its list, until it has visited all rows on that (best-first search of a graph of
neighbors: Hajebi et al. 2011). Where it goes depends on the row alone, not on those that walk at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigembed.neighbors.descent_rounds import Lists
from bigembed.neighbors.graph_blocks import concatenated
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search.by_metric import ByMetric, joined_pairs
from bigembed.rows.sparse import ENTRY_BYTES
from bigembed.runtime.blocks import Array, bounds, by_owner, offsets
from bigembed.store.arrays import read_array, read_by_id, write_array
from bigembed.store.parcels import stacked

AT_ONCE = 8
"""Rows that a row goes to in one step."""
TOGETHER = 2_048
"""Rows that walk at the same time."""
HELD_BYTES = 256 << 20
"""Fitted rows, or what is stored of each, that are held as a whole; of more, those that are asked for."""
SEEN = 1 << 22

Edges = tuple[Array, Array, Array, Array]
"""Rows, fitted rows that may have them on their lists, squared distances, and the largest id that the row may have."""
NOBODY = np.iinfo(np.int64).max


def link_block(b: int, senders: list[int], *, lists: Lists, out: str) -> None:
    """Write for the rows of a block ``links`` (m, 2k), the rows that they list and the nearest that list them, −1 for
    none; and ``sources``, CSR, all rows that list them."""
    from bigembed.neighbors import descent_compiled

    ids, squared = lists.get(b, "ids", "squared")
    m, k = ids.shape
    names = [f"row{b}", f"source{b}", f"squared{b}"]
    parts = [[np.zeros(0, np.int32), ids[:0, 0], squared[:0, 0]]]
    parts += [lists.exchange.get_many("reversed", sender, names) for sender in senders]
    row, source, value = concatenated(parts)
    source //= 2
    starts, nearest = descent_compiled.sources_of(row, source, value, m, k)
    near = np.full((m, k), -1, ids.dtype)
    near[np.arange(k) < np.diff(starts)[:, None]] = nearest
    dtype = np.int32 if lists.ordered.starts[-1] <= np.iinfo(np.int32).max else np.int64
    order = np.lexsort((source, row))
    write_array(f"{out}links/{b}", np.concatenate([ids, near], axis=1).astype(dtype))
    write_array(f"{out}sources/{b}", source[order].astype(dtype))
    write_array(f"{out}sources_indptr/{b}", offsets(np.bincount(row, minlength=m)))


def of_rows(rows: Array, edges: Edges) -> Edges:
    """The edges of ``rows[i]`` where they are given of row i."""
    return rows[edges[0]], *edges[1:]


class Walk:
    """The fitted rows as a walk reads them."""

    def __init__(self, ordered: Ordered, search: str, by: ByMetric | None) -> None:
        self.ordered, self.search, self.by, self.n = ordered, search, by, ordered.starts[-1]
        self.links = self._stored("links")
        self.rho_squared = self._stored("rho_squared")
        self.some = max(1, HELD_BYTES // _row_bytes(ordered))
        self.fitted = ordered.compared_rows(np.arange(self.n)) if self.n <= self.some else None

    def go(self, rows: Any, own: Array, ids: Array, squared: Array) -> Edges:
        """Fill the lists ``ids``, ``squared`` (n, L) of rows (n, d), which hold some entries to begin with; return the
        fitted rows met that have these within the reach of their own lists. ``own`` (n,): ids left out, −1 for none."""
        found = [
            self._go(rows[start:stop], own[start:stop], ids[start:stop], squared[start:stop], start)
            for start, stop in bounds(len(ids), TOGETHER)
        ]
        row, number, value = joined_pairs([part for some in found for part in some], squared.dtype)
        fresh = np.lexsort((number, row))
        row, number, value = row[fresh], number[fresh], value[fresh]
        once = np.ones(len(row), bool)
        once[1:] = (row[1:] != row[:-1]) | (number[1:] != number[:-1])
        row, number, value = row[once], number[once], value[once]
        largest = np.full(len(row), NOBODY)
        if len(ties := np.flatnonzero(value == self.rho_squared(number))):
            largest[ties] = read_by_id(f"{self.search}/kappa", self.ordered.starts, number[ties])
        return row, number, value, largest

    def as_fitted(self, rows: Any, twins: Array, width: int) -> tuple[Array, Array, Edges]:
        """Of rows (n, d) that are equal to the fitted rows ``twins`` (n,): the twin and its list, and who lists it."""
        every, of, none = np.arange(len(twins)), self._distances(rows), np.full(len(twins), np.inf)
        ids = np.concatenate([twins[:, None], self.links(twins)[:, : width - 1].astype(np.int64)], axis=1)
        real = ids >= 0
        squared = np.full(ids.shape, np.inf, self.dtype)
        squared[real] = of(np.repeat(every, real.sum(axis=1)), ids[real], np.repeat(none, real.sum(axis=1)))
        counts, sources = self._sources(twins)
        row = np.repeat(every, counts)
        value = of(row, sources, np.full(len(row), np.inf))
        return ids, squared, (row, sources, value, np.full(len(row), NOBODY))

    @property
    def dtype(self) -> Any:
        """Of squared distances."""
        return np.dtype(self.by.dtype) if self.by else self.ordered.rows(0, 0, 1).dtype

    def _go(self, rows: Any, own: Array, ids: Array, squared: Array, first: int) -> list[tuple[Array, Array, Array]]:
        from bigembed.neighbors import descent_compiled

        distances, found = self._distances(rows), []
        gone, seen = np.zeros(ids.shape, np.uint8), np.zeros(SEEN, np.uint64)
        picked = np.empty((len(ids), AT_ONCE), np.int64)
        while descent_compiled.pick(ids, gone, picked):
            wanted, places = np.unique(picked, return_inverse=True)
            places = places.reshape(picked.shape) - int(wanted[0] < 0)
            links = self.links(wanted[wanted >= 0])
            room = int(np.count_nonzero(picked >= 0)) * links.shape[1]
            query, number = np.empty(room, np.int64), np.empty(room, np.int64)
            count = descent_compiled.neighbors_of(places, links, own, seen, query, number)
            query, number = query[:count], number[:count]
            reach = self.rho_squared(number)
            values = distances(query, number, np.maximum(squared[query, -1], reach))
            descent_compiled.enter(query, number, values, ids, squared, gone)
            near = values <= reach
            found.append((query[near] + first, number[near], values[near]))
        return found

    def _sources(self, rows: Array) -> tuple[Array, Array]:
        """Who lists each of the rows: counts, and ids."""
        counts, parts = np.zeros(len(rows), np.int64), {}
        for b, at, inside in by_owner(self.ordered.starts, rows):
            indptr, sources = read_array(f"{self.search}/sources_indptr/{b}"), read_array(f"{self.search}/sources/{b}")
            counts[at] = indptr[inside + 1] - indptr[inside]
            for row, low, high in zip(at.tolist(), indptr[inside].tolist(), indptr[inside + 1].tolist(), strict=True):
                parts[row] = sources[low:high]
        return counts, np.concatenate([np.zeros(0, np.int64), *(parts[row] for row in range(len(rows)))])

    def _stored(self, name: str) -> Callable[[Array], Array]:
        """What is stored of each row under a name, by ids."""
        path, starts = f"{self.search}/{name}", self.ordered.starts
        first = read_array(f"{path}/0", 0, 1)
        if first.nbytes * self.n > HELD_BYTES:
            return lambda ids: read_by_id(path, starts, ids)
        every = np.concatenate([read_array(f"{path}/{b}") for b in range(len(starts) - 1)])
        return lambda ids: every[ids]

    def _distances(self, rows: Any) -> Callable[[Array, Array, Array], Array]:
        """Squared distances of ``rows[query]`` and the fitted rows of some ids, given limits as
        :class:`~bigembed.neighbors.search.pair_join.PairDistances` has them."""
        every = None if self.fitted is None else self._compared(rows, self.fitted)

        def distances(query: Array, ids: Array, limits: Array) -> Array:
            if every is not None:
                return every(query, ids, limits)
            out = np.empty(len(ids), self.dtype)
            wanted, place = np.unique(ids, return_inverse=True)
            for start, stop in bounds(len(wanted), self.some):
                part = np.flatnonzero((place >= start) & (place < stop))
                near = self._compared(rows, self.ordered.compared_rows(wanted[start:stop]))
                out[part] = near(query[part], place[part] - start, limits[part])
            return out

        return distances

    def _compared(self, rows: Any, fitted: Any) -> Callable[[Array, Array, Array], Array]:
        if self.by is not None:
            of_pairs, count = self.by.of_pairs(stacked([rows, fitted])), rows.shape[0]
            return lambda row, at, limits: of_pairs(row.astype(np.int32), (count + at).astype(np.int32), limits)
        from bigembed.neighbors.search.rerank import compiled_pair_distances

        return lambda query, place, _: compiled_pair_distances(rows, fitted, query, place)


def _row_bytes(ordered: Ordered) -> int:
    """Bytes of a fitted row as it is compared; of sparse ones on average over the first block."""
    if not ordered.columns:
        return int(ordered.rows(0, 0, 1).nbytes)
    m = ordered.rows_of[0]
    entries = int(read_array(f"{ordered.path}/points/indptr/{ordered.blocks[0]}", m, m + 1)[0])
    return 1 + ENTRY_BYTES * (1 + entries // m)


def walk_memory(n: int, row_bytes: int, k: int, length: int, rows: int) -> int:
    """Bytes that a walk of a number of rows holds, in addition to them: of the n fitted ones what is read, twice where
    it is put together, and links; lists, and pairs of a step."""
    held = 2 * min(n * row_bytes, HELD_BYTES) + min(8 * n * k, HELD_BYTES) + 4 * n
    return held + 8 * SEEN + rows * (17 * length + 24 * 2 * k) + 60 * min(rows, TOGETHER) * AT_ONCE * 2 * k
