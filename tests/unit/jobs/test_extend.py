"""Extension as a job: planned, refused, told, measured."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import PlanError
from bigembed.estimator.transform import aside_of
from bigembed.jobs.extend import extend, plan_extension
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.stages.runs import Run

pytestmark = pytest.mark.filterwarnings("ignore:Trustworthiness:bigembed.errors.MapWarning")  # four even dimensions


@pytest.fixture
def model(tmp_path):
    X = np.random.default_rng(0).normal(size=(400, 4)) * [1.2, 1, 0.2, 0.2]  # two coordinates show them
    np.save(tmp_path / "new.npy", X[:150] + 0.01)
    be.DiffusionMap(n_components=2, n_neighbors=8).fit(X).save(tmp_path / "model.zarr")
    return tmp_path / "model.zarr"


def bigembed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_extension_is_planned_told_and_measured(model, tmp_path):
    told = []
    found = extend(
        model,
        tmp_path / "new.npy",
        tmp_path / "out",
        options=RunOptions(lambda event: told.append(event.kind), lambda *part: told.append(part)),
    )
    assert (found["n"], found["n_components"]) == (150, 2)
    assert 0 < found["measured"]["total"] <= found["predicted"]["total"]
    kinds = [one for one in told if isinstance(one, str)]
    assert (told[0], kinds[-1]) == ("start", "done")
    assert ("extend_group", 1, 1) in told


def test_what_does_not_fit_is_refused_before_anything_is_written(model, tmp_path, monkeypatch):
    before = sorted(path.name for path in tmp_path.iterdir())
    tight = ClusterTable(workers=2, memory=1 << 20)
    with pytest.raises(PlanError, match="refused; nothing was started"):
        extend(model, tmp_path / "new.npy", tmp_path / "out", tight)
    done = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--workers", "2", "--memory", "1 MiB")
    assert done.exit_code == 3
    plan = plan_extension(model, tmp_path / "new.npy", tmp_path / "out")
    assert plan.problems() == []
    assert plan.stages[0][1].memory < plan_of_more(model, tmp_path).stages[0][1].memory
    assert sorted(path.name for path in tmp_path.iterdir()) == [*before[:-1], "more.npy", before[-1]]


def plan_of_more(model, tmp_path):
    np.save(tmp_path / "more.npy", np.zeros((2_000, 4)))
    return plan_extension(model, tmp_path / "more.npy", tmp_path / "out")


def test_the_command_line_plans_and_extends(model, tmp_path):
    planned = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--plan")
    assert planned.exit_code == 0
    assert "memory at the most" in planned.stdout
    assert not (tmp_path / "out").exists()
    done = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--json")
    assert done.exit_code == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert next(event["event"] for event in events if event.get("stage") == "extend") == "start"
    assert events[-1]["measured"]["total"] > 0
    assert bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out").exit_code == 2


def test_what_a_stopped_extension_left_is_room_for_what_goes_on(model, tmp_path, monkeypatch):
    new, out = tmp_path / "new.npy", tmp_path / "out"
    assert plan_extension(model, new, out).remains == (0, 0)
    assert not aside_of(out).exists()
    left = Run(aside_of(out)).root / "stages" / "extend"
    left.mkdir(parents=True)
    (left / "begun").write_bytes(bytes(1 << 20))
    monkeypatch.setattr("bigembed.jobs.extend.free_bytes", lambda folder: 0)
    plan = plan_extension(model, new, out)
    assert 1 << 20 <= plan.remains[0] < 2 << 20
    assert plan.problems() == []
    (left / "begun").unlink()
    assert "0 B are free; free" in plan_extension(model, new, out).problems()[0]
