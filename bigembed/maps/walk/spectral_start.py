"""Where the maps of other packages begin: spectral coordinates of a graph, scaled as each wants them."""

from __future__ import annotations

import os
import warnings
from typing import Annotated, Any

import numpy as np

from bigembed import errors
from bigembed.estimator.reporting import warn
from bigembed.maps.start import localized
from bigembed.maps.walk.laplacian_eigenmaps import LaplacianEigenmaps
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Fraction, Seed, at_least, declared, one_of

SCALES = ("openTSNE", "umap")
OPENTSNE = 1e-4
"""Standard deviation of the first column."""
JITTER = 1e-2
"""Standard deviation of the noise, over that of the first column: what openTSNE adds to its own starts."""
UMAP = 10.0
"""Largest |entry|."""
UMAP_NOISE = 1e-4
OF_MAPS = (errors.HarmonicWarning, errors.LocalizedWarning, errors.MapWarning, errors.SeparationWarning)
"""Warnings of a map that is to be looked at, not of one that another one starts from."""


@declared
def spectral_start(
    graph: Any,
    n_components: Count = 2,
    *,
    scale: Annotated[str, one_of(*SCALES)] | None = None,
    tol: Fraction = 1e-4,
    max_passes: Annotated[int, at_least(4)] = 300,
    random_state: Seed = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> Array:
    """Spectral coordinates of a graph as an array, from which UMAP, t-SNE or a layout may start.

    The Laplacian eigenmap of the graph (seed 000 eqs. 36, 39), by a solver that converges in tens of passes over graphs
    of millions of nodes: the start that umap-learn and openTSNE take from SciPy's LOBPCG or ARPACK.

    Parameters
    ----------
    graph : weights as a symmetric SciPy sparse matrix (``graph_`` of a fitted ``umap.UMAP``, ``P`` of openTSNE's
        affinities, ``connectivities`` of scanpy), a graph of any size (:func:`bigembed.open_graph`), a
        :class:`~bigembed.NeighborGraph` (of which the weights are those of :class:`~bigembed.LaplacianEigenmaps`), or
        whatever else ``fit`` of that class takes. Of a fitted estimator its ``graph_`` is taken.
    n_components : int ≥ 1, the number m of columns.
    scale : None (as the eigenmap is scaled: mean square 1), "openTSNE" (standard deviation of the first column 1e-4,
        and normal noise of 1e-6, float64), or "umap" (largest |entry| 10, and normal noise of 1e-4, float32).
    tol : float in (0, 1). Largest residual ‖Q^{-1/2} L Q^{-1/2} v − μ v‖.
    max_passes : int ≥ 4. Passes over the graph before the solver gives up (with a warning).
    random_state : int, None or a generator: the solver and the noise.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.

    Returns
    -------
    (n, m) NumPy array in the order of the input, columns by ascending μ, the trivial one left out; the largest |entry|
    of each is positive. Of a graph in several parts at most half of the columns tell the largest apart, and the others
    show the inside of single parts; nodes of islands (fewer than 1 % of few nodes, 100, or 0.1 % of many) are at the
    place of their nearest row, or, in a graph without rows, at 0.

    Raises
    ------
    InputError : weights that are not symmetric, negative or not finite; nodes without an edge; as many columns as
        nodes.
    A solve that stops early, parts or islands, and a column that less than 5 % of the nodes carry are warnings.

    Notes
    -----
    Cost: two passes over the graph to check and store it, some twelve light ones to order the nodes of more than one
    block by nearness, then 10–40 over blocks of it. Memory: a few blocks a worker; in this process the array that is
    returned, 8·n·m bytes, up to 160·n bytes while the nodes are ordered, and the weights, if they came in memory.

    References
    ----------
    M. Belkin, P. Niyogi, Laplacian eigenmaps, Neural Computation 15 (2003). M. Cameron, lecture notes, §9.3 (seed 000).
    D. Kobak, G. Linderman, Initialization is critical for preserving global data structure in both t-SNE and UMAP,
    Nature Biotechnology 39 (2021).

    Examples
    --------
    >>> from scipy.sparse import diags_array
    >>> path = diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1])
    >>> start = spectral_start(path, scale="openTSNE")
    >>> start.shape, float(start[:, 0].std().round(6))
    ((10, 2), 0.0001)

    With the packages themselves: ``openTSNE.TSNE().fit(affinities=a, initialization=spectral_start(a.P,
    scale="openTSNE"))``, ``umap.UMAP(init=spectral_start(graph, scale="umap"))``.
    """
    if hasattr(graph, "fit") and not hasattr(graph, "graph_"):
        raise errors.InputTypeError(
            f"spectral_start: this {type(graph).__name__} has no graph_: it is not fitted, was fitted to weights, or "
            "is a saved model. Give the graph or the weights"
        )
    eigenmap = LaplacianEigenmaps(
        n_components, tol=tol, max_passes=max_passes, random_state=random_state, workdir=workdir
    )
    with warnings.catch_warnings():
        for category in OF_MAPS:
            warnings.simplefilter("ignore", category)
        eigenmap.fit(getattr(graph, "graph_", graph))
    coordinates = np.asarray(eigenmap.embedding_)
    moments = np.stack([(coordinates**2).sum(axis=0), (coordinates**4).sum(axis=0)])
    if reason := localized(moments, len(coordinates)):
        warn(
            f"spectral_start: {reason}: groups of a map that starts from it may lie on top of each other. Start from "
            "principal coordinates, or leave these nodes out",
            errors.LocalizedWarning,
        )
    return coordinates if scale is None else scaled(coordinates, scale, eigenmap.certificate_["seed"])


def scaled(coordinates: Array, scale: str, seed: int) -> Array:
    """Coordinates (n, m) as openTSNE or umap begins with them.

    >>> np.abs(scaled(np.array([[1.0], [-2.0]]), "umap", 0)).round(2).tolist()
    [[5.0], [10.0]]
    """
    noise = np.random.default_rng([seed, 12]).normal(size=coordinates.shape)
    if scale == "umap":
        return np.asarray(UMAP / np.abs(coordinates).max() * coordinates + UMAP_NOISE * noise, np.float32)
    jittered = coordinates + JITTER * coordinates[:, 0].std() * noise
    return np.asarray(OPENTSNE / jittered[:, 0].std() * jittered)
