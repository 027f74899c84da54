"""Each test states the equation it checks; beside each tolerance stands a wrong answer that fails it."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from bigembed.errors import InputError
from bigembed.linalg import lobpcg
from bigembed.linalg import lobpcg as iteration


def solved(graphs, weights, m, rows=500, inside=None, **options):
    operator = graphs.operator(weights, rows, inside)
    state = lobpcg.init(operator, m, deflate="trivial", **options)
    return operator, lobpcg.solve(operator, state)


def test_residuals_are_those_of_the_matrix(graphs):
    """‖Sv − λv‖ as returned = ‖Sv − λv‖ from the matrix ≤ tol; VᵀV = I; λ as ARPACK finds them."""
    weights = graphs.swiss_roll(5000)
    operator, result = solved(graphs, weights, 10)
    assert result.converged
    assert result.advice == ""
    explicit = graphs.residuals(operator, result)
    np.testing.assert_allclose(result.residuals, explicit, atol=1e-13)
    assert explicit.max() <= 1e-6
    assert result.orthogonality < 1e-11
    degree = np.asarray(weights.sum(axis=1)).ravel()
    root = sparse.diags_array(degree**-0.5)
    values = sparse.linalg.eigsh(root @ weights @ root, 12, sigma=1.0 + 1e-6)[0][::-1]
    np.testing.assert_allclose(result.eigenvalues, values[1:11], atol=1e-9)
    assert abs(result.gap - (values[10] - values[11])) < 1e-4
    assert np.abs(result.eigenvalues - values[:10]).max() > 1e-5  # control: the trivial pair counted in


def test_few_passes(graphs):
    """Ten pairs of a Swiss roll of 5000 rows: at most 16 passes, Galerkin and certificate counted."""
    operator, result = solved(graphs, graphs.swiss_roll(5000), 10, rows=2500)
    assert result.converged
    assert result.passes <= 16
    assert result.passes == operator.passes


def test_another_start_changes_the_passes_only(graphs, angle, monkeypatch):
    """From noise in place of the coarse eigenvectors: more passes, the same eigenvalues and plane."""
    weights, first = graphs.swiss_roll(3000), lobpcg.start_block
    operator, result = solved(graphs, weights, 4)

    def noise(block, *given):
        (x, known), _ = first(block, *given)
        return (np.random.default_rng([1, block]).standard_normal(x.shape), known), None

    monkeypatch.setattr(lobpcg, "start_block", noise)
    other, cold = solved(graphs, weights, 4)
    assert cold.converged
    assert cold.passes > result.passes
    np.testing.assert_allclose(cold.eigenvalues, result.eigenvalues, atol=1e-9)
    v = graphs.vectors(operator)
    assert angle(v, graphs.vectors(other)) < 1e-3
    assert angle(v[:, :2], v[:, 2:]) > 0.9  # control: other eigenvectors


def test_signs_and_deflation(graphs):
    """Largest |entry| positive; Vᵀ√d = 0."""
    operator, result = solved(graphs, graphs.swiss_roll(3000), 4)
    v = graphs.vectors(operator)
    assert np.all(v[np.abs(v).argmax(axis=0), np.arange(4)] > 0)
    assert np.abs(graphs.vectors(operator, "trivial").T @ v).max() < 1e-12
    assert result.vectors == "V"


def test_ring_has_cosines_twice(graphs, angle):
    """λ_l = cos(2πl/n), each twice; the plane of l = 1 is that of cos and sin."""
    n = 1200
    operator, result = solved(graphs, graphs.ring(n), 4, tol=1e-9)
    np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi / n * np.array([1, 1, 2, 2])), atol=1e-12)
    phase = 2 * np.pi * np.arange(n) / n
    plane = np.stack([np.cos(phase), np.sin(phase)], axis=1)
    v = graphs.vectors(operator)
    assert angle(plane, v[:, :2]) < 1e-5
    assert angle(plane, v[:, 2:]) > 0.9  # control


def test_two_rings_and_rows_outside(graphs):
    """Solved on one of two rings, vectors are exactly 0 on the other and λ are those of the one."""
    small, large = 500, 900
    weights = sparse.block_diag([graphs.ring(small), graphs.ring(large)]).tocsr()
    inside = np.arange(small + large) >= small
    operator, result = solved(graphs, weights, 2, inside=inside)
    np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi / large), atol=1e-10)
    v = graphs.vectors(operator)
    assert np.all(v[:small] == 0)
    assert np.abs(v[small:]).max() > 0


def test_two_rings_together(graphs, angle):
    """Without deflation λ = 1 comes twice; its plane is that of the two indicators."""
    weights = sparse.block_diag([graphs.ring(400), graphs.ring(700)]).tocsr()
    operator = graphs.operator(weights)
    result = lobpcg.solve(operator, lobpcg.init(operator, 4))
    assert result.converged
    np.testing.assert_allclose(result.eigenvalues[:2], 1, atol=1e-12)
    np.testing.assert_allclose(result.eigenvalues[2:], np.cos(2 * np.pi / 700), atol=1e-10)
    indicators = np.repeat(np.eye(2), [400, 700], axis=0)
    assert angle(indicators, graphs.vectors(operator)[:, :2]) < 1e-6


def test_complete_graph(graphs):
    """λ = −1/(n−1), n−1 times."""
    _, result = solved(graphs, graphs.complete(400), 3, rows=150)
    assert result.converged
    np.testing.assert_allclose(result.eigenvalues, -1 / 399, atol=1e-9)


@pytest.mark.parametrize(
    ("graph", "side", "power", "m", "ordering"),
    [
        *(("complete", 2, power, power, "symmetric") for power in (8, 9, 10, 11, 12)),
        *(("complete", 2, power, power, "random") for power in (8, 9, 10, 11)),
        ("complete", 2, 11, 14, "symmetric"),
        pytest.param("complete", 16, 3, 45, "symmetric", marks=pytest.mark.slow),
        ("complete", 16, 3, 10, "symmetric"),
        ("complete", 40, 2, 20, "random"),
        ("ring", 48, 2, 8, "symmetric"),
        ("ring", 48, 2, 8, "random"),
        ("ring", 14, 3, 18, "symmetric"),
    ],
)
def test_all_copies_of_a_multiple_eigenvalue(graphs, graph, side, power, m, ordering):
    """Hypercubes, Hamming graphs, tori: λ of a product of graphs is the mean of theirs, with known multiplicities."""
    factors = [getattr(graphs, graph)(side)] * power
    weights = graphs.product(*factors)
    if ordering == "random":
        weights = graphs.permuted(weights)
    _, result = solved(graphs, weights, m)
    assert result.converged
    np.testing.assert_allclose(result.eigenvalues, graphs.spectrum(*factors)[:m], atol=1e-9)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-9])
def test_all_copies_with_any_tolerance(graphs, tol):
    """2¹¹ vertices: 9/11 eleven times; λ is good to the square of the residual over the gap 2/11."""
    factors = [graphs.complete(2)] * 11
    _, result = solved(graphs, graphs.product(*factors), 11, tol=tol)
    assert result.converged
    np.testing.assert_allclose(result.eigenvalues, 9 / 11, atol=11 / 2 * tol**2 + 1e-13)


@pytest.mark.parametrize("ordering", ["symmetric", "random"])
def test_complete_bipartite_graph(graphs, ordering):
    """K(300, 500): 0, 798 times."""
    blank = np.zeros((800, 800))
    blank[:300, 300:] = blank[300:, :300] = 1
    weights = graphs.permuted(blank) if ordering == "random" else sparse.csr_array(blank)
    _, result = solved(graphs, weights, 6)
    assert result.converged
    np.testing.assert_allclose(result.eigenvalues, 0, atol=1e-9)


@pytest.mark.parametrize("n", [3, 12, 40])
def test_tiny_graphs_are_solved_densely(graphs, n):
    """n ≤ b: the same form of result, λ_l = cos(2πl/n)."""
    m = min(5, n - 1)
    operator, result = solved(graphs, graphs.ring(n), m, rows=7)
    l = (np.arange(m) + 2) // 2
    np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi * l / n), atol=1e-12)
    assert graphs.residuals(operator, result).max() < 1e-12
    assert result.passes == operator.passes == 1


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 699), max_size=4, unique=True))
def test_any_block_bounds_give_the_same_pairs(graphs, angle, cuts):
    """λ and the subspace do not depend on where the rows are cut."""
    weights = graphs.swiss_roll(700, seed=3)
    edges = [0, *sorted(cuts), 700]
    operator, result = solved(graphs, weights, 5, rows=list(pairwise(edges)), tol=1e-10)
    values, vectors = np.linalg.eigh(graphs.dense(weights))
    np.testing.assert_allclose(result.eigenvalues, values[::-1][1:6], atol=1e-8)
    assert angle(vectors[:, ::-1][:, 1:6], graphs.vectors(operator)) < 1e-6
    assert angle(vectors[:, ::-1][:, 2:7], graphs.vectors(operator)) > 1e-2  # control


def test_resume_from_any_step_gives_the_same_bytes(graphs):
    """Going on from from_json(to_json(state)) is bit-identical, with the operator and its cache made anew."""
    weights = graphs.swiss_roll(3000)
    operator = graphs.operator(weights)
    published = []

    def publish(state):
        text = json.dumps(state.to_json())
        arrays = {key: array.copy() for key, array in operator.space.arrays.items()}  # (spent ones are written into)
        published.append((text, arrays, set(operator.space.posted)))

    result = lobpcg.solve(operator, lobpcg.init(operator, 5, deflate="trivial"), publish)
    whole = graphs.vectors(operator)
    for text, arrays, posted in published[:: max(1, len(published) // 4)]:
        again = graphs.operator(weights)
        again.space.arrays, again.space.posted = dict(arrays), set(posted)
        resumed = lobpcg.solve(again, lobpcg.State.from_json(json.loads(text)))
        assert resumed.eigenvalues.tobytes() == result.eigenvalues.tobytes()
        assert graphs.vectors(again).tobytes() == whole.tobytes()
        assert (resumed.passes, resumed.bytes_moved) == (result.passes, result.bytes_moved)


def test_old_generations_are_dropped(graphs):
    """Never more than three generations of vectors, and in the end V and the last X only."""
    operator = graphs.operator(graphs.swiss_roll(2000))
    kept = []

    def look(state):
        kept.append({name for name, _ in operator.space.arrays if name.startswith("X.")})

    lobpcg.solve(operator, lobpcg.init(operator, 3, deflate="trivial"), look)
    assert max(map(len, kept)) <= 4
    left = {name.split(".")[0] for name, _ in operator.space.arrays}
    assert left == {"scale", "trivial", "X", "V"}


def test_failure_is_a_value_with_advice(graphs):
    """Stopped by max_passes: converged is False, residuals are still explicit, advice names the parameter."""
    operator, result = solved(graphs, graphs.swiss_roll(5000), 10, max_passes=6)
    assert not result.converged
    assert result.reason == "max passes"
    assert "max_passes" in result.advice
    assert result.passes <= 6
    np.testing.assert_allclose(result.residuals, graphs.residuals(operator, result), atol=1e-12)
    assert result.residuals.max() > 1e-6


def test_unreachable_tolerance_stagnates(graphs):
    """Below rounding nothing converges: the solver says so, instead of going on."""
    _, result = solved(graphs, graphs.swiss_roll(1500), 3, tol=1e-19, max_passes=500)
    assert not result.converged
    assert result.reason == "stagnated"
    assert result.passes < 150
    assert result.residuals.max() < 1e-10


def test_refresh_does_not_change_the_answer(graphs, monkeypatch):
    """SX and SP made anew every third pass: the same pairs."""
    weights = graphs.swiss_roll(2000)
    _, plain = solved(graphs, weights, 4, tol=1e-9)
    monkeypatch.setattr(iteration, "REFRESH", 3)
    _, fresh = solved(graphs, weights, 4, tol=1e-9)
    np.testing.assert_allclose(fresh.eigenvalues, plain.eigenvalues, atol=1e-12)


def test_bad_arguments(graphs):
    operator = graphs.operator(graphs.ring(400))
    with pytest.raises(InputError, match="n_components"):
        lobpcg.init(operator, 0)
    with pytest.raises(InputError, match="at most 399"):
        lobpcg.init(operator, 400, deflate="trivial")
    operator.space.sweep(unit_block, writes=["wrong"])
    with pytest.raises(InputError, match="not made of eigenvectors"):
        lobpcg.init(operator, 2, deflate="wrong")
    state = lobpcg.init(operator, 2, deflate="trivial")
    with pytest.raises(InputError, match="not stopped"):
        lobpcg.finish(operator, state)


def unit_block(block):
    return (np.eye(400)[:, :1],), None


def test_blas_has_one_thread_in_every_step(graphs):
    """What the coordinating process rounds must not depend on how many threads BLAS has on a machine."""

    def most() -> int:
        return max(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas")

    seen: list[int] = []
    operator = graphs.operator(graphs.swiss_roll(1000), 500)
    with threadpool_limits(2, user_api="blas"):
        state = lobpcg.init(operator, 4, deflate="trivial")
        lobpcg.solve(operator, state, lambda _: seen.append(most()))
        assert most() == 2  # control, and as it was
    assert len(seen) > 3
    assert set(seen) == {1}
