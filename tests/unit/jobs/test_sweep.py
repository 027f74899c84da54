"""Sweeps: shared stages once, the same results as single fits, refusals as rows."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import JobError, LockedError
from bigembed.jobs.spec import parse_job
from bigembed.jobs.sweep import parse_values, sweep
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.store.lock import hold


@pytest.fixture
def rows(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 4)) * [1.2, 1, 0.2, 0.2]  # two coordinates show them
    np.save(tmp_path / "x.npy", values)
    return values


@pytest.fixture
def job(tmp_path, rows):
    tables = {
        "input": {"path": "x.npy"},
        "method": {"name": "diffusion_map", "n_components": 2, "n_neighbors": 8},
        "output": {"path": "sweep.zarr"},
    }
    return parse_job(tables, tmp_path / "job.toml")


def test_shared_stages_are_computed_once_and_results_are_those_of_single_fits(job, rows, tmp_path):
    told = []
    options = RunOptions(lambda event: told.append((event.kind, event.stage)))
    found = sweep(job, {"n_neighbors": [8, 12], "alpha": [0.0, 1.0]}, options)
    done = [stage for kind, stage in told if kind == "done"]
    assert [done.count(name) for name in ("survey", "order", "graph", "kernel", "solve")] == [1, 1, 2, 4, 4]
    assert (found["points"], found["stages"]) == (4, len(done))
    for row in found["rows"]:
        alone = be.DiffusionMap(n_components=2, n_neighbors=row["n_neighbors"], alpha=row["alpha"]).fit(rows)
        np.testing.assert_array_equal([row["eigenvalue_1"], row["eigenvalue_2"]], alone.eigenvalues_)
        assert row["recall.recall"] == alone.certificate_["recall"]["recall"]
    assert len({row["eigenvalue_1"] for row in found["rows"]}) == 4
    with open(tmp_path / "sweep.zarr" / "table.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["n_neighbors"], row["alpha"]) for row in table][:3] == [("8", "0.0"), ("8", "1.0"), ("12", "0.0")]
    assert float(table[3]["eigenvalue_1"]) == found["rows"][3]["eigenvalue_1"]
    assert json.loads((tmp_path / "sweep.zarr" / "table.json").read_text()) == found["rows"]


def test_a_second_start_computes_only_what_is_new(job):
    first = sweep(job, {"alpha": [0.0, 1.0]})
    again = sweep(job, {"alpha": [0.0, 1.0]})
    assert (first["stages"] > 0, again["stages"]) == (True, 0)
    more = sweep(job, {"alpha": [0.0, 0.5, 1.0]})
    assert 0 < more["stages"] < first["stages"]
    same = [{key: row[key] for key in row if key != "stages_computed"} for row in more["rows"]]
    assert same[0] == {key: value for key, value in first["rows"][0].items() if key != "stages_computed"}


def test_what_the_data_refuse_is_a_row(job):
    found = sweep(job, {"n_neighbors": [8, 300]})
    assert [bool(row["error"]) for row in found["rows"]] == [False, True]
    assert "n_neighbors=300" in found["refused"][0]


def test_linear_methods_and_data_sets(tmp_path):
    tables = {
        "input": {"dataset": "mixture", "n": 500, "d": 16, "path": "data.zarr"},
        "method": {"name": "pca"},
        "output": {"path": "sweep.zarr"},
    }
    found = sweep(parse_job(tables, tmp_path / "job.toml"), {"n_components": [1, 3], "whiten": [True, False]})
    assert [row["n_components"] for row in found["rows"]] == [1, 1, 3, 3]
    assert found["rows"][0]["eigenvalue_1"] == pytest.approx(found["rows"][2]["eigenvalue_1"])


def test_wrong_grids(job, tmp_path):
    with pytest.raises(JobError, match=r"n_neighbours.*did you mean 'n_neighbors'"):
        sweep(job, {"n_neighbours": [3]})
    with pytest.raises(JobError, match="valid number"):
        sweep(job, {"alpha": ["much"]})
    for text in ("alpha", "alpha=", "=3"):
        with pytest.raises(JobError, match="NAME=VALUE"):
            parse_values([text])
    with pytest.raises(JobError, match="each name once"):
        parse_values(["a=1", "a=2"])
    assert not (tmp_path / "sweep.zarr").exists()


def test_one_at_a_time(job, tmp_path):
    sweep(job, {"alpha": [0.0]})
    with hold(tmp_path / "sweep.zarr"), pytest.raises(LockedError):
        sweep(job, {"alpha": [1.0]})
