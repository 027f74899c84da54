"""Jobs on a real Slurm: deploy/slurm/bigembed.sbatch, and workers of a job file in the queue."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.datasets import dataset
from bigembed.errors import ClusterError
from bigembed.jobs.places import QUEUE_KEYS
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.watching.status import read_status
from bigembed.runtime.blocks import MAX_BLOCK_ROWS
from tests.conformance.test_places import PlaceContract
from tests.deploy.processes import DEPLOY, command, run
from tests.deploy.slurm_here import Slurm, slurm
from tests.job_files import job_file
from tests.unit.jobs.small_method import Small

SCRIPT = DEPLOY / "slurm" / "bigembed.sbatch"
SMALL = ("--nodes=2", "--ntasks-per-node=1", "--mem=4000M", "--time=20")
pytestmark = [
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository"),
    pytest.mark.cluster,
    pytest.mark.timeout(280),
]


@pytest.fixture(scope="module")
def there():
    with slurm() as found:
        yield found


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """More than one canonical block."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(size=(30_000, 500)).astype("f4"))
    return path


def write(folder: Path, rows: Path | str, cluster: str = "", method: str = 'name = "pca"\nn_components = 4') -> Path:
    (folder / "scratch").mkdir(exist_ok=True)
    source = rows if isinstance(rows, str) else f'path = "{rows}"'
    return job_file(folder, method, source, more=f"[cluster]\n{cluster}" if cluster else "")


def digest(coordinates) -> str:
    return sha256(np.ascontiguousarray(np.asarray(coordinates)).tobytes()).hexdigest()


def digest_of(folder: Path) -> str:
    """Of the coordinates that a job wrote."""
    (found,) = (folder / "run.zarr" / "stages").glob("*/embedding")
    return digest(be.open_array(found))


@pytest.fixture(scope="module")
def alone(rows) -> str:
    """Of the coordinates without a cluster."""
    with dask.config.set(scheduler="synchronous"):
        return digest(be.PCA(n_components=4).fit(np.load(rows)).embedding_)


def left(folder: Path) -> list[str]:
    """What a job left behind it that is not its result."""
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".bigembed")]
    return hidden + [path.name for path in (folder / "scratch").iterdir()]


def submit(there: Slurm, job: Path, *options: str, **variables: str) -> str:
    """The number of a job of two workers on two nodes, which writes into ``out``."""
    folder = job.parent
    return there.submit(
        "-o", folder / "out", *SMALL, *options, SCRIPT, job, BIGEMBED_SCRATCH=str(folder / "scratch"), **variables
    )


def test_shell_code_is_sound():
    done = run([command("shellcheck"), "--shell=bash", SCRIPT], DEPLOY)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_the_notes_are_true(tmp_path, rows):
    text = SCRIPT.with_name("README.md").read_text()
    [keys] = re.findall(r"```toml\n(.*?)```", text, re.S)
    value = {"input": {"path": "x"}, "method": {"name": "pca"}, "output": {"path": "y"}, **tomllib.loads(keys)}
    table = parse_job(value, tmp_path / "job.toml").cluster
    assert (table.manager, table.walltime, set(QUEUE_KEYS) - table.model_fields_set) == ("slurm", 14_400, set())
    [plan] = re.findall(r"`bigembed (plan JOB.toml .*?)`", text)
    job = write(tmp_path, rows)
    done = CliRunner().invoke(app, plan.replace("JOB.toml", str(job)).split())
    assert (done.exit_code, "runs 64 workers of a running cluster of 3.7 GiB" in done.output) == (0, True), done.output
    memory = "memory=${BIGEMBED_MEMORY:-$(((node - 1024) / most - 256))MiB}"
    assert memory in SCRIPT.read_text()
    assert f"(65 536 − 1024) / 16 − 256 = {(65_536 - 1024) // 16 - 256} MiB" in text


def test_one_allocation_runs_a_job(there: Slurm, rows, alone, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    number = submit(there, write(tmp_path, rows), HOME=str(home))
    found = there.end_of(number, tmp_path / "out", 120)
    said = (tmp_path / "out").read_text()
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert "2 workers of 2720MiB on n[1-2]" in said
    assert digest_of(tmp_path) == alone
    assert list(home.iterdir()) == []
    assert left(tmp_path) == []


def test_a_bad_job_file_ends_a_job_with_its_status(there: Slurm, rows, tmp_path):
    job = write(tmp_path, rows, method='name = "pca"\nn_component = 4')
    number = submit(there, job)
    found = there.end_of(number, tmp_path / "out", 200)
    assert (found["JobState"], found["ExitCode"]) == ("FAILED", "2:0")
    assert "did you mean 'n_components'?" in (tmp_path / "out").read_text()
    assert left(tmp_path) == []


def queue(folder: Path, *more: str, walltime: str = "20m") -> str:
    """Two workers, each in a job of the queue."""
    keys = ['manager = "slurm"', "workers = 2", 'memory = "1500 MiB"', 'interface = "lo"']
    return "\n".join([*keys, f'walltime = "{walltime}"', f'scratch = "{folder}/scratch"', *more])


@contextmanager
def bigembed(
    there: Slurm, folder: Path, *words: object, module: str = "bigembed.cli"
) -> Iterator[subprocess.Popen[str]]:
    """The command line as a process, which does not outlive its test."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning", "-m", module, *map(str, words)],
        env=there.variables, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_job_file_asks_the_queue_for_workers(there: Slurm, rows, alone, tmp_path):
    seen: set[str] = set()
    heard: set[str] = set()
    with bigembed(there, tmp_path, "run", write(tmp_path, rows, queue(tmp_path))) as process:
        while process.poll() is None:
            seen.update(there.listed().splitlines())
            heard.update(addresses_of_workers(tmp_path))
            time.sleep(0.5)
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert digest_of(tmp_path) == alone
    assert len({line.split()[0] for line in seen if "RUNNING" in line}) == 2
    assert heard == {"127.0.0.1"}
    there.until(lambda: there.listed() == "", "jobs of workers are left", tmp_path / "out", 20)
    assert left(tmp_path) == []


def addresses_of_workers(folder: Path) -> Iterator[str]:
    """Where the workers that a job in this folder queued listen, and their nannies; all of them speak TLS."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if "distributed.cli.dask_worker" in words and any(str(folder) in word for word in words):
                assert any(word.startswith("tls://") for word in words), words
                for one in (process, *process.children(recursive=True)):
                    yield from (c.laddr.ip for c in one.net_connections() if c.status == "LISTEN")
        except psutil.Error:
            continue


def test_a_queue_that_never_serves_is_an_error_that_says_why(there: Slurm, tmp_path, monkeypatch):
    more = ("no_workers_timeout = 1.5", 'directives = ["--begin=now+1hour"]')
    table = read_job(write(tmp_path, "dataset = 'digits'", queue(tmp_path, *more))).cluster
    monkeypatch.setenv("SLURM_CONF", there.variables["SLURM_CONF"])
    with pytest.raises(ClusterError, match=r"no worker came within 1\.5 s") as caught, cluster(table, "slurm"):
        pass
    assert str(caught.value).count("PENDING (BeginTime)") == 2
    assert there.listed() == ""
    nowhere = table.model_copy(update={"partition": "nowhere"})
    with pytest.raises(ClusterError, match="sbatch: error: invalid partition"), cluster(nowhere, "slurm"):
        pass
    assert left(tmp_path) == []


@pytest.fixture(scope="module")
def queued(there: Slurm, tmp_path_factory):
    """A worker in a job of the queue, in the environment of who uses Slurm here."""
    folder = tmp_path_factory.mktemp("queued")
    table = read_job(write(folder, "dataset = 'digits'", queue(folder).replace("workers = 2", "workers = 1"))).cluster
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH", "PYTHONPATH"):
            patch.setenv(name, there.variables[name])
        with cluster(table, "slurm") as found:
            yield found


class TestQueuedWorkers(PlaceContract):
    """Workers in jobs of Slurm."""

    kind = "slurm"

    @pytest.fixture
    def place(self, queued):
        return queued


# ------------------------------------------------------------------------------- what takes minutes


ROLL = 'dataset = "swiss_roll"\nn = 60000'
MAP = 'name = "diffusion_map"\nn_components = 4\nn_neighbors = 12'


@pytest.fixture(scope="module")
def rolled() -> str:
    """Of the map of the swiss roll without a cluster."""
    with dask.config.set(scheduler="synchronous"):
        found = be.DiffusionMap(n_components=4, n_neighbors=12).fit(dataset("swiss_roll", n=60_000).rows(0, 60_000))
        return digest(found.embedding_)


def begun(folder: Path, stage: str, how: str = "start") -> int:
    """How often the log of a run says that a stage begins, or is reused."""
    log = folder / "run.zarr" / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return sum((one.get("stage"), one.get("event")) == (stage, how) for one in map(json.loads, lines))


@pytest.mark.slow
def test_a_job_that_was_signalled_goes_on_in_the_next_allocation(there: Slurm, rolled, tmp_path):
    job, out = write(tmp_path, ROLL, method=MAP), tmp_path / "out"
    number = submit(there, job)
    there.until(lambda: begun(tmp_path, "graph"), "the graph did not start", out, 120)
    there.ask("scancel", "--signal=USR1", "--batch", number)
    found = there.end_of(number, out, 240)
    said = out.read_text()
    assert (found["JobState"], found["ExitCode"], found["Restarts"]) == ("COMPLETED", "0:0", "1"), said
    assert (
        said.count("requeued before its wall time")
        == begun(tmp_path, "survey")
        == begun(tmp_path, "survey", "reused")
        == 1
    )
    assert digest_of(tmp_path) == rolled
    assert left(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_longer_than_its_wall_time_takes_several_allocations(there: Slurm, tmp_path):
    job, out = write(tmp_path, ROLL.replace("60000", "800000"), method=MAP), tmp_path / "out"
    number = submit(there, job, "--time=2", "--signal=B:USR1@30")
    found = there.end_of(number, out, 1140)
    said = out.read_text()
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert int(found["Restarts"]) == said.count("requeued before its wall time") >= 1
    assert begun(tmp_path, "survey", "reused")
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "run.zarr")])
    assert done.exit_code == 0, done.output
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_cancelled_job_does_not_come_back_and_leaves_nothing(there: Slurm, tmp_path):
    out = tmp_path / "out"
    number = submit(there, write(tmp_path, ROLL, method=MAP))
    there.until(lambda: begun(tmp_path, "order"), "the job did not start", out, 120)
    there.ask("scancel", number)
    found = there.end_of(number, out, 200)
    assert (found["JobState"], found["Restarts"]) == ("CANCELLED", "0")
    assert re.search("stopped by SIGTERM|the scheduler at .* is gone", out.read_text())
    assert left(tmp_path) == []


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Rows of thirty-eight blocks; and the result of the small method."""
    folder = tmp_path_factory.mktemp("many")
    path = folder / "many.npy"
    np.save(path, np.random.default_rng(0).normal(size=(38 * MAX_BLOCK_ROWS, 2)).astype("f4"))
    with dask.config.set(scheduler="synchronous"):
        return path, digest(Small(2, workdir=folder / "run.zarr").fit(path).embedding_)


SLEEPY = 'name = "small"\npause = 5.0'


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_workers_that_are_cancelled_or_retire_are_replaced(there: Slurm, many, tmp_path):
    path, wanted = many
    with small(there, write(tmp_path, path, queue(tmp_path, walltime="1m"), SLEEPY)) as process:
        there.until(lambda: status_of(tmp_path).get("done", 0) >= 4, "no progress", tmp_path / "job.toml", 120)
        first = {line.split()[0] for line in there.listed().splitlines()}
        assert len(first) == 2
        there.ask("scancel", min(first))
        seen = set(first)
        while process.poll() is None:
            seen |= {line.split()[0] for line in there.listed().splitlines()}
            time.sleep(0.5)
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert digest_of(tmp_path) == wanted
    assert len(seen) >= 4  # the first two, one for the one cancelled, one for one that retired
    log = (tmp_path / "run.zarr" / "log.jsonl").read_text()
    assert "1 of 2 jobs of workers ended; submitted anew" in log
    assert "tried again" not in log
    there.until(lambda: there.listed() == "", "jobs of workers are left", tmp_path / "job.toml", 20)
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_signal_ends_the_jobs_of_workers_too_and_the_same_command_goes_on(there: Slurm, many, tmp_path):
    path, wanted = many
    job = write(tmp_path, path, queue(tmp_path), SLEEPY.replace("5.0", "0.5"))
    with small(there, job) as process:
        there.until(lambda: status_of(tmp_path).get("done", 0) >= 4, "no progress", job, 120)
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[0]
    assert process.returncode == 5, said
    assert "stopped by SIGTERM" in said
    there.until(lambda: there.listed() == "", "jobs of workers are left", job, 20)
    assert left(tmp_path) == []
    with small(there, job) as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    assert digest_of(tmp_path) == wanted


@pytest.mark.slow
def test_workers_do_not_outlive_a_job_that_was_killed(there: Slurm, many, tmp_path):
    job = write(tmp_path, many[0], queue(tmp_path), SLEEPY)
    with small(there, job):
        there.until(lambda: status_of(tmp_path).get("done", 0) >= 1, "no progress", job, 120)
    there.until(lambda: there.listed() == "", "jobs of workers are left", job, 120)
    assert list((tmp_path / "scratch").iterdir()) == []


def small(there: Slurm, job: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A run of a job of the small method."""
    return bigembed(there, job.parent, "run", job, module="tests.unit.jobs.small_cli")


def status_of(folder: Path) -> dict[str, Any]:
    """How a run stands."""
    try:
        return dict(read_status(folder / "run.zarr"))
    except OSError:
        return {}
