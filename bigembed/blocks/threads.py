"""Block tasks in threads of this process, which see its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bigembed.blocks.rows import Ticker
from bigembed.blocks.stripes import working


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
        with working(self.count) as crew:
            return crew.run(calls, lambda done: self.notify(label, done, len(calls)))
