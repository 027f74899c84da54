"""Whether the files of a saved model are those that were written, and can be a model at all.

``model.json`` is sealed, and lists the SHA-256 of the other JSON files; their manifests list that of every file of the
arrays. Metadata are compared when the model is loaded, arrays when they are first read. What a stranger wrote may have
every digest right: so sizes are held against the bytes that are there before anything is allocated, and no path leads
out of the folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import DamagedError, InputError, JobError, MissingPathError
from bigembed.estimator import RUN_PARAMETERS, parameter_names
from bigembed.runtime.parameters import is_name
from bigembed.stages import Run
from bigembed.store import AnyPath, manifests, no_such_path
from bigembed.store.chunks import ENTRY
from bigembed.store.files import read_json, sealed, unsealed
from bigembed.store.manifests import Manifest, digest_files

FORMAT = 2
NAME, FILES = "model.json", "files"
STEPS = "steps"
"""In a model the folder of the steps before it, each a model; in its description their names and digests."""
METADATA = "zarr.json"
LARGEST = 256 << 20
"""Bytes of a JSON file of a model."""
DEEP = 64
"""Tables in tables of a JSON file of a model."""
PACKED = 1 << 16
"""Numbers take this many times the bytes that they are packed into, at the most."""
UNPACKED = ("bytes", "crc32c", "sharding_indexed")


def described(root: AnyPath, description: Mapping[str, Any]) -> dict[str, Any]:
    """What ``model.json`` says of a model whose other files are written: with their digests, sealed."""
    return sealed({**description, FILES: _listed(root)})


def _listed(root: AnyPath) -> dict[str, str]:
    """SHA-256 of each JSON file beside ``model.json``."""
    folder = root / "manifest"
    there = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    names = [name for name in (METADATA, *(f"manifest/{one}" for one in there)) if (root / name).is_file()]
    return {name: digest for name, (_, digest) in digest_files(str(root), names)}


def read_description(root: AnyPath, method: Callable[[str], type[Any]]) -> tuple[dict[str, Any], bool]:
    """What ``model.json`` says, all JSON compared with it, and whether it is sealed (earlier versions did not).

    ``method``: finds the class of a method by its name.
    """
    if not root.exists():
        raise MissingPathError(no_such_path(root, "model"))
    if not (root / NAME).exists():
        if manifests.holds_run(root, "run"):
            raise InputError(
                f"{root}: a run, not a saved model. Give what [output] model of its job, or save(), wrote. Where the "
                "job names none, add the line and run it again: its stages are used again"
            )
        raise InputError(f"{root}: not a saved model (it has no model.json). Give the path that save() wrote")
    _refuse_links(root)
    value = read_json(root / NAME)
    said = unsealed(value, root / NAME)
    if said.get("format") != FORMAT:
        raise DamagedError(
            f"{root}: model format {said.get('format')!r}, this version reads {FORMAT}. Fit again, or "
            "use the version that wrote it"
        )
    if FILES in said and (there := _listed(root)) != said[FILES]:
        listed = said[FILES] if isinstance(said[FILES], dict) else {}
        names = [name for name in {**listed, **there} if listed.get(name) != there.get(name)]
        raise DamagedError(f"{root}: damaged: {', '.join(names)} not as saved; copy the model again")
    _refuse_nests(root / NAME, said)
    _check_description(root, said, method)
    return said, FILES in said


def steps_in(root: AnyPath, said: Mapping[str, Any]) -> list[AnyPath]:
    """Where the steps before a model lie, in their order, as its description lists them; DamagedError otherwise."""
    places = []
    for entry in said.get(STEPS, []):
        place = root / STEPS / entry["name"]
        found = dict(digest_files(str(place), [NAME])) if (place / NAME).is_file() else {}
        if not found or found[NAME][1] != entry["digest"]:
            raise DamagedError(f"{place}: damaged: not the step that was saved with the model; copy the model again")
        places.append(place)
    return places


def check_stages(run: Run) -> None:
    """DamagedError unless every file is there, all metadata are as they were published, and no array claims more than
    its bytes can hold."""
    for stage in run.published():
        manifest = run.manifest(stage)
        if not manifests.complete(run.root, manifest):
            raise DamagedError(f"{run.root}: stage {stage!r} of the model is incomplete; copy the model again")
        base = run.root / "stages" / stage
        _refuse_nests(manifests.path_of(run.root, stage), [manifest.inputs, manifest.parameters, manifest.results])
        names = [name for name in manifest.files if name.rpartition("/")[2] == METADATA]
        for name, found in digest_files(str(base), names):
            if found != manifest.files[name]:
                raise DamagedError(f"{base / name}: damaged: not as published; copy the model again")
            _refuse_claims(base / name, name.rpartition("/")[0], manifest)


def check_extension(run: Run, width: Any, dtype: Any = "float64", columns: int | None = None) -> None:
    """DamagedError where a model has more coordinates than bytes for numbers, or coordinates that are not numbers.

    ``columns``: of the rows, where a coordinate is one of them, so that a model need hold nothing for it.
    """
    if dtype not in ("float32", "float64"):
        raise DamagedError(f"{run.root}: damaged: coordinates of type {str(dtype)[:60]!r}")
    held = sum(size for stage in run.published() for size, _ in run.manifest(stage).files.values())
    if not isinstance(width, int) or not 0 < width <= (held if columns is None else columns):
        raise DamagedError(f"{run.root}: damaged: a model of {held:,} bytes claims {width!r} coordinates")


def saved_at(run: Run, parameters: Mapping[str, Any]) -> str:
    """Where the model lies that the stages are of; nothing for a run, or where functions of the user are called."""
    own = any(callable(one) or is_name(one) for one in parameters.values())
    return str(run.root) if run.kind == "model" and not own else ""


def _refuse_links(root: AnyPath) -> None:
    """InputError where something in the folder is neither a file nor a folder inside it, or is absurdly large."""
    if not isinstance(root, Path):
        return
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            found = os.lstat(os.path.join(folder, name))
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise InputError(
                    f"{root}: {name} is a link or no file, and a model holds its own files only. Copy the model with "
                    "what it links to (cp -rL)"
                )
            if name.endswith(".json") and found.st_size > LARGEST:
                raise InputError(f"{root}: {name} has {found.st_size >> 20} MiB; at most {LARGEST >> 20} are read")


def _refuse_nests(file: AnyPath, said: Any) -> None:
    """DamagedError where tables and lists stand in each other deeper than any that was written."""
    level = [said]
    for _ in range(DEEP):
        level = [one for table in level for one in (table.values() if isinstance(table, dict) else table)]
        level = [one for one in level if isinstance(one, (dict, list))]
    if level:
        raise DamagedError(f"{file}: damaged: tables in tables, more than {DEEP} deep")


def _check_description(root: AnyPath, said: Mapping[str, Any], method: Callable[[str], type[Any]]) -> None:
    """DamagedError unless each entry is of its kind."""
    name, parameters = said.get("method"), said.get("parameters")
    names, features = said.get("feature_names_in"), said.get("n_features_in")
    wrong = []
    try:
        known = {*parameter_names(method(str(name)[:60]))} - {*RUN_PARAMETERS}
    except JobError as error:
        raise DamagedError(f"{root}: damaged: model.json: {error}") from error
    if not isinstance(parameters, dict) or not {*parameters} <= known:
        unknown = sorted({*parameters} - known)[:5] if isinstance(parameters, dict) else parameters
        wrong.append(f"parameters: {str(unknown)[:200]} are not parameters that {name} has in a model")
    if not isinstance(features, int) or isinstance(features, bool) or features < 1:
        wrong.append(f"n_features_in: {str(features)[:60]}, and not an integer ≥ 1")
    if not isinstance(said.get("in_memory"), bool):
        wrong.append("in_memory: neither true nor false")
    if said.get("dtype", "float64") not in ("float32", "float64"):  # (models of before 0.2 do not say it)
        wrong.append(f"dtype: {str(said['dtype'])[:60]}, and neither float32 nor float64")
    if not isinstance(said.get("certificate"), dict):
        wrong.append("certificate: not a table")
    if not isinstance(steps := said.get(STEPS, []), list) or not all(map(_is_step, steps)):
        wrong.append("steps: not a list of names and digests")
    texts = isinstance(names, list) and all(isinstance(one, str) for one in names)
    if names is not None and not (texts and len(names) == features):
        wrong.append("feature_names_in: neither null nor one text a feature")
    if wrong:
        raise DamagedError(f"{root}: damaged: model.json: {'; '.join(wrong)}")


def _is_step(entry: Any) -> bool:
    plain = isinstance(entry, dict) and {*entry} == {"name", "digest"}
    return plain and isinstance(entry["name"], str) and re.fullmatch(r"[0-9]+-[a-z0-9_]+", entry["name"]) is not None


def _refuse_claims(file: AnyPath, array: str, manifest: Manifest) -> None:
    """DamagedError where an array is larger than its files can hold, or has other chunks than there are files."""
    about = read_json(file)
    if not isinstance(about, dict) or about.get("node_type") != "array":
        return
    inside = f"{array}/c" if array else "c"
    stored = [size for name, (size, _) in manifest.files.items() if name == inside or name.startswith(f"{inside}/")]
    try:
        shape, chunk = about["shape"], about["chunk_grid"]["configuration"]["chunk_shape"]
        if not all(type(one) is int and one >= least for least, part in ((0, shape), (1, chunk)) for one in part):
            raise ValueError(f"shape {shape}, chunks {chunk}")
        chunks = prod(-(-one // part) for one, part in zip(shape, chunk, strict=True))
        first, index = about["codecs"][0], 0
        if first["name"] == "sharding_indexed":  # (of a shard only the chunks that hold rows are there, and an index)
            shard, chunk = prod(chunk), first["configuration"]["chunk_shape"]
            index = ENTRY * chunks * (shard // prod(chunk))
        kind = about["data_type"]
        itemsize = np.dtype(kind).itemsize if kind not in ("string", "variable_length_utf8") else 1
        claimed = max(prod(shape), prod(chunk)) * itemsize if prod(shape) else 0
        held = sum(stored) * (1 if all(name in UNPACKED for name in _codecs(about["codecs"])) else PACKED)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedError(f"{file}: damaged: not the metadata of an array ({str(error)[:200]})") from error
    if chunks != len(stored) or claimed > held or index > sum(stored):
        raise DamagedError(
            f"{file}: damaged: an array of shape {str(shape)[:80]} in chunks of {str(chunk)[:80]}, where "
            f"{len(stored)} files of {sum(stored):,} bytes are"
        )


def _codecs(listed: list[Mapping[str, Any]]) -> Iterator[str]:
    for codec in listed:
        yield codec["name"]
        yield from _codecs(codec.get("configuration", {}).get("codecs", []))
