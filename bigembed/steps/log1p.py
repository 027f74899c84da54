"""Logarithms of counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from bigembed.blocks.elementwise import log1p_block
from bigembed.embedding.extension import Extension
from bigembed.estimator.step import FixedStep
from bigembed.runs import Run


@dataclass(eq=False, repr=False)
class Log1p(FixedStep, registered="log1p"):
    """log(1 + x) of every number: counts, which spread over orders of magnitude, become comparable, and 0 stays 0.

    The usual second step with single-cell counts, after ``normalize`` (Wolf, Angerer & Theis 2018).

    Parameters
    ----------
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d.
    certificate_ : dict.
    embedding_ : (n, d) the rows fitted, as logarithms: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : numbers ≤ −1 (rows named), when the rows are read.

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

    def _block(self, run: Run) -> tuple[Any, Any]:
        return log1p_block, None

    def _extension(self, run: Run) -> Extension:
        return replace(super()._extension(run), numbered=True)
