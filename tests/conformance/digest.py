"""Digests of a fitted estimator: all that must be the same bytes wherever it was fitted."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import dask.array as da
import numpy as np


def digests(fitted: Any, new: Any = None) -> dict[str, str]:
    """Of every public array, of the coordinates, of those of new rows, and the certificate.

    Lazy coordinates are those that are stored, in memory they have the dtype of the rows.
    """
    names = [name for name in {**vars(fitted), **fitted._stored_arrays} if name.endswith("_")]
    found = {name: value for name in names if is_array(value := getattr(fitted, name))}
    found["embedding_"] = np.asarray(fitted.embedding_).astype(fitted._dtype)
    if new is not None:
        found["transform"] = np.asarray(fitted.transform(new)).astype(fitted._dtype)
    out = {name: sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in found.items()}
    return out | {"certificate_": json.dumps(fitted.certificate_, sort_keys=True, default=str)}


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | da.Array) and value.dtype.kind in "fiu"
