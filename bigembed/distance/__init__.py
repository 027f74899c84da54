"""Distances and metrics of rows, dense and sparse.

The registry of metrics is here (every name that is taken, and what is known of it), and the distances of all pairs of
two blocks of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import getsource
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist

from bigembed.errors import InputError, meant
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import BlockFunction, function_of, reference

MAPPED, PAIRS, SETS, FUNCTIONS = "mapped", "pairs", "sets", "functions"
"""How graphs have it: as Euclidean distances of mapped rows, pair by pair, of rows as sets of the columns that are not
0, or as a compiled function of two rows (:mod:`bigembed.distance.pair_compiled`)."""


@dataclass(frozen=True)
class Known:
    """What is known of a metric by its name."""

    scipy: str = ""
    """Its name in SciPy's ``cdist``, by which classical and landmark MDS have it; empty where SciPy has it not."""
    graphs: str = ""
    """How neighbor graphs and :func:`bigembed.certify` have it; empty where they have it not."""
    bounded: bool = False
    """Whether distances are at most 2, whatever the rows."""
    terms: float = 2.0
    """What a column of a pair takes, in terms |x − y|; measured."""
    degree: float = 1.0
    """By what power distances grow with the rows."""
    parameter: str = ""
    """Of ``cdist``, a property of all rows: SciPy would take it from the rows of each call, so it has to be given."""


METRICS = {
    "euclidean": Known("euclidean", MAPPED),
    "cosine": Known("cosine", MAPPED, bounded=True),
    "correlation": Known("correlation", MAPPED, bounded=True),
    "hellinger": Known("", MAPPED, bounded=True),
    "haversine": Known("", MAPPED, bounded=True),
    "manhattan": Known("cityblock", PAIRS, terms=1.0),
    "chebyshev": Known("chebyshev", PAIRS, terms=1.0),
    "canberra": Known("canberra", PAIRS, terms=3.0),
    "braycurtis": Known("braycurtis", PAIRS, bounded=True, terms=2.5),
    "hamming": Known("hamming", PAIRS, bounded=True, terms=1.0),
    "jaccard": Known("jaccard", SETS, bounded=True, terms=0.2),
    "dice": Known("dice", SETS, bounded=True, terms=0.2),
    "rogerstanimoto": Known("rogerstanimoto", SETS, bounded=True, terms=0.2),
    "sokalsneath": Known("sokalsneath", SETS, bounded=True, terms=0.2),
    "spearmanr": Known("", MAPPED, bounded=True),
    "jensenshannon": Known("jensenshannon", FUNCTIONS, bounded=True, terms=25.0),
    "russellrao": Known("russellrao", FUNCTIONS, bounded=True, terms=4.0),
    "sqeuclidean": Known("sqeuclidean", FUNCTIONS, terms=2.0, degree=2.0),
    "yule": Known("yule", FUNCTIONS, bounded=True, terms=4.0),
    "kulsinski": Known("", FUNCTIONS, bounded=True, terms=4.0),
    "matching": Known("", FUNCTIONS, bounded=True, terms=4.0),
    "symmetric_kl": Known("", FUNCTIONS, terms=25.0, degree=0.0),
    "wasserstein_1d": Known("", FUNCTIONS, terms=6.0, degree=0.0),
    "circular_kantorovich": Known("", FUNCTIONS, terms=60.0, degree=0.0),
    "true_angular": Known("", FUNCTIONS, bounded=True, terms=10.0),
    "tsss": Known("", FUNCTIONS, terms=20.0, degree=4.0),
    "bit_hamming": Known("", FUNCTIONS, terms=10.0, degree=0.0),
    "bit_jaccard": Known("", FUNCTIONS, bounded=True, terms=20.0),
    "gower": Known("", FUNCTIONS, bounded=True, terms=4.0, degree=0.0),
    "mahalanobis": Known("mahalanobis", parameter="VI"),
    "minkowski": Known("minkowski"),
    "seuclidean": Known("seuclidean", parameter="V"),
}
ALIASES = {
    "l2": "euclidean",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "taxicab": "manhattan",
    "linf": "chebyshev",
    "linfty": "chebyshev",
    "linfinity": "chebyshev",
    "dot": "cosine",
    "direct_cosine": "cosine",
    "sokalmichener": "rogerstanimoto",
    "tanimoto": "jaccard",
    "jensen_shannon": "jensenshannon",
    "jensen-shannon": "jensenshannon",
    "symmetric-kl": "symmetric_kl",
    "symmetric_kullback_liebler": "symmetric_kl",
    "wasserstein-1d": "wasserstein_1d",
    "kantorovich_1d": "wasserstein_1d",
    "kantorovich-1d": "wasserstein_1d",
    "circular_wasserstein": "circular_kantorovich",
}
"""Other names: those of SciPy, scikit-learn, pynndescent (which scales the rows of its "dot" to length one), and of
chemists."""
CENTERED = ("correlation", "spearmanr")
"""Metrics for which sparse rows get one more column, whose squared difference is subtracted."""


def known(name: object) -> Known:
    """What is known of a metric by its name or an alias; of any other nothing."""
    return METRICS.get(ALIASES.get(str(name), str(name)), Known())


def named(graphs: str) -> tuple[str, ...]:
    """The metrics that graphs have in this way."""
    return tuple(name for name, one in METRICS.items() if one.graphs == graphs)


# --------------------------------------------------------------------------------------------------------- all pairs
# Squared Euclidean distances of all pairs of two blocks of rows, with one fixed order of the sum, and how far a product
# is from them.

LANES = 8
EXACT_32 = 1 << 24
"""Counts below this are exact in float32."""
_TILE = 16, 512
"""Rows and columns of a tile of all pairs, whose lanes stay in a cache."""


def paired_squared(a: Array, b: Array) -> Array:
    """Squared distances ‖a_i − b_i‖² of paired rows (m, d), (m, d): float64 (m,).

    Direct differences summed in eight lanes: feature j goes to lane j mod 8 in increasing j, and
    the lanes are added as a fixed tree. The same bits in every batch, symmetric in a and b.
    """
    m, d = a.shape
    steps = -(-d // LANES)
    squares = np.zeros((m, steps * LANES))
    np.subtract(a, b, out=squares[:, :d], dtype=np.float64)
    squares *= squares
    lanes = squares.reshape(m, steps, LANES).sum(axis=1)
    half = lanes[:, :4] + lanes[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    return np.asarray(quarter[:, 0] + quarter[:, 1])


def every_squared(a: Array, b: Array) -> Array:
    """Squared distances ‖a_i − b_j‖² of all pairs of rows (m, d), (N, d): float64 (m, N).

    Equal to :func:`paired_squared` to the bit, many times faster: each feature in its lane, the lanes as one tree.
    """
    left, right = a.astype(np.float64), np.ascontiguousarray(b.T, np.float64)
    out = np.empty((len(a), len(b)))
    height, width = _TILE
    for top in range(0, len(a), height):
        for start in range(0, len(b), width):
            part = out[top : top + height, start : start + width]
            part[:] = _tile(left[top : top + height], right[:, start : start + width])
    return out


def all_squared(rows: Array) -> Array:
    """:func:`every_squared` of rows (n, d) with themselves: half of the tiles, and their mirror images."""
    out = np.empty((len(rows), len(rows)))
    left, right = rows.astype(np.float64), np.ascontiguousarray(rows.T, np.float64)
    height, width = _TILE
    for top in range(0, len(rows), height):
        for start in range(top - top % width, len(rows), width):
            part = _tile(left[top : top + height], right[:, start : start + width])
            out[top : top + height, start : start + width] = part
            out[start : start + width, top : top + height] = part.T
    return out


def _tile(rows: Array, columns: Array) -> Array:
    lanes = np.zeros((LANES, len(rows), columns.shape[1]))
    difference = np.empty(lanes.shape[1:])
    for feature, column in enumerate(columns):
        np.subtract(rows[:, feature, None], column, out=difference)
        difference *= difference
        lanes[feature % LANES] += difference
    half = lanes[:4] + lanes[4:]
    quarter = half[:2] + half[2:]
    return np.asarray(quarter[0] + quarter[1])


def set_distances(name: str, rows: Array, others: Array) -> Array:
    """Distances of rows as the sets of the columns in which they are not 0.

    A product of matrices counts the columns that two of them share: whole numbers, and so exact in any order.
    """
    p, q = ((part != 0).astype(np.float32 if part.shape[1] < EXACT_32 else np.float64) for part in (rows, others))
    both = (p @ q.T).astype(np.float64)
    differ = p.sum(axis=1, dtype=np.float64)[:, None] + q.sum(axis=1, dtype=np.float64)
    differ -= 2 * both
    if name == "rogerstanimoto":
        return np.asarray(2 * differ / (rows.shape[1] + differ))
    twice = 2 * differ if name == "sokalsneath" else differ
    whole = (2 * both if name == "dice" else both) + twice
    return np.asarray(np.divide(twice, whole, out=np.zeros_like(whole), where=whole > 0))


def rounding(n_features: int, dtype: np.dtype[Any]) -> float:
    """Factor g of a bound |approximate − exact| ≤ g (‖x‖ + ‖y‖)² on ‖x‖² + ‖y‖² − 2 x·y.

    It holds for any order of summation, for x and y rounded after a common shift, and for distances
    that are stored rounded to ``dtype`` (Higham, Accuracy and Stability, §3.1: γ_d = d u / (1 − d u)).
    """
    unit = float(np.finfo(dtype).eps) / 2
    terms = (n_features + 16) * unit
    return 1.1 * terms / (1 - terms) if terms < 0.5 else np.inf


# ------------------------------------------------------------------------------------------------------- distances
# Pairwise distances of two blocks of rows: by a metric of SciPy's ``cdist``, or by the user's block function.
#
# A block function is ``function(a, b) -> (len(a), len(b))``. It gets blocks of rows, or, for objects that are no
# vectors, blocks of their ids. So that a job file can name it and a saved model can find it again, a function in an
# importable module may be written as the text ``"module:name"``.

NAMES = tuple(sorted(one.scipy for one in METRICS.values() if one.scipy))
"""Metrics of classical and landmark MDS, by their names in ``cdist``."""
TILE_BYTES = 8 << 20
"""Distances that are held at a time, in float64."""
NAMED = 10
LARGEST = 2.0**240
"""Up to here, and from its inverse on, fourth powers of distances, and their sums, are numbers."""
ROUNDING = 1e-5
"""Share of the root mean square distance that counts as rounding."""


@dataclass(frozen=True)
class Metric:
    """What returns the distance of two rows. Picklable if its function is."""

    name: str | BlockFunction
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``cdist`` or of the function."""
    ids: bool = False
    """Whether rows hold one integer each, the id of an object that the function knows."""

    def within(self, context: Any) -> Self:
        """The same, for distances that the stages of a run keep."""
        return self

    @property
    def euclidean(self) -> bool:
        """Whether the distances are those of the rows as vectors, so that linear algebra can do without them."""
        return isinstance(self.name, str) and known(self.name).scipy == "euclidean" and not self.parameters

    @property
    def text(self) -> str:
        """The name that errors, stage keys and saved models give."""
        return self.name if isinstance(self.name, str) else reference(self.name)

    def key(self) -> dict[str, Any]:
        """What the distances depend on, for the key of a stage: of a function its text too, where it can be had."""
        parameters = {name: np.asarray(value).tolist() for name, value in sorted(self.parameters.items())}
        found = {"metric": self.text, "metric_params": parameters, "ids": self.ids}
        if callable(self.name) or ":" in self.name:
            function = function_of(self.name) if isinstance(self.name, str) else self.name
            with suppress(OSError, TypeError):
                found["source"] = getsource(function)
        return found

    def between(self, rows: Any, others: Any) -> Array:
        """Distances (len(rows), len(others)) float64, as the function gives them: see :func:`wrong_entries`.

        Raises InputError where a block function returns another shape or no real numbers.

        >>> Metric("cityblock").between([[0.0, 0.0]], [[3.0, 4.0], [1.0, 1.0]]).tolist()
        [[7.0, 2.0]]
        """
        a, b = np.asarray(rows), np.asarray(others)
        if isinstance(self.name, str) and ":" not in self.name:
            name: Any = known(self.name).scipy
            if known(self.name).graphs == SETS and name != "dice" and not self.parameters:  # (SciPy's dice multiplies)
                return set_distances(name, a, b)  # (SciPy takes ten times as long)
            exact = np.asarray(cdist(a, b, metric=name, **self.parameters), np.float64)
            return np.maximum(exact, 0.0, out=exact)  # 1 − cos may round below 0; NaN stays
        function = self.name if not isinstance(self.name, str) else function_of(self.name)
        if self.ids:
            a, b = (np.asarray(block[:, 0], np.int64) for block in (a, b))
        return of_blocks(partial(function, **self.parameters), a, b, f"metric={self.text}", "distances")

    def tiles(self, rows: Any, others: Any) -> Iterator[tuple[int, Array]]:
        """:meth:`between`, some rows at a time, each part with the number of its first row."""
        height = max(1, TILE_BYTES // (8 * max(1, len(others))))
        for start in range(0, len(rows), height):
            yield start, self.between(rows[start : start + height], others)


def of_blocks(function: BlockFunction, a: Array, b: Array, named: str, what: str) -> Array:
    """What a user's function of two blocks of rows says of all pairs, float64 (len(a), len(b)).

    InputError where it is one of two rows, or returns another shape or no real numbers. ``named`` is what errors call
    it, ``what`` says what it returns.
    """
    wanted = (
        f"a block function returns real {what} of shape ({len(a)}, {len(b)}). A function of two rows becomes one as "
        "lambda a, b: scipy.spatial.distance.cdist(a, b, function)"
    )
    try:
        found = np.asarray(function(a, b))
    except ValueError as error:
        if "truth value of an array" not in str(error):
            raise
        raise InputError(f"{named} fails on blocks of {len(a)} and {len(b)} rows ({error}); {wanted}") from error
    if found.shape != (len(a), len(b)) or found.dtype.kind not in "buif":
        raise InputError(
            f"{named}: blocks of {len(a)} and {len(b)} rows gave an array {found.dtype} of shape {found.shape}; "
            f"{wanted}"
        )
    return np.asarray(found, np.float64)


def checked_metric(metric: Any, parameters: Mapping[str, Any] | None, ids: bool = False) -> Metric:
    """The metric, tried on two rows.

    Raises InputError for an unknown name (with the nearest known one), parameters that it does not take, and for
    metrics that need a parameter which SciPy would else take anew from every block.
    """
    given = dict(parameters or {})
    if callable(metric) or (isinstance(metric, str) and ":" in metric):
        if isinstance(metric, str):
            function_of(metric)
        return Metric(metric, given, ids)
    if ids:
        raise InputError(f"ids=True: a function has to return the distances of objects by their ids; metric={metric!r}")
    asked = known(metric) if isinstance(metric, str) else Known()
    if not asked.scipy:
        raise InputError(
            f"metric={metric!r}{meant(metric, NAMES)}; allowed: {', '.join(NAMES)}, a function of two blocks of rows, "
            'or "module:name" of one'
        )
    if asked.parameter and asked.parameter not in given:
        raise InputError(
            f"metric={metric!r} needs metric_params={{{asked.parameter!r}: …}}: it is a property of all rows, and "
            "SciPy would take it from the rows of each block"
        )
    found = Metric(metric, given)
    if not asked.parameter and not {"w", "V", "VI"} & set(given):  # those fix the number of columns
        try:
            found.between(np.ones((1, 2)), np.ones((1, 2)))
        except (TypeError, ValueError) as error:
            raise InputError(f"metric={metric!r}, metric_params={given!r}: {error}") from error
    return found


def wrong_entries(distances: Array, first_row: int = 0, first_column: int = 0) -> list[tuple[int, int, float]]:
    """The first entries that no distance can have (NaN, infinite or negative): row, column, value.

    >>> wrong_entries(np.array([[0.0, -1.0], [2.0, np.inf]]), first_row=10)
    [(10, 1, -1.0), (11, 1, inf)]
    """
    if not distances.size:
        return []
    low, high = distances.min(), distances.max()  # NaN if there is one
    if low >= 0 and np.isfinite(high):
        return []
    with np.errstate(invalid="ignore"):
        row, column = np.nonzero(~((distances >= 0) & np.isfinite(distances)))
    return [
        (int(i) + first_row, int(j) + first_column, float(distances[i, j]))
        for i, j in zip(row[:NAMED], column[:NAMED], strict=True)
    ]


def refuse_square(distances: Array, whose: str, what: str = "rows") -> None:
    """InputError unless distances (k, k) between ``what`` are finite, nonnegative, symmetric and 0 on the diagonal.

    What is beyond rounding is refused: :data:`ROUNDING` of the root mean square distance.
    """
    problems = []
    if wrong := wrong_entries(distances):
        entries = ", ".join(f"({i}, {j}): {value:g}" for i, j, value in wrong)
        problems.append(f"distances are finite and ≥ 0; between {what} there are entries {entries}")
    else:
        refuse_range(float(distances.max(initial=0.0)), whose)
        size = ROUNDING * float(np.sqrt(np.mean(np.square(distances)))) if distances.size else 0.0
        diagonal = np.flatnonzero(np.diag(distances) > size)
        if len(diagonal):
            problems.append(
                f"the distance of a row to itself is 0; {len(diagonal)} of {len(distances)} {what} have another, such "
                f"as {distances[diagonal[0], diagonal[0]]:.4g}. Is it a similarity?"
            )
        i, j = np.unravel_index(int(np.argmax(np.abs(distances - distances.T))), distances.shape)
        if abs(distances[i, j] - distances[j, i]) > size:
            problems.append(
                f"the distances are not symmetric: between {what} {i} and {j} they are {distances[i, j]:.6g} and "
                f"{distances[j, i]:.6g}. Take their mean, or the larger one"
            )
    if problems:
        raise InputError(f"{whose}: " + "; ".join(problems))


def refuse_range(largest: float, whose: str) -> None:
    """InputError where the largest distance is beyond :data:`LARGEST`, or below its inverse (0 is a distance)."""
    if largest and not 1 / LARGEST <= largest <= LARGEST:
        raise InputError(
            f"{whose}: the squares of the distances {'over' if largest > 1 else 'under'}flow: they reach to "
            f"{largest:.3g}, and {1 / LARGEST:.3g} to {LARGEST:.3g} can be worked with here. Multiply all of them by "
            f"2**{-int(np.floor(np.log2(largest)))}, which rounds nothing"
        )


def refuse_distances(distances: Array, metric: Metric | None, first: int = 0) -> None:
    """InputError where a distance to a known row is NaN, infinite or negative."""
    if wrong := wrong_entries(distances, first):
        i, j, value = wrong[0]
        whose = "the distances given" if metric is None else f"metric={metric.text}"
        raise InputError(
            f"{whose}: the distance of row {i} to the known row {j} is {value:g}; distances are finite and ≥ 0"
        )
