"""Rows that count: of a complete graph, or of exact distances, a row of weight m is m copies of it to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.maps.lle.locally_linear import weights_block
from bigembed.maps.lle.solve import Conditions, assembled, pairs_of
from bigembed.maps.tsne.compiled import UNIT, calibrate, copies, joint, precision, spread_charges, step
from bigembed.maps.tsne.descent import STEP, Lattice, field_of, spacing_for
from tests.some import a_few

COUNTS = np.array([1, 3, 2, 1, 4, 1, 1, 2, 5, 1, 2, 1, 1, 3, 2, 1, 1, 1, 6, 2, 1, 1, 2, 1])
N, TOTAL = len(COUNTS), int(COUNTS.sum())
ROWS = np.random.default_rng(3).normal(size=(N, 3))
START = 0.1 * np.random.default_rng(4).normal(size=(N, 2))
COPIED = np.repeat(np.arange(N), COUNTS)


def complete(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All pairs as a block in CSR: pointers, columns, squared distances, and numbers of the rows."""
    n = len(rows)
    pointers, columns = np.arange(0, n * n + 1, n), np.tile(np.arange(n, dtype=np.int32), n)
    return pointers, columns, cdist(rows, rows, "sqeuclidean").ravel(), np.arange(n, dtype=np.int64)


class Forces:
    """t-SNE of all pairs by its kernels: the affinities, and steps from a start."""

    def __init__(self, rows: np.ndarray, masses: np.ndarray, single: float, perplexity: float) -> None:
        self.graph, self.masses, self.single, n = complete(rows), masses, single, len(rows)
        infinite = np.full(n, np.inf)
        scales = calibrate(*self.graph, infinite, infinite, perplexity, masses, single)
        self.p, self.mass, self.plogp = joint(*self.graph, scales, n, masses, single, perplexity)
        self.beta = scales[:, 2]

    def steps(self, start: np.ndarray, count: int) -> tuple[np.ndarray, float]:
        """Points after so many steps, and Z of the last ones."""
        y, velocity, gains = start.copy(), np.zeros_like(start), np.ones_like(start)
        options = np.array([4.0, len(y) / 4.0, 0.5, 0.0, 5.0, 1.0])
        for _ in range(count):
            box = np.stack([y.min(axis=0), y.max(axis=0)])
            lattice = Lattice.covering(box, spacing_for(box, 1.0), STEP)
            nodes = lattice.nodes()
            spread_charges(y, (0, 0), lattice.spacing, np.array(lattice.low), nodes, self.masses)
            field, total = field_of(nodes / UNIT, lattice, 1.0, 1, self.single)
            moved = np.empty_like(y)
            step(
                0, len(y), 0, *self.graph[:2], self.p, y, (0, 0), 1.0, lattice.spacing, np.array(lattice.low), field,
                total, options, self.masses, velocity, gains, moved,
            )  # fmt: skip
            y = moved
        return y, total


def of_counts(counts: np.ndarray, **changes: Any) -> Forces:
    mean = counts.mean()
    return Forces(ROWS, counts / mean, changes.get("single", 1 / mean), changes.get("perplexity", 6.0))


class TestTSNE:
    """Masses have mean 1, so the perplexity that copies have is larger by the mean count."""

    weighted = of_counts(COUNTS)
    copied = Forces(ROWS[COPIED], np.ones(TOTAL), 1.0, 6.0 * TOTAL / N)

    def test_precisions_and_affinities_are_those_of_the_copies(self) -> None:
        np.testing.assert_allclose(self.weighted.beta[COPIED], self.copied.beta, rtol=1e-7)
        between = np.zeros((N, N))
        np.add.at(between, (COPIED[:, None], COPIED[None]), self.copied.p.reshape(TOTAL, TOTAL).astype(float))
        found = self.weighted.p.reshape(N, N).astype(float)
        np.testing.assert_allclose(found + np.diag(between.diagonal()), between, rtol=2e-6)
        assert self.weighted.mass == pytest.approx(1.0, abs=1e-6)  # (with the pairs of copies of one row)
        assert self.weighted.mass == pytest.approx(self.copied.mass, abs=1e-6)
        assert self.weighted.plogp + 2 * np.log(N / TOTAL) == pytest.approx(self.copied.plogp, rel=1e-6)
        wrong = of_counts(COUNTS, single=1.0)  # (no row has another copy)
        assert np.abs(wrong.beta[COPIED] / self.copied.beta - 1).max() > 0.05

    def test_steps_are_those_of_the_copies(self) -> None:
        start = START - np.average(START, axis=0, weights=COUNTS)
        mine, total = self.weighted.steps(start, 25)
        theirs, of_copies = self.copied.steps(start[COPIED], 25)
        size = np.ptp(theirs)
        np.testing.assert_allclose(mine[COPIED], theirs, atol=1e-4 * size)
        assert total * (TOTAL / N) ** 2 == pytest.approx(of_copies, rel=1e-4)
        alike, _ = of_counts(np.ones(N)).steps(start, 25)  # a wrong answer: without weights
        assert np.abs(alike[COPIED] - theirs).max() > 0.02 * size

    def test_a_heavy_row_is_still_drawn_to_others(self) -> None:
        heavy = np.ones(N)
        heavy[4] = 200.0
        assert of_counts(heavy).p.reshape(N, N)[4].sum() > 0
        assert copies(200.0, 1.0, 6.0) == 3.0
        assert copies(0.3, 0.5, 5.0) == 0.0
        gaps = np.sort(np.random.default_rng(0).exponential(size=20))
        beta, log_z = precision(gaps, np.full(20, 2.0), 20, 1.0, 8.0)
        p = np.exp(-beta * np.concatenate([[0.0], np.repeat(gaps, 2)]) - log_z)
        assert (p.sum(), -(p * np.log(p)).sum()) == pytest.approx((1.0, np.log(8.0)), abs=1e-9)


class TestLocallyLinear:
    """Σ m_i |A_i y|² is least under Σ m_i y_i y_iᵀ = 1."""

    def test_masses(self) -> None:
        ids = np.argsort(cdist(ROWS, ROWS), axis=1)[:, 1:9]
        conditions = Conditions(weights_block, 1, {"reg": 1e-3}).of_rows(ROWS, ids)
        masses = COUNTS / COUNTS.mean()
        found = pairs_of(conditions, ids, np.arange(N), 3, masses)
        whole = assembled(conditions, ids, np.arange(N)).toarray()
        values, vectors = linalg.eigh(whole.T @ (masses[:, None] * whole), np.diag(masses))
        np.testing.assert_allclose(found.values, values[1:4], rtol=1e-7)
        cosines = np.abs(np.einsum("ij,ij->j", found.vectors, masses[:, None] * vectors[:, 1:4]))
        np.testing.assert_allclose(cosines, 1, atol=1e-7)
        wrong = pairs_of(conditions, ids, np.arange(N), 3, None)
        assert np.abs(wrong.values / found.values - 1).max() > 0.02
        copied = (np.repeat(conditions, COUNTS, axis=0)[:, 0], COPIED)  # the conditions of a row once for each copy
        stacked = np.zeros((TOTAL, N))
        columns = np.concatenate([np.arange(N)[:, None], ids], axis=1)[copied[1]]
        np.put_along_axis(stacked, columns, copied[0], axis=1)
        again = linalg.eigh(stacked.T @ stacked, np.diag(COUNTS.astype(float)), eigvals_only=True)
        np.testing.assert_allclose(found.values, again[1:4], rtol=1e-7)


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestOnAGraph:
    @a_few(1, "solver", ["exact", "landmarks"])
    def test_isomap(self, solver: str) -> None:
        """Of the complete graph, by all rows as landmarks."""

        def fitted(n: int, rows: np.ndarray, **given: Any) -> Any:
            return be.Isomap(2, n_neighbors=n - 1, solver=solver, n_landmarks=n).fit(rows, **given)

        mine, theirs = fitted(N, ROWS, sample_weight=7.0 * COUNTS), fitted(TOTAL, ROWS[COPIED])
        scale = np.ptp(theirs.embedding_)
        near = 1e-6 * scale if solver == "exact" else 1e-9 * scale  # (whose distances are float32)
        np.testing.assert_allclose(mine.embedding_[COPIED], theirs.embedding_, atol=near)
        np.testing.assert_allclose(mine.transform(ROWS), mine.embedding_, atol=near)
        plain = fitted(N, ROWS)
        assert np.abs(np.abs(plain.embedding_[COPIED]) - np.abs(theirs.embedding_)).max() > 0.02 * scale

    def test_tsne(self) -> None:
        """From one start, by few steps: chaos makes more of a rounding."""
        few: dict[str, Any] = {"n_iter": 5, "early_exaggeration_iter": 10, "random_state": 0}
        copies = be.TSNE(perplexity=6.0 * TOTAL / N, init=100 * START[COPIED], **few)
        graph = be.build_neighbor_graph(ROWS[COPIED], n_neighbors=TOTAL - 1)
        theirs = cdist(*[copies.fit(graph).embedding_] * 2)
        every = be.build_neighbor_graph(ROWS, n_neighbors=N - 1)
        whole = be.TSNE(perplexity=6.0, init=100 * START, **few).fit(every, sample_weight=COUNTS)
        apart = cdist(whole.embedding_[COPIED], whole.embedding_[COPIED])
        np.testing.assert_allclose(apart, theirs, atol=1e-3 * theirs.max())
        assert whole.kl_divergence_ == pytest.approx(copies.kl_divergence_, abs=1e-4)
        plain = be.TSNE(perplexity=6.0, init=100 * START, **few).fit(every).embedding_[COPIED]
        assert np.abs(cdist(plain, plain) - theirs).max() > 0.02 * theirs.max()  # a wrong answer

    @a_few(1, "solver", ["exact", "landmarks"])
    def test_locally_linear(self, solver: str) -> None:
        method = be.LocallyLinearEmbedding(2, n_neighbors=8, solver=solver, n_landmarks=N)
        mine = method.fit(ROWS, sample_weight=COUNTS)
        y = mine.embedding_
        np.testing.assert_allclose((COUNTS[:, None] * y).T @ y / TOTAL, np.eye(2), atol=1e-9)
        np.testing.assert_allclose(COUNTS @ y, 0, atol=1e-9 * TOTAL)
        assert np.abs(y.T @ y / N - np.eye(2)).max() > 0.02
        again = method.fit(be.build_neighbor_graph(ROWS, n_neighbors=8), sample_weight=10.0 * COUNTS)
        np.testing.assert_allclose(np.abs(again.embedding_), np.abs(y), atol=1e-6)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: be.UMAP(n_neighbors=8, n_epochs=3, init="pca"),
            lambda: be.TSNE(perplexity=5, n_iter=5, early_exaggeration_iter=5, init="pca"),
            lambda: be.Isomap(2, n_neighbors=8),
            lambda: be.LocallyLinearEmbedding(2, n_neighbors=8),
            lambda: be.LocallyLinearEmbedding(2, n_neighbors=8, solver="landmarks", n_landmarks=60),
        ],
    )
    def test_figures_of_a_map_are_means_by_weight(self, make: Any) -> None:
        rows = np.random.default_rng(6).normal(size=(70, 4))
        counts = np.where(np.linalg.norm(rows, axis=1) < 2, 1, 20)
        found = make().fit(rows, sample_weight=counts)
        near = [
            np.argsort(cdist(at, at) + np.diag(np.full(70, np.inf)), axis=1)[:, :15] for at in (rows, found.embedding_)
        ]
        kept = np.array([len(np.intersect1d(*pair)) / 15 for pair in zip(*near, strict=True)])
        figure = found.certificate_["judgement"]["map"]["preservation"]
        assert figure["value"] == pytest.approx(np.average(kept, weights=counts), rel=1e-9)
        assert figure["value"] != pytest.approx(kept.mean(), rel=1e-3)  # a wrong answer
