"""The folder of a page: maps drawn one after the other, aside, and given their name when all is whole."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from bigembed import __version__
from bigembed.errors import ExistingOutputError
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.locks import output_lock
from bigembed.store.paths import AnyPath, PathLike, local, move, remove, retire
from bigembed.viewer.drawing import draw_map
from bigembed.viewer.points import FILE, atlas_pages, put_atlas, require_arrow, write_points
from bigembed.viewer.scene import Scene, Survey, survey_scene
from bigembed.viewer.sorting import gather_rows, layout_of, place_neighbors, scatter_rows

ABOUT = "view.json"
"""What a folder of ours says of itself."""
FORMAT = 1
PAGE = ("index.html", "view.css", "data.js", "draw.js", "page.js")
WORK, BEGUN, DONE = "work", "begun", "drawn.json"
"""Files of a folder that is in work: rows on their way, what it will be, and what the page is told of a map."""


@dataclass(frozen=True)
class View:
    """Say where the page of a map lies. In a notebook it is shown."""

    path: Path
    """The folder: open ``index.html`` in it, or serve the folder."""
    rows: int
    bytes: int
    seconds: float
    points: dict[str, Any] | None = None
    """Of ``points.parquet``, its rows, and which share of all these are; None where it was not asked for."""

    @property
    def page(self) -> Path:
        """Return the path of the page."""
        return self.path / "index.html"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it.

        Returns
        -------
        dict
            The path of the page, rows, bytes, seconds and points.
        """
        return {**asdict(self), "path": str(self.path), "page": str(self.page)}

    def _repr_html_(self) -> str:
        from html import escape
        from os.path import relpath

        return f'<iframe src="{escape(relpath(self.page))}" style="width:100%;height:600px;border:0"></iframe>'


def build_view(
    scenes: Sequence[Scene],
    out: PathLike,
    title: str = "",
    more: dict[str, Any] | None = None,
    points: bool = False,
    atlas: bool = False,
) -> View:
    """Write the folder of a page of one scene, or of several side by side.

    ``more``: what else the page is told. ``points``: also the file of :mod:`bigembed.viewer.points`. ``atlas``: also
    that file in the pages of Embedding Atlas.
    """
    began = time.perf_counter()
    place = local(out, "the folder of a page").absolute()
    if points or atlas:
        require_arrow()
    pages = atlas_pages() if atlas else None
    for scene in scenes:
        scene.require_fitting()
    said = [title, more, points or atlas, atlas, __version__]
    key = sha256(repr((FORMAT, said, [scene.fingerprint() for scene in scenes])).encode()).hexdigest()
    with output_lock(place):
        refuse_other(place)
        about = known(place)
        if about.get("key") != key:
            partial = place.with_name(f"{place.name}.partial")
            if known(partial).get("key") != key:
                _begin(partial, key)
                panes = [_drawn(scene, partial, f"m{number}", points or atlas) for number, scene in enumerate(scenes)]
                told = {"title": title or scenes[0].title, "version": __version__, "panes": panes}
                put_page(partial, told | (more or {}))
                if pages is not None:
                    put_atlas(pages, partial)
                write_json(partial / ABOUT, sealed(_about(key, scenes[0].rows, panes)))
            about = known(partial)
            _publish(partial, place)
    seconds = round(time.perf_counter() - began, 3)
    return View(place, about["rows"], about["bytes"], seconds, about.get("points"))


def _begin(partial: Path, key: str) -> None:
    """The folder to work in: what a killed call of the same has left, or an empty one."""
    refuse_other(partial)
    begun = partial / BEGUN
    if partial.exists() and (not begun.is_file() or begun.read_text() != key):
        remove(partial)
    partial.mkdir(parents=True, exist_ok=True)
    begun.write_text(key)


def _about(key: str, rows: int, panes: list[dict[str, Any]]) -> dict[str, Any]:
    maps = [one for pane in panes for one in pane["maps"]]
    return {
        "key": key,
        "format": FORMAT,
        "rows": rows,
        "bytes": sum(one["bytes"] for one in maps),
        "points": maps[0].get("points"),
    }


def _publish(partial: Path, place: Path) -> None:
    """Give what is whole its name, in place of what had it."""
    (partial / BEGUN).unlink(missing_ok=True)
    for done in partial.glob(f"*/{DONE}"):
        done.unlink()
    if place.exists() and not (place / ABOUT).is_file():
        place.rmdir()
    retire(place)
    move(partial, place)


def refuse_other(place: Path) -> None:
    """What is there and is no folder of ours, whole or in work, is not replaced."""
    ours = any((place / mark).is_file() for mark in (ABOUT, BEGUN))
    if place.exists() and not ours and not (place.is_dir() and not any(place.iterdir())):
        raise ExistingOutputError(
            f"{place}: exists, and bigembed view did not write it. Nothing was changed; choose another path"
        )


def known(place: Path) -> dict[str, Any]:
    """What a folder of ours says of itself."""
    return read_sealed(place / ABOUT) if (place / ABOUT).is_file() else {}


def _drawn(scene: Scene, folder: Path, name: str, points: bool) -> dict[str, Any]:
    """Draw every pair of coordinates of a scene; what the page is told of it."""
    survey: Survey | None = None
    maps = []
    for number, pair in enumerate(scene.pairs):
        target = folder / f"{name}p{number}"
        done = target / DONE
        if not done.is_file():
            survey = survey or survey_scene(scene)
            filed = folder / FILE if points and (name, number) == ("m0", 0) else None
            write_json(done, draw_pair(scene, survey, number, target, filed))
        remove(target / WORK)
        found = json.loads(done.read_bytes())
        maps.append({"folder": target.name, "axes": [axis_name(scene, axis) for axis in pair], **found})
    warnings = [{"title": one.title, "level": one.level, "messages": one.messages} for one in scene.warnings]
    return {"title": scene.title, "maps": maps, "warnings": warnings, "facts": scene.facts}


def axis_name(scene: Scene, axis: int) -> str:
    """The name of a coordinate; the second of one coordinate is the row."""
    return scene.names[axis] if axis < len(scene.names) else "row"


def draw_pair(scene: Scene, survey: Survey, pair: int, target: Path, filed: Path | None) -> dict[str, Any]:
    """Draw one pair of coordinates, in passes over the rows; ``filed``: where its points are written, too."""
    work = target / WORK
    work.mkdir(parents=True, exist_ok=True)
    layout, graph = layout_of(survey, pair, work), scene.graph is not None
    some = scene.graph.listed if scene.graph is not None else None
    counts = scatter_rows(scene, survey, pair, layout)
    starts = gather_rows(layout, counts, scene.rows, graph, some)
    listed = None
    if scene.graph is not None:
        listed = place_neighbors(scene.graph, layout, int(starts[-1]), filed is not None)
    found = draw_map(survey, layout, starts, target, scene.rows, listed)
    if filed is not None:
        found["points"] = write_points(survey, survey.frames[pair], layout, starts, filed, graph and some is None)
    return {**found, **survey.frames[pair].as_dict(), "missing": survey.missing}


def put_page(folder: AnyPath, said: dict[str, Any]) -> None:
    """The page itself, and what it is told: a script, in which no text can end it or begin another."""
    for name in PAGE:
        text = resources.files("bigembed.viewer").joinpath("page", name).read_bytes()
        Path(str(folder), name).write_bytes(text)
    about = json.dumps(said, ensure_ascii=True).replace("<", "\\u003c")
    Path(str(folder), "about.js").write_text(f"const ABOUT = {about};\n")
