"""The scripts that a scheduler calls: their help, their exit statuses, what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigembed.jobs.growth.audit import DUE
from bigembed.jobs.growth.versions import open_growth
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import write_array
from bigembed.store.growing import append_rows

ROOT = Path(__file__).parents[2]
SCRIPTS = ["refresh", "extend", "audit", "sweep"]
pytestmark = pytest.mark.skipif(not (ROOT / "workflows").exists(), reason="needs the repository")


def call(script, *arguments, width="200"):
    command = [sys.executable, str(ROOT / "workflows" / f"{script}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": width, "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
    code, out, problems = call(script, "--help")
    assert (code, problems) == (0, "")
    text = " ".join(out.split())
    for word in ("--scheduler", "--deadline", "--json", "Exit status: 0", "4 another", "5 interrupted"):
        assert word in text, word
    assert ("7 refresh due" in text) == (script == "audit")


@pytest.fixture
def job(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype("f4")
    write_array(tmp_path / "points.zarr", rows)
    (tmp_path / "job.toml").write_text(
        '[input]\npath = "points.zarr"\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "out.zarr"\n'
    )
    return tmp_path / "job.toml"


def test_a_day_of_the_scripts(job, tmp_path):
    code, _, problems = call("extend", job)
    assert code == 2
    assert "Run workflows/refresh.py" in problems
    assert not (tmp_path / "out.zarr").exists()
    code, out, _ = call("refresh", job)
    assert code == 0
    assert "300 rows fitted" in out
    append_rows(tmp_path / "points.zarr", np.random.default_rng(1).normal(size=(200, 4)).astype("f4") * 4)
    code, out, _ = call("extend", job, "--json")
    assert code == 0
    result = json.loads(out.splitlines()[-1])
    assert (result["event"], result["placed"], result["rows"]) == ("result", 200, 500)
    code, out, problems = call("audit", job)
    assert code == DUE == 7
    assert "refresh due: the median distance" in out
    assert problems == ""
    assert json.loads((tmp_path / "out.zarr" / "audit.json").read_text())["due"]
    code, _, problems = call("refresh", job, "--deadline", "0s")
    assert code == 5
    assert "deadline" in problems
    assert open_growth(tmp_path / "out.zarr").current.fitted == 300


def test_the_example_is_a_job_that_can_grow():
    from bigembed.jobs.identity import key_of_growth

    example = read_job(ROOT / "workflows" / "growing.toml")
    assert example.output.model is None
    assert not example.aligned
    assert len(key_of_growth(example)) == 64


def test_wrong_values_of_a_sweep(job):
    code, _, problems = call("sweep", job, "--vary", "n_components")
    assert code == 2
    assert "NAME=VALUE" in problems
    code, _, problems = call("sweep", job, "--vary", "n_componets=1,2")
    assert code == 2
    assert "did you mean 'n_components'?" in problems
