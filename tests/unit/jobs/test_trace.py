"""The trace of a job, and the model that replays it: closed forms."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bigembed.jobs.run import run_job
from bigembed.jobs.watching import RunOptions
from bigembed.runtime.client_executor import HANDED_OUT
from bigembed.stages.runs import Run
from tests.job_files import job_in


def script(name):
    """A script of the benchmarks, as a module."""
    folder = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return import_module(name)
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def replay():
    return script("replay")


@pytest.fixture
def job(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(500, 6)).astype("f4"))
    return lambda output: job_in(tmp_path, 'name = "pca"', path=output)


class TestTrace:
    """What ``--trace`` writes."""

    def test_every_task_has_its_line_and_results_stay_the_same(self, job, tmp_path):
        run_job(job("traced.zarr"), RunOptions(trace=tmp_path / "new" / "trace.jsonl"))
        run_job(job("plain.zarr"))
        lines = [json.loads(line) for line in (tmp_path / "new" / "trace.jsonl").read_text().splitlines()]
        tasks = [line for line in lines if line["event"] == "task"]
        assert lines[0]["event"] == "job"
        assert lines[0]["rows"] == [500, 6]
        counted = Counter(task["map"] for task in tasks)
        assert counted == {task["map"]: task["of"] for task in tasks}
        of_moments = next(task for task in tasks if task["stage"] == "moments")
        assert of_moments["bytes_read"] == 500 * 6 * 4
        written = sum(task["bytes_written"] for task in tasks if task["stage"] == "coordinates")
        assert written >= 500 * 6 * 4
        assert all(0 <= task["reading"] + task["writing"] <= task["seconds"] + 1e-5 for task in tasks)
        ends = {line["stage"]: line["time"] for line in lines if line["event"] == "done"}
        assert all(task["began"] + task["seconds"] <= ends[task["stage"]] + 1e-3 for task in tasks)
        digests = [Run(tmp_path / f"{name}.zarr").digest("coordinates") for name in ("traced", "plain")]
        assert digests[0] == digests[1]

    def test_it_is_read(self, job, tmp_path, replay):
        path = tmp_path / "trace.jsonl"
        run_job(job("run.zarr"), RunOptions(trace=path))
        trace = replay.read(path)
        assert trace.rows == 500
        assert {"moments", "solve", "coordinates"} <= {one.stage for one in trace.maps}
        assert 0 < replay.replay(trace, replay.Machine(1))["seconds"] < 2 * trace.seconds

    def test_starts_of_a_job_come_one_after_the_other(self, tmp_path, replay):
        def start(at):
            task = {"event": "task", "stage": "a", "map": 1, "label": "x", "task": 0, "began": at + 1, "seconds": 2.0}
            task |= {"reading": 0.5, "writing": 0.0, "bytes_read": 10, "bytes_written": 5}
            stage = [{"event": kind, "stage": "a", "time": at + after} for kind, after in (("start", 0), ("done", 4))]
            return [{"event": "job", "time": at, "rows": [7, 2], "cores": 2}, stage[0], task, stage[1]]

        path = tmp_path / "trace.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in [*start(100.0), *start(900.0)]))
        trace = replay.read(path)
        assert (trace.rows, trace.seconds, len(trace.maps)) == (7, 8.0, 2)
        assert trace.maps[1] == replay.Map("a", "x", 1.0, (replay.Task(1.5, 15, 0.5),))


class TestReplay:
    """Seconds of a map by arithmetic; beside each what a wrong model would say."""

    def test_workers(self, replay):
        tasks = [replay.Task(1.0, 0.0)] * 10
        seconds, handing, _ = replay.map_seconds(tasks, replay.Machine(2))
        assert seconds == pytest.approx(5, abs=0.02)
        assert handing == pytest.approx(10 * HANDED_OUT)

    def test_counts_grow_by_their_exponents(self, replay):
        def trace(rows, count, compute, gap):
            made = replay.Map("search", "search", gap, (replay.Task(compute, 1e6),) * count)
            return replay.Trace(rows, 1.0, (made,), 2, 1)

        small, large = trace(100, 4, 1.0, 0.1), trace(400, 16, 4**0.15, 0.1)
        [growth] = replay.exponents(small, large).values()
        assert growth == pytest.approx({"count": 1.0, "compute": 0.15, "moved": 0.0, "gap": 0.0})
        [found] = replay.scaled(large, 1600, replay.exponents(small, large)).maps
        assert (len(found.tasks), found.tasks[0].compute) == (64, pytest.approx(16**0.15))
        [growth] = replay.exponents(small, trace(400, 16, 4.0, 0.1)).values()
        assert growth["compute"] == replay.MOST["compute"]

    def test_what_crosses_between_workers_grows_with_them(self, replay):
        """Half of it between two, all but a tenth between ten; each of them gets its calls in one task."""
        tasks = (replay.Task(0.0, 1e6),) * 100
        job = replay.Trace(10, 1.0, (replay.Map("solve", "product", 0.0, tasks, True),), 2, 2)
        seconds = {n: replay.replay(job, replay.Machine(n, bandwidth=1e6, handed_out=1e-6))["seconds"] for n in (2, 10)}
        assert seconds == pytest.approx({2: 100, 10: 180}, rel=1e-3)
        anywhere = replay.Trace(10, 1.0, (replay.Map("solve", "product", 0.0, tasks),), 2, 2)
        assert replay.replay(anywhere, replay.Machine(10, bandwidth=1e6))["seconds"] == pytest.approx(100, rel=1e-2)


def test_counts_that_rise_are_faults():
    more, kept = script("counts").more, {"pca": {"tasks": 100, "read": 1000}}
    assert more({"pca": {"tasks": 110, "read": 900}}, kept) == []
    assert more({"pca": {"tasks": 111, "read": 1000}}, kept) == ["pca: tasks 100 → 111"]
    assert more({"tsne": {"tasks": 1}}, kept) == ["tsne: nothing is kept"]
