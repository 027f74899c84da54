"""Nonnegative least squares, row by row, from products alone.

    min_{w ≥ 0} ‖x − w H‖²  has gradient  w G − c,  G = H Hᵀ,  c = H x,

so a row needs its m products c, and never x again. Cyclic coordinate descent, each coordinate set to its exact
minimum (hierarchical alternating least squares: Cichocki & Phan 2009; Gillis & Glineur 2012): the objective
never rises. A row's result depends on its c alone.
"""

from __future__ import annotations

import numpy as np

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
    from bigembed.linalg.nonnegative_compiled import descend  # imports numba: only here

    cross = np.ascontiguousarray(cross, np.float64)
    out = np.zeros_like(cross) if start is None else np.array(start, np.float64)
    descend(cross, np.ascontiguousarray(gram, np.float64), out, sweeps, tol)
    return out
