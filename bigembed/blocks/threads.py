"""Block tasks in threads of this process, which see its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from bigembed.blocks.rows import Ticker


def unheard(label: str, done: int, total: int) -> None:
    """The ticker that nobody hears."""


class Threads:
    """An executor (see :func:`bigembed.blocks.rows.executor`): tasks in ``count`` threads of this process.

    ``notify`` hears of each task that is done, in the thread that called, and may raise there: no task is begun then,
    and those at work are awaited.
    """

    here = True  # (see bigembed.blocks.rows.here)

    def __init__(self, count: int = 1, notify: Ticker = unheard) -> None:
        self.count, self.notify = count, notify

    def __call__(self, calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        """The results, in the order of the calls."""
        self.notify(label, 0, len(calls))
        if min(self.count, len(calls)) <= 1:
            return [self._noted(call(), label, done, len(calls)) for done, call in enumerate(calls, 1)]
        with ThreadPoolExecutor(self.count) as pool:
            futures = [pool.submit(call) for call in calls]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    self._noted(future.result(), label, done, len(calls))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def _noted(self, result: Any, label: str, done: int, total: int) -> Any:
        self.notify(label, done, total)
        return result
