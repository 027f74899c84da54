"""Where a nonnegative factorization starts: H from the singular vectors of X (NNDSVD), at random, or given.

NNDSVD (Boutsidis & Gallopoulos 2008): of the pair u, v to the singular value σ either the positive or the negative
parts are kept, those with the larger product of norms ‖u±‖‖v±‖ = μ; then H_l = √(σ μ) v±/‖v±‖. The weights of rows need
no start: they are solved for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array, is_sparse
from bigembed.errors import InputError
from bigembed.store.rows.masked import unmasked
from bigembed.store.rows.passes import Parts
from bigembed.store.rows.row_blocks import RowBlock

RULES = ("nndsvd", "nndsvda", "nndsvdar", "random")
GRAM_COLUMNS = 4096
"""Columns up to which XᵀX is formed for the singular vectors."""


def total_block(block: RowBlock, gram: bool) -> Parts:
    """Σ m x, Σ m ‖x‖², the smallest entry and, with ``gram``, Σ m x xᵀ of one block."""
    rows, mass = block.rows, block.weights
    data = rows.data if is_sparse(rows) else rows
    lowest = float(data.min(initial=0.0)) if data.size else 0.0
    found: Parts = {
        "lowest": np.array(lowest),
        "weight": np.array(rows.shape[0] if mass is None else mass.sum(), float),
    }
    m = np.ones(rows.shape[0]) if mass is None else mass
    found["sum"] = np.asarray(rows.T @ m, np.float64)
    squares, second = 0.0, np.zeros((rows.shape[1],) * 2 if gram else (0, 0))
    for start in range(0, rows.shape[0], 1024):
        part = rows[start : start + 1024].astype(np.float64)
        weight = np.sqrt(m[start : start + 1024])
        part = part.multiply(weight[:, None]).tocsr() if is_sparse(part) else part * weight[:, None]
        squares += float((part.data**2).sum() if is_sparse(part) else np.vdot(part, part))
        if gram:
            product = part.T @ part
            second += product.toarray() if is_sparse(product) else product
    return found | {"squares": np.array(squares), "gram": second}


def combine_totals(left: Parts, right: Parts) -> Parts:
    """Sums, and the smaller of the smallest entries."""
    return {
        name: np.minimum(value, right[name]) if name == "lowest" else value + right[name]
        for name, value in left.items()
    }


def parts_block(block: RowBlock, vectors: Array) -> Parts:
    """Σ m max(u, 0)² and Σ m min(u, 0)² for u = X v, (2, m)."""
    u = affine_block(block.rows, np.zeros(len(vectors)), vectors)
    m = np.ones(len(u)) if block.weights is None else block.weights
    return {"masses": np.stack([m @ np.maximum(u, 0.0) ** 2, m @ np.minimum(u, 0.0) ** 2])}


def singular_vectors(gram: Array, m: int) -> tuple[Array, Array]:
    """The m leading right singular vectors (d, m) of X from XᵀX, and σ."""
    values, vectors = linalg.eigh(gram)
    leading = vectors[:, ::-1][:, :m]
    return np.ascontiguousarray(leading), np.sqrt(np.maximum(values[::-1][:m], 0.0))


def nndsvd(vectors: Array, sigma: Array, masses: Array) -> Array:
    """H (m, d) ≥ 0 from V (d, m), σ and the squared norms of the parts of X v (``masses``, (2, m))."""
    positive, negative = np.maximum(vectors, 0.0), np.maximum(-vectors, 0.0)
    long_positive, long_negative = np.linalg.norm(positive, axis=0), np.linalg.norm(negative, axis=0)
    safe = np.where(sigma > 0, sigma, 1.0)
    products = np.stack([np.sqrt(masses[0]) / safe * long_positive, np.sqrt(masses[1]) / safe * long_negative])
    up = products[0] >= products[1]
    chosen, long = np.where(up, positive, negative), np.where(up, long_positive, long_negative)
    return np.asarray((chosen * np.sqrt(sigma * products.max(axis=0)) / np.where(long > 0, long, 1.0)).T)


def filled(components: Array, rule: str, mean: float, seed: int) -> Array:
    """Zeros as they are (nndsvd), the mean of X (nndsvda), or small random numbers up to 1 % of it (nndsvdar)."""
    if rule == "nndsvd":
        return components
    if rule == "nndsvda":
        fresh: Any = mean
    else:
        fresh = np.abs(mean * np.random.default_rng(seed).standard_normal(components.shape) / 100)
    return np.where(components < 1e-12 * components.max(initial=0.0), fresh, components)


def random_start(m: int, d: int, mean: float, seed: int) -> Array:
    """√(mean/m) |N(0, 1)|, (m, d)."""
    return np.asarray(np.sqrt(mean / m) * np.abs(np.random.default_rng(seed).standard_normal((m, d))))


def given_start(start: Any, m: int, d: int) -> Array:
    """The user's H, checked."""
    start = unmasked(start, what="init: starting components")
    try:
        given = np.asarray(start, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"init={start!r}; allowed: a name, or an array of numbers (n_components, d)") from error
    if given.shape != (m, d) or not np.isfinite(given).all() or (given < 0).any() or not given.any(axis=1).all():
        raise InputError(
            f"init: an array of starting components must be finite, nonnegative, of shape {(m, d)} and without empty "
            f"rows; got shape {given.shape}"
        )
    return given
