"""The examples of ``bigembed example``: each is listed, written once, planned and run as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import ExistingOutputError, InputError
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import DATA, examples, read_job, write_example

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("quickstart", "steps")


@pytest.mark.parametrize("name", sorted(examples()))
def test_each_is_written_with_its_data_and_can_be_planned(name, tmp_path):
    job, *data = write_example(name, tmp_path / "new")
    assert [path.name for path in data] == list(DATA.get(name, dict)())
    assert plan_job(read_job(job)).problems() == []
    before = job.stat().st_mtime_ns
    with pytest.raises(ExistingOutputError, match=f"{name}.toml"):
        write_example(name, tmp_path / "new")
    assert job.stat().st_mtime_ns == before


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in sorted(examples())]
)
def test_each_runs(name, tmp_path):
    found = run_job(read_job(write_example(name, tmp_path)[0]))
    assert found["finished"]
    assert all(Path(path).exists() for path in found["outputs"])


def test_the_command(tmp_path):
    listed = CliRunner().invoke(app, ["example"])
    assert listed.exit_code == 0
    assert all(f"{name} " in listed.stdout for name in examples())
    written = CliRunner().invoke(app, ["example", "rows", str(tmp_path)])
    assert f"next: bigembed run {tmp_path / 'rows.toml'}" in written.stdout
    assert np.load(tmp_path / "rows.npy").shape == (2000, 3)
    unknown = CliRunner().invoke(app, ["example", "row"])
    assert unknown.exit_code == 2
    with pytest.raises(InputError, match="no example 'row'; there are clusters, quickstart"):
        write_example("row", tmp_path)


@pytest.mark.skipif(not (ROOT / "workflows").exists(), reason="needs the repository, not only the package")
def test_the_first_one_is_that_of_the_repository(tmp_path):
    job = write_example("quickstart", tmp_path)[0].read_text().splitlines()
    first, _, *rest = (ROOT / "workflows/quickstart.toml").read_text().splitlines()
    assert job == [first, *rest]
