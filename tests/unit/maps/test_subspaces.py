"""Nyström, Galerkin and Roseland mathematics against dense references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh, svd

from bigembed.maps.kernels import Kernel
from bigembed.maps.landmark_maps import (
    LandmarkFunctions,
    LandmarkKernel,
    averaged,
    barycentric_rows,
    centered_map,
    nearest,
)
from bigembed.maps.walk.landmark_walk import (
    Walk,
    auto_epsilon,
    coordinates_block,
    gram_block,
    landmark_parts,
    spectrum,
    sums_block,
)


def moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = values.mean(axis=0)
    return mean, (values - mean).T @ (values - mean)


@pytest.mark.parametrize("kernel", [Kernel("rbf", gamma=0.1), Kernel("sigmoid", gamma=0.3, coef0=-1.0)])
def test_the_landmark_kernel_is_solved_exactly_and_centered_on_all_rows(kernel: Kernel) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    landmarks = rows[::8]
    c, w = kernel(rows, landmarks), kernel(landmarks, landmarks)
    found = centered_map(w, *moments(c), 4)
    center = np.eye(200) - 1 / 200
    approximation = center @ c @ np.linalg.pinv(w, rcond=1e-12, hermitian=True) @ c.T @ center
    values, vectors = eigh((approximation + approximation.T) / 2)
    np.testing.assert_allclose(found.values, values[::-1][:4], rtol=1e-6)
    wanted = vectors[:, ::-1][:, :4] * np.sqrt(values[::-1][:4])
    got = (c - found.mean) @ found.matrix
    np.testing.assert_allclose(got * np.sign((got * wanted).sum(axis=0)), wanted, atol=1e-5 * np.abs(wanted).max())
    off = (c - kernel(landmarks, landmarks).mean(axis=0)) @ found.matrix  # a control: centered on the landmarks only
    assert np.abs(off - got).max() > 1e-3 * np.abs(got).max()


def test_repeated_landmarks_change_nothing() -> None:
    rows, kernel = np.random.default_rng(1).normal(size=(150, 2)), Kernel("rbf", gamma=0.5)
    once, twice = rows[:20], np.concatenate([rows[:20], rows[:20]])
    maps = [centered_map(kernel(z, z), *moments(kernel(rows, z)), 3) for z in (once, twice)]
    np.testing.assert_allclose(maps[0].values, maps[1].values, rtol=1e-8)
    assert maps[1].rank == maps[0].rank <= 20


def test_rows_that_are_one_to_the_kernel_have_no_coordinates() -> None:
    same = np.ones((10, 4))
    assert centered_map(np.ones((4, 4)), *moments(same), 2).matrix.shape == (4, 0)


def test_averages_of_a_row_without_weight_are_zero() -> None:
    assert averaged(np.zeros((1, 2)), np.ones((2, 1)), np.ones(1)).tolist() == [[0.0]]


def test_interpolation_sums_to_one_and_keeps_linear_functions() -> None:
    generator = np.random.default_rng(2)
    landmarks, rows = generator.uniform(size=(300, 2)), generator.uniform(0.1, 0.9, size=(100, 2))
    p = barycentric_rows(rows, landmarks)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    error = np.abs(p @ landmarks - rows).max()
    spacing = np.sort(((rows[:, None] - landmarks) ** 2).sum(axis=2), axis=1)[:, 4].max() ** 0.5
    assert error < 0.05 * spacing
    plain = landmarks[nearest(((rows[:, None] - landmarks) ** 2).sum(axis=2), 1)[:, 0]]
    assert np.abs(plain - rows).max() > 5 * error  # a control: the nearest landmark alone


def test_a_row_on_a_landmark_and_a_single_landmark() -> None:
    landmarks = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    on = barycentric_rows(landmarks[:1], landmarks).toarray()[0]
    assert on[0] > 0.95
    assert on.sum() == pytest.approx(1)
    assert barycentric_rows(np.ones((2, 2)), landmarks[:1]).toarray().tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("rule", ["adaptive", "self-tuned", "fixed", "binary"])
def test_functions_of_landmarks_are_eigenvectors_there_and_finite_far_away(rule: str) -> None:
    landmarks = np.random.default_rng(3).normal(size=(60, 2))
    functions = LandmarkFunctions(landmarks, LandmarkKernel(9, rule, 1.0, 1.0, kth=0.5), 4)
    np.testing.assert_allclose(functions(landmarks), functions.vectors, atol=1e-9)
    np.testing.assert_allclose(functions.vectors[:, 0], functions.vectors[0, 0])
    assert np.isfinite(functions(np.full((1, 2), 1e6))).all()


def test_roseland_is_the_singular_value_decomposition() -> None:
    generator = np.random.default_rng(4)
    rows, landmarks = generator.normal(size=(400, 2)), generator.normal(size=(50, 2))
    walk = Walk(auto_epsilon(landmarks))
    weights, scale = walk(rows, landmarks)
    sums = sums_block(weights, scale)
    gram, reached = gram_block(weights, scale, sums)
    result, matrix = spectrum(gram, sums, 5)
    w = np.exp(-((rows[:, None] - landmarks) ** 2).sum(axis=2) / walk.epsilon)
    d = w @ w.sum(axis=0)
    u, s, _ = svd(w / np.sqrt(d)[:, None], full_matrices=False)
    assert s[0] == pytest.approx(1)
    np.testing.assert_allclose(result.eigenvalues, s[1:6] ** 2, atol=1e-12)
    wanted = u[:, 1:6] / np.sqrt(d)[:, None] * np.sqrt(d.sum())
    got = coordinates_block(weights, sums, matrix)
    np.testing.assert_allclose(got * np.sign((got * wanted).sum(axis=0)), wanted, atol=1e-8)
    np.testing.assert_allclose((got * d[:, None] / d.sum()).T @ got, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(scale * reached, d, rtol=1e-10)


def test_roseland_rows_beyond_reach_take_the_values_of_their_landmark() -> None:
    landmarks = np.array([[0.0], [1.0], [2.0]])
    rows = np.concatenate([landmarks, [[1e5]]])
    weights, scale = Walk(0.5)(rows, landmarks)
    assert scale[3] == 0
    assert weights[3].tolist() == [0, 0, 1]
    assert np.isfinite(gram_block(weights, scale, sums_block(weights, scale))[0]).all()
    assert landmark_parts(np.eye(3)) == 3
    assert landmark_parts(np.ones((3, 3))) == 1
