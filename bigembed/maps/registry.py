"""The methods by their names. A method is found by everything else through :data:`REGISTRY`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bigembed import _homes
from bigembed.errors import JobError
from bigembed.runtime.parameters import Functions
from bigembed.steps import REGISTRY as OWN_STEPS
from bigembed.steps import step as own_step

CLASSES = {
    "alternating_diffusion_map": "AlternatingDiffusionMap",
    "classical_mds": "ClassicalMDS",
    "diffusion_map": "DiffusionMap",
    "hessian_lle": "HessianLLE",
    "isomap": "Isomap",
    "kernel_pca": "KernelPCA",
    "landmark_diffusion_map": "LandmarkDiffusionMap",
    "landmark_mds": "LandmarkMDS",
    "laplacian_eigenmaps": "LaplacianEigenmaps",
    "linear_discriminant": "LinearDiscriminantAnalysis",
    "linearized_diffusion_map": "LinearizedDiffusionMap",
    "linearized_diffusion_nmf": "LinearizedDiffusionNMF",
    "linearized_kernel_pca": "LinearizedKernelPCA",
    "local_tangent_space_alignment": "LocalTangentSpaceAlignment",
    "locally_linear_embedding": "LocallyLinearEmbedding",
    "modified_lle": "ModifiedLLE",
    "nmf": "NMF",
    "pacmap": "PaCMAP",
    "pca": "PCA",
    "phate": "PHATE",
    "spectral_clustering": "SpectralClustering",
    "truncated_svd": "TruncatedSVD",
    "tsne": "TSNE",
    "umap": "UMAP",
}
"""What each method is called in job files and saved models, and its class, which declares the same name."""
REGISTRY = {name: f"{_homes()[public]}:{public}" for name, public in CLASSES.items()}
"""Registered name of each method, and the place of its class."""


def method(name: str) -> type[Any]:
    """The estimator class registered under ``name``; an unknown name is an error with the nearest known one."""
    module, _, attribute = REGISTRY[_known("method", name, sorted(REGISTRY))].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


STEPS = (*sorted(OWN_STEPS), "pca", "truncated_svd")
"""What can go before a method, by name: the steps, and the methods that make fewer columns of many."""


def step(name: str) -> type[Any]:
    """The class of a step; an unknown name is an error with the nearest known one."""
    return method_or_step(_known("step", name, STEPS))


def _known(kind: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise JobError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
    return name


def method_or_step(name: str) -> type[Any]:
    """The class of a method, or of a step, by its name."""
    return own_step(name) if name in OWN_STEPS else method(name)


def load(path: Any, functions: Functions = ()) -> Any:
    """Load the fitted estimator that ``save`` wrote, here or elsewhere; it extends to new rows as before.

    Parameters
    ----------
    path : path
        The path of a saved model: that of ``save``, or of ``[output] model`` in a job file.
    functions : mapping of str to function, or sequence
        What a model with a kernel or a metric of the user's own may call: a mapping from the name in it
        (``"module:name"``) to the function, or a list of modules (or of such names) that you trust. By default this is
        empty: nothing that a model names is imported.

    Returns
    -------
    estimator
        The estimator, of the class that was saved, with its fitted attributes.

    Raises
    ------
    MissingPathError
        If there is no such path.
    InputError
        If this is not a saved model, or it names a function which is not allowed.
    DamagedError
        If the model is incomplete, or of another format.

    Notes
    -----
    No pass over any rows; the model's arrays are read when they are asked for. Nothing is unpickled.

    Examples
    --------
    >>> import tempfile, numpy as np, bigembed as be
    >>> path = tempfile.mkdtemp() + "/model.zarr"
    >>> be.PCA(n_components=1).fit(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])).save(path)
    >>> be.load(path).transform(np.array([[6.0, 8.0]])).round(6).tolist()
    [[5.0]]
    """
    from bigembed.estimator.saving import load as load_model

    return load_model(path, method_or_step, functions)
