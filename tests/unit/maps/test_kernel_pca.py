"""Kernel PCA against scikit-learn, exactly and by landmarks, and what cannot be mapped."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA as Reference
from sklearn.metrics import pairwise
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier as Nearest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigembed as be
from bigembed import errors
from bigembed.maps import kernel_pca as kernel_solve
from bigembed.maps.kernel_pca import estimator as kernel_pca
from bigembed.rows import RowSource
from tests.some import a_few

KERNELS = [
    {"kernel": "rbf", "gamma": 0.1}, {"kernel": "poly", "degree": 3}, {"kernel": "sigmoid", "gamma": 0.01},
    {"kernel": "cosine"}, {"kernel": "linear"},
]  # fmt: skip


def points(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 5)) * np.array([3, 2, 1.5, 1, 0.7])


def cityblock(a: np.ndarray, b: np.ndarray, scale: float = 5.0) -> np.ndarray:
    return np.exp(-np.abs(a[:, None] - b[None]).sum(axis=2) / scale)


def lopsided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return cityblock(a, b) * (1 + 0.1 * a[:, :1] ** 2)


def holed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a[:, :1] > 6, np.nan, cityblock(a, b))


def negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -a @ b.T


def aligned(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest deviation up to the sign of each column, as a share of the largest entry."""
    return float(np.abs(found * np.sign((found * wanted).sum(axis=0)) - wanted).max() / np.abs(wanted).max())


@a_few(3, "given", KERNELS, ids=lambda given: given["kernel"])
def test_equals_scikit_learn(given: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, new = points(), np.random.default_rng(1).normal(size=(60, 5))
    theirs = Reference(4, eigen_solver="dense", **given).fit(rows)
    fitted, placed = theirs.transform(rows), theirs.transform(new)
    for dense, solver in ((2_000, "dense"), (0, "lanczos")):
        monkeypatch.setattr(kernel_solve, "DENSE_ROWS", dense)
        ours = be.KernelPCA(4, **given).fit(rows)
        assert ours.certificate_["solver"] == solver
        np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
        assert aligned(ours.embedding_, fitted) < 1e-6
        sign = np.sign((ours.embedding_ * fitted).sum(axis=0))
        assert np.abs(ours.transform(new) * sign - placed).max() < 1e-6 * np.abs(placed).max()
        assert np.abs(ours.transform(rows) - ours.embedding_).max() < 1e-6 * np.abs(fitted).max()
    n = len(rows)  # a control: without centering
    values, vectors = eigh(ours._kernel(5)(rows, rows), subset_by_index=[n - 4, n - 1])
    other = vectors[:, ::-1] * np.sqrt(np.abs(values[::-1]))
    assert given["kernel"] == "linear" or aligned(ours.embedding_, other) > 1e-3


def test_a_function_gets_its_parameters() -> None:
    rows = points(80)
    found = be.KernelPCA(2, kernel=cityblock, kernel_params={"scale": 1.0}).fit(rows)
    theirs = Reference(2, kernel="precomputed", eigen_solver="dense").fit(cityblock(rows, rows, 1.0))
    np.testing.assert_allclose(found.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)


@a_few(2, "given", KERNELS, ids=lambda given: given["kernel"])
def test_landmarks_come_near_and_all_rows_as_landmarks_are_exact(given: dict) -> None:
    rows = points(600)
    wanted = be.KernelPCA(3, **given).fit(rows).embedding_
    every = be.KernelPCA(3, solver="nystrom", n_landmarks=600, **given).fit(rows)
    assert aligned(every.embedding_, wanted) < 1e-8
    some = be.KernelPCA(3, solver="nystrom", n_landmarks=200, **given).fit(rows)
    assert aligned(some.embedding_, wanted) < 0.02
    assert some.certificate_["converged"]
    with pytest.warns(errors.ConvergenceWarning, match="Half of the landmarks give"):
        few = be.KernelPCA(3, solver="nystrom", n_landmarks=4, landmarks="uniform", **given).fit(rows)
    assert given["kernel"] in ("linear", "cosine") or aligned(few.embedding_, wanted) > 1e-3  # a control
    np.testing.assert_allclose(some.embedding_.mean(axis=0), 0, atol=1e-10 * np.abs(wanted).max())
    np.testing.assert_allclose((some.embedding_**2).sum(axis=0), some.eigenvalues_, rtol=1e-6)


def test_landmarks_that_do_not_show_the_kernel_are_not_called_converged() -> None:
    """A kernel of so small a reach that its spectrum hardly falls: half of the eigenvalues are missed."""
    rows = np.random.default_rng(0).normal(size=(2_000, 10))
    exact = be.KernelPCA(3, gamma=0.5).fit(rows)
    with (
        pytest.warns(errors.LocalizedWarning, match="carried"),
        pytest.warns(errors.ConvergenceWarning, match="Raise n_landmarks"),
    ):
        found = be.KernelPCA(3, gamma=0.5, solver="nystrom").fit(rows)
    assert (found.eigenvalues_ < 0.7 * exact.eigenvalues_).all()
    assert not found.certificate_["converged"]
    assert (found.residuals_ > 0.1 * found.eigenvalues_).any()


@pytest.mark.parametrize("solver", ["exact", "nystrom"])
def test_functions_that_are_no_kernels_are_refused(solver: str) -> None:
    rows = points(300)
    with pytest.raises(errors.InputError, match=r"holed: gives NaN or infinity, first for row \d+ with"):
        be.KernelPCA(2, kernel=holed, solver=solver, n_landmarks=60).fit(rows)
    with pytest.raises(errors.InputError, match="lopsided: is not symmetric"):
        be.KernelPCA(2, kernel=lopsided, solver=solver, n_landmarks=60).fit(rows)
    with pytest.raises(errors.InputError, match="no positive eigenvalue"):
        be.KernelPCA(2, kernel=negative, solver=solver, n_landmarks=60).fit(rows)


@pytest.mark.parametrize("solver", ["exact", "nystrom"])
def test_a_kernel_of_low_rank_gives_the_coordinates_it_has(solver: str) -> None:
    with pytest.warns(errors.DegenerateWarning, match="only 2 eigenvalues"):
        found = be.KernelPCA(4, kernel="linear", solver=solver, n_landmarks=40).fit(points(100)[:, :2])
    assert found.n_components_ == 2 == found.embedding_.shape[1]


def test_too_many_rows_are_refused_with_a_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_pca, "EXACT_ROWS", 100)
    rows = points(101)
    source = RowSource(rows.shape, rows.dtype, array=rows)
    with pytest.raises(errors.PlanError, match=r"n ≤ 100; got n = 101.*solver='nystrom' with n_landmarks=500"):
        be.KernelPCA(2).stages(source)
    assert be.KernelPCA(2, solver="nystrom").stages(source)


@a_few(1, "kind", ["numpy", "dask", "zarr"])
def test_a_kernel_that_is_given(kind, tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    X, new = generator.normal(size=(120, 4)), generator.normal(size=(9, 4))
    whole = be.KernelPCA(3, gamma=0.2).fit(X)
    theirs = Reference(3, kernel="precomputed")
    K, k = (pairwise.rbf_kernel(rows, X, gamma=0.2) for rows in (X, new))
    given = {"numpy": K, "dask": da.from_array(K, chunks=(50, 17)), "zarr": tmp_path / "kernel.zarr"}[kind]
    if kind == "zarr":
        stored = zarr.create_array(given, shape=K.shape, dtype=K.dtype, chunks=(31, 40))
        stored[:] = K
    for dense in (True, False):
        monkeypatch.setattr(kernel_solve, "DENSE_ROWS", 2000 if dense else 10)
        fitted = be.KernelPCA(3, kernel="precomputed").fit(given)
        np.testing.assert_allclose(fitted.eigenvalues_, theirs.fit(K.copy()).eigenvalues_, rtol=1e-7)
        np.testing.assert_allclose(np.abs(np.asarray(fitted.embedding_)), np.abs(theirs.transform(K.copy())), atol=1e-6)
        np.testing.assert_allclose(fitted.transform(k), whole.transform(new), atol=1e-6)
    np.testing.assert_array_equal(K, pairwise.rbf_kernel(X, gamma=0.2))
    assert fitted.gamma_ is None
    assert fitted.n_features_in_ == 120
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(k), fitted.transform(k))
    if kind == "numpy":
        for wrong, said in ((K[:, :50], r"is square \(n, n\)"), (K + np.eye(120, k=1), "is not symmetric")):
            with pytest.raises(errors.InputError, match=said):
                be.KernelPCA(2, kernel="precomputed").fit(wrong)
        with pytest.raises(errors.InputError, match="allowed: 'exact'"):
            be.KernelPCA(2, kernel="precomputed", solver="nystrom").fit(K)
        found = cross_val_score(make_pipeline(be.KernelPCA(2, kernel="precomputed"), Nearest()), K, X[:, 0] > 0, cv=3)
        expected = cross_val_score(make_pipeline(be.KernelPCA(2, gamma=0.2), Nearest()), X, X[:, 0] > 0, cv=3)
        np.testing.assert_allclose(found, expected)


@a_few(1, "kernel", [{"kernel": "rbf", "gamma": 0.1}, {"kernel": "poly", "degree": 2}, {"kernel": "linear"}])
def test_the_way_back_agrees_with_scikit_learn(kernel):
    X = points(300)
    ours = be.KernelPCA(3, fit_inverse_transform=True, alpha=0.1, **kernel).fit(X)
    theirs = Reference(3, fit_inverse_transform=True, alpha=0.1, **kernel).fit(X)
    expected = theirs.inverse_transform(theirs.transform(X[:20]))
    found = ours.inverse_transform(ours.transform(X[:20]))
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    lazy = ours.inverse_transform(da.from_array(ours.embedding_[:20], chunks=(7, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), found, rtol=1e-9)
    again = pickle.loads(pickle.dumps(ours.set_params(gamma=9.0, fit_inverse_transform=False)))
    np.testing.assert_array_equal(again.inverse_transform(ours.transform(X[:20])), found)
    whole = be.KernelPCA(3, solver="nystrom", n_landmarks=300, fit_inverse_transform=True, alpha=0.1, **kernel).fit(X)
    np.testing.assert_allclose(whole.inverse_transform(whole.transform(X[:20])), expected, atol=0.05 * np.ptp(expected))


def test_the_way_back_is_there_only_where_it_was_learned():
    X = points(50)
    plain = be.KernelPCA(2).fit(X)
    assert not hasattr(plain, "inverse_transform")
    with pytest.raises(errors.NotFittedError, match="fit_inverse_transform=True"):
        plain.inverse_transform(X)
    with pytest.raises(errors.InputError, match="not with a given kernel"):
        be.KernelPCA(2, kernel="precomputed", fit_inverse_transform=True).fit(X @ X.T)
    with pytest.raises(errors.InputError, match="alpha=0; allowed"):
        be.KernelPCA(2, alpha=0).fit(X)


@a_few(1, "solver", ["exact", "nystrom"])
def test_coordinates_that_few_rows_carry_are_said(solver):
    rows = load_digits().data[:600]
    with pytest.warns(errors.LocalizedWarning, match=r"carried by few rows .* gamma below 0\.0156, or scale"):
        raw = be.KernelPCA(2, solver=solver, n_landmarks=200).fit(rows)
    assert max(raw.certificate_["participation"]) < 0.02
    scaled = be.KernelPCA(2, solver=solver, n_landmarks=200).fit(StandardScaler().fit_transform(rows))
    assert min(scaled.certificate_["participation"]) > 0.2
    assert not scaled.certificate_["warnings"]["localized"]


@pytest.mark.filterwarnings("ignore::bigembed.errors.ConvergenceWarning")  # (random columns: a flat spectrum)
@pytest.mark.parametrize("solver", ["exact", "nystrom"])
@a_few(1, "kernel", ["rbf", "cosine"])
def test_sparse_rows_have_the_map_of_dense_ones(kernel: str, solver: str) -> None:
    X = sparse.random(300, 400, 0.05, random_state=0, format="csr")
    new = sparse.random(40, 400, 0.05, random_state=1, format="csr")
    asked = be.KernelPCA(3, kernel=kernel, solver=solver, n_landmarks=120)
    found, dense = clone(asked).fit(X), clone(asked).fit(X.toarray())
    np.testing.assert_array_equal(found.embedding_, dense.embedding_)
    np.testing.assert_array_equal(found.transform(new), dense.transform(new.toarray()))
    if solver == "exact":
        peer = Reference(3, kernel=kernel).fit_transform(X)
        np.testing.assert_allclose(np.abs(found.embedding_), np.abs(peer), atol=1e-10)


def test_no_task_holds_the_kernel_of_many_rows() -> None:
    """That a process holds no more than is planned: ``tests/integration/test_memory.py``."""
    rows = np.zeros((20_000, 3), "f4")
    stages = be.KernelPCA(3, gamma=0.02).stages(RowSource(rows.shape, rows.dtype, array=rows))
    costs = [stage.cost for stage in stages]
    assert max(max(cost.memory, cost.coordinator) for cost in costs) < 900 << 20 < 8 * 20_000**2
