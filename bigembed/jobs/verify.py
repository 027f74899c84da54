"""The commands that check: whether stored files are what was published, and how well coordinates show their rows."""

from __future__ import annotations

import shlex
import time
from typing import Any

from bigembed import __version__
from bigembed.errors import DamagedError, InterruptedRun, JobError, MissingPathError
from bigembed.estimator.transform import aside_of
from bigembed.jobs.extend import status_path
from bigembed.jobs.growth.repair import is_growth, verify_growth
from bigembed.jobs.record import after_refusal, verify_stages
from bigembed.jobs.report.figures import Entry, map_figures
from bigembed.jobs.report.page import filled, refuse_page
from bigembed.jobs.report.run_map import draw_coordinates
from bigembed.jobs.scene import table_of
from bigembed.jobs.watching.status import read_status
from bigembed.quality import FAITHFUL, FIGURES
from bigembed.quality.certify import MapQuality, certify
from bigembed.rows import RowSource
from bigembed.rows.input import row_source
from bigembed.store import AnyPath, PathLike, at, manifests, no_such_path, put, require_apart
from bigembed.store.attributes import attributes_of

# ---------------------------------------------------------------------------------------------------------- verify
# ``bigembed verify``: whether a run, a saved model or a growing embedding is what was published.


def verify(given: PathLike, deep: bool = True) -> dict[str, Any]:
    """Read every stored byte of a run, a saved model or a growing embedding, and compare it with the manifests.

    ``deep=False``: names, sizes and metadata only, which takes seconds where the bytes are terabytes.

    Returns ``problems`` (damage: absent or changed files, stages made from other stages than those that are there),
    ``unlisted`` (files that no manifest knows and nobody reads), ``digest`` (whether a model carries one over its
    metadata; those saved by earlier versions do not), ``finished``, why the last start was ``refused``, what is
    ``superseded`` (made with other parameters or of other rows, which is not damage), the stages with their bytes,
    and the certificate.
    """
    path = at(given).absolute()
    if not path.exists():
        raise MissingPathError(no_such_path(path, "run"))
    return verify_growth(path) if is_growth(path) else verify_stages(path, deep)


def require_undamaged(found: dict[str, Any]) -> None:
    """:class:`DamagedError` or :class:`InterruptedRun` unless what was verified is undamaged and finished;
    :class:`JobError` where its last start was refused."""
    if found["problems"]:
        raise DamagedError(
            f"{found['path']}: damaged:"
            + "".join(f"\n  {problem}" for problem in found["problems"])
            + f"\nRun {'bigembed refresh' if found['kind'] == 'growth' else 'the job'} again to make what is "
            "damaged anew"
        )
    if found.get("refused"):
        way_on = after_refusal(at(found["path"]), found["refused"])
        raise JobError(f"{found['path']}: nothing is damaged, but {way_on}")
    if not found["finished"]:
        raise InterruptedRun(f"{found['path']}: nothing is damaged, but the run did not end. Run the job again")


# --------------------------------------------------------------------------------------------------------- certify
# ``bigembed certify``: the judgement of :func:`bigembed.certify` for paths, and its page.

TEMPLATE = "certify.html"


def certify_paths(
    rows: PathLike, coordinates: PathLike, out: PathLike | None = None, *, title: str | None = None, **asked: Any
) -> tuple[MapQuality, dict[str, Any]]:
    """Judge the coordinates at a path (an array, or a run of bigembed) against the rows at another.

    ``asked``: ``n_neighbors``, ``samples``, ``metric``, ``seed`` of :func:`bigembed.certify`. ``out``: where to write
    the page; a page of this program is replaced, another file is not. Returns the judgement, and it as a dict with
    ``paths``, ``seconds`` and ``page``. Raises MissingPathError, ExistingOutputError before anything
    is read, and what :func:`bigembed.certify` raises. Cost: that of it, and two passes over the coordinates.
    """
    began = time.perf_counter()
    places = [at(rows).absolute(), at(coordinates).absolute()]
    for place, what in zip(places, ("rows", "coordinates"), strict=True):
        if not place.exists():
            raise MissingPathError(no_such_path(place, what))
    page = None if out is None else at(out).absolute()
    if page is not None:
        refuse_page(page)
        for place in places:
            require_apart(place, page)
    shown = coordinates_at(places[1])
    quality = certify(places[0], shown, **asked)
    found = {"paths": {"rows": str(places[0]), "coordinates": str(places[1])}, **quality.as_dict()}
    found["seconds"] = round(time.perf_counter() - began, 3)
    if page is not None:
        put(page, _page(quality, found, shown, title).encode())
        found["page"] = str(page)
    return quality, found


def coordinates_at(place: AnyPath) -> RowSource:
    """Open an array of coordinates, or those of a run of bigembed."""
    known = (attributes_of(place) or {}).get("bigembed") in ("run", "model") or manifests.holds_run(place, "run")
    if place.suffix != ".npy" and known:
        return table_of(place).coordinates
    source, _ = row_source(place, place)
    return source


def certify_lines(quality: MapQuality, found: dict[str, Any]) -> list[str]:
    """Write the outcome of ``certify`` in lines to print."""
    end = [f"{found['page']}: the page"] if "page" in found else []
    return [*quality.lines(), f"{found['seconds']:.1f} s", *end]


def _page(quality: MapQuality, found: dict[str, Any], source: RowSource, title: str | None) -> str:
    figures = quality.figures
    lines = map_figures(figures)
    paths = found["paths"]
    tiles = [("Rows", f"{figures['n']:,}", f"of {figures['d']:,} columns")]
    tiles += [("Coordinates", f"{figures['n_coordinates']:,}", at(paths["coordinates"]).name)]
    tiles += [
        (line.name, f"{figures[key]['value']:.3f}", f"shuffled {line.chance}") for key, line in zip(FIGURES, lines)
    ]
    return filled(
        TEMPLATE,
        draw_coordinates(source),
        title=title or f"{at(paths['coordinates']).name} as a map of {at(paths['rows']).name}",
        coordinates=paths["coordinates"],
        quality=quality,
        limit=FAITHFUL,
        tiles=tiles,
        lines=lines,
        facts=_facts(figures, paths),
        command=_command(figures, paths),
        version=__version__,
        seconds=found["seconds"],
    )


def _facts(figures: dict[str, Any], paths: dict[str, str]) -> list[Entry]:
    distances = {"euclidean": "Euclidean"}.get(figures["metric"], figures["metric"])
    return [
        Entry("Rows", f"{paths['rows']}: {figures['n']:,} × {figures['d']:,}, {distances} distances"),
        Entry("Coordinates", f"{paths['coordinates']}: {figures['n']:,} × {figures['n_coordinates']:,}"),
        Entry("Neighbors", f"{figures['n_neighbors']:,}"),
        Entry("Rows sampled", f"{figures['samples']:,} (seed {figures['seed']})"),
    ]


def _command(figures: dict[str, Any], paths: dict[str, str]) -> str:
    options = {"k": "n_neighbors", "samples": "samples", "metric": "metric", "seed": "seed"}
    words = ["bigembed", "certify", paths["rows"], paths["coordinates"]]
    return shlex.join([*words, *(word for name, key in options.items() for word in (f"--{name}", str(figures[key])))])


# ---------------------------------------------------------------------------------------------------------- standing


def standing(path: PathLike) -> dict[str, Any]:
    """Return how the job stands whose output lies at a path.

    ``"exit"`` is the exit status that says so: 0 done, 4 at work, else that with which it ended. Raises
    :class:`MissingPathError` where no job has written how it stands.
    """
    out = at(path).absolute()
    found = read_status(out) or read_status(aside_of(out), status_path(out))
    if not found:
        raise MissingPathError(f"{path}: no job has written how it stands, neither there nor to {status_path(out)}")
    ended = (found.get("error") or {}).get("status", 0)
    return {"output": str(path), **found, "exit": 4 if found["state"] in ("planned", "running") else int(ended)}
