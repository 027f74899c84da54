"""Rows of one total, or of one length."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.blocks.declared import Positive, Requirements, one_of
from bigembed.blocks.elementwise import normalized, sizes_of
from bigembed.blocks.rows import Array
from bigembed.embedding.extension import Extension
from bigembed.embedding.linear.quantiles import quantiles_stage
from bigembed.estimator.step import Step, looked_at_stage
from bigembed.estimator.through import of_mapped
from bigembed.runs import Run
from bigembed.stages import Cost, Stage
from bigembed.store.arrays.io import read_array
from bigembed.store.rows.mapped import MappedSource
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

NORMS = ("l2", "l1", "max", "total")


@dataclass(eq=False, repr=False)
class Normalizer(Step, registered="normalize"):
    """Each row over its length, so that only directions count; or over its total, so that only shares do.

    x ↦ x/‖x‖ for ``norm`` l2, l1 and max, as scikit-learn's class of that name has it; x ↦ t·x/Σ_j x_j for "total",
    with the target t, by default the median of the totals, as single-cell work has it (Wolf, Angerer & Theis 2018).
    Rows whose size is 0 stay as they are.

    Parameters
    ----------
    norm : "l2", "l1", "max" or "total".
    target : float > 0 or "median". What the rows have for their total; only for norm="total".
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    target_ : float. The target that was used; 1 for a norm.
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d.
    certificate_ : dict.
    embedding_ : (n, d) the rows fitted, normalized: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : negative totals (rows named), parameters out of range.

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
        learned = of_mapped(quantiles_stage(totals, (0.5,), missing=True), totals)
        return [learned, replace(found, inputs=("quantiles",), cost=Cost())]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.target_ = _target(run)

    def _block(self, run: Run) -> tuple[Any, Any]:
        return normalized, (run.parameters("target")["norm"], _target(run))

    def _extension(self, run: Run) -> Extension:
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
