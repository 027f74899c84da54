"""Every method, and every solver of each, gives the same bytes in this process and on a cluster of processes."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import dask
import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.methods import REGISTRY

RANDOM = np.random.default_rng(0)
FEW = np.abs(RANDOM.normal(size=(2_100, 40)) * np.linspace(6, 0.5, 40)).astype("f4")
"""More rows than any method solves densely from all pairs."""
MANY = np.tile(FEW, (33, 1)) + RANDOM.random((33 * len(FEW), 40)).astype("f4")
"""More rows than one canonical block."""
SHEET = RANDOM.random((17_000, 2)) * [4, 1]
"""More rows than one block of neighbors."""
WIDE = np.abs(RANDOM.normal(size=(4_000, 2_500)) * np.linspace(3, 0.1, 2_500)).astype("f4")
"""More columns than are solved densely."""
LABELS = np.arange(len(MANY)) % 5
WEIGHTS = RANDOM.random(2_600) + 0.5

METHODS: dict[str, Callable[[], Any]] = {
    "classical_mds": lambda: be.ClassicalMDS(3).fit(MANY),
    "classical_mds cityblock": lambda: be.ClassicalMDS(3, metric="cityblock").fit(FEW),
    "classical_mds precomputed": lambda: be.ClassicalMDS(3, metric="precomputed").fit(cdist(FEW, FEW)),
    "diffusion_map": lambda: be.DiffusionMap(3, n_neighbors=8, tol=1e-3).fit(SHEET),
    "diffusion_map galerkin": lambda: be.DiffusionMap(3, n_neighbors=8, solver="landmarks", n_landmarks=60).fit(FEW),
    "diffusion_map nystrom": lambda: be.DiffusionMap(
        3, n_neighbors=8, solver="landmarks", n_landmarks=60, extension="nystrom"
    ).fit(FEW),
    "diffusion_map weights": lambda: be.DiffusionMap(3, alpha=0).fit(ring()),
    "isomap": lambda: be.Isomap(3, n_neighbors=8, solver="exact").fit(FEW),
    "isomap landmarks": lambda: be.Isomap(3, n_neighbors=8, solver="landmarks", n_landmarks=20).fit(FEW),
    "kernel_pca": lambda: be.KernelPCA(3, gamma=0.02, tol=1e-3).fit(FEW[:, :8]),
    "kernel_pca nystrom": lambda: be.KernelPCA(3, gamma=0.02, solver="nystrom", n_landmarks=300).fit(MANY),
    "landmark_diffusion_map": lambda: be.LandmarkDiffusionMap(3, n_landmarks=100).fit(MANY),
    "landmark_mds": lambda: be.LandmarkMDS(3, n_landmarks=50).fit(MANY),
    "linear_discriminant": lambda: be.LinearDiscriminantAnalysis(3).fit(MANY, LABELS),
    "linearized_diffusion_map": lambda: be.LinearizedDiffusionMap(3, alpha=0.5).fit(MANY),
    "linearized_diffusion_map lanczos": lambda: be.LinearizedDiffusionMap(3, solver="lanczos").fit(MANY),
    "linearized_diffusion_nmf": lambda: be.LinearizedDiffusionNMF(3, max_iter=3).fit(MANY),
    "linearized_kernel_pca": lambda: be.LinearizedKernelPCA(3, epsilon="auto").fit(MANY),
    "nmf": lambda: be.NMF(10, max_iter=4).fit(WIDE[:, ::3]),
    "nmf random": lambda: be.NMF(8, init="random", max_iter=4).fit(MANY),
    "nmf sparse": lambda: be.NMF(3, max_iter=4).fit(sparse.csr_array(MANY)),
    "pca": lambda: be.PCA(3).fit(MANY),
    "pca wide": lambda: be.PCA(3, tol=1e-3).fit(WIDE),
}
DEFAULT = ("classical_mds precomputed", "diffusion_map weights", "isomap landmarks", "kernel_pca", "nmf", "pca")
"""Those that run by default, ones that once differed among them; the others with ``-m slow``."""


def ring() -> Any:
    i = np.arange(len(WEIGHTS))
    j = np.roll(i, -1)
    return sparse.csr_array((np.tile(WEIGHTS, 2), (np.r_[i, j], np.r_[j, i])))


def digest(method: str) -> dict[str, str]:
    """Of every public array of a fitted estimator."""
    fitted = METHODS[method]()
    found = {name: value for name, value in vars(fitted).items() if name.endswith("_") and is_array(value)}
    found["embedding_"] = fitted.embedding_
    return {name: sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in found.items()}


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def test_none_is_left_out() -> None:
    assert {name.split()[0] for name in METHODS} == set(REGISTRY)


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method", [method if method in DEFAULT else pytest.param(method, marks=pytest.mark.slow) for method in METHODS]
)
def test_same_bytes(client: Any, method: str) -> None:
    with dask.config.set(scheduler="synchronous"):
        here = digest(method)
    assert digest(method) == here
