"""A fitted estimator is its fit: whatever becomes of the rows, the parameters or the folder that it was made with."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone

import bigembed as be
from bigembed.errors import ChangedInputError, InputError, StaleError

ROWWISE = {
    "pca": lambda **more: be.PCA(n_components=2, whiten=True, **more),
    "lda": lambda **more: be.LinearDiscriminantAnalysis(**more),
    "nmf": lambda **more: be.NMF(n_components=2, max_iter=1000, **more),
    "mds": lambda **more: be.ClassicalMDS(**more),
    "mds by distance": lambda **more: be.ClassicalMDS(metric="cityblock", **more),
    "landmark mds": lambda **more: be.LandmarkMDS(n_landmarks=20, **more),
    "landmark mds by distance": lambda **more: be.LandmarkMDS(n_landmarks=20, metric="cityblock", **more),
    "kernel pca": lambda **more: be.KernelPCA(gamma=0.1, **more),
    "kernel pca by landmarks": lambda **more: be.KernelPCA(gamma=0.1, solver="nystrom", n_landmarks=20, **more),
    "linearized": lambda **more: be.LinearizedDiffusionMap(**more),
    "linearized kernel pca": lambda **more: be.LinearizedKernelPCA(**more),
    "linearized nmf": lambda **more: be.LinearizedDiffusionNMF(**more),
    "landmark diffusion map": lambda **more: be.LandmarkDiffusionMap(n_landmarks=20, **more),
}
GRAPHS = {
    "diffusion map": lambda **more: be.DiffusionMap(n_neighbors=8, components="bridge", **more),
    "isomap": lambda **more: be.Isomap(n_neighbors=8, components="bridge", **more),
}
EVERY = ROWWISE | GRAPHS
OTHER = {
    "n_components": 1, "whiten": False, "gamma": 3.0, "metric": "chebyshev", "kernel": "linear", "degree": 5,
    "coef0": 7, "scaling": "eigenvector", "epsilon": 99.0, "t": 3.0, "ids": True, "squared": True, "n_neighbors": 3,
    "alpha": 1.0, "solver": "exact", "shrinkage": 0.5, "n_landmarks": 9, "normalization": "asymmetric",
    "random_state": 5,
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")


def rows(n: int = 60) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=(n, 4))) + np.arange(4)


def labels(n: int = 60) -> np.ndarray:
    return np.arange(n) % 3


@pytest.mark.parametrize("name", EVERY)
def test_set_params_after_fit_changes_nothing_that_was_fitted(name):
    X, new = rows(), rows(7) + 0.1
    fitted = EVERY[name]().fit(X, labels())
    before = fitted.transform(new)
    there = fitted.get_params()
    fitted.set_params(**{key: value for key, value in OTHER.items() if key in there})
    np.testing.assert_array_equal(fitted.transform(new), before)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(new), before)
    assert repr(again) == repr(fitted)
    if name in ROWWISE:
        np.testing.assert_array_equal(fitted.embedding_, EVERY[name]().fit(X, labels()).embedding_)


def test_a_dictionary_or_an_array_given_as_parameter_may_change_after_fit():
    parameters, X = {"p": 3.0}, rows()
    fitted = be.LandmarkMDS(n_landmarks=20, metric="minkowski", metric_params=parameters).fit(X)
    before = fitted.transform(X)
    parameters["p"] = 1.0
    np.testing.assert_array_equal(fitted.transform(X), before)


def test_inverse_transform_after_set_params():
    X = rows()
    for whiten in (True, False):
        pca = be.PCA(n_components=4, whiten=whiten).fit(X)
        pca.set_params(whiten=not whiten)
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), X, rtol=1e-10)


@pytest.mark.parametrize("name", EVERY)
def test_the_coordinates_of_an_array_that_changed_are_those_of_the_fit_or_refused(name):
    X = rows()
    expected = np.asarray(EVERY[name]().fit_transform(X, labels()))
    fitted = EVERY[name]().fit(X, labels())
    X *= 0
    if fitted._run.has("coordinates"):
        np.testing.assert_array_equal(fitted.embedding_, expected)
    else:
        with pytest.raises(ChangedInputError, match="use fit_transform"):
            fitted.embedding_
    X = rows()
    fitted = EVERY[name]().fit(X, labels())
    np.testing.assert_array_equal(fitted.embedding_, expected)
    X *= 0
    np.testing.assert_array_equal(fitted.embedding_, expected)


def test_the_coordinates_of_a_store_that_was_overwritten_are_refused(tmp_path):
    import zarr

    path = tmp_path / "rows.zarr"
    store = zarr.create_array(path, shape=(60, 4), chunks=(20, 4), dtype="f8")
    store[:] = rows()
    fitted = be.PCA(n_components=2).fit(path)
    lazy = fitted.embedding_
    np.testing.assert_allclose(lazy.compute(), be.PCA(n_components=2).fit_transform(rows()))
    lazy = be.PCA(n_components=2).fit(path).embedding_
    store[20:40] = 1.0
    with pytest.raises(ChangedInputError, match="not those that were fitted"):
        lazy.compute()


@pytest.mark.parametrize("name", EVERY)
def test_a_folder_that_another_fit_took_is_noticed(name, tmp_path):
    first = EVERY[name](workdir=tmp_path).fit(rows(), labels())
    before = first.transform(rows(5))
    np.testing.assert_array_equal(first.transform(rows(5)), before)
    second = EVERY[name](workdir=tmp_path).fit(rows(50) * 2, labels(50))
    with pytest.raises(StaleError, match=r"is superseded .* since it was opened"):
        first.transform(rows(5))
    second.transform(rows(5))


@pytest.mark.parametrize("name", EVERY)
def test_dask_hashes_an_estimator_the_same_each_time(name):
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        plain, fitted = EVERY[name](), EVERY[name]().fit(rows(), labels())
        assert tokenize(plain) == tokenize(clone(plain)) != tokenize(fitted)
        assert tokenize(fitted) == tokenize(fitted) == tokenize(pickle.loads(pickle.dumps(fitted)))
        assert tokenize(fitted) != tokenize(EVERY[name]().fit(rows() ** 2, labels()))
        assert tokenize(plain) != tokenize(clone(plain).set_params(n_components=1))
    assert pickle.dumps(fitted) == pickle.dumps(fitted)


class Named(be.PCA):
    """A PCA with a parameter of its own."""

    def __init__(self, n_components=None, *, colour="red", whiten=False, random_state=0, tol=1e-7, max_passes=9,
                 workdir=None):  # fmt: skip
        super().__init__(n_components, whiten=whiten, random_state=random_state, tol=tol, max_passes=max_passes,
                         workdir=workdir)  # fmt: skip
        self.colour = colour


class Plain(be.PCA):
    """A PCA by another name."""


def test_a_subclass_is_pickled_with_its_parameters_and_its_class(tmp_path):
    fitted = Named(2, colour={"any": object}).fit(rows())
    again = pickle.loads(pickle.dumps(fitted))
    assert type(again) is Named
    assert again.colour == {"any": object}
    np.testing.assert_array_equal(again.transform(rows()), fitted.embedding_)
    with pytest.raises(InputError, match=r"parameters of its own \(colour\)"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    Plain(2).fit(rows()).save(tmp_path / "model")
    np.testing.assert_array_equal(be.load(tmp_path / "model").transform(rows()), fitted.embedding_)


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_is_a_number_or_a_generator(name):
    if "random_state" not in EVERY[name]().get_params():
        return
    for wrong in ("a", 1.5, -1, True, [1]):
        with pytest.raises(InputError, match=r"random_state=.*an integer ≥ 0, None, or a generator"):
            EVERY[name](random_state=wrong).fit(rows(), labels())


@pytest.mark.parametrize("name", EVERY)
def test_infinity_is_called_infinity(name):
    X = rows()
    fitted = EVERY[name]().fit(X, labels())
    for value, word in ((np.inf, "infinity"), (-np.inf, "infinity"), (np.nan, "NaN")):
        X[3, 1] = value
        for action in (fitted.transform, lambda X: EVERY[name]().fit(X, labels())):
            with pytest.raises(InputError, match="Input X contains") as refusal:
                action(X)
            assert word in str(refusal.value)
            assert ({"infinity", "NaN"} - {word}).pop() not in str(refusal.value)


@pytest.mark.parametrize("name", EVERY)
def test_coordinates_that_follow_rows_are_float32_for_float32(name):
    for dtype in (np.float32, np.float64):
        fitted = EVERY[name]().fit(rows().astype(dtype), labels())
        expected = dtype if fitted.follows_dtype else np.float64
        assert fitted.transform(rows(7).astype(dtype)).dtype == expected
        assert fitted.embedding_.dtype == expected or name == "landmark mds by distance"
        assert fitted.follows_dtype or name in {**GRAPHS, "linearized nmf": 0}
        assert fitted.__sklearn_tags__().transformer_tags.preserves_dtype[0] == "float64"


def test_dask_arrays_of_unknown_lengths_are_measured():
    import dask.array as da

    X = rows()
    known = da.from_array(X, chunks=(7, 2))
    unknown = known[known[:, 0] > 0.5]
    assert np.isnan(unknown.shape[0])
    taken = X[X[:, 0] > 0.5]
    fitted = be.PCA(2).fit(unknown)
    np.testing.assert_array_equal(fitted.embedding_.compute(), be.PCA(2).fit(taken).embedding_)
    np.testing.assert_array_equal(fitted.transform(unknown).compute(), fitted.transform(taken))
    assert np.isnan(unknown.shape[0])


def test_lazy_coordinates_outlive_the_estimator_of_a_temporary_run() -> None:
    """They lie in its folder, which must not go before them: Zarr reads what is gone as zeros."""
    import gc

    X = np.random.default_rng(0).normal(size=(120, 3))
    wanted = be.DiffusionMap(2).fit(X).embedding_
    lazy = be.DiffusionMap(2).fit(da.from_array(X, chunks=40)).embedding_
    gc.collect()
    found = np.asarray(lazy)
    assert found.any()
    np.testing.assert_array_equal(found, wanted)
    labels = be.DiffusionMap(2).fit(da.from_array(X, chunks=40)).labels_ + 1
    fitted = be.DiffusionMap(2).fit(X)
    new, there = fitted.transform(da.from_array(X + 0.01, chunks=40)), fitted.transform(X + 0.01)
    del fitted
    gc.collect()
    assert (np.asarray(labels) == 1).all()
    np.testing.assert_array_equal(np.asarray(new), there)
