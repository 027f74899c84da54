"""What scikit-learn asks of an estimator beyond fitting: its parameters, names of features, data frames, metadata
routing, and its page in a notebook.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from html import escape
from typing import Any, Self

import numpy as np

from bigembed.errors import FeatureNamesWarning, InputError, InputTypeError
from bigembed.estimator import RUN_PARAMETERS
from bigembed.estimator.reporting import warn
from bigembed.rows import RowSource
from bigembed.rows.input import in_memory
from bigembed.rows.reader import is_arrow
from bigembed.runtime.blocks import Array
from bigembed.store import is_path
from bigembed.store.attributes import columns_of

# ----------------------------------------------------------------------------------------------------------- names
# Names of features and of coordinates: those of a data frame, those that were fitted, and whether they agree.


def coordinate_names(kind: type, count: int) -> list[str]:
    """Names of the coordinates that a class makes, as scikit-learn names them."""
    return [f"{kind.__name__.lower()}{number}" for number in range(count)]


def feature_names(X: Any) -> Array | None:
    """Column names of a data frame whose names are all text, or of rows that were copied from a table."""
    held = X.column_names if is_arrow(X) else getattr(X, "columns", None)
    named: Any = X.features if isinstance(X, RowSource) else held
    columns: Any = columns_of(X) if is_path(X) else named
    if columns is None:
        return None
    names = np.asarray(columns, dtype=object)
    text = [isinstance(name, str) for name in names]
    if any(text) and not all(text):
        kinds = sorted({type(name).__name__ for name in names})
        raise InputTypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{kinds} as feature name / column name types. Name all columns by text, or none: X.columns.astype(str)"
        )
    return names if any(text) else None


def index_of(X: Any) -> Any:
    """The index of a data frame of pandas; None of anything else."""
    return X.index if type(X).__module__.startswith("pandas.") and hasattr(X, "index") else None


def check_names(estimator: Any, X: Any) -> None:
    """InputError unless the columns of a data frame, or of rows that were copied, are those that were fitted.

    A warning where only one of them has names, as scikit-learn gives it.
    """
    given = feature_names(X)
    name, named = type(estimator).__name__, hasattr(estimator, "feature_names_in_")
    if given is not None and not named and in_memory(X):
        warn(f"X has feature names, but {name} was fitted without feature names", FeatureNamesWarning)
    if given is None and named and in_memory(X):
        warn(f"X does not have valid feature names, but {name} was fitted with feature names", FeatureNamesWarning)
    require_names(estimator, () if given is None else list(given))


def require_names(estimator: Any, given: Sequence[str]) -> None:
    """InputError unless these names, if there are any, are those that were fitted, if there were any."""
    fitted = list(getattr(estimator, "feature_names_in_", ()))
    if not fitted or not given or fitted == list(given):
        return
    unseen = [name for name in given if name not in set(fitted)]
    missing = [name for name in fitted if name not in set(given)]
    parts = ["The feature names should match those that were passed during fit."]
    if unseen:
        parts.append("Feature names unseen at fit time:\n- " + "\n- ".join(unseen[:5]))
    if missing:
        parts.append("Feature names seen at fit time, yet now missing:\n- " + "\n- ".join(missing[:5]))
    if not unseen and not missing:
        parts.append("Feature names must be in the same order as they were in fit.")
    raise InputError("\n".join(parts) + "\n")


# ---------------------------------------------------------------------------------------------------------- frames
# Coordinates as data frames, where ``set_output`` or scikit-learn's configuration asks for them.

CONTAINERS = ("default", "pandas", "polars")
WRAPPED = ("transform", "fit_transform")


class Framed:
    """``set_output`` of :class:`~bigembed.estimator.base.Estimator`; what a subclass defines is wrapped, too."""

    _sklearn_output_config: dict[str, str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in WRAPPED:
            if name in cls.__dict__:
                setattr(cls, name, _framing(cls.__dict__[name]))

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` and ``fit_transform`` return for arrays in memory; lazy ones stay what they are.

        A data frame would load all of their coordinates: make it of what ``compute`` returns.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            What is returned: "default" is NumPy; None leaves it as it is. scikit-learn's
            ``config_context(transform_output=...)`` and ``Pipeline.set_output`` ask for the same.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        if transform is not None:
            checked_container(transform)
            self._sklearn_output_config = {"transform": transform}
        return self


def _framing(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def framed(self: Any, X: Any, *arguments: Any, **keywords: Any) -> Any:
        found = method(self, X, *arguments, **keywords)
        container = container_of(self)
        if container == "default" or not isinstance(found, np.ndarray):
            return found
        return as_frame(container, found, self.get_feature_names_out(), getattr(X, "index", None))

    return framed


def container_of(estimator: Any) -> str:
    """What the estimator was set to, else what scikit-learn is."""
    own: dict[str, str] = getattr(estimator, "_sklearn_output_config", {})
    if "transform" in own:
        return own["transform"]
    if "sklearn" not in sys.modules:
        return "default"
    from sklearn import get_config

    return checked_container(str(get_config().get("transform_output", "default")))


def checked_container(name: str) -> str:
    """InputError unless it is one that can be made."""
    if name not in CONTAINERS:
        raise InputError(f"output {name!r}: output config must be one of {', '.join(CONTAINERS)}")
    return name


def as_frame(container: str, values: Any, columns: Any, index: Any) -> Any:
    """A data frame of coordinates; of pandas with the index of the rows."""
    if container == "pandas":
        import pandas as pd

        fits = isinstance(index, pd.Index) and len(index) == len(values)
        return pd.DataFrame(values, columns=columns, index=index if fits else None, copy=False)
    import polars as pl

    return pl.DataFrame(values, schema=list(columns), orient="row")


# --------------------------------------------------------------------------------------------------------- routing
# scikit-learn's metadata routing: which aligned vectors a method of an estimator takes, and by which name.
#
# The protocol of ``sklearn.utils.metadata_routing``, imported only where it is asked for.

ROUTED = ("fit", "partial_fit", "transform", "score")
"""Methods that may take more than rows and labels; scikit-learn composes ``fit_transform`` of them."""


def _setter_of_requests(method: str) -> Callable[..., Any]:
    """Return the method of scikit-learn's protocol that says what metadata is passed along to ``method``."""

    def set_request(self: Any, **asked: bool | str | None) -> Any:
        return self._request(method, asked)

    set_request.__name__ = f"set_{method}_request"
    set_request.__qualname__ = f"Routed.{set_request.__name__}"
    set_request.__doc__ = f"""Request metadata for ``{method}``.

        Parameters
        ----------
        **asked : bool, str or None
            By the name of what is passed along: True, False, None (an error where it is given) or the name it comes
            under.

        Returns
        -------
        Estimator
            The estimator itself.
        """
    return set_request


class Routed:
    """What :class:`~bigembed.estimator.base.Estimator` answers to scikit-learn's routers (pipelines, searches)."""

    _metadata_request: Any

    def get_metadata_routing(self) -> Any:
        """Return what each method takes beside ``X`` and ``y``, and what of it was requested.

        Returns
        -------
        MetadataRequest
            The requests, as scikit-learn has them.
        """
        from sklearn.utils.metadata_routing import MetadataRequest

        if hasattr(self, "_metadata_request"):
            return deepcopy(self._metadata_request)
        request = MetadataRequest(owner=self)
        for name in ROUTED:
            for parameter in routed(getattr(self, name, None)):
                getattr(request, name).add_request(param=parameter, alias=None)
        return request

    def _request(self, method: str, asked: dict[str, Any]) -> Self:
        known = routed(getattr(self, method, None))
        if unknown := sorted(set(asked) - set(known)):
            raise TypeError(f"Unexpected args: {set(unknown)} in {method}. Accepted arguments are: {set(known)}")
        request = self.get_metadata_routing()
        for parameter, alias in asked.items():
            getattr(request, method).add_request(param=parameter, alias=alias)
        self._metadata_request = request
        return self

    set_fit_request = _setter_of_requests("fit")
    set_partial_fit_request = _setter_of_requests("partial_fit")
    set_transform_request = _setter_of_requests("transform")
    set_score_request = _setter_of_requests("score")


def routed(method: Callable[..., Any] | None) -> list[str]:
    """Parameters of a method other than rows and labels.

    >>> routed(lambda X, y=None, sample_weight=None: None)
    ['sample_weight']
    """
    if method is None:
        return []
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = list(inspect.signature(method).parameters.values())
    return [one.name for one in parameters if one.kind in named and one.name not in ("X", "y")]


# ------------------------------------------------------------------------------------------------------------ html
# An estimator in a notebook: its parameters and, where it is fitted, what its certificate says first.

SHOWN = ("solver", "passes", "converged", "seed")
STYLE = "text-align:left;padding:0 1em 0 0;font-weight:normal"


def html_of(estimator: Any) -> str:
    """A table that opens and closes, without scripts and without style sheets."""
    given, default = estimator.get_params(), type(estimator)().get_params()
    parameters = {
        name: f"<b>{_shown_value(value)}</b>" if repr(value) != repr(default.get(name)) else _shown_value(value)
        for name, value in given.items()
    }
    parts = [_table("parameters", parameters)]
    fitted = estimator.__sklearn_is_fitted__()
    if fitted:
        parts.append(_table("fit", {name: _shown_value(value) for name, value in _fit(estimator).items()}))
    else:
        parts.append("<p>What a fit takes, before it starts: <code>bigembed.plan(estimator, X)</code></p>")
    state = "fitted" if fitted else "not fitted"
    warnings = [text for texts in _certificate(estimator).get("warnings", {}).values() for text in texts]
    listed = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return (
        f"<details open><summary><b>{escape(type(estimator).__name__)}</b> <i>{state}</i></summary>"
        f"{''.join(parts)}{f'<ul>{listed}</ul>' if listed else ''}</details>"
    )


def _fit(estimator: Any) -> dict[str, Any]:
    certificate = _certificate(estimator)
    rows: Mapping[str, Any] = certificate.get("input", {})
    names = ("n_features_in_", "n_components_")
    return {
        **({"rows": rows["n"]} if "n" in rows else {}),
        **{name: getattr(estimator, name) for name in names if hasattr(estimator, name)},
        **{name: certificate[name] for name in SHOWN if name in certificate},
    }


def _certificate(estimator: Any) -> dict[str, Any]:
    return getattr(estimator, "certificate_", None) or {}


def _shown_value(value: Any) -> str:
    text = repr(value)
    return escape(text if len(text) <= 80 else f"{text[:77]}...")


def _table(title: str, values: Mapping[str, str]) -> str:
    rows = "".join(f'<tr><th style="{STYLE}">{escape(name)}</th><td>{said}</td></tr>' for name, said in values.items())
    return f"<details open><summary>{title}</summary><table>{rows}</table></details>"


# ------------------------------------------------------------------------------------------------------ parameters
# The parameters of an estimator: attributes, named by its signature.


class Parametrized:
    """The parameters of :class:`~bigembed.estimator.base.Estimator`, by name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        dict
            The parameters, by name.
        """
        return {name: getattr(self, name) for name in self._names()}

    def _own_params(self) -> dict[str, Any]:
        """Parameters by name, without those that every method has."""
        return {name: value for name, value in self.get_params().items() if name not in RUN_PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; unknown ones are an error that lists the known.

        Parameters
        ----------
        **parameters : dict
            The new values, by name.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        known = self._names()
        for name, value in parameters.items():
            if name not in known:
                raise InputError(
                    f"Invalid parameter {name!r} for estimator {type(self).__name__}. Valid parameters are: {known}."
                )
            setattr(self, name, value)
        return self

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def __repr__(self) -> str:
        signature = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name in self._names()
            if repr(getattr(self, name)) != repr(signature[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


class DeclaredOrder:
    """The signature of a class: its parameters as they are declared, and then those that every method has."""

    def __get__(self, instance: Any, owner: type[Any]) -> inspect.Signature:
        _, *declared = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(sorted(declared, key=lambda one: (one.kind, one.name in RUN_PARAMETERS)))
