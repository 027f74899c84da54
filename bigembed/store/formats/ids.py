"""Names of rows: text or whole numbers, one a row, each once.

They are read piece by piece. To find repeated ones a process holds eight bytes a row: a hash of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.arrays.io import read_rows
from bigembed.store.arrays.npy import npy_rows
from bigembed.store.formats.copying import rows_of_reader
from bigembed.store.rows.reader import Reader, as_text, listed
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.paths import is_url

PIECE = 1 << 17
WORDS = 1 << 12
"""Multipliers; longer text is hashed with them again and again."""


def id_pieces(source: RowSource) -> Iterator[tuple[int, Array]]:
    """First row and ids of consecutive pieces, as whole numbers or text; InputError where one is missing."""
    n = source.shape[0]
    if source.dtype.kind not in "iuUST":
        raise InputError(f"ids have dtype {source.dtype}; they are text or whole numbers")
    for start in range(0, n, PIECE):
        found = source.read(start, min(start + PIECE, n))
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        if found.dtype.kind in "UT":
            empty = np.flatnonzero(found == "")
            if len(empty):
                raise InputError(
                    f"ids are missing (empty) in {len(empty)} of the rows {start}:{start + len(found)}, the first is "
                    f"row {start + empty[0]}; every row needs one, or none has"
                )
        yield start, found


def id_hashes(ids: Array) -> Array:
    """A hash of 64 bits for each id.

    >>> a, b, c = id_hashes(np.array(["ab", "ba", "ab"]))
    >>> a == c, a == b
    (np.True_, np.False_)
    """
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64).view(np.uint64)
    fixed = np.array([one.encode() for one in ids.tolist()])
    width = max(1, -(-fixed.dtype.itemsize // 4))
    words = fixed.astype(f"S{4 * width}").view("<u4").reshape(len(fixed), width).astype(np.uint64)
    factors = np.resize(np.random.default_rng(0).integers(1, 1 << 63, WORDS, dtype=np.uint64), width)
    mixed = (words * (2 * factors + np.uint64(1))).sum(axis=1, dtype=np.uint64)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def check_ids(source: RowSource) -> None:
    """InputError that names repeated and missing ids. Two passes over the ids only where hashes agree."""
    hashes = np.concatenate([id_hashes(ids) for _, ids in id_pieces(source)])
    ordered = np.sort(hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(suspects):
        return
    rows: dict[Any, list[int]] = {}
    for start, ids in id_pieces(source):
        same = np.flatnonzero(np.isin(hashes[start : start + len(ids)], suspects))
        for row, one in zip((same + start).tolist(), ids[same].tolist(), strict=True):
            rows.setdefault(one, []).append(row)
    repeated = {one: where for one, where in rows.items() if len(where) > 1}
    if repeated:
        named = listed(f"{one!r} (rows {listed(map(str, where[:3]))})" for one, where in repeated.items())
        raise InputError(f"ids: {len(repeated)} of them name several rows: {named}. An id names one row")


def positions(ids: RowSource, wanted: Reader, where: str) -> Array | None:
    """For each wanted name the row that it names; None if they are the ids in their order.

    InputError where the two are not the same names. Compared as text; a process holds three numbers a row.
    """
    n = ids.shape[0]
    if wanted.shape != (n,):
        raise InputError(f"{where}: {wanted.shape[0]} names of rows, and there are coordinates of {n}")
    mine = np.concatenate([id_hashes(_text(part)) for _, part in id_pieces(ids)])
    order = np.argsort(mine, kind="stable")
    ranked, found = mine[order], np.empty(n, np.int64)
    absent: list[str] = []
    at = 0
    for piece in rows_of_reader(wanted, 0, n):
        for start in range(0, len(piece), PIECE):
            names = _text(piece[start : start + PIECE])
            rank = np.minimum(np.searchsorted(ranked, id_hashes(names)), n - 1)
            rows = order[rank]
            same = _text(rows_of(ids, rows)) == names
            absent += names[~same].tolist()
            found[at : at + len(names)] = rows
            at += len(names)
    if absent:
        raise InputError(f"{where}: {len(absent)} of its {n} names are not ids of the coordinates: {listed(absent)}")
    return None if (found == np.arange(n)).all() else found


def rows_of(source: RowSource, rows: Array) -> Array:
    """Some rows of a source, in any order."""
    if source.path is not None and not source.path.endswith(".npy"):
        return read_rows(source.path, rows + source.offset)
    whole = source.path is None or is_url(source.path)
    held = source.read(0, source.shape[0]) if whole else npy_rows(str(source.path))
    return np.asarray(held[rows])


def _text(ids: Array) -> Array:
    return as_text(ids if ids.dtype.kind in "OSUT" else ids.astype(str))
