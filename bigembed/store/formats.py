"""One small reader per input format, and the copy of any of them into a chunked, checksummed Zarr array.

A reader has a shape, a dtype and ``stream(start, stop)``: an iterator over those rows in pieces of any
length. Copies go by canonical blocks, one task one shard, so that the memory is that of a block; they are
written aside and renamed when they are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds, map_blocks
from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.store.arrays import (
    create_grid,
    create_rows,
    missing_shards,
    open_zarr,
    whole,
    work_dtype,
    write_rows,
    write_window,
    zarr_place,
)
from bigembed.store.idx import is_idx, open_idx
from bigembed.store.npy import npy_rows
from bigembed.store.objects import ObjectPath
from bigembed.store.parquet import open_parquet, parquet_files
from bigembed.store.paths import AnyPath, PathLike, at, move, published, remove

KNOWN = "a Zarr array, .npy, Parquet (a file or a folder of them), or idx (the format of MNIST, also .gz)"
ABOUT = "bigembed_source"
WIDE_BYTES = 128 << 20


class Reader(Protocol):
    """Rows of some format. Small and picklable: it opens its file in the task that reads."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""
        ...

    @property
    def grain(self) -> int:
        """Rows that one task had better read in one go (row groups, a packed stream); 1 if any will do."""
        ...

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Rows start to stop, in pieces."""
        ...


def ingest(
    source: PathLike,
    dest: PathLike,
    *,
    columns: Sequence[str] | None = None,
    fill_absent: bool = False,
) -> tuple[int, int]:
    """Copy rows of a known format into a new Zarr array at ``dest``; the dtype is kept. Returns the shape.

    ``columns`` chooses columns of Parquet; ``fill_absent`` reads absent chunks of a Zarr array as its fill
    value (other writers leave out chunks that are all fill; so does a killed one). Raises
    :class:`ExistingOutputError`, :class:`MissingPathError`, :class:`InputError`, :class:`DamagedError`.
    """
    if published(dest):
        raise ExistingOutputError(f"{dest}: exists. Nothing was changed; choose another path or move it away")
    reader = open_reader(source, columns=columns, fill_absent=fill_absent)
    copy_rows(reader, dest)
    return reader.shape


def open_reader(source: PathLike, *, columns: Sequence[str] | None = None, fill_absent: bool = False) -> Reader:
    """The reader of the format that the path holds; what it is, is told by its name or its first bytes."""
    path = at(source)
    if not path.exists():
        raise MissingPathError(f"{path}: no such path. Give {KNOWN}")
    path = path.absolute()
    if path.suffix == ".npz":
        raise InputError(
            f"{path}: .npz holds several compressed arrays, which cannot be read by blocks. Save the "
            'one wanted with numpy.save("rows.npy", numpy.load("….npz")["NAME"]) and ingest that'
        )
    parquet = [] if isinstance(path, ObjectPath) else parquet_files(path)
    if columns and not parquet:
        raise InputError(f"{path}: columns can be chosen in Parquet only")
    if parquet:
        return _checked(path, open_parquet(parquet, columns))
    if path.suffix == ".npy":
        return _checked(path, open_npy(path))
    if path.is_dir():
        return _checked(path, open_raw_zarr(path, fill_absent))
    if isinstance(path, Path) and is_idx(path):
        return _checked(path, open_idx(path))
    raise InputError(f"{path}: not a format that is known. Known: {KNOWN}")


def copy_rows(
    reader: Reader,
    dest: PathLike,
    about: Mapping[str, Any] | None = None,
    label: str = "ingest",
) -> None:
    """Copy all rows into a new Zarr array: aside, checked, renamed. ``about`` is kept with it."""
    n, d = reader.shape
    dtype = reader.dtype.newbyteorder("=")
    rows = block_rows(d, dtype.itemsize)
    with _aside(at(dest)) as partial:
        create_rows(partial, (n, d), dtype, rows, overwrite=True)
        tasks = [(reader, str(partial), part) for part in _parts(bounds(n, rows), reader.grain)]
        map_blocks(_copy_part, tasks, label=label)
        if about is not None:
            _describe(partial, about)
        _require_complete(partial)


def source_of(path: PathLike) -> Any:
    """What :func:`copy_rows` was told of the rows it wrote here, or None."""
    import zarr

    try:
        return dict(zarr.open_array(zarr_place(path), mode="r").attrs).get(ABOUT)
    except Exception:  # whatever it is, it is not a described array
        return None


def write_dask(X: Any, path: PathLike) -> None:
    """Write a Dask array (n, d), whatever its chunks, into a new Zarr array by canonical blocks.

    Where these would be larger than 128 MiB, its own chunks are kept.

    An array that is there and whole, with this shape and dtype, is left as it is.
    """
    import dask
    from dask.delayed import delayed

    n, d = X.shape
    dest = at(path)
    if published(dest):
        found = open_zarr(dest)
        if tuple(found.shape) == (n, d) and found.dtype == X.dtype:
            return
        raise ExistingOutputError(f"{dest}: exists and holds {found.shape} {found.dtype}, not {(n, d)} {X.dtype}")
    work_dtype(X.dtype)
    rows = block_rows(d, X.dtype.itemsize)
    if min(rows, n) * d * X.dtype.itemsize > WIDE_BYTES:
        return _write_grid(X, dest)
    with _aside(dest) as partial:
        create_rows(partial, (n, d), X.dtype, rows, overwrite=True)
        write = delayed(write_rows, pure=False)
        dask.compute(*[write(str(partial), start, X[start:stop]) for start, stop in bounds(n, rows)])
        _require_complete(partial)


def _write_grid(X: Any, dest: AnyPath) -> None:
    """Write a Dask array of very wide rows (distances between all rows, say) in its own chunks, one a task."""
    import dask
    from dask.delayed import delayed

    high, wide = (max(sizes) for sizes in X.chunks)
    regular = X.rechunk((high, wide))
    with _aside(dest) as partial:
        create_grid(partial, X.shape, X.dtype, (high, wide))
        write = delayed(write_window, pure=False)
        blocks = regular.to_delayed()
        dask.compute(*[write(str(partial), i * high, j * wide, block) for (i, j), block in np.ndenumerate(blocks)])
        _require_complete(partial)


# ------------------------------------------------------------------------------------- readers


@dataclass(frozen=True)
class NpyReader:
    """Rows of a .npy file, mapped into memory; in C or Fortran order."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        yield np.ascontiguousarray(npy_rows(self.path)[start:stop])


def open_npy(path: AnyPath) -> NpyReader:
    """The rows of a .npy file."""
    array = npy_rows(path)
    return NpyReader(str(path), _two(path, array.shape), array.dtype)


@dataclass(frozen=True)
class ZarrReader:
    """Rows of a Zarr array of any chunks, version 2 or 3. A task holds its rows and one stored chunk."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    grain: int = 1

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        import zarr

        with whole(self.path, f"rows {start}:{stop}"):
            rows = np.asarray(zarr.open_array(zarr_place(self.path), mode="r")[start:stop])
        yield rows


def open_raw_zarr(path: AnyPath, fill_absent: bool = False) -> ZarrReader:
    """The rows of a Zarr array. With absent chunks only if ``fill_absent``."""
    import zarr

    try:
        array = open_zarr(path)
    except DamagedError as error:
        if not fill_absent:
            raise DamagedError(
                f"{error}. If its writer left out chunks that are all fill value, say so (--fill-absent)"
            ) from error
        array = zarr.open_array(zarr_place(path), mode="r")
    return ZarrReader(str(path), _two(path, array.shape), np.dtype(array.dtype))


# ------------------------------------------------------------------------------------- copying


class _aside:
    """A path beside ``dest`` to write to; renamed to it at the end, removed where the writing failed."""

    def __init__(self, dest: AnyPath) -> None:
        self.dest, self.partial = dest, dest.with_name(dest.name + ".partial")

    def __enter__(self) -> AnyPath:
        self.dest.parent.mkdir(parents=True, exist_ok=True)
        remove(self.partial)
        return self.partial

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            remove(self.partial)
            return
        try:
            move(self.partial, self.dest)
        except OSError as failure:
            raise ExistingOutputError(
                f"{self.dest}: appeared while {self.partial} was written ({failure})"
            ) from failure


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
            _copy_block(reader, reader.stream(start, stop), dest, start, stop)
        return
    pieces = reader.stream(blocks[0][0], blocks[-1][1])
    left: list[Array] = []
    for start, stop in blocks:
        left = [_copy_block(reader, chain(left, pieces), dest, start, stop)]


def _copy_block(reader: Reader, pieces: Iterator[Array], dest: str, start: int, stop: int) -> Array:
    """Fill one block from pieces and write it; what the last piece holds beyond it is returned."""
    rows = np.empty((stop - start, reader.shape[1]), reader.dtype.newbyteorder("="))
    rest, filled = rows[:0], 0
    while filled < len(rows):
        piece = next(pieces, None)
        if piece is None:
            raise DamagedError(f"{reader}: ended {len(rows) - filled} rows before row {stop}")
        take = min(len(piece), len(rows) - filled)
        rows[filled : filled + take] = piece[:take]
        filled += take
        rest = piece[take:]
    write_rows(dest, start, rows)
    return rest


def _require_complete(path: AnyPath) -> None:
    import zarr

    missing = missing_shards(zarr.open_array(zarr_place(path), mode="r"))
    if missing:
        raise DamagedError(f"{path}: {missing} chunks were not written; nothing was published")


def _describe(path: AnyPath, about: Mapping[str, Any]) -> None:
    import zarr

    zarr.open_array(zarr_place(path), mode="r+").attrs[ABOUT] = dict(about)


def _checked(path: AnyPath, reader: Reader) -> Reader:
    n, d = reader.shape
    if n < 1 or d < 1:
        raise InputError(f"{path}: shape {reader.shape}; at least one row and one column are needed")
    work_dtype(reader.dtype)
    if reader.dtype.itemsize > 8:
        raise InputError(f"{path}: dtype {reader.dtype}; at most 8 bytes a number can be stored")
    return reader


def _two(path: AnyPath, shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(
            f"{path}: shape {tuple(shape)}; rows must be a 2-dimensional array (n, d). Reshape it, one item a row"
        )
    return int(shape[0]), int(shape[1])
