"""The linearized diffusion kernel: eigenpairs, principal components and nonnegative factors.

The kernel is here: 1 − ‖x−y‖²/ε as a product of few features, its sums over rows, and the map of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigembed.rows import RowBlock
from bigembed.rows.passes import Parts
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------ linearized
# The linearized Gaussian kernel 1 − ‖x−y‖²/ε as a product of few features (seed 004 eqs. 5–7).
#
#     K(x, y) = 1 − ‖x − y‖²/ε = u(x)ᵀ M u(y),   u(x) = (1, s, z),   z = √(2/ε) (x − c),   s = ‖z‖²/2,
#
# with M = [[1, −1], [−1, 0]] ⊕ I: rank at most d + 2. The scaling of z by √(2/ε) makes every feature of order one, so
# that rank decisions do not depend on the units of the data. With its own scale ε_i for each row, ε_ij = √(ε_i ε_j)
# (seed 004 §5) and e_i = √(ε/ε_i) the kernel is
#
#     K(x, y) = 1 − ‖x − y‖²/ε_ij,   u(x) = (1, e, e s, e z),   M = 1 ⊕ [[0, −1], [−1, 0]] ⊕ I,
#
# of rank at most d + 3. Without its constant the kernel is the linear one of linearized kernel PCA (seed 004 §2.3):
# K(x, y) = (2/ε)(x − c)ᵀ(y − c), u = z, M = I.

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


# -------------------------------------------------------------------------------------------------- linearized map
# From a row to its coordinates in the linearized diffusion map: one formula in and out of the sample.

TILE = 256
"""Rows of a product. A product rounds by its shape, so every one has this many, padded with zeros."""
COLUMNS = 16
"""Columns are padded to a multiple of this, so that all go through the same kernel."""


@dataclass(frozen=True)
class LinearizedMap:
    """v_l(x) = √w (u·B_l)/√(u·M t) (symmetric), ψ_l(x) = √Σd (u·B_l)/(u·M t) (asymmetric), times λ_l^τ.

    w(x) = (u·M t₀)^{−α}; in ψ it cancels.
    """

    kernel: LinearizedKernel
    given: Normalization
    loads: Array
    """B diag(λ^τ), (size, m)."""
    degrees: float
    """Σ m d."""
    symmetric: bool

    def coordinates(self, rows: Array, epsilons: Array | None = None) -> Array:
        """(rows, m); NaN for a row out of the kernel's reach: u·M t ≤ 0, or, where w is needed, q ≤ 0."""
        table = self._table()
        columns = -(-table.shape[1] // COLUMNS) * COLUMNS
        padded = np.zeros((len(table), columns))
        padded[:, : table.shape[1]] = table
        out = np.empty((len(rows), self.loads.shape[1]))
        tile, product = np.zeros((TILE, self.kernel.size)), np.empty((TILE, columns))
        for start in range(0, len(rows), TILE):
            part = slice(start, min(start + TILE, len(rows)))
            filled = part.stop - start
            tile[:filled] = self.kernel.features(rows[part], None if epsilons is None else epsilons[part])
            tile[filled:] = 0.0
            np.matmul(tile, padded, out=product)
            reach, q, top = product[:filled, 0], product[:filled, 1], product[:filled, 2 : table.shape[1]]
            out[part] = top * self._factor(reach, q)[:, None]
        return out

    def linear_part(self) -> tuple[Array, Array]:
        """A (m, d) and b (m,) with coordinates(x) = b + A (x − c) + O(‖x − c‖²): the slope of the map at the center.

        At c the quadratic feature s and its slope are zero, so only 1 and z (and the slope of e) are left.
        """
        kernel, h = self.kernel, len(self.kernel.core.head)
        table = self._table()
        u = kernel.features(kernel.center[None], np.array([kernel.epsilon]))[0]
        value, slope = u @ table, (u[1] if h == 3 else 1.0) * table[h:]
        if kernel.scales is not None:
            slope = slope + np.outer(kernel.scales.slope(), table[1])
        reach, q, top = value[0], value[1], value[2:]
        # The logarithm of the factor has slope −p M t/(u·M t) − (α/2) M t₀/q, p = ½ or 1.
        along = -(0.5 if self.symmetric else 1.0) * slope[:, 0] / reach
        if self.symmetric and self._weighted:
            along = along - 0.5 * self.given.alpha * slope[:, 1] / q
        factor = float(self._factor(np.array([reach]), np.array([q]))[0])
        matrix = factor * (slope[:, 2:] + np.outer(along, top)) * np.sqrt(2 / kernel.epsilon)
        return np.ascontiguousarray(matrix.T), np.asarray(factor * top)

    @property
    def _weighted(self) -> bool:
        return self.given.first is not None and self.given.alpha != 0

    def _table(self) -> Array:
        """[M t, M t₀, B]: one product gives everything that a row needs."""
        assert self.given.second is not None
        first = self.given.first if self.given.first is not None else np.zeros(self.kernel.size)
        return np.column_stack([self.given.second, first, self.loads])

    def _factor(self, reach: Array, q: Array) -> Array:
        reach = np.where(reach > 0, reach, np.nan)
        if not self.symmetric:
            return np.asarray(np.sqrt(self.degrees) / reach)
        weight = np.where(q > 0, q, np.nan) ** -self.given.alpha if self._weighted else 1.0
        return np.asarray(np.sqrt(weight / reach))


# ------------------------------------------------------------------------------------------------- linearized sums
# What the passes of the linearized diffusion map add up on one block of rows.
#
# With masses m_i (weights of rows), u_i and M as in the first section:
#
#     t₀ = Σ m u,  q = u·M t₀,  w = q^{−α},  t = Σ m w u,  d = w (u·M t),  G = Σ m (w²/d) u uᵀ.
#
# Rows of mass 0 add nothing. All sums are float64.

EPSILONS = "epsilons"
"""Name of the point-wise scales that are aligned with the rows."""


def combine_sums(left: Parts, right: Parts) -> Parts:
    """Sums add, ``lowest …`` take the smaller; the farthest row is the one of the larger ``radius``."""
    out: Parts = {}
    for name, value in left.items():
        if name.startswith("lowest"):
            out[name] = np.minimum(value, right[name])
        elif name == "radius":
            out[name] = np.maximum(value, right[name])
        elif name == "farthest":
            out[name] = value if left["radius"] >= right["radius"] else right[name]
        else:
            out[name] = value + right[name]
    return out


def spread_block(block: RowBlock, center: Array) -> Parts:
    """Σ m, the rows with mass, Σ m (x − c), Σ m r², max r² and the row that has it, the smallest ε_i; r = ‖x − c‖."""
    rows, mass = block.rows, block.weights
    shift, squares, radius, farthest = np.zeros(len(center)), 0.0, -1.0, center
    for part in tiles(len(rows), rows.shape[1]):
        off = np.subtract(rows[part], center, dtype=np.float64)
        squared = np.einsum("ij,ij->i", off, off)
        m = np.ones(len(off)) if mass is None else mass[part]
        shift += m @ off
        squares += float(m @ squared)
        far = int(np.argmax(np.where(m > 0, squared, -1.0)))
        if m[far] > 0 and squared[far] > radius:
            radius, farthest = float(squared[far]), off[far] + center
    present = len(rows) if mass is None else int(np.count_nonzero(mass))
    epsilons = block.aligned.get(EPSILONS)
    return {
        "lowest epsilon": np.array(np.inf if epsilons is None else _lowest(epsilons)),
        "mass": np.array(float(len(rows)) if mass is None else mass.sum()),
        "present": np.array(present),
        "shift": shift,
        "squares": np.array(squares),
        "radius": np.array(radius),
        "farthest": np.asarray(farthest, np.float64),
    }


def _lowest(epsilons: Array) -> float:
    """The smallest scale; −∞ if one is not a finite number."""
    return float(np.min(epsilons)) if np.isfinite(epsilons).all() else -np.inf


def total_block(block: RowBlock, kernel: LinearizedKernel, given: Normalization) -> Parts:
    """Σ m w u, and the smallest q of a row with mass (∞ where w = 1)."""
    total, lowest = np.zeros(kernel.size), np.inf
    for u, m in massed_tiles(block, kernel):
        if given.first is not None and given.alpha:
            lowest = min(lowest, float((u @ given.first).min()))
        total += (given.weights(u) * m) @ u
    return {"total": total, "lowest q": np.array(lowest)}


def gram_block(block: RowBlock, kernel: LinearizedKernel, given: Normalization, far: Array) -> Parts:
    """G, Σ m d, the smallest u·M t, and the smallest kernel entry with the farthest row (``far`` = M u*)."""
    gram, degrees, lowest, entry = np.zeros((kernel.size, kernel.size)), 0.0, np.inf, np.inf
    for u, m in massed_tiles(block, kernel):
        weight, reach = given.weights(u), given.reach(u)
        lowest, entry = min(lowest, float(reach.min())), min(entry, float((u @ far).min()))
        degrees += float(np.sum(m * weight * reach))
        u *= np.sqrt(np.where(reach > 0, m * weight / np.where(reach > 0, reach, 1.0), 0.0))[:, None]
        gram += u.T @ u
    return {
        "gram": gram,
        "degrees": np.array(degrees),
        "lowest degree": np.array(lowest),
        "lowest entry": np.array(entry),
    }


def massed_tiles(block: RowBlock, kernel: LinearizedKernel) -> Iterator[tuple[Array, Array]]:
    """(features, masses) of the rows with mass, a few at a time."""
    epsilons, mass = block.aligned.get(EPSILONS), block.weights
    for part, u in kernel.tiles(block.rows, epsilons):
        if mass is None:
            yield u, np.ones(len(u))
            continue
        inside = mass[part] > 0
        if inside.any():
            yield u[inside], mass[part][inside]
