"""Steps that map each row by itself and learn little: clipping, logarithms, what is missing, rows of one length."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from math import inf, isfinite
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.estimator import extension, moments, preprocessing
from bigembed.estimator.rowwise import FixedStep, Step, looked_at_stage
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.derived import MappedSource
from bigembed.rows.row_maps import clipped, log1p_block, marked, normalized, sizes_of
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Finite, Kind, Positive, Requirements, is_number, one_of
from bigembed.stages import Run, Stage
from bigembed.steps.columns import NAMES, are_names
from bigembed.steps.some_columns import ColumnStep
from bigembed.store.arrays import read_array

# ------------------------------------------------------------------------------------------------------------ clip
# Numbers between two bounds.


@dataclass(eq=False, repr=False)
class Clip(ColumnStep, FixedStep, registered="clip"):
    """Clip numbers below ``low`` to ``low``, and numbers above ``high`` to ``high``: x ↦ min(max(x, low), high).

    After ``standardize``, ``high = 10`` is what single-cell work calls the largest value of scaled expression
    (Wolf, Angerer & Theis 2018).

    Parameters
    ----------
    low, high : float or None
        The bounds, low < high. At least one of them is given; None does not bound.
    columns : list of str, list of int, or None
        The columns that are clipped: their names, where the rows come with names, or their numbers, from 0 on. The
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
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, clipped: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If columns are not there (the nearest name that is there is given), or parameters are out of range.

    Notes
    -----
    Cost: no pass for ``fit``; a block of rows in memory where they are read. Infinity is clipped; NaN stays NaN.

    References
    ----------
    F. Wolf, P. Angerer, F. Theis, SCANPY: large-scale single-cell gene expression data analysis, Genome Biology 19
    (2018).

    Examples
    --------
    >>> import numpy as np
    >>> Clip(low=-1, high=1).fit_transform(np.array([[-3.0, 0.5], [2.0, 1.0]])).tolist()
    [[-1.0, 0.5], [1.0, 1.0]]
    >>> Clip(high=1, columns=[0]).fit_transform(np.array([[3.0, 3.0]])).tolist()
    [[1.0, 3.0]]
    """

    _: KW_ONLY
    low: Finite | None = None
    high: Finite | None = None
    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None

    def _require(self, need: Requirements) -> None:
        need(self.low is not None or self.high is not None, "low", "a number, or high must be one")
        if is_number(self.low) and is_number(self.high):
            need(float(self.low or 0) < float(self.high or 0), "high", f"a number > low={self.low}")

    def dense_only(self) -> str:
        if (self.low or 0) <= 0 <= (self.high or 0):
            return ""
        return "with 0 outside its bounds it would make numbers of all zeros of sparse rows: take low ≤ 0 ≤ high"

    def _given(self, source: RowSource) -> dict[str, Any]:
        low, high = (None if one is None else float(one) for one in (self.low, self.high))
        return {"low": low, "high": high, **self._asked(source)}

    def _block(self, run: Run) -> tuple[Any, Any]:
        asked = run.parameters(self.learned)
        low, high = asked["low"], asked["high"]
        return clipped, (-inf if low is None else low, inf if high is None else high, self._mask(run))


# ----------------------------------------------------------------------------------------------------------- log1p
# Logarithms of counts.


@dataclass(eq=False, repr=False)
class Log1p(ColumnStep, FixedStep, registered="log1p"):
    """Take log(1 + x) of every number: counts over orders of magnitude become comparable, and 0 stays 0.

    The usual second step with single-cell counts, after ``normalize`` (Wolf, Angerer & Theis 2018).

    Parameters
    ----------
    columns : list of str, list of int, or None
        The columns to take logarithms of: their names, where the rows come with names, or their numbers, from 0 on. The
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
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, as logarithms: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If there are numbers ≤ −1 (rows and columns are named), when the rows are read, or columns are not there (the
        nearest name that is there is given).

    Notes
    -----
    Cost: no pass for ``fit``; a block of rows in memory where they are read. NaN stays NaN.

    References
    ----------
    F. Wolf, P. Angerer, F. Theis, SCANPY: large-scale single-cell gene expression data analysis, Genome Biology 19
    (2018).

    Examples
    --------
    >>> import numpy as np
    >>> Log1p().fit_transform(np.array([[0.0, np.e - 1]])).round(6).tolist()
    [[0.0, 1.0]]
    """

    _: KW_ONLY
    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None

    def _given(self, source: RowSource) -> dict[str, Any]:
        return self._asked(source)

    def _block(self, run: Run) -> tuple[Any, Any]:
        return log1p_block, (self._mask(run), tuple(getattr(self, "feature_names_in_", ())))

    def _extension(self, run: Run) -> extension.Extension:
        return replace(super()._extension(run), numbered=True)


# --------------------------------------------------------------------------------------------------------- missing
# Numbers that stand for missing values.


def _are_numbers(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0 and all(is_number(one) and isfinite(one) for one in given)


@dataclass(eq=False, repr=False)
class MarkMissing(ColumnStep, FixedStep, registered="mark_missing"):
    """Make NaN of numbers that stand for missing values: −9999 of a scene, −1 or 9 of a genotype, 999 of a survey.

    The step ``missing`` after it leaves such rows out, or fills them; of new rows, too.

    Parameters
    ----------
    values : list of float
        The numbers that stand for missing values, each rounded to the dtype of the rows before it is compared.
    columns : list of str, list of int, or None
        The columns in which they do: their names, where the rows come with names, or their numbers, from 0 on. The
        others pass as they are. None takes all.
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
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, with NaN: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If columns are not there (the nearest name that is there is given), or no values are given.

    Notes
    -----
    Cost: no pass for ``fit``; a block of rows in memory where they are read. Of sparse rows 0 cannot be such a number.

    References
    ----------
    R. Little, D. Rubin, Statistical Analysis with Missing Data, 2nd ed. (2002), §1.3.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[2.0, -1.0], [0.0, 1.0], [1.0, 2.0]])
    >>> MarkMissing([-1]).fit_transform(rows).tolist()
    [[2.0, nan], [0.0, 1.0], [1.0, 2.0]]
    """

    takes_nan: ClassVar = True

    values: Annotated[Any, Kind("a list of one or more finite numbers", _are_numbers)] = (-9999.0,)
    _: KW_ONLY
    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None

    def dense_only(self) -> str:
        return "0 stands for a missing value, and of sparse rows it is what is not stored" if 0 in self.values else ""

    def _given(self, source: RowSource) -> dict[str, Any]:
        return {"values": [float(one) for one in self.values], **self._asked(source)}

    def _block(self, run: Run) -> tuple[Any, Any]:
        return marked, (np.array(run.parameters(self.learned)["values"]), self._mask(run))


# ------------------------------------------------------------------------------------------------------- normalize
# Rows of one total, or of one length.

NORMS = ("l2", "l1", "max", "total")


@dataclass(eq=False, repr=False)
class Normalizer(Step, registered="normalize"):
    """Divide each row by its length, so that only directions count, or by its total, so that only shares do.

    x ↦ x/‖x‖ for ``norm`` l2, l1 and max, as scikit-learn's class of that name has it; x ↦ t·x/Σ_j x_j for "total",
    with the target t, by default the median of the totals, as single-cell work has it (Wolf, Angerer & Theis 2018).
    Rows whose size is 0 stay as they are.

    Parameters
    ----------
    norm : {"l2", "l1", "max", "total"}
        What each row is divided by.
    target : float > 0 or "median"
        What the rows have for their total; only for norm="total".
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
    target_ : float
        The target that was used; 1 for a norm.
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, d)
        The rows fitted, normalized: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If totals are negative (rows are named), or parameters are out of range.

    Notes
    -----
    Cost: no pass for ``fit``; for the median of the totals five passes, since it is exact. A block of rows in memory.

    References
    ----------
    F. Wolf, P. Angerer, F. Theis, SCANPY: large-scale single-cell gene expression data analysis, Genome Biology 19
    (2018).

    Examples
    --------
    >>> Normalizer().fit_transform(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    >>> Normalizer(norm="total").fit_transform(np.array([[1.0, 3.0], [4.0, 4.0], [0.0, 2.0]])).tolist()
    [[1.0, 3.0], [2.0, 2.0], [0.0, 4.0]]
    """

    saved_stages: ClassVar = {"quantiles": ("values",), "target": (), "coordinates": ("embedding",)}
    learned: ClassVar = "target"

    norm: Annotated[str, one_of(*NORMS)] = "l2"
    _: KW_ONLY
    target: Positive | Annotated[str, one_of("median")] = "median"

    def _require(self, need: Requirements) -> None:
        need(self.norm == "total" or self.target == "median", "target", "left out; only norm='total' has a target")

    @property
    def _median(self) -> bool:
        return self.norm == "total" and self.target == "median"

    def _learning(self, source: RowSource) -> list[Stage]:
        target = None if self.norm != "total" or self._median else float(self.target)
        found = looked_at_stage("target", source, norm=self.norm, target=target)
        if not self._median:
            return [found]
        totals = MappedSource(
            (source.shape[0], 1), np.dtype(np.float64), base=source, function=totals_of_block, stamp="totals above 0"
        )
        learned = preprocessing.with_cost_of_mapping(moments.quantiles_stage(totals, (0.5,), missing=True), totals)
        return [learned, replace(found, inputs=("quantiles",))]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.target_ = _target(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        return normalized, (run.parameters("target")["norm"], _target(run))

    def _extension(self, run: Run) -> extension.Extension:
        return replace(super()._extension(run), numbered=True)


def totals_of_block(block: RowBlock) -> Array:
    """The totals (m, 1) of the rows; NaN for those whose total is 0, which no target can change."""
    totals = sizes_of(block.rows, "total")
    return np.where(totals == 0, np.nan, totals)[:, None]


def _target(run: Run) -> float:
    asked = run.parameters("target")
    if asked["norm"] != "total":
        return 1.0
    return float(asked["target"] or read_array(run.path("quantiles", "values"))[0, 0])
