"""AnnData on disk: X, layers and other arrays as rows, and coordinates written into ``obsm``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import DamagedError, ExistingOutputError, InputError, needed
from bigembed.rows.formats import hdf5
from bigembed.rows.formats.copying import positions, rows_of
from bigembed.rows.formats.tables import ID, Table
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import HDF5, TEXT, Choice, Reader, as_text, described, listed, read_ranges, two_dimensional
from bigembed.rows.sparse import ENTRY_BYTES, NAMES
from bigembed.runtime.blocks import Array, block_rows, bounds
from bigembed.store import AnyPath, local, move, put, remove
from bigembed.store.arrays import consolidate, zarr_group
from bigembed.store.attributes import columns_of

# -------------------------------------------------------------------------------------------------- anndata reader
# AnnData on disk, ``.h5ad`` and ``.zarr``: X, a layer or an array of ``obsm`` as rows, named by ``obs_names``.
#
# The layout is that of AnnData's specification of files; it is read by h5py and zarr alone, by blocks, so that
# neither X nor the annotations are ever loaded as a whole.

EXTRA = "anndata"
ROW_NAMES = "obs_names"


@dataclass(frozen=True)
class DenseReader(hdf5.GroupArrayReader):
    """Dense rows of an AnnData."""

    extra: str = EXTRA
    row_ids: str | None = ROW_NAMES  # type: ignore[assignment]

    @property
    def features(self) -> tuple[str, ...]:
        """``var_names``; of a copied group the names that were copied."""
        return var_names(self.path, self.array)

    def vector(self, name: str) -> Reader:  # type: ignore[override]
        """``obs_names``, or a column of ``obs``."""
        return obs_vector(self.path, name, self.shape[0])


@dataclass(frozen=True)
class CsrReader:
    """Sparse rows of a group of ``indptr``, ``indices`` and ``data``; streamed dense, or copied part by part."""

    path: str
    array: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    entries: int
    grain: int = 1
    loading: ClassVar[int] = HDF5
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    row_ids: str | None = None
    extra: str = EXTRA

    @property
    def features(self) -> tuple[str, ...]:
        """``var_names``; of a copied group the names that were copied."""
        return var_names(self.path, self.array)

    def vector(self, name: str) -> Reader:
        """``obs_names``, or a column of ``obs``."""
        return obs_vector(self.path, name, self.shape[0])

    def parts(self) -> dict[str, hdf5.GroupArrayReader]:
        """Readers of the three vectors that the rows are made of."""
        with hdf5.opened(self.path, self.extra) as group:
            return {
                name: hdf5.array_in(group, self.path, f"{self.array}/{name}".lstrip("/"), self.extra) for name in NAMES
            }

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        row_bytes = self.shape[1] * self.dtype.itemsize + ENTRY_BYTES * (1 + self.entries // self.shape[0])
        with hdf5.opened(self.path, self.extra) as root:
            indptr, indices, data = (root[f"{self.array}/{name}".lstrip("/")] for name in NAMES)
            for low, high in read_ranges(start, stop, 1, row_bytes):
                try:
                    pointers = np.asarray(indptr[low : high + 1], np.int64)
                    inside = slice(int(pointers[0]), int(pointers[-1]))
                    columns, values = np.asarray(indices[inside]), np.asarray(data[inside])
                except (OSError, ValueError, RuntimeError) as error:
                    raise DamagedError(
                        f"{self.path}: rows {low}:{high} of {self.array} cannot be read: {error}"
                    ) from error
                if (np.diff(pointers) < 0).any() or (
                    len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]
                ):
                    raise DamagedError(
                        f"{self.path}: rows {low}:{high} of {self.array} have pointers or columns out of range"
                    )
                yield csr_array((values, columns, pointers - pointers[0]), (high - low, self.shape[1])).toarray()


@dataclass(frozen=True)
class CategoryReader:
    """A categorical column: the category of each row's code."""

    codes: hdf5.GroupArrayReader
    categories: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the categories."""
        return TEXT if not self.categories or isinstance(self.categories[0], str) else np.asarray(self.categories).dtype

    @property
    def grain(self) -> int:
        return self.codes.grain

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        categories = np.array(self.categories, self.dtype)
        for codes in self.codes.stream(start, stop):
            if (codes < 0).any():
                raise InputError(
                    f"{self.codes.path}: {self.codes.array.removesuffix('/codes')} has no value in "
                    f"{int((codes < 0).sum())} of {len(codes)} rows. Give each row one, or leave those rows out"
                )
            if codes.size and codes.max() >= len(categories):
                raise DamagedError(f"{self.codes.path}: {self.codes.array} has codes beyond its categories")
            yield categories[codes]


def is_anndata(path: AnyPath) -> bool:
    """Whether the name, or the attributes of a Zarr group, are those of an AnnData."""
    if not path.is_dir():
        return path.suffix == ".h5ad"
    if not any((path / name).is_file() for name in ("zarr.json", ".zgroup")):
        return False
    try:
        return bool(zarr_group(path).attrs.get("encoding-type") == "anndata")
    except Exception:  # whatever it is, it is not such a group
        return False


def open_anndata(path: AnyPath, choice: Choice) -> Reader:
    """X, or the chosen ``layers/NAME`` or ``obsm/NAME``."""
    choice.only(path, "AnnData", "array", "fill_absent")
    with hdf5.opened(str(path), EXTRA) as root:
        if not path.is_dir() and (links := hdf5.external_links(root)):
            raise InputError(f"{path}: holds links to other files ({listed(links)}), which are not followed")
        there = _matrices(root)
        name = choice.array[0] if choice.array else "X"
        if len(choice.array) > 1 or name not in there:
            raise InputError(f"{path}: no array {', '.join(choice.array) or name}; there are {described(there)}")
        stored = hdf5.found_in(root, name)
        names = _obs_names(root)
        own = ROW_NAMES if names else None
        if path.is_dir():
            _require_chunks(
                [path / name] if hasattr(stored, "shape") else [path / name / part for part in NAMES], choice
            )
        if not hasattr(stored, "shape"):
            return replace(csr_in(root, str(path), name), names=names, row_ids=own, extra=EXTRA)
        found = hdf5.array_in(root, str(path), name, EXTRA, choice.fill_absent)
    two_dimensional(f"{path}: {name}", found.shape)
    return DenseReader(found.path, found.array, found.shape, found.dtype, found.grain, names=names, row_ids=own)


def csr_in(root: Any, path: str, name: str) -> CsrReader:
    """Sparse rows in a group; of a matrix by columns an error that says what to do."""
    group = root[name] if name else root
    kind = _encoding(group) or "csr_matrix"
    missing = [one for one in NAMES if one not in group]
    if kind != "csr_matrix" or missing:
        raise InputError(
            f"{path}: {name} is {kind}{f', without {missing}' if missing else ''}; rows are read from arrays and from "
            "csr_matrix. A csc_matrix is stored by columns: write it again by rows (adata.X = adata.X.tocsr())"
        )
    n, d = _shape_of(group)
    if int(group["indptr"].shape[0]) != n + 1 or group["indices"].shape != group["data"].shape:
        raise DamagedError(f"{path}: {name}: indptr, indices and data do not fit its shape {(n, d)}")
    for one in NAMES:
        hdf5.require_held(path, f"{name}/{one}", group[one])
    return CsrReader(path, name, (n, d), np.dtype(group["data"].dtype), int(group["data"].shape[0]))


def obs_vector(path: str, name: str, n: int) -> Reader:
    """A column of ``obs``, or the index."""
    with hdf5.opened(path, EXTRA) as root:
        obs = root["obs"]
        key = f"obs/{_index(obs) if name == ROW_NAMES else name}"
        column = hdf5.found_in(root, key)
        if hasattr(column, "shape"):
            categories = root.get(f"uns/{name}_categories") if hdf5.fields_of(obs) else None
            codes = hdf5.array_in(root, path, key, EXTRA)
            return codes if categories is None else CategoryReader(codes, _plain(path, categories))
        if "codes" in column:
            return CategoryReader(hdf5.array_in(root, path, f"{key}/codes", EXTRA), _plain(path, column["categories"]))
        if "values" in column and not np.asarray(hdf5.loaded(path, f"{key}/mask", column["mask"])).any():
            return hdf5.array_in(root, path, f"{key}/values", EXTRA)
    raise InputError(f"{path}: {key} has missing values, or is of a kind that is not known; it has {n} rows")


def var_names(path: str, array: str) -> tuple[str, ...]:
    """Names of the columns of X and of layers; not of ``obsm``, nor where they only number the columns."""
    if not array:
        return columns_of(path)
    with hdf5.opened(path, EXTRA) as root:
        var: Any = root.get("raw/var" if array == "raw/X" else "var") if array.split("/")[0] != "obsm" else None
        own = _index(var)
        if not own:
            return ()
        index: Any = hdf5.Field(var, own) if own in hdf5.fields_of(var) else var[own]
        if not hasattr(index, "shape"):  # (text of pandas 3: values, and which of them are missing)
            if "values" not in index or np.asarray(hdf5.loaded(path, "the names of its columns", index["mask"])).any():
                return ()
            index = index["values"]
        names = tuple(as_text(hdf5.loaded(path, "the names of its columns", index)).tolist())
    return () if names == tuple(map(str, range(len(names)))) else names


def _matrices(root: Any) -> dict[str, str]:
    """What can be rows: X, layers and obsm."""
    found = {name: root[name] for name in ("X", "raw/X") if name in root}
    for group in ("layers", "obsm"):
        there = hdf5.fields_of(root.get(group)) or root.get(group, ())
        found |= {f"{group}/{name}": hdf5.found_in(root, f"{group}/{name}") for name in there}
    return {name: _about(one) for name, one in found.items() if _about(one)}


def _about(one: Any) -> str:
    if hasattr(one, "shape"):
        return "" if one.shape is None or not one.shape else hdf5.about(one)
    shape = _shape_of(one)
    return f"{shape} {_encoding(one)}" if shape else ""


def _encoding(group: Any) -> str:
    """How a sparse matrix is stored, by the attribute of now or of AnnData before 0.7."""
    old = group.attrs.get("h5sparse_format")
    kind = group.attrs.get("encoding-type", "" if old is None else old)
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    return f"{kind}_matrix" if kind and old is not None and not kind.endswith("_matrix") else kind


def _shape_of(group: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in group.attrs.get("shape", group.attrs.get("h5sparse_shape", ())))


def _plain(path: str, categories: Any) -> tuple[Any, ...]:
    found = np.asarray(hdf5.loaded(path, "categories", categories))
    return tuple((as_text(found) if found.dtype.kind in "OSTU" else found).tolist())


def _index(table: Any) -> str:
    """What holds the names of the rows of ``obs`` or ``var``: by its attribute, or (a compound one) by its name."""
    if fields := hdf5.fields_of(table):
        return next((name for name in ("index", "_index") if name in fields), "")
    return str(table.attrs["_index"]) if hasattr(table, "keys") and "_index" in table.attrs else ""


def _obs_names(root: Any) -> dict[str, str]:
    obs = root.get("obs")
    index = _index(obs)
    if not index:
        return {}  # (files of somebody else)
    return {ROW_NAMES: "", **{name: "" for name in hdf5.fields_of(obs) or obs if name != index}}


def _require_chunks(arrays: Sequence[AnyPath], choice: Choice) -> None:
    """DamagedError where chunks are absent: AnnData leaves out those of nothing but zeros, so does a killed writer."""
    for path in () if choice.fill_absent else arrays:
        try:
            open_zarr(path)
        except DamagedError as error:
            raise DamagedError(
                f"{error}. AnnData leaves out chunks of nothing but zeros; if it ended well, say so (fill_absent = "
                "true under [input], or --fill-absent)"
            ) from error


# -------------------------------------------------------------------------------------------------- anndata writer
# Coordinates into ``obsm`` of an AnnData on disk, and what made them into ``uns``; X and the rest are not touched.
#
# Written under another name first and renamed when whole. HDF5 itself is not safe against a kill or a full disk while
# a file is written: of an ``.h5ad`` that cannot be made again keep a copy, or use AnnData's ``.zarr``.

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
    with hdf5.opened(str(path), EXTRA, "r+") as root:
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
    names = obs_vector(str(path), ROW_NAMES, table.rows)
    if names.shape != (table.rows,):
        raise InputError(f"{path}: {names.shape[0]} names of rows, and there are coordinates of {table.rows}")
    found, absent = positions(table.aligned[ID], names)
    if absent:
        raise InputError(
            f"{path}: {len(absent)} of its {table.rows} names are not ids of the coordinates: {listed(absent)}"
        )
    return None if (found == np.arange(table.rows)).all() else found


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
        made["parameters"] = {key: _plain_text(value) for key, value in made["parameters"].items()}
    if "eigenvalues" in made:
        made["eigenvalues"] = np.asarray(made["eigenvalues"], np.float64)
    return made


def _plain_text(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _rename(root: Any, path: AnyPath, group: str, old: str, new: str) -> None:
    if new in root[group]:
        del root[group][new]
    if path.is_dir():
        move(path / group / old, path / group / new)
    else:
        root[group].move(old, new)
