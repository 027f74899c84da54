"""Chunks of whole rows of a Zarr array, decoded by the thread that asks for them.

Zarr decodes on one event loop a process, so threads that read wait for each other. The layout that rows
usually have (chunks as wide as the array, in shards or not, compressed by Blosc or Zstandard or not, with or without
CRC-32C) is read here, byte for byte as zarr does; any other one is left to zarr. In an object store the chunks of a
shard that lie together are one request, where zarr makes one of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import google_crc32c
import numpy as np
from numcodecs import blosc, zstd

from bigembed.runtime.blocks import Array
from bigembed.store import at, is_url
from bigembed.store.objects import ObjectPath

ABSENT = 2**64 - 1
"""In the index of a shard: a chunk that was not written, because it holds nothing but the fill value."""
ENTRY, CHECKSUM = 16, 4
GAP = 64 << 10
"""Bytes that are fetched and not used rather than asking again."""
FETCH = 16 << 20
"""Bytes of one request at the most, unless one chunk has more: what a task holds in addition to its rows."""
READ_BYTES = 1 << 30
"""Bytes that one call reads at the most: Linux returns no more than 2³¹ − 4096, however many are asked for."""

Buffer = bytes | Array
Decode = Callable[[Buffer, Array], Any]
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
    sealed: Array | None = None
    """Checksums that each chunk may have (1 or 2, chunks), of sealed rows: see :mod:`bigembed.store.metadata`."""

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``; ValueError where they are not as they were written."""
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if not out.size:
            return out
        first, last, each = start // self.rows, -(-stop // self.rows), max(1, self.chunks)
        for number in range(first // each, -(-last // each)):
            wanted = range(max(first, number * each), min(last, (number + 1) * each))
            with _opened(self.file(number)) as file:
                places = self._found(file, number, wanted)
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

    def checksums(self, first: int, stop: int) -> Array:
        """What stands behind the chunks ``first:stop``; ValueError where one is absent or cut off."""
        out, each = np.empty(max(0, stop - first), "<u4"), max(1, self.chunks)
        for number in range(first // each, -(-stop // each)):
            wanted = range(max(first, number * each), min(stop, (number + 1) * each))
            with _opened(self.file(number)) as file:
                for chunk, (at, length) in zip(wanted, self._found(file, number, wanted), strict=True):
                    if at == ABSENT or file is None:
                        raise ValueError(f"chunk {chunk} is absent")
                    found = bytes(file.read(at + length - CHECKSUM, CHECKSUM)) if length >= CHECKSUM else b""
                    if len(found) != CHECKSUM:
                        raise ValueError(f"chunk {chunk} is cut off")
                    out[chunk - first] = int.from_bytes(found, "little")
        return out

    def prove(self, start: int, stop: int) -> None:
        """ValueError unless the chunks of rows ``start:stop`` are those sealed; for callers that decode otherwise."""
        if self.sealed is not None and start < stop:
            first, last = start // self.rows, -(-stop // self.rows)
            for chunk, found in enumerate(self.checksums(first, last).tolist(), first):
                self._require(chunk, found)

    def _require(self, chunk: int, checksum: int) -> None:
        if self.sealed is not None and (chunk >= self.sealed.shape[1] or checksum not in self.sealed[:, chunk]):
            raise ValueError(f"chunk {chunk} is another one than was written there (an older one, or one moved)")

    def _found(self, file: Content | None, number: int, wanted: range) -> list[tuple[int, int]]:
        """Positions and lengths of the wanted chunks, ABSENT for missing ones; what will be read is announced."""
        try:
            places = [(ABSENT, 0)] * len(wanted) if file is None else self._places(file, number, wanted)
        except FileNotFoundError:  # (an object is opened when it is read)
            return [(ABSENT, 0)] * len(wanted)
        if file is not None:
            file.expect([place for place in places if place[0] != ABSENT])
        return places

    def _places(self, file: Content, number: int, wanted: range) -> list[tuple[int, int]]:
        """Position and length of the wanted chunks in a file; the position of one that is absent is ABSENT."""
        if not self.chunks:
            return [(0, file.size())]
        length = ENTRY * self.chunks + CHECKSUM
        index = file.tail(length)  # (shorter where the file is)
        _check(index[:-CHECKSUM], index[-CHECKSUM:], f"index of shard {number}", length - CHECKSUM)
        table = np.frombuffer(index[:-CHECKSUM], "<u8").reshape(-1, 2).tolist()
        return [tuple(table[chunk - number * self.chunks]) for chunk in wanted]

    def _stored(self, file: Content | None, at: int, length: int, chunk: int) -> Buffer | None:
        """The bytes of a chunk, checked; None if it is absent."""
        if at == ABSENT or file is None:
            if self.sealed is not None:
                raise ValueError(f"chunk {chunk} is absent")
            return None
        size = max(0, length - CHECKSUM) if self.checked else length
        body = file.read(at, size)
        if self.checked:
            checksum = file.read(at + size, CHECKSUM)
            _check(body, checksum, f"chunk {chunk}", size)
            self._require(chunk, int.from_bytes(bytes(checksum), "little"))
        return body

    def _put(self, out: Array, start: int, stop: int, chunk: int, stored: Buffer | None) -> None:
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


def row_chunks(array: Any, path: str, sealed: Array | None = None) -> RowChunks | None:
    """How the rows of a zarr array are read here; None if zarr has to."""
    if (found := _layout(array)) is None or (undone := _undone(found[0], np.dtype(array.dtype))) is None:
        return None
    return _row_chunks(array, path, found[1], undone, sealed)


def checksummed(array: Any, path: str, sealed: Array | None = None) -> RowChunks | None:
    """The chunks of an array, to read their checksums, whatever their other codecs; None if they have no checksums."""
    from zarr.codecs import Crc32cCodec

    found = _layout(array)
    if found is None or not isinstance(found[0][-1], Crc32cCodec):
        return None
    return _row_chunks(array, path, found[1], (True, copied), sealed)


def _layout(array: Any) -> tuple[tuple[Any, ...], int] | None:
    """Codecs of a chunk, and chunks in a shard, of an array in chunks of whole rows; None for others."""
    from zarr.codecs import ShardingCodec

    metadata = array.metadata
    if metadata.zarr_format != 3 or not array.ndim or array.chunks[1:] != array.shape[1:] or 0 in array.shape:
        return None
    codecs, chunks = tuple(metadata.codecs), 0
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        if not _plain_index(codecs[0]):
            return None
        codecs, chunks = tuple(codecs[0].codecs), array.shards[0] // array.chunks[0]
    return codecs, chunks


def _row_chunks(array: Any, path: str, chunks: int, undone: tuple[bool, Decode], sealed: Array | None) -> RowChunks:
    file = partial(_file, path, array.metadata, len(array.shape))
    return RowChunks(
        array.shape, np.dtype(array.dtype), array.chunks[0], chunks, *undone, file, array.fill_value, sealed
    )


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

    known: dict[type, Decode] = {
        BloscCodec: partial(unpack, blosc.decompress),
        ZstdCodec: partial(unpack, zstd.decompress),
    }
    ordered, *rest = codecs
    little = isinstance(ordered, BytesCodec) and _word(ordered.endian) in (None, "little")
    if dtype.kind not in "biuf" or not little or dtype != dtype.newbyteorder("<"):
        return None
    checked = bool(rest) and isinstance(rest[-1], Crc32cCodec)
    inner = rest[:-1] if checked else rest
    if not inner:
        return checked, copied
    return (checked, known[type(inner[0])]) if len(inner) == 1 and type(inner[0]) in known else None


def _file(path: str, metadata: Any, ndim: int, number: int) -> str:
    return f"{path}/{metadata.encode_chunk_key((number, *(0 for _ in range(ndim - 1))))}"


class Content(Protocol):
    """The bytes of a shard, or of a chunk."""

    def size(self) -> int:
        """How many there are."""
        ...

    def tail(self, length: int) -> bytes:
        """The last ones."""
        ...

    def expect(self, places: Sequence[tuple[int, int]]) -> None:
        """What will be read: positions and lengths."""
        ...

    def read(self, at: int, length: int) -> Buffer:
        """Some of them; fewer where they end."""
        ...


@dataclass(frozen=True)
class LocalContent:
    """The bytes of an open file."""

    file: int

    def size(self) -> int:
        return os.fstat(self.file).st_size

    def tail(self, length: int) -> bytes:
        return self.read(max(0, self.size() - length), length)

    def expect(self, places: Sequence[tuple[int, int]]) -> None:
        """Nothing: any part is read at once."""

    def read(self, at: int, length: int) -> bytes:
        there = min(length, self.size() - at)  # (a damaged index may claim any length)
        parts = range(at, at + there, READ_BYTES)
        return b"".join(os.pread(self.file, min(READ_BYTES, at + there - part), part) for part in parts)


class RemoteContent:
    """Of an object: what is expected is fetched in few requests, one after another."""

    def __init__(self, path: ObjectPath) -> None:
        self.path = path
        self._whole: bytes | None = None
        self._spans: list[tuple[int, int]] = []
        self._held: tuple[int, Array] = 0, np.empty(0, np.uint8)

    def size(self) -> int:
        if self._whole is None:  # (asked of a chunk that is an object: all of it will be read)
            self._whole = self.path.read_bytes()
        return len(self._whole)

    def tail(self, length: int) -> bytes:
        return self.path.tail(length)

    def expect(self, places: Sequence[tuple[int, int]]) -> None:
        self._spans = joined(places)

    def read(self, at: int, length: int) -> Buffer:
        if self._whole is not None:
            return self._whole[at : at + length]
        first, part = self._held
        if not first <= at < first + len(part):
            first, count = next(span for span in reversed(self._spans) if span[0] <= at)
            part = np.frombuffer(self.path.range(first, count), np.uint8)
            self._held = first, part
        return part[at - first : at - first + length]


def joined(places: Sequence[tuple[int, int]], most: int = FETCH) -> list[tuple[int, int]]:
    """Positions and lengths, those next to each other (or nearly) as one, up to a length.

    >>> joined([(100, 50), (0, 100), (1 << 20, 5), ((1 << 20) + 5, 7)], most=1000)
    [(0, 150), (1048576, 12)]
    """
    spans: list[tuple[int, int]] = []
    for first, length in sorted(places):
        low, count = spans[-1] if spans else (0, 0)
        if spans and first - (low + count) <= GAP and first + length - low <= most:
            spans[-1] = low, max(count, first + length - low)
        else:
            spans.append((first, length))
    return spans


@contextmanager
def _opened(path: str) -> Iterator[Content | None]:
    """A shard, or a chunk, to read from; None if it does not exist."""
    if is_url(path) and isinstance(place := at(path), ObjectPath):
        yield RemoteContent(place)
        return
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # (nobody waits for a pipe)
    except FileNotFoundError:
        yield None
        return
    try:
        yield LocalContent(file)
    finally:
        os.close(file)


def _check(body: Buffer, checksum: Buffer, what: str, size: int) -> None:
    if len(body) != size or len(checksum) != CHECKSUM:
        raise ValueError(f"{what} is cut off")
    if google_crc32c.value(body) != int.from_bytes(bytes(checksum), "little"):
        raise ValueError(f"{what} does not have its checksum")


def copied(stored: Buffer, rows: Array) -> None:
    """Undo no codec."""
    if len(stored) != rows.nbytes:
        raise ValueError(f"a chunk holds {len(stored)} bytes, not {rows.nbytes}")
    rows[...] = np.frombuffer(stored, np.uint8)


def unpack(undo: Decode, stored: Buffer, rows: Array) -> None:
    """Decompress what must fill the rows: a library takes what is shorter, too, and leaves the rest as it was."""
    try:
        undo(stored, rows[:-1])  # (which is too small, and found so before anything is decompressed)
    except (ValueError, RuntimeError):
        undo(stored, rows)
        return
    raise ValueError(f"a chunk holds fewer than {rows.nbytes} bytes")
