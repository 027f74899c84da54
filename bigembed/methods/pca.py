"""Principal component analysis: the directions of largest variance, from one pass over the rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy import linalg

from bigembed.blocks.affine import affine_block
from bigembed.blocks.rows import Array
from bigembed.eigen.base import extremes
from bigembed.errors import InputError
from bigembed.methods.base import Requirements, is_integer, is_number
from bigembed.methods.certificate import versions
from bigembed.methods.moments import moments_stage
from bigembed.methods.rowwise import RowwiseEstimator
from bigembed.stages import Context, Cost, Run, Stage
from bigembed.store.arrays import RowSource, read_array, write_array
from bigembed.store.passes import checked_shape

if TYPE_CHECKING:
    from bigembed.methods.extension import Extension

GRAM_COLUMNS = 4096
"""Columns up to which the covariance matrix is formed (d² numbers) and solved densely."""
FLAT = 4 * float(np.finfo(float).eps)
"""Variance over d times the largest below which a direction has none: what rounding leaves."""


class PCA(RowwiseEstimator):
    """Principal component analysis of rows of any number, in one pass; sparse rows are never made dense.

    With the weighted mean m and S = Σ w_i (x_i − m)(x_i − m)ᵀ, the components v_l are the leading
    eigenvectors of S/(W − 1), W = Σ w_i, and the coordinates of a row are (x − m)·v_l (seed 000 §2,
    seed 004 §2.2). A weight is a number of equal rows: w_i = 2 is the row i twice.

    Parameters
    ----------
    n_components : int, float in (0, 1), "mle" or None. The number of coordinates; or the share of the variance
        to explain, with the fewest; or Minka's estimate; or all min(n, d).
    whiten : bool. Divide each coordinate by its standard deviation.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.

    Attributes
    ----------
    components_ : (m, d) orthonormal rows, by descending variance; the largest |entry| of each is positive (the
        rule of scikit-learn's ``svd_flip(u_based_decision=False)``, so signs agree).
    explained_variance_, explained_variance_ratio_, singular_values_ : (m,).
    mean_ : (d,). noise_variance_ : float, the mean of the variances left out (0 if none are).
    n_components_, n_samples_, n_features_in_ : int. certificate_ : dict.
    embedding_ : (n, m) coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : fewer than two rows, NaN or infinity (rows named), parameters out of range.

    Notes
    -----
    Cost: one pass for ``fit``, one for coordinates. A block of rows (32 MiB) and d² numbers a worker; the covariance
    is accumulated in float64 about the mean of each block, so a mean far from zero costs no accuracy.

    References
    ----------
    T. Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000), for "mle".
    M. Tipping, C. Bishop, Probabilistic principal component analysis, JRSS B 61 (1999), for the noise variance.

    Examples
    --------
    >>> pca = PCA(n_components=1).fit(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    >>> pca.components_.round(3).tolist(), pca.explained_variance_ratio_.round(3).tolist()
    ([[0.6, 0.8]], [1.0])
    >>> pca.transform(np.array([[3.0, 4.0]])).round(9).tolist()
    [[0.0]]
    """

    registered = "pca"
    beside = ("weights",)
    kept: ClassVar = {"moments": ("mean",), "solve": ("",), "coordinates": ("embedding",)}

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        whiten: bool = False,
        workdir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.workdir = workdir

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit rows (any kind that :func:`bigembed.open_array` takes), with nonnegative weights or without."""
        from bigembed.methods.fitting import fit_rows

        fit_rows(self, X, weights=sample_weight)
        return self

    def stages(self, source: RowSource, run: Run) -> list[Stage]:
        """Moments, components and, on demand, coordinates."""
        self._check()
        n, d = checked_shape(source, at_least=2)
        asked, most = _plain(self.n_components), d if source.beside else min(n, d)
        width = asked if isinstance(asked, int) else most
        if width > most:
            raise InputError(f"n_components={asked!r} must be between 1 and min(n_samples, n_features)={most}")
        return [
            moments_stage(source),
            solve_stage(asked, bool(self.whiten), d),
            self._output_stage(source, "solve", width),
        ]

    def inverse_transform(self, X: Any) -> Array:
        """Rows (k, d) of coordinates (k, m): x = m + Σ_l y_l v_l, times the standard deviation if whitened."""
        self._check_fitted()
        scale = np.sqrt(self.explained_variance_)[:, None] if self.whiten else 1.0
        return np.asarray(X @ (scale * self.components_) + self.mean_)

    def get_covariance(self) -> Array:
        """The covariance (d, d) of the model: the components' part, and noise in all other directions."""
        self._check_fitted()
        excess = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        covariance = (self.components_.T * excess) @ self.components_
        covariance.flat[:: len(covariance) + 1] += self.noise_variance_
        return np.asarray(covariance)

    def _check(self) -> None:
        need = Requirements(self)
        count: Any = self.n_components
        share = is_number(count) and not is_integer(count) and 0 < count < 1
        need(
            count is None or (isinstance(count, str) and count == "mle") or share or (is_integer(count) and count >= 1),
            "n_components",
            "an integer ≥ 1, a share of the variance in (0, 1), 'mle' or None",
        )
        need(isinstance(self.whiten, (bool, np.bool_)), "whiten", "True or False")
        need.refuse()

    def _adopt(self, run: Run) -> None:
        solve, moments = run.results("solve"), run.results("moments")
        self.mean_ = read_array(run.path("moments", "mean"))
        self.components_ = read_array(run.path("solve", "components"))
        self.explained_variance_ = read_array(run.path("solve", "variance"))
        self.explained_variance_ratio_ = self.explained_variance_ / (solve["total"] or 1.0)
        self.singular_values_ = np.sqrt(self.explained_variance_ * (moments["weight"] - 1))
        self.noise_variance_ = solve["noise"]
        self.n_components_, self.n_samples_ = len(self.components_), moments["n"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, moments = run.results("solve"), run.results("moments")
        return {
            "solver": solve["solver"],
            "passes": solve["passes"] + 1,
            "input": {name: moments[name] for name in ("n", "d", "dtype", "weight")},
            "explained": float(self.explained_variance_ratio_.sum()),
            "residual": solve["residual"],
            "gap": solve["gap"],
            "versions": versions(),
            "warnings": {},
        }

    def _extension(self, run: Run) -> Extension:
        from bigembed.methods.extension import Extension

        moments, solve = run.results("moments"), run.results("solve")
        model = Projection(run.path("moments", "mean"), run.path("solve"), run.manifest("solve").parameters["whiten"])
        return Extension(project, model, solve["n_components"], moments["d"], dtype=moments["dtype"])


# --- one block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Projection:
    """Where a task finds the map of the rows."""

    mean: str
    solve: str
    whiten: bool


def project(rows: Any, model: Projection) -> Array:
    """(x − m)·v_l, over the standard deviation if whitened (0 where there is no variance)."""
    matrix = read_array(f"{model.solve}/components").T
    if model.whiten:
        variance = read_array(f"{model.solve}/variance")
        matrix = matrix * np.where(variance > 0, 1 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    return affine_block(rows, read_array(model.mean), matrix)


# --- stages --------------------------------------------------------------------------------------


def solve_stage(n_components: Any, whiten: bool, d: int) -> Stage:
    """Leading eigenvectors of the covariance, and the variances along them."""

    def run(context: Context) -> dict[str, Any]:
        moments = context.results("moments")
        n, d = int(moments["weight"]), moments["d"]
        freedom = moments["weight"] - 1
        if freedom <= 0:
            raise InputError(f"the weights sum to {moments['weight']:g}; the variance needs more than 1")
        covariance = read_array(context.of("moments", "scatter")) / freedom
        values, vectors = principal_directions(covariance)
        most = min(n, d)
        if isinstance(n_components, int) and n_components > most:
            raise InputError(f"n_components={n_components}: the weights stand for {n} rows; at most {most} are there")
        kept = chosen_components(n_components, values[:most], n)
        components = vectors[:, :kept] * extremes(vectors[:, :kept])[1]
        residual = covariance @ components - components * values[:kept]
        write_array(context.path("components"), np.ascontiguousarray(components.T))
        write_array(context.path("variance"), values[:kept])
        return {
            "n_components": kept,
            "total": float(values.sum()),
            "noise": float(values[kept:most].mean()) if kept < most else 0.0,
            "solver": "covariance",
            "passes": 0,
            "residual": float(np.linalg.norm(residual, axis=0).max()),
            "gap": float(values[kept - 1] - values[kept]) if kept < d else float(values[kept - 1]),
        }

    parameters = {"n_components": n_components, "whiten": whiten}
    return Stage("solve", ("moments",), parameters, run, Cost(disk=8 * d * (d + 1), coordinator=6 * 8 * d * d))


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


def chosen_components(asked: Any, values: Array, n: int) -> int:
    """The number of components: as asked, all, the fewest that explain a share, or Minka's estimate.

    >>> chosen_components(0.7, np.array([3.0, 1.0, 1.0]), 10), chosen_components(None, np.ones(3), 10)
    (2, 3)
    """
    if asked is None:
        return len(values)
    if asked == "mle":
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
    if n < len(values):
        raise InputError(f"n_components='mle' needs at least as many rows as columns; there are {n} rows")
    return int(np.argmax(evidence(values, n))) + 1 if len(values) > 1 else 1


def evidence(values: Array, n: int) -> Array:
    """log p(D | q) up to a constant for q = 1 … d − 1; −∞ where λ_q = 0."""
    from scipy.special import gammaln

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


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python, so that they are digested alike."""
    return value.item() if hasattr(value, "item") else value
