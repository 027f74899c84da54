"""Kernel functions against scikit-learn's, and what a user's function may do wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from bigembed.errors import InputError
from bigembed.maps.kernels import KERNELS, Kernel, checked_kernel, in_tiles, squared_distances, wrong_values


def laplacian(a: np.ndarray, b: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return np.exp(-np.abs(a[:, None] - b[None]).sum(axis=2) / scale)


def flat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.ones(len(a))


@pytest.mark.parametrize("name", KERNELS)
def test_named_kernels_are_those_of_scikit_learn(name: str) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(40, 6)), generator.normal(size=(30, 6))
    numbers = {"rbf": {"gamma": 0.3}, "poly": {"gamma": 0.3, "degree": 2, "coef0": 0.5}}
    given = numbers.get(name, {"gamma": 0.3, "coef0": 0.5} if name == "sigmoid" else {})
    wanted = pairwise_kernels(a, b, metric=name, **given)
    np.testing.assert_allclose(Kernel(name, **given)(a, b), wanted, rtol=1e-12, atol=1e-13)
    if given:
        assert np.abs(Kernel(name, **(given | {"gamma": 0.4}))(a, b) - wanted).max() > 1e-2  # control


def test_cosine_of_a_zero_row_is_zero() -> None:
    assert Kernel("cosine")(np.zeros((1, 3)), np.eye(3)).tolist() == [[0.0, 0.0, 0.0]]


def test_distances_do_not_cancel_far_from_the_origin() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4))
    near = squared_distances(rows, rows)
    far = squared_distances(rows + 1e6, rows + 1e6)
    np.testing.assert_allclose(far, near, atol=1e-8)
    moved = rows + 1e6
    naive = (moved**2).sum(1)[:, None] + (moved**2).sum(1) - 2 * moved @ moved.T
    assert np.abs(naive - near).max() > 1e-4  # a control: without the shift


@pytest.mark.parametrize("name", [*KERNELS, laplacian])
def test_a_row_has_the_same_values_in_every_batch(name: object) -> None:
    generator = np.random.default_rng(1)
    rows, others = generator.normal(size=(700, 5)), generator.normal(size=(33, 5))
    kernel = Kernel(name, gamma=0.2)  # type: ignore[arg-type]
    whole = in_tiles(lambda tile: kernel(tile, others), rows, len(others))
    for part in (slice(0, 1), slice(3, 9), slice(255, 600)):
        assert np.array_equal(in_tiles(lambda tile: kernel(tile, others), rows[part], len(others)), whole[part])


def test_functions_get_their_parameters_and_a_key_that_knows_their_text() -> None:
    rows = np.array([[0.0], [1.0]])
    kernel = checked_kernel(laplacian, {"scale": 2.0})
    assert kernel(rows, rows)[0, 1] == pytest.approx(np.exp(-0.5))
    assert "abs" in kernel.key()["source"]
    assert kernel.key() != checked_kernel(laplacian, {"scale": 3.0}).key()


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match=r"'rbff'.*did you mean 'rbf'"):
        checked_kernel("rbff")
    with pytest.raises(InputError, match=r"kernel='nowhere:f'.*cannot be imported"):
        checked_kernel("nowhere:f")
    with pytest.raises(InputError, match=r"flat: blocks of 2 and 3 rows.*shape \(2, 3\)"):
        Kernel(flat)(np.zeros((2, 1)), np.zeros((3, 1)))
    assert wrong_values(np.array([[1.0, np.inf], [np.nan, 0.0]]), 10, 100) == [(10, 101), (11, 100)]
    assert wrong_values(np.array([[1e308, 1e308]])) == []  # a sum that overflows is no offence
