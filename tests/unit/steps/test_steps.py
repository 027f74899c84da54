"""Each step against what scikit-learn, NumPy or a formula makes of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import preprocessing
from sklearn.impute import SimpleImputer

import bigembed as be
from bigembed.errors import BigembedError, InputError
from bigembed.linalg.moments import levels_of
from bigembed.maps.registry import STEPS, step
from bigembed.rows.source import RowSource
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages
from bigembed.store.arrays import read_array
from tests.blocks import blocks_of

N, D = 3_000, 7
_RANDOM = np.random.default_rng(0)
ROWS = _RANDOM.normal(size=(N, D)) * np.geomspace(1e-3, 1e3, D) + np.linspace(-1e4, 1e4, D)
ROWS[:, 2] = 5.1
HOLES = np.where(_RANDOM.random((N, D)) < 0.05, np.nan, ROWS)
COUNTS = _RANDOM.poisson(3.0, (N, D)).astype("f4") * (_RANDOM.random((N, 1)) < 0.98)


def same(found: Any, expected: Any, near: float = 1e-12) -> None:
    """Up to rounding; and rows one further along are not."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=near * max(1.0, np.abs(expected).max()))
    assert np.abs(found[1:] - expected[:-1]).max() > 1e3 * near


PEERS = {
    "standardize": (be.StandardScaler(), preprocessing.StandardScaler(), 1e-7),
    "mean only": (be.StandardScaler(with_std=False), preprocessing.StandardScaler(with_std=False), 1e-10),
    "robust": (be.RobustScaler(), preprocessing.RobustScaler(), 1e-12),
    "robust, others": (
        be.RobustScaler(quantile_range=(5, 90)),
        preprocessing.RobustScaler(quantile_range=(5, 90)),
        1e-12,
    ),
    "l2": (be.Normalizer(), preprocessing.Normalizer(), 1e-14),
    "l1": (be.Normalizer("l1"), preprocessing.Normalizer("l1"), 1e-14),
    "max": (be.Normalizer("max"), preprocessing.Normalizer("max"), 1e-14),
}


@pytest.mark.parametrize("name", PEERS)
def test_scikit_learn_makes_the_same(name: str, tmp_path: Path) -> None:
    mine, peer, near = PEERS[name]
    same(mine.fit_transform(ROWS), peer.fit_transform(ROWS), near)
    narrow = ROWS.astype("f4")
    assert mine.fit_transform(narrow).dtype == np.float32
    np.save(tmp_path / "rows.npy", ROWS)
    lazy = mine.fit(tmp_path / "rows.npy").transform(tmp_path / "rows.npy")
    np.testing.assert_array_equal(lazy.compute(), mine.fit_transform(ROWS))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_quantiles_are_exact(dtype: str) -> None:
    rows = np.concatenate([ROWS.astype(dtype), -ROWS[:500].astype(dtype), np.zeros((3, D), dtype)])
    found = be.RobustScaler(quantile_range=(1, 99.5)).fit(rows)
    worked = rows.astype("f8")
    low, middle, high = np.quantile(worked, [0.01, 0.5, 0.995], axis=0)
    np.testing.assert_array_equal(found.center_, middle)
    np.testing.assert_allclose(found.scale_, np.where(high == low, 1, high - low), rtol=1e-14)
    assert sum(levels_of(dtype if dtype != "i2" else "f4", D, 6)) == (64 if dtype == "f8" else 32)


@pytest.mark.parametrize("fill", ["mean", "median", 7.0])
def test_missing_values_are_filled(fill: Any) -> None:
    strategy = {"strategy": fill} if isinstance(fill, str) else {"strategy": "constant", "fill_value": fill}
    with blocks_of(700):  # (whose means are put together)
        found = be.Missing(action="fill", fill=fill).fit(HOLES)
    same(found.fit_transform(HOLES), SimpleImputer(**strategy).fit_transform(HOLES), 1e-11)
    np.testing.assert_array_equal(found.missing_, np.isnan(HOLES).sum(axis=0))
    masked = np.ma.array(np.where(np.isnan(HOLES), 1e9, HOLES), mask=np.isnan(HOLES))
    np.testing.assert_array_equal(found.fit_transform(masked), found.fit_transform(HOLES))


def test_rows_with_missing_values_are_left_out_and_said() -> None:
    there = ~np.isnan(HOLES).any(axis=1)
    found = be.Missing().fit(HOLES)
    np.testing.assert_array_equal(found.embedding_, HOLES[there])
    np.testing.assert_array_equal(found.rows_, np.flatnonzero(there))
    said = found.certificate_["missing"]
    assert (said["rows"], said["kept"]) == ((~there).sum(), there.sum())
    assert said["first"] == np.flatnonzero(~there)[:10].tolist()
    assert "were left out" in found.said()


def test_totals_logarithms_and_columns() -> None:
    totals = COUNTS.sum(axis=1, dtype="f8")
    target = np.median(totals[totals > 0])
    shares = be.Normalizer("total").fit(COUNTS)
    assert shares.target_ == target
    expected = COUNTS * np.where(totals > 0, target / np.where(totals > 0, totals, 1), 1)[:, None]
    same(shares.transform(COUNTS), expected, 1e-6)
    same(be.Log1p().fit_transform(COUNTS), np.log1p(COUNTS), 1e-6)
    same(be.Clip(low=-2, high=3).fit_transform(ROWS), ROWS.clip(-2, 3))
    chosen = be.Columns(most_variable=3).fit(ROWS)
    assert chosen.columns_.tolist() == [4, 5, 6]
    np.testing.assert_array_equal(chosen.transform(ROWS), ROWS[:, 4:])
    np.testing.assert_array_equal(be.Columns([5, 0]).fit_transform(ROWS), ROWS[:, [5, 0]])


WRONG = {
    "clip nothing": (lambda: be.Clip().fit(ROWS), "low=None.*high must be one"),
    "log of −2": (lambda: be.Log1p().fit_transform(np.array([[0.0], [-2.0]])), r"rows \[1\], with -2"),
    "negative total": (lambda: be.Normalizer("total").fit_transform(-COUNTS), "negative"),
    "unknown column": (lambda: be.Columns(["a"]).fit(ROWS), "no names of columns: give numbers, 0 to 6"),
    "too many": (lambda: be.Columns(most_variable=9).fit(ROWS), "there are 7 columns"),
    "infinity": (lambda: be.Missing().fit(np.where(ROWS[5, 5] == ROWS, np.inf, HOLES)), r"infinity: 1 of 3000.*\[5\]"),
    "nothing complete": (lambda: be.Missing().fit(np.full((4, 2), np.nan)), "no row is complete"),
    "empty column": (lambda: be.Missing("fill").fit(np.array([[1.0, np.nan]])), r"no number at all.*\[1\]"),
    "quantiles": (lambda: be.RobustScaler(quantile_range=(80, 20)).fit(ROWS), "q_min < q_max"),
    "NaN": (lambda: be.StandardScaler().fit(HOLES), "contains NaN: [0-9]+ of 3000 rows.*'missing'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    do, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        do()


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_estimators(name: str, tmp_path: Path) -> None:
    """Saved, loaded and pickled; any rows of a batch alone are the same."""
    import pickle

    given = {"clip": {"high": 3.0}, "columns": {"columns": [1, 3]}, "pca": {"n_components": 2}}.get(name, {})
    one = step(name)(**given).fit(COUNTS)
    whole = one.transform(COUNTS[:50])
    np.testing.assert_array_equal(np.vstack([one.transform(COUNTS[i : i + 1]) for i in range(50)]), whole)
    one.save(tmp_path / "step")
    for again in (be.load(tmp_path / "step"), pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(again.transform(COUNTS[:50]), whole)
    with pytest.raises(BigembedError):
        one.transform(COUNTS[:, :2])


@pytest.mark.parametrize("name", [*STEPS, "missing, filled", "columns, chosen"])
def test_a_step_that_is_not_fitted_writes_its_rows_by_what_its_stages_learned(name: str, tmp_path: Path) -> None:
    """As before a method that reads its rows so often that a copy of what the step makes is cheaper."""
    given = {
        "clip": {"high": 3.0},
        "columns": {"columns": [1, 3]},
        "columns, chosen": {"most_variable": 2},
        "missing, filled": {"action": "fill"},
        "pca": {"n_components": 2},
    }.get(name, {})
    rows = HOLES if name == "missing, filled" else COUNTS
    kind, run = step(name.partition(",")[0]), Run(tmp_path / "run")
    stages = kind(**given).stages(RowSource(rows.shape, rows.dtype, array=rows))
    run_stages(stages, run)
    whole = kind(**given).fit_transform(rows)
    if stages[-1].on_demand:
        np.testing.assert_array_equal(read_array(run.path("coordinates", "embedding")), whole)
    else:
        np.testing.assert_array_equal(whole, rows)  # (rows are left out as they are read)


def test_names_of_columns_are_kept() -> None:
    import pandas as pd

    frame = pd.DataFrame(COUNTS, columns=list("abcdefg"))
    assert be.StandardScaler().fit(frame).get_feature_names_out().tolist() == list("abcdefg")
    assert be.Columns(["c", "a"]).fit(frame).get_feature_names_out().tolist() == ["c", "a"]
    with pytest.raises(InputError, match=r"no columns 'h'; .*a, b, c"):
        be.Columns(["h"]).fit(frame)


def test_written_rows_are_those_of_the_step(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    be.StandardScaler().fit_transform_to(tmp_path / "rows.npy", tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), be.StandardScaler().fit_transform(ROWS))
