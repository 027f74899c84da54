"""Kernels, their scales, what their walk tends to, and its eigenvectors from landmarks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.linalg import eigh, svd
from sklearn.metrics.pairwise import pairwise_kernels

import bigembed as be
from bigembed.errors import InputError
from bigembed.estimator.graph_input import normalize_block, row_sums
from bigembed.maps import kernels, landmark_maps
from bigembed.maps.bandwidth import histogram_median, ksum
from bigembed.maps.scales import exact_median, pattern_counts, total
from bigembed.maps.walk import landmark_walk
from bigembed.store import matrix as csr
from bigembed.store.matrix import CSRBlock
from tests.some import a_few

lengths = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e308))


def counts_of(squared: np.ndarray) -> np.ndarray:
    return np.bincount(squared.astype(np.float32).ravel().view(np.uint32) >> 16, minlength=1 << 16)


def block() -> CSRBlock:
    """Rows 0–1 of the symmetric 3 × 3 matrix [[0, 1, 2], [1, 0, 0], …]; row 2 is in another block."""
    return CSRBlock(
        np.array([0, 3, 4]),
        np.array([0, 1, 2, 0], np.int32),
        np.array([0.0, 1.0, 2.0, 1.0], np.float32),
        np.array([1], np.int32),
        np.array([0, 1]),
        np.array([0], np.int32),
    )


class TestKernels:
    """Scales and weights against their formulas."""

    @given(lengths, st.integers(1, 5))
    def test_the_median_over_blocks_is_the_lower_median_of_all(self, values: np.ndarray, blocks: int) -> None:
        parts = np.array_split(values, blocks)
        found = exact_median(lambda high: total([pattern_counts(part, high) for part in parts]), len(values))
        assert found == np.sort(values)[(len(values) - 1) // 2]

    def test_ksum_is_the_slope_of_the_kernel_sum(self) -> None:
        """Seed 000 eqs. 58 and 59, against a direct sum over all pairs."""
        X = np.random.default_rng(0).uniform(size=(800, 2))
        squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        curve = ksum(counts_of(squared))
        for at in (100, 140, 160, 180):
            epsilon = curve.epsilon[at]
            kernel = np.exp(-squared / epsilon)
            assert curve.log_sum[at] == pytest.approx(np.log(kernel.mean()), abs=0.01)
            assert curve.slope[at] == pytest.approx((squared / epsilon * kernel).sum() / kernel.sum(), abs=0.01)
        assert curve.dimension == pytest.approx(2, abs=0.35)
        away = squared[~np.eye(*squared.shape, dtype=bool)]
        assert histogram_median(counts_of(squared), len(squared)) == pytest.approx(np.median(away), rel=0.01)

    @pytest.mark.parametrize("n", [4, 10, 40])
    def test_the_median_is_that_of_pairs_of_different_rows(self, n: int) -> None:
        """A histogram of all pairs holds each row with itself, at 0: of 10 rows that is one pair in ten."""
        X = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
        squared = ((X[:, None] - X) ** 2).sum(axis=2)
        pairs = np.sort(squared[np.triu_indices(n, 1)])
        found = histogram_median(counts_of(squared), n)
        assert found == pytest.approx(pairs[(len(pairs) - 1) // 2], rel=0.005)
        assert found > np.median(squared)  # control

    def test_weights_follow_their_formulas(self) -> None:
        squared = np.array([0.0, 0.3, 4.4, 4.6])
        np.testing.assert_allclose(kernels.gaussian_block(squared, 2.0), np.exp(-squared / 2))
        assert kernels.gaussian_block(squared, 1.0, truncated=True).tolist()[2:] == [np.exp(-4.4), 0.0]  # r < 3 √(ε/2)

    def test_self_tuning_divides_by_both_scales(self) -> None:
        found = kernels.local_squared_block(block(), np.array([2.0, 5.0]), np.array([3.0]), "self-tuned")
        np.testing.assert_allclose(found, [0, 0.1, 1 / 3, 0.1])

    def test_the_adaptive_kernel_cuts_no_neighbor_off(self) -> None:
        """An edge has r ≤ max(ρ_i, ρ_j): the weight is at least e^(−2/ε) however the scales differ."""
        rho, other = np.array([1.0, 1.0, 1e6]), np.array([1.0, 1e9, 1e-6])
        squared = np.maximum(rho, other) ** 2
        assert (kernels.local_squared(squared, rho, other, "adaptive") <= 2).all()
        assert kernels.local_squared(squared, rho, other, "self-tuned").max() > 1e8
        found = kernels.local_squared_block(block(), np.array([2.0, 5.0]), np.array([3.0]), "adaptive")
        np.testing.assert_allclose(found, [0, 1 / 14.5, 2 / 6.5, 1 / 14.5])

    def test_normalization_is_symmetric_to_the_last_bit(self) -> None:
        weights = np.array([0.5, 0.7, 0.3, 0.7])
        for alpha in (0.0, 0.5, 1.0, -0.3):
            found = normalize_block(block(), weights, np.array([1.1, 3.7]), np.array([0.9]), alpha)
            assert found[1] == found[3]
            np.testing.assert_allclose(
                found, weights / (np.array([1.1 * 1.1, 1.1 * 3.7, 1.1 * 0.9, 3.7 * 1.1]) ** alpha)
            )

    def test_row_sums_of_empty_rows_are_zero(self) -> None:
        np.testing.assert_array_equal(
            row_sums(np.array([0, 0, 2, 2, 3, 3]), np.array([1.0, 2.0, 4.0])), [0, 3, 0, 4, 0]
        )

    @pytest.mark.parametrize("rule", ["self-tuned", "adaptive"])
    def test_compiled_scales_have_the_bytes_of_numpy(self, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(0)
        rho, halo = rng.lognormal(size=2), rng.lognormal(size=1)
        found = [kernels.local_squared_block(block(), rho, halo, rule), csr.products(block(), rho, halo)]
        monkeypatch.setattr(csr, "COMPILED", 0)
        for plain, fast in zip(
            found,
            [kernels.local_squared_block(block(), rho, halo, rule), csr.products(block(), rho, halo)],
            strict=True,
        ):
            np.testing.assert_array_equal(fast, plain)


def laplacian(a: np.ndarray, b: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return np.exp(-np.abs(a[:, None] - b[None]).sum(axis=2) / scale)


def flat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.ones(len(a))


class TestFunctions:
    """Kernel functions against scikit-learn's, and what a user's function may do wrong."""

    @pytest.mark.parametrize("name", kernels.KERNELS)
    def test_named_kernels_are_those_of_scikit_learn(self, name: str) -> None:
        generator = np.random.default_rng(0)
        a, b = generator.normal(size=(40, 6)), generator.normal(size=(30, 6))
        numbers = {"rbf": {"gamma": 0.3}, "poly": {"gamma": 0.3, "degree": 2, "coef0": 0.5}}
        given = numbers.get(name, {"gamma": 0.3, "coef0": 0.5} if name == "sigmoid" else {})
        wanted = pairwise_kernels(a, b, metric=name, **given)
        np.testing.assert_allclose(kernels.Kernel(name, **given)(a, b), wanted, rtol=1e-12, atol=1e-13)
        if given:
            assert np.abs(kernels.Kernel(name, **(given | {"gamma": 0.4}))(a, b) - wanted).max() > 1e-2  # control

    def test_distances_do_not_cancel_far_from_the_origin(self) -> None:
        rows = np.random.default_rng(0).normal(size=(50, 4))
        near = kernels.squared_distances(rows, rows)
        far = kernels.squared_distances(rows + 1e6, rows + 1e6)
        np.testing.assert_allclose(far, near, atol=1e-8)
        moved = rows + 1e6
        naive = (moved**2).sum(1)[:, None] + (moved**2).sum(1) - 2 * moved @ moved.T
        assert np.abs(naive - near).max() > 1e-4  # a control: without the shift

    @pytest.mark.parametrize("name", [*kernels.KERNELS, laplacian])
    def test_a_row_has_the_same_values_in_every_batch(self, name: object) -> None:
        generator = np.random.default_rng(1)
        rows, others = generator.normal(size=(700, 5)), generator.normal(size=(33, 5))
        kernel = kernels.Kernel(name, gamma=0.2)  # type: ignore[arg-type]
        whole = kernels.in_tiles(lambda tile: kernel(tile, others), rows, len(others))
        for part in (slice(0, 1), slice(3, 9), slice(255, 600)):
            assert np.array_equal(
                kernels.in_tiles(lambda tile: kernel(tile, others), rows[part], len(others)), whole[part]
            )

    def test_functions_get_their_parameters_and_a_key_that_knows_their_text(self) -> None:
        rows = np.array([[0.0], [1.0]])
        kernel = kernels.checked_kernel(laplacian, {"scale": 2.0})
        assert kernel(rows, rows)[0, 1] == pytest.approx(np.exp(-0.5))
        assert "abs" in kernel.key()["source"]
        assert kernel.key() != kernels.checked_kernel(laplacian, {"scale": 3.0}).key()

    def test_what_is_wrong_is_named(self) -> None:
        with pytest.raises(InputError, match=r"'rbff'.*did you mean 'rbf'"):
            kernels.checked_kernel("rbff")
        with pytest.raises(InputError, match=r"kernel='nowhere:f'.*cannot be imported"):
            kernels.checked_kernel("nowhere:f")
        with pytest.raises(InputError, match=r"flat: blocks of 2 and 3 rows.*shape \(2, 3\)"):
            kernels.Kernel(flat)(np.zeros((2, 1)), np.zeros((3, 1)))
        assert kernels.wrong_values(np.array([[1.0, np.inf], [np.nan, 0.0]]), 10) == [(10, 1), (11, 0)]
        assert kernels.wrong_values(np.array([[1e308, 1e308]])) == []  # a sum that overflows is no offence


TILT = 9 / 11  # 1 + TILT cos θ: density ratio 10
N = 4_096


def angles(u: np.ndarray, tilt: float = TILT) -> np.ndarray:
    """Quantiles of the density ∝ 1 + tilt cos θ."""
    grid = np.linspace(0, 2 * np.pi, 20_001)
    return np.interp(u, (grid + tilt * np.sin(grid)) / (2 * np.pi), grid)


def sample(name: str) -> np.ndarray:
    """Random rows of density ratio 10."""
    u, v = np.random.default_rng(0).uniform(size=(N, 2)).T
    turn, other = angles(u), 2 * np.pi * v
    circle, even = np.column_stack([np.cos(turn), np.sin(turn)]), np.column_stack([np.cos(other), np.sin(other)])
    if name == "circle":
        return circle
    if name == "torus":
        return np.hstack([circle, even])
    z = np.linspace(-1, 1, 20_001)
    height = np.interp(u, ((z + 1) + TILT * (z**2 - 1) / 2) / 2, z)
    return np.column_stack([even * np.sqrt(1 - height**2)[:, None], height])


def levels(values: np.ndarray, multiplicities: list[int]) -> np.ndarray:
    ends = np.cumsum([0, *multiplicities])
    return np.array([values[a:b].mean() for a, b in pairwise(ends.tolist())])


TRUTH = {
    "circle": ([1, 4, 9, 16, 25, 36], [2] * 6),
    "sphere": ([2, 6, 12], [3, 5, 7]),
    "torus": ([1, 2, 4, 5], [4, 4, 4, 8]),
}
UNEVEN = np.random.default_rng(3).normal(size=(500, 3)) ** 3
PARTS = np.vstack([UNEVEN[:300] / 50, UNEVEN[300:] / 50 + 40, [[500.0, 0, 0], [500.1, 0, 0]]])
REPEATED = np.vstack([UNEVEN[:400], UNEVEN[:1].repeat(30, axis=0)])
"""31 copies of one row, more than it has neighbors: which of the others they join to is decided by their numbers."""


@pytest.mark.filterwarnings("ignore::bigembed.errors.HarmonicWarning")
@pytest.mark.filterwarnings("ignore::bigembed.errors.SeparationWarning")
class TestTargets:
    """What the walk tends to: spectra of uneven samples against closed forms and fine grids; the kernel on a
    k-graph."""

    @a_few(1, "name", ["circle", "sphere", pytest.param("torus", marks=pytest.mark.slow)])
    def test_laplace_beltrami_whatever_the_density(self, name: str) -> None:
        truth, multiplicities = TRUTH[name]
        fitted = be.DiffusionMap(sum(multiplicities), target="laplace-beltrami").fit(sample(name))
        found = levels(fitted.generator_eigenvalues_, multiplicities)
        np.testing.assert_allclose(found / found[0], np.array(truth) / truth[0], rtol=0.05)
        np.testing.assert_allclose(found, truth, rtol=0.06)
        assert fitted.certificate_["dimension"]["value"] == pytest.approx(1 if name == "circle" else 2, abs=0.25)

    @pytest.mark.parametrize("target", ["fokker-planck", "random-walk"])
    @pytest.mark.parametrize("bandwidth", ["adaptive", "fixed"])
    @pytest.mark.slow
    def test_drift_against_a_fine_grid(self, target: str, bandwidth: str) -> None:
        """−p^{−c} (p^c f′)′ = μ f on a circle of density p ∝ 1 + cos θ/2."""
        cells, tilt = 800, 0.5
        at = 2 * np.pi * (np.arange(cells) + 0.5) / cells
        step, weight = 2 * np.pi / cells, (1 + tilt * np.cos(at)) ** kernels.DRIFT[target]
        between = (weight + np.roll(weight, -1)) / 2 / step**2
        stiffness = np.diag(between + np.roll(between, 1))
        ends = np.arange(cells), np.roll(np.arange(cells), -1)
        stiffness[ends] -= between
        stiffness[ends[::-1]] -= between
        truth = eigh(stiffness, np.diag(weight), eigvals_only=True, subset_by_index=[1, 4])
        turn = angles(np.random.default_rng(1).uniform(size=N), tilt)
        rows = np.column_stack([np.cos(turn), np.sin(turn)])
        if bandwidth == "adaptive":
            fitted = be.DiffusionMap(4, target=target, n_neighbors=120).fit(rows)
            few = be.DiffusionMap(4, target=target).fit(rows).generator_eigenvalues_
            np.testing.assert_allclose(few / few.mean(), truth / truth.mean(), rtol=0.05)  # scatter of q: one factor
        else:
            fitted = be.DiffusionMap(4, target=target, bandwidth="fixed", n_neighbors=300, epsilon=0.004).fit(rows)
        np.testing.assert_allclose(fitted.generator_eigenvalues_, truth, rtol=0.08)

    @pytest.mark.parametrize("dimension", [1.0, 2.0, 3.5, 10.0])
    def test_cut_moment_is_that_of_the_integrals(self, dimension: float) -> None:
        for reach in (0.3, 1.0, 4.0):
            second, mass = (
                quad(lambda r, p=p: r ** (dimension - 1 + p) * np.exp(-(r**2)), 0, np.sqrt(reach))[0] for p in (2, 0)
            )
            assert kernels.cut_moment(dimension, reach) == pytest.approx(2 / dimension * second / mass)

    @a_few(1, ("bandwidth", "left"), [("fixed", 0.51), ("adaptive", 0.77), ("self-tuned", 0.51)])
    def test_the_end_of_the_kernel_at_the_last_neighbor_is_corrected(self, bandwidth: str, left: float) -> None:
        """A regular circle: 4(1 − λ)/ε is a part of the eigenvalue; with the moment of the kernel cut, all of it.

        The part is the cut moment in one dimension: at e⁻¹, or at e⁻² with half of the scale.
        """
        assert kernels.cut_moment(1.0, 2.0 if bandwidth == "adaptive" else 1.0) == pytest.approx(left, abs=0.01)
        turn = 2 * np.pi * np.arange(2_400) / 2_400
        rows = np.column_stack([np.cos(turn), np.sin(turn)])
        fitted = be.DiffusionMap(2, bandwidth=bandwidth, n_neighbors=200).fit(rows)
        scale = 1.0 if bandwidth == "fixed" else fitted.certificate_["bandwidth"]["median_kth"]
        np.testing.assert_allclose(fitted.generator_eigenvalues_ / scale, 1.0, rtol=0.03)
        np.testing.assert_allclose(4 * (1 - fitted.eigenvalues_) / fitted.epsilon_ / scale, left, rtol=0.05)

    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    @a_few(
        3,
        ("rows", "parameters"),
        [
            (UNEVEN, {"target": "laplace-beltrami"}),
            (UNEVEN, {"t": 3}),
            (PARTS, {}),
            (PARTS, {"components": "bridge"}),
            (REPEATED, {}),
            (REPEATED, {"target": "laplace-beltrami"}),
        ],
    )
    def test_fitted_rows_come_back_and_new_ones_by_themselves(self, rows: np.ndarray, parameters: dict) -> None:
        fitted = be.DiffusionMap(4, n_neighbors=10, **parameters).fit(rows)
        again, largest = fitted.transform(rows), np.abs(fitted.embedding_).max()
        kept = slice(None) if rows is not REPEATED else slice(1, 400)
        close = 1e-4 if "components" in parameters else 1e-5  # rows at the end of a bridge are placed without it
        np.testing.assert_allclose(again[kept], fitted.embedding_[kept], atol=close * largest)
        assert np.unique(again[400:430], axis=0).shape[0] == (1 if rows is REPEATED else 30)
        np.testing.assert_allclose(again, fitted.embedding_, atol=0.05 * largest)
        new = np.vstack([rows[::25] + 0.01, [[1e4, 0, 0]]])
        together = fitted.transform(new)
        assert np.isfinite(together).all()
        np.testing.assert_array_equal(np.vstack([fitted.transform(row[None]) for row in new]), together)

    def test_a_target_of_single_neighbors_needs_a_dimension(self) -> None:
        with pytest.raises(InputError, match="Give dimension as a number"):
            be.DiffusionMap(1, n_neighbors=1, target="random-walk").fit(UNEVEN)

    @pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
    def test_evenly_spaced_rows_are_said_where_a_target_is_named(self) -> None:
        def fit(turn: np.ndarray) -> be.DiffusionMap:
            return be.DiffusionMap(2, target="laplace-beltrami").fit(np.column_stack([np.cos(turn), np.sin(turn)]))

        even = fit(2 * np.pi * np.arange(500) / 500)
        random = fit(2 * np.pi * np.random.default_rng(0).uniform(size=500))
        assert even.generator_eigenvalues_[0] > 1.1  # 1 in the limit
        assert any("evenly spaced" in said for said in even.certificate_["warnings"]["degenerate"])
        assert not random.certificate_["warnings"]["degenerate"]


def moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = values.mean(axis=0)
    return mean, (values - mean).T @ (values - mean)


class TestSubspaces:
    """Nyström, Galerkin and Roseland mathematics against dense references."""

    @pytest.mark.parametrize(
        "kernel", [kernels.Kernel("rbf", gamma=0.1), kernels.Kernel("sigmoid", gamma=0.3, coef0=-1.0)]
    )
    def test_the_landmark_kernel_is_solved_exactly_and_centered_on_all_rows(self, kernel: kernels.Kernel) -> None:
        rows = np.random.default_rng(0).normal(size=(200, 3))
        landmarks = rows[::8]
        c, w = kernel(rows, landmarks), kernel(landmarks, landmarks)
        found = landmark_maps.centered_map(w, *moments(c), 4)
        center = np.eye(200) - 1 / 200
        approximation = center @ c @ np.linalg.pinv(w, rcond=1e-12, hermitian=True) @ c.T @ center
        values, vectors = eigh((approximation + approximation.T) / 2)
        np.testing.assert_allclose(found.values, values[::-1][:4], rtol=1e-6)
        wanted = vectors[:, ::-1][:, :4] * np.sqrt(values[::-1][:4])
        got = (c - found.mean) @ found.matrix
        np.testing.assert_allclose(got * np.sign((got * wanted).sum(axis=0)), wanted, atol=1e-5 * np.abs(wanted).max())
        off = (
            c - kernel(landmarks, landmarks).mean(axis=0)
        ) @ found.matrix  # a control: centered on the landmarks only
        assert np.abs(off - got).max() > 1e-3 * np.abs(got).max()

    def test_interpolation_sums_to_one_and_keeps_linear_functions(self) -> None:
        generator = np.random.default_rng(2)
        landmarks, rows = generator.uniform(size=(300, 2)), generator.uniform(0.1, 0.9, size=(100, 2))
        p = landmark_maps.barycentric_rows(rows, landmarks)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
        error = np.abs(p @ landmarks - rows).max()
        spacing = np.sort(((rows[:, None] - landmarks) ** 2).sum(axis=2), axis=1)[:, 4].max() ** 0.5
        assert error < 0.05 * spacing
        plain = landmarks[landmark_maps.nearest(((rows[:, None] - landmarks) ** 2).sum(axis=2), 1)[:, 0]]
        assert np.abs(plain - rows).max() > 5 * error  # a control: the nearest landmark alone

    @pytest.mark.parametrize("rule", ["adaptive", "self-tuned", "fixed", "binary"])
    def test_functions_of_landmarks_are_eigenvectors_there_and_finite_far_away(self, rule: str) -> None:
        landmarks = np.random.default_rng(3).normal(size=(60, 2))
        functions = landmark_maps.LandmarkFunctions(
            landmarks, landmark_maps.LandmarkKernel(9, rule, 1.0, 1.0, kth=0.5), 4
        )
        np.testing.assert_allclose(functions(landmarks), functions.vectors, atol=1e-9)
        np.testing.assert_allclose(functions.vectors[:, 0], functions.vectors[0, 0])
        assert np.isfinite(functions(np.full((1, 2), 1e6))).all()

    def test_roseland_is_the_singular_value_decomposition(self) -> None:
        generator = np.random.default_rng(4)
        rows, landmarks = generator.normal(size=(400, 2)), generator.normal(size=(50, 2))
        walk = landmark_walk.Walk(landmark_walk.auto_epsilon(landmarks))
        weights, scale = walk(rows, landmarks)
        sums = landmark_walk.sums_block(weights, scale)
        gram, reached = landmark_walk.gram_block(weights, scale, sums)
        result, matrix = landmark_walk.spectrum(gram, sums, 5)
        w = np.exp(-((rows[:, None] - landmarks) ** 2).sum(axis=2) / walk.epsilon)
        d = w @ w.sum(axis=0)
        u, s, _ = svd(w / np.sqrt(d)[:, None], full_matrices=False)
        assert s[0] == pytest.approx(1)
        np.testing.assert_allclose(result.eigenvalues, s[1:6] ** 2, atol=1e-12)
        wanted = u[:, 1:6] / np.sqrt(d)[:, None] * np.sqrt(d.sum())
        got = landmark_walk.coordinates_block(weights, sums, matrix)
        np.testing.assert_allclose(got * np.sign((got * wanted).sum(axis=0)), wanted, atol=1e-8)
        np.testing.assert_allclose((got * d[:, None] / d.sum()).T @ got, np.eye(5), atol=1e-9)
        np.testing.assert_allclose(scale * reached, d, rtol=1e-10)

    def test_roseland_rows_beyond_reach_take_the_values_of_their_landmark(self) -> None:
        landmarks = np.array([[0.0], [1.0], [2.0]])
        rows = np.concatenate([landmarks, [[1e5]]])
        weights, scale = landmark_walk.Walk(0.5)(rows, landmarks)
        assert scale[3] == 0
        assert weights[3].tolist() == [0, 0, 1]
        assert np.isfinite(landmark_walk.gram_block(weights, scale, landmark_walk.sums_block(weights, scale))[0]).all()
        assert landmark_walk.landmark_parts(np.eye(3)) == 3
        assert landmark_walk.landmark_parts(np.ones((3, 3))) == 1
