"""B = −½ H D² H by slabs, against the matrix assembled, and classical scaling by Lanczos against a dense solve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import cdist

from bigembed.errors import InputError
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.pairs import CenteredOperator
from bigembed.rows import source as tiles
from bigembed.rows.source import RowSource
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test

N = 90
BLOCKS = (40, 13, 37)


def source_of(array: np.ndarray) -> RowSource:
    return RowSource(array.shape, array.dtype, array=array)


def distances(metric: str = "euclidean") -> np.ndarray:
    return cdist(*[np.random.default_rng(0).normal(size=(N, 3))] * 2, metric=metric)


def dense(d: np.ndarray) -> np.ndarray:
    h = np.eye(len(d)) - 1 / len(d)
    return -0.5 * h @ d**2 @ h


@pytest.mark.parametrize("squared", [False, True])
def test_a_product_is_that_of_the_matrix_assembled(squared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE_ROWS", 7)
    monkeypatch.setattr(tiles, "TILE_COLUMNS", 11)
    d = distances("cityblock")
    operator = CenteredOperator(source_of(d**2 if squared else d), MemorySpace(sizes=BLOCKS), squared=squared)
    wanted = dense(d)
    x = np.random.default_rng(1).normal(size=(N, 4))
    np.testing.assert_allclose(
        as_linear_operator(operator) @ x * operator.trace, wanted @ x, atol=1e-11 * operator.norm
    )
    assert operator.trace == pytest.approx(np.trace(wanted), rel=1e-12)
    assert operator.norm == pytest.approx(np.linalg.norm(wanted), rel=1e-10)
    assert operator.passes == 2  # the survey, and one for four vectors
    assert dot_test(operator) < 1e-14
    assert not np.allclose(wanted, dense(np.sqrt(d)), rtol=0.1)  # a control: the squares matter


def test_lanczos_finds_the_largest_eigenvalues_and_sees_negative_ones() -> None:
    d = distances("chebyshev")
    values = np.linalg.eigvalsh(dense(d))
    operator = CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))
    result = solve_lanczos(operator, 3, tol=1e-10)
    np.testing.assert_allclose(result.eigenvalues * operator.trace, values[::-1][:3], rtol=1e-9)
    assert values[0] <= result.lowest * operator.trace * (1 - 1e-9) < 0
    everything = np.concatenate([operator.space.read("V", b) for b in range(len(BLOCKS))])
    np.testing.assert_allclose(everything.sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ([(3, 5, np.nan), (5, 3, np.nan)], r"2 of 90 rows.*NaN.*rows \[3, 5\]"),
        ([(7, 1, np.inf), (1, 7, np.inf)], r"rows \[1, 7\]"),
        ([(2, 9, -1.0), (9, 2, -1.0)], "negative"),
        ([(4, 4, 0.5)], r"diagonal is 0; the first are rows \[4\]"),
        ([(4, 60, 9.0)], "not symmetric"),
    ],
)
def test_what_are_no_distances_is_refused_by_row(spoil: list[tuple[int, int, float]], message: str) -> None:
    d = distances()
    for i, j, value in spoil:
        d[i, j] = value
    with pytest.raises(InputError, match=message):
        CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))


def test_a_rectangle_is_no_array_of_distances() -> None:
    with pytest.raises(InputError, match="square"):
        CenteredOperator(source_of(np.zeros((90, 89))), MemorySpace(sizes=BLOCKS))


@pytest.mark.parametrize("chunks", [(90, 90), (31, 17), (10, 90), (90, 10)])
def test_any_chunks_give_the_same_bytes(
    chunks: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_ROWS", 7)
    monkeypatch.setattr(tiles, "TILE_COLUMNS", 11)
    monkeypatch.setattr(tiles, "PANEL_BYTES", 0)
    d = distances()
    path = str(tmp_path / "d.zarr")
    zarr.create_array(path, shape=d.shape, chunks=chunks, dtype=d.dtype)[...] = d
    stored = CenteredOperator(RowSource(d.shape, d.dtype, path=path), MemorySpace(sizes=BLOCKS))
    here = CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))
    x = np.random.default_rng(1).normal(size=(N, 4))
    np.testing.assert_array_equal(as_linear_operator(stored) @ x, as_linear_operator(here) @ x)
    assert (stored.norm, stored.trace) == (here.norm, here.trace)


def test_rows_that_differ_from_their_columns_are_named_and_rounding_is_let_pass() -> None:
    d = distances().astype(np.float32)
    noise = 1 + 1e-7 * np.random.default_rng(2).normal(size=d.shape)
    CenteredOperator(source_of(d * noise), MemorySpace(sizes=BLOCKS))
    d[4, 60] *= 1.01  # one entry of 8100, by one percent
    with pytest.raises(InputError, match=r"2 of 90 rows differ from their columns.*rows \[4, 60\]"):
        CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))


def test_a_diagonal_of_rounding_is_let_pass() -> None:
    d = distances()
    np.fill_diagonal(d, 1e-8)
    CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))
