"""Datasets of HDF5 files as rows, by h5py; and arrays in a Zarr group, which are read in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import DamagedError, InputError
from bigembed.store.arrays.io import zarr_group
from bigembed.store.formats.hdf5_storage import require_held
from bigembed.store.rows.reader import TEXT, Choice, as_text, described, handle, read_ranges, two_dimensional
from bigembed.store.storage.extras import needed
from bigembed.store.storage.paths import AnyPath, at

SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf")
SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class GroupArrayReader:
    """An array in a file or a group; a vector where it has one dimension. Stored chunks are read whole."""

    path: str
    array: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grain: int = 1
    extra: str = "hdf5"
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    row_ids: None = None

    def vector(self, name: str) -> GroupArrayReader:
        """Another array of the file, of one dimension."""
        with opened(self.path, self.extra) as group:
            return replace(array_in(group, self.path, name, self.extra), names=self.names)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        with opened(self.path, self.extra) as group:
            stored = found_in(group, self.array)
            for low, high in read_ranges(start, stop, self.grain, row_bytes):
                try:
                    part = stored[low:high]
                except (OSError, ValueError, RuntimeError) as error:
                    raise DamagedError(
                        f"{self.path}: rows {low}:{high} of {self.array} cannot be read: {error}"
                    ) from error
                yield as_text(part) if self.dtype == TEXT else np.asarray(part)


@dataclass(frozen=True)
class Field:
    """A field of a compound dataset, as an array: how AnnData kept ``obs``, ``var`` and ``obsm`` before 0.7."""

    dataset: Any
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.dataset.shape, *self.dataset.dtype[self.name].shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = self.dataset.dtype[self.name].base
        return kind

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return None if self.dataset.chunks is None else tuple(self.dataset.chunks)

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.dataset.fields(self.name)[index])


def fields_of(stored: Any) -> tuple[str, ...]:
    """Names of the fields of a compound dataset; none for anything else."""
    return tuple(getattr(getattr(stored, "dtype", None), "names", None) or ())


def found_in(group: Any, name: str) -> Any:
    """An array or a group by its path; or a field of the compound dataset that the path above it names."""
    above, _, field = name.rpartition("/")
    parent = group.get(above) if above else None
    return Field(parent, field) if field in fields_of(parent) else group[name]


@contextmanager
def opened(path: str, extra: str = "hdf5", mode: str = "r") -> Iterator[Any]:
    """The root group of an HDF5 file, or a Zarr group (a folder), for as long as it is needed."""
    place = at(path)
    if place.is_dir():
        yield zarr_group(place, mode)
        return
    h5py = needed("h5py", extra, f"{path}: HDF5")
    try:
        file = h5py.File(handle(path), mode)
    except OSError as error:
        known = begins_as_hdf5(place)
        raise (DamagedError if known else InputError)(
            f"{path}: {'truncated or damaged HDF5' if known else 'not an HDF5 file'} ({error})"
        ) from error
    with file:
        yield file


def array_in(group: Any, path: str, name: str, extra: str = "hdf5", fill_absent: bool = False) -> GroupArrayReader:
    """A reader of one array of a group, which must be complete unless ``fill_absent``."""
    stored = found_in(group, name)
    if not getattr(stored, "shape", None):
        raise InputError(f"{path}: {name} is not an array")
    require_held(path, name, getattr(stored, "dataset", stored), fill_absent)
    shape, kind = tuple(map(int, stored.shape)), np.dtype(stored.dtype)
    text = kind.kind in "OSTU"
    grain = int(stored.chunks[0]) if stored.chunks and shape else 1
    return GroupArrayReader(path, name, shape, TEXT if text else kind, grain, extra)


def datasets_of(file: Any) -> dict[str, Any]:
    """All datasets of an HDF5 file that have a shape, by their paths; links are not followed."""
    found: dict[str, Any] = {}

    def note(name: str, one: Any) -> None:
        if getattr(one, "shape", None) is not None:
            found[name] = one

    file.visititems(note)
    return found


def about(stored: Any) -> str:
    """Shape and dtype of an array, for an error."""
    return f"{tuple(stored.shape)} {stored.dtype}"


def is_hdf5(path: AnyPath) -> bool:
    """Whether the name or the first bytes are those of such a file."""
    return path.suffix in SUFFIXES or begins_as_hdf5(path)


def open_hdf5(path: AnyPath, choice: Choice) -> GroupArrayReader:
    """The chosen dataset, or the only one that can be rows."""
    choice.only(path, "HDF5", "array", "fill_absent")
    with opened(str(path)) as file:
        there = datasets_of(file)
        names = {name: about(one) for name, one in there.items()}
        vectors = {name: names[name] for name, one in there.items() if len(one.shape) == 1}
        name = _chosen(path, choice, there, names)
        reader = array_in(file, str(path), name, fill_absent=choice.fill_absent)
    two_dimensional(f"{path}: {name}", reader.shape)
    if reader.dtype == TEXT or reader.dtype.kind not in "buif":
        raise InputError(f"{path}: {name} holds {names[name]}; rows are numbers. There are {described(names)}")
    return replace(reader, names=vectors)


def _chosen(path: AnyPath, choice: Choice, there: Mapping[str, Any], names: Mapping[str, str]) -> str:
    if len(choice.array) > 1:
        raise InputError(f"{path}: array: one dataset makes the rows, not {len(choice.array)}")
    if choice.array:
        name = choice.array[0].strip("/")
        if name not in there:
            raise InputError(f"{path}: no dataset {choice.array[0]}; there are {described(names)}")
        return name
    flat = [name for name, one in there.items() if len(one.shape) == 2 and one.dtype.kind in "buif"]
    if len(flat) != 1:
        raise InputError(
            f"{path}: {len(flat) or 'no'} datasets could be the rows; choose one (array). There are {described(names)}"
        )
    return flat[0]


def begins_as_hdf5(path: AnyPath) -> bool:
    """Whether the first bytes are those of an HDF5 file."""
    try:
        with path.open("rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False
