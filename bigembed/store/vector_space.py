"""Named block vectors: what a solver sees of memory or of the store.

A named vector is one array for each block, as a rule (rows of the block, width). A solver or a descent reads and writes
all blocks of some vectors in sweeps; a sweep is one parallel walk over the blocks, and returns a few numbers for each
block, which are summed in a fixed tree so that any number of workers gives the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, align_arrays, one_blas_thread, run_tasks
from bigembed.runtime.executors import chosen_executor
from bigembed.store.matrix import BlockMatrix


@dataclass(frozen=True)
class Sweep:
    """What one walk over all blocks of a space computes, reads and writes."""

    function: Callable[..., tuple[Sequence[Array], Any]]
    """``function(block, *own, *halo, *arguments) -> (arrays, result)``, at the top of a module."""
    reads: tuple[str, ...] = ()
    """Vectors whose block is handed over (``own``)."""
    halos: tuple[str, ...] = ()
    """Vectors of which the rows of the block's halo list are handed over (``halo``)."""
    writes: tuple[str, ...] = ()
    """Names under which ``arrays`` are stored."""
    posts: tuple[str, ...] = ()
    """The subset of ``writes`` whose boundary rows lie ready for other blocks, which read them through ``halos`` in
    pass after pass; of other vectors those rows are picked one by one."""
    spends: tuple[str, ...] = ()
    """The subset of ``reads`` that nobody reads again: a block of them is dropped once the results of the block are
    there; in memory the function may write results into these arrays, if they are writable. ``result`` is then None
    or a tuple of arrays."""
    arguments: tuple[Any, ...] = ()
    descending: bool = False
    """Whether files are gone through from the last block to the first. A sweep that turns back where the one before it
    ended first reads, and deletes, what was written last: much of that never has to reach the disk."""

    @property
    def label(self) -> str:
        """The name of its tasks."""
        return self.function.__name__.strip("_")


class VectorSpace(ABC):
    """Named vectors over row blocks, and the sweeps that read and write them."""

    @property
    @abstractmethod
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each block."""

    @abstractmethod
    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector to the coordinating process."""

    @abstractmethod
    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector, without its boundary rows for other blocks."""

    def read_each(self, name: str) -> Iterator[Array]:
        """Yield all blocks of a vector, in their order, to the coordinating process."""
        return (self.read(name, block) for block in range(len(self.rows)))

    def read_all(self, name: str) -> list[Array]:
        """Return all blocks of a vector to the coordinating process."""
        return [*self.read_each(name)]

    def write_all(self, name: str, arrays: Sequence[Array]) -> None:
        """Write all blocks of a vector, without boundary rows for other blocks."""
        for block, array in enumerate(arrays):
            self.write(name, block, array)

    @abstractmethod
    def drop(self, *names: str) -> None:
        """Forget vectors; unknown names are ignored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:  # noqa: B027  (most spaces leave nothing)
        """Give back what others hold for this space, once it is not needed any more."""

    @abstractmethod
    def walk(self, sweep: Sweep) -> list[Any]:
        """Walk over all blocks once and return the results in block order."""

    def sweep(
        self,
        function: Callable[..., tuple[Sequence[Array], Any]],
        *,
        reads: Sequence[str] = (),
        halos: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        spends: Sequence[str] = (),
        arguments: Sequence[Any] = (),
        descending: bool = False,
    ) -> list[Any]:
        """Walk over all blocks once and return the results in block order: see :class:`Sweep`."""
        names = tuple(reads), tuple(halos), tuple(writes), tuple(posts), tuple(spends)
        return self.walk(Sweep(function, *names, tuple(arguments), descending))


Written = dict[tuple[str, int], Array]
"""Arrays by the name of their vector and their block."""


@dataclass
class MemorySpace(VectorSpace):
    """Block vectors held in this process, over the rows of a matrix (or over given blocks, without halos).

    Its sweeps are maps over the blocks like those of vectors in the store, on threads of this process: the same
    functions on the same bytes. Arrays are handed out as they are, so nobody may write into them.
    """

    as_given: ClassVar = ("matrix", "arrays")

    matrix: BlockMatrix | None = None
    sizes: tuple[int, ...] = ()
    arrays: dict[tuple[str, int], Array] = field(default_factory=dict, repr=False)
    posted: set[str] = field(default_factory=set, repr=False)

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows of each block."""
        return tuple(self.matrix.rows) if self.matrix is not None else self.sizes

    @property
    def names(self) -> list[str]:
        """The names of all vectors."""
        return list(dict.fromkeys(name for name, _ in self.arrays))

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector."""
        try:
            return self.arrays[name, block]
        except KeyError:
            raise InputError(f"no vector {name!r} in block {block}; it was never written or was dropped") from None

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector."""
        self._keep({(name, block): array})
        self.posted.discard(name)

    def drop(self, *names: str) -> None:
        """Forget vectors."""
        for key in [key for key in self.arrays if key[0] in names]:
            del self.arrays[key]
        self.posted.difference_update(names)

    def walk(self, sweep: Sweep) -> list[Any]:
        """Walk over all blocks once, the largest first; nothing written is visible before the end."""
        sizes = self.rows
        order = sorted(range(len(sizes)), key=lambda block: -sizes[block])
        sweep = align_arrays(sweep)
        calls = [partial(self._task, block, sweep) for block in order]
        with chosen_executor() as executor, one_blas_thread():
            if len(calls) > 1 and executor.in_this_process:
                done = run_tasks(calls, sweep.label)
            else:  # (a small space beside tasks that run elsewhere)
                done = [call() for call in calls]
        self.posted = (self.posted - set(sweep.writes) - set(sweep.spends)) | set(sweep.posts)
        results: list[Any] = [None] * len(order)
        for block, (written, result) in zip(order, done, strict=True):
            results[block] = result
            self._keep(written)
        return results

    def copy_to(self, stored: VectorSpace, names: Sequence[str]) -> None:
        """Write vectors into a space in files over the same rows."""
        copy_vectors(self, stored, names, posts=[name for name in names if name in self.posted])

    def _task(self, block: int, sweep: Sweep) -> tuple[Written, Any]:
        own = [self.read(name, block) for name in sweep.reads]
        far = [self._halo(name, block) for name in sweep.halos]
        for name in sweep.spends:
            spent = self.arrays.pop((name, block), None)
            if spent is not None:
                spent.setflags(write=spent.flags.owndata)
        arrays, result = sweep.function(block, *own, *far, *sweep.arguments)
        written = {(name, block): align_arrays(array) for name, array in zip(sweep.writes, arrays, strict=True)}
        return written, align_arrays(result)

    def _keep(self, written: Written) -> None:
        for array in written.values():
            array.setflags(write=False)
        self.arrays |= written

    def _halo(self, name: str, block: int) -> Array:
        if self.matrix is None:
            raise InputError("this space was made without a matrix, so it has no halos")
        stored, own = self.matrix.block(block), self.read(name, block)
        halo = np.empty((len(stored.halo_rows), *own.shape[1:]), own.dtype)
        for (source, rows), start in zip(stored.segments(), stored.halo_offsets, strict=False):
            np.take(self.read(name, source), rows, axis=0, out=halo[start : start + len(rows)], mode="clip")
        return halo


class Readable(Protocol):
    """What vectors are copied from, block by block, in tasks."""

    def read(self, name: str, block: int) -> Array:
        """Return one block of a vector."""
        ...


def copy_vectors(source: Readable, target: VectorSpace, names: Sequence[str], posts: Sequence[str] = ()) -> None:
    """Write vectors of one space into another over the same blocks; tasks run where both are seen."""
    target.sweep(_copied_block, writes=names, posts=posts, arguments=(source, tuple(names)))


def _copied_block(block: int, source: Readable, names: Sequence[str]) -> tuple[list[Array], None]:
    return [source.read(name, block) for name in names], None


def assembled(space: VectorSpace, name: str) -> Array:
    """Return all blocks of a vector as one array in this process."""
    return np.concatenate(space.read_all(name))


def tree_sum(parts: Sequence[Any]) -> Any:
    """Sum in a fixed binary tree over the order of the parts: the same bytes for any number of workers.

    >>> tree_sum([1.0, 2.0, 3.0])
    6.0
    """
    return tree_fold(parts, add)


def tree_fold(parts: Iterable[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine neighbors in the binary tree of :func:`tree_sum`; of the parts log₂ of them are there at a time.

    >>> tree_fold("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    ranked: list[tuple[int, Any]] = []
    for part in parts:
        rank = 0
        while ranked and ranked[-1][0] == rank:
            part, rank = combine(ranked.pop()[1], part), rank + 1
        ranked.append((rank, part))
    if not ranked:
        raise InputError("nothing to sum: the list of block results is empty")
    result = ranked.pop()[1]
    while ranked:
        result = combine(ranked.pop()[1], result)
    return result
