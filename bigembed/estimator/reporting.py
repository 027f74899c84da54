"""What a fit tells its user (warnings at the line of the caller, events, a bar), and shows: pictures and pages."""

from __future__ import annotations

import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from bigembed import errors
from bigembed.estimator import compares_rows, rows_fitted, run_of, spec_of
from bigembed.plotting.maps import plot_points
from bigembed.quality import FIGURES, with_error
from bigembed.rows.derived import KeptRows, RowNumbers
from bigembed.rows.input import row_source
from bigembed.runtime import Event, Observer, runtime_now, using
from bigembed.runtime.executors import chosen_executor
from bigembed.stages import Stage
from bigembed.store import PathLike, at, local
from bigembed.store.files import temporary
from bigembed.viewer import Scene, Warned
from bigembed.viewer.building import View, build_view
from bigembed.viewer.columns import Names, columns_of, ids_of, index_names
from bigembed.viewer.sources import columns_of_run, graph_of, rows_behind, scene_of

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


def warn_of(certificate: Mapping[str, Any], name: str = "") -> None:
    """Give the warnings of a certificate, of an estimator with its ``name`` before: one of several in a pipeline."""
    for category, messages in certificate.get("warnings", {}).items():
        for message in messages:
            named = message if not name or message.startswith(f"{name}: ") else f"{name}: {message}"
            warn(named, getattr(errors, CATEGORIES[category]))


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


# ------------------------------------------------------------------------------------------------ pictures and pages
# What a fitted estimator shows of its map: a picture, and a page with every row.


class Shown:
    """``plot`` and ``view`` of an estimator with an embedding."""

    def plot(self, color: Any = None, labels: Any = None, axes: tuple[int, int] = (0, 1), ax: Any = None) -> Any:
        """Draw the map of the fitted rows into Matplotlib's axes, by :func:`bigembed.plotting.scatter`.

        Parameters
        ----------
        color : array of shape (n,), or None
            A number for each row.
        labels : array of shape (n,), or None
            A class for each row; not both.
        axes : pair of int
            The two coordinates that are drawn, from 0.
        ax : matplotlib.axes.Axes, or None
            Where to draw; None is a new figure of pyplot.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return plot_points(_embedding(self), color, labels, axes, ax=ax, title=type(self).__name__)

    def view(
        self,
        out: PathLike | None = None,
        *,
        columns: Any = None,
        ids: Any = None,
        rows: Any = None,
        pairs: Sequence[tuple[int, int]] | None = None,
        title: str | None = None,
        points: bool = False,
        atlas: bool = False,
    ) -> View:
        """Write a folder with a page that shows every fitted row, as :func:`bigembed.view` does.

        Parameters
        ----------
        out : path, or None
            The folder; None is the name of the method with ``-view`` behind it, in the current folder.
        columns : mapping, data frame or path, or None
            Columns to colour the map by, with an entry for each row of the map or, where a step left rows out, of all
            that were fitted. If a data frame was fitted, columns of a data frame are joined by the index of both; else
            row i is row i of the map.
        ids : array of shape (n,) or path, or None
            Names of the rows; by default the index of a data frame that was fitted.
        rows : array or path of shape (n, d), or None
            The rows among which nearest ones are looked for; by default those that were fitted, unless there is a
            graph.
        pairs : sequence of pairs of int, or None
            Pairs of coordinates, from 0, that are shown.
        title : str, or None
            The heading of the page.
        points : bool
            Whether ``points.parquet`` is written, too.
        atlas : bool
            Whether the pages of Embedding Atlas are put beside it.

        Returns
        -------
        View
            Where the page lies; a notebook shows it.
        """
        place = local(out or f"{type(self).__name__.lower()}-view", "the folder of a page").absolute()
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary("view", place.parent, hidden=True) as scratch, chosen_executor():
            scene = scene_of_fitted(self, scratch, title=title, columns=columns, ids=ids, rows=rows, pairs=pairs)
            return build_view([scene], place, points=points, atlas=atlas)


def _embedding(estimator: Any) -> Any:
    estimator._check_fitted()
    try:
        return estimator.embedding_
    except errors.NotFittedError:
        raise
    except AttributeError:
        name = type(estimator).__name__
        raise errors.InputTypeError(f"{name} keeps no embedding_: there is no map to show") from None


def scene_of_fitted(
    estimator: Any, scratch: Path, *, title: str | None, columns: Any, ids: Any, rows: Any, pairs: Any
) -> Scene:
    """The map of an estimator, the graph or the rows that it is of, and what its certificate warns of."""
    source, _ = row_source(_embedding(estimator), at(scratch), "coordinates")
    n, run, own = source.shape[0], run_of(estimator), rows_fitted(estimator)
    graph = graph_of(run, n) if rows is None else None
    known = own is not None and compares_rows(spec_of(estimator)) and rows_behind(run, own)
    rows = own if known and rows is None and graph is None else rows
    kept, warned = _kept(estimator), estimator.certificate_.get("warnings", {})
    figures = estimator.certificate_.get("judgement", {}).get("map", {})
    own_columns = [*([("row", kept)] if kept is not None else []), *columns_of_run(run, estimator.certificate_)]
    names = Names(
        rows=None if ids is None else ids_of(ids, scratch),
        index=index_names(getattr(estimator, "_index", None)),
    )
    return scene_of(
        source,
        scratch,
        title=title or type(estimator).__name__,
        pairs=pairs,
        ids=names.shown,
        columns=(*own_columns, *columns_of(columns, scratch, names)),
        graph=graph,
        rows=rows,
        metric=getattr(estimator, "metric", "euclidean"),
        kept=kept,
        warnings=tuple(Warned(kind.capitalize(), "warn", tuple(said)) for kind, said in warned.items() if said),
        facts=tuple((name, with_error(figures[key])) for key, (name, _) in FIGURES.items() if key in figures),
    )


def _kept(estimator: Any) -> KeptRows | None:
    """The numbers of the rows that a step before the method has left, if one left some out."""
    for step in getattr(estimator, "steps_", ()):
        if (rows := rows_fitted(step)) is not None and hasattr(step, "left_of"):
            return step.left_of(RowNumbers((rows.shape[0],), np.dtype(np.int64)))  # type: ignore[no-any-return]
    return None
