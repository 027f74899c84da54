"""Class means and scatters of row blocks, and the discriminant directions that follow from them.

Pure mathematics on one block (seed 000, §4 and §5) and on what the blocks sum to; no Dask, no Zarr.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from bigembed.runtime.blocks import Array

TILE_ROWS = 2_048


@dataclass(frozen=True)
class ClassScatter:
    """What the blocks sum to: ``a + b`` is that of the rows of both (Chan, Golub & LeVeque's update).

    Scatters are about the means of their own rows, so that nothing cancels, however far apart the classes lie.
    """

    counts: Array
    """Rows of each class, float64 (c,)."""
    means: Array
    """(c, d); zero for a class without rows."""
    scatter: Array
    """S_w = Σ_c S_c with S_c = Σ (x − m_c)(x − m_c)ᵀ, (1, d, d); or each S_c, (c, d, d). Or their diagonals, (1, d) or
    (c, d)."""

    def __add__(self, other: ClassScatter) -> ClassScatter:
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1)
        apart = other.means - self.means
        means = self.means + share[:, None] * apart
        scaled = np.sqrt(self.counts * share)[:, None] * apart
        return ClassScatter(counts, means, self.scatter + other.scatter + _outer(scaled, self.scatter))

    @property
    def mean(self) -> Array:
        """Mean of all rows, (d,)."""
        return np.asarray(self.counts @ self.means / self.counts.sum())

    def between(self) -> Array:
        """S_b = Σ_c n_c (m_c − m)(m_c − m)ᵀ, (d, d)."""
        centered = np.sqrt(self.counts)[:, None] * (self.means - self.mean)
        return np.asarray(centered.T @ centered)


def _outer(vectors: Array, like: Array) -> Array:
    """v vᵀ of each of the vectors (c, d), or its diagonal, summed where there is only one part."""
    if like.ndim == 2:
        return np.asarray(np.square(vectors).sum(axis=0, keepdims=True) if len(like) == 1 else np.square(vectors))
    if len(like) == 1:
        return np.asarray((vectors.T @ vectors)[None])
    return vectors[:, :, None] * vectors[:, None, :]


def class_scatter_block(
    rows: Array, codes: Array, n_classes: int, by_class: bool = False, diagonal: bool = False
) -> ClassScatter:
    """Counts, means and scatters of the classes in one block.

    ``rows`` (b, d); ``codes`` int (b,), the number of each row's class, −1 for a row without label. With
    ``by_class`` each S_c is kept, otherwise only their sum; with ``diagonal`` only the diagonals. Float64, whatever the
    rows are.
    """
    counts = np.bincount(codes[codes >= 0], minlength=n_classes).astype(np.float64)
    means = _sums(rows, codes, n_classes) / np.maximum(counts, 1)[:, None]
    d = rows.shape[1]
    if diagonal:
        spread = np.zeros((n_classes, d))
        for tile, part in _centered(rows, codes, means):
            spread += _sums(np.square(tile), part, n_classes)
        return ClassScatter(counts, means, spread if by_class else spread.sum(axis=0, keepdims=True))
    if not by_class:
        scatter = np.zeros((1, d, d))
        for tile, part in _centered(rows, codes, means):
            tile[part < 0] = 0.0
            scatter[0] += tile.T @ tile
        return ClassScatter(counts, means, scatter)
    scatter = np.zeros((n_classes, d, d))
    for c in np.flatnonzero(counts):
        mine = np.flatnonzero(codes == c)
        for start in range(0, len(mine), TILE_ROWS):
            tile = rows[mine[start : start + TILE_ROWS]] - means[c]
            scatter[c] += tile.T @ tile
    return ClassScatter(counts, means, scatter)


def _sums(rows: Array, codes: Array, n_classes: int) -> Array:
    """Sum of the rows of each class, float64 (c, d)."""
    labelled = codes >= 0
    where = (codes[labelled], np.flatnonzero(labelled))
    member = csr_array((np.ones(len(where[0])), where), shape=(n_classes, len(rows)))
    return np.asarray(member @ rows, dtype=np.float64) if rows.dtype == np.float64 else _tiled(member, rows)


def _tiled(member: csr_array, rows: Array) -> Array:
    columns = member.tocsc()
    total = np.zeros((member.shape[0], rows.shape[1]))
    for start in range(0, len(rows), TILE_ROWS):
        part = slice(start, start + TILE_ROWS)
        total += columns[:, part] @ rows[part].astype(np.float64)
    return total


def _centered(rows: Array, codes: Array, means: Array) -> Iterator[tuple[Array, Array]]:
    """Tiles of rows minus the means of their classes, and their codes (a row without label: the last mean)."""
    for start in range(0, len(rows), TILE_ROWS):
        part = codes[start : start + TILE_ROWS]
        yield rows[start : start + TILE_ROWS] - means[part], part


def fourth_moments_block(rows: Array, codes: Array, means: Array, scales: Array) -> Array:
    """Σ ‖(x − m)/s‖⁴ over the rows of each class about its own mean, and last over all labelled rows, (c+1,).

    ``means`` and ``scales`` are (c+1, d); the last are those of all rows. It is what the Ledoit–Wolf
    shrinkage needs besides the scatters.
    """
    total = np.zeros(len(means))
    for start in range(0, len(rows), TILE_ROWS):
        part = codes[start : start + TILE_ROWS]
        tile, part = rows[start : start + TILE_ROWS][part >= 0], part[part >= 0]
        for which in (part, np.full(len(part), len(means) - 1)):
            standard = (tile - means[which]) / scales[which]
            lengths = np.einsum("ij,ij->i", standard, standard)
            total += np.bincount(which, lengths**2, minlength=len(means))
    return total


ROUNDED = 8 * float(np.finfo(float).eps)
"""Standard deviation over √n times the mean up to which a column is constant: what rounding leaves of one."""


def scales_of(covariance: Array, flat: Array | float = 0.0) -> Array:
    """Standard deviations; 1 for a constant column, whose deviation is at most ``flat``."""
    return scaled_by(np.diagonal(covariance), flat)


def scaled_by(variances: Array, flat: Array | float = 0.0) -> Array:
    """Roots of variances; 1 for those that are at most ``flat``."""
    deviations = np.sqrt(np.maximum(variances, 0.0))
    return np.where(deviations > flat, deviations, 1.0)


def flat_of(found: ClassScatter) -> Array:
    """Deviations that rounding leaves of constant columns, (d,)."""
    return np.asarray(ROUNDED * np.sqrt(found.counts.sum()) * np.abs(found.means).max(axis=0))


def weights_of(found: ClassScatter, priors: Array) -> Array:
    """What the scatters count in S_w: 1/n of all together, or π_c/n_c of each."""
    return priors / found.counts if len(found.scatter) > 1 else np.array([1.0 / found.counts.sum()])


def signs_of(scalings: Array) -> Array:
    """1 or −1 of each column, (m,), so that its largest |entry| becomes positive."""
    largest = np.argmax(np.abs(scalings), axis=0)
    return np.where(scalings[largest, np.arange(scalings.shape[1])] < 0, -1.0, 1.0)


def shrunk(covariance: Array, shrinkage: float) -> Array:
    """(1 − γ) C + γ tr(C)/d I."""
    d = len(covariance)
    out = (1.0 - shrinkage) * covariance
    out[np.diag_indices(d)] += shrinkage * np.trace(covariance) / d
    return np.asarray(out)


def ledoit_wolf(covariance: Array, count: float, fourth: float) -> tuple[Array, float]:
    """Covariance shrunk by the Ledoit–Wolf rule on standardized columns, and the shrinkage γ.

    ``covariance`` (d, d) of ``count`` rows (divided by their number), ``fourth`` = Σ ‖z‖⁴ of the standardized
    rows z (:func:`fourth_moments_block`). O. Ledoit, M. Wolf, J. Multivariate Analysis 88 (2004): γ = min(β, δ)/δ,
    β = (Σ‖z‖⁴/n − ‖C‖²)/(n d), δ = ‖C − μI‖²/d, μ = tr(C)/d.
    """
    d = len(covariance)
    scales = scales_of(covariance)
    standard = covariance / np.outer(scales, scales)
    squares = float(np.einsum("ij,ij->", standard, standard))
    mean = float(np.trace(standard)) / d
    delta = (squares - d * mean**2) / d
    beta = min((fourth / count - squares) / (d * count), delta)
    shrinkage = beta / delta if d > 1 and beta > 0 else 0.0
    return shrunk(standard, shrinkage) * np.outer(scales, scales), shrinkage


@dataclass(frozen=True)
class Covariances:
    """Within-class and total covariance, after shrinkage."""

    within: Array
    """Σ_c π_c C_c, (d, d)."""
    total: Array
    """(d, d)."""
    shrinkages: Array
    """γ of each class and of the total; of the pooled matrix and of the total where the classes share one."""


def covariances(
    found: ClassScatter, priors: Array, shrinkage: float | str | None, fourth: Array | None = None
) -> Covariances:
    """Within-class and total covariance with the shrinkage None, a number, or "auto" (with its ``fourth`` moments)."""
    counts, n = found.counts, found.counts.sum()
    total = (found.scatter.sum(axis=0) + found.between()) / n
    if shrinkage == "auto":
        assert fourth is not None
        assert len(found.scatter) == len(counts)
        parts = [ledoit_wolf(s / k, k, f) for s, k, f in zip(found.scatter, counts, fourth, strict=False)]
        whole, gamma = ledoit_wolf(total, n, fourth[-1])
        within = np.zeros_like(total)
        for prior, (part, _) in zip(priors, parts, strict=True):
            within += prior * part
        return Covariances(within, whole, np.array([*(part[1] for part in parts), gamma]))
    within = np.tensordot(weights_of(found, priors), found.scatter, 1)
    gamma = 0.0 if shrinkage is None else float(shrinkage)
    return Covariances(shrunk(within, gamma), shrunk(total, gamma), np.full(2, gamma))


@dataclass(frozen=True)
class Discriminants:
    """Solution of (S_t − S_w) w = λ S_w w on the range of S_w."""

    scalings: Array
    """(d, m), columns w with wᵀ S_w w = 1, by descending λ, the largest |entry| of each positive."""
    ratios: Array
    """λ over the sum of all, (m,)."""
    inverse: Array
    """S_w^{-1} (on its range), (d, d)."""
    rank: int
    """Of S_w."""


def discriminants(found: Covariances, n_components: int, tol: float, flat: Array | float = 0.0) -> Discriminants:
    """The ``n_components`` most discriminating directions (seed 000, eq. 2 and §5).

    S_w is whitened through its correlation matrix, of which eigenvalues below ``tol`` times the largest count as
    zero: no direction leads out of the range of a singular S_w. Columns of deviations up to ``flat`` are constant.
    """
    scales = scales_of(found.within, flat)
    values, vectors = eigh(found.within / np.outer(scales, scales))
    kept = values > tol * max(float(values[-1]), np.finfo(float).tiny)
    whiten = vectors[:, kept] / np.sqrt(values[kept]) / scales[:, None]
    between = whiten.T @ (found.total - found.within) @ whiten
    ratios, inner = eigh(between)
    order = np.argsort(ratios)[::-1][:n_components]
    scalings = whiten @ inner[:, order]
    scalings *= signs_of(scalings)
    total = float(ratios.sum())
    return Discriminants(
        scalings, ratios[order] / total if total else ratios[order], whiten @ whiten.T, int(kept.sum())
    )


def fisher_direction(coefficients: Array) -> Array:
    """w = S_w^{-1}(m₁ − m₂), normalized to length one (seed 000, §4), (d,), from S_w^{-1}m_c of both classes."""
    w = coefficients[0] - coefficients[1]
    length = float(np.linalg.norm(w))
    return np.asarray(w / length if length else w)


def intercepts(coefficients: Array, means: Array, priors: Array) -> Array:
    """log π_c − ½ m_cᵀ S_w^{-1} m_c, (c,), of log π_c − ½ m_cᵀ S_w^{-1} m_c + xᵀ S_w^{-1} m_c, whose ``coefficients``
    (c, d) are S_w^{-1} m_c.

    With means and x about any common center it differs by a number that is the same for all classes.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(priors) - 0.5 * np.einsum("ij,ij->i", means, coefficients))
