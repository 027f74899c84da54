"""What must not change a result, tried on many inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numba  # noqa: F401  (where it is loaded, it is used for fewer rows)
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.maps import mds as classical_scaling
from bigembed.quality.passes import COMPILED
from tests.blocks import FEW, blocks_for

N = 15_000
"""Rows: enough for compiled code."""


@pytest.fixture(scope="module")
def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Several canonical blocks of rows and of coordinates."""
    X = np.random.default_rng(0).normal(size=(N, 20)).astype(np.float32)
    X[::7] = np.round(X[::7])
    with blocks_for(N):
        yield X, X[:, :2] + np.float32(0.1)


def digest(X: Any, Y: Any) -> str:
    assert 60 * N * 20 >= COMPILED
    return json.dumps(be.certify(X, Y, samples=60, seed=3).as_dict())


@pytest.fixture(scope="module")
def wanted(rows: Any) -> str:
    with dask.config.set(scheduler="synchronous"):
        return digest(*rows)


class TestCertifyBytes:
    """be.certify gives the same bytes on any scheduler, with any number of workers, for any chunking of both inputs."""

    def test_any_chunking_of_dask_arrays_and_threads(self, rows: Any, wanted: str) -> None:
        with dask.config.set(scheduler="threads", num_workers=3):
            assert digest(*(da.from_array(part, chunks=((1, 7_333, 7_665, 1), -1)) for part in rows)) == wanted

    def test_any_chunking_on_disk(self, rows: Any, wanted: str, tmp_path: Path) -> None:
        for name, part, size in zip("xy", rows, (1_191, 9_000), strict=True):
            array = zarr.create_array(str(tmp_path / name), shape=part.shape, chunks=(size, 2), dtype=part.dtype)
            array[...] = part
        assert digest(tmp_path / "x", tmp_path / "y") == wanted


INPUTS_N, D = FEW + 3, 6
CUT = (slice(123, FEW - 124), slice(1, 5))
ROWS = (np.random.default_rng(0).normal(size=(INPUTS_N, D)) * 2.0 ** np.arange(D) + 5).astype("f4")


def digest_of_inputs(X: Any) -> str:
    """Of what one pass makes of the rows, of what many do, and of a graph of a few."""
    few = (be.open_array(X) if isinstance(X, str) else X)[:1500]
    pca, linearized, graph = be.PCA(2).fit(X), be.LinearizedDiffusionMap(2).fit(few), be.build_neighbor_graph(few, 4)
    parts = (pca.components_, np.asarray(pca.embedding_), np.asarray(linearized.embedding_), graph.to_scipy().data)
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def small_blocks() -> Iterator[None]:
    with blocks_for(INPUTS_N):
        yield


@pytest.fixture(scope="module")
def wanted_of_inputs(small_blocks: None) -> tuple[str, str]:
    return digest_of_inputs(ROWS), digest_of_inputs(ROWS[CUT])


@pytest.fixture(scope="module", params=[(1_999, 6), pytest.param((4_000, 4), marks=pytest.mark.slow)])
def path(request: Any, tmp_path_factory: Any) -> str:
    place = str(tmp_path_factory.mktemp("rows") / "rows.zarr")
    stored = zarr.create_array(place, shape=ROWS.shape, chunks=request.param, dtype="f4")
    stored[...] = ROWS
    return place


def lazy(path: str) -> list[Any]:
    """The stored rows, and the same rows as something that has to be computed."""
    stored = [be.open_array(path), da.from_zarr(path), da.from_zarr(path, chunks=(2_345, 5))]
    return [*stored, da.from_zarr(path) + np.float32(0), da.concatenate([stored[0][:777], stored[0][777:]])]


@pytest.mark.usefixtures("small_blocks")
class TestInputs:
    """The same rows by their path, as lazy arrays of every kind, and sliced: the same bytes."""

    def test_all_rows(self, path: str, wanted_of_inputs: tuple[str, str]) -> None:
        assert digest_of_inputs(path) == wanted_of_inputs[0]
        assert {digest_of_inputs(X) for X in lazy(path)} == {wanted_of_inputs[0]}

    def test_slices(self, path: str, wanted_of_inputs: tuple[str, str]) -> None:
        assert {digest_of_inputs(X[CUT]) for X in lazy(path)[1:4]} == {wanted_of_inputs[1]}


def rows_of_mds(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 4)) * [4, 3, 2, 1]


def digest_of_mds(*arrays: Any) -> str:
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in arrays)).hexdigest()


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestMDS:
    """Classical and landmark MDS: the same bytes for any chunks; permuted, rotated and moved rows give the same map."""

    @settings(max_examples=6)
    @given(st.lists(st.integers(1, 59), unique=True, max_size=5), st.lists(st.integers(1, 59), unique=True, max_size=5))
    def test_classical_mds_of_any_chunks(self, across: list[int], down: list[int]) -> None:
        apart = cdist(rows_of_mds(60), rows_of_mds(60), "cityblock")
        chunks = tuple(tuple(np.diff([0, *sorted(cuts), 60]).tolist()) for cuts in (across, down))
        dense, classical_scaling.DENSE_ROWS = classical_scaling.DENSE_ROWS, 0
        try:
            here = be.ClassicalMDS(3, metric="precomputed").fit(apart)
            there = be.ClassicalMDS(3, metric="precomputed").fit(da.from_array(apart, chunks=chunks))
        finally:
            classical_scaling.DENSE_ROWS = dense
        assert digest_of_mds(np.asarray(there.embedding_), there.eigenvalues_) == digest_of_mds(
            here.embedding_, here.eigenvalues_
        )

    @settings(max_examples=6)
    @given(st.integers(0, 2**31), st.sampled_from(["euclidean", "cityblock", "precomputed"]))
    def test_a_permutation_permutes_the_map(self, seed: int, metric: str) -> None:
        x = rows_of_mds(80)
        order = np.random.default_rng(seed).permutation(80)
        first, second = (cdist(part, part) if metric == "precomputed" else part for part in (x, x[order]))
        one, two = (be.ClassicalMDS(3, metric=metric).fit(part).embedding_ for part in (first, second))
        np.testing.assert_allclose(np.abs(two), np.abs(one[order]), atol=1e-8)
        ids = np.arange(0, 80, 4)
        where = np.argsort(order)[ids]
        if metric != "precomputed":
            one, two = (
                be.LandmarkMDS(3, landmarks=l, metric=metric).fit(p).embedding_
                for l, p in ((ids, x), (where, x[order]))
            )
            np.testing.assert_allclose(two, one[order], atol=1e-8)
