"""Solving with the coarse matrix L_c in the coordinating process: by a sparse factor, or by a multigrid cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from bigembed.linalg.coarse import EXACT, FACTOR
from bigembed.linalg.multigrid import BlockRows, multigrid, regularize_diagonal, transposed
from bigembed.runtime.blocks import Array, offsets, stripes
from bigembed.runtime.executors import chosen_executor, run_on_idle_threads
from bigembed.store.vector_space import VectorSpace, assembled

SHIFT = 1e-8
STEPS = 5
"""Steps of inverse iteration for the first eigenvectors of a factored L_c."""


class CoarseSolver(Protocol):
    """A way to solve with the coarse matrix: what the iteration asks of it."""

    def solve(self, right: Array) -> Array:
        """(L_c + 1e-8 I)⁻¹ applied to columns, exactly or by a fixed linear map near to it."""
        ...

    def lowest(self, count: int, seed: int) -> Array:
        """Orthonormal approximate eigenvectors of the ``count`` lowest eigenvalues, ascending."""
        ...


@dataclass
class Coarse:
    """The coarse problem of a running solver."""

    space: VectorSpace
    counts: Sequence[int]
    """Aggregates of each block."""
    functions: int
    solver: CoarseSolver

    @classmethod
    def load(cls, space: VectorSpace, plan: Sequence[int]) -> Coarse:
        """Assemble from what :func:`bigembed.linalg.coarse.build` left in the space: the same bytes after a resume."""
        counts, p = plan[:-1], plan[-1]
        with chosen_executor():
            return cls(space, counts, p, solver_of(space, counts, p))

    @cached_property
    def known(self) -> Array:
        """Orthonormal basis of the restricted known vectors."""
        return np.asarray(np.linalg.qr(self.gather("coarse.known"))[0])

    def correction(self, name: str) -> Array:
        """L_c⁻¹ r of the coarse vector of that name, without what is along the known vectors."""
        with chosen_executor():
            right = self._apart(self.gather(name))
            return self._apart(self.solver.solve(right))

    def _apart(self, vectors: Array) -> Array:
        """The vectors, less what of them is along the known ones: in place, a stripe at a time."""
        along = self.known.T @ vectors

        def part(start: int, stop: int) -> None:
            vectors[start:stop] -= self.known[start:stop] @ along

        run_on_idle_threads([partial(part, *stripe) for stripe in stripes(len(vectors))])
        return vectors

    def gather(self, name: str) -> Array:
        """A coarse vector of the space, all blocks under each other."""
        blocks = enumerate(self.counts)
        return np.concatenate([self.space.read(name, b)[: count * self.functions] for b, count in blocks])

    def scatter(self, name: str, values: Array) -> None:
        """Write a coarse vector to the space (a block without aggregates gets one group of zeros)."""
        start = offsets(self.counts) * self.functions
        for b in range(len(self.counts)):
            part = values[start[b] : start[b + 1]]
            self.space.write(name, b, part if len(part) else np.zeros((self.functions, values.shape[1])))


def solver_of(space: VectorSpace, counts: Sequence[int], functions: int) -> CoarseSolver:
    """A factor of L_c where it is small, else the levels of a multigrid cycle."""
    small = sum(counts) * functions <= EXACT
    pointer, index, blocks = _assembled(space, counts, functions, small)
    if small:
        size = sum(counts) * functions
        matrix = sparse.bsr_array((blocks, index, pointer), shape=(size, size)).tocsr().T
        if factor_entries(matrix, functions) <= FACTOR:
            factor = sparse_linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
            return Factored(matrix, factor.solve)
    constant = np.zeros((len(pointer) - 1, functions))
    constant[:, 0] = assembled(space, "coarse.root")
    blocks = transposed(blocks) if small else blocks
    return multigrid(BlockRows(pointer, index, blocks, constant))


def _assembled(space: VectorSpace, counts: Sequence[int], p: int, small: bool) -> tuple[Array, Array, Array]:
    """L_c in rows of p × p blocks, columns ascending; one block of rows after the other is read.

    Where it is ``small`` the blocks are in double precision, elsewhere as :class:`BlockRows` holds them.
    """
    start = offsets(counts)
    degrees = [np.bincount(_pairs(space, counts, b)[:, 0] - start[b], minlength=counts[b]) for b in range(len(counts))]
    pointer = offsets(np.concatenate(degrees))
    index = np.empty(pointer[-1], np.int32)
    blocks = np.empty((pointer[-1], p, p), np.float64 if small else np.float32)
    for b in range(len(counts)):
        where = _pairs(space, counts, b)
        order = np.lexsort((where[:, 1], where[:, 0]))
        where = where[order]
        values = _joined(space, "coarse.values", "coarse.cross_values", b, counts[b])[order]
        regularize_diagonal(values, np.flatnonzero(where[:, 0] == where[:, 1]), SHIFT)
        part = slice(pointer[start[b]], pointer[start[b + 1]])
        index[part], blocks[part] = where[:, 1], values if small else values.transpose(0, 2, 1)
    return pointer, index, blocks


def _pairs(space: VectorSpace, counts: Sequence[int], block: int) -> Array:
    return _joined(space, "coarse.pairs", "coarse.cross", block, counts[block], int(offsets(counts)[block]))


def _joined(space: VectorSpace, inner: str, cross: str, block: int, count: int, start: int = 0) -> Array:
    """What a block left of pairs inside it (one without aggregates has none) and across its border."""
    across = space.read(cross, block)
    return np.concatenate([space.read(inner, block) + start, across]) if count else across


@dataclass(frozen=True)
class Factored:
    """L_c and its factor."""

    matrix: Any
    solver: Any

    def solve(self, right: Array) -> Array:
        """(L_c + 1e-8 I)⁻¹ right."""
        return np.asarray(self.solver(np.ascontiguousarray(right)))

    def lowest(self, count: int, seed: int) -> Array:
        """By inverse iteration of a random block, and Rayleigh–Ritz on all that it went through."""
        n = self.matrix.shape[0]
        count = min(count, n)
        if n <= 400:
            return np.asarray(np.linalg.eigh(self.matrix.toarray())[1][:, :count])
        x, basis = np.random.default_rng([seed, 1]).standard_normal((n, count)), []
        for _ in range(STEPS):
            x = np.linalg.qr(self.solve(x))[0]
            basis.append(x)
        whole = np.linalg.qr(np.concatenate(basis, axis=1))[0]
        small = whole.T @ (self.matrix @ whole)
        return np.asarray(whole @ np.linalg.eigh((small + small.T) / 2)[1][:, :count])


def factor_entries(matrix: Any, functions: int) -> float:
    """Estimate of the entries of a sparse factor: that of neighboring unknowns merged into ≤ 3000 groups."""
    n = matrix.shape[0]
    width = functions * max(1, -(-n // (3000 * functions)))
    groups = -(-n // width)
    gather = sparse.csr_array((np.ones(n), (np.arange(n), np.arange(n) // width)), shape=(n, groups))
    pattern = abs(gather.T @ abs(matrix) @ gather)
    pattern = (pattern + sparse.diags_array(np.asarray(pattern.sum(axis=1)).ravel() + 1.0)).tocsc()
    factor = sparse_linalg.splu(
        pattern, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    return float(factor.nnz * width**2)
