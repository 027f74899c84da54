"""The linearized Gaussian kernel 1 − ‖x−y‖²/ε as a product of few features (seed 004 eqs. 5–7).

    K(x, y) = 1 − ‖x − y‖²/ε = u(x)ᵀ M u(y),   u(x) = (1, s, z),   z = √(2/ε) (x − c),   s = ‖z‖²/2,

with M = [[1, −1], [−1, 0]] ⊕ I: rank at most d + 2. The scaling of z by √(2/ε) makes every feature of
order one, so that rank decisions do not depend on the units of the data. With a scale ε_i of its own
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
"""Features are made for so many bytes of rows at a time: they stay in the cache of one core."""


@dataclass(frozen=True)
class Core:
    """The symmetric matrix M = head ⊕ I between the features of two rows."""

    head: Array
    """(h, h), h = 0 … 3."""

    def __matmul__(self, right: Array) -> Array:
        """M a, without forming M."""
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

    def ratios(self, s: Array, z: Array) -> Array:
        """e = √(ε/ε_i) = (q_i/q*)^{β/2}; 0 where q_i ≤ 0."""
        highest = 1 - self.mean_s + 0.5 * float(self.mean_z @ self.mean_z)
        relative = (1 - self.mean_s - s + z @ self.mean_z) / highest
        return np.asarray(np.maximum(relative, 0.0) ** (self.beta / 2))


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


def radius_block(rows: Array, center: Array, mass: Array | None = None) -> tuple[float, int, float]:
    """max r² over rows with mass, the first row that has it, and Σ m r²; r = ‖x − c‖."""
    squared = np.empty(len(rows))
    for part in tiles(len(rows), rows.shape[1]):
        off = rows[part] - center
        squared[part] = np.einsum("ij,ij->i", off, off)
    if mass is None:
        return float(squared.max()), int(squared.argmax()), float(squared.sum())
    known = np.where(mass > 0, squared, -1.0)
    return float(known.max()), int(known.argmax()), float(mass @ squared)


def total_block(
    rows: Array,
    kernel: LinearizedKernel,
    given: Normalization,
    mass: Array | None = None,
    epsilons: Array | None = None,
) -> tuple[Array, float]:
    """Σ m w u, (size,), and the smallest q (∞ where it is not needed). Rows with q ≤ 0 make it NaN."""
    total, lowest = np.zeros(kernel.size), np.inf
    for part, u in kernel.tiles(rows, epsilons):
        weight = given.weights(u)
        if given.first is not None:
            q = u @ given.first
            lowest = min(lowest, float(q.min() if mass is None else q[mass[part] > 0].min(initial=np.inf)))
        total += _massed(weight, mass, part) @ u
    return total, lowest


def gram_block(
    rows: Array,
    kernel: LinearizedKernel,
    given: Normalization,
    far: Array,
    mass: Array | None = None,
    epsilons: Array | None = None,
) -> tuple[Array, float, float, float]:
    """Σ m (w²/d) u uᵀ, Σ m d, the smallest u·M t, and the smallest kernel entry u·far met (``far`` = M u*)."""
    gram, total, lowest, entry = np.zeros((kernel.size, kernel.size)), 0.0, np.inf, np.inf
    for part, u in kernel.tiles(rows, epsilons):
        inside = slice(None) if mass is None else mass[part] > 0
        u = u[inside]
        if not len(u):
            continue
        weight, reach = given.weights(u), given.reach(u)
        m = 1.0 if mass is None else mass[part][inside]
        lowest, entry = min(lowest, float(reach.min())), min(entry, float((u @ far).min()))
        total += float(np.sum(m * weight * reach))
        u *= np.sqrt(np.maximum(m * weight / np.where(reach > 0, reach, np.inf), 0.0))[:, None]
        gram += u.T @ u
    return gram, total, lowest, entry


def coordinates_tile(u: Array, given: Normalization, loads: Array, total: float, symmetric: bool) -> Array:
    """Coordinates of rows with features u: v_l or ψ_l, scaled as ``loads`` are; NaN where u·M t ≤ 0 or q ≤ 0.

    v_l(x) = √w (u·B_l)/√(u·M t) (symmetric), ψ_l(x) = √Σd (u·B_l)/(u·M t) (asymmetric): the same formula
    in and out of the sample.
    """
    reach, weight = given.reach(u), given.weights(u)
    reach = np.where(reach > 0, reach, np.nan)
    factor = np.sqrt(weight / reach) if symmetric else np.sqrt(total) * np.where(weight > 0, 1.0, np.nan) / reach
    return np.asarray((u @ loads) * factor[:, None])


def _massed(weight: Array, mass: Array | None, part: slice) -> Array:
    if mass is None:
        return weight
    m = mass[part]
    return np.where(m > 0, m * np.where(m > 0, weight, 0.0), 0.0)
