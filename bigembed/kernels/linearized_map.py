"""From a row to its coordinates in the linearized diffusion map: one formula in and out of the sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.kernels.linearized import LinearizedKernel, Normalization

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
