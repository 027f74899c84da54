"""UMAP that follows more than rows: labels, densities, weights."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

import bigembed as be
from bigembed.errors import InputError, MapWarning
from bigembed.estimator.pipeline import Pipeline
from bigembed.maps.umap.compiled import density_step, step
from bigembed.maps.umap.density import PARTS, DensityOptions, pulls_of
from bigembed.maps.umap.descent import DIVIDED, SamplingOptions, curve, rows_in_pool
from bigembed.maps.umap.forces import LEAST_WEIGHT, has_turn
from tests.blocks import blocks_for
from tests.cases import FEW_EPOCHS
from tests.unit.maps.digits import digits
from tests.unit.maps.stored import dense


def test_rows_are_pushed_as_strongly_and_as_often_as_asked() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype("f4")

    def size(**asked: float) -> float:
        made: Any = be.UMAP(n_epochs=40, init="pca", **asked)  # type: ignore[arg-type]
        return float(np.median(np.linalg.norm(made.fit(rows).embedding_, axis=1)))

    assert size(repulsion_strength=0.0) < 0.1 < 1.4 * size() < size(repulsion_strength=4.0)
    assert size(negative_sample_rate=1) < 0.7 * size()


def by_formula(w: np.ndarray, y: np.ndarray, far: float) -> np.ndarray:
    """Weights that follow labels, of all pairs."""
    distance = np.where(y[:, None] == y, 0.0, far)
    distance[(y[:, None] == -1) | (y == -1)] = 1.0
    v = w * np.exp(-distance)
    a = v / v.max(axis=1, keepdims=True)
    return a + a.T - a * a.T


UMAP_LEARN = {
    0: {8: 0.7416733, 12: 0.6923266, 13: 1.0, 18: 0.3629346, 20: 0.4098854, 30: 1.0, 36: 0.6336426},
    17: {1: 0.0141431, 10: 0.0137545, 14: 1.0, 15: 0.0111548, 21: 1.0, 32: 1.0},
    19: {2: 0.0069949, 22: 1.0, 25: 0.6472754, 31: 0.7856023, 34: 1.0},
}
"""Rows of ``discrete_metric_simplicial_set_intersection`` of umap-learn 0.5.12 at target_weight .5, of the lists and
labels of the test."""
FOLLOWS: dict[str, Any] = {"target_metric": "categorical"}


class TestLabels:
    """Supervised and semi-supervised UMAP: umap-learn's weights; y is read only where that is asked for."""

    def test_weights_are_those_of_the_formula_for_any_blocks_and_graph(self) -> None:
        X, y = digits(300)
        y = np.where(np.arange(300) % 3 == 0, -1, y)
        with blocks_for(300):
            asked: dict[str, Any] = {**FOLLOWS, "n_neighbors": 8, "n_epochs": 1, "target_weight": 0.3, "init": "random"}
            fitted = be.UMAP(**asked).fit(X, y)
            graph = be.build_neighbor_graph(X, 8)
            again = be.UMAP(**asked).fit(graph, np.where(y < 0, np.nan, y))
            plain = be.UMAP(n_neighbors=8, n_epochs=1, init="random").fit(X)
        assert len(fitted._run.results("kernel")["rows"]) > 2
        before, found = dense(fitted, "memberships"), dense(fitted)
        np.testing.assert_allclose(found, by_formula(before, y, 2.5 / 0.7), atol=1e-6)
        assert (found == found.T).all()
        of_graph = by_formula(dense(again, "memberships"), y, 2.5 / 0.7)
        np.testing.assert_allclose(dense(again), of_graph, atol=1e-6)
        assert (dense(plain) == before).all()
        assert abs(found - by_formula(before, y, 2.5 / 0.5)).max() > 0.01
        assert abs(found - by_formula(before, y[::-1], 2.5 / 0.7)).max() > 0.5
        ring = be.datasets.ring_graph(60)
        kept = dense(be.UMAP(**asked).fit(ring, np.arange(60) // 30))
        assert 0 < kept[29, 30] < 0.1 < kept[28, 29]

    def test_weights_are_umap_learns(self) -> None:
        X, y = np.random.default_rng(7).normal(size=(40, 3)) * [3.0, 1.0, 0.3], np.arange(40) % 3
        y[::7] = -1
        found = dense(be.UMAP(n_neighbors=5, n_epochs=1, init="random", **FOLLOWS).fit(X, y))
        for row, stored in UMAP_LEARN.items():
            assert np.flatnonzero(found[row]).tolist() == list(stored)
            np.testing.assert_allclose(found[row, list(stored)], list(stored.values()), atol=1e-5)

    def test_labels_are_read_where_that_is_asked_for(self) -> None:
        X, y = digits(200)
        plain = be.UMAP(**FEW_EPOCHS).fit(X).embedding_
        assert (be.UMAP(**FEW_EPOCHS).fit(X, y).embedding_ == plain).all()
        assert (Pipeline([be.UMAP(**FEW_EPOCHS)]).fit(X, y).method_.embedding_ == plain).all()
        follows = be.UMAP(**FEW_EPOCHS, **FOLLOWS).fit(X, y).embedding_
        assert abs(follows - plain).max() > 0.1
        named = np.array(["unknown", *"abcdefghij"], object)[y + 1]
        assert (be.UMAP(**FEW_EPOCHS, **FOLLOWS).fit_transform(X, named) == follows).all()
        scaled = Pipeline([be.StandardScaler(), be.UMAP(**FEW_EPOCHS, **FOLLOWS)]).fit(X, y)
        assert scaled.method_.certificate_["labels"]["classes"] == 10
        with pytest.raises(
            InputError, match=r"target_metric='categorical' needs a label for each row .*\[input\] labels"
        ):
            be.UMAP(**FOLLOWS).fit(X)
        with pytest.raises(InputError, match=r"labels have shape \(199,\)"):
            be.UMAP(**FOLLOWS).fit(X, y[1:])
        with pytest.raises(InputError, match="no row has a label"):
            be.UMAP(**FOLLOWS).fit(X, np.full(200, -1))
        with pytest.raises(InputError, match="target_weight=2; allowed: a number in \\[0, 1\\]"):
            be.UMAP(target_weight=2, **FOLLOWS).fit(X, y)

    @pytest.mark.parametrize(("known", "divided"), [(0, 1.0), (50, 16**-0.25), (200, 1 / 16)])
    def test_rows_step_along_the_sum_of_forces_as_far_as_they_have_labels(
        self, known: int, divided: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (X, y), seen, given_to_a_step = digits(200), [], SamplingOptions.at

        def heard(self: SamplingOptions, epoch: int, largest: float) -> Any:
            seen.append(given_to_a_step(self, epoch, largest))
            return seen[-1]

        monkeypatch.setattr(SamplingOptions, "at", heard)
        be.UMAP(n_epochs=2, **(FOLLOWS if known else {})).fit(X, np.where(np.arange(200) < known, y, -1))
        assert seen
        np.testing.assert_allclose([numbers[DIVIDED] for numbers in seen], divided)

    def test_classes_part_new_rows_find_theirs_and_labels_that_say_nothing_are_told(self) -> None:
        X, y = digits(700)
        asked: dict[str, Any] = {"n_epochs": 200, **FOLLOWS}
        plain, random = be.UMAP(n_epochs=200).fit(X[:500]), np.random.default_rng(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", MapWarning)
            fitted = be.UMAP(**asked).fit(X[:500], y[:500])
            some = be.UMAP(**asked).fit(X[:500], np.where(random.random(500) < 0.5, y[:500], -1))
        parted = [silhouette_score(one.embedding_, y[:500]) for one in (plain, some, fitted)]
        assert parted[0] + 0.02 < parted[1] < parted[2] - 0.05
        apart = ((fitted.transform(X[500:])[:, None] - fitted.embedding_[None]) ** 2).sum(axis=-1)
        assert (y[:500][apart.argmin(axis=1)] == y[500:]).mean() > 0.9
        with pytest.warns(MapWarning, match="neighbors share their label in .* the labels say next to nothing"):
            be.UMAP(**asked).fit(X[:500], random.permutation(y[:500]))
        told = []
        for share in (0.1, 0.35):
            wrong = np.where(random.random(500) < share, (y[:500] + random.integers(1, 10, 500)) % 10, y[:500])
            told.append(be.UMAP(n_epochs=2, **FOLLOWS).fit(X[:500], wrong).certificate_["warnings"]["map"])
        assert ["many rows are among others" in " ".join(one) for one in told] == [False, True]


def gaussians(n: int, width: float = 8.0) -> tuple[np.ndarray, np.ndarray]:
    """Four groups, each ``width`` to the third as wide as the one before, and which group each row is of."""
    random = np.random.default_rng(3)
    group = random.integers(0, 4, n)
    return 20 * np.eye(4, 6)[group] + random.normal(size=(n, 6)) * (width ** (group / 3 - 1))[:, None], group


def log_radii(rows: np.ndarray, others: np.ndarray | None = None, k: int = 10) -> np.ndarray:
    """The logarithm of the mean squared distance of rows to their nearest ones, or to those among others."""
    apart = np.sort(cdist(rows, rows if others is None else others, "sqeuclidean"), axis=1)
    return np.log(apart[:, int(others is None) :][:, :k].mean(axis=1))


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1])


class TestDensities:
    """densMAP: the gradient of the correlation, radii by their formulas, the same bytes if it is stopped, new rows."""

    @pytest.mark.parametrize("weighs", [False, True])
    def test_a_step_is_along_the_gradient_of_the_correlation(self, weighs: bool) -> None:
        """By differences; of a row of mass m it is the m-th part of the gradient, for its m copies move."""
        random, n, (a, b) = np.random.default_rng(0), 12, curve(0.1, 1.0)
        points, w = 4 * random.normal(size=(n, 2)), random.uniform(0.2, 1.0, (n, n)).astype("f4")
        w = np.triu(w, 1) + np.triu(w, 1).T
        m = random.uniform(0.5, 4, n) if weighs else np.ones(n)
        m /= m.mean()
        wanted = random.normal(size=n)
        wanted -= (m * wanted).mean()
        wanted /= np.sqrt((m * wanted**2).mean())

        def radii(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            squared = cdist(y, y, "sqeuclidean")
            phi = m / (1 + a * squared**b) * (w > 0)
            return np.log((phi * squared).sum(axis=1) / phi.sum(axis=1)), phi.sum(axis=1)

        def moments(y: np.ndarray) -> np.ndarray:
            r = radii(y)[0]
            mean = (m * r).mean()
            return np.array([mean, (m * r**2).mean() - mean**2, (m * r * wanted).mean()])

        def correlation(y: np.ndarray) -> float:
            _, variance, covariance = moments(y)
            return float(covariance / np.sqrt(variance))

        gradient = np.empty_like(points)
        for place in np.ndindex(points.shape):
            shift = np.zeros_like(points)
            shift[place] = 1e-5
            gradient[place] = (correlation(points + shift) - correlation(points - shift)) / 2e-5 / m[place[0]]
        known = np.stack([*radii(points), wanted, m], axis=1)
        asked = DensityOptions(2, a, b, 1, 1.0, 0.0, 1, 0, dens_lambda=1e-3, dens_frac=1.0, dens_var_shift=0.0)
        mass = float(m @ w @ m)
        density = asked.numbers(1.0, mass, n, moments(points), np.ones(3))
        density[LEAST_WEIGHT] = 0.1
        indptr, columns = n * np.arange(n + 1), np.tile(np.arange(n), n).astype("i4")
        options, moved = asked.at(0, 1.0), [np.empty_like(points) for _ in range(2)]
        masses = m if weighs else np.zeros(0)
        read = 0, n, 0, 0, indptr, columns, w.ravel(), points, points, masses, 0, options
        step(*read, moved[0])
        seen = np.empty((n, 2))
        density_step(*read, pulls_of(known, density), density, 0, 1, moved[1], seen)
        np.testing.assert_allclose(seen, known[:, :2], atol=1e-6)
        found = (moved[1] - moved[0]) * np.maximum(1, w @ m)[:, None] / (1e-3 * mass)
        np.testing.assert_allclose(found, gradient, atol=1e-3 * abs(gradient).max())
        assert abs(found + gradient).max() > abs(gradient).max()
        assert abs(found * m[:, None] - gradient).max() > 0.1 * abs(gradient).max() or not weighs
        options[4], whole = 3.0, np.zeros_like(points)
        for part in range(3):
            step(*read, moved[0])
            density_step(*read, pulls_of(known, density), density, part, 3, moved[1], seen[:0])
            whole += (moved[1] - moved[0]) * np.maximum(1, w @ m / 3)[:, None] / (1e-3 * mass)
        np.testing.assert_allclose(whole, found, atol=1e-6 * abs(found).max())

    def test_an_edge_has_its_turns_and_an_epoch_measures_once_where_the_term_acts(self) -> None:
        asked = DensityOptions(2, 1.5, 0.9, 10, 1.0, 1.0, 5, 0, dens_lambda=2.0, dens_frac=0.3, dens_var_shift=0.1)
        last = asked.iterations
        assert [asked.place(sweep) for sweep in (6, 7, 10, 11, last)] == [
            (6, 0, 1), (7, 0, PARTS), (7, 3, PARTS), (8, 0, PARTS), (10, 0, PARTS),
        ]  # fmt: skip
        assert [sweep for sweep in range(last) if asked.measures(sweep)] == [6, 10, 14]
        for share in (1.0, 0.37, 0.1):
            sweeps = [asked.at(sweep, 1 / share) for sweep in range(last)]
            assert sum(has_turn(int(given[5]), 1 / given[4]) for given in sweeps) == int(10 * share + 1e-9)
        assert replace(asked, dens_lambda=0.0).iterations == 10

    def test_a_map_that_does_not_show_densities_says_so(self) -> None:
        X, _ = digits(400)
        with pytest.warns(MapWarning, match="on the map correlate by .*: do not read densities"):
            be.UMAP(n_epochs=60, densmap=True, dens_lambda=1e-3).fit(X)
        shown = be.UMAP(n_epochs=60, densmap=True).fit(X).certificate_
        assert shown["density_correlation"] > 0.8
        assert not shown["warnings"]["map"]

    def test_new_rows_come_to_lie_as_densely_as_theirs(self) -> None:
        X, _ = gaussians(700)
        fitted, new = X[:500], X[500:]
        placed = {}
        for densmap in (True, False):
            umap = be.UMAP(n_epochs=300, densmap=densmap).fit(fitted)
            y = umap.embedding_
            placed[densmap] = agreement(log_radii(umap.transform(new), y), log_radii(new, fitted))
            assert (umap.transform(fitted[:9]) == y[:9]).all()
        assert placed[True] > 0.85
        assert placed[False] < placed[True] - 0.1


class TestWeights:
    """A row of weight m is m copies of it: in attraction, in what is drawn, in the cross-entropy, in densities."""

    def test_forces_are_those_of_copies_within_sampling_error(self) -> None:
        random, n, (a, b) = np.random.default_rng(1), 7, curve(0.1, 1.0)
        points, counts = 2 * random.normal(size=(n, 2)), np.array([1, 1, 2, 3, 1, 6, 4])
        w = random.uniform(0.3, 1.0, (n, n)).astype("f4")
        w = np.triu(w, 1) + np.triu(w, 1).T
        copies = np.repeat(np.arange(n), counts)
        asked = SamplingOptions(2, a, b, 100, 1.0, 1.0, 5, 0)

        def moved(w: np.ndarray, points: np.ndarray, masses: np.ndarray, epochs: int) -> np.ndarray:
            """How far rows move in an epoch, on average."""
            rows, out, total = len(points), np.empty_like(points), np.zeros_like(points)
            indptr, columns = rows * np.arange(rows + 1), np.tile(np.arange(rows), rows).astype("i4")
            for epoch in range(epochs):
                before = [0.0, masses.sum()] if len(masses) else []
                pool = points[rows_in_pool(0, [rows], 0, epoch, masses, before)]
                options = asked.at(0, 1.0)
                options[5] = epoch
                step(0, rows, 0, 0, indptr, columns, w.ravel(), points, pool, masses, asked.key(epoch), options, out)
                total += out - points
            return total / epochs

        weighted = moved(w, points, counts / counts.mean(), 4_000)
        of_copies = moved(w[np.ix_(copies, copies)], points[copies], np.zeros(0), 1_500)
        expected = np.stack([of_copies[copies == row].mean(axis=0) for row in range(n)])
        size = np.linalg.norm(expected, axis=1).max()
        np.testing.assert_allclose(weighted, expected, atol=0.03 * size)
        assert abs(moved(w, points, np.zeros(0), 1_500) - expected).max() > 0.15 * size

    def test_the_cross_entropy_is_that_of_copies(self) -> None:
        """Of a map that stays where it starts, on the weights of a graph, so that copies have the same neighbors."""
        X, random = digits(250)[0], np.random.default_rng(2)
        counts = random.integers(1, 6, 250)
        copies = np.repeat(np.arange(250), counts)
        w = dense(be.UMAP(n_neighbors=10, n_epochs=1, init="random").fit(X)).astype(float)
        start = 3 * random.normal(size=(250, 2)) * (1 + (counts > 3))[:, None]
        asked: dict[str, Any] = {"n_epochs": 1, "learning_rate": 1e-30}

        def entropy(w: np.ndarray, start: np.ndarray, **more: Any) -> float:
            return float(be.UMAP(init=start, **asked).fit(sparse.csr_array(w), **more).cross_entropy_)

        of_copies = entropy(w[np.ix_(copies, copies)], start[copies])
        assert entropy(w, start, sample_weight=3 * counts) == pytest.approx(of_copies, rel=0.02)
        assert entropy(w, start) != pytest.approx(of_copies, rel=0.04)

    def test_what_is_drawn_is_drawn_by_mass_whatever_the_blocks(self) -> None:
        masses = np.random.default_rng(0).exponential(size=300)
        once = np.bincount(rows_in_pool(0, [300], 1, 5, masses, [0, masses.sum()]), minlength=300)
        parts = [masses[:100], masses[100:140], masses[140:]]
        before = np.concatenate([[0], np.cumsum([part.sum() for part in parts])]).tolist()
        found = [
            np.bincount(rows_in_pool(b, [100, 40, 160], 1, 5, part, before), minlength=len(part))
            for b, part in enumerate(parts)
        ]
        assert (np.concatenate(found) == once).all()
        assert abs(once - once.sum() * masses / masses.sum()).max() < 1
        assert (once != np.bincount(rows_in_pool(0, [300], 1, 6, masses, [0, masses.sum()]), minlength=300)).any()
