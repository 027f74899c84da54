"""The exchange: block i leaves a piece for block j in one file of pieces, and j collects what was left for it."""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError
from bigembed.runtime import once, reads, writes
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.store import at, is_url, opened, put, remove, stored
from bigembed.store.files import read_ahead
from bigembed.store.objects import Stored

# ---------------------------------------------------------------------------------------------------------- pieces
# A file of pieces: arrays one behind the other, and at the end a line for each, which says where it lies.
#
#     piece · piece · …
#     \n key \t [position, dtype, shape, checksum] \n …
#     footer: length of the lines, their CRC-32C, and four letters
#
# The checksum of a piece is the CRC-32C of a row of sums: its 64-bit words, laid out as a table :data:`FOLD` words
# wide, are summed down the columns. (A processor sums 26 GB/s of data in its cache, and takes the CRC-32C of 8 GB/s.)
# An error in one place of up to 8 KB changes as many sums as words, and the words of swapped pages fall into other
# columns.

FOLD = 1021
"""Words of a row; not a divisor of what file systems or devices move at a time."""
TILE = 8 * FOLD * 32
"""Bytes that are summed and written before the next ones are touched."""

_FOOTER = struct.Struct("<QI4s")
_MAGIC = b"bex3"
_EMPTY = np.zeros(FOLD, "<u8")

Entry = tuple[int, str, list[int], int]
"""Position, dtype, shape and checksum of a piece."""


def write_pieces(file: BinaryIO, pieces: Mapping[str, Array], place: str) -> None:
    """Write a whole file; ``place`` says for which block it is, so that two files cannot be swapped."""
    lines, position = [""], 0
    for key, piece in pieces.items():
        array = np.ascontiguousarray(piece)
        crc = checksum(array.reshape(-1).view(np.uint8), file.write)
        lines.append(f"{key}\t{json.dumps((position, array.dtype.str, np.shape(piece), crc))}")
        position += array.nbytes
    text = "\n".join([*lines, ""]).encode()
    file.write(text + _FOOTER.pack(len(text), google_crc32c.value(text + place.encode()), _MAGIC))


def checksum(data: Array, write: Callable[[Any], Any] | None = None) -> int:
    """Return the checksum of bytes (uint8), each of which ``write`` gets while it is in the processor's cache."""
    sums, rest = _EMPTY, data[:0]
    for start in range(0, len(data), TILE):
        tile = data[start : start + TILE]
        if write is not None:
            write(tile)
        rows = len(tile) - len(tile) % (8 * FOLD)
        sums = sums + np.add.reduce(tile[:rows].view("<u8").reshape(-1, FOLD), axis=0)
        rest = tile[rows:]
    return int(google_crc32c.extend(google_crc32c.value(sums.tobytes()), rest.tobytes()))


def index_of(file: BinaryIO, path: str, place: str) -> bytes:
    """Return the lines of a file, with a line break before the first and behind the last."""
    try:
        file.seek(-_FOOTER.size, os.SEEK_END)
        length, crc, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        file.seek(-_FOOTER.size - length, os.SEEK_END)
        text = file.read(length)
        if magic != _MAGIC or google_crc32c.value(text + place.encode()) != crc:
            raise ValueError("its index is damaged")
        return text
    except BigembedError:
        raise
    except (ValueError, OSError, OverflowError, struct.error) as error:
        raise DamagedError(f"{path}: not readable as a file of pieces: {error}") from error


def entry_of(index: bytes, key: str) -> Entry | None:
    """Return the line of the index that says where a piece lies; None where there is none."""
    head = f"\n{key}\t".encode()
    line = index.find(head)
    if line < 0:
        return None
    start = line + len(head)
    return json.loads(index[start : index.index(b"\n", start)])  # type: ignore[no-any-return]


def entries_of(index: bytes) -> dict[str, Entry]:
    """Return all lines of the index, by the keys of their pieces."""
    lines = (line.partition("\t") for line in index.decode().split("\n") if line)
    return {key: json.loads(entry) for key, _, entry in lines}


def read_piece(file: BinaryIO, entry: Entry, path: str, key: str) -> Array:
    """Read a piece into memory of its own."""
    position, dtype, shape, crc = entry
    array = np.empty(shape, dtype)
    if not array.size:
        return array
    file.seek(position)
    data = array.reshape(-1).view(np.uint8)
    if file.readinto(data) != array.nbytes or checksum(data) != crc:  # type: ignore[attr-defined]
        raise DamagedError(f"{path}: piece {key!r} does not have its checksum")
    return array


def view_piece(mapped: Any, entry: Entry, path: str, key: str, proven: bool) -> Array:
    """Return a piece as it lies in a mapped file, copied if it is not aligned there; ``proven``: it is known to be
    right."""
    position, dtype, shape, crc = entry
    try:
        array = np.empty(shape, dtype) if 0 in shape else np.ndarray(shape, dtype, mapped, position)
    except TypeError as error:  # (the file ends before it does)
        raise DamagedError(f"{path}: piece {key!r} is cut off") from error
    if array.size and not proven and checksum(array.reshape(-1).view(np.uint8)) != crc:
        raise DamagedError(f"{path}: piece {key!r} does not have its checksum")
    return array if array.flags.aligned else array.copy()


# -------------------------------------------------------------------------------------------------------- exchange
# The exchange: block i leaves a piece for block j, and j collects it.
#
# One file a (name, block), holding pieces under small integer or text keys, each with its own checksum and readable
# alone. The index has one line a piece, found by its key without parsing the rest: a block leaves pieces for many
# others, and each of them looks for one or two. The exchange serves what moves between blocks: the rows on their way
# to their partition, the reversed edges of a graph, the boundary rows of a vector, and the vectors of a solver
# themselves. Files are written aside and renamed, and never changed afterwards: a piece is whole or absent, and a
# process that has mapped a file keeps its content, even if a second attempt of the task that wrote it replaces the
# file. What is worth keeping goes to Zarr; the exchange of a finished stage is deleted.

_GONE = FileNotFoundError, IsADirectoryError, NotADirectoryError
FORMAT = 14
"""Version of all that a killed stage leaves to go on from: files of pieces and parcels, states of solvers and descents.
What was left under another version is not read. Raise it whenever the form or the meaning of any of these changes."""
DELETED_TOGETHER = 64 << 20
"""Bytes of files that a task deletes: a gigabyte takes one process a quarter of a second."""
PROVEN = 8192
"""Files and pieces that a process remembers as being right."""


@dataclass(frozen=True)
class Exchange:
    """A directory that every worker reads and writes."""

    root: str

    @writes
    def put(self, name: str, block: int, pieces: Mapping[str, Array]) -> None:
        """Write all pieces of (name, block), replacing what was there."""
        path = self._path(name, block)
        if is_url(path):
            buffer = io.BytesIO()
            write_pieces(buffer, pieces, f"{name}/{block}")
            return put(path, buffer.getbuffer())
        partial = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.partial"
        try:
            with _new(partial) as file:
                write_pieces(file, pieces, f"{name}/{block}")
                file.flush()
                stamp = _stamp(os.fstat(file.fileno()))
            _rename(partial, path)
        except BaseException:
            remove(partial)
            raise
        _prove(path, stamp)

    def get(self, name: str, block: int, key: str) -> Array | None:
        """Return the piece under ``key``, or None where this block left none."""
        return self.find(name, block, [key])[0]

    def expect(self, name: str, block: int) -> None:
        """Let the system read what a block left ahead, if it is there, while something else is computed."""
        read_ahead(self._path(name, block))

    def piece(self, name: str, block: int, key: str) -> Array:
        """Return the piece under ``key``, which the block must have left."""
        return self.get_many(name, block, [key])[0]

    @reads
    def find(self, name: str, block: int, keys: Sequence[str]) -> list[Array | None]:
        """Return several pieces of one block, None for each that it did not leave, after one look at its index."""
        path = self._path(name, block)
        with reading(path, block), opened(path) as file:
            index = index_of(file, path, f"{name}/{block}")
            entries = [(key, entry_of(index, key)) for key in keys]
            return [entry if entry is None else read_piece(file, entry, path, key) for key, entry in entries]

    def get_many(self, name: str, block: int, keys: Sequence[str]) -> list[Array]:
        """Return several pieces of one block, all of which it must have left, after one look at its index."""
        return self._complete(name, block, keys, self.find(name, block, keys))

    def mapped(self, name: str, block: int, keys: Sequence[str]) -> list[Array]:
        """Return several pieces of one block, all of which it must have left, as they lie in its file, without a copy.

        Where the file cannot be mapped (an object) it is read. Writing into such an array changes the array only. The
        checksum of what this process wrote, or has verified before, is not computed again. The file stays open as long
        as one of the arrays is there.
        """
        return self._complete(name, block, keys, self.look(name, block, keys))

    @reads
    def look(self, name: str, block: int, keys: Sequence[str]) -> list[Array | None]:
        """Return several pieces of one block as :meth:`mapped` does, None for each that it did not leave."""
        path = self._path(name, block)
        with reading(path, block):
            mapped = _mapped(path)
        if mapped is None:
            return self.find(name, block, keys)
        file, stamp = mapped
        index = index_of(file, path, f"{name}/{block}")
        found: list[Array | None] = []
        for key in keys:
            if (entry := entry_of(index, key)) is not None:
                proven = stamp in (_proven.get(path), _proven.get(f"{path}\t{key}"))
                found.append(view_piece(file, entry, path, key, proven))
                if not proven:
                    _prove(f"{path}\t{key}", stamp)
            else:
                found.append(None)
        return found

    @reads
    def get_all(self, name: str, block: int) -> dict[str, Array]:
        """Return every piece that the block left under the name."""
        path = self._path(name, block)
        with reading(path, block), opened(path) as file:
            entries = entries_of(index_of(file, path, f"{name}/{block}"))
            return {key: read_piece(file, entry, path, key) for key, entry in entries.items()}

    def has(self, name: str, block: int) -> bool:
        """Say whether (name, block) was written."""
        return at(self._path(name, block)).is_file()

    def drop(self, *names: str) -> None:
        """Delete everything under the names."""

        def delete() -> None:
            for name in names:
                remove(f"{self.root}/{name}")

        once(delete)

    def drop_block(self, name: str, block: int) -> None:
        """Delete what one block left under the name."""
        remove(self._path(name, block))

    def clear(self) -> None:
        """Delete the whole exchange. The files of a large one are deleted in tasks: one process alone takes long.

        Where tasks fail (workers are gone), this process deletes what they leave.
        """
        if not is_url(self.root) and at(self.root).is_dir():
            batches = batches_of(stored(self.root), DELETED_TOGETHER)
            if len(batches) > 1:
                with suppress(Exception):
                    map_blocks(delete_files, [(self.root, names) for names in batches], label="delete")
        remove(self.root)

    def _path(self, name: str, block: int) -> str:
        if not name or "/" in name or name.startswith("."):
            raise InputError(f"{name!r} cannot name an exchange")
        return f"{self.root}/{name}/{block}"

    def _complete(self, name: str, block: int, keys: Sequence[str], found: Sequence[Array | None]) -> list[Array]:
        missing = [key for key, piece in zip(keys, found, strict=True) if piece is None]
        if missing:
            raise DamagedError(
                f"{self._path(name, block)}: pieces of block {block} are gone ({', '.join(missing)}); run again to "
                "make them anew"
            )
        return [piece for piece in found if piece is not None]


def batches_of(files: Sequence[Stored], size: int) -> list[list[str]]:
    """Return the names of files in batches of at least ``size`` bytes, the last of which may be smaller."""
    batches: list[list[str]] = []
    filled = size
    for file in files:
        if filled >= size:
            batches.append([])
            filled = 0
        batches[-1].append(file.name)
        filled += file.size
    return batches


def delete_files(folder: str, names: Sequence[str]) -> None:
    """Delete some files of a folder, those that can be deleted."""
    for name in names:
        with suppress(OSError):
            os.unlink(f"{folder}/{name}")


@contextmanager
def reading(path: str, block: int) -> Iterator[None]:
    """Say of a file that is not there that what the block left is gone."""
    try:
        yield
    except _GONE as error:
        raise DamagedError(f"{path}: what block {block} left is gone; run again to make it anew") from error


def _new(path: str) -> Any:
    """Open a new file; its folder is made with the first one."""
    try:
        return open(path, "xb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def _rename(partial: str, path: str) -> None:
    try:
        os.replace(partial, path)
    except IsADirectoryError:  # (damaged)
        remove(path)
        os.replace(partial, path)


def _mapped(path: str) -> tuple[Any, tuple[int, ...]] | None:
    """Map a file, and return it with its stamp; None for objects, empty files, folders, and where nothing can be
    mapped."""
    if is_url(path):
        return None
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        there = os.fstat(file)
        if not (stat.S_ISREG(there.st_mode) and there.st_size):
            return None
        return mmap.mmap(file, there.st_size, access=mmap.ACCESS_COPY), _stamp(there)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None
    finally:
        os.close(file)


def _stamp(there: os.stat_result) -> tuple[int, ...]:
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns


_proven: dict[str, tuple[int, ...]] = {}
"""Stamps of files that this process wrote, and of files (with a key) of which it found a piece right."""
_proving = Lock()


def _prove(label: str, stamp: tuple[int, ...]) -> None:
    with _proving:
        _proven.pop(label, None)
        while len(_proven) >= PROVEN:
            del _proven[next(iter(_proven))]
        _proven[label] = stamp
