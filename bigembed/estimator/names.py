"""Names of features and of coordinates: those of a data frame, those that were fitted, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import FeatureNamesWarning, InputError, InputTypeError
from bigembed.estimator.warning import warn
from bigembed.store.arrays.attributes import columns_of
from bigembed.store.inputs.input import in_memory
from bigembed.store.rows.source import RowSource
from bigembed.store.storage.paths import is_path


def coordinate_names(kind: type, count: int) -> list[str]:
    """Names of the coordinates that a class makes, as scikit-learn names them."""
    return [f"{kind.__name__.lower()}{number}" for number in range(count)]


def feature_names(X: Any) -> Array | None:
    """Column names of a data frame whose names are all text, or of rows that were copied from a table."""
    named: Any = X.features if isinstance(X, RowSource) else getattr(X, "columns", None)
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
