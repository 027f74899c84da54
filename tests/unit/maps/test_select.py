"""Landmarks: uniform, and far from each other."""

from __future__ import annotations

import numpy as np

from bigembed.maps.landmark_rows import LandmarkChoice, max_min, uniform


def test_uniform_takes_every_number_alike() -> None:
    counts = np.zeros(20)
    for seed in range(2000):
        chosen = uniform(20, 5, seed)
        assert (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)
    assert uniform(3, 10, 0).tolist() == [0, 1, 2]


def test_max_min_covers_the_rows_to_within_the_distance_of_the_landmarks() -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3))
    chosen = max_min(rows, 30)
    assert len(set(chosen.tolist())) == 30
    between = np.linalg.norm(rows[chosen][:, None] - rows[chosen][None], axis=2)
    np.fill_diagonal(between, np.inf)
    covered = np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2).min(axis=1).max()
    assert covered <= between.min()
    some = np.random.default_rng(1).choice(500, 30, replace=False)  # a control: chance does not cover so well
    assert np.linalg.norm(rows[:, None] - rows[some][None], axis=2).min(axis=1).max() > 1.3 * covered


def test_max_min_stops_where_rows_repeat() -> None:
    rows = np.repeat(np.eye(4), 5, axis=0)
    assert len(max_min(rows, 10)) == 4


def test_a_sample_is_bounded() -> None:
    far, uniformly = (LandmarkChoice(500, selection, ()) for selection in ("max-min", "uniform"))
    assert far.sample_size(10**9, 4) == 15_000
    assert far.sample_size(10**9, 1 << 20) == 500
    assert far.sample_size(1_000, 12) == 1_000
    assert uniformly.sample_size(10**9, 4) == 500
