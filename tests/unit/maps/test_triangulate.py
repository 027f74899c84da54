"""Landmark MDS against the points that the distances come from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

from bigembed.maps.landmark_maps import classical, principal_axes, triangulated


def test_euclidean_points_are_placed_where_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 3)) * [5.0, 2.0, 1.0]
    landmarks = rows[:12]
    found, values = classical(cdist(landmarks, landmarks) ** 2, 3)
    placed = triangulated(cdist(rows, landmarks), found)
    assert procrustes(rows, placed)[2] < 1e-20
    assert (values[3:] < 1e-10 * values[0]).all()
    assert procrustes(rows, triangulated(cdist(rows, landmarks) ** 2, found))[2] > 1e-2  # a control: squares of squares
    alone = triangulated(cdist(rows[17:18], landmarks), found)
    np.testing.assert_array_equal(placed[17:18], alone)


def test_the_rotation_is_to_principal_axes_about_the_mean() -> None:
    placed = np.random.default_rng(1).normal(size=(200, 3)) @ np.diag([1.0, 4.0, 2.0]) + [3.0, 0.0, -1.0]
    turn, offset, squares = principal_axes(200, placed.sum(axis=0), placed.T @ placed)
    turned = placed @ turn + offset
    np.testing.assert_allclose(turned.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(turned.T @ turned, np.diag(squares), atol=1e-9)
    assert (np.diff(squares) < 0).all()


def test_dimensions_that_are_not_there_are_zero_columns() -> None:
    line = np.arange(6.0)[:, None]
    found, values = classical(cdist(line, line) ** 2, 2)
    assert triangulated(cdist(line, line), found)[:, 1].tolist() == [0.0] * 6
    assert values[0] == pytest.approx(17.5)
