"""The smallest eigenpairs of AᵀA in memory, for a sparse matrix A whose rows sum to 0.

Alignment matrices of locally linear embedding and its variants are such products. Their smallest eigenvalues are
tiny (they fall like n^{−4/d}), so that

- inverses are applied by a Cholesky factor of AᵀA + δI, δ just above rounding, in the band that the reverse
  Cuthill–McKee order leaves. Its size is known before it is computed: what does not fit is refused;
- eigenvalues are squares of singular values of A on a small subspace, and residuals are Aᵀ(Av) − λv, so that rounding
  turns vectors by ε/√λ, and not by ε/λ as those of AᵀA formed: they are right where λ itself is near rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bigembed.errors import PlanError
from bigembed.linalg.eigenpairs import extremes, gaps_of
from bigembed.runtime.blocks import Array

MOST_BYTES = 2 << 30
"""Of a factor."""
GUARDS = 4
"""Vectors beyond those wanted, so that the last of these converges as quickly as the first."""
TOL = 1e-9
"""Turn of the vectors at which the iteration ends."""
ZERO = 1e-19
"""In units of ‖AᵀA‖, an eigenvalue that is 0 but for rounding: those of a curve of 50 000 rows are 10³ times larger."""
ENOUGH = 1e-4
"""Length of the next step that counts as converged, where rounding lets it fall no further; of eigenvalues that are 0
but for rounding any step does."""
STEPS, PATIENCE = 100, 4
"""Steps at the most, and without halving the largest turn."""
_SHIFT = 1e-14
"""δ in units of ‖AᵀA‖."""
_RISE = 100.0
"""Factor of δ after a Cholesky factorization that met rounding."""


@dataclass(frozen=True)
class SmallestPairs:
    """The m smallest eigenpairs of AᵀA but the constant vector."""

    values: Array
    """(m,) ascending."""
    vectors: Array
    """(n, m), orthonormal, orthogonal to the constant vector, the largest |entry| of each positive."""
    residuals: Array
    """(m,) ‖AᵀAv − λv‖."""
    turns: Array
    """(m,) ‖(AᵀA + δI)⁻¹ r‖ (1 + λ/gap), r the residual: the sine of the angle to the eigenvector, to first order."""
    gaps: Array
    """(m,) to the nearest other eigenvalue (0 of the constant vector is one)."""
    norm: float
    """A bound of ‖AᵀA‖, the largest sum of |entries| of a row."""
    band: int
    steps: int
    converged: bool
    free: int
    """How many eigenvalues, of the m and some more, are 0 but for rounding."""


class BandedInverse:
    """(G + δI)⁻¹ of a sparse symmetric positive semidefinite matrix G, by a Cholesky factor in its band."""

    def __init__(self, gram: Any, most_bytes: int = MOST_BYTES) -> None:
        self.order = reverse_cuthill_mckee(gram, symmetric_mode=True)
        self.norm = float(abs(gram).sum(axis=1).max())
        entries = gram[self.order][:, self.order].tocoo()
        row, column = entries.coords
        self.band = int(np.max(row - column, initial=0))
        n = gram.shape[0]
        if (bytes_ := 8 * n * (self.band + 1)) > most_bytes:
            raise PlanError(
                f"the eigenvectors of {n} rows need a factor of {bytes_ >> 20} MiB in one process (each row is tied to "
                f"{self.band} others in order), and at most {most_bytes >> 20} MiB are allowed. Use "
                "solver='landmarks', or fewer n_neighbors"
            )
        low, shift = row >= column, _SHIFT * (self.norm or 1.0)
        while True:
            banded = np.zeros((self.band + 1, n))
            banded[(row - column)[low], column[low]] = entries.data[low]
            banded[0] += shift
            try:
                self.factor = linalg.cholesky_banded(banded, overwrite_ab=True, lower=True, check_finite=False)
                break
            except linalg.LinAlgError:
                shift *= _RISE
        self.shift = shift

    def __call__(self, vectors: Array) -> Array:
        """(G + δI)⁻¹ V, V (n, p)."""
        out = np.empty_like(vectors)
        out[self.order] = linalg.cho_solve_banded((self.factor, True), vectors[self.order], check_finite=False)
        return out


def smallest_pairs(conditions: Any, m: int, most_bytes: int = MOST_BYTES, null: Array | None = None) -> SmallestPairs:
    """The m < n smallest eigenpairs of AᵀA, A (N, n) sparse with A1 = 0, except the constant vector.

    Where A has another vector with Az = 0 that is to be left out instead, it is given as ``null`` (n,), of length one.
    LOBPCG (Knyazev 2001) with (AᵀA + δI)⁻¹ as the preconditioner, from a fixed random block. The same bytes for the
    same matrix. PlanError where the factor exceeds ``most_bytes``; 8 n² bytes suffice for any matrix.

    >>> from scipy import sparse
    >>> steps = sparse.csr_array(np.diff(np.eye(4), axis=0))
    >>> smallest_pairs(steps, 2).values.round(6).tolist()
    [0.585786, 2.0]
    """
    n = conditions.shape[1]
    transposed = conditions.T.tocsr()
    inverse = BandedInverse((transposed @ conditions).tocsr(), most_bytes)
    width = min(n - 1, m + GUARDS)
    block = np.random.default_rng(0).standard_normal((n, width))
    vectors, values = _ritz(conditions, inverse(_orthonormal(block, None, null)), width, null)
    zero = np.finfo(np.float64).eps * inverse.norm
    moved, least, stuck, steps = np.zeros((n, 0)), np.inf, 0, 0
    while True:
        rest = transposed @ (conditions @ vectors) - vectors * values
        step = inverse(rest)
        step -= vectors @ (vectors.T @ step)
        gaps = gaps_of(values[:m], np.append(0.0, values[m:]))
        turns = np.linalg.norm(step[:, :m], axis=0) * (1 + values[:m] / np.maximum(gaps, np.finfo(np.float64).tiny))
        worst = float(np.minimum(turns, 1.0).max())
        stuck = 0 if worst < least / 2 else stuck + 1
        least = min(least, worst)
        if worst <= TOL or stuck > PATIENCE or steps == STEPS:
            break
        steps += 1
        before = vectors
        vectors, values = _ritz(conditions, np.concatenate([vectors, step, moved], axis=1), width, null)
        moved = vectors - before @ (before.T @ vectors)
    signs, residuals = extremes(vectors[:, :m])[1], np.linalg.norm(rest[:, :m], axis=0)
    return SmallestPairs(
        values[:m],
        vectors[:, :m] * signs,
        residuals,
        turns,
        gaps,
        inverse.norm,
        inverse.band,
        steps,
        bool(((np.linalg.norm(step[:, :m], axis=0) <= ENOUGH) | (values[:m] <= zero)).all()),
        int((values <= ZERO * inverse.norm).sum()),
    )


def _ritz(conditions: Any, basis: Array, width: int, null: Array | None) -> tuple[Array, Array]:
    """The ``width`` smallest Ritz pairs of AᵀA in the span of a basis, by singular values of A on it."""
    basis = _orthonormal(basis, 1e-10, null)
    triangle = linalg.qr(conditions @ basis, mode="r", check_finite=False)[0][: basis.shape[1]]
    _, singular, turn = linalg.svd(triangle, check_finite=False)
    return basis @ turn[::-1][:width].T, singular[::-1][:width] ** 2


def _orthonormal(block: Array, least: float | None, null: Array | None) -> Array:
    """An orthonormal basis of the columns scaled to length one, without the constant vector, or ``null``; those are
    left out whose part outside the others is below ``least``."""
    for _ in range(2):
        block = block - (block.mean(axis=0) if null is None else np.outer(null, null @ block))
        length = np.linalg.norm(block, axis=0)
        block = block[:, length > 0] / length[length > 0]
        block, triangle, _ = linalg.qr(block, mode="economic", pivoting=True, check_finite=False)
        if least is not None:
            block = block[:, np.abs(np.diag(triangle)) > least]
    return block
