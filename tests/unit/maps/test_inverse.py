"""From coordinates back to rows: any kind of input, lazily where it does not lie in memory."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas
import pytest
from sklearn.decomposition import PCA

import bigembed as be
from bigembed.errors import InputError

METHODS = {
    "pca": lambda: be.PCA(2),
    "whitened": lambda: be.PCA(2, whiten=True),
    "nmf": lambda: be.NMF(2),
    "linearized kernel pca": lambda: be.LinearizedKernelPCA(2),
}


def rows(n: int = 300) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=(n, 5))) + np.arange(5)


@pytest.mark.parametrize("name", METHODS)
def test_a_dask_array_comes_back_lazily(name, tmp_path):
    fitted = METHODS[name]().fit(rows())
    coordinates = fitted.transform(rows())
    expected = fitted.inverse_transform(coordinates)
    assert isinstance(expected, np.ndarray)
    computed = []

    def block(number: int) -> np.ndarray:
        computed.append(number)
        return coordinates[100 * number : 100 * (number + 1)]

    blocks = [da.from_delayed(dask.delayed(block)(i), (100, 2), np.float64) for i in range(3)]
    lazy = fitted.inverse_transform(da.concatenate(blocks).rechunk((100, 1)))
    assert isinstance(lazy, da.Array)
    assert computed == []
    np.testing.assert_array_equal(lazy[:100].compute(), expected[:100])
    assert computed == [0]
    assert (lazy.shape, lazy.chunks, lazy.dtype) == ((300, 5), ((100, 100, 100), (5,)), np.float64)
    np.testing.assert_array_equal(lazy.compute(), expected)
    fitted.transform_to(rows(), tmp_path / "coordinates.zarr")
    np.testing.assert_array_equal(fitted.inverse_transform(tmp_path / "coordinates.zarr").compute(), expected)
    np.testing.assert_array_equal(fitted.inverse_transform(pandas.DataFrame(coordinates)), expected)
    np.testing.assert_array_equal(fitted.inverse_transform(coordinates[7:8]), expected[7:8])
    half = fitted.inverse_transform(coordinates.astype(np.float32))
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, expected, rtol=1e-5)
    with pytest.raises(InputError, match=r"shape \(300, 5\), but .* has 2"):
        fitted.inverse_transform(rows())


@pytest.mark.parametrize("whiten", [False, True])
def test_it_is_the_inverse_of_scikit_learn(whiten):
    theirs, ours = PCA(2, whiten=whiten).fit(rows()), be.PCA(2, whiten=whiten).fit(rows())
    np.testing.assert_allclose(
        ours.inverse_transform(ours.embedding_), theirs.inverse_transform(theirs.transform(rows()))
    )
