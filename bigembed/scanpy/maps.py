"""Maps of an AnnData on its neighbor graph, and pseudotime."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from bigembed.errors import InputError
from bigembed.maps.tsne.estimator import TSNE
from bigembed.maps.umap.descent import curve
from bigembed.maps.umap.estimator import UMAP
from bigembed.maps.walk.diffusion_map import DiffusionMap
from bigembed.rows.opening import as_array
from bigembed.runtime.blocks import Array, bounds, is_scipy_sparse
from bigembed.runtime.parameters import Auto, Count, Nonnegative, Positive, Seed, at_least, declared, is_integer
from bigembed.scanpy.preprocessing import AnyAnnData, Key, PathOrNone, matrix, representation, written

SLOW = 0.9994
"""Eigenvalues from here on tell components and slow branches apart; scanpy's pseudotime takes no factor of theirs."""
READ = 4_096
"""Cells that are compared with a root at a time."""
UMAP_SIZE = 10.0
"""Of a start that is an array, as umap-learn scales it."""


def connectivities(adata: Any, neighbors_key: str | None) -> Any:
    """Return the weights of the neighbor graph; InputError where there is none."""
    key = neighbors_key or "neighbors"
    if key not in adata.uns:
        raise InputError(f"uns has no {key!r}: call neighbors(adata) first, or give its neighbors_key")
    name = adata.uns[key].get("connectivities_key", "connectivities")
    if name not in adata.obsp:
        raise InputError(f"obsp has no {name!r}, which uns[{key!r}] names: call neighbors(adata) again")
    return adata.obsp[name]


@declared
def diffmap(
    adata: AnyAnnData,
    n_comps: Annotated[int, at_least(3)] = 15,
    *,
    neighbors_key: Key | None = None,
    random_state: Seed = 0,
    copy: bool = False,
    workdir: PathOrNone = None,
) -> Any:
    """Compute the diffusion map of an AnnData on its neighbor graph, as ``scanpy.tl.diffmap`` does.

    Columns are eigenvectors v of D^{-1/2} K D^{-1/2}, ‖v‖ = 1, the first one the trivial one; signs are arbitrary.

    Parameters
    ----------
    adata : AnnData
        The cells, with a neighbor graph.
    n_comps : int ≥ 3
        The number of eigenvectors, the trivial one counted.
    neighbors_key : str or None
        The key of the graph in ``uns``; None is "neighbors".
    random_state : int, generator or None
        The seed of the solver.
    copy : bool
        Whether a copy is changed and returned.
    workdir : path or None
        Where the stages are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obsm["X_diffmap"]`` and ``uns["diffmap_evals"]``.

    Raises
    ------
    InputError
        If there is no neighbor graph.

    Warns
    -----
    HarmonicWarning
        If a coordinate is a function of earlier ones.
    SeparationWarning
        If eigenvalues are too close together.
    LocalizedWarning
        If a coordinate is carried by few cells.
    """
    weights = connectivities(adata, neighbors_key)
    adata = written(adata, copy)
    wanted = min(adata.n_obs - 1, n_comps)
    walk = DiffusionMap(wanted - 1, alpha=1.0, t=0, random_state=random_state, workdir=workdir).fit(weights)
    degree = np.asarray(weights.sum(axis=0), np.float64).ravel()
    root = np.sqrt((weights.T @ (1 / degree)) / degree)
    vectors = np.column_stack([root, root[:, None] * np.asarray(walk.embedding_)])
    adata.obsm["X_diffmap"] = (vectors / np.linalg.norm(vectors, axis=0)).astype(np.float32)
    adata.uns["diffmap_evals"] = np.append(1.0, walk.eigenvalues_).astype(np.float32)
    return adata if copy else None


@declared
def dpt(
    adata: AnyAnnData, n_dcs: Count = 10, *, n_branchings: int = 0, neighbors_key: Key | None = None, copy: bool = False
) -> Any:
    """Compute the diffusion pseudotime of an AnnData from a root cell, as ``scanpy.tl.dpt`` does.

    :func:`bigembed.diffusion_pseudotime` has all eigenvalues follow one formula; here λ ≥ .9994 have the factor 1.

    Parameters
    ----------
    adata : AnnData
        The cells, with a neighbor graph, and the number of the root cell in ``uns["iroot"]``, or what it looks like in
        ``uns["xroot"]`` or ``var["xroot"]``. Their diffusion map is computed if it is not there.
    n_dcs : int ≥ 1
        How many columns of the diffusion map are used, the trivial one counted.
    n_branchings : int
        0; branches are not looked for.
    neighbors_key : str or None
        The key of the graph in ``uns``; None is "neighbors".
    copy : bool
        Whether a copy is changed and returned.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obs["dpt_pseudotime"]``, from 0 to 1, infinite in other components, and
        ``uns["iroot"]``.

    Raises
    ------
    InputError
        If there is no root, no neighbor graph, or fewer columns than ``n_dcs``.
    """
    if n_branchings != 0:
        raise InputError(
            f"n_branchings={n_branchings!r}; allowed: 0. scanpy.tl.dpt looks for branches on the same keys: call it "
            "after diffmap"
        )
    weights = connectivities(adata, neighbors_key)
    adata = written(adata, copy)
    if "X_diffmap" not in adata.obsm:
        diffmap(adata, neighbors_key=neighbors_key)
    basis, values = np.asarray(adata.obsm["X_diffmap"]), np.asarray(adata.uns["diffmap_evals"])
    if n_dcs > len(values):
        raise InputError(f"n_dcs={n_dcs}; X_diffmap has {len(values)} columns. Call diffmap with a larger n_comps")
    root = adata.uns["iroot"] = _root(adata)
    values, basis = values[:n_dcs].astype(np.float64), basis[:, :n_dcs].astype(np.float64)
    scale = np.divide(values, 1 - values, out=np.ones_like(values), where=values < SLOW)
    apart = np.linalg.norm(scale * (basis - basis[root]), axis=1)
    labels = connected_components(weights, directed=False)[1]
    reached = labels == labels[root]
    adata.obs["dpt_pseudotime"] = np.where(reached, apart / apart[reached].max(), np.inf)
    return adata if copy else None


def _root(adata: Any) -> int:
    """Return the number of the root cell; where only its looks are known, that of the cell nearest to them."""
    root, looks = adata.uns.get("iroot"), adata.uns.get("xroot", adata.var.get("xroot"))
    if root is None and looks is not None:
        rows, looks = matrix(adata), np.asarray(looks, np.float64).ravel()
        if len(looks) != adata.n_vars:
            raise InputError(f"xroot has {len(looks)} numbers; one for each of the {adata.n_vars} columns is needed")
        found = []
        for start, stop in bounds(adata.n_obs, READ):
            part = rows[start:stop].compute() if hasattr(rows, "dask") else rows[start:stop]
            part = part.toarray() if is_scipy_sparse(part) else np.asarray(part)
            found.append(((part - looks) ** 2).sum(axis=1))
        root = np.concatenate(found).argmin()
    if not is_integer(root) or not 0 <= root < adata.n_obs:
        raise InputError(
            f"uns['iroot'] is {root!r}; the number of the root cell is needed, 0 to {adata.n_obs - 1}: "
            "adata.uns['iroot'] = np.flatnonzero(adata.obs['cell_type'] == 'stem')[0]"
        )
    return int(root)


@declared
def umap(
    adata: AnyAnnData,
    *,
    min_dist: Nonnegative = 0.5,
    spread: Positive = 1.0,
    n_components: Count = 2,
    maxiter: Count | None = None,
    alpha: Positive = 1.0,
    gamma: Nonnegative = 1.0,
    negative_sample_rate: Count = 5,
    init_pos: Any = "spectral",
    random_state: Seed = 0,
    key_added: Key | None = None,
    neighbors_key: Key | None = None,
    copy: bool = False,
    workdir: PathOrNone = None,
) -> Any:
    """Map an AnnData by UMAP on its neighbor graph, as ``scanpy.tl.umap`` does.

    The same weights, forces and curve; all cells move at once, so that the map is alike and not equal.

    Parameters
    ----------
    adata : AnnData
        The cells, with a neighbor graph.
    min_dist : float ≥ 0
        How far apart near cells are on the map, at most ``spread``.
    spread : float > 0
        The size of the map.
    n_components : int ≥ 1
        The number of coordinates.
    maxiter : int ≥ 1 or None
        The number of epochs; None is 500 for at most 10 000 cells, else 200.
    alpha : float > 0
        The learning rate of the first epoch.
    gamma : float ≥ 0
        The weight of the repulsion.
    negative_sample_rate : int ≥ 1
        The number of cells that are drawn each time an edge takes part.
    init_pos : {"spectral", "random", "paga"}, key of obsm, or array of shape (n, m)
        The start: eigenvectors (of a graph in one component), random places, the places of the groups of PAGA, or
        coordinates that are there, which are scaled to the size of a map.
    random_state : int, generator or None
        The seed of all that is drawn.
    key_added : str or None
        The key in ``obsm`` and ``uns`` in place of the usual ones.
    neighbors_key : str or None
        The key of the graph in ``uns``; None is "neighbors".
    copy : bool
        Whether a copy is changed and returned.
    workdir : path or None
        Where the stages are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obsm["X_umap"]`` and ``uns["umap"]``, with the a and b that follow from
        ``min_dist`` and ``spread``.

    Raises
    ------
    InputError
        If there is no neighbor graph, or a start of another shape.
    """
    weights = connectivities(adata, neighbors_key)
    adata = written(adata, copy)
    found = UMAP(
        n_components,
        min_dist=min_dist,
        spread=spread,
        n_epochs=maxiter,
        learning_rate=alpha,
        init=_start(adata, init_pos, random_state),
        repulsion_strength=gamma,
        negative_sample_rate=negative_sample_rate,
        random_state=random_state,
        workdir=workdir,
    ).fit(weights)
    a, b = curve(min_dist, spread)
    params = {"a": a, "b": b} | ({} if random_state == 0 else {"random_state": random_state})
    _keep(adata, "umap", key_added, found.embedding_, params)
    return adata if copy else None


def _start(adata: Any, init_pos: Any, random_state: Any) -> Any:
    """Return what UMAP begins with: the name of a rule, or coordinates."""
    if isinstance(init_pos, str) and init_pos in ("spectral", "random"):
        return "auto" if init_pos == "spectral" else init_pos
    if isinstance(init_pos, str) and init_pos == "paga":
        return _paga(adata, random_state)
    if isinstance(init_pos, str) and init_pos not in adata.obsm:
        raise InputError(
            f"init_pos={init_pos!r}; allowed: 'spectral', 'random', 'paga', an array (n, m), or a key of obsm: "
            f"{sorted(adata.obsm) or 'it is empty'}"
        )
    start = as_array(adata.obsm[init_pos] if isinstance(init_pos, str) else init_pos, "init_pos").astype(np.float64)
    if start.ndim != 2 or start.shape[0] != adata.n_obs:
        raise InputError(f"init_pos has shape {start.shape}; one row a cell is needed, ({adata.n_obs}, n_components)")
    low = start.min(axis=0)
    return UMAP_SIZE * (start - low) / np.maximum(start.max(axis=0) - low, np.finfo(np.float64).tiny)


def _paga(adata: Any, random_state: Any) -> Array:
    """Return a place for each cell: on the way from its group to the one that PAGA joins it to most."""
    found = adata.uns.get("paga", {})
    if "pos" not in found:
        raise InputError("init_pos='paga' needs uns['paga']['pos']: call scanpy.tl.paga, then scanpy.pl.paga")
    place, joined = np.asarray(found["pos"]), found["connectivities"].toarray()
    toward = np.where(joined.max(axis=1, keepdims=True) > 0, place - place[joined.argmax(axis=1)], 0.0)
    group = adata.obs[found["groups"]].cat.codes.to_numpy()
    share = np.random.default_rng(random_state).random((adata.n_obs, 2)) - 0.5
    return np.asarray(place[group] + share * toward[group])


@declared
def tsne(
    adata: AnyAnnData,
    n_pcs: Annotated[int, at_least(0)] | None = None,
    *,
    use_rep: Key | None = None,
    perplexity: Positive = 30.0,
    metric: Any = "euclidean",
    early_exaggeration: Positive = 12.0,
    learning_rate: Positive | Auto = "auto",
    random_state: Seed = 0,
    key_added: Key | None = None,
    copy: bool = False,
    workdir: PathOrNone = None,
) -> Any:
    """Map an AnnData by t-SNE; arguments and keys are those of ``scanpy.tl.tsne``.

    Parameters
    ----------
    adata : AnnData
        The cells; their rows may be larger than memory.
    n_pcs : int ≥ 0 or None
        How many principal components to take; 0 takes X.
    use_rep : str or None
        "X" or a key of ``obsm``; None is X of at most 50 columns, and "X_pca" otherwise, computed if it is not there.
    perplexity : float > 0
        The effective number of neighbors.
    metric : str or function
        The distance, as for :class:`bigembed.TSNE`.
    early_exaggeration : float > 0
        The factor of the attraction in the first iterations.
    learning_rate : float > 0 or "auto"
        The learning rate; "auto" is n over the exaggeration. scanpy's 1000 is 4000 here: scikit-learn, under it, has
        the factor 4 of the gradient in the rate.
    random_state : int, generator or None
        The seed.
    key_added : str or None
        The key in ``obsm`` and ``uns`` in place of the usual ones.
    copy : bool
        Whether a copy is changed and returned.
    workdir : path or None
        Where the stages are kept, and from where a call that was stopped goes on; None is a temporary folder.

    Returns
    -------
    AnnData or None
        The copy, or None. Written are ``obsm["X_tsne"]`` and ``uns["tsne"]``.

    Raises
    ------
    InputError
        If an array is not there, or a parameter is out of range.

    Warns
    -----
    MapWarning
        If the map does not keep neighborhoods.
    """
    adata = written(adata, copy)
    asked: dict[str, Any] = {
        "perplexity": perplexity,
        "early_exaggeration": early_exaggeration,
        "learning_rate": learning_rate,
    }
    found = TSNE(2, metric=metric, random_state=random_state, workdir=workdir, **asked)
    found.fit(representation(adata, use_rep, n_pcs))
    params = asked | {"metric": metric} | ({} if use_rep is None else {"use_rep": use_rep})
    _keep(adata, "tsne", key_added, found.embedding_, params)
    return adata if copy else None


def _keep(adata: Any, method: str, key_added: str | None, embedding: Any, params: dict[str, Any]) -> None:
    """Write the coordinates of a map, and how it was made."""
    coordinates, about = (f"X_{method}", method) if key_added is None else (key_added, key_added)
    adata.obsm[coordinates] = np.array(embedding, np.float32)
    adata.uns[about] = {"params": params}
