"""The store: arrays, the exchange between blocks, published stages, fitted models. The only home of zarr.

Where things lie is here: a path of a file system or the URL of an object store, and names that are refused for outputs.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from bigembed.errors import InputError, InputTypeError, meant
from bigembed.runtime import writes
from bigembed.store.objects import MARKS, SCHEMES, ObjectPath, Stored

# ----------------------------------------------------------------------------------------------------------- paths
# Where things lie: a path of a file system, or the URL of an object store, with the same words for both.
#
# What readers must see whole or not at all is written by :func:`put`, :func:`create` and :func:`move`.

AnyPath = Path | ObjectPath
PathLike = str | os.PathLike[str] | ObjectPath
P = ParamSpec("P")
T = TypeVar("T")
UNLIMITED = sys.maxsize
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a file system says that takes no more."""
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What it says where this user may not write."""
TOGETHER = 16
"""Requests in flight where many objects are copied."""


def is_url(path: object) -> bool:
    """Whether it names a place in an object store.

    >>> is_url("s3://bucket/points.zarr"), is_url("points.zarr")
    (True, False)
    """
    return isinstance(path, ObjectPath) or "://" in str(path)


def is_path(value: object) -> bool:
    """Whether it names a place: text, a path of a file system, or one of an object store."""
    return isinstance(value, (str, os.PathLike, ObjectPath))


def at(path: PathLike) -> AnyPath:
    """The place that a path or a URL names.

    >>> at("s3://bucket/points.zarr/zarr.json").parent.name
    'points.zarr'
    """
    if isinstance(path, (Path, ObjectPath)):
        return path
    try:
        text = os.fspath(path)
    except TypeError as error:
        raise InputTypeError(f"path {path!r}: a path is text, a Path or a URL of an object store") from error
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    scheme, colon, rest = text.partition(":/")
    if colon and scheme.lower() in SCHEMES and not rest.startswith("/"):
        raise InputError(f"{text}: one slash is missing; {scheme}://{rest} is the URL of an object store")
    return ObjectPath.of(text) if "://" in text else _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Path:
    """A path of a file system. The same few are asked for again and again, and taking one apart costs more than a
    look at the file."""
    return Path(text)


def everywhere(
    of_object: Callable[Concatenate[ObjectPath, P], T],
) -> Callable[[Callable[Concatenate[Path, P], T]], Callable[Concatenate[PathLike, P], T]]:
    """A function of a path of a file system, and ``of_object`` of one in an object store, as one function of both."""

    def joined(of_file: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[PathLike, P], T]:
        @wraps(of_file)
        def of_place(path: PathLike, /, *arguments: P.args, **named: P.kwargs) -> T:
            place = at(path)
            if isinstance(place, ObjectPath):
                return of_object(place, *arguments, **named)
            return of_file(place, *arguments, **named)

        return of_place

    return joined


def opened(path: str) -> Any:
    """A file or an object, to read bytes from."""
    return at(path).open("rb") if is_url(path) else open(path, "rb")


def absolute(path: PathLike) -> str:
    """A path that does not depend on the working directory, as text."""
    return str(at(path).absolute())


@everywhere(ObjectPath.stored)
def stored(place: Path) -> list[Stored]:
    """Every file under a folder, by name; of a file, itself under the name ``.``."""
    if not place.is_dir():
        return [Stored(".", *_looked_at(place.stat()))]
    found, top = [], os.path.join(place, "")
    for folder, _, names in os.walk(place):
        for file in (os.path.join(folder, name) for name in names):
            with suppress(FileNotFoundError):  # (a link to nothing, or gone meanwhile)
                if stat.S_ISREG((there := os.stat(file)).st_mode):
                    found.append(Stored(file.removeprefix(top), *_looked_at(there)))
    return sorted(found, key=lambda file: file.name.split("/"))


def stamp(path: PathLike) -> str:
    """Size and time of a file, or what the store says of an object."""
    if is_url(path) and isinstance(place := at(path), ObjectPath):
        return place.stamp()
    there = os.stat(str(path).removeprefix("file://"))
    return f"{there.st_size}:{there.st_mtime_ns}"


def _looked_at(there: os.stat_result) -> tuple[int, str, str]:
    return there.st_size, str(there.st_mtime_ns), f"{there.st_mtime_ns}:{there.st_ctime_ns}:{there.st_ino}"


@writes
@everywhere(ObjectPath.write_bytes)
def put(place: Path, data: Any) -> None:
    """Replace a file in one step: aside, synced, renamed; a reader sees the old bytes or the new ones."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place, f"{place.name}.{os.getpid()}.partial") as partial:
        _synced(partial, data)


@everywhere(ObjectPath.create)
def create(place: Path, data: bytes) -> None:
    """Write a file that is whole at once, if the name is free; :class:`FileExistsError` otherwise."""
    partial = place.with_name(f".{os.getpid()}-{uuid.uuid4().hex}.partial")
    try:
        _synced(partial, data)
        os.link(partial, place)
    except OSError as error:
        if isinstance(error, (FileExistsError, FileNotFoundError)) or error.errno in FULL:
            raise
        _synced(place, data, "xb")  # no hard links here: the name first, then the content, which readers expect
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing(place: Path, name: str) -> Iterator[Path]:
    """A file of this name beside another one, which it replaces at the end; on an error (a full disk) it is removed."""
    partial = place.with_name(name)
    try:
        yield partial
        os.replace(partial, place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _synced(path: Path, data: Any, mode: str = "wb") -> None:
    with open(path, mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@everywhere(ObjectPath.rewrite)
def rewrite(place: Path, data: Any) -> None:
    """Replace the bytes of a file that is there, in one step; OSError if it is gone, or somebody else was quicker."""
    with replacing(place, f".{os.getpid()}-{uuid.uuid4().hex}.partial") as partial:
        _synced(partial, data)


@everywhere(lambda place: place.rewrite(None))
def touch(place: Path) -> None:
    """Make an existing file younger; OSError if it does not exist."""
    os.utime(place)


@everywhere(ObjectPath.remove_tree)
def remove(place: Path) -> None:
    """Delete a file, or a folder with all that is in it, if it is there."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def remove_file(path: PathLike) -> None:
    """Delete a file if it is there, or the folder that took its place."""
    place = at(path)
    if isinstance(place, Path) and place.is_dir():
        remove(place)
    else:
        place.unlink(missing_ok=True)


@everywhere(ObjectPath.remove_tree)
def retire(place: Path) -> None:
    """Delete a folder that readers know by its name, in one step for them, and what a killed call left of one."""
    going = place.with_name(f"{place.name}.removing")
    remove(going)
    if place.exists():
        os.rename(place, going)
        remove(going)


@everywhere(ObjectPath.published)
def published(place: Path) -> bool:
    """Whether readers would find something whole. Of a folder of objects its mark says so, not an object in it."""
    return place.exists()


def move(source: PathLike, target: PathLike) -> None:
    """Give what lies at ``source`` the name ``target``, in one step; OSError if something has it.

    A folder of objects is copied inside the store; its mark (``zarr.json``, ``model.json``) comes last, and only where
    there is none: until then nothing is there for a reader.
    """
    old, new = at(source), at(target)
    if isinstance(old, Path) and isinstance(new, Path):
        os.rename(old, new)
        return
    names = [entry.name for entry in stored(old)]
    marks = [name for name in MARKS if name in names]
    if published(new):
        raise FileExistsError(f"{new}: exists")
    copy_files(old, new, [name for name in names if name not in marks])
    for name in marks:
        create(new / name, (old / name).read_bytes())
    remove(old)


def move_files(source: PathLike, target: PathLike, names: Sequence[str]) -> None:
    """Move some files of a folder into another one of the same store, each in one step, over what is there."""
    old, new = at(source), at(target)
    if isinstance(old, Path) and isinstance(new, Path):
        for name in names:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(old / name, new / name)
        return
    copy_files(old, new, names)
    for name in names:
        (old / name).unlink(missing_ok=True)


def copy_files(source: PathLike, target: PathLike, names: Sequence[str]) -> None:
    """Copy some files of a folder into another one, of whatever kind."""
    old, new = at(source), at(target)
    if isinstance(old, Path) and isinstance(new, Path):
        for name in names:
            copy_file(old / name, new / name)
        return
    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(lambda name: copy_file(old / name, new / name), names))


def copy_file(source: AnyPath, target: AnyPath) -> None:
    """Copy one file."""
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        source.copy_to(target)
    elif isinstance(source, Path) and isinstance(target, Path):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    elif isinstance(source, ObjectPath):
        _download(source, Path(str(target)))
    elif isinstance(target, ObjectPath):
        target.write_bytes(source)


def _download(source: ObjectPath, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, f"{target.name}.{os.getpid()}.partial") as partial:
        source.download(partial)


@everywhere(lambda _: UNLIMITED)
def free_bytes(place: Path) -> int:
    """What may still be written in a folder; :data:`UNLIMITED` in an object store."""
    return shutil.disk_usage(place).free


def nearest_folder(path: AnyPath) -> AnyPath:
    """The path if it is a folder that exists, else the nearest one above it; an object store has no folders."""
    if isinstance(path, ObjectPath):
        return path
    while not path.is_dir():
        path = path.parent
    return path


def no_such_path(path: PathLike, what: str = "path") -> str:
    """What an error says of a path that is not there, with the nearest name in its folder."""
    place, names = at(path), []
    if not isinstance(place, ObjectPath):  # (listing a store may take as long as reading it)
        with suppress(OSError):
            names = os.listdir(place.parent)
    return f"{path}: no such {what}{meant(place.name, names)}"


def local(path: PathLike, what: str) -> Path:
    """A path of this file system; :class:`InputError` for a URL."""
    place = at(path)
    if isinstance(place, ObjectPath):
        raise InputError(f"{place}: {what} must lie in a file system, not in an object store. Give a path")
    return place


# ---------------------------------------------------------------------------------------------------- output paths
# Refuse output paths whose names would mislead: inside what is read, or with the suffix of another format.

PICTURES, PAGES = (".png",), (".html", ".htm")
"""Suffixes of the files that pictures and pages are written as."""
OTHERS = (".npy", ".npz", ".csv", ".tsv", ".parquet", ".pq", ".h5ad", ".h5", ".hdf5", ".nc", ".nc4", ".png")
"""Suffixes of files that an array of ours, which is a folder, would be taken for."""


def require_suffix(path: PathLike, suffixes: Sequence[str], what: str) -> None:
    """:class:`InputError` for a file name with another suffix than one of these; a name without one says nothing.

    >>> require_suffix("map.PNG", PICTURES, "a picture is written as PNG")
    >>> require_suffix("map.svg", PICTURES, "a picture is written as PNG")
    Traceback (most recent call last):
        ...
    bigembed.errors.InputError: map.svg: a picture is written as PNG; give a name that ends in .png
    """
    if at(path).suffix.lower() not in ("", *suffixes):
        raise InputError(f"{path}: {what}; give a name that ends in {' or '.join(suffixes)}")


def require_array_name(path: PathLike) -> None:
    """:class:`InputError` where an array of Zarr would have the name of a file of another format."""
    if at(path).suffix.lower() in OTHERS:
        raise InputError(
            f"{path}: an array of Zarr is written there, which is a folder and no {at(path).suffix} file. Give a name "
            "that ends in .zarr; bigembed export makes a table (.parquet, .csv, .npy) of coordinates"
        )


def require_apart(source: PathLike, *outputs: PathLike | None) -> None:
    """:class:`InputError` where an output lies inside the source, or the source inside an output.

    >>> require_apart("points.zarr", "run.zarr", None)
    >>> require_apart("points.zarr", "points.zarr/run")
    Traceback (most recent call last):
        ...
    bigembed.errors.InputError: points.zarr/run: lies inside points.zarr, which is read. Choose a path outside of it
    """
    read = _place(source)
    for output in outputs:
        written = None if output is None else _place(output)
        if written is not None and read in written.parents:
            raise InputError(f"{output}: lies inside {source}, which is read. Choose a path outside of it")
        if written is not None and written in read.parents:
            raise InputError(f"{source}: is read, and lies inside the output {output}. Choose another output path")


def _place(path: PathLike) -> Path:
    """Where it lies, whatever links lead there; of a URL its parts."""
    place: AnyPath = at(path)
    return place.resolve() if isinstance(place, Path) else Path(str(place))
