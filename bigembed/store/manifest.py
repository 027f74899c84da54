"""Publish a stage, find it again, verify it.

A stage writes its arrays under ``stages/NAME``. When all of them are whole, one file,
``manifest/NAME.json``, is written last (in one step): it lists every stored file
with its size and SHA-256. What no manifest lists does not exist for a reader, so a run killed
at any moment leaves either the whole stage or none of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from bigembed.blocks.rows import map_blocks
from bigembed.errors import DamagedError, ExistingOutputError, LockedError, MissingPathError
from bigembed.store.groups import make_group
from bigembed.store.objects import PIECE_BYTES
from bigembed.store.paths import AnyPath, PathLike, at, create, put, remove, stored

FORMAT = 1
_FILES_A_TASK = 64


@dataclass(frozen=True)
class Manifest:
    """What was published of one stage."""

    stage: str
    key: str
    parameters: dict[str, Any]
    inputs: dict[str, str]
    files: dict[str, tuple[int, str]]
    results: dict[str, Any]
    measured: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Of the content: what later stages are addressed by."""
        return digest_of({"files": {name: entry[1] for name, entry in self.files.items()}, "results": self.results})


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def write_json(path: PathLike, value: Any, indent: int | None = 1) -> None:
    """Write it in one step: a reader sees the old text or the new one. Without indent it is quicker."""
    put(path, text_of(value, indent))


def text_of(value: Any, indent: int | None = 1) -> bytes:
    """JSON with sorted keys; NumPy scalars and arrays as numbers."""
    return json.dumps(value, indent=indent, sort_keys=True, default=_plain).encode()


def jsonable(value: Any) -> Any:
    """The value as it is read again once it was written."""
    return json.loads(text_of(value, None))


def read_json(path: PathLike) -> Any:
    """The JSON value in a file; :class:`DamagedError` if it is none."""
    try:
        return json.loads(at(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingPathError(f"{path}: no such file") from error
    except ValueError as error:
        raise DamagedError(f"{path}: not valid JSON ({error})") from error


def publish(
    root: AnyPath,
    stage: str,
    key: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    results: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> Manifest:
    """Digest every file of the stage (in parallel, reading back what was written) and list them.

    The list is made only where there is none, so that of two who think that they hold the run one publishes;
    :class:`LockedError` for the other.
    """
    files = digests(root / "stages" / stage)
    manifest = Manifest(stage, key, dict(parameters), dict(inputs), files, dict(results), dict(measured))
    path = path_of(root, stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        create(path, text_of(asdict(manifest)))
    except FileExistsError as error:
        raise LockedError(f"{path}: another process published this stage meanwhile. Run again to go on") from error
    return manifest


def find(root: AnyPath, stage: str) -> Manifest | None:
    """The manifest of a published stage, or None."""
    path = path_of(root, stage)
    return parsed(read_json(path), path) if path.exists() else None


def path_of(root: AnyPath, stage: str) -> AnyPath:
    """Where the manifest of a published stage lies."""
    return root / "manifest" / f"{stage}.json"


def parsed(value: dict[str, Any], path: PathLike) -> Manifest:
    """The manifest that was read from a path."""
    if value.get("format") != FORMAT:
        raise DamagedError(f"{path}: format {value.get('format')}, this version reads {FORMAT}; run with --fresh")
    value["files"] = {name: (int(size), digest) for name, (size, digest) in value["files"].items()}
    return Manifest(**value)


def complete(root: AnyPath, manifest: Manifest) -> bool:
    """Whether every listed file is there with its size (a look at names and sizes only)."""
    base = root / "stages" / manifest.stage
    there = {file.name: file.size for file in stored(base)} if base.is_dir() else {}
    return all(there.get(name) == size for name, (size, _) in manifest.files.items())


def verify(root: AnyPath, manifest: Manifest) -> list[str]:
    """Every listed file that is absent or whose bytes are not those published, as messages."""
    base = root / "stages" / manifest.stage
    there = digests(base) if base.exists() else {}
    problems = []
    for name, (size, digest) in manifest.files.items():
        if name not in there:
            problems.append(f"{manifest.stage}/{name}: missing")
        elif there[name] != (size, digest):
            problems.append(f"{manifest.stage}/{name}: {there[name][0]} bytes that are not the {size} published")
    problems += [f"{manifest.stage}/{name}: not in the manifest" for name in there if name not in manifest.files]
    return problems


def discard(root: AnyPath, stage: str) -> None:
    """Unpublish, then delete, a stage."""
    path_of(root, stage).unlink(missing_ok=True)
    remove(root / "stages" / stage)


def digests(base: AnyPath) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file under a folder."""
    names = [file.name for file in stored(base)]
    parts = [names[start : start + _FILES_A_TASK] for start in range(0, len(names), _FILES_A_TASK)]
    found = map_blocks(digest_files, [(str(base), part) for part in parts], label="publish")
    return {name: entry for part in found for name, entry in part}


def digest_files(base: str, names: Sequence[str]) -> list[tuple[str, tuple[int, str]]]:
    """Size and SHA-256 of some files, read in pieces."""
    out = []
    for name in names:
        digest, size = sha256(), 0
        with (at(base) / name).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
                size += len(piece)
        out.append((name, (size, digest.hexdigest())))
    return out


def prepare(root: AnyPath, kind: str) -> None:
    """Make ``root`` a Zarr group of this kind, or check that it is one already."""
    if root.is_file():
        raise ExistingOutputError(f"{root}: a file, and a {kind} is a folder. Nothing was changed; choose another path")
    if root.exists() and not all(_unfinished(path) for path in root.iterdir()):
        attributes = _attributes(root)
        if attributes.get("bigembed") != kind:
            raise ExistingOutputError(
                f"{root}: exists and is not a bigembed {kind}. Nothing was changed; choose another path or move it away"
            )
        if attributes.get("format") != FORMAT:
            raise DamagedError(f"{root}: format {attributes.get('format')}, this version reads {FORMAT}")
        return
    root.mkdir(parents=True, exist_ok=True)
    make_group(root, {"bigembed": kind, "format": FORMAT})


def _unfinished(path: AnyPath) -> bool:
    """Whether this is what a process leaves that was killed while it made the group."""
    return path.name.startswith("zarr.") and path.name.endswith(".partial")


def _attributes(root: AnyPath) -> dict[str, Any]:
    path = root / "zarr.json"
    return dict(read_json(path).get("attributes", {})) if path.exists() else {}


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
