"""Copies that jobs make of sources that change: replaced, never in the way, and the old run says what it is of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed.errors import ExistingOutputError
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.report.summary import RunSummary
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.stages.reuse import _difference
from bigembed.stages.stage import Stage

TABLE = 'path = "rows.csv"\ncolumns = ["a", "b", "c"]'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a job on some input; a table of rows beside it."""

    def job(source: str = TABLE) -> Any:
        text = f'[input]\n{source}\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "run.zarr"\n'
        (tmp_path / "job.toml").write_text(text)
        return read_job(tmp_path / "job.toml")

    return job


def table(folder: Path, rows: int, at: int) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    lines = [f"n{number},{','.join(map(str, row))}" for number, row in enumerate(values.tolist())]
    (folder / "rows.csv").write_text("name,a,b,c\n" + "\n".join(lines) + "\n")
    os.utime(folder / "rows.csv", (at, at))


def test_an_old_run_says_that_its_source_was_written_anew(write: Any, tmp_path: Path) -> None:
    table(tmp_path, 30, at=1_000_000)
    job = write('path = "rows.csv"\nids = "name"')
    run_job(job)
    assert verify(tmp_path / "run.zarr")["older"] == ""
    table(tmp_path, 30, at=2_000_000)  # the same rows
    assert "rows.csv held before" in "\n".join(verify_lines(verify(tmp_path / "run.zarr")))
    assert run_job(job)["unchanged"]
    assert verify(tmp_path / "run.zarr")["older"] == ""
    table(tmp_path, 40, at=3_000_000)
    found = verify(tmp_path / "run.zarr")
    assert found["problems"] == []
    assert found["finished"]
    assert "rows.csv held before" in found["older"]
    assert RunSummary.read(tmp_path / "run.zarr").extra["older"]
    assert run_job(job)["n"] == 40
    assert verify(tmp_path / "run.zarr")["older"] == ""


def test_whatever_changes_in_a_source_its_copy_is_made_anew(write: Any, tmp_path: Path) -> None:
    path, steps = tmp_path / "rows.csv", '\n[[steps]]\nname = "one_hot"\ncolumns = ["kind"]'
    lines = ["a,b,kind", *(f"{number % 7},{number % 5}.25,{'xy'[number % 2]}" for number in range(40))]
    path.write_text("\n".join(lines))
    job = write(f'path = "rows.csv"{steps}')
    run_job(job)
    changes = {
        "the last rows are gone": lines[:-3],
        "rows are there again": lines,
        "a cell of the same size, at the old time": ["a,b,kind", "9,0.25,x", *lines[2:]],
        "other names of columns": ["c,b,kind", *lines[1:]],
        "other texts of categories": ["c,b,kind", *(line.replace("y", "z") for line in lines[1:])],
    }
    for what, now in changes.items():
        at = path.stat().st_mtime_ns
        path.write_text("\n".join(now))
        if "old time" in what:
            os.utime(path, ns=(at, at))
        assert verify(tmp_path / "run.zarr")["older"], what
        found = run_job(job)
        assert not found.get("unchanged"), what
        assert found["n"] == len(now) - 1, what
    assert run_job(job)["unchanged"]


def test_what_a_job_copied_or_generated_never_blocks_the_next(write: Any, tmp_path: Path) -> None:
    table(tmp_path, 30, at=1_000_000)
    mixture = 'dataset = "mixture"\nn = 200\nd = 3\nintrinsic = 2'
    for source, n in ((TABLE, 30), (mixture, 200), (mixture.replace("200", "300"), 300), (TABLE, 30)):
        make_plan(write(source)).refuse()
        assert run_job(write(source))["n"] == n
    named = f'path = "mine.zarr"\n{mixture}'
    run_job(write(named))
    with pytest.raises(ExistingOutputError, match="holds the data set mixture") as error:
        run_job(write(named.replace("200", "300")))
    assert "{" not in str(error.value)


def test_no_reason_shows_a_dictionary() -> None:
    stage = Stage("solve", (), {"options": {"tol": 1e-3, "k": 4}}, lambda context: {})
    assert _difference({"options": {"tol": 1e-2, "k": 4}}, stage) == "made with options.tol=0.01, now 0.001"
