"""Jobs as processes: signals, locks, kills, resuming; nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.maps import REGISTRY
from tests.job_files import job_file
from tests.unit.jobs.small_method import NAME, PLACE

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.cluster
LONG = 280
"""Seconds that a process may take to end on a busy machine."""


def write(folder, pause, cluster="workers = 2\nmemory = '1 GiB'", n=14_000):
    """A job; without workers this process ends what others began."""
    if not (folder / "rows.npy").exists():
        np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((n, 1000), dtype="f4"))
    method = f'name = "small"\npause = {pause}'
    return job_file(folder, method, output='model = "model.zarr"', more=f"[cluster]\n{cluster}")


def command(*arguments):
    return [sys.executable, "-m", "tests.unit.jobs.small_cli", *map(str, arguments)]


def start(*arguments):
    pipe = subprocess.PIPE
    return subprocess.Popen(command(*arguments), stdout=pipe, stderr=pipe, text=True, cwd=ROOT, start_new_session=True)


def run(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, cwd=ROOT, check=False)


def here(*arguments):
    """The command in this process, which needs no other to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, NAME, PLACE)
        return CliRunner().invoke(app, [*map(str, arguments)])


def wait_for(process, folder, stage):
    """Wait until a job says in its status that it is at a stage."""
    while process.poll() is None:
        status = folder / "run.zarr" / "status.json"
        found = json.loads(status.read_text()) if status.exists() else {}
        if (found.get("stage"), found.get("owner", {}).get("pid")) == (stage, process.pid):
            return
        time.sleep(0.02)
    pytest.fail(f"{stage!r} never came: {process.communicate()}")


@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_a_signal_stops_in_good_order_and_the_same_command_goes_on(tmp_path, number, group):
    job = write(tmp_path, 60.0)  # (a second command starts and is refused meanwhile)
    process = start("run", job)
    wait_for(process, tmp_path, "mean")
    second = here("run", job)
    assert second.exit_code == 4
    assert f"process {process.pid} on {os.uname().nodename}) since 20" in second.stderr
    time.sleep(0.5)
    children = psutil.Process(process.pid).children(recursive=True)
    (os.killpg if group else os.kill)(process.pid, number)
    _, problems = process.communicate(timeout=LONG)
    assert process.returncode == 5, problems
    assert number.name in problems
    assert "Traceback" not in problems
    psutil.wait_procs(children, timeout=LONG)
    assert not [child for child in children if child.is_running()]
    done = here("run", write(tmp_path, 0.0, ""))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "model.zarr").exists()


def test_a_killed_job_leaves_no_workers_and_is_resumed(tmp_path):
    done = here("run", write(tmp_path, 0.0, ""))
    assert done.exit_code == 0, done.stderr
    manifest = tmp_path / "run.zarr" / "manifest" / "center.json"
    expected = json.loads(manifest.read_text())["files"]
    (tmp_path / "run.zarr" / "manifest" / "mean.json").unlink()
    process = start("run", write(tmp_path, 60.0))
    wait_for(process, tmp_path, "mean")
    time.sleep(0.5)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate()
    psutil.wait_procs(children, timeout=LONG)
    assert not [child for child in children if child.is_running()]
    done = run("run", write(tmp_path, 0.0))
    assert done.returncode == 0, done.stderr
    assert json.loads(manifest.read_text())["files"] == expected
    record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
    assert 0 < record["measured"]["total"] <= record["predicted"]["total"]
    assert record["measured"]["worker"] <= record["predicted"]["worker"]
    assert record["measured"]["coordinator"] <= record["predicted"]["coordinator"]
