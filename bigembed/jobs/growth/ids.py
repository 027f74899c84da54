"""The ids of the rows that have coordinates.

Their digests are in the account, so that ids of other rows are never put beside these coordinates.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from bigembed.errors import ChangedInputError, InputError
from bigembed.jobs.growth.frames import deleted_in
from bigembed.rows import RowSource
from bigembed.rows.deleting import erased
from bigembed.rows.formats.copying import aligned_of, id_pieces, vector_source
from bigembed.rows.growing import IDS, StoreRows
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, PathLike, at

if TYPE_CHECKING:
    from bigembed.jobs.growth import Version

NO_IDS = "none"
"""The digest of the ids of rows that have none. It is empty where it is not known: of versions of earlier releases."""


def ids_at(rows: PathLike) -> RowSource | None:
    """Return the ids of the rows at a path; None where they have none."""
    names = aligned_of(at(rows)).get(IDS)
    return None if names is None else vector_source(names)


def digest_of_ids(rows: PathLike, start: int, stop: int, deleted: Array | None = None) -> str:
    """Return the digest of the ids of rows ``start:stop`` at a path, however they are stored. One pass over them.

    Those of rows that are ``deleted`` (bool, one for each of the first rows) count as erased.
    """
    found = ids_at(rows)
    gone = np.zeros(0, bool) if deleted is None else deleted
    return NO_IDS if found is None or found.shape[0] < stop else _digest(found, start, stop, gone)


def _digest(ids: RowSource, start: int, stop: int, deleted: Array) -> str:
    lengths, values = sha256(), sha256()
    for low, part in id_pieces(StoreRows((stop - start,), ids.dtype, path=ids.path, offset=start), erased=True):
        gone = deleted[start + low : start + low + len(part)]
        if gone.any():
            part = np.array(part)
            part[: len(gone)][gone] = erased(part.dtype)
        if part.dtype.kind in "iu":
            values.update(part.astype(np.int64).tobytes())
        else:
            texts = part.tolist()
            lengths.update(np.array([len(text) for text in texts], np.int64).tobytes())
            values.update("".join(texts).encode())
    return sha256(f"{ids.dtype.kind in 'iu'} {lengths.hexdigest()} {values.hexdigest()}".encode()).hexdigest()


def ids_of(version: Version) -> RowSource | None:
    """Return the ids of the rows of a version that have coordinates; None where its rows have none.

    :class:`ChangedInputError` where the input has other ids now than these rows had. One pass over the ids.
    """
    parts, rows = version.ranges, version.input
    gone = deleted_in(version)
    for part in parts:
        if part.ids and part.ids != digest_of_ids(rows, part.start, part.stop, gone):
            raise _other_ids(version, rows, part.start, part.stop)
    found, n = ids_at(rows), parts[-1].stop
    if found is not None and found.shape[0] < n:
        raise InputError(f"{found.path}: {found.shape[0]} ids for {n} rows. Append ids with their rows: be.append_rows")
    return None if found is None else replace(found, shape=(n,))  # (rows appended now may have theirs already)


def _other_ids(version: Version, rows: AnyPath, start: int, stop: int) -> ChangedInputError:
    wrong = "the ids are not those that these rows had" if rows.exists() else "is gone, and the ids with it,"
    return ChangedInputError(
        f"{rows}: {wrong} when {version.root} mapped them (rows {start}:{stop}). Nothing was written. If the rows lie "
        "elsewhere now, bigembed extend with the job file says where; else put rows and ids back as they were, or map "
        "them as they are: bigembed refresh with the job file, and --changed or --fresh where rows are others, too"
    )
