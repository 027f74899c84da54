"""Growing stores as targets of :mod:`tests.fault.corruption`: ``TARGETS.append(growing)`` joins them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from bigembed.errors import DamagedError
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.verify import verify
from tests.fault.growth_damage import MORE, STEPS, build, coordinates, files, job_of, transformed


def growing(methods: str) -> Iterator[Any]:
    """Stores that have grown; mended by a refresh, and by an extension where that does not refuse."""
    for method in ("pca",) if methods == "some" else tuple(MORE):
        yield from growing_store(method)


def growing_store(method: str) -> Iterator[Any]:
    """Of this method."""
    from tests.fault.corruption import Target

    def make(folder: Path) -> None:
        for name in ("x.zarr", "x.zarr.growing", "out.zarr"):
            shutil.rmtree(folder / name, ignore_errors=True)
        build(folder, method)
        for name, work in {"placed": extend, "fitted": refresh}.items():
            other = folder / "other"
            other.mkdir()
            build(other, method)
            work(job_of(other, method))
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

    def one_of_two(folder: Path) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _digest(coordinates(folder)) in [(folder / f"{n}.txt").read_text() for n in ("placed", "fitted")]

    refreshed = {
        "refresh": lambda folder: refresh(job_of(folder, method)),
        "refresh --fresh": lambda folder: refresh(job_of(folder, method), fresh=True),
    }
    readers = {
        "coordinates": known,
        "transform": lambda folder: _digest(transformed(folder)),
        "verify": verified,
        "audit": lambda folder: audit(job_of(folder, method))["due"],
    }

    def stored(folder: Path) -> list[Path]:
        return [path.relative_to(folder) for path in files(folder)]

    def older(folder: Path) -> None:
        build(folder, method, STEPS[:2])

    whole = {"coordinates": lambda folder: _digest(coordinates(folder)), "verify": verified}
    yield Target(f"growing {method}, refreshed", make, stored, readers, refreshed, whole, older)
    mends = {"extend": lambda folder: extend(job_of(folder, method)), **refreshed}
    yield Target(f"growing {method}, extended", make, stored, readers, mends, {"coordinates": one_of_two}, older)


def _digest(array: Any) -> str:
    return sha256(repr((array.shape, str(array.dtype))).encode() + array.tobytes()).hexdigest()
