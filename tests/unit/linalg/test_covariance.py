"""The covariance operator: symmetric, equal to the matrix, one pass a product, any solver order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bigembed.errors import InputError
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.operator import CovarianceOperator
from bigembed.rows.source import RowSource
from bigembed.rows.sparse import held_source
from bigembed.store.exchange import Exchange
from tests.operator_views import dot_test

N, D = 400, 60


@pytest.fixture(params=["dense", "sparse", "weighted"])
def case(request, tmp_path):
    """The operator, and the matrix it stands for."""
    rows = sparse.random(N, D, density=0.3, random_state=0, format="csr")
    values, weights = rows.toarray() * 0.95 ** np.arange(D), np.ones(N)
    if request.param == "sparse":
        source = held_source(sparse.csr_array(values))
    else:
        aligned = {}
        if request.param == "weighted":
            weights = np.random.default_rng(0).random(N) * 3
            aligned = {"weights": RowSource((N,), weights.dtype, array=weights)}
        source = RowSource((N, D), values.dtype, array=values, aligned=aligned)
    mean = weights @ values / weights.sum()
    matrix = ((values - mean).T * weights) @ (values - mean) / (weights.sum() - 1)
    return CovarianceOperator(source, mean, weights.sum() - 1, Exchange(str(tmp_path))), matrix


def test_the_dot_test_finds_a_map_that_is_not_symmetric(case):
    operator, _ = case
    times = operator._times
    operator._times = lambda v: times(v) * np.linspace(1, 2, D)[:, None]
    assert dot_test(operator) > 1e-3


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
def test_lanczos_in_any_order(case, which):
    operator, matrix = case
    values = np.linalg.eigvalsh(matrix)
    wanted = {"largest": values[::-1], "smallest": values, "magnitude": values[::-1]}[which][:4]
    result = solve_lanczos(operator, 4, tol=1e-9, which=which, relative=True)
    np.testing.assert_allclose(result.eigenvalues, wanted, rtol=1e-7)
    assert result.converged
    assert result.passes == operator.passes
    vectors = operator.space.read("V", 0)
    np.testing.assert_allclose(matrix @ vectors, vectors * result.eigenvalues, atol=1e-8 * values[-1])


def test_magnitude_takes_negative_eigenvalues(case):
    operator, matrix = case
    shift = float(np.linalg.eigvalsh(matrix)[-1]) * 0.8
    times = operator._times
    operator._times = lambda v: times(v) - shift * v  # now the smallest has the largest magnitude
    values = np.linalg.eigvalsh(matrix) - shift
    wanted = values[np.argsort(-np.abs(values))][:3]
    found = solve_lanczos(operator, 3, tol=1e-8, which="magnitude").eigenvalues
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert wanted[0] < 0


def test_it_is_never_formed(case):
    assert not hasattr(case[0], "walk")  # a solver of products is all that takes it
    with pytest.raises(InputError, match="which='middle'"):
        solve_lanczos(case[0], 1, which="middle")
