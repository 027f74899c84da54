"""Frames reject pairs more cheaply and change no list: a lower bound, allowed its rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.neighbors.exact import empty_lists, exact_block
from bigembed.neighbors.search import local
from bigembed.neighbors.search.local import Cells, basis_block, search_cells, search_own
from bigembed.neighbors.search.probes import group_probes

from .test_local import ordered_cells


def near_a_plane(seed, n=600, d=64, inside=6, noise=1e-3, dtype=np.float32, outliers=5):
    """Rows near a random plane, far from the origin, a few of them far off the plane, a few repeated."""
    generator = np.random.default_rng(seed)
    plane = np.linalg.qr(generator.normal(size=(d, inside)))[0]
    rows = generator.normal(size=(n, inside)) @ plane.T + noise * generator.normal(size=(n, d)) + 3
    rows[:outliers] += generator.normal(size=(outliers, d))
    rows[n - 7 :] = rows[0:7]
    return rows.astype(dtype)


@settings(max_examples=20)
@given(
    st.integers(0, 999),
    st.sampled_from([1e-6, 1e-2, 0.1]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_lists_are_those_of_all_pairs(seed, noise, dtype, scale):
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patch:
        patch.setattr(local, "_FRAME_PAIRS", 0)  # as many rows as in earnest would take long
        found = []
        patch.setattr(local, "basis_block", lambda *given: found.append(basis_block(*given)) or found[-1])
        _compare(seed, noise, dtype, scale)
    assert any(basis is not None for basis in found)


def _compare(seed, noise, dtype, scale):
    rows, cells = ordered_cells(near_a_plane(seed, noise=noise, dtype=dtype) * dtype(scale), 48)
    everywhere = np.tile(np.arange(len(cells.numbers), dtype=np.int32), (len(rows), 1))
    expected = exact_block(rows, 9)
    own, foreign = empty_lists(len(rows), 9, rows.dtype), empty_lists(len(rows), 9, rows.dtype)
    search_own(*own, rows, np.arange(len(rows)), group_probes(everywhere), cells)
    search_cells(*foreign, rows, np.arange(len(rows)), group_probes(everywhere), cells)
    for got in (own, foreign):
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reduced_distances_are_lower_bounds(dtype):
    """Beyond the allowance of the basis no reduced distance exceeds the true one; most come near to it."""
    from bigembed.neighbors.search.compiled import residuals

    rows, cells = ordered_cells(near_a_plane(1, dtype=dtype), 48)
    basis = basis_block(rows[: cells.offsets[4]], cells.centers[:4], cells.offsets[:5])
    assert basis is not None
    assert basis.directions.shape[1] <= 16
    shifted = rows - cells.centers[0]
    norms = (shifted**2).sum(axis=1)
    reduced = shifted @ basis.directions
    residuals(reduced, norms)
    gap = lambda a: ((a[:, None].astype(float) - a[None].astype(float)) ** 2).sum(axis=2)  # noqa: E731
    true, bound = gap(rows), gap(reduced)
    length, outside = np.sqrt(norms), reduced[:, -1]
    reach = length[:, None] + length[None]
    slack = basis.rounding * reach**2 + basis.root * reach * np.maximum(outside[:, None], outside[None])
    assert (bound <= true + slack).all()
    plain = ~(outside > 0.1)
    assert (bound[plain][:, plain] >= 0.9 * true[plain][:, plain] - slack[plain][:, plain]).all()
    assert (bound[:, ~plain] < 0.9 * true[:, ~plain]).any()  # off the plane it is only a bound


def test_no_frame_where_it_would_not_pay():
    """Rows that fill the space, few columns, few rows, rows with numbers out of range."""
    generator = np.random.default_rng(0)
    full = generator.normal(size=(500, 64)).astype(np.float32)
    for rows in (full, full[:, :3].copy(), near_a_plane(0)[:20], np.where(full > 3, np.inf, near_a_plane(0, n=500))):
        assert basis_block(rows, rows.mean(axis=0, keepdims=True), np.array([0, len(rows)])) is None


def test_wide_rows_have_frames_from_few_of_them():
    rows = near_a_plane(3, n=400, d=700)
    basis = basis_block(rows, rows.mean(axis=0, keepdims=True), np.array([0, len(rows)]))
    assert basis is not None
    directions = basis.directions[:, :-1].astype(float)
    np.testing.assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-5)
    assert not basis.directions[:, -1].any()


def test_equal_rows_have_no_directions():
    rows = np.ones((300, 40), np.float32)
    basis = basis_block(rows, rows[:1], np.array([0, 300]))
    if basis is not None:
        ids, squared = empty_lists(300, 4, rows.dtype)
        cells = Cells(np.arange(1), np.array([0, 300]), rows, np.arange(300), rows[:1])
        search_own(ids, squared, rows, np.arange(300), group_probes(np.zeros((300, 1), np.int32)), cells)
        assert not squared.any()
