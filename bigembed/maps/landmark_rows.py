"""Landmarks among rows of any number: their choice as a stage, and how well they place the other rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist

from bigembed.distance import rounding
from bigembed.errors import InputError
from bigembed.maps.landmark_maps import classical, triangulated
from bigembed.rows import RowBlock, RowSource, passes
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage, rows_of, window_of
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange

# ---------------------------------------------------------------------------------------------------------- select
# The choice of landmarks: uniformly, or so that they are far from each other.

SELECTIONS = ("max-min", "uniform")
MAX_LANDMARKS = 8_192
SAMPLE = 30
"""Rows looked at for each landmark of a max-min choice."""
SAMPLE_BYTES = 64 << 20
WIDE = 16
"""Columns from which rows are compared by products first."""


@dataclass(frozen=True)
class LandmarkChoice:
    """How many landmarks are chosen among rows, by which rule, and from which random numbers."""

    count: int
    selection: str
    seed: tuple[int, ...]

    def sample_size(self, rows: int, row_bytes: int) -> int:
        """How many of ``rows`` rows are looked at: more than landmarks, unless these are chosen uniformly."""
        more = 0 if self.selection == "uniform" else min(SAMPLE * self.count, SAMPLE_BYTES // max(1, row_bytes))
        return min(rows, max(self.count, more))

    def sample(self, rows: int, row_bytes: int, weights: Array | None = None) -> Array:
        """Numbers of the rows to look at, ascending: int64; with ``weights`` of the rows drawn by these."""
        size, seed = self.sample_size(rows, row_bytes), list(self.seed)
        return uniform(rows, size, seed) if weights is None else by_weight(weights, size, seed)

    def among(self, sample: Array) -> Array:
        """Positions of the landmarks, all of them different rows, in a sample (s, d); ascending."""
        far = far_apart(self.selection)
        return np.sort(max_min(sample, self.count) if far else np.unique(sample, axis=0, return_index=True)[1])


def far_apart(selection: str) -> bool:
    """Whether landmarks are chosen far from each other; InputError for a rule that is neither of :data:`SELECTIONS`.

    >>> far_apart("max-min"), far_apart("uniform")
    (True, False)
    """
    if selection not in SELECTIONS:
        raise InputError(f"landmarks={selection!r}; allowed: {', '.join(SELECTIONS)}")
    return selection == "max-min"


def uniform(count: int, wanted: int, seed: int | list[int]) -> Array:
    """``wanted`` of the numbers 0 … count − 1, without repetition, ascending: int64.

    >>> uniform(5, 5, 0).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.sort(np.random.default_rng(seed).choice(count, min(wanted, count), replace=False)).astype(np.int64)


def by_weight(weights: Array, wanted: int, seed: int | list[int]) -> Array:
    """``wanted`` of the numbers of positive weights, without repetition, ascending, each drawn in proportion to its
    weight among those that are left (Efraimidis & Spirakis 2006): int64.

    >>> by_weight(np.array([1.0, 1e12, 1.0, 1e12]), 2, 0).tolist()
    [1, 3]
    """
    waits = np.random.default_rng(seed).standard_exponential(len(weights)) / weights
    return np.sort(np.argsort(waits, kind="stable")[:wanted]).astype(np.int64)


def max_min(rows: Array, wanted: int) -> Array:
    """Positions of ``wanted`` rows (s, d), each the farthest from those before it: int64, in that order.

    The first is the row nearest to the mean; of equally far ones the first counts. Fewer are returned where the rows
    have fewer distinct ones. Every row is then at most as far from the nearest of them as any two of them
    are from each other (Gonzalez 1985). Cost: s·d·wanted, in memory: for a sample (de Silva & Tenenbaum 2004, §3.1).

    >>> max_min(np.array([[0.0], [1.0], [2.0], [10.0]]), 3).tolist()
    [2, 3, 0]
    """
    points = np.asarray(rows, np.float64)
    first = int(np.argmin(_squared(points, points.mean(axis=0))))
    near = _Nearer(points) if points.shape[1] >= WIDE else None
    return _farthest_first(near or (lambda i: _squared(points, points[i])), first, wanted)


class _Nearer:
    """Squared distances of wide rows to one of them, exact wherever they are below the least so far, else infinite.

    A product in float32 shows which rows are not nearer, beyond its rounding: after a few landmarks nearly all.
    """

    def __init__(self, points: Array) -> None:
        self.points = points
        center = points.mean(axis=0)
        reach = float(np.abs(points - center).max(initial=0.0)) or 1.0
        self.unit = reach * reach
        self.short = ((points - center) / reach).astype(np.float32)
        self.norms = np.einsum("ij,ij->i", self.short, self.short)
        self.lengths = np.sqrt(self.norms.astype(np.float64))
        self.rounding = rounding(points.shape[1], self.short.dtype)
        self.least = np.full(len(points), np.inf)

    def __call__(self, i: int) -> Array:
        product = self.short @ self.short[i]
        product *= -2
        product += self.norms
        bound = product.astype(np.float64) + self.norms[i] - self.rounding * (self.lengths + self.lengths[i]) ** 2
        out = np.full(len(self.points), np.inf)
        close = np.flatnonzero(~(bound * self.unit > self.least))
        out[close] = _squared(self.points[close], self.points[i])
        np.minimum(self.least, out, out=self.least)
        return out


def max_min_by(apart: Callable[[int], Array], wanted: int) -> Array:
    """Positions of ``wanted`` rows, each the farthest from those before it: ``apart(i)``, distances of all to row i.

    The first is the row that is farthest from row 0. Cost: ``wanted`` + 1 calls.

    >>> points = np.array([0.0, 1.0, 2.0, 10.0])
    >>> max_min_by(lambda i: abs(points - points[i]), 3).tolist()
    [3, 0, 2]
    """
    return _farthest_first(apart, int(np.argmax(apart(0))), wanted)


def _farthest_first(apart: Callable[[int], Array], first: int, wanted: int) -> Array:
    chosen, nearest = [first], np.array(apart(first), np.float64)
    while len(chosen) < min(wanted, len(nearest)):
        farthest = int(np.argmax(nearest))
        if not nearest[farthest] > 0:
            break
        chosen.append(farthest)
        np.minimum(nearest, apart(farthest), out=nearest)
    return np.array(chosen, np.int64)


def _squared(points: Array, point: Array) -> Array:
    difference = points - point
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


# --------------------------------------------------------------------------------------------------- landmark rows
# Landmarks among rows of any number, as a stage: all of them, or some chosen uniformly or far from each other.

ENOUGH = 0.98
"""Share of the landmarks asked for that may be found without a warning: some rows repeat others in most data."""


def all_rows_stage(source: RowSource) -> Stage:
    """``landmarks/rows`` (n, d): every row, checked. One pass."""
    n, d = passes.checked_shape(source, at_least=2)

    rows = ArraySpec("rows", n, d, source.work)
    cost = Cost.of(reads=[rows], writes=[rows], task=window_of(source), passes=1)
    parameters = {"source": source.fingerprint(), "selection": "all"}
    return Stage("landmarks", (), parameters, partial(run_all_rows, source=source), cost)


def run_all_rows(context: Context, source: RowSource) -> dict[str, Any]:
    n, d = source.shape
    passes.write_mapped(source, same_block, context.path("rows"), d, source.work, first=True)
    return {"n": n, "d": d, "dtype": str(source.work), "landmarks": n, "wanted": n}


def same_block(block: RowBlock) -> Array:
    """The rows themselves."""
    return np.asarray(block.rows)


def landmark_rows_stage(source: RowSource, wanted: int, selection: str, at_least: int, seed: int) -> Stage:
    """``landmarks/rows`` (L, d), all different, from a uniform sample; InputError for fewer than ``at_least``.

    "max-min" looks at 30 rows for each landmark (de Silva & Tenenbaum 2004). Reads the blocks that the sample is of.
    """
    n, d = passes.checked_shape(source, at_least=2)
    choice = LandmarkChoice(wanted, selection, (seed, 5))
    size = choice.sample_size(n, source.row_bytes)

    parameters = {"source": source.fingerprint(), "n_landmarks": wanted, "selection": selection, "seed": seed}
    parameters["at_least"] = at_least
    cost = Cost.of(
        reads=[rows_of(source)],
        writes=[ArraySpec("rows", min(n, wanted), d, source.work)],
        leaves=[ArraySpec("sample", size, d, source.work)],
        task=window_of(source),
        coordinator=[ArraySpec("sample", size, d, dtype, 4) for dtype in (source.work, "f8")],
        passes=1,
        serial_flops=2 * size * wanted * d if selection == "max-min" else 0,
    )
    run = partial(run_landmark_rows, source=source, at_least=at_least, choice=choice)
    return Stage("landmarks", (), parameters, run, cost)


def run_landmark_rows(context: Context, source: RowSource, at_least: int, choice: LandmarkChoice) -> dict[str, Any]:
    n, d = source.shape
    rows = chosen(picked_rows(source, choice.sample(n, source.row_bytes), context.exchange), choice, at_least)
    write_array(context.path("rows"), rows)
    return {"n": n, "d": d, "dtype": str(source.work), "landmarks": len(rows), "wanted": min(n, choice.count)}


def picked_rows(source: RowSource, numbers: Array, exchange: Exchange) -> Array:
    """Rows of the given ascending numbers, to this process; the blocks they are in are checked as a whole."""
    block, first = np.unique(numbers // source.block, return_index=True)
    wanted = dict(zip(block.tolist(), np.split(numbers, first[1:]), strict=True))
    found = passes.map_row_blocks(source, pick_block, given=wanted, label="pick", exchange=exchange)
    passes.refuse([part for part in found if part], source)
    return np.concatenate([exchange.get_many("picked", number, ["rows"])[0] for number in wanted])


def pick_block(block: RowBlock, numbers: Array, *, exchange: Exchange) -> dict[str, Any]:
    """Leave some rows of one block in the exchange; return what is wrong with the block."""
    exchange.put("picked", block.number, {"rows": block.rows[numbers - block.start]})
    found = passes.offenders(block)
    return {} if passes.usable(found) else found


def chosen(sample: Array, choice: LandmarkChoice, at_least: int, place: str = "") -> Array:
    """The landmarks (L, d) of a sample of rows; InputError where too few of them (in ``place``) differ."""
    rows = sample[choice.among(sample)]
    if len(rows) < at_least and 0 < np.abs(sample).max() < 1 / passes.LARGEST and sample.dtype == np.float64:
        passes.refuse_size(float(np.abs(sample).max()), passes.LARGEST, 1 / passes.LARGEST)
    if len(rows) < at_least:
        raise InputError(
            f"n_landmarks={choice.count}: only {len(rows)} different rows are among the {len(sample)} looked at{place},"
            f" and {at_least} are needed for the components asked. Ask for fewer components, more landmarks, or drop "
            "duplicated rows"
        )
    return np.asarray(rows)


def every_row(context: Context) -> bool:
    """Whether the landmarks are all distinct rows, so that half of them do not show what more would change."""
    chosen, asked = context.results("landmarks"), context.home.parameters("landmarks")
    few = chosen["landmarks"] < chosen["wanted"] and asked["selection"] == "max-min"
    return bool(few or chosen["landmarks"] == chosen["n"])


def duplicates_note(found: dict[str, Any]) -> list[str]:
    """The warning that far fewer landmarks were found than asked for, from the results of the stage."""
    if found["landmarks"] >= ENOUGH * found["wanted"]:
        return []
    return [
        f"n_landmarks={found['wanted']}: {found['landmarks']} different rows were found among those looked at "
        "(the others are duplicates); these are the landmarks"
    ]


# ---------------------------------------------------------------------------------------------------------- stress
# How well landmarks place rows: stress on pairs of rows, and what fewer landmarks would have done.


def stress(distances: Array, coordinates: Array) -> tuple[float, float]:
    """Kruskal's stress-1 of coordinates (k, m) for distances (k, k), and the correlation of the two; over all pairs.

    stress² = Σ_{i<j} (d_ij − ‖y_i − y_j‖)² / Σ_{i<j} d_ij² (Kruskal 1964, without monotone regression).

    >>> stress(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[0.0], [1.0]]))[0]
    0.5
    """
    i, j = np.triu_indices(len(distances), 1)
    given, found = distances[i, j], cdist(coordinates, coordinates)[i, j]
    size = float(given @ given)
    share = float(np.sqrt(np.square(given - found).sum() / size)) if size else 0.0
    spread = float(given.std() * found.std()) if len(given) > 1 else 0.0
    return share, float(np.mean((given - given.mean()) * (found - found.mean())) / spread) if spread else 1.0


def procrustes_residual(reference: Array, other: Array) -> float:
    """‖Y − Z R − t‖_F / ‖Y − mean‖_F for the best rotation or reflection R and translation t: 0 for the same shape.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> procrustes_residual(square, 5 - square[:, ::-1]) < 1e-12, procrustes_residual(square, 2 * square) > 0.9
    (True, True)
    """
    y, z = reference - reference.mean(axis=0), other - other.mean(axis=0)
    width = max(y.shape[1], z.shape[1])
    y, z = (np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (y, z))
    left, _, right = linalg.svd(z.T @ y)
    size = float(linalg.norm(y))
    return float(linalg.norm(y - z @ (left @ right))) / size if size else 0.0


def change(between: Array, to_landmarks: Array, order: Array, n_components: int, share: int) -> float:
    """:func:`procrustes_residual` of rows by all landmarks and by one of ``share``; NaN where these are too few.

    ``between`` (L, L) and ``to_landmarks`` (k, L) are distances; the first L/share landmarks of ``order`` are kept.
    """
    few = order[: len(order) // share]
    if len(few) <= n_components:
        return float("nan")
    whole, _ = classical(np.square(between), n_components)
    part, _ = classical(np.square(between[np.ix_(few, few)]), n_components)
    return procrustes_residual(triangulated(to_landmarks, whole), triangulated(to_landmarks[:, few], part))
