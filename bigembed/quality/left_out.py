"""What principal components leave out of the rows: more components, or noise (Horn's parallel analysis)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array

NOISE = 1.2
"""Times the largest variance of shuffled columns up to which what is left out is noise. (Of 2 000 genotypes of five
populations four components leave 1.01, three 5.7; of 1 797 digits forty leave 2.4.)"""
SHUFFLES = 3
ROWS = 500
"""Rows that are looked at, the first of those drawn at random."""
SPARE = 4
"""Rows for each coordinate, at least."""
COLUMNS = 50
"""Columns from which they are compared: each of a few may hold something of its own, which is not noise."""
STREAM = 29
"""Of the random numbers of the shuffles."""


def left_out(rows: Array, coordinates: Array) -> dict[str, Any]:
    """How much more the direction of largest variance holds of what coordinates leave out than of shuffled columns.

    The rows (s, d), less what a linear map of the coordinates (s, k) gives of them, are R. ``ratio`` is the largest
    singular value of R, squared, over the mean of those of R whose columns are shuffled one by one, which leaves their
    variances as they are and nothing that they have in common (J. Horn, Psychometrika 30 (1965)): about 1 for noise.
    ``of_rows`` is the same of the rows, about 1 where they are noise themselves. Empty where there are too few rows or
    columns, or nothing is left.

    >>> random = np.random.default_rng(0)
    >>> factors = random.normal(size=(400, 2))
    >>> rows = 3 * factors @ random.normal(size=(2, 60)) + random.normal(size=(400, 60))
    >>> left_out(rows, factors)["ratio"] < 1.2, left_out(rows, factors[:, :1])["ratio"] > 4
    (True, True)
    """
    random = np.random.default_rng([0, STREAM])
    chosen = np.sort(random.permutation(len(rows))[:ROWS])
    some, known = rows[chosen].astype(np.float64), coordinates[chosen].astype(np.float64)
    if len(some) < SPARE * (known.shape[1] + 1) or some.shape[1] < COLUMNS:
        return {}
    some -= some.mean(axis=0)
    of_rows = _ratio(some, random)
    basis = np.linalg.qr(np.hstack([np.ones((len(known), 1)), known / (np.abs(known).max() or 1.0)]))[0]
    some -= basis @ (basis.T @ some)
    ratio = _ratio(some, random)
    return {} if ratio is None or of_rows is None else {"ratio": ratio, "of_rows": of_rows, "rows": len(some)}


def _ratio(rows: Array, random: np.random.Generator) -> float | None:
    """The largest singular value over that of shuffled columns, squared; None of rows of zeros."""
    largest, shuffled = _largest(rows), [_largest(random.permuted(rows, axis=0)) for _ in range(SHUFFLES)]
    return float(largest / np.mean(shuffled)) if largest > 0 and min(shuffled) > 0 else None


def _largest(rows: Array) -> float:
    """The largest singular value, squared: by the smaller of the products XXᵀ and XᵀX."""
    product = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return float(np.linalg.eigvalsh(product)[-1])


def is_noise(figures: Mapping[str, Any]) -> bool:
    """Whether the figures of a map say that what its coordinates leave out is noise, and what they show is not."""
    seen = figures.get("left_out", {})
    return bool(seen.get("ratio", np.inf) <= NOISE < seen.get("of_rows", 0.0))


def left_out_text(figures: Mapping[str, Any]) -> str:
    """What coordinates leave out, in words; empty where it was not looked at.

    >>> left_out_text({"left_out": {"ratio": 1.013, "of_rows": 7.5, "rows": 500}})
    'what the coordinates leave out is noise (its largest variance is 1.01 times that of shuffled columns)'
    """
    if not (seen := figures.get("left_out")):
        return ""
    times = "largest variance is {:.3g} times that of shuffled columns".format
    if seen["of_rows"] <= NOISE:
        return f"the rows look like noise (their {times(seen['of_rows'])})"
    what = "noise" if seen["ratio"] <= NOISE else "more than noise"
    return f"what the coordinates leave out is {what} (its {times(seen['ratio'])})"
