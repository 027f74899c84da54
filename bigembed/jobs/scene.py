"""What a run shows: its coordinates in the formats of others, and its map on the page of every row."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed import store
from bigembed.datasets import dataset
from bigembed.errors import BigembedError, InputError, MissingPathError, StaleError, StaleWarning
from bigembed.estimator import compares_rows, frame, preprocessing, scikit_learn, spec_of
from bigembed.jobs import condensed_input, session, spec
from bigembed.jobs.inputs import IDS
from bigembed.jobs.job import ALIGNED
from bigembed.jobs.record import ELSEWHERE, kind_of, made_here, read_record, require_recorded, way_on
from bigembed.jobs.report import RunSummary, job_file, rows_of_stage
from bigembed.jobs.report.page import warnings_of
from bigembed.maps import REGISTRY, method
from bigembed.rows import RowSource
from bigembed.rows.derived import KeptRows
from bigembed.rows.formats.anndata import is_anndata, write_obsm
from bigembed.rows.formats.copying import aligned_of, require_length, vector_source
from bigembed.rows.formats.tables import ID, Table, write_table
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import chosen_executor
from bigembed.stages import Run
from bigembed.steps.each_column import kept_of
from bigembed.store import attributes, locks, manifests, no_such_path
from bigembed.store.files import temporary
from bigembed.store.superseded import explanation, superseded
from bigembed.viewer import Warned
from bigembed.viewer.building import View, build_view
from bigembed.viewer.sources import columns_of_run, first_pairs, graph_of, rows_behind, scene_of

# ------------------------------------------------------------------------------------------------------------ export
# Coordinates of a run or an extension in the formats of others: Parquet, CSV, .npy, and ``obsm`` of an AnnData.

PLACE = "coordinates", "embedding"
ROW = "row"
"""The column of the number of the row in the input, where a step has left rows out."""
COMPONENT = "component"
"""The column of the component of the graph that a row lies in: ``labels_``."""
CLUSTER, CLUSTERS = "cluster", "clusters"
"""The column of the cluster of a row, and the stage that found it."""
ABOUT = "bigembed_coordinates"
"""Attribute of an array of coordinates that says what made them."""


def export(source: store.PathLike, out: store.PathLike, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the coordinates at ``source`` (a run, or an array such as ``bigembed extend`` writes) to ``out``.

    ``.parquet`` and ``.csv`` hold a column ``id`` where the rows have ids, ``row``, the number of the row in the
    input, where a step has left rows out, the coordinates under their names, and ``component``, the number of the
    connected component of the graph that the row lies in, where the method reports it (0 the largest, −1 for islands).
    Names count from 0, as scikit-learn's do: ``isomap0`` is what reports, pictures and warnings call coordinate 1.
    ``.npy`` has only the coordinates. An ``.h5ad``, or the ``.zarr`` of an
    AnnData, that is there gets them as ``obsm["X_METHOD"]``, in the order of its ``obs_names``, and what made them as
    ``uns["METHOD"]``; nothing else in it is touched. Raises :class:`ExistingOutputError` unless ``overwrite``,
    :class:`InputError`, :class:`MissingPathError`, :class:`MissingExtraError`.
    """
    source, out = store.at(source), store.at(out)
    if not source.exists():
        raise MissingPathError(f"{no_such_path(source, 'run')}, and no array of coordinates")
    store.require_apart(source / "stages" if (source / "stages").exists() else source, out)
    return write_out(table_of(source), source, out, overwrite)


def write_out(table: Table, source: store.AnyPath, out: store.AnyPath, overwrite: bool) -> dict[str, Any]:
    """Write a table to a file or into an AnnData; what was written."""
    if out.suffix in (".h5ad", ".zarr"):
        if not (out.exists() and is_anndata(out)):
            raise InputError(
                f"{out}: no AnnData is there. Coordinates are put into one that exists; else write a table"
            )
        with locks.output_lock(out):
            write_obsm(table, out, overwrite=overwrite)
    else:
        write_table(table, out, overwrite)
    n, m = table.coordinates.shape
    return {"source": str(source), "output": str(out), "n": n, "n_components": m, "ids": ID in table.aligned}


def table_of(source: store.AnyPath) -> Table:
    """Return the coordinates that lie at a path, and what is known of their rows and columns."""
    if source.suffix != ".npy" and (
        (attributes.attributes_of(source) or {}).get("bigembed") or manifests.holds_run(source, "run")
    ):
        return _of_run(source)
    coordinates = vector_source(source)
    if len(coordinates.shape) != 2:
        raise InputError(f"{source}: shape {coordinates.shape}; coordinates are an array (n, m)")
    made = (attributes.attributes_of(source) or {}).get(ABOUT, {})
    names = tuple(made.get("names", (f"coordinate{number}" for number in range(coordinates.width))))
    aligned = {ID: vector_source(ids)} if (ids := aligned_of(source).get(IDS)) is not None else {}
    if (clusters := aligned_of(source).get(CLUSTER)) is not None:
        aligned[CLUSTER] = vector_source(clusters)
    for name, vector in aligned.items():
        require_length(vector, coordinates.shape[0], name, f"{source}:")
    return Table(coordinates, names, aligned, made)


def _of_run(root: store.AnyPath) -> Table:
    if kind_of(root) != "run":
        raise InputError(f"{root}: a model has no rows to export; give the run, or what bigembed extend wrote")
    run, record = Run(root), read_record(root)
    if why := superseded(root).get(PLACE[0]):
        raise StaleError(f"{root}: {explanation(PLACE[0], why)}; {way_on(root)}")
    if PLACE[0] not in run.published():
        raise InputError(f"{root}: its coordinates are not there yet; {way_on(root)}")
    coordinates = rows_of_stage(run, *frame.place_of(run))
    aligned: dict[str, RowSource] = {}
    kept = kept_of(run)
    if run.has(IDS):
        require_recorded(root, IDS)
        ids = rows_of_stage(run, IDS, IDS)
        aligned[ID] = ids if kept is None else kept.of(ids)
    if kept is not None:
        aligned[ROW] = kept
    if store.at(run.path(PLACE[0], "labels")).exists():
        aligned[COMPONENT] = rows_of_stage(run, PLACE[0], "labels")
    if run.has(CLUSTERS):
        aligned[CLUSTER] = rows_of_stage(run, CLUSTERS, "labels")
    if not (mine := made_here(root, record)):
        warnings.warn(
            f"{root}: {ELSEWHERE}, so the columns have no names of a method. Run the job again to make it anew",
            StaleWarning,
            stacklevel=3,
        )
    asked = record.get("job", {}).get("method", {}) if mine else {}
    for name, vector in aligned.items():
        require_length(vector, coordinates.shape[0], name, f"{root}:")
    made = made_by(asked.get("name", ""), coordinates.width, asked)
    values = _eigenvalues(root)
    return Table(coordinates, tuple(made["names"]), aligned, made | ({} if values is None else {"eigenvalues": values}))


def made_by(name: str, width: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what made coordinates: the method's name, its parameters, the names of the coordinates."""
    names = (
        scikit_learn.coordinate_names(method(name), width)
        if name in REGISTRY
        else [f"coordinate{i}" for i in range(width)]
    )
    given = {key: value for key, value in parameters.items() if key != "name"}
    return {"method": name or "coordinates", "parameters": given, "names": list(names)}


def _eigenvalues(root: store.AnyPath) -> list[Any] | None:
    """Eigenvalues, or the variances that are such."""
    contents = RunSummary.read(root)
    found = [contents.fitted(name) for name in ("eigenvalues_", "explained_variance_")]
    return next((np.asarray(values).tolist() for values in found if values is not None), None)


# ------------------------------------------------------------------------------------------------------------- scene
# The map of a run, its graph and its certificate on the page of every row.

Found = tuple[Any, dict[str, Any], list[tuple[str, RowSource]]]
"""Coordinates, what is known of them, and their own columns."""


def view_run(root: store.AnyPath, out: store.PathLike) -> View:
    """Write the page of a run, as a job does at its end."""
    return write_view(shown_by_run(root), out)


def write_view(found: Found, out: store.PathLike) -> View:
    """Write the page of what is shown."""
    place = store.local(out, "the folder of a page").absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    source, known, columns = found
    with temporary("view", place.parent, hidden=True) as scratch, chosen_executor():
        return build_view([scene_of(source, scratch, **known, columns=tuple(columns))], place)


def names_of(coordinates: RowSource) -> tuple[str, ...]:
    return tuple(f"coordinate {number + 1}" for number in range(coordinates.width))


def shown_by_run(place: store.AnyPath) -> Found:
    """The coordinates of a run, its graph, its certificate, and what it knows of its rows."""
    table, summary = table_of(place), RunSummary.read(place)
    return shown_by(summary, table.coordinates, table.aligned.get(ID), kept_of(summary.run))


def shown_by(summary: RunSummary, coordinates: RowSource, ids: RowSource | None, kept: KeptRows | None) -> Found:
    """The same, of coordinates with ids; of all rows of the input some may be ``kept``."""
    n = coordinates.shape[0]
    own = [*([("row", kept)] if kept is not None else []), *columns_of_run(summary.run, summary.certificate)]
    with suppress(BigembedError, OSError, ValueError):
        own = [*_labels(summary, n, kept), *own]
    drawn = summary.drawn.get("pair", (0, 1))
    return coordinates, {
        "title": f"{summary.title} of {summary.source}",
        "names": names_of(coordinates),
        "pairs": first_pairs(n, coordinates.width, drawn),
        "ids": ids,
        "graph": graph_of(summary.run, n),
        "kept": kept,
        **rows_of_run(summary, n),
        "warnings": warned_in(summary),
        "facts": facts_of(summary),
    }, own  # fmt: skip


def rows_of_run(summary: RunSummary, n: int) -> dict[str, Any]:
    """The rows that a run without a graph was made of, and their metric, if they are there as they were."""
    if graph_of(summary.run, n) is not None:
        return {}
    with suppress(BigembedError, OSError, ValueError, KeyError):
        job = spec.parse_job(tomllib.loads(job_file(summary.job)), Path(str(summary.root)) / "job.toml")
        chosen, given = spec_of(session.estimator(job)), condensed_input.find_job_input(job).source
        source = preprocessing.prepare_steps(chosen.steps, given, summary.run, preprocessing.passes_of(chosen)).source
        if compares_rows(chosen) and source.shape[0] == n and rows_behind(summary.run, source):
            return {"rows": source, "metric": getattr(chosen.estimator, "metric", "euclidean")}
    return {}


def warned_in(summary: RunSummary) -> tuple[Warned, ...]:
    """The warnings of the report."""
    return tuple(Warned(one.title, one.level, one.messages) for one in warnings_of(summary))


def facts_of(summary: RunSummary) -> tuple[tuple[str, str], ...]:
    """The figures of the map as a whole."""
    return tuple((figure.name, str(figure.value)) for figure in summary.figures)


def _labels(summary: RunSummary, n: int, kept: KeptRows | None) -> list[tuple[str, RowSource]]:
    """Labels of the job, and what its data set knows of its rows."""
    found = []
    asked: Mapping[str, Any] = summary.job.get("input", {})
    every = n if kept is None else kept.source.shape[0]
    if given := asked.get("labels"):
        found.append(("labels", vector_source(store.at(summary.record.get("beside", {}).get("labels", given)))))
    elif name := asked.get("dataset"):
        options = {key: value for key, value in asked.items() if key not in ("dataset", "path", *ALIGNED)}
        made = dataset(name, **options)
        if made.shape[0] == every:
            known = made.truth(0, 1).items()
            found += [(what, Truth((every,), one.dtype, made=made, what=what)) for what, one in known]
    return [(name, one if kept is None else kept.of(one)) for name, one in found if one.shape == (every,)]


@dataclass(frozen=True)
class Truth(RowSource):
    """What is known of the rows of a data set."""

    made: Any = None
    what: str = ""

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.made.truth(start, stop)[self.what])

    def fingerprint(self) -> str:
        return f"{self.made!r} {self.what} {self.shape}"
