"""What counts block tasks and passes over rows, or ends the process in the middle of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bigembed.runtime import using


@dataclass
class GivenExecutor:
    """A function as an executor, whose tasks may be anywhere."""

    function: Callable[..., list[Any]]
    pool: Any = None
    free_memory: Callable[[], None] = lambda: None
    in_this_process: bool = False
    threads: int = 1

    def run(self, calls: Sequence[Callable[[], Any]], label: str, progress: Any = None, keep: Any = None) -> list[Any]:
        return self.function([partial(_kept, keep, place, call) for place, call in enumerate(calls)], label)


def _kept(keep: Any, place: int, call: Callable[[], Any]) -> Any:
    result = call()
    if keep is not None:
        keep(place, result)
    return result


def executor(run: Any) -> AbstractContextManager[None]:
    """Let an executor, or a function of calls and their label, have the tasks of this context."""
    return using(executor=run if hasattr(run, "run") else GivenExecutor(run))


class Killed(Exception):
    """The process ends here."""


def maps(die_in: str = "", at: int = 1) -> tuple[Callable[..., list[Any]], Counter[str]]:
    """An executor that counts the maps of each label, whatever their number, and ends the process in one of them.

    One task of that map is done by then, and its files are there.
    """
    made: Counter[str] = Counter()

    def run(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        label = label.rstrip("0123456789")
        made[label] += 1
        if (label, made[label]) == (die_in, at):
            calls[0]()
            raise Killed
        return [call() for call in calls]

    return run, made
