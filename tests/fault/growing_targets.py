"""Growing stores as targets of :mod:`tests.fault.corruption`."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import bigembed as be
from bigembed.errors import DamagedError
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.job import JobSpec
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import verify
from bigembed.rows.appending import append_rows
from bigembed.store.arrays import write_array

MORE = {"pca": {}, "diffusion_map": {"n_neighbors": 8}, "landmark_mds": {"n_landmarks": 20}}
ROWS = (np.random.default_rng(0).normal(size=(90, 4)) * [9, 5, 2, 1]).astype("f4")
STEPS = (60, 75, 80)
"""Rows that are there at each step of the growth; what is appended last has no coordinates yet."""


def job_of(home: Path, method: str = "pca", align: bool = False) -> JobSpec:
    """The job of a growing store. Not aligned, it makes the same map whatever was there before."""
    tables = {
        "input": {"path": "x.zarr"},
        "method": {"name": method, "n_components": 2, **MORE[method]},
        "output": {"path": "out.zarr", "align": align},
    }
    return parse_job(tables, home / "job.toml")


def build(home: Path, method: str = "pca", steps: tuple[int, ...] = STEPS, align: bool = False) -> None:
    """A store whose rows were fitted and placed, and have grown since."""
    write_array(home / "x.zarr", ROWS[: steps[0]], chunk_rows=16)
    refresh(job_of(home, method, align))
    for first, last in pairwise(steps):
        append_rows(home / "x.zarr", ROWS[first:last], first=first)
        extend(job_of(home, method, align))
    append_rows(home / "x.zarr", ROWS[steps[-1] :], first=steps[-1])


def files(home: Path) -> list[Path]:
    """Whatever is stored of the growth, but logs, status and holds."""
    found = sorted(path for path in (home / "out.zarr").rglob("*") if path.is_file())
    return [path for path in found if path.name not in ("log.jsonl", "status.json") and "hold" not in path.parts]


def coordinates(home: Path) -> np.ndarray:
    """As a reader gets them."""
    version = open_growth(home / "out.zarr").current
    return np.zeros((0, 2)) if version is None else np.asarray(version.coordinates)


def transformed(home: Path) -> np.ndarray:
    """New rows by the current model."""
    version = open_growth(home / "out.zarr").current
    return np.zeros((0, 2)) if version is None else np.asarray(be.load(version.model).transform(ROWS))


def growing(methods: str) -> Iterator[Any]:
    """Stores that have grown; mended by a refresh, and by an extension where that does not refuse."""
    for method in ("pca",) if methods == "some" else tuple(MORE):
        yield from growing_store(method)
    yield from growing_store("pca", align=True)


def growing_store(method: str, align: bool = False) -> Iterator[Any]:
    """Of this method. A map that stays put is laid over the one before, or made from nothing where that is damaged."""
    from tests.fault.corruption import Target

    def make(folder: Path) -> None:
        for name in ("x.zarr", "x.zarr.growing", "out.zarr"):
            shutil.rmtree(folder / name, ignore_errors=True)
        build(folder, method, align=align)
        for name, (work, aligned) in {
            "placed": (extend, align),
            "fitted": (refresh, align),
            "anew": (refresh, False),
        }.items():
            other = folder / "other"
            other.mkdir()
            build(other, method, align=align)
            work(job_of(other, method, aligned))
            (folder / f"{name}.txt").write_text(_digest(coordinates(other)))
            shutil.rmtree(other)

    def known(folder: Path) -> list[str]:
        """How many rows have coordinates must not matter to who reads an older account."""
        return [_digest(coordinates(folder)[: STEPS[1]])]

    def verified(folder: Path) -> Any:
        found = verify(folder / "out.zarr")
        if found["problems"] or not found["finished"]:
            raise DamagedError("; ".join(found["problems"]) or "unfinished")
        return found["kind"]

    def is_one_of(folder: Path, *names: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _digest(coordinates(folder)) in [(folder / f"{name}.txt").read_text() for name in names]

    def extended(folder: Path) -> None:
        """The job that places new rows: what it leaves is right, or it refuses, and a refresh gets past."""
        extend(job_of(folder, method, align))
        assert is_one_of(folder, "placed"), "an extension that does not refuse places the rows"

    refreshed = {
        "refresh": lambda folder: refresh(job_of(folder, method, align)),
        "refresh --fresh": lambda folder: refresh(job_of(folder, method, align), fresh=True),
    }
    readers = {
        "coordinates": known,
        "transform": lambda folder: _digest(transformed(folder)),
        "verify": verified,
        "audit": lambda folder: audit(job_of(folder, method, align))["due"],
    }

    def stored(folder: Path) -> list[Path]:
        return [path.relative_to(folder) for path in files(folder)]

    def older(folder: Path) -> None:
        build(folder, method, STEPS[:2], align)

    said = f"growing {method}{' that stays put' if align else ''}"
    whole = {"coordinates": lambda folder: _digest(coordinates(folder)), "verify": verified}
    if align:
        whole["coordinates"] = lambda folder: str(is_one_of(folder, "fitted", "anew"))
    yield Target(f"{said}, refreshed", make, stored, readers, refreshed, whole, older)
    either = {"coordinates": lambda folder: is_one_of(folder, "placed", "fitted", *(("anew",) if align else ()))}
    yield Target(f"{said}, extended", make, stored, readers, {"extend": extended, **refreshed}, either, older)


def _digest(array: Any) -> str:
    return sha256(repr((array.shape, str(array.dtype))).encode() + array.tobytes()).hexdigest()
