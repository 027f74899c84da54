"""The compiled sweeps beside the same in NumPy: the update, and products with the coarse functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigembed.linalg.lobpcg_sweeps import away_of, prolong, restrict, update_block

ROWS, COUNT, FUNCTIONS = 1_300, 40, 3
CASES = [(5, 0, 0, 5, 0), (9, 0, 9, 9, 9), (15, 15, 15, 15, 15), (2, 2, 2, 2, 2), (7, 7, 7, 6, 6)]
"""Columns of X, P, W, and of the next X and P."""


def given(rng: np.random.Generator, case: tuple[int, ...]) -> dict[str, Any]:
    x, p, w, m, moved = case
    label = rng.integers(-1, COUNT, ROWS)
    mass = 1 / rng.random(moved)
    return {
        "scale": np.where(label >= 0, rng.random(ROWS), 0)[:, None],
        "label": label,
        "basis": rng.standard_normal((ROWS, FUNCTIONS)).astype(np.float32),
        "diagonal": rng.random((ROWS, 1)),
        "t": rng.standard_normal((ROWS, 1)),
        "y": rng.standard_normal((COUNT * FUNCTIONS, m)),
        "restricted": [rng.standard_normal((COUNT * FUNCTIONS, size)) for size in (2, 2 * (x + p + w))],
        "vectors": [
            rng.standard_normal((ROWS, size)).astype(np.float32 if k == 2 else np.float64)
            for k, size in enumerate((x, p, w, x, p, w))
            if size
        ],
        "small": (rng.standard_normal((x + p + w, m)), mass, rng.random(m), rng.standard_normal((1, x + p + w))),
    }


def updated(parts: dict[str, Any], case: tuple[int, ...], into: bool) -> tuple[Any, Any]:
    vectors = [v.copy() for v in parts["vectors"]]
    for v in vectors:
        v.setflags(write=into)
    leading = [parts[name] for name in ("scale", "label", "basis", "diagonal", "t", "y")]
    restricted = [parts["restricted"][0][:, :1], parts["restricted"][1]]
    return update_block(0, *leading, *restricted, *vectors, *parts["small"], np.array([0.9]), case[:3])


@pytest.mark.parametrize("case", CASES)
def test_update_is_that_of_the_formulas(graphs: Any, case: tuple[int, ...]) -> None:
    parts = given(np.random.default_rng(0), case)
    (x, p, w, ax, ap, coarse), (gram, form, overlap, squares) = updated(parts, case, into=False)
    mix, inverse, values, inner = parts["small"]
    count = len(parts["vectors"]) // 2
    base, image = (np.concatenate(half, axis=1) for half in (parts["vectors"][:count], parts["vectors"][count:]))
    both = np.concatenate([mix, away_of(mix, inverse, case[0])], axis=1)
    xp = base @ both - parts["t"] @ inner @ both
    axp = image @ both - 0.9 * parts["t"] @ inner @ both
    matrix = graphs.prolongation(parts["label"], parts["basis"], COUNT)
    residual = axp[:, : case[3]] - xp[:, : case[3]] * values
    expected = (residual / np.maximum(1 - parts["diagonal"], 1e-3) + matrix @ parts["y"]) * (parts["scale"] != 0)
    for found, wanted in ((np.hstack([x, p]), xp), (np.hstack([ax, ap]), axp)):
        np.testing.assert_allclose(found, wanted, atol=1e-10 * np.abs(wanted).max())
    np.testing.assert_array_almost_equal_nulp(w, expected.astype(np.float32), 2)
    expected = w.astype(np.float64)  # (the sums are those of W as it is rounded)
    whole = np.hstack([xp, expected])
    sums = ((gram, expected.T @ whole), (form, expected.T @ axp), (overlap, parts["t"].T @ whole))
    for found, wanted in (*sums, (squares, (residual**2).sum(axis=0))):
        np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())
    width = xp.shape[1]
    np.testing.assert_allclose(coarse[:, width : width + case[3]], matrix.T @ expected, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_update_in_the_place_of_spent_vectors_has_the_same_bytes(case: tuple[int, ...]) -> None:
    parts = given(np.random.default_rng(1), case)
    found = [updated(parts, case, into) for into in (False, True)]
    for one, other in zip(*[[*arrays, *sums] for arrays, sums in found], strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 12, 15, 16, 17, 31])
def test_functions_are_those_of_the_sparse_matrix(graphs: Any, width: int) -> None:
    rng = np.random.default_rng(2)
    label = np.append(rng.integers(-1, COUNT, ROWS), COUNT - 1)
    basis = rng.standard_normal((len(label), FUNCTIONS)).astype(np.float32)
    matrix = graphs.prolongation(label, basis, COUNT)
    x, y = rng.standard_normal((len(label), width)), rng.standard_normal((COUNT * FUNCTIONS, width))
    assert np.array_equal(prolong(label, basis, y), matrix @ y)
    for given in (x, x.astype(np.float32)):  # (sums by fused operations, in double precision)
        np.testing.assert_allclose(restrict(label, basis, given), matrix.T @ given.astype(np.float64), atol=1e-13)
    assert np.abs(restrict(label, basis, x[::-1]) - matrix.T @ x).max() > 1
