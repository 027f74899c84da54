"""Whether coordinates come again from half of the neighbors."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import MapWarning, SeparationWarning
from bigembed.maps.bandwidth import Bandwidth
from bigembed.maps.kernels import NARROW
from bigembed.maps.walk.judgement import half_map, shares_kept


def lists(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    ids = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(squared, ids, axis=1)


def test_the_map_of_half_the_neighbors_is_the_map_of_k_half() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 2))
    found = half_map(*lists(rows, 20), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5)
    wanted = be.DiffusionMap(4, n_neighbors=10, t=0).fit(rows)
    degree = np.ones(300)
    assert shares_kept(wanted.embedding_, degree, found).min() > 1 - 1e-6
    other = be.DiffusionMap(4, n_neighbors=20, t=0).fit(rows)  # a control: another graph is distinguished
    assert shares_kept(other.embedding_, degree, found).min() < 1 - 1e-4


def test_equal_distances_have_the_same_map_each_time() -> None:
    """Any vectors are eigenvectors then: which ones must not hang on chance."""
    ids = (np.arange(90)[:, None] + np.arange(1, 21)) % 90
    found = [half_map(ids, np.ones(ids.shape), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5) for _ in range(3)]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_coordinates_of_noise_hang_on_single_neighbors() -> None:
    generator = np.random.default_rng(1)
    noise, surface = generator.normal(size=(800, 40)), generator.uniform(size=(800, 2)) * [3.0, 1.0]
    with pytest.warns(SeparationWarning, match="half of the neighbors"), pytest.warns(MapWarning):
        found = be.DiffusionMap(3).fit(noise)
    assert max(found.certificate_["judgement"]["kept_by_half"]) < 0.7
    good = be.DiffusionMap(3).fit(surface).certificate_
    assert min(good["judgement"]["kept_by_half"]) > 0.9
    assert not [text for text in good["warnings"]["separation"] if "half" in text]


def test_a_graph_that_half_of_the_neighbors_do_not_join_shows_nothing() -> None:
    """Seven of fifteen neighbors leave random rows on a circle in three arcs."""
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    rows = np.column_stack([np.cos(angle), np.sin(angle)])
    assert half_map(*lists(rows, 15), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5) is None
    assert "kept_by_half" not in be.DiffusionMap(2).fit(rows).certificate_["judgement"]
