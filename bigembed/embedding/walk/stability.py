"""Whether coordinates come again from half of the neighbors: the map of the k/2 nearest, for few rows.

What the data say does not hang on k. A coordinate that the k/2 nearest neighbors do not give is one of chance edges, or
of a bottleneck that k/2 neighbors see in another place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, eigsh

from bigembed.blocks.rows import Array
from bigembed.kernels.gaussian import local_squared
from bigembed.kernels.scale import Bandwidth, own_scales

MOST_ROWS = 2_000
"""More rows than these are not mapped a second time."""
LEAST_NEIGHBORS = 8
"""Fewer neighbors than these are not halved: the graph would fall apart by itself."""


def half_map(ids: Array, squared: Array, choice: Bandwidth, epsilon: float, floor: float, alpha: float, m: int) -> Any:
    """m right eigenvectors (n, m) on the graph of half of the neighbors, the trivial one first; None without success,
    and where the graph of half of the neighbors falls apart: its first vectors are those of the parts.

    ``ids`` and ``squared`` (n, k) are the lists of neighbors; kernel and α as of the map itself.
    """
    n, k = ids.shape
    half = k // 2
    row, column = np.repeat(np.arange(n), half), ids[:, :half].ravel()
    rho = own_scales(np.sqrt(squared[:, half - 1].astype(np.float64)), floor)
    r2 = squared[:, :half].ravel().astype(np.float64)
    scaled = local_squared(r2, rho[row], rho[column], choice.rule) if choice.local else r2
    one_way = sparse.csr_array((choice.weights(scaled, epsilon), (row, column)), shape=(n, n))
    kernel = one_way.maximum(one_way.T) + sparse.eye_array(n)
    if connected_components(kernel, directed=False)[0] > 1:
        return None
    weights = _normalized(kernel, np.asarray(kernel.sum(axis=1)) ** -alpha)
    root = 1 / np.sqrt(np.asarray(weights.sum(axis=1)))
    try:
        values, vectors = eigsh(_normalized(weights, root), m, which="LA", v0=1 / root, tol=1e-4, maxiter=20 * n // m)
    except ArpackError:
        return None
    return vectors[:, np.argsort(-values)] * root[:, None]


def shares_kept(right: Array, degree: Array, others: Array) -> Array:
    """Share of the variance of each column of ``right`` (n, m) in the span of ``others``, in the measure d; (m,).

    >>> x = np.array([[1.0], [-1.0]])
    >>> shares_kept(x, np.ones(2), 3 * x).tolist()
    [1.0]
    """
    root = np.sqrt(degree)[:, None]
    basis, _ = np.linalg.qr(others * root)
    own = right * root
    mass = np.einsum("ij,ij->j", own, own)
    inside = np.square(basis.T @ own).sum(axis=0)
    return np.asarray(np.round(np.divide(inside, mass, out=np.ones_like(mass), where=mass > 0), 12))


def _normalized(matrix: Any, scale: Array) -> Any:
    return sparse.csr_array(matrix.multiply(scale[:, None]).multiply(scale[None, :]))
