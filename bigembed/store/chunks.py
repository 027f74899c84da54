"""Chunks of whole rows of a local Zarr array, decoded by the thread that asks for them.

Zarr decodes on one event loop a process, so threads that read wait for each other. The layout that rows
usually have (chunks as wide as the array, in shards or not, compressed by Blosc or Zstandard or not, with or without
CRC-32C) is read here, byte for byte as zarr does; any other one, and any other store, is left to zarr.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc, zstd

from bigembed.blocks.rows import Array

ABSENT = 2**64 - 1
"""In the index of a shard: a chunk that was not written, because it holds nothing but the fill value."""
ENTRY, CHECKSUM = 16, 4

Decode = Callable[[bytes, Array], Any]
"""From the stored bytes of a chunk into its rows, given as uint8."""


@dataclass(frozen=True)
class RowChunks:
    """Where the rows of an array lie, and how a chunk is undone."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: int
    """Of a chunk."""
    chunks: int
    """In a shard; 0 where each chunk is a file."""
    checked: bool
    """Whether a CRC-32C stands behind each chunk."""
    decode: Decode
    file: Callable[[int], str]
    """Path of a shard, or of a chunk, by number."""
    fill: Any

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``; ValueError where they are not as they were written."""
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if not out.size:
            return out
        first, last, each = start // self.rows, -(-stop // self.rows), max(1, self.chunks)
        for number in range(first // each, -(-last // each)):
            wanted = range(max(first, number * each), min(last, (number + 1) * each))
            with _opened(self.file(number)) as file:
                places = self._places(file, number, wanted)
                for chunk, (at, length) in zip(wanted, places, strict=True):
                    self._put(out, start, stop, chunk, self._stored(file, at, length, chunk))
        return out

    def take(self, rows: Array) -> Array:
        """Some rows, ascending, each once; every chunk that holds some of them is decoded once."""
        chunk = rows // self.rows
        first = np.flatnonzero(np.diff(chunk, prepend=-1))
        parts = []
        for some in np.split(rows, first[1:]):
            low = int(some[0]) // self.rows * self.rows
            parts.append(self.read(low, min(low + self.rows, self.shape[0]))[some - low])
        return np.concatenate(parts)

    def _places(self, file: int, number: int, wanted: range) -> list[tuple[int, int]]:
        """Position and length of the wanted chunks in a file; the position of one that is absent is ABSENT."""
        if file < 0:
            return [(ABSENT, 0)] * len(wanted)
        size = os.fstat(file).st_size
        if not self.chunks:
            return [(0, size)]
        length = ENTRY * self.chunks + CHECKSUM
        index = os.pread(file, length, max(0, size - length))
        _check(index[:-CHECKSUM], index[-CHECKSUM:], f"index of shard {number}", length - CHECKSUM)
        table = np.frombuffer(index[:-CHECKSUM], "<u8").reshape(-1, 2).tolist()
        return [tuple(table[chunk - number * self.chunks]) for chunk in wanted]

    def _stored(self, file: int, at: int, length: int, chunk: int) -> bytes | None:
        """The bytes of a chunk, checked; None if it is absent."""
        if at == ABSENT:
            return None
        size = length - CHECKSUM if self.checked else length
        body = os.pread(file, size, at)
        if self.checked:
            _check(body, os.pread(file, CHECKSUM, at + size), f"chunk {chunk}", size)
        return body

    def _put(self, out: Array, start: int, stop: int, chunk: int, stored: bytes | None) -> None:
        """Decode a chunk into the rows ``start:stop`` that ``out`` holds."""
        low, high = chunk * self.rows, (chunk + 1) * self.rows
        part = slice(max(low, start), min(high, stop))
        target = out[part.start - start : part.stop - start]
        if stored is None:
            target[...] = self.fill
            return
        whole = len(target) == self.rows
        rows = target if whole else np.empty((self.rows, *self.shape[1:]), self.dtype)
        self.decode(stored, rows.reshape(-1).view(np.uint8))
        if not whole:
            target[...] = rows[part.start - low : part.stop - low]


def row_chunks(array: Any, path: str) -> RowChunks | None:
    """How the rows of a local zarr array are read here; None if zarr has to."""
    from zarr.codecs import ShardingCodec

    metadata, dtype = array.metadata, np.dtype(array.dtype)
    if metadata.zarr_format != 3 or not array.ndim or array.chunks[1:] != array.shape[1:] or 0 in array.shape:
        return None
    codecs, chunks = tuple(metadata.codecs), 0
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        if not _plain_index(codecs[0]):
            return None
        codecs, chunks = tuple(codecs[0].codecs), array.shards[0] // array.chunks[0]
    undone = _undone(codecs, dtype)
    if undone is None:
        return None
    checked, decode = undone
    file = partial(_file, path, metadata, len(array.shape))
    return RowChunks(array.shape, dtype, array.chunks[0], chunks, checked, decode, file, array.fill_value)


def _plain_index(codec: Any) -> bool:
    """Whether the index of a shard is what everybody writes: at its end, little-endian, with a checksum."""
    from zarr.codecs import BytesCodec, Crc32cCodec

    ordered, *rest = codec.index_codecs
    little = isinstance(ordered, BytesCodec) and _word(ordered.endian) in (None, "little")
    return little and [type(part) for part in rest] == [Crc32cCodec] and _word(codec.index_location) == "end"


def _word(option: Any) -> str | None:
    """An option of a codec: text, or before zarr 3.4 a member of an enumeration; None where it has no meaning."""
    word: str | None = getattr(option, "value", option)
    return word


def _undone(codecs: tuple[Any, ...], dtype: np.dtype[Any]) -> tuple[bool, Decode] | None:
    """Whether chunks are checksummed, and what undoes their codecs; None for others than these."""
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ZstdCodec

    known: dict[type, Decode] = {BloscCodec: blosc.decompress, ZstdCodec: zstd.decompress}
    ordered, *rest = codecs
    little = isinstance(ordered, BytesCodec) and _word(ordered.endian) in (None, "little")
    if dtype.kind not in "biuf" or not little or dtype != dtype.newbyteorder("<"):
        return None
    checked = bool(rest) and isinstance(rest[-1], Crc32cCodec)
    inner = rest[:-1] if checked else rest
    if not inner:
        return checked, _copy
    return (checked, known[type(inner[0])]) if len(inner) == 1 and type(inner[0]) in known else None


def _file(path: str, metadata: Any, ndim: int, number: int) -> str:
    return f"{path}/{metadata.encode_chunk_key((number, *(0 for _ in range(ndim - 1))))}"


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """A file descriptor to read from; −1 if there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield -1
        return
    try:
        yield file
    finally:
        os.close(file)


def _check(body: bytes, checksum: bytes, what: str, size: int) -> None:
    if len(body) != size or len(checksum) != CHECKSUM:
        raise ValueError(f"{what} is cut off")
    if google_crc32c.value(body) != int.from_bytes(checksum, "little"):
        raise ValueError(f"{what} does not have its checksum")


def _copy(stored: bytes, rows: Array) -> None:
    if len(stored) != rows.nbytes:
        raise ValueError(f"a chunk holds {len(stored)} bytes, not {rows.nbytes}")
    rows[...] = np.frombuffer(stored, np.uint8)
