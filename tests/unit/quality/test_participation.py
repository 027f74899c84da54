"""What carries a coordinate: limits that are known, and rows that are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigembed.quality.coordinates import Participation, carried_by_few, participation
from bigembed.store.arrays import write_array


def stored(home: Path, psi: np.ndarray, degree: np.ndarray, blocks: int) -> Participation:
    for b, (rows, d) in enumerate(zip(np.array_split(psi, blocks), np.array_split(degree, blocks), strict=True)):
        write_array(home / f"right/{b}", rows)
        write_array(home / f"degree/{b}", d)
    return participation(str(home / "right"), str(home / "degree"), blocks)


def test_limits(tmp_path: Path) -> None:
    """±1 is carried by all, ±1 on a set by its mass, a single row by its own, a cosine by 2/3, Gaussian by 1/3."""
    n, rng = 4000, np.random.default_rng(0)
    degree = rng.uniform(1, 3, n)
    share = degree / degree.sum()
    psi = np.zeros((n, 6))
    psi[:, 0] = rng.choice([-1, 1], n)
    psi[:500, 1] = -7.5
    psi[1234, 2] = 1e3
    psi[:, 3] = np.cos(2 * np.pi * np.arange(n) / n)
    psi[:, 4] = rng.normal(size=n)
    found = stored(tmp_path, psi, degree, 3)
    np.testing.assert_allclose(found.share[:3], [1, share[:500].sum(), share[1234]], rtol=1e-12)
    np.testing.assert_allclose(found.share[3:5], [2 / 3, 1 / 3], rtol=0.05)
    assert found.share[5] == 0
    assert found.rows[:3].tolist() == [n, 500, 1]
    assert found.rows[5] == 0
    assert carried_by_few(found.share, found.rows, n).tolist() == [False, False, True, False, False, True]


def test_the_leading_rows_are_named_over_blocks(tmp_path: Path) -> None:
    psi, degree = np.zeros((30, 2)), np.ones(30)
    psi[[3, 17, 29], 0] = [1.0, -3.0, 2.0]
    psi[:, 1] = 1.0
    degree[25] = 2.0
    found = stored(tmp_path, psi, degree, 4)
    assert found.leading.tolist() == [[17, 29, 3, -1, -1], [25, 0, 1, 2, 3]]
    np.testing.assert_allclose(found.leading_share[0], [9 / 14, 4 / 14, 1 / 14, 0, 0])


def test_blocks_change_rounding_only_and_scale_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    psi, degree = rng.normal(size=(500, 3)), rng.uniform(1, 2, 500)
    one, many = stored(tmp_path / "1", psi, degree, 1), stored(tmp_path / "5", psi * 100, degree, 5)
    np.testing.assert_allclose(one.share, many.share, rtol=1e-12)
    np.testing.assert_array_equal(one.rows, many.rows)
    np.testing.assert_array_equal(one.leading, many.leading)


@pytest.mark.parametrize(("n", "rows", "few"), [(1797, 14, True), (1797, 30, False), (150, 5, True), (40, 3, False)])
def test_few_is_a_share_and_a_number(n: int, rows: int, few: bool) -> None:
    found = Participation(np.array([0.5]), np.array([rows]), np.zeros((1, 5)), np.zeros((1, 5)))
    assert carried_by_few(found.share, found.rows, n).tolist() == [few]
