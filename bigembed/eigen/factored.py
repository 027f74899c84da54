"""Eigenpairs of Z M Zᵀ with few columns, from the small Gram matrix G = ZᵀZ alone.

    G = Q g Qᵀ,  F = Q √g,  T = Fᵀ M F = Y Λ Yᵀ,  B = Q g^{−1/2} Y:   Z M Zᵀ (Z B) = (Z B) Λ,  (Z B)ᵀ(Z B) = I.

All numbers are float64. However many pairs are wanted, the rows are read once, for G; cost O(p³) for p columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import linalg

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

DROP = 1e-12
"""Directions of G below this times the largest are rounding."""
ZERO = 1e-13
"""Eigenvalues below this times the largest are those of the null space of the operator."""
ORDERS = ("algebraic", "magnitude")


class SmallCore(Protocol):
    """M, as a product."""

    def __matmul__(self, right: Array, /) -> Array:
        """M a."""
        ...


@dataclass(frozen=True)
class FactoredResult:
    """The m first eigenpairs except the deflated one, in the order asked for."""

    eigenvalues: Array
    """(m,); zeros stand for the null space of the operator."""
    coefficients: Array
    """B, (p, m): the eigenvectors are Z B, orthonormal; a column of zeros where the eigenvalue is an exact zero."""
    residuals: Array
    """(m,) ‖Z M Zᵀ v − λ v‖, from G."""
    gap: float
    """Distance from the wanted eigenvalues to the nearest one left out; ∞ if all are wanted."""
    orthogonality: float
    """max |BᵀGB − I| over the columns that are not zero."""
    rank: int
    """Directions of G that were kept."""
    others: Array
    """Nonzero eigenvalues left out."""


def solve_factored(
    gram: Array,
    core: SmallCore,
    n_components: int,
    n_rows: int,
    *,
    deflate: Array | None = None,
    order: str = "algebraic",
) -> FactoredResult:
    """Eigenpairs of Z M Zᵀ on ``n_rows`` rows, except the known pair whose vector is Z ``deflate``.

    ``order`` is "algebraic" (descending, zeros of the null space between positive and negative ones)
    or "magnitude" (|λ| descending, seed 004 §3.1). Signs: the largest |coefficient| is positive.
    """
    if order not in ORDERS:
        raise InputError(f"order={order!r}; allowed: {', '.join(ORDERS)}")
    g, q = linalg.eigh((gram + gram.T) / 2)
    kept = g > DROP * max(float(g[-1]), 0.0)
    root = np.sqrt(g[kept])
    basis, factor = q[:, kept] / root, q[:, kept] * root
    small = factor.T @ (core @ factor)
    values, turn = _apart_from(None if deflate is None else factor.T @ deflate, (small + small.T) / 2)
    loads = basis @ turn
    known = 0 if deflate is None else 1
    live = np.abs(values) > ZERO * max(float(known), float(np.abs(values).max(initial=0.0)))
    values, loads = values[live], loads[:, live]
    zeros = min(max(0, n_rows - known - len(values)), n_components + 1)
    wanted = _ordered(values, zeros, order)
    chosen, rest = wanted[:n_components], wanted[n_components:]
    # A place −1 is the null space: λ = 0, coefficients 0.
    padded = np.concatenate([values, [0.0]])
    table = np.concatenate([loads, np.zeros((len(loads), 1))], axis=1)
    eigenvalues, coefficients = padded[chosen], signed(table[:, chosen])
    away = (core @ (gram @ coefficients)) - coefficients * eigenvalues
    squares = np.einsum("ij,ij->j", away, gram @ away)
    inner = coefficients.T @ gram @ coefficients
    present = np.array(chosen) >= 0
    return FactoredResult(
        eigenvalues=eigenvalues,
        coefficients=coefficients,
        residuals=np.sqrt(np.maximum(squares, 0.0)),
        gap=_gap(eigenvalues, padded[rest]),
        orthogonality=float(np.abs(inner - np.diag(present.astype(float))).max(initial=0.0)),
        rank=int(kept.sum()),
        others=values[[place for place in rest if place >= 0]],
    )


def _apart_from(known: Array | None, small: Array) -> tuple[Array, Array]:
    """Eigenpairs of the small matrix, descending, on the complement of a known eigenvector."""
    if known is None:
        values, turn = linalg.eigh(small)
        return values[::-1], turn[:, ::-1]
    complement = linalg.qr((known / np.linalg.norm(known))[:, None])[0][:, 1:]
    inner = complement.T @ small @ complement
    values, turn = linalg.eigh((inner + inner.T) / 2) if inner.size else (np.zeros(0), np.zeros((0, 0)))
    return values[::-1], complement @ turn[:, ::-1]


def _ordered(values: Array, zeros: int, order: str) -> list[int]:
    """Places of the eigenvalues in the order asked for; −1 stands for one of ``zeros`` exact zeros."""
    places = list(range(len(values)))
    if order == "magnitude":
        return [*sorted(places, key=lambda place: (-abs(values[place]), place)), *[-1] * zeros]
    positive = [place for place in places if values[place] > 0]
    return [*positive, *[-1] * zeros, *places[len(positive) :]]


def signed(coefficients: Array) -> Array:
    """Columns turned so that the entry of largest size (the first among equals up to rounding) is positive."""
    size = np.abs(coefficients)
    first = np.argmax(size >= (1 - 1e-8) * size.max(axis=0, initial=0.0), axis=0)
    sign = np.sign(coefficients[first, np.arange(coefficients.shape[1])])
    return np.asarray(coefficients * np.where(sign == 0, 1.0, sign))


def _gap(wanted: Array, left_out: Array) -> float:
    if not len(left_out) or not len(wanted):
        return float("inf")
    return float(np.abs(wanted[:, None] - left_out[None, :]).min())
