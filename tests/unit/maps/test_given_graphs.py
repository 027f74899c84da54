"""Graphs that were made elsewhere, fitted: as the method's own graph of the rows, or as SciPy's matrix of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

import bigembed as be
from bigembed.errors import InputError, InputTypeError, JobError
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import read_array
from tests.some import a_few

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N, K = 300, 8


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    angle = 6 * rng.random(N)
    return np.column_stack([np.cos(angle), np.sin(angle), angle / 3]) + 0.05 * rng.normal(size=(N, 3))


@pytest.fixture(scope="module")
def lists(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As umap and pynndescent leave them: a row itself is its first neighbor."""
    distances, indices = NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(rows).kneighbors(rows)
    return indices, distances


def forms(lists: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """The same lists as others leave them."""
    indices, distances = lists
    missing = np.column_stack([indices, np.full(N, -1)]), np.column_stack([distances, np.full(N, np.inf)])
    rounded = np.square(distances)
    rounded[:, 0] = -1e-9
    graph = sparse.csr_array((distances[:, 1:].ravel(), indices[:, 1:].ravel(), np.arange(0, N * K + 1, K)), (N, N))
    return {
        "umap": be.open_graph(indices, distances=distances),
        "without the row itself": be.open_graph(indices[:, 1:], distances=distances[:, 1:]),
        "missing": be.open_graph(missing[0], distances=missing[1]),
        "faiss": be.open_graph(indices, distances=rounded, squared=True),
        "scanpy": be.open_graph(graph, values="distances"),
    }


def test_lists_made_elsewhere_give_the_maps_of_the_rows(rows: np.ndarray, lists: Any) -> None:
    walk = be.DiffusionMap(n_components=3, n_neighbors=K).fit(rows)
    paths = be.Isomap(n_neighbors=K).fit(rows)
    own = be.build_neighbor_graph(rows, K).to_scipy()
    for name, graph in forms(lists).items():
        built = be.build_neighbor_graph(graph)
        assert built.n_neighbors == K, name
        assert abs(built.to_scipy() - own).max() < 1e-8, name
    graph = forms(lists)["umap"]
    found = be.DiffusionMap(n_components=3).fit(graph)
    np.testing.assert_allclose(found.eigenvalues_, walk.eigenvalues_, atol=1e-9)
    np.testing.assert_allclose(np.abs(found.embedding_), np.abs(walk.embedding_), atol=1e-6)
    assert found.certificate_["bandwidth"]["epsilon"] == walk.certificate_["bandwidth"]["epsilon"]
    np.testing.assert_allclose(np.abs(be.Isomap().fit(graph).embedding_), np.abs(paths.embedding_), atol=1e-6)
    fewer = be.open_graph(lists[0][:, :-1], distances=lists[1][:, :-1])  # (a control)
    assert np.abs(be.DiffusionMap(n_components=3).fit(fewer).eigenvalues_ - walk.eigenvalues_).max() > 1e-4


@a_few(1, "own", [0, 1], ids=["diagonal stored", "not stored"])
def test_lists_of_k_are_those_lists_in_every_format(rows: np.ndarray, lists: Any, own: int, tmp_path: Path) -> None:
    """Directed, as a search leaves them, with each row among its neighbors or without."""
    indices, distances = (part[:, own:] for part in lists)
    row = np.repeat(np.arange(N), indices.shape[1])
    matrix = sparse.csr_array((distances.ravel(), (row, indices.ravel())), (N, N))
    assert abs(matrix - matrix.T).max() > 0
    assert matrix.nnz == indices.size
    edges = pd.DataFrame({"source": row, "target": indices.ravel(), "distance": distances.ravel()})
    edges.sample(frac=1, random_state=0).to_parquet(tmp_path / "edges.parquet", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    sparse.save_npz(tmp_path / "edges.npz", matrix)
    columns = {"columns": ["source", "target", "distance"]}
    given: dict[str, Any] = {
        "lists": be.open_graph(indices, distances=distances),
        "csr": be.open_graph(matrix, values="distances"),
        "npz": be.open_graph(tmp_path / "edges.npz", values="distances"),
        "parquet": be.open_graph(tmp_path / "edges.parquet", values="distances", **columns),
        "csv": be.open_graph(tmp_path / "edges.csv", values="distances", **columns),
        "array": be.open_graph(edges.to_numpy(), values="distances"),
    }
    wanted = be.DiffusionMap(3, n_neighbors=K, tol=1e-9).fit(rows).eigenvalues_
    lengths = be.DiffusionMap(3, n_neighbors=K, tol=1e-9, metric="precomputed").fit(matrix)
    np.testing.assert_allclose(lengths.eigenvalues_, wanted, atol=1e-9)
    for name, graph in given.items():
        found = be.DiffusionMap(3, tol=1e-9).fit(graph)
        assert found.graph_.n_neighbors == K, name
        np.testing.assert_allclose(found.eigenvalues_, wanted, atol=1e-9, err_msg=name)


def test_other_methods_take_the_same_graphs(lists: Any) -> None:
    """Islands of a graph without rows are at 0; the start for other packages' maps comes from the same graph."""
    indices, distances = (
        np.concatenate([one, [[N, N + 1, *[-1] * (K - 1)]], [[N + 1, N, *[-1] * (K - 1)]]]) for one in lists
    )
    graph = be.open_graph(indices, distances=np.maximum(distances, 0.1))
    eigenmap = be.LaplacianEigenmaps(n_components=2).fit(graph)
    assert (eigenmap.embedding_[N:] == 0).all()
    assert eigenmap.labels_[N:].tolist() == [-1, -1]
    plain = be.LaplacianEigenmaps(n_components=2).fit(be.open_graph(lists[0], distances=np.maximum(lists[1], 0.1)))
    np.testing.assert_allclose(np.abs(eigenmap.embedding_[:N]), np.abs(plain.embedding_), atol=1e-3)
    assert np.shape(be.spectral_start(graph, scale="umap")) == (N + 2, 2)
    assert set(be.SpectralClustering(n_clusters=2).fit(graph).labels_[:N]) == {0, 1}


def test_tsne_takes_affinities(lists: Any) -> None:
    near = np.exp(-np.square(lists[1][:, 1:])).ravel()
    directed = sparse.csr_array((near, lists[0][:, 1:].ravel(), np.arange(0, N * K + 1, K)), (N, N))
    weights = sparse.csr_array(directed.maximum(directed.T))
    few = {"n_iter": 5, "early_exaggeration_iter": 5, "init": "random"}
    found = be.TSNE(**few).fit(be.open_graph(weights))
    np.testing.assert_array_equal(found.embedding_, be.TSNE(**few).fit(weights).embedding_)
    with pytest.warns(be.errors.DegenerateWarning, match="perplexity 3 was taken"):
        assert be.TSNE(**few).fit(be.open_graph(lists[0], distances=lists[1])).perplexity_ == (K + 1) / 3


def test_one_graph_serves_many_and_comes_back_from_parquet(rows: np.ndarray, lists: Any, tmp_path: Path) -> None:
    graph = be.build_neighbor_graph(be.open_graph(lists[0], distances=lists[1]), workdir=tmp_path / "graph")
    own = be.build_neighbor_graph(rows, K)
    assert (graph.n, graph.n_neighbors, graph.edges, graph.recall) == (N, K, own.edges, 1.0)
    assert abs(graph.to_scipy() - own.to_scipy()).max() < 1e-9
    fitted = be.DiffusionMap(n_components=2).fit(graph)
    straight = be.DiffusionMap(n_components=2).fit(be.open_graph(lists[0], distances=lists[1]))
    np.testing.assert_array_equal(fitted.embedding_, straight.embedding_)
    np.testing.assert_allclose(be.geodesic_distances(graph, [3]), be.geodesic_distances(own, [3]), atol=1e-9)
    for number, one in enumerate((graph, own)):
        one.to_parquet(tmp_path / f"{number}.parquet")
        again = be.open_graph(tmp_path / f"{number}.parquet", values="distances", symmetrize="error")
        assert abs(be.build_neighbor_graph(again).to_scipy() - one.to_scipy()).max() < 1e-12
    with pytest.raises(be.errors.ExistingOutputError):
        own.to_parquet(tmp_path / "0.parquet")


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({"solver": "landmarks"}, InputTypeError, "a graph of given distances has none"),
        ({"components": "bridge"}, InputError, "distances that are given have no rows"),
        ({"components": "largest"}, InputError, "distances that are given have no rows"),
        ({"epsilon": "ksum"}, InputError, "only the distances along edges were given"),
    ],
)
def test_what_needs_rows_is_refused(asked: dict[str, Any], kind: type[Exception], said: str, lists: Any) -> None:
    graph = be.open_graph(lists[0], distances=lists[1])
    with pytest.raises(kind, match=said):
        be.DiffusionMap(**asked).fit(graph)
    if "solver" in asked:
        with pytest.raises(InputTypeError, match="no place for new rows"):
            be.DiffusionMap(1).fit(sparse.csr_array(np.ones((6, 6)))).transform(np.zeros((2, 6)))


def test_new_rows_of_lists_are_known_by_their_distances(rows: np.ndarray, lists: Any) -> None:
    found = be.DiffusionMap(2, tol=1e-9).fit(be.open_graph(lists[0], distances=lists[1]))
    own = be.DiffusionMap(2, n_neighbors=K, tol=1e-9).fit(rows)
    new = rows[::9] + 0.01
    np.testing.assert_allclose(found.transform(cdist(new, rows)), own.transform(new), atol=1e-6)


JOB = """
[input]
path = "edges.parquet"
graph = "weights"
columns = ["a", "b", "w"]
symmetrize = "max"
[method]
name = "{method}"
n_components = 2
[output]
path = "run.zarr"
{more}
"""


def test_a_job_on_an_edge_list(lists: Any, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    indices, distances = lists
    near = np.exp(-np.square(distances[:, 1:]))
    pd.DataFrame({"w": near.ravel(), "b": indices[:, 1:].ravel(), "a": np.repeat(np.arange(N), K)}).to_parquet(
        tmp_path / "edges.parquet"
    )
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(method="diffusion_map", more='table = "map.csv"'))
    job = read_job(file)
    plan = plan_job(job)
    assert [name for name, _ in plan.stages][:2] == ["weights", "kernel"]
    assert plan.shape == (N, N)
    record = run_job(job)
    assert record["finished"]
    assert run_job(job)["unchanged"]
    directed = sparse.csr_array((near.ravel(), (np.repeat(np.arange(N), K), indices[:, 1:].ravel())), (N, N))
    wanted = be.DiffusionMap(n_components=2).fit(directed.maximum(directed.T)).embedding_
    np.testing.assert_array_equal(read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding"), wanted)
    file.write_text(JOB.format(method="pca", more=""))
    with pytest.raises(JobError, match=r"graph: pca reads rows; diffusion_map, .*isomap"):
        read_job(file)
    file.write_text(JOB.format(method="diffusion_map", more="").replace('graph = "weights"', ""))
    with pytest.raises(JobError, match="symmetrize: belongs to a graph; say what its values are"):
        read_job(file)
