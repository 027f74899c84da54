"""What a fitted estimator shows of its map: a picture, and a page with every row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigembed import errors
from bigembed.estimator.judged import compares_rows
from bigembed.estimator.protocol import rows_fitted, run_of, spec_of
from bigembed.plotting.maps import plot_points
from bigembed.quality.neighborhoods import FIGURES, with_error
from bigembed.rows.derived import KeptRows, RowNumbers
from bigembed.rows.input import row_source
from bigembed.runtime.executors import chosen_executor
from bigembed.store.files import temporary
from bigembed.store.paths import PathLike, at, local
from bigembed.viewer.building import View, build_view
from bigembed.viewer.scene import Scene, Warned
from bigembed.viewer.sources import columns_of, columns_of_run, graph_of, rows_behind, scene_of, vector_of


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
            that were fitted.
        ids : array of shape (n,) or path, or None
            Names of the rows.
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
    return scene_of(
        source,
        scratch,
        title=title or type(estimator).__name__,
        pairs=pairs,
        ids=None if ids is None else vector_of(ids, scratch, "ids"),
        columns=(*own_columns, *columns_of(columns, scratch)),
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
