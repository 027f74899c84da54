"""Moments of blocks against NumPy, and what a naive formula would lose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bigembed.linalg.moments import merge_moments, moments_block


def merged(rows, cuts, weights=None):
    parts = [
        moments_block(rows[a:b], None if weights is None else weights[a:b])
        for a, b in zip([0, *cuts], [*cuts, rows.shape[0]], strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = merge_moments(total, part)
    return total


@pytest.mark.parametrize("mean", [0.0, 1e8])
def test_a_mean_far_from_zero_costs_no_digits(mean):
    rows = np.random.default_rng(0).normal(size=(5000, 6)) + mean
    found = merged(rows, [1, 700, 4999])
    centered = rows - rows.mean(axis=0)
    np.testing.assert_allclose(found["scatter"], centered.T @ centered, rtol=1e-7, atol=1e-4)
    if mean:  # a control: the uncentered formula fails by far
        naive = rows.T @ rows - len(rows) * np.outer(rows.mean(axis=0), rows.mean(axis=0))
        assert np.abs(naive - centered.T @ centered).max() > 1


def test_a_first_block_unlike_the_others():
    generator = np.random.default_rng(1)
    rows = np.concatenate([generator.normal(size=(100, 3)) * 1e-3, generator.normal(size=(900, 3)) + 1e7])
    found = merged(rows, [100])
    centered = rows - rows.mean(axis=0)
    np.testing.assert_allclose(found["scatter"], centered.T @ centered, rtol=1e-9)


def test_weights_are_numbers_of_equal_rows():
    generator = np.random.default_rng(2)
    rows, weights = generator.normal(size=(300, 4)), generator.integers(0, 4, 300).astype(float)
    found, wanted = merged(rows, [50, 51], weights), moments_block(rows.repeat(weights.astype(int), axis=0))
    np.testing.assert_allclose(found["scatter"], wanted["scatter"])
    np.testing.assert_allclose(found["mean"], wanted["mean"])
    assert found["weight"] == wanted["weight"]
    assert found["count"] == np.count_nonzero(weights)


def test_a_block_without_weight_adds_nothing():
    rows = np.random.default_rng(3).normal(size=(10, 2))
    weights = np.r_[np.zeros(5), np.ones(5)]
    np.testing.assert_allclose(merged(rows, [5], weights)["scatter"], moments_block(rows[5:])["scatter"])


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_rows_and_the_diagonal_agree_with_dense(weighted):
    rows = sparse.random(400, 7, density=0.2, random_state=0, format="csr")
    weights = np.random.default_rng(4).random(400) if weighted else None
    dense = moments_block(rows.toarray(), weights)
    thin = moments_block(rows, weights)
    np.testing.assert_allclose(thin["scatter"], dense["scatter"], atol=1e-12)
    for given in (rows, rows.toarray()):
        diagonal = moments_block(given, weights, diagonal=True)["scatter"]
        np.testing.assert_allclose(diagonal, np.diag(dense["scatter"]), atol=1e-12)
