"""Coordinates of a run or an extension in the formats of others: Parquet, CSV, .npy, and ``obsm`` of an AnnData."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from bigembed.errors import InputError, MissingPathError, StaleError, StaleWarning
from bigembed.estimator.frame import place_of
from bigembed.estimator.scikit_learn import coordinate_names
from bigembed.jobs.identity import STAGE as IDS
from bigembed.jobs.record import ELSEWHERE, kind_of, made_here, read_record, require_recorded
from bigembed.jobs.report.summary import RunSummary, rows_of_stage
from bigembed.maps.registry import REGISTRY, method
from bigembed.rows.formats.anndata import is_anndata, write_obsm
from bigembed.rows.formats.copying import aligned_of, require_length, vector_source
from bigembed.rows.formats.tables import ID, Table, write_table
from bigembed.rows.source import RowSource
from bigembed.stages import Run
from bigembed.steps.missing import kept_of
from bigembed.store import attributes, locks, manifests, paths
from bigembed.store.superseded import explanation, superseded

PLACE = "coordinates", "embedding"
ROW = "row"
"""The column of the number of the row in the input, where a step has left rows out."""
COMPONENT = "component"
"""The column of the component of the graph that a row lies in: ``labels_``."""
CLUSTER, CLUSTERS = "cluster", "clusters"
"""The column of the cluster of a row, and the stage that found it."""
ABOUT = "bigembed_coordinates"
"""Attribute of an array of coordinates that says what made them."""


def export(source: paths.PathLike, out: paths.PathLike, *, overwrite: bool = False) -> dict[str, Any]:
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
    source, out = paths.at(source), paths.at(out)
    if not source.exists():
        raise MissingPathError(f"{source}: no such run, and no array of coordinates")
    paths.require_apart(source / "stages" if (source / "stages").exists() else source, out)
    return write_out(table_of(source), source, out, overwrite)


def write_out(table: Table, source: paths.AnyPath, out: paths.AnyPath, overwrite: bool) -> dict[str, Any]:
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


def table_of(source: paths.AnyPath) -> Table:
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


def _of_run(root: paths.AnyPath) -> Table:
    if kind_of(root) != "run":
        raise InputError(f"{root}: a model has no rows to export; give the run, or what bigembed extend wrote")
    run, record = Run(root), read_record(root)
    if why := superseded(root).get(PLACE[0]):
        raise StaleError(f"{root}: {explanation(PLACE[0], why)}; run the job again to its end")
    if PLACE[0] not in run.published():
        raise InputError(f"{root}: its coordinates are not there yet; run the job again to its end")
    coordinates = rows_of_stage(run, *place_of(run))
    aligned: dict[str, RowSource] = {}
    kept = kept_of(run)
    if run.has(IDS):
        require_recorded(root, IDS)
        ids = rows_of_stage(run, IDS, IDS)
        aligned[ID] = ids if kept is None else kept.of(ids)
    if kept is not None:
        aligned[ROW] = kept
    if paths.at(run.path(PLACE[0], "labels")).exists():
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
    names = coordinate_names(method(name), width) if name in REGISTRY else [f"coordinate{i}" for i in range(width)]
    given = {key: value for key, value in parameters.items() if key != "name"}
    return {"method": name or "coordinates", "parameters": given, "names": list(names)}


def _eigenvalues(root: paths.AnyPath) -> list[Any] | None:
    """Eigenvalues, or the variances that are such."""
    contents = RunSummary.read(root)
    found = [contents.fitted(name) for name in ("eigenvalues_", "explained_variance_")]
    return next((np.asarray(values).tolist() for values in found if values is not None), None)
