"""Jobs, growth, models and tables in any order, with other parameters, killed anywhere, called again: what must hold.

``python -m tests.fault.state_machine [EXAMPLES] [STEPS]`` tries so many sequences and prints how many steps and kills
there were. A kill is an exception that no handler knows, before one of the steps on the file system; from then on every
such step fails, so that nothing is tidied, and the holds that are left are given to a process that is gone.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import bigembed as be
from bigembed.errors import BigembedError, InputError, StaleError, StaleWarning
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.job import JobSpec
from bigembed.jobs.run import run_job
from bigembed.jobs.scene import export, table_of
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import verify
from bigembed.rows.appending import append_rows
from bigembed.store.arrays import read_array, write_array
from tests.fault.kill_points import before_step

FIRST, MOST = 40, 80
ROWS = (np.random.default_rng(0).normal(size=(MOST, 4)) * [9, 5, 2, 1]).astype("f4")
KILLS = st.one_of(st.none(), st.integers(0, 150))
COMPONENTS = st.integers(1, 3)
counted: Counter[str] = Counter()
Key = tuple[int, int]
"""Components, rows fitted."""


class Killed(BaseException):
    """No handler knows it."""


def job_of(home: Path, components: int, output: str, **outputs: Any) -> JobSpec:
    """A job of this folder."""
    tables = {
        "input": {"path": "points.zarr"},
        "method": {"name": "pca", "n_components": components},
        "output": {"path": output, **outputs},
    }
    return parse_job(tables, home / "job.toml")


@cache
def fresh(key: Key) -> tuple[bytes, bytes]:
    """What nothing but this key gives: the coordinates of the rows fitted, and what its model makes of all rows."""
    components, n = key
    home = Path(tempfile.mkdtemp())
    try:
        write_array(home / "points.zarr", ROWS[:n], chunk_rows=16)
        run_job(job_of(home, components, "run.zarr", model="model.zarr"))
        coordinates = table_of(home / "run.zarr").coordinates
        model = be.load(home / "model.zarr")
        return coordinates.read(0, n).tobytes(), np.asarray(model.transform(ROWS)).tobytes()
    finally:
        shutil.rmtree(home)


def placed(key: Key, covered: int) -> bytes:
    """Coordinates of a growing store: of the rows fitted those of the fit, of the others those of its model."""
    own, every = fresh(key)
    return own + every[len(own) : len(own) // key[1] * covered]


class Machine(RuleBasedStateMachine):
    """What is known: how many rows there are, and of which keys each output may be."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.n = 0
        self.run_keys: set[Key] = set()
        self.growth_keys: set[Key] = set()
        self.table_keys: set[Key] = set()

    @initialize()
    def begin(self) -> None:
        write_array(self.home / "points.zarr", ROWS[:FIRST], chunk_rows=16)
        self.n = FIRST

    def call(self, name: str, work: Callable[[], object], kill: int | None) -> bool:
        """Do it; whether it came to its end."""
        counted[name] += 1

        def die() -> None:
            raise Killed

        undo = before_step(kill, die, for_good=True) if kill is not None else lambda: None
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # (a finalizer cannot tidy, either)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                work()
        except Killed:
            counted["kills"] += 1
            return False
        finally:
            gc.collect()
            undo()
            sys.unraisablehook = hook
            self.bury()
        return True

    def bury(self) -> None:
        """Nobody lives who holds something here."""
        for file in self.home.rglob("hold/*.json"):
            with suppress(ValueError):
                file.write_text(json.dumps({**json.loads(file.read_text()), "born": "1"}))

    @rule(more=st.integers(1, 12), kill=KILLS)
    def append(self, more: int, kill: int | None) -> None:
        fresh_rows, first = ROWS[self.n : self.n + more], self.n
        if not len(fresh_rows):
            return

        def work() -> None:
            append_rows(self.home / "points.zarr", fresh_rows, first=first)

        if not self.call("append", work, kill):
            self.call("append", work, None)
        self.n += len(fresh_rows)

    @rule(components=COMPONENTS, again=st.booleans(), only_fresh=st.booleans(), kill=KILLS)
    def run_a_job(self, components: int, again: bool, only_fresh: bool, kill: int | None) -> None:
        key = (components, self.n)
        job = job_of(self.home, components, "run.zarr", model="model.zarr", table="own.csv")

        def work() -> None:
            run_job(job, fresh=only_fresh)

        self.run_keys |= {key}
        ended = self.call("run", work, kill)
        if again and not ended:
            ended = self.call("resume", work, None)
        if ended:
            self.run_keys = {key}
            assert self.coordinates() == fresh(key)[0]
            assert self.transformed() == fresh(key)[1]

    @rule(components=COMPONENTS, kill=KILLS)
    def refresh(self, components: int, kill: int | None) -> None:
        key, job = (components, self.n), job_of(self.home, components, "growing.zarr", align=False)
        self.growth_keys |= {key}
        if self.call("refresh", lambda: refresh(job), kill) or self.call("resume", lambda: refresh(job), None):
            self.growth_keys = {key}
            assert self.grown() == (self.n, self.n)

    @rule(kill=KILLS)
    def extend(self, kill: int | None) -> None:
        job = job_of(self.home, 1, "growing.zarr", align=False)
        if not (self.home / "growing.zarr" / "current.json").exists():
            return
        if self.call("extend", lambda: extend(job), kill) or self.call("resume", lambda: extend(job), None):
            found = self.grown()
            assert found is not None
            assert found[1] == self.n

    @rule(kill=KILLS)
    def export(self, kill: int | None) -> None:
        out = self.home / "table.npy"

        def work() -> None:
            with suppress(StaleError, InputError):  # (a run that did not end)
                export(self.home / "run.zarr", out, overwrite=True)

        if (self.home / "run.zarr" / "zarr.json").exists():
            self.table_keys |= self.run_keys
            self.call("export", work, kill)

    @rule(kill=KILLS)
    def save(self, kill: int | None) -> None:
        """A copy of the model: whole, or not there."""
        copy = self.home / "copy.zarr"
        shutil.rmtree(copy, ignore_errors=True)
        if not (self.home / "model.zarr").exists():
            return

        def work() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StaleWarning)
                model = be.load(self.home / "model.zarr")
            if not copy.exists():  # (a kill after it was published leaves it whole)
                model.save(copy)

        if self.call("save", work, kill) or self.call("resume", work, None):
            assert np.asarray(be.load(copy).transform(ROWS)).tobytes() == self.transformed()

    @invariant()
    def no_reader_sees_results_of_another_key(self) -> None:
        if (found := self.coordinates()) is not None:
            assert found in [fresh(key)[0] for key in self.run_keys]
        if (model := self.transformed()) is not None:
            assert model in [fresh(key)[1] for key in self.run_keys]
        if (self.home / "table.npy").exists():
            table = np.load(self.home / "table.npy").tobytes()
            assert table in [fresh(key)[0] for key in self.table_keys]
        self.grown()

    @invariant()
    def nothing_is_damaged(self) -> None:
        for name in ("run.zarr", "model.zarr", "growing.zarr"):
            place = self.home / name
            if (place / "zarr.json").exists() and (name != "growing.zarr" or (place / "current.json").exists()):
                assert verify(place)["problems"] == []

    def coordinates(self) -> bytes | None:
        """Of the run, as a reader gets them."""
        run = self.home / "run.zarr"
        if not (run / "zarr.json").exists():
            return None
        try:
            table = table_of(run)
            return table.coordinates.read(0, table.rows).tobytes()
        except (StaleError, InputError):  # superseded, or not there yet
            return None

    def transformed(self) -> bytes | None:
        """What the model of the run makes of the rows; None where it says that its run has begun anew."""
        model = self.home / "model.zarr"
        if not model.exists():
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleWarning)
            return np.asarray(be.load(model).transform(ROWS)).tobytes()

    def grown(self) -> tuple[int, int] | None:
        """Rows fitted and rows covered, which have the coordinates of one key."""
        root = self.home / "growing.zarr"
        version = open_growth(root).current if (root / "current.json").exists() else None
        if version is None:
            return None
        found = np.asarray(version.coordinates)
        key = (found.shape[1], version.fitted)
        assert key in self.growth_keys
        assert version.covered == len(found) <= self.n
        assert found.tobytes() == placed(key, len(found))
        assert read_array(version.array).tobytes() == found.tobytes()
        return version.fitted, version.covered

    def teardown(self) -> None:
        """Nothing blocks for good."""
        try:
            if self.n:
                self.run_a_job(2, True, False, None)
                self.refresh(2, None)
                self.extend(None)
        except BigembedError as error:
            raise AssertionError(f"blocked: {error}") from error
        finally:
            shutil.rmtree(self.home, ignore_errors=True)


def attempt(examples: int, steps: int) -> dict[str, int]:
    """Try sequences; how many steps of each kind there were."""
    counted.clear()
    gc.collect()
    gc.freeze()  # (what is there by now is not looked through after every step)
    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, database=None,
                print_blob=False,
            ),
        )  # fmt: skip
    finally:
        gc.unfreeze()
    return dict(counted)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    print(json.dumps(attempt(*(given + [100, 20][len(given) :]))))
