"""One estimator, one file. A method is found by everything else through :data:`REGISTRY`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bigembed.errors import JobError

REGISTRY = {
    "classical_mds": "bigembed.methods.classical_mds:ClassicalMDS",
    "diffusion_map": "bigembed.methods.diffusion_map:DiffusionMap",
    "isomap": "bigembed.methods.isomap:Isomap",
    "kernel_pca": "bigembed.methods.kernel_pca:KernelPCA",
    "landmark_diffusion_map": "bigembed.methods.landmark_diffusion_map:LandmarkDiffusionMap",
    "landmark_mds": "bigembed.methods.landmark_mds:LandmarkMDS",
    "linear_discriminant": "bigembed.methods.discriminant:LinearDiscriminantAnalysis",
    "linearized_diffusion_map": "bigembed.methods.linearized_diffusion_map:LinearizedDiffusionMap",
    "linearized_diffusion_nmf": "bigembed.methods.linearized_diffusion_nmf:LinearizedDiffusionNMF",
    "linearized_kernel_pca": "bigembed.methods.linearized_kernel_pca:LinearizedKernelPCA",
    "nmf": "bigembed.methods.nmf:NMF",
    "pca": "bigembed.methods.pca:PCA",
}
"""Module name of each method, and its class."""


AROUND = ("workdir", "verbose", "callbacks")
"""Parameters of every method that say where a fit keeps its stages and what it tells, and change no result."""


def method(name: str) -> type[Any]:
    """The estimator class registered under ``name``; an unknown name is an error with the nearest known one."""
    if name not in REGISTRY:
        from difflib import get_close_matches

        near = get_close_matches(name, REGISTRY, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise JobError(f"unknown method {name!r}{hint} Known: {', '.join(sorted(REGISTRY))}")
    module, _, attribute = REGISTRY[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found
