"""Methods whose coordinates are a function of the row alone: linear, factored and landmark methods.

``fit`` then needs no output pass: ``embedding_`` is lazy, and one further pass writes it where it is
wanted (``fit_transform_to``, a job's output, ``transform_to``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigembed import errors
from bigembed.errors import InputError
from bigembed.estimator.base import Estimator
from bigembed.estimator.extension import in_one_array, stored_coordinates, write_extended
from bigembed.estimator.fitting import aligned_columns, remember_features
from bigembed.estimator.frame import place_of
from bigembed.estimator.protocol import check_parameters, extension_in, run_of, takes_sparse
from bigembed.estimator.reporting import notify_callbacks
from bigembed.estimator.scikit_learn import check_names, feature_names
from bigembed.estimator.transform import check_width
from bigembed.rows.derived import MappedRows, refuse_changed
from bigembed.rows.input import row_source
from bigembed.rows.source import RowSource
from bigembed.stages import Context, Run, Stage, run_stages
from bigembed.stages.cost import output_cost
from bigembed.store.arrays import read_array
from bigembed.store.paths import at, require_array_name

# --------------------------------------------------------------------------------------------------------- rowwise


class RowwiseEstimator(Estimator):
    """Base of the methods whose coordinates are a function of the row: see ``_extension``."""

    goes_before: ClassVar = False
    """Whether it may stand before another method, as a step does."""

    @property
    def embedding_(self) -> Any:
        """Return the coordinates (n, m) of the rows fitted: NumPy for NumPy input, else a lazy Dask array.

        A model that was loaded has them only if they had been written (jobs do): the rows are not part of it.
        """
        self._check_fitted()
        if "_embedding" not in self.__dict__:
            if self._in_memory and (stamp := self._stamp()):
                refuse_changed(self._source, stamp)
            self._embedding = self._followed(self._coordinates())
        return self._embedding

    def fit_transform(self, X: Any, y: Any = None, **aligned: Any) -> Any:
        """Fit the map to rows, and return their coordinates.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        **aligned : array of shape (n,)
            Vectors aligned with the rows, which ``fit`` takes by name.

        Returns
        -------
        array of shape (n, m)
            The coordinates, as ``embedding_`` has them.
        """
        self.fit(X, y, **aligned)
        self._embedding = self._followed(self._coordinates())
        return self._embedding

    def fit_transform_to(self, X: Any, out: str | os.PathLike[str], y: Any = None, **aligned: Any) -> None:
        """Fit the map to rows, and write their coordinates into a new Zarr array.

        This is one more pass over the rows, or over the coordinates where ``fit`` has made them.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        out : path
            The path of the new Zarr array (n, m).
        y : None
            Not used; scikit-learn's protocol has it.
        **aligned : array of shape (n,)
            Vectors aligned with the rows, which ``fit`` takes by name.
        """
        from bigembed.estimator.transform import refuse_existing, write_coordinates

        require_array_name(out)
        refuse_existing(out)
        self.fit(X, y, **aligned)
        if self._run.has("coordinates"):
            rows, extension = stored_coordinates(self._run.path(*place_of(self._run)))
        else:
            rows, extension = self._source, self._map()
        write_coordinates(rows, extension, out, self._run)

    def width(self, source: RowSource) -> Any:
        """Count the columns that it makes as a step before another method, if that is known before."""
        return getattr(self, "n_components", None)

    def describe(self) -> str:
        """Say in words what it did with the rows fitted."""
        return f"{self.n_components_:,} columns made of {self.n_features_in_:,}"  # type: ignore[attr-defined]

    def _names_out(self, names: list[str]) -> list[str]:
        """Names of the columns that it makes of columns with these names, where they have any."""
        return []

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        """The same before it is fitted, as far as it is known then."""
        return ()

    def _coordinates(self) -> Any:
        if self._run.has("coordinates"):
            return self._run.array(*place_of(self._run), self._in_memory)
        if self._source is None:
            raise errors.NotFittedError(
                "this model does not hold the coordinates of the rows that were fitted; give them to transform, or "
                "write them before saving (a job's output does)"
            )
        extension = self._map()
        if self._in_memory:
            return in_one_array(self._source, extension)
        origin = self._run, self._stamp(), self._run.marks()
        sparse = self._source.sparse and extension.keeps_sparse
        return MappedRows(self._source, extension, extension.width, extension.dtype, *origin, sparse).lazy()

    def _stamp(self) -> str:
        """The fingerprint of the rows as they were fitted; empty where their coordinates are stored."""
        return next((str(stage.parameters["source"]) for stage in getattr(self, "_on_demand", ())), "")

    def _output_stage(self, source: RowSource, stages: Sequence[Stage], width: int, against: int = 0) -> Stage:
        """``coordinates/embedding`` (n, m) in one pass over the rows, after the stages that fit the map: it depends on
        the content and the parameters of all those that a saved model has, as the extension does.

        ``against``: landmarks that each row is compared with.
        """
        parameters = {"source": source.fingerprint()}  # (the map may be the same for these rows in another order)
        inputs = tuple(stage.name for stage in stages if stage.name in type(self).saved_stages)
        cost = output_cost(source, width, source.work if self.follows_dtype else np.float64, against)
        run = partial(run_coordinates, estimator=self, source=source)
        return Stage("coordinates", inputs, parameters, run, cost, on_demand=True, parameters_of=inputs)


def run_coordinates(context: Context, estimator: RowwiseEstimator, source: RowSource) -> dict[str, Any]:
    """Coordinates of the rows by the extension of the fitted map."""
    extension = extension_in(estimator, context.home)
    write_extended(source, extension, context.path("embedding"))
    return {"n_components": extension.width}


# ------------------------------------------------------------------------------------------------------ increments
# ``partial_fit``: rows in batches, where sums over the rows are all that a fit needs, so that it is exact.
#
# The sums of the last call are read, those of the batch are added, and the small problem is solved again.

MOST_COLUMNS = 4096
"""Columns up to which d² sums are held in memory between two batches."""


def add_rows(
    estimator: Any, X: Any, stages: Callable[[RowSource, Any], Sequence[Stage]], earlier: Any, **aligned: Any
) -> None:
    """Fit a batch of rows on top of ``earlier`` ones: run the stages that ``stages(source, earlier)`` lists."""
    check_parameters(estimator)
    fitted = estimator.__sklearn_is_fitted__()
    if fitted:
        check_names(estimator, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    source, in_memory = row_source(X, scratch, "batch", sparse=takes_sparse(estimator))
    d = source.shape[-1]
    if fitted:
        check_width(source, estimator.n_features_in_, estimator)
    if d > MOST_COLUMNS:
        raise InputError(f"partial_fit holds d² sums, for at most {MOST_COLUMNS} columns; there are {d}. Use fit")
    columns = aligned_columns(aligned, source.shape[0], scratch)
    listed = list(stages(replace(source, aligned=columns), earlier))
    with notify_callbacks(estimator, listed) as todo:
        run_stages(todo, run)
    if not fitted:
        remember_features(estimator, feature_names(X), d)
    estimator.read_run(run, in_memory=in_memory, dtype=source.dtype)


def sums_of(estimator: Estimator, stage: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The arrays of a published stage, the numbers that it returned, and its digest; None before the first batch.

    InputError for a model that was loaded, which does not hold them.
    """
    if not estimator.__sklearn_is_fitted__():
        return None
    run = run_of(estimator)
    if not all((at(run.path(stage)) / name).exists() for name in names):
        raise InputError(
            "this model was saved and loaded, and does not hold the sums that partial_fit adds to; go on with the "
            "estimator that was fitted, or fit again"
        )
    manifest = run.manifest(stage)
    return {name: read_array(run.path(stage, name)) for name in names} | manifest.results | {"digest": manifest.digest}
