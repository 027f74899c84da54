"""Files of NumPy (.npy), read by rows: mapped into memory, or by ranges where they lie in an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import BigembedError, DamagedError, InputError, MissingPathError
from bigembed.store.storage.claims import require_regular
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import PathLike, aside, at, stamp

_PARSING = Lock()
"""NumPy parses a header as an expression of Python, which threads of CPython before 3.12.1 may not do at once."""


@dataclass(frozen=True)
class RemoteNpy:
    """Rows of a .npy object in C order; only the bytes asked for are fetched."""

    path: ObjectPath
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    head: int
    """Bytes before the first row."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        row = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if out.size:
            with self.path.open("rb") as file:
                file.seek(self.head + start * row)
                if file.readinto(out.reshape(-1).view(np.uint8).data) != out.nbytes:
                    raise DamagedError(f"{self.path}: ends before row {stop}")
        return out[(slice(None, None, step), *rest)]


def npy_rows(path: PathLike) -> Any:
    """The array of a .npy file, read where it is indexed: by slices of rows (and columns)."""
    place = at(path)
    require_regular(place)
    try:
        if isinstance(place, ObjectPath):
            return _remote(place, stamp(place))
        with _PARSING:
            found = np.load(place, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("an archive of several arrays, not one")
        return found
    except FileNotFoundError as error:
        raise MissingPathError(f"{place}: no such file") from error
    except (BigembedError, PermissionError):
        raise
    except Exception as error:  # (its header is an expression of Python, which may be wrong in any way)
        raise InputError(
            f"{place}: not readable as .npy without unpickling ({error}). It must hold numbers, and all of them"
        ) from error


def write_npy(path: PathLike, array: Array) -> None:
    """Write a .npy file, whole at once."""
    place = at(path)
    if isinstance(place, ObjectPath):
        buffer = BytesIO()
        np.save(buffer, array, allow_pickle=False)
        place.write_bytes(buffer.getbuffer())
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with aside(place, f".{os.getpid()}-{place.name}") as partial:
        np.save(partial, array, allow_pickle=False)


@lru_cache(maxsize=64)
def _remote(path: ObjectPath, stamp: str) -> RemoteNpy:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        if fortran and len(shape) > 1:
            raise InputError(f"{path}: stored by columns (Fortran order). Save it by rows, or ingest a local copy")
        size, head = path.stat().st_size, file.tell()
        if size < head + prod(shape) * dtype.itemsize:
            raise ValueError("it is shorter than its header says")
        return RemoteNpy(path, tuple(shape), dtype, head)
