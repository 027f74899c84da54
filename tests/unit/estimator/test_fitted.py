"""A fitted estimator is its fit: whatever becomes of the rows, the parameters or the folder that it was made with."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import ChangedInputError, InputError

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")


def rows(n: int = 60) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=(n, 4))) + np.arange(4)


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
    with pytest.raises(InputError, match=r"additional parameters \(colour\)"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    Plain(2).fit(rows()).save(tmp_path / "model")
    np.testing.assert_array_equal(be.load(tmp_path / "model").transform(rows()), fitted.embedding_)


def test_dask_arrays_of_unknown_lengths_are_measured():
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
