"""What a fit reports while it runs: events for callbacks, and a bar for ``verbose=True``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from bigembed.blocks.rows import ticking
from bigembed.stages import Event, Observer, Stage, observer_now, observing

WIDTH = 30
APART = 0.1
"""Seconds between two drawings of a line."""


@contextmanager
def telling(estimator: Any, stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    """Let the callbacks of an estimator, and its bar where it is verbose, hear the events of these stages."""
    listeners: list[Observer] = list(getattr(estimator, "callbacks", None) or ())
    with ExitStack() as stack:
        if getattr(estimator, "verbose", False):
            listeners.append(stack.enter_context(bar(type(estimator).__name__, len(stages))))
        if listeners:
            tell = _all_of([observer_now(), *listeners])
            current = [""]

            def observe(event: Event) -> None:
                current[0] = event.stage
                tell(event)

            stack.enter_context(observing(observe))
            stack.enter_context(ticking(lambda label, done, total: tell(_blocks(current[0], label, done, total))))
        yield list(stages)


def _all_of(listeners: Sequence[Observer]) -> Observer:
    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def _blocks(stage: str, label: str, done: int, total: int) -> Event:
    return Event("blocks", stage, results={"done": done, "total": total}, message=label)


@contextmanager
def bar(name: str, stages: int) -> Iterator[Observer]:
    """A bar over the stages of a fit: of rich in a terminal, of text that overwrites itself elsewhere."""
    draw: Callable[[float, str], None]
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task(name, total=float(stages))

            def draw(done: float, text: str) -> None:
                progress.update(task, completed=done, description=f"{name}: {text}")

            yield Bar(draw)
        return
    line = Line(name, stages)
    try:
        yield Bar(line.draw)
    finally:
        line.close()


class Line:
    """A bar of plain text on the error stream, for notebooks and logs; drawn ten times a second at most."""

    def __init__(self, name: str, stages: int) -> None:
        self.name, self.stages = name, max(1, stages)
        self._width, self._next = 0, 0.0

    def draw(self, done: float, text: str) -> None:
        """``done`` of the stages; a whole number of them is drawn at once."""
        if monotonic() < self._next and done != int(done):
            return
        self._next = monotonic() + APART
        full = int(WIDTH * done / self.stages)
        line = f"{self.name} [{'#' * full}{'.' * (WIDTH - full)}] {int(100 * done / self.stages):3d} % {text}"
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)

    def close(self) -> None:
        """End the line."""
        print(file=sys.stderr, flush=True)


class Bar:
    """Events as a share of the stages that are done; a pass within one moves it halfway on, again and again."""

    def __init__(self, draw: Callable[[float, str], None]) -> None:
        self._draw, self._done, self._within = draw, 0, 0.0

    def __call__(self, event: Event) -> None:
        if event.kind in ("done", "reused"):
            self._done, self._within = self._done + 1, 0.0
            self._draw(float(self._done), event.stage)
        elif event.kind == "blocks":
            done, total = event.results["done"], event.results["total"]
            reached = self._within + (1 - self._within) / 2 * done / total
            if done == total:
                self._within = reached
            self._draw(self._done + min(reached, 0.999), f"{event.stage}, {event.message} {done}/{total}")
        elif event.kind == "start":
            self._draw(float(self._done), event.stage)
