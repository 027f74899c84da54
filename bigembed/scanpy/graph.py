"""The neighbor graph of an AnnData: distances and connectivities where scanpy keeps them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors.build import build_neighbor_graph
from bigembed.rows.found_lists import values_of
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import at_least, declared, one_of
from bigembed.scanpy.rows import AnyAnnData, Key, PathOrNone, representation, written

METHODS = ("umap", "gauss")


@declared
def neighbors(
    adata: AnyAnnData,
    n_neighbors: Annotated[int, at_least(2)] = 15,
    n_pcs: Annotated[int, at_least(0)] | None = None,
    *,
    use_rep: Key | None = None,
    knn: bool = True,
    method: Annotated[str, one_of(*METHODS)] = "umap",
    metric: Any = "euclidean",
    random_state: Annotated[int, at_least(0)] = 0,
    key_added: Key | None = None,
    copy: bool = False,
    recall: float = 0.99,
    algorithm: str = "auto",
    algorithm_params: dict[str, Any] | None = None,
    workdir: PathOrNone = None,
) -> Any:
    """Build the neighbor graph of an AnnData, as ``scanpy.pp.neighbors`` does; the recall is measured.

    Parameters
    ----------
    adata : AnnData
        The cells; their rows may be larger than memory, the graph is in memory.
    n_neighbors : int ≥ 2
        The number of neighbors, the cell itself counted as scanpy counts it: 15 are 14 others.
    n_pcs : int ≥ 0 or None
        How many principal components to take; 0 takes X.
    use_rep : str or None
        "X" or a key of ``obsm``; None is X of at most 50 columns, and "X_pca" otherwise, computed if it is not there.
    knn : bool
        True; weights between all pairs of cells are not made.
    method : {"umap", "gauss"}
        The connectivities: fuzzy memberships as UMAP has them, or a Gaussian kernel of adaptive width.
    metric : str or function
        The distance, as for :func:`bigembed.build_neighbor_graph`. Cosine and correlation are 1 − cos here, as in
        scanpy, not the chord.
    random_state : int ≥ 0
        The seed of the search.
    key_added : str or None
        The key in ``uns``, and the beginning of those in ``obsp``, in place of the usual ones.
    copy : bool
        Whether a copy is changed and returned.
    recall : float in (0, 1]
        The target share of true neighbors.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched.
    algorithm_params : dict or None
        Parameters for pynndescent's ``NNDescent``, with algorithm="pynndescent".
    workdir : path or None
        Where the graph is kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obsp["distances"]``, ``obsp["connectivities"]`` and ``uns["neighbors"]``, with
        the measured recall beside scanpy's own entries.

    Raises
    ------
    InputError
        If an array is not there, or a parameter is out of range.

    Warns
    -----
    RecallWarning
        If the recall is below its target.
    """
    if not knn:
        raise InputError("knn=False joins all pairs of cells; allowed: True. scanpy.pp.neighbors makes such a graph")
    adata = written(adata, copy)
    n = adata.n_obs
    n_neighbors = 1 + n // 2 if n_neighbors > n else n_neighbors
    graph = build_neighbor_graph(
        representation(adata, use_rep, n_pcs),
        n_neighbors - 1,
        metric=metric,
        recall=recall,
        algorithm=algorithm,
        algorithm_params=algorithm_params,
        random_state=random_state,
        workdir=workdir,
    )
    indices, lengths = graph.lists()
    distances = values_of(lengths, metric)
    weights = (fuzzy_weights if method == "umap" else gauss_weights)(indices, distances)
    key, first = ("neighbors", "") if key_added is None else (key_added, f"{key_added}_")
    params = {"n_neighbors": n_neighbors, "method": method, "random_state": random_state, "metric": metric}
    params |= {name: value for name, value in (("use_rep", use_rep), ("n_pcs", n_pcs)) if value is not None}
    names = {f"{name}_key": f"{first}{name}" for name in ("connectivities", "distances")}
    adata.uns[key] = {**names, "params": params, "recall": graph.recall}
    adata.obsp[names["distances_key"]] = _matrix(indices, distances)
    adata.obsp[names["connectivities_key"]] = weights
    return adata if copy else None


def fuzzy_weights(indices: Array, distances: Array) -> Any:
    """Return the weights of UMAP (n, n) for lists of neighbors: a + aᵀ − a∘aᵀ of the memberships a of the lists."""
    from bigembed.maps.umap.compiled import calibrate  # imports numba: only here

    n, k = indices.shape
    everything, pointers = np.full(n, np.inf), np.arange(0, n * k + 1, k)
    scales = calibrate(pointers, indices.ravel(), distances.ravel() ** 2, np.arange(n), everything, everything, k, 1.0)
    rho, sigma = scales[:, 2, None], scales[:, 3, None]
    one_way = _matrix(indices, np.exp(-np.maximum(0.0, distances - rho) / sigma))
    both = one_way + one_way.T - one_way.multiply(one_way.T)
    both.eliminate_zeros()
    return both.tocsr().astype(np.float32)


def gauss_weights(indices: Array, distances: Array) -> Any:
    """Return √(2σ_i σ_j/(σ_i² + σ_j²)) exp(−d²/(σ_i² + σ_j²)), σ² the median d² of a list (Haghverdi et al. 2016)."""
    squared = distances**2
    scale = np.median(squared, axis=1)
    mine, theirs = scale[:, None], scale[indices]
    total = np.maximum(mine + theirs, np.finfo(np.float64).tiny)
    kernel = np.sqrt(2 * np.sqrt(mine * theirs) / total) * np.exp(-squared / total)
    one_way = _matrix(indices, np.where(total > np.finfo(np.float64).tiny, kernel, 1.0))
    return one_way.maximum(one_way.T).tocsr()


def _matrix(indices: Array, values: Array) -> Any:
    """Return lists as a sparse matrix, nearest first in each row."""
    from scipy.sparse import csr_matrix

    n, k = indices.shape
    return csr_matrix((values.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
