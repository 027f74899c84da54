"""Nonnegative least squares, row by row, from products alone.

    min_{w ≥ 0} ‖x − w H‖²  has gradient  w G − c,  G = H Hᵀ,  c = H x,

so a row needs its m products c, and never x again. Cyclic coordinate descent, each coordinate set to its exact
minimum (hierarchical alternating least squares: Cichocki & Phan 2009; Gillis & Glineur 2012): the objective
never rises. A row's result depends on its c alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array

SWEEPS = 10_000
EXACT = 1e-12


def nonnegative_rows(
    cross: Array, gram: Array, start: Array | None = None, sweeps: int = SWEEPS, tol: float = EXACT
) -> Array:
    """w ≥ 0 for each row of ``cross`` (n, m), c_i; G (m, m) symmetric, positive semidefinite.

    From ``start`` (zeros where None), until no coordinate of a row moves by more than ``tol`` of the row's largest one
    (in units of √G_jj), at most ``sweeps`` times over all coordinates. A coordinate with G_jj = 0 is 0.
    Cost 2 m² a row and sweep.

    >>> nonnegative_rows(np.array([[2.0, -1.0]]), np.eye(2)).tolist()
    [[2.0, 0.0]]
    """
    cross = np.ascontiguousarray(cross, np.float64)
    out = np.zeros_like(cross) if start is None else np.array(start, np.float64)
    _descend(cross, np.ascontiguousarray(gram, np.float64), out, sweeps, tol)
    return out


@njit(cache=True, nogil=True)
def _descend(cross: Array, gram: Array, out: Array, sweeps: int, tol: float) -> None:  # pragma: no cover - compiled
    n, m = out.shape
    unit = np.sqrt(np.maximum(np.diag(gram), 0.0))
    slope = np.empty(m)
    for i in range(n):
        w = out[i]
        for j in range(m):
            if unit[j] == 0.0:
                w[j] = 0.0
        for j in range(m):
            total = -cross[i, j]
            for k in range(m):
                total += gram[j, k] * w[k]
            slope[j] = total
        for _ in range(sweeps):
            moved, largest = 0.0, 0.0
            for j in range(m):
                if unit[j] == 0.0:
                    continue
                fresh = max(0.0, w[j] - slope[j] / gram[j, j])
                step = fresh - w[j]
                if step != 0.0:
                    w[j] = fresh
                    for k in range(m):
                        slope[k] += step * gram[j, k]
                    moved = max(moved, abs(step) * unit[j])
                largest = max(largest, w[j] * unit[j])
            if moved <= tol * largest:
                break
