"""The rows that landmarks are chosen from, and the choice: one pass over the rows, then the sample in memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.blocks.distances import Metric, refuse_distances
from bigembed.blocks.moments import merge_moments, moments_block
from bigembed.blocks.rows import Array
from bigembed.embedding.costs import summing_cost
from bigembed.landmarks.select import SELECTIONS as FROM_ROWS
from bigembed.landmarks.select import LandmarkChoice, far_apart, max_min, max_min_by, uniform
from bigembed.neighbors.ordering.partition import kmeans
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.rows.offenders import checked_shape
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

SELECTIONS = (*FROM_ROWS, "k-means")
PROBES = 400
"""Sampled rows on whose pairs the stress is taken."""
SCATTER_COLUMNS = 512
"""Columns up to which second moments (d²) are taken in the pass of the sample; else of the coordinates, in another."""
MOMENTS = ("count", "weight", "mean", "scatter")


@dataclass(frozen=True)
class LandmarkOptions:
    """Which landmarks: a selection and their number, or ``"ids"`` (numbers of rows) or ``"rows"`` that are given."""

    selection: str
    count: int
    seed: int
    given: Array | None = None

    def candidates(self, n: int, row_bytes: int) -> Array:
        """Numbers of the rows to look at, ascending, each once."""
        if self.selection == "rows":
            return np.zeros(0, np.int64)
        if self.given is not None:
            return np.unique(self.given).astype(np.int64)
        return LandmarkChoice(self.count, self.selection, (self.seed, 1)).sample(n, row_bytes)

    def key(self) -> dict[str, Any]:
        """What the choice depends on."""
        given = None
        if self.given is not None:
            text = repr((self.given.shape, str(self.given.dtype))).encode()
            given = sha256(text + np.ascontiguousarray(self.given).tobytes()).hexdigest()
        return {"selection": self.selection, "count": self.count, "seed": self.seed, "given": given}


def sample_stage(source: RowSource, asked: LandmarkOptions, moments: bool) -> Stage:
    """Rows to choose landmarks from (``candidates``) and to measure on (``probes``), with ``ids`` of the candidates.

    One pass, in which all rows are checked; with ``moments`` it also takes ``mean`` and ``scatter`` of all rows (the
    diagonal only, where the columns are many).
    """
    n, d = checked_shape(source)
    size = 8 * d * (d if d <= SCATTER_COLUMNS else 1) if moments else 0

    def run(context: Context) -> dict[str, Any]:
        ids = asked.candidates(n, source.row_bytes)
        probes = uniform(n, min(n, PROBES), [asked.seed, 2])
        both = np.union1d(ids, probes)
        write_array(context.path("wanted"), both)
        found = reduce_rows(
            source,
            sample_of_block,
            context.exchange,
            combine=merge_samples,
            partial_bytes=size,
            first=True,
            label="sample",
            wanted=context.path("wanted"),
            moments=moments,
        )
        write_array(context.path("ids"), ids)
        write_array(context.path("candidates"), found["rows"][np.searchsorted(both, ids)])
        write_array(context.path("probes"), found["rows"][np.searchsorted(both, probes)])
        for name in ("mean", "scatter") if moments else ():
            write_array(context.path(name), found[name])
        return {"n": n, "d": d, "dtype": str(source.work), "candidates": len(ids), "probes": len(probes)}

    held = (len(asked.candidates(n, source.row_bytes)) + PROBES) * (source.row_bytes + 8)
    more = {"disk": held + size, "scratch": held, "memory": held, "coordinator": 4 * held}
    cost = summing_cost(source, size, flops=2 * n * size / 8, **more)
    parameters = {"source": source.fingerprint(), "moments": moments, **asked.key()}
    return Stage("sample", (), parameters, run, cost, resumes=True)


def sample_of_block(block: RowBlock, *, wanted: str, moments: bool) -> Parts:
    """The wanted rows of one block, and its moments."""
    ids = read_array(wanted)
    first, last = np.searchsorted(ids, (block.start, block.stop))
    rows = {"rows": block.rows[ids[first:last] - block.start]}
    if not moments:
        return rows
    return rows | moments_block(block.rows, diagonal=block.rows.shape[1] > SCATTER_COLUMNS)


def merge_samples(left: Parts, right: Parts) -> Parts:
    """Rows one after the other, moments together."""
    rows = {"rows": np.concatenate([left["rows"], right["rows"]])}
    if "scatter" not in left:
        return rows
    return rows | merge_moments(*({name: part[name] for name in MOMENTS} for part in (left, right)))


def landmarks_stage(asked: LandmarkOptions, metric: Metric, d: int) -> Stage:
    """``rows`` (L, d) and ``ids`` (L,) of the landmarks (−1: no row of the input), ``order`` in which to take fewer."""

    def run(context: Context) -> dict[str, Any]:
        sample, ids = read_array(context.of("sample", "candidates")), read_array(context.of("sample", "ids"))
        rows, numbers = choose(asked, metric, sample, ids, context.results("sample")["dtype"])
        return write_landmarks(context, asked, rows, numbers, len(sample))

    parameters = {**asked.key(), **metric.key()}
    cost = Cost(disk=8 * asked.count * (d + 2), coordinator=192 << 20, serial_flops=100 * asked.count**2 * d)
    return Stage("landmarks", ("sample",), parameters, run, cost)


def write_landmarks(
    context: Context, asked: LandmarkOptions, rows: Array, numbers: Array, sampled: int
) -> dict[str, Any]:
    """Write the landmarks, chosen among so many rows, and the order in which to take fewer; what the stage says."""
    order = np.arange(len(rows))
    if asked.selection != "max-min":
        order = np.random.default_rng([asked.seed, 4]).permutation(len(rows))
    write_array(context.path("rows"), rows)
    write_array(context.path("ids"), numbers)
    write_array(context.path("order"), order)
    return {
        "selection": asked.selection,
        "landmarks": len(rows),
        "distinct": len(np.unique(rows, axis=0)),
        "wanted": asked.count,
        "sampled": sampled,
    }


def choose(asked: LandmarkOptions, metric: Metric, sample: Array, ids: Array, dtype: str) -> tuple[Array, Array]:
    """Rows and numbers of the landmarks."""
    if asked.selection == "rows":
        assert asked.given is not None
        return np.asarray(asked.given, dtype), np.full(len(asked.given), -1)
    if asked.selection == "ids":
        assert asked.given is not None
        position = np.searchsorted(ids, asked.given)
        return sample[position], ids[position]
    if asked.selection == "k-means":
        centers = kmeans(sample, min(asked.count, len(sample)), [asked.seed, 3])
        return centers.astype(dtype, copy=False), np.full(len(centers), -1)
    if not far_apart(asked.selection):
        return sample, ids
    if metric.euclidean:
        chosen = max_min(sample, asked.count)
    else:
        chosen = max_min_by(lambda i: to_row(metric, sample, i), asked.count)
    return sample[chosen], ids[chosen]


def to_row(metric: Metric, sample: Array, i: int) -> Array:
    """Distances of a sample to one of its rows."""
    found = metric.between(sample, sample[i : i + 1])
    refuse_distances(found, metric)
    return found[:, 0]
