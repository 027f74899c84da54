"""What every estimator shares: parameters, input of any kind, runs, saving and loading.

Follows scikit-learn's conventions without importing it: parameters are stored unchanged by
``__init__``, results end in an underscore.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bigembed.blocks.rows import Array, remote
from bigembed.errors import InputError, InputTypeError, NotFittedError
from bigembed.stages import Run
from bigembed.store.arrays import RowSource, is_zarr, open_zarr, work_dtype


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
                raise InputError(f"Invalid parameter {name!r} for estimator {type(self).__name__}. Valid parameters "
                                 f"are: {known}.")
            setattr(self, name, value)
        return self

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = [f"{name}={getattr(self, name)!r}" for name in self._names()
                   if repr(getattr(self, name)) != repr(signature[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's description of what this estimator takes."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(estimator_type="transformer", target_tags=TargetTags(required=False),
                    transformer_tags=TransformerTags(preserves_dtype=[]), input_tags=InputTags(sparse=False))

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
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                                 "arguments before using this estimator.")

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


def row_source(X: Any, run: Run, name: str = "input") -> tuple[RowSource, bool]:
    """Rows of any kind as something a block task can read; and whether it came as an array of this process.

    Paths and zarr arrays are read where they lie. Dask arrays, and NumPy arrays when tasks run in
    other processes, are first written into the run.
    """
    if isinstance(X, (str, os.PathLike)):
        return _path_source(Path(X)), False
    if is_zarr(X):
        store = getattr(X.store, "root", None)
        if store is None:
            raise InputTypeError("this zarr array is not in a local directory store; give its path")
        return _path_source(Path(store) / X.path), False
    if type(X).__module__.startswith("dask.") and hasattr(X, "dask"):
        return _dask_source(X, run, name), False
    array = _numpy(X)
    if not remote():
        return RowSource(array.shape, array.dtype, array=array), True  # type: ignore[arg-type]
    path = run.root / "exchange" / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return RowSource(array.shape, array.dtype, path=str(path)), True  # type: ignore[arg-type]


def _path_source(path: Path) -> RowSource:
    path = path.absolute()
    if path.suffix == ".npy":
        if not path.exists():
            raise InputError(f"{path}: no such file")
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    else:
        array = open_zarr(path)
    work_dtype(array.dtype)
    return RowSource(tuple(array.shape), np.dtype(array.dtype), path=str(path))


def _dask_source(X: Any, run: Run, name: str) -> RowSource:
    from bigembed.store.formats import write_dask

    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if any(np.isnan(length) for length in X.shape):
        raise InputError("the Dask array has chunks of unknown length; call compute_chunk_sizes() on it first")
    path = run.root / "exchange" / f"{name}-{X.name}.zarr"
    write_dask(X, path)
    return RowSource(tuple(X.shape), np.dtype(X.dtype), path=str(path))


def _numpy(X: Any) -> Array:
    if _is_sparse(X):
        raise InputTypeError("rows as a sparse matrix are not supported by this method: use X.toarray() for rows, or "
                             "give a square symmetric sparse matrix of weights (sparse data was passed)")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: rows must be real numbers")
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise (InputTypeError if isinstance(error, TypeError) else InputError)(
                f"rows hold objects that are not numbers: argument must be a string or a number ({error})") from error
    if array.ndim != 2:
        raise InputError(f"Expected 2D array, got {array.ndim}D array instead: shape {array.shape}. Reshape your data "
                         "using array.reshape(-1, 1) if it has a single feature, array.reshape(1, -1) if it is one row")
    work_dtype(array.dtype)
    return array


def _is_sparse(X: Any) -> bool:
    return type(X).__module__.startswith("scipy.sparse")


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the caller's ``fit``."""
    warnings.warn(message, category, stacklevel=4)
