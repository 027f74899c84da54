"""What a fit tells its user: warnings that name the line of the caller, events for callbacks, and a bar."""

from __future__ import annotations

import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from bigembed import errors
from bigembed.runtime.runtime import Event, Observer, runtime_now, using
from bigembed.stages import Stage

# --------------------------------------------------------------------------------------------------------- warning
# Warnings that name the line of the caller, and those of a certificate; in a search over parameters each once.

CATEGORIES = {
    "convergence": "ConvergenceWarning",
    "recall": "RecallWarning",
    "components": "ComponentsWarning",
    "degenerate": "DegenerateWarning",
    "localized": "LocalizedWarning",
    "separation": "SeparationWarning",
    "harmonic": "HarmonicWarning",
    "map": "MapWarning",
    "clusters": "ClustersWarning",
}
"""Names of the warnings of a certificate by category."""
LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen")
INSISTING = ("error", "always", "all")
"""Actions of filters that want every warning."""
_given: set[tuple[Any, ...]] = set()


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's line, the first one outside of this package.

    Where a library is the caller (a search over parameters, a validation), a sentence is given once for the line that
    called the library, whatever the figures in it; unless filters ask for every warning.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("bigembed."):
        frame, level = frame.f_back, level + 1
    called = frame
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    if called is not frame and frame is not None and warnings.filters[0][0] not in INSISTING:
        said = category, without_numbers(message), frame.f_code.co_filename, frame.f_lineno
        if said in _given:
            return
        _given.add(said)
    warnings.warn(message, category, stacklevel=level + 1)


def without_numbers(message: str) -> str:
    """A sentence that is the same for all figures in it.

    >>> without_numbers("Trustworthiness is 0.72 ± 0.01")
    'Trustworthiness is # ± #'
    """
    return re.sub(r"\d[\d.,]*(e[-+]?\d+)?", "#", message)


def warn_of(certificate: Mapping[str, Any]) -> None:
    """Give the warnings of a certificate."""
    for category, messages in certificate.get("warnings", {}).items():
        for message in messages:
            warn(message, getattr(errors, CATEGORIES[category]))


# -------------------------------------------------------------------------------------------------------- progress
# What a fit reports while it runs: events for callbacks, and a bar for ``verbose=True``.

WIDTH = 30
APART = 0.1
"""Seconds between two drawings of a line."""


@contextmanager
def notify_callbacks(estimator: Any, stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    """Let the callbacks of an estimator, and its bar where it is verbose, hear the events of these stages."""
    listeners: list[Observer] = list(getattr(estimator, "callbacks", None) or ())
    with ExitStack() as stack:
        if getattr(estimator, "verbose", False):
            listeners.append(stack.enter_context(bar(type(estimator).__name__, len(stages))))
        if listeners:
            notify = _all_of([runtime_now().observer, *listeners])
            current, around = [""], runtime_now().progress

            def observe(event: Event) -> None:
                current[0] = event.stage
                notify(event)

            def progress(label: str, done: int, total: int) -> None:
                if around is not None:
                    around(label, done, total)
                notify(Event("blocks", current[0], results={"done": done, "total": total}, message=label))

            stack.enter_context(using(observer=observe, progress=progress))
        yield list(stages)


def _all_of(listeners: Sequence[Observer]) -> Observer:
    def notify(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return notify


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
