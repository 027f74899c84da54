"""A row is a function of the seed and its number, whatever the blocks in which it is asked for."""

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bigembed import datasets
from bigembed.datasets.synthetic import GRANULE
from bigembed.errors import InputError, InputTypeError
from bigembed.runtime.blocks import block_rows

SYNTHETIC = sorted(set(datasets.REGISTRY) - {"coil20", "digits", "mnist", "pacman", "rotated", "us_cities"})
N = 2 * GRANULE + 37


@pytest.mark.parametrize("name", SYNTHETIC)
def test_any_cut_gives_the_same_rows(name: str) -> None:
    whole = datasets.dataset(name, n=N)
    rows, truth = whole.draw()
    assert rows.shape == whole.shape
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    cuts = [0, 1, 1, GRANULE - 1, GRANULE, GRANULE + 5, 2 * GRANULE + 1, N]
    parts = [whole.draw(a, b) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), rows)
    for key, value in truth.items():
        assert len(value) == N
        np.testing.assert_array_equal(np.concatenate([part[1][key] for part in parts]), value)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_blocks_cover_the_rows_and_survive_pickling(name: str) -> None:
    whole = datasets.dataset(name, n=5000, seed=3)
    copy = pickle.loads(pickle.dumps(whole))
    blocks = list(copy.blocks(1999))
    assert [(start, stop) for start, stop, _ in blocks] == [(0, 1999), (1999, 3998), (3998, 5000)]
    np.testing.assert_array_equal(np.concatenate([rows for *_, rows in blocks]), np.asarray(whole))


@pytest.mark.parametrize("name", sorted(set(SYNTHETIC) - {"swiss_roll_mesh"}))
def test_random_rows_do_not_depend_on_n_and_depend_on_the_seed(name: str) -> None:
    few, many = datasets.dataset(name, n=100), datasets.dataset(name, n=10**9)
    np.testing.assert_array_equal(few.rows(), many.rows(0, 100))
    assert not np.array_equal(few.rows(), datasets.dataset(name, n=100, seed=1).rows())
    assert not np.array_equal(few.rows(), many.rows(GRANULE, GRANULE + 100))


def test_default_blocks_are_the_canonical_ones() -> None:
    rows = block_rows(128, 4)
    large = datasets.mixture(rows + 10, d=128)
    assert [(start, stop) for start, stop, _ in large.blocks()] == [(0, rows), (rows, rows + 10)]


def test_far_rows_of_a_set_larger_than_memory() -> None:
    large = datasets.mixture(16_000_000, d=128)
    assert large.rows(15_999_990, 16_000_000).shape == (10, 128)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 101)])
def test_rows_out_of_range(start: int, stop: int) -> None:
    with pytest.raises(InputError, match="it has rows 0 to 100"):
        datasets.circle(100).rows(start, stop)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("swis_roll", {}, "did you mean 'swiss_roll'"),
        ("swiss_roll", {"nois": 1}, "did you mean 'noise'"),
        ("swiss_roll", {"noise": -1.0}, "not negative"),
        ("swiss_roll", {"noise": float("nan")}, "finite"),
        ("swiss_roll", {"n": 0}, "at least 1"),
        ("swiss_roll", {"seed": -1}, "seed -1"),
        ("swiss_roll", {"dtype": "int32"}, "floating-point"),
        ("hypersphere", {"d": 1}, "at least 2"),
        ("circle", {"radius": 0.0}, "positive"),
        ("mixture", {"d": 8}, "between 1 and d = 8"),
        ("mixture", {"n_clusters": 0}, "at least 1"),
        ("mixture", {"noise": -0.1}, "negative"),
        ("mnist", {}, "folder must be given"),
    ],
)
def test_errors_say_what_is_wrong(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        datasets.dataset(name, **given)


def test_wrong_type() -> None:
    with pytest.raises(InputTypeError, match="wrong type"):
        datasets.dataset("swiss_roll", n="many")
