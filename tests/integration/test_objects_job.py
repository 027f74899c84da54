"""A job whose every path is a URL, as a process with an embedded cluster, on a real S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.jobs.watching.status import read_status
from bigembed.store import at, stored
from tests.fault.night import Cluster
from tests.job_files import job_file
from tests.s3 import ABSENT, KEY, SECRET, weed

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(weed() is None, reason=ABSENT)]
WORKERS = '[cluster]\nworkers = 2\nmemory = "1 GiB"'


def write(folder, home, method='name = "pca"', n=30_000, cluster=WORKERS):
    source = f'dataset = "swiss_roll"\nn = {n}\npath = "{home}/points.zarr"'
    output = f'model = "{home}/model.zarr"\npicture = "{home}/map.png"\nreport = "{home}/report.html"'
    return job_file(folder, f"{method}\nn_components = 2", source, output, cluster, f"{home}/run.zarr")


def start(*arguments):
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "bigembed.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)


def run(*arguments, status=0):
    process = start(*arguments, "--json")
    out, problems = process.communicate()
    assert process.returncode == status, problems
    assert SECRET not in out + problems
    return problems if status == 2 else json.loads(out.splitlines()[-1])


def inside(*arguments, status=0):
    """As ``run``, without a process of its own."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == status, done.output
    assert SECRET not in done.output
    return done.stderr if status == 2 else json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("n", "cluster"), [(10_000, ""), pytest.param(30_000, WORKERS, marks=pytest.mark.slow)])
def test_a_job_in_an_object_store(tmp_path, server, n, cluster):
    home = f"{server.url}/job{n}"
    job = write(tmp_path, home, n=n, cluster=cluster)
    assert inside("plan", job)["free_disk"] is None
    assert not at(home).exists()  # a plan writes nothing
    first = run("run", job)
    assert not first["unchanged"]
    assert run("run", job)["unchanged"]
    assert not inside("verify", f"{home}/run.zarr")["problems"]
    assert inside("report", f"{home}/run.zarr", "--out", tmp_path / "page.html")["points"] == n
    for _ in range(2):  # (the second time it is done already)
        inside("extend", f"{home}/model.zarr", f"{home}/points.zarr", f"{home}/again.zarr")
    inside("extend", f"{home}/model.zarr", f"{home}/again.zarr", f"{home}/again.zarr", status=2)
    placed = be.open_array(f"{home}/again.zarr").compute(scheduler="synchronous")
    fitted = be.open_array(f"{home}/run.zarr/stages/coordinates/embedding").compute(scheduler="synchronous")
    np.testing.assert_array_equal(placed, fitted)
    shown = be.open_array(f"{home}/run.zarr/coordinates").compute(scheduler="synchronous")  # (copies, not links)
    np.testing.assert_array_equal(shown, fitted)
    assert (at(home) / "map.png").read_bytes().startswith(b"\x89PNG")
    assert (at(home) / "report.html").read_text().startswith("<!doctype html>")
    assert read_status(at(home) / "run.zarr")["state"] == "done"
    lines = [json.loads(line) for line in (at(home) / "run.zarr" / "log.jsonl").read_text().splitlines()]
    assert {"started", "planned", "done"} <= {line.get("event") for line in lines}
    local = be.PCA(n_components=2).fit(be.open_array(f"{home}/points.zarr").compute(scheduler="synchronous"))
    np.testing.assert_allclose(np.abs(local.embedding_[:]), np.abs(fitted), rtol=1e-6, atol=1e-8)
    for file in stored(server.url):
        content = (at(server.url) / file.name).read_bytes()
        assert SECRET.encode() not in content, file.name
        assert KEY.encode() not in content, file.name
    shard = next(file for file in stored(f"{home}/run.zarr/stages/coordinates/embedding") if file.name != "zarr.json")
    (at(f"{home}/run.zarr/stages/coordinates/embedding") / shard.name).unlink()
    inside("verify", f"{home}/run.zarr", status=6)


def test_what_is_wrong_is_said(tmp_path, server, monkeypatch):
    home = f"{server.url}/wrong"
    job = write(tmp_path, home)
    assert "no such path" in run("run", _with(job, 'dataset = "swiss_roll"\nn = 30000\n', ""), status=2)
    assert "do not belong" in run("run", _with(write(tmp_path, home), "s3://bucket", f"s3://{KEY}:x@bucket"), status=2)
    assert "not a kind of store" in run("run", _with(write(tmp_path, home), "s3://bucket", "ftp://bucket"), status=2)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert "environment of each process" in run("run", write(tmp_path, home), status=2)


def _with(job, old, new):
    text = job.read_text()
    assert old in text
    job.write_text(text.replace(old, new))
    return job


@pytest.mark.slow
def test_workers_without_credentials_are_named(tmp_path, server):
    home = f"{server.url}/blind"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with Cluster(tmp_path, bare) as cluster:
        job = _with(
            write(tmp_path, home), 'workers = 2\nmemory = "1 GiB"', f'address = "{cluster.address}"\nworkers = 2'
        )
        problems = run("run", job, status=2)
    assert "nothing was started" in problems
    assert problems.count("no credentials were found") == 2
