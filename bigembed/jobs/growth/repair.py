"""Damage of a growing embedding, found by a job that holds it: named, and made again where rows and model allow it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, DamageWarning
from bigembed.jobs.growth import CURRENT, KIND, Growth, Version, account, model_digest, open_growth
from bigembed.jobs.growth.account import Ledger, Range, Snapshot, damaged, first_rows, new_ledger, with_new_rows
from bigembed.jobs.growth.frames import places_of, require_mask
from bigembed.jobs.job import JobSpec
from bigembed.jobs.record import damage_listed, verify_stages
from bigembed.maps import load
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import write_dask
from bigembed.rows.growing import append_source
from bigembed.rows.input import row_source
from bigembed.runtime.parameters import Functions
from bigembed.steps.each_column import read_all
from bigembed.store import AnyPath, retire
from bigembed.store.files import read_json, write_json

# ----------------------------------------------------------------------------------------------------------- check
# Whether a growing embedding on disk is what was published: records, accounts, coordinates, runs and models.


def is_growth(path: AnyPath) -> bool:
    """Return whether versions of a growing embedding lie here."""
    return (path / "versions").is_dir() and ((path / CURRENT).exists() or bool(Growth(path).published()))


def verify_growth(path: AnyPath) -> dict[str, Any]:
    """Return what is damaged in any version that is listed, and what they hold, the current one first. Reads every
    byte."""
    problems: list[str] = []
    found: dict[str, Any] = {"stages": [], "unlisted": [], "certificate": {}}
    with damage_listed(problems, BigembedError):
        open_growth(path)
    growth, names = Growth(path), []
    with damage_listed(problems, BigembedError):
        names = growth.history
    for name in names:
        with damage_listed(problems, BigembedError):
            problems += version_problems(growth.version(name), found)
    return found | {
        "path": str(path),
        "kind": KIND,
        "deep": True,
        "digest": True,
        "problems": problems,
        "finished": bool(names),
        "superseded": {},
    }


def version_problems(version: Version, found: dict[str, Any] | None = None) -> list[str]:
    """Return what is damaged of a version. Reads every byte; what else there is to say is added to ``found``."""
    own: list[str] = []
    with damage_listed(own, BigembedError):
        ranges = version.ranges
        own += [f"coordinates of rows {part.start}:{part.stop}: {why}" for part, why in damaged(version.array, ranges)]
        if {part.model for part in ranges} != {model_digest(version.model)}:
            own.append("model: another than the one that made the coordinates")
        if version.ledger.n < ranges[-1].stop:
            own.append(f"rows.json: knows {version.ledger.n} rows, and {ranges[-1].stop} have coordinates")
    with damage_listed(own, BigembedError):
        _ = version.ledger
    with damage_listed(own, BigembedError):
        require_mask(version)
    problems = [f"{version.root.name}: {problem}" for problem in dict.fromkeys(own)]
    found = found or {"stages": [], "unlisted": [], "certificate": {}}
    for part in (version.run, version.model):
        inside = f"{version.root.name}/{part.name}"
        with damage_listed(problems, BigembedError):
            one = verify_stages(part)
            problems += [f"{inside}: {problem}" for problem in one["problems"]]
            found["stages"] += [{**stage, "name": f"{inside}/{stage['name']}"} for stage in one["stages"]]
            found["unlisted"] += [f"{inside}: {name}" for name in one["unlisted"]]
            found["certificate"] = found["certificate"] or one["certificate"]
            if not one["finished"]:
                problems.append(f"{inside}: did not end")
    return problems


# ---------------------------------------------------------------------------------------------------------- repair


def warn(found: object) -> None:
    """Name what is damaged."""
    warnings.warn(f"{found}; it is made anew", DamageWarning, stacklevel=3)


@contextmanager
def with_remedy(job: JobSpec) -> Iterator[None]:
    """What is damaged and cannot be made again alone is made again by a refresh."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error}. It cannot be made again alone; bigembed refresh {job.file} fits the rows anew"
        ) from error


def restore(growth: Growth) -> None:
    """Where ``current.json`` is damaged, gone or older, say anew that the newest version published is the current one.

    Versions of earlier releases do not say that they were published: of them the newest with coordinates.
    """
    try:
        _ = growth.history
        return
    except DamagedError as error:
        warn(error)
    if not (found := growth.published() or growth.placed()):
        raise DamagedError(f"{growth.root / CURRENT}: is damaged, and no version with coordinates is there")
    growth.point(found[0], [version.root.name for version in found[1:]])


def ledger_of(version: Version, there: Snapshot) -> Ledger:
    """Return the ledger; where it is damaged, made again of the rows, which must be those of the account."""
    try:
        return version.ledger
    except DamagedError as error:
        warn(error)
        if there.shape[0] < version.covered:
            raise
        fitted = with_new_rows(new_ledger(there), first_rows(there, version.fitted))
        placed = version.ranges[1:]
        if fitted.content != version.content or any(
            account.span_digest(there.path, part.start, part.stop) != part.rows for part in placed
        ):
            raise DamagedError(f"{error}; and the rows that are there are not those of the coordinates") from error
        return with_new_rows(fitted, first_rows(there, version.covered))


def repair(version: Version, functions: Functions = ()) -> None:
    """Drop coordinates that are not those published, from the first such range on, so that they are placed again.

    Those of the rows fitted are made again from the model. Reads all coordinates.
    """
    if version.published not in ("", model_digest(version.model)):
        what = "another model than was published" if (version.model / "model.json").is_file() else "is gone"
        raise DamagedError(f"{version.model}: {what}")
    try:
        ranges = version.ranges
    except DamagedError as error:
        warn(error)
        write_fitted(version, functions)
        return
    wrong = damaged(version.array, ranges)
    for part, why in wrong:
        warn(f"{version.array}: coordinates of rows {part.start}:{part.stop} are damaged ({why})")
    if wrong and not wrong[0][0].start:
        write_fitted(version, functions, ranges[0].coordinates)
    elif wrong:
        _cut(version, [part for part in ranges if part.start < wrong[0][0].start])


def write_fitted(version: Version, functions: Functions = (), published: str = "") -> None:
    """The coordinates of the rows fitted, by the model, as the whole array. ``published``: the digest they had.

    Rows that a step left out have NaN.
    """
    fitted, kept = load(version.model, functions), places_of(version)
    retire(version.array)
    embedding = fitted.embedding_
    if kept is not None:
        rows, _ = row_source(embedding, version.root / "placing")
        embedding = read_all(kept.restored(rows), in_memory=False)
    write_dask(embedding, version.array)
    found = account.span_digest(str(version.array), 0, version.fitted)
    if published and found != published:
        retire(version.array)
        raise DamagedError(f"{version.model}: gives other coordinates than were published")
    left_out = 0 if kept is None else version.fitted - version.deleted - kept.rows
    model = model_digest(version.model)
    everything = Range(0, version.fitted, "fitted", version.content, model, found, left_out, version.ids)
    nothing = RowSource((0, *fitted.embedding_.shape[1:]), np.dtype(fitted.embedding_.dtype))
    append_source(version.array, nothing, account.attributes([everything]))


def _cut(version: Version, ranges: list[Range]) -> None:
    """Only these ranges are there, in one step."""
    file = version.array / "zarr.json"
    metadata = read_json(file)
    metadata["shape"][0] = ranges[-1].stop
    metadata["attributes"] |= account.attributes(ranges)
    write_json(file, metadata)
