"""Labels of any kind as class numbers: read piece by piece, four bytes a row kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.errors import InputError, InputTypeError
from bigembed.rows import RowSource
from bigembed.rows.formats.binary import is_idx, read_idx
from bigembed.rows.opening import as_array, is_zarr, open_zarr, unmasked
from bigembed.runtime.blocks import Array, bounds
from bigembed.store import AnyPath, at, is_path
from bigembed.store.arrays import RemoteNpy, npy_rows

PIECE_ROWS = 1 << 20
DASK_PIECES = 16
"""Chunks of a Dask array that are computed at a time."""


@dataclass(frozen=True)
class Labels(RowSource):
    """The classes, and as rows the number of each row's class, int32 (n,); −1 for a row without label."""

    classes: Array = field(default_factory=lambda: np.zeros(0))
    """Distinct labels, ascending."""

    @property
    def codes(self) -> Array:
        """Position of each row's label in ``classes``."""
        assert self.array is not None
        return self.array

    @property
    def missing(self) -> Array:
        """Rows without label."""
        return np.flatnonzero(self.codes < 0)

    def fingerprint(self) -> str:
        """Digest of what the labels say."""
        return sha256(self.codes.tobytes() + repr((self.classes.dtype.str, self.classes.tolist())).encode()).hexdigest()


def read_labels(y: Any) -> Labels:
    """Labels (n,) of any kind: a sequence, a NumPy, pandas, Dask or zarr array, or the path of a Zarr array or .npy.

    Integers, whole-numbered floats, booleans, text and dates are labels. NaN, NaT, None and pandas' NA are no
    label: code −1. Raises InputError for a continuous target (floats that are not whole), infinity or a shape that is
    not (n,) or (n, 1); InputTypeError for labels that cannot be ordered.

    >>> found = read_labels(["b", "a", None, "b"])
    >>> found.classes.tolist(), found.codes.tolist()
    (['a', 'b'], [1, 0, -1, 1])
    """
    if isinstance(y, Labels):
        return y
    parts = [_coded(piece) for piece in _pieces(y)]
    if not sum(len(codes) for _, codes in parts):
        raise InputError("y should be a 1d array with a label for each row; it holds none: shape (0,)")
    named = [classes for classes, _ in parts if len(classes)]
    kinds = sorted({classes.dtype.kind in "US" for classes in named})
    if len(kinds) > 1:
        raise InputTypeError("labels are numbers in one place and text in another; give one kind")
    classes = np.unique(np.concatenate(named)) if named else np.zeros(0)
    codes = np.concatenate([np.append(np.searchsorted(classes, own), -1)[code] for own, code in parts])
    return Labels(codes.shape, np.dtype(np.int32), array=codes.astype(np.int32), classes=classes)


def with_classes(labels: Labels, others: Array) -> Labels:
    """Labels with the classes of others added to theirs.

    >>> with_classes(read_labels(["c", "b", None]), np.array(["a", "c"])).codes.tolist()
    [2, 1, -1]
    """
    kinds = {classes.dtype.kind in "US" for classes in (labels.classes, others) if len(classes)}
    if len(kinds) > 1:
        raise InputTypeError("labels are numbers in one batch and text in another; give one kind")
    classes = np.unique(np.concatenate([labels.classes, others])) if len(labels.classes) else others
    codes = np.append(np.searchsorted(classes, labels.classes), -1)[labels.codes].astype(np.int32)
    return Labels(codes.shape, np.dtype(np.int32), array=codes, classes=classes)


def classes_as_json(classes: Array) -> dict[str, Any]:
    """Classes for a manifest: what they are, and a list of them."""
    kind = classes.dtype.kind
    plain = classes.astype(str) if kind in "mMS" else classes
    return {"dtype": classes.dtype.str, "classes": plain.tolist()}


def classes_from_json(found: Mapping[str, Any]) -> Array:
    """The inverse of :func:`classes_as_json`.

    >>> classes_from_json(classes_as_json(np.array(["2020-01-01"], dtype="datetime64[D]"))).dtype
    dtype('<M8[D]')
    """
    return np.array(found["classes"], dtype=str if found["dtype"][1] in "MS" else None).astype(found["dtype"])


def _pieces(y: Any) -> Iterator[Array]:
    """The labels in order, a bounded number at a time."""
    if y is None:
        raise InputError("this method requires y to be passed, but the target y is None: give a label for each row")
    if isinstance(y, RowSource) and y.array is None:
        _one_dimension(y.shape)
        yield from (np.asarray(y.read(*part)).reshape(-1) for part in bounds(y.shape[0], PIECE_ROWS))
        return
    if isinstance(y, RowSource):
        y = y.array
    if is_path(y):
        y = _opened(at(y))
    if type(y).__module__.startswith("dask.") and hasattr(y, "dask"):
        yield from _dask_pieces(y)
    elif is_zarr(y) or isinstance(y, (np.memmap, RemoteNpy)):
        _one_dimension(y.shape)
        for start in range(0, y.shape[0], PIECE_ROWS):
            yield np.asarray(y[start : start + PIECE_ROWS]).reshape(-1)
    else:
        array = y.to_numpy() if hasattr(y, "to_numpy") else as_array(y, "labels")
        _one_dimension(array.shape)
        yield array.reshape(-1)


def _opened(path: AnyPath) -> Any:
    if is_idx(path):
        return read_idx(str(path))
    return npy_rows(path) if path.suffix == ".npy" else open_zarr(path)


def _dask_pieces(y: Any) -> Iterator[Array]:
    import dask

    lazy = y.to_dask_array() if hasattr(y, "to_dask_array") else y
    _one_dimension(lazy.shape)
    chunks = lazy.reshape(-1) if lazy.ndim > 1 else lazy
    delayed = chunks.to_delayed().ravel()
    row = 0
    for start in range(0, len(delayed), DASK_PIECES):
        for piece in dask.compute(*delayed[start : start + DASK_PIECES]):
            yield np.asarray(unmasked(piece, row, "labels"))
            row += len(piece)


def _one_dimension(shape: tuple[int, ...]) -> None:
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 1):
        raise InputError(f"y should be a 1d array, got an array of shape {shape} instead: one label a row")


def _coded(piece: Array) -> tuple[Array, Array]:
    """Distinct labels of a piece, and the position of each row's; −1 without one."""
    values, missing = _values(piece)
    codes = np.full(len(missing), -1, np.int64)
    classes, codes[~missing] = np.unique(values, return_inverse=True)
    return classes, codes


def _values(piece: Array) -> tuple[Array, Array]:
    """The labels that are there, as an array that can be sorted; and which rows have none."""
    kind = piece.dtype.kind
    if kind == "T":
        piece, kind = piece.astype(object), "O"
    if kind == "O":
        missing = np.array([no_label(label) for label in piece], dtype=bool)
        return _plain(piece[~missing]), missing
    if kind == "f":
        missing = np.isnan(piece)
        values = piece[~missing]
        if not np.isfinite(values).all():
            raise InputError("Input y contains infinity. Give a label, or NaN for a row without one")
        _refuse_fractions(values)
        return values, missing
    if kind in "mM":
        missing = np.isnat(piece)
        return piece[~missing], missing
    if kind not in "biuUS":
        what = "Complex data not supported; " if kind == "c" else ""
        raise InputError(f"{what}Unknown label type: dtype {piece.dtype}. Labels are integers, booleans, text or dates")
    return piece, np.zeros(len(piece), bool)


def no_label(label: Any) -> bool:
    """Whether it is None, NaN, or pandas' NA or NaT."""
    return (
        label is None or type(label).__name__ in ("NAType", "NaTType") or (isinstance(label, float) and label != label)
    )


def _plain(labels: Array) -> Array:
    """Labels of an object array as numbers or text."""
    if all(isinstance(label, str) for label in labels):
        return labels.astype(str)
    try:
        values = np.array(labels.tolist())
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"Unknown label type: labels cannot be ordered ({error})") from error
    if values.ndim != 1 or values.dtype.kind not in "biufS" or any(isinstance(label, str) for label in labels):
        kinds = sorted({type(label).__name__ for label in labels})
        raise InputTypeError(f"Unknown label type: labels of kinds {kinds} cannot be ordered; give one kind")
    if values.dtype.kind == "f":
        _refuse_fractions(values)
    return values


def _refuse_fractions(values: Array) -> None:
    if len(values) and not (values == np.floor(values)).all():
        raise InputError(
            "Unknown label type: continuous. Labels are classes, so floats must be whole numbers; got a "
            f"regression target with continuous values such as {values[values != np.floor(values)][0]}"
        )
