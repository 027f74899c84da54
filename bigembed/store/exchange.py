"""The exchange: block i leaves a piece for block j, and j collects it.

One file a (name, block), holding pieces under small integer or text keys, each with its own
CRC-32C and readable alone. The index has one line a piece, found by its key without parsing the rest:
a block leaves pieces for many others, and each of them looks for one or two. The exchange serves what
moves between blocks: the rows on their way to their partition, the reversed edges of a graph, the
boundary rows of a vector, and the vectors of a solver themselves. Files are written aside and renamed,
so a piece is whole or absent. What is worth keeping goes to Zarr; the exchange of a finished stage is
deleted.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import BigembedError, DamagedError, InputError
from bigembed.store.paths import aside, at, is_url, put, remove

_FOOTER = struct.Struct("<QI4s")
_MAGIC = b"bex2"
_GONE = FileNotFoundError, IsADirectoryError, NotADirectoryError

Entry = tuple[int, str, list[int], int]
"""Position, dtype, shape and CRC-32C of a piece."""


@dataclass(frozen=True)
class Exchange:
    """A directory that every worker reads and writes."""

    root: str

    def put(self, name: str, block: int, pieces: Mapping[str, Array]) -> None:
        """Write all pieces of (name, block), replacing what was there."""
        path = self._path(name, block)
        if is_url(path):
            buffer = io.BytesIO()
            _write(buffer, pieces, f"{name}/{block}")
            return put(path, buffer.getbuffer())
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):  # (damaged)
            remove(path)
        place = Path(path)
        with aside(place, f"{place.name}.{os.getpid()}.partial") as partial, open(partial, "wb") as file:
            _write(file, pieces, f"{name}/{block}")

    def get(self, name: str, block: int, key: str) -> Array | None:
        """The piece under ``key``, or None where this block left none."""
        return self.find(name, block, [key])[0]

    def piece(self, name: str, block: int, key: str) -> Array:
        """The piece under ``key``, which the block must have left."""
        return self.get_many(name, block, [key])[0]

    def find(self, name: str, block: int, keys: Sequence[str]) -> list[Array | None]:
        """Several pieces of one block, None for each that it did not leave: one look at its index."""
        path = self._path(name, block)
        try:
            with at(path).open("rb") as file:
                index = _index(file, path, f"{name}/{block}")
                entries = [_entry(index, key) for key in keys]
                return [entry if entry is None else _read(file, entry, path, key) for key, entry in zip(keys, entries)]
        except _GONE as error:
            raise DamagedError(f"{path}: the exchange of block {block} is gone; run again to make it anew") from error

    def get_many(self, name: str, block: int, keys: Sequence[str]) -> list[Array]:
        """Several pieces of one block, all of which it must have left: one look at its index."""
        found = self.find(name, block, keys)
        missing = [key for key, piece in zip(keys, found, strict=True) if piece is None]
        if missing:
            raise DamagedError(
                f"{self._path(name, block)}: pieces of block {block} are gone ({', '.join(missing)}); run again to "
                "make them anew"
            )
        return [piece for piece in found if piece is not None]

    def get_all(self, name: str, block: int) -> dict[str, Array]:
        """Every piece that the block left under the name."""
        path = self._path(name, block)
        try:
            with at(path).open("rb") as file:
                index = _index(file, path, f"{name}/{block}").decode()
                lines = (line.partition("\t") for line in index.split("\n") if line)
                return {key: _read(file, json.loads(entry), path, key) for key, _, entry in lines}
        except _GONE as error:
            raise DamagedError(f"{path}: the exchange of block {block} is gone; run again to make it anew") from error

    def has(self, name: str, block: int) -> bool:
        """Whether (name, block) was written."""
        return at(self._path(name, block)).is_file()

    def drop(self, *names: str) -> None:
        """Delete everything under the names."""
        for name in names:
            remove(f"{self.root}/{name}")

    def clear(self) -> None:
        """Delete the whole exchange."""
        remove(self.root)

    def _path(self, name: str, block: int) -> str:
        if not name or "/" in name or name.startswith("."):
            raise InputError(f"{name!r} cannot name an exchange")
        return f"{self.root}/{name}/{block}"


def _write(file: Any, pieces: Mapping[str, Array], place: str) -> None:
    import google_crc32c

    lines, position = [""], 0
    for key, piece in pieces.items():
        array = np.ascontiguousarray(piece)
        data = array.reshape(-1).view(np.uint8)
        lines.append(f"{key}\t{json.dumps((position, array.dtype.str, piece.shape, google_crc32c.value(data)))}")
        file.write(data)
        position += array.nbytes
    text = "\n".join([*lines, ""]).encode()
    file.write(text)
    file.write(_FOOTER.pack(len(text), google_crc32c.value(text + place.encode()), _MAGIC))


def _index(file: Any, path: str, place: str) -> bytes:
    """The lines of the index, with a line break before the first and behind the last.

    Its checksum is over them and the place that the file was written for, so that two files cannot be swapped.
    """
    import google_crc32c

    try:
        file.seek(-_FOOTER.size, os.SEEK_END)
        length, crc, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        file.seek(-_FOOTER.size - length, os.SEEK_END)
        text: bytes = file.read(length)
        if magic != _MAGIC or google_crc32c.value(text + place.encode()) != crc:
            raise ValueError("its index is damaged")
        return text
    except BigembedError:
        raise
    except (ValueError, OSError, struct.error) as error:
        raise DamagedError(f"{path}: not readable as a file of pieces: {error}") from error


def _entry(index: bytes, key: str) -> Entry | None:
    head = f"\n{key}\t".encode()
    line = index.find(head)
    if line < 0:
        return None
    start = line + len(head)
    return json.loads(index[start : index.index(b"\n", start)])  # type: ignore[no-any-return]


def _read(file: Any, entry: Entry, path: str, key: str) -> Array:
    import google_crc32c

    position, dtype, shape, crc = entry
    array = np.empty(shape, dtype)
    if not array.size:
        return array
    file.seek(position)
    data = array.reshape(-1).view(np.uint8)
    if file.readinto(data) != array.nbytes or google_crc32c.value(data) != crc:
        raise DamagedError(f"{path}: piece {key!r} does not have its checksum")
    return array
