"""What the coordinates of linear maps are made of, on pages and terminals: the leading columns by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.jobs.report import RunSummary
from bigembed.jobs.report.leading import Leading, leading_lines, leading_of
from bigembed.store import at
from tests.job_files import job_file

STANDARDIZED = '[[steps]]\nname = "standardize"'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(rows: Any, method: str = "pca", count: int = 3, steps: str = "") -> tuple[list[Leading], str, str]:
    """What the record of a job says of its coordinates, what is printed, and the page."""
    if isinstance(rows, pd.DataFrame):
        rows.to_parquet(path := "rows.parquet")
    else:
        np.save(path := "rows.npy", rows)
    asked = f'name = "{method}"\nn_components = {count}'
    job_file(Path(), asked, f'path = "{path}"', 'report = "run.html"', steps)
    out = CliRunner().invoke(app, ["run", "job.toml"])
    assert out.exit_code == 0, out.output
    return leading_of(RunSummary.read(at("run.zarr")).record), out.output, Path("run.html").read_text()


def test_columns_of_a_table_are_named_with_their_weights() -> None:
    frame = load_wine(as_frame=True).data
    found, printed, page = run(frame, steps=STANDARDIZED)
    values, vectors = np.linalg.eigh(np.corrcoef(frame.to_numpy().T))
    for one, value, vector in zip(found, values[::-1], vectors.T[::-1], strict=False):
        order = np.argsort(-abs(vector))[:6]
        assert [name for name, _ in one.columns] == [frame.columns[c] for c in order]
        sign = np.sign(one.columns[0][1] * vector[order[0]])
        np.testing.assert_allclose([weight for _, weight in one.columns], sign * vector[order], atol=1e-4)
        assert one.share == pytest.approx(value / values.sum())
    errors = (values[::-1][:2] - values[::-1][1:3]) / (values[::-1][:2] * np.sqrt(2 / len(frame)))
    assert [one.apart for one in found[:2]] == pytest.approx(errors.tolist())
    assert found[2].apart is None
    assert "Coordinate 1 (36.2 % of the variance): flavanoids" in printed
    assert 'id="leading"' in page
    assert "flavanoids +.42" in page


def test_two_alike_variances_are_read_together_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    round_rows = np.linalg.qr(rng.normal(size=(400, 3)))[0] * np.sqrt(400)
    round_rows -= round_rows.mean(axis=0)
    alike, printed, page = run(round_rows * np.array([2.0, 1.98, 1.0]))
    assert [one.close for one in alike] == [True, False, False]
    assert "coordinates 1 and 2 differ by less than the sampling error" in printed
    assert 'class="num flagged" data-name="Sampling errors' in page


def test_apart_ones_have_no_note() -> None:
    rng = np.random.default_rng(0)
    apart, printed, page = run(rng.normal(size=(400, 3)) * np.array([4.0, 2.0, 1.0]))
    assert not any(one.close for one in apart)
    assert "sampling error of" not in printed
    assert "flagged" not in page.partition('id="leading"')[2].partition("</section>")[0]


@pytest.mark.parametrize(("method", "width"), [("pca", 51), ("diffusion_map", 4)])
def test_unnamed_columns_of_many_and_maps_that_are_not_linear_have_none(method: str, width: int) -> None:
    found, printed, page = run(np.random.default_rng(0).normal(size=(120, width)), method, 2)
    assert found == []
    assert "Coordinate 1" not in printed
    assert 'id="leading"' not in page


def test_singular_vectors_of_rows_as_they_are_are_not_compared() -> None:
    """Their variances have another order: that of the first may be the smaller one, and no sampling turns them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)) * np.array([0.1, 2.0, 1.0]) + np.array([50.0, 0.0, 0.0])
    found, printed, page = run(rows, "truncated_svd")
    assert found[0].share < found[1].share
    assert [one.apart for one in found] == [None] * 3
    assert "sampling error" not in printed + page.partition('id="leading"')[2].partition("</section>")[0]


def test_topics_have_their_words() -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(4.0, (300, 2)) @ np.array([[5, 4, 0, 0], [0, 0, 5, 4]])
    found, printed, _ = run(pd.DataFrame(counts.astype(float), columns=["sea", "ship", "star", "moon"]), "nmf", 2)
    words = sorted({name for name, weight in one.columns if weight > 0.1} for one in found)
    assert sorted(map(sorted, words)) == [["moon", "star"], ["sea", "ship"]]
    assert found[0].share is None
    assert "of the variance)" not in printed


def test_the_columns_of_a_record_of_an_earlier_version_are_none() -> None:
    assert leading_lines({"certificate": {}}) == []
