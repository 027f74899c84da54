"""A linear classifier on rows: scores, classes and probabilities, each row the same whatever stands beside it."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array
from bigembed.store.arrays import read_array


def projected_rows(rows: Array, solve: str) -> Array:
    """wᵀx for every direction w."""
    scalings = read_array(f"{solve}/scalings")
    return affine_block(rows, np.zeros(len(scalings)), scalings)


def scores_of_rows(rows: Array, solve: str) -> Array:
    """The decision function: (b, c), or (b, 1) for two classes."""
    coefficients = read_array(f"{solve}/coef")
    return affine_block(rows, np.zeros(coefficients.shape[1]), coefficients.T) + read_array(f"{solve}/intercept")


def codes_of_rows(rows: Array, solve: str) -> Array:
    """Number of the class of the largest score, (b, 1)."""
    scores = scores_of_rows(rows, solve)
    codes = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return np.asarray(codes[:, None], np.int64)


def probabilities_of_rows(rows: Array, solve: str) -> Array:
    """Probabilities of the classes, (b, c)."""
    scores = scores_of_rows(rows, solve)
    if scores.shape[1] > 1:
        return np.asarray(softmax(scores, axis=1))
    return np.hstack([expit(-scores), expit(scores)])
