"""Groups of Zarr, and metadata of Zarr in an object store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bigembed.store.objects import ObjectPath
from bigembed.store.paths import PathLike, at


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


def put_metadata(place: ObjectPath, make: Callable[[Any], Any]) -> None:
    """Write what zarr makes in an empty store to this place of an object store."""
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    make(MemoryStore(made))
    for name, content in made.items():
        (place / name).write_bytes(content.to_bytes())
