"""What LOBPCG does on one block of rows: the mathematics of :mod:`bigembed.eigen.lobpcg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.eigen.aggregate import as_sparse
from bigembed.eigen.base import extremes

TILE = 2_048
"""Rows of a tile of the update."""


def active_block(block: int, scale: Array) -> tuple[tuple[()], int]:
    """Rows of the solved component."""
    return (), int(np.count_nonzero(scale))


def start_block(
    block: int, scale: Array, label: Array, basis: Array, modes: Array, *rest: Any
) -> tuple[tuple[Array, Array], None]:
    """X₀ = P · coarse eigenvectors and some noise, filled up with random columns; a posted copy of the known vectors.

    Without noise a coarse space that shares a symmetry of the graph could leave copies of an eigenvalue out for good.
    """
    *known, width, seed, noise = rest
    x = np.random.default_rng([seed, block]).standard_normal((len(scale), width)) * (scale != 0)
    x[:, : modes.shape[1]] *= noise
    x[:, : modes.shape[1]] += _prolonged(label, basis, modes)
    return (x, known[0] if known else np.zeros((len(scale), 0))), None


def first_block(
    block: int, x: Array, t: Array, ax: Array, at: Array, label: Array, basis: Array
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    """Restricted [X, SX] and T; XᵀX, XᵀSX, TᵀX, TᵀST, and ‖St − θt‖² with the θ of this block."""
    theta = t.T @ at
    sums = (x.T @ x, x.T @ ax, t.T @ x, theta, _error(t, at))
    return (_restricted(label, basis, x, ax), _restricted(label, basis, t)), sums


def _error(t: Array, at: Array) -> Array:
    """Squared deviation of At from t times its row-wise ratio's weighted mean in this block."""
    mass = np.einsum("ij,ij->j", t, t)
    theta = np.einsum("ij,ij->j", t, at) / np.where(mass > 0, mass, 1.0)
    return np.asarray(((at - t * theta) ** 2).sum(axis=0))


def restricted_block(block: int, *rest: Any) -> tuple[tuple[Array], None]:
    """PᵀR for the next X, from the restricted basis Pᵀ[B SB]: (PᵀSB) C − (PᵀB) C Λ."""
    *parts, mix, values = rest
    whole, size = np.concatenate(parts, axis=1), len(mix)
    return (whole[:, size:] @ mix - whole[:, :size] @ (mix * values),), None


def update_block(
    block: int, scale: Array, label: Array, basis: Array, diagonal: Array, t: Array, y: Array, *rest: Any
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Sweep A on one block: X, P, SX, SP by coefficients, R, W, and the Gram matrices known so far.

    PᵀX, PᵀP, … follow by the same coefficients from the restricted basis; only PᵀW is a product. Rows are
    taken in tiles, so that what lies between stays in the cache of the processor.
    """
    *arrays, mix, away, values, overlap, known, count = rest
    restricted_t, restricted, vectors = arrays[0], np.concatenate(arrays[1 : -2 * count], axis=1), arrays[-2 * count :]
    both = np.concatenate([mix, away], axis=1)
    drift = overlap @ both
    along = known[:, None] * drift
    width, columns, n = mix.shape[1], both.shape[1], len(scale)
    prolong = as_sparse(label, basis, len(y) // basis.shape[1])
    x, ax, w = np.empty((n, width)), np.empty((n, width)), np.asarray(prolong @ y)
    p, ap = np.empty((n, columns - width)), np.empty((n, columns - width))
    gram, form = np.zeros((2, columns + width, columns + width))
    overlap, squares = np.zeros((t.shape[1], columns + width)), np.zeros(width)
    for rows in (slice(start, start + TILE) for start in range(0, n, TILE)):
        base = np.concatenate([v[rows] for v in vectors[:count]], axis=1)
        image = np.concatenate([v[rows] for v in vectors[count:]], axis=1)
        axp = image @ both
        axp -= t[rows] @ along
        whole = np.empty((len(base), columns + width))
        np.subtract(base @ both, t[rows] @ drift, out=whole[:, :columns])
        residual = axp[:, :width] - whole[:, :width] * values
        w[rows] += residual / np.maximum(1 - diagonal[rows], 1e-3)
        w[rows] *= scale[rows] != 0
        whole[:, columns:] = w[rows]
        x[rows], p[rows] = whole[:, :width], whole[:, width:columns]
        ax[rows], ap[rows] = axp[:, :width], axp[:, width:]
        gram += whole.T @ whole
        form[:, :columns] += whole.T @ axp
        overlap += t[rows].T @ whole
        squares += np.einsum("ij,ij->j", residual, residual)
    form[:columns, columns:] = form[columns:, :columns].T
    # The restricted images come last, as in [B SB]: PᵀSW follows with the pass.
    size = mix.shape[0]
    coarse = (
        restricted[:, :size] @ both - restricted_t @ drift,
        prolong.T @ w,
        restricted[:, size:] @ both - restricted_t @ along,
    )
    return (x, p, w, ax, ap, np.concatenate(coarse, axis=1)), (gram, form, overlap, squares)


def product_block_grams(block: int, *rest: Any) -> tuple[tuple[Array], Array]:
    """Within the pass: BᵀSB for the vectors B that were multiplied, and the restriction of their images."""
    *vectors, count = rest
    xs, ys, (label, basis) = vectors[:count], vectors[count : 2 * count], vectors[2 * count :]
    whole, image = np.concatenate(xs, axis=1), np.concatenate(ys, axis=1)
    return (_restricted(label, basis, ys[-1]),), whole.T @ image


def certify_block(
    block: int, x: Array, ax: Array, label: Array, basis: Array, t: Array, values: Array
) -> tuple[tuple[Array], tuple[Array, ...]]:
    """Explicit residuals and the matrices to go on with."""
    residual = ax - x * values
    squares = np.einsum("ij,ij->j", residual, residual)
    return (_restricted(label, basis, x, ax),), (x.T @ x, x.T @ ax, t.T @ x, squares)


def extremes_block(block: int, x: Array) -> tuple[tuple[()], Array]:
    """Largest |entry| of each column and its sign."""
    return (), extremes(x)


def sign_block(block: int, x: Array, flips: Array) -> tuple[tuple[Array], None]:
    """Signs by the rule, ready for other blocks to read."""
    return (x * flips,), None


def final_block(block: int, x: Array, wanted: int) -> tuple[tuple[Array], Array]:
    """The wanted columns and their Gram matrix."""
    v = np.ascontiguousarray(x[:, :wanted])
    return (v,), v.T @ v


def _prolonged(label: Array, basis: Array, y: Array) -> Array:
    return np.asarray(as_sparse(label, basis, len(y) // basis.shape[1]) @ y)


def _restricted(label: Array, basis: Array, *vectors: Array) -> Array:
    prolong = as_sparse(label, basis, int(label.max(initial=-1)) + 1)
    return np.asarray(prolong.T @ np.concatenate(vectors, axis=1))
