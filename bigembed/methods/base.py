"""What every estimator shares: parameters, input of any kind, runs, saving and loading.

Follows scikit-learn's conventions without importing it: parameters are stored unchanged by
``__init__``, results end in an underscore.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, NotFittedError


class Estimator:
    """Base of all methods: scikit-learn's protocol, out of core."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; unknown ones are an error that lists the known."""
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
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name in self._names()
            if repr(getattr(self, name)) != repr(signature[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's description of what this estimator takes."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(sparse=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "eigenvalues_")

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """``fit``, then the coordinates of the rows fitted."""
        return self.fit(X, y).embedding_  # type: ignore[attr-defined]

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:
        """Names of the coordinates: the class name in lower case and a number."""
        self._check_fitted()
        count = self.n_components_  # type: ignore[attr-defined]
        return np.array([f"{type(self).__name__.lower()}{number}" for number in range(count)], dtype=object)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )

    def _seed(self) -> int:
        state = getattr(self, "random_state", 0)
        if state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        if isinstance(state, (int, np.integer)):
            if state < 0:
                raise InputError(f"random_state={state}; a seed is a nonnegative integer")
            return int(state)
        return int(state.randint(2**31 - 1) if hasattr(state, "randint") else state.integers(2**31 - 1))


def feature_names(X: Any) -> Array | None:
    """Column names of a data frame whose names are all text."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = np.asarray(columns, dtype=object)
    return names if len(names) and all(isinstance(name, str) for name in names) else None


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's ``fit``."""
    warnings.warn(message, category, stacklevel=4)


def load(path: Any) -> Any:
    """The fitted estimator that ``save`` wrote: see :func:`bigembed.methods.saving.load`."""
    from bigembed.methods.saving import load as load_model

    return load_model(path)
