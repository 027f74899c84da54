"""Effective degrees against a kernel written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigembed.quality.coordinates import EffectiveDegrees, effective_degrees
from bigembed.store.arrays import write_array


def stored(home: Path, q: np.ndarray, blocks: int, **more: float) -> EffectiveDegrees:
    for b, part in enumerate(np.array_split(q, blocks)):
        write_array(home / f"q/{b}", part)
    return effective_degrees(str(home / "q"), blocks, **more)


def test_a_row_cut_off_is_found(tmp_path: Path) -> None:
    x = np.append(np.linspace(0, 1, 50), 9.0)
    q = np.exp(-((x[:, None] - x) ** 2) / 0.01).sum(axis=1)
    found = stored(tmp_path, q, 3)
    assert (found.smallest, found.row, found.below, found.first) == (0.0, 50, 1, (50,))


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_the_same_for_any_blocks(tmp_path: Path, blocks: int) -> None:
    q = 1 + np.random.default_rng(0).uniform(0, 1, 200)
    found = stored(tmp_path, q, blocks)
    low = np.flatnonzero(q - 1 < 0.1)
    assert (found.smallest, found.row) == ((q - 1).min(), int(q.argmin()))
    assert (found.below, found.first) == (len(low), tuple(low[:10]))


def test_the_limit_is_an_argument(tmp_path: Path) -> None:
    assert stored(tmp_path, np.array([1.5, 2.0, 9.0]), 1, limit=1.0).below == 1
