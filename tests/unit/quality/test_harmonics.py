"""Which coordinates are functions of earlier ones, where that is known by analysis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigembed.quality.dimension import ROWS, harmonics, sampled
from bigembed.store.arrays import write_array

S = 600
rng = np.random.default_rng(0)
x, y = rng.uniform(0, np.pi, (2, S))


def new(sample: np.ndarray) -> list[int]:
    """Coordinates that are new, counted from 0."""
    return np.flatnonzero(~harmonics(sample).harmonic).tolist()


def rectangle(side: float, count: int) -> tuple[np.ndarray, list[int]]:
    """The first Neumann eigenfunctions of a rectangle 1 × side, and which of them are cos x and cos y."""
    modes = sorted((i**2 + (j / side) ** 2, i, j) for i in range(12) for j in range(6) if i + j)[:count]
    functions = np.column_stack([np.cos(i * x) * np.cos(j * y) for _, i, j in modes])
    return functions, [l for l, (_, i, j) in enumerate(modes) if (i, j) in ((1, 0), (0, 1))]


def test_on_an_interval_all_but_the_first_are_harmonics() -> None:
    found = harmonics(np.cos(np.outer(x, np.arange(1, 9))))
    assert found.harmonic.tolist() == [False] + 7 * [True]
    assert found.residual[0] == 1
    assert found.residual[1:].max() < 0.1


@pytest.mark.parametrize("side", [0.3, 0.45, 0.9])
def test_a_rectangle_has_two_new_coordinates_wherever_they_come(side: float) -> None:
    """1 : 0.3 as swiss roll strips are: the second dimension comes fourth."""
    functions, truth = rectangle(side, 7)
    assert new(functions) == truth


def test_circle_and_sphere() -> None:
    angle = rng.uniform(0, 2 * np.pi, S)
    assert new(np.column_stack([f(l * angle) for l in (1, 2, 3) for f in (np.cos, np.sin)])) == [0, 1]
    u, v, w = (unit := rng.normal(size=(S, 3))).T / np.linalg.norm(unit, axis=1)
    second = [u * v, v * w, u * w, u**2 - v**2, 3 * w**2 - 1]
    assert new(np.column_stack([u, v, w, *second])) == [0, 1, 2]


def test_noise_is_no_harmonic_and_noise_on_a_harmonic_keeps_it_one() -> None:
    noise = rng.normal(size=(S, 2))
    assert new(np.column_stack([np.cos(x), noise[:, 0], np.cos(2 * x), noise[:, 1]])) == [0, 1, 3]
    assert harmonics(noise).residual[1] > 0.95
    noisy = np.column_stack([np.cos(x), np.cos(2 * x) + 0.03 * noise[:, 0]])
    assert new(noisy) == [0]


def test_a_coordinate_that_tells_overlapping_groups_is_new() -> None:
    """Its level in each group follows from the earlier ones; what it tells apart is what they do not."""
    level, half = rng.integers(0, 8, S), rng.integers(0, 2, S)
    first = level + 0.2 * rng.normal(size=S)
    second = 1.5 * level + 0.9 * half + 0.3 * rng.normal(size=S)
    found = harmonics(np.column_stack([first, second, np.cos(x), np.cos(2 * x)]))
    assert found.residual[1] < 0.35 < found.local[1]
    assert found.harmonic.tolist() == [False, False, False, True]


def test_parts_and_single_rows_are_new_and_say_nothing_of_what_follows() -> None:
    part = rng.integers(0, 6, S)
    contrasts = rng.normal(size=(6, 3))[part] + 0.01 * rng.normal(size=(S, 3))
    single = np.zeros((S, 1))
    single[5] = 40
    found = harmonics(np.column_stack([contrasts, single, np.cos(x), np.cos(2 * x)]))
    assert found.stepped.tolist() == [True] * 4 + [False] * 2
    assert found.harmonic.tolist() == [False] * 5 + [True]


def test_degenerate_samples_are_defined() -> None:
    constant = harmonics(np.ones((50, 3)))
    assert constant.stepped.all()
    assert constant.residual.tolist() == [1, 1, 1]
    assert not constant.harmonic.any()
    same = np.repeat(np.cos(np.outer(np.linspace(0, np.pi, 100), [1, 2])), 40, axis=0)  # every row 40 times
    assert new(same) == [0]
    for s in (0, 1, 2, 3):
        few = harmonics(rng.normal(size=(s, 4)))
        assert (few.rows, few.residual.shape) == (s, (4,))
        assert np.isfinite(few.residual).all()
    assert harmonics(np.zeros((10, 0))).residual.shape == (0,)


def test_units_change_nothing() -> None:
    functions, _ = rectangle(0.3, 6)
    np.testing.assert_allclose(
        harmonics(functions).residual, harmonics(functions * [1, 1e-3, 7, 1e4, 2, 1] + 5).residual, rtol=1e-6
    )


def test_the_sample_is_drawn_from_all_blocks_by_the_seed(tmp_path: Path) -> None:
    sizes = (1500, 10, 1490)
    every = np.column_stack([np.arange(3000.0), np.zeros(3000)])
    for b, rows in enumerate(np.split(every, np.cumsum(sizes)[:-1])):
        write_array(tmp_path / f"right/{b}", rows)
    path = str(tmp_path / "right")
    found = sampled(path, sizes, seed=0)
    assert found.shape == (ROWS, 2)
    assert (np.diff(found[:, 0]) > 0).all()
    assert [((found[:, 0] >= a) & (found[:, 0] < b)).sum() for a, b in ((0, 1500), (1500, 1510), (1510, 3000))] == [
        1000,
        6,
        994,
    ]
    np.testing.assert_array_equal(found, sampled(path, sizes, seed=0))
    assert (found != sampled(path, sizes, seed=1)).any()
    np.testing.assert_array_equal(sampled(path, sizes, 0, wanted=5000), every)
