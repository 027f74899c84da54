"""All coordinates of a growing store as a table: the rows that were fitted, and those that were placed since."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.jobs.export import CLUSTER, ROW, export, made_by, write_out
from bigembed.jobs.growth.account import Range, require_published
from bigembed.jobs.growth.frames import in_places, lasting_clusters, longer, movement_of, undeleted
from bigembed.jobs.growth.repair import is_growth
from bigembed.jobs.growth.versions import Growth, Version, open_growth
from bigembed.jobs.identity import STAGE as IDS
from bigembed.jobs.job import JobSpec
from bigembed.jobs.record import read_record
from bigembed.rows.formats.copying import aligned_of, vector_source
from bigembed.rows.formats.tables import ID, Table
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.paths import AnyPath, PathLike, at

WRITTEN = "table.json"
"""In the folder of the store: what the tables that it has written hold, and where its pictures and pages are."""
PLACED = "placed"
"""The column that says whether a row was placed by the model (1), or fitted (0)."""
MOVED = "moved"
"""The column that says how far a row moved since the version before, in units of the map: NaN for one that is new."""


def export_any(source: PathLike, out: PathLike, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the coordinates of a run, of an array, or of all rows of a growing store."""
    if is_growth(at(source)):
        return export_growth(source, out, overwrite=overwrite)
    refuse_part(source)
    return export(source, out, overwrite=overwrite)


def export_growth(growing: PathLike, out: PathLike, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the coordinates of all rows of a growing store to ``out``, as :func:`bigembed.jobs.export.export` does.

    A column ``placed`` marks the rows that the model placed after the fit; ``moved`` says how far each row moved since
    the version before, where the map was laid over that. There is a column ``id`` where the rows
    have ids, else ``row``, the number of the row in the store. Rows that a step left out have no coordinates (NaN), and
    rows that were deleted when the version began are not there.
    """
    growth = open_growth(growing)
    version = growth.current
    if version is None:
        raise InputError(f"{growing}: nothing is fitted yet; bigembed refresh with the job file does that")
    return write_out(growing_table(version), at(growing), at(out), overwrite)


def growing_table(version: Version) -> Table:
    """Return the coordinates of a version, with what is known of their rows and columns."""
    ranges, record = version.ranges, read_record(version.run)
    require_published(version.array, ranges)
    coordinates = vector_source(version.array)
    job = record.get("job", {})
    method = job.get("method", {})
    made = made_by(method.get("name", ""), coordinates.width, method)
    n = coordinates.shape[0]
    source = job.get("input", {}).get("path")
    names = aligned_of(at(source)).get(IDS) if source is not None else None
    first = {ROW: RowNumbers((n,), np.dtype(np.int64))} if names is None else {ID: _first(vector_source(names), n)}
    aligned = {**first, PLACED: PlacedMarks((n,), np.dtype(np.int8), ranges=ranges)}
    if movement_of(version):
        aligned[MOVED] = longer(in_places(version, MOVED), n)
    if "clusters" in job:
        aligned[CLUSTER] = lasting_clusters(version, coordinates)
    aligned = {name: undeleted(version, vector) for name, vector in aligned.items()}
    return Table(undeleted(version, coordinates), tuple(made["names"]), aligned, made)


def write_table_of(job: JobSpec, version: Version) -> None:
    """Write the table that the job wants, unless it is there and holds what it would hold."""
    out = job.output.table
    if out is None:
        return
    root, wanted = version.root.parent.parent, {"version": version.root.name, "rows": version.covered}
    if at(out).exists() and tables_of(root).get(str(out)) == wanted:
        return
    _note(root, "tables", {str(out): None})  # (of a killed start, too)
    write_out(growing_table(version), version.root, at(out), overwrite=True)
    _note(root, "tables", {str(out): wanted})


def tables_of(root: AnyPath) -> dict[str, Any]:
    """Return what each table that a store has written holds, by its path; None where that was begun only."""
    return dict(_written(root).get("tables", {}))


def extras_of(root: AnyPath) -> dict[str, Any]:
    """Return the pictures and pages that a store has written: what each is, by its path."""
    return dict(_written(root).get("extras", {}))


def note_extra(root: AnyPath, place: PathLike, name: str) -> None:
    """Note that a store writes a picture or a page to this place."""
    if str(place) not in extras_of(root):
        _note(root, "extras", {str(place): name})


def _written(root: AnyPath) -> dict[str, Any]:
    with suppress(DamagedError, MissingPathError):
        return dict(read_sealed(root / WRITTEN))
    return {}


def _note(root: AnyPath, kind: str, entries: dict[str, Any]) -> None:
    known = {name: value for name, value in _written(root).items() if name in ("tables", "extras")}
    write_json(root / WRITTEN, sealed({"tables": {}} | known | {kind: known.get(kind, {}) | entries}))


def refuse_foreign(job: JobSpec, growth: Growth) -> None:
    """:class:`ExistingOutputError` where there is a table that this store has not written."""
    out = job.output.table
    if out is not None and at(out).exists() and str(out) not in tables_of(growth.root):
        raise foreign_output(out)


def foreign_output(place: PathLike) -> ExistingOutputError:
    """Return the error of a file that is there and not of this store."""
    return ExistingOutputError(
        f"{place}: exists, and this store did not write it. Nothing was changed; choose another path or move it away"
    )


def refuse_part(run: PathLike) -> None:
    """Refuse the run inside a growing store, from which rows have been placed that it does not hold."""
    versions = at(run).absolute().parent.parent
    if versions.name != "versions":
        return
    current = Growth(versions.parent).current
    if current is not None and current.run == at(run).absolute() and current.covered > current.fitted:
        raise InputError(
            f"{run}: holds the {current.fitted} rows that were fitted, of {current.covered}. "
            f"bigembed export {versions.parent} writes all of them, and marks those"
        )


def _first(ids: RowSource, n: int) -> RowSource:
    """Return the first n ids: those of rows that are appended now may be there already."""
    if ids.shape[0] < n:
        raise InputError(f"{ids.path}: {ids.shape[0]} ids for {n} rows. Append ids with their rows: be.append_rows")
    return replace(ids, shape=(n,))


@dataclass(frozen=True)
class RowNumbers(RowSource):
    """The numbers of rows, from 0 on."""

    def read(self, start: int, stop: int) -> Array:
        """Return the numbers ``start:stop``."""
        return np.arange(start, min(stop, self.shape[0]))


@dataclass(frozen=True)
class PlacedMarks(RowSource):
    """For each row 1 where the model placed it, and 0 where it was fitted."""

    ranges: Sequence[Range] = ()
    features: ClassVar = ()

    def read(self, start: int, stop: int) -> Array:
        """Return the marks of rows ``start:stop``."""
        marks = np.zeros(max(0, min(stop, self.shape[0]) - start), np.int8)
        for part in self.ranges:
            marks[max(0, part.start - start) : max(0, part.stop - start)] = part.how == PLACED
        return marks
