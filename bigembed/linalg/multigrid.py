"""The coarse problem of the two-level solver, in the coordinating process: a sparse factor, or a cycle over aggregates.

A level is a block matrix L, one block a pair of aggregates (p functions each), and the coefficients c of the
constant √d, L c ≈ 0. Aggregates are matched along −L_{a0,b0}, the edges between their first functions, into larger
ones; the functions on each of these, S, approximate the lowest eigenvectors of its Neumann matrix,

    N_S = L_SS − Σ_{a ∈ S, b ∉ S} v vᵀ / (vᵀc_a),    v = −L_ab c_b,

so that N_S c_S = 0. (What the edges to b add to the diagonal block of a is known by what it does to the constant: v.
Of all positive semidefinite matrices with E c_a = v, this is the smallest.) The next level is QᵀLQ, down to
:data:`DENSE` unknowns, whose eigenvectors are known.

The cycle is one block Gauss–Seidel sweep forward, the next level (twice, except the last), one sweep backward: a
fixed linear, symmetric and positive map, of two products with L and half as many again for all smaller levels.
Matrices and vectors are in single precision (a preconditioner may be off by 1e-7), the last level in double.
A cycle of 15 columns took .12 s on one core at 85 000 unknowns (10⁶ rows of a surface; 25 steps of conjugate
gradients on 61 000 took 1.2 s), .9 s at 850 000 (10⁷ rows), where making the levels takes 10 s: all with a product for
each block. With the blocks of a row in one product a cycle takes .46 of that time (.028 instead of .060 s at 25 536
unknowns of a mixture in 64 dimensions, 18 aggregates a row; the same passes), and with sums in registers .38 of the
latter (31 000 of a surface). Its share of the processor time of the passes, 3·10⁵ rows of that mixture: 15–17 % block
by block, 8 % with a product for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from bigembed.linalg import coarse
from bigembed.linalg.eigenpairs import rayleigh_ritz
from bigembed.runtime.blocks import Array, bounds, offsets, stripes
from bigembed.runtime.executors import chosen_executor, run_on_idle_threads
from bigembed.store.vector_space import VectorSpace, assembled

# ------------------------------------------------------------------------------------------------------------- cycle

SHIFT = 1e-8
"""Least eigenvalue that the last level is taken to have."""
DENSE = 1_200
"""Unknowns of the last level at most."""
JOINED = 8
"""Aggregates that become one, at most."""
FUNCTIONS = 8
"""Functions on an aggregate of the levels that follow the first, or as many as there where those are more; fewer where
a level would have more entries than the one before."""
MANY = 400_000
"""Unknowns beyond which a solve is two cycles. Tried with 10⁶ rows of a surface they save two passes of 20; with more
rows, whose vectors are in files, a second cycle takes a small part of what a pass does."""
STEPS = 4
"""Steps of LOBPCG with which the first eigenvectors are improved on a level."""


def filled(x: Array, dtype: Any) -> Array:
    """In a precision, with columns of zeros up to a multiple of what a processor takes at a time."""
    out = np.zeros((len(x), -(-x.shape[1] // coarse.LANES) * coarse.LANES), dtype)
    out[:, : x.shape[1]] = x
    return out


@dataclass(frozen=True)
class BlockRows:
    """A block matrix in rows of blocks (columns ascending), and the coefficients of √d: one level."""

    pointer: Array
    index: Array
    blocks: Array
    """(pairs, p, p) float32, each transposed: the column is the first of its axes."""
    constant: Array
    """(aggregates, p)."""

    @property
    def size(self) -> int:
        """Unknowns."""
        return int(self.constant.size)

    @property
    def diagonal(self) -> Array:
        """The place of each diagonal block."""
        row = np.repeat(np.arange(len(self.constant), dtype=np.int32), np.diff(self.pointer))
        return np.flatnonzero(row == self.index)

    def product(self, x: Array) -> Array:
        """L x."""
        whole = filled(x, x.dtype)
        out = np.empty_like(whole)
        coarse.level_kernels().product(self.pointer, self.index, self.blocks, whole, out)
        return np.ascontiguousarray(out[:, : x.shape[1]])


@dataclass(frozen=True)
class Level:
    """One level above the last, the inverses of its diagonal blocks, and Q to the next."""

    rows: BlockRows
    inverse: Array
    """(aggregates, p, p) float32."""
    label: Array
    """The larger aggregate of each aggregate."""
    functions: Array
    """Q, (aggregates, p, functions) float32."""


@dataclass(frozen=True)
class Multigrid:
    """Levels from fine to coarse, and the eigenpairs of the last one."""

    levels: tuple[Level, ...]
    values: Array
    vectors: Array

    def solve(self, right: Array) -> Array:
        """One cycle from zero for all columns of ``right``, two where unknowns are many, in single precision: an
        approximation of L⁻¹ right.

        Both halves of the columns are gone through by themselves, at the same time where another thread is idle.
        """
        half = -(-right.shape[1] // (2 * coarse.LANES)) * coarse.LANES
        parts = [right[:, start:stop] for start, stop in bounds(right.shape[1], half)]
        return np.concatenate(run_on_idle_threads([partial(self._filled_cycle, part, 0) for part in parts]), axis=1)

    def _filled_cycle(self, right: Array, depth: int) -> Array:
        width, several = right.shape[1], self._size(0) > MANY and not depth
        run = self._twice if several else self._cycle
        return np.ascontiguousarray(run(filled(right, np.float32), depth, width)[:, :width])

    def _cycle(self, right: Array, depth: int, width: int) -> Array:
        if depth == len(self.levels):
            part = (self.vectors.T @ right[:, :width]) / np.maximum(self.values, SHIFT)[:, None]
            last = np.zeros_like(right)
            last[:, :width] = self.vectors @ part
            return last
        run, level = coarse.level_kernels(), self.levels[depth]
        matrix = (level.rows.pointer, level.rows.index, level.rows.blocks)
        x, left = np.empty_like(right), np.empty_like(right)
        run.forward(*matrix, level.inverse, right, x)
        run.rest(*matrix, x, left)
        below = np.empty((self._size(depth + 1), right.shape[1]), right.dtype)
        run.restrict(level.label, level.functions, left, below)
        run.prolong(level.label, level.functions, self._twice(below, depth + 1, width), x)
        run.backward(*matrix, level.inverse, right, x)
        return x

    def _twice(self, right: Array, depth: int, width: int) -> Array:
        """Two cycles, the second on what the first leaves over; one where the last level is solved exactly."""
        x = self._cycle(right, depth, width)
        if depth == len(self.levels):
            return x
        return x + self._cycle(right - self.levels[depth].rows.product(x), depth, width)

    def _size(self, depth: int) -> int:
        return self.levels[depth].rows.size if depth < len(self.levels) else len(self.values)

    def lowest(self, count: int, seed: int) -> Array:
        """Approximate eigenvectors of the ``count`` lowest eigenvalues, ascending, orthonormal to 1e-6.

        Those of the last level, carried to the next finer one and improved there by a few steps of LOBPCG, level by
        level (cascadic); on the first level they are left as they are, since the solver improves them on the rows.
        No random numbers are drawn.
        """
        x = self.vectors[:, :count]
        for depth in reversed(range(len(self.levels))):
            level = self.levels[depth]
            below = filled(x, np.float64)
            fine = np.zeros((level.rows.size, below.shape[1]))
            coarse.level_kernels().prolong(level.label, level.functions, below, fine)
            x = fine[:, : x.shape[1]]
            x = self._improved(x, depth) if depth else x
        return x

    def _improved(self, x: Array, depth: int) -> Array:
        rows, width = self.levels[depth].rows, x.shape[1]
        basis, image = x, rows.product(x)
        for turn in range(STEPS + 1):
            values, mix = rayleigh_ritz(basis.T @ basis, basis.T @ (basis - image), width)
            values, mix = values[:width], mix[:, :width]
            x = basis @ mix
            if turn == STEPS:
                break
            ax = image @ mix
            away = np.where(np.arange(len(mix))[:, None] < width, 0.0, mix)
            p, ap = (basis @ away, image @ away) if turn else (x[:, :0], x[:, :0])
            basis = image = x  # (the old ones are most of what is held)
            w = self._filled_cycle(ax - x * (1 - values), depth).astype(np.float64)
            basis, image = np.concatenate([x, p, w], axis=1), np.concatenate([ax, ap, rows.product(w)], axis=1)
        return x


def multigrid(rows: BlockRows) -> Multigrid:
    """The levels over a block matrix in which every diagonal block is there."""
    levels: list[Level] = []
    while rows.size > DENSE:
        level, rows = _coarsened(rows)
        levels.append(level)
    p = rows.constant.shape[1]
    blocks = rows.blocks.transpose(0, 2, 1)
    last = sparse.bsr_array((blocks, rows.index, rows.pointer), shape=(rows.size, rows.size), blocksize=(p, p))
    whole = last.toarray().astype(np.float64)
    return Multigrid(tuple(levels), *np.linalg.eigh((whole + whole.T) / 2))


def _coarsened(rows: BlockRows) -> tuple[Level, BlockRows]:
    """A level, and the next one: of as many entries at most, by fewer functions where aggregates touch many others."""
    groups = coarse.Groups.of(_joined(rows))
    pointer, index = coarse.level_kernels().touched(groups.starts, groups.order, groups.label, rows.pointer, rows.index)
    width = coarse.affordable(len(index), max(FUNCTIONS, rows.constant.shape[1]), rows.blocks.size)
    functions, constant = _functions(rows, groups, width)
    wide, blocks = filled(functions.reshape(-1, width), np.float64), np.empty((len(index), width, width), np.float32)
    run = partial(
        coarse.level_kernels().galerkin, starts=groups.starts, order=groups.order, label=groups.label,
        pointer=rows.pointer, index=rows.index, blocks=rows.blocks, functions=functions, wide=wide, below=pointer,
        columns=index, out=blocks,
    )  # fmt: skip
    run_on_idle_threads([partial(run, *part) for part in bounds(groups.count, coarse.TOGETHER)])
    below = BlockRows(pointer, index, blocks, constant)
    regularize_diagonal(blocks, below.diagonal)
    diagonal = rows.blocks[rows.diagonal].astype(np.float64)
    inverse = np.linalg.inv((diagonal + diagonal.transpose(0, 2, 1)) / 2).astype(np.float32)
    return Level(rows, inverse, groups.label, functions), below


def transposed(blocks: Array) -> Array:
    """Blocks (pairs, p, p) as :class:`BlockRows` holds them."""
    return np.ascontiguousarray(blocks.transpose(0, 2, 1), np.float32)


def regularize_diagonal(blocks: Array, diagonal: Array, shift: float = 0.0) -> None:
    """Add ``shift`` to the diagonal blocks, and 1 where a small aggregate has fewer functions than places."""
    place = np.arange(blocks.shape[1])
    entries = blocks[diagonal[:, None], place, place]
    blocks[diagonal[:, None], place, place] = entries + shift + (entries == 0)


def _joined(rows: BlockRows) -> Array:
    """The larger aggregate of each aggregate: matched along heavy edges, or consecutive where few match."""
    count = len(rows.constant)
    label = coarse.aggregates(coarse.Rows(rows.pointer, rows.index, _edges(rows)), np.ones(count, np.bool_), JOINED)
    return np.arange(count) // JOINED if 2 * (int(label.max()) + 1) > count else label


def _edges(rows: BlockRows) -> Array:
    """Weights of the edges between the first functions of aggregates; 0 on the diagonal."""
    lead, weight = np.sign(rows.constant[:, 0]), np.empty(len(rows.index))
    for start, stop in stripes(len(lead)):
        part = slice(rows.pointer[start], rows.pointer[stop])
        row = np.repeat(np.arange(start, stop), np.diff(rows.pointer[start : stop + 1]))
        along = -rows.blocks[part, 0, 0] * lead[row] * lead[rows.index[part]]
        weight[part] = np.maximum(np.where(row == rows.index[part], 0.0, along), 0.0)
    return weight


def _functions(rows: BlockRows, groups: coarse.Groups, width: int) -> tuple[Array, Array]:
    """Q as (aggregates, p, functions), and the constant of the larger aggregates."""
    label, p = groups.label, rows.constant.shape[1]
    most = int(np.diff(groups.starts).max()) * p
    functions, constant = np.zeros((len(label), p, width), np.float32), np.zeros((groups.count, width))
    run = partial(
        coarse.local().fill_joined, bounds=groups.starts, order=groups.order, place=groups.place, label=label,
        pointer=rows.pointer, index=rows.index, blocks=rows.blocks, constant=rows.constant,
        start=coarse.start_of(most, width), functions=functions, joined=constant,
    )  # fmt: skip
    run_on_idle_threads([partial(run, *part) for part in bounds(groups.count, coarse.TOGETHER)])
    return functions, constant


# ---------------------------------------------------------------------------------------------------- coarse problem
# What is assembled from the blocks of the rows, and solved with a factor where it is small, else with a cycle.

INVERSE_STEPS = 5
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
        blocks = zip(self.space.read_all(name), self.counts, strict=True)
        return np.concatenate([block[: count * self.functions] for block, count in blocks])

    def scatter(self, name: str, values: Array) -> None:
        """Write a coarse vector to the space (a block without aggregates gets one group of zeros)."""
        none = np.zeros((self.functions, values.shape[1]))
        parts = np.split(values, offsets(self.counts)[1:-1] * self.functions)
        self.space.write_all(name, [part if len(part) else none for part in parts])


def solver_of(space: VectorSpace, counts: Sequence[int], functions: int) -> CoarseSolver:
    """A factor of L_c where it is small, else the levels of a multigrid cycle."""
    small = sum(counts) * functions <= coarse.EXACT
    pointer, index, blocks = _assembled(space, counts, functions, small)
    if small:
        size = sum(counts) * functions
        matrix = sparse.bsr_array((blocks, index, pointer), shape=(size, size)).tocsr().T
        if factor_entries(matrix, functions) <= coarse.FACTOR:
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
    pairs, values = ("coarse.pairs", "coarse.cross"), ("coarse.values", "coarse.cross_values")
    found = zip(_entries(space, *pairs, start), start, counts, strict=False)
    degrees = [np.bincount(where[:, 0] - first, minlength=count) for where, first, count in found]
    pointer = offsets(np.concatenate(degrees))
    index = np.empty(pointer[-1], np.int32)
    blocks = np.empty((pointer[-1], p, p), np.float64 if small else np.float32)
    both = zip(_entries(space, *pairs, start), _entries(space, *values, start, numbered=False), strict=True)
    for b, (where, entries) in enumerate(both):
        order = np.lexsort((where[:, 1], where[:, 0]))
        where, entries = where[order], entries[order]
        regularize_diagonal(entries, np.flatnonzero(where[:, 0] == where[:, 1]), SHIFT)
        part = slice(pointer[start[b]], pointer[start[b + 1]])
        index[part], blocks[part] = where[:, 1], entries if small else entries.transpose(0, 2, 1)
    return pointer, index, blocks


def _entries(space: VectorSpace, inner: str, cross: str, start: Array, numbered: bool = True) -> Iterator[Array]:
    """Yield what each block left of pairs of aggregates inside it (none if it has no aggregates) and across its border.

    ``start``: the first aggregate of each block, from which those inside it are numbered.
    """
    for b, (own, across) in enumerate(zip(space.read_each(inner), space.read_each(cross), strict=True)):
        yield np.concatenate([own + (start[b] if numbered else 0), across]) if start[b + 1] > start[b] else across


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
        for _ in range(INVERSE_STEPS):
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
