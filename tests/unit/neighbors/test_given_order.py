"""The order of a given graph: near nodes in one block, and the same results, in whatever order the nodes come."""

from __future__ import annotations

from pathlib import Path

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import kneighbors_graph

import bigembed as be
from bigembed.estimator.graph_input import edge_weight_stages
from bigembed.neighbors.given.order import ordered_nodes
from bigembed.neighbors.order import Ordered
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages
from tests.blocks import blocks_of

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N, BLOCK, K = 1_600, 200, 8


@pytest.fixture(scope="module")
def lengths() -> sparse.csr_array:
    """Distances between near rows of a Swiss roll, rows in the order of the arc length."""
    rows = be.datasets.swiss_roll_mesh(N, dtype="float64").rows()
    near = sparse.csr_array(kneighbors_graph(rows, K, mode="distance"))
    return sparse.csr_array(near.maximum(near.T))


@pytest.fixture(scope="module")
def heat(lengths: sparse.csr_array) -> sparse.csr_array:
    weights = lengths.copy()
    weights.data = np.exp(-((weights.data / weights.data.mean()) ** 2))
    return weights


def permuted(matrix: sparse.csr_array, seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    """The graph with its nodes in random order, and which nodes they are."""
    order = np.random.default_rng(seed).permutation(matrix.shape[0])
    return sparse.csr_array(matrix[order][:, order]), order


def inside(matrix: sparse.csr_array, block: np.ndarray) -> float:
    """The share of the entries that do not leave a block."""
    row, column = matrix.tocoo().coords
    return float((block[row] == block[column]).mean())


def blocks(run: Run, n: int) -> np.ndarray:
    """The block of each node of the input."""
    ordered, out = Ordered.open(run.path("order")), np.full(n, -1)
    for b in range(len(ordered.blocks)):
        assert 0 < len(ordered.ids(b)) <= BLOCK
        out[ordered.ids(b)] = b
    assert (out >= 0).all()
    return out


def weighed(matrix: sparse.csr_array, folder: Path | None = None) -> Run:
    run = Run(folder)
    with blocks_of(BLOCK):
        run_stages(edge_weight_stages(be.open_graph(matrix)), run)
    return run


def test_a_block_holds_near_nodes_in_whatever_order_they_come(heat: sparse.csr_array) -> None:
    reference = inside(heat, np.arange(N) // BLOCK)
    for seed in (1, 2):
        shuffled, _ = permuted(heat, seed)
        run = weighed(shuffled)
        share = inside(shuffled, blocks(run, N))
        assert share == pytest.approx(run.results("weights")["inside"])
        assert share > reference - 0.05 > 0.85
        assert inside(shuffled, np.arange(N) // BLOCK) < 0.2  # (a control: as it was given)


def test_the_same_blocks_by_any_scheduler(heat: sparse.csr_array, tmp_path: Path) -> None:
    found = []
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=3):
            run = weighed(permuted(heat, 1)[0], tmp_path / scheduler)
        found.append([run.manifest(stage).files for stage in ("edges", "order", "weights")])
    assert found[0] == found[1]


def test_what_follows_a_map_is_in_the_order_of_the_input(heat: sparse.csr_array, lengths: sparse.csr_array) -> None:
    """Paths, new rows of distances, pseudotime, a given start of t-SNE: as of one block."""
    n = 700  # (the first of them are a strip of the roll)
    shuffled, order = permuted(sparse.csr_array(lengths[:n][:, :n]), 3)
    weights = sparse.csr_array(heat[order][:, order])
    start = np.random.default_rng(0).normal(size=(n, 2))
    descent = be.TSNE(init=start, n_iter=3, early_exaggeration_iter=3, in_memory=False)
    lengths_in_memory = be.Isomap(n_neighbors=K, metric="precomputed", solver="exact")
    rows = np.full((2, n), 50.0)
    rows[0, :20], rows[1, 100:110] = 1.0, 2.0

    def results() -> dict[str, np.ndarray]:
        near = be.open_graph(shuffled, values="distances")
        paths = be.Isomap(solver="exact").fit(near)
        walk = be.DiffusionMap(3, tol=1e-9).fit(be.open_graph(weights))
        graph = be.build_neighbor_graph(near)
        return {
            "lengths": graph.to_scipy().toarray(),
            "geodesics": be.geodesic_distances(graph, [3, 5]),
            "isomap": np.abs(paths.embedding_),
            "isomap of lengths in memory": np.abs(lengths_in_memory.fit(shuffled).embedding_),
            "new rows": np.abs(paths.transform(rows)),
            "pseudotime": be.diffusion_pseudotime(walk, 7),
            "smoothed": be.smooth(walk, start),
            "tsne": descent.fit(be.open_graph(weights)).embedding_,
        }

    whole = results()
    with blocks_of(BLOCK):
        found = results()
    for name, wanted in whole.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-7, err_msg=name)


def test_graphs_that_have_no_near_and_far() -> None:
    """A star, a path, islands, nodes with a loop alone, a random graph: blocks within the limit hold all nodes."""
    ends = np.arange(1, 700)
    pairs = np.arange(0, 700, 2)
    graphs = {
        "star": np.column_stack([np.zeros(len(ends), int), ends]),
        "path": np.column_stack([ends - 1, ends]),
        "islands": np.column_stack([pairs, pairs + 1]),
        "loops": np.column_stack([ends, ends]) - 1,
        "random": np.unique(np.sort(np.random.default_rng(0).choice(700, (4_000, 2)), axis=1), axis=0),
    }
    for name, edges in graphs.items():
        run = Run(None)
        with blocks_of(BLOCK):
            run_stages(edge_weight_stages(be.open_graph(edges, symmetrize="max")), run)
        found = blocks(run, edges.max() + 1)
        assert found.max() < 8, name
        if name in ("path", "islands"):
            share = (found[edges[:, 0]] == found[edges[:, 1]]).mean()
            assert share > 0.98, name


def test_a_cell_larger_than_a_block_is_cut() -> None:
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    ids, starts = ordered_nodes(np.array([4, 0, 4, 4, 4, 4, 4, 4]), np.ones(8, np.int64), nothing, 3)
    assert sorted(ids.tolist()) == list(range(8))
    assert np.diff(starts).max() <= 3
    assert starts.tolist()[-1] == 8
