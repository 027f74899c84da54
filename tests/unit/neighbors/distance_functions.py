"""Distances of two rows, as a user would write them: importable, so that jobs and models find them again."""

from __future__ import annotations

import numpy as np


def largest_step(x: np.ndarray, y: np.ndarray) -> float:
    """Chebyshev distance."""
    most = 0.0
    for i in range(len(x)):
        most = max(most, abs(x[i] - y[i]))
    return most


def one_sided(x: np.ndarray, y: np.ndarray) -> float:
    """Not symmetric."""
    total = 0.0
    for i in range(len(x)):
        total += max(x[i] - y[i], 0.0)
    return total


def similarity(x: np.ndarray, y: np.ndarray) -> float:
    """Largest of a row and itself."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return abs(total)


def sometimes_nan(x: np.ndarray, y: np.ndarray) -> float:
    """NaN where one row begins with 0."""
    return np.nan if (x[0] == 0) != (y[0] == 0) else abs(x[0] - y[0])


def negative(x: np.ndarray, y: np.ndarray) -> float:
    """Below 0."""
    return -abs(x[0] - y[0])


def shared(indices: np.ndarray, values: np.ndarray, others: np.ndarray, theirs: np.ndarray) -> float:
    """Of two sparse rows, the sum of what only one has: a Manhattan distance by columns."""
    total, i, j = 0.0, 0, 0
    while i < len(indices) or j < len(others):
        if j == len(others) or (i < len(indices) and indices[i] < others[j]):
            total += abs(values[i])
            i += 1
        elif i == len(indices) or others[j] < indices[i]:
            total += abs(theirs[j])
            j += 1
        else:
            total += abs(values[i] - theirs[j])
            i, j = i + 1, j + 1
    return total
