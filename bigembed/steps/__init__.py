"""What goes before a method. A step is found by everything else through :data:`REGISTRY`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bigembed import _homes
from bigembed.errors import JobError

CLASSES = {
    "clip": "Clip",
    "columns": "Columns",
    "gaussian_projection": "GaussianRandomProjection",
    "gower": "GowerEncoder",
    "log1p": "Log1p",
    "mark_missing": "MarkMissing",
    "missing": "Missing",
    "mixed": "MixedScaler",
    "normalize": "Normalizer",
    "one_hot": "OneHotEncoder",
    "robust_standardize": "RobustScaler",
    "sparse_projection": "SparseRandomProjection",
    "standardize": "StandardScaler",
}
"""What each step is called in job files and saved models, and its class, which declares the same name."""
REGISTRY = {name: f"{_homes()[public]}:{public}" for name, public in CLASSES.items()}
"""Registered name of each step, and the place of its class."""


def step(name: str) -> type[Any]:
    """The class registered under ``name``."""
    if name not in REGISTRY:
        raise JobError(f"unknown step {name!r}. Known: {', '.join(sorted(REGISTRY))}")
    module, _, attribute = REGISTRY[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found
