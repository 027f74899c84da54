"""The formulas of the source documents."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial import cKDTree

from bigembed import datasets
from bigembed.datasets.synthetic import angle_at, arc_length


def test_arc_length_is_the_integral_of_the_speed() -> None:
    for angle in (0.5, 6.0, 18.0):
        np.testing.assert_allclose(arc_length(angle), quad(lambda x: np.sqrt(1 + x * x), 0, angle)[0])
    lengths = np.linspace(0.0, 400.0, 1001)
    np.testing.assert_allclose(arc_length(angle_at(lengths)), lengths, rtol=1e-12, atol=1e-12)


def test_swiss_roll_is_the_map_of_seed_000() -> None:
    rows, truth = datasets.swiss_roll(2000, dtype="float64").draw()
    x, y = truth["angle"], truth["height"]
    np.testing.assert_array_equal(rows, np.stack([x * np.cos(x), y, x * np.sin(x)], axis=1))
    assert 6 <= x.min() < 6.1
    assert 17.9 < x.max() <= 18
    assert 6 <= y.min() < y.max() <= 12
    order = np.argsort(x)
    assert (np.diff(truth["arc_length"][order]) > 0).all()
    np.testing.assert_allclose(truth["arc_length"].max(), arc_length(18.0) - arc_length(6.0), rtol=0.01)


@pytest.mark.parametrize("noise", [0.4, 0.8])
def test_noise_has_the_standard_deviation_asked_for(noise: float) -> None:
    rows, truth = datasets.swiss_roll(8000, noise=noise, dtype="float64").draw()
    x = truth["angle"]
    clean = np.stack([x * np.cos(x), truth["height"], x * np.sin(x)], axis=1)
    np.testing.assert_allclose((rows - clean).std(axis=0), noise, rtol=0.03)


@pytest.mark.parametrize("n", [100, 1060, 20_000])
def test_mesh_is_quasi_uniform_and_in_the_order_of_the_arc_length(n: int) -> None:
    _, truth = datasets.swiss_roll_mesh(n).draw()
    flat = np.stack([truth["arc_length"], truth["height"]], axis=1)
    assert (np.diff(truth["arc_length"]) > 0).all()
    area = (arc_length(18.0) - arc_length(6.0)) * 6.0
    nearest = cKDTree(flat).query(flat, k=2)[0][:, 1]
    assert nearest.min() > 0.85 * np.sqrt(area / n)
    assert nearest.max() < 1.6 * np.sqrt(area / n)


def test_s_curve_has_unit_speed() -> None:
    rows, truth = datasets.s_curve(2000, noise=0.0, dtype="float64").draw()
    order = np.argsort(truth["arc_length"])
    steps = np.diff(truth["arc_length"][order])
    moved = np.linalg.norm(np.diff(rows[order][:, [0, 2]], axis=0), axis=1)
    np.testing.assert_allclose(moved, steps, rtol=1e-4, atol=1e-9)


def test_plane_spans_two_directions() -> None:
    rows, truth = datasets.plane(1000, noise=0.0, dtype="float64").draw()
    singular = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    assert singular[2] < 1e-12 * singular[0]
    flat = np.stack([truth["u"], truth["v"]], axis=1)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(flat, axis=1))


def test_spiral_radius_is_its_angle() -> None:
    rows, truth = datasets.spiral(500, turns=3.0, dtype="float64").draw()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), truth["theta"])
    np.testing.assert_allclose(arc_length(truth["theta"]), truth["arc_length"])


def test_clusters_are_four() -> None:
    rows, truth = datasets.clusters(4000).draw()
    assert sorted(np.unique(truth["label"])) == [0, 1, 2, 3]
    spread = [rows[truth["label"] == label].std(axis=0) for label in range(4)]
    np.testing.assert_allclose(spread, 0.6, rtol=0.1)


def test_manifolds_with_known_spectra() -> None:
    circle = datasets.circle(360, radius=2.0, regular=True, dtype="float64")
    angle = 2 * np.pi * np.arange(360) / 360
    np.testing.assert_allclose(circle.rows(), 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-12)
    np.testing.assert_array_equal(circle.truth(90, 91)["angle"], angle[90:91])
    torus = datasets.torus(100, radius=2.0, radius2=0.5, dtype="float64").rows()
    np.testing.assert_allclose(np.linalg.norm(torus[:, :2], axis=1), 2.0)
    np.testing.assert_allclose(np.linalg.norm(torus[:, 2:], axis=1), 0.5)
    sphere = datasets.hypersphere(5000, d=5, dtype="float64").rows()
    np.testing.assert_allclose(np.linalg.norm(sphere, axis=1), 1.0)
    np.testing.assert_allclose(sphere.T @ sphere / 5000, np.eye(5) / 5, atol=0.01)
    interval, truth = datasets.interval(100, length=3.0, dtype="float64").draw()
    np.testing.assert_array_equal(interval[:, 0], truth["position"])


def test_mixture_has_the_intrinsic_dimension() -> None:
    rows, truth = datasets.mixture(20_000, d=64, n_clusters=20, intrinsic=12, dtype="float64").draw()
    assert len(np.unique(truth["label"])) == 20
    within = np.concatenate([rows[truth["label"] == c] - rows[truth["label"] == c].mean(0) for c in range(20)])
    deviations = np.linalg.svd(within, compute_uv=False) / np.sqrt(len(rows))
    np.testing.assert_allclose(deviations[:12], 1.0, rtol=0.05)
    np.testing.assert_allclose(deviations[12:], 0.05, rtol=0.1)
