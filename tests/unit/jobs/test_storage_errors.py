"""Full disks, closed folders and absent libraries: one clear line, the right exit status, and known before the run."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import MissingExtraError, PlanError
from bigembed.jobs.planning import machine as calibrate
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.run import plan_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching.status import status_of


@pytest.mark.parametrize(
    ("code", "status", "line"),
    [(errno.ENOSPC, 1, "the disk is full"), (errno.EROFS, 2, "may not be written"), (errno.EACCES, 2, "permissions")],
)
def test_what_the_operating_system_refuses_is_one_line(
    code: int, status: int, line: str, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any, **named: Any) -> Any:
        raise OSError(code, "refused", "run.zarr")

    monkeypatch.setattr("bigembed.stages.stage.manifests.publish", refused)
    found = CliRunner().invoke(app, ["run", str(job)])
    assert found.exit_code == status
    [said] = [one for one in found.output.splitlines() if one.startswith("error:")]
    assert line in said
    assert "--debug" not in said


def test_other_errors_of_the_operating_system_stay_what_they_are() -> None:
    assert status_of(OSError(errno.EIO, "i/o error")) == 1


def test_a_disk_that_is_too_full_to_be_measured_is_planned_all_the_same(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(calibrate, "_storage", full)
    monkeypatch.setattr(calibrate, "remembered", lambda kind: {})
    assert plan_job(read_job(job)).seconds is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "rows.npy"]


def test_more_memory_than_the_machine_has_is_refused(job: Path) -> None:
    job.write_text(job.read_text() + '[cluster]\nworkers = 1\nmemory = "1 EiB"\n'.replace("1 EiB", "1048576 GiB"))
    with pytest.raises(PlanError, match=r"for each worker is more than the .* of this machine"):
        plan_job(read_job(job)).refuse()


def test_a_plan_lacks_what_the_run_would_lack(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.write_text(job.read_text() + 'table = "rows.parquet"\n')

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("bigembed.errors.import_module", absent)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        plan_job(read_job(job))


def test_the_certificate_is_shown_whole() -> None:
    entry = {f"name {number}": number for number in range(100)}
    found = {"path": "p", "stages": [], "problems": [], "unlisted": [], "finished": True, "superseded": {}}
    found["digest"] = True
    found["certificate"] = {"many": entry}
    assert any("name 99: 99" in line for line in verify_lines(found))
