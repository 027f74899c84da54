"""Passes over one set of rows with the sampled rows at hand: its summary, nearest rows, distances, ranks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigembed.blocks.mapped_rows import inadmissible, mapped_rows
from bigembed.blocks.metrics import RowMetric
from bigembed.blocks.moments import merge_moments, moments_block
from bigembed.blocks.rows import Array, is_sparse
from bigembed.errors import InputError
from bigembed.quality.lists import COMPILED, LOADED, counts_block, distances_block, nearer, nearest_block
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.sparse_parts import row_parts, rows_of_parts
from bigembed.store.rows.passes import Parts, add_parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

EUCLIDEAN = RowMetric("euclidean")


@dataclass(frozen=True)
class Space:
    """One of the two sets of rows: rows or coordinates, their metric, and where their passes leave what they find."""

    name: str
    source: RowSource
    exchange: Exchange
    sample: Array
    """Numbers of the sampled rows, ascending, int64 (s,)."""
    metric: RowMetric = EUCLIDEAN
    mapped: bool = False
    """Whether the rows are mapped for the metric already."""

    @property
    def pairwise(self) -> RowMetric | None:
        """The metric, where distances are not Euclidean ones of dense rows."""
        return None if self.metric.mapped and not self.source.sparse else self.metric

    @property
    def compiled(self) -> bool:
        """Whether compiled code pays, its import included; the figures are the same either way."""
        pairs, width = len(self.sample) * int(self.source.shape[0]), self.source.width
        loaded = "numba" in sys.modules or pairs * max(64, width) >= LOADED
        return loaded and pairs * max(8, width) >= COMPILED and self.pairwise is None

    def survey(self) -> Parts:
        """One pass: NaN, infinity and rows that the metric does not admit refused; moments of the columns; the
        sampled rows, (s, d)."""
        name = f"{self.name}-survey"
        self.exchange.drop(name)
        given: dict[str, Any] = {"sample": self.sample, "metric": "" if self.mapped else self.metric.text}
        try:
            found = reduce_rows(
                self.source, survey_block, self.exchange, combine=add_surveys, first=True, label=name, **given
            )
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        if wrong := int(found["wrong"]):
            _, what, advice = inadmissible(np.zeros((1, 2)), self.metric.text)
            raise InputError(
                f"{self.name}: metric={self.metric.text!r} is not defined for {what}: {wrong} of "
                f"{self.source.shape[0]}, the first is row {int(found['first_wrong'])}. {advice}"
            )
        return found

    def ask(self, survey: Parts) -> None:
        """Leave the sampled rows where tasks find them."""
        rows = rows_of_parts(survey, self.source.width)
        self.exchange.put(f"{self.name}-sampled", 0, row_parts(self.prepared(rows)))

    def sampled(self) -> Any:
        """The sampled rows."""
        return rows_of_parts(self.exchange.get_all(f"{self.name}-sampled", 0), self.columns)

    @property
    def columns(self) -> int:
        """Of sparse rows as they are compared."""
        return self.source.width + (self.metric.name == "correlation" and not self.mapped)

    def prepared(self, rows: Any) -> Any:
        """Rows as they are compared."""
        return rows if self.mapped else mapped_rows(rows, self.metric.text, rows.dtype)

    def look(self, k: int, others: Array) -> Parts:
        """One pass: of each sampled row the k nearest rows, ``ids`` and ``squared`` distances (s, k), and its squared
        distances ``far`` to ``others`` (s, p).

        InputError where distances exceed what float64 holds.
        """
        asked = {"others": others} | ({"limits": self._limits(k)} if k and self.compiled else {})
        found = self._pass(look_block, add_looks, "look", asked, k=k)
        if k and (found["ids"] < 0).any():
            raise InputError(f"{self.name}: squared distances exceed what float64 holds. Scale the columns down")
        return found

    def _limits(self, k: int) -> Array:
        """Squared distances (s,) that the k nearest of all rows do not exceed: to the k-th of the sampled ones."""
        queries, numbers = self.sampled(), np.arange(len(self.sample))
        return nearest_block(queries, numbers, queries, 0, k, self.compiled, self.pairwise)[1][:, -1]

    def ranks(self, others: Array, limits: Array) -> Array:
        """One pass: rank (from 1) of each of ``others`` (s, p) among all rows, by distance from the sampled row."""
        found = self._pass(rank_block, add_parts, "rank", {"others": others, "limits": limits})
        return np.asarray(found["counts"] + 1)

    def _pass(self, function: Any, combine: Any, name: str, asked: Parts, **fixed: Any) -> Parts:
        name = f"{self.name}-{name}"
        self.exchange.drop(name)
        self.exchange.put(f"{name}-asked", 0, asked)
        given = {"space": self, "asked": f"{name}-asked", **fixed}
        found = reduce_rows(self.source, function, self.exchange, combine=combine, label=name, **given)
        self.exchange.drop(f"{name}-asked")
        return found


@dataclass(frozen=True)
class Looked(RowMetric):
    """Distances that are given: those of a row to the sampled rows, of which a query is the number."""

    name: str = "precomputed"

    def squared(self, rows: Any, others: Any, swapped: Array | None = None) -> Array:
        """Squared distances (m, N) of the queries ``rows`` (m, 1) to ``others``, their distances (N, s)."""
        return np.asarray(np.square(others[:, rows[:, 0]].T, dtype=np.float64))


@dataclass(frozen=True)
class DistancesToSample(RowSource):
    """Given distances (n, s) of all rows to s sampled ones, which were checked when they were picked."""

    sample: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of the sampled rows, ascending (s,)."""
    metric: ClassVar[RowMetric] = Looked()


@dataclass(frozen=True)
class GivenSpace(Space):
    """Rows of which distances are given, and nothing else."""

    def survey(self) -> Parts:
        """Nothing: there are no columns."""
        return {}

    def ask(self, survey: Parts) -> None:
        """Leave nothing: sampled rows are known by their numbers."""

    def sampled(self) -> Any:
        """Their numbers among the sampled ones."""
        return np.arange(len(self.sample))[:, None]


def survey_block(block: RowBlock, *, sample: Array, metric: str) -> Parts:
    """Moments and limits of the columns, rows that a metric does not admit, and the sampled rows of a block."""
    low, high = np.searchsorted(sample, [block.start, block.stop])
    wrong = np.flatnonzero(inadmissible(block.rows, metric)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        moments = moments_block(block.rows, diagonal=True)
    least, most = block.rows.min(axis=0), block.rows.max(axis=0)
    return (
        moments
        | {
            "low": least.toarray() if is_sparse(block.rows) else least,
            "high": most.toarray() if is_sparse(block.rows) else most,
            "wrong": np.array(len(wrong)),
            "first_wrong": np.array(wrong[0] + block.start if len(wrong) else np.iinfo(np.int64).max),
        }
        | row_parts(block.rows[sample[low:high] - block.start])
    )


def add_surveys(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    with np.errstate(over="ignore", invalid="ignore"):
        moments = merge_moments(*({name: part[name] for name in _MOMENTS} for part in (left, right)))
    rows = [name for name in left if name.startswith("rows")]
    return moments | {
        "low": np.minimum(left["low"], right["low"]),
        "high": np.maximum(left["high"], right["high"]),
        "wrong": left["wrong"] + right["wrong"],
        "first_wrong": np.minimum(left["first_wrong"], right["first_wrong"]),
        **{name: np.concatenate([left[name], right[name]]) for name in rows},
    }


_MOMENTS = ("count", "weight", "mean", "scatter")


def look_block(block: RowBlock, *, space: Space, asked: str, k: int) -> Parts:
    """Nearest rows and chosen distances of the sampled rows within a block."""
    queries, rows = space.sampled(), space.prepared(block.rows)
    others, limits = space.exchange.find(asked, 0, ["others", "limits"])
    assert others is not None
    ids, squared = np.zeros((len(others), 0), int), np.zeros((len(others), 0))
    if k:
        given = queries, space.sample, rows, block.start, k, space.compiled, space.pairwise
        ids, squared = nearest_block(*given, limits=limits)
    far = distances_block(queries, others, rows, block.start, space.pairwise)
    return {"far": far, "ids": ids, "squared": squared}


def add_looks(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    ids, squared = nearer(left["ids"], left["squared"], right["ids"], right["squared"])
    return {"far": left["far"] + right["far"], "ids": ids, "squared": squared}


def rank_block(block: RowBlock, *, space: Space, asked: str) -> Parts:
    """How many rows of a block come before the others."""
    rows = space.prepared(block.rows)
    others, limits = space.exchange.get_many(asked, 0, ["others", "limits"])
    given = others, limits, rows, block.start, space.compiled, space.pairwise
    return {"counts": counts_block(space.sampled(), space.sample, *given)}
