"""A file of pieces: arrays one behind the other, and at the end a line for each, which says where it lies.

    piece · piece · …
    \\n key \\t [position, dtype, shape, checksum] \\n …
    footer: length of the lines, their CRC-32C, and four letters

The checksum of a piece is the CRC-32C of a row of sums: those of its 64-bit words down the columns of a table
:data:`FOLD` words wide. (A processor adds up 26 GB/s that lie in its cache, and makes a CRC-32C of 8.) What is wrong in
one place, of up to 8 KB, changes as many sums as words, and pages that changed places stand in other columns.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import BigembedError, DamagedError

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
        said = checksum(array.reshape(-1).view(np.uint8), file.write)
        lines.append(f"{key}\t{json.dumps((position, array.dtype.str, np.shape(piece), said))}")
        position += array.nbytes
    text = "\n".join([*lines, ""]).encode()
    file.write(text + _FOOTER.pack(len(text), google_crc32c.value(text + place.encode()), _MAGIC))


def checksum(data: Array, write: Callable[[Any], Any] | None = None) -> int:
    """The checksum of bytes (uint8), each of which ``write`` gets while it is in the processor's cache."""
    sums, rest = _EMPTY, data[:0]
    for start in range(0, len(data), TILE):
        tile = data[start : start + TILE]
        if write is not None:
            write(tile)
        whole = len(tile) - len(tile) % (8 * FOLD)
        sums = sums + np.add.reduce(tile[:whole].view("<u8").reshape(-1, FOLD), axis=0)
        rest = tile[whole:]
    return int(google_crc32c.extend(google_crc32c.value(sums.tobytes()), rest.tobytes()))


def index_of(file: BinaryIO, path: str, place: str) -> bytes:
    """The lines of a file, with a line break before the first and behind the last."""
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
    """The line of a piece; None where there is none."""
    head = f"\n{key}\t".encode()
    line = index.find(head)
    if line < 0:
        return None
    start = line + len(head)
    return json.loads(index[start : index.index(b"\n", start)])  # type: ignore[no-any-return]


def entries_of(index: bytes) -> dict[str, Entry]:
    """All lines."""
    lines = (line.partition("\t") for line in index.decode().split("\n") if line)
    return {key: json.loads(entry) for key, _, entry in lines}


def read_piece(file: BinaryIO, entry: Entry, path: str, key: str) -> Array:
    """A piece, in memory of its own."""
    position, dtype, shape, said = entry
    array = np.empty(shape, dtype)
    if not array.size:
        return array
    file.seek(position)
    data = array.reshape(-1).view(np.uint8)
    if file.readinto(data) != array.nbytes or checksum(data) != said:  # type: ignore[attr-defined]
        raise DamagedError(f"{path}: piece {key!r} does not have its checksum")
    return array


def view_piece(held: Any, entry: Entry, path: str, key: str, proven: bool) -> Array:
    """A piece as it lies in a mapped file (copied if it is not aligned there); ``proven``: it is known to be right."""
    position, dtype, shape, said = entry
    try:
        array = np.empty(shape, dtype) if 0 in shape else np.ndarray(shape, dtype, held, position)
    except TypeError as error:  # (the file ends before it does)
        raise DamagedError(f"{path}: piece {key!r} is cut off") from error
    if array.size and not proven and checksum(array.reshape(-1).view(np.uint8)) != said:
        raise DamagedError(f"{path}: piece {key!r} does not have its checksum")
    return array if array.flags.aligned else array.copy()
