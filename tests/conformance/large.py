"""The cases at sizes where blocks, searches and solvers are those of large data: minutes, not seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from tests.cases import CASES, Case


@cache
def few(columns: int = 40) -> Any:
    """More rows than any method solves densely from all pairs."""
    random = np.random.default_rng(0)
    return np.abs(random.normal(size=(2_100, 40)) * np.linspace(6, 0.5, 40)).astype("f4")[:, :columns]


@cache
def many() -> Any:
    """More rows than one canonical block."""
    rows = few()
    return np.tile(rows, (33, 1)) + np.random.default_rng(1).random((33 * len(rows), 40)).astype("f4")


@cache
def sheet() -> Any:
    """More rows than one block of neighbors."""
    return np.random.default_rng(2).random((17_000, 2)) * [4, 1]


@cache
def wide(step: int = 1) -> Any:
    """More columns than are solved densely."""
    rows = np.abs(np.random.default_rng(3).normal(size=(4_000, 2_500)) * np.linspace(3, 0.1, 2_500))
    return rows.astype("f4")[:, ::step]


def ring() -> Any:
    return CASES["diffusion_map weights"].rows(4_458)


def of(name: str, rows: Callable[[], Any] = many, **more: Any) -> Case:
    """The case with other rows, and some parameters more."""
    case = CASES[name]
    return replace(case, parameters={**case.parameters, **more}, rows=lambda n: rows(), most=10**9)


LARGE: dict[str, Case] = {name: of(name) for name, case in CASES.items() if name == case.method} | {
    "classical_mds cityblock": of("classical_mds cityblock", few),
    "classical_mds precomputed": of("classical_mds precomputed", lambda: cdist(few(), few())),
    "diffusion_map": of("diffusion_map", sheet, n_components=3, n_neighbors=8, tol=1e-3),
    "diffusion_map galerkin": of("diffusion_map galerkin", few),
    "diffusion_map nystrom": of("diffusion_map nystrom", few),
    "diffusion_map precomputed": of("diffusion_map precomputed", lambda: cdist(few(), few())),
    "diffusion_map weights": of("diffusion_map weights", ring),
    "isomap": of("isomap", few),
    "isomap landmarks": of("isomap landmarks", few),
    "kernel_pca": of("kernel_pca", lambda: few(8), tol=1e-3),
    "kernel_pca nystrom": of("kernel_pca nystrom", n_landmarks=300),
    "linearized_diffusion_map lanczos": of("linearized_diffusion_map lanczos"),
    "nmf": of("nmf", lambda: wide(3), n_components=10),
    "nmf random": of("nmf random sparse", n_components=8),
    "nmf sparse": of("nmf", lambda: sparse.csr_array(many()), n_components=3),
    "pca wide": of("pca", wide, tol=1e-3),
}
DEFAULT = ("diffusion_map weights", "pca")
"""Those that run by default; the others, ones that once differed among them, with ``-m slow``."""
