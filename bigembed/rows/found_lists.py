"""Lists of neighbors as other libraries hand them over, and the lengths that their values stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array


@dataclass(frozen=True)
class FoundLists:
    """Neighbors of each row and what they were found by: an index of pynndescent, its graph, or umap's tuple."""

    indices: Any
    distances: Any
    metric: str = ""
    """What the index calls its metric, where there is one and it has a name."""

    @property
    def measured(self) -> str:
        """The metric whose values are to be made lengths, or nothing."""
        return self.metric if self.metric in MEASURED else ""


def found_lists(source: Any) -> FoundLists | None:
    """Return the lists that an object holds; None where it is not of a kind that holds lists.

    It may be a pynndescent index or anything with a ``neighbor_graph``, that pair ``(indices, distances)`` itself, or
    umap's ``precomputed_knn``, which has the index as its third part, or None.
    """
    if not isinstance(source, tuple) and isinstance(found := getattr(source, "neighbor_graph", None), tuple):
        metric = getattr(source, "metric", "")
        return FoundLists(found[0], found[1], metric if isinstance(metric, str) else "")
    if not isinstance(source, tuple) or len(source) not in (2, 3) or not _are_lists(*source[:2]):
        return None
    metric = getattr(source[2], "metric", "") if len(source) == 3 else ""
    return FoundLists(source[0], source[1], metric if isinstance(metric, str) else "")


def _are_lists(indices: Any, distances: Any) -> bool:
    """Tell whether two arrays of one shape (n, k) hold numbers of rows and distances."""
    shapes = [getattr(one, "shape", ()) for one in (indices, distances)]
    kinds = [np.dtype(getattr(one, "dtype", object)).kind for one in (indices, distances)]
    return len(shapes[0]) == 2 and shapes[0] == shapes[1] and kinds[0] in "iu" and kinds[1] == "f"


ROUNDING = 1e-5
"""Values of 1 − cos above −this are 0."""
CHORDS = ("cosine", "correlation", "dot", "direct_cosine", "spearmanr")
"""Metrics that others measure as 1 − cos θ, and bigembed by the chord of the same angle."""
ROOTS = ("sqeuclidean", "jensen_shannon", "jensen-shannon")
"""Metrics that others measure as the square of what bigembed measures."""
MEASURED = (*CHORDS, *ROOTS, "haversine")
"""Metrics whose values others have in another form than bigembed."""


def lengths_of(values: Array, metric: str) -> Array:
    """Lengths of edges from the values that other libraries have of a metric: those of bigembed's metric of that name.

    Of 1 − cos θ the chord √(2 (1 − cos θ)), of the angle of two points of the sphere the chord 2 sin(θ/2), of squares
    their root. Values below 0 but for rounding become NaN, which the graph refuses.

    >>> lengths_of(np.array([0.0, 0.5, 2.0]), "cosine").tolist()
    [0.0, 1.0, 2.0]
    """
    if metric not in MEASURED:
        return values
    wide = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        if metric == "haversine":
            return np.where(wide < 0, np.nan, 2 * np.sin(wide / 2))
        wide = np.where((wide < 0) & (wide > -ROUNDING), 0.0, wide)
        return np.asarray(np.sqrt(2 * wide if metric in CHORDS else wide))


def values_of(lengths: Array, metric: Any) -> Array:
    """Values as other libraries have them, of lengths by bigembed's metric of that name: 1 − cos θ of a chord, or θ.

    >>> values_of(np.array([0.0, 1.0, 2.0]), "cosine").tolist()
    [0.0, 0.5, 2.0]
    """
    if isinstance(metric, str) and metric == "haversine":
        return np.asarray(2 * np.arcsin(np.minimum(lengths / 2, 1.0)))
    return lengths**2 / 2 if isinstance(metric, str) and metric in CHORDS else lengths


def checked_measure(metric: Any) -> str:
    """The name of a metric whose values are to be made lengths, or empty; InputError for another one."""
    if metric is None or metric in MEASURED:
        return metric or ""
    raise InputError(
        f"open_graph: metric={metric!r}; allowed: {', '.join(map(repr, MEASURED))}, whose values others have in "
        "another form. Distances of other metrics are lengths already: leave metric out"
    )
