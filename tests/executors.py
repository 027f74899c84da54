"""Executors of block tasks that count what they run, and end the process in the middle of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any


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
