"""Whether a growing embedding on disk is what was published: records, accounts, coordinates, runs and models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bigembed.errors import BigembedError, DamagedError
from bigembed.jobs.growth.account import damaged
from bigembed.jobs.growth.versions import CURRENT, KIND, Growth, Version, model_digest, open_growth
from bigembed.jobs.integrity import verify_stages
from bigembed.store.storage.paths import AnyPath


def is_growth(path: AnyPath) -> bool:
    """Whether versions of a growing embedding lie here."""
    return (path / "versions").is_dir() and ((path / CURRENT).exists() or bool(Growth(path).published()))


def verify_growth(path: AnyPath) -> dict[str, Any]:
    """What is damaged in any version that is listed, and what they hold, the current one first. Reads every byte."""
    problems: list[str] = []
    found: dict[str, Any] = {"stages": [], "unlisted": [], "certificate": {}}
    with _noted(problems):
        open_growth(path)
    growth, names = Growth(path), []
    with _noted(problems):
        names = growth.history
    for name in names:
        with _noted(problems):
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
    """What is damaged of a version. Reads every byte; what else there is to say is added to ``found``."""
    problems = [f"{version.root.name}: {problem}" for problem in _of_version(version)]
    _add_parts(found or {"stages": [], "unlisted": [], "certificate": {}}, version, problems)
    return problems


def _of_version(version: Version) -> list[str]:
    """What is wrong with the coordinates and with the rows that are known."""
    problems: list[str] = []
    with _noted(problems):
        ranges = version.ranges
        problems += [
            f"coordinates of rows {part.start}:{part.stop}: {why}" for part, why in damaged(version.array, ranges)
        ]
        if {part.model for part in ranges} != {model_digest(version.model)}:
            problems.append("model: another than the one that made the coordinates")
        if version.ledger.n < ranges[-1].stop:
            problems.append(f"rows.json: knows {version.ledger.n} rows, and {ranges[-1].stop} have coordinates")
    with _noted(problems):
        _ = version.ledger
    return list(dict.fromkeys(problems))


def _add_parts(found: dict[str, Any], version: Version, problems: list[str]) -> None:
    """Run and model of a version."""
    for part in (version.run, version.model):
        inside = f"{version.root.name}/{part.name}"
        with _noted(problems):
            one = verify_stages(part)
            problems += [f"{inside}: {problem}" for problem in one["problems"]]
            found["stages"] += [{**stage, "name": f"{inside}/{stage['name']}"} for stage in one["stages"]]
            found["unlisted"] += [f"{inside}: {name}" for name in one["unlisted"]]
            found["certificate"] = found["certificate"] or one["certificate"]
            if not one["finished"]:
                problems.append(f"{inside}: did not end")


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """What cannot be read is a problem."""
    try:
        yield
    except DamagedError as error:
        problems.append(str(error))
    except BigembedError as error:  # (nothing of the kind is there any more)
        problems.append(f"{type(error).__name__}: {error}")
