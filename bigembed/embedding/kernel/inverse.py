"""From coordinates of kernel PCA back to rows, learned by kernel ridge regression (Bakır, Weston & Schölkopf 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, PlanError
from bigembed.kernels.functions import Kernel, in_tiles
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array

MOST_ROWS = 8_192
"""Rows (of the exact solver all, else the landmarks) up to which the regression is solved: 512 MiB."""


@dataclass(frozen=True)
class KernelInverse:
    """x(y) = k(y, Z) B: Z (L, m) the coordinates of known rows, B (L, d) what (k(Z, Z) + α I) B = X gives."""

    kernel: Kernel
    known: Array
    dual: Array

    def __call__(self, coordinates: Any) -> Array:
        """Rows (k, d) of coordinates (k, m)."""
        return in_tiles(
            lambda part: np.asarray(self.kernel(part, self.known) @ self.dual), coordinates, self.dual.shape[1]
        )


def inverse_stage(kernel: Kernel, alpha: float, landmarks: int, d: int, m: int, project: Any) -> Stage:
    """``inverse/known`` (L, m) and ``inverse/dual`` (L, d). ``project(rows, context)``: coordinates of known rows."""
    if landmarks > MOST_ROWS:
        raise PlanError(
            f"fit_inverse_transform solves a dense system of all rows that are compared with, at most {MOST_ROWS}; "
            f"there are {landmarks}. Use solver='nystrom' with fewer landmarks"
        )

    def run(context: Context) -> dict[str, Any]:
        rows = np.asarray(read_array(context.of("landmarks", "rows")), np.float64)
        known = project(rows, context)
        system = kernel(known, known)
        system.flat[:: len(system) + 1] += alpha
        try:
            dual = linalg.solve(system, rows, assume_a="pos", overwrite_a=True)
        except linalg.LinAlgError as error:
            raise InputError(
                f"kernel={kernel.text}, alpha={alpha}: the kernel of the coordinates is not positive; raise alpha"
            ) from error
        write_array(context.path("known"), known)
        write_array(context.path("dual"), dual)
        return {"alpha": alpha}

    size = 8 * landmarks * (m + d)
    cost = Cost(
        disk=size, coordinator=16 * landmarks**2 + 3 * size, serial_flops=landmarks**3 / 3 + 2 * landmarks**2 * d
    )
    return Stage("inverse", ("landmarks", "solve"), {**kernel.key(), "alpha": alpha}, run, cost)
