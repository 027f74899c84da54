"""Coordinates of kernel PCA: of a row by its kernel values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array, bounds, is_sparse
from bigembed.embedding.affine import AffineMap
from bigembed.kernels.functions import TILE, Kernel, in_tiles, refuse_values, wrong_values
from bigembed.store.arrays.io import read_array

COLUMNS = 2_048
"""Known rows whose kernel values a task holds at a time."""


@dataclass(frozen=True)
class ByKernel:
    """Where a task finds the rows that others are compared with, and the map of kernel values."""

    kernel: Kernel
    known: str
    map: AffineMap


def map_of(solve: str) -> AffineMap:
    """The map of kernel values that a solve left."""
    return AffineMap(f"{solve}/matrix", f"{solve}/mean")


def project_by_kernel(rows: Any, model: ByKernel) -> Array:
    """(k(x) − mean) A, k(x) the kernel of x with every known row, :data:`COLUMNS` of these at a time."""
    if is_sparse(rows):
        tiles = bounds(rows.shape[0], TILE)
        return np.concatenate([project_by_kernel(rows[start:stop].toarray(), model) for start, stop in tiles])
    coordinates: Any = 0.0
    for start, stop in bounds(len(read_array(model.map.mean)), COLUMNS):
        known, found = read_array(model.known, start, stop), model.map.read(start, stop)
        product = partial(_product, kernel=model.kernel, known=known, found=found)
        coordinates = coordinates + in_tiles(product, rows, found.matrix.shape[1])
    return np.asarray(coordinates)


def _product(tile: Any, kernel: Kernel, known: Array, found: Affine) -> Array:
    values = kernel(tile, known)
    refuse_values(kernel.text, wrong_values(values), "landmark")
    return np.asarray((values - found.mean) @ found.matrix)
