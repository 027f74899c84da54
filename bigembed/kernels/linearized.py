"""The linearized Gaussian kernel 1 − ‖x−y‖²/ε as a product of few features (seed 004 eqs. 5–7).

    K(x, y) = 1 − ‖x − y‖²/ε = u(x)ᵀ M u(y),   u(x) = (1, s, z),   z = √(2/ε) (x − c),   s = ‖z‖²/2,

with M = [[1, −1], [−1, 0]] ⊕ I: rank at most d + 2. The scaling of z by √(2/ε) makes every feature of
order one, so that rank decisions do not depend on the units of the data. With its own scale ε_i
for each row, ε_ij = √(ε_i ε_j) (seed 004 §5) and e_i = √(ε/ε_i) the kernel is

    K(x, y) = 1 − ‖x − y‖²/ε_ij,   u(x) = (1, e, e s, e z),   M = 1 ⊕ [[0, −1], [−1, 0]] ⊕ I,

of rank at most d + 3. Without its constant the kernel is the linear one of linearized kernel PCA
(seed 004 §2.3): K(x, y) = (2/ε)(x − c)ᵀ(y − c), u = z, M = I.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array

TILE_BYTES = 2 << 20
"""Bytes of rows for which features are made at a time: they stay in the cache of one core."""


@dataclass(frozen=True)
class Core:
    """The symmetric matrix M = head ⊕ I between the features of two rows."""

    head: Array
    """(h, h), h = 0 … 3."""

    def __matmul__(self, right: Array) -> Array:
        """M a for a vector or the columns of a matrix, without forming M."""
        h = len(self.head)
        return np.concatenate([self.head @ right[:h], right[h:]])

    def dense(self, size: int) -> Array:
        """M as a matrix (size, size)."""
        return self @ np.eye(size)


@dataclass(frozen=True)
class DensityScales:
    """Scales of rows from their row sums: ε_i = ε (q*/q_i)^β, q_i = Σ_j K_ij with the common ε, q* its largest value.

    q_i/n = 1 − s̄ − s_i + z̄·z_i depends on the two means alone, so the scale of a new row is known as
    well. Rows at thin places get larger scales; β ≥ 0 keeps ε_i ≥ ε, hence K ≥ 0 where it was before.
    """

    mean_s: float
    mean_z: Array
    """(d,); zero for centered rows."""
    beta: float

    @property
    def highest(self) -> float:
        """q*/n: the largest row sum that a point can have, at the mean of the rows."""
        return 1 - self.mean_s + 0.5 * float(self.mean_z @ self.mean_z)

    def ratios(self, s: Array, z: Array) -> Array:
        """e = √(ε/ε_i) = (q_i/q*)^{β/2}; 0 where q_i ≤ 0."""
        relative = (1 - self.mean_s - s + z @ self.mean_z) / self.highest
        return np.asarray(np.maximum(relative, 0.0) ** (self.beta / 2))

    def slope(self) -> Array:
        """∂e/∂z at the center, (d,)."""
        relative = (1 - self.mean_s) / self.highest
        return np.asarray(0.5 * self.beta * relative ** (self.beta / 2 - 1) * self.mean_z / self.highest)


@dataclass(frozen=True)
class LinearizedKernel:
    """u and M for one center and scale."""

    center: Array
    """(d,) float64."""
    epsilon: float
    kind: str = "global"
    """``global``; ``given`` or ``density`` (point-wise ε_i); ``linear`` (linearized kernel PCA)."""
    scales: DensityScales | None = None

    @property
    def core(self) -> Core:
        """M."""
        if self.kind == "linear":
            return Core(np.zeros((0, 0)))
        if self.kind == "global":
            return Core(np.array([[1.0, -1.0], [-1.0, 0.0]]))
        return Core(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, -1.0, 0.0]]))

    @property
    def size(self) -> int:
        """Number of features of a row: d + 2, d + 3 or d."""
        return len(self.center) + len(self.core.head)

    def features(self, rows: Array, epsilons: Array | None = None) -> Array:
        """u of each row, (rows, size) float64; ``epsilons`` (rows,) are the ε_i of ``kind="given"``."""
        h = len(self.core.head)
        u = np.empty((len(rows), self.size))
        z = u[:, h:]
        np.subtract(rows, self.center, out=z)
        z *= np.sqrt(2 / self.epsilon)
        if self.kind == "linear":
            return u
        s = 0.5 * np.einsum("ij,ij->i", z, z)
        u[:, 0] = 1.0
        if self.kind == "global":
            u[:, 1] = s
            return u
        if self.scales is not None:
            e = self.scales.ratios(s, z)
        else:
            assert epsilons is not None
            e = np.sqrt(self.epsilon / epsilons)
        u[:, 1], u[:, 2] = e, e * s
        z *= e[:, None]
        return u

    def tiles(self, rows: Array, epsilons: Array | None = None) -> Iterator[tuple[slice, Array]]:
        """The features of a block, a few rows at a time: (which rows, u)."""
        for part in tiles(len(rows), self.size):
            yield part, self.features(rows[part], None if epsilons is None else epsilons[part])


def tiles(rows: int, width: int) -> Iterator[slice]:
    """Cut a block into tiles of about ``TILE_BYTES`` float64, by their width alone.

    >>> [(part.start, part.stop) for part in tiles(10_000, 64)]
    [(0, 4096), (4096, 8192), (8192, 10000)]
    """
    step = max(64, TILE_BYTES // (8 * max(1, width)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@dataclass(frozen=True)
class Normalization:
    """What the degrees of a row need: q = u·M t₀, w = q^{−α}, and u·M t with t = Σ w u."""

    alpha: float
    first: Array | None
    """M t₀, (size,); None while α = 0, where w = 1."""
    second: Array | None
    """M t, (size,); None before it is known."""

    def weights(self, u: Array) -> Array:
        """w = q^{−α}; NaN where q ≤ 0."""
        if self.first is None or self.alpha == 0:
            return np.ones(len(u))
        q = u @ self.first
        return np.where(q > 0, np.where(q > 0, q, 1.0) ** -self.alpha, np.nan)

    def reach(self, u: Array) -> Array:
        """u·M t, the degree over w."""
        assert self.second is not None
        return np.asarray(u @ self.second)
