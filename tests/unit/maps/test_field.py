"""Repulsion on a lattice is the sum over all pairs; its charges add up to the same in any order."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from bigembed.maps.tsne.compiled import UNIT, field_at, spread
from bigembed.maps.tsne.field import STEP, Lattice, field_of, spacing_for


def direct(points: np.ndarray, dof: float) -> tuple[np.ndarray, float]:
    apart = points[:, None] - points[None]
    squared = (apart**2).sum(axis=-1)
    w = np.exp(-squared) if dof == inf else (1 + squared / dof) ** -dof
    force = w / (1 + squared / dof)
    return (force[..., None] * apart).sum(axis=1), float(w.sum()) - len(points)


def on_lattice(points: np.ndarray, dof: float) -> tuple[np.ndarray, float]:
    low, high = points.min(axis=0), points.max(axis=0)
    lattice = Lattice.around(low, high, spacing_for(low, high, dof), STEP)
    nodes, first, axes = lattice.nodes(), np.array(lattice.low), (0,) * points.shape[1]
    spread(points, axes, lattice.spacing, first, nodes)
    field, total = field_of(nodes / UNIT, lattice, dof)
    out, stencil, at = np.empty_like(points), np.ones((3, 4)), np.zeros(3, np.int64)
    for i, point in enumerate(points):
        field_at(point, axes, lattice.spacing, first, field, stencil, at, out[i])
    return out, total


@pytest.mark.parametrize(("m", "size"), [(1, 30), (2, 5), (2, 30), (2, 1e-4), (3, 4)])
@pytest.mark.parametrize("dof", [0.5, 1.0, inf])
def test_forces_are_the_sums_over_all_pairs(m: int, size: float, dof: float) -> None:
    points = size * np.random.default_rng(m).normal(size=(700, m))
    (found, total), (forces, whole) = on_lattice(points, dof), direct(points, dof)
    apart = np.linalg.norm(found - forces) / np.linalg.norm(forces)
    assert apart < 0.05
    assert abs(total - whole) < 0.01 * whole
    other = direct(points, 1.0 if dof != 1.0 else inf)[0]
    if size > 1:  # (rows in one place are pushed alike by any kernel)
        assert np.linalg.norm(found - other) > 0.1 * np.linalg.norm(forces)


def test_rows_that_are_dense_are_pushed_within_two_percent() -> None:
    points = 5 * np.random.default_rng(0).normal(size=(2_000, 2))
    found, forces = on_lattice(points, 1.0)[0], direct(points, 1.0)[0]
    assert np.linalg.norm(found - forces) < 0.02 * np.linalg.norm(forces)


def test_nothing_moves_by_its_own_force() -> None:
    """One point has none, and the forces of all add up to 0."""
    assert abs(on_lattice(np.array([[0.3, -1.7]]), 1.0)[0]).max() < 1e-12
    found = on_lattice(np.random.default_rng(0).normal(size=(300, 2)) * 9, 1.0)[0]
    assert abs(found.sum(axis=0)).max() < 1e-7 < abs(found).max()


def test_charges_are_the_same_in_any_order_and_parts() -> None:
    points = np.random.default_rng(0).normal(size=(500, 2)) * 3
    whole = Lattice.around(points.min(axis=0), points.max(axis=0), 0.25, STEP)
    once, parts = whole.nodes(), whole.nodes()
    spread(points, (0, 0), 0.25, np.array(whole.low), once)
    for part in np.array_split(points[::-1], 7):
        lattice = Lattice.around(part.min(axis=0), part.max(axis=0), 0.25)
        nodes = lattice.nodes()
        spread(part, (0, 0), 0.25, np.array(lattice.low), nodes)
        parts[lattice.inside(whole)] += nodes
    assert (once == parts).all()
    assert once.sum() == pytest.approx(500 * UNIT, rel=1e-9)
