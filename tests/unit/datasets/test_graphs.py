"""Graphs of seed 001: the diffusion map finds their closed forms; and two disks with a corridor."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.datasets import complete_graph, disks, ring_graph, ring_graphs
from bigembed.errors import InputError


def test_the_map_of_a_ring_is_a_circle():
    found = be.DiffusionMap(n_components=2, t=1).fit(ring_graph(50))
    np.testing.assert_allclose(found.eigenvalues_, np.cos(2 * np.pi / 50), atol=1e-6)
    radius = np.linalg.norm(found.embedding_, axis=1)
    np.testing.assert_allclose(radius, radius.mean(), rtol=1e-3)


def test_a_shortcut_brings_its_ends_together():
    def share(graph):
        at = be.DiffusionMap(n_components=2, t=1).fit(graph).embedding_
        apart = np.linalg.norm(at[:, None] - at[None], axis=2)
        return apart[0, len(at) // 2] / apart.max()

    assert share(ring_graph(10)) == pytest.approx(1, abs=1e-3)
    assert share(ring_graph(100, shortcut=True)) < share(ring_graph(10, shortcut=True)) < 0.9


def test_no_coordinate_of_a_complete_graph_is_better_than_another():
    weights = complete_graph(8).toarray()
    values = np.linalg.eigvalsh(weights / 7)
    np.testing.assert_allclose(values, [-1 / 7] * 7 + [1], atol=1e-12)


def test_two_rings_have_nothing_between_them():
    weights = ring_graphs(6, 4).toarray()
    assert weights[:6, 6:].sum() == 0
    np.testing.assert_array_equal(weights.sum(axis=0), 2)
    np.testing.assert_array_equal(weights[6:, 6:], ring_graph(4).toarray())


def test_wrong_graphs():
    with pytest.raises(InputError, match="must be even"):
        ring_graph(9, shortcut=True)
    with pytest.raises(InputError, match="at most 4096"):
        complete_graph(5000)


def test_disks_have_their_area_and_a_corridor():
    rows, truth = disks(20_000, gap=1.0, width=0.5, dtype="float64").draw()
    label = truth["label"]
    np.testing.assert_allclose(np.mean(label == 2), 0.5 / (2 * np.pi + 0.5), rtol=0.1)
    for side, center in ((0, -1.5), (1, 1.5)):
        radius = np.linalg.norm(rows[label == side] - [center, 0], axis=1)
        assert radius.max() <= 1
        np.testing.assert_allclose(np.mean(radius**2), 0.5, rtol=0.03)
    assert (np.abs(rows[label == 2]) <= [0.5, 0.25]).all()
