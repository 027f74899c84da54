"""Handwritten digits in a random order."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits


def digits(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of eight by eight, and which digit each shows."""
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    return X[chosen], y[chosen]
