"""Landmark MDS of distances that are given: rows are known by their numbers, and few rows of the array are read.

Of an array (n, n) only the rows of the landmarks, and of some rows that the map is judged by, are read, and kept in a
form in which a block of rows finds its distances to the landmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np

from bigembed.blocks.distance_matrix import refuse_entries
from bigembed.blocks.distances import Metric, wrong_entries
from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.embedding.scaling.landmark_sample import LandmarkOptions, write_landmarks
from bigembed.errors import InputError
from bigembed.landmarks.select import SAMPLE_BYTES, far_apart, max_min_by, uniform
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import create_rows, read_array, write_array, write_rows
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.source import RowSource

PROBES = 100
"""Rows that the map is judged by: fewer than where distances are computed, as each is a row to read."""
SPAN = 1 << 15
"""Columns of a task, and of a chunk of what is kept."""
CANDIDATES = 4_096
"""Rows that landmarks far from each other are chosen among, at the most."""


@dataclass(frozen=True)
class GivenDistances(Metric):
    """Distances of rows, by their numbers, to landmarks and probes."""

    path: str = ""
    """Of the stage that keeps them; empty as long as it is planned."""

    def within(self, context: Context) -> Self:
        """The same, where the stages of this run are."""
        return replace(self, path=context.of("landmarks"))

    def between(self, rows: Any, others: Any) -> Array:
        """Distances of rows (m, 1) to rows that are kept (k, 1): float64 (m, k)."""
        numbers, wanted = (np.asarray(part)[:, 0].astype(np.int64) for part in (rows, others))
        low, high = int(numbers.min()), int(numbers.max()) + 1
        out = np.empty((len(numbers), len(wanted)))
        for column, row in enumerate(wanted.tolist()):
            out[:, column] = read_array(f"{self.path}/distances/{row}", low, high)[numbers - low]
        return out


@dataclass(frozen=True)
class Numbers(RowSource):
    """The numbers of the rows of an array, (n, 1)."""

    given: RowSource | None = None

    def read(self, start: int, stop: int) -> Array:
        """The numbers ``start`` to ``stop``."""
        return np.arange(start, stop, dtype=np.float64)[:, None]

    @property
    def block(self) -> int:
        """Rows of a block: as many as lie in a chunk of what is kept."""
        return SPAN

    @property
    def grain(self) -> int:
        return 1

    def fingerprint(self) -> str:
        assert self.given is not None
        return self.given.fingerprint()


def numbers_of(source: RowSource) -> Numbers:
    """The numbers of the rows of an array of distances, which must be square."""
    n, d = source.shape
    if n != d:
        raise InputError(f"metric='precomputed': distances form a square array (n, n); got shape {source.shape}")
    return Numbers((n, 1), np.dtype(np.float64), given=source)


def drawn_stage(numbers: Numbers, asked: LandmarkOptions) -> Stage:
    """Numbers of the rows that landmarks are chosen among (``candidates``, ``ids``), and of ``probes``."""
    n = numbers.shape[0]

    def run(context: Context) -> dict[str, Any]:
        ids, probes = asked.candidates(n, SAMPLE_BYTES // CANDIDATES), uniform(n, min(n, PROBES), [asked.seed, 2])
        write_array(context.path("ids"), ids)
        write_array(context.path("probes"), probes.astype(np.float64)[:, None])
        return {"n": n, "d": n, "dtype": "float64", "candidates": len(ids), "probes": len(probes)}

    parameters = {"source": numbers.fingerprint(), "metric": "precomputed", **asked.key()}
    return Stage("sample", (), parameters, run, Cost(disk=8 * (PROBES + 30 * asked.count)))


def kept_stage(numbers: Numbers, asked: LandmarkOptions) -> Stage:
    """The landmarks, and for each of them and each probe a row of the array, ``distances/NUMBER`` (n,).

    Which landmark is the farthest from those before it, their rows say. Where chunks hold so many rows that reading
    them one after the other would be more than the array, the distances between all candidates are read together.
    """
    assert numbers.given is not None
    source, n = numbers.given, numbers.shape[0]
    most, (high, wide) = min(n, asked.count + PROBES + 1), source.chunks

    def run(context: Context) -> dict[str, Any]:
        ids, probes = read_array(context.of("sample", "ids")), read_array(context.of("sample", "probes"))[:, 0]
        kept, out = np.zeros(0, np.int64), context.path("distances")

        def read(rows: Array) -> None:
            nonlocal kept
            new = np.setdiff1d(rows, kept)
            for row in new.tolist():
                create_rows(f"{out}/{row}", (n,), source.work, SPAN, overwrite=True, compress=False)
            tasks = [(part, *span) for part, span in product(in_chunks(new, high), bounds(n, SPAN))]
            refuse_entries(map_blocks(keep_block, tasks, source=source, out=out), len(new))
            kept = np.union1d(kept, new)

        def to_candidates(i: int) -> Array:
            read(ids[i : i + 1])
            return read_array(f"{out}/{ids[i]}")[ids].astype(np.float64)

        numbers = ids if asked.given is None else np.asarray(asked.given, np.int64)
        if asked.given is None and far_apart(asked.selection):
            apart = to_candidates if asked.count * high <= n else among(source, ids, context.exchange).__getitem__
            numbers = ids[max_min_by(apart, asked.count)]
        read(np.concatenate([numbers, probes.astype(np.int64), ids[:1]]))
        return write_landmarks(context, asked, numbers.astype(np.float64)[:, None], numbers, len(ids))

    touched, every = min(n, most * high), asked.count * high > n and asked.selection == "max-min"
    held = 16 * min(n, CANDIDATES, 30 * asked.count) ** 2 if every else 0
    cost = Cost(
        read=(1 + every) * touched * n * source.dtype.itemsize,
        write=most * n * source.work.itemsize,
        disk=most * n * source.work.itemsize,
        memory=(64 << 20) + (3 * min(high, n) * min(n, SPAN) + 8 * high * wide) * source.dtype.itemsize,
        scratch=held // 2,
        coordinator=40 * n + held,
        maps=asked.count if asked.selection == "max-min" else 1,
    )
    return Stage("landmarks", ("sample",), asked.key(), run, cost)


def in_chunks(rows: Array, high: int) -> list[Array]:
    """Numbers of rows, ascending, in groups of those that lie in the same chunks.

    >>> [group.tolist() for group in in_chunks(np.array([1, 2, 5, 9, 11]), 4)]
    [[1, 2], [5], [9, 11]]
    """
    return np.split(rows, np.flatnonzero(np.diff(rows // high)) + 1) if len(rows) else []


def among(source: RowSource, ids: Array, exchange: Exchange) -> Array:
    """Distances between some rows (c, c), float64, each chunk read once."""
    parts = list(enumerate(in_chunks(ids, source.chunks[0])))
    refuse_entries(map_blocks(among_block, parts, source=source, ids=ids, exchange=exchange), len(ids))
    return np.concatenate([exchange.get_many("among", number, ["values"])[0] for number, _ in parts])


def among_block(number: int, rows: Array, *, source: RowSource, ids: Array, exchange: Exchange) -> dict[str, Any]:
    """Leave the distances of rows that lie near each other to the other ones; entries that no distance has."""
    low, high = int(rows[0]), int(rows[-1]) + 1
    values = np.empty((len(rows), len(ids)))
    for start, stop in bounds(source.shape[1], SPAN):
        first, last = np.searchsorted(ids, [start, stop])
        values[:, first:last] = source.window((low, high), (start, stop))[np.ix_(rows - low, ids[first:last] - start)]
    exchange.put("among", number, {"values": values})
    return seen_wrong(values, rows, ids)


def seen_wrong(values: Array, rows: Array, columns: Array) -> dict[str, Any]:
    """Entries that no distance has, and their rows."""
    wrong = [(int(rows[i]), int(columns[j]), value) for i, j, value in wrong_entries(values)]
    return {"entries": wrong, "rows": sorted({i for i, _, _ in wrong})}


def keep_block(rows: Array, start: int, stop: int, *, source: RowSource, out: str) -> dict[str, Any]:
    """Keep some columns of rows that lie near each other; entries that no distance has."""
    low, high = int(rows[0]), int(rows[-1]) + 1
    values = source.window((low, high), (start, stop))[rows - low].astype(source.work, copy=False)
    for row, own in zip(rows.tolist(), values, strict=True):
        write_rows(f"{out}/{row}", start, own)
    return seen_wrong(values, rows, np.arange(start, stop))
