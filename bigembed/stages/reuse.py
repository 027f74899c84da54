"""Which stages of a run are used again: by their inputs and parameters, and by what their functions read besides."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import sha256
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bigembed.errors import DamagedError, DamageWarning
from bigembed.stages.runs import DROPPED, Retention, lacking
from bigembed.store import files, manifests, superseded
from bigembed.store.files import digest_of
from bigembed.store.manifests import Manifest

if TYPE_CHECKING:
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import Stage


# ----------------------------------------------------------------------------------------------------------- reads
# What the function of a stage reads besides its inputs: the values that it closes over, found by looking at them.
#
# A key that somebody writes by hand can forget what the function reads. So the runner looks itself: two stages are
# the same only where these values are, too.

Prints = dict[int, tuple[Any, str]]
"""Fingerprints that were taken, by the objects: an array of this process is digested once for all stages of a run."""
LONGEST = 80
"""Characters of a value that is kept as text; of longer ones a digest is."""
WHERE = ("workdir", "persist", "keep", "verbose", "callbacks")
"""Parameters of estimators that say where something is written, shown or heard, and never what."""


@dataclass(frozen=True)
class Immaterial:
    """A value that a stage may close over and that does not change what comes out, such as where vectors are held."""

    value: Any

    def fingerprint(self) -> str:
        """The same for all."""
        return ""


def reads_of(
    function: Callable[..., Any], contents: Mapping[str, str] | None = None, prints: Prints | None = None
) -> dict[str, str]:
    """Return every value that a function closes over, by its dotted name: short ones as text, others as digests.

    Dataclasses, containers, closures and the objects of methods are looked into; rows, graphs and labels say what
    they are by their fingerprint, so that the place where they lie does not count; where ``contents`` has a digest of
    what was found in them, by that.

    Raises
    ------
    TypeError
        If the function closes over something whose content cannot be told.

    Examples
    --------
    >>> def stage(k, options):
    ...     return lambda context: (k, options["alpha"])
    >>> reads_of(stage(5, {"alpha": 0.5}))
    {'k': '5', 'options.alpha': '0.5'}
    """
    found = dict(sorted(_closed_over(function, "", (), {} if prints is None else prints)))
    return {name: (contents or {}).get(text, text) for name, text in found.items()}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the values that differ; a name that only one of them has is of another version's function.

    >>> differing({"k": "5", "old": "1"}, {"k": "6", "new": "1"})
    ['k']
    """
    return [name for name in now if name in before and before[name] != now[name]]


def _closed_over(function: Any, prefix: str, above: tuple[int, ...], prints: Prints) -> Iterator[tuple[str, str]]:
    if isinstance(function, partial):
        yield from _entries(function.args, f"{prefix}args", above, prints)
        for name, value in function.keywords.items():
            yield from _entries(value, prefix + name, above, prints)
        function = function.func
    if isinstance(function, MethodType):
        yield from _entries(function.__self__, f"{prefix}self", above, prints)
        function = function.__func__
    function = getattr(function, "py_func", function)  # (of a compiled one)
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield from _entries(cell.cell_contents, prefix + name, above, prints)


def _entries(value: Any, name: str, above: tuple[int, ...], prints: Prints) -> Iterator[tuple[str, str]]:
    """A value as named texts. ``above``: the objects that it is part of, which it may refer to."""
    if id(value) in above:
        return
    if isinstance(value, np.generic):
        value = value.item()
    above = (*above, id(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice)):
        yield name, _short(repr(value))
    elif isinstance(value, (np.dtype, type)):
        yield name, str(value)
    elif callable(fingerprint := getattr(value, "fingerprint", None)):
        if id(value) not in prints:
            prints[id(value)] = value, str(fingerprint())
        yield name, prints[id(value)][1]
    elif isinstance(value, np.ndarray):
        yield name, _digest(value)
    elif sparse.issparse(value):
        given: Any = value
        rows = given.tocsr()
        yield from _entries((rows.shape, rows.indptr, rows.indices, rows.data), name, above, prints)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _entries(value[key], f"{name}.{key}", above, prints)
    elif isinstance(value, Set):
        yield name, _short(repr(sorted(map(repr, value))))
    elif isinstance(value, Sequence):
        yield f"{name}.length", str(len(value))
        for number, entry in enumerate(value):
            yield from _entries(entry, f"{name}.{number}", above, prints)
    elif callable(parameters := getattr(value, "get_params", None)):
        yield name, type(value).__qualname__
        chosen = {key: entry for key, entry in parameters(deep=False).items() if key not in WHERE}
        yield from _entries(chosen, name, above, prints)
    elif is_dataclass(value):
        yield name, type(value).__qualname__
        for field in fields(value):
            yield from _entries(getattr(value, field.name), f"{name}.{field.name}", above, prints)
    elif isinstance(value, (partial, MethodType, FunctionType)) or hasattr(value, "py_func"):
        yield name, _code(value)
        yield from _closed_over(value, f"{name}.", above, prints)
    else:
        yield name, _pickled(name, value)


def _code(function: Any) -> str:
    """The name of a function; of one that is not of this package its code as well, which its author may change."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    function = getattr(function, "py_func", function)
    module, name = function.__module__, function.__qualname__
    if module.startswith("bigembed."):
        return str(name)  # (wherever it stands)
    if not isinstance(function, FunctionType):
        return f"{module}:{name}"
    code = function.__code__
    return _short(f"{module}:{name} {code.co_code!r} {code.co_consts!r} {code.co_names!r}")


def _pickled(name: str, value: Any) -> str:
    try:
        return sha256(pickle.dumps(value)).hexdigest()
    except Exception as error:
        raise TypeError(
            f"a stage closes over {name}, a {type(value).__qualname__}, and what it holds cannot be told ({error}); "
            "give it a method fingerprint(), or make it a dataclass"
        ) from error


def _digest(array: Any) -> str:
    found = sha256(f"{array.dtype} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return found.hexdigest()


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else sha256(text.encode()).hexdigest()


# ----------------------------------------------------------------------------------------------------------- reuse
# Which stages of a run are used again, and which belong to other parameters or rows: known before any is computed.

ROW_STAGES = ("ids",)
"""Stages of a job that belong to its rows, whatever the method is."""
DAMAGED = "damaged: "
"""How the reason begins for which a damaged stage is computed again."""
GONE = "made from what is gone"
EARLIER = "made by an earlier version, by a rule that has changed since"
OTHER = "made from other inputs, or from files that are missing"


@dataclass(frozen=True)
class Identity:
    """What a stage is made from: equal for two only if what they publish is."""

    key: str
    """Of its name, its parameters, the content of its inputs, and the parameters of those that it asks for them."""
    inputs: Mapping[str, str]
    reads: Mapping[str, str]
    """What its function closes over."""

    def made(self, found: Manifest) -> bool:
        """Whether it was made from this."""
        return found.key == self.key and not differing(found.reads, self.reads)


def identity_of(
    stage: Stage, run: Run, digests: Mapping[str, str] | None = None, prints: Prints | None = None
) -> Identity:
    """What a stage of a run is made from. ``digests``: of inputs that are not published now, but will be again."""
    known = digests or {}
    inputs = {name: known.get(name) or run.digest(name) for name in stage.inputs}
    said: dict[str, Any] = {"stage": stage.name, "parameters": stage.parameters, "inputs": inputs}
    if stage.parameters_of:
        said["parameters of inputs"] = {name: _asked(run, name) for name in stage.parameters_of}
    return Identity(digest_of(said), inputs, reads_of(stage.run, _contents(stage, run), prints))


def _contents(stage: Stage, run: Run) -> dict[str, str]:
    """Digests of the content of rows, by their fingerprints: as inputs of the stage found it when they read them all.

    So rows that lie elsewhere, or were written anew, are the same rows to what follows.
    """
    found = [found_manifest(run, name) for name in stage.inputs]
    read = [one for one in found if one is not None and {"content"} <= {*one.results} and "source" in one.parameters]
    return {str(one.parameters["source"]): str(one.results["content"]) for one in read}


def _asked(run: Run, stage: str) -> Mapping[str, Any]:
    """The parameters of an input, which may be superseded now and restored later; without those that name its rows."""
    found = found_manifest(run, stage)
    known = run.parameters(stage) if found is None else found.parameters
    return {name: value for name, value in known.items() if name != "source"}


def outdated(
    stages: Sequence[Stage], run: Run, prints: Prints | None = None, retention: Retention | None = None
) -> dict[str, str]:
    """The stages that will be computed, as far as can be known beforehand, each with the reason.

    A stage that follows a computed one counts as computed: only the content of its input will say whether it has to be.
    The files of a stage that would be used again are read (:func:`bigembed.store.manifests.damage`); if they are
    damaged it is computed, too. So is a stage of which something was dropped that is needed again
    (:mod:`bigembed.stages.runs`); as its content is known, what follows it need not be.
    """
    why: dict[str, str] = {}
    inside: set[str] = set()  # (reasons in words of the code, not of a user)
    there: dict[str, Manifest] = {}
    prints = {} if prints is None else prints
    digests: dict[str, str] = {}
    listed = {stage.name: stage for stage in stages}
    for stage in stages:
        if changed := [name for name in stage.inputs if name in why]:
            why[stage.name] = _earlier(stage.name, run, listed) or _followed(changed[0], why[changed[0]])
            continue
        identity = identity_of(stage, run, digests, prints)
        found, damaged = usable(stage, identity, run)
        if damaged:
            why[stage.name] = DAMAGED + damaged
        elif found is not None:
            digests[stage.name], there[stage.name] = found.digest, found
        else:
            found = found_manifest(run, stage.name)
            if found is not None and found.dropped and identity.made(found) and stage.holds(found.results):
                digests[stage.name], there[stage.name] = found.digest, found  # (killed while it was made again)
                continue
            read = _read(found, identity) if found else ""
            why[stage.name] = (
                _difference(found.parameters, stage)
                or _earlier(stage.name, run, listed)
                or read
                or (OTHER if stage.holds(found.results) else EARLIER)
                if found
                else GONE
            )
            inside |= {read} - {""}
    if inside and (said := _first_difference(stages, run)):
        why = {name: said if reason in inside else reason for name, reason in why.items()}
    return why | lacking(stages, there, why, retention)


def _first_difference(stages: Sequence[Stage], run: Run) -> str:
    """How the parameters of the first stage differ that was made with others; nothing where none was."""
    both = ((found_manifest(run, stage.name), stage) for stage in stages)
    return next(filter(None, (_difference(found.parameters, stage) for found, stage in both if found)), "")


def usable(stage: Stage, identity: Identity, run: Run) -> tuple[Manifest | None, str]:
    """What is there of a stage if it was made from this and can be used again, else what is damaged, if that is why.

    The files of a stage that was superseded may be half replaced by others: that is not damage.
    """
    try:
        published = manifests.find(run.root, stage.name)
        found = published or (None if run.temporary else superseded.find(run.root, stage.name))
    except DamagedError as error:
        return None, str(error)
    if found is None or not identity.made(found) or not stage.holds(found.results):
        return None, ""
    if not (problems := run.damage(found)):
        return found, ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return None, "" if published is None else problems[0] + more


def _followed(name: str, why: str) -> str:
    return f"made from {name!r}, which was damaged" if why.startswith(DAMAGED) else why


def found_manifest(run: Run, stage: str) -> Manifest | None:
    """What is published of a stage, or was before it was superseded."""
    return manifests.find(run.root, stage) or superseded.find(run.root, stage)


def supersede(
    stages: Sequence[Stage],
    run: Run,
    all_listed: bool,
    prints: Prints | None = None,
    retention: Retention | None = None,
) -> dict[str, str]:
    """Unpublish stages that will not be used again, publish again those that will; return all that is superseded then.

    They are unpublished from the last on, with what was made from them. What is damaged is deleted, with a warning.
    ``all_listed``: these are all stages of the run, so that others are what another method, or another way to solve,
    has left. A stage of which something was dropped that is needed again stays published until it is its turn
    (:mod:`bigembed.stages.runs`).
    """
    listed = [stage.name for stage in stages]
    both = outdated(stages, run, prints, retention)
    why = {name: reason for name, reason in both.items() if reason != DROPPED}
    for reason in why.values():
        if reason.startswith(DAMAGED):
            warnings.warn(f"{run.root}: {reason}; it is made anew", DamageWarning, stacklevel=2)
    inputs = {stage.name: stage.inputs for stage in stages}
    origins = {name: _found(run, _origin(name, why, inputs)) for name in why}
    why |= _followers(run, listed, why, all_listed)
    for name in reversed(why):
        damaged = why[name].startswith(DAMAGED)
        try:
            found = None if damaged else found_manifest(run, name)
        except DamagedError:
            found, damaged = None, True
        if damaged:
            manifests.discard(run.root, name)
            superseded.forget(run.root, name)
        if found is not None:
            superseded.supersede(run.root, found, why[name], origins.get(name))
        if damaged or found is not None:
            run.forget(name)
    for name in listed:
        if name not in both and (found := superseded.find(run.root, name)) is not None:
            superseded.restore(run.root, name, found.key)
    return superseded.superseded(run.root)


def _origin(name: str, why: Mapping[str, str], inputs: Mapping[str, Sequence[str]]) -> str:
    """The stage with which the change began: a stage's outdated inputs followed back to the first."""
    while changed := [one for one in inputs[name] if one in why]:
        name = changed[0]
    return name


def _found(run: Run, stage: str) -> Manifest | None:
    """What is there of a stage; None where that cannot be read."""
    with suppress(DamagedError):
        return found_manifest(run, stage)
    return None


def _followers(run: Run, listed: Sequence[str], why: dict[str, str], all_listed: bool) -> dict[str, str]:
    """Published stages that are not listed and go, too: those made from one that goes; all, if ``all_listed``."""
    rest = {name: _inputs(run, name) for name in run.published() if name not in (*listed, *ROW_STAGES)}
    if all_listed:
        return dict.fromkeys(rest, "made by another method or solver")
    out: dict[str, str] = {}
    while new := [name for name, inputs in rest.items() if name not in out and {*why, *out} & {*inputs}]:
        out |= {name: next((why | out)[one] for one in rest[name] if one in why | out) for name in new}
    return out


def _inputs(run: Run, stage: str) -> Mapping[str, str]:
    """What a published stage was made from; nothing where that cannot be read, so that it follows nothing."""
    with suppress(DamagedError):
        return run.manifest(stage).inputs
    return {}


def _earlier(name: str, run: Run, stages: Mapping[str, Stage]) -> str:
    """How a stage that is superseded already was made, compared with the present; nothing for one that is not.

    The stage that had changed then may differ in nothing any more; then only its name is said.
    """
    origin, before = superseded.origin(run.root, name)
    if origin not in stages:
        return ""
    return _difference(before, stages[origin]) or f"made from another {origin!r}"


def _read(found: Manifest, identity: Identity) -> str:
    """Which values that the function of a stage closes over were others; nothing where its inputs were others."""
    names = differing(found.reads, identity.reads) if found.key == identity.key else []
    return (names and "made with " + ", ".join(f"{n}={found.reads[n]}, now {identity.reads[n]}" for n in names)) or ""


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Parameters with those of tables in them under dotted names.

    >>> _flat({"k": 5, "kernel": {"gamma": 1}})
    {'k': 5, 'kernel.gamma': 1}
    """
    out: dict[str, Any] = {}
    for name, value in parameters.items():
        out |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return out


def _difference(before: Mapping[str, Any], stage: Stage) -> str:
    """How parameters that something was made with differ from those of the stage, in words; nothing if they do not."""
    now, before = _flat(files.jsonable(stage.parameters)), _flat(before)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if "source" in names:
        return "made from other rows"
    changes = ", ".join(f"{name}={before.get(name)!r}, now {now.get(name)!r}" for name in names)
    return changes and f"made with {changes}"
