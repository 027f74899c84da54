"""The curve of similarity on a map of UMAP: 1/(1 + a r^{2b}), as near as can be to what is asked of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

POINTS = 300
REACH = 3.0
"""In units of ``spread``: where the curve is fitted."""


@lru_cache(maxsize=64)
def curve(min_dist: float, spread: float) -> tuple[float, float]:
    """a and b, so that 1/(1 + a r^{2b}) is nearest to 1 for r < min_dist and exp(−(r − min_dist)/spread) beyond.

    Least squares over 300 distances up to 3·spread, as umap-learn has it (McInnes et al. 2018, Definition 11).

    >>> [round(value, 4) for value in curve(0.1, 1.0)]
    [1.5769, 0.8951]
    """
    from scipy.optimize import curve_fit

    distances = np.linspace(0.0, REACH * spread, POINTS)
    wanted = np.where(distances < min_dist, 1.0, np.exp(-(distances - min_dist) / spread))
    (a, b), _ = curve_fit(lambda r, a, b: 1.0 / (1.0 + a * r ** (2.0 * b)), distances, wanted)
    return float(a), float(b)
