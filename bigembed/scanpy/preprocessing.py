"""The rows of an AnnData that a function reads, its principal components, and its neighbor graph."""

from __future__ import annotations

import os
import warnings
from typing import Annotated, Any

import numpy as np
from scipy.sparse import csr_matrix

from bigembed.errors import InputError, InputTypeError
from bigembed.estimator.pipeline import Pipeline
from bigembed.maps.linear.pca import PCA
from bigembed.neighbors.build import build_neighbor_graph
from bigembed.rows.opening import values_of
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Kind, Seed, at_least, declared, one_of
from bigembed.steps.columns import Columns

N_PCS = 50
"""Principal components by default; X of no more columns is taken as it is."""
VARIABLE = "highly_variable"
"""The column of ``var`` that, where it is there, says which columns principal components are of."""

AnyAnnData = Annotated[Any, Kind("an AnnData", lambda value: hasattr(value, "obsm") and hasattr(value, "uns"))]
Key = Annotated[str, Kind("a key", lambda value: isinstance(value, str))]
PathOrNone = str | os.PathLike[str] | None


def is_float(dtype: Any) -> bool:
    """Tell whether NumPy knows this as a type of floating-point numbers.

    >>> is_float("f4"), is_float("nonsense"), is_float(int)
    (True, False, False)
    """
    try:
        return bool(np.dtype(dtype).kind == "f")
    except TypeError:
        return False


def written(adata: Any, copy: bool) -> Any:
    """Return the AnnData that results are written into: this one, or a copy of it."""
    if copy and adata.isbacked:
        raise InputError(
            f"copy=True: X of this AnnData stays in {adata.filename}, and a copy needs a file of its own. Leave copy "
            "out (X is not changed), or make the copy first: adata.copy(filename=…)"
        )
    if adata.isbacked and adata.is_view:
        raise InputError(
            f"this is a part of an AnnData whose X stays in {adata.filename}, and such a part cannot hold results. "
            "Load it (to_memory()), or give it a file of its own: adata.copy(filename=…)"
        )
    return adata.copy() if copy else adata


def matrix(adata: Any, layer: str | None = None) -> Any:
    """Return X or a layer, as rows that estimators take."""
    if layer is not None and layer not in adata.layers:
        raise InputError(f"layer={layer!r}; there are {sorted(filter(None, adata.layers)) or 'none'}")
    found = adata.X if layer is None else adata.layers[layer]
    if found is None:
        raise InputError("this AnnData has no X: give use_rep, the key of an array in obsm")
    return found


def representation(adata: Any, use_rep: str | None, n_pcs: int | None) -> Any:
    """Return the rows that scanpy would take: an array of ``obsm``, X, or principal components of it."""
    if use_rep is None:
        if n_pcs == 0 or adata.n_vars <= N_PCS:
            return matrix(adata)
        if "X_pca" not in adata.obsm:
            warnings.warn(
                f"X has {adata.n_vars} columns: principal components are computed first, as pca(adata) does. Call it "
                "yourself, or say use_rep='X'",
                stacklevel=4,
            )
            pca(adata, n_pcs)
        use_rep = "X_pca"
    elif use_rep == "X":
        return matrix(adata)
    if use_rep not in adata.obsm:
        raise InputError(f"use_rep={use_rep!r}; allowed: 'X' or a key of obsm: {sorted(adata.obsm) or 'it is empty'}")
    rows = adata.obsm[use_rep]
    if n_pcs and n_pcs > rows.shape[1]:
        raise InputError(f"n_pcs={n_pcs}; {use_rep} has {rows.shape[1]} columns. Compute more, or ask for fewer")
    columns = slice(n_pcs or None)
    return rows.iloc[:, columns] if hasattr(rows, "iloc") else rows[:, columns]


@declared
def pca(
    adata: AnyAnnData,
    n_comps: Count | None = None,
    *,
    layer: Key | None = None,
    zero_center: bool = True,
    mask_var: Any = "auto",
    random_state: Seed = 0,
    dtype: Annotated[Any, Kind("a type of floats", lambda value: is_float(value))] = "float32",
    key_added: Key | None = None,
    copy: bool = False,
    workdir: PathOrNone = None,
) -> Any:
    """Compute principal components of an AnnData in one or two passes, as ``scanpy.pp.pca`` does.

    X may be larger than memory, and sparse rows are not made dense. Signs are scanpy's.

    Parameters
    ----------
    adata : AnnData
        The cells.
    n_comps : int ≥ 1 or None
        The number of components; None is 50, or one less than there are rows or columns.
    layer : str or None
        The layer to take in place of X.
    zero_center : bool
        Whether the mean is taken off. Without, variances are mean squares about zero, as :class:`bigembed.PCA` has
        them, and components are exact, where scanpy's are approximate.
    mask_var : array of bool of shape (n_vars,), str or None
        The columns to take, or the column of ``var`` that says so; "auto" is "highly_variable" where ``var`` has it.
    random_state : int, generator or None
        The seed of the solver for more than 4096 columns.
    dtype : dtype
        The type of the coordinates.
    key_added : str or None
        The key in ``obsm``, ``varm`` and ``uns`` in place of the usual ones.
    copy : bool
        Whether a copy is changed and returned.
    workdir : path or None
        Where the stages are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obsm["X_pca"]``, ``varm["PCs"]`` and ``uns["pca"]`` with params, variance and
        variance_ratio.

    Raises
    ------
    InputError
        If a layer or a column is not there, or there are fewer rows or columns than components.
    """
    adata = written(adata, copy)
    rows, (name, mask) = matrix(adata, layer), _mask(adata, mask_var)
    width = adata.n_vars if mask is None else int(mask.sum())
    least = min(adata.n_obs, width)
    wanted = n_comps or (least - 1 if least <= N_PCS else N_PCS)
    found = PCA(wanted, center=zero_center, random_state=random_state, workdir=workdir)
    if mask is None:
        found.fit(rows)
    else:
        found = Pipeline([("columns", Columns(np.flatnonzero(mask).tolist())), ("pca", found)]).fit(rows).method_
    components = np.zeros((adata.n_vars, wanted))
    components[slice(None) if mask is None else mask] = found.components_.T
    keys = ("X_pca", "PCs", "pca") if key_added is None else (key_added,) * 3
    variance, ratio = np.asarray(found.explained_variance_), np.asarray(found.explained_variance_ratio_)
    adata.obsm[keys[0]] = np.array(found.embedding_, dtype)
    adata.varm[keys[1]] = components
    params = {"zero_center": zero_center, "use_highly_variable": name == VARIABLE, "mask_var": name}
    params |= {} if layer is None else {"layer": layer}
    adata.uns[keys[2]] = {"params": params, "variance": variance, "variance_ratio": ratio}
    return adata if copy else None


def _mask(adata: Any, mask_var: Any) -> tuple[Any, Array | None]:
    """Return how the columns are named, and which they are; None of all."""
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = VARIABLE if VARIABLE in adata.var else None
    if mask_var is None:
        return None, None
    if isinstance(mask_var, str) and mask_var not in adata.var:
        raise InputError(f"mask_var={mask_var!r}; allowed: a column of var, {sorted(adata.var)}, or an array of bool")
    mask = np.asarray(adata.var[mask_var] if isinstance(mask_var, str) else mask_var)
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise InputTypeError(f"mask_var has {mask.dtype} of shape {mask.shape}; bool of ({adata.n_vars},) is needed")
    if not mask.any():
        raise InputError("mask_var chooses no column at all")
    return mask_var, mask


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
    n, k = indices.shape
    return csr_matrix((values.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
