"""deploy/airflow and deploy/prefect for real, in environments of their own: exit statuses, a day of a growing store."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from bigembed import append_rows, open_growth
from bigembed.store.arrays import write_array
from tests.deploy.processes import DEPLOY, ROOT, environment
from tests.deploy.venvs import venv
from tests.job_files import job_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (DEPLOY / "airflow").exists(), reason="needs the repository"),
]
AIRFLOW, PREFECT = "3.3.2", "3.8.8"
CHECKS = ROOT / "tests" / "deploy"


def drawn(n, seed):
    """Rows whose two leading directions stay where they are when more come: else a refresh would end with status 9."""
    return (np.random.default_rng(seed).normal(size=(n, 4)) * [9, 4, 0.5, 0.5]).astype("f4")


@pytest.fixture
def growing(tmp_path):
    """A store, its job file, and an installation that calls this working tree."""
    home = tmp_path / "bigembed"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "bigembed").write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m bigembed.cli "$@"\n'
    )
    (home / "bin" / "bigembed").chmod(0o755)
    write_array(tmp_path / "points.zarr", drawn(300, 0))
    job_file(tmp_path, source='path = "points.zarr"', path="out.zarr")
    return tmp_path


def variables(folder, **more):
    own = environment(BIGEMBED_HOME=str(folder / "bigembed"), BIGEMBED_JOB=str(folder / "job.toml"), **more)
    del own["PYTHONPATH"]  # (an environment of its own)
    return own


def call(words, folder, **more):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=variables(folder, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def a_day(folder, turn):
    """First model, nothing due, rows of another kind, extended, and fitted anew; ``turn`` runs a flow by its name."""
    current = lambda: open_growth(folder / "out.zarr").current  # noqa: E731
    turn("first")
    assert current().fitted == 300
    turn("refresh")
    assert current().fitted == 300
    append_rows(folder / "points.zarr", 4 * drawn(200, 1))
    turn("extend")
    assert (current().fitted, current().coordinates.shape) == (300, (500, 2))
    turn("refresh")
    assert (current().fitted, current().coordinates.shape) == (500, (500, 2))


# -------------------------------------------------------------------------------------- Airflow


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    """Programs of an environment with Airflow."""
    with venv(tmp_path_factory.mktemp("airflow") / "venv", f"apache-airflow=={AIRFLOW}") as programs:
        yield programs


def settings(folder):
    return {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DEPLOY / "airflow"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def test_airflow_imports_the_dags_and_knows_the_exit_statuses(airflow, growing):
    call([airflow / "airflow", "db", "migrate"], growing, **settings(growing))
    out = call(
        [airflow / "python", CHECKS / "airflow_checks.py", DEPLOY / "airflow" / "bigembed_dags.py"],
        growing,
        **settings(growing),
    )
    found = json.loads(out.splitlines()[-1])
    assert found["errors"] == {}
    assert set(found["dags"]) == {"bigembed_first", "bigembed_append", "bigembed_extend", "bigembed_refresh"}
    for dag in found["dags"].values():
        assert (dag["catchup"], dag["runs"]) == (False, 1)
    assert found["dags"]["bigembed_refresh"]["tasks"] == {"audit": ["due"], "due": ["refresh"], "refresh": []}
    assert found["dags"]["bigembed_refresh"]["retries"] == {"audit": 5, "due": 0, "refresh": 5}
    again, no_more = "AirflowException", "AirflowFailException"
    assert found["outcomes"] == {
        **{"0": "returns 0", "7": "returns 7", "4": "AirflowSkipException"},
        **{"1": again, "5": again, "137": again},
        **dict.fromkeys(("2", "3", "6", "8", "9"), no_more),
    }


def test_a_day_with_airflow(airflow, growing):
    call([airflow / "airflow", "db", "migrate"], growing, **settings(growing))

    def turn(name):
        call([airflow / "airflow", "dags", "test", f"bigembed_{name}"], growing, **settings(growing))

    a_day(growing, turn)


# -------------------------------------------------------------------------------------- Prefect


@pytest.fixture(scope="module")
def prefect(tmp_path_factory):
    """Programs of an environment with Prefect; this version of it does not know later ones of FastAPI."""
    with venv(tmp_path_factory.mktemp("prefect") / "venv", f"prefect=={PREFECT}", "fastapi<0.150") as programs:
        yield programs


def flows(prefect, folder, *names):
    out = call(
        [prefect / "python", CHECKS / "prefect_checks.py", DEPLOY / "prefect", *names],
        folder,
        PREFECT_HOME=str(folder / "prefect"),
        PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        DO_NOT_TRACK="1",
        PYTHONDONTWRITEBYTECODE="1",
    )
    return json.loads(out.splitlines()[-1])


def test_prefect_knows_the_exit_statuses(prefect, growing):
    found = flows(prefect, growing)
    schedules = {"first": [], "append": ["0 1 * * *"], "extend": ["30 * * * *"], "refresh": ["0 2 * * *"]}
    assert found.pop("schedules") == {f"bigembed-{name}": when for name, when in schedules.items()}
    starts = {status: count for status, (_, count) in found.items()}
    assert starts == {"0": 1, "1": 3, "2": 1, "3": 1, "4": 1, "5": 3, "6": 1, "7": 1, "8": 1, "9": 1}
    ends = {status: said.split(":")[0] for status, (said, _) in found.items()}
    failed = dict.fromkeys(("1", "2", "3", "5", "6", "7", "8", "9"), "Failed")
    assert ends == {"0": "Completed", "4": "Skipped", **failed}
    assert "bad input or job file (exit status 2)" in found["2"][0]


def test_a_day_with_prefect(prefect, growing):
    names = {"first": "first", "extend": "extend", "refresh": "refresh_if_due"}

    def turn(name):
        assert flows(prefect, growing, names[name]) == {names[name]: "Completed: done"}

    a_day(growing, turn)
