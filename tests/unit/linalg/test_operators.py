"""Operators against the matrices that they never form. What all keep: tests/conformance/test_operators.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bigembed.errors import InputError
from bigembed.linalg import FactoredOperator, SparseOperator
from bigembed.linalg.lanczos import solve_factored, solve_lanczos
from bigembed.linalg.pairs import CenteredOperator
from bigembed.maps.linearized import LinearizedKernel
from bigembed.runtime.blocks import bounds, offsets
from bigembed.store.matrix import StoredMatrix, write_outbox, write_structure, write_values
from bigembed.store.vector_space import MemorySpace
from tests.conformance.test_operators import Held, source_of
from tests.operator_views import dot_test, memory_matrix
from tests.some import a_few

N = 90
BLOCKS = (40, 13, 37)


def distances(metric: str = "euclidean") -> np.ndarray:
    return cdist(*[np.random.default_rng(0).normal(size=(N, 3))] * 2, metric=metric)


class TestCentered:
    """B = −½ H D² H by slabs, against the matrix assembled, and classical scaling by Lanczos against a dense solve."""

    def test_rows_that_differ_from_their_columns_are_named_and_rounding_is_let_pass(self) -> None:
        d = distances().astype(np.float32)
        noise = 1 + 1e-7 * np.random.default_rng(2).normal(size=d.shape)
        CenteredOperator(source_of(d * noise), MemorySpace(sizes=BLOCKS))
        d[4, 60] *= 1.01  # one entry of 8100, by one percent
        with pytest.raises(InputError, match=r"2 of 90 rows differ from their columns.*rows \[4, 60\]"):
            CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))

    def test_a_diagonal_of_rounding_is_let_pass(self) -> None:
        d = distances()
        np.fill_diagonal(d, 1e-8)
        CenteredOperator(source_of(d), MemorySpace(sizes=BLOCKS))


def held(n: int, d: int, kind: str = "global", block: int = 150) -> Held:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * np.linspace(2, 0.5, d)
    epsilon = 4 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    return Held(X, LinearizedKernel(X.mean(axis=0), epsilon, kind), block)


def operator_of(features: Held, scale: np.ndarray) -> FactoredOperator:
    space = MemorySpace(sizes=features.rows)
    for b, (start, stop) in enumerate(bounds(len(features.X), features.block)):
        space.write("scale", b, scale[start:stop, None])
    return FactoredOperator(features, features.kernel.core, space)


def degrees(features: Held) -> np.ndarray:
    u = features.kernel.features(features.X)
    return u @ (features.kernel.core @ u.sum(axis=0)[:, None])[:, 0]


class TestFactored:
    """The matrix-free operator of the linearized diffusion map against seed 004's formulas and the factored solver."""

    def test_what_its_walks_move_is_counted(self) -> None:
        features = held(400, 6)
        operator = operator_of(features, degrees(features) ** -0.5)
        dot_test(operator)
        assert operator.bytes_moved == 2 * len(features.rows) * 8 * features.size * 2

    @a_few(1, "d", [3, 30])
    def test_lanczos_agrees_with_the_factored_solver(self, d: int) -> None:
        features = held(500, d)
        q = degrees(features)
        operator = operator_of(features, q**-0.5)
        for b, (start, stop) in enumerate(bounds(500, 150)):
            operator.space.write("trivial", b, np.sqrt(q / q.sum())[start:stop, None])
        by_passes = solve_lanczos(operator, 3, tol=1e-11, deflate="trivial")
        u = features.kernel.features(features.X)
        first = (features.kernel.core @ u.sum(axis=0)[:, None])[:, 0]
        exact = solve_factored((u / q[:, None]).T @ u, features.kernel.core, 3, 500, deflate=first / np.sqrt(q.sum()))
        assert by_passes.converged
        np.testing.assert_allclose(by_passes.eigenvalues, exact.eigenvalues, atol=1e-13)
        v = np.concatenate([operator.space.read("V", b) for b in range(len(features.rows))])
        w = (u @ exact.coefficients) / np.sqrt(q)[:, None]
        np.testing.assert_allclose(np.abs(v.T @ w), np.eye(3), atol=1e-9)
        assert np.abs(np.abs(v.T @ w[::-1]) - np.eye(3)).max() > 0.1


def put_block(block, array, cuts):
    start, stop = cuts[block]
    return (array[start:stop],), None


def build(n, cuts, seed=0, symmetric=True):
    rng = np.random.default_rng(seed)
    weights = sparse.random_array((n, n), density=0.2, rng=rng).tocsr()
    weights = (weights + weights.T).tocsr() if symmetric else weights
    scale = rng.random((n, 1)) * (rng.random((n, 1)) > 0.2)
    matrix = memory_matrix(weights, cuts)
    space = MemorySpace(matrix)
    space.sweep(put_block, writes=["scale"], posts=["scale"], arguments=(scale, cuts))
    return SparseOperator(matrix, space), scale * weights.toarray() * scale.T


def assembled_matrix(matrix, starts):
    """All entries of a matrix by blocks, dense."""
    out = np.zeros((starts[-1], starts[-1]))
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        np.add.at(out, (starts[b] + block.row, block.ids(b, starts)[block.indices]), block.data)
    return out


class TestSparse:
    """A = diag(s) W diag(s) by blocks, against the matrix assembled."""

    def test_what_a_product_moves_is_the_halo(self):
        """Counted: halo rows × columns × 8 bytes, and the scale of the halo."""
        cuts = [(0, 20), (20, 40)]
        assert dot_test(build(40, cuts, symmetric=False)[0]) > 1e-3  # control: it tells what is not symmetric
        operator, _ = build(40, cuts)
        operator.space.sweep(put_block, writes=["a"], posts=["a"], arguments=(np.ones((40, 5)), cuts))
        operator.product(["a"], ["Aa"])
        halo = sum(len(block.halo_rows) for block in operator.matrix.blocks)
        assert operator.bytes_moved == halo * 6 * 8

    @pytest.mark.parametrize("chosen", [(0, 2, 4), (1, 3), (2,), (0, 1, 2, 3, 4)])
    def test_some_blocks_are_the_rows_and_columns_of_the_matrix_that_lie_in_them(self, tmp_path, chosen):
        cuts = [(0, 9), (9, 20), (20, 24), (24, 33), (33, 40)]
        operator, _ = build(40, cuts)
        given = operator.matrix
        for b, block in enumerate(given.blocks):
            write_structure(str(tmp_path), b, block)
            write_outbox(str(tmp_path), b, given.outbox(b))
            write_values(str(tmp_path / "values"), b, block.data)
        whole = StoredMatrix(str(tmp_path), str(tmp_path / "values"), given.rows, "a")
        part = whole.part(chosen)
        inside = np.concatenate([np.arange(*cuts[b]) for b in chosen])
        starts = offsets(part.rows)
        assert part.rows == tuple(given.rows[b] for b in chosen)
        assert (part is whole) == (len(chosen) == len(cuts))
        assert whole.part((0, *chosen[1:], 4) if len(chosen) == 3 else chosen).part(range(len(chosen))) == part
        assert whole.part((1, 2, 3)).part((0, 2)) == whole.part((1, 3))
        weights = assembled_matrix(whole, offsets(whole.rows))
        np.testing.assert_array_equal(assembled_matrix(part, starts), weights[np.ix_(inside, inside)])
        assert np.count_nonzero(weights[inside]) > np.count_nonzero(weights[np.ix_(inside, inside)]) or part is whole
        for b in range(len(part.rows)):
            for other, rows in part.outbox(b):
                np.testing.assert_array_equal(rows, dict(part.block(other).segments())[b])
            assert {other for other, _ in part.outbox(b)} == {
                other for other in range(len(part.rows)) if b in dict(part.block(other).segments())
            }

    def test_outbox_mirrors_the_halo_lists(self):
        """What block a sends to b is what b's halo list names of a."""
        operator, _ = build(40, [(0, 9), (9, 20), (20, 40)])
        matrix = operator.matrix
        for b in range(3):
            for other, rows in matrix.outbox(b):
                np.testing.assert_array_equal(rows, dict(matrix.block(other).segments())[b])

    @pytest.mark.parametrize("width", [1, 5, 15, 16])
    def test_vectors_in_single_precision_are_multiplied_in_double(self, width):
        """The bytes of the product with the same numbers in double precision."""
        operator, _ = build(40, [(0, 15), (15, 40)])
        x = np.random.default_rng(3).standard_normal((40, width))
        for dtype, name in ((np.float32, "single"), (np.float64, "double")):
            rounded = x.astype(np.float32).astype(dtype)
            operator.space.sweep(put_block, writes=[name], posts=[name], arguments=(rounded, [(0, 15), (15, 40)]))
            operator.product([name], [f"A {name}"])
        for block in range(2):
            single, double = (operator.space.read(f"A {name}", block) for name in ("single", "double"))
            assert single.dtype == np.float64
            assert single.tobytes() == double.tobytes()
        assert operator.space.read("single", 0).dtype == np.float32
