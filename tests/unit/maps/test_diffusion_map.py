"""Diffusion maps, of every graph and kernel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import linalg
from scipy.linalg import eigh, subspace_angles
from scipy.sparse import csr_array

import bigembed as be
from bigembed import errors
from bigembed.datasets import complete_graph, ring_graph, ring_graphs
from bigembed.distance import all_squared, every_squared
from bigembed.maps.walk import spectral
from bigembed.rows.input import row_source
from bigembed.runtime import blocks as canonical
from tests.some import a_few


def blobs(*sizes: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.normal(size=(size, 3)) + 60 * number for number, size in enumerate(sizes)])


def reference(X: np.ndarray, k: int, epsilon: float, alpha: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and RᵀΠR = I right eigenvectors of P by a dense eigensolver (seed 000, §9.2 and §9.6)."""
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    near = np.argsort(squared + np.where(np.eye(len(X)), np.inf, 0), axis=1, kind="stable")[:, :k]
    joined = np.eye(len(X), dtype=bool)
    np.put_along_axis(joined, near, True, axis=1)
    kernel = np.where(joined | joined.T, np.exp(-squared / epsilon), 0.0)
    q = kernel.sum(axis=1)
    weights = kernel / np.outer(q, q) ** alpha
    d = weights.sum(axis=1)
    values, vectors = eigh(weights / np.sqrt(np.outer(d, d)))
    return values[::-1][1 : m + 1], vectors[:, ::-1][:, 1 : m + 1] * np.sqrt(d.sum() / d)[:, None]


def uneven_ring() -> csr_array:
    """A ring of 60 weights 1e-10, but for one of 1e3 far from nodes 5 and 6."""
    i = np.arange(60)
    weight = np.where(i == 30, 1e3, 1e-10)
    return csr_array((np.tile(weight, 2), (np.r_[i, (i + 1) % 60], np.r_[(i + 1) % 60, i])))


# Formulas are tested on graphs that the certificate marks, and rightly: that is the subject of test_judgement.py.
@pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
class TestDiffusionMap:
    """Diffusion maps against closed forms and dense references."""

    def test_ring_graph_is_mapped_to_a_circle(self) -> None:
        n = 60
        dm = be.DiffusionMap(n_components=4, t=0).fit(ring_graph(n))
        np.testing.assert_allclose(dm.eigenvalues_, np.cos(2 * np.pi * np.array([1, 1, 2, 2]) / n), atol=1e-12)
        radius = np.hypot(dm.embedding_[:, 0], dm.embedding_[:, 1])
        np.testing.assert_allclose(radius, np.sqrt(2), atol=1e-9)  # RᵀΠR = I with π = 1/n

    def test_two_disjoint_rings_are_told_apart_first(self) -> None:
        n1, n2 = 30, 20
        with pytest.warns(errors.ComponentsWarning, match="2 components"):
            dm = be.DiffusionMap(n_components=5, t=0).fit(ring_graphs(n1, n2))
        np.testing.assert_allclose(
            dm.eigenvalues_,
            [1, *np.cos(2 * np.pi * np.array([1, 1]) / n1), *sorted([np.cos(2 * np.pi / n2)] * 2)],
            atol=1e-12,
        )
        first = dm.embedding_[:, 0]
        np.testing.assert_allclose(first / first[0] * n2, np.r_[np.full(n1, n2), np.full(n2, -n1)])
        assert np.abs(dm.embedding_[n1:, 1:3]).max() < 1e-12  # then the larger ring
        assert dm.labels_.tolist() == [0] * n1 + [1] * n2

    @a_few(2, "alpha", [0.0, 0.5, 1.0, -0.3])
    def test_agrees_with_a_dense_eigensolver(self, alpha: float) -> None:
        X = np.random.default_rng(0).normal(size=(400, 3))
        dm = be.DiffusionMap(n_components=5, n_neighbors=10, alpha=alpha, epsilon=0.7, t=0).fit(X)
        values, right = reference(X, 10, 0.7, alpha, 5)
        np.testing.assert_allclose(dm.eigenvalues_, values, atol=1e-7)
        assert subspace_angles(dm.embedding_, right).max() < 1e-5
        wrong = reference(X, 10, 0.7, alpha + 0.5, 5)[1]  # a control: another alpha is distinguished
        assert subspace_angles(dm.embedding_, wrong).max() > 1e-2

    def test_normalization_is_that_of_the_source(self) -> None:
        X = np.random.default_rng(1).normal(size=(300, 3))
        dm = be.DiffusionMap(n_components=3, n_neighbors=10, alpha=0.0, epsilon=0.7, t=0).fit(X)
        values, right = reference(X, 10, 0.7, 0.0, 3)
        signs = np.sign((right * dm.embedding_).sum(axis=0))
        np.testing.assert_allclose(dm.embedding_, right * signs, atol=1e-5)
        scaled = be.DiffusionMap(n_components=3, n_neighbors=10, alpha=0.0, epsilon=0.7, t=3).fit(X)
        np.testing.assert_allclose(scaled.embedding_, dm.embedding_ * values**3, atol=1e-5)
        np.testing.assert_allclose(
            scaled.diffusion_distance(4, 9)[0], np.linalg.norm(scaled.embedding_[4] - scaled.embedding_[9])
        )

    def test_complete_map_gives_diffusion_distances(self) -> None:
        """Seed 000 eqs. 23 and 25: with all coordinates, distances equal Σ_m (p_im − p_jm)²/π_m."""
        X = np.random.default_rng(2).normal(size=(40, 2))
        dm = be.DiffusionMap(n_components=39, n_neighbors=None, alpha=0.0, epsilon=1.5, t=2).fit(X)
        kernel = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 1.5)
        pi = kernel.sum(axis=1) / kernel.sum()
        P = np.linalg.matrix_power(kernel / kernel.sum(axis=1, keepdims=True), 2)
        i, j = np.array([0, 5, 7]), np.array([3, 9, 30])
        wanted = np.sqrt(((P[i] - P[j]) ** 2 / pi).sum(axis=1))
        np.testing.assert_allclose(dm.diffusion_distance(i, j), wanted, rtol=1e-5)

    def test_time_and_truncation_by_accuracy(self) -> None:
        X = np.random.default_rng(3).normal(size=(300, 3))
        values = be.DiffusionMap(n_components=4, n_neighbors=10, t=0).fit(X).eigenvalues_
        auto = be.DiffusionMap(n_components=4, n_neighbors=10, t="auto", delta=0.1).fit(X)
        assert (values[3] / values[0]) ** auto.t_ <= 0.1 < (values[3] / values[0]) ** (auto.t_ - 1)
        cut = be.DiffusionMap(n_components=4, n_neighbors=10, t=auto.t_, delta=0.3).fit(X)
        powers = (values / values[0]) ** auto.t_
        assert cut.n_components_ == (powers > 0.3).sum() == cut.embedding_.shape[1]

    def test_equal_eigenvalues_leave_time_at_one_with_a_warning(self) -> None:
        with pytest.warns(errors.DegenerateWarning, match="0/0"):
            dm = be.DiffusionMap(n_components=2, t="auto").fit(complete_graph(6))
        assert dm.t_ == 1

    def test_epsilon_rules(self) -> None:
        X = np.random.default_rng(4).normal(size=(300, 2))
        squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        nearest = np.sort(squared + np.where(np.eye(300), np.inf, 0), axis=1)

        def epsilon(**parameters: object) -> float:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return (
                    be.DiffusionMap(n_components=1, n_neighbors=8, components="joint")
                    .set_params(**parameters)
                    .fit(X)
                    .epsilon_
                )

        assert epsilon(bandwidth="fixed") == pytest.approx(np.sort(nearest[:, 7])[149], rel=1e-6)
        assert epsilon(epsilon="auto") == 0.5  # times the scales of the rows
        assert epsilon(epsilon="auto", target="laplace-beltrami") == 1.0
        assert epsilon(epsilon="max-min") == pytest.approx(nearest[:, 0].max(), rel=1e-6)
        assert epsilon(epsilon="mean-min") == pytest.approx(2 * nearest[:, 0].mean(), rel=1e-6)
        assert epsilon(sigma=0.4) == pytest.approx(0.32)
        assert epsilon(epsilon="median", n_neighbors=None) == pytest.approx(
            np.median(squared[np.triu_indices(300, 1)]), rel=1e-4
        )
        assert epsilon(epsilon=0.25) == 0.25

    def test_a_scale_that_a_graph_cannot_hold_names_both_routes(self) -> None:
        X = np.random.default_rng(5).normal(size=(300, 2))
        for rule in ("ksum", "median"):
            with pytest.raises(errors.InputError, match=r"n_neighbors=None.*epsilon='auto'"):
                be.DiffusionMap(epsilon=rule).fit(X)
        with pytest.warns(errors.DegenerateWarning, match="cuts the kernel off"):
            be.DiffusionMap(epsilon=1e3).fit(X)

    def test_ksum_finds_the_dimension_of_a_sphere(self) -> None:
        X = np.random.default_rng(6).normal(size=(4000, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        dm = be.DiffusionMap(n_components=3).fit(X)
        assert dm.certificate_["bandwidth"]["dimension"] == pytest.approx(2, abs=0.2)
        gaps = -np.log(dm.eigenvalues_)  # Laplace–Beltrami: l = 1 three times
        assert gaps.max() / gaps.min() < 1.25

    def test_self_tuned_and_truncated_kernels(self) -> None:
        generator = np.random.default_rng(7)
        X = np.concatenate([generator.normal(size=(200, 2)) * 0.05, generator.normal(size=(200, 2)) * 2])
        tuned = be.DiffusionMap(n_components=2, n_neighbors=12, bandwidth="self-tuned").fit(X)
        assert tuned.epsilon_ == 1.0
        with pytest.warns(errors.ComponentsWarning):
            truncated = be.DiffusionMap(
                n_components=2, n_neighbors=12, truncated=True, epsilon=0.02, components="joint"
            ).fit(X)
        assert truncated.certificate_["components"] > tuned.certificate_["components"]

    @pytest.mark.parametrize("policy", ["largest", "per-component", "joint", "bridge"])
    def test_every_row_has_coordinates_under_every_policy(self, policy: str) -> None:
        X = blobs(120, 60, 12)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.ComponentsWarning)
            dm = be.DiffusionMap(n_components=3, n_neighbors=8, components=policy, bandwidth="fixed").fit(X)
        assert dm.embedding_.shape == (192, 3)
        assert np.isfinite(dm.embedding_).all()
        if policy == "bridge":
            assert dm.certificate_["components"] == 1
            return
        assert np.bincount(dm.labels_).tolist() == [120, 60, 12]
        back = dm.transform(X)
        np.testing.assert_allclose(back, dm.embedding_, atol=1e-4 * np.abs(dm.embedding_).max())
        if policy == "largest":
            for row in (130, 185):
                squared = ((X[:120] - X[row]) ** 2).sum(axis=1)
                np.testing.assert_array_equal(dm.embedding_[row], dm.embedding_[np.argmin(squared)])
        if policy == "per-component":
            assert dm.eigenvalues_.shape == (3, 3)
            values, _ = reference(X[:120], 8, dm.epsilon_, 1.0, 3)
            np.testing.assert_allclose(dm.eigenvalues_[0], values, atol=1e-6)

    def test_disconnected_rows_are_an_error_that_lists_the_sizes(self) -> None:
        with pytest.raises(errors.DisconnectedGraphError, match=r"2 connected components, of 100, 50 rows.*'largest'"):
            be.DiffusionMap(n_neighbors=6, components="error").fit(blobs(100, 50))

    def test_what_was_not_fitted_says_so(self) -> None:
        with pytest.raises(errors.NotFittedError):
            be.DiffusionMap().transform(np.zeros((2, 2)))
        dm = be.DiffusionMap().fit(ring_graph(20))
        with pytest.raises(errors.InputTypeError, match="user's weights"):
            dm.transform(np.zeros((2, 2)))

    def test_a_solver_that_runs_out_of_passes_warns_and_certifies(self) -> None:
        with pytest.warns(errors.ConvergenceWarning, match="max passes"):
            dm = be.DiffusionMap(n_components=4, tol=1e-12, max_passes=6).fit(ring_graph(4_000))
        assert dm.certificate_["converged"] is False
        assert dm.residuals_.max() > 1e-12

    def test_symmetry_of_weights_is_judged_beside_their_neighbors(self) -> None:
        weights = uneven_ring().tolil()
        weights[5, 6] = 5e-10
        with pytest.raises(errors.InputError, match=r"not symmetric: w\[5, 6\] and w\[6, 5\] differ by 0\.8 of"):
            be.DiffusionMap(2, alpha=0).fit(csr_array(weights))
        be.DiffusionMap(2, alpha=0).fit(uneven_ring())  # control

    @pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
    @a_few(2, "scale", [2.0**-700, 1e-170, 1e170, 2.0**900])
    def test_the_scale_of_weights_says_nothing(self, alpha: float, scale: float) -> None:
        """P of c·W is P of W, for any c and α."""
        i = np.arange(60)
        weight = 1 + np.random.default_rng(0).random(60)
        weights = csr_array((np.tile(weight, 2), (np.r_[i, (i + 1) % 60], np.r_[(i + 1) % 60, i])))
        wanted = be.DiffusionMap(4, alpha=alpha).fit(weights)
        found = be.DiffusionMap(4, alpha=alpha).fit(weights * scale)
        np.testing.assert_allclose(found.eigenvalues_, wanted.eigenvalues_, rtol=1e-12)
        assert found.certificate_["components"] == 1

    def test_truncation_is_by_the_size_of_eigenvalues(self) -> None:
        """A ring of 40: cos(2πl/40), 24 of them beside λ_1 itself are beyond half of |−1|; the last are negative."""
        i = np.arange(40)
        ring = csr_array((np.ones(80), (np.r_[i, (i + 1) % 40], np.r_[(i + 1) % 40, i])))
        whole = be.DiffusionMap(39, alpha=0, t=1).fit(ring)
        found = be.DiffusionMap(39, alpha=0, t=1, delta=0.5).fit(ring)
        large = np.abs(whole.eigenvalues_) > 0.5
        assert found.n_components_ == large.sum() == 25
        np.testing.assert_allclose(found.embedding_, whole.embedding_[:, large])

    def test_the_time_of_a_graph_with_negative_eigenvalues(self) -> None:
        """Eq. 29 by |λ|: K(3, 3) has −1 and zeros, so that t = 1 leaves the first alone; 0/0 is not met."""
        blank = np.zeros((6, 6))
        blank[:3, 3:] = blank[3:, :3] = 1
        found = be.DiffusionMap(5, alpha=0, t="auto").fit(csr_array(blank))
        np.testing.assert_allclose(found.eigenvalues_, [0, 0, 0, 0, -1], atol=1e-12)
        assert found.t_ == 1
        assert found.certificate_["warnings"]["degenerate"] == []
        path = csr_array(np.eye(9, k=1) + np.eye(9, k=-1) + np.diag([1.0, *np.zeros(8)]))
        sizes = np.abs(be.DiffusionMap(8, alpha=0).fit(path).eigenvalues_)
        t = be.DiffusionMap(8, alpha=0, t="auto", delta=0.1).fit(path).t_
        assert (sizes.min() / sizes.max()) ** t <= 0.1 < (sizes.min() / sizes.max()) ** (t - 1)

    def test_transform_keeps_the_columns_that_the_map_kept(self) -> None:
        """The complete kernel of few rows, with a truncation in between."""
        rows = np.random.default_rng(0).normal(size=(60, 2))
        found = be.DiffusionMap(6, n_neighbors=None, t=3, delta=0.2).fit(rows)
        np.testing.assert_allclose(found.transform(rows), found.embedding_, atol=1e-6)


EPSILON = 0.5
EDGE = float(np.sqrt(4.5 * EPSILON))
"""Where a truncated kernel of this scale ends (seed 000 §9.6)."""


def cloud(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).uniform(-2, 2, size=(n, 3))


def circle(angle: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(angle), np.sin(angle)])


@pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
class TestRadiusMap:
    """Diffusion maps of a graph of a radius with one scale, against closed forms and the complete kernel."""

    @pytest.fixture
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Blocks of at most 300 rows."""
        monkeypatch.setattr(canonical, "MAX_BLOCK_ROWS", 300)
        monkeypatch.setattr(canonical, "MIN_BLOCK_ROWS", 100)

    def test_equals_the_truncated_complete_kernel(self, small_blocks: None) -> None:
        X = cloud()
        within = be.DiffusionMap(4, radius=EDGE, epsilon=EPSILON, t=0, tol=1e-9).fit(X)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(canonical, "MAX_BLOCK_ROWS", 10_000)
            every = be.DiffusionMap(4, n_neighbors=None, epsilon=EPSILON, truncated=True, t=0, tol=1e-9).fit(X)
        assert len(within.graph_.matrix.rows) > 1
        np.testing.assert_allclose(within.eigenvalues_, every.eigenvalues_, atol=1e-7)
        np.testing.assert_allclose(within.embedding_, every.embedding_, atol=1e-4)
        shorter = be.DiffusionMap(4, radius=0.9 * EDGE, epsilon=EPSILON / 1.3, t=0).fit(X)  # a control
        assert np.abs(shorter.eigenvalues_ - every.eigenvalues_).max() > 1e-2

    @a_few(1, "alpha", [0.0, 1.0])
    def test_even_circle(self, alpha: float) -> None:
        X = circle(np.linspace(0, 2 * np.pi, 1_500, endpoint=False))
        dm = be.DiffusionMap(2, radius=0.3, epsilon=0.02, alpha=alpha).fit(X)
        np.testing.assert_allclose(dm.generator_eigenvalues_, 1, rtol=0.03)
        assert dm.certificate_["dimension"]["value"] == pytest.approx(1, abs=0.1)
        assert dm.certificate_["bandwidth"]["dimension"] == pytest.approx(1.2, abs=0.1)  # by the sums, and curvature

    @a_few(2, "asked", [{}, {"target": "fokker-planck"}, {"alpha": 0.3}, {"metric": "cosine"}], ids=str)
    def test_fitted_rows_come_back_and_new_ones_lie_between(self, small_blocks: None, asked: dict[str, Any]) -> None:
        X = np.abs(cloud(700))
        scale = {"radius": 0.4, "epsilon": 0.03} if "metric" in asked else {"radius": EDGE / 2, "epsilon": EPSILON / 4}
        dm = be.DiffusionMap(3, t=0, tol=1e-9, **scale, **asked).fit(X)
        np.testing.assert_allclose(dm.transform(X), dm.embedding_, atol=1e-5)
        new = X[:50] * 1.01
        there = dm.transform(new)
        assert np.abs(there - dm.embedding_[:50]).max() < 0.5
        far = dm.transform(X[:1] + 1e3)  # out of reach of all: the place of the nearest row
        assert "metric" in asked or (np.abs(far - dm.embedding_).max(axis=1) < 1e-12).any()

    @a_few(1, "target", [None, "laplace-beltrami"])
    def test_rows_without_neighbors_are_islands(self, target: str | None) -> None:
        X = np.concatenate([cloud(), [[30.0, 0, 0], [0, -30.0, 0]]])
        with pytest.warns(errors.ComponentsWarning, match="2 rows in 2 islands"):
            dm = be.DiffusionMap(2, radius=EDGE, epsilon=EPSILON, target=target).fit(X)
        assert dm.labels_.tolist() == [0] * 400 + [-1] * 2
        assert np.isfinite(dm.embedding_).all()
        nearest = [np.argmin(((X[:400] - row) ** 2).sum(axis=1)) for row in X[400:]]
        np.testing.assert_array_equal(dm.embedding_[400:], dm.embedding_[nearest])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            joined = be.DiffusionMap(2, radius=EDGE, epsilon=EPSILON, components="bridge").fit(X)
        assert joined.certificate_["components"] == 1

    def test_a_kernel_cut_where_it_is_not_small_warns(self) -> None:
        with pytest.warns(
            errors.DegenerateWarning, match=r"radius=1 ends the kernel where it is 0\.14, .* at least 1\.414"
        ):
            be.DiffusionMap(2, radius=1.0, epsilon=0.5).fit(cloud())

    def test_refusals_of_a_graph_and_of_too_many_edges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = be.build_neighbor_graph(cloud(), radius=1.0)
        for asked in ({}, {"epsilon": 0.1, "bandwidth": "self-tuned"}, {"bandwidth": "fixed"}):
            with pytest.raises(errors.InputError, match="graph of a radius has one scale"):
                be.DiffusionMap(2, **asked).fit(graph)
        monkeypatch.setattr("bigembed.neighbors.radius.BLOCK_EDGES", 1_000)
        with pytest.raises(errors.PlanError, match="would join"):
            be.DiffusionMap(2, radius=1.0, epsilon=0.2).fit(cloud())


def rows(n=150, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def reference_of_every_pair(X, epsilon, alpha, m):
    """Eigenvalues of the complete diffusion map, from the formulas."""
    kernel = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / epsilon)
    q = kernel.sum(axis=1)
    weights = (kernel / np.outer(q, q) ** alpha).astype("f4").astype("f8")
    root = np.sqrt(weights.sum(axis=1))
    return linalg.eigvalsh(weights / np.outer(root, root))[-2 : -m - 2 : -1]


@pytest.mark.filterwarnings(  # of Gaussian rows, which have outlying ones
    *(f"ignore::bigembed.errors.{name}" for name in ("LocalizedWarning", "DegenerateWarning", "MapWarning"))
)
class TestEveryPair:
    """The complete kernel as one dense block: what lists of all other rows give, in one task and without them."""

    @pytest.mark.parametrize("d", [1, 5, 16, 17])
    @pytest.mark.parametrize("n", [1, 15, 16, 511, 513, 1100])
    def test_distances_of_rows_with_themselves_are_those_of_pairs(self, n, d):
        X = rows(n, d)
        np.testing.assert_array_equal(all_squared(X), every_squared(X, X))

    @a_few(
        3,
        "options",
        [
            {}, {"epsilon": "median", "alpha": 0.5}, {"epsilon": "max-min"}, {"epsilon": "mean-min", "alpha": 0.0},
            {"bandwidth": "adaptive"}, {"bandwidth": "self-tuned", "epsilon": 0.5}, {"target": "fokker-planck"},
            {"truncated": True, "epsilon": 9.0}, {"metric": "cosine"}, {"components": "bridge"},
            {"solver": "landmarks", "n_landmarks": 40},
        ],
        ids=lambda options: "-".join(map(str, options.values())) or "default",
    )  # fmt: skip
    @pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=pytest.mark.slow)])
    def test_the_map_is_that_of_lists_of_all_other_rows(self, options, dtype):
        X = rows().astype(dtype)
        X[7] = X[3]
        new = rows(20, seed=1).astype(dtype)
        asked = {"n_components": 3, "tol": 1e-9, **options}
        dense = be.DiffusionMap(n_neighbors=None, **asked).fit(X)
        lists = be.DiffusionMap(n_neighbors=149, **asked).fit(X)
        assert dense.graph_.dense
        assert not lists.graph_.dense
        assert not dense._run.has("search")
        np.testing.assert_allclose(dense.eigenvalues_, lists.eigenvalues_, rtol=1e-12)
        np.testing.assert_allclose(dense.embedding_, lists.embedding_, atol=1e-9)
        np.testing.assert_allclose(dense.transform(new), lists.transform(new), atol=1e-9)
        np.testing.assert_allclose(dense.generator_eigenvalues_, lists.generator_eigenvalues_, rtol=1e-6)
        one, other = dense.certificate_, lists.certificate_
        for name in ("recall", "dimension", "bandwidth"):
            assert one[name].keys() == other[name].keys()
        assert one["dimension"]["two_nearest"] == pytest.approx(other["dimension"]["two_nearest"])
        assert one["dimension"]["likelihood"] == pytest.approx(other["dimension"]["likelihood"])
        assert one["dimension"]["duplicates"] == other["dimension"]["duplicates"] == 2
        assert one["warnings"].keys() == other["warnings"].keys()

    @a_few(1, "alpha", [0.0, 1.0])
    def test_more_rows_than_are_solved_one_by_one(self, alpha, monkeypatch):
        """One dense block of more rows than a sparse component that is solved in memory may have."""
        monkeypatch.setattr(spectral, "DENSE_ROWS", 500)
        X = rows(spectral.DENSE_ROWS + 100, 2)
        found = be.DiffusionMap(4, n_neighbors=None, epsilon=1.0, alpha=alpha).fit(X)
        np.testing.assert_allclose(found.eigenvalues_, reference_of_every_pair(X, 1.0, alpha, 4), atol=1e-12)
        assert found.residuals_.max() < 1e-11
        assert found.certificate_["passes"] == 1
        np.testing.assert_allclose(found.transform(X[::50]), found.embedding_[::50], atol=1e-6)

    @pytest.mark.parametrize("n", [1, 4097])
    def test_too_few_and_too_many_rows(self, n):
        with pytest.raises(errors.InputError, match=rf"2 ≤ n ≤ 4096; got n_samples = {n}"):
            be.DiffusionMap(1, n_neighbors=None).fit(np.zeros((n, 1)))

    def test_the_memory_of_the_stages_follows_the_rows_that_are_there(self):
        """640 MiB and twice that, not what a canonical block of 65 536 rows of all pairs would hold."""
        X = rows(4000, 2)
        estimator = be.DiffusionMap(n_neighbors=None)
        source, _ = row_source(X, "unused")
        costs = {stage.name: stage.cost.memory for stage in estimator.stages(source)}
        assert max(costs.values()) <= 80 * 4000**2
        assert costs["graph"] <= costs["solve"] <= 40 * 4000**2


ROWS = np.random.default_rng(0).normal(size=(300, 3)) + np.array([0, 0, 100.0])


def mapped(scale: float, **asked: Any) -> tuple[float, bytes, bytes]:
    found = be.DiffusionMap(2, random_state=0, **asked).fit(ROWS * scale)
    return found.epsilon_ / scale**2, found.eigenvalues_.tobytes(), np.asarray(found.embedding_).tobytes()


class TestScale:
    """Rows 2ᵏ times as large: ε is 4ᵏ times as large, and nothing else changes."""

    @pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
    @pytest.mark.parametrize("k", [-73, pytest.param(66, marks=pytest.mark.slow)])
    @a_few(
        2,
        "asked",
        [
            {"n_neighbors": 10, "bandwidth": "fixed"},
            {"n_neighbors": 10, "bandwidth": "fixed", "epsilon": "max-min"},
            {"n_neighbors": 10, "bandwidth": "self-tuned"},
            {"n_neighbors": 10, "bandwidth": "adaptive"},
            {"n_neighbors": None, "epsilon": "median"},
            {"n_neighbors": None, "epsilon": "ksum"},
        ],
        ids=lambda asked: "-".join(map(str, asked.values())),
    )
    def test_a_power_of_two_changes_the_scale_and_nothing_else(self, k: int, asked: dict[str, Any]) -> None:
        if asked.get("bandwidth") in ("self-tuned", "adaptive"):  # their ε is a pure number
            one, other = (mapped(scale, **asked)[1:] for scale in (1.0, 2.0**k))
        else:
            one, other = mapped(1.0, **asked), mapped(2.0**k, **asked)  # type: ignore[assignment]
        assert one == other

    @pytest.mark.parametrize("k", [-90, 90])
    def test_the_radius_that_is_proposed_follows_the_scale(self, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bigembed.neighbors.radius.free_bytes", lambda path: 10)
        said = []
        for scale in (1.0, 2.0**k):
            with pytest.raises(errors.PlanError, match="would join") as caught:
                be.build_neighbor_graph(ROWS * scale, radius=scale * 2)
            said.append(float(str(caught.value).split("radius=")[-1].split()[0]) / scale)
        assert said[0] == pytest.approx(said[1], rel=0.01)
