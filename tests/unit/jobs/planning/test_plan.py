"""The arithmetic of a plan, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import PlanError
from bigembed.jobs.planning.machine import footprint, resident
from bigembed.jobs.planning.plan import Plan, make_plan
from bigembed.jobs.planning.resources import MARGIN, Peaks, Resources, remains
from bigembed.jobs.spec import read_job
from bigembed.jobs.units import size
from bigembed.jobs.watching.reporter import MemoryPeak
from bigembed.runtime.runtime import using
from bigembed.stages.runs import Run
from bigembed.stages.stage import Cost, exchange_home

MIB = 1 << 20


def plan_of(kind="embedded", limit=1000 * MIB, free=10**12, published=(), workers=3):
    costs = (
        ("a", Cost(passes=1, read=100, disk=50, scratch=70, memory=200 * MIB, coordinator=10 * MIB)),
        (
            "b",
            Cost(passes=2.5, read=10, write=5, disk=30, scratch=20, memory=300 * MIB, coordinator=40 * MIB),
        ),
    )
    where = Resources(kind, workers, limit, 100 * MIB, 50 * MIB, 5 * MIB)
    return Plan("in", "out", (10, 2), "float32", where, costs, published, free)


def test_sums():
    plan = plan_of()
    assert plan.total("passes") == 3.5
    assert plan.total("read") == 110
    assert plan.peaks.worker == 100 * MIB + int(300 * MIB * (1 + MARGIN))
    assert plan.peaks.coordinator == int(90 * MIB * (1 + MARGIN))
    assert plan.peaks.total == 3 * plan.peaks.worker + plan.peaks.coordinator + 5 * MIB
    assert plan.disk_peak == 120
    assert plan_of(published=("a",)).disk_peak == 50
    assert plan.problems() == []


def test_compiled_functions_stay_in_the_coordinator_after_a_solve():
    """It imports numba and compiles when it first solves, and what follows is planned with that."""
    cost = Cost(coordinator=10 * MIB, held=10**12)
    where = Resources("embedded", 3, 1000 * MIB, 100 * MIB, 50 * MIB, 5 * MIB, compiler=20 * MIB)
    plan = replace(plan_of(), resources=where)
    assert plan.peaks.coordinator == int((50 + 40) * MIB * (1 + MARGIN))  # a control: nothing is solved
    solved = replace(plan, stages=(plan.stages[0], ("solve", cost), ("after", Cost()), ("last", Cost())))
    expected = [50 + 10, 50 + 20 + 10, 50 + 20, 50 + 20]
    planned = [memory["coordinator"] for memory in solved.stage_memory.values()]
    assert planned == [int(held * MIB * (1 + MARGIN)) for held in expected]
    assert solved.memory["coordinator"] == max(planned)
    reused = replace(solved, published=("a", "solve")).stage_memory
    assert reused["after"]["coordinator"] == int(50 * MIB * (1 + MARGIN))


def test_in_one_process_tasks_and_coordinator_add_up():
    plan = plan_of("process", workers=1)
    assert plan.peaks.total == plan.peaks.worker == plan.peaks.coordinator == 100 * MIB + int(340 * MIB * (1 + MARGIN))


def test_vectors_are_beside_idle_workers_where_their_limits_leave_room(monkeypatch):
    monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 4000 * MIB)
    cost = Cost(
        passes=4, read=400, exchanged=80, scratch=30, memory=200 * MIB, coordinator=10 * MIB, held=800 * MIB,
        checkpoint=20,
    )  # fmt: skip

    def peaks(kind="embedded", limit=1000 * MIB, workers=2):
        return Peaks(Resources(kind, workers, limit, 100 * MIB, 50 * MIB, 5 * MIB), [cost])

    need = 800 * MIB + peaks().threads * 200 * MIB
    assert (peaks().beside(cost), peaks().held) == (need, 800 * MIB)
    assert peaks().coordinator == int((60 * MIB + need) * (1 + MARGIN))
    assert peaks().total == 2 * 100 * MIB + peaks().coordinator + 5 * MIB  # (more than through files)
    assert "while the workers idle" in peaks().vectors
    inside = peaks().cost_of(cost)
    assert (inside.read, inside.exchanged, inside.scratch) == (100, 40, 40)  # (two checkpoints, for a moment)
    files = peaks(limit=100 * MIB + int(need * (1 + MARGIN)) // 2 - MIB)
    assert (files.beside(cost), files.held, files.cost_of(cost)) == (0, 0, cost)
    assert files.total == 2 * files.worker + files.coordinator + 5 * MIB
    assert "in files, since the workers together may not hold them" in files.vectors
    assert "several machines" in peaks("remote").vectors
    assert "in the memory of this process" in peaks("process").vectors
    monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1000 * MIB)
    assert peaks().beside(cost) == 0


def test_too_little_memory_is_refused_with_a_proposal():
    with pytest.raises(PlanError, match=r"stage 'b'.*\n?.*\[cluster\] memory = \"4\d\d MiB\" or more"):
        plan_of(limit=400 * MIB).refuse()
    with pytest.raises(PlanError, match="--memory-limit"):
        plan_of("remote", limit=400 * MIB).refuse()


def test_more_workers_than_the_machine_holds(monkeypatch):
    monkeypatch.setattr("bigembed.jobs.planning.plan.machine_memory", lambda: 1200 * MIB)
    with pytest.raises(PlanError, match=r"\[cluster\] workers = 2 fit"):
        plan_of().refuse()


def test_too_little_disk_is_refused():
    with pytest.raises(PlanError, match="larger disk"):
        plan_of(free=100).refuse()


def test_a_plan_writes_nothing(write_job, rows, tmp_path):
    before = sorted(tmp_path.iterdir())
    job = read_job(
        write_job("n_components = 3", 'picture = "p.png"\nmodel = "m.zarr"', source='dataset = "plane"\nn = 5000')
    )
    plan = make_plan(job)
    assert sorted(set(tmp_path.iterdir()) - set(before)) == [job.file]
    assert [name for name, _ in plan.stages] == ["input", "mean", "center", "model", "picture"]
    assert plan.resources.kind == "process"
    assert plan.as_dict()["memory"]["total"] == plan.peaks.total
    assert plan.shape == (5000, 3)


def test_footprint_is_measured():
    found = footprint()
    assert 60 * MIB < found.coordinator < found.worker < 500 * MIB
    assert 0 < found.picture < 200 * MIB
    assert footprint() is found


def test_the_peak_of_all_processes_counts_children():
    import subprocess
    import sys

    with MemoryPeak() as peak:
        peak.interval = 0.05
        child = subprocess.run(
            [sys.executable, "-c", "import time; x = b'x' * (80 << 20); time.sleep(1.5)"], check=True
        )
    assert child.returncode == 0
    assert peak.worker > 80 * MIB
    assert peak.total >= peak.worker + peak.coordinator * 0.5
    assert peak.coordinator >= resident() * 0.5


def test_sizes():
    assert [size(0), size(1023), size(1 << 20), size(5 << 40)] == ["0 B", "1023 B", "1.0 MiB", "5.0 TiB"]


@pytest.mark.parametrize("scratch", [False, True])
def test_what_a_stopped_job_left_is_room_for_what_goes_on(tmp_path, monkeypatch, scratch):
    X = np.random.default_rng(0).random((500, 3))
    folder = str(tmp_path / "scratch") if scratch else None
    be.PCA(2, workdir=str(tmp_path / "run")).fit(X)
    run = Run(str(tmp_path / "run"))
    roots = [run.root, run.root, tmp_path / "not there"]
    assert remains(roots, folder) == (0, 0)
    assert not (tmp_path / "not there").exists()
    with using(scratch=folder):
        left = exchange_home(run) / "begun"
    for place in (left, run.root / "stages" / "begun"):
        place.mkdir(parents=True)
        (place / "piece").write_bytes(bytes(1 << 20))
    begun, exchanged = remains(roots, folder)
    assert begun == exchanged >= 1 << 20
    assert begun < 2 << 20  # (each is counted once)
    monkeypatch.setattr("bigembed.jobs.planning.plan.free_bytes", lambda folder: 10)
    short = replace(plan_of(free=10), scratch=folder)
    assert short.problems()
    assert "60 B hold what was begun" in replace(short, remains=(60, 0)).problems()[0]
    assert not replace(short, remains=(110, 60)).problems()
