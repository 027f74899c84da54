"""Datasets of HDF5 files as rows, by h5py; they are complete and in their own file, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import DamagedError, InputError, needed
from bigembed.rows.packing import decoded
from bigembed.rows.reader import HDF5, TEXT, Choice, Reader, as_text, described, handle, read_ranges, two_dimensional
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, at, is_url
from bigembed.store.arrays import zarr_group
from bigembed.store.files import refuse_unpacked

# ---------------------------------------------------------------------------------------------------- hdf5 storage
# HDF5 datasets are complete and in their own file, or refused.
#
# HDF5 reads what was never written as a fill value, and what lies in other files from wherever the file says. Here a
# dataset is complete or refused, external storage and external links are refused, and the sources of a virtual
# dataset lie in its folder or below.


def require_held(path: str, name: str, stored: Any, fill_absent: bool = False) -> None:
    """InputError or DamagedError unless a dataset (or an array in Zarr) is complete, of a size that can be believed."""
    chunks, itemsize = getattr(stored, "chunks", None), stored.dtype.itemsize
    if chunks:
        refuse_unpacked(path, f"{name} in chunks", chunks, itemsize)
    if not type(stored).__module__.startswith("h5py.") or not prod(stored.shape or ()):
        return
    if stored.external:
        files = sorted({str(file) for file, *_ in stored.external})
        raise InputError(
            f"{path}: {name} has its numbers in other files ({', '.join(files)}: external storage of HDF5), which are "
            "not opened. Copy it into one file (h5repack does)"
        )
    if stored.is_virtual:
        _require_sources(Path(path), name, stored)
    elif not fill_absent and (absent := _absent(stored)):
        raise DamagedError(
            f"{path}: {name}: {absent} were never written and would read as fill values. Write it again; or, if that "
            "is meant, say so (fill_absent = true under [input], or --fill-absent)"
        )


def loaded(path: str, name: str, stored: Any) -> Any:
    """All of a small array (names, categories), which must be complete."""
    require_held(path, name, getattr(stored, "dataset", stored))
    refuse_unpacked(path, name, stored.shape, stored.dtype.itemsize)
    return stored[...]


def _absent(stored: Any) -> str:
    """What of a dataset was never written, in words."""
    if stored.chunks is None:
        return "its numbers" if not stored.id.get_storage_size() else ""
    wanted = prod(-(-n // c) for n, c in zip(stored.shape, stored.chunks, strict=True))
    there = stored.id.get_num_chunks()
    return f"{wanted - there:,} of {wanted:,} chunks" if there < wanted else ""


def _require_sources(path: Path, name: str, stored: Any) -> None:
    """Refuse a virtual dataset whose sources are not all there, in its folder or below, and plain datasets."""
    h5py = needed("h5py", "hdf5", "HDF5")

    if is_url(path):
        raise InputError(f"{path}: {name} is a virtual dataset, whose sources are files. Copy it into one file")
    mapped, folder = 0, path.resolve().parent
    for source in stored.virtual_sources():
        mapped += source.vspace.get_select_npoints()
        place = path if source.file_name == "." else folder / source.file_name
        if not place.resolve().is_relative_to(folder):
            raise InputError(
                f"{path}: {name} is a virtual dataset with the source {source.file_name}, which lies outside of "
                f"{folder}. Move it there, or copy all into one file"
            )
        if not place.is_file():
            raise DamagedError(
                f"{path}: {name} is a virtual dataset whose source {source.file_name} is missing; its rows would "
                "read as fill values"
            )
        with h5py.File(place, "r") as file:
            if linked_elsewhere(file, source.dset_name) or not isinstance(file.get(source.dset_name), h5py.Dataset):
                raise DamagedError(f"{path}: {name}: {source.file_name} holds no dataset {source.dset_name}")
            inner = file[source.dset_name]
            if inner.is_virtual:
                raise InputError(f"{path}: {name}: its source {source.file_name} is virtual itself. Give that one")
            require_held(str(place), source.dset_name, inner)
            if not _inside(source, inner):
                raise DamagedError(f"{path}: {name}: {source.file_name} holds fewer rows than it takes from there")
    if mapped < prod(stored.shape):
        raise DamagedError(
            f"{path}: {name} is a virtual dataset that maps {mapped:,} of its {prod(stored.shape):,} numbers; the "
            "others would read as fill values"
        )


def _inside(source: Any, inner: Any) -> bool:
    """Whether a dataset holds all that a virtual one takes from it."""
    h5s = needed("h5py.h5s", "hdf5", "HDF5")
    if source.src_space.get_select_type() == h5s.SEL_ALL:
        return bool(source.vspace.get_select_npoints() == inner.size)
    last = source.src_space.get_select_bounds()[1]
    return len(last) == len(inner.shape) and all(end < size for end, size in zip(last, inner.shape, strict=True))


def linked_elsewhere(file: Any, name: str) -> str:
    """The link on the way to a name that leads into another file; an empty text where all stay in this one."""
    h5py = needed("h5py", "hdf5", "HDF5")

    return next(
        (f"{where} → {link.filename}" for where, link in _links(file, name, 0) if isinstance(link, h5py.ExternalLink)),
        "",
    )


def external_links(file: Any) -> list[str]:
    """All links of a file that lead into others."""
    h5py = needed("h5py", "hdf5", "HDF5")

    found: list[str] = []

    def note(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            found.append(f"{name} → {link.filename}")

    file.visititems_links(note)
    return found


def _links(file: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every link that is followed to come to a name, the path of a soft one too."""
    h5py = needed("h5py", "hdf5", "HDF5")

    at = "" if depth < 16 else None
    for part in name.strip("/").split("/") if at is not None else ():
        above, at = at, f"{at}/{part}"
        group = file[above or "/"]
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            return
        yield at, link
        if isinstance(link, h5py.ExternalLink):
            return
        if isinstance(link, h5py.SoftLink):
            yield from _links(file, link.path if link.path.startswith("/") else f"{above}/{link.path}", depth + 1)


# ------------------------------------------------------------------------------------------------------------ hdf5
# Datasets of HDF5 files as rows, by h5py; and arrays in a Zarr group, which are read in the same way.

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
    loading: ClassVar[int] = HDF5

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


def open_hdf5(path: AnyPath, choice: Choice) -> Reader:
    """The chosen dataset, or the only one that can be rows; decoded as its attributes say."""
    choice.only(path, "HDF5", "array", "rows", "fill_absent")
    with opened(str(path)) as file:
        there = datasets_of(file)
        names = {name: about(one) for name, one in there.items()}
        vectors = {name: names[name] for name, one in there.items() if len(one.shape) == 1}
        name = _chosen(path, choice, there, names)
        reader = array_in(file, str(path), name, fill_absent=choice.fill_absent)
        found = decoded(replace(reader, names=vectors), there[name], choice.missing)
    if len(reader.shape) < 2:
        two_dimensional(f"{path}: {name}", reader.shape)
    if reader.dtype == TEXT or reader.dtype.kind not in "buif":
        raise InputError(f"{path}: {name} holds {names[name]}; rows are numbers. There are {described(names)}")
    return found


def _chosen(path: AnyPath, choice: Choice, there: Mapping[str, Any], names: Mapping[str, str]) -> str:
    if len(choice.array) > 1:
        raise InputError(f"{path}: array: one dataset makes the rows, not {len(choice.array)}")
    if choice.array:
        name = choice.array[0].strip("/")
        if name not in there:
            raise InputError(f"{path}: no dataset {choice.array[0]}; there are {described(names)}")
        return name
    numbers = [name for name, one in there.items() if len(one.shape) > 1 and one.dtype.kind in "buif"]
    flat = [name for name in numbers if len(there[name].shape) == 2] or numbers
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
