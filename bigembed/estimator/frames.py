"""Coordinates as data frames, where ``set_output`` or scikit-learn's configuration asks for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Self

import numpy as np

from bigembed.errors import InputError

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
        """What ``transform`` and ``fit_transform`` return for arrays in memory; lazy Dask arrays stay what they are.

        A data frame would load all of their coordinates: make it of what ``compute`` returns.

        Parameters
        ----------
        transform : "pandas", "polars", or "default" for NumPy; None leaves it as it is. scikit-learn's
            ``config_context(transform_output=...)`` and ``Pipeline.set_output`` ask for the same.
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
