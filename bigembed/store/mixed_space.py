"""Block vectors in the memory of one process as far as there is room, and the others in a file of its own.

Sweeps are those of vectors in memory, on threads of this process, and so are checkpoints, since no other process sees
the file. What is where changes no byte of a result.

The file is written over and over: nothing is created, and nothing deleted, before the end. Where a file system tells
its device of every deleted block (mounted with ``discard``), to delete what was written takes as long as to write it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime import reads, writes
from bigembed.runtime.blocks import Array
from bigembed.store import remove
from bigembed.store.matrix import take_halo
from bigembed.store.vector_space import MemorySpace, Sweep, Written

PAGE = mmap.ALLOCATIONGRANULARITY
"""Bytes that places in the file are a multiple of."""
OUTBOX = "outbox"
"""Third part of the key of the rows of a block that other blocks need."""


class SpillFile:
    """Arrays by key in a file of this process. The place of one that is dropped goes to those that come after it."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.path, self.end, self.lock = path, 0, Lock()
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.file)
        self.places: dict[Any, tuple[int, np.dtype[Any], tuple[int, ...]]] = {}
        self.free: list[tuple[int, int]] = []
        """Where places are free, ascending, and their bytes; no two touch."""

    def __contains__(self, key: Any) -> bool:
        return key in self.places

    @writes
    def put(self, key: Any, array: Array) -> None:
        """Write an array."""
        array = np.ascontiguousarray(array)
        self.drop(key)
        with self.lock:
            place = self._take(_whole_pages(array.nbytes))
            self.places[key] = place, array.dtype, array.shape
        data, done = memoryview(array.reshape(-1).view(np.uint8).data), 0
        try:
            while done < array.nbytes:
                done += os.pwrite(self.file, data[done:], place + done)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error

    @reads
    def get(self, key: Any, start: int = 0, stop: int | None = None) -> Array:
        """Return an array, or its rows ``start:stop``, in memory of its own."""
        place, dtype, shape = self.places[key]
        array = np.empty(((shape[0] if stop is None else stop) - start, *shape[1:]), dtype)
        place += start * dtype.itemsize * int(np.prod(shape[1:]))
        data, done = memoryview(array.reshape(-1).view(np.uint8).data), 0
        while done < array.nbytes:
            read = _read_into(data[done:], self.file, place + done)
            if not read:
                raise OSError(f"{self.path}: the file was cut off while it was in use")
            done += read
        return array

    @reads
    def rows(self, key: Any, rows: Array) -> Array:
        """Return some rows of an array: only the pages on which they lie are touched."""
        place, dtype, shape = self.places[key]
        size = dtype.itemsize * int(np.prod(shape))
        if not size:
            return np.empty((len(rows), *shape[1:]), dtype)
        with mmap.mmap(self.file, size, access=mmap.ACCESS_READ, offset=place) as mapped:
            whole = np.ndarray(shape, dtype, mapped)
            found = whole[rows]
            del whole
        return found

    def drop(self, key: Any) -> None:
        """Forget an array, if it is there."""
        with self.lock:
            if (found := self.places.pop(key, None)) is not None:
                place, dtype, shape = found
                self._give_back(place, _whole_pages(dtype.itemsize * int(np.prod(shape))))

    def delete(self) -> None:
        """Delete the file. Tasks that are still at work, since another one has failed, may go on with what is left."""
        remove(self.path)
        os.ftruncate(self.file, 0)

    def _take(self, size: int) -> int:
        """The first free place of so many bytes, or one at the end."""
        for number, (place, there) in enumerate(self.free):
            if there >= size:
                self.free[number : number + 1] = [(place + size, there - size)] if there > size else []
                return place
        place, self.end = self.end, self.end + size
        return place

    def _give_back(self, place: int, size: int) -> None:
        """Free a place, joined with those that it touches."""
        number = bisect_left(self.free, (place, 0))
        if number < len(self.free) and self.free[number][0] == place + size:
            size += self.free.pop(number)[1]
        if number and sum(self.free[number - 1]) == place:
            before = self.free.pop(number - 1)
            place, size = before[0], before[1] + size
        if size:
            insort(self.free, (place, size))


def _read_into(data: memoryview, file: int, place: int) -> int:
    """Read bytes at a place of a file, and return how many; a system that cannot do so without a copy makes one."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [data], place)
    found = os.pread(file, len(data), place)
    data[: len(found)] = found
    return len(found)


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


@dataclass
class MixedSpace(MemorySpace):
    """The space of block vectors over the rows of a matrix, of which arrays of ``room`` bytes are in memory.

    Arrays that its tasks are at work on come on top. Unlike in the other spaces, what a sweep writes is visible before
    it ends: so none of it may be among its halos.
    """

    spill: SpillFile = field(kw_only=True)
    """The other arrays, and of posted vectors among them, in one array a block, the rows that other blocks need."""
    room: int = field(kw_only=True)
    taken: int = 0
    """Bytes in memory."""
    cuts: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict, repr=False)
    """Of each block, where the rows that another one needs lie in the array of all that others need."""
    lock: Any = field(default_factory=Lock, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of all vectors."""
        return list(dict.fromkeys(key[0] for key in [*self.arrays, *self.spill.places]))

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector."""
        return self.spill.get((name, block)) if (name, block) in self.spill else super().read(name, block)

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector."""
        self._keep(self._fitting({(name, block): array}, [], ()))
        self.posted.discard(name)

    def drop(self, *names: str) -> None:
        """Forget vectors."""
        self.taken -= sum(array.nbytes for (name, _), array in self.arrays.items() if name in names)
        super().drop(*names)
        for key in [key for key in self.spill.places if key[0] in names]:
            self.spill.drop(key)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Delete the file."""
        self.spill.delete()

    def walk(self, sweep: Sweep) -> list[Any]:
        """Walk over all blocks once, the largest first."""
        if both := set(sweep.halos) & set(sweep.writes):
            raise InputError(f"a sweep of this space may not write vectors whose halos it reads: {sorted(both)}")
        return super().walk(sweep)

    def _task(self, block: int, sweep: Sweep) -> tuple[Written, Any]:
        spent = [self.arrays.get((name, block)) for name in sweep.spends]
        written, result = super()._task(block, sweep)
        for name in sweep.spends:  # (what is in the file was read by now: results take its place there)
            self._forget(name, block)
        return self._fitting(written, [array for array in spent if array is not None], sweep.posts), result

    def _fitting(self, written: Written, spent: list[Array], posts: tuple[str, ...]) -> Written:
        """Write what does not fit into memory to the file, and return the rest.

        The room that is spent is given back with that: so a block stays where it is from one generation of vectors to
        the next.
        """
        fitting: Written = {}
        with self.lock:
            replaced = [self.arrays.pop(key) for key in written if key in self.arrays]
            self.taken -= sum(array.nbytes for array in [*spent, *replaced])
            for key, array in written.items():
                if self.taken + array.nbytes <= self.room:
                    self.taken += array.nbytes
                    fitting[key] = array
        for (name, block), array in written.items():
            self._forget(name, block)
            if (name, block) not in fitting:
                self.spill.put((name, block), array)
                if name in posts:
                    self._post(name, block, array)
        return fitting

    def _post(self, name: str, block: int, array: Array) -> None:
        """Write the rows that other blocks need."""
        outbox = [] if self.matrix is None else self.matrix.outbox(block)
        if outbox:
            ends = np.cumsum([0, *(len(rows) for _, rows in outbox)]).tolist()
            self.cuts[block] = {other: (start, end) for (other, _), start, end in zip(outbox, ends, ends[1:])}
            self.spill.put((name, block, OUTBOX), array[np.concatenate([rows for _, rows in outbox])])

    def _forget(self, name: str, block: int) -> None:
        """Drop from the file what it has of a block."""
        self.spill.drop((name, block))
        self.spill.drop((name, block, OUTBOX))

    def _halo(self, name: str, block: int) -> Array:
        if self.matrix is None:
            return super()._halo(name, block)
        stored = self.matrix.block(block)
        nothing = np.empty(0) if len(stored.halo_rows) else self.read(name, block)[:0]
        return take_halo(stored, nothing, lambda source, rows: self._rows(name, source, rows, block))

    def _rows(self, name: str, source: int, rows: Array, block: int) -> Array:
        """Return the rows of a block that another one needs."""
        if (name, source, OUTBOX) in self.spill:
            return self.spill.get((name, source, OUTBOX), *self.cuts[source][block])
        if (name, source) in self.spill:
            return self.spill.rows((name, source), rows)
        return super().read(name, source)[rows]
