"""The largest eigenpairs of a matrix in memory, from the Krylov space of a random block.

    K = span(X, AX, A²X, …),      X random with at least as many columns as eigenpairs are asked for,

by full orthogonalization and without restarts (Golub & Underwood's block Lanczos). With probability one the space holds
as many copies of a multiple eigenvalue as X has columns, so that no wanted copy is missed. A reduction to tridiagonal
form costs 4/3 n³ operations whatever the spectrum is like; this takes 2 n² for each column of a space that has some
hundred, and next to nothing for a sparse matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse

from bigembed.blocks.rows import Array

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
