"""status.json: true while a job runs, and after it ended in any way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError, InterruptedRun, PlanError
from bigembed.jobs.extend import extend, status_path
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.jobs.watching.status import Status, read_status
from bigembed.runtime.runtime import Event
from bigembed.store.locks import hold

ROOT = Path(__file__).parents[4]


def test_of_a_run_that_ends_well(write_job, rows, tmp_path):
    seen = []

    def look(event):
        seen.append(json.loads((tmp_path / "run.zarr" / "status.json").read_text()))

    run_job(read_job(write_job()), RunOptions(look))
    assert [(s["state"], s["stage"], s["finished_stages"]) for s in seen] == [
        ("running", "mean", []),
        ("running", "mean", ["mean"]),
        ("running", "center", ["mean"]),
        ("running", "center", ["mean", "center"]),
    ]
    assert seen[0]["stages"] == ["mean", "center"]
    assert {"user", "pid", "host", "since"} == set(seen[0]["owner"])
    last = read_status(tmp_path / "run.zarr")
    assert (last["state"], last["error"], last["deadline"]) == ("done", None, None)
    assert last["started"] <= last["updated"]
    run_job(read_job(write_job()))
    assert read_status(tmp_path / "run.zarr") == last


def test_of_failures(write_job, rows, tmp_path, monkeypatch):
    root = tmp_path / "run.zarr"

    def broken(*_):
        raise ZeroDivisionError("oh")

    run_job(read_job(write_job()))
    with pytest.raises(PlanError):
        run_job(read_job(write_job(f"n_components = 1\nmemory = {1 << 50}")))
    found = read_status(root)
    assert (found["state"], found["error"]["status"], found["error"]["kind"]) == ("failed", 3, "PlanError")
    with pytest.raises(InputError):
        run_job(read_job(write_job("n_components = 7")))
    assert read_status(root)["error"]["status"] == 2
    with monkeypatch.context() as patch:
        patch.setattr("tests.unit.jobs.small_method.Small.fit", broken)
        with pytest.raises(ZeroDivisionError):
            run_job(read_job(write_job("n_components = 3")))
    assert read_status(root)["error"] == {"status": 1, "kind": "ZeroDivisionError", "message": "oh"}
    assert run_job(read_job(write_job()))["finished"]
    assert read_status(root)["state"] == "done"


def test_a_deadline_leaves_a_resumable_run_and_says_so(write_job, rows, tmp_path):
    with pytest.raises(InterruptedRun, match="stopped by its deadline"):
        run_job(read_job(write_job("pause = 9.0")), RunOptions(deadline=time.time() + 3.0))
    found = read_status(tmp_path / "run.zarr")
    assert (found["state"], found["stage"], found["error"]["status"]) == ("interrupted", "mean", 5)
    assert "deadline" in found["error"]["message"]
    assert found["deadline"] is not None
    assert run_job(read_job(write_job()))["finished"]


def test_of_a_run_that_was_killed(write_job, rows, tmp_path):
    command = [sys.executable, "-m", "tests.unit.jobs.small_cli", "run", str(write_job("pause = 30.0"))]
    process = subprocess.Popen(command, cwd=ROOT)
    while read_status(tmp_path / "run.zarr").get("state") != "running":
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert json.loads((tmp_path / "run.zarr" / "status.json").read_text())["state"] == "running"
    found = read_status(tmp_path / "run.zarr")
    assert (found["state"], found["stage"], found["error"]["status"]) == ("interrupted", "mean", 5)


def test_progress_is_written_now_and_then(tmp_path, monkeypatch):
    with hold(tmp_path) as lock, Status(tmp_path / "status.json", lock.owner) as status:
        status.event(Event("start", "search"))
        status.progress("near", 1, 9)
        assert read_status(tmp_path)["done"] == 0
        monkeypatch.setattr("bigembed.jobs.watching.status.SECONDS", 0.0)
        status.progress("near", 2, 9)
        found = read_status(tmp_path)
        assert (found["stage"], found["label"], found["done"], found["total"]) == ("search", "near", 2, 9)
    assert not list(tmp_path.glob("*.partial"))
    assert read_status(tmp_path / "none") == {}


def test_of_an_extension(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    np.save(tmp_path / "new.npy", X)
    be.PCA(n_components=2).fit(X).save(tmp_path / "model.zarr")
    out = tmp_path / "out.zarr"
    with pytest.raises(PlanError):
        extend(tmp_path / "model.zarr", tmp_path / "new.npy", out, ClusterTable(workers=2, memory=1 << 20))
    assert not status_path(out).exists()
    with hold_of(out), pytest.raises(be.errors.LockedError, match="held by"):
        extend(tmp_path / "model.zarr", tmp_path / "new.npy", out)
    assert not status_path(out).exists()
    extend(tmp_path / "model.zarr", tmp_path / "new.npy", out)
    found = json.loads(status_path(out).read_text())
    assert (found["state"], found["finished_stages"]) == ("done", ["extend"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.zarr",
        "new.npy",
        "out.zarr",
        status_path(out).name,
    ]


def hold_of(out):
    """Another one that writes the same."""
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import locked

    return locked(Run(f"{out}.partial"))
