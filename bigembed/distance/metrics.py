"""Metrics of rows that a neighbor graph is searched by: their names, and their distances between two blocks of rows.

Some are Euclidean distances of rows that are mapped one by one (of unit length for the cosine, square roots of
proportions for Hellinger's …): the search compares mapped rows. Of the others, and of a function of the user's, the
distance of each pair is computed as it is defined. All are float64, and the same whatever rows stand near.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import getsource
from typing import Annotated, Any

import numpy as np
from scipy.spatial.distance import cdist

from bigembed.distance import ALIASES, FUNCTIONS, MAPPED, METRICS, SETS, every_squared, known, set_distances
from bigembed.errors import InputError, InputTypeError, meant
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.runtime.parameters import Kind, function_of, is_name, reference

NAMES = tuple(name for name, one in METRICS.items() if one.graphs)
"""Metrics of neighbor graphs."""
CHORD = "the chord 2 sin(θ/2) of the angle θ on the unit sphere"
PAIR = 50.0
"""What the place of a pair in a list takes, in terms |x − y|."""
ROUNDING = 1e-5
"""Share of the root mean square distance that counts as rounding."""
NUMBERS_OF_A_MESSAGE = 6


def is_metric(metric: Any) -> bool:
    """Whether it names a metric, or is a function or the name of one."""
    return callable(metric) or is_name(metric) or (isinstance(metric, str) and ALIASES.get(metric, metric) in NAMES)


MetricName = Annotated[
    Any, Kind(f"{', '.join(map(repr, NAMES))}, a function of two rows, or 'module:name' of one", is_metric)
]


@dataclass(frozen=True)
class RowMetric:
    """The distance of two rows. Picklable if its function is."""

    name: str | Callable[..., float]
    trusted: bool = True
    """Whether a function of that name may be imported: the caller gave the name, not a file."""

    @property
    def text(self) -> str:
        """What errors, stages and models call it."""
        return self.name if isinstance(self.name, str) else reference(self.name)

    @property
    def own(self) -> bool:
        """Whether it is a function of the user's."""
        return not isinstance(self.name, str) or is_name(self.name)

    @property
    def function_of_two(self) -> bool:
        """Whether it is a compiled function of two rows: the user's, or one of ours by name."""
        return self.own or known(self.name).graphs == FUNCTIONS

    @property
    def summed(self) -> bool:
        """Whether distances of sparse rows follow from sums over the columns that rows share."""
        return not self.function_of_two

    @property
    def mapped(self) -> bool:
        """Whether distances are the Euclidean ones of mapped rows."""
        return known(self.name).graphs == MAPPED

    @property
    def bounded(self) -> bool:
        """Whether distances are at most 2, whatever the rows."""
        return known(self.name).bounded

    @property
    def unrelated(self) -> float:
        """The distance of rows that have nothing in common; infinite where distances grow without end."""
        if self.own or not self.bounded:
            return math.inf
        return math.sqrt(2) if self.mapped else 1.0

    def terms(self, columns: int, filled: int | None = None, listed: bool = False) -> float:
        """What the distance of two rows takes, in units of a term |x − y| of dense rows; measured.

        ``filled``: entries of a row, where rows are sparse; ``listed``: whether bounds from what the rows of a block
        share decide nearly all pairs.
        """
        if filled is None:
            return PAIR + known(self.name).terms * columns + 80 * self.own
        if listed and self.summed:
            return (6.0 + 0.5 * filled) * (5.0 if self.name == "chebyshev" else 1.0)
        return 120.0 + 37.0 * filled

    @property
    def function(self) -> Callable[..., float]:
        """The user's function; InputTypeError where only a file names it."""
        if not self.trusted:
            raise InputTypeError(
                f"distances are by the function {self.text!r}, which a file names and nobody gave: set metric to it"
            )
        return function_of(self.name) if isinstance(self.name, str) else self.name

    def key(self) -> dict[str, str]:
        """What the distances depend on, for the key of a stage: of a function its text too, where it can be had."""
        found = {"metric": self.text}
        if self.own:
            with suppress(OSError, TypeError):
                found["metric_source"] = getsource(getattr(self.function, "py_func", self.function))
        return found

    def squared(self, rows: Any, others: Any, swapped: Array | None = None) -> Array:
        """Squared distances (m, N) float64 of mapped rows (m, d) and (N, d), dense or CSR.

        ``swapped`` (m, N): of which pairs the user's function gets the other row first, so that the distance of two
        rows is one number. InputError where it is NaN, infinite or negative.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._euclidean(rows, others) if self.mapped else self._distances(rows, others, swapped) ** 2

    def _euclidean(self, rows: Any, others: Any) -> Array:
        if not is_sparse(rows):
            return every_squared(rows, others)
        from bigembed.distance.sparse_compiled import sparse_pairs

        return sparse_pairs(rows, others, str(self.name))

    def _distances(self, rows: Any, others: Any, swapped: Array | None) -> Array:
        if known(self.name).graphs == FUNCTIONS:
            from bigembed.distance.pair_compiled import every_pair  # imports numba: only here

            return every_pair(rows, others, str(self.name))
        if not (self.own or is_sparse(rows)):
            return _named(str(self.name), rows, others)
        from bigembed.distance.pair_compiled import user_pairs
        from bigembed.distance.sparse_compiled import sparse_pairs

        if not self.own:
            return sparse_pairs(rows, others, str(self.name))
        found = user_pairs(rows, others, self.function, self.text, swapped)
        self._refuse(found, rows, others)
        return found

    def _refuse(self, found: Array, rows: Any, others: Any) -> None:
        """InputError where the function returns a negative number, infinity or NaN, which are not distances."""
        if not found.size or (found.min() >= 0 and np.isfinite(found.max())):
            return
        with np.errstate(invalid="ignore"):
            i, j = np.argwhere(~((found >= 0) & np.isfinite(found)))[0]
        raise InputError(
            f"metric={self.text} returned {found[i, j]:g} for the rows {_shown(rows, i)} and {_shown(others, j)}; "
            "a distance is finite and ≥ 0"
        )


def _named(name: str, rows: Array, others: Array) -> Array:
    """Distances by a name; of two rows without an entry 0 where the definition is 0/0."""
    if known(name).graphs == SETS:
        return set_distances(name, rows, others)
    called: Any = known(name).scipy
    found = np.asarray(cdist(rows, others, metric=called), np.float64)
    if name == "braycurtis":
        empty = np.ix_(~rows.any(axis=1), ~others.any(axis=1))
        found[empty] = 0.0
    return found


def _shown(rows: Any, i: int) -> str:
    """The first numbers of a row."""
    row = rows[[i]].toarray()[0] if is_sparse(rows) else rows[i]
    more = ", …" if len(row) > NUMBERS_OF_A_MESSAGE else ""
    return f"({', '.join(f'{value:g}' for value in row[:NUMBERS_OF_A_MESSAGE])}{more})"


def checked_metric(metric: Any) -> RowMetric:
    """The metric of a name, an alias or a function; InputError for others, with the nearest known name."""
    if callable(metric):
        return RowMetric(metric)
    if is_name(metric):
        function_of(metric)
        return RowMetric(metric)
    name = ALIASES.get(metric, metric) if isinstance(metric, str) else None
    if name not in NAMES:
        raise InputError(
            f"metric={metric!r}{meant(metric, [*NAMES, *ALIASES])}; allowed: {', '.join(NAMES)}, a function of two "
            'rows, or "module:name" of one. ClassicalMDS and LandmarkMDS take others'
        )
    return RowMetric(str(name))


def require_columns(metric: RowMetric, d: int, is_csr: bool) -> None:
    """InputError where rows of d columns have no distance by a metric."""
    if metric.name == "gower" and d % 2:
        raise InputError(
            "metric='gower' compares columns as the step 'gower' (GowerEncoder) leaves them, two for each column of a "
            f"table; got rows of {d} columns. Put the step before the method"
        )
    if metric.name == "haversine" and (d != 2 or is_csr):
        kind = "sparse rows" if is_csr else f"rows of {d} columns"
        raise InputError(
            f"metric='haversine' takes two columns, latitude and longitude in radians; got {kind}. Its distance is "
            f"{CHORD}"
        )


def refuse_function(metric: RowMetric, rows: Any, numbers: Array) -> None:
    """InputError unless a function is a metric of these rows, whose ``numbers`` (m,) are named: symmetric, and 0 of a
    row and itself. NaN and negative distances are refused wherever they come up.

    What is beyond rounding is refused: :data:`ROUNDING` of the root mean square distance.
    """
    found = np.sqrt(metric.squared(rows, rows))
    size = ROUNDING * float(np.sqrt(np.mean(found**2))) if found.size else 0.0
    own = np.flatnonzero(np.diag(found) > size)
    if len(own):
        raise InputError(
            f"metric={metric.text}: the distance of a row to itself is 0; of {len(own)} of {len(found)} rows it is "
            f"not, such as {found[own[0], own[0]]:.4g} of row {numbers[own[0]]}. Is it a similarity?"
        )
    apart = np.abs(found - found.T)
    i, j = np.unravel_index(int(np.argmax(apart)), apart.shape) if apart.size else (0, 0)
    if apart.size and apart[i, j] > size:
        raise InputError(
            f"metric={metric.text}: distances are symmetric; of rows {numbers[i]} and {numbers[j]} it is "
            f"{found[i, j]:.6g}, of {numbers[j]} and {numbers[i]} {found[j, i]:.6g}. Take their mean, or the larger one"
        )
