"""Affine maps of rows: (x − m) A, each row the same to the last bit whatever rows stand beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, is_sparse

TILE = 256
"""Rows of a product. A matrix product rounds by its shape, so every product has this one, padded with zeros."""
COLUMNS = 16
"""Columns are padded to a multiple of this, so that all go through the same kernel."""


def affine_block(rows: Any, mean: Array, matrix: Array) -> Array:
    """(x − m) A for dense or CSR rows (n, d), m (d,), A (d, k), in float64; CSR rows by x A − m A.

    >>> affine_block(np.array([[1.0, 2.0]]), np.array([1.0, 0.0]), np.array([[3.0], [5.0]])).tolist()
    [[10.0]]
    """
    if is_sparse(rows):
        return np.asarray(rows.astype(np.float64) @ matrix - mean @ matrix)
    n, d = rows.shape
    k = matrix.shape[1]
    padded = np.zeros((d, -(-k // COLUMNS) * COLUMNS))
    padded[:, :k] = matrix
    out = np.empty((n, k))
    tile, product = np.zeros((TILE, d)), np.empty((TILE, padded.shape[1]))
    for start in range(0, n, TILE):
        part = rows[start : start + TILE]
        tile[: len(part)] = part
        tile[: len(part)] -= mean
        tile[len(part) :] = 0.0
        np.matmul(tile, padded, out=product)
        out[start : start + TILE] = product[: len(part), :k]
    return out


@dataclass(frozen=True)
class Affine:
    """y = (φ − mean) A + b of features φ of a row: the row itself, its squared distances, its kernel values."""

    mean: Array | None
    """(d,); None for zero."""
    matrix: Array
    """A (d, m)."""
    offset: Array | None = None
    """b (m,); None for zero."""

    def __call__(self, features: Any) -> Array:
        """Coordinates (n, m) of features (n, d), each row the same whatever the batch."""
        mean = np.zeros(len(self.matrix)) if self.mean is None else self.mean
        linear = affine_block(features, mean, self.matrix)
        return linear if self.offset is None else np.asarray(linear + self.offset)

    def then(self, matrix: Array, offset: Array) -> Affine:
        """The map followed by y ↦ y matrix + offset."""
        moved = offset if self.offset is None else self.offset @ matrix + offset
        return Affine(self.mean, self.matrix @ matrix, moved)
