"""Coordinates from tangent spaces: Hessian locally linear embedding (Donoho & Grimes) and local tangent space
alignment (Zhang & Zha).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import combinations_with_replacement

import numpy as np

from bigembed.errors import InputError
from bigembed.maps.lle import AlignedEstimator
from bigembed.maps.lle.solve import Conditions, neighborhoods
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Auto

# ----------------------------------------------------------------------------------------------------- hessian lle
# Hessian locally linear embedding (Donoho & Grimes): coordinates whose second derivatives along the sheet vanish.


@dataclass(eq=False, repr=False)
class HessianLLE(AlignedEstimator, registered="hessian_lle"):
    """Embed rows or a neighbor graph by Hessian locally linear embedding (Hessian eigenmaps).

    Around each row, with U the m leading left singular vectors of the row and its neighbors about their mean, the
    columns 1, U_a and U_a U_b (a ≤ b) are made orthonormal in this order; the last m(m + 1)/2 of them, H_i, estimate
    the second derivatives of a function from its values on these rows. The coordinates Y minimize Σ_i ‖H_iᵀ Y_i‖² under
    Σ_i y_i = 0, YᵀY/n = I (Donoho & Grimes 2003). They recover a sheet that is isometric to an open connected set
    of the plane, convex or not, up to an affine map.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates, and the dimension of the tangent space; at most d.
    n_neighbors : int > m(m + 3)/2
        The number k of neighbors, the row itself not counted. A NeighborGraph keeps its own, unless landmarks are used.
    reg : float > 0
        The regularizer: reg·tr(C) is added to the diagonal of the Gram matrix of the weights by which new rows, and
        rows among landmarks, are placed.
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
    own_row : bool or "auto"
        Whether a row belongs to its own neighborhood. Where it does not, as in scikit-learn, rows that are nobody's
        neighbors carry coordinates by themselves. "auto" is True where m > 1. With m = 1 each neighborhood gives one
        condition, and rows at the end of a curve, whose neighborhoods would be equal, would have too few.
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
        If rows hold NaN or infinity (they are named), parameters are out of range, k ≤ m(m + 3)/2, m > d, or there are
        as many neighbors as rows or more.
    DisconnectedGraphError
        If the graph has several components and components="error"; their sizes are listed.
    PlanError
        If there are too many rows for solver="exact", or a factor takes more than 2 GiB.
    InputTypeError
        If the graph has no lists of k nearest neighbors.

    Notes
    -----
    Cost: landmarks: a sample, the landmarks' own problem, one pass that places the rows, 3 that judge the map. Exact:
    the graph, a pass over an ordered copy, and one task with a factor of at most 8 n² bytes. A singular
    value decomposition of (k, d) a row.
    New rows (``transform``): barycentric weights on the k nearest fitted rows (or landmarks) of one part.
    scikit-learn's ``method="hessian"`` keeps all directions orthogonal to 1 and U, which is local tangent space
    alignment; where the neighborhoods have 1 + m(m + 3)/2 rows both are the same.

    References
    ----------
    D. Donoho, C. Grimes, Hessian eigenmaps: locally linear embedding techniques for high-dimensional data, PNAS 100
    (2003).

    Examples
    --------
    >>> angle = np.linspace(0, np.pi, 100)
    >>> arc = HessianLLE(n_components=1, n_neighbors=6)
    >>> y = arc.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)]))[:, 0]
    >>> bool(abs(np.corrcoef(y, angle)[0, 1]) > 0.999)
    True
    """

    _: KW_ONLY
    own_row: bool | Auto = "auto"

    def _conditions(self, k: int) -> Conditions:
        m = int(self.n_components)
        own_row = m > 1 if isinstance(self.own_row, str) else bool(self.own_row)
        return Conditions(hessian_block, m * (m + 1) // 2, {"m": m, "own_row": own_row})

    def _fits(self, d: int, k: int) -> None:
        m = int(self.n_components)
        if 2 * k <= m * (m + 3) or m > d:
            raise InputError(
                f"n_components={m}: second derivatives in {m} dimensions need more than m(m + 3)/2 = "
                f"{m * (m + 3) // 2} neighbors, and {m} columns of the rows; got n_neighbors={k} and {d} columns. "
                "Raise n_neighbors, or ask for fewer components"
            )


def hessian_block(rows: Array, near: Array, *, m: int, own_row: bool) -> Array:
    """A (n, m(m + 1)/2, 1 + k) = H_iᵀ on rows and their neighbors ``near`` (n, k, d), or on these alone beside a column
    of 0; 0 where they span less."""
    points, on = neighborhoods(rows, near, own_row)
    n, tangent = len(points), tangent_directions(points, m)
    pairs = [tangent[:, :, a] * tangent[:, :, b] for a, b in combinations_with_replacement(range(m), 2)]
    columns = np.concatenate([np.ones((*points.shape[:2], 1)), tangent, np.stack(pairs, axis=2)], axis=2)
    q, r = np.linalg.qr(columns)
    lost = negligible(np.abs(np.diagonal(r, axis1=1, axis2=2)), np.linalg.norm(columns, axis=1))
    out = np.zeros((n, len(pairs), 1 + near.shape[1]))
    out[:, :, on] = np.where(lost[:, None], 0.0, q)[:, :, 1 + m :].transpose(0, 2, 1)
    return out


# ----------------------------------------------------------------------------------- local tangent space alignment
# Local tangent space alignment (Zhang & Zha): coordinates that are affine in those of the tangent space.


@dataclass(eq=False, repr=False)
class LocalTangentSpaceAlignment(AlignedEstimator, registered="local_tangent_space_alignment"):
    """Embed rows or a neighbor graph by local tangent space alignment (LTSA).

    Around each row the m leading left singular vectors U of the row and its neighbors about their mean are coordinates
    in the tangent space. The coordinates Y minimize Σ_i ‖(I − G Gᵀ) Y_i‖², G = (1/√q, U), Y_i those of these q rows,
    under Σ_i y_i = 0, YᵀY/n = I: only what is not affine in U counts (Zhang & Zha 2004, eq. 3.9). Unlike
    :class:`~bigembed.LocallyLinearEmbedding` it uses the dimension of the sheet, and needs no regularizer.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates, and the dimension of the tangent space; at most d.
    n_neighbors : int > n_components
        The number k of neighbors, the row itself not counted. A NeighborGraph keeps its own, unless landmarks are used.
    reg : float > 0
        The regularizer: reg·tr(C) is added to the diagonal of the Gram matrix of the weights by which new rows, and
        rows among landmarks, are placed.
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
    own_row : bool
        Whether a row belongs to its own neighborhood, as in the source. Where it does not, as in scikit-learn, rows
        that are nobody's neighbors carry coordinates by themselves.
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
    the graph, a pass over an ordered copy, and one task with a factor of at most 8 n² bytes. A
    singular value decomposition of (k, d) a row.
    New rows (``transform``): barycentric weights on the k nearest fitted rows (or landmarks) of one part.

    References
    ----------
    Z. Zhang, H. Zha, Principal manifolds and nonlinear dimensionality reduction via tangent space alignment, SIAM J.
    Scientific Computing 26 (2004).

    Examples
    --------
    >>> angle = np.linspace(0, np.pi, 100)
    >>> arc = LocalTangentSpaceAlignment(n_components=1, n_neighbors=6)
    >>> y = arc.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)]))[:, 0]
    >>> bool(abs(np.corrcoef(y, angle)[0, 1]) > 0.999)
    True
    """

    _: KW_ONLY
    own_row: bool = True

    def _conditions(self, k: int) -> Conditions:
        return Conditions(
            tangent_block, k + bool(self.own_row), {"m": int(self.n_components), "own_row": bool(self.own_row)}
        )

    def _fits(self, d: int, k: int) -> None:
        m = int(self.n_components)
        if m >= k or m > d:
            raise InputError(
                f"n_components={m}: a tangent space of {m} dimensions needs as many columns of the rows, and more "
                f"neighbors; got {d} columns and n_neighbors={k}. Ask for fewer components, or raise n_neighbors"
            )


def tangent_block(rows: Array, near: Array, *, m: int, own_row: bool) -> Array:
    """A (n, q, 1 + k) = I − G Gᵀ, G = (1/√q, U_1 … U_m), on rows and their neighbors ``near`` (n, k, d), q = 1 + k; or
    on these alone, q = k, beside a column of 0."""
    points, columns = neighborhoods(rows, near, own_row)
    tangent, q = tangent_directions(points, m), points.shape[1]
    out = np.zeros((len(rows), q, 1 + near.shape[1]))
    out[:, :, columns] = np.eye(q) - 1 / q - tangent @ tangent.transpose(0, 2, 1)
    return out


RANK = 1e-7
"""Directions shorter than this share of the longest are rounding: rows that repeat, or span fewer dimensions."""


def tangent_directions(points: Array, m: int) -> Array:
    """The m leading left singular vectors (n, q, m) of points (n, q, d) about their mean; 0 where they span less.

    >>> tangent_directions(np.array([[[0.0], [1.0], [2.0]]]), 1)[0, :, 0].round(3).tolist() in (
    ...     [-0.707, 0.0, 0.707], [0.707, 0.0, -0.707])
    True
    """
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=1, keepdims=True), full_matrices=False)
    lost = negligible(sizes, sizes[:, :1])
    return np.asarray(np.where(lost[:, None], 0.0, left)[:, :, :m])


def negligible(sizes: Array, of: Array) -> Array:
    """Which sizes are rounding beside others."""
    return np.asarray(sizes <= RANK * of)
