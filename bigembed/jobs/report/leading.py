"""What the coordinates of a linear map are made of: their leading columns, and how far each is from the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bigembed.estimator import columns_after

SHOWN, EACH = 10, 6
"""Coordinates of which columns are shown, and columns of each."""
PRINTED, PRINTED_EACH = 3, 4
"""The same on a terminal."""
UNNAMED = 50
"""More columns than these without names say nothing to anybody: the pixels of pictures."""
APART = 1.0
"""Sampling errors of a variance within which two coordinates can turn into each other."""


@dataclass(frozen=True)
class Leading:
    """A coordinate, its share of the variance, its leading columns with their weights, how far the next one is."""

    number: int
    columns: tuple[tuple[str, float], ...]
    """Names and weights, the largest first; all weights of a coordinate have squares that sum to 1."""
    share: float | None = None
    apart: float | None = None
    """From the variance of the next one, in sampling errors λ √(2 / n) (North et al. 1982, equation 24)."""

    @property
    def close(self) -> bool:
        """Whether other rows of the same kind may turn it into the next one."""
        return self.apart is not None and self.apart < APART

    def text(self, most: int = EACH) -> str:
        """Return the columns with their weights in words.

        >>> Leading(1, (("salt", 0.8), ("heat", -0.6))).text()
        'salt +.80, heat −.60'
        """
        return ", ".join(
            f"{name} {'−' if weight < 0 else '+'}{_weight(weight)}" for name, weight in self.columns[:most]
        )


def _weight(weight: float) -> str:
    return f"{abs(weight):.2f}".removeprefix("0")


def leading_columns(fitted: Any) -> list[dict[str, Any]]:
    """Describe the first coordinates of a linear map, for the record of a run; nothing of other maps.

    How far apart variances are is asked where they are those of principal components, about the mean of the rows: the
    singular vectors of rows as they are have an order of their own.
    """
    matrix = getattr(fitted, "components_", None)
    names = columns_after(fitted)
    if matrix is None or np.ndim(matrix) != 2 or not (names or matrix.shape[1] <= UNNAMED):
        return []
    names = names or tuple(f"column {number}" for number in range(matrix.shape[1]))
    if len(names) != matrix.shape[1]:
        return []
    share, variance = (getattr(fitted, name, None) for name in ("explained_variance_ratio_", "explained_variance_"))
    variance = variance if hasattr(fitted, "mean_") else None
    found = []
    for at, row in enumerate(np.asarray(matrix[:SHOWN], np.float64)):
        length = np.linalg.norm(row)
        order = np.argsort(-np.abs(row), kind="stable")[:EACH]
        columns = tuple((str(names[c]), round(float(row[c] / length), 4)) for c in order if length and row[c])
        part = None if share is None else float(share[at])
        found.append(asdict(Leading(at + 1, columns, part, _apart(variance, at, getattr(fitted, "n_samples_", 0)))))
    return found


def _apart(variance: Any, at: int, n: int) -> float | None:
    """How far the variance of a coordinate is from the next, in sampling errors; None where that is not known."""
    if variance is None or at + 1 >= len(variance) or not variance[at] > 0:
        return None
    return float((variance[at] - variance[at + 1]) / (variance[at] * np.sqrt(2 / n)))


def leading_of(record: dict[str, Any]) -> list[Leading]:
    """Return what the record of a run says of its coordinates."""
    known = record.get("leading", [])
    return [Leading(**one | {"columns": tuple(map(tuple, one["columns"]))}) for one in known]


def leading_lines(record: dict[str, Any]) -> list[str]:
    """Return the first coordinates in lines to print."""
    found = leading_of(record)
    lines = [f"  Coordinate {one.number}{_share(one)}: {one.text(PRINTED_EACH)}" for one in found[:PRINTED]]
    return lines + [f"    {note}" for note in notes(found[:PRINTED])]


def _share(one: Leading) -> str:
    return "" if one.share is None else f" ({100 * one.share:.3g} % of the variance)"


def notes(found: Sequence[Leading]) -> list[str]:
    """Say which coordinates are to be read together.

    >>> notes([Leading(1, (), apart=0.4), Leading(2, (), apart=7.0)])
    ['coordinates 1 and 2 differ by less than the sampling error of their variances: read them together']
    """
    return [
        f"coordinates {one.number} and {one.number + 1} differ by less than the sampling error of their variances: "
        "read them together"
        for one in found
        if one.close
    ]
