"""Small graphs with known spectra, and operators on them in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import cKDTree

from bigembed.linalg import SparseOperator
from bigembed.runtime.blocks import bounds
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import memory_matrix


def fill_block(block: int, arrays: Sequence[Any], cuts: Sequence[tuple[int, int]]) -> tuple[list[Any], None]:
    """Cut whole arrays into blocks."""
    start, stop = cuts[block]
    return [array[start:stop] for array in arrays], None


@dataclass
class Graphs:
    """Weight matrices, and the normalized operator S = D^{-1/2} W D^{-1/2} of some of their rows."""

    def operator(self, weights: Any, rows: int | Sequence[tuple[int, int]] = 500, inside: Any = None) -> SparseOperator:
        """S on the rows ``inside`` (all), with vectors "scale" and "trivial" in its space."""
        weights = sparse.csr_array(weights)
        n = weights.shape[0]
        cuts = bounds(n, rows) if isinstance(rows, int) else list(rows)
        inside = np.ones(n, bool) if inside is None else inside
        degree = np.asarray(weights.sum(axis=1)).ravel()
        scale = np.where(inside, 1 / np.sqrt(degree), 0)[:, None]
        trivial = np.where(inside, np.sqrt(degree / degree[inside].sum()), 0)[:, None]
        matrix = memory_matrix(weights, cuts)
        space = MemorySpace(matrix)
        space.sweep(fill_block, writes=["scale", "trivial"], posts=["scale"], arguments=([scale, trivial], cuts))
        return SparseOperator(matrix, space, "scale")

    def ring(self, n: int) -> Any:
        """Cycle of n vertices: eigenvalues of S are cos(2πl/n), twice each."""
        i = np.arange(n)
        half = sparse.coo_array((np.ones(n), (i, (i + 1) % n)), shape=(n, n))
        return (half + half.T).tocsr()

    def product(self, *factors: Any) -> Any:
        """Cartesian product of graphs: eigenvalues of W are all sums of one of each factor's."""
        out = factors[0]
        for factor in factors[1:]:
            out = sparse.kron(out, sparse.eye_array(factor.shape[0])) + sparse.kron(
                sparse.eye_array(out.shape[0]), factor
            )
        return sparse.csr_array(out)

    def spectrum(self, *factors: Any) -> Any:
        """Eigenvalues of S of a Cartesian product of regular graphs, descending, without the first."""
        sums = np.zeros(1)
        for factor in factors:
            sums = np.add.outer(sums, np.linalg.eigvalsh(factor.toarray())).ravel()
        return np.sort(sums / sums.max())[::-1][1:]

    def permuted(self, weights: Any, seed: int = 1) -> Any:
        """The same graph in a random order of its vertices."""
        order = np.random.default_rng(seed).permutation(weights.shape[0])
        return sparse.csr_array(sparse.csr_array(weights)[order][:, order])

    def complete(self, n: int) -> Any:
        """Complete graph without loops: eigenvalues 1, and −1/(n−1) for all others."""
        return sparse.csr_array(np.ones((n, n)) - np.eye(n))

    def swiss_roll(self, n: int, seed: int = 0) -> Any:
        """Gaussian kernel, α = 1, on the symmetrized 15-neighbor graph of a Swiss roll with noise .05."""
        rng = np.random.default_rng(seed)
        angle = np.sort(1.5 * np.pi * (1 + 2 * rng.random(n)))
        points = np.stack([angle * np.cos(angle), 21 * rng.random(n), angle * np.sin(angle)], axis=1)
        points += 0.05 * rng.standard_normal(points.shape)
        distance, column = cKDTree(points).query(points, 16)
        epsilon = np.median(distance[:, 15] ** 2)
        row = np.repeat(np.arange(n), 15)
        kernel = np.exp(-(distance[:, 1:].ravel() ** 2) / epsilon)
        graph = sparse.csr_array((kernel, (row, column[:, 1:].ravel())), shape=(n, n))
        graph = (graph.maximum(graph.T) + sparse.eye_array(n)).tocsr()
        density = np.asarray(graph.sum(axis=1)).ravel()
        inverse = sparse.diags_array(1 / density)
        weights = inverse @ graph @ inverse
        return ((weights + weights.T) / 2).tocsr()

    def dense(self, weights: Any) -> Any:
        """S as a dense matrix."""
        weights = np.asarray(sparse.csr_array(weights).todense())
        root = np.sqrt(weights.sum(axis=1))
        return weights / np.outer(root, root)

    def prolongation(self, label: Any, basis: Any, count: int) -> Any:
        """P of one block, CSR (rows, count · p): unknown a·p + s is function s of aggregate a."""
        p = basis.shape[1]
        columns = np.maximum(label, 0)[:, None] * p + np.arange(p)
        values = np.where(label[:, None] >= 0, basis, 0).astype(np.float64)
        pointer = np.arange(len(label) + 1) * p
        return sparse.csr_array((values.ravel(), columns.ravel(), pointer), shape=(len(label), count * p))

    def vectors(self, operator: SparseOperator, name: str = "V") -> Any:
        """A vector of the space, all blocks under each other."""
        return np.concatenate([operator.space.read(name, b) for b in range(len(operator.space.rows))])

    def residuals(self, operator: SparseOperator, result: Any) -> Any:
        """‖Sv − λv‖ from the matrix itself, not by the code under test."""
        matrix = operator.matrix
        v = self.vectors(operator)
        scale = self.vectors(operator, "scale")
        start = np.concatenate([[0], np.cumsum(matrix.rows)])
        out = []
        for b in range(len(matrix.rows)):
            block = matrix.block(b)
            far = [start[source] + rows for source, rows in block.segments()]
            names = np.concatenate([np.arange(start[b], start[b + 1]), *far]).astype(int)
            dense = sparse.csr_array((block.data, names[block.indices], block.indptr), shape=(matrix.rows[b], len(v)))
            out.append(dense @ (scale * v))
        return np.linalg.norm(scale * np.concatenate(out) - v * result.eigenvalues, axis=0)


def largest_angle(a: Any, b: Any) -> float:
    """Sine of the largest principal angle between two spans."""
    qa, qb = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    return float(np.linalg.norm(qb - qa @ (qa.T @ qb), 2))


@pytest.fixture(scope="session")
def graphs() -> Graphs:
    return Graphs()


@pytest.fixture(scope="session")
def angle() -> Callable[[Any, Any], float]:
    return largest_angle
