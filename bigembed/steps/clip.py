"""Numbers between two bounds."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Any

from bigembed.blocks.declared import Finite, Requirements, is_number
from bigembed.blocks.elementwise import clipped
from bigembed.estimator.step import FixedStep
from bigembed.runs import Run


@dataclass(eq=False, repr=False)
class Clip(FixedStep, registered="clip"):
    """Numbers below ``low`` as ``low``, and numbers above ``high`` as ``high``: x ↦ min(max(x, low), high).

    After ``standardize``, ``high = 10`` is what single-cell work calls the largest value of scaled expression
    (Wolf, Angerer & Theis 2018).

    Parameters
    ----------
    low, high : float or None, at least one of them, low < high. None does not bound.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d.
    certificate_ : dict.
    embedding_ : (n, d) the rows fitted, clipped: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : parameters out of range.

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
    """

    _: KW_ONLY
    low: Finite | None = None
    high: Finite | None = None

    def _require(self, need: Requirements) -> None:
        need(self.low is not None or self.high is not None, "low", "a number, or high must be one")
        if is_number(self.low) and is_number(self.high):
            need(float(self.low or 0) < float(self.high or 0), "high", f"a number > low={self.low}")

    def dense_only(self) -> str:
        if (self.low or 0) <= 0 <= (self.high or 0):
            return ""
        return "with 0 outside its bounds it would make numbers of all zeros of sparse rows: take low ≤ 0 ≤ high"

    def _given(self) -> dict[str, Any]:
        low, high = (None if one is None else float(one) for one in (self.low, self.high))
        return {"low": low, "high": high}

    def _block(self, run: Run) -> tuple[Any, Any]:
        asked = run.parameters(self.learned)
        low, high = asked["low"], asked["high"]
        return clipped, (-inf if low is None else low, inf if high is None else high)
