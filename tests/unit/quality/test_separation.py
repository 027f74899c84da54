"""Bounds on angles against eigenvectors that were really perturbed; groups; eigenvalues that are 1."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed.quality.coordinates import near_one, separation


def test_the_bound_holds_for_perturbed_vectors() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.9, 0.6, 0.55, 0.3, 0.1])
    for size in (1e-4, 1e-3, 1e-2):
        vectors = np.linalg.qr(np.eye(5)[:, :3] + size * rng.normal(size=(5, 3)))[0]
        values = np.einsum("il,i,il->l", vectors, truth, vectors)
        residuals = np.linalg.norm(truth[:, None] * vectors - vectors * values, axis=0)
        found = separation(values, residuals, 0.3)
        sine = np.sqrt(1 - np.minimum(1, vectors[np.arange(3), np.arange(3)] ** 2))
        assert (sine <= found.sin * 1.05).all()
        # the span of the close pair is better determined than its vectors
        pair = np.linalg.norm(vectors[[0, 3, 4], 1:], 2)
        if found.groups == ((1, 2),):
            assert pair <= found.group_sin[1] * 1.05


def test_groups_have_a_gap_of_their_own() -> None:
    found = separation(np.array([0.9, 0.5, 0.5 - 1e-8, 0.4]), np.full(4, 1e-6), 0.2)
    assert found.groups == ((1, 2),)
    assert found.sin[1] == found.sin[2] == 1
    np.testing.assert_allclose(found.group_gap, [0.4, 0.1, 0.1, 0.1], atol=1e-7)
    np.testing.assert_allclose(found.group_sin[1], np.sqrt(2) * 1e-5, rtol=1e-3)
    assert not found.cut


def test_a_gap_far_below_the_residual_is_seen() -> None:
    """A gap of 2.6e-8 beside a residual of 8e-7, between coordinates and at the end of them."""
    assert separation(np.array([0.9, 0.9 - 2.6e-8]), np.full(2, 8e-7), 0.5).groups == ((0, 1),)
    last = separation(np.array([0.95, 0.9]), np.full(2, 8e-7), 0.9 - 2.6e-8)
    assert last.cut
    assert (last.groups, last.group_sin[1], last.group_gap[1]) == ((), 1.0, 0.0)
    assert last.group_sin[0] < 1e-4


def test_rounding_of_the_weights_is_the_least_error() -> None:
    """An exact solve of a multiple eigenvalue, split by 1e-10: a group; the same split of 1 − λ = 1e-6 is resolved."""
    exact = np.full(2, 1e-16)
    assert separation(np.array([0.5, 0.5 - 1e-10]), exact, 0.1).groups == ((0, 1),)
    assert separation(1 - np.array([1e-6, 1e-6 + 1e-10]), exact, 0.1).groups == ()


def test_limits() -> None:
    alone = separation(np.array([0.5]), np.array([1e-8]))
    assert (alone.sin.tolist(), alone.group_sin.tolist(), alone.groups, alone.cut) == ([0.0], [0.0], (), False)
    none = separation(np.zeros(0), np.zeros(0), 0.5)
    assert (none.sin.shape, none.groups, none.cut) == ((0,), (), False)
    unsolved = separation(np.array([0.9, 0.8]), np.array([0.5, 0.5]), 0.7)
    assert unsolved.sin.tolist() == [1, 1]
    assert unsolved.cut


@pytest.mark.parametrize(
    ("one_minus", "residual", "n", "near"),
    [
        (2e-13, 1e-15, 20_000, True),  # a row cut off
        (1e-9, 1e-10, 1_000_000, False),  # a closed curve of 10⁶ rows is slow by its length
        (1e-9, 1e-10, 1_000, True),  # among so few rows, it is not
        (1e-8, 1e-7, 1_000_000, True),  # the residual reaches 1
        (5e-3, 1e-2, 1_000, False),  # an unfinished solve shows nothing
        (1e-15, 0.0, 10**9, True),  # rounding
        (-1e-16, 0.0, 100, True),
    ],
)
def test_near_one(one_minus: float, residual: float, n: int, near: bool) -> None:
    assert near_one(np.array([1 - one_minus]), np.array([residual]), 1e-6, n).tolist() == [near]


def test_a_path_of_full_weights_is_never_near_one() -> None:
    n = np.arange(10, 100_000, 7)
    slowest = 1 - np.cos(np.pi / (n - 1))
    assert not any(near_one(np.array([1 - s]), np.zeros(1), 1e-6, int(m))[0] for s, m in zip(slowest, n, strict=True))
