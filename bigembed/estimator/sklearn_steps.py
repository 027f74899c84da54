"""Steps of scikit-learn as those of this package that make the same of rows of any number."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bigembed.errors import InputTypeError

SAME = ("StandardScaler", "RobustScaler", "Normalizer", "PCA")
"""Classes that are in both, with parameters of the same names and meanings."""
HOW = {
    "copy",
    "svd_solver",
    "tol",
    "iterated_power",
    "n_oversamples",
    "power_iteration_normalizer",
    "random_state",
}
"""Parameters of scikit-learn's classes that say how something is computed, not what."""


def ours(estimator: Any) -> Any:
    """An estimator of a list: that of this package for scikit-learn's of the same name, with its parameters."""
    name = type(estimator).__name__
    if not type(estimator).__module__.startswith("sklearn.") or name not in SAME:
        return estimator
    kind = getattr(import_module("bigembed"), name)
    given = {key: value for key, value in estimator.get_params().items() if key not in HOW}
    own = {key: value for key, value in given.items() if key in kind._names()}
    usual = type(estimator)().get_params()
    if other := [key for key, value in given.items() if key not in own and value != usual[key]]:
        raise InputTypeError(
            f"{name}({', '.join(f'{key}={given[key]!r}' for key in other)}): the class of that name here, which takes "
            f"rows of any number, has no {other[0]}. It has: {', '.join(kind._names())}"
        )
    return kind(**own)
