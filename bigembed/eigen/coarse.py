"""The coarse space of the two-level solver: aggregates, Galerkin matrix, coarse eigenvectors, coarse solve.

    L_c = Pᵀ (I − A) P,    P from :mod:`bigembed.eigen.aggregate`, columns orthonormal.

One pass over the matrix: a block makes its aggregates, its functions and its own part of L_c, and
keeps the edges that cross to other blocks; a sweep over those alone, with the functions of the halo
rows, gives the rest. No object of n rows is made in one process: the coordinating process holds
L_c, its factor, and a few coarse vectors.

Size. Aggregates have up to 64 rows with 16 functions (n ≤ 2e4) or 8 (n ≤ 2e5), then 256 with 16;
from 1.5e6 rows on, functions become fewer and aggregates larger, so that there are at most about 1.5e5 unknowns
(n = 16e6: aggregates of 1024 rows with 7 functions, a factor of some hundred MB).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from bigembed.blocks.rows import Array, offsets
from bigembed.blocks.vector_space import VectorSpace, assembled
from bigembed.eigen.aggregate import aggregates, as_sparse, local_basis
from bigembed.operators.base import BlockOperator

UNKNOWNS = 150_000
MOST = 16
"""Functions on an aggregate at most."""
ENTRIES = 6.0e6
"""Entries of L_c at most; fewer functions are kept where aggregates touch very many others."""
FACTOR = 3.0e7
"""Estimated entries of the factor at most; beyond, the coarse problem is solved by conjugate gradients."""
SHIFT = 1e-8
NAMES = ("coarse.label", "coarse.basis", "coarse.diagonal")
KEPT = (
    *NAMES,
    "coarse.pairs",
    "coarse.values",
    "coarse.cut",
    "coarse.cross",
    "coarse.cross_values",
    "coarse.norm",
    "coarse.known",
)


def shape_of(n: int) -> tuple[int, int]:
    """Rows of an aggregate and functions on it, from n alone (aggregates come out at about ¾ of the limit).

    >>> shape_of(10_000), shape_of(100_000), shape_of(1_000_000), shape_of(16_000_000)
    ((64, 16), (64, 8), (256, 16), (1024, 7))
    """
    size, most = (64, 16) if n <= 20_000 else (64, 8) if n <= 200_000 else (256, 16)
    while size < 1024 and n / (0.75 * size) * 8 > UNKNOWNS:
        size *= 2
    return size, int(np.clip(UNKNOWNS * 0.75 * size / n, 2, most))


def unknowns(n: int) -> int:
    """Unknowns at most, of a component of n rows or of a smaller one (which may have more functions a row).

    >>> unknowns(15_000), unknowns(29_500), unknowns(1_000_000)
    (5000, 6666, 83333)
    """
    return min(UNKNOWNS, max(min(n, 20_000) // 3, min(n, 200_000) // 6, n // 12))


def held_here(n: int, width: int) -> int:
    """Bytes that the coordinating process holds: L_c up to three times, or its factor, and a few coarse vectors."""
    size = unknowns(n)
    return int(max(28 * min(ENTRIES, size**2), 12 * min(FACTOR, size**2)) + 64 * width * size)


def held_by_block(rows: int, n_neighbors: int) -> int:
    """Bytes of the task that makes the coarse space of a block: (I − A) P, and the block's part of L_c, twice."""
    return int(12 * rows * n_neighbors * MOST + 28 * min(ENTRIES, unknowns(rows) ** 2))


def build(operator: BlockOperator, size: int, functions: int) -> list[int]:
    """Aggregates, functions, Galerkin parts, left in the space; one pass. Aggregates per block, then p."""
    found = operator.walk(
        aggregate_block,
        writes=[*NAMES, "coarse.pairs", "coarse.values", "coarse.cut", "coarse.norm"],
        posts=["coarse.label", "coarse.basis"],
        arguments=(size, functions),
    )
    counts = [count for count, _, _ in found]
    inner, between = sum(pairs for _, pairs, _ in found), sum(cut for _, _, cut in found)
    kept = affordable(inner + between, functions)
    if kept < functions:
        operator.space.sweep(
            narrow_block,
            reads=["coarse.label", "coarse.basis"],
            posts=["coarse.label", "coarse.basis"],
            writes=["coarse.label", "coarse.basis"],
            arguments=(kept,),
        )
    operator.space.sweep(
        cross_block,
        reads=["coarse.label", "coarse.basis", "coarse.cut"],
        halos=["coarse.label", "coarse.basis"],
        writes=["coarse.cross", "coarse.cross_values"],
        arguments=(counts,),
    )
    return [*counts, kept]


def aggregate_block(
    block: int, rows: Any, scale: Array, size: int, functions: int
) -> tuple[tuple[Array, ...], tuple[int, int, int]]:
    """Aggregates, functions, diagonal of A, own Galerkin blocks, crossing edges; counts for the plan."""
    matrix, source, _ = rows
    n = len(scale)
    inner = matrix[:, :n].tocsr()
    active = scale[:, 0] != 0
    label = aggregates(inner, active, size)
    count = int(label.max(initial=-1)) + 1
    most = affordable(_touching(inner, label, count), functions)
    basis, functions = np.ascontiguousarray(local_basis(inner, label, scale[:, 0], functions)[:, :most]), most
    prolong = as_sparse(label, basis, count)
    kept = sparse.diags_array(active.astype(np.float64)) - inner
    galerkin = sparse.bsr_array(prolong.T @ (kept @ prolong), blocksize=(functions, functions))
    galerkin.sort_indices()
    first = np.repeat(np.arange(galerkin.shape[0] // functions), np.diff(galerkin.indptr))
    pairs = np.stack([first, galerkin.indices], axis=1).astype(np.int64)
    cut = matrix[:, n:].tocoo()
    row, far = cut.coords
    edges = np.stack([row, far, cut.data, source[far]], axis=1)[cut.data != 0]
    touched = (
        len(np.unique(label[edges[:, 0].astype(int)] * float(len(source) + 1) + edges[:, 1])) // 4 if len(edges) else 0
    )
    norm = np.sqrt(np.bincount(label[active], weights=scale[active, 0] ** -2.0, minlength=count))
    written = (label, basis, inner.diagonal()[:, None], pairs, galerkin.data, edges, norm)
    return written, (count, len(pairs), touched)


def affordable(pairs: float, functions: int) -> int:
    """Functions of an aggregate: few enough that the pairs of aggregates have at most :data:`ENTRIES` entries."""
    return int(np.clip(np.sqrt(ENTRIES / max(1.0, pairs)), 1, functions))


def _touching(inner: Any, label: Array, count: int) -> int:
    """Pairs of aggregates that the graph joins inside a block, each with itself too."""
    rows = np.repeat(label, np.diff(inner.indptr))
    columns = label[inner.indices]
    both = (rows >= 0) & (columns >= 0)
    joined = np.zeros((count, count), np.bool_)
    joined[rows[both], columns[both]] = True
    np.fill_diagonal(joined, val=True)
    return int(np.count_nonzero(joined))


def narrow_block(block: int, label: Array, basis: Array, kept: int) -> tuple[tuple[Array, Array], None]:
    """Keep the first functions only."""
    return (label, np.ascontiguousarray(basis[:, :kept])), None


def cross_block(
    block: int, label: Array, basis: Array, cut: Array, far_label: Array, far_basis: Array, counts: list[int]
) -> tuple[tuple[Array, Array], None]:
    """−P_iᵀ A_ij P_j for the edges to other blocks: (own aggregate, other aggregate) and p × p values."""
    functions = basis.shape[1]
    own, far = cut[:, 0].astype(int), cut[:, 1].astype(int)
    start = offsets(counts)
    start = np.concatenate([start, start[-1:]])
    theirs = start[cut[:, 3].astype(int)] + far_label[far]
    names, column = np.unique(theirs, return_inverse=True)
    pair, place = np.unique(label[own] * max(1, len(names)) + column, return_inverse=True)
    values = np.zeros((len(pair), functions, functions))
    for begin in range(0, len(own), 1 << 16):
        part = slice(begin, begin + (1 << 16))
        products = basis[own[part], :, None] * (-cut[part, 2, None, None] * far_basis[far[part], None, :])
        np.add.at(values, place[part], products)
    pairs = np.stack(
        [start[block] + pair // max(1, len(names)), names[pair % max(1, len(names))] if len(names) else pair]
    )
    return (pairs.T.astype(np.int64), values), None


@dataclass
class Coarse:
    """L_c in the coordinating process, and how to solve with it."""

    counts: Sequence[int]
    functions: int
    matrix: Any
    solver: Any
    exact: bool

    @classmethod
    def load(cls, space: VectorSpace, plan: Sequence[int]) -> Coarse:
        """Assemble from what :func:`build` left in the space: the same bytes after a resume."""
        counts, p = plan[:-1], plan[-1]
        start = offsets(counts)
        pairs, values = [], []
        for b in range(len(counts)):
            if counts[b]:
                pairs.append(space.read("coarse.pairs", b) + start[b])
                values.append(space.read("coarse.values", b)[:, :p, :p].copy())  # not a view of all functions
            pairs.append(space.read("coarse.cross", b))
            values.append(space.read("coarse.cross_values", b))
        total = int(start[-1])
        where, blocks = np.concatenate(pairs), np.concatenate(values)
        del pairs, values
        order = np.lexsort((where[:, 1], where[:, 0]))
        where, blocks = where[order], blocks[order]
        _settle(blocks, np.flatnonzero(where[:, 0] == where[:, 1]))
        pointer = np.searchsorted(where[:, 0], np.arange(total + 1))
        matrix = sparse.bsr_array((blocks, where[:, 1], pointer), shape=(total * p, total * p)).tocsr().T
        del where, blocks
        constant = np.zeros((total, p))
        constant[:, 0] = assembled(space, "coarse.norm")
        if factor_entries(matrix, p) <= FACTOR:
            factor = sparse_linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
            return cls(counts, p, matrix, factor.solve, True)
        return cls(counts, p, matrix, Descent(matrix.T, constant.ravel(), p).solve, False)

    def solve(self, right: Array) -> Array:
        """(L_c + 1e-8 I)^{-1} applied to columns (exactly, or by a fixed number of iterations)."""
        return np.asarray(self.solver(np.ascontiguousarray(right)))

    def lowest(self, count: int, seed: int) -> Array:
        """Orthonormal approximate eigenvectors of the ``count`` lowest eigenvalues, ascending."""
        n = self.matrix.shape[0]
        count = min(count, n)
        if n <= 400:
            return np.asarray(np.linalg.eigh(self.matrix.toarray())[1][:, :count])
        start = np.random.default_rng([seed, 1]).standard_normal((n, count))
        steps = 8
        if self.exact:
            inverse = sparse_linalg.LinearOperator((n, n), matvec=self.solver, dtype=np.float64)
            found = sparse_linalg.eigsh(inverse, count, which="LA", tol=1e-4, v0=start[:, 0])[1]
            # From one vector Lanczos finds one copy of a multiple eigenvalue; the others are in the random block.
            start, steps = np.concatenate([found, start], axis=1)[:, :n], 2
        for _ in range(steps):
            start = np.linalg.qr(self.solver(start))[0]
        small = start.T @ (self.matrix @ start)
        return np.asarray(start @ np.linalg.eigh((small + small.T) / 2)[1][:, :count])

    def gather(self, space: VectorSpace, name: str) -> Array:
        """A coarse vector of the space, all blocks under each other."""
        blocks = enumerate(self.counts)
        return np.concatenate([space.read(name, b)[: count * self.functions] for b, count in blocks])

    def scatter(self, space: VectorSpace, name: str, values: Array) -> None:
        """Write a coarse vector to the space (a block without aggregates gets one group of zeros)."""
        start = offsets(self.counts) * self.functions
        for b in range(len(self.counts)):
            part = values[start[b] : start[b + 1]]
            space.write(name, b, part if len(part) else np.zeros((self.functions, values.shape[1])))


def _settle(blocks: Array, diagonal: Array) -> None:
    """Add 1e-8 I to the diagonal blocks, and 1 where a small aggregate has fewer functions than places."""
    place = np.arange(blocks.shape[1])
    entries = blocks[diagonal[:, None], place, place]
    blocks[diagonal[:, None], place, place] = entries + SHIFT + (entries == 0)


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


@dataclass
class Descent:
    """Conjugate gradients on L_c with two levels: the diagonal, and groups of unknowns solved exactly."""

    matrix: Any
    constant: Array
    functions: int
    steps: int = 25

    def __post_init__(self) -> None:
        """Factor the matrix of the groups (at most 2000)."""
        n = len(self.constant)
        width = self.functions * max(1, -(-n // (2000 * self.functions)))
        group = np.arange(n) // width
        size = np.sqrt(np.bincount(group, weights=self.constant**2))
        values = self.constant / np.where(size > 0, size, 1.0)[group]
        self.gather = sparse.csr_array((values, (np.arange(n), group)), shape=(n, len(size)))
        small = (self.gather.T @ self.matrix @ self.gather).toarray()
        self.inverse = np.linalg.inv(small + np.diag(SHIFT + (np.diag(small) <= 0)))
        self.diagonal = self.matrix.diagonal()[:, None]

    def _precondition(self, r: Array) -> Array:
        return np.asarray(r / self.diagonal + self.gather @ (self.inverse @ (self.gather.T @ r)))

    def solve(self, right: Array) -> Array:
        """Approximate solutions of all columns."""
        r = right.reshape(len(right), -1).copy()
        x = np.zeros_like(r)
        z = self._precondition(r)
        p, rz = z, np.einsum("ij,ij->j", r, z)
        for _ in range(self.steps):
            q = self.matrix @ p
            curvature = np.einsum("ij,ij->j", p, q)
            alpha = np.where(curvature > 0, rz / np.where(curvature > 0, curvature, 1.0), 0.0)
            x, r = x + alpha * p, r - alpha * q
            z = self._precondition(r)
            new = np.einsum("ij,ij->j", r, z)
            p, rz = z + np.where(rz > 0, new / np.where(rz > 0, rz, 1.0), 0.0) * p, new
        return x.reshape(right.shape)
