"""Partitions and cells: sizes, nearest centers exactly, independence of the batch, degenerate rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors.partition import assign_block, balanced_centers, cells_block, kmeans, line_order


def nearest_by_definition(rows, centers):
    squared = np.stack([paired_squared(rows, np.broadcast_to(c, rows.shape)) for c in centers], axis=1)
    return squared.argmin(axis=1), squared


@pytest.fixture
def blobs():
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(6, 4)) * 20
    labels = np.repeat(np.arange(6), 100)
    return (centers[labels] + generator.normal(size=(600, 4))).astype(np.float32), labels


def test_kmeans_means_are_fixed_points(blobs):
    """At convergence every center is the mean of the rows nearest to it."""
    rows, _ = blobs
    centers = kmeans(rows, 6, 1, iterations=60)
    labels, _ = nearest_by_definition(rows, centers)
    for c in range(6):
        np.testing.assert_allclose(centers[c], rows[labels == c].mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(centers, kmeans(rows, 6, 1, iterations=60))


def test_kmeans_with_fewer_distinct_rows_than_centers():
    rows = np.repeat(np.array([[0.0], [1.0], [5.0]]), 10, axis=0)
    centers = kmeans(rows, 7, 0)
    assert centers.shape == (7, 1)
    np.testing.assert_allclose(np.unique(np.round(centers, 12)), [0, 1, 5])
    assert kmeans(rows[:2], 5, 0).shape == (5, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_assign_block_is_the_nearest_center_in_any_batch(dtype):
    generator = np.random.default_rng(3)
    rows = generator.integers(-3, 4, size=(500, 3)).astype(dtype) + dtype(1000)
    centers = np.unique(generator.integers(-3, 4, size=(40, 3)), axis=0).astype(dtype) + dtype(1000)
    centers = centers[generator.permutation(len(centers))]
    expected, _ = nearest_by_definition(rows, centers)  # argmin: ties to the lowest number
    numbers = np.arange(500)
    labels = assign_block(rows, numbers, centers)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, expected)
    one_by_one = [assign_block(rows[i : i + 1], numbers[i : i + 1], centers)[0] for i in range(100)]
    np.testing.assert_array_equal(one_by_one, expected[:100])


def test_identical_centers_share_rows_by_id():
    centers = np.array([[5.0], [1.0], [5.0], [5.0]])
    rows = np.array([[5.0]] * 6 + [[0.0]])
    np.testing.assert_array_equal(assign_block(rows, np.arange(7), centers), [0, 2, 3, 0, 2, 3, 1])


def test_balanced_centers_fit_the_largest_share(blobs):
    rows, _ = blobs
    uneven = np.concatenate([rows, np.repeat(rows[:1], 900, axis=0)])  # 60 % of the sample is one point
    centers = balanced_centers(uneven, 5, 0.15, seed=0)
    counts = np.bincount(assign_block(uneven, np.arange(len(uneven)), centers), minlength=len(centers))
    assert counts.max() <= 0.15 * len(uneven)
    assert len(centers) >= 7
    copies = (centers == rows[0]).all(axis=1).sum()
    assert copies >= 4


@pytest.mark.parametrize("kind", ["blobs", "equal", "line", "few"])
def test_cells_partition_the_rows(kind, blobs):
    generator = np.random.default_rng(1)
    rows = {
        "blobs": blobs[0],
        "equal": np.full((700, 3), 0.1, np.float32),
        "line": generator.random((1000, 1)),
        "few": blobs[0][:3],
    }[kind]
    order, offsets, centers = cells_block(rows, 32, seed=0)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(rows)))
    sizes = np.diff(offsets)
    assert offsets[0] == 0
    assert offsets[-1] == len(rows)
    assert sizes.min() > 0
    assert sizes.max() <= 64
    assert centers.shape == (len(sizes), rows.shape[1])
    assert centers.dtype == rows.dtype
    _, squared = nearest_by_definition(rows, centers)
    for c, (start, stop) in enumerate(pairwise(offsets)):
        mine = order[start:stop]
        assert (np.diff(mine) > 0).all()  # as given inside a cell
        assert (squared[mine, c] == squared[mine].min(axis=1)).all()
    for again, first in zip(cells_block(rows, 32, seed=0), (order, offsets, centers)):
        np.testing.assert_array_equal(again, first)


def test_line_order_keeps_near_centers_near():
    """On points of a line the order is that of the line, one way or the other."""
    points = np.random.default_rng(0).permutation(100).astype(float)
    line = points[line_order(points[:, None] * np.array([[1.0, 2.0]]))]
    assert abs(np.diff(line)).max() == 1
    np.testing.assert_array_equal(np.sort(line_order(np.zeros((9, 2)))), np.arange(9))
