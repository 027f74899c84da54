"""Which stages of a run are used again, and which belong to other parameters or rows: known before any is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bigembed.store import manifest as manifests
from bigembed.store import superseded
from bigembed.store.manifest import Manifest, digest_of

if TYPE_CHECKING:
    from bigembed.stages import Run, Stage

BESIDE = ("ids",)
"""Stages of a job that belong to its rows, whatever the method is."""


def key_of(stage: Stage, inputs: Mapping[str, str]) -> str:
    """What a stage is addressed by: its name, its parameters, and the digests of its inputs."""
    return digest_of({"stage": stage.name, "parameters": stage.parameters, "inputs": inputs})


def outdated(stages: Sequence[Stage], run: Run) -> dict[str, str]:
    """The stages that will be computed, as far as can be known before, each with how what is there of it was made.

    What follows a stage that is computed counts as computed: only its content says whether it has to be.
    """
    why: dict[str, str] = {}
    digests: dict[str, str] = {}
    for stage in stages:
        if changed := [why[name] for name in stage.inputs if name in why]:
            why[stage.name] = changed[0]
            continue
        found = there(run, stage.name)
        inputs = {name: digests.get(name) or run.manifest(name).digest for name in stage.inputs}
        if found is not None and found.key == key_of(stage, inputs) and manifests.complete(run.root, found):
            digests[stage.name] = found.digest
        else:
            why[stage.name] = _difference(stage, found)
    return why


def there(run: Run, stage: str) -> Manifest | None:
    """What is published of a stage, or was before it was superseded."""
    return manifests.find(run.root, stage) or superseded.find(run.root, stage)


def supersede(stages: Sequence[Stage], run: Run, whole: bool) -> dict[str, str]:
    """Unpublish what will not be used again, the last first, and publish again what will; all that is superseded then.

    What was made from it goes with it. ``whole``: these are all stages of the run, so that others are what another
    method, or another way to solve, has left.
    """
    listed = [stage.name for stage in stages]
    why = outdated(stages, run)
    why |= _followers(run, listed, why, whole)
    for name in reversed(why):
        found = there(run, name)
        if found is not None:
            superseded.supersede(run.root, found, why[name])
            run.forget(name)
    for name in listed:
        if name not in why and (found := superseded.find(run.root, name)) is not None:
            superseded.restore(run.root, name, found.key)
    return superseded.superseded(run.root)


def _followers(run: Run, listed: Sequence[str], why: dict[str, str], whole: bool) -> dict[str, str]:
    """Of the published stages that are not listed those made from what goes; all of them where the list is whole."""
    rest = {name: run.manifest(name).inputs for name in run.published() if name not in (*listed, *BESIDE)}
    if whole:
        return dict.fromkeys(rest, "made by another method or solver")
    out: dict[str, str] = {}
    while new := [name for name, inputs in rest.items() if name not in out and {*why, *out} & {*inputs}]:
        out |= {name: next((why | out)[one] for one in rest[name] if one in why | out) for name in new}
    return out


def _difference(stage: Stage, found: Manifest | None) -> str:
    """How what is there was made, against how the stage would make it."""
    if found is None:
        return "made from what is gone"
    before, now = found.parameters, manifests.jsonable(stage.parameters)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return "made from other inputs, or from files that are missing"
    if "source" in names:
        return "made from other rows"
    return "made with " + ", ".join(f"{name}={before.get(name)!r}, now {now.get(name)!r}" for name in names)
