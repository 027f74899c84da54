"""The functions on aggregates: orthonormal, beside the constant, and nearly as low as the eigenvectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigembed.linalg.aggregate_functions import fill_lowest_orthogonal
from bigembed.linalg.coarse import start_of

P = 8


def laplacian(n: int, bridge: float = 1.0) -> tuple[Any, Any]:
    """D^{-1/2} (diag(W1) − W) D^{-1/2} of near points of a strip, whose halves hang together by ``bridge``, and √d."""
    points = np.random.default_rng(n).random((n, 2)) * [3, 1]
    squared = np.square(points[:, None] - points).sum(axis=2)
    weights = np.exp(-squared * n / 3) * (squared > 0)
    half = points[:, 0] < 1.5
    weights[np.not_equal.outer(half, half)] *= bridge
    degree = weights.sum(axis=1) + 0.1
    return (np.diag(weights.sum(axis=1)) - weights) / np.sqrt(np.outer(degree, degree)), np.sqrt(degree / degree.sum())


def found(matrix: Any, unit: Any) -> Any:
    rows = np.empty((min(P, len(unit)), len(unit)))
    fill_lowest_orthogonal(matrix.copy(), unit, start_of(len(unit), P), rows)
    return rows


@pytest.mark.parametrize("bridge", [1.0, 1e-9, 0.0])
@pytest.mark.parametrize("n", [1, 2, 5, 9, 40, 120])
def test_functions_are_orthonormal_and_low(n: int, bridge: float) -> None:
    matrix, unit = laplacian(n, bridge)
    rows, values = found(matrix, unit), np.linalg.eigvalsh(matrix)[: min(P, n)]
    np.testing.assert_array_equal(rows[0], unit)
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
    quotients = np.einsum("ij,jk,ik->i", rows, matrix, rows)
    assert (quotients >= values - 1e-12).all()
    assert (quotients <= 1.4 * values + 1e-12).all()
    assert (np.diff(quotients) >= -1e-12).all()


def test_random_columns_would_not_be_low() -> None:
    """Control: what the iteration starts from."""
    matrix, unit = laplacian(120)
    start = start_of(120, P)
    start = np.linalg.qr(start - np.outer(unit, unit @ start))[0]
    assert np.einsum("ji,jk,ki->i", start, matrix, start).min() > 3 * np.linalg.eigvalsh(matrix)[P]
