"""Products in registers, and columns moved between precisions, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from bigembed.runtime import tile_product


@njit
def add_product(out, out_at, a, a_at, a_row, a_step, rows, count, b, b_at, width):  # type: ignore[no-untyped-def]
    tile_product.add_product(out, out_at, a, a_at, a_row, a_step, rows, count, b, b_at, width)


@njit
def add_rows(out, at, a, begin, rows, b):  # type: ignore[no-untyped-def]
    tile_product.add_rows(out, at, a, begin, rows, b)


@njit
def add_inner(out, at, a, begin, rows, b, b_begin):  # type: ignore[no-untyped-def]
    tile_product.add_inner(out, at, a, begin, rows, b, b_begin)


@njit
def move(out, at, width, x, x_at, x_width, rows, columns):  # type: ignore[no-untyped-def]
    tile_product.move(out, at, width, x, x_at, x_width, rows, columns)


@pytest.mark.parametrize("width", [8, 16, 24])
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_numpy_in_both_directions(width: int, rows: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows + 2, 5)).astype(dtype), rng.standard_normal((7, width))
    out = rng.standard_normal((rows + 1, width))
    expected = out.copy()
    expected[1:] += a[2:].astype(np.float64) @ b[1:6]
    whole = out.copy()
    add_product(out, width, a, 10, 5, 1, rows, 5, b, width, width)
    np.testing.assert_allclose(out, expected, atol=1e-14)
    add_rows(whole, 1, a, 2, rows, b[1:6])
    assert whole.tobytes() == out.tobytes()
    inner, tall = np.zeros((5, width)), rng.standard_normal((rows, width))
    add_product(inner, 0, a, 10, 1, 5, 5, rows, tall, 0, width)
    np.testing.assert_allclose(inner, a[2:].astype(np.float64).T @ tall, atol=1e-14)
    taller = np.zeros((7, width))
    add_inner(taller, 2, a, 2, rows, np.concatenate([b, tall]), 7)
    assert taller[2:].tobytes() == inner.tobytes()
    assert not taller[:2].any()


@pytest.mark.parametrize("width", [8, 16, 24])
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_products_in_single_precision_stay_there(width: int, rows: int) -> None:
    rng = np.random.default_rng(1)
    a, b, out = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 5), (5, width), (rows, width)))
    expected = out.astype(np.float64) + a.astype(np.float64) @ b
    add_product(out, 0, a, 0, 5, 1, rows, 5, b, 0, width)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=5e-6)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 15, 17])
@pytest.mark.parametrize(("source", "target"), [(np.float64, np.float32), (np.float32, np.float64), (np.float64,) * 2])
def test_move_takes_these_columns_and_no_others(columns: int, source: type, target: type) -> None:
    x, out = np.random.default_rng(0).random((3, 40)).astype(source), np.full((3, 30), -1, target)
    move(out, 32, 30, x, 3, 40, 2, columns)
    np.testing.assert_array_equal(out[1:, 2 : 2 + columns], x[:2, 3 : 3 + columns].astype(target))
    out[1:, 2 : 2 + columns] = -1
    assert (out == -1).all()
