"""The alignment matrix of a set of rows in memory: its smallest eigenvectors, part by part, as coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bigembed.blocks.rows import Array
from bigembed.eigen.base import extremes
from bigembed.eigen.smallest import MOST_BYTES, SmallestPairs, smallest_pairs
from bigembed.embedding.alignment.conditions import assembled
from bigembed.embedding.graph.judgement import AGAIN
from bigembed.embedding.graph.parts import Parts, contrast, solved_sizes
from bigembed.quality.harmonics import ROWS, harmonics
from bigembed.quality.participation import participation_of

NAMED = 5


@dataclass(frozen=True)
class Solved:
    """Coordinates of n rows, and what is said of them."""

    coordinates: Array
    """(n, m), 0 for rows outside the parts; the mean square of a column over the rows embedded is 1."""
    eigenvalues: Array
    """(m,) ascending; (c, m) of parts that have their own coordinates."""
    residuals: Array
    """‖AᵀAv − λv‖, shaped like ``eigenvalues``."""
    results: dict[str, Any]


def solve_parts(
    conditions: Array, ids: Array, label: Array, parts: Parts, sizes: Sequence[int], policy: str, m: int
) -> Solved:
    """The m smallest eigenvectors of each part but its constant vector, put together as the policy says.

    ``conditions`` (n, r, 1 + k) around each row, ``ids`` (n, k) its neighbors, ``label`` (n,) its component.
    """
    chosen = solved_sizes(parts, policy, sizes, m)
    members = [np.flatnonzero(label == c) for c in range(len(chosen))]
    pairs = [smallest_pairs(assembled(conditions, ids, own), min(m, len(own) - 1)) for own in members]
    each = np.zeros((2, len(pairs), m))
    out = np.zeros((len(label), m))
    for c, (own, found) in enumerate(zip(members, pairs, strict=True)):
        width = len(found.values)
        each[0, c, :width], each[1, c, :width] = found.values, found.residuals
        out[own, :width] = found.vectors * np.sqrt(len(own))
    inside = np.flatnonzero(label < len(chosen))
    if parts.joint:
        columns = _joint(out, members, pairs, parts)
        shown = np.array([each[:, c, index] if index >= 0 else (0.0, 0.0) for c, index in columns]).T
        out *= extremes(out[inside])[1]
    else:
        columns = [(0, index) for index in range(m)]
        shown = each if parts.per_component else each[:, 0]
    results: dict[str, Any] = {
        "solved": {str(c): _summary(found, members[c], ids) for c, found in enumerate(pairs)},
        "columns": [list(column) for column in columns],
        "converged": all(found.converged for found in pairs),
        **_judged(out[inside], inside),
    }
    return Solved(out, shown[0], shown[1], results)


def _joint(out: Array, members: Sequence[Array], pairs: Sequence[SmallestPairs], parts: Parts) -> list[tuple[int, int]]:
    """Fill in columns that tell parts apart (index −1), then eigenvectors of parts by eigenvalue; which they are."""
    sizes, m = np.array([len(own) for own in members], np.float64), out.shape[1]
    columns = [(c, -1) for c in range(1, parts.contrasts(m) + 1)]
    rest = [(value, c, index) for c, found in enumerate(pairs) for index, value in enumerate(found.values)]
    columns = (columns + [(c, index) for _, c, index in sorted(rest)])[:m]
    out[:] = 0.0
    for at, (c, index) in enumerate(columns):
        if index >= 0:
            out[members[c], at] = pairs[c].vectors[:, index] * np.sqrt(sizes.sum())
        else:
            for number, own in enumerate(members):
                out[own, at] = contrast(number, c, sizes)
    return columns


def _summary(found: SmallestPairs, members: Array, ids: Array) -> dict[str, Any]:
    closed = closed_groups(np.searchsorted(members, ids[members]))
    return {
        "rows": len(members),
        "eigenvalues": found.values.tolist(),
        "residuals": found.residuals.tolist(),
        "gaps": np.where(np.isfinite(found.gaps), found.gaps, 0.0).tolist(),
        "turns": found.turns.tolist(),
        "norm": found.norm,
        "condition": float(found.norm / max(found.values[0], np.finfo(np.float64).tiny)),
        "band": found.band,
        "factor_bytes": 8 * len(members) * (found.band + 1),
        "steps": found.steps,
        "converged": found.converged,
        "free": found.free,
        "closed": len(closed),
        "closed_rows": [members[group][:NAMED].tolist() for group in closed[:NAMED]],
    }


def closed_groups(ids: Array) -> list[Array]:
    """Groups of rows whose neighbors (n, k) all lie in the group, and that reach each other: the smallest first.

    Beside each other they have coordinates of their own: the alignment matrix has an eigenvalue 0 for each.

    >>> [group.tolist() for group in closed_groups(np.array([[1], [0], [1], [4], [3]]))]
    [[0, 1], [3, 4]]
    """
    n, k = ids.shape
    graph = csr_array((np.ones(n * k, np.int8), ids.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    count, group = connected_components(graph, directed=True, connection="strong")
    leaves = np.zeros(count, bool)
    leaves[group[(group[ids] != group[:, None]).any(axis=1)]] = True
    found = [np.flatnonzero(group == number) for number in np.flatnonzero(~leaves)]
    return sorted(found, key=lambda rows: (len(rows), int(rows[0])))


def _judged(coordinates: Array, rows: Array) -> dict[str, Any]:
    """How many rows carry each coordinate, and which coordinates are functions of earlier ones."""
    n = len(coordinates)
    carried = participation_of(coordinates, np.ones(n))
    found = harmonics(coordinates[np.linspace(0, n - 1, min(n, ROWS)).astype(int)], AGAIN)
    leading = np.argsort(-np.abs(coordinates), axis=0, kind="stable")[:NAMED].T
    return {
        "participation": carried.share.tolist(),
        "rows_above_a_tenth": carried.rows.tolist(),
        "leading_rows": rows[leading].tolist(),
        "harmonic_residual": found.residual.tolist(),
        "harmonic_local": found.local.tolist(),
        "harmonic": found.harmonic.tolist(),
    }


def solve_memory(n: int, k: int, count: int, m: int) -> int:
    """Bytes that :func:`solve_parts` holds at most for n rows: conditions, AᵀA, its factor, vectors."""
    entries = n * count * (1 + k)
    gram = min(n * n, n * (1 + k) ** 2 * (1 + k if count > 1 else 1))
    return 48 * entries + 44 * gram + min(8 * n * n, MOST_BYTES) + 8 * n * 24 * (m + 6)


def solve_flops(n: int, m: int) -> float:
    """Operations of :func:`solve_parts` at most: the factor, and some ten steps."""
    band = min(n, MOST_BYTES // (8 * n))
    return float(n) * band * (band + 80.0 * (m + 4))
