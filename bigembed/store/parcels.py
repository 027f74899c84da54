"""Parcels: what every block has for every other one, read by offset; and sparse rows as arrays that exchanges hold."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import mul
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from scipy import sparse

from bigembed.errors import DamagedError
from bigembed.runtime import reads, writes
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.store import at, is_url, put, remove, remove_file, replacing
from bigembed.store.exchange import Exchange, reading

# --------------------------------------------------------------------------------------------------------- parcels
# Parcels: what every block has for every other one, read by offset, in files whose number stays linear in the blocks.
#
# Rows in any order go to all blocks (their partitions, the blocks of an output): a sender leaves one file, its arrays
# in the order of the receivers, and at the end an index. A receiver opens each sender's file, so many senders are first
# merged, :data:`SENDERS` files at most, each in the order of the receivers again.
#
#     parcel · parcel · …
#     entries: receiver, position, checksum, rows of each array; of those receivers alone that get something
#     groups: for every :data:`GROUP` receivers the entries from theirs to the end, counted; their CRC-32C
#     names, dtypes and shapes of the arrays, as JSON
#     footer: four letters, length of the JSON, number of receivers
#
# A parcel has one CRC-32C, over the place that it was written for, its sizes and its bytes. Of most blocks in some
# order most receivers get nothing, and of a shuffled input each gets a few rows: two blocks that have nothing for each
# other cost half a byte, their share of a group, and the rest of the index grows with the rows.
#
# What few blocks have for few others goes through pieces of the exchange, whose receivers a map returns.

SENDERS = 256
"""Files that a receiver opens, at most: more of them take longer than reading and writing the rows once more."""
MERGED_BYTES = 8 << 20
"""Bytes of all senders that a merge holds."""
GROUP = 16
"""Consecutive receivers whose entries are read together, and share a checksum."""
_FOOTER = struct.Struct("<4sII")
_GROUP = struct.Struct("<iI")
_MAGIC = b"bep3"

Types = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Dtype of each array, and its shape without the rows."""
Columns = Mapping[str, tuple[Array, Array]]
"""Arrays in the order of their receivers, by name, each with where every receiver's part begins, and its length."""


def by_receiver(receivers: Array, count: int) -> tuple[Array, Array]:
    """The order that sorts rows by receiver, stable, and where each receiver's begin: (m,), (count + 1,) int64.

    >>> order, starts = by_receiver(np.array([2, 0, 2]), 3)
    >>> order.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1, 1, 3])
    """
    order = np.argsort(receivers.astype(np.min_scalar_type(count)), kind="stable")  # narrow: a radix sort
    return order, np.concatenate([[0], np.cumsum(np.bincount(receivers, minlength=count))]).astype(np.int64)


def send(exchange: Exchange, name: str, sender: int, columns: Columns) -> None:
    """Leave every receiver its part of each array; replaces what the sender left before."""
    edges = [np.asarray(part, np.int64) for _, part in columns.values()]
    rows = np.stack([np.diff(edge) for edge in edges], axis=1)
    types = {key: (array.dtype, array.shape[1:]) for key, (array, _) in columns.items()}
    content = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array, _ in columns.values()]
    places = np.stack([edge * width for edge, width in zip(edges, _widths(types), strict=True)], axis=1)
    some = np.flatnonzero(rows.any(axis=1))
    _leave(exchange, name, sender, types, len(rows), some, rows[some], places[some], content)


@writes
def _leave(
    exchange: Exchange,
    name: str,
    sender: int,
    types: Types,
    receivers: int,
    some: Array,
    rows: Array,
    places: Array,
    content: list[Array],
) -> None:
    """Write the file of a sender: for some of the receivers so many rows, which begin there in the content."""
    data, ends = [array.data for array in content], places + rows * _widths(types)
    spans = zip(places.tolist(), ends.tolist(), strict=True)
    parts = ([part[low:high] for part, low, high in zip(data, *span, strict=True)] for span in spans)
    with _writing(exchange, name, sender, types, receivers) as write:
        write(some, rows, map(b"".join, parts))


@dataclass(frozen=True)
class Delivery:
    """What all senders have for all receivers."""

    exchange: Exchange
    name: str
    files: int

    @reads
    def to(self, receiver: int) -> dict[str, Array]:
        """What there is for one receiver, in the order of the senders, by name."""
        parts: list[list[Array]] = []
        for number in range(self.files):
            with _opened(self.exchange, self.name, number) as file:
                parts += file.arrays(receiver, receiver + 1).values() or [file.nothing]
        return {key: np.concatenate(column) for key, column in zip(file.columns, zip(*parts, strict=True), strict=True)}

    def parts(self, first: int, stop: int) -> Iterator[list[dict[str, Array]]]:
        """What each file of senders has for the receivers ``first`` to one before ``stop``, by name."""
        for number in range(self.files):
            yield self._read(number, first, stop)

    @reads
    def _read(self, number: int, first: int, stop: int) -> list[dict[str, Array]]:
        with _opened(self.exchange, self.name, number) as file:
            found, nothing = file.arrays(first, stop), file.nothing
            names = list(file.columns)
            return [dict(zip(names, found.get(place, nothing), strict=True)) for place in range(first, stop)]

    def drop(self) -> None:
        """Delete it."""
        self.exchange.drop(self.name)


def transfer_count(senders: int) -> int:
    """How often what so many send is written and read: twice where their files are merged."""
    return 1 + (senders > SENDERS)


def merge_parcels(exchange: Exchange, name: str, senders: int) -> Delivery:
    """What all senders left; files of consecutive ones are merged where there are more than :data:`SENDERS`."""
    runs, merged = bounds(senders, -(-senders // SENDERS)), f"{name}-merged"
    exchange.drop(merged)
    if len(runs) == senders:
        return Delivery(exchange, name, senders)
    map_blocks(merge_senders, list(enumerate(runs)), label=f"merge_{name}", name=name, into=merged, exchange=exchange)
    return Delivery(exchange, merged, len(runs))


def merge_senders(number: int, run: tuple[int, int], *, name: str, into: str, exchange: Exchange) -> None:
    """The parcels of senders ``run`` as those of one, with the parts of each receiver in the order of the senders."""
    if exchange.has(into, number):  # (a task that is run again: what it read is deleted)
        return
    size = sum(_bytes_left(exchange, name, sender) for sender in range(*run))
    with _opened(exchange, name, run[0]) as file:
        columns, receivers = file.columns, file.receivers
    with _writing(exchange, into, number, columns, receivers) as write:
        for first, stop in bounds(receivers, max(1, receivers * MERGED_BYTES // size)):
            rows = np.zeros((stop - first, len(columns)), np.int64)
            parts: dict[int, list[list[bytes]]] = {}
            for sender in range(*run):
                with _opened(exchange, name, sender) as file:
                    for receiver, counts, content in file.parcels(first, stop):
                        rows[receiver - first] += counts
                        parts.setdefault(receiver, []).append(content)
            some = np.array(sorted(parts), np.int64)
            together = (chain.from_iterable(zip(*parts[receiver], strict=True)) for receiver in some.tolist())
            write(some, rows[some - first], map(b"".join, together))
    for sender in range(*run):
        remove_file(f"{exchange.root}/{name}/{sender}")


Write = Callable[[Array, Array, Iterable[bytes]], None]
"""Writes parcels: the receivers, ascending, and of each the rows of each column, and its bytes."""


@contextmanager
def _writing(exchange: Exchange, name: str, sender: int, columns: Types, receivers: int) -> Iterator[Write]:
    """A function that writes the parcels of some receivers, those behind them with its next call."""
    path = f"{exchange.root}/{name}/{sender}"
    meta = json.dumps([[key, dtype.str, shape] for key, (dtype, shape) in columns.items()]).encode()
    footer = meta + _FOOTER.pack(_MAGIC, len(meta), receivers)
    place, (entry, label) = _place(name, sender, footer), _structs(len(columns))
    entries: list[bytes] = []
    begins = [0] * (_groups(receivers) + 1)

    def writer(file: Any) -> Write:
        def write(some: Array, rows: Array, parts: Iterable[bytes]) -> None:
            position = file.tell()
            for number, counts, part in zip(some.tolist(), rows.tolist(), parts, strict=True):
                crc = _crc(place, label.pack(number, *counts), part)
                entries.append(entry.pack(number, position, crc, *counts))
                begins[number // GROUP + 1] += 1
                file.write(part)
                position += len(part)

        return write

    def finish(file: Any) -> None:
        index = []
        for number, (low, high) in enumerate(pairwise(accumulate(begins))):
            file.write(text := b"".join(entries[low:high]))
            index.append(_GROUP.pack(len(entries) - low, _group_sum(place, number, text)))
        file.write(b"".join([*index, footer]))

    if is_url(path):
        buffer = io.BytesIO()
        yield writer(buffer)
        finish(buffer)
        put(at(path), buffer.getbuffer())
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):  # (damaged)
            remove(path)
        with replacing(Path(path), f"{sender}.{os.getpid()}.partial") as partial, open(partial, "wb") as file:
            yield writer(file)
            finish(file)


@lru_cache(maxsize=16)
def _columns(meta: bytes) -> tuple[Types, list[int]]:
    columns = {key: (np.dtype(dtype), tuple(shape)) for key, dtype, shape in json.loads(meta.decode())}
    return columns, _widths(columns)


def _widths(columns: Types) -> list[int]:
    """Bytes of a row of each."""
    return [dtype.itemsize * int(np.prod(shape)) for dtype, shape in columns.values()]


@lru_cache(maxsize=16)
def _structs(columns: int) -> tuple[struct.Struct, struct.Struct]:
    """An entry of the index: receiver, position, checksum, and the rows of each column; and what goes into the checksum
    beside the bytes: the receiver, and those rows."""
    return struct.Struct(f"<iqI{columns}i"), struct.Struct(f"<{1 + columns}q")


def _place(name: str, sender: int, footer: bytes) -> int:
    """A checksum of who sends what, which goes into that of every parcel: no two can be swapped."""
    return int(google_crc32c.value(f"{name}/{sender}/".encode() + footer))


def _groups(receivers: int) -> int:
    return -(-receivers // GROUP)


def _group_sum(place: int, number: int, entries: bytes) -> int:
    """The checksum of a group's entries."""
    return int(google_crc32c.extend(place, struct.pack("<q", number) + entries))


def _crc(place: int, label: bytes, data: Any) -> int:
    return int(google_crc32c.extend(google_crc32c.extend(place, label), data))


@dataclass(frozen=True)
class _Parcels:
    """The open file of one sender."""

    file: Any
    place: int
    columns: Types
    widths: list[int]
    """Bytes of a row of each."""
    receivers: int
    groups: int
    """Where the groups of the index begin."""

    @property
    def nothing(self) -> list[Array]:
        """The arrays of a receiver for whom there is nothing."""
        return [np.zeros((0, *shape), dtype) for dtype, shape in self.columns.values()]

    def arrays(self, first: int, stop: int) -> dict[int, list[Array]]:
        """The arrays of those of the receivers ``first`` to one before ``stop`` for whom there is something."""
        types = self.columns.values()
        return {
            number: [
                np.frombuffer(part, dtype).reshape(n, *shape)
                for n, part, (dtype, shape) in zip(rows, content, types, strict=True)
            ]
            for number, rows, content in self.parcels(first, stop)
        }

    def parcels(self, first: int, stop: int) -> Iterator[tuple[int, list[int], list[bytes]]]:
        """Of each of these for whom there is something: its number, and the rows and the bytes of each array."""
        label = _structs(len(self.columns))[1]
        some = [found for found in self._entries(first // GROUP, -(-stop // GROUP)) if first <= found[0] < stop]
        if not some:
            return
        begin, widths = some[0][1], self.widths
        _, last, _, *rows = some[-1]
        size = last - begin + sum(map(mul, rows, widths))
        if begin < 0 or size < 0:
            raise ValueError("its index is damaged")
        if begin + size > self.file.seek(0, os.SEEK_END):  # (so far behind it a system may refuse to look)
            raise ValueError("it is cut off, or its index is damaged")
        self.file.seek(begin)
        data = self.file.read(size)
        for number, position, crc, *rows in some:
            places = [*accumulate(map(mul, rows, widths), initial=position - begin)]
            if places[0] < 0 or _crc(self.place, label.pack(number, *rows), data[places[0] : places[-1]]) != crc:
                raise ValueError(f"what it has for block {number} does not have its checksum")
            yield number, rows, [data[low:high] for low, high in pairwise(places)]

    def _entries(self, first: int, stop: int) -> list[tuple[int, ...]]:
        """Those of the groups ``first`` to one before ``stop``, as :func:`_structs` has them, ascending."""
        entry, count = _structs(len(self.columns))[0], _groups(self.receivers)
        self.file.seek(max(0, self.groups + first * _GROUP.size))
        groups = [*_GROUP.iter_unpack(self.file.read((min(stop + 1, count) - first) * _GROUP.size)), (0, 0)]
        self.file.seek(max(0, self.groups - groups[0][0] * entry.size))
        found: list[tuple[int, ...]] = []
        for number, ((left, crc), (behind, _)) in enumerate(pairwise(groups[: stop - first + 1]), first):
            text = self.file.read(max(0, left - behind) * entry.size)
            if _group_sum(self.place, number, text) != crc:
                raise ValueError(f"its index is damaged at block {number * GROUP}")
            found += entry.iter_unpack(text)
        return found


@contextmanager
def _opened(exchange: Exchange, name: str, sender: int) -> Iterator[_Parcels]:
    """The file of one sender; :class:`DamagedError` where it, or what is read of it, is not as it was left."""
    path = f"{exchange.root}/{name}/{sender}"
    try:
        with reading(path, sender), at(path).open("rb") as file:
            end = file.seek(max(0, file.seek(0, os.SEEK_END) - _FOOTER.size))
            fixed = file.read()
            magic, length, receivers = _FOOTER.unpack(fixed)
            if magic != _MAGIC:
                raise ValueError("it does not end like one")
            groups = end - length - _groups(receivers) * _GROUP.size
            file.seek(max(0, end - length))
            meta = file.read(length)
            place, (columns, widths) = _place(name, sender, meta + fixed), _columns(meta)
            yield _Parcels(file, place, columns, widths, receivers, groups)
    except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, struct.error) as error:
        raise DamagedError(f"{path}: not readable as a file of parcels: {error}") from error


def _bytes_left(exchange: Exchange, name: str, sender: int) -> int:
    """Bytes of the file of one sender."""
    path = f"{exchange.root}/{name}/{sender}"
    with reading(path, sender):
        return int(at(path).stat().st_size)


# ---------------------------------------------------------------------------------------------------- sparse parts
# Sparse rows as named arrays of one length each, which the exchange holds and which several blocks' are joined by.

PARTS = ("counts", "indices", "data")


def row_parts(rows: Any, name: str = "rows") -> dict[str, Array]:
    """Dense rows under ``name``; of CSR rows how many entries each has, their columns and their values.

    >>> {key: part.tolist() for key, part in row_parts(sparse.csr_array([[0, 5], [0, 0]])).items()}
    {'rows-counts': [1, 0], 'rows-indices': [1], 'rows-data': [5]}
    """
    if not is_sparse(rows):
        return {name: rows}
    return dict(zip(part_names(name, True), (np.diff(rows.indptr), rows.indices, rows.data), strict=True))


def part_names(name: str, is_csr: bool) -> list[str]:
    """The keys of :func:`row_parts`."""
    return [f"{name}-{part}" for part in PARTS] if is_csr else [name]


def rows_of_parts(parts: Mapping[str, Array], columns: int, name: str = "rows") -> Any:
    """The rows that :func:`row_parts` took apart; ``columns`` of CSR rows."""
    if name in parts:
        return parts[name]
    counts, indices, data = (parts[key] for key in part_names(name, True))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return sparse.csr_array((data, indices, indptr), shape=(len(counts), columns))


def stacked(parts: Sequence[Any]) -> Any:
    """Rows of several parts, dense or CSR, one after another."""
    if is_sparse(parts[0]):
        return parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)
