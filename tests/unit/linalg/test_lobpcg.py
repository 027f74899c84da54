"""LOBPCG, its compiled sweeps, and where its vectors lie."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import bigembed as be
from bigembed.errors import InputError
from bigembed.estimator import graph_input as given_weights
from bigembed.linalg import SparseOperator, coarse, lobpcg, multigrid
from bigembed.linalg.coarse import Groups, Rows, aggregates, local_basis
from bigembed.linalg.eigenpairs import rayleigh_ritz, solve_dense_matrix
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.lobpcg_sweeps import away_of, prolong, restrict, update_block
from bigembed.maps.walk import spectral
from bigembed.runtime import using
from bigembed.runtime.executors import LocalPool, executor_now
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, MappedMatrix
from bigembed.store.spaces import StoredSpace, claim_memory, load_matrix
from bigembed.store.vector_space import MemorySpace, copy_vectors, tree_sum
from tests.blocks import blocks_of
from tests.executors import GivenExecutor, executor, maps
from tests.some import a_few


def solved(graphs, weights, m, rows=500, inside=None, **options):
    operator = graphs.operator(weights, rows, inside)
    state = lobpcg.init(operator, m, deflate="trivial", **options)
    return operator, lobpcg.solve(operator, state)


def unit_block(block):
    return (np.eye(400)[:, :1],), None


class TestLOBPCG:
    """Each test states the equation it checks; beside each tolerance stands a wrong answer that fails it."""

    def test_residuals_are_those_of_the_matrix(self, graphs):
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

    def test_the_form_is_that_of_the_vectors_though_their_images_are_rounded(self, graphs):
        """BᵀSB by coefficients, and from S W as it is made, is that from the matrix; from what is kept it is off."""
        weights = graphs.swiss_roll(3000)
        operator = graphs.operator(weights)
        root = sparse.diags_array(graphs.vectors(operator, "scale")[:, 0])
        S, errors, controls = root @ weights @ root, [], []

        def compare(state: lobpcg.State) -> None:
            if state.updated or not all(state.sizes):
                return
            x, p, w, lw = (
                graphs.vectors(operator, f"{name}.{state.generation}").astype(float) for name in ("X", "P", "W", "LW")
            )
            basis, size = np.hstack([x, p, w]), sum(state.sizes[:2])
            scale = np.outer(*[np.linalg.norm(basis, axis=0)] * 2)
            form = basis.T @ S @ basis
            errors.append(np.abs((state.form - form) / scale).max())
            controls.append(np.abs((basis.T @ (w - lw) - form[:, size:]) / scale[:, size:]).max())

        assert lobpcg.solve(operator, lobpcg.init(operator, 6, deflate="trivial", tol=1e-10), compare).converged
        assert len(errors) > 10
        assert max(errors) < 1e-12
        assert max(controls) > 1e-11

    def test_few_passes(self, graphs):
        """Ten pairs of a Swiss roll of 5000 rows: at most 16 passes, Galerkin and certificate counted."""
        operator, result = solved(graphs, graphs.swiss_roll(5000), 10, rows=2500)
        assert result.converged
        assert result.passes <= 16
        assert result.passes == operator.passes

    def test_signs_and_deflation(self, graphs):
        """Largest |entry| positive; Vᵀ√d = 0."""
        operator, result = solved(graphs, graphs.swiss_roll(3000), 4)
        v = graphs.vectors(operator)
        assert np.all(v[np.abs(v).argmax(axis=0), np.arange(4)] > 0)
        assert np.abs((1 / graphs.vectors(operator, "scale")).T @ v).max() < 1e-10  # (√d, of length √Σd)
        assert result.vectors == "V"

    def test_ring_has_cosines_twice(self, graphs, angle):
        """λ_l = cos(2πl/n), each twice; the plane of l = 1 is that of cos and sin."""
        n = 1200
        operator, result = solved(graphs, graphs.ring(n), 4, tol=1e-9)
        np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi / n * np.array([1, 1, 2, 2])), atol=1e-12)
        phase = 2 * np.pi * np.arange(n) / n
        plane = np.stack([np.cos(phase), np.sin(phase)], axis=1)
        v = graphs.vectors(operator)
        assert angle(plane, v[:, :2]) < 1e-5
        assert angle(plane, v[:, 2:]) > 0.9  # control

    def test_two_rings_and_rows_outside(self, graphs):
        """Solved on one of two rings, vectors are exactly 0 on the other and λ are those of the one."""
        small, large = 500, 900
        weights = sparse.block_diag([graphs.ring(small), graphs.ring(large)]).tocsr()
        inside = np.arange(small + large) >= small
        operator, result = solved(graphs, weights, 2, inside=inside)
        np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi / large), atol=1e-10)
        v = graphs.vectors(operator)
        assert np.all(v[:small] == 0)
        assert np.abs(v[small:]).max() > 0

    def test_complete_graph(self, graphs):
        """λ = −1/(n−1), n−1 times."""
        _, result = solved(graphs, graphs.complete(400), 3, rows=150)
        assert result.converged
        np.testing.assert_allclose(result.eigenvalues, -1 / 399, atol=1e-9)

    @a_few(
        3,
        ("graph", "side", "power", "m", "ordering"),
        [
            ("complete", 2, 8, 8, "symmetric"), ("complete", 2, 10, 10, "random"),
            ("complete", 2, 11, 14, "symmetric"), ("complete", 2, 12, 12, "symmetric"),
            ("complete", 16, 3, 45, "symmetric"), ("complete", 16, 3, 10, "symmetric"),
            ("complete", 40, 2, 20, "random"), ("ring", 48, 2, 8, "symmetric"), ("ring", 48, 2, 8, "random"),
            ("ring", 14, 3, 18, "symmetric"),
        ],
    )  # fmt: skip
    def test_all_copies_of_a_multiple_eigenvalue(self, graphs, graph, side, power, m, ordering):
        """Hypercubes, Hamming graphs, tori: λ of a product of graphs is the mean of theirs, with known
        multiplicities."""
        factors = [getattr(graphs, graph)(side)] * power
        weights = graphs.product(*factors)
        if ordering == "random":
            weights = graphs.permuted(weights)
        _, result = solved(graphs, weights, m)
        assert result.converged
        np.testing.assert_allclose(result.eigenvalues, graphs.spectrum(*factors)[:m], atol=1e-9)

    @pytest.mark.parametrize("n", [3, 12, 40])
    def test_tiny_graphs_are_solved_densely(self, graphs, n):
        """n ≤ b: the same form of result, λ_l = cos(2πl/n)."""
        m = min(5, n - 1)
        operator, result = solved(graphs, graphs.ring(n), m, rows=7)
        l = (np.arange(m) + 2) // 2
        np.testing.assert_allclose(result.eigenvalues, np.cos(2 * np.pi * l / n), atol=1e-12)
        assert graphs.residuals(operator, result).max() < 1e-12
        assert result.passes == operator.passes == 1

    @settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(cuts=st.lists(st.integers(1, 699), max_size=4, unique=True))
    def test_any_block_bounds_give_the_same_pairs(self, graphs, angle, cuts):
        """λ and the subspace do not depend on where the rows are cut."""
        weights = graphs.swiss_roll(700, seed=3)
        edges = [0, *sorted(cuts), 700]
        operator, result = solved(graphs, weights, 5, rows=list(pairwise(edges)), tol=1e-10)
        values, vectors = np.linalg.eigh(graphs.dense(weights))
        np.testing.assert_allclose(result.eigenvalues, values[::-1][1:6], atol=1e-8)
        assert angle(vectors[:, ::-1][:, 1:6], graphs.vectors(operator)) < 1e-6
        assert angle(vectors[:, ::-1][:, 2:7], graphs.vectors(operator)) > 1e-2  # control

    def test_old_generations_are_dropped(self, graphs):
        """Never more than three generations of vectors, and in the end V and the last X only."""
        operator = graphs.operator(graphs.swiss_roll(2000))
        kept = []

        def look(state):
            kept.append({name for name, _ in operator.space.arrays if name.startswith("X.")})

        lobpcg.solve(operator, lobpcg.init(operator, 3, deflate="trivial"), look)
        assert max(map(len, kept)) <= 4
        left = {name.split(".")[0] for name, _ in operator.space.arrays}
        assert left == {"scale", "X", "V"}

    def test_failure_is_a_value_with_advice(self, graphs):
        """Stopped by max_passes: converged is False, residuals are still explicit, advice names the parameter."""
        operator, result = solved(graphs, graphs.swiss_roll(5000), 10, max_passes=6)
        assert not result.converged
        assert result.reason == "max passes"
        assert "max_passes" in result.advice
        assert result.passes <= 6
        np.testing.assert_allclose(result.residuals, graphs.residuals(operator, result), atol=1e-12)
        assert result.residuals.max() > 1e-6

    def test_bad_arguments(self, graphs):
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

    def test_blas_has_one_thread_in_every_step(self, graphs):
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


ROWS, COUNT, FUNCTIONS = 1_300, 40, 3
CASES = [(5, 0, 0, 5, 0), (9, 0, 9, 9, 9), (15, 15, 15, 15, 15), (2, 2, 2, 2, 2), (7, 7, 7, 6, 6)]
"""Columns of X, P, W, and of the next X and P."""


def given_of_update(rng: np.random.Generator, case: tuple[int, ...]) -> dict[str, Any]:
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
            rng.standard_normal((ROWS, size)).astype(np.float32 if k >= 2 else np.float64)
            for k, size in enumerate((x, p, w, x, p, w))
            if size
        ],
        "small": (
            rng.standard_normal((x + p + w, m)),
            mass,
            rng.random(m),
            rng.random(x),
            rng.standard_normal((1, x + p + w)),
        ),
    }


def updated(parts: dict[str, Any], case: tuple[int, ...], into: bool) -> tuple[Any, Any]:
    vectors = [v.copy() for v in parts["vectors"]]
    for v in vectors:
        v.setflags(write=into)
    leading = [parts[name] for name in ("scale", "label", "basis", "diagonal", "t", "y")]
    restricted = [parts["restricted"][0][:, :1], parts["restricted"][1]]
    return update_block(0, *leading, *restricted, *vectors, *parts["small"], np.array([0.9]), case[:3])


class TestUpdate:
    """The compiled sweeps beside the same in NumPy: the update, and products with the coarse functions."""

    @pytest.mark.parametrize("case", CASES)
    def test_update_is_that_of_the_formulas(self, graphs: Any, case: tuple[int, ...]) -> None:
        parts = given_of_update(np.random.default_rng(0), case)
        (x, p, w, r, lp, coarse), (gram, overlap, squares) = updated(parts, case, into=False)
        mix, inverse, values, before, inner = parts["small"]
        count = len(parts["vectors"]) // 2
        base, kept = (np.concatenate(half, axis=1) for half in (parts["vectors"][:count], parts["vectors"][count:]))
        image = base * np.concatenate([before, np.ones(base.shape[1] - case[0])]) - kept
        image[:, : case[0]] += 2 * kept[:, : case[0]]  # (of S X it is S X − X Λ that is kept, of the others P − S P)
        both = np.concatenate([mix, away_of(mix, inverse, case[0])], axis=1)
        xp = base @ both - parts["t"] @ inner @ both
        axp = image @ both - 0.9 * parts["t"] @ inner @ both
        matrix = graphs.prolongation(parts["label"], parts["basis"], COUNT)
        residual = axp[:, : case[3]] - xp[:, : case[3]] * values
        expected = (residual / np.maximum(1 - parts["diagonal"], 1e-3) + matrix @ parts["y"]) * (parts["scale"] != 0)
        np.testing.assert_allclose(np.hstack([x, p]), xp, atol=1e-10 * np.abs(xp).max())
        for found, wanted in ((r, residual), (lp, (xp - axp)[:, case[3] :])):
            np.testing.assert_allclose(found, wanted, atol=2e-7 * np.abs(wanted).max(initial=0))
        np.testing.assert_array_almost_equal_nulp(w, expected.astype(np.float32), 2)
        expected = w.astype(np.float64)  # (the sums are those of W as it is rounded)
        whole = np.hstack([xp, expected])
        sums = ((gram, expected.T @ whole), (overlap, parts["t"].T @ whole))
        for found, wanted in (*sums, (squares, (residual**2).sum(axis=0))):
            np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())
        width = xp.shape[1]
        np.testing.assert_allclose(coarse[:, width : width + case[3]], matrix.T @ expected, atol=1e-8)

    @pytest.mark.parametrize("case", CASES)
    def test_update_in_the_place_of_spent_vectors_has_the_same_bytes(self, case: tuple[int, ...]) -> None:
        parts = given_of_update(np.random.default_rng(1), case)
        found = [updated(parts, case, into) for into in (False, True)]
        for one, other in zip(*[[*arrays, *sums] for arrays, sums in found], strict=True):
            assert one.tobytes() == other.tobytes()

    @pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 12, 15, 16, 17, 31])
    def test_functions_are_those_of_the_sparse_matrix(self, graphs: Any, width: int) -> None:
        rng = np.random.default_rng(2)
        label = np.append(rng.integers(-1, COUNT, ROWS), COUNT - 1)
        basis = rng.standard_normal((len(label), FUNCTIONS)).astype(np.float32)
        matrix = graphs.prolongation(label, basis, COUNT)
        x, y = rng.standard_normal((len(label), width)), rng.standard_normal((COUNT * FUNCTIONS, width))
        assert np.array_equal(prolong(label, basis, y), matrix @ y)
        for given_of_update in (x, x.astype(np.float32)):  # (sums by fused operations, in double precision)
            np.testing.assert_allclose(
                restrict(label, basis, given_of_update), matrix.T @ given_of_update.astype(np.float64), atol=1e-13
            )
        assert np.abs(restrict(label, basis, x[::-1]) - matrix.T @ x).max() > 1


class TestParts:
    """Rayleigh–Ritz, aggregates, the coarse space, the dense and the Lanczos solver."""

    def test_rayleigh_ritz_in_a_bad_basis(self):
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

    def test_aggregates_respect_size_and_activity(self, graphs):
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

    def test_local_basis_is_orthonormal_and_starts_with_the_root(self, graphs):
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
    def test_galerkin_matrix(self, graphs, rows):
        """L_c = Pᵀ(I − S)P, whatever the blocks."""
        weights = graphs.swiss_roll(2000)
        operator = graphs.operator(weights, rows)
        plan = coarse.build(operator, 64, 4)
        assert operator.passes == 1
        found = multigrid.Coarse.load(operator.space, plan)
        prolong = sparse.block_diag(
            [
                graphs.prolongation(
                    operator.space.read("coarse.label", b), operator.space.read("coarse.basis", b), count
                )
                for b, count in enumerate(plan[:-1])
            ]
        ).tocsr()
        expected = prolong.T @ ((sparse.eye_array(2000) - graphs.dense(weights)) @ prolong)
        expected = np.asarray(expected) + np.diag(np.diag(expected) == 0)  # functions that small aggregates lack
        shift = multigrid.SHIFT * np.eye(len(expected))
        np.testing.assert_allclose(found.solver.matrix.toarray() - shift, expected, atol=1e-6)

    def test_functions_become_fewer_when_aggregates_touch_too_many(self, graphs):
        """Entries of L_c stay below the limit."""
        operator = graphs.operator(graphs.swiss_roll(3000), 1500)
        plan = coarse.build(operator, 64, 8, 5_000)
        assert 1 <= plan[-1] < 8
        assert operator.space.read("coarse.basis", 0).shape[1] == plan[-1]
        assert multigrid.Coarse.load(operator.space, plan).solver.matrix.nnz <= 10_000

    def test_functions_that_cannot_be_kept_are_not_made(self, graphs, monkeypatch):
        """Of many blocks some are looked at first; the eigenvalues are those of all functions."""
        weights, made = graphs.swiss_roll(6400), []
        wanted = solved(graphs, weights, 3, 100)[1].eigenvalues
        monkeypatch.setattr(coarse, "local_basis", lambda *given: made.append(given[-1]) or local_basis(*given))
        for rows, looked in ((100, True), (3200, False)):
            made.clear()
            operator = graphs.operator(weights, rows)
            plan = coarse.build(operator, 64, 8, 3000)
            assert 1 <= plan[-1] < 8
            assert (max(made) == plan[-1]) is looked  # control: two blocks are not looked at before
            assert operator.passes == 1
        monkeypatch.setattr(lobpcg, "entries", lambda n: 3000)
        np.testing.assert_allclose(solved(graphs, weights, 3, 100)[1].eigenvalues, wanted, atol=1e-9)

    def test_dense_matrix_refuses_too_many(self):
        with pytest.raises(InputError, match="ask for 1 to 4"):
            solve_dense_matrix(np.eye(5), 5, deflate=np.eye(5)[0])

    @a_few(2, ("graph", "side", "power", "m"), [("complete", 2, 10, 10), ("complete", 16, 2, 20), ("ring", 24, 2, 8)])
    def test_lanczos_finds_all_copies(self, graphs, graph, side, power, m):
        """λ of a product of graphs with their multiplicities; a block of fewer columns than copies is refused."""
        factors = [getattr(graphs, graph)(side)] * power
        operator = graphs.operator(graphs.product(*factors))
        result = solve_lanczos(operator, m, deflate="trivial")
        np.testing.assert_allclose(result.eigenvalues, graphs.spectrum(*factors)[:m], atol=1e-9)
        with pytest.raises(InputError, match="miss no copies"):
            solve_lanczos(operator, m, deflate="trivial", block=2)

    def test_lanczos_stopped_early_says_so(self, graphs):
        operator = graphs.operator(graphs.swiss_roll(3000), 1000)
        result = solve_lanczos(operator, 4, max_passes=10)
        assert not result.converged
        assert "max_passes" in result.advice
        assert result.passes <= 10

    def test_tree_sum_is_a_fixed_tree(self):
        """((a+b)+(c+d))+e for five parts."""
        parts = [0.1, 0.2, 0.3, 1e16, -1e16]
        assert tree_sum(parts) == ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4]
        with pytest.raises(InputError, match="empty"):
            tree_sum([])


FILES, MEMORY = 0, 1 << 30


class Ended(Exception):
    """The process ends here."""


def solved_of_places_of_vectors(graphs: Any, folder: Path, weights: Any, place: str) -> tuple[Any, bytes]:
    """The result, and the bytes of V."""
    operator = operator_of(graphs, folder, weights, place)
    result = lobpcg.solve(operator, lobpcg.init(operator, 5, deflate="trivial"))
    return result, graphs.vectors(operator).tobytes()


def operator_of(graphs: Any, folder: Path, weights: Any, place: str, empty: bool = False) -> SparseOperator:
    """S over blocks of 500 rows, with its vectors "scale" and "trivial"."""
    given = graphs.operator(weights)
    exchange = Exchange(str(folder))
    matrix: Any = load_matrix(given.matrix) if place == "memory" else MappedMatrix(given.matrix, exchange)
    space: Any = MemorySpace(matrix) if place == "memory" else StoredSpace(matrix, exchange)
    if not empty:
        copy_vectors(given.space, space, ["scale", "trivial"], posts=["scale"])
    return SparseOperator(matrix, space)


def published(texts: list[str], state: lobpcg.State) -> None:
    """Keep a state as it would be written."""
    texts.append(json.dumps(state.to_json()))


class TestPlacesOfVectors:
    """Vectors in memory and in files: the same bytes on any scheduler; a solve that ended goes on in the other
    place."""

    def test_a_mapped_matrix_is_the_one_in_memory_and_is_made_anew_where_it_is_damaged(
        self, graphs: Any, tmp_path: Path
    ) -> None:
        given = graphs.operator(graphs.swiss_roll(1200)).matrix
        mapped, expected = MappedMatrix(given, Exchange(str(tmp_path))), load_matrix(given)
        assert mapped.rows == expected.rows
        for damage in (lambda file: file, lambda file: file.write_bytes(file.read_bytes()[:-40]), Path.unlink):
            for b in range(len(mapped.rows)):
                for field in fields(CSRBlock):
                    part, wanted = getattr(mapped.block(b), field.name), getattr(expected.block(b), field.name)
                    assert (part.dtype, part.tolist()) == (wanted.dtype, wanted.tolist())
                pairs = zip(mapped.outbox(b), expected.outbox(b), strict=True)
                assert all(one == other and rows.tolist() == wanted.tolist() for (one, rows), (other, wanted) in pairs)
                damage(tmp_path / "matrix" / str(b))

    def test_a_solve_through_files_goes_on_wherever_it_was_ended(
        self, graphs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before a file of a step is written, or deleted: in the middle of a block, or between two."""
        weights, left = graphs.swiss_roll(1500), list[None]()
        whole, vectors = solved_of_places_of_vectors(graphs, tmp_path / "whole", weights, "memory")

        def ending(call: Any) -> Any:
            def counted(*given: Any) -> None:
                if not left:
                    raise Ended
                left.pop()
                call(*given)

            return counted

        for count in (40, 101, 113, 124):  # (an iteration has some 48)
            texts: list[str] = []
            operator = operator_of(graphs, tmp_path / str(count), weights, "files")
            state = lobpcg.init(operator, 5, deflate="trivial")
            left[:] = [None] * count
            with suppress(Ended), monkeypatch.context() as patch, dask.config.set(scheduler="synchronous"):
                for name in ("put", "drop_block"):
                    patch.setattr(Exchange, name, ending(getattr(Exchange, name)))
                lobpcg.solve(operator, state, partial(published, texts))
            assert 1 < len(texts) < whole.iterations
            again = operator_of(graphs, tmp_path / str(count), weights, "files", empty=True)
            result = lobpcg.solve(again, lobpcg.State.from_json(json.loads(texts[-1])))
            assert (result.passes, result.eigenvalues.tolist()) == (whole.passes, whole.eigenvalues.tolist())
            assert graphs.vectors(again).tobytes() == vectors
            assert len([path for path in (tmp_path / str(count)).iterdir() if "." in path.name]) == 1  # the last X

    def test_a_solve_takes_no_more_of_the_disk_than_was_planned(
        self, graphs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(given_weights, "MAX_BLOCK_ROWS", 500)
        sizes, n, asked = [0], 6000, spectral.Spectrum(10, "all", 1e-4, 200, 0)

        def look(event: Any) -> None:
            there = tmp_path.glob("exchange/solve/component0/*/*")
            sizes.append(sum(file.stat().st_size for file in there))

        with blocks_of(500), using(observer=look, vector_memory=FILES):
            be.LaplacianEigenmaps(10, random_state=0, tol=1e-4, workdir=str(tmp_path)).fit(graphs.swiss_roll(n))
        planned = spectral.solve_cost(asked, n, 15, 500).scratch
        generation = 5.5 * 8 * n * lobpcg.block_width(10)
        assert 1.1 * generation < max(sizes) < min(planned, 2.4 * generation)

    def test_nothing_can_be_written_into_what_a_space_holds(self, graphs: Any) -> None:
        space = graphs.operator(graphs.ring(1000)).space
        with pytest.raises(ValueError, match="read-only"):
            space.read("scale", 0)[0] = 1

    def test_memory_is_taken_where_tasks_are_in_this_process_or_beside_it_and_there_is_room(self) -> None:
        ready: list[str] = []

        def taken(need: int) -> tuple[bool, bool]:
            """Whether vectors are in memory, and tasks then in this process."""
            with claim_memory(need) as room:
                return room.here, executor_now().in_this_process

        assert taken(1 << 20) == (True, True)
        assert taken(1 << 60) == (False, True)
        with using(vector_memory=5):
            assert (taken(5), taken(6)) == ((True, True), (False, True))
            with executor(maps()[0]):  # (which may be anywhere)
                assert taken(5) == (False, False)
        free = partial(ready.append, "ready")
        with LocalPool(2) as pool, using(executor=GivenExecutor(maps()[0], pool, free), vector_memory=5):
            assert (taken(6), ready) == ((False, False), [])
            assert (taken(5), ready) == ((True, True), ["ready"])
            for vectors, part in ((80, 5), (81, None), (0, None)):  # a sixteenth may be here; less, or where none may
                with claim_memory(60, vectors=vectors) as room:
                    assert (room.here, room.part, room.in_memory) == (part is not None, part, part is not None)
        with using(vector_memory=1 << 60):  # (more is planned than is free)
            assert taken(1 << 50) == (False, True)
