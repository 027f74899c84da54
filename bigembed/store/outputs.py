"""The outputs of a finished run as arrays in its root, with named dimensions: what xarray and other readers open.

An array of an output shares the chunks of the stage that published it (links, where the file system has them), so
that it takes no room. The metadata of the group name all of them (consolidated metadata), and come last; they go
first, as soon as a stage of the run is not published any more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copyfile
from typing import Any

from bigembed.errors import DamagedError, MissingPathError
from bigembed.runtime.blocks import map_blocks
from bigembed.store.files import read_json, write_json
from bigembed.store.paths import AnyPath, at, put, remove, stored

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
