"""An older ``job.json``, or a whole older stage, put back in a run: not taken for what belongs to the coordinates."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import DamagedError, StaleWarning
from bigembed.jobs.export import export
from bigembed.jobs.record import read_record
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import verify
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.store.arrays import read_array


def job_of(home, **method):
    tables = {"input": {"path": "rows.npy"}, "method": {"n_components": 2, **method}, "output": {"path": "run.zarr"}}
    return parse_job(tables, home / "job.toml")


def header(home):
    export(home / "run.zarr", home / "table.csv", overwrite=True)
    return (home / "table.csv").read_text().partition("\n")[0]


def page_of(home):
    write_report(home / "run.zarr", home / "page.html")
    return (home / "page.html").read_text()


@pytest.mark.parametrize("when", ["begun", "ended"])
def test_names_of_columns_are_those_of_the_job_that_made_them(tmp_path, when):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)))
    record, before = tmp_path / "run.zarr" / "job.json", []
    other = job_of(tmp_path, name="landmark_mds", n_landmarks=20)
    run_job(other, RunOptions(observer=lambda event: before.append(record.read_bytes())))
    older = before[0] if when == "begun" else record.read_bytes()
    run_job(job_of(tmp_path, name="pca"))
    assert header(tmp_path) == "pca0,pca1"
    record.write_bytes(older)
    assert not read_record(record.parent).get("finished")
    with pytest.warns(StaleWarning, match=r"job\.json is not of the job that made the coordinates"):
        assert header(tmp_path) == "coordinate0,coordinate1"
    page = page_of(tmp_path)
    assert "job.json is not of the job that made the coordinates" in page
    assert "landmark_mds" not in page
    assert "n_landmarks" not in page
    assert not run_job(job_of(tmp_path, name="pca"))["unchanged"]
    assert header(tmp_path) == "pca0,pca1"
    assert "job.json is not" not in page_of(tmp_path)


def test_a_job_that_was_stopped_after_its_coordinates_knows_them(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)))
    job = job_of(tmp_path, name="pca")
    run_job(job)
    during = []
    record = tmp_path / "run.zarr" / "job.json"
    run_job(job, RunOptions(observer=lambda event: during.append(record.read_bytes())), fresh=True)
    for said in (during[0], during[-1]):
        record.write_bytes(said)
        assert read_record(record.parent)["job"]["method"]["name"] == "pca"


def test_a_page_of_a_job_at_work_knows_the_job(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)))
    pages = []
    method = {"name": "diffusion_map", "n_neighbors": 8, "components": "largest"}
    run_job(job_of(tmp_path, **method), RunOptions(observer=lambda event: pages.append(page_of(tmp_path))))
    assert len(pages) > 10
    assert all("DiffusionMap" in page and "job.json is not" not in page for page in pages)


@pytest.mark.parametrize("stage", ["solve", "coordinates"])
def test_a_whole_older_stage_is_not_taken(tmp_path, stage):
    """With its own manifest, so that every digest fits its file."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)) * [4, 3, 2, 1])
    run, older, job = tmp_path / "run.zarr", tmp_path / "older", job_of(tmp_path, name="pca")
    run_job(job_of(tmp_path, name="pca", n_components=3))
    shutil.copytree(run, older)
    run_job(job)
    whole = read_array(run / "stages" / "coordinates" / "embedding")
    shutil.rmtree(run / "stages" / stage)
    shutil.copytree(older / "stages" / stage, run / "stages" / stage)
    shutil.copy(older / "manifest" / f"{stage}.json", run / "manifest" / f"{stage}.json")
    for read in (
        lambda: export(run, tmp_path / "table.csv"),
        lambda: np.asarray(be.open_array(run / "stages" / "coordinates" / "embedding")),
    ):
        with pytest.raises(DamagedError, match=r"'coordinates' is damaged .was made from another 'solve'"):
            read()
    assert verify(run)["problems"]
    assert "was made from another &#39;solve&#39;" in page_of(tmp_path)
    assert not run_job(job)["unchanged"]
    assert verify(run)["problems"] == []
    np.testing.assert_array_equal(read_array(run / "stages" / "coordinates" / "embedding"), whole)
