"""PCA under changes that must not matter: order of rows, rotation, translation, scale, weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

import bigembed as be

cases = st.tuples(st.integers(8, 60), st.integers(2, 7), st.integers(0, 2**31))


def drawn(case: tuple[int, int, int]) -> tuple[np.ndarray, np.random.Generator]:
    n, d, seed = case
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)) * 2.0 ** -np.arange(d), generator


@settings(max_examples=8)
@given(cases)
def test_translation_scale_and_order_of_rows(case: tuple[int, int, int]) -> None:
    X, generator = drawn(case)
    plain = be.PCA().fit(X)
    order = generator.permutation(len(X))
    moved = be.PCA().fit(3.0 * X[order] + 100.0)
    np.testing.assert_allclose(moved.explained_variance_, 9 * plain.explained_variance_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(moved.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.abs(moved.embedding_), 3 * np.abs(plain.embedding_[order]), atol=1e-6)


@settings(max_examples=8)
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


@settings(max_examples=8)
@given(cases)
def test_duplicated_rows_are_weights(case: tuple[int, int, int]) -> None:
    X, generator = drawn(case)
    weights = generator.integers(0, 4, len(X))
    weights[:2] = 2
    heavy, repeated = be.PCA(1).fit(X, sample_weight=weights), be.PCA(1).fit(X.repeat(weights, axis=0))
    np.testing.assert_allclose(heavy.explained_variance_, repeated.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(heavy.mean_, repeated.mean_, atol=1e-12)
    np.testing.assert_allclose(np.abs(heavy.components_), np.abs(repeated.components_), atol=1e-5)
