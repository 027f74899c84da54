"""Truncated singular value decomposition: principal directions of rows about zero, as in latent semantic analysis."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from bigembed.estimator.frame import FrameRule
from bigembed.maps.linear.principal import PrincipalEstimator, PrincipalOptions
from bigembed.runtime.parameters import Count, Fraction, Seed, at_least
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array


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
        The largest residual ‖Sv − λv‖/λ_1, S = XᵀX, of block Lanczos, which solves for more than 4096 columns; fewer
        are solved densely, in one pass.
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
        The right singular vectors: orthonormal rows, by descending singular value; the largest |entry| of each is
        positive (the rule of scikit-learn's ``svd_flip(u_based_decision=False)``, so signs agree).
    singular_values_ : array of shape (m,)
        The singular values of the rows.
    explained_variance_ : array of shape (m,)
        The variances of the coordinates, about their means. They need not descend: what all rows share has none.
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
    float64. Beyond 4096 columns ``fit`` takes some twenty passes (block Lanczos on XᵀX, which is never formed), several
    times as many where the spectrum is flat, and the coordinating process holds 12 to 48 d m numbers, beyond 12 d m at
    most 64 MiB. ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of
    them with each other, to judge the map.

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
