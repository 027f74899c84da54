"""Canonical row blocks, which of them hold a row, and functions mapped over them by whichever executor is chosen.

:class:`PinnedExecutor` sends each call to the worker that holds what its block needs.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby, pairwise
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from bigembed.errors import ClusterError
from bigembed.runtime import Calls, KeepResult, Progress, Timed, run_recorded, run_timed, runtime_now
from bigembed.runtime.calls import Common
from bigembed.runtime.client_executor import ClientExecutor, TaskMap
from bigembed.runtime.executors import executor_now

# ------------------------------------------------------------------------------------------------------------ rows
# Canonical row blocks, and functions mapped over them by the executor of the context.
#
# A block task is a pure function of its arguments that reads named arrays, writes named arrays and returns a few
# numbers. Except for vectors that workers hold for pinned tasks (below), nothing stays on the cluster between two maps,
# so that a worker that dies loses nothing but the task in hand.

Array = npt.NDArray[Any]

BLOCK_BYTES = 32 << 20
MAX_BLOCK_ROWS = 65_536
MIN_BLOCK_ROWS = 64
MIN_GRAPH_ROWS, GRAPH_BLOCK_BYTES = 2_048, 256 << 20
"""Rows of a block of a graph, up to so many bytes: blocks are compared with each other, and few rows in each cost time
(20 000 × 20 000 float32 in blocks of 419 rows took 1.3 times as long)."""


def block_rows(n_features: int, itemsize: int) -> int:
    """Rows of a canonical block: about 32 MiB, from the shape of a row alone.

    It depends neither on the chunks of the input nor on the cluster, so the same job gives the
    same bytes everywhere.

    >>> block_rows(64, 4), block_rows(784, 4)
    (65536, 10699)
    """
    fitting = BLOCK_BYTES // max(1, n_features * itemsize)
    return int(min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, fitting)))


def graph_rows(row_bytes: int) -> int:
    """Rows of a block of a graph, from the bytes of a row: of very many columns more than of a canonical block.

    >>> graph_rows(256), graph_rows(80_000), graph_rows(320_000)
    (65536, 2048, 838)
    """
    enough = min(MIN_GRAPH_ROWS, GRAPH_BLOCK_BYTES // row_bytes)
    return min(MAX_BLOCK_ROWS, max(block_rows(row_bytes, 1), enough))


def is_sparse(rows: Any) -> bool:
    """Whether rows are SciPy CSR rows, not a NumPy array."""
    return hasattr(rows, "indptr")


def is_scipy_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of SciPy, or of a class made of one, such as AnnData's views."""
    return any(base.__module__.startswith("scipy.sparse") for base in type(X).__mro__)


def bounds(n_rows: int, rows: int) -> list[tuple[int, int]]:
    """Start and stop of each canonical block.

    >>> bounds(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows)]


STRIPE = 8_192
"""Rows that a task works on at a time, where idle threads help it."""


def stripes(rows: int) -> list[tuple[int, int]]:
    """Start and stop of each stripe of a block, at least one."""
    return bounds(rows, STRIPE) or [(0, 0)]


def offsets(sizes: Iterable[int]) -> Array:
    """Cumulative offsets of blocks: ``[0, s0, s0 + s1, …]``, int64."""
    return np.concatenate([[0], np.cumsum(np.fromiter(sizes, dtype=np.int64))]).astype(np.int64)


def map_blocks(
    function: Callable[..., Any], tasks: Iterable[Sequence[Any]], label: str = "", **fixed: Any
) -> list[Any]:
    """Run ``function(*task, **fixed)`` for every task.

    The function must live in an importable module; its arguments and results must be small
    (arrays travel through the store). Each task has one BLAS thread.

    Parameters
    ----------
    function : function
        The function of a task.
    tasks : iterable of sequences
        The arguments of each task.
    label : str
        The name of the tasks, for progress.
    **fixed : dict
        Further arguments that all tasks have.

    Returns
    -------
    list
        The results, in the order of the tasks.
    """
    common = Common(function, fixed)
    calls = [partial(_one_task, os.getpid(), partial(common, *task)) for task in tasks]
    label, journal = label or function.__name__.strip("_"), runtime_now().journal
    results = run_tasks(calls, label) if journal is None else journal.run_map(calls, label, run_tasks)
    return [align_arrays(result) for result in results]


def run_tasks(calls: Calls, label: str, keep: KeepResult | None = None) -> list[Any]:
    """The results of calls in their order, from where tasks run in this context; one BLAS thread a call."""
    executor, clock, recorder = executor_now(), runtime_now().clock, runtime_now().recorder
    with one_blas_thread():
        if clock is None:
            return executor.run(calls, label, runtime_now().progress, keep)

        def keep_timed(place: int, found: Timed) -> None:
            clock.add(found)
            if record is not None and found.record is not None:
                record(place, found.record)
            if keep is not None:
                keep(place, found.result)

        at_home = isinstance(executor, PinnedExecutor)
        record = None if recorder is None else recorder(label, len(calls), at_home)
        timed = [partial(run_timed if record is None else run_recorded, call) for call in calls]
        with clock.mapping():
            found = executor.run(timed, label, runtime_now().progress, keep_timed)
        clock.threads = max(clock.threads, executor.threads)
        return [one.result for one in found]


_AS_THEY_ARE = frozenset((str, int, float, bool, type(None)))
_in_order: WeakSet[Common] = WeakSet()
"""What this process has looked into. (It is not a field of theirs: that would be sent on, and the arrays moved.)"""


def align_arrays(value: Any) -> Any:
    """The value with every array in it aligned and in C order; itself where that is so.

    A message between processes leaves some arrays unaligned and reorders others, and BLAS rounds differently then.
    Looks into tuples, lists, dictionaries, partial functions, and objects of this package (besides what they name in
    ``as_given``: rows of the user's, of which a task takes its own part). What the calls of a map have in common, which
    names all blocks, is looked into once.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Common):
        if value not in _in_order:
            for name in ("function", "arguments"):
                object.__setattr__(value, name, align_arrays(getattr(value, name)))
            _in_order.add(value)
        return value
    if isinstance(value, np.ndarray):
        fine = value.flags.c_contiguous and value.flags.aligned
        return value if fine else np.require(value, requirements=["C", "A"])
    if isinstance(value, partial):
        return partial(align_arrays(value.func), *align_arrays(value.args), **align_arrays(value.keywords))
    if isinstance(value, tuple | list):
        if _AS_THEY_ARE.issuperset(map(type, value)):  # (such as the rows of every block)
            return value
        each = [align_arrays(part) for part in value]
        same = all(new is part for new, part in zip(each, value, strict=True))
        return value if same else getattr(value, "_make", type(value))(each)
    if type(value) is dict:
        named = {key: align_arrays(part) for key, part in value.items()}
        return value if all(named[key] is value[key] for key in value) else named
    if not type(value).__module__.startswith("bigembed.") or not hasattr(value, "__dict__"):
        return value
    parts = {name: part for name, part in vars(value).items() if name not in getattr(value, "as_given", ())}
    fresh = {name: new for name, part in parts.items() if (new := align_arrays(part)) is not part}
    if fresh:
        value = copy(value)
        vars(value).update(fresh)
    return value


def _one_task(parent: int, call: Callable[[], Any]) -> Any:
    if os.getpid() != parent:
        _limit_for_good()
    return align_arrays(call)()


@cache
def _limit_for_good() -> None:
    """In a separate worker process: one BLAS thread from now on."""
    _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  (so that its BLAS is loaded and found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _OneThread:
    """One BLAS thread for this process, from the first who asks for it until the last who does is done."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        blas = _blas()  # (which may import SciPy)
        with self.lock:
            if not self.inside:
                self.limit = blas.limit(limits=1, user_api="blas")
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if not self.inside:
                    self.limit.restore_original_limits()


one_blas_thread = _OneThread()
"""One BLAS thread inside, so that sums are taken in the same order on any machine."""


# ---------------------------------------------------------------------------------------------------------- owners
# From global row numbers to blocks: which block holds a row, and which row of the block it is.
#
# ``starts`` holds the number of the first row of each block, and last the number of rows. Cells, which are numbered
# through all blocks as well, are found in the same way.

Starts = Sequence[int] | Array


def owner_of(starts: Starts, ids: Any) -> Any:
    """The block that holds each id.

    >>> owner_of([0, 2, 5], np.array([4, 0, 2])).tolist()
    [1, 0, 1]
    """
    return np.searchsorted(starts, ids, side="right") - 1


def by_owner(starts: Starts, ids: Array) -> Iterator[tuple[int, Array, Array]]:
    """Block by block: its number, which of the ``ids`` it holds, ascending, and their rows in the block.

    >>> [(block, at.tolist(), rows.tolist()) for block, at, rows in by_owner([0, 2, 5], np.array([4, 0, 2]))]
    [(0, [1], [0]), (1, [0, 2], [2, 0])]
    """
    owner = owner_of(starts, ids)
    order = np.argsort(owner.astype(np.min_scalar_type(len(starts))), kind="stable")  # narrow: a radix sort
    blocks, first = np.unique(owner[order], return_index=True)
    for block, at in zip(blocks.tolist(), np.split(order, first[1:]), strict=False):
        yield block, at, ids[at] - starts[block]


# ------------------------------------------------------------------------------------------------------ pinned tasks

TOGETHER = 1.0
"""Seconds that the calls of a task take together, about, where a worker has more of them than threads."""


class LostVectorsError(ClusterError):
    """A worker is gone with the vectors it held: whoever needs them goes on from a checkpoint in files."""


@dataclass
class PinnedMap(TaskMap):
    """The calls of a map, each on the worker that holds what it needs."""

    workers_held: Sequence[str] = ()
    """Addresses of the workers."""
    threads_held: Sequence[int] = ()
    """Threads of each."""
    home: Sequence[int] = ()
    """The number of the worker of each call, ascending."""
    missing: float | None = None
    """Since when one of them takes no tasks, on this process's clock."""

    def _hand_out(self) -> None:
        """Hand out everything: nobody but its worker can take a task."""
        if not self.begun:
            self.begun = len(self.calls)
            self._submit([task for worker in self._calls_of_workers() for task in self._cut(worker)])

    def _calls_of_workers(self) -> list[range]:
        parts = [list(part) for _, part in groupby(range(len(self.calls)), key=lambda call: self.home[call])]
        return [range(part[0], part[-1] + 1) for part in parts]

    def _cut(self, calls: range) -> list[range]:
        """Cut the calls of a worker into tasks: one a thread, or more where they take longer."""
        seconds = len(calls) * self.seconds.get(self.label, 0.0)
        count = min(len(calls), max(self.threads_held[self.home[calls.start]], round(seconds / TOGETHER)))
        edges = [calls.start + len(calls) * place // count for place in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(edges)]

    def _placed(self, keys: Mapping[str, range]) -> AbstractContextManager[Any]:
        """Let each task run on its worker alone. (The scheduler calls what says where; it needs nothing of ours.)"""
        import dask

        places = {key: self.workers_held[self.home[task.start]] for key, task in keys.items()}
        return dask.annotate(workers=partial(operator.getitem, places), allow_other_workers=False)

    def _watch(self) -> None:
        super()._watch()
        running = self._ask(self.client.scheduler.ncores_running, workers=None)
        if all(worker in running for worker in self.workers_held):
            self.missing = None
            return
        known = self._ask(self.client.scheduler.ncores, workers=None)  # (of those that are paused, too)
        self.missing = self.missing or time.monotonic()
        gone = [worker for worker in self.workers_held if worker not in known]
        if gone or time.monotonic() - self.missing > self.timeout:
            raise LostVectorsError(f"of {len(self.workers_held)} workers that hold vectors {len(gone)} are gone")

    def _raise_of_cluster(self, error: BaseException, name: str) -> None:
        if type(error).__name__ in ("KilledWorker", "NoValidWorkerError", "NoWorkerError"):
            raise LostVectorsError(f"a worker died with {name} and what it held") from error


@dataclass
class PinnedExecutor:
    """Runs tasks on those workers of an executor that hold vectors: call i of a map where those of block i are."""

    executor: ClientExecutor
    workers: tuple[str, ...]
    """Addresses."""
    worker_threads: tuple[int, ...]
    home: tuple[int, ...]
    """The number of the worker of each block, ascending."""
    in_this_process: bool = field(default=False, init=False)
    pool: None = field(default=None, init=False)

    @property
    def threads(self) -> int:
        """How many tasks run at a time."""
        return sum(self.worker_threads)

    def run(
        self, calls: Calls, label: str, progress: Progress | None = None, keep: KeepResult | None = None
    ) -> list[Any]:
        """Return the results of the calls, in their order: as many as there are blocks."""
        kind = partial(PinnedMap, workers_held=self.workers, threads_held=self.worker_threads, home=self.home)
        return self.executor.run(calls, label, progress, keep, kind)

    def free_memory(self) -> None:
        """Let the workers give back memory that they do not use."""
        self.executor.free_memory()

    def on_workers(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in every worker process that answers, if the cluster is there."""
        if self.executor.client.status == "running":
            self.executor.on_workers(function, *arguments)


def pinned(executor: ClientExecutor, rows: Sequence[int]) -> PinnedExecutor:
    """Return an executor whose workers hold blocks of so many ``rows``: each worker gets consecutive blocks, and about
    the share of all rows that it has of all threads."""
    threads = dict(sorted(executor.running().items()))
    total, count = sum(rows), sum(threads.values())
    home, passed, worker, room = [], 0.0, 0, 0
    shares = list(threads.values())
    for size in rows:
        while worker < len(shares) - 1 and passed + size / 2 > total * (room + shares[worker]) / count:
            room += shares[worker]
            worker += 1
        home.append(worker)
        passed += size
    used = sorted(set(home))
    numbers = {worker: number for number, worker in enumerate(used)}
    addresses = list(threads)
    return PinnedExecutor(
        executor, tuple(addresses[w] for w in used), tuple(shares[w] for w in used), tuple(numbers[w] for w in home)
    )
