"""A Gaussian mixture of many clusters: the hard case of neighbors and eigensolvers, of any size."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bigembed.blocks.declared import declared
from bigembed.blocks.rows import Array
from bigembed.datasets.dataset import Dataset, Truth
from bigembed.errors import InputError


def mixture_block(
    start: int,
    stop: int,
    rng: np.random.Generator,
    n: int,
    d: int,
    n_clusters: int,
    intrinsic: int,
    separation: float,
    noise: float,
    layout: int,
) -> tuple[Array, Truth]:
    """x = (c_l + z) Qᵀ + noise: label l uniform, z ~ N(0, I) in ``intrinsic`` dimensions, Q orthonormal."""
    centers, basis = _layout(d, n_clusters, intrinsic, separation, layout)
    label = rng.integers(0, n_clusters, stop - start)
    latent = centers[label] + rng.standard_normal((stop - start, intrinsic))
    ambient = rng.standard_normal((stop - start, d), dtype=np.float32)
    return latent @ basis + noise * ambient, {"label": label}


@declared
def mixture(
    n: int = 100_000,
    d: int = 64,
    n_clusters: int = 200,
    intrinsic: int = 12,
    separation: float = 2.8,
    noise: float = 0.05,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Gaussian clusters with centers ``separation``·N(0, I), in a subspace of R^d, with noise. Truth: label.

    ``n_clusters`` of them of standard deviation 1, in ``intrinsic`` of the ``d`` dimensions.
    Most clusters touch others and some stand apart: the neighbor graph has one large component of
    nearly disconnected parts, and many eigenvalues crowd at 1.
    """
    if not 1 <= intrinsic <= d:
        raise InputError(f"data set 'mixture': intrinsic = {intrinsic}; it must be between 1 and d = {d}")
    if n_clusters < 1:
        raise InputError(f"data set 'mixture': n_clusters = {n_clusters}; it must be at least 1")
    if not (separation >= 0 and noise >= 0):
        raise InputError(f"data set 'mixture': separation = {separation}, noise = {noise}; neither may be negative")
    parameters = {
        "d": d,
        "n_clusters": n_clusters,
        "intrinsic": intrinsic,
        "separation": separation,
        "noise": noise,
        "layout": seed,
    }
    return Dataset("mixture", (n, d), mixture_block, seed, dtype, parameters)


@lru_cache(maxsize=4)
def _layout(d: int, n_clusters: int, intrinsic: int, separation: float, seed: int) -> tuple[Array, Array]:
    """Centers (n_clusters, intrinsic) and an orthonormal basis (intrinsic, d): the same for every block."""
    rng = np.random.default_rng([seed, d, n_clusters, intrinsic])
    centers = separation * rng.standard_normal((n_clusters, intrinsic))
    basis, triangle = np.linalg.qr(rng.standard_normal((d, intrinsic)))
    return centers, np.ascontiguousarray((basis * np.sign(np.diag(triangle))).T)
