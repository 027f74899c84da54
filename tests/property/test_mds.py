"""Classical and landmark MDS: the same bytes for any chunks; permuted, rotated and moved rows give the same map."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.maps.landmark_rows import procrustes_residual
from bigembed.maps.mds import scaling as classical_scaling

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 4)) * [4, 3, 2, 1]


def digest(*arrays: Any) -> str:
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in arrays)).hexdigest()


@settings(max_examples=6)
@given(st.lists(st.integers(1, 59), unique=True, max_size=5), st.lists(st.integers(1, 59), unique=True, max_size=5))
def test_classical_mds_of_any_chunks(across: list[int], down: list[int]) -> None:
    apart = cdist(rows(60), rows(60), "cityblock")
    chunks = tuple(tuple(np.diff([0, *sorted(cuts), 60]).tolist()) for cuts in (across, down))
    dense, classical_scaling.DENSE_ROWS = classical_scaling.DENSE_ROWS, 0
    try:
        here = be.ClassicalMDS(3, metric="precomputed").fit(apart)
        there = be.ClassicalMDS(3, metric="precomputed").fit(da.from_array(apart, chunks=chunks))
    finally:
        classical_scaling.DENSE_ROWS = dense
    assert digest(np.asarray(there.embedding_), there.eigenvalues_) == digest(here.embedding_, here.eigenvalues_)


@settings(max_examples=6)
@given(st.integers(0, 2**31), st.sampled_from(["euclidean", "cityblock", "precomputed"]))
def test_a_permutation_permutes_the_map(seed: int, metric: str) -> None:
    x = rows(80)
    order = np.random.default_rng(seed).permutation(80)
    first, second = (cdist(part, part) if metric == "precomputed" else part for part in (x, x[order]))
    one, two = (be.ClassicalMDS(3, metric=metric).fit(part).embedding_ for part in (first, second))
    np.testing.assert_allclose(np.abs(two), np.abs(one[order]), atol=1e-8)
    ids = np.arange(0, 80, 4)
    where = np.argsort(order)[ids]
    if metric != "precomputed":
        one, two = (
            be.LandmarkMDS(3, landmarks=l, metric=metric).fit(p).embedding_ for l, p in ((ids, x), (where, x[order]))
        )
        np.testing.assert_allclose(two, one[order], atol=1e-8)


@settings(max_examples=6)
@given(st.integers(0, 2**31), arrays.arrays(np.float64, 4, elements=st.floats(-100, 100)), st.floats(0.01, 100))
def test_rotations_and_shifts_do_nothing_and_scales_scale(seed: int, shift: np.ndarray, scale: float) -> None:
    x = rows(100)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
    other = scale * (x @ turn) + shift
    for estimator in (be.ClassicalMDS(3), be.LandmarkMDS(3, landmarks=np.arange(0, 100, 9))):
        one, two = estimator.fit(x).embedding_, estimator.fit(other).embedding_
        np.testing.assert_allclose(np.abs(two), scale * np.abs(one), atol=1e-6 * scale)
    sheared = other * [1, 1, 1, 30]
    assert (
        procrustes_residual(be.ClassicalMDS(3).fit(sheared).embedding_, be.ClassicalMDS(3).fit(other).embedding_) > 0.05
    )  # a control


@settings(max_examples=5)
@given(st.integers(5, 40), st.integers(0, 100))
def test_distances_in_a_plane_come_back(n: int, seed: int) -> None:
    plane = np.random.default_rng(seed).normal(size=(n, 2))
    apart = cdist(plane, plane)
    for estimator, given_rows in (
        (be.ClassicalMDS(2, metric="precomputed"), apart),
        (be.LandmarkMDS(2, n_landmarks=5), plane),
        (be.LandmarkMDS(2, n_landmarks=5, metric=cdist), plane),
    ):
        found = estimator.fit(given_rows).embedding_
        np.testing.assert_allclose(cdist(found, found), apart, atol=1e-6)
