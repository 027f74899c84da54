"""Named block vectors: what a solver sees of memory or of the store.

A named vector is one array per block, as a rule (rows of the block, width). A solver reads and
writes whole vectors in sweeps; a sweep is one parallel walk over the blocks, and returns a few
numbers per block, which are summed in a fixed tree so that any number of workers gives the same
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add
from typing import Any, Protocol

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, align_arrays, one_blas_thread, run_tasks
from bigembed.runtime.executors import chosen_executor
from bigembed.store.matrix import BlockMatrix


class VectorSpace(Protocol):
    """Named vectors over row blocks, and the sweeps that read and write them."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        ...

    def read(self, name: str, block: int) -> Array:
        """One block of a vector, to the coordinating process."""
        ...

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector, without leaving an outbox."""
        ...

    def drop(self, *names: str) -> None:
        """Forget vectors; unknown names are ignored."""
        ...

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
    ) -> list[Any]:
        """One walk over all blocks; results in block order.

        ``function(block, *own, *halo, *arguments) -> (arrays, result)`` is a module-level function:
        ``own`` are the blocks of ``reads``, ``halo`` the rows of the block's halo list of each of
        ``halos``, ``arrays`` what is stored under ``writes``. ``posts`` is the subset of ``writes``
        whose boundary rows lie ready for other blocks, which read them through ``halos`` in pass after pass; of
        other vectors those rows are picked one by one. ``spends`` is the subset of ``reads`` that nobody reads
        again: each block of it is forgotten when that of the results is there, and in memory the function may write
        these where such an array is (if it is writable). The result is then None or a tuple of arrays.
        """
        ...


@dataclass
class MemorySpace:
    """Block vectors held in this process, over the rows of a matrix (or over given blocks, without halos).

    Its sweeps are maps over the blocks like those of vectors in the store, on threads of this process: the same
    functions on the same bytes. Arrays are handed out as they are, so nobody may write into them.
    """

    matrix: BlockMatrix | None = None
    sizes: tuple[int, ...] = ()
    arrays: dict[tuple[str, int], Array] = field(default_factory=dict, repr=False)
    posted: set[str] = field(default_factory=set, repr=False)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(self.matrix.rows) if self.matrix is not None else self.sizes

    @property
    def names(self) -> list[str]:
        """Names of all vectors."""
        return list(dict.fromkeys(name for name, _ in self.arrays))

    def read(self, name: str, block: int) -> Array:
        """One block of a vector."""
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
    ) -> list[Any]:
        """One walk over all blocks, the largest first; nothing written is visible before its end."""
        sizes = self.rows
        order = sorted(range(len(sizes)), key=lambda block: -sizes[block])
        what: dict[str, Any] = {
            "reads": reads,
            "halos": halos,
            "spends": spends,
            "arguments": align_arrays(tuple(arguments)),
        }
        calls = [partial(self._task, block, compute=function, **what) for block in order]
        with chosen_executor() as executor, one_blas_thread():
            if len(calls) > 1 and executor.in_this_process:
                done = run_tasks(calls, function.__name__.strip("_"))
            else:  # (a small space beside tasks that run elsewhere)
                done = [call() for call in calls]
        self.posted = (self.posted - set(writes) - set(spends)) | set(posts)
        results: list[Any] = [None] * len(order)
        for block, (arrays, results[block]) in zip(order, done, strict=True):
            self._keep({(name, block): array for name, array in zip(writes, arrays, strict=True)})
        return results

    def _task(
        self,
        block: int,
        *,
        compute: Callable[..., tuple[Sequence[Array], Any]],
        reads: Sequence[str],
        halos: Sequence[str],
        spends: Sequence[str],
        arguments: Sequence[Any],
    ) -> tuple[tuple[Array, ...], Any]:
        own = [self.read(name, block) for name in reads]
        far = [self._halo(name, block) for name in halos]
        for name in spends:
            spent = self.arrays.pop((name, block))
            spent.setflags(write=spent.flags.owndata)
        arrays, result = compute(block, *own, *far, *arguments)
        return tuple(align_arrays(array) for array in arrays), align_arrays(result)

    def _keep(self, written: dict[tuple[str, int], Array]) -> None:
        for array in written.values():
            array.setflags(write=False)
        self.arrays |= written

    def _halo(self, name: str, block: int) -> Array:
        if self.matrix is None:
            raise InputError("this space was made without a matrix, so it has no halos")
        parts = [self.read(name, source)[rows] for source, rows in self.matrix.block(block).segments()]
        return np.concatenate(parts) if parts else self.read(name, block)[:0]


def copy_vectors(source: VectorSpace, target: VectorSpace, names: Sequence[str], posts: Sequence[str] = ()) -> None:
    """Write vectors of one space into another over the same blocks; tasks run where both are seen."""
    target.sweep(_copied_block, writes=names, posts=posts, arguments=(source, tuple(names)))


def _copied_block(block: int, source: VectorSpace, names: Sequence[str]) -> tuple[list[Array], None]:
    return [source.read(name, block) for name in names], None


def assembled(space: VectorSpace, name: str) -> Array:
    """All blocks of a vector, in this process."""
    return np.concatenate([space.read(name, block) for block in range(len(space.rows))])


def tree_sum(parts: Sequence[Any]) -> Any:
    """Sum in a fixed binary tree over the order of the parts: the same bytes for any number of workers.

    >>> tree_sum([1.0, 2.0, 3.0])
    6.0
    """
    return tree_fold(parts, add)


def tree_fold(parts: Iterable[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine neighbors in the binary tree of :func:`tree_sum`, taking the parts one by one: log₂ of them are held.

    >>> tree_fold("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    held: list[tuple[int, Any]] = []
    for part in parts:
        rank = 0
        while held and held[-1][0] == rank:
            part, rank = combine(held.pop()[1], part), rank + 1
        held.append((rank, part))
    if not held:
        raise InputError("nothing to sum: the list of block results is empty")
    result = held.pop()[1]
    while held:
        result = combine(held.pop()[1], result)
    return result
