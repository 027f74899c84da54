"""The real method: the whole job, or a worker, is killed in each stage; the answer stays the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = """
[input]
path = "rows.zarr"
dataset = "swiss_roll"
n = 12000
[method]
name = "diffusion_map"
n_components = 3
n_neighbors = 8
[output]
path = "{name}.zarr"
model = "{name}-model.zarr"
[cluster]
workers = 2
memory = "1 GiB"
"""


def write(folder, name):
    (folder / f"{name}.toml").write_text(JOB.format(name=name))
    return folder / f"{name}.toml"


def start(job):
    command = [sys.executable, "-m", "bigembed.cli", "run", str(job), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def events_of(process, until=None):
    """Events as they come, up to the start of a stage."""
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if until and (found[-1]["event"], found[-1].get("stage")) == ("start", until):
            break
    return found


def finish(job):
    process = start(job)
    events = events_of(process)
    process.communicate()
    assert process.returncode == 0, events[-1]
    return events


def digests(root):
    files = sorted(Path(root, "manifest").glob("*.json"))
    return {file.stem: json.loads(file.read_text())["files"] for file in files}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An undisturbed run: its folder, the stages in their order, their digests."""
    folder = tmp_path_factory.mktemp("resume")
    events = finish(write(folder, "reference"))
    stages = [event["stage"] for event in events if event["event"] == "done"]
    return (folder, [stage for stage in stages if stage not in ("input", "model")], digests(folder / "reference.zarr"))


def test_the_whole_job_killed_in_each_stage(reference):
    folder, stages, expected = reference
    job = write(folder, "killed")
    for number, stage in enumerate(stages):
        process = start(job)
        events = events_of(process, until=stage)
        reused = [event["stage"] for event in events if event["event"] == "reused"]
        assert reused == stages[: max(0, number - 1)]  # the one before was killed as it started
        process.kill()
        process.communicate()
    finish(job)
    assert digests(folder / "killed.zarr") == expected


def worker_of(process):
    """A worker of the job, if one stands: after a kill its successor takes some seconds, or the job has ended."""
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):  # it ended meanwhile
                if "spawn_main" in " ".join(child.cmdline()):
                    return child.pid
    return None


def test_a_worker_killed_in_each_stage(reference):
    folder, stages, expected = reference
    job = write(folder, "worker")
    process, killed = start(job), []
    for stage in stages:
        events_of(process, until=stage)
        worker = worker_of(process)
        if worker is not None:
            os.kill(worker, signal.SIGKILL)
            killed.append(stage)
    events = events_of(process)
    process.communicate()
    assert process.returncode == 0, events[-1]
    assert digests(folder / "worker.zarr") == expected
    assert len(killed) >= len(stages) - 2, killed  # a successor may not stand yet
