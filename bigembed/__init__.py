"""bigembed: low-dimensional coordinates of row-chunked arrays that do not fit in memory.

The public names are imported when they are first used, so ``import bigembed`` is quick.
"""

import importlib as _importlib
import typing as _typing

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:  # (for editors and type checkers; what there is when it runs: _HOMES, and the methods)
    from bigembed import datasets as datasets
    from bigembed import errors as errors
    from bigembed import plotting as plotting
    from bigembed.jobs.growth.versions import open_growth as open_growth
    from bigembed.methods import load as load
    from bigembed.methods.classical_mds import ClassicalMDS as ClassicalMDS
    from bigembed.methods.diffusion_map import DiffusionMap as DiffusionMap
    from bigembed.methods.isomap import Isomap as Isomap
    from bigembed.methods.kernel_pca import KernelPCA as KernelPCA
    from bigembed.methods.landmark_diffusion_map import LandmarkDiffusionMap as LandmarkDiffusionMap
    from bigembed.methods.landmark_mds import LandmarkMDS as LandmarkMDS
    from bigembed.methods.linear_discriminant import LinearDiscriminantAnalysis as LinearDiscriminantAnalysis
    from bigembed.methods.linearized_diffusion_map import LinearizedDiffusionMap as LinearizedDiffusionMap
    from bigembed.methods.linearized_diffusion_nmf import LinearizedDiffusionNMF as LinearizedDiffusionNMF
    from bigembed.methods.linearized_kernel_pca import LinearizedKernelPCA as LinearizedKernelPCA
    from bigembed.methods.nmf import NMF as NMF
    from bigembed.methods.pca import PCA as PCA
    from bigembed.neighbors.graph import NeighborGraph as NeighborGraph
    from bigembed.neighbors.graph import build_neighbor_graph as build_neighbor_graph
    from bigembed.paths.routes import geodesic_distances as geodesic_distances
    from bigembed.paths.routes import shortest_path as shortest_path
    from bigembed.quality.certify import certify as certify
    from bigembed.store.arrays import open_array as open_array
    from bigembed.store.growing import append_rows as append_rows

_HOMES = {
    "NeighborGraph": "bigembed.neighbors.graph",
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


def _homes() -> dict[str, str]:
    """The module of every public name: those above, and the class of each method."""
    from bigembed.methods import REGISTRY

    return _HOMES | {name: module for module, _, name in (home.partition(":") for home in REGISTRY.values())}


def __getattr__(name: str) -> _typing.Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name == "__all__":
        return sorted([*_homes(), "__version__"])
    module = _HOMES.get(name) or ("" if name.startswith("_") else _homes().get(name))
    if not module:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_homes(), *_MODULES, *(name for name in globals() if name.startswith("__"))})
