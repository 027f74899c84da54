"""The root folder of a run, a model or a growing store: a Zarr group whose attributes name its kind."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from bigembed.errors import DamagedError, DamageWarning, ExistingOutputError, MissingPathError
from bigembed.store.arrays.groups import make_group, new_group, rewrite_group
from bigembed.store.published.manifest import FORMAT, find
from bigembed.store.storage.documents import read_json
from bigembed.store.storage.paths import AnyPath

KINDS = {
    "growth": "is a growing store (of bigembed refresh, extend and audit)",
    "sweep": "is a sweep (of bigembed sweep)",
    "model": "is a saved model",
    "run": "is a run (of bigembed run)",
}


def prepare(root: AnyPath, kind: str) -> None:
    """Make ``root`` a Zarr group of this kind, or check that it is one already."""
    if root.exists() and not root.is_dir():
        raise ExistingOutputError(f"{root}: a file, and a {kind} is a folder. Nothing was changed; choose another path")
    if root.exists() and not all(_unfinished(path) for path in root.iterdir()):
        attributes = attributes_of(root)
        if not sound_group(root, kind) and ours(root, kind):
            return  # (who writes here next mends it)
        if attributes.get("bigembed") != kind:
            found = KINDS.get(attributes.get("bigembed"), "exists")  # type: ignore[arg-type]
            raise ExistingOutputError(
                f"{root}: {found} and is not a bigembed {kind}. Nothing was changed; choose another path or move it "
                "away"
            )
        if attributes.get("format") != FORMAT:
            raise DamagedError(f"{root}: format {attributes.get('format')}, this version reads {FORMAT}")
        return
    root.mkdir(parents=True, exist_ok=True)
    try:
        make_group(root, {"bigembed": kind, "format": FORMAT})
    except ValueError:  # (zarr's, of a group that exists)
        if not sound_group(root, kind):
            raise  # (and otherwise another process made it meanwhile: who writes in it is for its lock)


def begin(folder: Path, kind: str) -> None:
    """Make a new folder of this process a Zarr group of this kind."""
    new_group(folder, {"bigembed": kind, "format": FORMAT})


def sound_group(root: AnyPath, kind: str) -> bool:
    """Whether the metadata of the group say that it is of this kind and format."""
    try:
        found = read_json(root / "zarr.json")
    except (DamagedError, MissingPathError):
        return False
    attributes = found.get("attributes") if isinstance(found, dict) else None
    said = isinstance(attributes, dict) and (attributes.get("bigembed"), attributes.get("format")) == (kind, FORMAT)
    return said and (found.get("zarr_format"), found.get("node_type")) == (3, "group")


def ours(root: AnyPath, kind: str) -> bool:
    """Whether a folder whose metadata are damaged holds a run, as what else is in it says."""
    if kind != "run" or (root / "model.json").exists():
        return False
    folder = root / "manifest"
    names = [path.stem for path in folder.glob("*.json")] if folder.is_dir() else []
    return any(_readable(root, name) for name in names) or (root / "job.json").is_file()


def _readable(root: AnyPath, stage: str) -> bool:
    with suppress(DamagedError):
        return find(root, stage) is not None
    return False


def mend(root: AnyPath, kind: str) -> None:
    """Write the metadata of a run anew, with a warning, where they are damaged. For whoever holds it."""
    if not sound_group(root, kind) and ours(root, kind):
        warnings.warn(f"{root / 'zarr.json'}: damaged; it is made anew", DamageWarning, stacklevel=3)
        rewrite_group(root, {"bigembed": kind, "format": FORMAT})


def _unfinished(path: AnyPath) -> bool:
    """Whether this is what a process leaves that was killed while it made the group."""
    return path.name.startswith("zarr.") and path.name.endswith(".partial")


def attributes_of(root: AnyPath) -> dict[str, Any]:
    """What a Zarr group says of itself, its kind and format; nothing where it cannot be read."""
    with suppress(DamagedError, MissingPathError):
        found = read_json(root / "zarr.json")
        attributes = found.get("attributes") if isinstance(found, dict) else None
        return attributes if isinstance(attributes, dict) else {}
    return {}
