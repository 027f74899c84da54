"""The copy of rows, sparse rows and vectors of any reader into checksummed arrays; vectors aligned with the rows, and
their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bigembed import store
from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError, PlanError
from bigembed.rows import RowSource, as_declared, rows_at, work_dtype
from bigembed.rows.formats.binary import is_idx, read_idx
from bigembed.rows.opening import missing_shards, open_zarr
from bigembed.rows.reader import Reader, as_text, described, is_text, listed, named, native
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.executors import compute_together
from bigembed.store import arrays, files, metadata
from bigembed.store.attributes import attributes_of, describe, seal_group, seal_rows

# --------------------------------------------------------------------------------------------------------- copying
# The copy of rows, sparse rows and vectors of any reader into checksummed Zarr arrays.
#
# Copies go by canonical blocks, one task one shard, so that the memory is that of a block; they are written aside and
# renamed when they are whole.

WIDE_BYTES = 128 << 20
VECTOR_ROWS = 1 << 18
"""Entries of a shard of a vector."""


def copy_rows(
    reader: Reader, dest: store.PathLike, attributes: Mapping[str, Any] | None = None, label: str = "ingest"
) -> None:
    """Copy all rows into a new Zarr array: aside, checked, renamed."""
    n, d = reader.shape
    dtype = native(reader.dtype)
    rows = block_rows(d, dtype.itemsize)
    files.refuse_memory(getattr(reader, "path", dest), 2 * min(n, rows) * d * dtype.itemsize)
    with _aside(store.at(dest)) as partial:
        arrays.create_rows(partial, (n, d), dtype, rows, overwrite=True)
        tasks = [(reader, str(partial), part) for part in _parts(bounds(n, rows), reader.grain)]
        map_blocks(_copy_part, tasks, label=label)
        if attributes:
            describe(partial, attributes)
        _require_complete(partial)
        seal_rows(partial, label)


def copy_vector(
    reader: Reader,
    dest: store.PathLike,
    label: str = "ingest",
    check: Callable[[store.AnyPath], None] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Copy a vector (n,) of numbers or of text into a new Zarr array: aside, checked, renamed."""
    with _aside(store.at(dest)) as partial:
        _copy_vector(reader, partial, label)
        if attributes:
            describe(partial, attributes)
        seal_rows(partial, label)
        if check is not None:
            check(partial)


def copy_sparse(
    parts: Mapping[str, Reader],
    shape: Sequence[int],
    dest: store.PathLike,
    attributes: Mapping[str, Any] | None = None,
    label: str = "ingest",
) -> None:
    """Copy the three vectors of CSR rows into a new group: each by blocks of entries, whatever rows they are of."""
    with _aside(store.at(dest)) as partial:
        about = {"encoding-type": "csr_matrix", "shape": [int(size) for size in shape]}
        metadata.make_group(partial, {**about, **(attributes or {})})
        for name, reader in parts.items():
            _copy_vector(reader, partial / name, f"{label} {name}")
            seal_rows(partial / name, label, ["pointer" if name == "indptr" else "entry"])
        seal_group(partial, list(parts))


def same_rows(reader: Reader, path: store.PathLike) -> bool:
    """Whether the rows (or the vector) at a path are those of the reader: as many, of its dtype, in one pass."""
    n, found = reader.shape[0], open_zarr(path)
    kinds = [np.dtype(str) if is_text(dtype) else native(dtype) for dtype in (reader.dtype, found.dtype)]
    if tuple(found.shape) != tuple(reader.shape) or kinds[0] != kinds[1]:
        return False
    step = block_rows(reader.shape[1], reader.dtype.itemsize) if len(reader.shape) == 2 else VECTOR_ROWS
    tasks = [(reader, str(path), part) for part in _parts(bounds(n, step), reader.grain)]
    return all(map_blocks(_same_part, tasks, label="compare"))


def is_whole(path: store.PathLike) -> bool:
    """Whether the rows (or the vector) at a path can all be read as they were written, in one pass."""
    with suppress(DamagedError, MissingPathError):
        found = rows_at(store.at(path))
        step = block_rows(found.width, found.dtype.itemsize) if len(found.shape) == 2 else VECTOR_ROWS
        map_blocks(_read_part, bounds(found.shape[0], step), label="verify", path=str(path))
        return True
    return False


def write_dask(X: Any, path: store.PathLike) -> None:
    """Write a Dask array (n, d), whatever its chunks, into a new Zarr array by canonical blocks.

    Where these would be larger than 128 MiB, its own chunks are kept.

    An array that is there and whole, with this shape and dtype, is left as it is.
    """
    from dask.delayed import delayed

    n, d = X.shape
    dest = store.at(path)
    if store.published(dest):
        found = open_zarr(dest)
        if tuple(found.shape) == (n, d) and found.dtype == X.dtype:
            return
        raise ExistingOutputError(f"{dest}: exists and holds {found.shape} {found.dtype}, not {(n, d)} {X.dtype}")
    work_dtype(X.dtype)
    _require_room(dest, n * d * X.dtype.itemsize)
    rows = block_rows(d, X.dtype.itemsize)
    if min(rows, n) * d * X.dtype.itemsize > WIDE_BYTES:
        return _write_grid(X, dest)
    with _aside(dest) as partial:
        arrays.create_rows(partial, (n, d), X.dtype, rows, overwrite=True)
        write = delayed(_write_block, pure=False)
        # (slices of X would each compute the chunks that they share)
        blocks = X.rechunk({0: rows, 1: -1}).to_delayed().ravel() if n else ()
        parts = [write(str(partial), X.dtype, rows * number, block) for number, block in enumerate(blocks)]
        compute_together(parts, "rows")
        _require_complete(partial)


def _require_room(dest: store.AnyPath, size: int) -> None:
    """PlanError where rows of this size do not fit."""
    free = store.free_bytes(store.nearest_folder(dest))
    if size > free:
        raise PlanError(
            f"these rows are read several times, so they are written once: this takes {size:,} bytes in {dest.parent}, "
            f"where {free:,} are free. Give workdir, a folder with more room; or write the rows to a Zarr array "
            "first (to_zarr) and give its path"
        )


def _write_block(path: str, dtype: np.dtype[Any], start: int, rows: Array) -> None:
    arrays.write_rows(path, start, as_declared(rows, dtype, start))


def _write_window(path: str, dtype: np.dtype[Any], row: int, column: int, values: Array) -> None:
    arrays.write_window(path, row, column, as_declared(values, dtype, row))


def _write_grid(X: Any, dest: store.AnyPath) -> None:
    """Write a Dask array of very wide rows (distances between all rows, say) in its own chunks, one a task."""
    from dask.delayed import delayed

    high, wide = (max(sizes) for sizes in X.chunks)
    regular = X.rechunk((high, wide))
    with _aside(dest) as partial:
        arrays.create_grid(partial, X.shape, X.dtype, (high, wide))
        write = delayed(_write_window, pure=False)
        blocks = regular.to_delayed()
        parts = [write(str(partial), X.dtype, i * high, j * wide, block) for (i, j), block in np.ndenumerate(blocks)]
        compute_together(parts, "rows")
        _require_complete(partial)


@contextmanager
def _aside(dest: store.AnyPath) -> Iterator[store.AnyPath]:
    """A path beside ``dest`` to write to; renamed to it at the end, removed where the writing failed."""
    partial = dest.with_name(dest.name + ".partial")
    dest.parent.mkdir(parents=True, exist_ok=True)
    store.remove(partial)
    try:
        yield partial
    except BaseException:
        store.remove(partial)
        raise
    try:
        store.move(partial, dest)
    except OSError as failure:
        raise ExistingOutputError(f"{dest}: appeared while {partial} was written ({failure})") from failure


def _parts(blocks: list[tuple[int, int]], grain: int) -> list[list[tuple[int, int]]]:
    """Runs of consecutive blocks that one task copies: at least ``grain`` rows each."""
    parts: list[list[tuple[int, int]]] = []
    for block in blocks:
        if parts and parts[-1][-1][1] - parts[-1][0][0] < grain:
            parts[-1].append(block)
        else:
            parts.append([block])
    return parts


def _copy_part(reader: Reader, dest: str, blocks: Sequence[tuple[int, int]]) -> None:
    """Copy consecutive blocks, each as one shard."""
    if reader.grain == 1:
        for start, stop in blocks:
            _copy_block(reader, rows_of_reader(reader, start, stop), dest, start, stop)
        return
    pieces = rows_of_reader(reader, blocks[0][0], blocks[-1][1])
    left: list[Array] = []
    for start, stop in blocks:
        left = [_copy_block(reader, chain(left, pieces), dest, start, stop)]


def rows_of_reader(reader: Reader, start: int, stop: int) -> Iterator[Array]:
    """Rows start to stop in pieces; what a library raises at bytes that it does not expect is DamagedError."""
    with files.reading_foreign(getattr(reader, "path", "the source"), f"rows {start}:{stop}"):
        yield from reader.stream(start, stop)


def _read_part(start: int, stop: int, *, path: str) -> None:
    arrays.read_array(path, start, stop)


def _same_part(reader: Reader, path: str, blocks: Sequence[tuple[int, int]]) -> bool:
    """Whether consecutive blocks are the same."""
    at_row = blocks[0][0]
    for piece in rows_of_reader(reader, at_row, blocks[-1][1]):
        there = arrays.read_array(path, at_row, at_row + len(piece))
        if not np.array_equal(piece, there, equal_nan=there.dtype.kind == "f"):
            return False
        at_row += len(piece)
    return at_row == blocks[-1][1]


def _copy_block(reader: Reader, pieces: Iterator[Array], dest: str, start: int, stop: int) -> Array:
    """Fill one block from pieces and write it; what the last piece holds beyond it is returned."""
    rows = np.empty((stop - start, *reader.shape[1:]), native(reader.dtype))
    rest, filled = rows[:0], 0
    while filled < len(rows):
        piece = next(pieces, None)
        if piece is None:
            raise DamagedError(f"{reader}: ended {len(rows) - filled} rows before row {stop}")
        take = min(len(piece), len(rows) - filled)
        rows[filled : filled + take] = piece[:take]
        filled += take
        rest = piece[take:]
    arrays.write_rows(dest, start, rows)
    return rest


def _require_complete(path: store.AnyPath) -> None:
    missing = missing_shards(arrays.zarr_array(path))
    if missing:
        raise DamagedError(f"{path}: {missing} chunks were not written; nothing was published")


def _copy_vector(reader: Reader, dest: store.AnyPath, label: str) -> None:
    dtype: Any = str if is_text(reader.dtype) else native(reader.dtype)
    arrays.create_rows(dest, reader.shape, dtype, VECTOR_ROWS, overwrite=True)
    tasks = [(reader, str(dest), part) for part in _parts(bounds(reader.shape[0], VECTOR_ROWS), reader.grain)]
    map_blocks(_copy_part, tasks, label=label)
    _require_complete(dest)


# --------------------------------------------------------------------------------------------------------- aligned
# Vectors aligned with the rows: their ids, labels, weights, scales. One entry a row, of numbers or of text.
#
# They come from the source of the rows (a column, ``obs_names``, a dataset) or from a separate file. A copy lies next
# to the rows, ``ROWS-ids.zarr``, and an attribute of the rows names it: whoever reads the rows later finds it.

LINK = "bigembed_beside"


def aligned_path(rows: store.AnyPath, name: str) -> store.AnyPath:
    """Where a vector of this name lies for rows at the path."""
    return store.at(f"{rows.with_suffix('')}-{name}.zarr")


def link(rows: store.AnyPath, names: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute of rows that names the vectors aligned with them."""
    return {LINK: {name: aligned_path(rows, name).name for name in names}} if names else {}


def aligned_of(rows: store.AnyPath) -> dict[str, store.AnyPath]:
    """Vectors that were copied with the rows at a path; {} without such."""
    found: Any = (attributes_of(rows) or {}).get(LINK, {}) if (rows / "zarr.json").is_file() else {}
    return {name: rows.with_name(file) for name, file in found.items()}


def vector_source(path: store.AnyPath) -> RowSource:
    """The vector at a path: a Zarr array or .npy."""
    if not path.exists():
        raise MissingPathError(f"{path}: no such path")
    if isinstance(path, Path) and is_idx(path):
        array = read_idx(path)
        return RowSource(array.shape, native(array.dtype), array=array.astype(native(array.dtype)))
    return rows_at(path.absolute())


def write_vector(values: Array, dest: store.AnyPath, label: str, attributes: Mapping[str, Any]) -> None:
    """Write a vector (n,) of this process as a copy: aside, checked, renamed."""
    with _aside(dest) as partial:
        dtype: Any = str if is_text(values.dtype) else native(values.dtype)
        arrays.create_rows(partial, values.shape, dtype, VECTOR_ROWS, overwrite=True)
        for start, stop in bounds(len(values), VECTOR_ROWS):
            arrays.write_rows(partial, start, values[start:stop])
        describe(partial, attributes)
        _require_complete(partial)
        seal_rows(partial, label)


NUMBERS = ("weights", "epsilons", "target_density")
"""What vectors are called that are numbers, also where a table has text; ids and labels are read as they stand."""


def named_vector(reader: Reader, source: store.PathLike, given: str, what: str) -> Reader:
    """The vector that ``given`` names in the source of the rows, or the one at that path; as long as the rows."""
    source_of_names = named(reader)
    names = {} if source_of_names is None else source_of_names.names
    if source_of_names is not None and given in names:
        with files.reading_foreign(source, given):
            found: Reader = source_of_names.vector(given)
        if what in NUMBERS and hasattr(found, "as_numbers"):
            found = found.as_numbers()
    elif store.at(given).exists():
        found = vector_source(store.at(given))
    else:
        inside = f", and no vector in {source}, where there are {described(names)}" if names else ""
        raise MissingPathError(f"{what} {given!r}: no such path{inside}")
    require_length(found, reader.shape[0], given, what)
    return found


def require_length(found: Any, n: int, given: Any, what: str) -> None:
    """InputError unless it is a vector with an entry for each row."""
    if tuple(found.shape) != (n,):
        raise InputError(f"{what} {str(given)!r}: shape {found.shape}; one entry for each of the {n} rows is needed")


# ------------------------------------------------------------------------------------------------------------- ids
# Names of rows: text or whole numbers, one a row, each once.
#
# They are read piece by piece. To find repeated ones a process holds eight bytes a row: a hash of each.

PIECE = 1 << 17
WORDS = 1 << 12
"""Multipliers; longer text is hashed with them again and again."""


def id_pieces(source: RowSource, erased: bool = False) -> Iterator[tuple[int, Array]]:
    """First row and ids of consecutive pieces, as whole numbers or text; InputError where one is missing, unless some
    may be ``erased``."""
    n = source.shape[0]
    if source.dtype.kind not in "iuUST":
        raise InputError(f"ids have dtype {source.dtype}; they are text or whole numbers")
    for start in range(0, n, PIECE):
        found = source.read(start, min(start + PIECE, n))
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        if found.dtype.kind in "UT":
            empty = np.flatnonzero(found == "")
            if len(empty) and not erased:
                raise InputError(
                    f"ids are missing (empty) in {len(empty)} of the rows {start}:{start + len(found)}, the first is "
                    f"row {start + empty[0]} (counted from 0); every row needs one, or none has: fill them in the "
                    "file, leave those rows out of it, or choose another column"
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


def positions(ids: RowSource, wanted: Reader) -> tuple[Array, list[str]]:
    """For each wanted name the row that it names, −1 for none; and the names that name none.

    Compared as text; a process holds three numbers a row.
    """
    n = ids.shape[0]
    mine = np.concatenate([id_hashes(_text(part)) for _, part in id_pieces(ids)])
    order = np.argsort(mine, kind="stable")
    ranked, found = mine[order], np.empty(wanted.shape[0], np.int64)
    absent: list[str] = []
    at = 0
    for piece in rows_of_reader(wanted, 0, wanted.shape[0]):
        for start in range(0, len(piece), PIECE):
            names = _text(piece[start : start + PIECE])
            rank = np.minimum(np.searchsorted(ranked, id_hashes(names)), n - 1)
            rows = order[rank]
            same = _text(rows_of(ids, rows)) == names
            absent += names[~same].tolist()
            found[at : at + len(names)] = np.where(same, rows, -1)
            at += len(names)
    return found, absent


def rows_of(source: RowSource, rows: Array) -> Array:
    """Some rows of a source, in any order."""
    if source.path is not None and not source.path.endswith(".npy"):
        return arrays.read_rows(source.path, rows + source.offset)
    whole = source.path is None or store.is_url(source.path)
    held = source.read(0, source.shape[0]) if whole else arrays.npy_rows(str(source.path))
    return np.asarray(held[rows])


def _text(ids: Array) -> Array:
    return as_text(ids if ids.dtype.kind in "OSUT" else ids.astype(str))
