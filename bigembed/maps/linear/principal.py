"""Principal directions of rows: how many, and from the covariance, the products of all rows, or by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import gammaln

from bigembed.errors import InputError
from bigembed.estimator.moments import moments_stage
from bigembed.linalg import CovarianceOperator, eigenpairs, lanczos
from bigembed.maps.linear import gram
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage, rows_of, window_of
from bigembed.stages.cost import sums_of_groups
from bigembed.store.arrays import read_array, write_array

# ------------------------------------------------------------------------------------------------------- dimension
# How many components: a count, all, a share of the variance, or Minka's estimate.


def chosen_components(asked: Any, values: Array, n: int, d: int) -> int:
    """The number of components: as asked, all, the fewest that explain a share, or Minka's estimate.

    >>> chosen_components(0.7, np.array([3.0, 1.0, 1.0]), 10, 3), chosen_components(None, np.ones(3), 10, 3)
    (2, 3)
    """
    if asked is None:
        return len(values)
    if asked == "mle":
        refuse_few(n, d)
        return minka(values, n)
    if isinstance(asked, float):
        ratio = np.cumsum(values) / (values.sum() or 1.0)
        return min(len(values), int(np.searchsorted(ratio, asked, side="right")) + 1)
    return int(asked)


def refuse_few(n: int, d: int) -> None:
    """InputError where n rows of d columns are too few for Minka's estimate."""
    if n < d:
        raise InputError(f"n_components='mle' needs at least as many rows as columns; there are {n} rows of {d}")


def minka(values: Array, n: int) -> int:
    """The dimension q of the largest Bayesian evidence by Laplace's method (Minka 2000, eq. 30), 1 ≤ q < d.

    ``values`` are the eigenvalues of the covariance of ``n`` rows, descending. The pairs of eigenvalues enter
    through cumulative sums, so the cost is d² for all q together.
    """
    return int(np.argmax(evidence(values, n))) + 1 if len(values) > 1 else 1


def evidence(values: Array, n: int) -> Array:
    """log p(D | q) up to a constant for q = 1 … d − 1; −∞ where λ_q = 0."""
    d = len(values)
    q = np.arange(1, d)
    floor = float(np.finfo(float).eps * max(values[0], np.finfo(float).tiny))
    safe = np.maximum(values, floor)
    logs = np.log(safe)
    noise = np.maximum((values.sum() - np.cumsum(values))[:-1] / (d - q), floor)
    angles = (d - q + 1) / 2
    prior = -q * np.log(2) + np.cumsum(gammaln(angles) - angles * np.log(np.pi))
    fit = -n / 2 * (np.cumsum(logs)[:-1] + (d - q) * np.log(noise))
    free = d * q - q * (q + 1) / 2
    apart = np.log(np.maximum(safe[:, None] - safe[None, :], floor))
    to_all = np.cumsum(np.triu(apart, 1).sum(axis=1))[:-1]
    among = np.cumsum(np.triu(apart - logs[:, None] - logs[None, :], 1).sum(axis=0))[:-1]
    to_noise = np.array([np.log(np.maximum(1 / v - 1 / safe[:k], floor / v**2)).sum() for k, v in zip(q, noise)])
    curvature = to_all + among + (d - q) * to_noise + free * np.log(n)
    found = prior + fit + (free + q) / 2 * np.log(2 * np.pi) - curvature / 2 - q / 2 * np.log(n)
    return np.where(values[:-1] > 0, found, -np.inf)


# ------------------------------------------------------------------------------------------------------- principal

GRAM_COLUMNS = 4096
"""Columns up to which the covariance matrix is formed (d² numbers) and solved densely."""
LEAST_ITERATED = 1024
"""Columns up to which the covariance is always formed."""
SLOWER = 4
"""Times that an operation of a pass over the rows takes longer than one of the covariance and its solve."""
START = 16
"""Components first tried for a share of the variance, where the covariance is not formed."""
GUARDS = 8
"""Directions iterated on besides the wanted ones, at least."""
BLOCKS_KEPT, MOST_BLOCKS = 8, 32
"""Blocks of directions that Lanczos keeps before it restarts, at least and at most: a flat spectrum needs many, or it
needs more passes (of 20 000 × 6 000 random sparse rows: 94 with 8 blocks, 61 with 16)."""
BASIS_BYTES = 64 << 20
"""What these may take, beyond the least."""
EXPECTED_PASSES = 20
"""Of variances that decay."""
NOISY_PASSES = 40
"""Of rows fewer than their columns: most of these differ by noise, whose variances are all alike."""
FLAT = 4 * float(np.finfo(float).eps)
"""Variance over d times the largest below which a direction has none: what rounding leaves."""


@dataclass(frozen=True)
class PrincipalOptions:
    """What is asked of the solver."""

    n_components: Any
    whiten: bool
    tol: float
    max_passes: int
    seed: int
    center: bool = True
    """Whether moments are about the mean; about zero otherwise."""

    @property
    def width(self) -> int | None:
        """The number of components, where it is given."""
        return self.n_components if isinstance(self.n_components, int) else None


Solver = Callable[["Context", RowSource, PrincipalOptions, float, int], "Found"]
"""Finds components: ``(context, source, asked, divisor of variances, most components)``."""


@dataclass(frozen=True)
class Found:
    """What a solver found: variances (m,), directions (d, m), the total variance, and its own figures."""

    variance: Array
    directions: Array
    total: float
    details: dict[str, Any]


def solver_of(source: RowSource, asked: PrincipalOptions) -> Solver:
    """How components are found: from the covariance (d, d), from the products of all rows (n, n), or by iteration.

    Iteration multiplies the covariance by vectors, in passes over the rows, and forms no matrix: where both are too
    large, and where few components are asked, so that the operations for the smaller matrix and its solve (n d² and
    some 10 d³; n² d and 10 n³) are many times those of the passes. It does not find all components.
    """
    n, d = source.shape
    if d <= min(LEAST_ITERATED, GRAM_COLUMNS):
        return direct
    numbers = gram.numbers_of_row(source)
    a_pass = SLOWER * 4.0 * n * numbers * _block(d, asked.width) if asked.width else np.inf
    if n < d and n <= gram.MOST_ROWS and asked.n_components != "mle":
        return iterated if NOISY_PASSES * a_pass < n**2 * numbers + 10.0 * n**3 else dual
    if d > GRAM_COLUMNS:
        refuse_whole(n, d, asked.n_components)
        return iterated
    return iterated if EXPECTED_PASSES * a_pass < n * d**2 + 10.0 * d**3 else direct


def refuse_whole(n: int, d: int, asked: Any) -> None:
    """InputError where what is asked for needs a matrix, and both are too large."""
    if asked in (None, "mle"):
        raise InputError(
            f"n_components={asked!r} needs the covariance of all {d} columns, which is formed up to {GRAM_COLUMNS}, or "
            f"the products of all {n} rows, formed up to {gram.MOST_ROWS}; give a number of components, at most "
            f"{min(n, d)}, or a share of the variance"
        )


def principal_stages(source: RowSource, asked: PrincipalOptions) -> list[Stage]:
    """``moments``, and ``solve``: leading eigenvectors of the covariance, and the variances along them."""
    solver = solver_of(source, asked)
    return [moments_stage(source, diagonal=solver is not direct), solve_stage(source, asked, solver)]


def solve_stage(source: RowSource, asked: PrincipalOptions, solver: Solver) -> Stage:
    """The stage ``solve`` of a solver."""
    n, d = checked_shape(source)
    run = partial(run_solve, source=source, asked=asked, d=d, solver=solver)
    width = min(asked.width or (2 * START if solver is iterated else d), n, d)
    kept = [ArraySpec("components", width, d), ArraySpec("mean", d), ArraySpec("variance", width)]
    cost = Cost.of(writes=kept) + _cost_of(source, asked, solver, width)
    return Stage("solve", ("moments",), asdict(asked), run, cost)


def _cost_of(source: RowSource, asked: PrincipalOptions, solver: Solver, width: int) -> Cost:
    """What a solver takes that finds ``width`` components."""
    d = source.shape[1]
    if solver is dual:
        return gram.gram_cost(source, width)
    if solver is direct:
        return Cost.of(coordinator=[ArraySpec("covariance and vectors", d, 6 * d)])
    passes, block = min(EXPECTED_PASSES, asked.max_passes), _block(d, width)
    panel, kept = ArraySpec("directions of a pass", d, block, times=4), blocks_kept(d, block) * block
    return Cost.of(
        reads=[rows_of(source, passes)],
        leaves=sums_of_groups(source, panel.nbytes // 4),
        task=[*window_of(source), panel],
        coordinator=[ArraySpec("directions", d, kept)],
        passes=passes,
        most_passes=asked.max_passes,
        flops=4.0 * passes * source.shape[0] * gram.numbers_of_row(source) * block,
        serial_flops=8.0 * passes * d * kept * block,  # (three times against the directions so far, half of the kept)
    )


def run_solve(context: Context, source: RowSource, asked: PrincipalOptions, d: int, solver: Solver) -> dict[str, Any]:
    moments = context.results("moments")
    freedom, most = moments["weight"] - int(asked.center), min(int(moments["weight"]), d)
    if freedom <= 0:
        raise InputError(
            f"the weights sum to {moments['weight']:g}, so they stand for as many rows, and a variance needs more "
            "than 1. Give weights of mean 1: w * len(w) / w.sum()"
        )
    if isinstance(asked.n_components, int) and asked.n_components > most:
        raise InputError(
            f"n_components={asked.n_components}: the weights stand for {int(moments['weight'])} rows; at most "
            f"min(n_samples, n_features) = {most} components are there. Weights that are no counts are given with mean "
            "1: w * len(w) / w.sum()"
        )
    found = solver(context, source, asked, freedom, most)
    left = most - len(found.variance)
    write_array(context.path("mean"), _mean(context, asked))
    write_array(context.path("components"), np.ascontiguousarray(found.directions.T))
    write_array(context.path("variance"), found.variance)
    return {
        "n_components": len(found.variance),
        "total": found.total,
        "noise": max(0.0, found.total - float(found.variance.sum())) / left if left else 0.0,
        **found.details,
    }


def direct(context: Context, source: RowSource, asked: PrincipalOptions, freedom: float, most: int) -> Found:
    """From the covariance matrix, densely."""
    covariance = _scatter(context, asked) / freedom
    values, vectors = principal_directions(covariance)
    kept = chosen_components(asked.n_components, values[:most], int(context.results("moments")["weight"]), len(values))
    directions = vectors[:, :kept] * eigenpairs.extremes(vectors[:, :kept])[1]
    residual = np.linalg.norm(covariance @ directions - directions * values[:kept], axis=0)
    details = {
        "solver": "covariance",
        "passes": 0,
        "residual": float(residual.max()),
        "gap": float(values[kept - 1] - values[kept]) if kept < len(values) else float(values[kept - 1]),
        "converged": True,
        "advice": "",
    }
    return Found(values[:kept], directions, float(values.sum()), details)


def dual(context: Context, source: RowSource, asked: PrincipalOptions, freedom: float, most: int) -> Found:
    """From the products of all pairs of rows (n, n), densely: those of n rows of more columns."""
    mean, n, given = _mean(context, asked), source.shape[0], source.aligned.get("weights")
    rows = gram.StandardizedRows.of(source, context.exchange, gram.Standard(mean[None]))
    roots = np.ones(n) if given is None else np.sqrt(np.asarray(given.read(0, n), np.float64))
    products = rows.products() * (roots[:, None] * roots / freedom)
    values, vectors = _largest(products, n if asked.width is None else min(n, asked.width + 1))
    spectrum = np.zeros(most if asked.width else min(most, n))
    spectrum[: len(values)] = values[: len(spectrum)]
    kept = chosen_components(asked.n_components, spectrum, int(context.results("moments")["weight"]), len(mean))
    live = min(kept, int(np.count_nonzero(values > FLAT * n * values[0])))
    unfinished = products @ vectors[:, :live] - vectors[:, :live] * values[:live]
    residual = np.linalg.norm(unfinished, axis=0) * np.sqrt(values[0] / values[:live])
    found = rows.combined(roots[:, None] * vectors[:, :live])
    directions, lengths = gram.orthonormal(found)
    directions = gram.completed(directions, kept)
    directions *= eigenpairs.extremes(directions)[1]
    spectrum[:live], spectrum[live:kept] = lengths**2 / freedom, 0.0
    details = {
        "solver": "products of rows",
        "passes": round(gram.passes_of(source, live)),
        "residual": float(residual.max(initial=0.0)),
        "gap": float(spectrum[kept - 1] - spectrum[kept]) if kept < len(spectrum) else float(spectrum[-1]),
        "converged": True,
        "advice": "",
    }
    return Found(spectrum[:kept], directions, float(np.trace(products)), details)


def _largest(symmetric: Array, count: int) -> tuple[Array, Array]:
    """The ``count`` largest eigenvalues, none below 0, descending, and their vectors."""
    n = len(symmetric)
    some = {"driver": "evd"} if count == n else {"subset_by_index": [n - count, n - 1]}
    values, vectors = linalg.eigh(symmetric, **some)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def iterated(context: Context, source: RowSource, asked: PrincipalOptions, freedom: float, most: int) -> Found:
    """By block Lanczos on the matrix-free covariance; a share of the variance with more and more components."""
    mean = _mean(context, asked)
    total = float(_scatter(context, asked).sum()) / freedom
    operator = CovarianceOperator(source, mean, freedom, context.exchange)
    wanted = min(most, asked.width or START)
    while True:
        result = lanczos.solve_lanczos(
            operator,
            wanted,
            tol=asked.tol,
            seed=asked.seed,
            max_passes=asked.max_passes,
            block=_block(len(mean), wanted),
            max_blocks=blocks_kept(len(mean), _block(len(mean), wanted)),
            relative=True,
        )
        context.note(f"{wanted} components: {result.passes} passes, {result.reason}")
        values = np.maximum(result.eigenvalues, 0.0)
        explained = np.cumsum(values) / (total or 1.0)
        if asked.width or wanted == most or explained[-1] > asked.n_components:
            break
        wanted = min(most, 2 * wanted)
    kept = asked.width or min(wanted, int(np.searchsorted(explained, asked.n_components, side="right")) + 1)
    details = {
        "solver": "block Lanczos",
        "passes": operator.passes,
        "residual": float(result.residuals[:kept].max()),
        "gap": result.gap if kept == wanted else float(values[kept - 1] - values[kept]),
        "converged": result.converged,
        "advice": result.advice,
    }
    return Found(values[:kept], operator.space.read("V", 0)[:, :kept], total, details)


def _block(d: int, wanted: int) -> int:
    """Directions that are iterated on at a time."""
    return min(d, wanted + max(GUARDS, wanted // 2))


def blocks_kept(d: int, width: int) -> int:
    """How many blocks of directions (d, width) Lanczos keeps.

    >>> blocks_kept(20_000, 18), blocks_kept(1_000_000, 18)
    (23, 8)
    """
    return max(BLOCKS_KEPT, min(MOST_BLOCKS, BASIS_BYTES // (8 * d * width)))


def whitening(variance: Array) -> Array:
    """1/√variance; 0 where the variance is 0."""
    return np.asarray(np.where(variance > 0, 1 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0))


def _mean(context: Context, asked: PrincipalOptions) -> Array:
    """What is taken off the rows."""
    mean = read_array(context.of("moments", "mean"))
    return mean if asked.center else np.zeros_like(mean)


def _scatter(context: Context, asked: PrincipalOptions) -> Array:
    """Σ w (x − m)(x − m)ᵀ, or its diagonal; with m = 0 instead of the mean where rows are not centered."""
    scatter = read_array(context.of("moments", "scatter"))
    if asked.center:
        return scatter
    mean = read_array(context.of("moments", "mean"))
    weight = context.results("moments")["weight"]
    return np.asarray(scatter + weight * (mean**2 if scatter.ndim == 1 else np.outer(mean, mean)))


def principal_directions(covariance: Array) -> tuple[Array, Array]:
    """Variances (d,), descending, and directions (d, d).

    Directions without variance are arbitrary, so rounding would choose them; a pivoted QR factorization of the
    projector on their span does instead, and they are the same for the same span.
    """
    values, vectors = linalg.eigh(covariance)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].copy()
    rank = int(np.count_nonzero(values > FLAT * len(values) * values[0]))
    if rank < len(values):
        spanned = vectors[:, :rank]
        projector = np.eye(len(values)) - spanned @ spanned.T
        vectors[:, rank:] = linalg.qr(projector, pivoting=True)[0][:, : len(values) - rank]
        values[rank:] = 0.0
    return values, vectors
