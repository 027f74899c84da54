"""The size that a file claims, checked against the bytes that are there before anything of that size is allocated.

Compressed bytes may be many times smaller than what they hold, so a claim is refused only where it is both large and
out of all proportion to the bytes that are stored.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from bigembed.errors import BigembedError, DamagedError, InputError, PlanError
from bigembed.store.storage.paths import AnyPath, PathLike, stored

ROWS_BYTES, ROWS_RATIO = 64 << 30, 1 << 16
"""Bytes of rows that any file may claim; and how many for a stored byte (Zstandard packs 2¹⁵ equal bytes into one)."""
CHUNK_BYTES, CHUNK_RATIO = 1 << 30, 100
"""Bytes that are unpacked at once that any file may claim; and how many for a stored byte."""
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
CHUNKS = 1 << 16
"""Chunks that any array may claim to have left out."""


def refuse_rows(path: PathLike, shape: Sequence[int], itemsize: int) -> None:
    """InputError where rows of this shape cannot come from what is stored at the path."""
    _refuse(path, f"rows of shape {tuple(shape)}", prod(shape) * itemsize, ROWS_BYTES, ROWS_RATIO)


def refuse_unpacked(path: PathLike, what: str, shape: Sequence[int], itemsize: int) -> None:
    """InputError where what is unpacked at once claims far more than the bytes that are stored at the path."""
    _refuse(path, f"{what} of shape {tuple(shape)}", prod(shape) * itemsize, CHUNK_BYTES, CHUNK_RATIO)


def _refuse(path: PathLike, what: str, claimed: int, free: int, ratio: int) -> None:
    if claimed > free and claimed > ratio * (there := sum(file.size for file in stored(path))):
        raise InputError(
            f"{path}: claims {what}, {claimed:,} bytes, and {there:,} bytes are stored. Up to {free:,} bytes, or "
            f"{ratio:,} for each stored one, are believed. Write it again; in smaller chunks, if it is what it says"
        )


def refuse_memory(what: Any, size: int) -> None:
    """PlanError where a task would have to hold more bytes than this machine, or this process, may have."""
    import psutil

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    total = min([int(psutil.virtual_memory().total), *([] if limit == resource.RLIM_INFINITY else [limit])])
    if size > total:
        raise PlanError(
            f"{what}: a task would hold {size:,} bytes (a block of rows, or what is unpacked together), and there are "
            f"{total:,}. Write it with fewer columns, or in smaller chunks or row groups"
        )


def require_regular(path: AnyPath) -> None:
    """InputError for a pipe, a device or a socket, which would be waited for, or never end."""
    if isinstance(path, Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path}: neither a file nor a folder (a pipe, a device or a socket). Give a file or a folder")


def require_files(path: AnyPath, deep: bool = False) -> None:
    """InputError where a metadata file of a Zarr array (``deep``: anything under a folder) is a pipe or a device."""
    if not isinstance(path, Path) or not path.is_dir():
        return
    for name in METADATA if not deep else ():
        require_regular(path / name)
    for entry in os.scandir(path) if deep else ():
        if entry.is_dir(follow_symlinks=False):
            require_files(Path(entry.path), deep)
        elif not entry.is_file():
            require_regular(Path(entry.path))


EXHAUSTED = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)


@contextmanager
def sound(path: Any, what: str = "") -> Iterator[None]:
    """What a library raises at bytes that it does not expect is DamagedError; MemoryError is PlanError.

    Errors of the operating system that name their cause (no permission, no such file) stay what they are.
    """
    try:
        yield
    except BigembedError:
        raise
    except Exception as error:
        if is_exhausted(error) and not isinstance(error, OSError):
            why = f"{what or 'it'} does not fit in memory ({error or 'no more to be had'})"
            raise PlanError(f"{path}: {why}") from error
        if isinstance(error, OSError) and (is_exhausted(error) or None not in (error.errno, error.filename)):
            raise
        raise DamagedError(
            f"{path}: {what + ' ' if what else ''}cannot be read: {type(error).__name__}: {_first_line(error)}"
        ) from error


def is_exhausted(error: Exception) -> bool:
    """Whether an error says nothing of a file: memory, processes, threads or open files are used up."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:300]
