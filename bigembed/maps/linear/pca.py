"""Principal component analysis: the directions of largest variance, from one pass over the rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.moments import moments_stage
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.maps.linear.principal import GRAM_COLUMNS, PrincipalOptions, solve_stage, whitening
from bigembed.rows.passes import checked_shape
from bigembed.rows.row_maps import AffineMap, affine_block, project
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, bounds, is_sparse
from bigembed.runtime.parameters import Count, Fraction, Seed, at_least, interval, one_of
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage
from bigembed.store.arrays import read_array

# --------------------------------------------------------------------------------------------------------- density
# The normal density that PCA fits: covariance V diag(λ) Vᵀ in the components, σ² in all other directions.

TILE_ROWS = 2_048


@dataclass(frozen=True)
class Density:
    """Mean (d,), directions V (m, d), variances λ (m,) along them, and σ² across (Tipping & Bishop 1999)."""

    mean: Array
    directions: Array
    variance: Array
    noise: float

    @property
    def along(self) -> Array:
        """Variances along the directions, none below the noise."""
        return np.maximum(self.variance, self.noise)

    def covariance(self) -> Array:
        """(d, d)."""
        found = (self.directions.T * (self.along - self.noise)) @ self.directions
        found.flat[:: len(found) + 1] += self.noise
        return np.asarray(found)

    def precision(self) -> Array:
        """The inverse of the covariance, (d, d)."""
        self.refuse_singular()
        across = 1 / self.noise if self.noise else 0.0
        found = (self.directions.T * (1 / self.along - across)) @ self.directions
        found.flat[:: len(found) + 1] += across
        return np.asarray(found)

    def refuse_singular(self) -> None:
        """InputError where the covariance has no inverse."""
        flat = len(self.mean) - len(self.variance) if not self.noise else 0
        flat += int(np.count_nonzero(self.along <= 0))
        if flat:
            raise InputError(
                f"the covariance of the model is singular ({flat} of {len(self.mean)} directions without variance), so "
                "it has no inverse and rows no density. Take fewer components, which leaves noise, or more rows"
            )


def log_density(rows: Any, model: Density) -> Array:
    """−½ ((x − m)ᵀ C⁻¹ (x − m) + log det C + d log 2π) of each row, (k, 1), with C never formed."""
    m, d = model.directions.shape
    constant = np.log(model.along).sum() + (d - m) * np.log(model.noise or 1.0) + d * np.log(2 * np.pi)
    squares = np.empty(rows.shape[0])
    for start, stop in bounds(rows.shape[0], TILE_ROWS):
        squares[start:stop] = _squares(rows[start:stop], model)
    return np.asarray(-0.5 * (squares + constant)[:, None])


def _squares(rows: Any, model: Density) -> Array:
    """(x − m)ᵀ C⁻¹ (x − m) from the part of a row along the directions and the rest."""
    along = affine_block(rows, model.mean, np.ascontiguousarray(model.directions.T))
    found = np.asarray((along**2 / model.along).sum(axis=1))
    if not model.noise:
        return found
    if is_sparse(rows):
        exact = rows.astype(np.float64)
        whole = exact.multiply(exact).sum(axis=1) - 2 * (exact @ model.mean) + model.mean @ model.mean
        rest = np.maximum(np.asarray(whole).ravel() - (along**2).sum(axis=1), 0.0)
    else:
        rest = ((rows - model.mean - affine_block(along, np.zeros(len(model.directions)), model.directions)) ** 2).sum(
            axis=1
        )
    return np.asarray(found + rest / model.noise)


# ------------------------------------------------------------------------------------------------------------- pca

Share = Annotated[float, interval(0, 1, what="a share of the variance")]


@dataclass(eq=False, repr=False)
class PCA(RowwiseEstimator, registered="pca"):
    """Find the principal components of any number of rows in one pass; sparse rows are never made dense.

    With the weighted mean m and S = Σ w_i (x_i − m)(x_i − m)ᵀ, the components v_l are the leading
    eigenvectors of S/(W − 1), W = Σ w_i, and the coordinates of a row are (x − m)·v_l (seed 000 §2,
    seed 004 §2.2). A weight is a number of equal rows: w_i = 2 is the row i twice.

    Parameters
    ----------
    n_components : int ≥ 1, float in (0, 1), "mle" or None
        The number of coordinates; or the share of the variance to explain, with the fewest; or Minka's estimate; or,
        for None, all min(n, d).
    center : bool
        Whether the mean is taken off. False takes the rows as they are, m = 0: truncated SVD. Variances are then mean
        squares about zero, Σ w_i (x_i·v_l)²/W, and ``singular_values_`` those of the rows.
    whiten : bool
        Whether each coordinate is divided by its standard deviation.
    tol : float in (0, 1)
        The largest residual ‖Sv − λv‖/λ_1 of block Lanczos, which solves for more than 4096 columns; fewer are solved
        densely, in one pass.
    max_passes : int ≥ 3
        The passes of block Lanczos before it gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of block Lanczos.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    components_ : array of shape (m, d)
        Orthonormal rows, by descending variance; the largest |entry| of each is positive (the rule of scikit-learn's
        ``svd_flip(u_based_decision=False)``, so signs agree).
    explained_variance_ : array of shape (m,)
        The variances along the components.
    explained_variance_ratio_ : array of shape (m,)
        Their shares of the whole variance.
    singular_values_ : array of shape (m,)
        The singular values of the centered rows.
    mean_ : array of shape (d,)
        The mean of the rows.
    noise_variance_ : float
        The mean of the variances left out (0 if none are).
    n_components_, n_samples_, n_features_in_ : int
        The numbers of coordinates, of rows, and of their columns.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If there are fewer than two rows, rows hold NaN or infinity (they are named), or parameters are out of range.

    Notes
    -----
    Cost: one pass for ``fit``, one for coordinates. A block of rows (32 MiB) and d² numbers a worker; the covariance
    is accumulated in float64 about the mean of each block, so a mean far from zero costs no accuracy. Beyond 4096
    columns ``fit`` takes some twenty passes (block Lanczos on the matrix-free covariance), several times as many where
    the spectrum is flat, and the coordinating process holds 12 to 48 d m numbers, beyond 12 d m at most 64 MiB.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

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

    follows_dtype = takes_sparse = True
    like_rows = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_")
    aligned = ("weights",)
    compiles: ClassVar = False
    saved_stages: ClassVar = {"moments": (), "solve": ("",), "coordinates": ("embedding",)}

    n_components: Count | Share | Annotated[str, one_of("mle")] | None = None
    _: KW_ONLY
    center: bool = True
    whiten: bool = False
    tol: Fraction = 1e-7
    max_passes: Annotated[int, at_least(3)] = 200
    random_state: Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the components to rows, with nonnegative weights or without.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes, or sparse: SciPy, a Dask array of SciPy CSR
            blocks, or the path of a CSR group in Zarr (AnnData's layout).
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How often each row counts.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: moments, components and, on demand, coordinates."""
        self._check()
        n, d = checked_shape(source, at_least=2 if self.center else 1)
        most = d if source.aligned else min(n, d)
        asked = self._asked()
        if asked.width and asked.width > most:
            raise InputError(f"n_components={asked.width} must be between 1 and min(n_samples, n_features)={most}")
        if d > GRAM_COLUMNS and asked.n_components in (None, "mle"):
            raise InputError(
                f"n_components={asked.n_components!r} needs the covariance of all {d} columns, which is formed up to "
                f"{GRAM_COLUMNS}; give a number of components or a share of the variance"
            )
        stages = [
            moments_stage(source, diagonal=d > GRAM_COLUMNS),
            solve_stage(source, asked),
        ]
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
        from bigembed.estimator.rowwise import add_rows, sums_of

        def stages(source: RowSource, earlier: Any) -> list[Stage]:
            checked_shape(source)
            return [moments_stage(source, earlier=earlier), solve_stage(source, self._asked())]

        add_rows(self, X, stages, sums_of(self, "moments", ("mean", "scatter")), weights=sample_weight)
        return self

    def _asked(self) -> PrincipalOptions:
        plain = _plain(self.n_components), bool(self.whiten), self.tol, self.max_passes
        return PrincipalOptions(*plain, self._seed(), bool(self.center))

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
        from bigembed.estimator.extension import inverse

        self._check_fitted()
        mean, components, variance = self._solved()
        scale = np.sqrt(variance)[:, None] if self.as_fitted().whiten else 1.0
        return inverse(self, X, scale * components, mean)

    def get_covariance(self) -> Array:
        """Return the covariance of the model: the components' part, and noise in all other directions.

        Returns
        -------
        ndarray of shape (d, d)
            The covariance.
        """
        self._check_fitted()
        return self._density().covariance()

    def get_precision(self) -> Array:
        """Return the inverse of :meth:`get_covariance`.

        Returns
        -------
        ndarray of shape (d, d)
            The inverse.

        Raises
        ------
        InputError
            If the covariance has no inverse.
        """
        self._check_fitted()
        return self._density().precision()

    def score_samples(self, X: Any) -> Any:
        """Compute the log-density of rows under the model, normal with its mean and covariance (Tipping & Bishop 1999).

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k,)
            The log-densities: NumPy for arrays in memory, else a lazy Dask array.

        Raises
        ------
        InputError
            If the covariance is singular.
        """
        from bigembed.estimator.transform import apply

        self._check_fitted()
        density, d = self._density(), len(self.mean_)
        density.refuse_singular()
        return apply(self, X, Extension(log_density, density, 1, d, sparse=True))[:, 0]

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log-density of rows under the model, as :meth:`score_samples` has it.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        float
            The mean.
        """
        return float(self.score_samples(X).mean())

    def _density(self) -> Density:
        return Density(*self._solved(), float(self.noise_variance_))

    def _solved(self) -> tuple[Array, Array, Array]:
        """Mean, components and variances in double precision, whatever the rows are."""
        mean, components, variance = (
            read_array(self._run.path("solve", name)) for name in ("mean", "components", "variance")
        )
        return mean, components, variance

    def _set_fitted(self, run: Run) -> None:
        solve, moments = run.results("solve"), run.results("moments")
        self.mean_ = read_array(run.path("solve", "mean"))
        self.components_ = read_array(run.path("solve", "components"))
        self.explained_variance_ = read_array(run.path("solve", "variance"))
        self.explained_variance_ratio_ = self.explained_variance_ / (solve["total"] or 1.0)
        freedom = moments["weight"] - int(run.parameters("solve")["center"])
        self.singular_values_ = np.sqrt(self.explained_variance_ * freedom)
        self.noise_variance_ = solve["noise"]
        self.n_components_, self.n_samples_ = len(self.components_), moments["n"]

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
            "warnings": {"convergence": [] if solve["converged"] else [_unfinished(solve)]},
        }

    def _extension(self, run: Run) -> Extension:
        moments, solve = run.results("moments"), run.results("solve")
        whiten = run.parameters("solve")["whiten"]
        scale = whitening(read_array(run.path("solve", "variance"))) if whiten else None
        model = AffineMap(run.path("solve", "components"), run.path("solve", "mean"), transposed=True, scale=scale)
        return Extension(project, model, solve["n_components"], moments["d"], dtype=moments["dtype"], sparse=True)


# --- one block -----------------------------------------------------------------------------------


def _unfinished(solve: dict[str, Any]) -> str:
    return (
        f"PCA: the eigensolver stopped with residuals up to {solve['residual']:.2g} after {solve['passes']} passes. "
        f"{solve['advice']}"
    )


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python, so that they are digested alike."""
    return value.item() if hasattr(value, "item") else value
