"""Columns of mean 0 and variance 1: mean and variance from one pass."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from bigembed.blocks.elementwise import shift_and_scale
from bigembed.blocks.rows import Array
from bigembed.embedding.linear.moments import moments_stage
from bigembed.estimator.step import Step
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.rows.source import RowSource

EPS = float(np.finfo(float).eps)


@dataclass(eq=False, repr=False)
class StandardScaler(Step, registered="standardize"):
    """Columns with their mean taken off, divided by their standard deviation: scikit-learn's, of rows of any number.

    With the mean m_j and the variance v_j = Σ_i (x_ij − m_j)²/n of column j, a row becomes (x_j − m_j)/√v_j. A column
    that is constant, up to rounding of its mean (v_j ≤ nεv_j + (nm_jε)², Chan, Golub & LeVeque 1983), is not divided.

    Parameters
    ----------
    with_mean : bool. Whether the mean is taken off; sparse rows are taken without.
    with_std : bool. Whether columns are divided by their standard deviation.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    mean_, var_, scale_ : (d,); ``scale_`` is 1 where a column is constant.
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d.
    certificate_ : dict.
    embedding_ : (n, d) the rows fitted, standardized: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : NaN or infinity (rows named), squares that overflow.

    Notes
    -----
    Cost: one pass for ``fit``, none for a lazy result. A block of rows (32 MiB) and 2d numbers in memory; both moments
    are taken in float64 about the mean of each block and merged in a fixed tree, so the bytes are the same everywhere.

    References
    ----------
    T. Chan, G. Golub, R. LeVeque, Algorithms for computing the sample variance, The American Statistician 37 (1983).

    Examples
    --------
    >>> scaler = StandardScaler().fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> scaler.transform(np.array([[4.0, 5.0]])).tolist()
    [[3.0, 0.0]]
    """

    saved_stages: ClassVar = {"moments": ("mean", "scatter"), "coordinates": ("embedding",)}
    learned: ClassVar = "moments"

    _: KW_ONLY
    with_mean: bool = True
    with_std: bool = True

    def dense_only(self) -> str:
        return self.with_mean * (
            "taking the mean off makes numbers of all zeros of sparse rows: take with_mean=False (in a job file "
            "with_mean = false). A PCA that follows takes the mean off in any case, without making the rows dense"
        )

    def _learning(self, source: RowSource) -> list[Stage]:
        return [moments_stage(source, diagonal=True)]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.mean_, self.var_, self.scale_ = _learned(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        mean, _, scale = _learned(run)
        return shift_and_scale, (mean if self.with_mean else None, scale if self.with_std else None)


def _learned(run: Run) -> tuple[Array, Array, Array]:
    """Mean, variance and scale of each column."""
    mean, scatter = (read_array(run.path("moments", name)) for name in ("mean", "scatter"))
    weight = run.results("moments")["weight"]
    variance: Array = scatter / weight
    constant = variance <= weight * EPS * variance + (weight * mean * EPS) ** 2
    return mean, variance, np.where(constant, 1.0, np.sqrt(variance))
