"""What a neighbor graph gives to others: its lists, new rows, sparse distances in pipelines; the real libraries."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.manifold import Isomap
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.pipeline import make_pipeline

import bigembed as be
from bigembed.errors import InputError
from tests.some import a_few

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
N, K = 300, 15


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N + 20, 4))


@pytest.fixture(scope="module")
def graph(rows: np.ndarray) -> Any:
    return be.build_neighbor_graph(rows[:N], K)


class TestLists:
    def test_they_are_the_nearest_rows(self, rows: np.ndarray, graph: Any) -> None:
        distances, indices = NearestNeighbors(n_neighbors=K + 1).fit(rows[:N]).kneighbors(rows[:N])
        found, apart = graph.lists()
        np.testing.assert_array_equal(found, indices[:, 1:])
        np.testing.assert_allclose(apart, distances[:, 1:], rtol=1e-12)
        np.testing.assert_array_equal(graph.lists(3)[0], found[:, :3])
        near, far, index = graph.knn()
        np.testing.assert_array_equal(near, indices)
        assert (far.dtype, index, far[:, 0].max()) == (np.float32, None, 0)

    def test_new_rows_find_theirs(self, rows: np.ndarray, graph: Any) -> None:
        distances, indices = NearestNeighbors(n_neighbors=K).fit(rows[:N]).kneighbors(rows)
        found, apart = graph.query(rows)
        np.testing.assert_array_equal(found, indices)  # (a row that is there is its own nearest one)
        np.testing.assert_allclose(apart, distances, atol=1e-12)
        np.testing.assert_array_equal(graph.query(rows[N:], k=2)[0], indices[N:, :2])

    def test_sparse_or_dense_it_finds_the_same(self) -> None:
        bits = (np.random.default_rng(0).random((260, 40)) < 0.2).astype("u1")
        fitted, new = bits[:240], bits[240:]
        wanted = NearestNeighbors(n_neighbors=5, metric="jaccard").fit(fitted > 0).kneighbors(new > 0)[0]
        for graph_rows in (fitted, csr_array(fitted)):
            graph = be.build_neighbor_graph(graph_rows, 5, metric="jaccard")
            for asked in (new, csr_array(new)):
                np.testing.assert_allclose(graph.query(asked)[1], wanted, atol=1e-7)

    @pytest.mark.parametrize("metric", ["cosine", pytest.param("yule", marks=pytest.mark.slow)])
    def test_of_many_blocks_and_other_metrics(self, metric: str, small_blocks: None) -> None:
        x = np.abs(np.random.default_rng(2).normal(size=(900, 6)))
        x *= np.random.default_rng(3).random((900, 6)) < 0.8
        x[:, 0] += 0.1
        found = be.build_neighbor_graph(x, 5, metric=metric, algorithm="nn-descent")
        assert len(found.matrix.rows) > 1
        indices, distances = found.query(x[:30], 5)
        np.testing.assert_allclose(distances[:, 0], 0, atol=1e-7)
        lists, apart = found.lists()
        assert not (lists == np.arange(900)[:, None]).any()
        joined = found.to_scipy()
        np.testing.assert_allclose(joined[np.repeat(np.arange(900), 5), lists.ravel()], apart.ravel(), rtol=1e-12)
        same = np.mean([len({*indices[i]} & {i, *lists[i]}) / 5 for i in range(30)])
        assert same > 0.9

    def test_what_has_no_lists_says_so(self, rows: np.ndarray, graph: Any) -> None:
        with pytest.raises(InputError, match="joins all rows within a radius"):
            be.build_neighbor_graph(rows, None, radius=1.0).lists()
        with pytest.raises(InputError, match="that was built of rows"):
            be.build_neighbor_graph(be.open_graph(graph.knn())).query(rows)
        with pytest.raises(InputError, match="hold up to 15 rows"):
            graph.lists(K + 1)
        with pytest.raises(InputError, match="rows of 4 columns are needed"):
            graph.query(rows[:, :2])
        with pytest.raises(InputError, match="NaN or infinity"):
            graph.query(np.full((1, 4), np.nan))


class TestTransformer:
    def test_it_gives_what_scikit_learn_gives(self, rows: np.ndarray) -> None:
        mine, theirs = be.NeighborTransformer(K), KNeighborsTransformer(n_neighbors=K, mode="distance")
        for found, wanted in (
            (mine.fit_transform(rows[:N]), theirs.fit_transform(rows[:N])),
            (mine.transform(rows[N:]), theirs.transform(rows[N:])),
        ):
            np.testing.assert_array_equal(found.indptr, wanted.indptr)
            np.testing.assert_array_equal(found.indices, wanted.indices)
            np.testing.assert_allclose(found.data, wanted.data, atol=1e-12)
        assert clone(mine).get_params() == mine.get_params()

    @a_few(2, "last", [Isomap, be.Isomap, be.DiffusionMap, be.LaplacianEigenmaps])
    def test_new_rows_come_after_it(self, rows: np.ndarray, last: Any) -> None:
        first = be.NeighborTransformer(K), KNeighborsTransformer(n_neighbors=K, mode="distance")
        found, wanted = (
            make_pipeline(one, last(n_components=2, n_neighbors=K, metric="precomputed"))
            .fit(rows[:N])
            .transform(rows[N:])
            for one in first
        )
        assert found.shape == (20, 2)
        np.testing.assert_allclose(found, wanted, atol=1e-6 * np.ptp(wanted))

    @pytest.mark.recipes
    def test_scanpy_takes_it(self, rows: np.ndarray) -> None:
        anndata, scanpy = pytest.importorskip("anndata"), pytest.importorskip("scanpy", reason="extra: recipes")
        mine, theirs = (anndata.AnnData(rows[:N].astype(np.float32)) for _ in range(2))
        scanpy.pp.neighbors(mine, n_neighbors=K, use_rep="X", transformer=be.NeighborTransformer(K))
        scanpy.pp.neighbors(theirs, n_neighbors=K, use_rep="X")
        apart = abs(mine.obsp["connectivities"] - theirs.obsp["connectivities"])
        assert apart.max() < 1e-3
        scanpy.tl.diffmap(mine, n_comps=4)
        scanpy.tl.diffmap(theirs, n_comps=4)
        np.testing.assert_allclose(mine.uns["diffmap_evals"], theirs.uns["diffmap_evals"], atol=1e-4)

    @pytest.mark.recipes
    def test_umap_learn_and_opentsne_take_the_lists(self, rows: np.ndarray, graph: Any) -> None:
        umap = pytest.importorskip("umap", reason="extra: recipes")
        opentsne = pytest.importorskip("openTSNE", reason="extra: recipes")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # (of threads, and that new rows need an index)
            given = umap.UMAP(n_neighbors=K + 1, precomputed_knn=graph.knn(), n_epochs=5, random_state=0).fit(rows[:N])
            plain = umap.UMAP(n_neighbors=K + 1, n_epochs=5, random_state=0).fit(rows[:N])
        assert abs(given.graph_ - plain.graph_).max() < 1e-4
        index = opentsne.nearest_neighbors.PrecomputedNeighbors(*graph.lists())
        affinities = opentsne.affinity.PerplexityBasedNN(knn_index=index, perplexity=5)
        assert affinities.P.shape == (N, N)
        assert affinities.P.sum() == pytest.approx(1)
