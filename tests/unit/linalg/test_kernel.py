"""The centered kernel operator against the matrix that it never forms."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed.errors import InputError
from bigembed.linalg import pairs
from bigembed.linalg.pairs import KernelOperator
from bigembed.maps.kernels import Kernel
from bigembed.rows.source import RowSource
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test


def lopsided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2)) * (1 + 0.1 * a[:, :1])


def holed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2))
    out[np.ix_(a[:, 0] > 2.2, b[:, 0] < -2.2)] = np.nan
    return out


def source_of(rows: np.ndarray) -> RowSource:
    return RowSource(rows.shape, rows.dtype, array=rows)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "VECTOR_ROWS", 64)


def made(rows: np.ndarray, kernel: Kernel) -> KernelOperator:
    space = MemorySpace(sizes=pairs.vector_blocks(len(rows)))
    return KernelOperator(source_of(rows), space, kernel, text=kernel.text, symmetric=not kernel.own)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", ["rbf", "poly", "sigmoid"])
def test_product_norms_and_trace_are_those_of_the_matrix(name: str) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 4))
    kernel = Kernel(name, gamma=0.2)
    operator = made(rows, kernel)
    whole = kernel(rows, rows)
    center = np.eye(300) - 1 / 300
    wanted = center @ whole @ center
    assert operator.norm == pytest.approx(np.linalg.norm(wanted), rel=1e-10)
    assert operator.trace == pytest.approx(np.trace(wanted), rel=1e-10)
    x = np.random.default_rng(1).normal(size=(300, 3))
    y = as_linear_operator(operator).matmat(x) * operator.norm
    np.testing.assert_allclose(y, wanted @ x, atol=1e-10 * np.abs(wanted @ x).max())
    assert np.abs(y - whole @ x).max() > 1e-2  # a control: not centered
    assert dot_test(operator) < 1e-13


@pytest.mark.usefixtures("small_tiles")
def test_functions_that_are_no_kernels_are_refused_by_row() -> None:
    rows = np.random.default_rng(2).uniform(-2, 2, size=(300, 2))
    rows[17], rows[203] = [2.5, 0.0], [-2.5, 0.0]
    with pytest.raises(InputError, match=r"holed: gives NaN or infinity, first for row 17 with row 203"):
        made(rows, Kernel(holed))
    with pytest.raises(InputError, match=r"lopsided: is not symmetric.*of 300 rows.*k\(y, x\)\) / 2"):
        made(rows, Kernel(lopsided))


def test_a_power_that_overflows_is_refused() -> None:
    rows = np.full((10, 2), 1e200)
    with pytest.raises(InputError, match="poly: gives NaN or infinity"):
        made(rows, Kernel("poly"))
