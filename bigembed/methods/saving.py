"""The fitted model on disk: Zarr arrays, a manifest a stage, and model.json. Nothing that needs unpickling.

Kept is what the method's class says (``kept``): what the extension to new rows reads, fitted attributes and the
certificate; not what was only needed to make them.
"""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import asdict
from typing import Any

import numpy as np

from bigembed.blocks.distances import importable, reference
from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.methods import method
from bigembed.stages import Run
from bigembed.store import manifest as manifests
from bigembed.store.manifest import read_json, write_json
from bigembed.store.paths import AnyPath, PathLike, at, copy_files, move, published, remove, stored

FORMAT = 2
LARGEST_PICKLE = 1 << 30


def save(estimator: Any, path: PathLike) -> None:
    """Write a model aside, then give it its name in one step; an existing path is refused."""
    target = at(path).absolute()
    if published(target):
        raise ExistingOutputError(f"{target}: exists already. Nothing was changed; choose another path")
    description = _description(estimator)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    remove(partial)
    manifests.prepare(partial, "model")
    run: Run = estimator._run
    for stage, names in type(estimator).kept.items():
        if run.has(stage):
            _copy(run, stage, names, partial)
    write_json(partial / "model.json", description)
    move(partial, target)


def _copy(run: Run, stage: str, names: tuple[str, ...], target: AnyPath) -> None:
    """Copy some arrays of a stage, and its manifest with these files only."""
    manifest = run.manifest(stage)
    files = {
        name: entry
        for name, entry in manifest.files.items()
        if any(not kept or name == kept or name.startswith(f"{kept}/") for kept in names)
    }
    copy_files(run.path(stage), target / "stages" / stage, list(files))
    value = asdict(manifest) | {"files": files}
    write_json(target / "manifest" / f"{stage}.json", value)


def _description(estimator: Any) -> dict[str, Any]:
    parameters = {
        name: _named(name, value)
        for name, value in estimator.get_params().items()
        if name not in ("workdir", "random_state")
    }
    if "random_state" in estimator.get_params():
        parameters["random_state"] = estimator.certificate_["seed"]
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "method": type(estimator).registered,
        "parameters": parameters,
        "n_features_in": estimator.n_features_in_,
        "in_memory": estimator._in_memory,
        "feature_names_in": None if names is None else list(names),
        "certificate": estimator.certificate_,
    }


def _named(name: str, value: Any) -> Any:
    """The value of a parameter; a function by the name under which it can be imported."""
    if not callable(value):
        return value
    if not importable(value):
        raise InputError(
            f"{name}={reference(value)} cannot be found by its name, so the model cannot be saved with it. Define "
            f'the function at the top of a module that can be imported, or give "module:name" as {name}'
        )
    return reference(value)


def load(path: PathLike) -> Any:
    """The fitted estimator of a saved model; every kind of input extends as before.

    Raises MissingPathError, InputError (not a model) or DamagedError (incomplete, or another format).
    """
    root = at(path).absolute()
    if not root.exists():
        raise MissingPathError(f"{root}: no such model")
    if not (root / "model.json").exists():
        raise InputError(f"{root}: not a saved model (it has no model.json). Give the path that save() wrote")
    description = read_json(root / "model.json")
    if description.get("format") != FORMAT:
        raise DamagedError(
            f"{root}: model format {description.get('format')}, this version reads {FORMAT}. Fit again, or "
            "use the version that wrote it"
        )
    run = Run(root, kind="model")
    for stage in run.published():
        if not manifests.complete(root, run.manifest(stage)):
            raise DamagedError(f"{root}: stage {stage!r} of the model is incomplete; copy the model again")
    return _restore(description, run)


def _restore(description: dict[str, Any], run: Run) -> Any:
    estimator = method(description["method"])(**description["parameters"])
    estimator.n_features_in_ = description["n_features_in"]
    if description["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    estimator._run, estimator._in_memory = run, description["in_memory"]
    estimator._adopt(run)
    estimator.certificate_ = description["certificate"]
    return estimator


def to_state(estimator: Any) -> dict[str, Any]:
    """State for pickling: parameters, and, where fitted, the saved model as bytes."""
    state: dict[str, Any] = {"parameters": estimator.get_params()}
    if not estimator.__sklearn_is_fitted__():
        return state
    scratch = Run(None)
    place = scratch.root / "model"
    save(estimator, place)
    size = sum(file.size for file in stored(place))
    if size > LARGEST_PICKLE:
        raise InputError(
            f"the model holds {size >> 20} MiB, too much to pickle; use save(path) and bigembed.load(path)"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(str(place), arcname="model")
    state["model"] = buffer.getvalue()
    return state


def from_state(estimator: Any, state: dict[str, Any]) -> None:
    """Set up an estimator from :func:`to_state`."""
    for name, value in state["parameters"].items():
        setattr(estimator, name, value)
    if "model" not in state:
        return
    home = Run(None)
    with tarfile.open(fileobj=io.BytesIO(state["model"])) as archive:
        archive.extractall(str(home.root), filter="data")
    loaded = load(home.root / "model")
    loaded._run._home = home
    estimator.__dict__.update(loaded.__dict__ | state["parameters"])
