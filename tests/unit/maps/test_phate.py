"""PHATE: against a dense computation of the whole of it, and when its certificate warns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_iris

import bigembed as be
from bigembed.errors import ComponentsWarning, DegenerateWarning, InputError, InputTypeError, MapWarning
from bigembed.maps.landmark_rows import procrustes_residual
from bigembed.maps.phate import decayed, kth_squared
from bigembed.maps.phate.landmarks import grouped
from bigembed.maps.phate.potential import classical_points, entropies, knee_of, metric_points, modes_left
from bigembed.store.arrays import read_array
from tests.blocks import blocks_for


def branches(n: int = 300, seed: int = 0) -> np.ndarray:
    """Three branches from one point, with noise, in ten dimensions."""
    random = np.random.default_rng(seed)
    along = np.repeat(np.eye(3, 10), n // 3, axis=0) * np.tile(np.linspace(0, 20, n // 3), 3)[:, None]
    return along + 0.3 * random.normal(size=(n, 10))


def fit(X: Any, **given: Any) -> tuple[Any, list[Any]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        return be.PHATE(**given).fit(X), [one.message for one in seen]


def dense_kernel(X: np.ndarray, k: int, decay: float) -> np.ndarray:
    """K of all pairs, which has no entry below 1e-4 of either row."""
    apart = cdist(X, X)
    scale = np.sort(apart, axis=1)[:, k]
    own = np.exp(-((apart / scale[:, None]) ** decay))
    own[own < 1e-4] = 0
    return (own + own.T) / 2


def dense_map(K: np.ndarray, cluster: np.ndarray | None, t: int, m: int = 2) -> tuple[np.ndarray, float]:
    """Coordinates of all rows, and the stress, by the formulas."""
    P = K / K.sum(axis=1, keepdims=True)
    between, taken = P, np.eye(len(K))
    if cluster is not None:
        C = np.eye(cluster.max() + 1)[cluster]
        there, taken = C.T @ K, P @ C
        between = (there / there.sum(axis=1, keepdims=True)) @ taken
    potential = -np.log(np.linalg.matrix_power(between, t) + 1e-7)
    distances = cdist(potential, potential)
    scaled = metric_points(distances, classical_points(distances, m))
    return taken @ scaled.points, scaled.stress


def landmarks_of(made: Any) -> np.ndarray:
    """The landmark of each row, in the order of the input."""
    order, count = made._run.path("order"), len(made._run.results("kernel")["rows"])
    lies = [read_array(f"{made._run.path('landmarks', 'cluster')}/{b}") for b in range(count)]
    ids = [read_array(f"{order}/ids/{b}") for b in read_array(f"{order}/blocks")]
    cluster = np.empty(sum(map(len, ids)), int)
    cluster[np.concatenate(ids)] = np.concatenate(lies)
    return cluster


class TestMaps:
    """The maps of rows that are all landmarks, and of rows by landmarks, are those of the formulas."""

    def test_every_row_a_landmark(self) -> None:
        X = branches()
        made, _ = fit(X, t=12)
        expected, stress = dense_map(dense_kernel(X, 5, 40.0), None, 12)
        assert made.n_landmarks_ == len(X)
        assert made.stress_ == pytest.approx(stress, abs=1e-3)
        assert procrustes_residual(expected, made.embedding_) < 0.02
        other, _ = dense_map(dense_kernel(X, 5, 4.0), None, 12)  # (a wider kernel: another map)
        assert procrustes_residual(other, made.embedding_) > 0.1

    def test_landmarks_in_one_block_and_in_several(self) -> None:
        X = branches(600)
        for blocks in (None, blocks_for(600)):
            with blocks or warnings.catch_warnings():
                made, _ = fit(X, t=8, n_landmarks=80)
                count = len(made._run.results("kernel")["rows"])
            assert (count > 3) == (blocks is not None)
            cluster = landmarks_of(made)
            assert made.n_landmarks_ == cluster.max() + 1 <= 80 + count
            expected, _ = dense_map(dense_kernel(X, 5, 40.0), cluster, 8)
            assert procrustes_residual(expected, made.embedding_) < 0.02
            wrong, _ = dense_map(dense_kernel(X, 5, 40.0), np.random.default_rng(0).permutation(cluster), 8)
            assert procrustes_residual(wrong, made.embedding_) > 0.3

    def test_landmarks_are_of_rows_near_on_the_walk_whatever_their_noise(self) -> None:
        """Places on a line within a landmark; groups of the rows themselves are wider."""
        line = np.linspace(0, 40, 900)
        X = np.column_stack([line, 0.5 * np.random.default_rng(0).normal(size=(900, 30))])
        wide = np.column_stack([X, np.zeros((900, 200))])  # (of which 128 random columns are made)
        found = [landmarks_of(fit(rows, n_landmarks=120, t=4, mds="classical")[0]) for rows in (X, wide)]

        def width(cluster: np.ndarray) -> float:
            middle = np.bincount(cluster, line) / np.bincount(cluster)
            return float(np.sqrt(np.square(line - middle[cluster]).mean()))

        assert max(map(width, found)) < 0.75 * width(grouped(X, 120, [0]))

    def test_new_rows_lie_between_the_fitted_ones_near_them(self) -> None:
        X, new = branches(600), branches(600, seed=1)
        made, _ = fit(X, n_landmarks=80)
        placed = made.transform(new)
        spread = pdist(made.embedding_).max()
        nearest = cdist(new, X).argmin(axis=1)
        apart = np.linalg.norm(placed - made.embedding_[nearest], axis=1) / spread
        assert np.median(apart) < 0.02
        assert np.median(np.linalg.norm(placed - made.embedding_[::-1][nearest], axis=1) / spread) > 0.2
        assert np.abs(made.transform(X) - made.embedding_).max() / spread < 1e-6

    def test_the_walk_of_rows_with_weights_is_that_of_their_copies(self) -> None:
        X, counts, k = branches(90), np.random.default_rng(1).integers(1, 6, 90), 10
        apart, mass = cdist(X, X), counts / counts.mean()
        near = np.argsort(apart, axis=1)
        reached = np.argmax(np.cumsum(mass[near], axis=1) > (k + 1) * (1 - 1e-9), axis=1)
        scale = np.take_along_axis(apart, near, axis=1)[np.arange(90), np.maximum(reached, 4)]
        own = np.exp(-((apart / scale[:, None]) ** 2))
        kernel = np.where(own < 1e-4, 0, own) + np.where(own < 1e-4, 0, own).T
        copied = np.repeat(np.arange(90), counts)
        walk = kernel[np.ix_(copied, copied)]
        walk /= walk.sum(axis=1, keepdims=True)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        expected = np.add.reduceat(walk[first], first, axis=1)
        given = {"n_neighbors": k, "n_candidates": 89, "n_landmarks": 90, "decay": 2.0, "t": 3}
        found, alike = (be.PHATE(**given).fit(X, sample_weight=weights) for weights in (counts, None))
        errors = []
        for fitted in (found, alike):
            path = fitted._run.path("order")
            order = np.concatenate([read_array(f"{path}/ids/{b}") for b in read_array(f"{path}/blocks")])
            made = read_array(fitted._run.path("operator", "operator"))
            errors.append(np.abs(made - expected[np.ix_(order, order)]).max())
        assert errors[0] < 1e-5 < 1e-2 < errors[1]
        np.testing.assert_array_equal(found.transform(X[:9]), found.embedding_[:9])
        assert found.certificate_["row_weights"]["most"] == 5

    def test_branches_of_the_map_are_those_of_the_rows(self) -> None:
        X = branches(900)
        made, seen = fit(X, n_landmarks=300)
        Y = made.embedding_
        ends = Y[[299, 599, 899]]
        origin = Y[[0, 300, 600]].mean(axis=0)
        arms = ends - origin
        assert np.linalg.norm(Y[[0, 300, 600]] - origin, axis=1).max() < 0.2 * np.linalg.norm(arms, axis=1).min()
        assert pdist(ends).min() > 0.3 * np.linalg.norm(arms, axis=1).min()
        assert not [one for one in seen if isinstance(one, MapWarning | ComponentsWarning)], seen


class TestParts:
    """Kernel, groups, entropies, knee and scaling by themselves."""

    def test_scale_of_a_row_with_copies_is_its_first_distance_above_zero(self) -> None:
        indptr, squared = np.array([0, 4, 7, 8]), np.array([0.0, 9.0, 0.0, 4.0, 2.0, 0.0, 1.0, 0.0])
        assert kth_squared(indptr, squared, 1).tolist() == [4.0, 1.0, 0.0]
        assert kth_squared(indptr, squared, np.array([3, 2, 5])).tolist() == [9.0, 2.0, 0.0]

    def test_kernel_is_one_at_zero_and_falls_at_the_scale(self) -> None:
        found = decayed(np.array([0.0, 0.81, 1.0, 1.21]), np.ones(4), 40.0)
        assert found[[0, 2, 3]].tolist() == [1.0, float(np.exp(-1)), 0.0]
        assert found[1] > 0.98

    def test_groups_are_of_near_points(self) -> None:
        points = np.random.default_rng(0).normal(size=(2000, 3)).astype("f4")
        labels = grouped(points, 100, [0])
        assert sorted(set(labels)) == list(range(labels.max() + 1))
        assert 80 <= labels.max() + 1 <= 100

        def inside(labels: np.ndarray) -> float:
            means = np.stack([points[labels == one].mean(axis=0) for one in range(labels.max() + 1)])
            return float(np.square(points - means[labels]).sum() / np.square(points).sum())

        assert inside(labels) < 0.08
        assert inside(np.random.default_rng(1).permutation(labels)) > 0.8

    def test_entropy_of_a_spectrum(self) -> None:
        values = np.array([1.0, 0.5, 0.25])
        shares = (values**3) / (values**3).sum()
        assert entropies(values, 3)[2] == pytest.approx(-(shares @ np.log(shares)), abs=1e-12)

    def test_modes_that_are_left(self) -> None:
        """The trace of the power, without 1 for each part of the walk."""
        walk = np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
        assert modes_left(np.linalg.matrix_power(walk, 3)) == pytest.approx(0.25**3)

    def test_knee(self) -> None:
        falls = np.concatenate([np.linspace(10, 2, 21), np.linspace(2, 1, 80)[1:]])
        found = knee_of(falls)
        assert abs(found.at - 20) <= 1
        assert found.clear
        assert not knee_of(np.exp(-np.arange(100) / 1000.0)).clear

    def test_a_curve_that_falls_twice_has_two_knees(self) -> None:
        """Noise is gone after a few steps, what is between branches after fifty; one fall has one knee."""
        t = np.arange(1, 101)
        found = knee_of(2 * np.exp(-t / 2) + 3 / (1 + np.exp((t - 50) / 10)))
        one, other = found.several
        assert not found.clear
        assert one < 8
        assert 60 < other < 85
        straight = np.concatenate([np.linspace(10, 2, 21), np.linspace(2, 1, 80)[1:]])
        for curve in (straight, np.exp(-t / 10), np.exp(-t / 30), 5 - np.log(t), 3 / (1 + np.exp((t - 20) / 5))):
            assert not knee_of(curve).several, curve

    def test_scaling_finds_points_that_have_these_distances(self) -> None:
        points = np.random.default_rng(0).normal(size=(60, 2))
        distances = cdist(points, points)
        start = points + 0.5 * np.random.default_rng(1).normal(size=points.shape)
        found = metric_points(distances, start)
        assert found.converged
        assert found.stress < 1e-3 < found.started
        assert procrustes_residual(points, found.points) < 1e-3
        assert procrustes_residual(points, start) > 0.2


class TestCertificates:
    """What is said of maps that should not be believed, and of bad input."""

    def test_a_disconnected_graph(self) -> None:
        _, seen = fit(np.concatenate([branches(150), branches(150) + 100]), t=5)
        assert [one for one in seen if isinstance(one, ComponentsWarning)]

    def test_too_few_coordinates(self) -> None:
        """Three branches do not fit on a line."""
        said = [
            any("stress" in str(one) for one in fit(branches(), n_components=m)[1] if isinstance(one, MapWarning))
            for m in (1, 2)
        ]
        assert said == [True, False]

    def test_many_groups_have_stress_and_a_good_map(self) -> None:
        rows = np.repeat(10 * np.eye(60), 16, axis=0)
        rows[:, :2] += np.random.default_rng(0).normal(size=(960, 2))
        made, seen = fit(rows)
        assert made.stress_ > 0.4
        assert not [one for one in seen if isinstance(one, MapWarning)]

    def test_a_time_at_which_everything_is_forgotten(self) -> None:
        """A line after 300 steps of 150 flowers, a point after 100 000; by itself it takes none that is too long."""
        X = load_iris().data
        made = {t: fit(X, t=t) for t in ("auto", 300, 100_000)}
        said = {
            t: [str(one) for one in seen if isinstance(one, MapWarning) and "has forgotten" in str(one)]
            for t, (_, seen) in made.items()
        }
        assert [len(one) for one in said.values()] == [0, 1, 1]
        assert f"(the knee of the entropy is t={made['auto'][0].t_})" in said[300][0]
        assert "one line" in said[300][0]
        assert "a point for each part" in said[100_000][0]
        assert made["auto"][0].certificate_["modes"] > 1

    def test_a_kernel_that_is_cut(self) -> None:
        _, seen = fit(branches(), t=5, decay=1.0)
        assert any("n_candidates" in str(one) for one in seen if isinstance(one, DegenerateWarning))
        made, seen = fit(branches(), t=5, decay=1.0, n_candidates=150)
        assert made.certificate_["cut"] < 0.1
        assert not any("n_candidates" in str(one) for one in seen)

    def test_refusals(self) -> None:
        X = branches(60)
        with pytest.raises(InputTypeError, match="radius"):
            be.PHATE().fit(be.build_neighbor_graph(X, radius=3.0))
        with pytest.raises(InputError, match="n_candidates"):
            be.PHATE(n_candidates=3).fit(X)
        with pytest.raises(InputError, match="n_landmarks"):
            be.PHATE(n_components=3, n_landmarks=3).fit(X)
