"""How many components: a count, all, a share of the variance, or Minka's estimate."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError


def chosen_components(asked: Any, values: Array, n: int, d: int) -> int:
    """The number of components: as asked, all, the fewest that explain a share, or Minka's estimate.

    >>> chosen_components(0.7, np.array([3.0, 1.0, 1.0]), 10, 3), chosen_components(None, np.ones(3), 10, 3)
    (2, 3)
    """
    if asked is None:
        return len(values)
    if asked == "mle":
        if n < d:
            raise InputError(f"n_components='mle' needs at least as many rows as columns; there are {n} rows of {d}")
        return minka(values, n)
    if isinstance(asked, float):
        ratio = np.cumsum(values) / (values.sum() or 1.0)
        return min(len(values), int(np.searchsorted(ratio, asked, side="right")) + 1)
    return int(asked)


def minka(values: Array, n: int) -> int:
    """The dimension q of the largest Bayesian evidence by Laplace's method (Minka 2000, eq. 30), 1 ≤ q < d.

    ``values`` are the eigenvalues of the covariance of ``n`` rows, descending. The pairs of eigenvalues enter
    through cumulative sums, so the cost is d² for all q together.
    """
    return int(np.argmax(evidence(values, n))) + 1 if len(values) > 1 else 1


def evidence(values: Array, n: int) -> Array:
    """log p(D | q) up to a constant for q = 1 … d − 1; −∞ where λ_q = 0."""
    from scipy.special import gammaln

    d = len(values)
    q = np.arange(1, d)
    floor = float(np.finfo(float).eps * max(values[0], np.finfo(float).tiny))
    safe = np.maximum(values, floor)
    logs = np.log(safe)
    noise = np.maximum((values.sum() - np.cumsum(values))[:-1] / (d - q), floor)
    angles = (d - q + 1) / 2
    prior = -q * np.log(2) + np.cumsum(gammaln(angles) - angles * np.log(np.pi))
    fit = -n / 2 * (np.cumsum(logs)[:-1] + (d - q) * np.log(noise))
    free = d * q - q * (q + 1) / 2
    apart = np.log(np.maximum(safe[:, None] - safe[None, :], floor))
    to_all = np.cumsum(np.triu(apart, 1).sum(axis=1))[:-1]
    among = np.cumsum(np.triu(apart - logs[:, None] - logs[None, :], 1).sum(axis=0))[:-1]
    to_noise = np.array([np.log(np.maximum(1 / v - 1 / safe[:k], floor / v**2)).sum() for k, v in zip(q, noise)])
    curvature = to_all + among + (d - q) * to_noise + free * np.log(n)
    found = prior + fit + (free + q) / 2 * np.log(2 * np.pi) - curvature / 2 - q / 2 * np.log(n)
    return np.where(values[:-1] > 0, found, -np.inf)
