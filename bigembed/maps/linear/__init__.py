"""Linear maps of rows: principal components and discriminants.

Principal directions are here: from the covariance matrix, or by its products with vectors; what their methods share.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from scipy import linalg
from scipy.special import gammaln

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, inverse
from bigembed.estimator.moments import moments_stage
from bigembed.estimator.rowwise import WeightedRowwiseEstimator, add_rows, sums_of
from bigembed.linalg import CovarianceOperator, eigenpairs, lanczos
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.rows.row_maps import AffineMap, project
from bigembed.rows.sparse import ENTRY_BYTES
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, rows_of, window_of
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
        if n < d:
            raise InputError(f"n_components='mle' needs at least as many rows as columns; there are {n} rows of {d}")
        return minka(values, n)
    if isinstance(asked, float):
        ratio = np.cumsum(values) / (values.sum() or 1.0)
        return min(len(values), int(np.searchsorted(ratio, asked, side="right")) + 1)
    return int(asked)


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
FEW_ROWS = 2048
"""Rows up to which all components of more columns than that are iterated on, where all are asked for."""
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


@dataclass(frozen=True)
class Found:
    """What a solver found: variances (m,), directions (d, m), the total variance, and its own figures."""

    variance: Array
    directions: Array
    total: float
    details: dict[str, Any]


def is_iterated(source: RowSource, asked: PrincipalOptions) -> bool:
    """Whether the covariance is not formed, but multiplied by vectors in passes over the rows.

    So it is where it has too many columns, and where few components are asked of rows that are few, or sparse, so that
    n d² operations for it and some 10 d³ for its solve are many times those of the passes.
    """
    n, d = source.shape
    if d > GRAM_COLUMNS or asked.width is None or d <= LEAST_ITERATED:
        return d > GRAM_COLUMNS
    numbers = source.row_bytes / ENTRY_BYTES if source.sparse else d
    return bool(SLOWER * EXPECTED_PASSES * 4.0 * n * numbers * _block(d, asked.width) < n * d**2 + 10.0 * d**3)


def solve_stage(source: RowSource, asked: PrincipalOptions, iterate: bool) -> Stage:
    """Leading eigenvectors of the covariance, and the variances along them; ``iterate``: without forming it."""
    n, d = checked_shape(source)

    width = min(asked.width or 2 * START, n, d) if iterate else d
    columns = blocks_kept(d, _block(d, width)) * _block(d, width)
    passes = min(EXPECTED_PASSES, asked.max_passes) if iterate else 0
    panel = ArraySpec("directions of a pass", d, _block(d, width), times=4)
    cost = Cost.of(
        reads=[rows_of(source, passes)],
        writes=[ArraySpec("components", width, d), ArraySpec("mean", d), ArraySpec("variance", width)],
        leaves=sums_of_groups(source, panel.nbytes // 4) if iterate else (),
        task=[*window_of(source), panel] if iterate else (),
        coordinator=[ArraySpec("directions", d, columns if iterate else 6 * d)],
        passes=passes,
        most_passes=asked.max_passes if iterate else 0,
    )
    return Stage(
        "solve", ("moments",), asdict(asked), partial(run_solve, source=source, asked=asked, d=d, iterate=iterate), cost
    )


def run_solve(context: Context, source: RowSource, asked: PrincipalOptions, d: int, iterate: Any) -> dict[str, Any]:
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
    found = (iterated if iterate else direct)(context, source, asked, freedom, most)
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


# ------------------------------------------------------------------------------------------------------- estimator


class PrincipalEstimator(WeightedRowwiseEstimator):
    """Base of the methods whose coordinates are products of a row with principal directions."""

    follows_dtype = takes_sparse = True
    compiled_from: ClassVar = inf
    goes_before: ClassVar = True
    explained_variance_ratio_: Array

    @abstractmethod
    def _asked(self) -> PrincipalOptions:
        """Return what is asked of the solver."""

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: moments, components and, on demand, coordinates."""
        self._check()
        asked = self._asked()
        n, d = checked_shape(source, at_least=2 if asked.center else 1)
        most = d if source.aligned else min(n, d)
        if asked.width and asked.width > most:
            raise InputError(f"n_components={asked.width} must be between 1 and min(n_samples, n_features)={most}")
        if asked.n_components is None and most <= FEW_ROWS < d:  # (no more are there than rows)
            asked = replace(asked, n_components=most)
        if d > GRAM_COLUMNS and asked.n_components in (None, "mle"):
            raise InputError(
                f"n_components={asked.n_components!r} needs the covariance of all {d} columns, which is formed up to "
                f"{GRAM_COLUMNS}; give a number of components, at most {most}, or a share of the variance"
            )
        iterate = is_iterated(source, asked)
        stages = [moments_stage(source, diagonal=iterate), solve_stage(source, asked, iterate)]
        return [*stages, self._output_stage(source, stages, asked.width or most)]

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to those fitted so far: exactly what ``fit`` finds for all of them, up to rounding.

        For at most 4096 columns; the sums in between are d² numbers. The coordinates of the rows come from
        ``transform``. ``fit`` starts anew.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How often each row counts.

        Returns
        -------
        Estimator
            The estimator itself.
        """

        def stages(source: RowSource, earlier: Any) -> list[Stage]:
            checked_shape(source)
            return [moments_stage(source, earlier=earlier), solve_stage(source, self._asked(), False)]

        sums = sums_of(self, "moments", ("mean", "scatter"))
        if sums is not None and sums["scatter"].ndim == 1:
            raise InputError(
                "partial_fit adds to the covariance, which fit did not form for so many columns. Begin with partial_fit"
            )
        add_rows(self, X, stages, sums, weights=sample_weight)
        return self

    def inverse_transform(self, X: Any) -> Any:
        """Return rows of coordinates: x = m + Σ_l y_l v_l, times the standard deviation if whitened.

        Parameters
        ----------
        X : array of shape (k, m)
            The coordinates.

        Returns
        -------
        array of shape (k, d)
            The rows: NumPy for arrays in memory, else a lazy Dask array.
        """
        self._check_fitted()
        mean, components, variance = self._solved()
        scale = np.sqrt(variance)[:, None] if self._run.parameters("solve")["whiten"] else 1.0
        return inverse(self, X, scale * components, mean)

    def _solved(self) -> tuple[Array, Array, Array]:
        """Mean, components and variances in double precision, whatever the rows are."""
        mean, components, variance = (
            read_array(self._run.path("solve", name)) for name in ("mean", "components", "variance")
        )
        return mean, components, variance

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, moments = run.results("solve"), run.results("moments")
        return {
            "solver": solve["solver"],
            "passes": solve["passes"] + 1,
            "converged": solve["converged"],
            "seed": run.parameters("solve")["seed"],
            "input": {name: moments[name] for name in ("n", "d", "dtype", "weight")},
            "explained": float(self.explained_variance_ratio_.sum()),
            "residual": solve["residual"],
            "gap": solve["gap"],
            "warnings": {
                "convergence": [] if solve["converged"] else [_unfinished(type(self).__name__, solve)],
                "degenerate": _few(moments["n"], moments["weight"]) if run.parameters("solve")["center"] else [],
            },
        }

    def _extension(self, run: Run) -> Extension:
        moments, solve = run.results("moments"), run.results("solve")
        whiten = run.parameters("solve")["whiten"]
        scale = whitening(read_array(run.path("solve", "variance"))) if whiten else None
        model = AffineMap(run.path("solve", "components"), run.path("solve", "mean"), transposed=True, scale=scale)
        return Extension(project, model, solve["n_components"], moments["d"], dtype=moments["dtype"], sparse=True)


FEW = 100
"""Rows that weights stand for below which Σw/(Σw − 1) shows in the variances."""


def _few(n: int, weight: float) -> list[str]:
    """That weights stand for so few of the rows that they are hardly counts, and the variances are larger for it."""
    if weight >= min(n / 2, FEW):
        return []
    return [
        f"The weights of {n:,} rows sum to {weight:g}: they stand for as many equal rows, so variances are "
        f"Σw/(Σw − 1) = {weight / (weight - 1):.3g} times those of the rows. If they are no counts, give them "
        "with mean 1: w * len(w) / w.sum()"
    ]


def _unfinished(method: str, solve: dict[str, Any]) -> str:
    return (
        f"{method}: the eigensolver stopped with residuals up to {solve['residual']:.2g} after {solve['passes']} "
        f"passes. {solve['advice']}"
    )
