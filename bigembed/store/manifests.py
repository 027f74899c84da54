"""Stages published by manifests, found again and verified; the root folder of a run or model."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bigembed.errors import DamagedError, DamageWarning, ExistingOutputError, LockedError, MissingPathError
from bigembed.runtime.blocks import map_blocks
from bigembed.store import AnyPath, PathLike, create, opened, remove, remove_file, stored
from bigembed.store.attributes import remove_dataset
from bigembed.store.files import digest_of, read_json, sealed, text_of, unsealed, write_json
from bigembed.store.metadata import make_group, new_group, rewrite_group
from bigembed.store.objects import PIECE_BYTES, Stored

# -------------------------------------------------------------------------------------------------------- manifest
# Publish a stage, find it again, verify it.
#
# A stage writes its arrays under ``stages/NAME``. When all of them are whole, one file, ``manifest/NAME.json``, is
# written last (in one step): it lists every stored file with its size and SHA-256. What no manifest lists does not
# exist for a reader, so a run killed at any moment leaves either the whole stage or none of it.
#
# A manifest is sealed: it carries the digest of all else that it says. What is taken from a stage is compared with
# its manifest when a process first takes it (:func:`damage`); what the process published or compared is not read
# again as long as no file is written anew.

FORMAT = 1
_FILES_A_TASK = 64
_REMEMBERED = 4096
_whole: dict[tuple[str, str], str] = {}
"""Of the stages that this process published or compared: manifest, names and stamps of the files, as a digest."""


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
    reads: dict[str, str] = field(default_factory=dict)
    """What the function of the stage closed over; nothing in those of earlier versions, which did not look."""
    dropped: tuple[str, ...] = ()
    """Its arrays that were deleted since, because no stage was left to read them; ``files`` lists them all the same."""

    @property
    def there(self) -> dict[str, tuple[int, str]]:
        """The files that were not dropped."""
        if not self.dropped:
            return self.files
        return {name: entry for name, entry in self.files.items() if name.partition("/")[0] not in self.dropped}

    @property
    def arrays(self) -> dict[str, int]:
        """Bytes of the arrays that were not dropped, by name; those by blocks are one."""
        sizes: dict[str, int] = {}
        for name, (size, _) in self.there.items():
            array = name.partition("/")[0]
            sizes[array] = sizes.get(array, 0) + size
        return sizes

    @property
    def digest(self) -> str:
        """Of the content: what later stages are addressed by."""
        return digest_of({"files": {name: entry[1] for name, entry in self.files.items()}, "results": self.results})

    @property
    def address(self) -> str:
        """Of all that it was made from."""
        return digest_of([self.key, self.reads]) if self.reads else self.key


def publish(
    root: AnyPath,
    stage: str,
    key: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    results: Mapping[str, Any],
    measured: Mapping[str, Any],
    reads: Mapping[str, str],
) -> Manifest:
    """Digest every file of the stage (in parallel, reading back what was written) and list them.

    The list is made only where none exists, so that of two who think that they hold the run one publishes;
    :class:`LockedError` for the other.
    """
    base = root / "stages" / stage
    there = _files(base)
    files = digests(base, list(there), "publish")
    made = dict(parameters), dict(inputs), files, dict(results), dict(measured)
    manifest = Manifest(stage, key, *made, reads=dict(reads))
    path = path_of(root, stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        create(path, text_of(as_dict(manifest)))
    except FileExistsError as error:
        raise LockedError(f"{path}: another process published this stage meanwhile. Run again to go on") from error
    _remember(root, manifest, there)
    return manifest


def find(root: AnyPath, stage: str) -> Manifest | None:
    """The manifest of a published stage, or None; :class:`DamagedError` if it is not as it was written."""
    path = path_of(root, stage)
    try:
        return parsed(read_json(path), path, stage)
    except MissingPathError:
        return None


def as_dict(manifest: Manifest) -> dict[str, Any]:
    """As it is written: sealed. Earlier versions know of nothing that was dropped."""
    said = dict(vars(manifest))
    if not manifest.dropped:
        del said["dropped"]
    return sealed(said)


def path_of(root: AnyPath, stage: str) -> AnyPath:
    """Where the manifest of a published stage lies."""
    return root / "manifest" / f"{stage}.json"


def parsed(value: Any, path: PathLike, stage: str | None = None) -> Manifest:
    """The manifest that was read from a path, of this stage; :class:`DamagedError` if it cannot be one."""
    said = unsealed(value, path)
    if said.get("format") != FORMAT:
        raise DamagedError(f"{path}: format {said.get('format')}, this version reads {FORMAT}; run with --fresh")
    try:
        files = {name: (int(size), str(digest)) for name, (size, digest) in said["files"].items()}
        found = Manifest(**{**said, "files": files, "dropped": tuple(map(str, said.get("dropped", ())))})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: damaged: not a manifest ({error})") from error
    named = isinstance(found.stage, str) and isinstance(found.key, str)
    tables = (found.parameters, found.inputs, found.results, found.measured, found.reads)
    possible = all(_stays_inside(name) and 0 <= size < 1 << 63 for name, (size, _) in files.items())
    if not named or not all(isinstance(table, dict) for table in tables) or not possible:
        raise DamagedError(f"{path}: damaged: not a manifest")
    if stage not in (None, found.stage):
        raise DamagedError(f"{path}: damaged: the manifest of another stage, {found.stage!r}")
    return found


def _stays_inside(name: str) -> bool:
    """Whether it names a file under the folder that it starts from."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/")


def complete(root: AnyPath, manifest: Manifest) -> bool:
    """Whether every listed file is there with its size (a look at names and sizes only)."""
    return not _missing(manifest, _files(root / "stages" / manifest.stage))


def damage(root: AnyPath, manifest: Manifest, again: bool = False) -> list[str]:
    """Every listed file that is absent or whose bytes are not those published, as messages.

    Reads every byte, in parallel, once in a process: then names and times only, as long as no file is written anew.
    ``again``: whatever was read before. Files that are not listed are not damage: nobody reads them.
    """
    there = _files(root / "stages" / manifest.stage)
    problems = _missing(manifest, there)
    if problems or (not again and _whole.get((str(root), manifest.stage)) == _state(manifest, there)):
        return problems
    problems = _changed(root, manifest, list(manifest.there))
    if not problems:
        _remember(root, manifest, there)
    return problems


def changed_inputs(root: AnyPath, manifest: Manifest) -> list[str]:
    """Which stages of a run are others than this one was made from, though whole: put back, say. Of a model nothing:
    it has parts of its stages, and compares all its metadata where it is loaded."""
    problems = []
    for name, digest in () if (root / "model.json").exists() else manifest.inputs.items():
        with suppress(DamagedError):  # (found where it is read)
            found = find(root, name)
            if found is not None and found.digest != digest:
                problems.append(f"was made from another {name!r} than the one that is there")
    return problems


def quick_damage(root: AnyPath, manifest: Manifest) -> list[str]:
    """The damage that names, sizes and the metadata of the arrays show, without a look at their chunks."""
    problems = _missing(manifest, _files(root / "stages" / manifest.stage))
    return problems or _changed(root, manifest, [name for name in manifest.there if name.endswith("zarr.json")])


def _changed(root: AnyPath, manifest: Manifest, names: Sequence[str]) -> list[str]:
    """Which of these files have other bytes than were published."""
    found = digests(root / "stages" / manifest.stage, names)
    return [
        f"{manifest.stage}/{name}: not the bytes that were published"
        for name in names
        if found.get(name) != manifest.files[name]
    ]


def verify(root: AnyPath, manifest: Manifest) -> list[str]:
    """Every damaged file, read anew, and every one that is not listed, as messages."""
    return damage(root, manifest, again=True) + unlisted(root, manifest)


def unlisted(root: AnyPath, manifest: Manifest) -> list[str]:
    """Files in the folder of a stage of which its manifest knows nothing, as messages."""
    names = _files(root / "stages" / manifest.stage)
    return [f"{manifest.stage}/{name}: not in the manifest" for name in names if name not in manifest.files]


IN_WORK = ".begun"
"""The file in the folder of a stage that is in work, or was when the process was killed; no part of what it holds."""


def is_in_work(root: AnyPath, stage: str) -> bool:
    """Whether the folder of a stage holds what a start of it has left that did not publish it."""
    return (root / "stages" / stage / IN_WORK).is_file()


def _files(base: AnyPath) -> dict[str, Stored]:
    return {file.name: file for file in stored(base) if file.name != IN_WORK} if base.is_dir() else {}


def _missing(manifest: Manifest, there: Mapping[str, Stored]) -> list[str]:
    """Every listed file that is absent or of another size."""
    problems = []
    for name, (size, _) in manifest.there.items():
        if name not in there:
            problems.append(f"{manifest.stage}/{name}: missing")
        elif there[name].size != size:
            problems.append(f"{manifest.stage}/{name}: {there[name].size} bytes, and {size} were published")
    return problems


def _state(manifest: Manifest, there: Mapping[str, Stored]) -> str:
    """Changes with what the manifest lists, and when a listed file is written, renamed or replaced."""
    return digest_of([manifest.files, [there[name].identity for name in manifest.there]])


def _remember(root: AnyPath, manifest: Manifest, there: Mapping[str, Stored]) -> None:
    while len(_whole) >= _REMEMBERED:
        _whole.pop(next(iter(_whole)), None)
    _whole[str(root), manifest.stage] = _state(manifest, there)


def drop(root: AnyPath, manifest: Manifest, arrays: Collection[str]) -> Manifest:
    """Delete arrays of a published stage, which say first that they are dropped. Returns the manifest as it is then.

    What a killed process left of them is deleted when it is called again. The digest of the stage stays as it was.
    """
    found = manifest
    if new := {*arrays} - {*manifest.dropped}:
        there = _files(root / "stages" / manifest.stage)
        known = _whole.get((str(root), manifest.stage)) == _state(manifest, there)
        found = replace(manifest, dropped=tuple(sorted({*manifest.dropped, *new})))
        remove_dataset(root)
        write_json(path_of(root, manifest.stage), as_dict(found))
        if known:  # (what was read of it is not read again)
            _remember(root, found, there)
    for name in found.dropped:
        remove(root / "stages" / manifest.stage / name)
    return found


def discard(root: AnyPath, stage: str) -> None:
    """Unpublish, then delete, a stage, whatever is left of it."""
    remove_dataset(root)
    remove_file(path_of(root, stage))
    remove(root / "stages" / stage)


def digests(base: AnyPath, names: Sequence[str], label: str = "verify") -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of files under a folder; of those that are there."""
    parts = [names[start : start + _FILES_A_TASK] for start in range(0, len(names), _FILES_A_TASK)]
    found = map_blocks(digest_files, [(str(base), part) for part in parts], label=label)
    return {name: entry for part in found for name, entry in part}


def digest_files(base: str, names: Sequence[str]) -> list[tuple[str, tuple[int, str]]]:
    """Size and SHA-256 of some files, read in pieces."""
    out = []
    for name in names:
        digest, size = sha256(), 0
        with suppress(FileNotFoundError), opened(f"{base}/{name}") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
                size += len(piece)
            out.append((name, (size, digest.hexdigest())))
    return out


# ----------------------------------------------------------------------------------------------------------- roots
# The root folder of a run, a model or a growing store: a Zarr group whose attributes name its kind.

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
        if not check_group(root, kind) and holds_run(root, kind):
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
        if not check_group(root, kind):
            raise  # (and otherwise another process made it meanwhile: who writes in it is for its lock)


def start_group(folder: Path, kind: str) -> None:
    """Make a new folder of this process a Zarr group of this kind."""
    new_group(folder, {"bigembed": kind, "format": FORMAT})


def check_group(root: AnyPath, kind: str) -> bool:
    """Whether the metadata of the group say that it is of this kind and format."""
    try:
        found = read_json(root / "zarr.json")
    except (DamagedError, MissingPathError):
        return False
    attributes = found.get("attributes") if isinstance(found, dict) else None
    said = isinstance(attributes, dict) and (attributes.get("bigembed"), attributes.get("format")) == (kind, FORMAT)
    return said and (found.get("zarr_format"), found.get("node_type")) == (3, "group")


def holds_run(root: AnyPath, kind: str) -> bool:
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


def repair_group(root: AnyPath, kind: str) -> None:
    """Write the metadata of a run anew, with a warning, where they are damaged. For whoever holds it."""
    if not check_group(root, kind) and holds_run(root, kind):
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
