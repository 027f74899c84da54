"""What identifies a job, the record of a run, ``job.json``, and the check of a run or model against its manifests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bigembed import __version__, errors
from bigembed.errors import BigembedError, DamagedError, DamageWarning, InputError, MissingPathError
from bigembed.estimator import run_of, steps_before
from bigembed.estimator.model_files import check_stages, read_description, steps_in
from bigembed.jobs.inputs import Input, older_source
from bigembed.jobs.job import CHOICE, GRAPH, STEP_KEYS, JobSpec
from bigembed.jobs.watching.status import BAD_INPUT, known_status, read_status
from bigembed.maps import method_or_step
from bigembed.rows.formats.copying import vector_source
from bigembed.stages import Run
from bigembed.store import AnyPath, PathLike, absolute, at, files, manifests, published
from bigembed.store.superseded import restorable, superseded, superseded_model

# -------------------------------------------------------------------------------------------------------- identity
# Whether it is the same job: digests of what its results depend on, and of nothing else, such as where it runs.


def definition(job: JobSpec, rows: Input) -> dict[str, Any]:
    """Return the tables of a job, without where it runs, as its record keeps them."""
    graph = GRAPH if job.input.graph else ()
    chosen = {key: getattr(job.input, key) for key in (*CHOICE, *graph) if getattr(job.input, key)}
    source = {"path": str(job.input_path), "dataset": job.input.dataset, **job.input.parameters, **chosen, **rows.named}
    steps = {"steps": steps_of(job)} if job.steps else {}
    condensed = {} if job.condense is None else {"condense": job.condense.model_dump()}
    output = job.output.model_dump(exclude={"scratch", "view", "align", "keep"})
    output |= {"view": job.output.view} if job.output.view else {}  # (records of earlier versions do not have it)
    return {"input": source, **condensed, **steps, "method": method_of(job), **clusters_of(job), "output": output}


def clusters_of(job: JobSpec) -> dict[str, Any]:
    """Return the table of the clusters of a job, if it has one."""
    return {} if job.clusters is None else {"clusters": job.clusters.model_dump(exclude_none=True)}


def steps_of(job: JobSpec) -> list[dict[str, Any]]:
    """Return the steps of a job and their parameters, under the keys of the job file."""
    return [
        {"name": step.name, **{STEP_KEYS.get((step.name, key), key): value for key, value in step.parameters.items()}}
        for step in job.steps
    ]


def method_of(job: JobSpec) -> dict[str, Any]:
    """Return the method of a job and its parameters, under the keys of the job file."""
    return {"name": job.method.name, **job.method.parameters}


def key_of_run(job: JobSpec, rows: Input) -> str:
    """Of a run: its definition, and the rows and their ids as they are."""
    known = {"job": definition(job, rows), "input": rows.source.fingerprint(), "version": __version__}
    if rows.ids is not None and published(rows.ids):
        known["ids"] = vector_source(rows.ids).fingerprint()
    return files.digest_of(known)


def key_of_growth(job: JobSpec) -> str:
    """Of a version of a growing embedding: all but its rows, which grow, and may be moved with it."""
    steps = {"steps": steps_of(job)} if job.steps else {}
    return files.digest_of({**steps, "method": method_of(job), **clusters_of(job), "version": __version__})


def key_of_extension(fitted: Any, rows: Input, results: PathLike | None) -> str:
    """Of an extension: the model, the rows and the vectors, as they are, and its table."""
    models = [run_of(one).fingerprint() for one in (fitted, *steps_before(fitted))]
    known = {
        "models": models,
        "input": rows.about or rows.rows.fingerprint(),
        "vectors": {name: rows.content_of(name) for name in rows.aligned},
        "table": None if results is None else absolute(results),
        "version": __version__,
    }
    return files.digest_of(known)


# ---------------------------------------------------------------------------------------------------------- record
# The record of a run, ``job.json``: what was asked, what it planned, what was measured, what came out.

RECORD, COORDINATES = "job.json", "coordinates"
ELSEWHERE = f"{RECORD} is not of the job that made the coordinates"


def known_record(root: AnyPath, quiet: bool = True) -> dict[str, Any]:
    """``job.json``, for a job that writes it anew: of a damaged one only the outputs that the status claims."""
    try:
        return read_record(root)
    except DamagedError as error:
        if not quiet:
            warnings.warn(f"{error}; it is made anew", DamageWarning, stacklevel=2)
        return {"claimed": known_status(root).get("claimed") or [], "finished": False}


def read_record(root: AnyPath) -> dict[str, Any]:
    """``job.json`` of a run, or nothing; only the outputs it claims if the stages there are not those it names."""
    record = _written(root)
    keys = record.get("keys", {})
    if record and "coordinates" not in record:  # (written by an earlier version)
        record["coordinates"] = keys.get(COORDINATES)
    known = {name: key for name, key in {COORDINATES: record.get("coordinates"), **keys}.items() if key is not None}
    if any(found not in (None, known[name]) for name, found in ((name, key_there(root, name)) for name in known)):
        return {"claimed": record["claimed"], "finished": False}
    return record | ({"finished": False} if record and superseded(root) else {})


def _written(root: AnyPath) -> dict[str, Any]:
    """``job.json`` as it was written, or nothing."""
    path = root / RECORD
    try:
        record = files.read_sealed(path)
    except MissingPathError:
        return {}
    if not (isinstance(record.get("job"), dict) and isinstance(record.get("claimed"), list)):
        raise DamagedError(f"{path}: damaged: not the record of a job")
    return record


def was_moved(root: AnyPath) -> bool:
    """Return whether the job that wrote a run gave it another path; a link to the run is none."""
    there = _written(root).get("job", {}).get("output", {}).get("path")
    return there is not None and not _same(at(there), root)


def _same(one: AnyPath, other: AnyPath) -> bool:
    return one == other or (isinstance(one, Path) and isinstance(other, Path) and one.resolve() == other.resolve())


def move_claims(root: AnyPath) -> None:
    """Let a run that was moved with its folder, in which nothing else lies, claim what it has written there."""
    record = known_record(root)
    if (there := record.get("job", {}).get("output", {}).get("path")) is None or _same(at(there), root):
        return
    then, now = f"{at(there).parent}/", f"{root.parent}/"
    moved = [now + one.removeprefix(then) if one.startswith(then) else one for one in record["claimed"]]
    files.write_json(root / RECORD, files.sealed({**record, "claimed": moved}))


def require_recorded(root: AnyPath, stage: str) -> None:
    """:class:`DamagedError` where a published stage is not the one that the record of the run names: of another run,
    or of one that did not end."""
    named = _written(root).get("keys", {}).get(stage)
    if named is not None and key_there(root, stage) not in (None, named):
        raise DamagedError(
            f"{root}: stage {stage!r} is not the one that {RECORD} names: of another run, or of one that did not end. "
            "Run the job again to its end"
        )


def made_here(root: AnyPath, record: dict[str, Any]) -> bool:
    """Return whether a record is of the job that made the present coordinates, and not of an older one; True for an
    empty record."""
    return not record or key_there(root, COORDINATES) in (None, record.get("coordinates"))


def refusal_in(status: dict[str, Any]) -> str:
    """Return why the last start of a job was refused, from what ``status.json`` says; the empty text if it was not.

    The kind of the error decides, not the exit status: a place that may not be written, or a store that refuses, ends
    with the same status, but there the same job goes on once that is mended.
    """
    error = status.get("error") or {}
    kind = getattr(errors, str(error.get("kind")), None)
    return str(error.get("message", "")) if isinstance(kind, type) and issubclass(kind, BAD_INPUT) else ""


def after_refusal(root: AnyPath, why: str) -> str:
    """Return what to do after a refused start; to run the job before again only if its map need not be made anew."""
    before = ", or run the one before again: its stages are there" if restorable(root, COORDINATES) else ""
    return f"its last start was refused: {why}. Correct the job and run it again{before}"


def way_on(root: AnyPath) -> str:
    """Return what to do about a run without coordinates to read."""
    refused = refusal_in(known_status(root))
    return after_refusal(root, refused) if refused else "run the job again to its end"


def key_there(root: AnyPath, stage: str) -> str | None:
    """Return the digest of what a published stage was made from; None where its manifest is gone, or damaged, which
    is reported where the stage is read."""
    with suppress(DamagedError):
        found = manifests.find(root, stage)
        return None if found is None else found.address
    return None


OTHERS = {
    "growth": "a growing store, of many runs. Give that of a version, versions/NAME/run.zarr in it: current.json "
    "has the name",
    "sweep": "a sweep, of many runs. Give that of a point, a folder of stages/ in it: table.csv has their paths",
}
"""What lies at a path that is no run."""


def kind_of(path: AnyPath) -> str:
    """``"run"`` or ``"model"``, as the path itself says."""
    if not manifests.check_group(path, "run") and manifests.holds_run(path, "run"):
        raise DamagedError(f"{path / 'zarr.json'}: damaged; run the job again to make it anew")
    kind = manifests.attributes_of(path).get("bigembed")
    if kind not in ("run", "model"):
        found = OTHERS.get(
            str(kind), "neither a run nor a model of bigembed. Give the path that [output] of a job names"
        )
        raise InputError(f"{path}: {found}")
    return str(kind)


# ------------------------------------------------------------------------------------------------------- integrity
# The check of one run or saved model against its manifests: digests, completeness, certificate.


@contextmanager
def damage_listed(problems: list[str], *others: type[BigembedError]) -> Iterator[None]:
    """Add what is damaged to the problems, and ``others``: errors that say that nothing of the kind is there."""
    try:
        yield
    except DamagedError as error:
        problems.append(str(error))
    except others as error:
        problems.append(f"{type(error).__name__}: {error}")


def verify_stages(path: AnyPath, deep: bool = True) -> dict[str, Any]:
    """Return what :func:`bigembed.jobs.verify.verify` returns, for a run or a saved model that exists."""
    kind = "run" if manifests.holds_run(path, "run") and not manifests.check_group(path, "run") else kind_of(path)
    run = Run(path, kind=kind)
    stages, problems, unlisted = [], [], []
    if not manifests.check_group(path, kind):
        problems.append(f"{path / 'zarr.json'}: damaged")
    names = run.published()
    there = {}
    for name in names:
        with damage_listed(problems):
            there[name] = found = run.manifest(name)
            problems += manifests.damage(path, found, again=True) if deep else manifests.quick_damage(path, found)
            unlisted += manifests.unlisted(path, found)
            size = sum(size for size, _ in found.there.values())
            stages.append({"name": name, "files": len(found.there), "bytes": size, "dropped": [*found.dropped]})
    problems += [f"{name}: {why}" for name, one in there.items() for why in manifests.changed_inputs(path, one)]
    record: dict[str, Any] = {}
    digest = True
    with damage_listed(problems):
        if kind == "run":
            record = read_record(path)
        else:
            record, digest = read_description(path, method_or_step)
            check_stages(run)
            for place in steps_in(path, record):
                inside = verify_stages(place, deep)
                problems += inside["problems"]
                unlisted += inside["unlisted"]
                stages += [{**one, "name": f"{place.name}/{one['name']}"} for one in inside["stages"]]
    refused = ""
    with damage_listed(problems):
        refused = refusal_in(read_status(path))
    old = superseded(path)
    missing = [name for name in record.get("keys", {}) if name not in names and name not in old]
    problems += [f"{name}: published before, and gone now" for name in missing]
    if kind == "model" and (why := superseded_model(path)) is not None:
        old = {"model": why}
    finished = (
        bool(names)
        and not old
        and (kind == "model" or bool(record.get("finished", not {"coordinates", "cells"}.isdisjoint(names))))
    )
    return {
        "path": str(path),
        "kind": kind,
        "deep": deep,
        "stages": stages,
        "problems": problems,
        "unlisted": unlisted,
        "digest": digest,
        "finished": finished,
        "refused": "" if finished else refused,
        "superseded": old,
        "older": older_source(record) if kind == "run" else "",
        "certificate": record.get("certificate", {}),
    }
