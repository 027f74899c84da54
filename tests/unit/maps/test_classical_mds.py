"""Classical MDS: against PCA, scikit-learn and a dense solve; from arrays of any kind; distances that are none."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import ConvergenceWarning, DegenerateWarning, InputError
from bigembed.maps.mds import scaling as classical_scaling
from bigembed.rows.formats import copying
from tests.unit.block_functions import WORDS, manhattan, word_distance

N = 120


def rows(n: int = N, d: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)) * np.arange(d, 0, -1) + 5


def lanczos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small arrays go the way of large ones."""
    monkeypatch.setattr(classical_scaling, "DENSE_ROWS", 0)


def signed(found: Any, wanted: Any) -> np.ndarray:
    """The columns with the signs of the wanted ones."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    return found * np.sign((found * wanted).sum(axis=0))


def test_euclidean_rows_give_the_scores_of_pca() -> None:
    mds, pca = be.ClassicalMDS(3).fit(rows()), be.PCA(3).fit(rows())
    np.testing.assert_allclose(mds.embedding_, pca.embedding_, atol=1e-10)
    np.testing.assert_allclose(mds.eigenvalues_, pca.explained_variance_ * (N - 1))
    np.testing.assert_allclose(mds.eigenvalues_, (mds.embedding_**2).sum(axis=0))
    np.testing.assert_allclose(mds.transform(rows()[:7] + 1), pca.transform(rows()[:7] + 1), atol=1e-10)
    assert len(mds.negative_eigenvalues_) == 0
    values = np.linalg.eigvalsh(np.cov(rows().T, bias=True) * N)[::-1]
    assert mds.explained_ == pytest.approx((values[:3] @ values[:3]) / (values @ values))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("squared", [False, True])
def test_distances_of_rows_give_the_same_as_the_rows(
    dense: bool, squared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not dense:
        lanczos(monkeypatch)
    apart = cdist(rows(), rows())
    from_rows = be.ClassicalMDS(3).fit(rows())
    given = apart**2 if squared else apart
    mds = be.ClassicalMDS(3, metric="precomputed", squared=squared).fit(given)
    assert mds.certificate_["solver"] == ("dense" if dense else "lanczos")
    np.testing.assert_allclose(signed(mds.embedding_, from_rows.embedding_), from_rows.embedding_, atol=1e-6)
    np.testing.assert_allclose(mds.eigenvalues_, from_rows.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(mds.transform(given[:9]), mds.embedding_[:9], atol=1e-6)
    assert mds.explained_ == pytest.approx(from_rows.explained_, rel=1e-6)
    assert len(mds.negative_eigenvalues_) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = be.ClassicalMDS(3, metric="precomputed", squared=not squared).fit(given)  # a control
    assert not np.allclose(np.abs(wrong.embedding_), np.abs(from_rows.embedding_), atol=0.1)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev"])
def test_scikit_learn_agrees(metric: str) -> None:
    from sklearn import manifold

    if not hasattr(manifold, "ClassicalMDS"):
        pytest.skip("this scikit-learn has no ClassicalMDS")
    theirs = manifold.ClassicalMDS(n_components=3, metric=metric).fit(rows())
    mine = be.ClassicalMDS(3, metric=metric).fit(rows())
    np.testing.assert_allclose(signed(mine.embedding_, theirs.embedding_), theirs.embedding_, atol=1e-9)
    np.testing.assert_allclose(mine.eigenvalues_, theirs.eigenvalues_, rtol=1e-10)


def test_new_rows_of_any_metric_are_placed_by_gowers_formula() -> None:
    """A new row among the old ones gets the coordinates whose products with them fit: the dense formula."""
    x, new = rows(), rows(5) + 0.3
    mds = be.ClassicalMDS(2, metric=manhattan).fit(x)
    apart, to = cdist(x, x, "cityblock") ** 2, cdist(new, x, "cityblock") ** 2
    centered = -0.5 * (to - to.mean(axis=1, keepdims=True) - apart.mean(axis=0) + apart.mean())
    wanted = centered @ mds.embedding_ / mds.eigenvalues_
    np.testing.assert_allclose(mds.transform(new), wanted, atol=1e-9)
    np.testing.assert_array_equal(mds.transform(new)[2:3], mds.transform(new[2:3]))  # whatever the batch
    np.testing.assert_allclose(mds.transform(x), mds.embedding_, atol=1e-9)
    assert not np.allclose(mds.transform(new), mds.embedding_[:5], atol=0.01)


@pytest.mark.parametrize("kind", ["npy", "zarr", "zarr-squares", "dask"])
def test_arrays_of_any_kind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lanczos(monkeypatch)
    monkeypatch.setattr(copying, "WIDE_BYTES", 1_000)
    apart = cdist(rows(), rows(), "cityblock").astype(np.float32)
    wanted = be.ClassicalMDS(2, metric="precomputed").fit(apart)
    given: Any
    if kind == "npy":
        given = tmp_path / "apart.npy"
        np.save(given, apart)
    elif kind == "dask":
        given = da.from_array(apart, chunks=((50, 1, 69), (33, 87)))
    else:
        chunks = (20, N) if kind == "zarr" else (32, 32)
        given = zarr.create_array(str(tmp_path / "a.zarr"), shape=apart.shape, chunks=chunks, dtype=apart.dtype)
        given[...] = apart
    mds = be.ClassicalMDS(2, metric="precomputed", workdir=tmp_path / "run").fit(given)
    np.testing.assert_array_equal(np.asarray(mds.embedding_).astype(np.float32), wanted.embedding_)
    assert hasattr(mds.embedding_, "dask")
    mds.fit_transform_to(given, tmp_path / "out.zarr")
    np.testing.assert_array_equal(
        zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[...], np.asarray(mds.embedding_)
    )
    mds.transform_to(given, tmp_path / "again.zarr")
    again = zarr.open_array(str(tmp_path / "again.zarr"), mode="r")[...]
    np.testing.assert_allclose(again, wanted.embedding_, atol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
def test_distances_that_are_not_euclidean(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four points of a star: 1 from the center, 2 from each other. They fit into no space."""
    star = 2.0 - 2.0 * np.eye(4)
    star[0, 1:] = star[1:, 0] = 1.0
    values = np.linalg.eigvalsh(-0.5 * (np.eye(4) - 0.25) @ star**2 @ (np.eye(4) - 0.25))
    assert values[0] < -0.1
    if not dense:
        lanczos(monkeypatch)
    with pytest.warns(DegenerateWarning, match="only 2 eigenvalues are positive"):
        mds = be.ClassicalMDS(3, metric="precomputed").fit(star)
    assert mds.n_components_ == 2
    assert mds.embedding_.shape == (4, 2)
    np.testing.assert_allclose(mds.eigenvalues_, values[::-1][:2])
    np.testing.assert_allclose(mds.negative_eigenvalues_, values[:1])
    assert mds.explained_ == pytest.approx(values[-2:] @ values[-2:] / (values @ values))
    assert mds.explained_ < 0.999


def test_a_coordinate_smaller_than_a_negative_eigenvalue_is_told() -> None:
    apart = 1.0 - np.eye(30) + np.triu(np.random.default_rng(3).random((30, 30)) * 5, 1)
    apart = np.triu(apart) + np.triu(apart, 1).T
    with pytest.warns(DegenerateWarning, match="far from Euclidean"):
        mds = be.ClassicalMDS(10, metric="precomputed").fit(apart)
    assert -mds.negative_eigenvalues_[0] > mds.eigenvalues_[-1]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dimensions_that_are_only_rounding_are_no_coordinates(
    dense: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not dense:
        lanczos(monkeypatch)
    plane = rows(N, 2)
    with pytest.warns(DegenerateWarning, match="only 2 eigenvalues are positive"):
        mds = be.ClassicalMDS(5, metric="precomputed").fit(cdist(plane, plane).astype(dtype))
    assert mds.n_components_ == 2
    assert len(mds.negative_eigenvalues_) == 0
    small = np.column_stack([plane, 1e-2 * rows(N, 3)[:, 2]])  # a control: what is more than rounding is kept
    with pytest.warns(DegenerateWarning, match="only 3 eigenvalues"):
        assert be.ClassicalMDS(5, metric="precomputed").fit(cdist(small, small).astype(dtype)).n_components_ == 3


def test_fewer_dimensions_of_rows_than_components() -> None:
    with pytest.warns(DegenerateWarning, match="only 2 eigenvalues are positive"):
        mds = be.ClassicalMDS(4).fit(rows(N, 2))
    assert mds.embedding_.shape == (N, 2)
    assert list(mds.get_feature_names_out()) == ["classicalmds0", "classicalmds1"]


def test_equal_rows_have_no_coordinates() -> None:
    with pytest.raises(InputError, match="no eigenvalue of B is positive"):
        be.ClassicalMDS(metric="precomputed").fit(np.zeros((5, 5)))
    with pytest.raises(InputError, match="no eigenvalue of B is positive"):
        be.ClassicalMDS().fit(np.ones((5, 3)))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(3, 5, np.nan), (5, 3, np.nan)], r"2 of 120 rows.*NaN.*rows \[3, 5\].*\(3, 5\): nan"),
        ([(7, 1, np.inf)], r"infinity.*rows \[7\]"),
        ([(2, 9, -1.0), (9, 2, -1.0)], r"negative.*\(2, 9\): -1"),
        ([(4, 4, 0.5)], r"nonzero distance to themselves.*rows \[4\]"),
        ([(4, 60, 9.0)], r"not symmetric: 2 of 120 rows.*rows \[4, 60\].*\(D \+ D\.T\) / 2"),
    ],
)
def test_what_are_no_distances_is_refused(entries: list[tuple[int, int, float]], message: str) -> None:
    apart = cdist(rows(), rows())
    for i, j, value in entries:
        apart[i, j] = value
    with pytest.raises(InputError, match=message):
        be.ClassicalMDS(metric="precomputed").fit(apart)


def test_a_function_that_tells_no_distances_is_refused() -> None:
    with pytest.raises(InputError, match="not symmetric"):
        be.ClassicalMDS(metric=lambda a, b: np.maximum(a[:, :1] - b[:, 0], 0.0)).fit(rows())
    with pytest.raises(InputError, match=r"diagonal is 0.*similarity"):
        be.ClassicalMDS(metric=lambda a, b: np.exp(-cdist(a, b))).fit(rows())
    with pytest.raises(InputError, match="NaN"):
        be.ClassicalMDS(metric="cosine").fit(np.concatenate([rows(), np.zeros((1, 6))]))


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({"n_components": 0}, None, "n_components=0"),
        ({"metric": "precomputed"}, np.zeros((4, 3)), r"square array \(n, n\); got shape \(4, 3\)"),
        ({"tol": 2.0, "max_passes": 1}, None, "tol=2.0.*max_passes=1"),
        ({"squared": True}, None, "squared=True"),
        ({"metric": "euclid"}, None, "did you mean 'euclidean'"),
        ({}, np.ones((1, 3)), "minimum of 2"),
    ],
)
def test_parameters_out_of_range(parameters: dict[str, Any], given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.ClassicalMDS(**parameters).fit(rows() if given is None else given)


def test_passes_that_do_not_suffice_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lanczos(monkeypatch)
    many = np.random.default_rng(1).normal(size=(300, 80))
    with pytest.warns(ConvergenceWarning, match="max passes"):
        mds = be.ClassicalMDS(1, metric="precomputed", max_passes=4, tol=1e-12).fit(cdist(many, many, "cityblock"))
    assert not mds.certificate_["converged"]
    assert max(mds.certificate_["residuals"]) > 1e-12


def test_a_large_array_takes_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    lanczos(monkeypatch)
    mds = be.ClassicalMDS(3, metric="precomputed").fit(cdist(rows(600), rows(600)))
    assert mds.certificate_["passes"] <= 8
    assert max(mds.certificate_["residuals"]) <= 1e-8


def test_objects_by_their_ids(tmp_path: Path) -> None:
    ids = np.arange(len(WORDS))[:, None]
    mds = be.ClassicalMDS(2, metric=word_distance, ids=True).fit(ids)
    between = word_distance(ids[:, 0], ids[:, 0])
    wanted = be.ClassicalMDS(2, metric="precomputed").fit(between)
    np.testing.assert_allclose(signed(mds.embedding_, wanted.embedding_), wanted.embedding_, atol=1e-9)
    np.testing.assert_allclose(mds.transform(ids[:3]), mds.embedding_[:3], atol=1e-9)
    mds.save(tmp_path / "model.zarr")
    loaded = be.load(tmp_path / "model.zarr", functions=["tests.unit.block_functions"])
    assert loaded.metric == "tests.unit.block_functions:word_distance"
    np.testing.assert_array_equal(loaded.transform(ids), mds.transform(ids))


def test_a_function_without_a_name_cannot_be_saved(tmp_path: Path) -> None:
    mds = be.ClassicalMDS(metric=lambda a, b: cdist(a, b)).fit(rows())
    with pytest.raises(InputError, match="cannot be found by its name"):
        mds.save(tmp_path / "model.zarr")
    assert not list(tmp_path.iterdir())


def test_scikit_learn_is_told_that_distances_come_in_pairs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert be.ClassicalMDS(metric="precomputed").__sklearn_tags__().input_tags.pairwise
        assert not be.ClassicalMDS().__sklearn_tags__().input_tags.pairwise
