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
from bigembed.estimator import extension_of, run_of, sampling
from bigembed.estimator.likeness import warn_of_unlike
from bigembed.estimator.transform import new_rows
from bigembed.quality.likeness import column_limits, far_columns, more_missing, outside, reach_of
from bigembed.runtime import blocks
from bigembed.store.arrays import read_array

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
    assert said(fitted, frame) == said(fitted, frame.assign(s=frame.s.where(frame.index % 20 > 0))) == []
    assert (
        "filled in column s (33.3 %, 0 % of the fitted)"
        in said(fitted, frame.assign(s=frame.s.where(frame.index % 3 > 0)))[0]
    )
    few = frame[:3].assign(price=np.nan, s=[35.0, np.nan, 35.5])
    [text] = said(fitted, few)
    assert ("column price" in text, "column s " in text) == (True, False)  # (one of three is chance)
    [text] = said(fitted, frame.assign(price=np.nan))
    assert "missing and filled in column price (100 %, 2 % of the fitted)" in text


def test_halves_with_missing_values_are_alike_and_further_ones_are_counted() -> None:
    """Shares of a few percent to nearly all, in 40 columns: random halves differ by chance only."""
    rng = np.random.default_rng(5)
    shares = rng.uniform(0.01, 0.95, 40)
    for n in (30, 60, 400, 3_000):
        rows = np.where(rng.random((n, 40)) < shares, np.nan, rng.normal(size=(n, 40)))
        half, other = rows[::2], rows[1::2]
        if (~np.isnan(half)).any(axis=0).all():
            new, fitted = np.isnan(other).sum(axis=0), np.isnan(half).sum(axis=0)
            assert not more_missing(new, len(other), fitted, len(half)).any()
    more = np.where(rng.random((500, 40)) < np.minimum(shares + 0.3, 1), np.nan, 1.0)
    assert more_missing(np.isnan(more).sum(axis=0), 500, np.isnan(half).sum(axis=0), len(half))[shares < 0.5].all()


def test_what_is_filled_in_new_rows_is_accounted_for() -> None:
    """By the numbers of the rows, and in as many words as the fit has for its own."""
    rows = weather(0)
    rows[::50, 1] = np.nan
    steps = [("missing", be.Missing("fill", fill=0.5)), ("standardize", be.StandardScaler()), ("pca", be.PCA(2))]
    fitted = be.Pipeline(steps).fit(rows).method_
    new = rows[:100].copy()
    new[7, :2] = np.nan
    source, _ = new_rows(fitted, new, extension_of(fitted), {})
    found = warn_of_unlike(fitted, source, 40)
    [account] = found.missing
    assert not found.warning
    assert account["said"] == (
        "1 missing: 3 of 100 rows have missing values and were filled with 0.5 (1 % of all values): rows 40, 47, 90 "
        "(counted from 0); by column: 1 (3), 0 (1)"
    )
    many, _ = new_rows(fitted, np.tile(new, (30, 1)), extension_of(fitted), {})
    [account] = warn_of_unlike(fitted, many).missing
    assert (account["of"], account["n"]) == (3_000, 1_000)
    assert "1 missing: of 3,000 new rows, of which 1,000 were looked at, " in account["said"]


def test_rows_that_are_scaled_each_by_itself_are_not_compared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = be.DiffusionMap(2, metric="cosine").fit(weather(0))
    assert said(estimator, 50 * weather(1)) == []


HEAVY = {
    "lognormal": lambda rng, n: rng.lognormal(3, 2, (n, 20)),
    "counts": lambda rng, n: np.floor(rng.lognormal(1, 2, (n, 20))),
    "pareto": lambda rng, n: 1 + rng.pareto(1.5, (n, 20)),
    "rare amounts": lambda rng, n: (rng.random((n, 20)) < 0.003) * rng.lognormal(3, 2, (n, 20)),
    "rare marks": lambda rng, n: (rng.random((n, 20)) < 0.01).astype(float),
}


@pytest.mark.parametrize("kind", HEAVY)
@pytest.mark.parametrize(("fitted", "new"), [(40, 40), (150, 1_000), (1_000, 1_000), (1_000, 30), (1_000, 1)])
def test_new_rows_of_heavy_tails_are_not_far(kind: str, fitted: int, new: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = HEAVY[kind](rng, fitted)
        limits = column_limits(rows, rows.min(axis=0), rows.max(axis=0))
        assert far_columns(HEAVY[kind](rng, new), limits, fitted) == {}


@pytest.mark.parametrize("name", ["digits", "wine", "breast_cancer"])
def test_random_halves_of_real_rows_are_not_far_and_some_in_other_units_are(name: str) -> None:
    X, rng = getattr(datasets, f"load_{name}")().data, np.random.default_rng(0)
    for _ in range(30):
        half, other = np.array_split(rng.permutation(X), 2)
        limits = column_limits(half, half.min(axis=0), half.max(axis=0))
        assert far_columns(other, limits, len(half)) == {}
        column = int(X.mean(axis=0).argmax())
        other[:15, column] *= 1_000
        found = far_columns(other, limits, len(half))
        assert set(found[column].rows) <= set(range(15))
        assert len(found[column].rows) >= 12
        assert found[column].times > 100


def test_few_new_rows_far_away_are_said_with_their_numbers() -> None:
    """Some in thousandfold units, as one in a million times others; one that is far by chance is not."""
    fitted, new = be.PCA(2).fit(weather(0)), weather(1)
    for few in (0, 15):
        X = new.copy()
        X[40 : 40 + few, 3] = 0.1
        X[40 : 40 + few, 2] *= 1_000
        assert len(said(fitted, X)) == bool(few)
    text = said(fitted, X)[0]
    assert re.search(
        r"in 1\d of 600 rows looked at column 2 .* up to \d+ times the range of the fitted rows \(rows 4", text
    )
    assert "most new rows" not in text
    X = new.copy()
    X[7, 0] = X[7, 0] * 1e9
    assert "in 1 of 600 rows looked at column 0" in said(fitted, X)[0]
    X[7, 0] = new[:, 0].max() * 2
    assert said(fitted, X) == []


def test_a_column_that_most_rows_are_beyond_is_said_once() -> None:
    fitted = be.PCA(2).fit(weather(0))
    [text] = said(fitted, weather(1) * [1e6, 1, 1, 1])
    assert "most new rows" in text
    assert "looked at column 0" not in text


def test_rows_beyond_what_was_read_of_a_sorted_file_are_not_far(monkeypatch: Any) -> None:
    """A fit looks at some blocks of many rows. Of a column that rises from block to block these say no range."""
    monkeypatch.setattr(blocks, "MAX_BLOCK_ROWS", 500)
    monkeypatch.setattr(blocks, "MIN_BLOCK_ROWS", 500)
    monkeypatch.setattr(sampling, "SPREAD", 2_000)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.lognormal(3, 1.5, 20_000), rng.normal(size=20_000), rng.lognormal(3, 1, 20_000)])
    fitted = be.PCA(2).fit(rows[np.argsort(rows[:, 0])])
    new = rows[:1_000].copy()
    limits = read_array(run_of(fitted).path("judgement", "limits"))
    assert list(far_columns(new, limits, 1_000)) == [0]  # (what would be said)
    assert said(fitted, new) == []
    new[:30, 2] *= 1_000
    assert "rows looked at column 2" in said(fitted, new)[0]
