"""The cycle on the coarse matrix: its functions on aggregates, its levels and their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigembed.linalg import coarse, lobpcg, multigrid
from bigembed.linalg.aggregate_functions import fill_lowest_orthogonal
from bigembed.linalg.coarse import start_of
from bigembed.linalg.lobpcg import State
from bigembed.runtime import using
from bigembed.runtime.executors import LocalPool


@pytest.fixture(scope="module")
def levels(graphs: Any) -> multigrid.Multigrid:
    """Two levels and a dense one over the coarse matrix of a Swiss roll of 1000 rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "EXACT", 0)
        patch.setattr(multigrid, "DENSE", 50)
        operator = graphs.operator(graphs.swiss_roll(1000), 500)
        plan = coarse.build(operator, 16, 4)
        return multigrid.Coarse.load(operator.space, plan).solver


def dense(rows: multigrid.BlockRows) -> Any:
    return rows.product(np.eye(rows.size))


class TestMultigrid:
    """The cycle on the coarse matrix: against the matrix itself, made dense, and against its eigenvectors."""

    def test_levels_are_galerkin_products(self, levels):
        """The matrix of a level is QᵀLQ of the one before; Q is orthonormal; L c = 0 and Qᵀc is the next c."""
        assert len(levels.levels) >= 2
        for level, following in zip(levels.levels, levels.levels[1:], strict=False):
            fine, below = dense(level.rows), dense(following.rows)
            count, p, q = level.functions.shape
            carry = np.zeros((count, p, len(following.rows.constant), q))
            carry[np.arange(count), :, level.label] = level.functions
            carry = carry.reshape(level.rows.size, -1)
            kept = np.abs(carry).sum(axis=0) > 0
            np.testing.assert_allclose((carry.T @ carry)[kept][:, kept], np.eye(kept.sum()), atol=1e-5)
            expected = carry.T @ fine @ carry + np.diag(~kept * 1.0)
            np.testing.assert_allclose(below, expected, atol=1e-5)
            root = level.rows.constant.ravel()
            assert np.abs(fine @ root).max() < 1e-5 * np.abs(root).max()
            np.testing.assert_allclose(carry.T @ root, following.rows.constant.ravel(), atol=1e-4 * np.abs(root).max())
            assert following.rows.size < 0.7 * level.rows.size

    def test_sweeps_are_those_of_the_matrix(self, levels):
        """A = L + D + Lᵀ by blocks: forward solves (L + D) x = r, the rest is −Lᵀx, backward adds (D + Lᵀ)⁻¹(r − A
        x)."""
        level, run = levels.levels[0], coarse.level_kernels()
        rows, p = level.rows, level.rows.blocks.shape[1]
        matrix, right = dense(rows), np.random.default_rng(0).standard_normal((rows.size, 8)).astype(np.float32)
        of = np.arange(rows.size) // p
        lower, upper = np.where(of[:, None] >= of, matrix, 0), np.where(of[:, None] <= of, matrix, 0)
        stored, x, rest = (rows.pointer, rows.index, rows.blocks), np.empty_like(right), np.empty_like(right)
        run.forward(*stored, level.inverse, right, x)
        np.testing.assert_allclose(lower @ x, right, atol=1e-4)
        run.rest(*stored, x, rest)
        np.testing.assert_allclose(rest, right - matrix @ x, atol=1e-4)
        y = x.copy()
        run.backward(*stored, level.inverse, right, y)
        np.testing.assert_allclose(upper @ (y - x), right - matrix @ x, atol=1e-4)
        assert np.abs(upper @ x - right).max() > 0.1  # control: the other triangle
        turned = rows.blocks.transpose(0, 2, 1).copy()
        run.forward(*stored[:2], turned, level.inverse, right, x)
        assert np.abs(lower @ x - right).max() > 1e-2  # control: blocks not transposed

    def test_one_and_two_cycles_are_linear_symmetric_and_positive(self, levels, monkeypatch):
        """B = Bᵀ > 0, and eigenvalues of B L_c besides the constant's lie between .3 and 1; two leave its square."""
        matrix, left = dense(levels.levels[0].rows), []
        root = levels.levels[0].rows.constant.ravel() / np.linalg.norm(levels.levels[0].rows.constant)
        away = np.eye(len(matrix)) - np.outer(root, root)
        for many in (multigrid.MANY, 0):
            monkeypatch.setattr(multigrid, "MANY", many)
            cycle = away @ levels.solve(away)
            assert np.abs(cycle - cycle.T).max() < 1e-4 * np.abs(cycle).max()
            values, vectors = np.linalg.eigh((cycle + cycle.T) / 2)
            assert values[0] > -1e-4 * values[-1]
            half = vectors * np.sqrt(np.maximum(values, 0))
            spread = np.linalg.eigvalsh(half.T @ matrix @ half)[1:]
            assert spread[0] > 0.3
            assert spread[-1] < 1.05
            left.append(1 - spread[0])
        assert left[1] == pytest.approx(left[0] ** 2, rel=1e-2)
        smoothed = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix))))
        assert smoothed[1] < 0.02  # control: the diagonal alone

    @pytest.mark.parametrize("width", [3, 15, 20])
    def test_parts_of_the_columns_on_two_threads_have_the_same_bytes(self, levels, width):
        right = np.random.default_rng(0).standard_normal((levels.levels[0].rows.size, width)).astype(np.float32)
        alone = levels.solve(right)
        with LocalPool(2) as pool, using(executor=pool):
            assert levels.solve(right).tobytes() == alone.tobytes()
        last = levels.solve(right[:, -1:])  # (a column by itself)
        np.testing.assert_allclose(alone[:, -1:], last, atol=1e-4 * np.abs(last).max())

    def test_lowest_vectors_of_the_coarse_matrix(self, levels, monkeypatch):
        """Orthonormal, with the eigenvalues of the second level as Rayleigh quotients: an eighth above the first's."""
        matrix, second = (dense(level.rows) for level in levels.levels[:2])
        found = levels.lowest(6, 0)
        np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-5)
        values, below = (np.linalg.eigvalsh((each + each.T) / 2)[:6] for each in (matrix, second))
        quotients = np.einsum("ij,ij->j", found, matrix @ found)
        np.testing.assert_allclose(quotients[1:], below[1:], rtol=1e-3)
        assert (quotients[1:] > values[1:]).all()
        assert (quotients[1:] < 1.125 * values[1:]).all()
        monkeypatch.setattr(multigrid, "STEPS", 0)  # control: not improved on the way
        rough = levels.lowest(6, 0)
        assert np.abs(np.einsum("ij,ij->j", rough, matrix @ rough) / below - 1)[1:].max() > 0.03

    def test_solver_converges_with_the_cycle(self, graphs, monkeypatch):
        """As few passes as with the factor, give or take three; the same eigenvalues; resumed with the same bytes."""
        weights = graphs.swiss_roll(5000)
        monkeypatch.setattr(lobpcg, "shape_of", lambda n: (32, 6))

        def solved(**options: Any) -> Any:
            operator = graphs.operator(weights, 2500)
            states: list[Any] = []

            def keep(state: State) -> None:
                arrays = {key: array.copy() for key, array in operator.space.arrays.items()}
                states.append((state.to_json(), arrays, set(operator.space.posted)))

            result = lobpcg.solve(operator, lobpcg.init(operator, 6, deflate="trivial"), keep)
            return operator, result, states

        _, exact, _ = solved()
        monkeypatch.setattr(coarse, "EXACT", 0)
        monkeypatch.setattr(multigrid, "DENSE", 100)
        operator, result, states = solved()
        assert result.converged
        assert result.passes <= exact.passes + 3
        np.testing.assert_allclose(result.eigenvalues, exact.eigenvalues, atol=1e-10)
        text, arrays, posted = states[len(states) // 2]
        again = graphs.operator(weights, 2500)
        again.space.arrays, again.space.posted = dict(arrays), set(posted)
        resumed = lobpcg.solve(again, State.from_json(text))
        assert graphs.vectors(again).tobytes() == graphs.vectors(operator).tobytes()
        assert resumed.passes == result.passes

    def test_hub_of_many_aggregates_is_still_coarsened(self):
        """A star: few match along edges, so neighbors in number are joined, and the levels end."""
        leaves = 4000
        pointer = np.concatenate([[0, leaves + 1], leaves + 1 + 2 * np.arange(1, leaves + 1)])
        index = np.concatenate(
            [np.arange(leaves + 1), np.stack([np.zeros(leaves), np.arange(1, leaves + 1)], 1).ravel()]
        )
        weight = 1 / np.sqrt(leaves)
        values = np.concatenate([[1.0], np.full(leaves, -weight), np.tile([-weight, 1.0], leaves)])
        constant = np.concatenate([[np.sqrt(leaves)], np.ones(leaves)])[:, None]
        rows = multigrid.BlockRows(pointer, index.astype(np.int32), values[:, None, None].astype(np.float32), constant)
        found = multigrid.multigrid(rows)
        assert len(found.values) <= multigrid.DENSE
        root = constant[:, 0] / np.linalg.norm(constant)
        right = np.random.default_rng(0).standard_normal((leaves + 1, 3))
        right -= np.outer(root, root @ right)
        y = found.solve(right)
        y = y - np.outer(root, root @ y)
        left = right - rows.product(y.astype(np.float64))
        assert np.linalg.norm(left) < 0.7 * np.linalg.norm(right)


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


class TestLocalFunctions:
    """The functions on aggregates: orthonormal, beside the constant, and nearly as low as the eigenvectors."""

    @pytest.mark.parametrize("bridge", [1.0, 1e-9, 0.0])
    @pytest.mark.parametrize("n", [1, 2, 5, 9, 40, 120])
    def test_functions_are_orthonormal_and_low(self, n: int, bridge: float) -> None:
        matrix, unit = laplacian(n, bridge)
        rows, values = found(matrix, unit), np.linalg.eigvalsh(matrix)[: min(P, n)]
        np.testing.assert_array_equal(rows[0], unit)
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
        quotients = np.einsum("ij,jk,ik->i", rows, matrix, rows)
        assert (quotients >= values - 1e-12).all()
        assert (quotients <= 1.4 * values + 1e-12).all()
        assert (np.diff(quotients) >= -1e-12).all()

    def test_random_columns_would_not_be_low(self) -> None:
        """Control: what the iteration starts from."""
        matrix, unit = laplacian(120)
        start = start_of(120, P)
        start = np.linalg.qr(start - np.outer(unit, unit @ start))[0]
        assert np.einsum("ji,jk,ki->i", start, matrix, start).min() > 3 * np.linalg.eigvalsh(matrix)[P]
