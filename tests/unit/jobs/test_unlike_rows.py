"""What jobs say of new rows that are not as those fitted: missing values that a step fills, values far away."""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.jobs.growth.audit import Limits, audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.lines import audit_lines, growth_lines
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


def growing_job(folder, gone=0.02):
    np.save(folder / "rows.npy", rows_of(0, gone=gone))
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


def test_few_rows_far_away_are_named_with_their_column_and_range(tmp_path):
    """A part in other units among what is placed together, in three ranges: two of good rows, and one with them."""
    job = growing_job(tmp_path, gone=0)
    refresh(job)
    good, mixed = rows_of(1, 400, 0), rows_of(2, 300, 0)
    mixed[200:220, 2] *= 1000
    append_rows(tmp_path / "x.zarr", good)
    with no_warning():
        extend(job)
    fine = audit(job)
    assert (fine["far"], fine["due"], audit_lines(fine)[-1]) == ([], [], "the model fits")
    append_rows(tmp_path / "x.zarr", mixed)
    said = r"in 20 of 300 rows looked at column 2 .* far outside, .* times the range .* \(rows 1200, 1201, 1202, …\)"
    with pytest.warns(be.errors.MapWarning, match=f"Some of the new rows are unlike those fitted.*{said}"):
        extend(job)
    append_rows(tmp_path / "x.zarr", mixed)  # (not placed yet)
    found = audit(job)
    [far] = found["far"]
    assert (far["column"], far["rows"], far["judged"], far["first"][:2]) == ("2", 40, 1000, [1200, 1201])
    assert far["times"] > 100
    assert far["ranges"] == [{"start": start, "stop": start + 300, "rows": 20, "judged": 300} for start in (1000, 1300)]
    line = "far: column 2 in 40 of 1,000 new rows looked at"
    assert any(line in one and "1000:1300 (20 of 300), 1300:1600 (20 of 300)" in one for one in audit_lines(found))
    fitting = audit(job, limits=Limits(growth=2))
    assert fitting["due"] == []
    assert audit_lines(fitting)[-1] == "no refresh is due, but look at the rows that are far"


@contextmanager
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", be.errors.MapWarning)
        yield
