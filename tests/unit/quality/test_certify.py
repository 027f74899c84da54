"""be.certify against scikit-learn and exact counts; what it flags, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
import tracemalloc
import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.manifold import trustworthiness
from sklearn.neighbors import NearestNeighbors

import bigembed as be
from bigembed.errors import InputError, InputTypeError
from bigembed.quality import cost_of, preserved
from bigembed.quality import passes as spaces
from bigembed.quality.figures import columns_figure
from bigembed.rows.input import row_source
from bigembed.store.exchange import Exchange
from tests.executors import executor
from tests.some import a_few

NAMES = ("preservation", "trustworthiness", "continuity", "triplets")


def rolled(n, seed=0):
    """A sheet with some noise in ten dimensions, and its true coordinates."""
    rng = np.random.default_rng(seed)
    plane = rng.uniform(-1, 1, (n, 2)) * [2, 1]
    turn = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    curved = np.c_[np.sin(plane[:, 0]), np.cos(plane[:, 0]), plane[:, 1], 0.05 * rng.normal(size=(n, 7))]
    return curved @ turn, plane


def kept(X, Y, k):
    """Exact preservation, by scikit-learn's lists."""
    near = [NearestNeighbors(n_neighbors=k).fit(rows).kneighbors(return_distance=False) for rows in (X, Y)]
    return float(np.mean([len(np.intersect1d(*pair)) / k for pair in zip(*near, strict=True)]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@a_few(2, "shape", [(300, 12, 15), (57, 3, 28), (700, 40, 5)])
def test_all_rows_sampled_are_scikit_learns_figures(shape, metric, monkeypatch):
    n, d, k = shape
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d)) + 0.2
    Y = X[:, :2] + 0.3 * rng.normal(size=(n, 2))
    if n == 700:
        monkeypatch.setattr(spaces, "COMPILED", 0)
    found = be.certify(X, Y, n_neighbors=k, metric=metric).figures
    wanted = trustworthiness(X, Y, n_neighbors=k, metric=metric)
    assert found["trustworthiness"]["value"] == pytest.approx(wanted, abs=1e-12)
    assert found["trustworthiness"]["standard_error"] == 0
    if metric == "euclidean":
        assert found["continuity"]["value"] == pytest.approx(trustworthiness(Y, X, n_neighbors=k), abs=1e-12)
        assert found["preservation"]["value"] == pytest.approx(kept(X, Y, k), abs=1e-12)


def test_triplets_are_those_of_all_triplets():
    X, Y = rolled(40)
    found = be.certify(X, Y, n_neighbors=5).figures["triplets"]
    apart = [np.linalg.norm(rows[:, None] - rows, axis=2) for rows in (X, Y)]
    i, j, l = np.array([(a, b, c) for a in range(40) for b in range(40) for c in range(40) if len({a, b, c}) == 3]).T
    exact = np.mean((apart[0][i, j] < apart[0][i, l]) == (apart[1][i, j] < apart[1][i, l]))
    assert abs(found["value"] - exact) < 3 * found["standard_error"]


def tall(n, seed):
    """Rows of several kinds: normal, heavy tails, clusters, few values, binary."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 4, n)
    return [
        rng.normal(size=(n, 8)),
        rng.standard_cauchy(size=(n, 8)),
        20 * np.eye(4)[cluster] + rng.normal(size=(n, 4)),
        rng.integers(0, 3, (n, 4)).astype(float),
        (rng.random((n, 12)) < 0.1).astype(float),
    ]


@pytest.mark.parametrize("n", [60, pytest.param(500, marks=pytest.mark.slow)])
@a_few(2, "kind", range(5))
def test_shuffled_coordinates_are_always_flagged(n, kind):
    for seed in range(4 if n < 100 else 2):
        X = tall(n, seed)[kind]
        maps = [X[:, :2], X, tall(n, seed + 50)[kind][:, :2]]
        for order, Y in enumerate(maps):
            shuffled = np.random.default_rng([seed, order]).permutation(Y)
            assert any("unrelated to the rows" in text for text in be.certify(X, shuffled, seed=seed).warnings)


def test_right_maps_are_left_alone():
    iris, digits = load_iris().data, load_digits().data
    X, Y = rolled(2_500)
    for rows, coordinates in (
        (X, Y),
        (X[:40], Y[:40]),
        (iris, PCA(2).fit_transform(iris)),
        (digits, PCA(8).fit_transform(digits)),
        (np.round(3 * X), np.round(3 * X)),
        (X, 1e-9 * Y + 5),
    ):
        found = be.certify(rows, coordinates)
        assert found.warnings == ()
        assert "warning" not in repr(found)
        assert all(found.figures[name]["above_chance"] > 4 for name in NAMES)


def test_texts_whose_neighbors_are_equally_near_are_related_to_their_map():
    """Ties at the k-th neighbor of nearly all rows: a map that keeps more than ties can is none that was shuffled."""
    rng = np.random.default_rng(0)
    texts = np.zeros((1500, 300))
    for text, topic in zip(texts, rng.integers(0, 30, len(texts)), strict=True):
        text[10 * topic + rng.choice(10, 3, replace=False)] = 1
    texts[:10] = 0
    found = TruncatedSVD(30, random_state=0).fit_transform(texts)
    judged = be.certify(texts, found)
    assert judged.figures["rows"]["tied"] > 0.9
    assert judged.figures["triplets"]["above_chance"] < 4
    assert judged.warnings == ()
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(found)
        assert "unrelated to the rows" in be.certify(texts, shuffled, seed=seed).warnings[0]


@a_few(1, "fill", [-9999.0, 1e12, -1e10])
def test_values_that_stand_for_none_are_said(fill):
    """In the rows, and after they were scaled; columns of other kinds are left alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(15, 8, size=(1200, 6))
    kinds = [rng.random(1200) < 0.1, rng.poisson(0.2, 1200), rng.integers(0, 3, 1200), np.exp(2 * X[:, 0] / 8)]
    X = np.column_stack([X, *kinds]).astype(np.float32)
    assert not any("stand for missing" in text for text in be.certify(X, X[:, :4]).warnings)
    X[rng.random(1200) < 0.06, 2] = fill
    assert any(text.startswith("In column 2 of the rows") for text in be.certify(X, X[:, :4]).warnings)
    with pytest.warns(be.errors.MapWarning, match=r"In column 2 of the rows .* up to [0-9.]+ % of the sampled"):
        be.Pipeline([be.StandardScaler(), be.UMAP(n_epochs=10)]).fit(X.astype(np.float64))


@pytest.mark.parametrize("name", ["PCA", "UMAP", "LandmarkMDS", "DiffusionMap"])
def test_a_column_that_counts_the_rows_is_said(name):
    rows = np.random.default_rng(0).normal(size=(400, 5))
    for column, counts in ((np.arange(400) / 100, True), (np.random.default_rng(1).permutation(400) / 100, False)):
        rows[:, 3] = column
        method = getattr(be, name)(n_components=2)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            method.fit(rows)
        said = [*map(str, (one.message for one in given)), *be.certify(rows, method.embedding_, samples=300).warnings]
        assert sum("Column 3 of the rows (from 0) counts the rows" in one for one in said) == 2 * counts


def test_what_is_wrong_is_said():
    X, Y = rolled(600)
    rng = np.random.default_rng(0)
    assert "All 600 rows have the same coordinates" in be.certify(X, np.ones((600, 2))).warnings[0]
    one = be.certify(X, np.c_[Y, np.ones(600)])
    assert [text[:20] for text in one.warnings] == ["1 of the 3 coordinat"]
    spike = np.zeros((600, 2))
    spike[:3] = rng.normal(size=(3, 2))
    assert "exactly the same place" in be.certify(X, spike).warnings[0]
    torn = np.c_[rng.normal(size=(600, 9)), 3 * Y[:, :1]]
    low = be.certify(torn, torn[:, :1])
    assert any(text.startswith("Trustworthiness is 0.") for text in low.warnings)
    assert not any("unrelated" in text for text in low.warnings)
    half = Y.copy()
    half[:300] = rng.permutation(half[:300])
    assert any(text.startswith("Trustworthiness") for text in be.certify(X, half).warnings)


def test_a_column_in_other_units_and_duplicates_are_notes():
    X, Y = rolled(300)
    found = be.certify(X * np.where(np.arange(10) == 4, 100, 1), Y)
    assert found.notes[0].startswith("Column 4 (from 0) holds 99")
    repeated = np.repeat(X[:12], 25, axis=0)
    again = be.certify(repeated, np.repeat(Y[:12], 25, axis=0))
    assert again.notes == (
        "100 % of the rows have 15 exact duplicates or more: which of them are neighbors is decided by the row number",
    )
    assert again.warnings == ()


def test_the_result_is_plain_and_readable():
    X, Y = rolled(200)
    found = be.certify(X, Y, n_neighbors=np.int64(15), seed=np.int32(0))
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    first = "200 rows of 10 columns (euclidean), 2 coordinates; 200 rows sampled, 15 neighbors"
    assert repr(found).splitlines()[0] == first
    assert found.triplets == found.figures["triplets"]["value"]
    assert found.figures["preservation"]["chance"] == pytest.approx(15 / 199)


def test_rows_are_read_three_times_and_coordinates_five(tmp_path):
    seen = []

    def run(calls, label):
        seen.append(label)
        return [call() for call in calls]

    X, Y = rolled(100)
    with executor(run):
        be.certify(X, da.from_array(Y), workdir=tmp_path)
    assert sorted(label.partition("-")[0] for label in seen if "-" in label).count("rows") == 3
    assert sorted(label.partition("-")[0] for label in seen if "-" in label).count("coordinates") == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("n", "d", "dtype"),
    [
        (66_000, 8, "f4"),
        pytest.param(6_000, 300, "f8", marks=pytest.mark.slow),
        pytest.param(3_000, 20, "u1", marks=pytest.mark.slow),
    ],
)
def test_no_more_memory_is_held_than_stated(n, d, dtype, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).integers(0, 200, (n, d)).astype(dtype))
    np.save(tmp_path / "map.npy", np.random.default_rng(1).normal(size=(n, 3)))
    rows, shown = (row_source(tmp_path / name, tmp_path)[0] for name in ("rows.npy", "map.npy"))
    preserved(rows, shown, Exchange(str(tmp_path / "first")), samples=500)  # (what is imported does not count)
    cost = cost_of(rows, shown, samples=500)
    tracemalloc.start()
    try:
        with executor(lambda calls, label: [call() for call in calls]):
            preserved(rows, shown, Exchange(str(tmp_path / "second")), samples=500)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.1 * (cost.memory + cost.coordinator) < peak < cost.memory + cost.coordinator


def wrong(change):
    X, Y = rolled(60)
    X, Y, given = change(X, Y)
    return X, Y, given


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X, Y: (X, Y[:-1], {}), "60 rows and 59 coordinates"),
        (lambda X, Y: (np.where(X[3, 0] == X, np.nan, X), Y, {}), r"rows: .*NaN.*1 of 60 rows.*\[3\]"),
        (lambda X, Y: (X, np.where(Y[7, 1] == Y, np.inf, Y), {}), r"coordinates: .*infinity.*\[7\]"),
        (lambda X, Y: (X, Y, {"n_neighbors": 30}), "n_neighbors=30 with 60 rows.*at most 29"),
        (lambda X, Y: (X, Y, {"n_neighbors": 0}), "n_neighbors=0; it must be an integer, at least 1"),
        (lambda X, Y: (X, Y, {"samples": 1.5}), "samples=1.5"),
        (lambda X, Y: (X, Y, {"seed": -1}), "seed=-1"),
        (lambda X, Y: (X, Y, {"metric": "cosin"}), "metric='cosin'.*did you mean 'cosine'"),
        (lambda X, Y: (X * (np.arange(60) != 9)[:, None], Y, {"metric": "cosine"}), "rows of zeros: 1 of 60.* row 9"),
        (lambda X, Y: (X, Y[:, 0], {}), "2D array"),
        (lambda X, Y: (X[:, :0], Y, {}), r"rows: Found array with 0 feature"),
        (lambda X, Y: (1e200 * X, Y, {}), "rows: the squares of the rows overflow"),
        (lambda X, Y: (X[:2], Y[:2], {"n_neighbors": 1}), "at least|there must be 3 rows"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, says):
    X, Y, given = wrong(change)
    with pytest.raises((InputError, InputTypeError), match=says):
        be.certify(X, Y, **given)


def test_few_columns_that_hold_the_variance_are_counted_and_the_first_listed():
    scatter = np.concatenate([np.arange(100, 50, -1.0), np.full(950, 1e-6)])
    found = columns_figure({"low": np.zeros(1000), "high": np.ones(1000), "scatter": scatter})
    assert (found["few_count"], found["few"]) == (50, list(range(20)))
    assert columns_figure({"low": np.zeros(9), "high": np.ones(9), "scatter": np.ones(9)})["few_count"] == 0
