"""A map that stays put: each version of a growing embedding is laid over the one before, and says how far rows moved.

The first version of a frame is as its method made it. Each one after it starts from the published coordinates, where
the method descends, and is brought to them by what the method leaves open (:mod:`bigembed.estimator.frame`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, MovedError
from bigembed.estimator.frame import STAGE
from bigembed.jobs.growth.kept import places_of
from bigembed.jobs.growth.versions import Version
from bigembed.jobs.identity import method_of, steps_of
from bigembed.jobs.job import JobSpec
from bigembed.jobs.record import read_record
from bigembed.linalg.alignment import Alignment
from bigembed.rows.derived import DerivedRows, MappedSource
from bigembed.rows.growing import StoreRows
from bigembed.rows.source import RowBlock, RowSource, rows_at
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import Run
from bigembed.store.files import digest_of
from bigembed.store.paths import at

HALF, MOST = "0.5", "0.99"
"""The quantiles of movements that have limits."""
SAID = {HALF: "half of the rows", MOST: "1 of 100 rows"}
FAR = {"moved": 0.3, "drift": 0.6}
"""How far 99 of 100 rows may move, by default."""


@dataclass(frozen=True)
class MovementLimits:
    """How far the rows of a map may move before somebody has to decide, as shares of its diameter.

    Half of the rows, and 99 of 100: a branch of few rows that flips leaves the median as it is. Maps of cells that
    stayed moved 99 of 100 rows by 5 % in a night (t-SNE, UMAP) to 19 % (diffusion maps), PHATE of digits by 26 %, and
    the diffusion map whose branch flipped by 38 %.
    """

    moved: float = 0.25
    """Since the version before: the median."""
    drift: float = 0.5
    """Since the first version of the frame: the median."""
    moved_99: float | None = None
    """Since the version before: the 0.99-quantile. None is 0.3, or ``moved`` where that is more."""
    drift_99: float | None = None
    """Since the first version of the frame: the 0.99-quantile. None is 0.6, or ``drift`` where that is more."""

    def of(self, since: str, quantile: str) -> float:
        """Return the limit of a quantile, "0.5" or "0.99", of "moved" or "drift".

        >>> MovementLimits().of("moved", "0.99"), MovementLimits(moved=0.5).of("moved", "0.99")
        (0.3, 0.5)
        """
        half = float(getattr(self, since))
        if quantile == HALF:
            return half
        given = getattr(self, f"{since}_99")
        return max(FAR[since], half) if given is None else float(given)


@dataclass(frozen=True)
class LongerRows(DerivedRows):
    """Rows of an array that was made when there were fewer: NaN for those that came later."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop``."""
        stop, there = min(stop, self.shape[0]), self.source.shape[0]
        found = np.full((max(0, stop - start), *self.shape[1:]), np.nan, self.dtype)
        if start < min(stop, there):
            found[: min(stop, there) - start] = self.source.read(start, min(stop, there))
        return found

    @property
    def grain(self) -> int:
        """Return the rows that are stored together."""
        return 1


def longer(rows: RowSource, n: int) -> LongerRows:
    """Return rows as the first of n."""
    return LongerRows((n, *rows.shape[1:]), rows.dtype, base=rows)


def can_follow(job: JobSpec, version: Version) -> bool:
    """Return whether a new version may be laid over this one: it was made by the same method, parameters and steps."""
    with suppress(BigembedError):
        made = read_record(version.run).get("job", {})
        mine = {"method": method_of(job), "steps": steps_of(job)}
        return digest_of({"method": made.get("method"), "steps": made.get("steps", [])}) == digest_of(mine)
    return False


def in_places(version: Version, array: str) -> RowSource:
    """Return an array of the frame of a version in the places of its rows in the store: some may be left out."""
    run = Run(version.run)
    found = rows_at(at(run.path(STAGE, array)))
    rows = StoreRows(found.shape, found.dtype, path=run.path(STAGE, array), content=run.digest(STAGE))
    kept = places_of(version)
    return rows if kept is None else kept.restored(rows)


def taken_out_of(frame: Alignment | None, rows: RowSource) -> RowSource:
    """Return coordinates as the method made them, before they were laid over anything."""
    found = frame or Alignment.none(rows.width)
    stamp = digest_of([found.matrix.tolist(), found.shift.tolist()])
    return MappedSource(rows.shape, np.dtype(np.float64), base=rows, function=partial(undone, frame=found), stamp=stamp)


def undone(block: RowBlock, *, frame: Alignment) -> Array:
    """Return coordinates out of a frame; rows without any start in the middle of the map, which is 0."""
    found = frame.undo(block.rows)
    return np.where(np.isfinite(found), found, 0.0)


# -------------------------------------------------------------------------------------------------------- movement


def movement_of(version: Version) -> dict[str, Any]:
    """Return what is known of the frame of a version; nothing for the first one of a frame."""
    run = Run(version.run)
    return dict(run.results(STAGE)) if run.has(STAGE) else {}


def refuse_moved(job: JobSpec, version: Version, limits: MovementLimits) -> None:
    """:class:`MovedError` where the rows of a version that is not published yet moved farther than the limits."""
    found = movement_of(version)
    since = {"moved": "the version before", "drift": f"the first version of its frame, {found.get('since')}"}
    far = [
        f"{SAID[quantile]} moved {100 * share:.3g} % of the map's diameter or more since {since[name]}; the limit is "
        f"{100 * limit:g} % (--{name}{'' if quantile == HALF else '-99'})"
        for name in since
        for quantile in SAID
        if (share := found.get(name, {}).get(quantile, 0.0)) > (limit := limits.of(name, quantile))
    ]
    if far:
        raise MovedError(
            f"{version.root}: {'; '.join(far)}. The version before stays published, and this one is kept. Look at it, "
            f"and decide: bigembed refresh {job.file} with a higher limit publishes it, and with --new-frame makes a "
            "map from nothing, which begins a new frame"
        )
