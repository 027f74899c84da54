"""Which eigenvectors are determined: residual against gap, groups of close eigenvalues, eigenvalues that are 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array

CLOSE = 10.0
"""A gap of at most ten residuals: the vectors may be turned by sin θ ≥ .1, some six degrees."""
WEIGHT_ROUNDING = 2.0**-24
"""Relative rounding of float32 weights."""
ROUNDING = 1e-14
NEAR = 1e-7


@dataclass(frozen=True)
class Separation:
    """How far each of m eigenvectors is determined by what was computed."""

    gap: Array
    """(m,) distance to the nearest other eigenvalue."""
    sin: Array
    """(m,) bound on the sine of the angle between the vector and the true one, at most 1."""
    group_gap: Array
    """(m,) distance of its group to the nearest eigenvalue outside; 0 where the group goes on beyond the last."""
    group_sin: Array
    """(m,) bound on the sine of the largest angle between the span of its group and the true one, at most 1."""
    groups: tuple[tuple[int, int], ...]
    """First and last (counted from 0) of the coordinates that may be rotated among each other."""
    cut: bool
    """The last coordinate cannot be distinguished from the first one left out: ask for one coordinate more or fewer."""


def separation(eigenvalues: Array, residuals: Array, left_out: float | None = None) -> Separation:
    """sin θ ≤ residual / gap of single vectors and of groups (Davis & Kahan 1970).

    ``eigenvalues`` (m,) descending with ``residuals`` ‖Sv − λv‖, and the largest one ``left_out`` (None if there is no
    other). The residual counts as at least 2⁻²⁴ (1 − λ): rounding the weights to float32 changes the Dirichlet form
    Σ w_ij (f_i − f_j)² by this share, so not even an exact solve separates closer eigenvalues. Neighbors whose gap
    is at most ten residuals form a group, in which the basis is one of many; its span has its own gap and bound,
    (Σ r²)^½ / gap. The trivial eigenvalue 1 is known exactly and no neighbor. Cost: O(m).

    >>> separation(np.array([0.9, 0.5, 0.5]), np.full(3, 1e-8), 0.2).groups
    ((1, 2),)
    """
    values, m = np.asarray(eigenvalues, np.float64), len(eigenvalues)
    error = np.maximum(np.asarray(residuals, np.float64), np.maximum(WEIGHT_ROUNDING * np.abs(1 - values), ROUNDING))
    outer = -np.inf if left_out is None else float(left_out)
    below = np.abs(values - np.append(values[1:], outer))
    above = np.append(np.inf, below[:-1])
    larger = np.maximum(error, np.append(error[1:], 0.0))
    joined = below <= CLOSE * larger
    group_gap, group_sin, groups = np.zeros(m), np.ones(m), []
    first = 0
    for last in range(m):
        if joined[last] and last < m - 1:
            continue
        members = slice(first, last + 1)
        group_gap[members] = min(above[first], 0.0 if joined[last] else below[last])
        group_sin[members] = _bound(np.linalg.norm(error[members]), group_gap[first])
        if last > first:
            groups.append((first, last))
        first = last + 1
    gap = np.minimum(above, below)
    sin = np.array([_bound(e, g) for e, g in zip(error, gap, strict=True)])
    return Separation(gap, sin, group_gap, group_sin, tuple(groups), bool(m and joined[-1]))


def _bound(error: float | np.floating, gap: float | np.floating) -> float:
    return float(error / gap) if gap > error else 1.0


def near_one(eigenvalues: Array, residuals: Array, tol: float, n: int) -> Array:
    """Which eigenvalues (m,) are 1 as far as the graph of n rows and the solve can show: near components.

    1 − λ ≤ max(min(r, tol), min(1e-7, n⁻²), 1e-14): the residual reaches 1; or the walk crosses more slowly than a
    path of n rows joined by weights of 1 (1 − λ ≈ π²/2n²), so that near-zero weights hold it up, not length; or
    rounding hides the difference. A residual above ``tol`` is that of an unfinished solve and shows nothing.

    >>> near_one(np.array([1 - 2e-13, 0.999]), np.array([1e-12, 1e-8]), 1e-6, 20_000).tolist()
    [True, False]
    """
    reach = np.minimum(np.asarray(residuals, np.float64), tol)
    return np.asarray(1 - np.asarray(eigenvalues) <= np.maximum(reach, max(min(NEAR, float(n) ** -2), ROUNDING)))
