"""What is left of a run: planned at first, and corrected by what its stages take."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from bigembed.jobs import watching as reporter
from bigembed.jobs.planning import Rates
from bigembed.jobs.planning import times as module
from bigembed.jobs.planning.times import PlannedStage, RemainingTime
from bigembed.jobs.run import run_job
from bigembed.jobs.watching import RunOptions
from bigembed.jobs.watching.console import Console
from bigembed.jobs.watching.status import read_status
from bigembed.store import arrays
from bigembed.store.arrays import write_array
from tests.job_files import job_in

STAGES = {
    "copy": PlannedStage(100, "moving"),
    "search": PlannedStage(50, "computing", maps=3),
    "solve": PlannedStage(200, "moving", maps=20),
    "judge": PlannedStage(40, "computing"),
}
TOOK = {"copy": 400.0, "search": 60.0, "solve": 700.0, "judge": 44.0}
"""The store is four times as slow as it was measured."""


class Told:
    """A run whose stages take what they take, by a clock of the test; what was said to be left, and what was."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.left = RemainingTime.of(STAGES)
        self.said = {}

    def run(self, stage, seconds, steps=20):
        self.left.start(stage)
        maps = int(STAGES[stage].maps)
        for number in range(maps):
            for done in range(steps + 1):
                self.left.progress(f"map {number % 2}", done, steps)
                if done < steps:
                    self.now += seconds / maps / steps
                    self.said[self.now] = self.left.seconds()
        self.left.end(stage, seconds)
        self.said[self.now] = self.left.seconds()

    def errors(self, first, last):
        """Of what was said between two moments, each relative to what was left then."""
        return [abs(said - (self.now - at)) / (self.now - at) for at, said in self.said.items() if first <= at < last]


def test_it_converges_to_what_a_slow_store_makes_of_the_plan(monkeypatch):
    told = Told(monkeypatch)
    planned = told.left.seconds()
    assert planned == 390
    for stage, seconds in TOOK.items():
        told.run(stage, seconds)
    whole = told.now
    assert whole == pytest.approx(1204)
    assert min(told.errors(0, 50)) > 0.3  # (nobody knows yet)
    assert max(told.errors(470, 1150)) < 0.15
    assert max(told.errors(800, 1100)) < 0.06
    assert told.said[whole] == 0


def test_stages_that_are_reused_are_left_out_and_say_nothing_of_the_speed():
    left = RemainingTime.of(STAGES)
    left.end("solve", None)
    left.end("unknown", 3.0)
    assert left.seconds() == 190
    assert left.ratio("moving") == 1


def test_a_job_on_a_slow_store_says_how_long_is_left(tmp_path, monkeypatch, capsys):
    write_array(tmp_path / "rows.zarr", np.random.default_rng(0).normal(size=(20_000, 16)))
    read = arrays.RowChunks.read
    monkeypatch.setattr(arrays.RowChunks, "read", lambda *asked: time.sleep(0.15) or read(*asked))
    monkeypatch.setattr(reporter, "SECONDS", 0.0)
    planned = Rates(read=1e9, write=1e9, product=1e9, look=1e8)  # (a store of this machine may be slow, too)
    monkeypatch.setattr("bigembed.jobs.planning.plan.rates", lambda folder, renew: planned)
    events, standing, console = [], [], Console(as_json=True)

    def hear(seconds):
        console.remaining(seconds)
        events.append((time.monotonic(), seconds))
        standing.append((tmp_path / "job.prom").read_text())

    options = RunOptions(console.event, console.progress, remaining=hear, metrics=tmp_path / "job.prom")
    found = run_job(job_in(tmp_path, source='path = "rows.zarr"'), options)
    end = time.monotonic()
    assert found["plan"]["seconds"] < (end - events[0][0])  # (the store is slower than was planned)
    wrong = [abs(said - (end - at)) for at, said in events]
    assert wrong[-1] < max(wrong)
    assert events[-1][1] < max(said for _, said in events)
    assert all("bigembed_run_remaining_seconds{" in one for one in standing)
    assert any(line.startswith("bigembed_run_remaining_seconds") and line.endswith(" 0.0")
               for line in (tmp_path / "job.prom").read_text().splitlines())  # fmt: skip
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["seconds"] for line in lines if line["event"] == "remaining"] == [round(said, 1) for _, said in events]
    assert read_status(tmp_path / "run.zarr")["remaining_seconds"] is None


def test_the_console_says_it_beside_the_tasks(monkeypatch, capsys):
    from bigembed.jobs.watching import console as module
    from bigembed.runtime import Event

    monkeypatch.setattr(module, "PLAIN_SECONDS", 0.0)
    console = Console()
    console.event(Event("start", "solve"))
    console.progress("pass", 1, 8)
    console.remaining(75.0)
    console.progress("pass", 2, 8)
    assert capsys.readouterr().out.splitlines() == ["solve: pass: 1 of 8", "solve: pass: 2 of 8; about 1 min 15 s left"]
