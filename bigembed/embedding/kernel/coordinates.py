"""Coordinates of kernel PCA: of any row by its kernel values, of the rows of the exact solver by its eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array, block_rows, bounds, map_blocks
from bigembed.embedding.affine import AffineMap
from bigembed.kernels.functions import Kernel, in_tiles, refuse_values, wrong_values
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, write_rows

COLUMNS = 2_048
"""Known rows whose kernel values a task holds at a time."""


# --- rows of the exact solver --------------------------------------------------------------------


def fitted_stage(n: int, m: int, dtype: Any) -> Stage:
    """``coordinates/embedding`` (n, m) = √λ V, from the eigenvectors themselves, in the precision of the rows."""

    def run(context: Context) -> dict[str, Any]:
        width, rows = context.results("solve")["n_components"], block_rows(m, 8)
        create_rows(context.path("embedding"), (n, width), dtype, rows)
        fixed = {"solve": context.of("solve"), "out": context.path("embedding"), "dtype": dtype}
        map_blocks(fitted_block, bounds(n, rows), **fixed)
        return {"n_components": width}

    size = 8 * n * m
    return Stage(
        "coordinates", ("solve",), {"dtype": str(dtype)}, run, Cost(read=size, write=size, disk=size, memory=3 * size)
    )


def fitted_block(start: int, stop: int, *, solve: str, out: str, dtype: Any) -> None:
    """√λ v = λ · (v/√λ) of some rows."""
    values = read_array(f"{solve}/eigenvalues")
    write_rows(out, start, (read_array(f"{solve}/matrix", start, stop) * values).astype(dtype))


# --- any rows ------------------------------------------------------------------------------------


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
