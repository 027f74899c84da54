"""A linear classifier on rows: scores, classes and probabilities, each row the same whatever stands beside it."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from bigembed.blocks.rows import Array
from bigembed.embedding.affine import AffineMap, project


def linear_scores(rows: Array, solve: str) -> Array:
    """xᵀa_c + b_c of every class with the published coefficients, (b, c)."""
    return project(rows, AffineMap(f"{solve}/coefficients", offset=f"{solve}/intercepts", transposed=True))


def centered_scores(rows: Array, solve: str) -> Array:
    """Scores about the mean of all rows, less what is common to the classes: nothing cancels. (b, c)."""
    inner = f"{solve}/inner_coefficients", f"{solve}/center", f"{solve}/inner_intercepts"
    return project(rows, AffineMap(*inner, transposed=True))


def score_difference(rows: Array, solve: str) -> Array:
    """Score of the second class minus that of the first, (b, 1)."""
    return np.diff(centered_scores(rows, solve), axis=1)


def codes_of_rows(rows: Array, solve: str) -> Array:
    """Number of the class of the largest score, (b, 1)."""
    return np.asarray(centered_scores(rows, solve).argmax(axis=1)[:, None], np.int64)


def probabilities_of_rows(rows: Array, solve: str) -> Array:
    """Probabilities of the classes, (b, c)."""
    return np.asarray(softmax(centered_scores(rows, solve), axis=1))
