"""Passes over one set of rows with the sampled rows at hand: its summary, nearest rows, distances, ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.moments import merge_moments, moments_block
from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.quality.lists import COMPILED, counts_block, distances_block, nearer, nearest_block
from bigembed.store.exchange import Exchange
from bigembed.store.passes import Parts, add_parts, reduce_rows
from bigembed.store.row_blocks import RowBlock
from bigembed.store.source import RowSource

METRICS = ("euclidean", "cosine")


@dataclass(frozen=True)
class Space:
    """One of the two sets of rows: rows or coordinates, their metric, and where their passes leave what they find."""

    name: str
    source: RowSource
    exchange: Exchange
    sample: Array
    """Numbers of the sampled rows, ascending, int64 (s,)."""
    metric: str = "euclidean"

    @property
    def compiled(self) -> bool:
        """Whether there is enough to compare for compiled code."""
        return len(self.sample) * int(self.source.shape[0]) * max(8, self.source.width) >= COMPILED

    def survey(self) -> Parts:
        """One pass: NaN, infinity and (cosine) zeros refused; moments of the columns; the sampled rows, (s, d)."""
        name = f"{self.name}-survey"
        self.exchange.drop(name)
        given: dict[str, Any] = {"sample": self.sample, "cosine": self.metric == "cosine"}
        try:
            found = reduce_rows(
                self.source, survey_block, self.exchange, combine=add_surveys, first=True, label=name, **given
            )
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error
        if zeros := int(found["zeros"]):
            raise InputError(
                f"{self.name}: metric='cosine' is not defined for rows of zeros: {zeros} of {self.source.shape[0]}, "
                f"the first is row {int(found['first_zero'])}. Drop them, or use metric='euclidean'"
            )
        return found

    def ask(self, queries: Array) -> None:
        """Leave the sampled rows where tasks find them."""
        self.exchange.put(f"{self.name}-sampled", 0, {"rows": prepared(queries, self.metric)})

    def look(self, k: int, others: Array) -> Parts:
        """One pass: of each sampled row the k nearest rows, ``ids`` and ``squared`` distances (s, k), and its squared
        distances ``far`` to ``others`` (s, p).

        InputError where distances exceed what float64 holds.
        """
        found = self._pass(look_block, add_looks, "look", {"others": others}, k=k)
        if k and (found["ids"] < 0).any():
            raise InputError(f"{self.name}: squared distances exceed what float64 holds. Scale the columns down")
        return found

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


def prepared(rows: Array, metric: str) -> Array:
    """Rows as they are compared: of length one for the cosine metric, contiguous."""
    if metric == "cosine":
        return np.asarray((rows / lengths(rows)[:, None]).astype(rows.dtype))
    return np.ascontiguousarray(rows)


def lengths(rows: Array) -> Array:
    """Length of each row, float64."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def survey_block(block: RowBlock, *, sample: Array, cosine: bool) -> Parts:
    """Moments and limits of the columns, rows of zeros, and the sampled rows of a block."""
    low, high = np.searchsorted(sample, [block.start, block.stop])
    zero = np.flatnonzero(lengths(block.rows) == 0) if cosine else np.zeros(0, int)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = moments_block(block.rows, diagonal=True)
    return moments | {
        "low": block.rows.min(axis=0),
        "high": block.rows.max(axis=0),
        "zeros": np.array(len(zero)),
        "first_zero": np.array(zero[0] + block.start if len(zero) else np.iinfo(np.int64).max),
        "rows": block.rows[sample[low:high] - block.start],
    }


def add_surveys(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    with np.errstate(over="ignore", invalid="ignore"):
        moments = merge_moments(*({name: part[name] for name in _MOMENTS} for part in (left, right)))
    return moments | {
        "low": np.minimum(left["low"], right["low"]),
        "high": np.maximum(left["high"], right["high"]),
        "zeros": left["zeros"] + right["zeros"],
        "first_zero": np.minimum(left["first_zero"], right["first_zero"]),
        "rows": np.concatenate([left["rows"], right["rows"]]),
    }


_MOMENTS = ("count", "weight", "mean", "scatter")


def look_block(block: RowBlock, *, space: Space, asked: str, k: int) -> Parts:
    """Nearest rows and chosen distances of the sampled rows within a block."""
    queries, rows = _sampled(space), prepared(block.rows, space.metric)
    (others,) = space.exchange.get_many(asked, 0, ["others"])
    ids, squared = np.zeros((len(queries), 0), int), np.zeros((len(queries), 0))
    if k:
        ids, squared = nearest_block(queries, space.sample, rows, block.start, k, space.compiled)
    return {"far": distances_block(queries, others, rows, block.start), "ids": ids, "squared": squared}


def add_looks(left: Parts, right: Parts) -> Parts:
    """Of two runs of blocks, the left one before the right one."""
    ids, squared = nearer(left["ids"], left["squared"], right["ids"], right["squared"])
    return {"far": left["far"] + right["far"], "ids": ids, "squared": squared}


def rank_block(block: RowBlock, *, space: Space, asked: str) -> Parts:
    """How many rows of a block come before the others."""
    rows = prepared(block.rows, space.metric)
    others, limits = space.exchange.get_many(asked, 0, ["others", "limits"])
    counts = counts_block(_sampled(space), space.sample, others, limits, rows, block.start, space.compiled)
    return {"counts": counts}


def _sampled(space: Space) -> Array:
    return space.exchange.get_many(f"{space.name}-sampled", 0, ["rows"])[0]
