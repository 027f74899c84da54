"""One map laid over another of the same rows: the rotation, size and place at which they differ least.

Coordinates that a method determines up to a rotation (of a group of eigenvalues, or of the whole map) are brought to
those of an earlier map by orthogonal Procrustes, from sums over the rows that both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows.opening import as_array
from bigembed.rows.row_maps import affine_block
from bigembed.runtime.blocks import Array, bounds
from bigembed.runtime.parameters import declared
from bigembed.store.vector_space import tree_sum

KINDS = ("orthogonal", "rigid", "similarity")
SEPARATION = 0.2
"""Relative gap of two eigenvalues below which their coordinates may turn into each other when rows are added."""
ROWS = 1 << 16
"""Rows of a block of arrays in memory."""


@dataclass(frozen=True)
class Alignment:
    """An affine map y = x A + b of coordinates, A a rotation (with reflections) times a scale."""

    matrix: Array
    """A (m, m)."""
    shift: Array
    """b (m,)."""
    scale: float
    """s, with AᵀA = s² I."""
    rows: int
    """Rows that it was found by."""

    def apply(self, coordinates: Array) -> Array:
        """Map coordinates into the frame: x A + b, each row by itself.

        Parameters
        ----------
        coordinates : array of shape (k, m)
            The coordinates x.

        Returns
        -------
        ndarray of shape (k, m)
            The coordinates in the frame.
        """
        return affine_block(np.asarray(coordinates, np.float64), np.zeros(len(self.shift)), self.matrix) + self.shift

    def undo(self, coordinates: Array) -> Array:
        """Map coordinates back out of the frame: (y − b) Aᵀ/s².

        Parameters
        ----------
        coordinates : array of shape (k, m)
            The coordinates y in the frame.

        Returns
        -------
        ndarray of shape (k, m)
            The coordinates as the method made them.
        """
        return affine_block(np.asarray(coordinates, np.float64), self.shift, self.matrix.T / self.scale**2)

    @classmethod
    def none(cls, m: int) -> Alignment:
        """Return the map that leaves m coordinates as they are.

        Parameters
        ----------
        m : int ≥ 1
            The number of coordinates.

        Returns
        -------
        Alignment
            The identity.
        """
        return cls(np.eye(m), np.zeros(m), 1.0, 0)


@declared
def align(
    coordinates: Any, reference: Any, *, kind: str = "similarity", groups: Sequence[int] | None = None
) -> Alignment:
    """Find the rotation, size and place that bring a map nearest to another one of the same rows.

    The matrix Q minimizes Σ_i ‖x_i Q − y_i‖² over orthogonal matrices: with Σ_i x_iᵀ y_i = U S Vᵀ it is U Vᵀ
    (Schönemann 1966), of each group of coordinates by itself, so that a group of one gets a sign. For "rigid" and
    "similarity" both maps are first moved to mean 0, and for "similarity" the result is scaled so that the rows spread
    as in the reference: s² = Σ ‖y − ȳ‖² / Σ ‖x − x̄‖². (The scale of least squares would shrink a map whose rows have
    moved.)

    Parameters
    ----------
    coordinates : array of shape (n, m)
        The map x to be moved.
    reference : array of shape (n, m)
        The map y that stays, of the same rows. Rows with NaN in either are left out.
    kind : {"similarity", "rigid", "orthogonal"}
        What may change: rotation, place and size; rotation and place; or the rotation about 0 alone, as for
        eigenvectors.
    groups : sequence of m int, or None
        The group of each coordinate: coordinates turn into each other within a group only
        (:func:`bigembed.near_groups` finds those of eigenvalues). None is one group.

    Returns
    -------
    Alignment
        The map: ``apply`` and ``undo`` take coordinates (k, m); ``matrix``, ``shift``, ``scale``, and ``rows``, the
        number of rows that it was found by.

    Raises
    ------
    InputError
        If the shapes differ, no row is in both, or a parameter is out of its range.

    Notes
    -----
    Cost: one pass over both arrays, m³; memory: a block of rows. The determinant is free, so that maps may be mirrored.

    References
    ----------
    P. Schönemann, A generalized solution of the orthogonal Procrustes problem, Psychometrika 31 (1966).

    Examples
    --------
    >>> old = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> turned = 3 * old @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5
    >>> found = align(turned, old)
    >>> bool(np.allclose(found.apply(turned), old)), round(found.scale, 6)
    (True, 0.333333)
    """
    x, y = as_array(coordinates, "coordinates"), as_array(reference, "reference")
    if x.ndim != 2 or x.shape != y.shape or not all(one.dtype.kind in "buif" for one in (x, y)):
        raise InputError(f"maps of the same rows are numbers of one shape (n, m); got {x.shape} and {y.shape}")
    if kind not in KINDS:
        raise InputError(f"kind={kind!r}; allowed: {', '.join(map(repr, KINDS))}")
    m = x.shape[1]
    labels = np.zeros(m) if groups is None else as_array(groups, "groups")
    if labels.shape != (m,) or labels.dtype.kind not in "buif":
        raise InputError(f"groups has shape {labels.shape}; a number for each of the {m} coordinates is needed")
    sums = tree_sum([sums_block(x[low:high], y[low:high]) for low, high in bounds(len(x), ROWS)] or [np.zeros(1)])
    if not sums[0]:
        raise InputError("no row has finite coordinates in both maps: nothing says how one lies in the other")
    return solved(sums, m, groups=labels.tolist(), shift=kind != "orthogonal", scale=kind == "similarity")


def sums_block(x: Array, y: Array) -> Array:
    """Return n, Σx, Σy, Σ xᵀy, Σ‖x‖² and Σ‖y‖² of the rows that are finite in both, as one vector."""
    there = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    x, y = x[there].astype(np.float64), y[there].astype(np.float64)
    cross = np.einsum("ij,ik->jk", x, y)
    norms = [np.einsum("ij,ij->", z, z) for z in (x, y)]
    return np.concatenate([[len(x)], x.sum(axis=0), y.sum(axis=0), cross.ravel(), norms])


def solved(
    sums: Array, m: int, *, groups: Sequence[float] | None = None, shift: bool = True, scale: bool = False
) -> Alignment:
    """Return the alignment of two maps from their :func:`sums_block`."""
    n, cross, (xx, yy) = sums[0], sums[1 + 2 * m : -2].reshape(m, m), sums[-2:]
    x, y = (sums[1 + i * m : 1 + (i + 1) * m] / n * shift for i in range(2))
    cross, xx, yy = cross - n * np.outer(x, y), xx - n * (x @ x), yy - n * (y @ y)
    turn, labels = np.zeros((m, m)), np.zeros(m, int) if groups is None else np.asarray(groups)
    for label in dict.fromkeys(labels.tolist()):
        members = np.flatnonzero(labels == label)
        turn[np.ix_(members, members)] = nearest_rotation(cross[np.ix_(members, members)])
    size = float(np.sqrt(yy / xx)) if scale and xx > 0 and yy > 0 else 1.0
    return Alignment(size * turn, y - size * (x @ turn), size, int(n))


def nearest_rotation(cross: Array) -> Array:
    """Return U Vᵀ of a matrix U S Vᵀ; of a number its sign, 1 for 0.

    >>> nearest_rotation(np.array([[-2.0]])).tolist(), nearest_rotation(np.array([[0.0]])).tolist()
    ([[-1.0]], [[1.0]])
    """
    if len(cross) == 1:
        return np.where(cross < 0, -1.0, 1.0)
    left, _, right = np.linalg.svd(cross)
    return np.asarray(left @ right)


@declared
def near_groups(values: Any, separation: float = SEPARATION) -> list[int]:
    """Number the groups of eigenvalues that lie too close together for their eigenvectors to be told apart.

    Neighbors l and l + 1 in the order given are in one group where |μ_l − μ_{l+1}| is at most
    separation · max(|μ_l|, |μ_{l+1}|): a change of the matrix by a small part turns their eigenvectors into each other
    (Davis & Kahan 1970: by the change over the gap).

    Parameters
    ----------
    values : array of shape (m,)
        The eigenvalues, in order, measured from where they crowd: 1 − λ of a random walk, variances of PCA.
    separation : float ≥ 0
        The relative gap below which two of them are in one group.

    Returns
    -------
    list of int
        The number of the group of each eigenvalue, from 0 on.

    Raises
    ------
    InputError
        If the values are not a vector of numbers, or ``separation`` is negative.

    Notes
    -----
    Cost: m comparisons.

    References
    ----------
    C. Davis, W. Kahan, The rotation of eigenvectors by a perturbation III, SIAM Journal on Numerical Analysis 7 (1970).

    Examples
    --------
    >>> near_groups([0.010, 0.0102, 0.013, 0.0132, 0.02])
    [0, 0, 1, 1, 2]
    """
    found = as_array(values, "values")
    if found.ndim != 1 or found.dtype.kind not in "buif" or not np.isfinite(found).all():
        raise InputError(f"values: a vector of finite numbers is needed; got shape {found.shape}, {found.dtype}")
    if not separation >= 0:
        raise InputError(f"separation={separation!r}; allowed: a number ≥ 0")
    found = found.astype(np.float64)
    size = np.maximum(np.abs(found[1:]), np.abs(found[:-1]))
    apart = np.abs(np.diff(found)) > separation * size
    return np.concatenate([[0], np.cumsum(apart)]).astype(int).tolist() if len(found) else []
