"""Whether a run or a model on disk is what was published: digests, completeness, and its certificate."""

from __future__ import annotations

from typing import Any

from bigembed.errors import DamagedError, InputError, MissingPathError
from bigembed.estimator.model_files import check_stages, read_description
from bigembed.jobs.growth.check import is_growth, verify_growth
from bigembed.jobs.run import read_record
from bigembed.jobs.status import read_status
from bigembed.methods import method
from bigembed.stages import Run
from bigembed.store import manifest as manifests
from bigembed.store import roots
from bigembed.store.paths import AnyPath, PathLike, at
from bigembed.store.superseded import superseded, superseded_model


def verify(given: PathLike, deep: bool = True) -> dict[str, Any]:
    """Read every stored byte of a run, a saved model or a growing embedding, and compare it with the manifests.

    ``deep=False``: names, sizes and metadata only, which takes seconds where the bytes are terabytes.

    Returns ``problems`` (damage: absent or changed files, stages made from other stages than those that are there),
    ``unlisted`` (files that no manifest knows and nobody reads), ``digest`` (whether a model carries one over its
    metadata; those saved by earlier versions do not), ``finished``, what is ``superseded`` (made with other
    parameters or of other rows, which is no damage), the stages with their bytes, and the certificate.
    """
    path = at(given).absolute()
    if not path.exists():
        raise MissingPathError(f"{path}: no such run")
    if is_growth(path):
        return verify_growth(path)
    kind = "run" if roots.ours(path, "run") and not roots.sound_group(path, "run") else kind_of(path)
    run = Run(path, kind=kind)
    stages, problems, unlisted = [], [], []
    if not roots.sound_group(path, kind):
        problems.append(f"{path / 'zarr.json'}: damaged")
    names = run.published()
    there = {}
    for name in names:
        try:
            there[name] = found = run.manifest(name)
        except DamagedError as error:
            problems.append(str(error))
            continue
        problems += manifests.damage(path, found, again=True) if deep else manifests.glance(path, found)
        unlisted += manifests.unlisted(path, found)
        stages.append({"name": name, "files": len(found.files), "bytes": sum(size for size, _ in found.files.values())})
    problems += [
        f"{name}: was made from another {source!r} than the one that is there"
        for name, found in there.items()
        for source, digest in found.inputs.items()
        if source in there and kind == "run" and there[source].digest != digest
    ]
    record: dict[str, Any] = {}
    digest = True
    try:
        if kind == "run":
            record = read_record(path)
        else:
            record, digest = read_description(path, method)
            check_stages(run)
    except DamagedError as error:
        problems.append(str(error))
    try:
        read_status(path)
    except DamagedError as error:
        problems.append(str(error))
    old = superseded(path)
    missing = [name for name in record.get("keys", {}) if name not in names and name not in old]
    problems += [f"{name}: published before, and gone now" for name in missing]
    if kind == "model" and (why := superseded_model(path)) is not None:
        old = {"model": why}
    finished = bool(names) and not old and (kind == "model" or bool(record.get("finished", "coordinates" in names)))
    return {
        "path": str(path),
        "kind": kind,
        "deep": deep,
        "stages": stages,
        "problems": problems,
        "unlisted": unlisted,
        "digest": digest,
        "finished": finished,
        "superseded": old,
        "certificate": record.get("certificate", {}),
    }


def kind_of(path: AnyPath) -> str:
    """``"run"`` or ``"model"``, as the path itself says."""
    if not roots.sound_group(path, "run") and roots.ours(path, "run"):
        raise DamagedError(f"{path / 'zarr.json'}: damaged; run the job again to make it anew")
    kind = roots.attributes_of(path).get("bigembed")
    if kind not in ("run", "model"):
        raise InputError(f"{path}: neither a run nor a model of bigembed. Give the path that [output] of a job names")
    return str(kind)
