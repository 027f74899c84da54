"""The account of coordinates that grow: which rows they are of, by which model, and digests that prove them.

It lies in the attributes of the array and is replaced together with its shape, so the two never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bigembed.blocks.rows import block_rows, bounds, map_blocks
from bigembed.errors import BigembedError, DamagedError, MissingPathError
from bigembed.store.arrays.io import read_array
from bigembed.store.arrays.npy import npy_rows
from bigembed.store.growing import rows_digest
from bigembed.store.published.manifest import FORMAT
from bigembed.store.storage.documents import digest_of, read_json, sealed, unsealed
from bigembed.store.storage.paths import AnyPath, stored

KIND = "coordinates"
_proven: set[tuple[str, str]] = set()
"""Arrays that this process found to be what their accounts say, as their files were then."""


@dataclass(frozen=True)
class Range:
    """Rows ``start:stop``, and how they came to their coordinates."""

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


def attributes(ranges: Sequence[Range]) -> dict[str, Any]:
    """What the array of coordinates says of itself."""
    known = [{name: value for name, value in asdict(part).items() if name != "left_out" or value} for part in ranges]
    said = {"bigembed": KIND, "format": FORMAT, "ranges": known}
    return sealed(said)


def read_account(array: AnyPath) -> tuple[Range, ...]:
    """Ranges from 0 to the end of the array, without gap or overlap; :class:`DamagedError` otherwise."""
    file = array / "zarr.json"
    try:
        metadata = read_json(file)
        said, rows = metadata["attributes"], metadata["shape"][0]
        found = tuple(Range(**entry) for entry in unsealed(said, file)["ranges"])
        spans = [(part.start, part.stop) for part in found]
        wrong = not found or spans[0][0] != 0 or any(not start < stop for start, stop in spans)
        wrong |= any(before[1] != after[0] for before, after in pairwise(spans))
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
    """The ranges whose coordinates are not those that were published, each with why. Reads them all."""
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


def prove(array: AnyPath, ranges: Sequence[Range]) -> None:
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


def without_coordinates(path: str, start: int, stop: int) -> int:
    """How many of rows ``start:stop`` have coordinates that are NaN."""
    like = read_array(path, 0, 0)
    spans = bounds(stop - start, block_rows(like.shape[1], like.dtype.itemsize))
    return sum(map_blocks(_empty_rows, [(path, start + a, start + b) for a, b in spans], label="left out"))


def _empty_rows(path: str, start: int, stop: int) -> int:
    return int(np.isnan(read_array(path, start, stop)).all(axis=1).sum())


def span_digest(path: str, start: int, stop: int) -> str:
    """Digest of rows ``start:stop``, however they are stored."""
    like = npy_rows(path) if path.endswith(".npy") else read_array(path, 0, 0)
    spans = bounds(stop - start, block_rows(like.shape[1], like.dtype.itemsize))
    return digest_of(map_blocks(rows_digest, [(path, start + a, start + b) for a, b in spans], label="digest rows"))
