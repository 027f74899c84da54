"""What is known of coordinates: harmonics, what carries them, how far they are apart, how many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigembed.errors import InputError
from bigembed.quality import coordinates
from bigembed.quality.dimension import ROWS, harmonics, sampled
from bigembed.store.arrays import write_array

S = 600
rng = np.random.default_rng(0)
x, y = rng.uniform(0, np.pi, (2, S))


def new(sample: np.ndarray) -> list[int]:
    """Coordinates that are new, counted from 0."""
    return np.flatnonzero(~harmonics(sample).harmonic).tolist()


def rectangle(side: float, count: int) -> tuple[np.ndarray, list[int]]:
    """The first Neumann eigenfunctions of a rectangle 1 × side, and which of them are cos x and cos y."""
    modes = sorted((i**2 + (j / side) ** 2, i, j) for i in range(12) for j in range(6) if i + j)[:count]
    functions = np.column_stack([np.cos(i * x) * np.cos(j * y) for _, i, j in modes])
    return functions, [l for l, (_, i, j) in enumerate(modes) if (i, j) in ((1, 0), (0, 1))]


class TestHarmonics:
    """Which coordinates are functions of earlier ones, where that is known by analysis."""

    def test_on_an_interval_all_but_the_first_are_harmonics(self) -> None:
        found = harmonics(np.cos(np.outer(x, np.arange(1, 9))))
        assert found.harmonic.tolist() == [False] + 7 * [True]
        assert found.residual[0] == 1
        assert found.residual[1:].max() < 0.1

    @pytest.mark.parametrize("side", [0.3, 0.45, 0.9])
    def test_a_rectangle_has_two_new_coordinates_wherever_they_come(self, side: float) -> None:
        """1 : 0.3 as swiss roll strips are: the second dimension comes fourth."""
        functions, truth = rectangle(side, 7)
        assert new(functions) == truth

    def test_noise_is_no_harmonic_and_noise_on_a_harmonic_keeps_it_one(self) -> None:
        noise = rng.normal(size=(S, 2))
        assert new(np.column_stack([np.cos(x), noise[:, 0], np.cos(2 * x), noise[:, 1]])) == [0, 1, 3]
        assert harmonics(noise).residual[1] > 0.95
        noisy = np.column_stack([np.cos(x), np.cos(2 * x) + 0.03 * noise[:, 0]])
        assert new(noisy) == [0]

    def test_a_coordinate_that_tells_overlapping_groups_is_new(self) -> None:
        """Its level in each group follows from the earlier ones; what it tells apart is what they do not."""
        level, half = rng.integers(0, 8, S), rng.integers(0, 2, S)
        first = level + 0.2 * rng.normal(size=S)
        second = 1.5 * level + 0.9 * half + 0.3 * rng.normal(size=S)
        found = harmonics(np.column_stack([first, second, np.cos(x), np.cos(2 * x)]))
        assert found.residual[1] < 0.35 < found.local[1]
        assert found.harmonic.tolist() == [False, False, False, True]

    def test_parts_and_single_rows_are_new_and_say_nothing_of_what_follows(self) -> None:
        part = rng.integers(0, 6, S)
        contrasts = rng.normal(size=(6, 3))[part] + 0.01 * rng.normal(size=(S, 3))
        single = np.zeros((S, 1))
        single[5] = 40
        found = harmonics(np.column_stack([contrasts, single, np.cos(x), np.cos(2 * x)]))
        assert found.stepped.tolist() == [True] * 4 + [False] * 2
        assert found.harmonic.tolist() == [False] * 5 + [True]

    def test_degenerate_samples_are_defined(self) -> None:
        constant = harmonics(np.ones((50, 3)))
        assert constant.stepped.all()
        assert constant.residual.tolist() == [1, 1, 1]
        assert not constant.harmonic.any()
        same = np.repeat(np.cos(np.outer(np.linspace(0, np.pi, 100), [1, 2])), 40, axis=0)  # every row 40 times
        assert new(same) == [0]
        for s in (0, 1, 2, 3):
            few = harmonics(rng.normal(size=(s, 4)))
            assert (few.rows, few.residual.shape) == (s, (4,))
            assert np.isfinite(few.residual).all()
        assert harmonics(np.zeros((10, 0))).residual.shape == (0,)

    def test_the_sample_is_drawn_from_all_blocks_by_the_seed(self, tmp_path: Path) -> None:
        sizes = (1500, 10, 1490)
        every = np.column_stack([np.arange(3000.0), np.zeros(3000)])
        for b, rows in enumerate(np.split(every, np.cumsum(sizes)[:-1])):
            write_array(tmp_path / f"right/{b}", rows)
        path = str(tmp_path / "right")
        found = sampled(path, sizes, seed=0)
        assert found.shape == (ROWS, 2)
        assert (np.diff(found[:, 0]) > 0).all()
        assert [((found[:, 0] >= a) & (found[:, 0] < b)).sum() for a, b in ((0, 1500), (1500, 1510), (1510, 3000))] == [
            1000,
            6,
            994,
        ]
        np.testing.assert_array_equal(found, sampled(path, sizes, seed=0))
        assert (found != sampled(path, sizes, seed=1)).any()
        np.testing.assert_array_equal(sampled(path, sizes, 0, wanted=5000), every)


def stored(home: Path, psi: np.ndarray, degree: np.ndarray, blocks: int) -> coordinates.Participation:
    for b, (rows, d) in enumerate(zip(np.array_split(psi, blocks), np.array_split(degree, blocks), strict=True)):
        write_array(home / f"right/{b}", rows)
        write_array(home / f"degree/{b}", d)
    return coordinates.participation(str(home / "right"), str(home / "degree"), blocks)


class TestParticipation:
    """What carries a coordinate: limits that are known, and rows that are named."""

    def test_limits(self, tmp_path: Path) -> None:
        """±1 is carried by all, ±1 on a set by its mass, a single row by its own, a cosine by 2/3, Gaussian by 1/3."""
        n, rng = 4000, np.random.default_rng(0)
        degree = rng.uniform(1, 3, n)
        share = degree / degree.sum()
        psi = np.zeros((n, 6))
        psi[:, 0] = rng.choice([-1, 1], n)
        psi[:500, 1] = -7.5
        psi[1234, 2] = 1e3
        psi[:, 3] = np.cos(2 * np.pi * np.arange(n) / n)
        psi[:, 4] = rng.normal(size=n)
        found = stored(tmp_path, psi, degree, 3)
        np.testing.assert_allclose(found.share[:3], [1, share[:500].sum(), share[1234]], rtol=1e-12)
        np.testing.assert_allclose(found.share[3:5], [2 / 3, 1 / 3], rtol=0.05)
        assert found.share[5] == 0
        assert found.rows[:3].tolist() == [n, 500, 1]
        assert found.rows[5] == 0
        few = coordinates.carried_by_few(found.share, found.rows, n)
        assert few.tolist() == [False, False, True, False, False, True]

    def test_the_leading_rows_are_named_over_blocks(self, tmp_path: Path) -> None:
        psi, degree = np.zeros((30, 2)), np.ones(30)
        psi[[3, 17, 29], 0] = [1.0, -3.0, 2.0]
        psi[:, 1] = 1.0
        degree[25] = 2.0
        found = stored(tmp_path, psi, degree, 4)
        assert found.leading.tolist() == [[17, 29, 3, -1, -1], [25, 0, 1, 2, 3]]
        np.testing.assert_allclose(found.leading_share[0], [9 / 14, 4 / 14, 1 / 14, 0, 0])

    def test_blocks_change_rounding_only_and_scale_nothing(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(1)
        psi, degree = rng.normal(size=(500, 3)), rng.uniform(1, 2, 500)
        one, many = stored(tmp_path / "1", psi, degree, 1), stored(tmp_path / "5", psi * 100, degree, 5)
        np.testing.assert_allclose(one.share, many.share, rtol=1e-12)
        np.testing.assert_array_equal(one.rows, many.rows)
        np.testing.assert_array_equal(one.leading, many.leading)


class TestSeparation:
    """Bounds on angles against eigenvectors that were really perturbed; groups; eigenvalues that are 1."""

    def test_the_bound_holds_for_perturbed_vectors(self) -> None:
        rng = np.random.default_rng(0)
        truth = np.array([0.9, 0.6, 0.55, 0.3, 0.1])
        for size in (1e-4, 1e-3, 1e-2):
            vectors = np.linalg.qr(np.eye(5)[:, :3] + size * rng.normal(size=(5, 3)))[0]
            values = np.einsum("il,i,il->l", vectors, truth, vectors)
            residuals = np.linalg.norm(truth[:, None] * vectors - vectors * values, axis=0)
            found = coordinates.separation(values, residuals, 0.3)
            sine = np.sqrt(1 - np.minimum(1, vectors[np.arange(3), np.arange(3)] ** 2))
            assert (sine <= found.sin * 1.05).all()

    def test_what_lies_close_together_is_a_group(self) -> None:
        found = coordinates.separation(np.array([0.9, 0.5, 0.5 - 1e-8, 0.4]), np.full(4, 1e-6), 0.2)
        assert found.groups == ((1, 2),)
        assert found.sin[1] == found.sin[2] == 1
        assert not found.cut

    def test_a_gap_far_below_the_residual_is_seen(self) -> None:
        """A gap of 2.6e-8 beside a residual of 8e-7, between coordinates and at the end of them."""
        assert coordinates.separation(np.array([0.9, 0.9 - 2.6e-8]), np.full(2, 8e-7), 0.5).groups == ((0, 1),)
        last = coordinates.separation(np.array([0.95, 0.9]), np.full(2, 8e-7), 0.9 - 2.6e-8)
        assert last.cut
        assert last.groups == ()

    def test_rounding_of_the_weights_is_the_least_error(self) -> None:
        """An exact solve of a multiple eigenvalue, split by 1e-10: a group; the same split of 1 − λ = 1e-6 is
        resolved."""
        exact = np.full(2, 1e-16)
        assert coordinates.separation(np.array([0.5, 0.5 - 1e-10]), exact, 0.1).groups == ((0, 1),)
        assert coordinates.separation(1 - np.array([1e-6, 1e-6 + 1e-10]), exact, 0.1).groups == ()

    def test_limits(self) -> None:
        alone = coordinates.separation(np.array([0.5]), np.array([1e-8]))
        assert (alone.sin.tolist(), alone.groups, alone.cut) == ([0.0], (), False)
        none = coordinates.separation(np.zeros(0), np.zeros(0), 0.5)
        assert (none.sin.shape, none.groups, none.cut) == ((0,), (), False)
        unsolved = coordinates.separation(np.array([0.9, 0.8]), np.array([0.5, 0.5]), 0.7)
        assert unsolved.sin.tolist() == [1, 1]
        assert unsolved.cut

    @pytest.mark.parametrize(
        ("one_minus", "residual", "n", "near"),
        [
            (2e-13, 1e-15, 20_000, True),  # a row cut off
            (1e-9, 1e-10, 1_000_000, False),  # a closed curve of 10⁶ rows is slow by its length
            (1e-9, 1e-10, 1_000, True),  # among so few rows, it is not
            (1e-8, 1e-7, 1_000_000, True),  # the residual reaches 1
            (5e-3, 1e-2, 1_000, False),  # an unfinished solve shows nothing
            (1e-15, 0.0, 10**9, True),  # rounding
            (-1e-16, 0.0, 100, True),
        ],
    )
    def test_near_one(self, one_minus: float, residual: float, n: int, near: bool) -> None:
        assert coordinates.near_one(np.array([1 - one_minus]), np.array([residual]), 1e-6, n).tolist() == [near]


FLAT = np.linspace(0.2, 0.3, 20)


def chosen(rates: list[float] | np.ndarray, count: int = 15) -> tuple[int, bool]:
    found = coordinates.chosen_by_spectrum(1 - np.sort(rates)[:count])
    return found.n_components, found.by_gap


class TestSpectrum:
    """The number of coordinates by spectra that are known."""

    @pytest.mark.parametrize("k", [2, 3, 5, 9])
    @pytest.mark.parametrize("slow", [1e-3, 1e-6, 0.0])
    def test_k_clusters_need_one_coordinate_less(self, k: int, slow: float) -> None:
        rates = slow * np.linspace(1, 2, k - 1)
        assert chosen(np.concatenate([rates, FLAT])) == (k - 1, True)

    def test_manifolds(self) -> None:
        degrees = np.arange(1, 30)
        assert chosen(1e-4 * np.repeat(degrees[:12], 2) ** 2) == (2, False)  # circle
        assert chosen(1e-4 * degrees**2) == (1, False)  # interval
        assert chosen(1e-4 * np.repeat(degrees[:5] * (degrees[:5] + 1), 2 * degrees[:5] + 1)) == (3, True)  # sphere
        modes = [i**2 + j**2 for i in range(9) for j in range(9) if i + j]
        assert chosen(1e-4 * np.array(modes)) == (3, False)  # square
        strip = [i**2 + (j / 0.12) ** 2 for i in range(30) for j in range(9) if i + j]
        assert chosen(1e-4 * np.array(strip)) == (1, False)  # swiss roll

    def test_separate_parts_and_clusters_in_them(self) -> None:
        inside = np.concatenate([np.zeros(2), [1e-4, 1.2e-4, 1.5e-4], FLAT])
        assert chosen(inside) == (5, True)
        assert chosen(np.concatenate([np.zeros(2), 1e-3 * np.arange(1, 15) ** 2])) == (2, True)

    def test_a_flat_spectrum_asks_for_more(self) -> None:
        found = coordinates.chosen_by_spectrum(1 - FLAT[:8])
        assert (found.n_components, found.by_gap) == (7, False)
        assert "compute more" in found.reason

    def test_limits(self) -> None:
        assert chosen([0.0, 0.0, 0.0], 3) == (2, True)
        assert chosen([0.5, 0.5], 2) == (1, False)
        assert chosen([0.5, 1.2], 2) == (1, False)  # a negative eigenvalue
        with pytest.raises(InputError, match="at least 2"):
            coordinates.chosen_by_spectrum(np.array([0.5]))
