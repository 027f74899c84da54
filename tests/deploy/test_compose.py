"""deploy/compose.yaml: valid for docker compose, and its commands run as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib

import numpy as np
import psutil
import pytest
import yaml

from bigembed.jobs.places import parse_bytes
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import write_array
from tests.deploy.processes import DEPLOY, ROOT, command, free_port, run, started, wait_until

FILE = DEPLOY / "compose.yaml"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the repository")
NANNY = 512 << 20
"""Of a worker's container, for the process that watches it."""


def resolved(folder, **variables):
    """The file as docker compose understands it."""
    done = run([command("docker-compose"), "-f", FILE, "config", "--format", "json"], folder, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["services"]


def option(words, name):
    return words[words.index(name) + 1]


def test_docker_compose_takes_it_and_refuses_what_is_wrong(tmp_path):
    check = [command("docker-compose"), "-f"]
    assert run([*check, FILE, "config", "-q"], tmp_path).returncode == 0
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("mem_limit: 2g", "memory_limit: 2g"))
    assert "memory_limit" in run([*check, wrong, "config", "-q"], tmp_path).stderr
    wrong.write_text(FILE.read_text().replace("scheduler: {condition", "schedular: {condition"))
    assert "schedular" in run([*check, wrong, "config", "-q"], tmp_path).stderr


def test_numbers_agree(tmp_path):
    services = resolved(tmp_path, BIGEMBED_WORKERS="5")
    worker = services["worker"]
    memory = option(worker["command"], "--memory-limit")
    assert int(worker["mem_limit"]) - parse_bytes(memory.replace("MiB", " MiB")) == NANNY
    assert option(worker["command"], "--nthreads") == "1"
    assert worker["deploy"]["replicas"] == 5
    assert resolved(tmp_path)["worker"]["deploy"]["replicas"] == 2
    job = tomllib.loads((DEPLOY / "job.toml").read_text())
    assert job["cluster"]["no_workers_timeout"] <= float(option(worker["command"], "--death-timeout"))


def test_nobody_is_root_and_nothing_is_reachable_from_outside(tmp_path):
    for name, service in resolved(tmp_path, BIGEMBED_USER="1000:1000").items():
        assert service["user"] == "1000:1000", name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"]
        assert "ports" not in service
        assert service["environment"]["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert service["memswap_limit"] == service["mem_limit"]
        assert service["build"]["dockerfile"] == "deploy/container/Dockerfile"
        assert service["build"]["context"] == str(ROOT)
        sources = {volume["source"] for volume in service["volumes"]}
        assert str(DEPLOY / "tls" / "private") in sources


def test_credentials_come_from_a_file_that_need_not_be_there(tmp_path):
    (tmp_path / "store.env").write_text("AWS_ACCESS_KEY_ID=somebody\n")
    found = resolved(tmp_path, BIGEMBED_ENV=str(tmp_path / "store.env"))
    theirs = {name: service["environment"].get("AWS_ACCESS_KEY_ID") for name, service in found.items()}
    assert theirs == {"scheduler": None, "worker": "somebody", "job": "somebody"}
    assert not [name for service in resolved(tmp_path).values() for name in service["environment"] if "AWS" in name]


def test_the_job_file_is_a_job():
    job = read_job(DEPLOY / "job.toml")
    assert (job.input.path, job.output.path) == ("/data/points.zarr", "/data/run.zarr")
    assert job.cluster.address is None


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)")
def test_the_commands_of_the_file_run_the_job(tmp_path):
    """Scheduler, worker and job by the words and the environment of the file; only names of places are others."""
    port, page, (tls, data) = free_port(), free_port(), (tmp_path / "tls", tmp_path / "data")
    assert run([DEPLOY / "tls" / "make-certificates.sh", tls, "scheduler"], tmp_path).returncode == 0
    data.mkdir()
    write_array(data / "points.zarr", np.random.default_rng(0).normal(size=(400, 5)).astype("f4"))
    places = {
        "/etc/bigembed/tls": tls,
        "/etc/bigembed/job.toml": tmp_path / "job.toml",
        "/data": data,
        "scheduler:8786": f"127.0.0.1:{port}",
        "8786": port,
        "8787": page,
    }

    def here(text):
        return re.sub("|".join(places), lambda found: str(places[found[0]]), text)

    services = resolved(tmp_path)

    def words(name, *more):
        service = services[name]
        first = {"dask": [sys.executable, "-m", "dask"], None: [sys.executable, "-m", "bigembed.cli"]}
        return [*first[(service["entrypoint"] or [None])[0]], *(here(word) for word in service["command"]), *more]

    def variables(name):
        return {**{key: here(value) for key, value in services[name]["environment"].items()}, **configuration}

    (tmp_path / "dask").mkdir()
    shutil.copy(DEPLOY / "dask.yaml", tmp_path / "dask")
    configuration = {"DASK_ROOT_CONFIG": str(tmp_path / "dask")}
    (tmp_path / "job.toml").write_text(here((DEPLOY / "job.toml").read_text()))
    health = [here(word) for word in services["scheduler"]["healthcheck"]["test"][1:]]
    health[0] = sys.executable
    assert run(health, tmp_path).returncode != 0
    with started(words("scheduler", "--host", "127.0.0.1"), tmp_path, variables("scheduler")):
        wait_until(lambda: run(health, tmp_path).returncode == 0, "no healthy scheduler", tmp_path)
        with started(words("worker", "--host", "127.0.0.1"), tmp_path, variables("worker")) as nanny:
            done = run(words("job"), tmp_path, **variables("job"))
            nanny_bytes = psutil.Process(nanny.pid).memory_info().rss
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {"points.zarr", "run.zarr", "model.zarr", "report.html"} <= {path.name for path in data.iterdir()}
    ran = json.loads((data / "run.zarr" / "job.json").read_text())["plan"]["place"]
    assert ran["kind"] == "remote"
    assert ran["memory_limit"] == 3584 << 20
    assert 50 << 20 < nanny_bytes < NANNY, nanny_bytes


def test_keys_of_the_documented_folder_are_never_committed(tmp_path):
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/deploy/tls/private/", "/deploy/object-store.env"} <= set(ignored)
    assert yaml.safe_load(FILE.read_text())["x-certificates"]["source"] == "${BIGEMBED_TLS:-./tls/private}"
