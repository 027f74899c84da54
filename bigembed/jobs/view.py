"""``bigembed view``, ``be.view``: a folder with a page that shows every row of a map, or of two maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.distance.metrics import checked_metric
from bigembed.errors import BigembedError, InputError, InputTypeError, MissingPathError
from bigembed.estimator.reporting import scene_of_fitted
from bigembed.jobs import growth, record, report, size
from bigembed.jobs.growth import extend, repair
from bigembed.jobs.record import read_record
from bigembed.jobs.scene import Found, facts_of, names_of, shown_by_run, table_of, warned_in
from bigembed.maps import load
from bigembed.rows import RowSource
from bigembed.rows.formats.tables import ID
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.runtime.executors import chosen_executor
from bigembed.runtime.parameters import declared
from bigembed.store import (
    AnyPath,
    PathLike,
    at,
    attributes,
    files,
    is_path,
    local,
    manifests,
    no_such_path,
    require_apart,
)
from bigembed.viewer import BLOCK, Scene, encoded
from bigembed.viewer.building import View, build_view
from bigembed.viewer.columns import Names, columns_of, ids_of
from bigembed.viewer.points import ATLAS, FILE, atlas_command, scatter_call
from bigembed.viewer.sources import scene_of

SUFFIX = "-view"
"""Of the folder beside a run, where none is named."""


@declared
def view(
    source: Any,
    out: PathLike | None = None,
    *,
    columns: Any = None,
    ids: Any = None,
    rows: Any = None,
    metric: str = "euclidean",
    pairs: Sequence[tuple[int, int]] | None = None,
    title: str | None = None,
    beside: Any = None,
    points: bool = False,
    atlas: bool = False,
) -> View:
    """Write a folder with a page that shows every row of a map: it opens by double-click, without a server.

    The page zooms from the density of all rows to single ones, colours the map by columns, finds rows by their id,
    draws the nearest rows of one that is clicked, selects rows, and says what the certificate says of the map.

    Parameters
    ----------
    source : path, array or estimator
        A run, a model that holds its coordinates, a growing embedding, coordinates that ``bigembed extend`` wrote, or
        any coordinates (n, m) of any kind that :func:`bigembed.open_array` takes; or a fitted estimator.
    out : path, or None
        The folder; None is the path of the source with ``-view`` behind it. One that this function wrote is replaced.
    columns : mapping, data frame or path, or None
        Columns to colour the map by, beside those that the run knows (labels, clusters, components): arrays or paths of
        vectors by name; or paths of tables, ``"table.parquet"`` or ``"table.csv:NAME,NAME"``, one or several. A table
        with a column of the name that the run's ids have, and a data frame whose index has these ids, are joined by
        them, so that their rows may stand in any order, and may be more or fewer. Else row i is row i of the map.
    ids : array of shape (n,) or path, or None
        Names of the rows; by default those of the run, else rows are known by their numbers. Ids of the run in another
        order say that ``columns`` are in that order, and are joined by them.
    rows : array or path of shape (n, d), or None
        The rows that were mapped. Where the map has no graph, the nearest rows that the page draws, and the share of
        them that is near on the map, are found from these. By default those that the run or the estimator was fitted
        to.
    metric : str
        The distance between ``rows`` that are given, as for a neighbor graph.
    pairs : sequence of pairs of int, or None
        Pairs of coordinates, from 0, that are shown; by default the first one, of few rows also others.
    title : str, or None
        The heading of the page.
    beside : path or array, or None
        Other coordinates of the same rows, shown beside the first with a linked cursor, and by how far each row moves.
    points : bool
        Whether ``points.parquet`` is written, too: at most 4·10⁶ rows with ids, columns and neighbors, as Embedding
        Atlas and jupyter-scatter read them (needs the extra ``parquet``).
    atlas : bool
        Whether the pages of Embedding Atlas, which must be installed, are put beside it, for any web server.

    Returns
    -------
    View
        With ``path``, ``page``, ``rows``, ``bytes``, ``seconds`` and ``points``; a notebook shows the page.

    Raises
    ------
    ExistingOutputError
        If something else is at ``out``.
    InputError
        If ids or columns do not fit the coordinates.
    DamagedError
        If the run is damaged.

    Notes
    -----
    Three passes over the coordinates, two over ids and columns. For a map without a graph, also two over its rows,
    which find exactly the nearest rows of 512 to 16 384 sampled ones: the more and the wider the rows are, the fewer
    are sampled. The memory is that of some blocks of 262 144 rows, whatever the number of rows; where columns are
    joined by ids, also about 30 bytes a row. What a killed call has done is used by the next.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> import bigembed as be
    >>> points = np.random.default_rng(0).normal(size=(1000, 2))
    >>> be.view(points, tempfile.mkdtemp() + "/map", columns={"x": points[:, 0]}).rows
    1000
    """
    if hasattr(source, "fit"):
        if beside is not None:
            raise InputError("view: beside goes with paths and arrays; give estimator.embedding_, or the runs")
        asked = {"columns": columns, "ids": ids, "rows": rows, "pairs": pairs}
        return _fitted(source).view(out, **asked, title=title, points=points, atlas=atlas)  # type: ignore[no-any-return]
    checked_metric(metric)
    place = local(out, "the folder of a page") if out is not None else _beside(source)
    home = place.absolute().parent
    home.mkdir(parents=True, exist_ok=True)
    asked = {"columns": columns, "ids": ids, "rows": rows, "metric": metric, "pairs": pairs, "out": place}
    with files.temporary("view", home, hidden=True) as scratch, chosen_executor():
        scenes = [scene_at(source, scratch, title=title, **asked)]
        more: dict[str, Any] = {}
        if beside is not None:
            with naming("beside"):
                scenes.append(scene_at(beside, scratch, title=None, **asked))
            scenes, more = compared(*scenes)
        return build_view(scenes, place, more=more, points=points, atlas=atlas)


def _fitted(source: Any) -> Any:
    """The estimator that has the map: of scikit-learn's pipeline the last one."""
    last = (
        source.steps[-1][1] if type(source).__module__.startswith("sklearn.") and hasattr(source, "steps") else source
    )
    if not hasattr(last, "view"):
        raise InputTypeError(
            f"view: {type(last).__name__} is no method of bigembed; give its coordinates, and the rows"
        )
    return last


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Say in an error of ours which argument it is about."""
    try:
        yield
    except BigembedError as error:
        raise type(error)(f"{argument}: {error}") from error


def _beside(source: Any) -> Path:
    if not is_path(source):
        raise InputError("view: out is the folder of the page; give one, for this source has no path")
    found = local(source, "the source").absolute()
    return found.with_name(found.with_suffix("").name + SUFFIX)


def view_lines(found: View) -> list[str]:
    """The outcome for people."""
    lines = [f"{found.page}: {found.rows:,} rows, {size(found.bytes)}; {found.seconds:.1f} s. Open it in a browser"]
    if found.points:
        share = "all of them" if found.points["share"] == 1 else f"{100 * found.points['share']:.3g} % of them"
        command = atlas_command(found.path / FILE, bool(found.points["neighbors"]))
        lines.append(f"{found.path / FILE}: {found.points['rows']:,} rows, {share}")
        lines += [f"  with Embedding Atlas: {command}", f"  with jupyter-scatter: {scatter_call(found.path / FILE)}"]
    if (found.path / ATLAS).is_dir():
        lines.append(f"{found.path / ATLAS}: its pages. They need a web server: python -m http.server -d {found.path}")
    return lines


# ---------------------------------------------------------------------------------------------------------- scenes


def scene_at(
    source: Any,
    scratch: Path,
    *,
    columns: Any,
    ids: Any,
    rows: Any,
    metric: str,
    pairs: Any,
    title: str | None,
    out: Path,
) -> Scene:
    """What a source shows, with what was given besides."""
    known: dict[str, Any] = {"title": title or "A map", "pairs": pairs}
    own: list[tuple[str, RowSource]] = []
    named_by = ""
    if is_path(source):
        place = at(source).absolute()
        if not place.exists():
            raise MissingPathError(f"{no_such_path(place, 'run')}, and no coordinates")
        require_apart(place / "stages" if (place / "stages").exists() else place, out)
        if repair.is_growth(place):
            source, known, own = _growing(place)
        elif (kind := _kind(place)) == "model":
            asked = {"columns": columns, "ids": ids, "rows": rows, "pairs": pairs}
            return scene_of_fitted(load(place), scratch, title=title or place.name, **asked)
        elif kind == "run":
            source, known, own = shown_by_run(place)
            named_by = str(read_record(place).get("job", {}).get("input", {}).get("ids", ""))
        else:
            table = table_of(place)
            source, own = table.coordinates, []
            known = {"title": place.name, "ids": table.aligned.get(ID), "names": names_of(table.coordinates)}
        known |= {"title": title or known["title"]} | ({} if pairs is None else {"pairs": pairs})
    with naming("ids"):
        names = Names(known.get("ids"), named_by, None if ids is None else ids_of(ids, scratch))
        known["ids"] = names.shown
    if rows is not None:
        known |= {"rows": rows, "metric": metric}
    given = columns_of(columns, scratch, names)
    taken = {name for name, _ in given}
    known["columns"] = (*((name, one) for name, one in own if name not in taken), *given)
    return scene_of(source, scratch, **known)


def _kind(place: AnyPath) -> str:
    """``"run"`` or ``"model"``, as the path itself says, or nothing."""
    known = (attributes.attributes_of(place) or {}).get("bigembed") or manifests.holds_run(place, "run")
    return "" if place.suffix == ".npy" or not known else record.kind_of(place)


def _growing(place: AnyPath) -> Found:
    """The coordinates of the current version of a growing embedding: rows that were fitted, and rows placed since."""
    current = growth.Growth(place).current
    if current is None:
        raise InputError(f"{place}: no version is whole yet; run bigembed refresh")
    table, summary = extend.growing_table(current), report.RunSummary.read(current.run)
    known = {
        "title": place.name,
        "names": names_of(table.coordinates),
        "ids": table.aligned.get(ID),
        "warnings": warned_in(summary),
        "facts": facts_of(summary),
    }
    return (
        table.coordinates,
        known,
        [(extend.PLACED, table.aligned[extend.PLACED])] if current.fitted < table.rows else [],
    )


# ---------------------------------------------------------------------------------------------------------- two maps
# Two maps of the same rows: the best similarity transform of one onto the other, and how far each row then moves.

MOVED = "moved"
"""The column that says how far."""
NAMED = 20
"""Rows that are named, those that move most."""


@dataclass(frozen=True)
class Moved(RowSource):
    """How far the points of two scenes lie apart, the second ones transformed; NaN where either is not finite."""

    scenes: tuple[Scene, ...] = ()
    turn: tuple[float, ...] = ()
    """The matrix that turns and scales, by rows, and then the shift."""

    def read(self, start: int, stop: int) -> Array:
        """Of rows ``start:stop``, in units of the first map."""
        here, there = _both(self.scenes, start, stop)
        matrix = np.array(self.turn[:4]).reshape(2, 2)
        apart = here - (there @ matrix.T + np.array(self.turn[4:]))
        far: Array = np.linalg.norm(apart, axis=1).astype(np.float32)
        return far

    def fingerprint(self) -> str:
        return " ".join([MOVED, *(scene.fingerprint() for scene in self.scenes)])


def compared(first: Scene, second: Scene) -> tuple[list[Scene], dict[str, Any]]:
    """Both scenes with a column of how far each row moves, and the rows that move most.

    The matrix s R and the shift minimize the squared distances of the first pair of coordinates, over rotations and
    reflections R (Schönemann & Carroll 1970). Two passes over the coordinates.
    """
    if first.rows != second.rows:
        raise InputError(
            f"{first.title} has {first.rows:,} rows, {second.title} {second.rows:,}: only maps of the same rows, in "
            "the same order, can be compared row by row"
        )
    bare = tuple(replace(one, graph=None, columns=()) for one in (first, second))
    spans = bounds(first.rows, BLOCK)
    sums = np.sum(map_blocks(sum_block, spans, "compare", scenes=bare), axis=0)
    moved = Moved((first.rows,), np.dtype(np.float32), scenes=bare, turn=best_turn(sums))
    most = [one for part in map_blocks(most_moved, spans, "compare", moved=moved) for one in part]
    most = sorted(most, key=lambda one: (-one["moved"], one["row"]))[:NAMED]
    scenes = [replace(one, columns=((MOVED, moved), *one.columns)) for one in (first, second)]
    text = (
        f"Distances in units of “{first.title}”, after “{second.title}” was turned, mirrored, scaled and shifted onto "
        "it as well as can be."
    )
    return scenes, {"moved": {"text": text, "rows": most}}


def _both(scenes: Sequence[Scene], start: int, stop: int) -> list[Array]:
    """The points of each scene."""
    return [scene.points(start, stop, scene.pairs[0]) for scene in scenes]


def sum_block(start: int, stop: int, *, scenes: Sequence[Scene]) -> Array:
    """How many rows are finite in both, the sums of their four numbers, and of the products of these."""
    names = [encoded(scene.ids.read(start, stop)) for scene in scenes if scene.ids is not None]
    if len(names) == len(scenes):
        wrong = np.flatnonzero(names[0] != names[1])
        if len(wrong):
            pair = [one[wrong[0]].decode() for one in names]
            raise InputError(
                f"row {start + wrong[0]} is {pair[0]!r} on the first map and {pair[1]!r} on the second: only maps of "
                "the same rows, in the same order, can be compared row by row"
            )
    both = np.concatenate(_both(scenes, start, stop), axis=1)
    both = both[np.isfinite(both).all(axis=1)]
    return np.concatenate([[len(both)], both.sum(axis=0), (both.T @ both).ravel()])


def best_turn(sums: Sequence[float]) -> tuple[float, ...]:
    """The matrix (by rows) and the shift that bring the second points onto the first, from their sums.

    >>> first = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    >>> second = first @ np.array([[0.0, 1.0], [-1.0, 0.0]]) / 2 + 5
    >>> both = np.concatenate([first, second], axis=1)
    >>> turn = best_turn(np.concatenate([[3], both.sum(axis=0), (both.T @ both).ravel()]))
    >>> bool(np.allclose(second @ np.array(turn[:4]).reshape(2, 2).T + turn[4:], first))
    True
    """
    count = max(float(sums[0]), 1.0)
    mean = np.array(sums[1:5]) / count
    scatter = np.array(sums[5:]).reshape(4, 4) / count - np.outer(mean, mean)
    left, values, right = np.linalg.svd(scatter[:2, 2:])
    size = float(np.trace(scatter[2:, 2:]))
    matrix = (values.sum() / size if size > 0 else 0.0) * left @ right
    return (*map(float, matrix.ravel()), *map(float, mean[:2] - matrix @ mean[2:]))


def most_moved(start: int, stop: int, *, moved: Moved) -> list[dict[str, Any]]:
    """The rows of a block that move most, with their names."""
    far = np.nan_to_num(moved.read(start, stop), nan=-1.0)
    most = np.argsort(-far, kind="stable")[:NAMED]
    ids = moved.scenes[0].ids
    names = None if ids is None else encoded(ids.read(start, stop))[most]
    return [
        {
            "row": int(start + row),
            "name": f"row {start + row}" if names is None else names[number].decode(errors="replace"),
            "moved": float(far[row]),
        }
        for number, row in enumerate(most.tolist())
        if far[row] >= 0
    ]
