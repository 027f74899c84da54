"""PCA under changes that must not matter: chunks, workers, order of rows, rotation, translation, scale, weights."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

import bigembed as be

N, D = 150_001, 6
"""More than two canonical blocks, the last of which would be one row short of whole without the odd one."""


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    generator = np.random.default_rng(0)
    return (generator.normal(size=(N, D)) * 2.0 ** np.arange(D) + 5).astype("f4")


def digest(X: Any) -> str:
    pca = be.PCA(3).fit(X)
    parts = (pca.components_, pca.explained_variance_, np.asarray(pca.embedding_), pca.transform(np.asarray(X[:50])))
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def wanted(rows: np.ndarray) -> str:
    with dask.config.set(scheduler="synchronous"):
        return digest(rows)


@pytest.mark.parametrize("chunks", [((1, 33_333, 116_666, 1), (2, 4)), ((N,), (1,) * D), ((150_000, 1), (D,))])
def test_any_chunking_of_a_dask_array(rows: np.ndarray, wanted: str, chunks: Any) -> None:
    assert digest(da.from_array(rows, chunks=chunks)) == wanted


@pytest.mark.parametrize("chunks", [(9_999, 2), (150_000, 6), (N, 1)])
def test_any_chunking_of_a_zarr_array(rows: np.ndarray, wanted: str, chunks: Any, tmp_path: Any) -> None:
    array = zarr.create_array(str(tmp_path / "rows.zarr"), shape=rows.shape, chunks=chunks, dtype=rows.dtype)
    array[...] = rows
    assert digest(array) == wanted


def test_threads(rows: np.ndarray, wanted: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=3):
        assert digest(rows) == wanted


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_worker_processes(rows: np.ndarray, wanted: str, client: Any) -> None:
    assert digest(rows) == wanted


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers(rows: np.ndarray, wanted: str, workers: int) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster),
    ):
        assert digest(rows) == wanted


def test_other_rows_give_other_bytes(rows: np.ndarray, wanted: str) -> None:
    assert digest(rows * np.float32(1.001)) != wanted


cases = st.tuples(st.integers(8, 60), st.integers(2, 7), st.integers(0, 2**31))


def drawn(case: tuple[int, int, int]) -> tuple[np.ndarray, np.random.Generator]:
    n, d, seed = case
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) * 2.0 ** -np.arange(d), generator


@settings(max_examples=8, deadline=None)
@given(cases)
def test_translation_scale_and_order_of_rows(case: tuple[int, int, int]) -> None:
    X, generator = drawn(case)
    plain = be.PCA().fit(X)
    order = generator.permutation(len(X))
    moved = be.PCA().fit(3.0 * X[order] + 100.0)
    np.testing.assert_allclose(moved.explained_variance_, 9 * plain.explained_variance_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(moved.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.abs(moved.embedding_), 3 * np.abs(plain.embedding_[order]), atol=1e-6)


@settings(max_examples=8, deadline=None)
@given(cases)
def test_rotation(case: tuple[int, int, int]) -> None:
    X, generator = drawn(case)
    turn = ortho_group.rvs(X.shape[1], random_state=generator)
    plain, turned = be.PCA().fit(X), be.PCA().fit(X @ turn)
    np.testing.assert_allclose(turned.explained_variance_, plain.explained_variance_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.abs(turned.embedding_), np.abs(plain.embedding_), atol=1e-6)
    if X.shape[1] > 2:  # a control: a shear is not a rotation
        sheared = be.PCA().fit(X @ (turn + 0.5 * np.eye(len(turn))))
        assert np.abs(sheared.explained_variance_ / plain.explained_variance_[: len(turn)] - 1).max() > 1e-3


@settings(max_examples=8, deadline=None)
@given(cases)
def test_duplicated_rows_are_weights(case: tuple[int, int, int]) -> None:
    X, generator = drawn(case)
    weights = generator.integers(0, 4, len(X))
    weights[:2] = 2
    heavy, repeated = be.PCA(1).fit(X, sample_weight=weights), be.PCA(1).fit(X.repeat(weights, axis=0))
    np.testing.assert_allclose(heavy.explained_variance_, repeated.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(heavy.mean_, repeated.mean_, atol=1e-12)
    np.testing.assert_allclose(np.abs(heavy.components_), np.abs(repeated.components_), atol=1e-5)
