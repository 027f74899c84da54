"""Steps that scale columns: by their mean and standard deviation, or by their median and two quantiles."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.estimator.moments import moments_stage, quantiles_stage
from bigembed.rows import RowSource, row_maps
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Kind, Requirements, is_number
from bigembed.stages import Run, Stage
from bigembed.steps.columns import NAMES, are_names
from bigembed.steps.some_columns import ColumnStep
from bigembed.store.arrays import read_array

# ----------------------------------------------------------------------------------------------------- standardize
# Columns of mean 0 and variance 1: mean and variance from one pass.

EPS = float(np.finfo(float).eps)


@dataclass(eq=False, repr=False)
class StandardScaler(ColumnStep, registered="standardize"):
    """Take the mean off each column, and divide by the standard deviation: scikit-learn's, of any number of rows.

    With the mean m_j and the variance v_j = Σ_i (x_ij − m_j)²/n of column j, a row becomes (x_j − m_j)/√v_j. A column
    that is constant, up to rounding of its mean (v_j ≤ nεv_j + (nm_jε)², Chan, Golub & LeVeque 1983), is not divided.

    Parameters
    ----------
    with_mean : bool
        Whether the mean is taken off; sparse rows need False.
    with_std : bool
        Whether columns are divided by their standard deviation.
    columns : list of str, list of int, or None
        The columns that are standardized: their names, where the rows come with names, or their numbers, from 0 on. The
        others pass as they are, NaN among them. None takes all.
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
        Functions that ``fit`` calls with every event.

    Attributes
    ----------
    mean_, var_, scale_ : array of shape (d,)
        The means, the variances and what columns are divided by; ``scale_`` is 1 where a column is constant.
        Of columns that pass they are 0, 0 and 1.
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, standardized: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If these columns hold NaN or infinity (rows are named), columns are not there (the nearest name that is there is
        given), or squares overflow.

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
    mapped_by: ClassVar = ("with_mean", "with_std")

    _: KW_ONLY
    with_mean: bool = True
    with_std: bool = True
    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None

    def dense_only(self) -> str:
        return self.with_mean * (
            "taking the mean off makes numbers of all zeros of sparse rows: take with_mean=False (in a job file "
            "with_mean = false). A PCA that follows takes the mean off in any case, without making the rows dense"
        )

    def _learning(self, source: RowSource) -> list[Stage]:
        return self._learned_by(partial(moments_stage, diagonal=True), source)

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.mean_, self.var_, self.scale_ = _learned(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        mean, _, scale = _learned(run)
        return row_maps.shift_and_scale, (mean if self.with_mean else None, scale if self.with_std else None)


def _learned(run: Run) -> tuple[Array, Array, Array]:
    """Mean, variance and scale of each column."""
    mean, scatter = (read_array(run.path("moments", name)) for name in ("mean", "scatter"))
    weight = run.results("moments")["weight"]
    variance: Array = scatter / weight
    constant = variance <= weight * EPS * variance + (weight * mean * EPS) ** 2
    return mean, variance, np.where(constant, 1.0, np.sqrt(variance))


# ---------------------------------------------------------------------------------------------- robust standardize
# Columns about their median, over the distance between two quantiles: rows far from all others move neither.

TWO_SHARES = "two numbers q_min < q_max in [0, 100]"


def _are_shares(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))


@dataclass(eq=False, repr=False)
class RobustScaler(ColumnStep, registered="robust_standardize"):
    """Take the median off each column, and divide by the interquartile range: scikit-learn's, of any number of rows.

    A row becomes (x_j − median_j)/(q_max,j − q_min,j), with quantiles that are interpolated linearly (Hyndman & Fan
    1996, definition 7, as NumPy has it), and exact: no sketch. A column whose quantiles are equal is not divided.

    Parameters
    ----------
    with_centering : bool
        Whether the median is taken off.
    with_scaling : bool
        Whether columns are divided by their interquartile range.
    quantile_range : pair of float
        The quantiles in percent, 0 ≤ q_min < q_max ≤ 100.
    columns : list of str, list of int, or None
        The columns that are scaled: their names, where the rows come with names, or their numbers, from 0 on. The
        others pass as they are, NaN among them. None takes all.
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
        Functions that ``fit`` calls with every event.

    Attributes
    ----------
    center_, scale_ : array of shape (d,)
        The medians, and the interquartile ranges; ``scale_`` is 1 where the quantiles are equal.
        Of columns that pass they are 0 and 1.
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, scaled: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If these columns hold NaN or infinity (rows are named), columns are not there (the nearest name that is there is
        given), or parameters are out of range.

    Notes
    -----
    Cost: ⌈w/b⌉ passes for numbers of w bits, where b, from 14 down to 4, is such that the counts of a pass, 6d·2^b
    integers, take about 16 MiB of memory: three passes over 20 columns of float32, five over float64. A block of rows
    besides.

    References
    ----------
    D. Knuth, The Art of Computer Programming 3 (1998), §5.2.5, for selection by digits.
    R. Hyndman, Y. Fan, Sample quantiles in statistical packages, The American Statistician 50 (1996).

    Examples
    --------
    >>> scaler = RobustScaler().fit(np.array([[0.0], [1.0], [2.0], [3.0], [1000.0]]))
    >>> scaler.center_.tolist(), scaler.scale_.tolist()
    ([2.0], [2.0])
    """

    saved_stages: ClassVar = {"quantiles": ("values",), "coordinates": ("embedding",)}
    learned: ClassVar = "quantiles"

    mapped_by: ClassVar = ("with_centering", "with_scaling")

    _: KW_ONLY
    with_centering: bool = True
    with_scaling: bool = True
    quantile_range: Annotated[Any, Kind(TWO_SHARES, _are_shares)] = (25.0, 75.0)
    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None

    def dense_only(self) -> str:
        return "quantiles of mostly zeros say little, and sparse rows are not taken: take standardize with_mean=False"

    def _require(self, need: Requirements) -> None:
        if _are_shares(self.quantile_range):
            low, high = self.quantile_range
            need(0 <= low < high <= 100, "quantile_range", TWO_SHARES)

    def _learning(self, source: RowSource) -> list[Stage]:
        low, high = self.quantile_range
        return self._learned_by(partial(quantiles_stage, shares=(low / 100, 0.5, high / 100)), source)

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.center_, self.scale_ = _learned_robustly(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        center, scale = _learned_robustly(run)
        return row_maps.shift_and_scale, (center if self.with_centering else None, scale if self.with_scaling else None)


def _learned_robustly(run: Run) -> tuple[Array, Array]:
    """Median and scale of each column."""
    values = read_array(run.path("quantiles", "values"))
    ranges = values[:, 2] - values[:, 0]
    return values[:, 1], np.where(ranges < 10 * np.finfo(float).eps, 1.0, ranges)
