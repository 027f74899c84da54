"""Block vectors in the memory of the workers that made them; what crosses between workers goes through files.

Each block has a home: one worker that holds all its vectors and its rows of the matrix in memory, and runs all tasks on
it. Rows that blocks on other workers need are left in files when a vector is posted, or before the first pass that
reads it; rows that blocks on the same worker need are read where they are. So in an iteration of a solve only the
boundary rows of one vector, in single precision, and the coarse vectors that the coordinating process works on are
moved. The vectors of a worker that dies are lost (:class:`~bigembed.runtime.blocks.LostVectorsError`): the solve goes
on from its last checkpoint.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from bigembed.errors import DamagedError
from bigembed.runtime import using
from bigembed.runtime.blocks import Array, LostVectorsError, PinnedExecutor, align_arrays, map_blocks
from bigembed.store import remove
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix, CSRBlock, decoded, take_halo
from bigembed.store.vector_space import Sweep, VectorSpace, copy_vectors

_held: dict[str, dict[tuple[str, int], Any]] = {}
"""What this process holds: for each space, by its key, the blocks of vectors and of the matrix, by name and number."""


@dataclass(frozen=True)
class HeldMatrix:
    """A matrix whose blocks stay in the memory of their worker once they were read."""

    given: BlockMatrix
    key: str
    """That of the space with which the blocks are held; a process that holds nothing of it reads them each time."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return self.given.rows

    def block(self, b: int) -> CSRBlock:
        """Return one block of rows."""
        held = _held.get(self.key, {})
        if (found := held.get(("matrix", b))) is None:
            found = held["matrix", b] = decoded(self.given.block(b))
        return found

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Return, for each block that needs rows of this one, its number and those rows."""
        held = _held.get(self.key, {})
        if (found := held.get(("outbox", b))) is None:
            found = held["outbox", b] = self.given.outbox(b)
        return found


@dataclass(frozen=True)
class WorkerVectors:
    """What a task knows of such a space: where its blocks are, and what its process holds of them."""

    key: str
    matrix: HeldMatrix
    exchange: Exchange
    home: tuple[int, ...]
    """The number of the worker of each block."""
    posted: frozenset[str] = frozenset()
    """Vectors of which boundary rows lie in files."""
    dropped: frozenset[str] = frozenset()
    """Vectors that nobody reads any more."""
    together: Mapping[str, str] = field(default_factory=dict)
    """The vectors that the coordinating process has written, a file for each worker, and the names of these files."""

    @property
    def held(self) -> dict[tuple[str, int], Any]:
        """What this process holds; what it held for the space before this one in the same place is forgotten."""
        if (found := _held.get(self.key)) is None:
            place = self.key.rpartition(" ")[0]
            for key in [key for key in _held if key.rpartition(" ")[0] == place]:
                _held.pop(key, None)
            found = _held.setdefault(self.key, {})
        return found

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector whose home is this process, or that the coordinating process has written."""
        if (files := self.together.get(name)) is not None:
            return self._given(files, block)
        if name in self.dropped or (found := self.held.get((name, block))) is None:
            raise LostVectorsError(f"block {block} of {name!r} is not where it was")
        return found  # type: ignore[no-any-return]

    def _given(self, files: str, block: int) -> Array:
        """Return one block of what a file holds for all blocks of its worker, which is read once."""
        key = "together", self.home[block]
        if (found := self.held.get(key)) is None or found[0] != files:
            found = self.held[key] = files, self.exchange.get_all(files, self.home[block])
        return align_arrays(found[1][str(block)])  # type: ignore[no-any-return]

    def halo(self, name: str, block: int) -> Array:
        """Return the rows of other blocks that this block needs, in the order of its halo list."""
        nothing = self.read(name, block)[:0]
        return take_halo(self.matrix.block(block), nothing, lambda source, rows: self._rows(name, source, rows, block))

    def _rows(self, name: str, source: int, rows: Array, block: int) -> Array:
        """Return the rows of a block that another one needs."""
        if name not in self.dropped and (found := self.held.get((name, source))) is not None:
            return np.asarray(found[rows])
        return self.exchange.mapped(name, source, [str(block)])[0]

    def post(self, name: str, block: int, array: Array) -> None:
        """Leave in files what blocks of other workers need of a vector."""
        outbox = self.matrix.outbox(block)
        pieces = {
            str(destination): array[rows] for destination, rows in outbox if self.home[destination] != self.home[block]
        }
        if pieces:
            self.exchange.put(name, block, pieces)

    def forget(self, name: str, block: int) -> None:
        """Forget one block of a vector, and what was left with it."""
        self.held.pop((name, block), None)
        self.held.pop((_result_of(name), block), None)


def _result_of(name: str) -> str:
    return f"result of {name}"


def held_block(block: int, *, sweep: Sweep, space: WorkerVectors) -> Any:
    """Read, compute and keep one block of a sweep.

    A task that spends vectors keeps its result with the last vector it writes, and only then drops the spent ones. If
    its answer is lost on the way and it is run again, it returns that result.
    """
    held = space.held
    for name in space.dropped:
        space.forget(name, block)
    try:
        if sweep.spends and (_result_of(sweep.writes[-1]), block) in held:
            return held[_result_of(sweep.writes[-1]), block]
        own = [space.read(name, block) for name in sweep.reads]
        far = [space.halo(name, block) for name in sweep.halos]
    except DamagedError as error:
        raise LostVectorsError(f"block {block} is not where it was: {error}") from error
    written, result = sweep.function(block, *own, *far, *sweep.arguments)
    for name, array in zip(sweep.writes, written, strict=True):
        array = align_arrays(array)
        if name in sweep.posts:
            space.post(name, block, array)
        array.setflags(write=False)
        held[name, block] = array
    if sweep.spends:
        held[_result_of(sweep.writes[-1]), block] = result
    for name in sweep.spends:
        space.forget(name, block)
        if name in space.posted:
            space.exchange.drop_block(name, block)
    return result


def leave_together(worker: int, *, name: str, into: str, space: WorkerVectors) -> None:
    """Leave the blocks of a vector that one worker holds in one file for the coordinating process."""
    blocks = [block for block, home in enumerate(space.home) if home == worker]
    space.exchange.put(into, worker, {str(block): space.read(name, block) for block in blocks})


def _post_block(block: int, *vectors: Any) -> tuple[list[Array], None]:
    """Write the vectors as they are."""
    return list(vectors), None


@dataclass
class WorkerSpace(VectorSpace):
    """The space of block vectors over the rows of a matrix in the memory of some workers.

    What it leaves in files lies in an exchange of its own.
    """

    matrix: HeldMatrix
    vectors: WorkerVectors
    executor: PinnedExecutor
    names: set[str] = field(default_factory=set)
    """The names of all vectors."""

    @classmethod
    def open(cls, matrix: BlockMatrix, exchange: Exchange, executor: PinnedExecutor) -> WorkerSpace:
        """Return an empty space over the rows of a matrix; ``exchange`` is emptied."""
        key = f"{exchange.root} {uuid.uuid4().hex}"
        with using(journal=None):
            exchange.clear()
        held = HeldMatrix(matrix, key)
        return cls(held, WorkerVectors(key, held, exchange, executor.home), executor)

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each block."""
        return tuple(self.matrix.rows)

    @property
    def posted(self) -> frozenset[str]:
        """Vectors of which boundary rows lie ready."""
        return self.vectors.posted

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector: as :meth:`read_each` does, of all blocks."""
        return self.read_all(name)[block]

    def read_each(self, name: str) -> Iterator[Array]:
        """Yield all blocks of a vector. Each worker leaves its own in one file: there are far more blocks."""
        if name in self.vectors.together:
            yield from self._collected(self.vectors.together[name])
            return
        workers, files = tuple(range(len(self.executor.workers))), f"{name}-left"
        with using(executor=replace(self.executor, home=workers), journal=None):
            tasks = [(worker,) for worker in workers]
            map_blocks(leave_together, tasks, name=name, into=files, space=self.vectors)
        yield from self._collected(files)
        with using(journal=None):
            self.vectors.exchange.drop(files)

    def _collected(self, files: str) -> Iterator[Array]:
        """Yield what lies in a file for each worker, in the order of the blocks."""
        for worker, blocks in groupby(range(len(self.rows)), key=lambda block: self.vectors.home[block]):
            pieces = self.vectors.exchange.get_all(files, worker)
            yield from (pieces[str(block)] for block in blocks)

    def write_all(self, name: str, arrays: Sequence[Array]) -> None:
        """Write all blocks of a vector, a file for each worker."""
        files = f"{name}-{uuid.uuid4().hex[:8]}"
        for worker, blocks in groupby(range(len(arrays)), key=lambda block: self.vectors.home[block]):
            self.vectors.exchange.put(files, worker, {str(block): arrays[block] for block in blocks})
        self.drop(name)
        self.vectors = replace(self.vectors, together={**self.vectors.together, name: files})
        self.names.add(name)

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector that is there."""
        arrays = self.read_all(name)
        self.write_all(name, [*arrays[:block], array, *arrays[block + 1 :]])

    def _forget_files(self, *names: str) -> None:
        """Delete the files of vectors that the coordinating process has written."""
        known = dict(self.vectors.together)
        files = [known.pop(name) for name in names if name in known]
        if files:
            self.vectors = replace(self.vectors, together=known)
            with using(journal=None):
                self.vectors.exchange.drop(*files)

    def drop(self, *names: str) -> None:
        """Forget vectors."""
        self._forget_files(*names)
        known, files = self.vectors, [name for name in names if name in self.posted]
        self.vectors = replace(known, posted=self.posted - set(names), dropped=known.dropped.union(names))
        with using(journal=None):
            known.exchange.drop(*files)
        self.names.difference_update(names)

    def walk(self, sweep: Sweep) -> list[Any]:
        """Walk over all blocks once and return the results in block order."""
        if far := tuple(name for name in sweep.halos if name not in self.posted):
            self._walk(Sweep(_post_block, reads=far, writes=far, posts=far))
        return self._walk(sweep)

    def _walk(self, sweep: Sweep) -> list[Any]:
        blocks = [(block,) for block in range(len(self.rows))]
        with self.at_home():
            results = map_blocks(held_block, blocks, label=sweep.label, sweep=sweep, space=self.vectors)
        posted = (self.posted - set(sweep.writes) - set(sweep.spends)) | set(sweep.posts)
        self.vectors = replace(self.vectors, dropped=frozenset(), posted=posted)
        self._forget_files(*sweep.writes, *sweep.spends)
        self.names = (self.names | set(sweep.writes)) - set(sweep.spends)
        return results

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Let tasks run where the blocks are; a map has one for each, in their order."""
        with using(executor=self.executor, journal=None):
            yield

    def copy_to(self, stored: VectorSpace, names: Sequence[str]) -> None:
        """Write vectors into a space in files over the same rows."""
        with self.at_home():
            copy_vectors(self.vectors, stored, names, posts=[name for name in names if name in self.posted])

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the workers forget everything, and delete what lies in files.

        An error on its way out waits for no tasks, since there may be no workers for them, and nothing takes its place.
        """
        if kind is None:
            self.executor.on_workers(forget, self.vectors.key)
            with using(journal=None):
                self.vectors.exchange.clear()
            return
        with suppress(Exception):
            self.executor.on_workers(forget, self.vectors.key)
        with suppress(Exception):
            remove(self.vectors.exchange.root)


def forget(key: str) -> None:
    """In a worker: forget all vectors of a space."""
    _held.pop(key, None)
