"""The commands that a scheduler calls, and their scripts: help, exit statuses, what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.jobs.growth.audit import DUE
from bigembed.jobs.growth.versions import open_growth
from bigembed.jobs.parameters import points_of
from bigembed.jobs.spec import read_job
from bigembed.rows.growing import append_rows
from bigembed.store.arrays import write_array

ROOT = Path(__file__).parents[2]
SCRIPTS = ["refresh", "extend", "audit", "sweep"]
pytestmark = pytest.mark.skipif(not (ROOT / "workflows").exists(), reason="needs the repository")


def called(*words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def bigembed(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_the_commands(script):
    assert f"from bigembed.cli import {script}\n" in (ROOT / "workflows" / f"{script}.py").read_text()
    code, out, problems = bigembed(script, "--help")
    assert (code, problems) == (0, "")
    for word in ("--scheduler", "--deadline", "--json"):
        assert word in out, word
    assert ("7 refresh due" in " ".join(out.split())) == (script == "audit")


def test_a_script_runs():
    done = called(ROOT / "workflows" / "audit.py", "none.toml")
    assert (done.returncode, "no such job file" in done.stderr) == (2, True)


@pytest.fixture
def job(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype("f4")
    write_array(tmp_path / "points.zarr", rows)
    (tmp_path / "job.toml").write_text(
        '[input]\npath = "points.zarr"\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "out.zarr"\n'
    )
    return tmp_path / "job.toml"


def test_a_day_of_the_commands(job, tmp_path):
    code, _, problems = bigembed("extend", job)
    assert code == 2
    assert "Run bigembed refresh" in problems
    assert not (tmp_path / "out.zarr").exists()
    code, out, _ = bigembed("refresh", job)
    assert code == 0
    assert "300 rows fitted" in out
    append_rows(tmp_path / "points.zarr", np.random.default_rng(1).normal(size=(200, 4)).astype("f4") * 4)
    code, out, _ = bigembed("extend", job, "--json")
    assert code == 0
    result = json.loads(out.splitlines()[-1])
    assert (result["event"], result["placed"], result["rows"]) == ("result", 200, 500)
    code, out, problems = bigembed("audit", job)
    assert code == DUE == 7
    assert "refresh due: the median distance" in out
    assert problems == ""
    assert json.loads((tmp_path / "out.zarr" / "audit.json").read_text())["due"]
    code, _, problems = bigembed("refresh", job, "--deadline", "0s")
    assert code == 5
    assert "deadline" in problems
    assert open_growth(tmp_path / "out.zarr").current.fitted == 300


def test_the_example_is_a_job_that_can_grow():
    from bigembed.jobs.identity import key_of_growth

    example = read_job(ROOT / "workflows" / "growing.toml")
    assert example.output.model is None
    assert not example.aligned
    assert len(key_of_growth(example)) == 64


def test_the_example_of_a_sweep():
    labels = [point.label for point in points_of(read_job(ROOT / "workflows" / "sweep.toml"))]
    assert labels == [*(f"diffusion_map, alpha={value}" for value in (0, 0.5, 1)), "isomap", "pca"]


def test_the_two_ways_to_extend_are_not_mixed(job, tmp_path):
    for words in ([job, "--table", "x.csv"], [job, "--plan"], [job, "new.npy"], [job, "a.npy", "b.zarr", "--verify"]):
        code, _, problems = bigembed("extend", *words)
        assert code == 2
        assert "growing store" in problems
    code, _, problems = bigembed("extend", tmp_path)
    assert (code, "a folder" in problems) == (2, True)
