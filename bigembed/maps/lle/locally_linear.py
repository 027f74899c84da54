"""Locally linear embedding (Roweis & Saul), and with several weight vectors a row (Zhang & Wang)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.errors import InputError
from bigembed.maps.landmark_maps import affine_weights
from bigembed.maps.lle import AlignedEstimator
from bigembed.maps.lle.solve import Conditions
from bigembed.runtime.blocks import Array

# ---------------------------------------------------------------------------------------- locally linear embedding
# Locally linear embedding (Roweis & Saul): coordinates in which each row lies among its neighbors as in the data.


@dataclass(eq=False, repr=False)
class LocallyLinearEmbedding(AlignedEstimator, registered="locally_linear_embedding"):
    """Embed rows or a neighbor graph by locally linear embedding (seed 000 §7).

    w_i reconstructs row i from its k nearest rows: it minimizes ‖x_i − Σ_j w_ij x_j‖², Σ_j w_ij = 1 (eq. 3). The
    coordinates Y minimize ‖Y − WY‖² under Σ_i y_i = 0, YᵀY/n = I (eq. 4): they are the eigenvectors of
    M = (I − W)ᵀ(I − W) with the smallest eigenvalues, but for the constant one. ``solver="landmarks"`` takes L rows far
    from each other, with neighbors, weights and eigenvectors of their own, and places every other row among them.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates; at most d.
    n_neighbors : int ≥ 1
        The number k of neighbors, the row itself not counted. A NeighborGraph keeps its own, unless landmarks are used.
    reg : float > 0
        The regularizer: reg·tr(C) is added to the diagonal of the Gram matrix C of x_j − x_i (as in the source, 1e-3),
        which is singular where k exceeds the dimension. 1e-2 smooths a second coordinate away.
    solver : {"exact", "landmarks", "auto"}
        The solver: "exact" takes M of all n ≤ 50 000 rows, in one process; "landmarks" is described above; "auto" is
        exact for n ≤ 5 000. The smallest eigenvalues of M fall like n^{−4/d} for rows in d dimensions; those of
        landmarks do not.
    n_landmarks : int > n_neighbors and n_components
        The number L of landmarks, at most 50 000.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other, among 30·L sampled rows; "uniform" takes
        any. Uneven landmarks cost accuracy, but where a few rows lie off, max-min takes all of these.
    components : {"auto", "joint", "largest", "per-component", "error"}
        What to do with a disconnected graph (of the landmarks, where these are used). With "auto", islands are
        components of fewer than max(2, n/100) rows (n ≤ 10⁴), 100 rows (n ≤ 10⁵) or n/1000 rows (beyond): their rows
        take the coordinates of their nearest row outside and the label −1. Larger parts are embedded jointly, with at
        most half of the coordinates telling them apart. "joint" embeds all components jointly. "largest" embeds the
        largest, and the other rows take the coordinates of their nearest row in it. "per-component" embeds each by
        itself. "error" refuses the graph.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    random_state : int, generator or None
        The seed of everything that is drawn.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input, by ascending eigenvalue: NumPy for NumPy input, else a lazy Dask
        array. Over the rows (or landmarks) that were solved for, each column has mean 0 and mean square 1, and its
        largest |entry| is positive.
    eigenvalues_ : array of shape (m,)
        The eigenvalues of M, ascending, that of the constant vector left out; (c, m) for components="per-component".
    residuals_ : array of shape (m,)
        ‖Mv − λv‖ of each eigenpair, shaped like ``eigenvalues_``.
    reconstruction_error_ : float
        The sum of the eigenvalues, ‖V − WV‖² of the unit eigenvectors V.
    labels_ : array of shape (n,) or (L,)
        The component of each row or of each landmark; 0 is the largest, −1 stands for islands.
    landmarks_ : array of shape (L, d), or None
        The rows of the landmarks, where these were used.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph, where the solve was exact.
    certificate_ : dict
        How far the map can be trusted: "solver"; under "posed" the condition number ‖M‖/λ_1, λ_1, its value for all
        rows where landmarks were used (λ_1 (L/n)^{4/m}), and whether it is above rounding; components, recall; under
        "judgement" for each coordinate how many rows carry it and whether it is a function of earlier ones; for the map
        neighbors kept, trustworthiness, continuity, triplets, with standard errors; "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, or there are as many neighbors as
        rows or more.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If there are too many rows for solver="exact", or a factor takes more than 2 GiB.
    InputTypeError
        If the graph has no lists of k nearest neighbors.

    Warns
    -----
    ComponentsWarning
        If the graph has islands or several parts.
    DegenerateWarning
        If groups of rows only reach each other, or landmarks repeat.
    LocalizedWarning
        If a coordinate is carried by few rows.
    HarmonicWarning
        If a coordinate is a function of earlier ones.
    SeparationWarning
        If eigenvalues are too close together.
    MapWarning
        If the map does not keep neighborhoods.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: landmarks: a sample, neighbors and eigenvectors of L rows, one pass that compares each row with the landmarks,
    and 3 passes that judge the map; no graph. Exact: the graph (2–3 passes over the rows), a pass over an ordered copy,
    and one task that holds the band of M in Cuthill–McKee order: 8·n·b bytes, b ≈ 5 √n for rows on a surface, at most
    8 n² (rows in many dimensions), known and refused before it is computed. Memory besides: blocks of 32 MiB.
    New rows (``transform``): barycentric weights on the k nearest fitted rows (or landmarks) of one part.

    References
    ----------
    S. Roweis, L. Saul, Nonlinear dimensionality reduction by locally linear embedding, Science 290 (2000). L. Saul,
    S. Roweis, Think globally, fit locally, JMLR 4 (2003). M. Cameron, lecture notes, §7 (seed 000). V. de Silva,
    J. Tenenbaum, Sparse multidimensional scaling using landmark points (2004): max-min landmarks.

    Examples
    --------
    >>> angle = np.linspace(0, np.pi, 100)
    >>> arc = LocallyLinearEmbedding(n_components=1, n_neighbors=4)
    >>> y = arc.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)]))[:, 0]
    >>> bool(abs(np.corrcoef(y, angle)[0, 1]) > 0.999)
    True
    """

    def _conditions(self, k: int) -> Conditions:
        return Conditions(weights_block, 1, {"reg": float(self.reg)})

    def _fits(self, d: int, k: int) -> None:
        if self.n_components > d:
            raise InputError(
                f"n_components={self.n_components}: the weights of a row are those of a patch of at most d dimensions, "
                f"which more coordinates than columns do not show; these rows have {d}. Ask for at most {d}"
            )


def weights_block(rows: Array, near: Array, *, reg: float) -> Array:
    """A (n, 1, 1 + k) = (1, −w), w the barycentric weights of rows (n, d) in ``near`` (n, k, d) (seed 000 eq. 3)."""
    weights = affine_weights(near - rows[:, None], reg)
    return np.concatenate([np.ones((len(rows), 1, 1)), -weights[:, None, :]], axis=2)


# ---------------------------------------------------------------------------------------------------- modified lle
# Modified locally linear embedding (Zhang & Wang): several weight vectors a row, so that no regularizer decides.

SMALL = 1e-12
"""Length of a Householder vector that counts as 0."""


@dataclass(eq=False, repr=False)
class ModifiedLLE(AlignedEstimator, registered="modified_lle"):
    """Embed rows or a neighbor graph by modified locally linear embedding (MLLE).

    With k neighbors in fewer dimensions many weights reconstruct a row almost as well, and
    :class:`~bigembed.LocallyLinearEmbedding` lets a regularizer choose. Here s_i of them count: with V the eigenvectors
    of the s_i smallest eigenvalues of the Gram matrix of x_j − x_i, W_i = (1 − α) w_i 1ᵀ + V H, w_i the regularized
    weights, α = ‖Vᵀ1‖/√s_i, and H the Householder matrix with H Vᵀ1 = α 1. s_i is the largest number ≤ k − m for which
    the sum of the s_i smallest eigenvalues over that of the others is below η, the median over all rows of this ratio
    for k − m. The coordinates minimize Σ_i ‖y_i 1ᵀ − Σ_j y_j W_i(j, ·)‖² under Σ_i y_i = 0, YᵀY/n = I
    (Zhang & Wang 2006).

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates, and the dimension of the sheet; at most d.
    n_neighbors : int > n_components
        The number k of neighbors, the row itself not counted. A NeighborGraph keeps its own, unless landmarks are used.
    reg : float > 0
        The regularizer: reg·tr(C) is added to the diagonal of the Gram matrix C of the weights w_i, and of those by
        which new rows, and rows among landmarks, are placed.
    solver : {"exact", "landmarks", "auto"}
        The solver: "exact" takes all n ≤ 50 000 rows, in one process; "landmarks" takes L rows far from each other,
        with neighbors, conditions and eigenvectors of their own, and places every other row among them; "auto" is exact
        for n ≤ 5 000.
    n_landmarks : int > n_neighbors and n_components
        The number L of landmarks, at most 50 000.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other, among 30·L sampled rows; "uniform" takes
        any.
    components : {"auto", "joint", "largest", "per-component", "error"}
        What to do with a disconnected graph (of the landmarks, where these are used). With "auto", islands are
        components of fewer than max(2, n/100) rows (n ≤ 10⁴), 100 rows (n ≤ 10⁵) or n/1000 rows (beyond): their rows
        take the coordinates of their nearest row outside and the label −1. Larger parts are embedded jointly, with at
        most half of the coordinates telling them apart. "joint" embeds all components jointly. "largest" embeds the
        largest, and the other rows take the coordinates of their nearest row in it. "per-component" embeds each by
        itself. "error" refuses the graph.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    random_state : int, generator or None
        The seed of everything that is drawn.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input, by ascending eigenvalue: NumPy for NumPy input, else a lazy Dask
        array. Over the rows (or landmarks) that were solved for, each column has mean 0 and mean square 1, and its
        largest |entry| is positive.
    eigenvalues_ : array of shape (m,)
        The eigenvalues of the alignment matrix, ascending, that of the constant vector left out; (c, m) for
        components="per-component".
    residuals_ : array of shape (m,)
        The residuals of the eigenpairs, shaped like ``eigenvalues_``.
    reconstruction_error_ : float
        The sum of the eigenvalues.
    labels_ : array of shape (n,) or (L,)
        The component of each row or of each landmark; 0 is the largest, −1 stands for islands.
    landmarks_ : array of shape (L, d), or None
        The rows of the landmarks, where these were used.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph, where the solve was exact.
    certificate_ : dict
        How far the map can be trusted: solver, condition number, components, recall, what each coordinate shows, how
        well the map keeps neighborhoods, "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, there are as many neighbors as rows
        or more, k ≤ m, or m > d.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If there are too many rows for solver="exact", or a factor takes more than 2 GiB.
    InputTypeError
        If the graph has no lists of k nearest neighbors.

    Notes
    -----
    Cost: landmarks: a sample, the landmarks' own problem, one pass that places the rows, 3 that judge the map. Exact:
    the graph, a pass over an ordered copy, and one task with a factor of at most 8 n² bytes. An
    eigendecomposition (k, k) a row, and a second pass for η.
    New rows (``transform``): barycentric weights on the k nearest fitted rows (or landmarks) of one part.

    References
    ----------
    Z. Zhang, J. Wang, MLLE: modified locally linear embedding using multiple weights, NIPS 19 (2006).

    Examples
    --------
    >>> angle = np.linspace(0, np.pi, 100)
    >>> arc = ModifiedLLE(n_components=1, n_neighbors=6)
    >>> y = arc.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)]))[:, 0]
    >>> bool(abs(np.corrcoef(y, angle)[0, 1]) > 0.999)
    True
    """

    def _conditions(self, k: int) -> Conditions:
        m = int(self.n_components)
        return Conditions(several_weights_block, k - m, {"m": m, "reg": float(self.reg)}, level=rest_block)

    def _fits(self, d: int, k: int) -> None:
        m = int(self.n_components)
        if m >= k or m > d:
            raise InputError(
                f"n_components={m}: several weights of a row on a sheet of {m} dimensions need more neighbors "
                f"and as many columns; got n_neighbors={k} and {d} columns. Ask for fewer components, or raise "
                "n_neighbors"
            )


def rest_block(rows: Array, near: Array, *, m: int, reg: float) -> Array:
    """(n,) the sum of all but the m largest eigenvalues of each Gram matrix, over that of the m largest."""
    values = _eigen(rows, near)[0]
    large = values[:, :m].sum(axis=1)
    rest = values[:, m:].sum(axis=1)
    return np.asarray(np.divide(rest, large, out=np.zeros(len(rows)), where=large > 0))


def several_weights_block(rows: Array, near: Array, *, m: int, reg: float, level: float) -> Array:
    """A (n, k − m, 1 + k) with the rows (−1, W_i(·, l)), 0 beyond s_i, of rows with neighbors ``near`` (n, k, d)."""
    n, k, _ = near.shape
    values, vectors = _eigen(rows, near)
    weights, total = affine_weights(near - rows[:, None], reg), values.cumsum(axis=1)
    ratio = np.divide(total[:, -1:], total[:, :-1], out=np.full((n, k - 1), 1.0), where=total[:, :-1] > 0) - 1
    counts = np.clip((ratio < level).sum(axis=1), 1, k - m)
    out = np.zeros((n, k - m, 1 + k))
    for s in np.unique(counts).tolist():
        mine = counts == s
        null = vectors[mine][:, :, k - s :]
        sums = null.sum(axis=1)
        alpha = np.linalg.norm(sums, axis=1) / np.sqrt(s)
        mirror = alpha[:, None] - sums
        length = np.linalg.norm(mirror, axis=1, keepdims=True)
        mirror = np.where(length > SMALL, mirror / np.where(length > SMALL, length, 1.0), 0.0)
        turned = null - 2 * (null @ mirror[:, :, None]) * mirror[:, None]
        several = turned + ((1 - alpha)[:, None] * weights[mine])[:, :, None]
        out[mine, :s, 0], out[mine, :s, 1:] = -1.0, several.transpose(0, 2, 1)
    return out


def _eigen(rows: Array, near: Array) -> tuple[Array, Array]:
    """Eigenvalues (n, k), descending and ≥ 0, and eigenvectors of the Gram matrices of x_j − x_i."""
    difference = near - rows[:, None]
    values, vectors = np.linalg.eigh(difference @ difference.transpose(0, 2, 1))
    values = np.where(values > 1e-14 * values[:, -1:], values, 0.0)
    return values[:, ::-1], vectors[:, :, ::-1]
