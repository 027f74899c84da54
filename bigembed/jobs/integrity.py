"""The check of one run or saved model against its manifests: digests, completeness, certificate."""

from __future__ import annotations

from typing import Any

from bigembed.errors import DamagedError
from bigembed.estimator.model_files import check_stages, read_description, steps_in
from bigembed.jobs.copied import older_source
from bigembed.jobs.record import kind_of, read_record
from bigembed.jobs.watching.status import read_status
from bigembed.methods import method_or_step
from bigembed.runs import Run
from bigembed.store.published import manifest as manifests
from bigembed.store.published import roots
from bigembed.store.published.superseded import superseded, superseded_model
from bigembed.store.storage.paths import AnyPath


def verify_stages(path: AnyPath, deep: bool = True) -> dict[str, Any]:
    """What :func:`bigembed.jobs.verify.verify` returns, for a run or a saved model that exists."""
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
    problems += [f"{name}: {why}" for name, one in there.items() for why in manifests.elsewhere(path, one)]
    record: dict[str, Any] = {}
    digest = True
    try:
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
        "older": older_source(record) if kind == "run" else "",
        "certificate": record.get("certificate", {}),
    }
