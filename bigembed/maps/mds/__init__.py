"""Classical scaling of distances, of all rows or of landmarks, and of rows by their distances to others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from scipy import linalg

from bigembed.distance import Metric, refuse_distances
from bigembed.errors import InputError
from bigembed.linalg.eigenpairs import EigenResult, extremes
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.moments import merge_moments, moments_block, require_weight
from bigembed.linalg.pairs import VECTOR_ROWS, CenteredOperator, vector_blocks
from bigembed.maps import positive_weights
from bigembed.maps.landmark_maps import centered, scaled
from bigembed.maps.landmark_rows import SELECTIONS as FROM_ROWS
from bigembed.maps.landmark_rows import LandmarkChoice, far_apart, max_min, max_min_by, uniform
from bigembed.neighbors import TILE_ENTRIES
from bigembed.neighbors.partition import kmeans
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, checked_shape, reduce_rows
from bigembed.rows.row_maps import AffineMap
from bigembed.rows.tiles import PANEL_BYTES, TILE_COLUMNS
from bigembed.runtime.blocks import Array
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer, summing_cost
from bigembed.store.arrays import read_array, write_array
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import assembled

# ----------------------------------------------------------------------------------------------------------- gower
# Coordinates of a row by its distances to rows whose coordinates are known: Gower's formula.
#
# With B = −½ H Δ H = V Λ Vᵀ of the squared distances Δ between the known rows, and μ the mean column of Δ, a row with
# squared distances δ to them lies at y = −½ Λ^{-1/2} Vᵀ (δ − μ) (Gower 1968, eq. 10; for landmarks de Silva &
# Tenenbaum 2004, §2). Known rows come out where they are. An affine map of δ, so coordinates may be turned and moved
# with it.


@dataclass(frozen=True)
class ByDistance:
    """Where a task finds the map, and the rows that distances are taken to."""

    metric: Metric | None
    """None: the rows given are the distances."""
    known: str
    map: AffineMap
    squared: bool = False
    """Whether what is given, or what the metric returns, are squared distances."""
    columns: str = ""
    """Where the numbers of the columns are that are taken of rows of distances; empty: all."""


def coordinates_by_distance(rows: Array, model: ByDistance, first: int = 0) -> Array:
    """Coordinates (n, m) of rows, or of rows of distances; each the same whatever rows stand beside it.

    Raises InputError where a distance is NaN, infinite or negative, naming the row (``first`` is the number of the
    first one) and the known row.
    """
    found = model.map.read()
    out = np.empty((len(rows), found.matrix.shape[1]))
    if model.columns:
        rows = rows[:, read_array(model.columns)]
    parts = [(0, rows)] if model.metric is None else model.metric.tiles(rows, read_array(model.known))
    for start, distances in parts:
        refuse_distances(distances, model.metric, first + start)
        squares = np.asarray(distances, np.float64) if model.squared else np.square(distances, dtype=np.float64)
        out[start : start + len(distances)] = found(squares)
    return out


# ------------------------------------------------------------------------------------------------- landmark sample
# The rows that landmarks are chosen from, and the choice: one pass over the rows, then the sample in memory.

SELECTIONS = (*FROM_ROWS, "k-means")
PROBES = 400
"""Sampled rows on whose pairs the stress is taken."""
SCATTER_COLUMNS = 512
"""Columns up to which second moments (d²) are taken in the pass of the sample; else of the coordinates, in another."""
MOMENTS = ("count", "weight", "mean", "scatter")


@dataclass(frozen=True)
class LandmarkOptions:
    """Which landmarks: a selection and their number, or ``"ids"`` (numbers of rows) or ``"rows"`` that are given."""

    selection: str
    count: int
    seed: int
    given: Array | None = None

    def candidates(self, n: int, row_bytes: int) -> Array:
        """Numbers of the rows to look at, ascending, each once."""
        if self.selection == "rows":
            return np.zeros(0, np.int64)
        if self.given is not None:
            return np.unique(self.given).astype(np.int64)
        return LandmarkChoice(self.count, self.selection, (self.seed, 1)).sample(n, row_bytes)

    def key(self) -> dict[str, Any]:
        """What the choice depends on."""
        given = None
        if self.given is not None:
            text = repr((self.given.shape, str(self.given.dtype))).encode()
            given = sha256(text + np.ascontiguousarray(self.given).tobytes()).hexdigest()
        return {"selection": self.selection, "count": self.count, "seed": self.seed, "given": given}


def sample_stage(source: RowSource, asked: LandmarkOptions, moments: bool) -> Stage:
    """Rows to choose landmarks from (``candidates``) and to measure on (``probes``), with ``ids`` of the candidates.

    One pass, in which all rows are checked; with ``moments`` it also takes ``mean`` and ``scatter`` of all rows (the
    diagonal only, where the columns are many).
    """
    n, d = checked_shape(source)
    size = 8 * d * (d if d <= SCATTER_COLUMNS else 1) if moments else 0

    drawn = [
        ArraySpec("candidates", len(asked.candidates(n, source.row_bytes)), d, source.work),
        ArraySpec("probes", min(n, PROBES), d, source.work),
    ]
    numbers = [ArraySpec(name, sum(int(one.rows) for one in drawn), dtype="i8") for name in ("wanted", "ids")]
    sums = [ArraySpec("mean", d), ArraySpec("scatter", d, d if d <= SCATTER_COLUMNS else None)] if moments else []
    held = [*drawn, numbers[0]]
    cost = summing_cost(source, size) + Cost.of(
        writes=[*drawn, *numbers, *sums],
        leaves=held,
        task=held,
        coordinator=[replace(one, times=4) for one in held],
        flops=2 * n * size / 8,
    )
    parameters = {"source": source.fingerprint(), "moments": moments, **asked.key()}
    run = partial(run_sample, source=source, asked=asked, moments=moments, size=size)
    return Stage("sample", (), parameters, run, cost)


def run_sample(context: Context, source: RowSource, asked: LandmarkOptions, moments: bool, size: int) -> dict[str, Any]:
    n, d = source.shape
    ids = asked.candidates(n, source.row_bytes)
    probes = uniform(n, min(n, PROBES), [asked.seed, 2])
    both = np.union1d(ids, probes)
    write_array(context.path("wanted"), both)
    found = reduce_rows(
        source,
        sample_of_block,
        context.exchange,
        combine=merge_samples,
        partial_bytes=size,
        first=True,
        label="sample",
        wanted=context.path("wanted"),
        moments=moments,
    )
    if moments:
        require_weight(found)
    write_array(context.path("ids"), ids)
    write_array(context.path("candidates"), found["rows"][np.searchsorted(both, ids)])
    write_array(context.path("probes"), found["rows"][np.searchsorted(both, probes)])
    for name in ("mean", "scatter") if moments else ():
        write_array(context.path(name), found[name])
    return {"n": n, "d": d, "dtype": str(source.work), "candidates": len(ids), "probes": len(probes)}


def sample_of_block(block: RowBlock, *, wanted: str, moments: bool) -> Parts:
    """The wanted rows of one block, and its moments."""
    ids = read_array(wanted)
    first, last = np.searchsorted(ids, (block.start, block.stop))
    rows = {"rows": block.rows[ids[first:last] - block.start]}
    if not moments:
        return rows
    return rows | moments_block(block.rows, block.weights, diagonal=block.rows.shape[1] > SCATTER_COLUMNS)


def merge_samples(left: Parts, right: Parts) -> Parts:
    """Rows one after the other, moments together."""
    rows = {"rows": np.concatenate([left["rows"], right["rows"]])}
    if "scatter" not in left:
        return rows
    return rows | merge_moments(*({name: part[name] for name in MOMENTS} for part in (left, right)))


def landmark_arrays(count: int, d: int, dtype: Any) -> Arrays:
    """What the stage of the landmarks writes: their rows, their numbers, and the order in which to take fewer."""
    return [ArraySpec("rows", count, d, dtype), *(ArraySpec(name, count, dtype="i8") for name in ("ids", "order"))]


def landmarks_stage(source: RowSource, asked: LandmarkOptions, metric: Metric) -> Stage:
    """``rows`` (L, d) and ``ids`` (L,) of the landmarks (−1: no row of the input), ``order`` in which to take fewer."""

    n, d = checked_shape(source)
    drawn = len(asked.candidates(n, source.row_bytes))
    candidates = ArraySpec("candidates, as they are and as they are compared", drawn, d, times=4)
    tile = [ArraySpec("tile of distances", TILE_ENTRIES, times=3)] if asked.selection == "k-means" else []
    parameters = {**asked.key(), **metric.key()}
    cost = Cost.of(
        writes=landmark_arrays(asked.count, d, source.work),
        coordinator=[candidates, *tile],
        serial_flops=100 * asked.count**2 * d,
    )
    return Stage("landmarks", ("sample",), parameters, partial(run_landmarks, asked=asked, metric=metric), cost)


def run_landmarks(context: Context, asked: LandmarkOptions, metric: Metric) -> dict[str, Any]:
    sample, ids = read_array(context.of("sample", "candidates")), read_array(context.of("sample", "ids"))
    rows, numbers = choose(asked, metric, sample, ids, context.results("sample")["dtype"])
    return write_landmarks(context, asked, rows, numbers, len(sample))


def write_landmarks(
    context: Context, asked: LandmarkOptions, rows: Array, numbers: Array, sampled: int
) -> dict[str, Any]:
    """Write the landmarks, chosen among so many rows, and the order in which to take fewer; what the stage says."""
    order = np.arange(len(rows))
    if asked.selection != "max-min":
        order = np.random.default_rng([asked.seed, 4]).permutation(len(rows))
    write_array(context.path("rows"), rows)
    write_array(context.path("ids"), numbers)
    write_array(context.path("order"), order)
    return {
        "selection": asked.selection,
        "landmarks": len(rows),
        "distinct": len(np.unique(rows, axis=0)),
        "wanted": asked.count,
        "sampled": sampled,
    }


def choose(asked: LandmarkOptions, metric: Metric, sample: Array, ids: Array, dtype: str) -> tuple[Array, Array]:
    """Rows and numbers of the landmarks."""
    if asked.selection == "rows":
        assert asked.given is not None
        return np.asarray(asked.given, dtype), np.full(len(asked.given), -1)
    if asked.selection == "ids":
        assert asked.given is not None
        position = np.searchsorted(ids, asked.given)
        return sample[position], ids[position]
    if asked.selection == "k-means":
        centers = kmeans(sample, min(asked.count, len(sample)), [asked.seed, 3])
        return centers.astype(dtype, copy=False), np.full(len(centers), -1)
    if not far_apart(asked.selection):
        return sample, ids
    if metric.euclidean:
        chosen = max_min(sample, asked.count)
    else:
        chosen = max_min_by(lambda i: to_row(metric, sample, i), asked.count)
    return sample[chosen], ids[chosen]


def to_row(metric: Metric, sample: Array, i: int) -> Array:
    """Distances of a sample to one of its rows."""
    found = metric.between(sample, sample[i : i + 1])
    refuse_distances(found, metric)
    return found[:, 0]


# ------------------------------------------------------------------------------------------------------- classical
# Classical scaling of distances that lie in an array: B = −½ H Δ H = V Λ Vᵀ, never formed where it is large.

TILE = 1_024
"""Rows and columns of a stored chunk."""
DENSE_ROWS = 1_024
"""Distances between at most this number of rows are solved densely, with all eigenvalues."""
PASSES = 15
"""Passes over all pairs that a plan counts with."""
NOISE = 4.0
"""Rounding of the distances, in units of its expected effect on an eigenvalue."""


def distance_solve_stage(
    source: RowSource, m: int, *, made: bool, squared: bool, tol: float, max_passes: int, seed: int
) -> Stage:
    """Check the distances in one pass, then the largest eigenpairs of B; Gower's map, eigenvalues, what is negative.

    ``source`` are the distances; or, where the stage "distances" ``made`` them, the rows.
    """
    n, dtype = source.shape[0], source.work if made else source.dtype

    parameters: dict[str, Any] = {"m": m, "squared": squared, "tol": tol, "max_passes": max_passes, "seed": seed}
    run = partial(run_distance_solve, source=source, made=made, **parameters)
    if not made:
        parameters["source"] = source.fingerprint()
    width, dense = width_of(m), n <= DENSE_ROWS
    panel = panel_bytes(n, dtype.itemsize, (TILE, TILE) if made else source.chunks)
    of_each = [ArraySpec("mean", n), ArraySpec("matrix", n, m), ArraySpec("offset", m)]
    cost = Cost.of(
        reads=[ArraySpec("distances", n, n, dtype, PASSES)],
        writes=[*of_each, ArraySpec("eigenvalues", m), ArraySpec("negative", n)],
        leaves=[ArraySpec("vectors of the solve", n, width, times=16)],
        task=[buffer("panels of distances", 3 * panel), ArraySpec("vectors", n, width, times=4)],
        coordinator=[
            ArraySpec("vectors", n, m + 2, times=5),
            *([ArraySpec("distances, dense", n, n, times=5)] if dense else []),
        ],
        passes=PASSES,
        flops=4 * PASSES * n * n * width,
        serial_flops=9 * n**3 if dense else 0,
        maps=2 * PASSES,
        blocks=-(-n // VECTOR_ROWS),
    )
    return Stage("solve", ("distances",) if made else (), parameters, run, cost)


def run_distance_solve(
    context: Context, source: RowSource, made: bool, m: int, squared: bool, tol: float, max_passes: int, seed: int
) -> dict[str, Any]:
    n = source.shape[0]
    given = RowSource((n, n), source.work, path=context.of("distances", "distances")) if made else source
    weights, space = positive_weights(source), StoredSpace(None, context.exchange, vector_blocks(n))
    operator = CenteredOperator(given, space, squared=squared, weights=weights)
    context.note(f"{n} × {n} distances are finite, symmetric and zero on the diagonal")
    mean = operator.means
    noise = rounding(operator, given)
    solved = _dense if n <= DENSE_ROWS else _lanczos
    values, vectors, negative, found = solved(operator, given, mean, m, (tol, max_passes, seed))
    kept = kept_of(values, noise, m)
    values, vectors = values[:kept], vectors[:, :kept]
    if weights is not None:
        root = np.sqrt(weights)[:, None]
        vectors = vectors * root * extremes(vectors / root)[1]
    residuals = found["residuals"][:kept] / operator.trace
    AffineMap.within(context.path("")).write(scaled(mean, values, vectors, kept, noise))
    write_array(context.path("eigenvalues"), values)
    negative = negative[negative < -noise]
    write_array(context.path("negative"), negative)
    return {
        "n": n,
        "n_components": kept,
        "trace": operator.trace,
        "norm": operator.norm,
        "explained": min(1.0, float(values @ values) / operator.norm**2),
        "rounding": noise,
        "passes": operator.passes,
        **found,
        "residuals": residuals.tolist(),
        "converged": bool(found["converged"] or (residuals <= max(tol, noise / operator.trace)).all()),
    }


def panel_bytes(n: int, itemsize: int, chunks: tuple[int, int]) -> int:
    """Largest panel of distances that a task holds: see :func:`bigembed.rows.tiles.panels`."""
    rows = min(n, max(chunks[0], VECTOR_ROWS))
    return max(PANEL_BYTES, rows * min(n, chunks[1] + TILE_COLUMNS) * itemsize)


def width_of(m: int) -> int:
    """Columns of a Lanczos block: a pass costs the reading of Δ, so more columns than wanted save passes."""
    return 2 * m + 4


def kept_of(values: Array, noise: float, m: int) -> int:
    """How many of the eigenvalues, descending, are positive beyond rounding, at most m; InputError if none is."""
    kept = int(np.count_nonzero(values[:m] > noise))
    if not kept:
        raise InputError(
            "no eigenvalue of B is positive beyond rounding, so there are no coordinates: all rows are equal, or the "
            "distances are those of no points at all"
        )
    return kept


def rounding(operator: CenteredOperator, source: RowSource) -> float:
    """What an eigenvalue of B may be by the rounding of the distances alone.

    A symmetric matrix of independent errors of size σ has eigenvalues up to 2 σ √n (Wigner); here σ is the precision
    of the stored numbers times the mean of Δ.
    """
    n = source.shape[0]
    stored = np.finfo(source.dtype).eps if source.dtype.kind == "f" else np.finfo(float).eps
    return float(NOISE * stored * operator.mean * np.sqrt(n) + 64 * np.finfo(float).eps * operator.norm)


Solved = tuple[Array, Array, Array, dict[str, Any]]


def _dense(operator: CenteredOperator, source: RowSource, mean: Array, m: int, asked: tuple[float, int, int]) -> Solved:
    """All eigenvalues of B; the m largest with vectors, negative ones ascending."""
    n = source.shape[0]
    squares = np.array(source.window((0, n), (0, n)), np.float64)
    if not operator.squared:
        np.square(squares, out=squares)
    form = centered(squares, mean, operator.weights)
    values, vectors = linalg.eigh(form)
    operator.passes += 1
    top = vectors[:, ::-1][:, :m]
    top = top * extremes(top)[1]
    found = {
        "positive": int(np.count_nonzero(values > rounding(operator, source))),
        "residuals": np.linalg.norm(form @ top - top * values[::-1][:m], axis=0),
        "solver": "dense",
        "converged": True,
    }
    return values[::-1][:m], top, values[values < 0], found


def _lanczos(
    operator: CenteredOperator, source: RowSource, mean: Array, m: int, asked: tuple[float, int, int]
) -> Solved:
    """The m largest eigenpairs of B, and the smallest Ritz value if it is negative."""
    values, vectors, result = largest_pairs(operator, m, *asked, block=min(width_of(m), len(mean)))
    lowest = result.lowest * operator.trace
    found = {
        "residuals": result.residuals * operator.trace,
        "gap": result.gap,
        "bytes_moved": result.bytes_moved,
        "solver": "lanczos",
        "converged": result.converged,
        "reason": str(result.reason),
    }
    return values, vectors, np.array([lowest] if lowest < 0 else []), found


def largest_pairs(
    operator: CenteredOperator, m: int, tol: float, max_passes: int, seed: int, block: int | None = None
) -> tuple[Array, Array, EigenResult]:
    """The m largest eigenvalues of B, their vectors (n, m), and what the solver says, in units of tr B."""
    result = solve_lanczos(operator, m, tol=tol, seed=seed, max_passes=max_passes, block=block)
    return result.eigenvalues * operator.trace, assembled(operator.space, "V"), result
