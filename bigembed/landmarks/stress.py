"""How well landmarks place rows: stress on pairs of rows, and what fewer landmarks would have done."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist

from bigembed.blocks.rows import Array
from bigembed.landmarks.triangulate import classical, triangulated


def stress(distances: Array, coordinates: Array) -> tuple[float, float]:
    """Kruskal's stress-1 of coordinates (k, m) for distances (k, k), and the correlation of the two; over all pairs.

    stress² = Σ_{i<j} (d_ij − ‖y_i − y_j‖)² / Σ_{i<j} d_ij² (Kruskal 1964, without monotone regression).

    >>> stress(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[0.0], [1.0]]))[0]
    0.5
    """
    i, j = np.triu_indices(len(distances), 1)
    given, found = distances[i, j], cdist(coordinates, coordinates)[i, j]
    size = float(given @ given)
    share = float(np.sqrt(np.square(given - found).sum() / size)) if size else 0.0
    spread = float(given.std() * found.std()) if len(given) > 1 else 0.0
    return share, float(np.mean((given - given.mean()) * (found - found.mean())) / spread) if spread else 1.0


def procrustes_residual(reference: Array, other: Array) -> float:
    """‖Y − Z R − t‖_F / ‖Y − mean‖_F for the best rotation or reflection R and translation t: 0 for the same shape.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> procrustes_residual(square, 5 - square[:, ::-1]) < 1e-12, procrustes_residual(square, 2 * square) > 0.9
    (True, True)
    """
    y, z = reference - reference.mean(axis=0), other - other.mean(axis=0)
    width = max(y.shape[1], z.shape[1])
    y, z = (np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (y, z))
    left, _, right = linalg.svd(z.T @ y)
    size = float(linalg.norm(y))
    return float(linalg.norm(y - z @ (left @ right))) / size if size else 0.0


def change(between: Array, to_landmarks: Array, order: Array, n_components: int, share: int) -> float:
    """:func:`procrustes_residual` of rows by all landmarks and by one of ``share``; NaN where these are too few.

    ``between`` (L, L) and ``to_landmarks`` (k, L) are distances; the first L/share landmarks of ``order`` are kept.
    """
    few = order[: len(order) // share]
    if len(few) <= n_components:
        return float("nan")
    whole, _ = classical(np.square(between), n_components)
    part, _ = classical(np.square(between[np.ix_(few, few)]), n_components)
    return procrustes_residual(triangulated(to_landmarks, whole), triangulated(to_landmarks[:, few], part))
