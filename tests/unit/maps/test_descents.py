"""t-SNE and UMAP: what they share, and what each has by itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from sklearn.manifold import TSNE as InMemory
from sklearn.manifold import trustworthiness
from sklearn.manifold._t_sne import _joint_probabilities

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, InputTypeError, LocalizedWarning, MapWarning
from bigembed.maps import box_of, descent
from bigembed.maps.tsne.compiled import UNIT, field_at, precision, spread_charges
from bigembed.maps.tsne.descent import STEP, DescentOptions, Lattice, field_of, spacing_for
from bigembed.maps.umap import descent as options
from bigembed.maps.umap.compiled import bandwidth, has_turn, number_of, step
from bigembed.maps.umap.descent import AT_ONCE, DIVIDED, curve
from bigembed.neighbors.order import Ordered
from bigembed.runtime import using
from bigembed.store import spaces
from tests.blocks import blocks_for
from tests.cases import FEW_EPOCHS, FEW_STEPS
from tests.executors import executor
from tests.some import a_few
from tests.unit.maps.digits import digits
from tests.unit.maps.stored import dense


@dataclass(frozen=True)
class Method:
    """What differs from one to the other."""

    make: Callable[..., Any]
    few: Mapping[str, Any]
    """Parameters of a map that is soon made."""
    killed: Mapping[str, Any]
    kills: Sequence[tuple[str, int]]
    """Labels of maps over blocks, and at which of them the process ends."""
    values: str
    recorded: int
    """How often the objective is measured."""
    placed: Mapping[str, Any]
    quick: Mapping[str, Any]
    starts: Sequence[str]
    spread: float
    """Of a start that is given as an array."""
    near: int
    """How far along a ring the nearest on the map may be."""


METHODS = {
    "tsne": Method(
        be.TSNE, FEW_STEPS, {"perplexity": 8, "early_exaggeration_iter": 8, "n_iter": 57, "early_compression": 1e-3},
        [("move_block", 3), ("join_charges", 30), ("move_block", 20), ("energy_block", 0)],
        "kl_divergences_", 11, {"perplexity": 15, "n_iter": 300}, {"perplexity": 10, "n_iter": 150},
        ["pca", "spectral", "random", "array"], 1e-4, 2,
    ),
    "umap": Method(
        be.UMAP, FEW_EPOCHS, {"n_neighbors": 8, "n_epochs": 12, "random_state": 0},
        [("move_block", 3), ("join_shares", 3), ("move_block", 1), ("cross_entropy_block", 0)],
        "cross_entropies_", 2, {"n_epochs": 200}, {"n_neighbors": 10, "n_epochs": 200},
        ["pca", "random", "array"], 3.0, 3,
    ),
}  # fmt: skip
each = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
umap_first = a_few(1, "method", [METHODS["umap"], METHODS["tsne"]], ids=["umap", "tsne"])


class Killed(Exception):
    """The process ends here."""


def dying(label: str, at: int) -> Callable[..., list[Any]]:
    """An executor that ends the process in a map of this label."""
    made = iter(range(1_000_000))

    def run(calls: Sequence[Callable[[], Any]], name: str) -> list[Any]:
        if name == label and next(made) == at:
            calls[0]()
            raise Killed
        return [call() for call in calls]

    return run


def islands(n: int = 800, size: int = 6) -> np.ndarray:
    """A sphere and two islands, whose rows have one neighbor each outside, far off: the first eigenvectors."""
    random = np.random.default_rng(0)
    sphere = random.normal(size=(n, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    apart = [2.5 * direction + 0.15 * random.normal(size=(size, 3)) for direction in np.eye(3)[:2]]
    return np.concatenate([sphere, *apart])


LOCALIZED = "init='spectral' was not followed: coordinate [12] shows [0-9.]+ % of the rows against all others"


class TestDescendingMaps:
    """t-SNE and UMAP: the same bytes in memory and by blocks, killed or not, new rows, every start, a user's
    weights."""

    @umap_first
    def test_memory_and_blocks_have_the_same_bytes_killed_or_not(
        self, method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pool of UMAP of fewer rows than there are, so that each block has a share of it."""
        monkeypatch.setattr(options, "POOL", 100)
        monkeypatch.setattr(descent, "REPORT", 7)
        monkeypatch.setattr(spaces, "SECONDS", 0.0)
        monkeypatch.setattr(spaces, "TIMES", 0.0)
        n = 320 if method is METHODS["tsne"] else 400
        X = digits(n)[0].astype("f4")

        def fit(in_memory: bool, place: str, **more: Any) -> Any:
            asked = {**method.killed, **more}
            return method.make(in_memory=in_memory, workdir=tmp_path / place, **asked).fit(X)

        def end(event: Any) -> None:
            notes.append(event.message)
            if event.message.startswith("iteration"):
                raise Killed

        notes: list[str] = []
        with blocks_for(n):
            whole = fit(True, "memory")
            assert len(Ordered.open(whole._run.path("order")).starts) > 3
            for label, at in method.kills:
                with pytest.raises(Killed), executor(dying(label, at)):
                    fit(False, "blocks")
            with pytest.raises(Killed), using(observer=end):
                fit(True, "blocks")  # (goes on in memory from what was left in files)
            again = fit(False, "blocks")  # (goes on in files from what was left in memory)
            if "random_state" in method.killed:
                assert np.abs(whole.embedding_ - fit(True, "other", random_state=1).embedding_).max() > 0.01
        assert any(note.startswith("weights and points in memory") for note in notes)
        assert (whole.embedding_ == again.embedding_).all()
        assert (getattr(whole, method.values) == getattr(again, method.values)).all()
        assert len(getattr(whole, method.values)) == method.recorded

    @umap_first
    def test_a_new_row_is_placed_by_itself_among_its_kind(self, method: Method) -> None:
        X, y = digits(700)
        fitted = method.make(**method.placed).fit(X[:500])
        before = fitted.embedding_.copy()
        placed = fitted.transform(X[500:])
        assert (placed[7:9] == fitted.transform(X[507:509])).all()
        assert (fitted.embedding_ == before).all()
        assert (fitted.transform(X[:20]) == before[:20]).all()
        apart = ((placed[:, None] - before[None]) ** 2).sum(axis=-1)
        assert (y[:500][apart.argmin(axis=1)] == y[500:]).mean() > 0.9
        assert (y[:500][apart.argmax(axis=1)] == y[500:]).mean() < 0.3

    @a_few(5, ("name", "start"), [(name, start) for name, made in reversed(METHODS.items()) for start in made.starts])
    def test_every_start_leads_to_a_map(self, name: str, start: str) -> None:
        method, X = METHODS[name], digits(150)[0]
        init = method.spread * np.random.default_rng(0).normal(size=(150, 2)) if start == "array" else start
        fitted = method.make(init=init, **method.quick).fit(X)
        assert trustworthiness(X, fitted.embedding_, n_neighbors=10) > (0.94 if name == "tsne" else 0.93)
        assert fitted.certificate_["start"] == start

    @each
    def test_equal_rows_lie_together_and_a_graph_of_a_radius_is_refused(self, method: Method) -> None:
        X = digits(40)[0]
        same = np.concatenate([X, X[:3], np.repeat(X[:1], 30, axis=0)])
        with pytest.warns(DegenerateWarning, match="33 rows repeat another one"):
            fitted = method.make(**method.few).fit(same)
        assert (fitted.embedding_[40:43] == fitted.embedding_[:3]).all()
        assert np.isfinite(fitted.embedding_).all()
        with pytest.raises(InputTypeError, match="a graph of a radius may join a row to none"):
            method.make().fit(be.build_neighbor_graph(X, radius=20.0))
        start = np.random.default_rng(0).normal(size=(40, 2))
        with pytest.raises(InputError, match=r"init has shape \(40, 2\).*\(n, m\) = \(39, 2\)"):
            method.make(init=start).fit(X[:39])
        start[5] = np.nan
        with pytest.raises(InputError, match=r"init holds NaN or infinity, first in rows \[5\]"):
            method.make(init=start).fit(X)

    @umap_first
    def test_eigenvectors_that_single_out_islands_are_no_start(self, method: Method) -> None:
        k = {"n_neighbors": 6} if method is METHODS["umap"] else {"perplexity": 2}
        short = dict(method.few) | k
        with pytest.warns(LocalizedWarning, match=LOCALIZED):
            fitted = method.make(init="spectral", **short).fit(islands())
        assert fitted.certificate_["start"] == "pca"
        assert "of the rows against all others" in fitted.certificate_["start_reason"]
        with warnings.catch_warnings():
            warnings.simplefilter("error", LocalizedWarning)
            chosen = method.make(**short).fit(islands())
            assert chosen.certificate_["start"] == "pca"
            good = method.make(init="spectral", **short).fit(digits(300)[0])
        assert good.certificate_["start"] == "spectral"
        assert (np.asarray(chosen.embedding_) == fitted.embedding_).all()


def kernel(points: np.ndarray, dof: float) -> tuple[np.ndarray, np.ndarray]:
    """w of all pairs, and 1/(1 + r²/ν)."""
    squared = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    w = np.exp(-squared) if dof == inf else (1 + squared / dof) ** -dof
    np.fill_diagonal(w, 0)
    return w, 1 / (1 + squared / dof)


def divergence(p: np.ndarray, points: np.ndarray, dof: float) -> float:
    w, on = kernel(points, dof)[0], p > 0
    return float((p[on] * np.log(p[on] / (w / w.sum())[on])).sum())


class TestTSNE:
    """t-SNE: the gradient of KL, as good as scikit-learn's, its start. What UMAP has, too: TestDescendingMaps."""

    def test_each_phase_has_what_it_was_asked_for(self) -> None:
        asked = DescentOptions(2, 1.0, 6.0, 5, 2.0, 9, None, 0.3, 0.7, 0.1, True, 4.0)
        assert asked.at(4, 60).tolist() == [6.0, 10.0, 0.3, 0.1, 4.0, 1.0]
        assert asked.at(5, 60).tolist() == [2.0, 30.0, 0.7, 0.0, 4.0, 1.0]

    @pytest.mark.parametrize("dof", [0.5, 1.0, inf])
    def test_a_step_is_along_the_gradient_and_the_divergence_is_that_of_all_pairs(self, dof: float) -> None:
        """One step without momentum, gains or exaggeration, of a map of ordinary size."""
        X, start = digits(200)[0], 3 * np.random.default_rng(0).normal(size=(200, 2))
        plain = {"early_exaggeration_iter": 0, "n_iter": 1, "momentum": 0.0, "gains": False, "max_step": 1e9}
        tsne = be.TSNE(perplexity=10, init=start, dof=dof, learning_rate=1.0, **plain).fit(X)  # type: ignore[arg-type]
        p, (w, pull) = dense(tsne), kernel(start, dof)
        apart = start[:, None] - start[None]
        gradient = (((p - w / w.sum()) * pull)[..., None] * apart).sum(axis=1)
        step = tsne.embedding_ - (start - start.mean(axis=0))
        assert np.linalg.norm(step + gradient) < 0.02 * np.linalg.norm(gradient)
        assert np.linalg.norm(step - gradient) > np.linalg.norm(gradient)
        assert p.sum() == pytest.approx(1, rel=1e-6)
        assert tsne.kl_divergence_ == pytest.approx(divergence(p, tsne.embedding_, dof), rel=3e-3)

    @pytest.mark.slow
    def test_it_is_as_good_as_scikit_learns(self) -> None:
        X, y = digits()
        ours = be.TSNE(perplexity=20).fit(X)
        theirs = InMemory(perplexity=20, init="pca", random_state=0, max_iter=750, method="exact").fit(X)
        p = dense(ours)
        assert divergence(p, ours.embedding_, 1.0) < 1.02 * divergence(p, theirs.embedding_, 1.0)
        assert divergence(p, be.PCA(2).fit_transform(X), 1.0) > 2 * ours.kl_divergence_
        kept = trustworthiness(X, ours.embedding_, n_neighbors=15)
        assert kept > trustworthiness(X, theirs.embedding_, n_neighbors=15) - 0.01
        assert trustworthiness(X, be.PCA(2).fit_transform(X), n_neighbors=15) < kept - 0.05
        near = ((ours.embedding_[:, None] - ours.embedding_[None]) ** 2).sum(axis=-1) + np.diag(np.full(len(y), inf))
        assert (y[near.argmin(axis=1)] == y).mean() > 0.93

    def test_a_map_that_goes_on_is_exaggerated_a_little_so_that_rows_pass_each_other(self) -> None:
        asked = be.TSNE(n_iter=500)._asked()
        on = asked.going_on(0.5)
        assert (on.iterations, on.early_exaggeration_iter, on.early_exaggeration) == (250, 100, 2.0)
        assert [float(on.at(iteration, 1000)[0]) for iteration in (0, 99, 100)] == [2.0, 2.0, 1.0]
        never = be.TSNE(n_iter=500, early_exaggeration_iter=0)._asked().going_on(0.5)
        assert (never.iterations, never.early_exaggeration_iter) == (250, 0)

    def test_a_start_is_in_the_order_of_the_input(self, tmp_path: Path) -> None:
        X, start = digits(300)[0], np.random.default_rng(0).normal(size=(300, 2))
        np.save(tmp_path / "start.npy", start)
        still = {"early_exaggeration_iter": 0, "n_iter": 1, "learning_rate": 1e-12}
        with blocks_for(300):
            tsne = be.TSNE(perplexity=5, init=tmp_path / "start.npy", **still).fit(X)  # type: ignore[arg-type]
        np.testing.assert_allclose(tsne.embedding_, start - start.mean(axis=0), atol=1e-9)

    def test_what_cannot_be_mapped_is_said(self) -> None:
        X = digits(40)[0]
        with pytest.warns(DegenerateWarning, match="perplexity=30 needs 90 neighbors of each row, and there are 39"):
            tsne = be.TSNE(early_exaggeration_iter=5, n_iter=5).fit(X)
        assert tsne.perplexity_ == 13


def entropy(gaps: np.ndarray, beta: float, log_z: float) -> float:
    p = np.exp(-beta * gaps - log_z)
    assert p.sum() == pytest.approx(1, rel=1e-9)
    return float(-(p @ np.log(np.maximum(p, 1e-300))))


class TestPerplexity:
    """Affinities have the perplexity asked for, and are scikit-learn's."""

    @pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
    def test_a_row_has_the_entropy_of_its_perplexity(self, scale: float) -> None:
        gaps = scale * np.sort(np.random.default_rng(0).random(60)) ** 3
        gaps -= gaps[0]
        assert entropy(gaps, *precision(gaps, np.ones(60), 60, 0.0, 20.0)) == pytest.approx(np.log(20), abs=1e-9)
        assert entropy(gaps, *precision(gaps, np.ones(60), 60, 0.0, 21.0)) != pytest.approx(np.log(20), abs=1e-3)

    def test_where_no_precision_has_it_p_is_even(self) -> None:
        """Fewer rows than the perplexity; all at one distance; more at the least distance than the perplexity."""
        assert precision(np.array([0.0, 1.0, 5.0]), np.ones(3), 3, 0.0, 30.0) == (0.0, np.log(3))
        assert precision(np.zeros(40), np.ones(40), 40, 0.0, 30.0) == (0.0, np.log(40))
        gaps = np.concatenate([np.zeros(20), np.ones(20)])
        p = np.exp(-precision(gaps, np.ones(40), 40, 0.0, 10.0)[0] * gaps)
        assert p[:20].min() == 1
        assert p[20:].max() < 1e-12

    def test_joint_probabilities_are_scikit_learns(self) -> None:
        """Of all pairs, which they bisect in float32 to an entropy within 1e-5."""
        X = np.random.default_rng(1).normal(size=(80, 4)) * [3, 1, 1, 0.1]
        graph = be.build_neighbor_graph(X, n_neighbors=79)
        tsne = be.TSNE(perplexity=20, early_exaggeration_iter=1, n_iter=1).fit(graph)
        ours, theirs = dense(tsne), np.zeros((80, 80))
        theirs[np.triu_indices(80, 1)] = _joint_probabilities(cdist(X, X, "sqeuclidean"), 20, 0)
        theirs += theirs.T
        assert (ours == ours.T).all()
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * theirs.max())
        assert abs(ours[::-1] - theirs).max() > 0.1 * theirs.max()


def direct(points: np.ndarray, dof: float) -> tuple[np.ndarray, float]:
    w, pull = kernel(points, dof)
    return ((w * pull)[..., None] * (points[:, None] - points[None])).sum(axis=1), float(w.sum())


def on_lattice(points: np.ndarray, dof: float) -> tuple[np.ndarray, float]:
    low, high = points.min(axis=0), points.max(axis=0)
    lattice = Lattice.covering(np.stack([low, high]), spacing_for(np.stack([low, high]), dof), STEP)
    nodes, first, axes = lattice.nodes(), np.array(lattice.low), (0,) * points.shape[1]
    spread_charges(points, axes, lattice.spacing, first, nodes, np.ones(len(points)))
    field, total = field_of(nodes / UNIT, lattice, dof)
    out, stencil, at = np.empty_like(points), np.ones((3, 4)), np.zeros(3, np.int64)
    for i, point in enumerate(points):
        field_at(point, axes, lattice.spacing, first, field, stencil, at, out[i])
    return out, total


class TestField:
    """Repulsion on a lattice is the sum over all pairs; its charges add up to the same in any order."""

    @pytest.mark.parametrize(
        ("m", "size", "dof"),
        [
            (1, 30, 0.5), (1, 30, 1.0), (2, 5, 0.5), (2, 30, 1.0), (2, 30, inf), (2, 1e-4, inf), (3, 4, 1.0),
            pytest.param(3, 4, 0.5, marks=pytest.mark.slow),
        ],
    )  # fmt: skip
    def test_forces_are_the_sums_over_all_pairs(self, m: int, size: float, dof: float) -> None:
        points = size * np.random.default_rng(m).normal(size=(700, m))
        (found, total), (forces, whole) = on_lattice(points, dof), direct(points, dof)
        apart = np.linalg.norm(found - forces) / np.linalg.norm(forces)
        assert apart < 0.05
        assert abs(total - whole) < 0.01 * whole
        other = direct(points, 1.0 if dof != 1.0 else inf)[0]
        if size > 1:  # (rows in one place are pushed alike by any kernel)
            assert np.linalg.norm(found - other) > 0.1 * np.linalg.norm(forces)

    def test_charges_are_the_same_in_any_order_and_parts(self) -> None:
        points = np.random.default_rng(0).normal(size=(500, 2)) * 3
        whole = Lattice.covering(box_of(points), 0.25, STEP)
        once, parts = whole.nodes(), whole.nodes()
        spread_charges(points, (0, 0), 0.25, np.array(whole.low), once, np.ones(len(points)))
        for part in np.array_split(points[::-1], 7):
            lattice = Lattice.covering(box_of(part), 0.25)
            nodes = lattice.nodes()
            spread_charges(part, (0, 0), 0.25, np.array(lattice.low), nodes, np.ones(len(part)))
            parts[lattice.inside(whole)] += nodes
        assert (once == parts).all()
        assert once.sum() == pytest.approx(500 * UNIT, rel=1e-9)


def log_similarity(one: np.ndarray, other: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """log φ and log(1 − φ), with what softens the latter."""
    squared = ((one - other) ** 2).sum()
    phi = 1 / (1 + a * squared**b)
    return float(np.log(phi)), float(np.log(1 - phi))


class TestUMAP:
    """UMAP: the forces of its formulas, as good as umap-learn's. What t-SNE has, too: TestDescendingMaps."""

    def test_a_step_is_along_the_gradient_of_the_cross_entropy(self) -> None:
        """Two edges, one of which has its turn, and one row of the pool: by differences of the logarithms."""
        a, b, points = 1.58, 0.9, np.array([[0.3, -0.2], [1.5, 0.4], [-1.0, 2.0]])
        drawn = np.array([[3.0, 1.0]])
        indptr, columns, weights = np.array([0, 2]), np.array([1, 2]), np.array([1.0, 0.4], np.float32)
        moved = np.empty((1, 2))
        asked = np.array([a, b, 1.0, 3, 1.0, 0, 0.5, 1.0])
        step(0, 1, 0, 0, indptr, columns, weights, points, drawn, np.zeros(0), 5, asked, moved)
        gradient, h = np.zeros(2), 1e-6
        for k in range(2):
            shift = h * np.eye(2)[k]
            for sign in (1, -1):
                near = log_similarity(points[0] + sign * shift, points[1], a, b)[0]
                far = log_similarity(points[0] + sign * shift, drawn[0], a, b)[1]
                gradient[k] += sign * (2 * near + 3 * far) / (2 * h)
        expected = points[0] + 0.5 * gradient / 1.4
        np.testing.assert_allclose(moved[0], expected, atol=1e-4)
        assert np.abs(moved[0] - (2 * points[0] - expected)).max() > 0.1
        asked[DIVIDED] = 1 / AT_ONCE
        step(0, 1, 0, 0, indptr, columns, weights, points, drawn, np.zeros(0), 5, asked, moved)
        np.testing.assert_allclose(moved[0], points[0] + 0.5 * gradient, atol=1e-4)

    def test_a_step_in_a_plane_is_that_in_space_to_the_last_bit(self) -> None:
        """A plane has code of its own."""
        random, n = np.random.default_rng(0), 200
        points, w = 3 * random.normal(size=(n, 2)), random.random(n * 9).astype("f4")
        indptr, columns = 9 * np.arange(n + 1), random.integers(0, n, 9 * n).astype("i4")
        options = np.array([1.58, 0.9, 1.0, 5, 1.0, 3, 0.5, 1.0])
        for masses in (np.zeros(0), random.random(n)):
            moved = []
            for flat in (points, np.column_stack([points, np.zeros(n)])):
                moved.append(np.empty_like(flat))
                step(0, n, 0, 0, indptr, columns, w, flat, flat, masses, 7, options, moved[-1])
            assert (moved[0] == moved[1][:, :2]).all()
            assert abs(moved[0] - points).max() > 0.1

    def test_an_edge_takes_part_in_its_share_of_the_epochs_and_rows_are_drawn_evenly(self) -> None:
        for share in (1.0, 0.37, 0.005, 0.001):
            assert sum(has_turn(epoch, share) for epoch in range(500)) == int(500 * share)
        found = np.array([int(number_of(np.uint64(state * 77))) >> 60 for state in range(16_000)])
        assert np.abs(np.bincount(found, minlength=16) - 1_000).max() < 150

    def test_it_keeps_neighbors_as_umap_learn_does(self) -> None:
        """Of these rows umap-learn 0.5.12 has trustworthiness .9861 to .9865 (three seeds, 16 neighbors with the
        row)."""
        X, y = digits(1_000)
        umap = be.UMAP().fit(X)
        kept = trustworthiness(X, umap.embedding_, n_neighbors=15)
        assert kept > 0.9861 - 0.01
        assert trustworthiness(X, be.PCA(2).fit_transform(X), n_neighbors=15) < kept - 0.1
        near = ((umap.embedding_[:, None] - umap.embedding_[None]) ** 2).sum(axis=-1) + np.diag(np.full(len(y), np.inf))
        assert (y[near.argmin(axis=1)] == y).mean() > 0.93
        assert umap.cross_entropies_[-1] < umap.cross_entropies_[0]
        assert umap.certificate_["start"] == "spectral"

    def test_what_cannot_be_mapped_is_said(self) -> None:
        X = digits(40)[0]
        with pytest.warns(DegenerateWarning, match="n_neighbors=50, and there are 40 rows: 39 were taken"):
            umap = be.UMAP(n_neighbors=50, n_epochs=5).fit(X)
        assert umap.n_neighbors_ == 39
        assert be.UMAP(n_neighbors=2, n_epochs=5).fit(X[:3]).embedding_.shape == (3, 2)
        with pytest.warns(DegenerateWarning, match="there are 2 rows: 1 were taken"):
            assert be.UMAP(n_epochs=5).fit(X[:2]).certificate_["start"] == "pca"

    def test_a_fold_is_a_warning(self) -> None:
        """The halves of a sphere on each other; a map of rows of many dimensions is none."""
        X = np.random.default_rng(0).normal(size=(1_500, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        with pytest.warns(MapWarning, match="neighbors are together, but lie on top of rows from elsewhere"):
            be.UMAP(init=3 * X[:, :2], n_epochs=10).fit(X)
        with pytest.warns(MapWarning, match="take init='random', more n_components"):  # (not the one that is in use)
            be.UMAP(init="pca", n_epochs=5).fit(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error", MapWarning)
            be.UMAP(n_epochs=100).fit(digits(600)[0])


UMAP_LEARN = {
    0: {8: 0.6590043, 12: 0.6043636, 13: 1.0, 18: 0.2875665, 20: 0.3287093, 30: 0.9999999, 36: 0.5024907},
    17: {1: 0.5660945, 10: 0.5504966, 14: 1.0, 15: 0.5067115, 21: 0.9999999, 32: 0.9999999},
}
"""Rows of ``fuzzy_simplicial_set`` of umap-learn 0.5.12, of the exact lists of 5 neighbors (its 6) of :func:`rows`."""


def rows(n: int = 40) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(n, 3)) * [3.0, 1.0, 0.3]


def by_formula(X: np.ndarray, k: int, connectivity: float, mix: float) -> np.ndarray:
    """W row by row, with the bandwidth by a root finder of SciPy's."""
    apart = cdist(X, X)
    a = np.zeros_like(apart)
    for i, row in enumerate(apart):
        near = np.argsort(row, kind="stable")[1 : k + 1]
        nonzero, whole = row[near][row[near] > 0], int(connectivity)
        rho = nonzero[whole - 1] + (connectivity - whole) * (nonzero[whole] - nonzero[whole - 1])
        beyond = np.maximum(row[near] - rho, 0)
        sigma = brentq(lambda s, d=beyond: np.exp(-d / s).sum() - log2(k + 1), 1e-9, 1e9, xtol=1e-14, rtol=1e-13)
        a[i, near] = np.exp(-beyond / sigma)
    return mix * (a + a.T - a * a.T) + (1 - mix) * a * a.T


class TestFuzzy:
    """The weights of UMAP: those of umap-learn for the same lists of neighbors, and those of a loop by the formulas."""

    @pytest.mark.parametrize(("connectivity", "mix"), [(1.0, 1.0), (2.5, 0.3)])
    def test_weights_are_those_of_the_formulas_from_rows_and_from_given_lists(
        self, connectivity: float, mix: float
    ) -> None:
        X = rows(300)
        asked: dict[str, Any] = {"local_connectivity": connectivity, "set_op_mix_ratio": mix, "n_epochs": 1}
        found = dense(be.UMAP(n_neighbors=8, init="random", **asked).fit(X))
        np.testing.assert_allclose(found, by_formula(X, 8, connectivity, mix), atol=1e-6)
        assert (found == found.T).all()
        near = np.argsort(cdist(X, X), axis=1)[:, :9]
        lists = be.open_graph(near, distances=np.take_along_axis(cdist(X, X), near, axis=1))
        np.testing.assert_allclose(dense(be.UMAP(init="random", **asked).fit(lists)), found, atol=1e-6)
        assert abs(found - by_formula(X, 9, connectivity, mix)).max() > 0.05
        assert abs(found - by_formula(X, 8, connectivity + 1, mix)).max() > 0.05

    def test_weights_are_umap_learns(self) -> None:
        found = dense(be.UMAP(n_neighbors=5, n_epochs=1, init="random").fit(rows()))
        for row, stored in UMAP_LEARN.items():
            assert np.flatnonzero(found[row]).tolist() == list(stored)
            np.testing.assert_allclose(found[row, list(stored)], list(stored.values()), atol=1e-5)

    def test_bandwidths_of_degenerate_lists_are_finite_or_leave_all_memberships_at_one(self) -> None:
        assert bandwidth(np.zeros(9), 9, 9, 1.0)[0] == 0
        assert 0 < bandwidth(np.zeros(9), 9, 9, 1.0)[1] < 1e-15
        assert bandwidth(np.array([2.0, 1.0]), 2, 15, 1.0) == (1.0, np.inf)
        rho, sigma = bandwidth(np.concatenate([np.zeros(12), [5.0, 3.0]]), 14, 14, 1.0)
        assert rho == 3
        assert sigma == pytest.approx(1e-3 * 8 / 15)

    def test_the_curve_is_umap_learns(self) -> None:
        np.testing.assert_allclose(curve(0.1, 1.0), (1.576943460, 0.895060879), rtol=1e-6)
        np.testing.assert_allclose(curve(0.5, 1.0), (0.583030020, 1.334166993), rtol=1e-6)
