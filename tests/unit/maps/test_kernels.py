"""Scales and weights against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bigembed.estimator.graph_input import normalize_block, row_sums
from bigembed.maps.bandwidth import exact_median, histogram_median, ksum, pattern_counts, total
from bigembed.maps.kernels import gaussian_block, local_squared, local_squared_block
from bigembed.store import matrix as csr
from bigembed.store.matrix import CSRBlock

lengths = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e308))


@given(lengths, st.integers(1, 5))
def test_the_median_over_blocks_is_the_lower_median_of_all(values: np.ndarray, blocks: int) -> None:
    parts = np.array_split(values, blocks)
    found = exact_median(lambda high: total([pattern_counts(part, high) for part in parts]), len(values))
    assert found == np.sort(values)[(len(values) - 1) // 2]


def counts_of(squared: np.ndarray) -> np.ndarray:
    return np.bincount(squared.astype(np.float32).ravel().view(np.uint32) >> 16, minlength=1 << 16)


def test_ksum_is_the_slope_of_the_kernel_sum() -> None:
    """Seed 000 eqs. 58 and 59, against a direct sum over all pairs."""
    X = np.random.default_rng(0).uniform(size=(800, 2))
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    curve = ksum(counts_of(squared))
    for at in (100, 140, 160, 180):
        epsilon = curve.epsilon[at]
        kernel = np.exp(-squared / epsilon)
        assert curve.log_sum[at] == pytest.approx(np.log(kernel.mean()), abs=0.01)
        assert curve.slope[at] == pytest.approx((squared / epsilon * kernel).sum() / kernel.sum(), abs=0.01)
    assert curve.dimension == pytest.approx(2, abs=0.35)
    away = squared[~np.eye(*squared.shape, dtype=bool)]
    assert histogram_median(counts_of(squared), len(squared)) == pytest.approx(np.median(away), rel=0.01)


@pytest.mark.parametrize("n", [4, 10, 40])
def test_the_median_is_that_of_pairs_of_different_rows(n: int) -> None:
    """A histogram of all pairs holds each row with itself, at 0: of 10 rows that is one pair in ten."""
    X = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    pairs = np.sort(squared[np.triu_indices(n, 1)])
    found = histogram_median(counts_of(squared), n)
    assert found == pytest.approx(pairs[(len(pairs) - 1) // 2], rel=0.005)
    assert found > np.median(squared)  # control


def test_ksum_of_equal_rows_has_no_slope() -> None:
    assert ksum(counts_of(np.zeros((5, 5)))).dimension == 0.0


def test_weights_follow_their_formulas() -> None:
    squared = np.array([0.0, 0.3, 4.4, 4.6])
    np.testing.assert_allclose(gaussian_block(squared, 2.0), np.exp(-squared / 2))
    assert gaussian_block(squared, 1.0, truncated=True).tolist()[2:] == [np.exp(-4.4), 0.0]  # r < 3 √(ε/2)


def block() -> CSRBlock:
    """Rows 0–1 of the symmetric 3 × 3 matrix [[0, 1, 2], [1, 0, 0], …]; row 2 is in another block."""
    return CSRBlock(
        np.array([0, 3, 4]),
        np.array([0, 1, 2, 0], np.int32),
        np.array([0.0, 1.0, 2.0, 1.0], np.float32),
        np.array([1], np.int32),
        np.array([0, 1]),
        np.array([0], np.int32),
    )


def test_self_tuning_divides_by_both_scales() -> None:
    found = local_squared_block(block(), np.array([2.0, 5.0]), np.array([3.0]), "self-tuned")
    np.testing.assert_allclose(found, [0, 0.1, 1 / 3, 0.1])


def test_the_adaptive_kernel_cuts_no_neighbor_off() -> None:
    """An edge has r ≤ max(ρ_i, ρ_j): the weight is at least e^(−2/ε) however the scales differ."""
    rho, other = np.array([1.0, 1.0, 1e6]), np.array([1.0, 1e9, 1e-6])
    squared = np.maximum(rho, other) ** 2
    assert (local_squared(squared, rho, other, "adaptive") <= 2).all()
    assert local_squared(squared, rho, other, "self-tuned").max() > 1e8
    found = local_squared_block(block(), np.array([2.0, 5.0]), np.array([3.0]), "adaptive")
    np.testing.assert_allclose(found, [0, 1 / 14.5, 2 / 6.5, 1 / 14.5])


def test_normalization_is_symmetric_to_the_last_bit() -> None:
    weights = np.array([0.5, 0.7, 0.3, 0.7])
    for alpha in (0.0, 0.5, 1.0, -0.3):
        found = normalize_block(block(), weights, np.array([1.1, 3.7]), np.array([0.9]), alpha)
        assert found[1] == found[3]
        np.testing.assert_allclose(found, weights / (np.array([1.1 * 1.1, 1.1 * 3.7, 1.1 * 0.9, 3.7 * 1.1]) ** alpha))


def test_row_sums_of_empty_rows_are_zero() -> None:
    np.testing.assert_array_equal(row_sums(np.array([0, 0, 2, 2, 3, 3]), np.array([1.0, 2.0, 4.0])), [0, 3, 0, 4, 0])


@pytest.mark.parametrize("rule", ["self-tuned", "adaptive"])
def test_compiled_scales_have_the_bytes_of_numpy(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rho, halo = rng.lognormal(size=2), rng.lognormal(size=1)
    found = [local_squared_block(block(), rho, halo, rule), csr.products(block(), rho, halo)]
    monkeypatch.setattr(csr, "COMPILED", 0)
    for plain, fast in zip(
        found, [local_squared_block(block(), rho, halo, rule), csr.products(block(), rho, halo)], strict=True
    ):
        np.testing.assert_array_equal(fast, plain)
