"""A secret in an address, an error or a warning is in nothing that a job writes or says."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import BigembedWarning, JobError
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.places.cluster_table import ClusterTable, redacted
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job, read_job

SECRET = "hunter2"
ADDRESSES = [
    f"tcp://user:{SECRET}@127.0.0.1:1",
    f"tcp://user:p@{SECRET}/?@127.0.0.1:1",
    f"tls://{SECRET}@127.0.0.1:1",
    f"tls://127.0.0.1:1?token={SECRET}",
    f"user:{SECRET}@127.0.0.1:1",
    f"wss://user:{SECRET}@127.0.0.1:1/path?key={SECRET}",
]


def written(folder: Path) -> bytes:
    """All that a job left but the job file."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "job.toml")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_credentials_is_refused_and_not_quoted(job, address, tmp_path):
    more = ["--json", "--debug", "--metrics", str(tmp_path / "run.prom"), "--log", str(tmp_path / "log")]
    found = CliRunner().invoke(app, ["run", str(job), "--scheduler", address, *more])
    assert found.exit_code == 2
    assert "carries credentials or options" in found.output
    job.write_text(f'{job.read_text()}[cluster]\naddress = "{address}"\n')
    inside = CliRunner().invoke(app, ["run", str(job), *more])
    assert inside.exit_code == 2
    assert SECRET not in found.output + inside.output
    assert SECRET.encode() not in written(tmp_path)


@pytest.mark.parametrize("address", ADDRESSES)
def test_one_that_no_job_file_has_seen_is_refused_too(job, address, tmp_path):
    asked = read_job(job)
    asked = asked.model_copy(update={"cluster": asked.cluster.model_copy(update={"address": address})})
    with pytest.raises(JobError, match="carries credentials or options") as caught:
        run_job(asked)
    assert SECRET not in str(caught.value)
    assert SECRET.encode() not in written(tmp_path)
    with pytest.raises(JobError), cluster(ClusterTable(address=address), "remote"):
        pass


def test_what_others_quote_is_not_passed_on(job, tmp_path, monkeypatch):
    """Errors and warnings of other libraries, with a URL in them: in no file and on no stream."""

    def wrong(*_: object) -> None:
        logging.getLogger("distributed.core").warning("lost %s", ADDRESSES[0])
        warnings.warn(f"slow: {ADDRESSES[2]}", BigembedWarning, stacklevel=1)
        raise RuntimeError(
            f"no answer from {ADDRESSES[0]} by way of http://me:{SECRET}@proxy:3128/, s3://b/k?sig={SECRET}"
        )

    monkeypatch.setattr("bigembed.jobs.run._save", wrong)
    more = ["--debug", "--metrics", str(tmp_path / "run.prom"), "--log", "-"]
    found = CliRunner().invoke(app, ["run", str(job), *more])
    assert found.exit_code == 1
    assert "no answer from tcp://…@127.0.0.1:1 by way of http://…@proxy:3128/" in found.output
    assert SECRET not in found.output
    assert b"no answer from" in written(tmp_path)
    assert SECRET.encode() not in written(tmp_path)


def test_plain_addresses_and_paths_stay(tmp_path):
    for text in ("tcp://node7:8786", "tls://10.0.0.7:8786", "abfs://box@account/rows", "what? a@b.c", "s3://b/k: why?"):
        assert redacted(text) == text
    value = {"input": {"path": "r.npy"}, "method": {"name": "pca"}, "output": {"path": "o"}}
    assert (
        parse_job({**value, "cluster": {"address": "node7:8786"}}, tmp_path / "job.toml").cluster.address
        == "node7:8786"
    )
