"""Weights of the rows: a row of weight m is m copies of it; checked, in any order and source; nothing changes where
all are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import InputError
from bigembed.maps.scales import pattern_counts, reach_in_mass, total, weighted_median
from bigembed.quality.figures import figure
from bigembed.store.arrays import read_array
from tests.blocks import blocks_of
from tests.some import a_few

pytestmark = pytest.mark.filterwarnings("ignore")

N = 160
_random = np.random.default_rng(0)
_angle = np.sort(_random.random(N)) * 2 * np.pi
ROWS = np.column_stack([np.cos(_angle), 0.6 * np.sin(_angle), 0.1 * _random.normal(size=N)])
COUNTS = _random.integers(1, 5, N)
COPIES = np.repeat(np.arange(N), COUNTS)
NEW = ROWS[:20] + 0.01
WHOLE = {"n_neighbors": None, "epsilon": 0.3}


def apart(a: Any, b: Any) -> float:
    """Largest difference of coordinates, whose signs may differ, over the largest of them."""
    return float(np.abs(np.abs(a) - np.abs(b)).max() / np.abs(b).max())


def turned(a: Any, b: Any) -> float:
    """Sine of the largest angle between the spans of the constant and the coordinates."""
    spans = [np.linalg.qr(np.column_stack([np.ones(len(x)), x]))[0] for x in (a, b)]
    return float(np.sqrt(max(0.0, 1 - np.linalg.svd(spans[0].T @ spans[1])[1].min() ** 2)))


class TestCopies:
    """With every pair a row of weight m is m copies, to the rounding of float32; without its weight it is not."""

    @a_few(
        3,
        ("method", "given"),
        [
            *[("diffusion_map", {**WHOLE, "alpha": alpha}) for alpha in (0, 0.5, 1)],
            ("diffusion_map", {"radius": 1.2, "epsilon": 0.3}),
            ("diffusion_map", {"n_neighbors": None, "bandwidth": "adaptive"}),
            ("laplacian_eigenmaps", WHOLE),
        ],
    )
    def test_every_pair(self, method: str, given: dict[str, Any]) -> None:
        make = {"diffusion_map": be.DiffusionMap, "laplacian_eigenmaps": be.LaplacianEigenmaps}[method]
        weighed = make(n_components=3, **given).fit(ROWS, sample_weight=0.37 * COUNTS)
        copied, ignoring = make(n_components=3, **given).fit(ROWS[COPIES]), make(n_components=3, **given).fit(ROWS)
        assert weighed.epsilon_ == pytest.approx(copied.epsilon_, rel=1e-12)
        np.testing.assert_allclose(weighed.eigenvalues_, copied.eigenvalues_, rtol=1e-7)
        assert np.abs(ignoring.eigenvalues_ / copied.eigenvalues_ - 1).max() > 1e-4
        assert apart(weighed.embedding_[COPIES], copied.embedding_) < 1e-6
        assert apart(ignoring.embedding_[COPIES], copied.embedding_) > 1e-2
        if "bandwidth" not in given:  # (the farthest row but one is another one among copies)
            assert apart(weighed.transform(NEW), copied.transform(NEW)) < 1e-6
        assert apart(weighed.transform(ROWS), weighed.embedding_) < 1e-6

    def test_several_blocks(self) -> None:
        """As in one block: each has its own part of the weights."""
        asked: dict[str, Any] = {"n_components": 3, "n_neighbors": 12, "recall": 0.999, "alpha": 0, "epsilon": 0.05}
        whole, ignoring = (be.DiffusionMap(**asked).fit(ROWS, sample_weight=w) for w in (COUNTS, None))
        with blocks_of(40, 20):
            parts = be.DiffusionMap(**asked).fit(ROWS, sample_weight=COUNTS)
        assert len(parts._run.results("kernel")["rows"]) > 2
        away, ignored = (np.abs(one.eigenvalues_ / whole.eigenvalues_ - 1).max() for one in (parts, ignoring))
        assert away < 1e-9
        assert ignored > 1e-4

    def test_by_landmarks(self) -> None:
        """Every row a landmark, so that copies have the same; a weight of 0 is no row."""
        given: dict[str, Any] = {"n_components": 3, "n_landmarks": N, "epsilon": 0.05}
        counts = np.where(np.arange(N) % 7, COUNTS, 0)
        copies = np.repeat(np.arange(N), counts)
        walk = be.LandmarkDiffusionMap(**given)
        weighed, ignoring = (walk.fit(ROWS, sample_weight=w).transform(ROWS) for w in (counts, None))
        kernel = np.exp(-cdist(ROWS[copies], ROWS, "sqeuclidean") / 0.05)
        degree = kernel @ kernel.sum(axis=0)
        u, s, _ = np.linalg.svd(kernel / np.sqrt(degree)[:, None], full_matrices=False)
        expected = (u[:, 1:4] * np.sqrt(degree.sum() / degree)[:, None]) * s[1:4] ** 2
        assert apart(weighed[copies], expected) < 1e-9
        assert apart(ignoring[copies], expected) > 1e-2
        with pytest.raises(InputError, match="as dense as rows stand"):
            be.LandmarkDiffusionMap(landmarks="uniform").fit(ROWS, sample_weight=counts)

    def test_functions_of_the_walk(self) -> None:
        """Averages, extended functions and pseudotime of a map with weights are those of the copies."""
        f = np.sin(3 * _angle) + 0.1 * _random.normal(size=N)
        one, other, ignoring = (
            be.DiffusionMap(n_components=4, **WHOLE).fit(X, sample_weight=w)
            for X, w in ((ROWS, COUNTS), (ROWS[COPIES], None), (ROWS, None))
        )
        root = int(np.flatnonzero(COPIES == 5)[0])
        for function, more, copied, copied_more in (
            (be.smooth, (f, 2), f[COPIES], (2,)),
            (be.diffusion_pseudotime, (5,), root, ()),
            (lambda m, *given: be.geometric_harmonics(m, *given, cut=3).fitted_values(), (f,), f[COPIES], ()),
        ):
            wanted = np.asarray(function(other, copied, *copied_more))
            found, plain = (np.asarray(function(m, *more))[COPIES] for m in (one, ignoring))
            scale = (wanted @ found) / (found @ found) if function is be.diffusion_pseudotime else 1.0
            assert apart(scale * found, wanted) < 1e-5
            assert apart((wanted @ plain) / (plain @ plain) * plain, wanted) > 1e-3

    def test_figures_are_means_by_weight(self) -> None:
        """Of sampled rows; and as they were of weights that are alike."""
        rng = np.random.default_rng(5)
        entries, counts = rng.random((40, 15)), rng.integers(1, 5, 40)
        nodes = [np.broadcast_to(np.arange(40)[:, None], (40, 15)), rng.integers(0, 200, (40, 15))]
        found, alike, plain = (figure(entries, 0.1, 0.3, nodes, 0.8, w) for w in (counts, np.full(40, 2), None))
        assert found["value"] == pytest.approx(np.repeat(entries, counts, axis=0).mean(), rel=1e-12)
        assert found["value"] != pytest.approx(plain["value"], rel=1e-3)
        assert alike == pytest.approx(plain, rel=1e-12)

    def test_nodes_of_a_graph(self) -> None:
        edges = np.exp(-(cdist(ROWS, ROWS) ** 2) / 0.1)
        edges[edges < 1e-3] = 0
        given = {"n_components": 3, "alpha": 0.5, "t": 0}
        weighed = be.DiffusionMap(**given).fit(sparse.csr_array(edges), sample_weight=COUNTS)
        copied = be.DiffusionMap(**given).fit(sparse.csr_array(edges[np.ix_(COPIES, COPIES)]))
        ignoring = be.DiffusionMap(**given).fit(sparse.csr_array(edges))
        np.testing.assert_allclose(weighed.eigenvalues_, copied.eigenvalues_, rtol=1e-9)
        assert apart(weighed.embedding_[COPIES], copied.embedding_) < 1e-8
        assert apart(ignoring.embedding_[COPIES], copied.embedding_) > 1e-2

    def test_neighbors_are_counted_in_mass(self) -> None:
        """Rows that stand for the more, the farther they are to the right: k in mass is another graph than k rows."""
        rng = np.random.default_rng(1)
        angle = rng.random(700) * 2 * np.pi
        rows = np.column_stack([np.cos(angle), 0.6 * np.sin(angle), 0.02 * rng.normal(size=700)])
        counts = (1 + np.floor(2 * (1 + np.cos(angle)))).astype(int)
        copies, k = np.repeat(np.arange(700), counts), 8
        given: dict[str, Any] = {"n_components": 2, "t": 0}
        same = round((k + 1) * counts.mean()) - 1
        copied = be.DiffusionMap(n_neighbors=same, **given).fit(rows[copies]).embedding_
        weighed = be.DiffusionMap(n_neighbors=k, **given).fit(rows, sample_weight=counts).embedding_
        ignoring = be.DiffusionMap(n_neighbors=k, **given).fit(rows).embedding_
        assert turned(weighed[copies], copied) < 0.1
        assert turned(ignoring[copies], copied) > 0.3


class TestAlike:
    """Weights that are all the same say nothing."""

    def test_weights_that_reach_too_far_are_a_warning(self) -> None:
        """Half of the rows, by themselves, weigh a thousandth of the others: no list holds the mass of k mean rows."""
        far = np.r_[np.ones(N // 2), np.full(N - N // 2, 1e3)]
        loud, quiet = (be.DiffusionMap(n_neighbors=8).fit(ROWS, sample_weight=w).certificate_ for w in (far, COUNTS))
        [said] = [text for text in loud["warnings"]["degenerate"] if "weights reach from 1 to 1000" in text]
        assert "Raise n_neighbors" in said
        assert loud["row_weights"]["held"] < 0.5
        assert quiet["row_weights"] == pytest.approx(
            {"sum": COUNTS.sum(), "least": 1, "most": 4, "n_neighbors": 8, "held": 1, "short": 0, "n": N}
        )
        assert not quiet["warnings"]["degenerate"]


class TestClusters:
    def test_means_by_weight(self) -> None:
        """Two groups whose middle is heavy: centers and sum of squares are those of the copies, and not of the rows."""
        rng = np.random.default_rng(4)
        rows = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 9])
        counts = np.where(np.abs(rows - rows.mean(axis=0)).max(axis=1) < 4.5, 6, 1)
        copies = np.repeat(np.arange(120), counts)
        given: dict[str, Any] = {"n_clusters": 3, "n_neighbors": None, "epsilon": 8.0, "normalize_rows": False}
        weighed, copied, ignoring = (
            be.SpectralClustering(**given).fit(X, sample_weight=weights)
            for X, weights in ((rows, counts), (rows[copies], None), (rows, None))
        )
        centers = [np.sort(np.abs(one.cluster_centers_), axis=0) for one in (weighed, copied, ignoring)]
        assert np.abs(centers[0] - centers[1]).max() < 1e-4 < 1e-2 < np.abs(centers[2] - centers[1]).max()
        assert weighed.inertia_ * counts.mean() == pytest.approx(copied.inertia_, rel=1e-4)


def spectrum(drift: Any) -> Any:
    """The first eigenvalues of −(f″ + drift f′) on a circle, but 0, by Fourier series."""
    angle = np.arange(201) * 2 * np.pi / 201
    modes = np.arange(-100, 101)
    waves = np.exp(1j * np.outer(angle, modes))
    operator = -((waves * -(modes**2)) + drift(angle)[:, None] * waves * (1j * modes)) @ np.linalg.inv(waves)
    return np.sort(np.linalg.eigvals(operator).real)[1:4]


class TestDensity:
    """Rows on a circle with another density than the wanted one, μ = exp(2 cos θ): eigenvalues are those for μ."""

    expected = spectrum(lambda t: -2 * np.sin(t))

    @pytest.mark.parametrize(
        ("given", "within"),
        [
            pytest.param({"n_neighbors": None, "epsilon": 0.02}, 0.04, marks=pytest.mark.slow),
            pytest.param({"radius": 0.5, "epsilon": 0.02}, 0.04, marks=pytest.mark.slow),
            ({"n_neighbors": 20}, 0.1),
        ],
    )
    def test_the_operator_of_the_density(self, given: dict[str, Any], within: float) -> None:
        rng = np.random.default_rng(6)
        angle = rng.random(6_000) * 2 * np.pi
        angle = angle[rng.random(6_000) < (1 + 0.8 * np.sin(angle)) / 1.8][:1_500]
        rows = np.column_stack([np.cos(angle), np.sin(angle)])
        kept = be.DiffusionMap(n_components=3, t=0, **given).fit(rows, target_density=5 * np.exp(2 * np.cos(angle)))
        plain = be.DiffusionMap(n_components=3, t=0, target="laplace-beltrami", **given).fit(rows)
        assert np.abs(kept.generator_eigenvalues_ / self.expected - 1).max() < within
        assert np.abs(plain.generator_eigenvalues_ / self.expected - 1).max() > 0.3
        assert apart(kept.transform(rows[:50]), kept.embedding_[:50]) < 1e-5

    def test_with_weights(self) -> None:
        """Rows in even steps of another angle, weighed by what they stand for: ratios of eigenvalues, to 2 %."""
        steps = np.linspace(0, 2 * np.pi, 900, endpoint=False)
        angle, weights = steps + 0.3 * np.sin(steps), 1 + 0.3 * np.cos(steps)
        rows, density = np.column_stack([np.cos(angle), np.sin(angle)]), np.exp(2 * np.cos(angle))
        given: dict[str, Any] = {"n_components": 3, "t": 0, "n_neighbors": None, "epsilon": 0.01}
        found = be.DiffusionMap(**given).fit(rows, sample_weight=weights, target_density=density).generator_eigenvalues_
        np.testing.assert_allclose(found / found[0], self.expected / self.expected[0], rtol=0.02)
        np.testing.assert_allclose(found, self.expected, rtol=0.06)  # (the step from a row to itself is left out)


class TestGiven:
    """What is refused, with the rows named; and where weights come from."""

    @pytest.mark.parametrize(
        ("weights", "said"),
        [
            (np.r_[0.0, np.ones(N - 1)], r"above 0: 1 of 160 are not, the first of rows \[0\]"),
            (np.r_[np.ones(N - 1), np.nan], r"the first of rows \[159\]"),
            (-np.ones(N), "160 of 160"),
            (np.r_[np.inf, np.ones(N - 1)], r"rows \[0\]"),
            (np.ones(N - 1), r"shape \(159,\)"),
            (np.ones((N, 2)), "one number a row"),
            (np.r_[1e-13, np.ones(N - 1)], "times the least"),
            (np.full(N, "a"), "numbers are needed"),
        ],
    )
    def test_refused(self, weights: Any, said: str) -> None:
        with pytest.raises(InputError, match=said):
            be.DiffusionMap(n_neighbors=5).fit(ROWS, sample_weight=weights)

    def test_from_a_file_into_the_order_of_the_graph(self, tmp_path: Path) -> None:
        np.save(tmp_path / "weights.npy", COUNTS.astype("i2"))
        fitted = be.DiffusionMap(n_components=2, n_neighbors=8, workdir=tmp_path / "run")
        fitted.fit(ROWS, sample_weight=str(tmp_path / "weights.npy"))
        ids = read_array(str(tmp_path / "run/stages/order/ids/0"))
        found = read_array(str(tmp_path / "run/stages/row_weights/values/0"))
        np.testing.assert_allclose(found, COUNTS[ids] / COUNTS.mean(), rtol=1e-15)
        again = be.DiffusionMap(n_components=2, n_neighbors=8).fit(ROWS, sample_weight=COUNTS)
        np.testing.assert_array_equal(fitted.embedding_, again.embedding_)


class TestReach:
    def test_against_copies(self) -> None:
        rng = np.random.default_rng(2)
        squared, weights, own = np.sort(rng.random((50, 30)), axis=1), rng.integers(1, 5, (50, 30)), np.full(50, 2)
        found = reach_in_mass(squared, weights, own, 25, 1, 0.0)
        copied = [np.repeat(*row)[25 - 2 - 1] for row in zip(squared, weights, strict=True)]
        np.testing.assert_array_equal(found, copied)

    def test_median_by_weight(self) -> None:
        rng = np.random.default_rng(3)
        values = rng.random(201)
        weights = 1 + (5 * values).astype(int)
        parts = np.array_split(np.arange(201), 3)
        found = weighted_median(
            lambda known: total([pattern_counts(values[part], known, weights[part]) for part in parts]), weights.sum()
        )
        every = np.sort(np.repeat(values, weights))
        assert found == every[(len(every) - 1) // 2] != np.sort(values)[100]
