"""The stored graph against dense references, and the query against the graph."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import bigembed as be
from bigembed.errors import InputError, RecallWarning
from bigembed.neighbors import query
from bigembed.neighbors.components import find_components
from bigembed.neighbors.query import Index, join_rows
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.survey import Shape, prepare, shape_in
from bigembed.store.exchange import Exchange


def reference(X: np.ndarray, k: int) -> np.ndarray:
    """Dense symmetric k-nearest graph of distances, ties by id; inf where there is no edge."""
    squared = ((X[:, None].astype(float) - X[None].astype(float)) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    near = np.argsort(squared, axis=1, kind="stable")[:, :k]
    joined = np.zeros(squared.shape, bool)
    np.put_along_axis(joined, near, True, axis=1)
    return np.where(joined | joined.T, np.sqrt(squared), np.inf)


def dense(graph: be.NeighborGraph) -> np.ndarray:
    out = np.full((graph.n, graph.n), np.inf)
    sparse = graph.to_scipy().tocoo()
    out[sparse.row, sparse.col] = sparse.data
    return out


def index_of(graph: be.NeighborGraph) -> Index:
    return query.index_of(graph.run, shape_in(graph.run.results("survey")))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64])
def test_a_small_graph_is_exact(dtype: type) -> None:
    X = (np.random.default_rng(0).normal(size=(300, 4)) * 20 + 100).astype(dtype)
    graph = be.build_neighbor_graph(X, 7)
    assert graph.recall == 1.0
    if np.issubdtype(dtype, np.integer) or dtype == np.float16:  # ties: the lengths agree, whatever the choice
        np.testing.assert_allclose(
            np.sort(dense(graph), axis=1)[:, :7], np.sort(reference(X, 7), axis=1)[:, :7], rtol=1e-6
        )
    else:
        np.testing.assert_allclose(dense(graph), reference(X, 7), rtol=1e-6)


def test_across_blocks_the_graph_is_that_of_the_probed_cells_and_recall_is_measured(
    small_blocks: None,
) -> None:
    X = np.random.default_rng(0).normal(size=(1500, 3))
    graph = be.build_neighbor_graph(X, 8, recall=0.95)
    assert len(graph.matrix.rows) > 3
    wanted, got = np.isfinite(reference(X, 8)), np.isfinite(dense(graph))
    assert (got & wanted).sum() / wanted.sum() >= 0.95
    assert graph.recall >= 0.95
    assert graph.recall < 0.9999  # a control: with few probes something is missed, and is seen
    everything = be.build_neighbor_graph(X, 8, recall=1.0)
    np.testing.assert_allclose(dense(everything), reference(X, 8))
    assert everything.recall == 1.0


@pytest.mark.parametrize("data", ["plain", "duplicates", "grid", "longer lists"])
def test_a_row_of_the_training_set_is_joined_exactly_as_in_the_graph(
    small_blocks: None, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if data == "longer lists":
        monkeypatch.setattr(shortlist, "SHORTLIST", 2)
        monkeypatch.setattr(expected_recall, "LONGER", (3, 4))
        monkeypatch.setattr(probes, "BYTE", 2)  # (a bit for each cell of a list)
    generator = np.random.default_rng(1)
    X = generator.normal(size=(900, 3)).astype(np.float32)
    if data == "duplicates":
        X[300:600] = X[:300]
    if data == "grid":
        X = np.stack(np.meshgrid(*[np.arange(10.0)] * 3), axis=-1).reshape(-1, 3)[:900].astype(np.float32)
    graph = be.build_neighbor_graph(X, 6, recall=0.96 if data == "longer lists" else 0.9)
    assert ("shortlist" in graph.run.results("search")) == (data == "longer lists")
    matrix, starts, ids = graph.matrix, np.cumsum([0, *graph.matrix.rows]), graph.original_ids()
    joined = join_rows(prepare(X[ids], Shape(900, 3, "float32", "euclidean")), index_of(graph))
    seen: set[bytes] = set()
    for b, count in enumerate(matrix.rows):
        block = matrix.block(b)
        own = np.arange(starts[b], starts[b + 1])
        far = np.repeat(starts[block.halo_sources], np.diff(block.halo_offsets)) + block.halo_rows
        column = np.concatenate([own, far])[block.indices]
        for row in range(count):
            i = starts[b] + row
            if X[ids[i]].tobytes() in seen:
                continue  # of identical rows a query is the one with the lowest internal id
            seen.add(X[ids[i]].tobytes())
            mine = slice(block.indptr[row], block.indptr[row + 1])
            theirs = slice(joined.indptr[i], joined.indptr[i + 1])
            order = np.argsort(column[mine])
            np.testing.assert_array_equal(joined.ids[theirs], column[mine][order])
            np.testing.assert_array_equal(joined.squared[theirs], block.data[mine][order])


def test_a_new_row_is_joined_alike_in_any_batch(small_blocks: None) -> None:
    generator = np.random.default_rng(2)
    graph = be.build_neighbor_graph(generator.normal(size=(1000, 5)).astype(np.float32), 6)
    new = generator.normal(size=(57, 5)).astype(np.float32)
    together = join_rows(new, index_of(graph))
    for i in (0, 13, 56):
        alone = join_rows(new[i : i + 1], index_of(graph))
        part = slice(together.indptr[i], together.indptr[i + 1])
        np.testing.assert_array_equal(alone.ids, together.ids[part])
        np.testing.assert_array_equal(alone.squared, together.squared[part])


def test_components_agree_with_scipy(small_blocks: None, tmp_path: object) -> None:
    generator = np.random.default_rng(3)
    X = np.concatenate(
        [generator.normal(size=(size, 2)) + 50 * number for number, size in enumerate((500, 300, 90, 20))]
    )
    graph = be.build_neighbor_graph(X[generator.permutation(len(X))], 5)
    out = f"{tmp_path}/"
    found = find_components(graph.matrix, Exchange(f"{out}exchange"), out)
    count, labels = connected_components(graph.to_scipy(), directed=False)
    assert found["components"] == count
    assert found["sizes"] == sorted(np.bincount(labels).tolist(), reverse=True)


def test_cosine_is_euclidean_between_rows_of_length_one() -> None:
    X = np.random.default_rng(4).normal(size=(200, 6))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(dense(be.build_neighbor_graph(X, 5, metric="cosine")), reference(unit, 5), rtol=1e-7)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((5, 0)), "0 feature"),
        (np.zeros(5), "2D array"),
        (np.full((50, 2), np.nan), "NaN"),
        (np.full((50, 2), np.inf), "infinity"),
        (np.zeros((5, 2)), "n_neighbors=15"),
        (np.zeros((1, 2)), "n_samples = 1"),
    ],
)
def test_bad_rows_are_named(X: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.build_neighbor_graph(X, 15)


def test_rows_of_zeros_have_no_cosine() -> None:
    X = np.ones((50, 3))
    X[[7, 9]] = 0
    with pytest.raises(InputError, match=r"rows \[7, 9\]"):
        be.build_neighbor_graph(X, 5, metric="cosine")


def test_all_rows_equal_still_give_a_graph(small_blocks: None) -> None:
    graph = be.build_neighbor_graph(np.ones((1000, 3)), 5)
    assert graph.run.results("graph")["zero_edges"] == graph.run.results("graph")["edges"]
    assert max(graph.matrix.rows) <= 420


def test_a_recall_below_the_target_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigembed.neighbors.search.ground_truth.choose_probes", lambda curve, target, pairs: 1)
    X = np.random.default_rng(0).normal(size=(9_000, 12)).astype("f4")
    with pytest.warns(
        RecallWarning, match=r"recall of the neighbor graph is 0\.\d+ ± .* below the target 0.99"
    ) as caught:
        graph = be.build_neighbor_graph(X, 8)
    assert graph.recall < 0.99
    assert caught[0].filename == __file__


def test_metrics_that_are_not_searched_by_are_refused() -> None:
    X = np.eye(5)
    for metric in ("nonsense", "mahalanobis", "Euclidean"):
        with pytest.raises(InputError, match=rf"metric='{metric}'.*; allowed: euclidean, cosine, correlation"):
            be.build_neighbor_graph(X, 2, metric=metric)
