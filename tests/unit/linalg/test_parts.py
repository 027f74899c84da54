"""Rayleigh–Ritz, aggregates, the coarse space, the dense and the Lanczos solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bigembed.errors import InputError
from bigembed.linalg import coarse, coarse_solve
from bigembed.linalg.coarse import Groups, Rows, aggregates, local_basis
from bigembed.linalg.eigenpairs import rayleigh_ritz, solve_dense, solve_dense_matrix
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.store.vector_space import tree_sum


def test_rayleigh_ritz_in_a_bad_basis():
    """CᵀGC = I and CᵀHC = Λ, though columns differ by 1e8 in size and two of them are the same."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((60, 7)) * 10.0 ** np.arange(-4, 3)
    basis[:, 5] = basis[:, 4] * 3
    matrix = np.diag(np.linspace(-1, 1, 60))
    gram, form = basis.T @ basis, basis.T @ matrix @ basis
    values, mix = rayleigh_ritz(gram, form, 2)
    assert mix.shape == (7, 6)
    np.testing.assert_allclose(mix.T @ gram @ mix, np.eye(6), atol=1e-9)
    np.testing.assert_allclose(mix.T @ form @ mix, np.diag(values), atol=1e-9)
    assert np.all(np.diff(values) <= 0)


def test_aggregates_respect_size_and_activity(graphs):
    """Connected sets of at most 1.25 · size rows; rows outside carry −1."""
    weights = graphs.swiss_roll(2000)
    active = np.arange(2000) % 10 > 0
    label = aggregates(Rows.of(weights), active, 64)
    assert np.array_equal(label >= 0, active)
    sizes = np.bincount(label[active])
    assert sizes.min() > 0
    assert sizes.max() <= 80
    assert sizes.mean() > 30
    for a in range(0, len(sizes), 7):
        members = np.flatnonzero(label == a)
        assert sparse.csgraph.connected_components(weights[members][:, members])[0] == 1


def test_local_basis_is_orthonormal_and_starts_with_the_root(graphs):
    """PᵀP = I, and √d is in the span of the first functions."""
    weights = graphs.swiss_roll(1000)
    degree = np.asarray(weights.sum(axis=1)).ravel()
    scaled = sparse.diags_array(degree**-0.5) @ weights @ sparse.diags_array(degree**-0.5)
    rows = Rows.of(scaled.tocsr())
    groups = Groups.of(aggregates(rows, np.ones(1000, bool), 64))
    prolong = graphs.prolongation(groups.label, local_basis(rows, groups, degree**-0.5, 5), groups.count)
    np.testing.assert_allclose((prolong.T @ prolong).toarray(), np.eye(prolong.shape[1]), atol=1e-6)
    first = prolong[:, ::5]
    root = np.sqrt(degree)
    np.testing.assert_allclose(first @ (first.T @ root), root, rtol=1e-5)


@pytest.mark.parametrize("rows", [2000, 300])
def test_galerkin_matrix(graphs, rows):
    """L_c = Pᵀ(I − S)P, whatever the blocks."""
    weights = graphs.swiss_roll(2000)
    operator = graphs.operator(weights, rows)
    plan = coarse.build(operator, 64, 4)
    assert operator.passes == 1
    found = coarse_solve.Coarse.load(operator.space, plan)
    prolong = sparse.block_diag(
        [
            graphs.prolongation(operator.space.read("coarse.label", b), operator.space.read("coarse.basis", b), count)
            for b, count in enumerate(plan[:-1])
        ]
    ).tocsr()
    expected = prolong.T @ ((sparse.eye_array(2000) - graphs.dense(weights)) @ prolong)
    expected = np.asarray(expected) + np.diag(np.diag(expected) == 0)  # functions that small aggregates lack
    shift = coarse_solve.SHIFT * np.eye(len(expected))
    np.testing.assert_allclose(found.solver.matrix.toarray() - shift, expected, atol=1e-6)


def test_functions_become_fewer_when_aggregates_touch_too_many(graphs):
    """Entries of L_c stay below the limit."""
    operator = graphs.operator(graphs.swiss_roll(3000), 1500)
    plan = coarse.build(operator, 64, 8, 5_000)
    assert 1 <= plan[-1] < 8
    assert operator.space.read("coarse.basis", 0).shape[1] == plan[-1]
    assert coarse_solve.Coarse.load(operator.space, plan).solver.matrix.nnz <= 10_000


def test_coarse_unknowns_stay_bounded():
    """Some 12 rows an unknown from 3·10⁵ rows to 10⁷; aggregates × functions ≤ 10⁶ in any case."""
    for n in (10**5, 10**6, 10**7, 3 * 10**7, 10**8):
        size, functions = coarse.shape_of(n)
        assert n / (0.75 * size) * functions <= 1.01 * coarse.UNKNOWNS
        assert coarse.unknowns(n) <= coarse.UNKNOWNS
    assert coarse.shape_of(3 * 10**5) == coarse.shape_of(10**7)


def test_dense_complete_graph(graphs):
    """K_n: −1/(n−1); the trivial pair deflated."""
    operator = graphs.operator(graphs.complete(30), 8)
    result = solve_dense(operator, 4, deflate="trivial")
    np.testing.assert_allclose(result.eigenvalues, -1 / 29, atol=1e-14)
    assert graphs.residuals(operator, result).max() < 1e-13
    assert operator.passes == 1


def test_dense_matrix_refuses_too_many():
    with pytest.raises(InputError, match="ask for 1 to 4"):
        solve_dense_matrix(np.eye(5), 5, deflate=np.eye(5)[0])


@pytest.mark.parametrize("deflate", [None, "trivial"])
def test_lanczos_agrees_with_dense(graphs, angle, deflate):
    """AV = VΛ with V of the dense solver, restarts included."""
    weights = graphs.swiss_roll(700)
    operator = graphs.operator(weights, 200)
    result = solve_lanczos(operator, 4, tol=1e-9, max_blocks=8, deflate=deflate)
    assert result.converged
    values, vectors = np.linalg.eigh(graphs.dense(weights))
    first = 1 if deflate else 0
    wanted = slice(first, first + 4)
    np.testing.assert_allclose(result.eigenvalues, values[::-1][wanted], atol=1e-10)
    assert angle(vectors[:, ::-1][:, wanted], graphs.vectors(operator)) < 1e-4
    assert graphs.residuals(operator, result).max() <= 1e-9
    assert result.passes == operator.passes


@pytest.mark.parametrize(
    ("graph", "side", "power", "m"), [("complete", 2, 10, 10), ("complete", 16, 2, 20), ("ring", 24, 2, 8)]
)
def test_lanczos_finds_all_copies(graphs, graph, side, power, m):
    """λ of a product of graphs with their multiplicities; a block of fewer columns than copies is refused."""
    factors = [getattr(graphs, graph)(side)] * power
    operator = graphs.operator(graphs.product(*factors))
    result = solve_lanczos(operator, m, deflate="trivial")
    np.testing.assert_allclose(result.eigenvalues, graphs.spectrum(*factors)[:m], atol=1e-9)
    with pytest.raises(InputError, match="miss no copies"):
        solve_lanczos(operator, m, deflate="trivial", block=2)


def test_lanczos_exhausts_a_small_space(graphs):
    """K_8 has two eigenvalues: an invariant subspace is noticed, and the solver stops."""
    operator = graphs.operator(graphs.complete(8), 3)
    result = solve_lanczos(operator, 3)
    np.testing.assert_allclose(result.eigenvalues, [1, -1 / 7, -1 / 7], atol=1e-12)


def test_lanczos_stopped_early_says_so(graphs):
    operator = graphs.operator(graphs.swiss_roll(3000), 1000)
    result = solve_lanczos(operator, 4, max_passes=10)
    assert not result.converged
    assert "max_passes" in result.advice
    assert result.passes <= 10


def test_tree_sum_is_a_fixed_tree():
    """((a+b)+(c+d))+e for five parts."""
    parts = [0.1, 0.2, 0.3, 1e16, -1e16]
    assert tree_sum(parts) == ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4]
    with pytest.raises(InputError, match="empty"):
        tree_sum([])
