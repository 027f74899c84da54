"""Principal components of rows, and truncated singular value decompositions: directions from one pass over the rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.transform import apply
from bigembed.maps.linear import PrincipalEstimator
from bigembed.maps.linear.principal import PrincipalOptions
from bigembed.rows.row_maps import affine_block
from bigembed.runtime.blocks import Array, bounds, is_sparse
from bigembed.runtime.parameters import Count, Fraction, Seed, at_least, interval, one_of
from bigembed.stages import Run
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
class PCA(PrincipalEstimator, registered="pca"):
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
        The largest residual ‖Sv − λv‖/λ_1 of block Lanczos, which solves for more than 4096 columns of more than 4096
        rows, and for few components of more than 1024 columns where it takes less; others are solved densely.
    max_passes : int ≥ 3
        The passes of block Lanczos before it gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of block Lanczos.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
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
    is accumulated in float64 about the mean of each block, so a mean far from zero costs no accuracy. Up to 4096 rows
    that are fewer than their columns, of which there are more than 1024, are solved by the products of all pairs of
    rows: in n/512 passes (a task compares 256 rows with those before) and one for as many directions as fit into 64
    MiB, and the coordinating process holds 4 n² + 3 d m numbers. Beyond 4096 columns of more rows, and for few
    components of more than 1024 columns where it takes less, ``fit`` takes some twenty passes (block Lanczos on the
    matrix-free covariance), several times as many where the spectrum is flat, and the coordinating process holds
    12 d m numbers, and up to 48 d m as far as 64 MiB allow.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map; of many sparse rows it compares 400 with all, in three passes.

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

    like_rows = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_")
    frame_rule: ClassVar = FrameRule(shift=True, values=("solve", "variance"))
    saved_stages: ClassVar = {"moments": (), "solve": ("",), "coordinates": ("embedding",)}

    n_components: Count | Share | Annotated[str, one_of("mle")] | None = None
    _: KW_ONLY
    center: bool = True
    whiten: bool = False
    tol: Fraction = 1e-7
    max_passes: Annotated[int, at_least(3)] = 200
    random_state: Seed = 0

    def _asked(self) -> PrincipalOptions:
        plain = _plain(self.n_components), bool(self.whiten), self.tol, self.max_passes
        return PrincipalOptions(*plain, self._seed(), bool(self.center))

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


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python, so that they are digested alike."""
    return value.item() if hasattr(value, "item") else value


@dataclass(eq=False, repr=False)
class TruncatedSVD(PrincipalEstimator, registered="truncated_svd"):
    """Find the leading singular vectors of any number of rows, dense or sparse, whose mean stays where it is.

    The right singular vectors v_l of the rows X are the leading eigenvectors of XᵀX = Σ w_i x_i x_iᵀ, the coordinates
    of a row x are x·v_l (of the rows fitted: the columns of U Σ), and the singular values are the roots of the
    eigenvalues. Of counts or weights of words (tf–idf) this is latent semantic analysis (Deerwester et al. 1990). It is
    what :class:`PCA` finds with ``center=False``, by the same stages; the attributes are those of scikit-learn's class
    of this name. A weight is a number of equal rows: w_i = 2 is the row i twice.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates, at most min(n, d).
    tol : float in (0, 1)
        The largest residual ‖Sv − λv‖/λ_1, S = XᵀX, of block Lanczos, which solves for more than 4096 columns of more
        than 4096 rows, and for few components of more than 1024 columns where it takes less; others are solved densely.
    max_passes : int ≥ 3
        The passes of block Lanczos before it gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of block Lanczos.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    components_ : array of shape (m, d)
        The right singular vectors: orthonormal rows, by descending singular value; the largest |entry| of each is
        positive (the rule of scikit-learn's ``svd_flip(u_based_decision=False)``, so signs agree).
    singular_values_ : array of shape (m,)
        The singular values of the rows.
    explained_variance_ : array of shape (m,)
        The variances of the coordinates, about their means. They need not descend: the direction of the mean may have
        little variance.
    explained_variance_ratio_ : array of shape (m,)
        Their shares of the variance of the rows about their mean.
    n_components_, n_samples_, n_features_in_ : int
        The numbers of coordinates, of rows, and of their columns.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), or parameters are out of range.

    Notes
    -----
    Cost: one pass for ``fit``, one for coordinates. A block of rows (32 MiB) and d² numbers a worker, accumulated in
    float64. Up to 4096 rows that are fewer than their columns, of which there are more than 1024, are solved by the
    products of all pairs of rows, in n/512 passes and one for the directions, as in :class:`PCA`. Beyond 4096 columns
    of more rows, and for few components of more than 1024 columns where it takes less, ``fit`` takes some twenty passes
    (block Lanczos on XᵀX, which is never formed), several times as many where the spectrum is flat, and the
    coordinating process holds 12 d m numbers, and up to 48 d m as far as 64 MiB allow.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares
    1 000 of them with each other, to judge the map; of many sparse rows it compares 400 with all, in three passes.

    References
    ----------
    S. Deerwester, S. Dumais, G. Furnas, T. Landauer, R. Harshman, Indexing by latent semantic analysis, Journal of the
    American Society for Information Science 41 (1990).

    Examples
    --------
    >>> svd = TruncatedSVD(n_components=1).fit(np.array([[3.0, 4.0], [6.0, 8.0]]))
    >>> svd.components_.round(3).tolist(), (svd.singular_values_**2).round(3).tolist()
    ([[0.6, 0.8]], [125.0])
    >>> svd.transform(np.array([[3.0, 4.0]])).round(6).tolist()
    [[5.0]]
    """

    like_rows = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")
    frame_rule: ClassVar = FrameRule(values=("solve", "variance"))
    saved_stages: ClassVar = {"moments": ("",), "solve": ("",), "coordinates": ("embedding",)}

    n_components: Count = 2
    _: KW_ONLY
    tol: Fraction = 1e-7
    max_passes: Annotated[int, at_least(3)] = 200
    random_state: Seed = 0

    def _asked(self) -> PrincipalOptions:
        return PrincipalOptions(int(self.n_components), False, self.tol, self.max_passes, self._seed(), False)

    def _set_fitted(self, run: Run) -> None:
        moments, squares = run.results("moments"), read_array(run.path("solve", "variance"))
        mean, scatter = (read_array(run.path("moments", name)) for name in ("mean", "scatter"))
        total = float(scatter.sum() if scatter.ndim == 1 else np.trace(scatter)) / moments["weight"]
        self.components_ = read_array(run.path("solve", "components"))
        self.singular_values_ = np.sqrt(squares * moments["weight"])
        self.explained_variance_ = np.maximum(squares - (self.components_ @ mean) ** 2, 0.0)
        self.explained_variance_ratio_ = self.explained_variance_ / (total or 1.0)
        self.n_components_, self.n_samples_ = len(self.components_), moments["n"]
