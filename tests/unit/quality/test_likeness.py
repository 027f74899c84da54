"""New rows of another kind than those fitted are warned of; those of the same kind, or of one class, are not."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

import bigembed as be
from bigembed.errors import MapWarning
from bigembed.estimator import run_of
from bigembed.quality.likeness import outside, reach_of

N = 600
FAULTS = {
    "kelvin": lambda X: X + np.array([273.15, 0, 0, 0]),
    "one row in kelvin": lambda X: (X + np.array([273.15, 0, 0, 0]))[:1],
    "cents": lambda X: X * [1, 1, 100, 1],
    "swapped": lambda X: X[:, [1, 0, 2, 3]],
    "fill values": lambda X: np.where((np.arange(len(X)) % 40 == 0)[:, None] & [False, True, False, False], -9999, X),
    "thousandths": lambda X: X / 1000,
}


def said(estimator: Any, X: Any) -> list[str]:
    """What a transform says of the kind of rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.transform(X)
    return [str(one.message) for one in caught if "unlike those fitted" in str(one.message)]


def weather(seed: int, n: int = N) -> Any:
    """Temperatures, salinities, amounts, and a column that says nothing."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(15, 8, n), rng.normal(35, 1, n), rng.lognormal(3, 1, n), np.full(n, 0.1)
    return np.column_stack(columns)


@pytest.fixture(scope="module", params=["pca", "diffusion map", "pipeline"])
def fitted(request: Any) -> Any:
    """A linear map, a map on a graph, and one after a step; of single precision, which rounds the constant column."""
    kinds = {
        "pca": lambda: be.PCA(2),
        "diffusion map": lambda: be.DiffusionMap(2),
        "pipeline": lambda: be.Pipeline([("standardize", be.StandardScaler()), ("pca", be.PCA(2))]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kinds[request.param]().fit(weather(0).astype(np.float32))


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_of_another_kind_are_warned_of(fitted: Any, fault: str) -> None:
    with pytest.warns(MapWarning, match="unlike those fitted"):
        fitted.transform(FAULTS[fault](weather(1)))


@pytest.mark.parametrize("count", [1, 2, 7, 19, 20, 200, N])
def test_rows_of_the_same_kind_are_not(fitted: Any, count: int) -> None:
    assert said(fitted, weather(2)[:count]) == []


@pytest.mark.parametrize(
    "load", [datasets.load_iris, datasets.load_wine, datasets.load_digits], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("method", [be.PCA, be.DiffusionMap])
def test_one_class_of_real_rows_is_not(method: Any, load: Any) -> None:
    X, y = load(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = method(2).fit(X)
    for label in np.unique(y):
        assert said(estimator, X[y == label]) == []
    assert said(estimator, 1000 + X) != []


def test_columns_are_named_and_lazy_rows_are_left_alone() -> None:
    pd, da = pytest.importorskip("pandas"), pytest.importorskip("dask.array")
    frame = pd.DataFrame(weather(0), columns=["t", "s", "price", "day"])
    estimator = be.PCA(2).fit(frame)
    assert "in column t most new rows" in said(estimator, frame.assign(t=frame.t + 273.15))[0]
    plain = be.PCA(2).fit(weather(0))
    assert said(plain, da.from_array(weather(1) + 1000, chunks=100)) == []


def test_a_saved_model_knows_the_kind_of_its_rows(tmp_path: Any) -> None:
    for keep in ("map", "coordinates"):
        estimator = be.PCA(2, keep=keep, workdir=tmp_path / f"run-{keep}").fit(weather(0))
        estimator.save(tmp_path / keep)
        loaded = be.load(tmp_path / keep)
        assert {"limits", "reach"} <= {name.split("/")[0] for name in run_of(loaded).manifest("judgement").files}
        assert said(loaded, weather(1) + 1000) != []
        assert said(loaded, weather(1)) == []


@pytest.mark.parametrize("method", [be.DiffusionMap, be.Isomap, be.UMAP])
def test_a_part_of_the_space_that_was_not_seen_is_said(method: Any) -> None:
    """Outliers stretch all columns, so that these say nothing; distances to the fitted rows do."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(700, 3)), rng.normal(size=(5, 3)) * 20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = method(2).fit(rows)
    same, other = rng.normal(size=(300, 3)), rng.normal(size=(300, 3)) + np.array([5.0, 5.0, 0.0])
    half = np.concatenate([same[:150], other[:150]])
    assert said(estimator, same) == said(estimator, rows) == said(estimator, np.concatenate([same, other[:30]])) == []
    assert re.search(r"(4|5|6)\d % of them lie farther from the fitted rows", said(estimator, half)[0])


def test_reach_is_that_of_the_neighbors_of_the_same_rank() -> None:
    distances = np.arange(1.0, 101.0)[:, None] * np.array([1.0, 2.0])
    assert reach_of(distances**2) == pytest.approx([99.01, 198.02])
    indptr = np.array([0, 2, 4, 7, 9])
    near = np.array([1.0, 200.0, 10.0, 298.0, 1.0, 250.0, 999.0, 5.0, 296.0])
    assert outside(indptr, near**2, reach_of(distances**2)) == 0.25


def test_rows_that_are_all_left_out_say_nothing() -> None:
    rows = weather(0)
    rows[::50, 1] = np.nan
    fitted = be.Pipeline([("missing", be.Missing()), ("pca", be.PCA(2))]).fit(rows)
    assert said(fitted, np.where(np.arange(4) == 1, np.nan, rows)) == []


@pytest.mark.parametrize("first", [[], [("columns", be.Columns([1, 2, 0]))]])
def test_values_that_are_missing_and_filled_are_said(first: Any) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(weather(0)[:, :3], columns=["t", "s", "price"])
    frame.loc[::50, "price"] = np.nan
    steps = [*first, ("missing", be.Missing("fill", fill="median")), ("standardize", be.StandardScaler())]
    fitted = be.Pipeline([*steps, ("pca", be.PCA(2))]).fit(frame)
    assert said(fitted, frame) == said(fitted, frame.assign(s=frame.s.where(frame.index % 3 > 0))) == []
    [text] = said(fitted, frame.assign(price=np.nan))
    assert "missing and filled in column price (100 %, 2 % of the fitted)" in text


def test_rows_that_are_scaled_each_by_itself_are_not_compared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = be.DiffusionMap(2, metric="cosine").fit(weather(0))
    assert said(estimator, 50 * weather(1)) == []
