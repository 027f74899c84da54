"""Coordinates into ``obsm`` of an AnnData on disk, and what made them into ``uns``; X and the rest are not touched.

Written under another name first and renamed when whole. HDF5 itself is not safe against a kill or a full disk while a
file is written: of an ``.h5ad`` that cannot be made again keep a copy, or use AnnData's ``.zarr``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, block_rows, bounds
from bigembed.errors import ExistingOutputError, InputError
from bigembed.store.arrays.io import consolidate
from bigembed.store.formats.anndata_reader import EXTRA, ROW_NAMES, obs_vector
from bigembed.store.formats.hdf5 import opened
from bigembed.store.formats.ids import positions, rows_of
from bigembed.store.formats.tables import ID, Table
from bigembed.store.storage.extras import needed
from bigembed.store.storage.paths import AnyPath, local, move, put, remove

PARTIAL = "bigembed-partial"


def write_obsm(table: Table, path: AnyPath, *, overwrite: bool = False) -> None:
    """Put the coordinates into the AnnData at ``path``, in the order of its ``obs_names``.

    Raises :class:`ExistingOutputError` if the keys are there, :class:`InputError` if the ids are not its names.
    """
    local(path, "an AnnData that coordinates are put into")
    io, _ = (needed(module, EXTRA, f"{path}: AnnData") for module in ("anndata.io", "h5py"))
    name = str(table.about.get("method", "coordinates"))
    key = f"X_{name}"
    order = _order(table, path)
    with opened(str(path), EXTRA, "r+") as root:
        there = [f"{group}/{one}" for group, one in (("obsm", key), ("uns", name)) if one in root.get(group, ())]
        mark = path.with_name(f".{path.name}.{PARTIAL}-{key}")  # of a call that was killed while it gave the names
        if there and not overwrite and not (path.is_dir() and mark.exists()):
            raise ExistingOutputError(f"{path}: {', '.join(there)}: there already. Nothing was changed; --overwrite")
        for group, one in (
            (group, one) for group in ("obsm", "uns") for one in (f"{PARTIAL}-{key}", f"{PARTIAL}-{name}")
        ):
            if one in root.get(group, ()):
                del root[group][one]
        for group in ("obsm", "uns"):
            if group not in root:
                io.write_elem(root, group, {})
        _write(root["obsm"], f"{PARTIAL}-{key}", table, order)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # (what AnnData says of defaults to come)
            io.write_elem(root["uns"], f"{PARTIAL}-{name}", _made(table))
        if path.is_dir():
            put(mark, b"")
        _rename(root, path, "obsm", f"{PARTIAL}-{key}", key)
        _rename(root, path, "uns", f"{PARTIAL}-{name}", name)
    if path.is_dir():
        consolidate(path)
        remove(mark)


def _order(table: Table, path: AnyPath) -> Array | None:
    """For each row of the AnnData the row of its coordinates; None where they are in its order."""
    if ID not in table.aligned:
        raise InputError(
            f"{path}: the coordinates have no ids to find its rows by. An AnnData that is ingested, or the input of a "
            "job, brings them; for other rows give [input] ids"
        )
    return positions(table.aligned[ID], obs_vector(str(path), ROW_NAMES, table.rows), str(path))


def _write(group: Any, name: str, table: Table, order: Array | None) -> None:
    """An array (n, m) block by block, with the attributes that AnnData knows one by."""
    shape, dtype = table.coordinates.shape, table.coordinates.dtype
    step = block_rows(table.coordinates.width, dtype.itemsize)
    create = group.create_array if hasattr(group, "create_array") else group.create_dataset
    stored = create(name, shape=shape, dtype=dtype, chunks=(min(step, shape[0]), shape[1]))
    stored.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for start, stop in bounds(shape[0], step):
        stored[start:stop] = (
            table.coordinates.read(start, stop) if order is None else rows_of(table.coordinates, order[start:stop])
        )


def _made(table: Table) -> dict[str, Any]:
    """What made the coordinates, as AnnData can write it."""
    made = {key: value for key, value in table.about.items() if key in ("method", "parameters", "eigenvalues")}
    if "parameters" in made:
        made["parameters"] = {key: _plain(value) for key, value in made["parameters"].items()}
    if "eigenvalues" in made:
        made["eigenvalues"] = np.asarray(made["eigenvalues"], np.float64)
    return made


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _rename(root: Any, path: AnyPath, group: str, old: str, new: str) -> None:
    if new in root[group]:
        del root[group][new]
    if path.is_dir():
        move(path / group / old, path / group / new)
    else:
        root[group].move(old, new)
