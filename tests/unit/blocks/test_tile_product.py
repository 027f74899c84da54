"""Products in registers, and columns moved between precisions, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed.blocks.tile_product import add_product, move


@pytest.mark.parametrize("width", [8, 16, 24])
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_numpy_in_both_directions(width: int, rows: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows + 2, 5)).astype(dtype), rng.standard_normal((7, width))
    out = rng.standard_normal((rows + 1, width))
    expected = out.copy()
    expected[1:] += a[2:].astype(np.float64) @ b[1:6]
    add_product(out, a.reshape(-1), 10, 5, 1, rows, 5, b, 1, 1)
    np.testing.assert_allclose(out, expected, atol=1e-14)
    inner, tall = np.zeros((5, width)), rng.standard_normal((rows, width))
    add_product(inner, a.reshape(-1), 10, 1, 5, 5, rows, tall)
    np.testing.assert_allclose(inner, a[2:].astype(np.float64).T @ tall, atol=1e-14)


@pytest.mark.parametrize("width", [8, 16, 24])
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_products_in_single_precision_stay_there(width: int, rows: int) -> None:
    rng = np.random.default_rng(1)
    a, b, out = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 5), (5, width), (rows, width)))
    expected = out.astype(np.float64) + a.astype(np.float64) @ b
    add_product(out, a.reshape(-1), 0, 5, 1, rows, 5, b)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=5e-6)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 15, 17])
@pytest.mark.parametrize(("source", "target"), [(np.float64, np.float32), (np.float32, np.float64), (np.float64,) * 2])
def test_move_takes_these_columns_and_no_others(columns: int, source: type, target: type) -> None:
    x, out = np.random.default_rng(0).random(40).astype(source), np.full(40, -1, target)
    move(out, 2, x, 3, columns)
    np.testing.assert_array_equal(out[2 : 2 + columns], x[3 : 3 + columns].astype(target))
    assert (np.delete(out, np.s_[2 : 2 + columns]) == -1).all()
