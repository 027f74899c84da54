"""Linear maps of rows: principal components and discriminants.

What the methods of principal components share is here: their stages, new rows, and what is said of the result.
"""

from __future__ import annotations

from abc import abstractmethod
from math import inf
from typing import Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, inverse
from bigembed.estimator.moments import moments_stage
from bigembed.estimator.rowwise import WeightedRowwiseEstimator, add_rows, sums_of
from bigembed.maps.linear import principal
from bigembed.maps.linear.principal import PrincipalOptions, refuse_few, solve_stage, whitening
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.rows.row_maps import AffineMap, project
from bigembed.runtime.blocks import Array
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array


class PrincipalEstimator(WeightedRowwiseEstimator):
    """Base of the methods whose coordinates are products of a row with principal directions."""

    follows_dtype = takes_sparse = True
    compiled_from: ClassVar = inf
    goes_before: ClassVar = True
    principal: ClassVar = True
    """Coordinates are those of largest variance: what they leave out can be told from noise."""
    explained_variance_ratio_: Array

    @abstractmethod
    def _asked(self) -> PrincipalOptions:
        """Return what is asked of the solver."""

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: moments, components and, on demand, coordinates."""
        self._check()
        asked = self._asked()
        n, d = checked_shape(source, at_least=2 if asked.center else 1)
        most = d if source.aligned else min(n, d)
        if asked.width and asked.width > most:
            raise InputError(f"n_components={asked.width} must be between 1 and min(n_samples, n_features)={most}")
        if asked.n_components == "mle" and not source.aligned:  # (weights stand for more rows, or fewer)
            refuse_few(n, d)
        stages = principal.principal_stages(source, asked)
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

        def stages(source: RowSource, earlier: Any) -> list[Stage]:
            checked_shape(source)
            return [
                moments_stage(source, earlier=earlier),
                solve_stage(source, self._asked(), principal.direct),
            ]

        sums = sums_of(self, "moments", ("mean", "scatter"))
        if sums is not None and sums["scatter"].ndim == 1:
            raise InputError(
                "partial_fit adds to the covariance, which fit did not form for so many columns. Begin with partial_fit"
            )
        add_rows(self, X, stages, sums, weights=sample_weight)
        return self

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
        self._check_fitted()
        mean, components, variance = self._solved()
        scale = np.sqrt(variance)[:, None] if self._run.parameters("solve")["whiten"] else 1.0
        return inverse(self, X, scale * components, mean)

    def _solved(self) -> tuple[Array, Array, Array]:
        """Mean, components and variances in double precision, whatever the rows are."""
        mean, components, variance = (
            read_array(self._run.path("solve", name)) for name in ("mean", "components", "variance")
        )
        return mean, components, variance

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, moments = run.results("solve"), run.results("moments")
        largest = float(read_array(run.path("solve", "variance"))[0])
        return {
            "solver": solve["solver"],
            "passes": solve["passes"] + 1,
            "converged": solve["converged"],
            "seed": run.parameters("solve")["seed"],
            "input": {name: moments[name] for name in ("n", "d", "dtype", "weight")},
            "explained": float(self.explained_variance_ratio_.sum()),
            "residual": solve["residual"],
            "gap": solve["gap"],
            "warnings": {
                "convergence": [] if solve["converged"] else [_unfinished(type(self).__name__, solve, largest)],
                "degenerate": _few(moments["n"], moments["weight"]) if run.parameters("solve")["center"] else [],
            },
        }

    def _extension(self, run: Run) -> Extension:
        moments, solve = run.results("moments"), run.results("solve")
        whiten = run.parameters("solve")["whiten"]
        scale = whitening(read_array(run.path("solve", "variance"))) if whiten else None
        model = AffineMap(run.path("solve", "components"), run.path("solve", "mean"), transposed=True, scale=scale)
        return Extension(project, model, solve["n_components"], moments["d"], dtype=moments["dtype"], sparse=True)


FEW = 100
"""Rows that weights stand for below which Σw/(Σw − 1) shows in the variances."""


def _few(n: int, weight: float) -> list[str]:
    """That weights stand for so few of the rows that they are hardly counts, and the variances are larger for it."""
    if weight >= min(n / 2, FEW):
        return []
    return [
        f"The weights of {n:,} rows sum to {weight:g}: they stand for as many equal rows, so variances are "
        f"Σw/(Σw − 1) = {weight / (weight - 1):.3g} times those of the rows. If they are no counts, give them "
        "with mean 1: w * len(w) / w.sum()"
    ]


def _unfinished(method: str, solve: dict[str, Any], largest: float) -> str:
    return (
        f"{method}: the eigensolver stopped with residuals up to {solve['residual'] / (largest or 1.0):.2g} of the "
        f"largest variance after {solve['passes']} passes. {solve['advice']}"
    )
