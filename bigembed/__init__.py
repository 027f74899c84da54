"""bigembed: low-dimensional coordinates of row-chunked arrays that do not fit in memory.

The public names are imported when they are first used, so ``import bigembed`` is quick.
"""

import importlib as _importlib
import typing as _typing

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
    from bigembed import datasets as datasets
    from bigembed import errors as errors
    from bigembed import plotting as plotting
    from bigembed.jobs.growth.versions import open_growth
    from bigembed.methods import load
    from bigembed.methods.classical_mds import ClassicalMDS
    from bigembed.methods.diffusion_map import DiffusionMap
    from bigembed.methods.isomap import Isomap
    from bigembed.methods.kernel_pca import KernelPCA
    from bigembed.methods.landmark_diffusion_map import LandmarkDiffusionMap
    from bigembed.methods.landmark_mds import LandmarkMDS
    from bigembed.methods.linear_discriminant import LinearDiscriminantAnalysis
    from bigembed.methods.linearized_diffusion_map import LinearizedDiffusionMap
    from bigembed.methods.linearized_diffusion_nmf import LinearizedDiffusionNMF
    from bigembed.methods.linearized_kernel_pca import LinearizedKernelPCA
    from bigembed.methods.nmf import NMF
    from bigembed.methods.pca import PCA
    from bigembed.neighbors.graph import NeighborGraph, build_neighbor_graph
    from bigembed.paths.routes import geodesic_distances, shortest_path
    from bigembed.quality.certify import certify
    from bigembed.store.arrays import open_array
    from bigembed.store.growing import append_rows

_HOMES = {
    "ClassicalMDS": "bigembed.methods.classical_mds",
    "DiffusionMap": "bigembed.methods.diffusion_map",
    "Isomap": "bigembed.methods.isomap",
    "KernelPCA": "bigembed.methods.kernel_pca",
    "LandmarkDiffusionMap": "bigembed.methods.landmark_diffusion_map",
    "LandmarkMDS": "bigembed.methods.landmark_mds",
    "LinearDiscriminantAnalysis": "bigembed.methods.linear_discriminant",
    "LinearizedDiffusionMap": "bigembed.methods.linearized_diffusion_map",
    "LinearizedDiffusionNMF": "bigembed.methods.linearized_diffusion_nmf",
    "LinearizedKernelPCA": "bigembed.methods.linearized_kernel_pca",
    "NMF": "bigembed.methods.nmf",
    "NeighborGraph": "bigembed.neighbors.graph",
    "PCA": "bigembed.methods.pca",
    "append_rows": "bigembed.store.growing",
    "build_neighbor_graph": "bigembed.neighbors.graph",
    "certify": "bigembed.quality.certify",
    "geodesic_distances": "bigembed.paths.routes",
    "load": "bigembed.methods",
    "open_array": "bigembed.store.arrays",
    "open_growth": "bigembed.jobs.growth.versions",
    "shortest_path": "bigembed.paths.routes",
}

_MODULES = ("datasets", "errors", "plotting")

__all__ = [
    "NMF",
    "PCA",
    "ClassicalMDS",
    "DiffusionMap",
    "Isomap",
    "KernelPCA",
    "LandmarkDiffusionMap",
    "LandmarkMDS",
    "LinearDiscriminantAnalysis",
    "LinearizedDiffusionMap",
    "LinearizedDiffusionNMF",
    "LinearizedKernelPCA",
    "NeighborGraph",
    "__version__",
    "append_rows",
    "build_neighbor_graph",
    "certify",
    "geodesic_distances",
    "load",
    "open_array",
    "open_growth",
    "shortest_path",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(_importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})
