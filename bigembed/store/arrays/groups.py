"""Groups of Zarr, and metadata of Zarr written to any place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import AnyPath, PathLike, at, put, remove_file


def make_group(path: PathLike, attributes: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """A new zarr group."""
    import zarr

    place = at(path)
    if not isinstance(place, ObjectPath):
        zarr.create_group(str(place), attributes=dict(attributes), overwrite=overwrite)
        return
    if overwrite:
        place.remove_tree()
    put_metadata(place, lambda store: zarr.create_group(store, attributes=dict(attributes)))


def new_group(folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a new folder of this process a zarr group, without a look at what is there."""
    (folder / "zarr.json").write_bytes(_metadata(tuple(attributes.items())))


@lru_cache
def _metadata(attributes: tuple[tuple[str, Any], ...]) -> bytes:
    """What zarr writes of a group."""
    import zarr
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    zarr.create_group(MemoryStore(made), attributes=dict(attributes))
    text: bytes = made["zarr.json"].to_bytes()
    return text


def put_metadata(place: AnyPath, make: Callable[[Any], Any]) -> None:
    """Write what zarr makes in an empty store to this place."""
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    make(MemoryStore(made))
    for name, content in made.items():
        remove_file(place / name)
        put(place / name, content.to_bytes())


def rewrite_group(path: PathLike, attributes: Mapping[str, Any]) -> None:
    """The metadata of a group anew, nothing else in it touched."""
    import zarr

    put_metadata(at(path), lambda store: zarr.create_group(store, attributes=dict(attributes)))
