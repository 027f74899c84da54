"""The account of coordinates that grow: which rows they are of, by which model, and digests that prove them.

It lies in the attributes of the array and is replaced together with its shape, so the two never differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, ChangedInputError, DamagedError, InputError, MissingPathError
from bigembed.rows.growing import Unit, rows_digest, stored_units
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.store import AnyPath, PathLike, arrays, manifests, stored
from bigembed.store.files import digest_of, read_json, sealed, unsealed

# ---------------------------------------------------------------------------------------------------------- ledger
# The ledger of a growing input: which rows were there, and whether they still are.
#
# For each stored unit (a shard) it keeps which rows it held, the sizes and times of its files, and a digest of the
# rows. Sizes and times are looked at first; only where they differ (the last shard, mostly, as it is rewritten when
# rows are appended) the rows that were there are read and compared.

NAMED = 10
"""Shards named in an error."""


@dataclass(frozen=True)
class Entry(Unit):
    """What one stored unit held."""

    digest: str
    """SHA-256 of rows ``start:stop``."""


@dataclass(frozen=True)
class Snapshot:
    """What is at the path now."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    units: tuple[Unit, ...]
    deleted: Array = field(default_factory=lambda: np.zeros(0, bool), compare=False)
    """Which of the first rows do not count, whatever they hold: they may be erased."""

    def gone(self, unit: Unit) -> tuple[int, ...]:
        """Return which rows of a unit do not count, numbered from its first."""
        return tuple(np.flatnonzero(self.deleted[unit.start : unit.stop]).tolist())


@dataclass(frozen=True)
class Ledger:
    """What rows ``0:n`` were when they were last looked at."""

    width: int
    dtype: str
    entries: tuple[Entry, ...] = ()

    @property
    def n(self) -> int:
        """Count the rows that the ledger covers."""
        return self.entries[-1].stop if self.entries else 0

    @property
    def content(self) -> str:
        """Return the digest of all rows that the ledger covers."""
        rows = [(entry.start, entry.stop, entry.digest) for entry in self.entries]
        return digest_of({"width": self.width, "dtype": self.dtype, "rows": rows})

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Ledger:
        """From JSON."""
        return cls(value["width"], value["dtype"], tuple(Entry(**entry) for entry in value["entries"]))


def snapshot(path: PathLike) -> Snapshot:
    """Shape, dtype and stored units of the rows that are at the path now (all of them: an incomplete array is an
    error)."""
    shape, dtype, units = stored_units(path)
    if len(shape) != 2:
        raise InputError(f"{path}: shape {shape}; rows must be a 2-dimensional array (n, d)")
    return Snapshot(str(path), (int(shape[0]), int(shape[1])), dtype, tuple(units))


def first_rows(there: Snapshot, n: int) -> Snapshot:
    """Cut a snapshot of the growing rows to its first rows."""
    units = tuple(replace(unit, stop=min(unit.stop, n)) for unit in there.units if unit.start < n)
    return replace(there, shape=(n, there.shape[1]), units=units)


def new_ledger(there: Snapshot) -> Ledger:
    """One that covers nothing yet."""
    return Ledger(there.shape[1], str(there.dtype))


def doubted_entries(ledger: Ledger, there: Snapshot, verify: bool = False) -> list[Entry]:
    """Return the entries whose files do not have the size and time of the last look; with ``verify`` all of them."""
    stamps = {(unit.start, unit.name): unit.stamp for unit in there.units}
    return [entry for entry in ledger.entries if verify or stamps.get((entry.start, entry.name)) != entry.stamp]


def check(ledger: Ledger, there: Snapshot, verify: bool = False) -> Ledger:
    """Return the ledger with the present times, after a proof that the rows it covers are those that were there.

    Raises :class:`ChangedInputError` that names what is gone, has another type, or holds other bytes.
    """
    if wrong := _wrong_frame(ledger, there):
        raise ChangedInputError(f"{there.path}: {wrong}")
    if changed := changed_entries(ledger, there, verify):
        raise ChangedInputError(
            f"{there.path}: rows that were there hold other bytes now: {_named(changed, ledger.n)}. Rows may only be "
            "appended"
        )
    return with_times(ledger, there)


def rows_in(entries: Sequence[Unit]) -> int:
    """Count the rows of entries."""
    return sum(entry.stop - entry.start for entry in entries)


def changed_entries(ledger: Ledger, there: Snapshot, verify: bool = False) -> list[Entry]:
    """Return the entries whose rows hold other bytes now, or are gone."""
    gone = [entry for entry in ledger.entries if entry.stop > there.shape[0]]
    doubted = [entry for entry in doubted_entries(ledger, there, verify) if entry not in gone]
    found = _digests(there, doubted, "check rows")
    return [entry for entry, digest in zip(doubted, found, strict=True) if digest != entry.digest] + gone


def with_times(ledger: Ledger, there: Snapshot) -> Ledger:
    """Return the ledger with the present times of its files."""
    stamps = {(unit.start, unit.name): unit.stamp for unit in there.units}
    fresh = [replace(entry, stamp=stamps.get((entry.start, entry.name), "")) for entry in ledger.entries]
    return replace(ledger, entries=tuple(fresh))


def without_changed(ledger: Ledger, there: Snapshot, verify: bool = False) -> tuple[Ledger, list[tuple[int, int]]]:
    """Return the ledger of the rows that are as they were, and the spans of those that are not, where columns and dtype
    are the same; :class:`ChangedInputError` otherwise."""
    if there.shape[1] != ledger.width or str(there.dtype) != ledger.dtype:
        raise ChangedInputError(f"{there.path}: {_wrong_frame(ledger, there)}, so that no map of other rows holds them")
    changed = changed_entries(ledger, there, verify)
    kept = tuple(entry for entry in ledger.entries if entry not in changed)
    spans = [(entry.start, min(entry.stop, there.shape[0])) for entry in changed if entry.start < there.shape[0]]
    return with_times(replace(ledger, entries=kept), there), spans


def also_deleted(ledger: Ledger, before: Snapshot, now: Snapshot) -> Ledger:
    """Return the ledger, taken when other rows were deleted, without the entries that these are in."""
    return replace(ledger, entries=tuple(one for one in ledger.entries if before.gone(one) == now.gone(one)))


def with_new_rows(ledger: Ledger, there: Snapshot) -> Ledger:
    """Return the ledger of all rows that are there, from one (checked) of the first of them. Reads the units that are
    new."""
    known = {(entry.start, entry.stop): entry for entry in ledger.entries}
    todo = [unit for unit in there.units if (unit.start, unit.stop) not in known]
    known |= {
        (unit.start, unit.stop): Entry(unit.start, unit.stop, unit.name, unit.stamp, digest)
        for unit, digest in zip(todo, _digests(there, todo, "digest rows"), strict=True)
    }
    return replace(ledger, entries=tuple(known[unit.start, unit.stop] for unit in there.units))


def _digests(there: Snapshot, units: Sequence[Unit], label: str) -> list[str]:
    """Return the digests of the rows of units."""
    tasks = [(there.path, unit.start, unit.stop, there.gone(unit)) for unit in units]
    return map_blocks(rows_digest, tasks, label=label) if tasks else []


def _wrong_frame(ledger: Ledger, there: Snapshot) -> str:
    """Return what can be said without reading a row."""
    n, d = there.shape
    if d != ledger.width:
        return f"rows have {d} columns now, and had {ledger.width}"
    if str(there.dtype) != ledger.dtype:
        return f"rows are {there.dtype} now, and were {ledger.dtype}"
    if n < ledger.n:
        gone = [entry for entry in ledger.entries if entry.stop > n]
        return f"{n} rows are there, and {ledger.n} were: rows {n}:{ledger.n} are gone ({_shards(gone)})"
    return ""


def _named(entries: Sequence[Entry], n: int) -> str:
    """Return rows and shards, for people."""
    spans: list[list[int]] = []
    for entry in entries:
        if spans and spans[-1][1] == entry.start:
            spans[-1][1] = entry.stop
        else:
            spans.append([entry.start, entry.stop])
    shown = ", ".join(f"{start}:{stop}" for start, stop in spans[:NAMED]) + (", …" if len(spans) > NAMED else "")
    return f"in rows {shown} of {n} ({_shards(entries)})"


def _shards(entries: Sequence[Entry]) -> str:
    names = list(dict.fromkeys(entry.name for entry in entries))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ("shard " if len(names) == 1 else "shards ") + ", ".join(names[:NAMED]) + more


# --------------------------------------------------------------------------------------------------------- account

KIND = "coordinates"
_proven: set[tuple[str, str]] = set()
"""Arrays that this process found to be what their accounts say, as their files were then."""


@dataclass(frozen=True)
class Range:
    """Name rows ``start:stop``, and say how they came to their coordinates."""

    start: int
    stop: int
    how: str
    """``"fitted"`` or ``"placed"`` (by the extension of the model)."""
    rows: str
    """Digest of the rows."""
    model: str
    """Digest of the model."""
    coordinates: str = ""
    """Digest of their coordinates."""
    left_out: int = 0
    """Of these rows, how many miss values and were left out by a step: their coordinates are NaN."""
    ids: str = ""
    """Digest of their ids (see ``growth/ids.py``); empty where an earlier version of bigembed kept none."""


def attributes(ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the attributes of the array of coordinates: which rows were fitted and placed, by which model."""
    later = ("left_out", "ids")  # (earlier versions do not know them)
    known = [{name: value for name, value in asdict(part).items() if name not in later or value} for part in ranges]
    return sealed({"bigembed": KIND, "format": manifests.FORMAT, "ranges": known})


def read_account(array: AnyPath) -> tuple[Range, ...]:
    """Ranges from 0 to the end of the array, without gap or overlap; :class:`DamagedError` otherwise."""
    file = array / "zarr.json"
    try:
        metadata = read_json(file)
        rows, entries = metadata["shape"][0], unsealed(metadata["attributes"], file)["ranges"]
        found = tuple(Range(**entry) for entry in entries)
        spans = [(part.start, part.stop) for part in found]
        wrong = not found or spans[0][0] != 0 or any(not start < stop for start, stop in spans)
        wrong |= any(earlier[1] != later[0] for earlier, later in pairwise(spans))
    except MissingPathError as error:
        raise DamagedError(f"{file}: is gone") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise DamagedError(f"{file}: says nothing of its rows ({type(error).__name__}: {error})") from error
    if wrong:
        raise DamagedError(f"{file}: its ranges {spans} leave a gap, or overlap")
    if spans[-1][1] != rows:
        raise DamagedError(f"{file}: has {rows} rows, and its ranges end with row {spans[-1][1]}")
    return found


def damaged(array: AnyPath, ranges: Sequence[Range]) -> list[tuple[Range, str]]:
    """Return the ranges whose coordinates are not those that were published, each with why. Reads them all."""
    out = []
    for part in ranges:
        try:
            found = span_digest(str(array), part.start, part.stop)
        except (BigembedError, OSError, ValueError) as error:
            out.append((part, str(error)))
            continue
        if part.coordinates and found != part.coordinates:
            out.append((part, "other coordinates than were published"))
    return out


def require_published(array: AnyPath, ranges: Sequence[Range]) -> None:
    """:class:`DamagedError` unless all coordinates are those published. Once a process, as long as no file changes."""
    now = str(array), digest_of([(file.name, file.identity) for file in stored(array)])
    if now in _proven:
        return
    if wrong := damaged(array, ranges):
        part, why = wrong[0]
        raise DamagedError(
            f"{array}: coordinates of rows {part.start}:{part.stop} are damaged ({why}). bigembed extend with the "
            "job file computes them again"
        )
    _proven.add(now)


def span_digest(path: str, start: int, stop: int) -> str:
    """Return the digest of rows ``start:stop``, however they are stored."""
    return digest_of(map_blocks(rows_digest, _blocks(path, start, stop), label="digest rows"))


def _blocks(path: str, start: int, stop: int) -> list[tuple[str, int, int]]:
    """Return the canonical blocks of rows ``start:stop``."""
    like = arrays.npy_rows(path) if path.endswith(".npy") else arrays.read_array(path, 0, 0)
    spans = bounds(stop - start, block_rows(like.shape[1], like.dtype.itemsize))
    return [(path, start + a, start + b) for a, b in spans]
