"""Columns about their median, over the distance between two quantiles: rows far from all others move neither."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.blocks.declared import Kind, Requirements, is_number
from bigembed.blocks.elementwise import shift_and_scale
from bigembed.blocks.rows import Array
from bigembed.embedding.linear.quantiles import quantiles_stage
from bigembed.estimator.step import Step
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.rows.source import RowSource

TWO_SHARES = "two numbers q_min < q_max in [0, 100]"


def _are_shares(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))


@dataclass(eq=False, repr=False)
class RobustScaler(Step, registered="robust_standardize"):
    """Columns with their median taken off, divided by their interquartile range: scikit-learn's, of any number of rows.

    A row becomes (x_j − median_j)/(q_max,j − q_min,j), with quantiles that are interpolated linearly (Hyndman & Fan
    1996, definition 7, as NumPy has it), and exact: no sketch. A column whose quantiles are equal is not divided.

    Parameters
    ----------
    with_centering : bool. Whether the median is taken off.
    with_scaling : bool. Whether columns are divided.
    quantile_range : (float, float), 0 ≤ q_min < q_max ≤ 100. The quantiles in percent.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    center_, scale_ : (d,); ``scale_`` is 1 where the quantiles are equal.
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d.
    certificate_ : dict.
    embedding_ : (n, d) the rows fitted, scaled: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : NaN or infinity (rows named), parameters out of range.

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

    _: KW_ONLY
    with_centering: bool = True
    with_scaling: bool = True
    quantile_range: Annotated[Any, Kind(TWO_SHARES, _are_shares)] = (25.0, 75.0)

    def dense_only(self) -> str:
        return "quantiles of mostly zeros say little, and sparse rows are not taken: take standardize with_mean=False"

    def _require(self, need: Requirements) -> None:
        if _are_shares(self.quantile_range):
            low, high = self.quantile_range
            need(0 <= low < high <= 100, "quantile_range", TWO_SHARES)

    def _learning(self, source: RowSource) -> list[Stage]:
        low, high = self.quantile_range
        return [quantiles_stage(source, (low / 100, 0.5, high / 100))]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.center_, self.scale_ = _learned(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        center, scale = _learned(run)
        return shift_and_scale, (center if self.with_centering else None, scale if self.with_scaling else None)


def _learned(run: Run) -> tuple[Array, Array]:
    """Median and scale of each column."""
    values = read_array(run.path("quantiles", "values"))
    spread = values[:, 2] - values[:, 0]
    return values[:, 1], np.where(spread < 10 * np.finfo(float).eps, 1.0, spread)
