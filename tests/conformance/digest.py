"""Digests of a fitted estimator: all that must be the same bytes wherever it was fitted."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import dask.array as da
import numpy as np


def digests(fitted: Any, new: Any = None) -> dict[str, str]:
    """Of every public array, of the coordinates, of those of new rows, and the certificate.

    Coordinates are compared as they were computed: in memory those of float32 rows are float32, and would hide a
    difference in what is stored.
    """
    names = [name for name in {**vars(fitted), **fitted._stored_arrays} if name.endswith("_")]
    found = {name: value for name in names if is_array(value := getattr(fitted, name))}
    found["embedding_"] = coordinates(fitted)
    if new is not None:
        found["transform"] = fitted._as_computed(new)
    out = {name: sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in found.items()}
    return out | {"certificate_": json.dumps(fitted.certificate_, sort_keys=True, default=str)}


def coordinates(fitted: Any) -> Any:
    """The coordinates of the rows fitted: the stored ones, where they are stored."""
    if fitted._run.has("coordinates"):
        return fitted._run.array("coordinates", "embedding", in_memory=True)
    return fitted.embedding_


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | da.Array) and value.dtype.kind in "fiu"
