"""Plans: their arithmetic, the rates of the machine, compilation, what fits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed
import bigembed as be
from bigembed.cli import app
from bigembed.errors import BigembedWarning, InputError, InterruptedRun, PlanError
from bigembed.jobs import planning as calibrate
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places import TRIMMED, ClusterTable
from bigembed.jobs.planning import SCIKIT_LEARN, Rates, cache_file, footprint, rates, resident
from bigembed.jobs.planning import notes as compilation
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.planning.resources import (
    FIRST_USE,
    KEPT_OF_TASKS,
    Peaks,
    Resources,
    remains,
    resources_of,
    runs_at,
)
from bigembed.jobs.planning.times import MESSAGES, PUBLISH, TimeModel
from bigembed.jobs.report.lines import plan_lines
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching import MemoryPeak, RunOptions
from bigembed.neighbors import graph_stages, nn_descent
from bigembed.neighbors.search import AUTO, WITHOUT_DESCENT
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes as shortlist
from bigembed.rows import reader
from bigembed.runtime import using
from bigembed.runtime.client_executor import TERMINATE
from bigembed.stages.cost import Cost
from bigembed.stages.runs import Run
from bigembed.stages.stage import MARGIN, exchange_home
from bigembed.store.spaces import UNEVEN
from tests.job_files import job_file, job_in
from tests.some import a_few

MIB = 1 << 20


def output():
    """A path in a folder that this user may write, as the tree may not be."""
    return f"{tempfile.gettempdir()}/out"


def plan_of(kind="embedded", limit=1000 * MIB, free=10**12, published=(), workers=3):
    costs = (
        ("a", Cost(passes=1, read=100, disk=50, scratch=70, memory=200 * MIB, coordinator=10 * MIB)),
        ("b", Cost(passes=2.5, read=10, write=5, disk=30, scratch=20, memory=300 * MIB, coordinator=40 * MIB)),
    )
    where = Resources(kind, workers, limit, 100 * MIB, 50 * MIB, 5 * MIB)
    return Plan("in", output(), (10, 2), "float32", where, costs, published, free)


class TestPlan:
    """The arithmetic of a plan, and what it refuses."""

    def test_sums(self):
        plan = plan_of()
        assert plan.total("passes") == 3.5
        assert plan.total("read") == 110
        assert plan.peaks.worker == 100 * MIB + int(300 * MIB * (1 + MARGIN))
        assert plan.peaks.coordinator == 50 * MIB + KEPT_OF_TASKS + int(40 * MIB * (1 + MARGIN))
        many = replace(plan.peaks, blocks=200)
        assert many.coordinator - plan.peaks.coordinator == 199 * KEPT_OF_TASKS
        more = replace(many, costs=[replace(cost, blocks=300) for cost in many.costs])
        assert more.coordinator - plan.peaks.coordinator == 299 * KEPT_OF_TASKS
        assert plan.peaks.total == 3 * plan.peaks.worker + plan.peaks.coordinator + 5 * MIB
        assert plan.disk_peak == 120
        assert plan_of(published=("a",)).disk_peak == 50
        assert plan.problems() == []

    def test_a_stage_of_one_task_is_in_one_worker(self):
        """The others keep of such a task what is not given back, or hold the largest of several."""
        many, one = Cost(memory=50 * MIB), Cost(memory=900 * MIB, blocks=1)
        peaks = Peaks(Resources("embedded", 3, 2000 * MIB, 100 * MIB, 50 * MIB, 5 * MIB), [many, one])
        assert peaks.worker == 100 * MIB + int(900 * MIB * (1 + MARGIN))
        kept = 100 * MIB + int(TRIMMED * (1 + MARGIN))
        assert peaks.total == peaks.worker + 2 * kept + peaks.coordinator + 5 * MIB
        assert replace(peaks, costs=[many]).total == 3 * (100 * MIB + int(50 * MIB * (1 + MARGIN))) + 55 * MIB

    def test_compiled_functions_stay_in_the_coordinator_after_a_solve(self):
        """It imports numba and compiles when it first solves, and what follows is planned with that."""
        cost = Cost(coordinator=10 * MIB, held=10**12)
        where = Resources("embedded", 3, 1000 * MIB, 100 * MIB, 50 * MIB, 5 * MIB, compiler=20 * MIB)
        plan = replace(plan_of(), resources=where)
        bare = 50 * MIB + KEPT_OF_TASKS
        assert plan.peaks.coordinator == bare + int(40 * MIB * (1 + MARGIN))  # a control: nothing is solved
        solved = replace(plan, stages=(plan.stages[0], ("solve", cost), ("after", Cost()), ("last", Cost())))
        expected = [(0, 10), (20, 10), (20, 0), (20, 0)]
        planned = [memory["coordinator"] for memory in solved.stage_memory.values()]
        assert planned == [bare + more * MIB + int(held * MIB * (1 + MARGIN)) for more, held in expected]
        assert solved.memory["coordinator"] == max(planned)
        reused = replace(solved, published=("a", "solve")).stage_memory
        assert reused["after"]["coordinator"] == bare

    def test_in_one_process_tasks_and_coordinator_add_up(self):
        plan = plan_of("process", workers=1)
        assert (
            plan.peaks.total == plan.peaks.worker == plan.peaks.coordinator == 100 * MIB + int(340 * MIB * (1 + MARGIN))
        )

    def test_a_part_of_the_vectors_is_beside_idle_workers_where_their_limits_do_not_leave_room_for_all(
        self, monkeypatch
    ):
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 9000 * MIB)
        monkeypatch.setattr("bigembed.jobs.places.cluster.coordinator_threads", lambda workers: workers)
        cost = Cost(
            passes=4, read=400, exchanged=800, scratch=3000 * MIB, memory=200 * MIB, spared=150 * MIB, held=4000 * MIB,
            part=3200 * MIB, checkpoint=20, coordinator=10 * MIB,
        )  # fmt: skip

        def peaks(limit, whole=cost, kind="embedded"):
            return Peaks(Resources(kind, 2, limit * MIB, 100 * MIB, 50 * MIB, 5 * MIB), [whole])

        spared = int(1800 * MIB / (1 + MARGIN))  # of two workers
        tasks = peaks(1000).threads * 200 * MIB
        part = spared - tasks
        assert (peaks(1000).vector_memory, peaks(1000).solve_memory(cost)) == (part, part + tasks)
        assert peaks(1000).coordinator == 50 * MIB + int((10 * MIB + part + tasks) * (1 + MARGIN))
        inside = peaks(1000).cost_of(cost)
        assert (inside.read, inside.scratch) == (400, 40 + 3200 * MIB - part)
        assert inside.exchanged == 40 + 800 * (3200 * MIB - part) // (3200 * MIB)
        assert "of them in the memory of the coordinating process, the rest in a file" in peaks(1000).vectors
        for files in (peaks(400), peaks(1000, replace(cost, part=0)), peaks(1000, kind="remote")):  # (less than 1/16)
            assert (files.vector_memory, files.cost_of(cost) if files.costs == [cost] else cost) == (0, cost)
        assert peaks(2300).vector_memory == 3200 * MIB  # (all but the matrix, on a machine that is large enough)
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 900 * MIB)
        assert peaks(1000).vector_memory == 0

    def test_vectors_are_beside_idle_workers_where_their_limits_leave_room(self, monkeypatch):
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 4000 * MIB)
        cost = Cost(
            passes=4, read=400, exchanged=80, scratch=30, memory=200 * MIB, coordinator=10 * MIB, held=800 * MIB,
            checkpoint=20,
        )  # fmt: skip

        def peaks(kind="embedded", limit=1000 * MIB, workers=2):
            return Peaks(Resources(kind, workers, limit, 100 * MIB, 50 * MIB, 5 * MIB), [cost])

        need = 800 * MIB + peaks().threads * 200 * MIB
        assert (peaks().solve_memory(cost), peaks().vector_memory) == (need, 800 * MIB)
        assert peaks().coordinator == 50 * MIB + int((10 * MIB + need) * (1 + MARGIN))
        assert peaks().total == 2 * 100 * MIB + peaks().coordinator + 5 * MIB  # (more than through files)
        assert "while the workers idle" in peaks().vectors
        inside = peaks().cost_of(cost)
        assert (inside.read, inside.exchanged, inside.scratch) == (100, 40, 40)  # (two checkpoints, for a moment)
        files = peaks(limit=100 * MIB + int(need * (1 + MARGIN)) // 2 - MIB)
        assert (files.solve_memory(cost), files.vector_memory, files.cost_of(cost)) == (0, 0, cost)
        assert files.total == 2 * files.worker + files.coordinator + 5 * MIB
        assert "in files, since the workers together may not hold them" in files.vectors
        assert "several machines" in peaks("remote").vectors
        assert peaks("remote").worker == 100 * MIB + int(200 * MIB * (1 + MARGIN))
        assert "in the memory of this process" in peaks("process").vectors
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1000 * MIB)
        assert peaks().solve_memory(cost) == 0

    def test_workers_of_several_machines_hold_vectors_together_where_each_has_room_for_its_share(self):
        cost = Cost(
            passes=4, read=400, exchanged=80, scratch=30, memory=200 * MIB, held=800 * MIB, checkpoint=20, crossing=7,
        )  # fmt: skip

        def peaks(limit, workers=4, kind="remote"):
            return Peaks(Resources(kind, workers, limit, 100 * MIB, 50 * MIB, 5 * MIB), [cost])

        share = int(UNEVEN * 200 * MIB)
        least = 100 * MIB + int((200 * MIB + share) * (1 + MARGIN))
        there, files = peaks(least), peaks(least - 1)
        assert (there.worker_memory, there.worker, files.worker_memory) == (share, least, 0)
        assert files.worker == 100 * MIB + int(200 * MIB * (1 + MARGIN))
        assert "in the memory of 4 workers, 250.0 MiB each" in there.vectors
        moved = there.cost_of(cost)
        assert (moved.read, moved.exchanged, moved.scratch, files.cost_of(cost)) == (100, 27, 47, cost)
        assert peaks(None).worker_memory == peaks(least, kind="embedded").worker_memory == 0

    def test_too_little_memory_is_refused_with_a_proposal(self):
        with pytest.raises(PlanError, match=r"stage 'b'.*\n?.*\[cluster\] memory = \"4\d\d MiB\" or more"):
            plan_of(limit=400 * MIB).refuse()
        with pytest.raises(PlanError, match="--memory-limit"):
            plan_of("remote", limit=400 * MIB).refuse()

    def test_more_workers_than_the_machine_holds(self, monkeypatch):
        monkeypatch.setattr("bigembed.jobs.planning.plan.machine_memory", lambda: 1200 * MIB)
        with pytest.raises(PlanError, match=r"\[cluster\] workers = 2 fit"):
            plan_of().refuse()

    def test_too_little_disk_is_refused(self):
        with pytest.raises(PlanError, match="larger disk"):
            plan_of(free=100).refuse()

    def test_a_folder_in_which_nothing_may_be_written_is_refused(self, monkeypatch):
        monkeypatch.setattr("bigembed.jobs.planning.plan.os.access", lambda folder, how: how != os.W_OK)
        with pytest.raises(InputError, match=r"this user may write nothing there: .* Start as .*\[output\] path"):
            plan_of().refuse()

    def test_a_plan_writes_nothing(self, write_job, rows, tmp_path):
        before = sorted(tmp_path.iterdir())
        job = read_job(
            write_job("n_components = 3", 'picture = "p.png"\nmodel = "m.zarr"', source='dataset = "plane"\nn = 5000')
        )
        plan = plan_job(job)
        assert sorted(set(tmp_path.iterdir()) - set(before)) == [job.file]
        assert [name for name, _ in plan.stages] == ["input", "mean", "center", "model", "picture"]
        assert plan.resources.kind == "process"
        assert plan.as_dict()["memory"]["total"] == plan.peaks.total
        assert plan.shape == (5000, 3)

    @pytest.mark.parametrize(("given", "n"), [({}, 5_000), ({"workers": 2}, 100_000)])
    def test_scikit_learn_is_planned_except_in_a_command_that_has_not_loaded_it(self, monkeypatch, given, n):
        def planned() -> int:
            return resources_of(ClusterTable(**given), (n, 24), 0, None, False, True).coordinator

        monkeypatch.setattr(bigembed.errors, "_command", False)
        from_python = planned()
        monkeypatch.setattr(bigembed.errors, "_command", True)
        monkeypatch.setitem(sys.modules, "sklearn", sys)  # (it is loaded)
        assert planned() == from_python
        monkeypatch.delitem(sys.modules, "sklearn")
        assert planned() == from_python - SCIKIT_LEARN

    def test_the_peak_of_all_processes_counts_children(self):

        code = "x = b'x' * (80 << 20); input()"
        with (
            MemoryPeak() as peak,
            subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True) as child,
        ):
            peak.interval, end = 0.05, time.monotonic() + 60
            while peak.peaks["worker"] <= 80 * MIB and time.monotonic() < end:  # (a busy machine looks late)
                time.sleep(0.05)
            child.communicate("\n")
        assert child.returncode == 0
        assert peak.peaks["worker"] > 80 * MIB
        assert peak.peaks["total"] >= peak.peaks["worker"] + peak.peaks["coordinator"] * 0.5
        assert peak.peaks["coordinator"] >= resident() * 0.5

    @pytest.mark.parametrize("scratch", [False, True])
    def test_what_a_stopped_job_left_is_room_for_what_goes_on(self, tmp_path, monkeypatch, scratch):
        X = np.random.default_rng(0).random((500, 3))
        folder = str(tmp_path / "scratch") if scratch else None
        be.PCA(2, workdir=str(tmp_path / "run")).fit(X)
        run = Run(str(tmp_path / "run"))
        roots = [run.root, run.root, tmp_path / "not there"]
        assert remains(runs_at(roots), folder) == (0, 0)
        assert not (tmp_path / "not there").exists()
        with using(scratch=folder):
            left = exchange_home(run) / "begun"
        for place in (left, run.root / "stages" / "begun"):
            place.mkdir(parents=True)
            (place / "piece").write_bytes(bytes(1 << 20))
        begun, exchanged = remains(runs_at(roots), folder)
        assert begun == exchanged >= 1 << 20
        assert begun < 2 << 20  # (each is counted once)
        monkeypatch.setattr("bigembed.jobs.planning.plan.free_bytes", lambda folder: 10)
        short = replace(plan_of(free=10), scratch=folder)
        assert short.problems()
        assert "60 B hold what was begun" in replace(short, remains=(60, 0)).problems()[0]
        assert not replace(short, remains=(110, 60)).problems()


RATES = Rates(read=1e8, write=5e7, product=1e9, look=1e7)


def plan_of_calibrate(**changes):
    place = Resources("embedded", 1, None, 0, 0, 0, 0.0, 3.0)
    stages = (("a", Cost(read=10**8)), ("b", Cost(read=2 * 10**8)))
    given = {"published": (), "free_disk": 1, "rates": RATES} | changes
    return Plan("in", output(), (10, 2), "float32", place, stages, **given)


class TestCalibrate:
    """The rates of the machine, and what a plan makes of them."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path_factory, monkeypatch):
        """A cache folder of its own; measured quickly, and not well."""
        folder = tmp_path_factory.mktemp("cache")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        for name, value in {"TRIES": 1, "TABLE": 1 << 18, "ROWS": 1 << 12, "SIDE": 128}.items():
            monkeypatch.setattr(calibrate, name, value)
        return folder

    def test_rates_are_measured_once_and_renewed_when_asked(self, tmp_path, cache, monkeypatch):
        found = rates(tmp_path)
        assert 1e6 < found.read < 1e12
        assert 1e6 < found.write < 1e12
        assert 1e8 < found.product < 1e13
        assert 1e5 < found.look < 1e10
        assert cache_file("rates").parent.parent == cache
        assert list(tmp_path.iterdir()) == []
        monkeypatch.setattr(calibrate, "_look", lambda: 7.0)
        assert rates(tmp_path) == found
        assert rates(tmp_path, renew=True).look == 7.0
        assert rates(tmp_path).look == 7.0

    @a_few(2, "more", [{"unheard": 5.0}, {"read": "fast"}, {"write": -1}, None, [3]])
    def test_what_another_version_remembers_is_no_hindrance(self, tmp_path, more):
        found = rates(tmp_path)
        said = json.loads(cache_file("rates").read_text())
        for group in said:
            said[group] = said[group] | more if isinstance(more, dict) else more
        cache_file("rates").write_text(json.dumps(said))
        again = rates(tmp_path)
        assert (again == found) == (more == {"unheard": 5.0})
        assert min(again.read, again.write, again.product, again.look, again.term) > 0
        kept = json.loads(cache_file("rates").read_text())
        assert more != {"unheard": 5.0} or all(group["unheard"] == 5.0 for group in kept.values())

    def test_speeds_that_were_measured_beside_other_work_are_marked_and_measured_again_when_it_is_quiet(
        self, tmp_path, monkeypatch
    ):
        speeds, load = iter(range(1, 9)), [3.0]
        monkeypatch.setattr(calibrate, "_look", lambda: float(next(speeds)))
        monkeypatch.setattr(calibrate, "load_now", lambda: load[0])
        assert [rates(tmp_path).look for _ in range(2)] == [1.0, 1.0]  # (still busy)
        assert "measured at a load of 3.0 a processor" in rates(tmp_path).doubt
        load[0] = 0.1
        assert [rates(tmp_path).look for _ in range(2)] == [2.0, 2.0]
        load[0] = 5.0
        assert (rates(tmp_path).look, rates(tmp_path).doubt) == (2.0, "")
        cache_file("rates").write_text(json.dumps({"compute": {"product": 1.0, "look": 7.0}}))
        assert rates(tmp_path).look == 3.0  # (nobody noted beside what)

    def test_seconds_of_a_stage(self):
        pace = TimeModel(RATES, at_once=2, task=0.0, start=3.0)
        assert pace.seconds(Cost(), 1) == PUBLISH
        assert pace.seconds(Cost(passes=1, read=10**8, write=10**8, flops=1e9, scalar_ops=1e7), 9) == PUBLISH + 5 / 2
        assert pace.seconds(Cost(passes=1, read=10**8), 1) == PUBLISH + 1  # one block, one worker
        assert pace.seconds(Cost(serial_flops=1e9), 9) == PUBLISH + 1  # one process, however many there are
        assert pace.seconds(Cost(serial_ops=RATES.look), 9) == PUBLISH + 1
        assert pace.seconds(Cost(disk=10**8), 1) == PUBLISH + 1  # read back for its digests
        assert pace.seconds(Cost(exchanged=10**9), 9) == PUBLISH + 1 / 2
        slow = TimeModel(RATES, at_once=2, task=0.01, start=3.0)
        assert slow.seconds(Cost(passes=10), 4) == pytest.approx(PUBLISH + 10 * (MESSAGES + 2) * 0.01)
        assert slow.seconds(Cost(passes=10, maps=2), 4) == pytest.approx(PUBLISH + 2 * (MESSAGES + 2) * 0.01)
        assert slow.seconds(Cost(passes=1, blocks=8), 4) == pytest.approx(PUBLISH + (MESSAGES + 4) * 0.01)

    def test_workers_of_several_machines_share_their_files_and_who_hands_out_their_tasks(self):
        cost = Cost(passes=1, read=10**10, write=10**10, exchanged=10**10, disk=10**10, blocks=10**5)
        alone = TimeModel(RATES, at_once=100, task=0.0, start=0.0)
        assert alone.seconds(cost, 1) == PUBLISH + 410 / 100
        assert replace(alone, shared=1e9).seconds(cost, 1) == PUBLISH + 50
        assert replace(alone, shared=1e12).seconds(cost, 1) == alone.seconds(cost, 1)  # (a control)
        short = Cost(passes=1, flops=1e8, blocks=10**5)  # (of a microsecond each)
        assert replace(alone, hands_out=True).seconds(short, 1) > 100 * alone.seconds(short, 1)
        few = Cost(passes=1, flops=1e12, blocks=100)  # (of ten seconds each)
        assert replace(alone, hands_out=True).seconds(few, 1) == alone.seconds(few, 1)

    def test_seconds_of_a_plan(self):
        assert plan_of_calibrate().stage_seconds == {"a": 1 + PUBLISH, "b": 2 + PUBLISH}
        assert plan_of_calibrate().seconds == 6 + 2 * PUBLISH
        assert plan_of_calibrate(published=("b",)).seconds == 4 + PUBLISH
        assert plan_of_calibrate(rates=None).seconds is None
        assert plan_of_calibrate(rates=None).stage_seconds == {}

    def test_windows_hold_stages_or_blocks_or_nothing(self):
        def windows(seconds, **more):
            return replace(plan_of_calibrate(), window=seconds, **more).windows[0]

        whole = windows(60.0)
        assert (whole.starts, whole.longer, whole.problems()) == (1, [], [])
        assert whole.lines() == ["windows of 1 min 0 s for each start: one has time for all of it"]
        start, blocks = whole.start, [block for *_, block in whole.stages]
        parts = windows(start + 1.5, shape=(10**7, 64))
        (_, _, first), (name, seconds, block) = parts.stages
        assert first < block < 0.1
        assert (parts.longer, parts.impossible, parts.starts) == ([(name, seconds, block)], [], 3)
        assert "stage 'b' does not fit into one" in parts.lines()[1]
        few = windows(start + (blocks[0] + blocks[1]) / 2)  # (one block each)
        assert (few.starts, [stage[0] for stage in few.impossible]) == (None, ["b"])
        assert few.problems()[0].startswith("stage 'b': a block of it takes about 2.0 s, and a start has")
        assert "its processes take" in windows(start / 2).problems()[0]
        assert windows(start / 2, published=("a", "b")).problems() == []
        assert plan_of_calibrate().windows == replace(plan_of_calibrate(rates=None), window=9.0).windows == []
        worker = replace(plan_of_calibrate(), window=60.0, walltime=start + 1.5)
        assert [window.of for window in worker.windows] == ["start", "worker"]
        assert replace(worker, walltime=60.0).windows[1].lines() == []
        with pytest.raises(PlanError, match=r"stage .b.: .* and a worker has"):
            worker.refuse()

    def test_a_run_keeps_what_was_planned_beside_what_was_measured(self, write_job, rows, tmp_path):
        found = run_job(read_job(write_job()))
        planned = {stage["name"]: stage for stage in found["plan"]["stages"]}
        assert found["predicted_seconds"] == found["plan"]["seconds"] > 0
        for stage in found["stages"]:
            assert stage["predicted_seconds"] == pytest.approx(planned[stage["name"]]["seconds"], abs=1e-3)
            assert stage["seconds"] > 0
            assert set(stage["predicted_memory"]) == set(stage["memory"]) == {"worker", "coordinator", "total"}
            assert stage["predicted_memory"]["total"] <= found["predicted"]["total"]

    def test_the_command_line_says_the_time_and_calibrates(self, write_job, rows, monkeypatch):
        asked = []
        monkeypatch.setattr("bigembed.jobs.planning.plan.rates", lambda folder, renew: asked.append(renew) or RATES)
        for options in ([], ["--calibrate"]):
            done = CliRunner().invoke(app, ["plan", str(write_job()), *options])
            assert done.exit_code == 0, done.output
            assert "time: about" in done.stdout
        assert asked == [False, True]

    def test_a_refusal_proposes_what_fits(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.zeros((40_000, 4), "f4"))
        method, proposal = 'name = "landmark_diffusion_map"\nn_landmarks = 8000', "[method] n_landmarks = "
        job = job_file(tmp_path, method, more='[cluster]\nworkers = 1\nmemory = "600 MiB"')
        plan = plan_job(read_job(job))
        assert plan.problems()
        [advice] = plan.advice
        assert proposal in advice
        fitting = job.read_text().replace(
            "n_landmarks = 8000", advice.removeprefix("[method] ").removesuffix(" would fit")
        )
        (tmp_path / "fitting.toml").write_text(fitting)
        assert plan_job(read_job(tmp_path / "fitting.toml")).problems() == []
        done = CliRunner().invoke(app, ["run", str(job)])
        assert done.exit_code == 3
        assert proposal in done.stderr
        assert not Path(tmp_path / "run.zarr").exists()


PACKAGE = Path(bigembed.__file__).parent


def wanted(name):
    """Modules of a diffusion map."""
    stages = compilation.STAGES
    return {*compilation.SOLVE, *(stages[stage] for stage in stages if stage != "factors")}


class TestCompilation:
    """What a plan says of compilation: what is not kept of the stages to do; and methods that compile nothing."""

    @pytest.fixture
    def job(self, tmp_path):
        """A function that writes a job on some rows, and reads it."""

        def write(name="diffusion_map", n=20_000, cluster="", d=5):
            np.save(tmp_path / "rows.npy", np.zeros((n, d), "f4"))
            return job_in(tmp_path, f'name = "{name}"', more=cluster)

        return write

    @pytest.fixture
    def nothing_kept(self, tmp_path, monkeypatch):
        """As on a machine where nothing was compiled yet."""
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))

    def test_a_plan_counts_with_compilation_where_nothing_is_kept(self, job, nothing_kept):
        plan = plan_job(job())
        assert plan.compilation == pytest.approx(sum(map(compilation.SECONDS.get, wanted("diffusion_map"))))
        assert plan.as_dict()["compilation"] == plan.compilation > 20
        assert any("more for compilation at first use" in line for line in plan_lines(plan))
        assert plan_job(job("umap")).compilation > 10
        for name in ("pacmap", "tsne", "umap"):  # (of few rows, too: their descents are always compiled)
            assert plan_job(job(name, n=1000)).compilation == compilation.SECONDS[f"maps.{name}.compiled"] > 4
        assert plan_job(job(n=1000)).compilation == plan_job(job("pca")).compilation == 0
        assert not any("compilation" in line for line in plan_lines(plan_job(job("pca"))))

    def test_what_numba_keeps_is_left_out_until_the_source_changes(self, tmp_path, monkeypatch, nothing_kept):
        source = PACKAGE / "quality" / "compiled.py"
        kept = tmp_path / "kept" / "quality_0123"
        kept.mkdir(parents=True)
        index = kept / f"compiled.f-1.py{sys.version_info.major}{sys.version_info.minor}.nbi"
        assert not compilation.is_kept("quality.compiled")
        index.touch()
        assert compilation.is_kept("quality.compiled")
        assert not compilation.is_kept("neighbors.search.compiled")  # (another file of that name)
        os.utime(index, (0, source.stat().st_mtime - 1))
        assert not compilation.is_kept("quality.compiled")

    def test_a_machine_too_busy_to_measure_a_worker_is_said(self, monkeypatch):
        monkeypatch.setattr(calibrate, "PATIENCE", 0.01)
        with pytest.raises(InterruptedRun, match=r"not measured within 0.01 s.*Run again when it is idle"):
            calibrate._measured()

    def test_workers_of_a_method_that_compiles_nothing_are_planned_without_numba(self, job):
        cluster = '[cluster]\nworkers = 2\nmemory = "1 GiB"'
        feet = footprint(False)
        assert plan_job(job("pca", cluster=cluster)).resources.worker == feet.worker - feet.compiler + FIRST_USE
        assert plan_job(job(cluster=cluster)).resources.worker == feet.worker
        wide = plan_job(job("pca", cluster=cluster, d=700))  # (whose map is judged by compiled functions)
        assert wide.resources.worker == feet.worker

    def test_the_library_of_a_format_is_planned_in_every_process(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(50, 3))
        np.save(tmp_path / "rows.npy", rows)
        np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c", comments="")
        for cluster in ("", '[cluster]\nworkers = 2\nmemory = "1 GiB"'):
            found = []
            for name in ("rows.npy", "rows.csv"):
                file = tmp_path / f"{name}.toml"
                paths = f'[input]\npath = "{tmp_path / name}"\n[output]\npath = "{tmp_path / name}.zarr"\n'
                file.write_text(f'{paths}[method]\nname = "pca"\nn_components = 1\n{cluster}')
                found.append(plan_job(read_job(file)).resources)
            plain, table = found
            assert table.worker - plain.worker >= reader.ARROW
            assert table.coordinator - plain.coordinator >= reader.ARROW


ROWS = np.random.default_rng(0).normal(size=(1000, 14)).astype(np.float32)


def ran(job, **given):
    """The record of the job, and what it warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", BigembedWarning)
        found = run_job(job, **given)
    return found, " ".join(str(one.message) for one in said)


def published(job):
    """The digest of every stage of a run."""
    run = Run(job.output_path)
    return {name: run.manifest(name).digest for name in run.published()}


class TestWhatFits:
    """``algorithm="auto"`` takes what fits: cells where NN-descent does not, and plan, certificate and a warning say
    so."""

    @pytest.fixture(autouse=True)
    def few_cells(self, small_blocks, monkeypatch):
        """Small blocks, and shortlists that hold a small part of the cells, as those of many rows do."""
        for module in (shortlist, graph_stages):
            monkeypatch.setattr(module, "SHORTLIST", 3)
        monkeypatch.setattr(expected_recall, "LONGER", (3,))
        for name in ("SEED_PROBES", "WALK_PROBES", "SEEDS_BY_PAIRS"):
            monkeypatch.setattr(nn_descent, name, 1)

    @pytest.fixture
    def written(self, tmp_path):
        """A function that writes a job whose target cells cannot reach, and reads it."""
        np.save(tmp_path / "rows.npy", ROWS)

        def write(name: str, algorithm: str = AUTO, recall: float = 0.95, more: str = "") -> JobSpec:
            method = f'name = "diffusion_map"\nn_neighbors = 8\nrecall = {recall}\nalgorithm = "{algorithm}"\n{more}'
            return job_in(tmp_path, method, path=f"{name}.zarr", name=f"{name}.toml")

        return write

    @pytest.fixture
    def little(self, written, monkeypatch):
        """A function that makes the memory of this machine too little for NN-descent, and enough for cells; or whole
        again."""

        def worker(name):
            return plan_job(written(name, name)).peaks.worker

        monkeypatch.setattr("bigembed.jobs.planning.resources.imported_here", lambda picture: 100 << 20)
        few = int((worker("nn-descent") - 1) / TERMINATE)
        assert worker("cells") < TERMINATE * few

        def set_memory(whole: bool = False) -> None:
            monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1 << 36 if whole else few)

        return set_memory

    def test_a_plan_takes_the_search_that_fits_and_says_so(self, written, little):
        little(whole=True)
        assert not plan_job(written("run")).without_descent
        little()
        plan = plan_job(written("run"))
        assert plan.problems() == []
        assert plan.without_descent
        assert plan.as_dict()["without_descent"]
        said = " ".join(plan.notes)
        assert "neighbors by cells: NN-descent, which algorithm='auto' takes" in said
        assert "with NN-descent this process would hold" in said
        asked = plan_job(written("asked", "nn-descent"))  # (what is asked for is not replaced)
        assert asked.problems()
        assert asked.advice == ('[method] algorithm = "auto" would fit',)

    def test_what_had_to_be_chosen_is_in_certificate_warning_and_key(self, written, little):
        job = written("run")
        little()
        found, said = ran(job)
        recall = found["certificate"]["recall"]
        assert (recall["algorithm"], recall["forced"]) == ("cells", True)
        assert "needs more memory than a worker may hold here" in recall["why"]
        assert recall["recall"] < recall["target"]
        assert "below the target" in said
        assert "Give workers more memory" in said
        assert Run(job.output_path).manifest("witness").parameters["algorithm"] == WITHOUT_DESCENT
        before = published(job)
        again, _ = ran(job)
        assert all(stage["reused"] for stage in again["stages"] if stage["name"] in before)
        assert published(job) == before
        little(whole=True)
        whole, _ = ran(job)
        assert whole["certificate"]["recall"]["algorithm"] == "nn-descent"
        fresh = written("fresh")
        ran(fresh)
        assert published(job) == published(fresh)
        little()
        assert ran(job)[0]["unchanged"]  # (what was found with more memory is not thrown away)

    def test_lists_that_are_there_are_gone_on_from_with_less_memory(self, written, little):
        job = written("run")

        def stop(event):
            if (event.kind, event.stage) == ("done", "search"):
                raise InterruptedRun("enough")

        little(whole=True)
        with pytest.raises(InterruptedRun), warnings.catch_warnings(action="ignore"):
            run_job(job, RunOptions(observer=stop))
        little()
        plan = plan_job(job)
        assert "search" in plan.published
        assert not plan.without_descent
        assert plan.problems() == []
        found, _ = ran(job)
        assert found["certificate"]["recall"]["algorithm"] == "nn-descent"

    def test_what_cannot_be_done_by_any_search_is_refused(self, written, little, monkeypatch):
        little()
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1 << 20)
        plan = plan_job(written("run"))
        assert plan.problems()
        assert not [line for line in plan.notes if line.startswith("with NN-descent")]
