"""The compiled descent of nonnegative least squares. Importing this imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigembed.runtime.blocks import Array


@njit(cache=True, nogil=True)
def descend(cross: Array, gram: Array, out: Array, sweeps: int, tol: float) -> None:  # pragma: no cover - compiled
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
