"""The fitted model on disk: Zarr arrays, a manifest a stage, and model.json. Nothing that needs unpickling.

Kept is what the method's class says (``saved_stages``): what the extension to new rows reads, fitted attributes and the
certificate; not what was only needed to make them.
"""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed import estimator as estimators
from bigembed import store
from bigembed.errors import ExistingOutputError, InputError, StaleWarning
from bigembed.estimator import extension, model_files, transform
from bigembed.estimator.frame import STAGE as FRAME
from bigembed.runtime.parameters import Functions, allowed_functions, importable, reference
from bigembed.stages import Arrays, Run, Stage
from bigembed.store import locks, manifests, superseded
from bigembed.store.files import write_json
from bigembed.store.manifests import Manifest, digest_files

OUTPUT, CLUSTERS = "coordinates", "clusters"
ANCHORS = "anchors", "anchor_labels", "centers"
"""Of clusters after a map, what new rows are compared with."""
FRAMED = ("embedding", "matrix", "shift")
"""What a model keeps of the stage that lays it over an earlier map."""
LARGEST_PICKLE = 1 << 30
ALLOW = (
    "give be.load(path, functions={NAME: function}) or be.load(path, functions=[MODULE]); on the command line "
    "--allow-functions MODULE"
)
"""How a function that a model names is allowed."""
KEPT = ("_sklearn_output_config", "_metadata_request")
"""What scikit-learn's protocols set on an estimator, fitted or not."""


def save(estimator: Any, path: store.PathLike) -> None:
    """Write a model aside, then give it its name in one step; an existing path is refused."""
    target = store.at(path).absolute()
    transform.refuse_existing(target)
    estimators.run_of(estimator).check_kept(_kept(type(estimator)))
    with extension.consistent(model_files.saved_at(estimators.run_of(estimator), {})):
        description = _description(estimator, _named_parameters(estimator))
        before = [_description(step, _named_parameters(step)) for step in _steps_of(estimator)]
    with locks.output_lock(target):
        partial = target.with_name(f"{target.name}.partial")
        store.remove(partial)  # of a call that was killed
        manifests.prepare(partial, "model")
        for step, about in zip(_steps_of(estimator), before, strict=True):
            description = _with_step(description, step, about, partial)
        _write(estimator, partial, description)
        try:
            store.move(partial, target)
        except OSError as error:
            store.remove(partial)
            raise ExistingOutputError(f"{target}: appeared while the model was written ({error})") from error


def _steps_of(estimator: Any) -> tuple[Any, ...]:
    """The fitted steps before an estimator."""
    return getattr(estimator, "steps_", ())


def _with_step(description: dict[str, Any], step: Any, about: dict[str, Any], model: store.AnyPath) -> dict[str, Any]:
    """Write a step, a model of its own in the folder of the model; what the model then says of its steps."""
    known = description.get(model_files.STEPS, [])
    name = f"{len(known) + 1}-{type(step).registered}"
    _write(step, model / model_files.STEPS / name, about)
    digest = dict(digest_files(str(model / model_files.STEPS / name), [model_files.NAME]))[model_files.NAME][1]
    return {**description, model_files.STEPS: [*known, {"name": name, "digest": digest}]}


def _write(estimator: Any, target: store.AnyPath, description: dict[str, Any]) -> None:
    """The stages that are kept, and the description."""
    manifests.prepare(target, "model")
    run: Run = estimators.run_of(estimator)
    for stage, manifest in _saved(estimator).items():
        store.copy_files(run.path(stage), target / "stages" / stage, list(manifest.files))
        write_json(target / "manifest" / f"{stage}.json", manifests.as_dict(manifest))
    write_json(target / model_files.NAME, model_files.described(target, description))


def _saved(estimator: Any) -> dict[str, Manifest]:
    """The stages of a model, each with the files that are kept of it."""
    run: Run = estimators.run_of(estimator)
    found = {}
    for stage, names in _kept(type(estimator)).items():
        if run.has(stage) and not (stage == OUTPUT and estimators.is_step(estimator)):
            manifest = run.manifest(stage)
            files = {name: entry for name, entry in manifest.files.items() if _is_among(name, names)}
            found[stage] = replace(manifest, files=files, dropped=())
    return found


def _kept(kind: Any) -> dict[str, tuple[str, ...]]:
    """The names of the arrays that a model of this class keeps, by stage; an empty one stands for all."""
    return {CLUSTERS: ANCHORS, **estimators.LIKENESS, **kind.saved_stages, FRAME: FRAMED}


def _is_among(name: str, names: tuple[str, ...]) -> bool:
    return any(not chosen or name == chosen or name.startswith(f"{chosen}/") for chosen in names)


def saved_arrays(kind: Any, stages: Sequence[Stage]) -> Arrays:
    """Return what a model of this class keeps of these stages, as they declare it, and all of the steps before it."""
    kept = _kept(kind)
    return [
        array
        for stage in stages
        for array in stage.cost.arrays
        if estimators.STEP.match(stage.name) or _is_among(array.name, kept.get(stage.name, ()))
    ]


def token(estimator: Any) -> tuple[Any, ...]:
    """What identifies an estimator for Dask: its class, parameters and, where fitted, what a model keeps."""
    from dask.base import normalize_token

    kind = type(estimator)
    fitted = {}
    if estimator.__sklearn_is_fitted__():
        fitted = {stage: manifest.digest for stage, manifest in _saved(estimator).items()}
    return (
        f"{kind.__module__}:{kind.__qualname__}",
        normalize_token(estimators.method_parameters(estimator)),
        sorted(fitted.items()),
    )


def _named_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters of the fit as JSON, for the class that ``load`` finds."""
    known: Any = next(kind for kind in type(estimator).__mro__ if "registered" in vars(kind))
    given = estimator.as_fitted().get_params()
    own = sorted(set(given) - set(estimators.parameter_names(known)))
    if own:
        raise InputError(
            f"{type(estimator).__name__} has additional parameters ({', '.join(own)}), and load() makes a "
            f"{known.__name__}, which has not. Pickle it instead"
        )
    parameters = {
        name: _named(name, value)
        for name, value in given.items()
        if name not in (*estimators.RUN_PARAMETERS, "random_state")
        and (name not in known.of_rows or store.is_path(value))
    }
    if "random_state" in given:
        parameters["random_state"] = estimator.certificate_["seed"]
    return parameters


def _description(estimator: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "format": model_files.FORMAT,
        "method": type(estimator).registered,
        "parameters": parameters,
        "n_features_in": estimator.n_features_in_,
        "in_memory": estimators.fitted_in_memory(estimator),
        "dtype": estimators.dtype_fitted(estimator),
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


def load(path: store.PathLike, method: Callable[[str], type[Any]], functions: Functions = ()) -> Any:
    """The fitted estimator of a saved model; every kind of input extends as before.

    ``method``: finds the class of a method by its name. ``functions``: what the model may call of those that it names;
    nothing else that a model names is imported.

    Raises MissingPathError, InputError (not a model) or DamagedError (altered, incomplete, or another format). Gives a
    StaleWarning where the run that wrote the model has begun anew with other parameters or rows.
    """
    description, run = _read(store.at(path).absolute(), method)
    estimator = _loaded(description, run, method, functions)
    if steps := model_files.steps_in(run.root, description):
        found = [model_files.read_description(place, method)[0] for place in steps]
        runs = [Run(place, kind="model") for place in steps]
        for one in runs:
            model_files.check_stages(one)
        estimator.steps_ = tuple(_loaded(said, one, method, functions) for said, one in zip(found, runs, strict=True))
        estimators.set_steps(estimator, estimator.steps_)
    return estimator


def _loaded(description: dict[str, Any], run: Run, method: Callable[[str], type[Any]], functions: Functions) -> Any:
    """The fitted estimator of a description and of stages that were checked."""
    parameters, problems = allowed_functions(description["parameters"], functions, ALLOW)
    if problems:
        raise InputError(f"{run.root}: " + "; ".join(problems))
    with extension.consistent(str(run.root)):
        kind = method(description["method"])
        estimator = kind(**{name: _as_given(kind, name, value) for name, value in parameters.items()})
        estimators.check_parameters(estimator)
        _restore(estimator, description, run, estimator.get_params())
        columns = estimator.n_features_in_ if estimator.of_columns else None
        model_files.check_extension(run, estimator.n_components_, columns=columns)
    return estimator


def _as_given(kind: type[Any], name: str, value: Any) -> Any:
    """The value of a parameter as Python has it: a list of JSON as a tuple, where the default is one."""
    return tuple(value) if isinstance(value, list) and isinstance(getattr(kind, name, None), tuple) else value


def _read(root: store.AnyPath, method: Callable[[str], type[Any]]) -> tuple[dict[str, Any], Run]:
    """What model.json says, and the stages: all metadata as they were saved."""
    description, _ = model_files.read_description(root, method)
    if (why := superseded.superseded_model(root)) is not None:
        message = f"{root}: the run that wrote this model has begun anew and not ended yet; it was {why}"
        warnings.warn(message, StaleWarning, stacklevel=3)
    run = Run(root, kind="model")
    model_files.check_stages(run)
    return description, run


def _restore(estimator: Any, description: dict[str, Any], run: Run, parameters: dict[str, Any]) -> None:
    """Set the fitted attributes, of a fit with these parameters."""
    fitted = estimators.with_parameters(estimator, parameters)
    fitted.n_features_in_ = description["n_features_in"]
    if description["feature_names_in"] is not None:
        fitted.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    known = {"in_memory": description["in_memory"], "dtype": description.get("dtype", "float64")}
    fitted.read_run(run, certificate=description["certificate"], **known)
    estimator.__dict__.update({name: value for name, value in fitted.__dict__.items() if name not in parameters})


def to_state(estimator: Any) -> dict[str, Any]:
    """State for pickling: parameters, and, where fitted, those of the fit and the model as bytes."""
    kept = {name: value for name, value in estimator.__dict__.items() if name in KEPT}
    state: dict[str, Any] = {
        "parameters": estimator.get_params(),
        "kept": kept,
        "steps": estimators.steps_before(estimator),
    }
    if not estimator.__sklearn_is_fitted__():
        return state
    estimators.run_of(estimator).check_kept(_kept(type(estimator)))
    scratch = Run(None)
    place = scratch.root / "model"
    _write(estimator, place, _description(estimator, {}))
    size = sum(file.size for file in store.stored(place))
    if size > LARGEST_PICKLE:
        raise InputError(
            f"the model holds {size >> 20} MiB, too much to pickle; use save(path) and bigembed.load(path)"
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(str(place), arcname="model", filter=_timeless)
    return state | {
        "fitted": estimators.fitted_parameters(estimator),
        "model": buffer.getvalue(),
        "steps_": _steps_of(estimator),
    }


def _timeless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without time and owner: the same model is the same bytes."""
    return entry.replace(mtime=0, uid=0, gid=0, uname="", gname="", deep=False)


def from_state(estimator: Any, state: dict[str, Any]) -> None:
    """Set up an estimator from :func:`to_state`."""
    for name, value in (state["parameters"] | state["kept"]).items():
        setattr(estimator, name, value)
    if state.get("steps"):
        estimators.set_steps(estimator, state["steps"])
    if "model" not in state:
        return
    home = Run(None)
    with tarfile.open(fileobj=io.BytesIO(state["model"])) as archive:
        archive.extractall(str(home.root), filter="data")
    description, run = _read(home.root / "model", lambda _: type(estimator))
    run.keep(home)
    _restore(estimator, description, run, state["fitted"])
    if state.get("steps_"):
        estimator.steps_ = state["steps_"]
