"""Which rows of the store a version is of: neither those that were deleted when it began, nor what a step left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.errors import BigembedError, DamagedError
from bigembed.jobs.growth.versions import Version
from bigembed.rows.derived import KeptRows, RowNumbers
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages.runs import Run
from bigembed.steps.missing import kept_of
from bigembed.store.arrays import read_array, write_array
from bigembed.store.files import digest_of

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
    place = {"mask": str(version.root / MASK), "counts": counts, "mask_block": BLOCK, "stamp": version.mask}
    return KeptAndLater(shape, rows.dtype, base=rows, **place)  # type: ignore[arg-type]


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
