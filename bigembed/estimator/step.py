"""The base of the steps that go before a method: each maps rows one by one, by what it has learned from all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.rows.passes import checked_shape
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.stages import Context, Cost, Run, Stage


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
        checked_shape(source)
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
        return [looked_at_stage("shape", source, **self._given())]

    def _given(self) -> dict[str, Any]:
        """The parameters that the map depends on, as they are stored."""
        return {}


def looked_at_stage(name: str, source: RowSource, **parameters: Any) -> Stage:
    """The stage of a step that learns nothing: the shape of the rows and their dtype, without a pass."""
    n, d = checked_shape(source)

    return Stage(
        name,
        (),
        {"source": source.fingerprint(), **parameters},
        partial(run_looked_at, source=source, d=d, n=n),
        Cost(),
    )


def run_looked_at(context: Context, source: RowSource, d: int, n: int) -> dict[str, Any]:
    return {"n": n, "d": d, "dtype": str(source.work)}
