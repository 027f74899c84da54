"""Class scatters and discriminant directions against the formulas of seed 000 and against scikit-learn."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from bigembed.maps.linear.class_scatter import (
    ClassScatter,
    Covariances,
    class_scatter_block,
    covariances,
    decision,
    discriminants,
    fisher_direction,
    fourth_moments_block,
    scales_of,
)
from bigembed.runtime.blocks import Array


def sample(n: int = 300, d: int = 5, c: int = 4, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, c, n)
    codes[:c] = np.arange(c)
    mixing = generator.normal(size=(d, d))
    return generator.normal(size=(n, d)) @ mixing + 3 * generator.normal(size=(c, d))[codes], codes


def by_definition(rows: Array, codes: Array, c: int) -> tuple[Array, Array]:
    """Means m_c and scatters S_c, as seed 000 §4 writes them."""
    means = np.array([rows[codes == k].mean(axis=0) for k in range(c)])
    return means, np.array([(rows[codes == k] - means[k]).T @ (rows[codes == k] - means[k]) for k in range(c)])


def solved(rows: Array, codes: Array, shrinkage: float | str | None, priors: Array | None = None) -> Covariances:
    c = int(codes.max()) + 1
    by_class = shrinkage == "auto" or priors is not None
    found = class_scatter_block(rows, codes, c, by_class)
    fourth = None
    if shrinkage == "auto":
        spread = [s / k for s, k in zip(found.scatter, found.counts, strict=True)]
        spread.append((found.scatter.sum(axis=0) + found.between()) / len(rows))
        means = np.vstack([found.means, found.mean])
        fourth = fourth_moments_block(rows, codes, means, np.array([scales_of(part) for part in spread]))
    return covariances(found, found.counts / len(rows) if priors is None else priors, shrinkage, fourth)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("cuts", [[], [1], [7, 8, 150], [299]])
def test_blocks_sum_to_the_scatters_of_all_rows(by_class: bool, cuts: list[int]) -> None:
    rows, codes = sample()
    means, scatters = by_definition(rows, codes, 4)
    parts = [
        class_scatter_block(part, code, 4, by_class)
        for part, code in zip(np.split(rows, cuts), np.split(codes, cuts), strict=True)
    ]
    found: ClassScatter = reduce(add, parts)
    np.testing.assert_allclose(found.means, means, rtol=1e-12)
    np.testing.assert_array_equal(found.counts, np.bincount(codes))
    np.testing.assert_allclose(found.scatter, scatters if by_class else scatters.sum(axis=0)[None], rtol=1e-11)
    centered = rows - rows.mean(axis=0)
    np.testing.assert_allclose(found.scatter.sum(axis=0) + found.between(), centered.T @ centered, rtol=1e-11)


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 300), max_size=6), offset=st.sampled_from([0.0, 1e6]))
def test_any_cut_gives_the_same_however_far_the_rows_lie_from_zero(cuts: list[int], offset: float) -> None:
    rows, codes = sample()
    whole = class_scatter_block(rows, codes, 4)
    parts = zip(np.split(rows + offset, sorted(cuts)), np.split(codes, sorted(cuts)), strict=True)
    found = reduce(add, [class_scatter_block(part, code, 4) for part, code in parts])
    np.testing.assert_allclose(found.scatter, whole.scatter, rtol=1e-6 if offset else 1e-10)
    if offset:  # a control: the textbook one-pass formula Σxxᵀ − n m mᵀ does lose the scatter here
        raw = (rows + offset).T @ (rows + offset) - (found.counts[:, None] * found.means).T @ found.means
        assert not np.allclose(raw, whole.scatter[0], rtol=1e-6)


def test_rows_without_label_do_not_count() -> None:
    rows, codes = sample()
    hidden = codes.copy()
    hidden[::3] = -1
    for by_class in (False, True):
        kept = class_scatter_block(rows[hidden >= 0], hidden[hidden >= 0], 4, by_class)
        found = class_scatter_block(rows, hidden, 4, by_class)
        np.testing.assert_allclose(found.scatter, kept.scatter, rtol=1e-12)
        np.testing.assert_allclose(found.means, kept.means, rtol=1e-12)


def test_half_precision_rows_are_summed_in_double() -> None:
    rows, codes = sample(5000)
    narrow = rows.astype(np.float32)
    found, wanted = class_scatter_block(narrow, codes, 4), class_scatter_block(narrow.astype(np.float64), codes, 4)
    np.testing.assert_allclose(found.scatter, wanted.scatter, rtol=1e-12)
    np.testing.assert_allclose(found.means, wanted.means, rtol=1e-12)


@pytest.mark.parametrize("priors", [None, np.array([0.1, 0.2, 0.3, 0.4])])
@pytest.mark.parametrize("shrinkage", [None, 0.0, 0.3, 1.0, "auto"])
def test_agrees_with_scikit_learn(shrinkage: float | str | None, priors: Array | None) -> None:
    rows, codes = sample()
    peer = LinearDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage, priors=priors).fit(rows, codes)
    found = solved(rows, codes, shrinkage, priors)
    np.testing.assert_allclose(found.within, peer.covariance_, rtol=1e-10)
    directions = discriminants(found, 3, 1e-12)
    signs = np.sign((directions.scalings * peer.scalings_[:, :3]).sum(axis=0))
    np.testing.assert_allclose(directions.scalings * signs, peer.scalings_[:, :3], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(directions.ratios, peer.explained_variance_ratio_, rtol=1e-8)
    means = by_definition(rows, codes, 4)[0]
    coefficients, intercepts = decision(directions.inverse, means, peer.priors_)
    np.testing.assert_allclose(coefficients, peer.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(intercepts, peer.intercept_, rtol=1e-7, atol=1e-9)
    other = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.7, priors=priors).fit(rows, codes)
    assert not np.allclose(coefficients, other.coef_, rtol=1e-3)  # a control: another shrinkage is distinguished


def test_directions_solve_the_generalized_eigenproblem_of_the_source() -> None:
    rows, codes = sample()
    means, scatters = by_definition(rows, codes, 4)
    within, counts = scatters.sum(axis=0), np.bincount(codes)
    apart = means - rows.mean(axis=0)
    between = (counts[:, None] * apart).T @ apart
    values, vectors = eigh(between, within)
    found = discriminants(solved(rows, codes, None), 3, 1e-12).scalings
    wanted = vectors[:, ::-1][:, :3] * np.sqrt(len(rows))
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=1e-8)
    assert values[::-1][3:].max() < 1e-12 * values[-1]  # no more than c − 1 of them


def test_two_classes_have_the_direction_of_fisher() -> None:
    rows, codes = sample(c=2)
    means, scatters = by_definition(rows, codes, 2)
    w = np.linalg.solve(scatters.sum(axis=0), means[0] - means[1])
    found = discriminants(solved(rows, codes, None), 1, 1e-12)
    direction = fisher_direction(found.inverse, means)
    np.testing.assert_allclose(direction, w / np.linalg.norm(w), rtol=1e-9)
    assert abs(direction @ found.scalings[:, 0]) / np.linalg.norm(found.scalings) == pytest.approx(1, abs=1e-12)

    def objective(v: Array) -> float:  # seed 000, eq. 1
        return float((v @ (means[0] - means[1])) ** 2 / (v @ scatters.sum(axis=0) @ v))

    apart = (means[0] - means[1]) / np.linalg.norm(means[0] - means[1])
    assert objective(direction) > 1.01 * objective(apart)  # a control: the line through the means is worse
    generator = np.random.default_rng(1)
    assert all(objective(direction) >= objective(direction + 0.1 * generator.normal(size=5)) for _ in range(50))


def test_a_singular_scatter_has_directions_in_its_range_only() -> None:
    rows, codes = sample()
    flat = np.column_stack([rows, rows[:, 0] + rows[:, 1], np.full(len(rows), 3.0)])
    found = discriminants(solved(flat, codes, None), 3, 1e-12)
    assert found.rank == 5
    np.testing.assert_array_equal(found.scalings[-1], 0)
    spread = np.cov((flat @ found.scalings).T, bias=True)
    whole = discriminants(solved(rows, codes, None), 3, 1e-12)
    np.testing.assert_allclose(spread, np.cov((rows @ whole.scalings).T, bias=True), atol=1e-8)
    assert discriminants(solved(flat, codes, 0.1), 3, 1e-12).rank == 7
