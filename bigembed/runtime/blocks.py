"""Canonical row blocks, which of them hold a row, and functions mapped over them by whichever executor is chosen."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from functools import cache, partial
from itertools import count
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

# ------------------------------------------------------------------------------------------------------------ rows
# Canonical row blocks, and functions mapped over them on whichever Dask scheduler is current.
#
# A block task is a pure function of its arguments that reads named arrays, writes named arrays and returns a few
# numbers. Nothing stays on the cluster between two maps, so that a worker that dies loses nothing but the task in
# hand.

Array = npt.NDArray[Any]
T = TypeVar("T")
Executor = Callable[[Sequence[Callable[[], Any]], str], list[Any]]

BLOCK_BYTES = 32 << 20
MAX_BLOCK_ROWS = 65_536
MIN_BLOCK_ROWS = 2_048


def block_rows(n_features: int, itemsize: int) -> int:
    """Rows of a canonical block: about 32 MiB, from the shape of a row alone.

    It depends neither on the chunks of the input nor on the cluster, so the same job gives the
    same bytes everywhere.

    >>> block_rows(64, 4), block_rows(784, 4)
    (65536, 10699)
    """
    fitting = BLOCK_BYTES // max(1, n_features * itemsize)
    return int(min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, fitting)))


def is_sparse(rows: Any) -> bool:
    """Whether rows are SciPy CSR rows, not a NumPy array."""
    return hasattr(rows, "indptr")


def bounds(n_rows: int, rows: int) -> list[tuple[int, int]]:
    """Start and stop of each canonical block.

    >>> bounds(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + rows, n_rows)) for start in range(0, n_rows, rows)]


def offsets(sizes: Iterable[int]) -> Array:
    """Cumulative offsets of blocks: ``[0, s0, s0 + s1, …]``, int64."""
    return np.concatenate([[0], np.cumsum(np.fromiter(sizes, dtype=np.int64))]).astype(np.int64)


def map_blocks(
    function: Callable[..., Any], tasks: Iterable[Sequence[Any]], label: str = "", **fixed: Any
) -> list[Any]:
    """Run ``function(*task, **fixed)`` for every task; results in the order of the tasks.

    The function must live in an importable module; its arguments and results must be small
    (arrays travel through the store), and are ``settled``. One BLAS thread a task.
    """
    calls = [partial(_one_task, os.getpid(), partial(function, *task, **fixed)) for task in tasks]
    return [settled(result) for result in run_tasks(calls, label or function.__name__.strip("_"))]


def run_tasks(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
    """The results of calls in their order, from where tasks run in this context; one BLAS thread a call."""
    with one_blas_thread():
        return _executor.get()(calls, label)


_AS_THEY_ARE = frozenset((str, int, float, bool, type(None)))


def settled(value: Any) -> Any:
    """The value with every array in it aligned and in C order; itself where that is so.

    A message between processes leaves some arrays unaligned and reorders others, and BLAS rounds differently then.
    Looks into tuples, lists, dictionaries, partial functions, and objects of this package (besides what they name in
    ``as_given``: rows of the user's, of which a task takes its own part).
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, np.ndarray):
        fine = value.flags.c_contiguous and value.flags.aligned
        return value if fine else np.require(value, requirements=["C", "A"])
    if isinstance(value, partial):
        return partial(settled(value.func), *settled(value.args), **settled(value.keywords))
    if isinstance(value, tuple | list):
        each = [settled(part) for part in value]
        same = all(new is part for new, part in zip(each, value, strict=True))
        return value if same else getattr(value, "_make", type(value))(each)
    if type(value) is dict:
        named = {key: settled(part) for key, part in value.items()}
        return value if all(named[key] is value[key] for key in value) else named
    if not type(value).__module__.startswith("bigembed.") or not hasattr(value, "__dict__"):
        return value
    parts = {name: part for name, part in vars(value).items() if name not in getattr(value, "as_given", ())}
    fresh = {name: new for name, part in parts.items() if (new := settled(part)) is not part}
    if fresh:
        value = copy(value)
        vars(value).update(fresh)
    return value


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable have a value in this context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def executor(run: Executor) -> AbstractContextManager[None]:
    """Let ``run`` execute every :func:`map_blocks` of this context (progress, retries, deadlines)."""
    return setting(_executor, run)


Ticker = Callable[[str, int, int], None]
"""Hears the label of a map, how many of its tasks are done, and how many there are."""


def ticking(notify: Ticker) -> AbstractContextManager[None]:
    """Call ``notify`` for every task of this process that is done in this context, one at a time."""
    return setting(_ticker, notify)


_ticker: ContextVar[Ticker | None] = ContextVar("ticker", default=None)


class Pool(Protocol):
    """Threads of this process that stay ready for tasks."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of the calls, in their order."""
        ...


def pooled(pool: Pool) -> AbstractContextManager[None]:
    """Let the threads of ``pool`` take the tasks of this context where Dask would give them to threads of this process.

    Dask takes 2 ms for the tasks of a map, as long as many of them take. Where it would not use threads, the pool has
    a single one, and is not asked.
    """
    return setting(_pool, pool if _executor.get() is _dask_executor else None)


_pool: ContextVar[Pool | None] = ContextVar("pool", default=None)


def _ticked(calls: Sequence[Callable[[], Any]], label: str, notify: Ticker) -> list[Callable[[], Any]]:
    lock, done = Lock(), count(1)

    def ticked(call: Callable[[], Any]) -> Any:
        result = call()
        with lock:
            notify(label, next(done), len(calls))
        return result

    return [partial(ticked, call) for call in calls]


def _dask_executor(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
    if (notify := _ticker.get()) is not None and not remote():  # (no other process could)
        calls = _ticked(calls, label, notify)
    if len(calls) <= 1 and not _in_other_processes():
        return [call() for call in calls]
    if (pool := _pool.get()) is not None and pool.count > 1:
        return pool.run(calls)
    import dask.threaded

    graph = {f"{label}-{number}-{os.urandom(8).hex()}": (call,) for number, call in enumerate(calls)}
    return list((dask.base.get_scheduler() or dask.threaded.get)(graph, list(graph)))


_executor: ContextVar[Executor] = ContextVar("executor", default=_dask_executor)


def _distributed_client() -> bool:
    """Whether Dask would send work to other processes. Asks Dask only if it is loaded already."""
    if "distributed" not in sys.modules:
        return False
    import dask.base

    scheduler: Any = dask.base.get_scheduler()
    return scheduler is not None and "Client" in type(getattr(scheduler, "__self__", None)).__name__


def remote() -> bool:
    """Whether block tasks may run in other processes, which then cannot see arrays of this one."""
    return _executor.get() is not _dask_executor or _in_other_processes()


def _in_other_processes() -> bool:
    pool = _pool.get()
    # (The count of a pool asks Dask, which loads it; without distributed the answer below is as quick.)
    if pool is not None and "distributed" in sys.modules and pool.count > 1:
        return False
    return _distributed_client() or _processes()


def here() -> bool:
    """Whether block tasks run in this process for certain, and share its memory."""
    return not remote() or getattr(_executor.get(), "here", False)


def threads() -> int:
    """Threads of this process that run block tasks; 1 where others may."""
    run = _executor.get()
    if run is not _dask_executor:
        return int(getattr(run, "count", 1))
    pool = _pool.get()
    return threads_of_dask() if pool is None else pool.count


def dask_runs() -> bool:
    """Whether the tasks of this context are given to Dask."""
    return _executor.get() is _dask_executor


def threads_of_dask() -> int:
    """Threads of this process that Dask would run them in; 1 where others may."""
    if _distributed_client() or _processes():
        return 1
    import dask
    import dask.threaded
    from dask.system import CPU_COUNT

    chosen = "distributed" in sys.modules or dask.config.get("scheduler", None) is not None  # (to ask Dask loads it)
    if chosen and dask.base.get_scheduler() not in (None, dask.threaded.get):
        return 1
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def threads_nearby() -> int:
    """Threads of all workers of the current Dask client, where their addresses are within this machine; otherwise 0."""
    if _executor.get() is not _dask_executor or not _distributed_client():
        return 0
    import dask.base

    client: Any = getattr(dask.base.get_scheduler(), "__self__", None)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    near = all(re.match(r"inproc://|\w+://(127\.|localhost:|\[::1\])", address) for address in workers)
    return sum(int(worker["nthreads"]) for worker in workers.values()) if near else 0


def _processes() -> bool:
    if "dask" not in sys.modules:
        return False
    import dask

    return dask.config.get("scheduler", None) in ("processes", "multiprocessing")


def _one_task(parent: int, call: Callable[[], Any]) -> Any:
    if os.getpid() != parent:
        _limit_for_good()
    return settled(call)()


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
# ``starts`` are the first number of each block, and behind them the number of all rows. What else is numbered through
# blocks, cells, goes the same way.

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
