"""Kernel, dimension and α chosen together, so that the walk tends to an operator that can be named.

Rows x_i drawn with a density p from a manifold of dimension d, W = K/(q_i q_j)^α: a walk with one step length ε tends
to the operator Δ + c ∇log p · ∇ with c = 2 − 2α (Coifman & Lafon 2006). A kernel whose scale is the distance
ρ ∝ p^{−1/d} to the k-th neighbor is the variable bandwidth of Berry & Harlim (2016) with β = −1/d: with q = K1/ρ^d,

    (P f − f)/(ε ρ²/4) → Δf + c ∇log p · ∇f,      c = 1 − 2/d − 2α,

so α = (1 − 2/d − c)/2. The division by ρ² makes a step last the longer the longer it is. It is a walk again: with
M = diag((d_i − W_ii) ρ_i²/ρ_min²), the walk P′ = M^{−1}(W − D + M) stays at row i for most of the time where ρ_i is
large. W′ = W − D + M is symmetric and nonnegative with row sums M, so all that is said of a walk holds of it, and

    μ_l = 4 (1 − λ_l)/(ε′ ρ_min²)

are eigenvalues of −(Δ + c ∇log p · ∇) in inverse squared units of the rows. ε′ is ε times :func:`cut_moment`: on a
graph of neighbors the kernel ends at the k-th of them. What few neighbors leave is a common factor: with k = 15 and
random rows 1–10 % for Laplace–Beltrami, and the more the larger |α| is, since q scatters (on a curve, c = 1 and 2: 10
to 40 %; 8 % at k = 120); on regular rows some 20 %, 3 % at k = 200. Ratios of eigenvalues are right to 2 % for
Laplace–Beltrami at k = 15, with drift on a curve to 8 and 11 %, elsewhere to 6 %.

Without a target the walk of a local kernel is not held back. Its limit, ρ²(Δ + (1 − 2/d) ∇log p · ∇), is the
Laplace–Beltrami operator of the metric p^{2/d} g, in which the rows have the same density everywhere (Berry & Sauer
2019); α then only evens out how many edges a row has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

TINY = float(np.finfo(np.float64).tiny)
DRIFT = {"laplace-beltrami": 0.0, "fokker-planck": 1.0, "random-walk": 2.0}
"""c of each target: the geometry alone; Langevin motion in the potential −log p; the plain walk on the rows."""


@dataclass(frozen=True)
class Walk:
    """A walk with a known limit, of scales ρ or (``unit`` 0) of one scale."""

    alpha: float
    dimension: float
    unit: float
    """ρ_min²: steps last ρ²/ρ_min²."""

    def density(self, mass: Array, rho: Array) -> Array:
        """q from K1: over ρ^d where the scale is that of the rows."""
        return mass * (rho / np.sqrt(self.unit)) ** -self.dimension if self.unit else mass

    def held(self, moving: Array, rho: Array) -> Array:
        """W′_ii from Σ_{j≠i} W_ij: what keeps the walk at row i until a step of its length is due."""
        return moving * (rho**2 / self.unit - 1.0) if self.unit else moving * 0.0


@dataclass(frozen=True)
class Target:
    """The operator that is wanted, and the dimension of the rows if it is known."""

    name: str
    dimension: float | str = "auto"

    def walk(self, local: bool, estimated: float, smallest: float) -> Walk:
        """α and the unit of time, from the dimension and the smallest scale of a row."""
        drift = DRIFT[self.name]
        d = estimated if isinstance(self.dimension, str) else float(self.dimension)
        if not local:
            return Walk((2.0 - drift) / 2.0, d, 0.0)
        if not d > 0:
            raise InputError(
                f"target={self.name!r} needs the intrinsic dimension of the rows, which the distances to their "
                "neighbors do not determine it (too many are equal, or k is 1). Give dimension as a number"
            )
        return Walk((1.0 - 2.0 / d - drift) / 2.0, d, smallest**2)


def cut_moment(dimension: float, reach: float) -> float:
    """What ending a Gaussian kernel exp(−r²/ε) at r² = reach·ε leaves of its second moment over its mass.

    (2/d) γ(d/2 + 1, u)/γ(d/2, u) with u = reach, in d dimensions: 1 where the kernel is whole, and 2u/(d + 2) for
    small u.

    >>> cut_moment(2.0, np.inf), round(cut_moment(1.0, 1.0), 3), cut_moment(998.0, 0.5)
    (1.0, 0.507, 0.001)
    """
    half = dimension / 2
    mass = gammainc(half, reach)
    return float(gammainc(half + 1, reach) / mass if mass > TINY else reach / (half + 1))
