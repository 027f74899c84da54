"""Maps by landmarks, and which rows are landmarks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed import errors
from bigembed.datasets import dataset
from bigembed.maps.landmark_rows import LandmarkChoice, max_min, uniform
from bigembed.maps.walk.landmark_walk import Walk, change_of_half, gram_block, spectrum
from tests.some import a_few


def roll(n: int) -> np.ndarray:
    return dataset("swiss_roll", n=n).rows(0, n)


def negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b.T


def bump(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 25.0 - ((a[:, None] - b[None]) ** 2).sum(axis=2))


def holed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a[:, :1] > 10, np.nan, bump(a, b))


def angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sin(subspace_angles(a, b).max()))


@pytest.fixture(scope="module")
def full() -> tuple[np.ndarray, be.NeighborGraph, be.DiffusionMap]:
    rows = roll(2_600)
    graph = be.build_neighbor_graph(rows, 15)
    return rows, graph, be.DiffusionMap(6, t=0).fit(graph)


@pytest.fixture(scope="module")
def parts() -> tuple[np.ndarray, be.NeighborGraph]:
    """Three components."""
    rows = np.concatenate([roll(1_200), roll(400) + np.float32(300), roll(30) - np.float32(300)])
    return rows, be.build_neighbor_graph(rows, 8)


class TestLandmarkMaps:
    """Landmark diffusion maps, and diffusion maps in a subspace of landmarks."""

    # --- LandmarkDiffusionMap ------------------------------------------------------------------------

    def test_a_circle_of_landmarks_has_the_spectrum_of_its_fourier_series(self) -> None:
        n, epsilon = 240, 0.05
        around = 2 * np.pi * np.arange(n) / n
        rows = np.column_stack([np.cos(around), np.sin(around)])
        found = be.LandmarkDiffusionMap(4, n_landmarks=n, epsilon=epsilon, t=0).fit(rows)
        series = np.fft.fft(np.exp(-(2 - 2 * np.cos(around)) / epsilon)).real  # W is circulant: d is constant
        wanted = (series / series[0]) ** 2
        np.testing.assert_allclose(found.eigenvalues_, wanted[[1, 1, 2, 2]], rtol=1e-9)
        assert abs(found.eigenvalues_[0] - np.sqrt(wanted[1])) > 1e-3  # a control: one step, not there and back
        np.testing.assert_allclose(np.hypot(*found.embedding_[:, :2].T), np.sqrt(2), rtol=1e-7)

    @pytest.mark.filterwarnings("ignore:Half of the landmarks")
    def test_time_scales_and_new_rows_are_placed_as_fitted_ones(self) -> None:
        rows = roll(2_000).astype(np.float64)
        plain, scaled = (be.LandmarkDiffusionMap(3, n_landmarks=200, t=t).fit(rows) for t in (0, 2))
        np.testing.assert_allclose(scaled.embedding_, plain.embedding_ * plain.eigenvalues_**2, rtol=1e-9, atol=1e-12)
        assert np.array_equal(plain.transform(rows[5:300]), plain.embedding_[5:300])
        assert plain.certificate_["passes"] == 2  # and one for the coordinates

    @pytest.mark.filterwarnings("ignore:Half of the landmarks")
    def test_a_function_of_limited_reach(self) -> None:
        rows = roll(1_000)
        found = be.LandmarkDiffusionMap(2, n_landmarks=200, kernel=bump).fit(rows)
        assert found.epsilon_ is None
        with pytest.raises(errors.InputError, match="value 0 with every landmark"):
            found.transform(np.full((1, 3), 1e3))
        with pytest.raises(errors.InputError, match="holed: gives NaN or infinity, first for row"):
            be.LandmarkDiffusionMap(2, n_landmarks=200, kernel=holed).fit(rows)
        with pytest.raises(errors.InputError, match=r"negative: gives -.*≥ 0"):
            be.LandmarkDiffusionMap(2, n_landmarks=200, kernel=negative).fit(rows)

    def test_parts_that_no_walk_joins_are_refused_and_far_rows_are_told(self) -> None:
        generator = np.random.default_rng(0)
        two = np.concatenate([generator.normal(size=(200, 2)), generator.normal(size=(200, 2)) + 1e4])
        with pytest.raises(errors.DisconnectedGraphError, match="fall into 2 parts"):
            be.LandmarkDiffusionMap(2, n_landmarks=40, epsilon=5.0).fit(two)
        one = np.concatenate([generator.normal(size=(4000, 2)), [[1e4, 0.0]]])
        with pytest.warns(errors.DegenerateWarning, match="1 of 4001 rows"):
            found = be.LandmarkDiffusionMap(2, n_landmarks=40, landmarks="uniform", epsilon=1.0).fit(one)
        assert np.isfinite(found.embedding_).all()

    def test_a_coordinate_that_one_row_carries_is_said(self) -> None:
        rows = roll(300)
        assert not be.LandmarkDiffusionMap(epsilon=9.0, n_landmarks=300).fit(rows).certificate_["warnings"]["localized"]
        rows[17] *= 2
        with pytest.warns(errors.LocalizedWarning, match=r"coordinate 1 is carried by few rows \(participation 0\.00"):
            fitted = be.LandmarkDiffusionMap(1, epsilon=9.0, n_landmarks=300).fit(rows)
        largest = np.abs(fitted.embedding_[:, 0])
        assert largest.argmax() == 17
        assert (largest > 0.1 * largest[17]).sum() <= 5

    # --- DiffusionMap(solver="landmarks") ------------------------------------------------------------

    def test_the_subspace_is_that_of_the_full_map(self, full: tuple) -> None:
        rows, graph, exact = full
        error = {}
        for extension, count in (("galerkin", 500), ("nystrom", 1_400)):
            found = be.DiffusionMap(6, t=0, solver="landmarks", n_landmarks=count, extension=extension).fit(graph)
            error[extension] = angle(found.embedding_, exact.embedding_)
            assert np.abs(found.transform(rows[:200]) - found.embedding_[:200]).max() < 1e-6
            assert found.certificate_["passes"] == 4
            assert found.certificate_["converged"]
            assert (found.eigenvalues_ <= exact.eigenvalues_ + 1e-9).all()  # Ritz values come from below
        assert error["galerkin"] <= 0.01  # issue: 500 max-min landmarks
        assert error["nystrom"] > 0.01  # a control: the measure tells the worse subspace
        assert (found.residuals_ > 1e-6).any()

    @pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning", "ignore::bigembed.errors.MapWarning")
    @a_few(1, "policy", ["joint", "bridge", "largest", "per-component"])
    def test_disconnected_graphs_follow_the_policy(
        self, policy: str, parts: tuple[np.ndarray, be.NeighborGraph]
    ) -> None:
        rows, graph = parts
        with pytest.warns(errors.ComponentsWarning):
            found = be.DiffusionMap(4, solver="landmarks", n_landmarks=300, components=policy, t=0).fit(graph)
        with pytest.warns(errors.ComponentsWarning):
            exact = be.DiffusionMap(4, components=policy, t=0).fit(graph)
        np.testing.assert_allclose(found.eigenvalues_, exact.eigenvalues_, atol=2e-3)
        assert np.array_equal(found.labels_, exact.labels_)
        if policy == "joint":  # two contrasts of three components, exactly
            np.testing.assert_allclose(found.embedding_[:, :2], exact.embedding_[:, :2], atol=1e-9)
        off = np.abs(found.transform(rows[::7]) - found.embedding_[::7]).max(axis=1)
        at_a_bridge = 1e-4 * np.abs(found.embedding_).max() if policy == "bridge" else 0.0  # new rows have no bridges
        assert (off < 1e-6).sum() >= len(off) - 4
        assert off.max() < 1e-6 + at_a_bridge

    def test_fewer_rows_than_landmarks_are_solved_exactly(self) -> None:
        rows = roll(300)
        a, b = (be.DiffusionMap(2, n_neighbors=8, solver=solver).fit(rows) for solver in ("landmarks", "exact"))
        np.testing.assert_array_equal(a.embedding_, b.embedding_)

    def test_what_cannot_be_solved_by_landmarks_says_why(self) -> None:
        rows = np.repeat(roll(4), 60, axis=0)
        with pytest.raises(errors.InputError, match="only 4 different rows"):
            be.DiffusionMap(
                4, n_neighbors=None, epsilon=100.0, solver="landmarks", n_landmarks=50, landmarks="uniform"
            ).fit(rows)

    @a_few(
        1,
        ("extension", "count", "parameters"),
        [("galerkin", 50, {}), ("nystrom", 100, {}), ("nystrom", 500, {"gaussian": True})],
    )
    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    def test_too_few_landmarks_are_not_called_converged(self, extension: str, count: int, parameters: dict) -> None:
        """1 − λ is a tenth too large, or ten times: the certificate says so, and what to do."""
        rows = np.random.default_rng(0).normal(size=(6_000, 5)) if parameters else roll(3_000)
        exact = be.DiffusionMap(4, t=0).fit(rows)
        found = be.DiffusionMap(4, t=0, solver="landmarks", n_landmarks=count, extension=extension).fit(rows)
        assert ((1 - found.eigenvalues_) / (1 - exact.eigenvalues_)).max() > 1.1
        assert not found.certificate_["converged"]
        [said] = found.certificate_["warnings"]["convergence"]
        assert "Raise n_landmarks" in said
        assert ("extension='galerkin'" in said) == (extension == "nystrom")

    def test_landmarks_that_do_not_show_the_walk_are_said(self) -> None:
        """Even rows in ten dimensions have no map that 50 landmarks could show; a curve has one."""
        even = np.random.default_rng(0).normal(size=(1_000, 10))
        with pytest.warns(
            errors.ConvergenceWarning, match=r"Half of the landmarks .* 50 landmarks do not show this walk. Raise"
        ):
            found = be.LandmarkDiffusionMap(3, n_landmarks=50).fit(even)
        assert not found.certificate_["converged"]
        assert found.certificate_["half_turned"] > 0.5
        angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
        curve = np.column_stack([np.cos(angle), np.sin(angle)])
        found = be.LandmarkDiffusionMap(2, n_landmarks=100).fit(curve)
        assert found.certificate_["converged"]
        assert 0 < found.certificate_["half_turned"] < 0.1
        every = be.LandmarkDiffusionMap(3, n_landmarks=60).fit(even[:60])
        assert (every.certificate_["converged"], every.certificate_["half_turned"]) == (True, 0.0)

    def test_the_change_of_half_is_that_of_the_walk_by_half(self) -> None:
        rows = roll(600)
        walk = Walk(20.0)
        weights = np.exp(-cdist(rows, rows[:60], "sqeuclidean") / 20.0)
        sums = weights.sum(axis=0)

        def solved(part: np.ndarray) -> np.ndarray:
            s = part.sum(axis=0)
            return spectrum(part.T @ (part / (part @ s)[:, None]), s, 3)

        values, matrix = solved(weights)
        fewer, _ = solved(weights[:, ::2])
        scaled, factors = walk(rows, rows[:60])
        half = gram_block(scaled[:, ::2], factors, sums[::2])[0]
        moved, turned = change_of_half(walk(rows[:60], rows[:60])[0], half, sums, values.eigenvalues, matrix)
        change = np.abs(fewer.eigenvalues - values.eigenvalues) / np.minimum(values.eigenvalues, 1 - values.eigenvalues)
        assert moved == pytest.approx(change.max())
        assert 0 < turned < 1


class TestSelect:
    """Landmarks: uniform, and far from each other."""

    def test_uniform_takes_every_number_alike(self) -> None:
        counts = np.zeros(20)
        for seed in range(2000):
            chosen = uniform(20, 5, seed)
            assert (np.diff(chosen) > 0).all()
            counts[chosen] += 1
        np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)
        assert uniform(3, 10, 0).tolist() == [0, 1, 2]

    def test_max_min_covers_the_rows_to_within_the_distance_of_the_landmarks(self) -> None:
        rows = np.random.default_rng(0).normal(size=(500, 3))
        chosen = max_min(rows, 30)
        assert len(set(chosen.tolist())) == 30
        between = np.linalg.norm(rows[chosen][:, None] - rows[chosen][None], axis=2)
        np.fill_diagonal(between, np.inf)
        covered = np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2).min(axis=1).max()
        assert covered <= between.min()
        some = np.random.default_rng(1).choice(500, 30, replace=False)  # a control: chance does not cover so well
        assert np.linalg.norm(rows[:, None] - rows[some][None], axis=2).min(axis=1).max() > 1.3 * covered

    def test_a_sample_is_bounded(self) -> None:
        far, uniformly = (LandmarkChoice(500, selection, ()) for selection in ("max-min", "uniform"))
        assert far.sample_size(10**9, 4) == 15_000
        assert far.sample_size(10**9, 1 << 20) == 500
        assert far.sample_size(1_000, 12) == 1_000
        assert uniformly.sample_size(10**9, 4) == 500
