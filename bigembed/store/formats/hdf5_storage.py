"""HDF5 datasets are complete and in their own file, or refused.

HDF5 reads what was never written as a fill value, and what lies in other files from wherever the file says. Here a
dataset is complete or refused, external storage and external links are refused, and the sources of a virtual dataset
lie in its folder or below.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from bigembed.errors import DamagedError, InputError
from bigembed.store.storage.claims import refuse_unpacked
from bigembed.store.storage.extras import needed
from bigembed.store.storage.paths import is_url


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
            "is meant, say so (fill_absent)"
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
