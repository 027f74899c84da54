"""Laplacian eigenmaps, spectral clustering, and functions of a fitted walk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import linalg, sparse
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralClustering as Theirs
from sklearn.datasets import make_blobs, make_moons, make_swiss_roll
from sklearn.metrics import adjusted_rand_score

import bigembed as be
from bigembed.errors import ComponentsWarning, ConvergenceWarning, DroppedError, InputError, InputTypeError
from bigembed.maps import clusters
from bigembed.maps.clusters import best_centers, directions, labels_block, lloyd_block, spread_centers
from bigembed.rows import RowBlock
from tests.blocks import blocks_for
from tests.some import a_few

ROLL = make_swiss_roll(600, noise=0.05, random_state=0)[0]
GRAPH = be.build_neighbor_graph(ROLL, 10)
BALL = be.build_neighbor_graph(ROLL, radius=5.0)


def heat(graph: be.NeighborGraph, epsilon: float | None, diagonal: float = 1.0) -> Any:
    """K of a graph in the order of the rows; no ε for weights of 1."""
    kernel = graph.to_scipy()
    kernel.data = np.ones(kernel.nnz) if epsilon is None else np.exp(-(kernel.data**2) / epsilon)
    return (kernel + diagonal * sparse.eye_array(graph.n)).tocsr()


def solved(kernel: Any, m: int) -> tuple[Any, Any]:
    """μ and R of L R = Q R M without the trivial pair, RᵀQR = ΣQ."""
    dense = kernel.toarray()
    q = dense.sum(axis=1)
    values, vectors = linalg.eigh(np.diag(q) - dense, np.diag(q), subset_by_index=[1, m])
    return values, vectors * np.sqrt(q.sum())


def apart(found: Any, wanted: Any) -> float:
    """Largest difference of columns up to their signs."""
    return float(np.abs(found * np.sign((found * wanted).sum(axis=0)) - wanted).max())


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestLaplacianEigenmaps:
    """Laplacian eigenmaps: the generalized eigenproblem solved densely, scikit-learn's map, the diffusion map,
    refusals."""

    @a_few(
        2,
        ("graph", "parameters", "epsilon"),
        [
            (GRAPH, {"bandwidth": "fixed", "epsilon": 3.0}, 3.0),
            (GRAPH, {"weights": "binary"}, None),
            (BALL, {}, 6.25),
            (BALL, {"weights": "binary"}, None),
        ],
    )
    def test_it_solves_the_generalized_eigenproblem(self, graph: Any, parameters: Any, epsilon: float | None) -> None:
        le = be.LaplacianEigenmaps(3, **parameters).fit(graph)
        values, vectors = solved(heat(graph, epsilon), 3)
        np.testing.assert_allclose(le.eigenvalues_, values, atol=1e-7)
        assert apart(le.embedding_, vectors) < 1e-5  # weights of rows in float64 are kept in float32
        wrong, others = solved(heat(graph, 2.0), 3)
        assert np.abs(le.eigenvalues_ - wrong).max() > 1e-5  # a control
        assert apart(le.embedding_, others) > 1e-2
        assert le.epsilon_ == epsilon

    def test_it_is_the_diffusion_map_without_density_and_time(self) -> None:
        le, dm = be.LaplacianEigenmaps(4).fit(GRAPH), be.DiffusionMap(4, alpha=0, t=0).fit(GRAPH)
        np.testing.assert_array_equal(le.eigenvalues_, 1 - dm.eigenvalues_)
        np.testing.assert_array_equal(le.embedding_, dm.embedding_)
        new = ROLL[:5] + 0.01
        np.testing.assert_array_equal(le.transform(new), dm.transform(new))
        assert apart(le.embedding_, be.DiffusionMap(4, t=0).fit(GRAPH).embedding_) > 1e-3  # α = 1: a control

    def test_islands_of_a_graph_of_weights_lie_in_the_middle(self) -> None:
        path = sparse.diags_array([np.ones(299), np.ones(299)], offsets=[-1, 1])
        pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
        with pytest.warns(ComponentsWarning, match="2 nodes in 1 island .* are at 0"):
            le = be.LaplacianEigenmaps(2).fit(sparse.block_diag([path, pair]).tocsr())
        assert (le.embedding_[-2:] == 0).all()
        assert le.labels_[-3:].tolist() == [0, -1, -1]
        alone = be.LaplacianEigenmaps(2).fit(path.tocsr())
        np.testing.assert_allclose(le.embedding_[:-2], alone.embedding_, atol=1e-6)

    def test_a_graph_of_a_radius_has_no_local_scale(self) -> None:
        with pytest.raises(InputError, match="the graph is one of a radius"):
            be.LaplacianEigenmaps(bandwidth="adaptive").fit(BALL)
        dense = be.build_neighbor_graph(ROLL[:50], None)
        with pytest.raises(InputError, match="a graph of every pair"):
            be.LaplacianEigenmaps(weights="binary").fit(dense)


MOONS, HALF = make_moons(500, noise=0.08, random_state=0)
BLOBS, BLOB = make_blobs(300, centers=4, cluster_std=1.5, random_state=1)


def path_graph(n: int) -> Any:
    return sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]).tocsr()


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestSpectralClustering:
    """Spectral clustering: the normalized rows of Ng, Jordan & Weiss, scikit-learn's k-means and clusters, refusals."""

    def test_directions_are_the_normalized_rows_of_all_eigenvectors(self) -> None:
        kernel = np.exp(-(np.linalg.norm(BLOBS[:80, None] - BLOBS[:80], axis=2) ** 2) / 8)
        q = kernel.sum(axis=1)
        vectors = linalg.eigh(kernel / np.sqrt(np.outer(q, q)))[1]
        four = vectors[:, :-5:-1]
        wanted = four / np.linalg.norm(four, axis=1, keepdims=True)
        right = four / four[:, :1]  # r_l = v_l/v_0: Q^{-1/2} v up to a factor
        found = directions(right[:, 1:]) * np.sign(four[0, 0])
        np.testing.assert_allclose(found, wanted, atol=1e-12)
        assert np.abs(directions(2 * right[:, 1:]) - wanted).max() > 0.1  # a control

    def test_lloyd_goes_where_scikit_learn_goes(self) -> None:
        start = BLOBS[:4]
        theirs = KMeans(4, init=start, n_init=1, max_iter=1, algorithm="lloyd", tol=0).fit(BLOBS)
        halves = [RowBlock(b, 150 * b, BLOBS[150 * b : 150 * b + 150]) for b in range(2)]
        parts = [lloyd_block(half, start, normalize_rows=False) for half in halves]
        found = {name: parts[0][name] + parts[1][name] for name in parts[0]}
        once = found["sums"] / found["counts"][:, None]
        labels = np.linalg.norm(BLOBS[:, None] - start, axis=2).argmin(axis=1)
        np.testing.assert_allclose(once, [BLOBS[labels == c].mean(axis=0) for c in range(4)])
        np.testing.assert_allclose(found["squares"], ((BLOBS - start[labels]) ** 2).sum())
        assert np.abs(once - start).max() > 1e-2
        best = best_centers(BLOBS, 4, 5, 0)
        inertia = KMeans(4, n_init=10, random_state=0).fit(BLOBS).inertia_
        assert (np.linalg.norm(BLOBS[:, None] - best, axis=2).min(axis=1) ** 2).sum() <= inertia * (1 + 1e-6)
        assert theirs.inertia_ >= inertia  # a control: one step is not enough

    def test_starts_are_rows_far_from_each_other(self) -> None:
        rows = np.repeat([[0.0], [1.0], [9.0]], 50, axis=0)
        for seed in range(5):
            chosen = spread_centers(rows, 3, np.random.default_rng(seed))
            assert sorted(chosen.ravel().tolist()) == [0.0, 1.0, 9.0]  # equal rows are at distance 0 of the first

    def test_clusters_of_weights_are_those_of_scikit_learn(self) -> None:
        graph = be.build_neighbor_graph(BLOBS, 12)
        weights = graph.to_scipy()
        weights.data = np.exp(-(weights.data**2))
        theirs = Theirs(4, affinity="precomputed", random_state=0).fit(sparse.csr_matrix(weights)).labels_
        found = be.SpectralClustering(4, normalize_rows=False).fit(weights)
        assert adjusted_rand_score(theirs, found.labels_) > 0.98
        assert np.bincount(found.labels_).tolist() == sorted(np.bincount(found.labels_), reverse=True)
        assert found.certificate_["clusters"]["sizes"] == np.bincount(found.labels_).tolist()
        with pytest.raises(InputTypeError, match="no place for new rows"):
            found.predict(BLOBS)

    def test_parts_are_clusters_and_islands_are_left_out(self) -> None:
        weights = sparse.block_diag([path_graph(100), path_graph(90), path_graph(80), path_graph(2)]).tocsr()
        labels = be.SpectralClustering(3).fit(weights).labels_
        assert labels.tolist() == [0] * 100 + [1] * 90 + [2] * 80 + [-1] * 2
        few = be.SpectralClustering(2).fit(weights)
        assert any("3 parts" in said for said in few.certificate_["warnings"]["components"])

    def test_labels_of_nodes_without_a_place(self, tmp_path: Any) -> None:
        from bigembed.store.arrays import create_rows, read_array, write_array

        create_rows(tmp_path / "out", (3,), np.int32, 3)
        write_array(tmp_path / "parts", np.array([0, -1, 0], np.int32))
        block = RowBlock(0, 0, np.array([[0.0], [0.0], [5.0]]))
        labels_block(block, np.array([[0.0], [5.0]]), False, str(tmp_path / "parts"), str(tmp_path / "out"))
        assert read_array(tmp_path / "out").tolist() == [0, -1, 1]

    def test_k_means_that_stops_early_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clusters, "STEPS", 1)
        with pytest.warns(ConvergenceWarning, match="k-means stopped after 1 iterations"):
            be.SpectralClustering(6, n_init=1).fit(MOONS)


N = 300


def branching(n: int, seed: int = 0, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Cells of two branches that leave a stem, and how far each has come."""
    rng = np.random.default_rng(seed)
    time, branch = rng.random(n), rng.integers(0, 2, n)
    side = np.where(branch == 1, 1.0, -1.0) * np.maximum(time - 0.4, 0)
    return np.column_stack([time, side]) @ rng.normal(size=(2, 6)) + noise * rng.normal(size=(n, 6)), time


def knn_weights(rows: np.ndarray, k: int) -> Any:
    """Symmetric weights of a graph of nearest neighbors, as somebody else would make them."""
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(rows, k, mode="distance")
    graph.data = np.exp(-np.square(graph.data / np.median(graph.data)))
    return sparse.csr_array(graph.maximum(graph.T))


def dense_pseudotime(weights: Any, root: int, count: int) -> np.ndarray:
    """The formula of Haghverdi et al. and of scanpy: W/(q_i q_j), made symmetric by its degrees; λ/(1 − λ) of each."""
    w = weights.toarray()
    w = w / np.outer(w.sum(axis=1), w.sum(axis=1))
    d = np.sqrt(w.sum(axis=1))
    values, vectors = np.linalg.eigh(w / np.outer(d, d))
    values, vectors = values[::-1][1 : count + 1], vectors[:, ::-1][:, 1 : count + 1]
    scaled = vectors * values / (1 - values)
    return np.linalg.norm(scaled - scaled[root], axis=1)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return branching(N)[0]


@pytest.fixture(scope="module")
def fitted(rows: np.ndarray) -> Any:
    """Of several blocks, so that rows change places."""
    with blocks_for(N):
        return be.DiffusionMap(n_components=8, n_neighbors=10).fit(rows)


def _plane(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = 60 if seed else N
    rng.random(n), rng.integers(0, 2, n)
    return rng.normal(size=(2, 6))


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestWalkFunctions:
    """Pseudotime, smoothing and geometric harmonics of a fitted walk, against dense formulas written here."""

    def test_pseudotime_of_a_graph_is_the_closed_form(self, rows: np.ndarray) -> None:
        root = 123
        weights = knn_weights(rows, 10)
        walk = be.DiffusionMap(n_components=14, alpha=1.0, tol=1e-10).fit(be.open_graph(weights))
        found, wanted = be.diffusion_pseudotime(walk, root), dense_pseudotime(weights, root, 14)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * wanted.max())
        assert np.abs(found - dense_pseudotime(weights, root, 13)).max() > 1e-4 * wanted.max()  # (a control)

    def test_pseudotime_of_rows_is_how_far_they_came(self, tmp_path: Path) -> None:
        rows, time = branching(N)
        rows = np.concatenate([rows, rows[[7]]])
        with blocks_for(N):
            fitted = be.DiffusionMap(n_components=8, n_neighbors=10).fit(rows)
            root = int(np.argmin(time))
            found = be.diffusion_pseudotime(fitted, root, workdir=tmp_path / "time")
            assert spearmanr(found[:N], time).statistic > 0.97
            assert found[root] == 0
            assert found[-1] == found[7]
            right = be.diffusion_pseudotime(fitted, root, eigenvectors="right")
            values = fitted.eigenvalues_
            scaled = fitted.embedding_ / (1 - values)
            np.testing.assert_allclose(right, np.linalg.norm(scaled - scaled[root], axis=1), rtol=1e-10)

    @pytest.mark.parametrize("t", [0, 3])
    def test_smoothing_is_the_power_of_the_walk(self, rows: np.ndarray, t: int, tmp_path: Path) -> None:
        weights = knn_weights(rows, 8)
        columns = np.random.default_rng(1).normal(size=(N, 5))
        walk = (weights / weights.sum(axis=1)[:, None]).toarray()
        wanted = np.linalg.matrix_power(walk, t) @ columns
        with blocks_for(N), pytest.MonkeyPatch.context() as patch:
            patch.setattr("bigembed.maps.walk.smoothing.BLOCK_BYTES", 8 * 2 * N)  # (several panels)
            graph = be.DiffusionMap(alpha=0.0).fit(be.open_graph(weights))
            found = be.smooth(graph, columns, t)
            np.testing.assert_allclose(found, wanted, atol=1e-12)
            np.testing.assert_array_equal(be.smooth(graph, columns[:, 2], t), found[:, 2])
            np.testing.assert_array_equal(be.smooth(graph, sparse.csr_array(columns), t), found)
            lazy = be.smooth(graph, da.from_array(columns, chunks=(70, 2)), t, workdir=tmp_path / "smooth")
            assert isinstance(lazy, da.Array)
            np.testing.assert_array_equal(lazy, found)
            array = zarr.create_array(tmp_path / "c.zarr", data=columns[:, 2].astype("f4"), chunks=(33,))
            assert array.shape == (N,)
            assert be.smooth(graph, tmp_path / "c.zarr", t).dtype == np.float32

    def test_harmonics_extend_functions_and_cut_noise(self, fitted: Any, rows: np.ndarray) -> None:
        new, later = branching(60, 5)
        _, time = branching(N)
        new = new @ np.linalg.pinv(_plane(5)) @ _plane(0)
        rng = np.random.default_rng(2)
        functions = np.column_stack([time, np.sin(5 * time), 3 + rng.normal(size=(N, 20))])
        found = be.geometric_harmonics(fitted, functions)
        assert found.error[0] < 0.02
        assert found.error[1] < 0.1
        assert found.error[2:].min() > 0.9
        assert np.median(found.cut[2:]) <= 3 < found.cut[1]
        values = found.predict(new)
        assert np.corrcoef(values[:, 0], later)[0, 1] > 0.99
        assert abs(values[:, 2:].mean(axis=1) - 3).max() < 0.3
        basis = np.column_stack([np.ones(N), fitted.embedding_])
        wanted = basis @ np.linalg.lstsq(basis, functions[:, 0], rcond=None)[0]
        whole = be.geometric_harmonics(fitted, functions[:, 0], cut=8)
        np.testing.assert_allclose(whole.fitted_values(), wanted, atol=1e-9)
        assert whole.predict(da.from_array(new, chunks=(20, 6))).compute().shape == (60,)

    def test_what_cannot_be_used_is_said(self, fitted: Any, rows: np.ndarray, tmp_path: Path) -> None:
        for root in (-1, N, 2.5):
            with pytest.raises((InputError, InputTypeError), match="root="):
                be.diffusion_pseudotime(fitted, root)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"\(299,\); one number a row is needed, so shape \(300,\)"):
            be.smooth(fitted, np.ones(N - 1))
        with pytest.raises(InputError, match=r"the columns have 299 rows, the map has 300"):
            be.geometric_harmonics(fitted, np.ones((N - 1, 2)))
        bad = np.ones((N, 2))
        bad[[5, 9], 1] = np.nan
        with pytest.raises(InputError, match=r"NaN or infinity.*\[5, 9\]"):
            be.smooth(fitted, bad)
        with pytest.raises(InputError, match="NaN"):
            be.geometric_harmonics(fitted, bad)
        with pytest.raises(InputError, match=r"cut=9; the map has 8 coordinates"):
            be.geometric_harmonics(fitted, np.ones(N), cut=9)
        with pytest.raises(InputTypeError, match="t=-1"):
            be.smooth(fitted, np.ones(N), -1)
        fitted.save(tmp_path / "model")
        begun = be.UMAP(n_epochs=1).fit(rows)  # (with the spectrum of its own graph)
        alone = be.DiffusionMap(workdir=tmp_path / "run", keep="coordinates").fit(rows)
        for use in (lambda one: be.smooth(one, np.ones(N)), lambda one: be.diffusion_pseudotime(one, 0)):
            with pytest.raises(InputTypeError, match="a saved model does not hold its walk"):
                use(be.load(tmp_path / "model"))
            for other in (be.PCA(n_components=1).fit(rows), begun):
                with pytest.raises(InputTypeError, match=f"{type(other).__name__} has none"):
                    use(other)
            with pytest.raises(DroppedError, match="was dropped"):
                use(alone)
        with pytest.raises(InputTypeError, match="UMAP has none"):
            be.geometric_harmonics(begun, np.ones(N))

    def test_other_components_and_islands(self) -> None:
        apart = np.concatenate([np.arange(40.0), 1e3 + np.arange(50.0), [1e6, 1e6 + 1, 1e6 + 2]])[:, None]
        joint = be.DiffusionMap(n_components=6, n_neighbors=2, components="joint").fit(apart)
        time = be.diffusion_pseudotime(joint, 45)
        assert np.isfinite(time).tolist() == [40 <= row < 90 for row in range(93)]

    @pytest.mark.recipes
    def test_pseudotime_equals_that_of_scanpy(self) -> None:
        scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
        rows, time = branching(3_000, noise=0.1)
        cells = anndata.AnnData(rows.astype("f4"))
        scanpy.pp.neighbors(cells, n_neighbors=15, use_rep="X")
        scanpy.tl.diffmap(cells, n_comps=15)
        cells.uns["iroot"] = int(np.argmin(time))
        scanpy.tl.dpt(cells, n_dcs=15)
        walk = be.DiffusionMap(n_components=14, alpha=1.0).fit(cells.obsp["connectivities"])
        found = be.diffusion_pseudotime(walk, cells.uns["iroot"])
        assert spearmanr(found, cells.obs["dpt_pseudotime"]).statistic >= 0.999
