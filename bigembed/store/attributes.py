"""Zarr attributes of stored rows (where they come from, their columns, their seal), and the outputs of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np

from bigembed.errors import DamagedError, MissingPathError
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.store import AnyPath, PathLike, at, put, remove, stored
from bigembed.store.arrays import cached, reading, zarr_place
from bigembed.store.chunks import RowChunks, checksummed
from bigembed.store.files import digest_of, read_json, write_json
from bigembed.store.metadata import seal_of, sealed_checksums, with_seal
from bigembed.store.requests import asking

# ------------------------------------------------------------------------------------------------------ attributes
# Zarr attributes of stored rows: where they come from, and the names of their columns.

ABOUT = "bigembed_source"
COLUMNS = "bigembed_columns"
CATEGORIES = "bigembed_categories"


def attributes_of(path: PathLike) -> dict[str, Any] | None:
    """Attributes of the Zarr array or group at a path; None for other paths."""
    import zarr

    try:
        return dict(zarr.open(zarr_place(path), mode="r").attrs)
    except Exception:  # whatever it is, it is not such
        return None


def source_of(path: PathLike) -> Any:
    """What the attribute :data:`ABOUT` of the rows at a path says of where they are from, or None."""
    return (attributes_of(path) or {}).get(ABOUT)


def named_columns(names: Sequence[str]) -> dict[str, Any]:
    """The attribute :data:`COLUMNS` of rows whose columns have these names."""
    return {COLUMNS: list(names)} if names else {}


def columns_of(path: PathLike) -> tuple[str, ...]:
    """The names of the columns of the rows at a path, where they were copied from something that has such names."""
    return tuple((attributes_of(path) or {}).get(COLUMNS, ()))


def categories_at(path: PathLike) -> dict[str, list[str]]:
    """The texts of the columns of categories of the rows at a path, by their names, where they were copied."""
    return dict((attributes_of(path) or {}).get(CATEGORIES, {}))


def describe(path: PathLike, attributes: Mapping[str, Any]) -> None:
    """Set attributes of an array."""
    import zarr

    zarr.open_array(zarr_place(path), mode="r+").attrs.update(dict(attributes))


# --------------------------------------------------------------------------------------------------------- sealing
# Writing the seal of rows that are whole; what a seal is: :mod:`bigembed.store.metadata`.

CHUNKS_A_TASK = 1 << 10


ROWS = ("row", "column")
"""Names of the dimensions of rows; of a vector the first."""


def seal_rows(path: AnyPath, label: str = "seal", dimensions: Sequence[str] = ROWS) -> None:
    """Seal an array that is whole, and name its dimensions. One that is not in chunks of whole rows with a checksum
    each stays as it is.

    Four bytes of each chunk are read; of an object store, all.
    """
    chunks = _chunks(str(path))
    if chunks is not None:
        found = checksums(path, 0, -(-chunks.shape[0] // chunks.rows), label)
        metadata = path / "zarr.json"
        said = {**read_json(metadata), "dimension_names": list(dimensions[: len(chunks.shape)])}
        write_json(metadata, with_seal(said, chunks=found))


def seal_group(path: AnyPath, names: Sequence[str]) -> None:
    """Seal a group whose arrays of these names are sealed."""
    metadata = path / "zarr.json"
    parts = {name: digest_of(seal_of(read_json(path / name / "zarr.json"))) for name in names}
    write_json(metadata, with_seal(read_json(metadata), parts=parts))


def prove_group(path: AnyPath) -> None:
    """:class:`DamagedError` where a sealed group is not of the arrays that it was sealed with."""
    if not (path / "zarr.json").is_file():
        return
    said = read_json(path / "zarr.json")
    sealed_checksums(said, path)
    for name, digest in ((seal_of(said) or {}).get("parts") or {}).items():
        if digest_of(seal_of(read_json(path / name / "zarr.json"))) != digest:
            raise DamagedError(f"{path}: damaged: {name} is not the one that was written. Write the rows again")


def checksums(path: AnyPath, first: int, stop: int, label: str = "seal") -> Array:
    """What stands behind the chunks ``first:stop`` of an array that has such, by parallel tasks."""
    spans = [(first + low, first + high) for low, high in bounds(stop - first, CHUNKS_A_TASK)]
    return np.concatenate([np.empty(0, "<u4"), *map_blocks(checksums_block, spans, label=label, path=str(path))])


def checksums_block(first: int, stop: int, *, path: str) -> Array:
    """Of one task."""
    with reading(path, f"chunks {first}:{stop}"):
        chunks = _chunks(path)
        assert chunks is not None
        return chunks.checksums(first, stop)


def _chunks(path: str) -> RowChunks | None:
    with asking(path):
        return checksummed(cached(path), path)


# ----------------------------------------------------------------------------------------------------------- outputs
# The outputs of a finished run as arrays in its root, with named dimensions: what xarray and other readers open.
#
# An array of an output shares the chunks of the stage that published it (links, where the file system has them), so
# that it takes no room. The metadata of the group name all of them (consolidated metadata), and come last; they go
# first, as soon as a stage of the run is not published any more.

CONVENTION = 1
"""Version of the convention (docs/reference/stored_files.md): names of arrays, of dimensions and of attributes."""
COORDINATES = ("row", "coordinate")
"""Names of the dimensions of coordinates."""
OUTPUTS = ("coordinates", "eigenvalues", "ids", "labels", "row", "component", "cluster")
"""Names of arrays that a run may have in its root; what somebody else puts there stays."""
VERSION = "bigembed_outputs"
"""The attribute of the group that holds it."""
SUMMARY = "consolidated_metadata"
METADATA = "zarr.json"
_LINKS_A_TASK = 64


def share_array(source: AnyPath, target: AnyPath) -> None:
    """Put an array that nobody changes at another place, its chunks shared with the first; its metadata come last."""
    remove(target)
    names = [file.name for file in stored(source) if file.name != METADATA]
    parts = [names[start : start + _LINKS_A_TASK] for start in range(0, len(names), _LINKS_A_TASK)]
    map_blocks(share_files, [(str(source), str(target), part) for part in parts], label="outputs")
    write_json(target / METADATA, read_json(source / METADATA))


def share_files(source: str, target: str, names: Sequence[str]) -> None:
    """Link some files below a folder into another one, or copy them where that cannot be."""
    for name in names:
        old, new = at(source) / name, at(target) / name
        if not (isinstance(old, Path) and isinstance(new, Path)):
            put(new, old.read_bytes())
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old, new)
        except OSError:  # (a file system without links)
            copyfile(old, new)


def publish_dataset(
    root: AnyPath, dimensions: Mapping[str, Sequence[str]], attributes: Mapping[str, Any], of_rows: Sequence[str]
) -> None:
    """Name the dimensions of the arrays in the root of a run, and list them and the arrays of stages in its metadata.

    ``attributes``: of the first array; ``of_rows``: arrays that xarray takes for coordinates of the rows.
    """
    found = _whole_arrays(root)
    for number, (name, names) in enumerate(dimensions.items()):
        said = {**read_json(root / name / METADATA), "dimension_names": list(names)}
        if number == 0:
            said["attributes"] = {**said.get("attributes", {}), **attributes}
        write_json(root / name / METADATA, said)
        found[name] = said
    group = _plain(read_json(root / METADATA))
    group["attributes"] |= {VERSION: CONVENTION} | ({"coordinates": " ".join(of_rows)} if of_rows else {})
    write_json(root / METADATA, {**group, SUMMARY: {"kind": "inline", "must_understand": False, "metadata": found}})


def is_dataset(root: AnyPath) -> bool:
    """Whether the metadata of the root of a run name its outputs."""
    with suppress(DamagedError, MissingPathError):
        return SUMMARY in read_json(root / METADATA)
    return False


def remove_dataset(root: AnyPath) -> None:
    """Take the outputs out of the root of a run, where they are: a stage of them is not published any more."""
    with suppress(DamagedError, MissingPathError):
        said = read_json(root / METADATA)
        if isinstance(said, dict) and SUMMARY in said:
            write_json(root / METADATA, _plain(said))
            remove_arrays(root)


def remove_arrays(root: AnyPath) -> None:
    """Delete the arrays of outputs in the root of a run, whether its metadata name them or not."""
    for name in OUTPUTS:
        remove(root / name)


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a group without what is known of its outputs."""
    attributes = {name: value for name, value in said["attributes"].items() if name not in (VERSION, "coordinates")}
    return {**{name: value for name, value in said.items() if name != SUMMARY}, "attributes": attributes}


def _whole_arrays(root: AnyPath) -> dict[str, Any]:
    """The metadata of the arrays of published stages that are not in pieces by blocks, and of the folders above."""
    found: dict[str, Any] = {}
    manifests: list[AnyPath] = list((root / "manifest").glob("*.json"))
    for manifest in sorted(manifests, key=str):
        stage = f"stages/{manifest.stem}"
        said = read_json(manifest)
        for name in (name for name in said["files"] if name.endswith(f"/{METADATA}")):
            *above, array = name.split("/")[:-1]
            if not array.isdigit() and name.partition("/")[0] not in said.get("dropped", ()):
                path = "/".join([stage, *above, array])
                for depth in range(1, path.count("/") + 1):
                    folder = path.rsplit("/", depth)[0]
                    found.setdefault(folder, {"zarr_format": 3, "node_type": "group", "attributes": {}})
                found[path] = read_json(root / path / METADATA)
    return found
