"""What goes before a method: the base of all steps; steps and a method as one estimator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Self

from bigembed import errors
from bigembed import estimator as estimators
from bigembed.errors import InputError, InputTypeError
from bigembed.estimator import base, preprocessing, rowwise
from bigembed.neighbors.graph import NeighborGraph

# -------------------------------------------------------------------------------------------------------- pipeline
# Steps and a method as one estimator: one fit, one run of stages, one saved model.


@dataclass(eq=False, repr=False)
class Pipeline:
    """Fit steps and a method together: rows of any number go through the steps as they are read.

    Unlike scikit-learn's class of that name, it keeps everything in one run of stages (so that a killed fit resumes,
    and after a change of one step only that step and what follows it are computed again), writes one model, and lets
    :class:`bigembed.Missing` leave rows out. The coordinates are those of a job with the same ``[[steps]]``, and, bit
    for bit, those of scikit-learn's ``make_pipeline`` of the same estimators, where that takes all of them.

    Parameters
    ----------
    steps : list of estimators, list of pairs (name, estimator), or scikit-learn's Pipeline
        The steps and, last, any method of this package. The steps are those of this package (:class:`bigembed.Missing`,
        :class:`bigembed.StandardScaler`, …) and :class:`bigembed.PCA` or :class:`bigembed.TruncatedSVD` with a
        number of components. scikit-learn's ``StandardScaler``, ``RobustScaler``, ``Normalizer``, ``PCA``,
        ``TruncatedSVD`` and its random projections stand for those of the same name here.
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
    method_ : estimator
        The fitted method; it takes rows as they are before the steps, is what ``save`` writes and :func:`bigembed.load`
        returns. All its attributes are attributes of the pipeline, too.
    steps_ : tuple
        The fitted steps.

    Raises
    ------
    InputError
        If more than one step leaves rows out, and whatever the steps and the method raise.
    InputTypeError
        If the list holds something that is not a step, or does not end in a method, or X is a graph.

    Notes
    -----
    Cost: the passes of the steps and of the method, which read the rows as they are and map them block by block in
    memory; on disk nothing of their size, unless a copy of what the last step makes is cheaper than the passes that
    follow (``PCA`` of wide rows). A row in which values are missing gets coordinates that are NaN from ``transform``.

    Examples
    --------
    >>> import numpy as np, bigembed as be
    >>> rows = np.array([[0.0, 0.0], [3.0, 400.0], [np.nan, 1.0], [6.0, 800.0]])
    >>> found = Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=1)]).fit(rows)
    >>> found.embedding_.round(3).ravel().tolist()
    [-1.732, 0.0, 1.732]
    >>> found.transform(rows).round(3).ravel().tolist()
    [-1.732, 0.0, nan, 1.732]
    """

    steps: Any
    workdir: str | os.PathLike[str] | None = None
    persist: Literal["store"] | None = None
    keep: Literal["all", "map", "coordinates"] = "all"
    verbose: bool = False
    callbacks: Any = None

    def fit(self, X: Any, y: Any = None, **aligned: Any) -> Self:
        """Fit the steps, one after the other, and the method to what they make of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : array of shape (n,), or None
            The labels, for a method that takes them.
        **aligned : array of shape (n,)
            Vectors aligned with the rows, which ``fit`` takes by name.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        if isinstance(X, NeighborGraph):
            raise InputTypeError("a Pipeline takes rows; a graph is given to the method itself, without steps")
        *steps, last = unnamed(self.steps)
        method = copied(last, **{name: getattr(self, name) for name in estimators.RUN_PARAMETERS})
        method_after([copied(counterpart_of(step)) for step in steps], method).fit(X, y, **aligned)
        self.method_ = method
        return self

    def fit_transform(self, X: Any, y: Any = None, **aligned: Any) -> Any:
        """Fit the steps and the method, and return the coordinates of the rows that are left.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : array of shape (n,), or None
            The labels, for a method that takes them.
        **aligned : array of shape (n,)
            Vectors aligned with the rows, which ``fit`` takes by name.

        Returns
        -------
        array of shape (n, m)
            The coordinates, as ``embedding_`` has them.
        """
        return self.fit(X, y, **aligned).method_.embedding_

    def transform(self, X: Any) -> Any:
        """Place new rows on the map; they go through the steps as the fitted ones did.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, m)
            The coordinates: NumPy for NumPy, else a lazy Dask array.
        """
        return self._method().transform(X)

    def view(self, out: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Write a folder with a page that shows every row that the steps left, as :func:`bigembed.view` does.

        Parameters
        ----------
        out : path, or None
            The folder; None is the name of the method with ``-view`` behind it, in the current folder.
        **options : dict
            What :func:`bigembed.view` takes by name; columns and ids may have an entry for each row fitted, or left.

        Returns
        -------
        View
            Where the page lies; a notebook shows it.
        """
        return self._method().view(out, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model with its steps; :func:`bigembed.load` gives the method back, which knows them.

        Parameters
        ----------
        path : path
            The path of the model.
        """
        self._method().save(path)

    def _method(self) -> Any:
        if "method_" not in self.__dict__:
            raise errors.NotFittedError(
                "This Pipeline instance is not fitted yet. Call 'fit' with appropriate arguments before using this "
                "estimator."
            )
        return self.method_

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "method_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.method_, name)

    def __sklearn_is_fitted__(self) -> bool:
        return "method_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        *steps, last = unnamed(self.steps)
        tags = last.__sklearn_tags__()
        tags.input_tags.allow_nan = preprocessing.takes_missing(steps) or (not steps and last.takes_nan)
        return tags

    def __repr__(self) -> str:
        return f"Pipeline([{', '.join(map(repr, unnamed(self.steps)))}])"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Whether those of the estimators are among them, as ``NAME__PARAMETER``.

        Returns
        -------
        dict
            The parameters, by name.
        """
        own = {name: getattr(self, name) for name in ("steps", *estimators.RUN_PARAMETERS)}
        if deep:
            for name, step in named(self.steps).items():
                own |= {name: step, **{f"{name}__{key}": value for key, value in step.get_params().items()}}
        return own

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name: own ones, and ``NAME__PARAMETER`` of an estimator in the list.

        Parameters
        ----------
        **parameters : dict
            The new values, by name.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        known = named(self.steps)
        for name, value in parameters.items():
            step, inside, key = name.partition("__")
            if inside and step in known:
                known[step].set_params(**{key: value})
            elif name in ("steps", *estimators.RUN_PARAMETERS):
                setattr(self, name, value)
            else:
                valid = sorted(self.get_params())
                raise InputError(f"Invalid parameter {name!r} for estimator Pipeline. Valid parameters are: {valid}.")
        return self


def method_after(steps: Sequence[Any], method: Any) -> Any:
    """The method, whose rows go through these steps first; InputError, InputTypeError where something is not a step."""
    for step in steps:
        if not getattr(step, "goes_before", False):
            known = "a step of bigembed (Columns, Missing, StandardScaler, …), PCA or TruncatedSVD"
            raise InputTypeError(
                f"{type(step).__name__} is not a step that can go before a method: {known} is needed. What "
                "scikit-learn has under that name takes arrays in memory"
            )
        estimators.check_parameters(step)
    if isinstance(method, rowwise.Step) or not isinstance(method, base.Estimator):
        raise InputTypeError(f"the last of a Pipeline is a method, such as DiffusionMap or PCA; got {method!r}")
    if sum(bool(getattr(step, "drops", False)) for step in steps) > 1:
        raise InputError("missing: rows are left out by one step at the most, as none misses a value after it")
    estimators.set_steps(method, steps)
    return method


def unnamed(steps: Any) -> list[Any]:
    """The estimators of a list that may hold pairs of names and estimators."""
    steps = getattr(steps, "steps", steps)
    if not isinstance(steps, (list, tuple)) or not steps:
        raise InputTypeError(f"steps: a list of estimators is needed, the last of them a method; got {steps!r}")
    return [one[1] if isinstance(one, tuple) else one for one in steps]


def named(steps: Any) -> dict[str, Any]:
    """The estimators by name: that of the pair, or of the class, with a number where several have the same."""
    found: dict[str, Any] = {}
    steps = getattr(steps, "steps", steps)
    for one in steps if isinstance(steps, (list, tuple)) else ():
        name, step = one if isinstance(one, tuple) else (type(one).__name__.lower(), one)
        number = sum(key == name or key.startswith(f"{name}-") for key in found)
        found[f"{name}-{number + 1}" if number else name] = step
    return found


def copied(estimator: Any, **changes: Any) -> Any:
    """An unfitted estimator of the same class and parameters."""
    if not isinstance(estimator, base.Estimator):
        return estimator
    return type(estimator)(**estimators.method_parameters(estimator), **changes)


SAME = (
    "StandardScaler", "RobustScaler", "Normalizer", "PCA", "TruncatedSVD", "GaussianRandomProjection",
    "SparseRandomProjection",
)  # fmt: skip
"""Classes that are in both, with parameters of the same names and meanings."""
HOW = {
    "algorithm", "compute_inverse_components", "copy", "dense_output", "svd_solver", "tol", "iterated_power", "n_iter",
    "n_oversamples", "power_iteration_normalizer", "random_state",
}  # fmt: skip
"""Parameters of scikit-learn's classes that say how something is computed, not what."""


def counterpart_of(estimator: Any) -> Any:
    """An estimator of a list: that of this package for scikit-learn's of the same name, with its parameters."""
    name = type(estimator).__name__
    if not type(estimator).__module__.startswith("sklearn.") or name not in SAME:
        return estimator
    kind = getattr(import_module("bigembed"), name)
    given = {key: value for key, value in estimator.get_params().items() if key not in HOW}
    own = {key: value for key, value in given.items() if key in estimators.parameter_names(kind)}
    usual = type(estimator)().get_params()
    if other := [key for key, value in given.items() if key not in own and value != usual[key]]:
        raise InputTypeError(
            f"{name}({', '.join(f'{key}={given[key]!r}' for key in other)}): the class of that name here, which takes "
            f"rows of any number, has no {other[0]}. It has: {', '.join(estimators.parameter_names(kind))}"
        )
    return kind(**own)
