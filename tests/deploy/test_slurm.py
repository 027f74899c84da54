"""Jobs on a real Slurm: deploy/slurm/bigembed.sbatch, and workers of a job file in the queue."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest

import bigembed as be
from tests.deploy.processes import DEPLOY, command, run
from tests.deploy.slurm_here import Slurm, slurm

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


def write(folder: Path, rows: Path, cluster: str = "", method: str = 'name = "pca"\nn_components = 4') -> Path:
    job = folder / "job.toml"
    (folder / "scratch").mkdir(exist_ok=True)
    text = f'[input]\npath = "{rows}"\n[method]\n{method}\n[output]\npath = "run.zarr"\n'
    job.write_text(text + (f"[cluster]\n{cluster}\n" if cluster else ""))
    return job


def digest(coordinates) -> str:
    return sha256(np.ascontiguousarray(np.asarray(coordinates)).tobytes()).hexdigest()


def digest_of(folder: Path) -> str:
    """Of the coordinates that a job wrote."""
    return digest(be.open_array(folder / "run.zarr" / "stages" / "coordinates" / "embedding"))


@pytest.fixture(scope="module")
def alone(rows) -> str:
    """Of the coordinates without a cluster."""
    with dask.config.set(scheduler="synchronous"):
        return digest(be.PCA(n_components=4).fit(np.load(rows)).embedding_)


def left(folder: Path) -> list[str]:
    """What a job left behind it that is not its result."""
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".bigembed")]
    return hidden + [path.name for path in (folder / "scratch").iterdir()]


def submit(there: Slurm, job: Path, **variables: str) -> str:
    """The number of a job of two workers on two nodes, which writes into ``out``."""
    folder = job.parent
    return there.submit(
        "-o", folder / "out", *SMALL, SCRIPT, job, BIGEMBED_SCRATCH=str(folder / "scratch"), **variables
    )


def test_shell_code_is_sound():
    done = run([command("shellcheck"), "--shell=bash", SCRIPT], DEPLOY)
    assert (done.returncode, done.stdout) == (0, "")


def test_one_allocation_runs_a_job(there: Slurm, rows, alone, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    number = submit(there, write(tmp_path, rows), HOME=str(home))
    found = there.end_of(number, tmp_path / "out", 120)
    said = (tmp_path / "out").read_text()
    assert (found["JobState"], found["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert "2 workers of 2848MiB on n[1-2]" in said
    assert digest_of(tmp_path) == alone
    assert list(home.iterdir()) == []
    assert left(tmp_path) == []


def test_a_bad_job_file_ends_a_job_with_its_status(there: Slurm, rows, tmp_path):
    job = write(tmp_path, rows, method='name = "pca"\nn_component = 4')
    number = submit(there, job)
    found = there.end_of(number, tmp_path / "out", 60)
    assert (found["JobState"], found["ExitCode"]) == ("FAILED", "2:0")
    assert "did you mean 'n_components'?" in (tmp_path / "out").read_text()
    assert left(tmp_path) == []


def queue(folder: Path, *more: str, walltime: str = "20m") -> str:
    """Two workers, each in a job of the queue."""
    keys = ['manager = "slurm"', "workers = 2", 'memory = "1500 MiB"', 'interface = "lo"']
    return "\n".join([*keys, f'walltime = "{walltime}"', f'scratch = "{folder}/scratch"', *more])


def bigembed(there: Slurm, folder: Path, *words: object) -> subprocess.Popen[str]:
    """The command line as a process."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning", "-m", "bigembed.cli", *map(str, words)],
        env=there.variables, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def test_a_job_file_asks_the_queue_for_workers(there: Slurm, rows, alone, tmp_path):
    process = bigembed(there, tmp_path, "run", write(tmp_path, rows, queue(tmp_path)))
    seen: set[str] = set()
    heard: set[str] = set()
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


def test_a_queue_that_never_serves_is_an_error_that_says_why(there: Slurm, rows, tmp_path):
    job = write(tmp_path, rows, queue(tmp_path, "no_workers_timeout = 2", 'directives = ["--begin=now+1hour"]'))
    process = bigembed(there, tmp_path, "run", job)
    said = process.communicate()[0]
    assert process.returncode == 1
    assert "no worker came within 2 s" in said
    assert said.count("PENDING (BeginTime)") == 2
    assert there.listed() == ""
    assert left(tmp_path) == []
