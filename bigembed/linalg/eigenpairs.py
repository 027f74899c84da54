"""Eigenpairs of matrices in memory: Rayleigh–Ritz, Krylov and dense solvers, and what every eigensolver returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import linalg, sparse

from bigembed.errors import InputError
from bigembed.linalg import BlockOperator
from bigembed.runtime.blocks import Array, offsets
from bigembed.store.vector_space import VectorSpace, assembled

# ------------------------------------------------------------------------------------------------------------ base
# What every eigensolver returns.


class Reason(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    MAX_PASSES = "max passes"
    STAGNATED = "stagnated"


@dataclass(frozen=True)
class EigenResult:
    """Eigenpairs A v = λ v of a symmetric operator, the m largest except the deflated ones."""

    eigenvalues: Array
    """(m,) descending."""
    vectors: Any
    """Name of the vectors in the space, (rows, m) per block, orthonormal; the largest |entry| is positive."""
    residuals: Array
    """(m,) explicit ‖Av − λv‖: from a product with the very vectors returned."""
    gap: float
    """λ_m minus the largest eigenvalue left out; r / gap bounds the sine of the angle to the subspace."""
    gaps: Array
    """(m,) distance of each eigenvalue to the nearest other one, the deflated included."""
    orthogonality: float
    """max |VᵀV − I|."""
    passes: int
    """Walks over the matrix, everything counted."""
    bytes_moved: int
    """Bytes of vector rows that crossed block borders for products."""
    iterations: int
    converged: bool
    reason: Reason
    advice: str
    """What to do when not converged; empty otherwise."""
    lowest: float = float("nan")
    """The smallest Ritz value met, where the solver sees one: the smallest eigenvalue is not above it."""

    @property
    def sin_theta(self) -> float:
        """Bound on the sine of the largest angle to the true subspace, sin θ ≤ ‖r‖ / gap (at most 1)."""
        size = float(np.linalg.norm(self.residuals))
        return min(1.0, size / self.gap) if self.gap > 0 else 1.0


ADVICE = {
    Reason.CONVERGED: "",
    Reason.MAX_PASSES: "The residuals were still falling: raise max_passes, or tol if this is enough.",
    Reason.STAGNATED: (
        "The residuals stopped falling: raise tol, ask for a number of components that ends at a gap of the "
        "spectrum, or raise n_neighbors if the graph hangs together by a few weak edges."
    ),
}


def gaps_of(eigenvalues: Array, others: Array) -> Array:
    """Distance of each eigenvalue to the nearest other among ``eigenvalues`` and ``others``; ∞ if alone."""
    everything = np.concatenate([eigenvalues, others])
    apart = np.abs(eigenvalues[:, None] - everything[None, :])
    apart[np.arange(len(eigenvalues)), np.arange(len(eigenvalues))] = np.inf
    return np.asarray(apart.min(axis=1)) if len(eigenvalues) else np.zeros(0)


def extremes(columns: Array) -> Array:
    """(2, width): the largest |entry| of each column in one block, and the sign of the first such entry."""
    if not len(columns):
        return np.stack([np.full(columns.shape[1], -1.0), np.ones(columns.shape[1])])
    where = np.argmax(np.abs(columns), axis=0)
    entry = columns[where, np.arange(columns.shape[1])]
    return np.stack([np.abs(entry), np.where(entry < 0, -1.0, 1.0)])


def signs_of(parts: list[Array]) -> Array:
    """Sign of the largest |entry| of each column over all blocks; among equal ones the first row decides."""
    stacked = np.stack(parts)
    winner = np.argmax(stacked[:, 0], axis=0)
    return np.asarray(stacked[winner, 1, np.arange(stacked.shape[2])])


def turn_vectors(space: VectorSpace, name: str, into: str, posts: Sequence[str] = ()) -> None:
    """Write the vectors of a name under another one, with signs by the rule."""
    flips = signs_of(space.sweep(extremes_block, reads=[name]))
    space.sweep(sign_block, reads=[name], writes=[into], posts=posts, arguments=(flips,))


def extremes_block(block: int, x: Array) -> tuple[tuple[()], Array]:
    """Largest |entry| of each column and its sign."""
    return (), extremes(x)


def sign_block(block: int, x: Array, flips: Array) -> tuple[tuple[Array], None]:
    """Signs by the rule."""
    return (x * flips,), None


# ------------------------------------------------------------------------------------------------------------ ritz
# Rayleigh–Ritz in a basis that need not be orthonormal, from its Gram matrices alone.

SMALLEST = 1e-8
"""Directions of the scaled basis with a smaller mass eigenvalue are dropped: they magnify rounding by its −½ power."""


def rayleigh_ritz(gram: Array, form: Array, lead: int, smallest: float = SMALLEST) -> tuple[Array, Array]:
    """Largest Ritz values of A in the span of B, and coefficients C with CᵀGC = I.

    gram G = BᵀB, form H = BᵀAB; the first ``lead`` columns (near Ritz vectors) are orthonormalized
    first and the others against them, so that the accuracy of the leading ones does not suffer from
    a badly conditioned rest. Columns are scaled to unit mass; directions of mass below ``smallest`` go.
    """
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    scale = np.where(size > 0, 1 / np.where(size > 0, size, 1), 0.0)
    gram = _symmetric(gram * scale[:, None] * scale)
    form = _symmetric(form * scale[:, None] * scale)
    unit = np.eye(len(gram))
    basis = _whitened(gram, unit[:, :lead], smallest)
    rest = unit[:, lead:]
    for _ in range(2):
        rest = rest - basis @ (basis.T @ (gram @ rest))
    mass = np.sqrt(np.maximum(np.einsum("ij,ij->j", rest, gram @ rest), 0.0))
    rest = rest[:, mass > np.sqrt(smallest)] / mass[mass > np.sqrt(smallest)]
    basis = np.concatenate([basis, _whitened(gram, rest, smallest)], axis=1)
    basis = _whitened(gram, basis, smallest)
    values, turn = linalg.eigh(_symmetric(basis.T @ form @ basis))
    return values[::-1].copy(), scale[:, None] * (basis @ turn[:, ::-1])


def _whitened(gram: Array, basis: Array, smallest: float) -> Array:
    if not basis.shape[1]:
        return basis
    mass, turn = linalg.eigh(_symmetric(basis.T @ gram @ basis))
    kept = mass > smallest * max(1.0, float(mass[-1]))
    return np.asarray(basis @ (turn[:, kept] / np.sqrt(mass[kept])))


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)


# ---------------------------------------------------------------------------------------------------------- krylov
# The largest eigenpairs of a matrix in memory, from the Krylov space of a random block.
#
#     K = span(X, AX, A²X, …),      X random with at least as many columns as eigenpairs are asked for,
#
# by full orthogonalization and without restarts (Golub & Underwood's block Lanczos). With probability one the space
# holds as many copies of a multiple eigenvalue as X has columns, so that no wanted copy is missed. A reduction to
# tridiagonal form costs 4/3 n³ operations whatever the spectrum is like; this takes 2 n² for each column of a space
# that has some hundred, and next to nothing for a sparse matrix.

LEAST_ROWS = 400
"""Fewer rows are reduced to tridiagonal form in no time."""
_SHARE = 3
"""The space holds at most n / 3 columns; a matrix that needs more is better reduced."""
_EXACT = 1e-12
"""Residuals, and directions that are not new any more, in units of the largest eigenvalue."""
_STEEP = 0.01
"""Directions this much shorter than the longest are made orthogonal to the others again."""
_WIDTH = 8
"""Columns that a dense matrix is multiplied by at the least: it is read from memory once for all."""
_GROWTH = 1.1
"""Ritz pairs are computed each time the space has grown by this factor."""


def leading_pairs(matrix: Any, m: int, known: Array) -> tuple[Array, Array] | None:
    """The m largest eigenpairs except the ``known`` orthonormal eigenvectors (n, c), values descending, to rounding.

    ``matrix`` is symmetric, dense or sparse (n, n). None where the space would not be small: few rows, many pairs, or a
    spectrum without gaps. The same bytes for the same matrix. Memory n²/3 numbers at most in addition to the matrix.
    """
    n = matrix.shape[0]
    if n < max(LEAST_ROWS, 4 * _SHARE * m):
        return None
    most = min(n // _SHARE, n - known.shape[1])
    basis, small, size = np.empty((n, most), order="F"), np.zeros((most, most)), 0
    width = m if sparse.issparse(matrix) else max(m, _WIDTH)
    block = _new(np.random.default_rng(0).standard_normal((n, width)), known, basis[:, :0], 0.0)[0]
    look = 3 * width
    while size + block.shape[1] <= most:
        first, size = size, size + block.shape[1]
        basis[:, first:size] = block
        held = basis[:, :size]
        product = matrix @ block if sparse.issparse(matrix) else (np.ascontiguousarray(block.T) @ matrix).T
        product -= known @ (known.T @ product)
        small[:size, first:size] = held.T @ product
        small[first:size, :first] = small[:first, first:size].T
        scale = float(np.abs(small[:size, :size]).max())
        block, rest = _new(product - held @ small[:size, first:size], known, held, _EXACT * scale)
        if size < m or (size < look and block.shape[1] and size + block.shape[1] <= most):
            continue
        look = int(_GROWTH * size)
        values, turn = linalg.eigh(small[:size, :size], subset_by_index=(size - m, size - 1))
        if np.linalg.norm(rest @ turn[first:], axis=0).max() <= _EXACT * max(scale, float(np.abs(values).max())):
            return values[::-1], held @ turn[:, ::-1]
        if not block.shape[1]:
            break
    return None


def _new(rows: Array, known: Array, held: Array, least: float) -> tuple[Array, Array]:
    """Orthonormal directions (n, c) of the columns without their parts in ``known`` and ``held``, and their parts in
    the columns (c, p); those no longer than ``least`` are left out."""
    rows = _project_out(rows, known, held)
    q, r, pivot = linalg.qr(rows, mode="economic", pivoting=True, check_finite=False)
    kept = int(np.count_nonzero(np.abs(np.diag(r)) > least))
    rest = np.empty_like(r[:kept])
    rest[:, pivot] = r[:kept]
    fresh = q[:, :kept]
    if kept and abs(r[kept - 1, kept - 1]) < _STEEP * abs(r[0, 0]):  # what rounding left of the others has grown
        fresh, turn = linalg.qr(_project_out(fresh, known, held, known, held), mode="economic")
        rest = turn @ rest
    return fresh, rest


def _project_out(rows: Array, *bases: Array) -> Array:
    for basis in bases:
        rows = rows - basis @ (basis.T @ rows)
    return rows


# ----------------------------------------------------------------------------------------------------------- dense
# The largest eigenpairs from the matrix itself, where it has at most a few thousand rows.


def solve_dense_matrix(matrix: Any, n_components: int, *, deflate: Array | None = None) -> tuple[EigenResult, Array]:
    """The m largest eigenpairs of a symmetric matrix, dense or sparse, except the deflated ones; the vectors (n, m).

    ``deflate`` (n,) or (n, c) are known orthonormal eigenvectors T. Of the others only the next pair is computed, for
    the gaps: in a Krylov space where that is small (:func:`leading_pairs`), or from the whole matrix with T
    moved below the spectrum, A − T T ᵀ (1 + 2‖A‖). Memory 3 n² numbers.
    """
    n = matrix.shape[0]
    known = np.zeros((n, 0)) if deflate is None else np.asarray(deflate, np.float64).reshape(n, -1)
    if not 1 <= n_components <= n - known.shape[1]:
        raise InputError(
            f"n_components={n_components}: {n} rows have {n - known.shape[1]} eigenpairs besides the "
            f"{known.shape[1]} known ones; ask for 1 to {n - known.shape[1]}"
        )
    matrix = matrix.astype(np.float64, copy=False)
    wanted = min(n_components + 1, n - known.shape[1])
    values, vectors = leading_pairs(matrix, wanted, known) or _reduced(matrix, max(known.shape[1], n - wanted), known)
    chosen = vectors[:, :n_components] * extremes(vectors[:, :n_components])[1]
    kept = values[:n_components].copy()
    left = values[n_components:]
    others = np.concatenate([left, np.einsum("ij,ij->j", known, matrix @ known)])
    result = EigenResult(
        eigenvalues=kept,
        vectors="",
        residuals=np.linalg.norm(matrix @ chosen - chosen * kept, axis=0),
        gap=float(kept[-1] - left[0]) if len(left) else float("inf"),
        gaps=gaps_of(kept, others),
        orthogonality=float(np.abs(chosen.T @ chosen - np.eye(n_components)).max()),
        passes=1,
        bytes_moved=0,
        iterations=1,
        converged=True,
        reason=Reason.CONVERGED,
        advice="",
    )
    return result, chosen


def _reduced(matrix: Any, last: int, known: Array) -> tuple[Array, Array]:
    """The eigenpairs from the ``last`` on in ascending order, given descending, by reduction to tridiagonal form."""
    whole: Any = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    drop = 1 + 2 * float(np.abs(whole).sum(axis=1).max())
    moved = (whole + whole.T) / 2 - drop * (known @ known.T)
    values, vectors = linalg.eigh(moved, subset_by_index=(last, len(whole) - 1))
    if len(values) < len(whole) - last:  # (LAPACK finds fewer where almost all are equal)
        values, vectors = (part[..., last:] for part in linalg.eigh(moved, driver="evd", overwrite_a=True))
    return values[::-1], vectors[:, ::-1]


def solve_dense(
    operator: BlockOperator, n_components: int, *, deflate: str | None = None, into: str = "V"
) -> EigenResult:
    """Assemble the operator (one pass), solve it densely, leave the vectors in the space under ``into``.

    Rows of scale 0 take no part and stay exactly 0. Memory of the coordinating process 4 n² numbers.
    """
    space = operator.space
    passes, moved = operator.passes, operator.bytes_moved
    operator.walk(entries_block, writes=["dense.entries"])
    start = offsets(space.rows)
    n = int(start[-1])
    inside = assembled(space, operator.scale)[:, 0] != 0
    parts = space.read_all("dense.entries")
    space.drop("dense.entries")
    row = np.concatenate([part[:, 0] + start[b] for b, part in enumerate(parts)]).astype(int)
    _, value, block, inner = np.concatenate(parts).T
    whole = sparse.coo_array((value, (row, (start[block.astype(int)] + inner).astype(int))), shape=(n, n))
    known = None if deflate is None else assembled(space, deflate)[inside]
    result, chosen = solve_dense_matrix(whole.tocsr()[inside][:, inside], n_components, deflate=known)
    vectors = np.zeros((n, n_components))
    vectors[inside] = chosen
    space.write_all(into, np.split(vectors, start[1:-1]))
    counted = {"passes": operator.passes - passes, "bytes_moved": operator.bytes_moved - moved, "vectors": into}
    return EigenResult(**{**_fields(result), **counted})


def entries_block(block: int, rows: Any, scale: Array) -> tuple[tuple[Array], None]:
    """(row, value, source block, row in the source block) of each entry; own columns have this block."""
    matrix, source, source_row = rows
    coo = matrix.tocoo()
    row, column = coo.coords
    own = len(scale)
    blocks = np.concatenate([np.full(own, block), source])[column]
    inner = np.concatenate([np.arange(own), source_row])[column]
    return (np.stack([row, coo.data, blocks, inner], axis=1),), None


def _fields(result: EigenResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}
