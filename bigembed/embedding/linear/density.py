"""The normal density that PCA fits: covariance V diag(λ) Vᵀ in the components, σ² in all other directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array, bounds, is_sparse
from bigembed.errors import InputError

TILE_ROWS = 2_048


@dataclass(frozen=True)
class Density:
    """Mean (d,), directions V (m, d), variances λ (m,) along them, and σ² across (Tipping & Bishop 1999)."""

    mean: Array
    directions: Array
    variance: Array
    noise: float

    @property
    def along(self) -> Array:
        """Variances along the directions, none below the noise."""
        return np.maximum(self.variance, self.noise)

    def covariance(self) -> Array:
        """(d, d)."""
        found = (self.directions.T * (self.along - self.noise)) @ self.directions
        found.flat[:: len(found) + 1] += self.noise
        return np.asarray(found)

    def precision(self) -> Array:
        """The inverse of the covariance, (d, d)."""
        self.refuse_singular()
        across = 1 / self.noise if self.noise else 0.0
        found = (self.directions.T * (1 / self.along - across)) @ self.directions
        found.flat[:: len(found) + 1] += across
        return np.asarray(found)

    def refuse_singular(self) -> None:
        """InputError where the covariance has no inverse."""
        flat = len(self.mean) - len(self.variance) if not self.noise else 0
        flat += int(np.count_nonzero(self.along <= 0))
        if flat:
            raise InputError(
                f"the covariance of the model is singular ({flat} of {len(self.mean)} directions without variance), so "
                "it has no inverse and rows no density. Take fewer components, which leaves noise, or more rows"
            )


def log_density(rows: Any, model: Density) -> Array:
    """−½ ((x − m)ᵀ C⁻¹ (x − m) + log det C + d log 2π) of each row, (k, 1), with C never formed."""
    m, d = model.directions.shape
    constant = np.log(model.along).sum() + (d - m) * np.log(model.noise or 1.0) + d * np.log(2 * np.pi)
    squares = np.empty(rows.shape[0])
    for start, stop in bounds(rows.shape[0], TILE_ROWS):
        squares[start:stop] = _squares(rows[start:stop], model)
    return np.asarray(-0.5 * (squares + constant)[:, None])


def _squares(rows: Any, model: Density) -> Array:
    """(x − m)ᵀ C⁻¹ (x − m) from the part of a row along the directions and the rest."""
    along = affine_block(rows, model.mean, np.ascontiguousarray(model.directions.T))
    found = np.asarray((along**2 / model.along).sum(axis=1))
    if not model.noise:
        return found
    if is_sparse(rows):
        exact = rows.astype(np.float64)
        whole = exact.multiply(exact).sum(axis=1) - 2 * (exact @ model.mean) + model.mean @ model.mean
        rest = np.maximum(np.asarray(whole).ravel() - (along**2).sum(axis=1), 0.0)
    else:
        rest = ((rows - model.mean - affine_block(along, np.zeros(len(model.directions)), model.directions)) ** 2).sum(
            axis=1
        )
    return np.asarray(found + rest / model.noise)
