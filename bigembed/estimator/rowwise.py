"""Methods whose coordinates are a function of the row alone (linear, factored, landmark methods), and steps.

``fit`` then needs no output pass: ``embedding_`` is lazy, and one further pass writes it where it is
wanted (``fit_transform_to``, a job's output, ``transform_to``).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from bigembed import errors
from bigembed import estimator as estimators
from bigembed.errors import InputError
from bigembed.estimator import base, fitting, frame, reporting, scikit_learn, transform
from bigembed.estimator.extension import Extension, in_one_array, stored_coordinates, write_extended
from bigembed.estimator.transform import refuse_existing, write_coordinates
from bigembed.rows import RowSource, derived, passes
from bigembed.rows.input import row_source
from bigembed.runtime.blocks import Array
from bigembed.stages import Context, Run, Stage, run_stages
from bigembed.stages.cost import output_cost
from bigembed.store import at, require_array_name
from bigembed.store.arrays import read_array

# --------------------------------------------------------------------------------------------------------- rowwise


class RowwiseEstimator(base.Estimator):
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
                derived.refuse_changed(self._source, stamp)
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
        require_array_name(out)
        refuse_existing(out)
        self.fit(X, y, **aligned)
        if self._run.has("coordinates"):
            rows, extension = stored_coordinates(self._run.path(*frame.place_of(self._run)))
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
            return self._run.array(*frame.place_of(self._run), self._in_memory)
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
        return derived.MappedRows(self._source, extension, extension.width, extension.dtype, *origin, sparse).lazy()

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


class WeightedRowwiseEstimator(RowwiseEstimator):
    """Base of those that take weights of the rows."""

    aligned: ClassVar[tuple[str, ...]] = ("weights",)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, with nonnegative weights or without.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes; where the method takes sparse rows, also
            SciPy, a Dask array of SciPy CSR blocks, or the path of a CSR group in Zarr (AnnData's layout).
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How often each row counts.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)


def run_coordinates(context: Context, estimator: RowwiseEstimator, source: RowSource) -> dict[str, Any]:
    """Coordinates of the rows by the extension of the fitted map."""
    extension = estimators.extension_in(estimator, context.home)
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
    estimators.check_parameters(estimator)
    fitted = estimator.__sklearn_is_fitted__()
    if fitted:
        scikit_learn.check_names(estimator, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    source, in_memory = row_source(X, scratch, "batch", sparse=estimators.takes_sparse(estimator))
    d = source.shape[-1]
    if fitted:
        transform.check_width(source, estimator.n_features_in_, estimator)
    if d > MOST_COLUMNS:
        raise InputError(f"partial_fit holds d² sums, for at most {MOST_COLUMNS} columns; there are {d}. Use fit")
    columns = fitting.aligned_columns(aligned, source.shape[0], scratch)
    listed = list(stages(replace(source, aligned=columns), earlier))
    with reporting.notify_callbacks(estimator, listed) as todo:
        run_stages(todo, run)
    if not fitted:
        fitting.remember_features(estimator, scikit_learn.feature_names(X), d)
    estimator.read_run(run, in_memory=in_memory, dtype=source.dtype)


def sums_of(estimator: base.Estimator, stage: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The arrays of a published stage, the numbers that it returned, and its digest; None before the first batch.

    InputError for a model that was loaded, which does not hold them.
    """
    if not estimator.__sklearn_is_fitted__():
        return None
    run = estimators.run_of(estimator)
    if not all((at(run.path(stage)) / name).exists() for name in names):
        raise InputError(
            "this model was saved and loaded, and does not hold the sums that partial_fit adds to; go on with the "
            "estimator that was fitted, or fit again"
        )
    manifest = run.manifest(stage)
    return {name: read_array(run.path(stage, name)) for name in names} | manifest.results | {"digest": manifest.digest}


# ------------------------------------------------------------------------------------------------------------- steps
# The base of the steps that go before a method: each maps rows one by one, by what it has learned from all of them.


class Step(RowwiseEstimator):
    """Base of the steps: a step says what it learns, and how it maps a block of rows.

    It is an estimator like the methods (``fit``, ``transform``, ``save``), and keeps the dtype of the rows. What it
    makes of rows has the names of their columns where the columns are the same.
    """

    makes_maps: ClassVar = False
    goes_before: ClassVar = True
    follows_dtype: ClassVar = True
    of_columns: ClassVar = True
    keeps_sparse: ClassVar = True
    """Whether sparse rows come out of sparse rows, where they are taken (:meth:`dense_only`)."""
    mapped_by: ClassVar[tuple[str, ...]] = ()
    """Parameters that decide what is made of rows, and no stage has: the keys of what follows have them, where set."""
    learned: ClassVar[str]
    """The stage that has what the step learned: n, d and dtype are among its results."""

    @abstractmethod
    def _learning(self, source: RowSource) -> list[Stage]:
        """The stages that learn, ``learned`` the last of them."""

    @abstractmethod
    def _block(self, run: Run) -> tuple[Any, Any]:
        """The function of rows, and what it takes beside them: see :class:`Extension`."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the step to rows; sparse ones are taken where the step keeps their zeros.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X)

    def dense_only(self) -> str:
        """Say why this step would make other numbers of zeros, and what to do instead; empty where it keeps them."""
        return ""

    def refuse_sparse(self) -> NoReturn:
        """Raise InputError for sparse rows."""
        raise InputError(
            f"{type(self).registered}: {self.dense_only() or 'it was fitted to dense rows only'}. Or write the rows "
            "dense first, if there is room: bigembed ingest --dense"
        )

    def _sparse(self) -> bool:
        return not self.dense_only()

    def stages(self, source: RowSource) -> list[Stage]:
        """List what the step learns and, on demand, the rows as it maps them."""
        self._check()
        passes.checked_shape(source)
        if source.sparse and self.dense_only():
            self.refuse_sparse()
        stages = self._learning(source)
        return [*stages, self._output_stage(source, stages, self.width(source))]

    def width(self, source: RowSource) -> int:
        """Count the columns of what the step makes of these rows."""
        return source.width

    def describe(self) -> str:
        """Say in words what it did with the rows fitted."""
        return f"{self.n_features_in_:,} columns"

    def _set_fitted(self, run: Run) -> None:
        found = run.results(self.learned)
        self.n_samples_, self.n_components_ = found["n"], found.get("width", found["d"])

    def _certificate(self, run: Run) -> dict[str, Any]:
        known = {name: run.results(self.learned)[name] for name in ("n", "d", "dtype")}
        return {"input": known, "warnings": {}}

    def _extension(self, run: Run) -> Extension:
        found = run.results(self.learned)
        function, model = self._block(run)
        sparse = not self.dense_only()
        width, dtype = found.get("width", found["d"]), found["dtype"]
        return Extension(function, model, width, found["d"], dtype=dtype, sparse=sparse, keeps_sparse=sparse)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Return the names of the columns: those of the rows fitted, or ``x0``, ``x1``, …, as scikit-learn has it.

        Parameters
        ----------
        input_features : sequence of str, or None
            The names of the columns of the rows; if given, they must be those that were fitted.

        Returns
        -------
        ndarray of str
            The names.
        """
        self._check_fitted()
        fitted = getattr(self, "feature_names_in_", None)
        given = input_features if input_features is not None else fitted
        if given is not None and len(given) != self.n_features_in_:
            raise InputError(f"input_features should have length equal to number of features ({self.n_features_in_})")
        if fitted is not None and input_features is not None and list(fitted) != list(input_features):
            raise InputError("input_features is not equal to feature_names_in_")
        names = [f"x{number}" for number in range(self.n_features_in_)] if given is None else list(given)
        return np.array(self._names_out(names), dtype=object)

    def _names_out(self, names: list[str]) -> list[str]:
        """What the columns are called that the fitted step makes of columns with these names."""
        return names

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        """The same before the step is fitted, as far as it is known then."""
        return names


class FixedStep(Step):
    """Base of the steps that learn nothing: their parameters say all."""

    saved_stages: ClassVar = {"shape": (), "coordinates": ("embedding",)}
    learned: ClassVar = "shape"

    def _learning(self, source: RowSource) -> list[Stage]:
        return [looked_at_stage("shape", source, **self._given(source))]

    def _given(self, source: RowSource) -> dict[str, Any]:
        """The parameters that the map depends on, as they are stored."""
        return {}


def looked_at_stage(name: str, source: RowSource, **parameters: Any) -> Stage:
    """The stage of a step that learns nothing: the shape of the rows and their dtype, without a pass."""
    passes.checked_shape(source)
    parameters["source"] = source.fingerprint()
    return Stage(name, (), parameters, partial(run_looked_at, source=source))


def run_looked_at(context: Context, source: RowSource) -> dict[str, Any]:
    n, d = source.shape
    return {"n": n, "d": d, "dtype": str(source.work)}
