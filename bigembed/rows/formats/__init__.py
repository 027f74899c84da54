"""Files of other libraries: a reader for each format, what recognizes it, and tables that are written.

Which format a path holds is decided here, and any of them copied into a chunked, checksummed Zarr array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.rows import RowSource, rows_at, work_dtype
from bigembed.rows.formats import anndata, binary, copying, hdf5, netcdf
from bigembed.rows.formats.anndata import CsrReader
from bigembed.rows.formats.binary import is_idx, open_idx
from bigembed.rows.formats.folders import FilesReader, delimited_files, npy_files, open_npy_files, open_tables
from bigembed.rows.formats.npz import open_npz_rows
from bigembed.rows.formats.pictures import PictureReader, open_pictures, picture_files
from bigembed.rows.formats.tables import open_parquet, parquet_files
from bigembed.rows.opening import arrays_in, missing_shards
from bigembed.rows.packing import decoded
from bigembed.rows.reader import (
    Choice,
    Flat,
    Reader,
    entries_of,
    features_of,
    leading_axes,
    listed,
    named,
    two_dimensional,
)
from bigembed.rows.sparse import NAMES, WIDEST, group_source, is_csr_group
from bigembed.store import AnyPath, PathLike, arrays, at, locks, objects, published, require_apart, require_array_name
from bigembed.store.attributes import CATEGORIES, categories_at, columns_of, named_columns
from bigembed.store.files import CHUNKS, reading_foreign, refuse_rows, refuse_unpacked, require_files, require_regular

KNOWN = (
    "a Zarr array or a CSR group, .npy, Parquet or CSV (.csv, .tsv; a file or a folder of them), sparse rows of SciPy "
    "(.npz), HDF5, AnnData (.h5ad, .zarr), netCDF, a folder of pictures (PNG, JPEG, TIFF, BMP), fvecs, bvecs, ivecs, "
    "or idx (the format of MNIST, also .gz)"
)


def ingest(
    source: PathLike, dest: PathLike, choice: Choice | None = None, aligned: Mapping[str, str] | None = None
) -> tuple[int, ...]:
    """Copy rows of a known format into a new Zarr array at ``dest`` (sparse ones into a CSR group); the dtype is kept.

    ``aligned``: vectors to keep with the rows, as ``{"ids": NAME or path}``; the row names of an AnnData come by
    themselves. They lie at ``DEST-ids.zarr``, and whoever reads the rows finds them. Returns the shape. Raises
    :class:`ExistingOutputError`, :class:`MissingPathError`, :class:`InputError`, :class:`DamagedError`.
    """
    require_array_name(dest)
    dest, aligned = at(dest), dict(aligned or {})
    require_apart(source, dest)
    choice = replace(choice or Choice(), aligned=tuple(aligned.values()))
    reader = open_reader(source, choice)
    if (source_of_names := named(reader)) is not None and source_of_names.row_ids is not None:
        aligned.setdefault("ids", source_of_names.row_ids)
    vectors = {name: copying.named_vector(reader, source, given, name) for name, given in aligned.items()}
    with locks.output_lock(dest):
        places = {name: copying.aligned_path(dest, name) for name in vectors}
        there = [name for name, place in places.items() if published(place)]
        # A killed call leaves vectors without their rows.
        wrong = [places[name] for name in there if published(dest) or not _is_vector(vectors[name], places[name])]
        if published(dest) or wrong:
            raise ExistingOutputError(
                f"{', '.join(map(str, [dest] * published(dest) + wrong))}: exists. Nothing was changed; choose another "
                "path or move it away"
            )
        for name, vector in vectors.items():
            if name not in there:
                copy_aligned(vector, places[name], name)
        write_copy(reader, dest, choice, attributes=copying.link(dest, vectors))
    return reader.shape


def _is_vector(vector: Reader, place: AnyPath) -> bool:
    """Whether what lies there is a copy of the vector: one pass over both."""
    try:
        return copying.same_rows(vector, place)
    except (DamagedError, InputError):
        return False


def copy_aligned(
    vector: Reader, dest: AnyPath, name: str, label: str = "ingest", attributes: Mapping[str, Any] | None = None
) -> None:
    """Copy a vector aligned with the rows; ids only if each names one row."""
    copying.copy_vector(vector, dest, f"{label} {name}", _unique if name == "ids" else None, attributes)


def _unique(ids: AnyPath) -> None:
    copying.check_ids(copying.vector_source(ids))


def open_reader(source: PathLike, choice: Choice | None = None, least: int = 1) -> Reader:
    """The reader of the format that the path holds; its name or its first bytes say which. ``least``: rows it needs."""
    path, choice = at(source), choice or Choice()
    if not path.exists():
        raise MissingPathError(f"{path}: no such path. Give {KNOWN}")
    path = path.absolute()
    require_regular(path)
    require_files(path, deep=True)
    with reading_foreign(path):
        return _checked(path, _opened(path, choice), choice, least)


def _opened(path: AnyPath, choice: Choice) -> Reader:
    if parquet := parquet_files(path):
        return open_parquet(parquet, choice)
    if anndata.is_anndata(path):
        return anndata.open_anndata(path, choice)
    if path.suffix == ".npz":
        return open_npz_rows(path, choice)
    if files := npy_files(path):
        choice.only(path, "a folder of .npy files", "rows")
        return open_npy_files(path, files, choice.rows)
    if files := delimited_files(path):
        return open_tables(files, choice)
    if files := picture_files(path):
        choice.only(path, "pictures", "rows")
        return open_pictures(files)
    if path.is_dir() and choice.array:
        return _opened(array_of_group(path, choice.array), replace(choice, array=()))
    if path.is_dir():
        _refuse_other_folder(path)
        choice.only(path, "Zarr", "array", "fill_absent", "rows")
        return open_csr_group(path) if is_csr_group(path) else open_raw_zarr(path, choice.fill_absent, choice.missing)
    if path.suffix in netcdf.SUFFIXES:
        return netcdf.open_netcdf(path, choice)
    if hdf5.is_hdf5(path):
        return hdf5.open_hdf5(path, choice)
    idx = path if isinstance(path, Path) and is_idx(path) else None
    if idx is None and path.suffix not in (".npy", *binary.VECTOR_TYPES):
        raise InputError(f"{path}: not a format that is known. Known: {KNOWN}")
    choice.only(path, "a file of one array", "rows")
    if path.suffix == ".npy":
        return rows_at(path)
    if path.suffix in binary.VECTOR_TYPES:
        return binary.open_vecs(path, choice)
    assert idx is not None
    return open_idx(idx)


def write_copy(
    reader: Reader,
    dest: PathLike,
    choice: Choice | None = None,
    attributes: Mapping[str, Any] | None = None,
    label: str = "ingest",
) -> None:
    """Copy rows with the names of their columns: dense ones to an array; sparse ones to a group, unless ``dense``."""
    known = _categories(reader)
    attributes = {**(attributes or {}), **named_columns(features_of(reader)), **({CATEGORIES: known} if known else {})}
    if stays_sparse(reader, choice):
        copying.copy_sparse(_parts(reader), reader.shape, dest, attributes, label)
    else:
        copying.copy_rows(reader, dest, attributes, label)


def is_copy(reader: Reader, path: AnyPath, choice: Choice | None = None) -> bool:
    """Whether what lies at the path is what :func:`write_copy` would write there, with the same names."""
    there = columns_of(path), categories_at(path)
    if there != (features_of(reader), {name: list(texts) for name, texts in _categories(reader).items()}):
        return False
    if stays_sparse(reader, choice):
        same = all(copying.same_rows(part, path / name) for name, part in _parts(reader).items())
        return same and group_source(path).shape == tuple(reader.shape)
    return copying.same_rows(reader, path)


def _categories(reader: Any) -> Mapping[str, Sequence[str]]:
    return getattr(reader, "categories", {})


def _parts(reader: Any) -> Mapping[str, Reader]:
    with reading_foreign(reader.path):
        return reader.parts()  # type: ignore[no-any-return]


def stays_sparse(reader: Reader, choice: Choice | None = None) -> bool:
    """Whether rows are sparse and are to stay so."""
    return entries_of(reader) is not None and not (choice and choice.dense)


def in_place(path: AnyPath, reader: Reader, choice: Choice) -> RowSource | None:
    """The rows as tasks read them where they lie; None for a format without quick access by rows: it is copied."""
    if isinstance(reader, CsrReader) and not reader.array and is_csr_group(path) and not choice.dense:
        return group_source(path)
    if not isinstance(reader, RowSource) or not (path.suffix == ".npy" or (path / "zarr.json").is_file()):
        return None
    absent = choice.fill_absent and missing_shards(arrays.cached(path))
    return None if absent else reader


# ------------------------------------------------------------------------------------- readers


def open_raw_zarr(path: AnyPath, fill_absent: bool = False, missing: bool = False) -> Reader:
    """The rows of a Zarr array of any chunks, version 2 or 3. With absent chunks only if ``fill_absent``.

    Decoded as its attributes say, where values may be ``missing``.
    """
    return decoded(_raw_zarr(path, fill_absent), arrays.zarr_array(path), missing)


def _raw_zarr(path: AnyPath, fill_absent: bool) -> RowSource:
    try:
        return rows_at(path, packed=True)
    except DamagedError as error:
        if not fill_absent:
            raise DamagedError(
                f"{error}. If its writer left out chunks that are all fill value, say so (fill_absent = true under "
                "[input], or --fill-absent)"
            ) from error
        array = arrays.zarr_array(path)
        refuse_unpacked(path, "chunks", array.chunks, np.dtype(array.dtype).itemsize)
        if (absent := missing_shards(array)) > CHUNKS and absent > CHUNKS * array.nbytes_stored():
            raise InputError(
                f"{path}: {absent:,} chunks are absent, and {array.nbytes_stored():,} bytes are stored: that cannot be "
                "meant. Write it again, in larger chunks"
            ) from error
    return RowSource(tuple(map(int, array.shape)), np.dtype(array.dtype), path=str(path))


def array_of_group(path: AnyPath, names: Sequence[str]) -> AnyPath:
    """The array of a Zarr group that is called so; InputError that lists those there are."""
    place = path / names[0].strip("/")
    if len(names) != 1 or not any((place / mark).exists() for mark in ("zarr.json", ".zarray")):
        there = listed(arrays_in(path)) or "none: an array is chosen in a group"
        raise InputError(f"{path}: array: {', '.join(names)} is not one of its arrays. There are {there}")
    return place


def _refuse_other_folder(path: AnyPath) -> None:
    """InputError for a folder that is no array, and has no rows by itself: what it holds is said."""
    if any((path / name).exists() for name in NAMES) or not isinstance(path, Path):
        return
    if held := arrays_in(path):
        arrays.zarr_group(path)  # (which refuses codecs that are not read)
        raise InputError(f"{path}: a group of arrays; choose one (array = {held[0]!r}, say). There are {listed(held)}")
    if not any((path / mark).exists() for mark in objects.MARKS):
        kinds = sorted({one.suffix or "names without a suffix" for one in path.iterdir()})
        raise InputError(f"{path}: {f'a folder of {listed(kinds)}' if kinds else 'an empty folder'}. Give {KNOWN}")


def open_csr_group(path: AnyPath) -> CsrReader:
    """The sparse rows of a group in Zarr."""
    source = group_source(path)
    return CsrReader(str(path), "", (source.shape[0], source.width), source.dtype, source.entries)


def shape_note(reader: Reader | None) -> str:
    """What is said of an array of more than two axes that is read by its first: how it is, and could be; of pictures,
    each of which is a row, and of anything else nothing."""
    if not isinstance(reader, Flat) or reader.leading != 1 or isinstance(reader.reader, PictureReader):
        return ""
    sizes = reader.reader.shape
    other = Flat(reader.reader, len(sizes) - 1).shape
    return (
        f"an array of {' × '.join(map(str, sizes))}: its first axis makes the rows ({sizes[0]:,}). rows = "
        f"{len(sizes) - 1} would make {other[0]:,} rows of {other[1]:,} (pixels of bands, say)"
    )


def array_note(source: PathLike, choice: Choice) -> str:
    """:func:`shape_note` of a path; nothing of tables, which are not opened for it."""
    path = at(source)
    return "" if parquet_files(path) or delimited_files(path) else shape_note(open_reader(path, choice))


def _checked(path: AnyPath, reader: Reader, choice: Choice, least: int) -> Reader:
    if len(reader.shape) > 2 and entries_of(reader) is None:
        reader = Flat(reader, leading_axes(path, reader.shape, choice.rows))
    elif not isinstance(reader, netcdf.NetcdfReader | FilesReader):  # (which look at it themselves)
        leading_axes(path, reader.shape, choice.rows)
    n, d = two_dimensional(path, reader.shape)
    if n < least or d < 1:
        raise InputError(f"{path}: shape {reader.shape}; at least one row and one column are needed")
    work_dtype(reader.dtype)
    if entries_of(reader) is None:
        refuse_rows(path, reader.shape, reader.dtype.itemsize)
    elif max(n, d) > WIDEST:
        raise InputError(f"{path}: shape {reader.shape}; at most {WIDEST:,} rows and columns can be sparse rows")
    if reader.dtype.itemsize > 8:
        raise InputError(f"{path}: dtype {reader.dtype}; at most 8 bytes a number can be stored")
    return reader
