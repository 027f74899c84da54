"""JSON documents written in one step, the sizes that files claim of themselves, and temporary folders."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

from bigembed.errors import BigembedError, BigembedWarning, DamagedError, InputError, MissingPathError, PlanError
from bigembed.store import AnyPath, PathLike, at, is_url, put, remove, stored
from bigembed.store.locks import machine, process_start

# ------------------------------------------------------------------------------------------------------- documents
# JSON files, each written in one step; what is sealed carries the digest of all else that it says.

SEAL = "digest"


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of all that it says, as :func:`unsealed` checks it.

    >>> unsealed(sealed({"scale": 3.93}), "model.json")
    {'scale': 3.93}
    """
    said = jsonable({name: entry for name, entry in value.items() if name != SEAL})
    return {**said, SEAL: digest_of(said)}


def unsealed(value: Any, path: PathLike) -> dict[str, Any]:
    """What was sealed; :class:`DamagedError` if it says something else now.

    What has no digest, written by an earlier version, is taken as it is.
    """
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: damaged: not a JSON object")
    said = {name: entry for name, entry in value.items() if name != SEAL}
    if SEAL in value and value[SEAL] != digest_of(said):
        raise DamagedError(f"{path}: damaged: it does not say what was written (its digest is another one)")
    return said


def read_sealed(path: PathLike) -> dict[str, Any]:
    """What a sealed JSON file says; :class:`DamagedError`, :class:`MissingPathError`."""
    return unsealed(read_json(path), path)


def write_json(path: PathLike, value: Any, indent: int | None = 1) -> None:
    """Write it in one step: a reader sees the old text or the new one. Without indent it is quicker."""
    place = at(path)
    if isinstance(place, Path) and place.is_dir():  # (damaged: it was a file of ours)
        remove(place)
    put(place, text_of(value, indent))


def text_of(value: Any, indent: int | None = 1) -> bytes:
    """JSON with sorted keys; NumPy scalars and arrays as numbers."""
    return json.dumps(value, indent=indent, sort_keys=True, default=_plain).encode()


def jsonable(value: Any) -> Any:
    """The value as it is read again once it was written."""
    return json.loads(text_of(value, None))


def read_json(path: PathLike) -> Any:
    """The JSON value in a file; :class:`DamagedError` if the file holds something else."""
    try:
        return json.loads(at(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:  # (or below what is a file itself)
        raise MissingPathError(f"{path}: no such file") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged: not valid JSON ({error})") from error
    except IsADirectoryError as error:
        raise DamagedError(f"{path}: damaged: a folder where a file was written") from error


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


# ---------------------------------------------------------------------------------------------------------- claims
# The size that a file claims, checked against the bytes that are there before anything of that size is allocated.
#
# Compressed bytes may be many times smaller than what they hold, so a claim is refused only where it is both large
# and out of all proportion to the bytes that are stored.

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


def read_ahead(path: str) -> None:
    """Let the system read a local file ahead, if it is there, while something else is computed."""
    if is_url(path) or not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(file)


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
def reading_foreign(path: Any, what: str = "") -> Iterator[None]:
    """What a library raises at bytes that it does not expect is DamagedError; MemoryError is PlanError.

    Errors of the operating system that name their cause (no permission, no such file) stay what they are.
    """
    try:
        yield
    except (BigembedError, BigembedWarning):
        raise
    except Exception as error:
        if is_exhausted(error) and not isinstance(error, OSError):
            why = f"{what or 'it'} does not fit in memory ({str(error) or 'no more to be had'})"
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


# --------------------------------------------------------------------------------------------------------- scratch
# Temporary folders of this process, under names that say whose they are: what a killed one left is swept by the next.
#
# ``bigembed-KIND-MACHINE-PROCESS-BORN-…``: a digest of this boot of this machine, the number of the process and when
# it started. Those of other machines that share the folder are left alone.

_NAME = re.compile(r"\.?bigembed-[a-z]+-([0-9a-f]{12})-([0-9]{1,10})-([0-9]+)-.*")


def new_folder(kind: str, home: str | os.PathLike[str] | None = None, hidden: bool = False) -> Path:
    """A new temporary folder, in ``home`` or where such lie; the first call of a process there sweeps."""
    place = str(home or tempfile.gettempdir())
    _swept(place)
    prefix = f"{'.' * hidden}bigembed-{kind}-{_here()}-{os.getpid()}-{process_start(os.getpid()) or 0}-"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


@contextmanager
def temporary(kind: str, home: str | os.PathLike[str] | None = None, hidden: bool = False) -> Iterator[Path]:
    """A new temporary folder that is removed at the end."""
    folder = new_folder(kind, home, hidden)
    try:
        yield folder
    finally:
        remove(folder)


def sweep(home: str) -> None:
    """Remove the temporary folders whose processes, of this machine, are gone."""
    for name in os.listdir(home):
        found = _NAME.fullmatch(name)
        if found and _dead(*found.groups()):
            with suppress(OSError):  # (of another user)
                remove(Path(home) / name)


def _dead(where: str, process: str, since: str) -> bool:
    return bool(machine()) and where == _here() and (process_start(int(process)) or "0") != since


@cache
def _swept(home: str) -> None:
    sweep(home)


def _here() -> str:
    return sha256(machine().encode()).hexdigest()[:12]
