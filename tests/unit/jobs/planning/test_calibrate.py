"""The rates of the machine, and what a plan makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import InputError
from bigembed.jobs.planning import machine as calibrate
from bigembed.jobs.planning.machine import Rates, cache_file, footprint, rates
from bigembed.jobs.planning.notes import alternatives
from bigembed.jobs.planning.plan import Plan, make_plan
from bigembed.jobs.planning.resources import MESSAGES, PUBLISH, Resources, TimeModel
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.stages.stage import Cost, Stage

RATES = Rates(read=1e8, write=5e7, product=1e9, look=1e7)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache folder of its own; measured quickly, and not well."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for name, value in {"TRIES": 1, "TABLE": 1 << 18, "ROWS": 1 << 12, "SIDE": 128}.items():
        monkeypatch.setattr(calibrate, name, value)
    return folder


def test_rates_are_measured_once_and_renewed_when_asked(tmp_path, cache, monkeypatch):
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


def test_storage_is_measured_for_each_file_system(tmp_path, monkeypatch):
    first = rates(tmp_path)
    cache_file("rates").write_text(json.dumps({"compute": {"product": 1.0, "look": 2.0}}))
    assert rates(tmp_path).product == 1.0
    assert rates(tmp_path).read != first.read  # measured again: this one was not known
    cache_file("rates").write_text("{")
    assert rates(tmp_path).product > 1.0


@pytest.mark.parametrize("more", [{"unheard": 5.0}, {"read": "fast"}, {"write": -1}, None, [3]])
def test_what_another_version_remembers_is_no_hindrance(tmp_path, more):
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


def test_without_a_cache_folder_it_is_measured_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert rates(tmp_path).product > 0


def test_a_footprint_is_measured_again_only_where_it_may_be_another_one(monkeypatch):
    measured = []

    def measure():
        measured.append(1)
        return dict.fromkeys(("worker", "coordinator", "single", "picture", "helper"), 0) | {"task": len(measured)}

    def found(*renew):
        footprint.cache_clear()  # (as in another process)
        return footprint(*renew).task

    monkeypatch.setattr("bigembed.jobs.planning.machine._measured", measure)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [found(), found(), found(True), found()] == [1, 1, 2, 2]
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    assert [found(), found()] == [3, 3]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert found() == 2
    for number in range(20):
        monkeypatch.setenv("OMP_NUM_THREADS", f"{number}")
        found()
    assert len(json.loads(cache_file("footprint").read_text())) == 8
    for number, damaged in enumerate(('{"a": 1}', "{", '{"a": {"measured": 1, "footprint": {"b": 2}}}')):
        cache_file("footprint").write_text(damaged)
        assert found() == 24 + number
    footprint.cache_clear()


def test_seconds_of_a_stage():
    pace = TimeModel(RATES, at_once=2, task=0.0, start=3.0)
    assert pace.seconds(Cost(), 1) == PUBLISH
    assert pace.seconds(Cost(passes=1, read=10**8, write=10**8, flops=1e9, scalar_ops=1e7), 9) == PUBLISH + 5 / 2
    assert pace.seconds(Cost(passes=1, read=10**8), 1) == PUBLISH + 1  # one block, one worker
    assert pace.seconds(Cost(serial_flops=1e9), 9) == PUBLISH + 1  # one process, however many there are
    assert pace.seconds(Cost(disk=10**8), 1) == PUBLISH + 1  # read back for its digests
    assert pace.seconds(Cost(exchanged=10**9), 9) == PUBLISH + 1 / 2
    slow = TimeModel(RATES, at_once=2, task=0.01, start=3.0)
    assert slow.seconds(Cost(passes=10), 4) == pytest.approx(PUBLISH + 10 * (MESSAGES + 2) * 0.01)
    assert slow.seconds(Cost(passes=10, maps=2), 4) == pytest.approx(PUBLISH + 2 * (MESSAGES + 2) * 0.01)
    assert slow.seconds(Cost(passes=1, blocks=8), 4) == pytest.approx(PUBLISH + (MESSAGES + 4) * 0.01)


def plan_of(**changes):
    place = Resources("embedded", 1, None, 0, 0, 0, 0.0, 3.0)
    stages = (("a", Cost(read=10**8)), ("b", Cost(read=2 * 10**8)))
    return Plan(
        "in", "out", (10, 2), "float32", place, stages, **{"published": (), "free_disk": 1, "rates": RATES} | changes
    )


def test_seconds_of_a_plan():
    assert plan_of().stage_seconds == {"a": 1 + PUBLISH, "b": 2 + PUBLISH}
    assert plan_of().seconds == 6 + 2 * PUBLISH
    assert plan_of(published=("b",)).seconds == 4 + PUBLISH
    assert plan_of(rates=None).seconds is None
    assert plan_of(rates=None).stage_seconds == {}


def test_a_run_keeps_what_was_planned_beside_what_was_measured(write_job, rows, tmp_path):
    found = run_job(read_job(write_job()))
    planned = {stage["name"]: stage for stage in found["plan"]["stages"]}
    assert found["predicted_seconds"] == found["plan"]["seconds"] > 0
    for stage in found["stages"]:
        assert stage["predicted_seconds"] == pytest.approx(planned[stage["name"]]["seconds"], abs=1e-3)
        assert stage["seconds"] > 0
        assert set(stage["predicted_memory"]) == set(stage["memory"]) == {"worker", "coordinator", "total"}
        assert stage["predicted_memory"]["total"] <= found["predicted"]["total"]


def test_the_command_line_says_the_time_and_calibrates(write_job, rows, monkeypatch):
    asked = []
    monkeypatch.setattr("bigembed.jobs.planning.plan.rates", lambda folder, renew: asked.append(renew) or RATES)
    for options in ([], ["--calibrate"]):
        done = CliRunner().invoke(app, ["plan", str(write_job()), *options])
        assert done.exit_code == 0, done.output
        assert "time: about" in done.stdout
    assert asked == [False, True]


def test_a_refusal_proposes_what_fits(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((40_000, 4), "f4"))
    method, proposal = 'name = "landmark_diffusion_map"\nn_landmarks = 8000', "[method] n_landmarks = "
    job = tmp_path / "job.toml"
    cluster = '[cluster]\nworkers = 1\nmemory = "600 MiB"'
    job.write_text(f'[input]\npath = "rows.npy"\n[method]\n{method}\n[output]\npath = "run.zarr"\n{cluster}\n')
    plan = make_plan(read_job(job))
    assert plan.problems()
    [advice] = plan.advice
    assert proposal in advice
    fitting = job.read_text().replace("n_landmarks = 8000", advice.removeprefix("[method] ").removesuffix(" would fit"))
    (tmp_path / "fitting.toml").write_text(fitting)
    assert make_plan(read_job(tmp_path / "fitting.toml")).problems() == []
    done = CliRunner().invoke(app, ["run", str(job)])
    assert done.exit_code == 3
    assert proposal in done.stderr
    assert not Path(tmp_path / "run.zarr").exists()


def test_where_nn_descent_would_not_fit_on_the_disk_the_automatic_choice_is_proposed(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", np.zeros((200_000, 4), "f4"))
    job = tmp_path / "job.toml"
    method = '[method]\nname = "diffusion_map"\nalgorithm = "nn-descent"\n'
    job.write_text(f'[input]\npath = "rows.npy"\n{method}[output]\npath = "run.zarr"\n')
    whole = make_plan(read_job(job))
    assert not whole.problems()
    monkeypatch.setattr("bigembed.jobs.planning.plan.free_bytes", lambda folder: whole.disk_peak - 1)
    plan = make_plan(read_job(job))
    assert "would be written at the most" in plan.problems()[0]
    assert list(plan.advice) == ['[method] algorithm = "auto" would fit']


class Solver:
    """An estimator with a choice of solvers, as far as a proposal looks at one."""

    def __init__(self, solver="exact", n_landmarks=400):
        self.solver, self.n_landmarks = solver, n_landmarks

    def get_params(self):
        return {"solver": self.solver, "n_landmarks": self.n_landmarks}

    def stages(self):
        if self.solver == "landmarks":
            raise InputError("unknown here")
        return [Stage("solve", (), {}, dict, Cost(memory=self.n_landmarks if self.solver == "nystrom" else 10**9))]


@pytest.mark.parametrize(
    ("room", "expected"),
    [(400, ['[method] solver = "nystrom" would fit']), (399, []), (10**9, ["both"])],
)
def test_proposals_are_planned_and_one_of_a_kind(room, expected):
    found = alternatives(Solver(), lambda other: other.stages()[0].cost.memory <= room)
    both = ['[method] solver = "nystrom" would fit', "[method] n_landmarks = 200 would fit"]
    assert found == (both if expected == ["both"] else expected)
    fewer = alternatives(Solver("nystrom"), lambda other: other.stages()[0].cost.memory <= 100)
    assert fewer == ["[method] n_landmarks = 100 would fit"]
