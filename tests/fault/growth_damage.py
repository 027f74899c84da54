"""Damages every file of a growing store in turn and calls every command that reads it.

``python -m tests.fault.growth_damage FOLDER [EVERY] [METHOD]`` prints the counts. A damage is a flipped bit, a changed
digit, a truncated, emptied or deleted file, one swapped with a sibling, or an older version. After each one the
coordinates, the model, ``verify``, ``audit``, ``extend`` and ``refresh`` are called. Wanted: the right coordinates or
an error of ours, at every call; and the right ones at last. An older account with its whole coordinates is what readers
saw before, and right.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

import bigembed as be
from bigembed.errors import BigembedError
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.versions import open_growth
from bigembed.jobs.job import JobSpec
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import verify
from bigembed.rows.growing import append_rows
from bigembed.store.arrays import write_array

MORE = {"pca": {}, "diffusion_map": {"n_neighbors": 8}, "landmark_mds": {"n_landmarks": 20}}
ROWS = (np.random.default_rng(0).normal(size=(90, 4)) * [9, 5, 2, 1]).astype("f4")
STEPS = (60, 75, 80)
"""Rows that are there at each step of the growth; what is appended last has no coordinates yet."""


def job_of(home: Path, method: str = "pca") -> JobSpec:
    """The job of a growing store."""
    tables = {
        "input": {"path": "x.zarr"},
        "method": {"name": method, "n_components": 2, **MORE[method]},
        "output": {"path": "out.zarr"},
    }
    return parse_job(tables, home / "job.toml")


def build(home: Path, method: str = "pca", steps: tuple[int, ...] = STEPS) -> None:
    """A store whose rows were fitted and placed, and have grown since."""
    write_array(home / "x.zarr", ROWS[: steps[0]], chunk_rows=16)
    refresh(job_of(home, method))
    for first, last in pairwise(steps):
        append_rows(home / "x.zarr", ROWS[first:last], first=first)
        extend(job_of(home, method))
    append_rows(home / "x.zarr", ROWS[steps[-1] :], first=steps[-1])


def files(home: Path) -> list[Path]:
    """Whatever is stored of the growth, but logs, status and holds."""
    found = sorted(path for path in (home / "out.zarr").rglob("*") if path.is_file())
    return [path for path in found if path.name not in ("log.jsonl", "status.json") and "hold" not in path.parts]


def damages(file: Path, older: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """What can befall a file; ``older``: the file as it was before."""
    data = file.read_bytes()
    if data:
        for place in sorted({0, len(data) // 3, len(data) // 2, len(data) - 1}):
            bit = bytearray(data)
            bit[place] ^= 1 << (place % 8)
            yield f"bit {place}", lambda bit=bytes(bit): _write(file, bit)  # type: ignore[misc]
    if file.suffix == ".json":
        digits = [i for i, one in enumerate(data) if chr(one).isdigit()]
        for place in sorted({*digits[:: max(1, len(digits) // 8)]}):
            other = bytearray(data)
            other[place] = ord("9") - (other[place] - ord("0")) + (other[place] == ord("9") - other[place] + ord("0"))
            yield f"digit {place}", lambda other=bytes(other): _write(file, other)  # type: ignore[misc]
    yield "truncated", lambda: _write(file, data[: len(data) // 2])
    yield "emptied", lambda: _write(file, b"")
    yield "deleted", file.unlink
    siblings = [path for path in file.parent.iterdir() if path.is_file() and path != file]
    if siblings and siblings[0].read_bytes() != data:
        other_data = siblings[0].read_bytes()
        yield "swapped", lambda: (_write(file, other_data), _write(siblings[0], data))  # type: ignore[func-returns-value]
    if older.exists() and older.read_bytes() != data:
        yield "older", lambda: _write(file, older.read_bytes())


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def coordinates(home: Path) -> np.ndarray:
    """As a reader gets them."""
    version = open_growth(home / "out.zarr").current
    return np.zeros((0, 2)) if version is None else np.asarray(version.coordinates)


def transformed(home: Path) -> np.ndarray:
    """New rows by the current model."""
    version = open_growth(home / "out.zarr").current
    return np.zeros((0, 2)) if version is None else np.asarray(be.load(version.model).transform(ROWS))


class Outcomes:
    """What came of all damages."""

    def __init__(self, home: Path, method: str) -> None:
        self.base, self.work, self.old, self.method = home / "base", home / "work", home / "old", method
        for place in (self.base, self.work, self.old):
            shutil.rmtree(place, ignore_errors=True)
        self.base.mkdir(parents=True)
        self.old.mkdir()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            build(self.base, method)
            self._as_before()
            self.placed = self._after(extend)
            self.model = transformed(self.base)
            self.fitted = self._after(refresh)

    def _as_before(self) -> None:
        """The same growth a step earlier, under the same names: where files of an older version come from."""
        build(self.old, self.method, STEPS[:2])

    def _after(self, work: Callable[[JobSpec], object]) -> np.ndarray:
        self._reset()
        work(job_of(self.work, self.method))
        return coordinates(self.work)

    def _reset(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.base, self.work)

    def all(self, every: int) -> dict[str, int]:
        """Every EVERY-th damage of all files."""
        number = 0
        for original in files(self.base):
            name = original.relative_to(self.base)
            for what, _ in list(damages(original, self.old / name)):
                number += 1
                if number % every:
                    continue
                for reader in ("read", "extend", "refresh"):
                    self._reset()
                    act = dict(damages(self.work / name, self.old / name)).get(what)
                    if act is not None:
                        act()
                        self.counts["damages" if reader == "read" else f"then {reader}"] += 1
                        getattr(self, f"_{reader}")(f"{name}: {what}")
        return dict(self.counts)

    def _read(self, what: str) -> None:
        """Nothing but readers."""
        self._call(what, "coordinates", lambda: self._seen(what), lambda: self.placed[: STEPS[-1]])
        self._call(what, "transform", lambda: transformed(self.work), lambda: self.model)
        self._call(what, "verify", lambda: verify(self.work / "out.zarr"))
        self._call(what, "audit", lambda: audit(job_of(self.work, self.method)))

    def _extend(self, what: str) -> None:
        """The job that places new rows; what it leaves is right, or it refuses and a refresh gets past."""
        if self._call(what, "extend", lambda: extend(job_of(self.work, self.method))):
            self._call(what, "coordinates after extend", lambda: coordinates(self.work), lambda: self.placed, must=True)
        else:
            self._refresh(what)

    def _refresh(self, what: str) -> None:
        """A fit anew gets past anything, if not at once then with ``fresh``."""
        done = self._call(what, "refresh", lambda: refresh(job_of(self.work, self.method)))
        if not done:
            self._call(what, "refresh --fresh", lambda: refresh(job_of(self.work, self.method), fresh=True), must=True)
        self._call(what, "coordinates after refresh", lambda: coordinates(self.work), lambda: self.fitted, must=True)
        found = verify(self.work / "out.zarr")["problems"]
        if found:
            self.wrong.append(f"{what}: verify after refresh: {found[:2]}")

    def _seen(self, what: str) -> np.ndarray:
        """What a reader sees; of an older account its rows, and those that follow."""
        found = coordinates(self.work)
        older = what.endswith("older") and len(found) in STEPS
        return np.concatenate([found, self.placed[len(found) : STEPS[-1]]]) if older else found

    def _call(
        self,
        what: str,
        name: str,
        work: Callable[[], object],
        right: Callable[[], np.ndarray] | None = None,
        must: bool = False,
    ) -> bool:
        """Call; whether it came to its end. ``must``: a refusal is wrong."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = work()
        except BigembedError as error:
            self.counts[f"{name}: refused"] += 1
            if must:
                self.wrong.append(f"{what}: {name}: refused: {error}")
            return False
        except Exception:
            self.counts["traceback"] += 1
            self.wrong.append(f"{what}: {name}: traceback: {traceback.format_exc()[-1500:]}")
            return False
        if right is not None and not np.array_equal(np.asarray(found), right()):
            self.counts["silently wrong"] += 1
            self.wrong.append(f"{what}: {name}: silently wrong")
        else:
            self.counts[f"{name}: right"] += 1
        return True


def main(home: Path, every: int = 1, method: str = "pca") -> int:
    """All of it; 1 where something is wrong."""
    found = Outcomes(home, method)
    print(json.dumps(found.all(every), indent=1, sort_keys=True))
    print("\n".join(found.wrong))
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4]))
