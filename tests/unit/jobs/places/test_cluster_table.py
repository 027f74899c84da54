"""The table [cluster]: what goes together, and workers in a queue as far as no Slurm is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import JobError, MissingExtraError
from bigembed.jobs.places.cluster import choose, cluster
from bigembed.jobs.places.cluster_table import ClusterTable, parse_walltime
from bigembed.jobs.places.slurm import lifetime
from bigembed.jobs.spec import parse_job

FILE = Path("/jobs/job.toml")
JOB = {"input": {"dataset": "digits"}, "method": {"name": "pca"}, "output": {"path": "run.zarr"}}
QUEUE = {"manager": "slurm", "workers": 4, "memory": "2 GiB", "walltime": "4h"}


def table(**keys):
    return parse_job(JOB | {"cluster": keys}, FILE).cluster


def problems_of(**keys):
    with pytest.raises(JobError) as caught:
        table(**keys)
    return str(caught.value)


def test_a_queue():
    found = table(**QUEUE, partition="long", workers_per_job=2, directives=["--qos=high", "-C avx512"], scratch="$TMP")
    assert (found.walltime, found.patience, found.scratch) == (14_400, 3600.0, "$TMP")
    assert found.shared_folder == "/jobs"
    assert table(**QUEUE, shared_folder="../all").shared_folder == "/all"
    assert table(**QUEUE, no_workers_timeout=5).patience == 5
    assert table(workers=2).patience == 60
    assert choose(found, (10, 10), 100) == "slurm"


def test_every_offender_is_listed():
    text = problems_of(
        manager="slurm", memory="2 GiB", workers=5, workers_per_job=2, address="tls://host:1", tls_ca="ca.pem",
        directives=["--mem=3G", "-p short", "-n4", "qos=high", "--time 3"],
    )  # fmt: skip
    for part in (
        "address, manager: one of them",
        "walltime: must be given with manager",
        "workers: a multiple of workers_per_job = 2, not 5",
        "directives: '--mem=3G'; say it with memory",
        "directives: '-p short'; say it with partition",
        "directives: '-n4'; say it with workers_per_job",
        "directives: 'qos=high'; one option of sbatch each",
        "directives: '--time 3'; say it with walltime",
    ):
        assert part in text
    assert "'--qos" not in problems_of(**QUEUE, directives=["--qos=high", "4"])
    text = problems_of(workers=2, partition="long", walltime="4h")
    assert 'partition, walltime: only with manager = "slurm"' in text
    assert "manager: input should be 'slurm', not 'pbs'" in problems_of(**QUEUE | {"manager": "pbs"})
    assert "'queue': unknown" in problems_of(**QUEUE, queue="long")
    assert "a manager's cluster makes its own" in problems_of(**QUEUE, tls_key="key.pem")


@pytest.mark.parametrize("walltime", ["4", "four hours", "04:00", "30s", 3])
def test_walltimes_that_are_none(walltime):
    assert "[cluster] walltime" in problems_of(**QUEUE | {"walltime": walltime})


def test_no_second_line_gets_into_a_job_script():
    assert "directives" in problems_of(**QUEUE, directives=["--qos=x\nrm -rf /"])
    assert "partition" in problems_of(**QUEUE, partition="x\ny")


@pytest.mark.parametrize("text", ["1m", "20m", "1h", "1-00:00:00"])
def test_workers_retire_before_the_wall_time(text):
    walltime = parse_walltime(text)
    mean, stagger = (int(word.removesuffix("s")) for word in lifetime(walltime)[1::2])
    assert 0.6 * walltime <= mean - stagger
    assert mean + stagger <= walltime - min(60, walltime // 10)


def test_the_command_line_leads_to_a_running_cluster_instead(monkeypatch):
    from bigembed.jobs.arguments import Machines, Trust, cluster_of

    given = table(**QUEUE, partition="long").model_dump(exclude_unset=True)
    found = cluster_of(given, Machines(scheduler="tls://host:1"), Trust())
    assert (found.manager, found.partition, found.address, found.workers) == (None, None, "tls://host:1", 4)
    assert cluster_of(given, Machines(workers=8), Trust()).workers == 8
    with pytest.raises(JobError, match="multiple"):
        cluster_of(given | {"workers_per_job": 2}, Machines(workers=7), Trust())


def test_a_plan_needs_no_queue(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    job = tmp_path / "job.toml"
    text = '[input]\ndataset = "digits"\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "run.zarr"\n'
    queue = '[cluster]\nmanager = "slurm"\nworkers = 4\nwalltime = "4h"\n'
    job.write_text(f'{text}{queue}memory = "2 GiB"\n')
    done = CliRunner().invoke(app, ["plan", str(job)])
    assert (done.exit_code, "runs 4 workers in jobs of Slurm of 2.0 GiB" in done.output) == (0, True), done.output
    job.write_text(f'{text}{queue}memory = "100 MiB"\n')
    done = CliRunner().invoke(app, ["plan", str(job)])
    assert done.exit_code == 3
    assert "Set [cluster] memory = " in done.output
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.parametrize("module", ["dask_jobqueue", "cryptography"])
def test_what_is_not_installed_is_named_with_its_extra(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r'pip install "bigembed\[slurm\]"'), cluster(table(**QUEUE), "slurm"):
        pass


def test_folders_that_job_scripts_cannot_hold(tmp_path):
    for folder, what in ((tmp_path / "a b", "blanks"), (tmp_path / "nowhere", "cannot write")):
        given = ClusterTable(**QUEUE, shared_folder=str(folder))
        with pytest.raises(JobError, match=what), cluster(given, "slurm"):
            pass


def test_the_keyboard_stays_with_the_job():
    import signal

    from bigembed.jobs.places.slurm import _jobqueue

    before = signal.getsignal(signal.SIGINT)
    for name in [name for name in sys.modules if name.split(".")[0] == "dask_jobqueue"]:
        del sys.modules[name]
    assert _jobqueue().SLURMCluster
    assert signal.getsignal(signal.SIGINT) is before
