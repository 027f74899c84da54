"""A map that stays put: each version of a growing embedding is laid over the one before, and says how far rows moved.

The first version of a frame is as its method made it. Each one after it starts from the published coordinates, where
the method descends, and is brought to them by what the method leaves open (:mod:`bigembed.estimator.frame`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, MovedError
from bigembed.estimator.frame import STAGE, Alignment
from bigembed.jobs.growth import Version, misread_is_damage
from bigembed.jobs.growth.account import Snapshot
from bigembed.jobs.job import JobSpec
from bigembed.jobs.record import method_of, read_record, steps_of
from bigembed.maps.clustering import NOISE, kept_numbers
from bigembed.maps.clustering.stages import CLUSTERS, clusters_of
from bigembed.rows import RowBlock, RowSource, rows_at
from bigembed.rows.derived import DerivedRows, KeptRows, MappedSource, RowNumbers
from bigembed.rows.formats.copying import rows_of
from bigembed.rows.growing import StoreRows, deleted_rows, rows_with_ids
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages import Run
from bigembed.steps.each_column import kept_of
from bigembed.store import PathLike, at
from bigembed.store.arrays import read_array, write_array
from bigembed.store.files import digest_of, read_sealed, sealed, write_json

# --------------------------------------------------------------------------------------------------------- kept rows
# Which rows of the store a version is of: neither those that were deleted when it began, nor what a step left out.


MASK = "kept"
"""In the folder of a version: a byte for each row fitted, 0 where it was deleted."""
BLOCK = 1 << 16
"""Rows whose kept ones are counted together."""


def digest_of_mask(deleted: Array) -> str:
    """Return the digest of which rows are deleted; empty where none is.

    >>> digest_of_mask(np.zeros(3, bool)), len(digest_of_mask(np.ones(3, bool)))
    ('', 64)
    """
    return digest_of([len(deleted), np.packbits(deleted).tobytes().hex()]) if deleted.any() else ""


def write_mask(version: Version, deleted: Array) -> None:
    """Write which rows a version is of."""
    write_array(version.root / MASK, (~deleted).astype(np.uint8))


@dataclass(frozen=True)
class KeptAndLater(KeptRows):
    """Those rows that a version was fitted to, and all that came later."""

    def mask_of(self, start: int, stop: int) -> Array:
        """Return which of the rows ``start:stop`` are kept."""
        known = read_array(self.mask, start, stop).astype(bool)
        return np.concatenate([known, np.ones(max(0, min(stop, self.source.shape[0]) - start - len(known)), bool)])


def undeleted(version: Version, rows: RowSource) -> RowSource:
    """Return rows of the store, or what belongs to them, without those that were deleted when the version began.

    :class:`DamagedError` where that is not known any more.
    """
    if not version.mask:
        return rows
    known = _mask(version)
    kept = np.concatenate([known, np.ones(max(0, rows.shape[0] - len(known)), bool)])[: rows.shape[0]]
    counts = tuple(int(kept[low:high].sum()) for low, high in bounds(len(kept), BLOCK))
    shape = (sum(counts), *rows.shape[1:])
    return KeptAndLater(
        shape,
        rows.dtype,
        base=rows,
        mask=str(version.root / MASK),
        counts=counts,
        mask_block=BLOCK,
        stamp=version.mask,
        named=rows.features if len(rows.shape) > 1 else (),
    )


def deleted_in(version: Version) -> Array:
    """Return which of the rows fitted were deleted when the version began, bool: none, or one for each of them."""
    return ~_mask(version) if version.mask else np.zeros(0, bool)


def seen_by(version: Version, there: Snapshot) -> Snapshot:
    """Return what is there as a version sees it: rows that were deleted when it began do not count."""
    return replace(there, deleted=deleted_in(version))


def pending(version: Version, rows: PathLike) -> Array:
    """Return the numbers of the rows that are deleted by now, and that the version still shows."""
    now, before = deleted_rows(rows, version.covered), deleted_in(version)
    now[: len(before)] &= ~before
    found: Array = np.flatnonzero(now)
    return found


def replaced(version: Version, ids: RowSource) -> Array:
    """Return which of the rows that the version shows are deleted by now, and have an id that came again.

    They are numbered as they are shown. Of two rows of one id only the one that is not deleted is to be seen.
    """
    numbers = pending(version, version.input)
    if not len(numbers):
        return numbers
    now = deleted_rows(version.input, version.covered)
    numbers = numbers[rows_with_ids(rows_of(ids, numbers), ids, now) != numbers]
    shown: Array = numbers - np.searchsorted(np.flatnonzero(deleted_in(version)), numbers)
    return shown


def require_mask(version: Version) -> None:
    """:class:`DamagedError` where it is not known any more which rows were deleted."""
    if version.mask:
        _mask(version)


def _mask(version: Version) -> Array:
    try:
        kept = read_array(version.root / MASK).astype(bool)
    except (BigembedError, OSError, ValueError) as error:
        raise DamagedError(f"{version.root / MASK}: cannot be read ({error})") from error
    if len(kept) != version.fitted or digest_of_mask(~kept) != version.mask:
        raise DamagedError(f"{version.root / MASK}: not what was written there")
    return kept


@dataclass(frozen=True)
class Places:
    """Where the rows that a method was fitted to are in the store."""

    chain: tuple[KeptRows, ...]
    """How rows were left out, the first time first."""

    @property
    def rows(self) -> int:
        """Count the rows that the method was fitted to."""
        return self.chain[-1].shape[0]

    def of(self, rows: RowSource) -> RowSource:
        """Return those of all rows that the method was fitted to."""
        for one in self.chain:
            rows = one.of(rows)
        return rows

    def restored(self, rows: RowSource) -> RowSource:
        """Return what belongs to the rows fitted in their places, NaN in all others."""
        for one in reversed(self.chain):
            rows = one.restored(rows)
        return rows


def places_of(version: Version) -> Places | None:
    """Return where the rows fitted are in the store; None where all are."""
    numbers = RowNumbers((version.fitted,), np.dtype(np.int64))
    first = undeleted(version, numbers)
    chain = [first] if isinstance(first, KeptRows) else []
    if (then := kept_of(Run(version.run))) is not None:
        chain.append(then)
    return Places(tuple(chain)) if chain else None


# ------------------------------------------------------------------------------------------------------------ frames

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


# ---------------------------------------------------------------------------------------------------------- clusters
# Clusters that have most rows in common with earlier ones keep their numbers.


FILE = "clusters.json"
"""In the folder of a version: the lasting number of each of its clusters."""


@dataclass(frozen=True)
class NumberedClusters(DerivedRows):
    """Clusters under their lasting numbers."""

    numbers: tuple[int, ...] = ()

    def read(self, start: int, stop: int) -> Array:
        """Return the clusters of rows ``start:stop``."""
        return renumbered(self.source.read(start, stop), self.numbers)

    @property
    def grain(self) -> int:
        """Return the rows that are stored together."""
        return self.source.grain


def renumbered(labels: Array, numbers: tuple[int, ...]) -> Array:
    """Return labels under other numbers, −1 as it is.

    >>> renumbered(np.array([0, 1, -1]), (7, 3)).tolist()
    [7, 3, -1]
    """
    return np.array([*numbers, NOISE], np.int32)[labels]


def number_clusters(version: Version, before: Version | None) -> None:
    """Write the lasting number of each cluster of a version: that of a cluster of the version before, or a new one."""
    run = Run(version.run)
    if not run.has(CLUSTERS):
        return
    count = len(run.results(CLUSTERS)["sizes"])
    numbers, free = list(range(count)), count
    if before is not None and (known := _written(before)):
        old, new = _in_places(before, tuple(known["numbers"])), _in_places(version, tuple(numbers))
        shared = min(len(old), len(new))
        found = kept_numbers(old[:shared], new[:shared], count, known["free"])
        numbers, free = found.tolist(), max(known["free"], int(found.max(initial=-1)) + 1)
    write_json(version.root / FILE, sealed({"numbers": numbers, "free": free}))


def lasting_clusters(version: Version, coordinates: RowSource) -> RowSource:
    """Return the clusters of all rows of a version, under their lasting numbers."""
    found = clusters_of(Run(version.run), Run(version.model, kind="model"), coordinates, version.fitted)
    known = _written(version)
    if not known:
        return found
    return NumberedClusters(found.shape, found.dtype, base=found, numbers=tuple(known["numbers"]))


def _written(version: Version) -> dict[str, Any]:
    """Return the lasting numbers of a version; none of one without clusters."""
    file = version.root / FILE
    if not file.exists():
        return {}
    with misread_is_damage(file):
        found = read_sealed(file)
        return {"numbers": [int(one) for one in found["numbers"]], "free": int(found["free"])}


def _in_places(version: Version, numbers: tuple[int, ...]) -> Array:
    """Return the clusters of the rows fitted in their places in the store; −1 for rows that were left out."""
    labels = renumbered(read_array(Run(version.run).path(CLUSTERS, "labels")), numbers)
    places = places_of(version)
    if places is None:
        return labels
    found = np.full(version.fitted, NOISE, np.int32)
    found[places.of(RowNumbers((version.fitted,), np.dtype(np.int64))).read(0, places.rows)] = labels
    return found
