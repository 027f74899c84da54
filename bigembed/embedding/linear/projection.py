"""Rows projected on directions that lie in a store: (x − m)·v_l."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array
from bigembed.store.arrays import read_array


@dataclass(frozen=True)
class Projection:
    """Where a task finds the map of the rows."""

    mean: str
    solve: str
    whiten: bool


def project(rows: Any, model: Projection) -> Array:
    """(x − m)·v_l, over the standard deviation if whitened (0 where there is no variance)."""
    matrix = read_array(f"{model.solve}/components").T
    if model.whiten:
        variance = read_array(f"{model.solve}/variance")
        matrix = matrix * np.where(variance > 0, 1 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    return affine_block(rows, read_array(model.mean), matrix)
