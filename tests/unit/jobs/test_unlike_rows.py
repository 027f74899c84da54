"""What jobs say of new rows that are not as those fitted: missing values that a step fills, values far away."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.lines import growth_lines
from bigembed.jobs.spec import parse_job
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import ingest
from bigembed.rows.reader import Choice

STEPS = [{"name": "missing", "action": "fill", "with": "median"}, {"name": "standardize"}]


def rows_of(seed, n=600, gone=0.02):
    """Four columns, of which the second misses a share of its values."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4)) * [9, 5, 3, 1]
    rows[rng.random(n) < gone, 1] = np.nan
    return rows


def growing_job(folder):
    np.save(folder / "rows.npy", rows_of(0))
    ingest(folder / "rows.npy", folder / "x.zarr", Choice(missing=True))
    tables = {
        "input": {"path": str(folder / "x.zarr")},
        "steps": STEPS,
        "method": {"name": "pca", "n_components": 2},
        "output": {"path": str(folder / "out.zarr")},
    }
    return parse_job(tables, folder / "job.toml")


def test_filled_values_are_accounted_for_in_lines_and_json(tmp_path):
    steps = [("missing", be.Missing("fill", fill="median")), ("standardize", be.StandardScaler()), ("pca", be.PCA(2))]
    be.Pipeline(steps).fit(rows_of(0)).save(tmp_path / "model")
    for name, gone in (("few", 0.02), ("many", 0.3)):
        new = rows_of(1, 300, gone)
        np.save(tmp_path / f"{name}.npy", new)
        command = ["extend", str(tmp_path / "model"), str(tmp_path / f"{name}.npy")]
        said = CliRunner().invoke(app, [*command, str(tmp_path / f"{name}.zarr")])
        count = int(np.isnan(new).sum())
        assert f"1 missing: {count} of 300 rows have missing values and were filled with the median" in said.stdout
        assert ("far more values are missing and filled in column 1" in said.stderr) == (name == "many")
        found = CliRunner().invoke(app, [*command, str(tmp_path / f"{name}-2.zarr"), "--json"])
        [account] = json.loads(found.stdout.splitlines()[-1])["missing"]
        assert (account["rows"], account["columns"], account["of"]) == (count, [["1", count]], 300)


def test_filled_values_of_appended_rows_are_accounted_for_by_their_numbers(tmp_path):
    job, new = growing_job(tmp_path), rows_of(1, 300, 0.4)
    refresh(job)
    append_rows(tmp_path / "x.zarr", new, missing=True)
    with pytest.warns(be.errors.MapWarning, match="far more values are missing and filled in column 1"):
        found = extend(job)
    first = 600 + int(np.flatnonzero(np.isnan(new).any(axis=1))[0])
    assert f"were filled with the median (10.1 % of all values): rows {first}, " in growth_lines(found)[2]
    assert extend(job)["missing"] == []
