"""Kernels as functions of two blocks of rows, Gaussian weights of the edges of a graph, and kernels chosen for a
target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import getsource
from typing import Any

import numpy as np
from scipy.special import gammainc

from bigembed.distance import of_blocks
from bigembed.errors import InputError, meant
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import BlockFunction, function_of, reference
from bigembed.store.matrix import CSRBlock, mean_squares, products

# ------------------------------------------------------------------------------------------------------- functions
# Kernels as functions of two blocks of rows: the usual ones by name, or the user's block function.
#
# A block function is ``function(a, b) -> (len(a), len(b))``, symmetric: k(x, y) = k(y, x). So that a job file can
# name it and a saved model can find it again, a function in an importable module may be written as the text
# ``"module:name"``.

KERNELS = ("rbf", "poly", "sigmoid", "cosine", "linear")
TILE = 256
"""Rows of a call in :func:`in_tiles`. A matrix product rounds by its shape, so every call has this one."""
NAMED = 10


@dataclass(frozen=True)
class Kernel:
    """k(x, y): with z = γ x·y + c, "linear" x·y, "poly" z^degree, "sigmoid" tanh z, "cosine" x·y/(‖x‖‖y‖), "rbf"
    exp(−γ‖x − y‖²); or a block function. Picklable if its function is.
    """

    name: str | BlockFunction
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 1.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of a block function."""

    @property
    def own(self) -> bool:
        """Whether it is a user's function."""
        return not isinstance(self.name, str) or ":" in self.name

    @property
    def text(self) -> str:
        """The name that errors, stage keys and saved models give."""
        return self.name if isinstance(self.name, str) else reference(self.name)

    def key(self) -> dict[str, Any]:
        """What the values depend on, for the key of a stage: of a function its text too, where it can be had."""
        if not self.own:
            return {"kernel": self.name, "gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        given = {name: np.asarray(value).tolist() for name, value in sorted(self.parameters.items())}
        found: dict[str, Any] = {"kernel": self.text, "kernel_params": given}
        with suppress(OSError, TypeError):
            found["source"] = getsource(self._function)
        return found

    def __call__(self, rows: Any, others: Any) -> Array:
        """k of all pairs, (len(rows), len(others)) float64; not checked to be finite.

        Raises InputError where a block function returns another shape or no real numbers.

        >>> Kernel("poly", gamma=1.0, degree=2, coef0=1.0)([[1.0, 2.0]], [[3.0, 4.0], [0.0, 0.0]]).tolist()
        [[144.0, 1.0]]
        """
        a, b = np.asarray(rows, np.float64), np.asarray(others, np.float64)
        if self.own:
            function = partial(self._function, **self.parameters)
            return of_blocks(function, np.asarray(rows), np.asarray(others), f"kernel={self.text}", "numbers")
        with np.errstate(all="ignore"):
            if self.name == "rbf":
                return np.asarray(np.exp(-self.gamma * squared_distances(a, b)))
            if self.name == "cosine":
                a, b = _unit(a), _unit(b)
            product = a @ b.T
            if self.name in ("poly", "sigmoid"):
                product *= self.gamma
                product += self.coef0
                product = product**self.degree if self.name == "poly" else np.tanh(product, out=product)
            return np.asarray(product)

    @property
    def _function(self) -> BlockFunction:
        return function_of(self.name, "kernel") if isinstance(self.name, str) else self.name


def checked_kernel(name: Any, parameters: Mapping[str, Any] | None = None, **numbers: float) -> Kernel:
    """The kernel of a name or of a block function; InputError for an unknown name, with the nearest known one."""
    if isinstance(name, str) and ":" in name:
        function_of(name, "kernel")
    elif not callable(name) and name not in KERNELS:
        raise InputError(
            f"kernel={name!r}{meant(name, KERNELS)}; allowed: {', '.join(KERNELS)}, a function of two blocks of rows, "
            'or "module:name" of one'
        )
    return Kernel(name, **numbers, parameters=dict(parameters or {}))


def squared_distances(a: Array, b: Array) -> Array:
    """‖x − y‖² of all pairs by one matrix product, from the mean of ``b``; never negative."""
    center = b.mean(axis=0)
    a, b = a - center, b - center
    squared = a @ b.T
    squared *= -2.0
    squared += np.einsum("ij,ij->i", b, b)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def in_tiles(function: Callable[[Any], Array], rows: Any, width: int) -> Array:
    """``function`` of 256 rows at a time, (256, d) → (256, width): each row the same whatever rows stand beside it.

    The last tile is filled up with its own first row.
    """
    out = np.empty((len(rows), width))
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        whole = part if len(part) == TILE else np.concatenate([part, np.repeat(part[:1], TILE - len(part), axis=0)])
        out[start : start + TILE] = function(whole)[: len(part)]
    return out


def wrong_values(values: Array, first_row: int = 0) -> list[tuple[int, int]]:
    """Row and column of the first entries that are NaN or infinite.

    >>> wrong_values(np.array([[1.0, np.nan]]), first_row=7)
    [(7, 1)]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return []
    row, column = np.nonzero(~np.isfinite(values))
    return [(int(i) + first_row, int(j)) for i, j in zip(row[:NAMED], column[:NAMED], strict=True)]


def refuse_values(text: str, found: list[tuple[int, int]], against: str = "row") -> None:
    """InputError where :func:`wrong_values` found some."""
    if found:
        shown = ", ".join(f"row {i} with {against} {j}" for i, j in found[:NAMED])
        raise InputError(
            f"kernel={text}: gives NaN or infinity, first for {shown}. A kernel is finite for every pair of rows; "
            "scale the columns, or mend the function"
        )


def _unit(rows: Array) -> Array:
    """Rows of length one; zero rows stay zero."""
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.where(length > 0, length, 1.0)[:, None])


# -------------------------------------------------------------------------------------------------------- gaussian
# Gaussian weights of the edges of one block: one scale for all rows, or scales that follow their density.

LOCAL = ("adaptive", "self-tuned")
"""Kernels whose scale is that of the two rows, and not one number."""
BINARY = "binary"
"""Weight 1 for every edge: the heat kernel after infinite time (seed 000 §9.3)."""
NARROW = 0.5
"""ε of the adaptive kernel: standard deviation ρ/2 (Haghverdi et al. 2016), e⁻² at the k-th neighbor of like rows.

Measured in ``benchmarks/default_maps.py --scales`` against other ε, scales and α.
"""
TRUNCATED = 4.5
"""Squared distance over ε at which a truncated kernel ends: (3√(ε/2))² (seed 000 §9.6, step 1)."""


def gaussian_block(squared: Array, epsilon: float, *, truncated: bool = False, least: float = 0.0) -> Array:
    """k = exp(−r²/ε) (seed 000 §9.2); with ``truncated`` zero where r ≥ 3√(ε/2) (seed 000 §9.6, step 1).

    ``least``: no weight is smaller.

    >>> gaussian_block(np.array([0.0, 1.0]), 1.0).round(3).tolist()
    [1.0, 0.368]
    """
    weights = np.divide(squared, -epsilon, dtype=np.float64)
    np.exp(weights, out=weights)
    if least:
        np.maximum(weights, least, out=weights)
    return np.where(squared < TRUNCATED * epsilon, weights, 0.0) if truncated else weights


def local_squared(squared: Array, rho: Array, other: Array, kernel: str) -> Array:
    """Squared distances in units of the scales ρ of their two rows, to be divided by ε.

    "self-tuned" (Zelnik-Manor & Perona; Cheng & Wu): r²/(ρ_i ρ_j). "adaptive": r²/((ρ_i² + ρ_j²)/2), the denominator
    that Haghverdi et al. 2016 take for single cells. With ρ the distance to the k-th neighbor an edge has
    r ≤ max(ρ_i, ρ_j), so what is divided is at most 2 and the adaptive kernel at least e^(−2/ε) on every edge, e⁻⁴ with
    :data:`NARROW`: no row is cut off, however far it lies.
    Where ρ varies smoothly the two have the same limit.

    >>> local_squared(np.array([4.0]), np.array([1.0]), np.array([7.0]), "adaptive").tolist()
    [0.16]
    """
    scale = rho * other if kernel == "self-tuned" else (rho**2 + other**2) / 2
    return np.asarray(squared.astype(np.float64) / scale)


def local_squared_block(block: CSRBlock, rho: Array, halo_rho: Array, kernel: str) -> Array:
    """:func:`local_squared` of the edges of a block: ``rho`` (rows,), and that of the halo rows."""
    scale = (products if kernel == "self-tuned" else mean_squares)(block, rho, halo_rho)
    return np.divide(block.data, scale, out=scale)


# ---------------------------------------------------------------------------------------------------------- target
# Kernel, dimension and α chosen together, so that the walk tends to an operator that can be named.
#
# Rows x_i drawn with a density p from a manifold of dimension d, W = K/(q_i q_j)^α: a walk with one step length ε
# tends to the operator Δ + c ∇log p · ∇ with c = 2 − 2α (Coifman & Lafon 2006). A kernel whose scale is the distance
# ρ ∝ p^{−1/d} to the k-th neighbor is the variable bandwidth of Berry & Harlim (2016) with β = −1/d: with q = K1/ρ^d,
#
#     (P f − f)/(ε ρ²/4) → Δf + c ∇log p · ∇f,      c = 1 − 2/d − 2α,
#
# so α = (1 − 2/d − c)/2. The division by ρ² makes a step last the longer the longer it is. It is a walk again: with M
# = diag((d_i − W_ii) ρ_i²/ρ_min²), the walk P′ = M^{−1}(W − D + M) stays at row i for most of the time where ρ_i is
# large. W′ = W − D + M is symmetric and nonnegative with row sums M, so all that is said of a walk holds of it, and
#
#     μ_l = 4 (1 − λ_l)/(ε′ ρ_min²)
#
# are eigenvalues of −(Δ + c ∇log p · ∇) in inverse squared units of the rows. ε′ is ε times :func:`cut_moment`: on a
# graph of neighbors the kernel ends at the k-th of them. What few neighbors leave is a common factor: with k = 15 and
# random rows 1–10 % for Laplace–Beltrami, and the more the larger |α| is, since q scatters (on a curve, c = 1 and 2:
# 10 to 40 %; 8 % at k = 120); on regular rows some 20 %, 3 % at k = 200. Ratios of eigenvalues are right to 2 % for
# Laplace–Beltrami at k = 15, with drift on a curve to 8 and 11 %, elsewhere to 6 %.
#
# Without a target the walk of a local kernel is not held back. Its limit, ρ²(Δ + (1 − 2/d) ∇log p · ∇), is the
# Laplace–Beltrami operator of the metric p^{2/d} g, in which the rows have the same density everywhere (Berry & Sauer
# 2019); α then only evens out how many edges a row has.

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

    def stay_share(self, moving: Array, rho: Array) -> Array:
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
