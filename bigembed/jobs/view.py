"""``bigembed view``, ``be.view``: a folder with a page that shows every row of a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigembed.distance.metrics import checked_metric
from bigembed.errors import BigembedError, InputError, InputTypeError, MissingPathError
from bigembed.estimator.showing import scene_of_fitted
from bigembed.jobs.export import table_of
from bigembed.jobs.formatting import size
from bigembed.jobs.growth.repair import is_growth
from bigembed.jobs.growth.table import PLACED, growing_table
from bigembed.jobs.growth.versions import Growth
from bigembed.jobs.record import kind_of
from bigembed.jobs.report.summary import RunSummary
from bigembed.jobs.scene import Found, facts_of, names_of, shown_by_run, warned_in
from bigembed.maps.registry import load
from bigembed.rows.formats.tables import ID
from bigembed.rows.source import RowSource
from bigembed.runtime.executors import chosen_executor
from bigembed.runtime.parameters import declared
from bigembed.store import manifests
from bigembed.store.attributes import attributes_of
from bigembed.store.files import temporary
from bigembed.store.paths import AnyPath, PathLike, at, is_path, local, require_apart
from bigembed.viewer.building import View, build_view
from bigembed.viewer.compare import compared
from bigembed.viewer.points import ATLAS, FILE, atlas_command, scatter_call
from bigembed.viewer.scene import Scene
from bigembed.viewer.sources import columns_of, scene_of, vector_of

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
        vectors by name; or paths of tables, ``"table.parquet"`` or ``"table.csv:NAME,NAME"``, one or several.
    ids : array of shape (n,) or path, or None
        Names of the rows; by default those of the run, else rows are known by their numbers.
    rows : array or path of shape (n, d), or None
        The rows that the map is of: where it has no graph, nearest rows among them are drawn, and the share that is
        near on the map, too. By default those that the run or the estimator was fitted to.
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
    Three passes over the coordinates, two over ids and columns. Of a map without a graph also two over its rows, where
    the nearest ones of 512 to 16 384 sampled rows are found exactly, of fewer the more and the wider the rows are. The
    memory is that of some blocks of 262 144 rows, whatever the number of rows. What a killed call has done is used by
    the next.

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
    with temporary("view", home, hidden=True) as scratch, chosen_executor():
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
    if is_path(source):
        place = at(source).absolute()
        if not place.exists():
            raise MissingPathError(f"{place}: no such run, and no coordinates")
        require_apart(place / "stages" if (place / "stages").exists() else place, out)
        if is_growth(place):
            source, known, own = _growing(place)
        elif (kind := _kind(place)) == "model":
            asked = {"columns": columns, "ids": ids, "rows": rows, "pairs": pairs}
            return scene_of_fitted(load(place), scratch, title=title or place.name, **asked)
        elif kind == "run":
            source, known, own = shown_by_run(place)
        else:
            table = table_of(place)
            source, own = table.coordinates, []
            known = {"title": place.name, "ids": table.aligned.get(ID), "names": names_of(table.coordinates)}
        known |= {"title": title or known["title"]} | ({} if pairs is None else {"pairs": pairs})
    if ids is not None:
        with naming("ids"):
            known["ids"] = vector_of(ids, scratch, "ids")
    if rows is not None:
        known |= {"rows": rows, "metric": metric}
    given = columns_of(columns, scratch)
    taken = {name for name, _ in given}
    known["columns"] = (*((name, one) for name, one in own if name not in taken), *given)
    return scene_of(source, scratch, **known)


def _kind(place: AnyPath) -> str:
    """``"run"`` or ``"model"``, as the path itself says, or nothing."""
    known = (attributes_of(place) or {}).get("bigembed") or manifests.holds_run(place, "run")
    return "" if place.suffix == ".npy" or not known else kind_of(place)


def _growing(place: AnyPath) -> Found:
    """The coordinates of the current version of a growing embedding: rows that were fitted, and rows placed since."""
    current = Growth(place).current
    if current is None:
        raise InputError(f"{place}: no version is whole yet; run bigembed refresh")
    table, summary = growing_table(current), RunSummary.read(current.run)
    known = {
        "title": place.name,
        "names": names_of(table.coordinates),
        "ids": table.aligned.get(ID),
        "warnings": warned_in(summary),
        "facts": facts_of(summary),
    }
    return table.coordinates, known, [(PLACED, table.aligned[PLACED])] if current.fitted < table.rows else []
