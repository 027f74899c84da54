"""Clusters after a map: found, stable or not, for new rows and new versions, in a job; what is refused."""

from __future__ import annotations

import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

import bigembed as be
from bigembed import errors
from bigembed.jobs.extend import extend
from bigembed.jobs.report import RunSummary
from bigembed.jobs.report.run_map import coloring_of
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.maps import clustering
from bigembed.maps.clustering.cluster import clusters_found
from bigembed.stages import Run
from bigembed.stages import stage as stages
from bigembed.store.arrays import read_array
from tests.conformance.test_declared_arrays import differences
from tests.job_files import job_in
from tests.some import a_few

ROWS, TRUTH = make_blobs(900, 3, centers=4, random_state=3)
CUBE = np.random.default_rng(0).random((1500, 3))


# --------------------------------------------------------------------------------------------------- pure functions


def test_clusters_by_density_are_those_of_scikit_learn() -> None:
    expected = HDBSCAN(min_cluster_size=12, min_samples=7, copy=True).fit(ROWS).labels_
    found = clustering.hdbscan_labels(ROWS, 12, 7)
    assert adjusted_rand_score(expected, found) == 1.0
    np.testing.assert_array_equal(found < 0, expected < 0)
    sizes = np.bincount(found[found >= 0])
    assert (np.diff(sizes) <= 0).all()


def test_jaccard_of_a_cluster_is_its_best_match() -> None:
    """Against sets; a match of sizes alone, or one that takes noise for a cluster, gives others."""
    random = np.random.default_rng(1)
    one, two = random.integers(-1, 4, 300), random.integers(-1, 5, 300)

    def jaccard(a: int, b: int) -> float:
        first, second = set(np.flatnonzero(one == a)), set(np.flatnonzero(two == b))
        return len(first & second) / len(first | second)

    expected = [max(jaccard(a, b) for b in range(5)) for a in range(4)]
    np.testing.assert_allclose(clustering.best_jaccard(one, two), expected, rtol=1e-15)
    assert not np.allclose([max(jaccard(a, b) for b in range(-1, 5)) for a in range(4)], expected)
    assert clustering.best_jaccard(one, np.full(300, -1)).tolist() == [0.0] * 4


def test_numbers_stay_where_clusters_have_most_rows_in_common() -> None:
    random = np.random.default_rng(2)
    old = np.repeat(np.arange(4), [400, 300, 200, 100])
    moved = random.random(1000) < 0.05
    new = np.array([2, 0, 3, 1])[old]
    new[moved] = 4
    numbers = clustering.kept_numbers(old, new)
    assert numbers.tolist() == [1, 3, 0, 2, 4]
    assert (numbers[new] == old)[~moved].all()
    merged = np.where(old == 1, 0, old)  # the larger part keeps its number
    assert clustering.kept_numbers(old, merged)[[0, 2, 3]].tolist() == [0, 2, 3]


def test_the_weights_of_edges_are_local() -> None:
    squared = cdist(ROWS[:60], ROWS[:60], "sqeuclidean")
    near = squared <= np.sort(squared, axis=1)[:, [6]]
    squared = np.where((near | near.T) & ~np.eye(60, dtype=bool), squared, 0.0)
    found = clustering.local_weights(csr_array(squared)).toarray()
    for i, j in ((0, int(squared[0].argmax())), (5, int(squared[5].argmax()))):
        scales = [np.sort(squared[row][squared[row] > 0]) for row in (i, j)]
        rho = [np.sqrt(one[(len(one) - 1) // 2]) for one in scales]
        np.testing.assert_allclose(found[i, j], np.exp(-squared[i, j] / np.prod(rho)), rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(clustering.local_weights(csr_array(1e6 * squared)).toarray(), found, rtol=1e-12)


def test_new_points_get_the_cluster_of_the_nearest_one() -> None:
    anchors, labels = ROWS[:50], np.arange(50, dtype=np.int32) % 7 - 1
    found = clustering.nearest_labels(ROWS, anchors, labels)
    np.testing.assert_array_equal(found, labels[cdist(ROWS, anchors).argmin(axis=1)])
    for size in (1, 7):
        np.testing.assert_array_equal(clustering.nearest_labels(ROWS[:size], anchors, labels), found[:size])
    twice = np.array([[0.0], [0.0], [1.0]])
    assert clustering.nearest_labels(np.array([[0.1]]), twice, np.array([5, 6, 7])).tolist() == [5]


# ---------------------------------------------------------------------------------------------------------- calls


@pytest.mark.filterwarnings("error::bigembed.errors.ClustersWarning")
def test_a_map_of_digits_has_stable_clusters() -> None:
    digits = load_digits()
    fitted = be.PCA(12).fit(digits.data)
    found = be.cluster(be.UMAP(n_components=2).fit(fitted.embedding_).embedding_)
    assert adjusted_rand_score(digits.target, found.labels) > 0.75


def test_a_cube_has_no_stable_clusters() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = be.cluster(CUBE, min_cluster_size=30)
    assert any("not stable" in str(one.message) for one in said if one.category is errors.ClustersWarning)
    assert found.rand is not None
    assert found.rand < 0.5
    ours = [str(one.message) for one in said if one.category is errors.ClustersWarning]  # (scikit-learn may say, too)
    assert ours == found.certificate["warnings"]["clusters"]


def test_rows_beside_the_sample_get_the_cluster_of_the_nearest_sampled_one() -> None:
    whole, sampled = (be.cluster(ROWS, n_subsets=0, sample=size) for size in (900, 300))
    assert adjusted_rand_score(whole.labels, sampled.labels) > 0.98
    assert sampled.certificate["clusters"]["sampled"] == 300
    np.testing.assert_array_equal(sampled.predict(ROWS), sampled.labels)


def test_the_same_labels_for_any_chunks_and_from_where_a_call_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = be.cluster(ROWS, sample=400)
    lazy = be.cluster(da.from_array(ROWS, chunks=(130, 2)), sample=400, workdir=tmp_path)
    np.testing.assert_array_equal(lazy.labels.compute(), expected.labels)
    np.testing.assert_array_equal(lazy.predict(da.from_array(ROWS, chunks=(77, 3))).compute(), expected.labels)
    assert lazy.certificate == expected.certificate
    monkeypatch.setattr("bigembed.maps.clustering.hdbscan_labels", None)
    again = be.cluster(da.from_array(ROWS, chunks=(130, 2)), sample=400, workdir=tmp_path)
    np.testing.assert_array_equal(again.labels.compute(), expected.labels)
    said = clusters_found(Run(tmp_path), clustering.Clustering(), weighed=True)["warnings"]["clusters"]
    assert any("hdbscan counts all rows alike" in one for one in said)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = be.build_neighbor_graph(ROWS, 10)
    with pytest.raises(errors.InputError, match=r"min_samples=0; a whole number ≥ 1.*n_clusters: belongs to kmeans"):
        be.cluster(ROWS, n_clusters=3, min_samples=0)
    with pytest.raises(errors.InputError, match="allowed: hdbscan, kmeans, leiden, spectral"):
        be.cluster(ROWS, "dbscan")
    with pytest.raises(errors.InputTypeError, match="'leiden' needs a graph"):
        be.cluster(ROWS, "leiden")
    with pytest.raises(errors.InputTypeError, match="'hdbscan' needs coordinates"):
        be.cluster(graph)
    with pytest.raises(errors.InputError, match="n_clusters=901 of 900 rows"):
        be.cluster(ROWS, "kmeans", n_clusters=901)
    with pytest.raises(errors.InputError, match=r"rows \[1\]"):
        be.cluster(np.array([[1.0], [np.nan], [2.0]]))
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(errors.MissingExtraError, match=r'pip install "bigembed\[leiden\]"'):
        be.cluster(graph, "leiden")
    monkeypatch.setattr(psutil, "virtual_memory", type("Memory", (), {"available": 1 << 16}))
    with pytest.raises(errors.PlanError, match="nothing was computed"):
        be.cluster(ROWS)


# ---------------------------------------------------------------------------------------------------------- graphs


class TestLeiden:
    """Leiden's clusters of a graph."""

    @pytest.fixture(autouse=True)
    def igraph(self) -> Any:
        """The library, where it is installed."""
        return pytest.importorskip("igraph")

    def test_two_cliques_are_two_clusters(self, igraph: Any) -> None:
        weights = np.kron(np.eye(2), np.ones((6, 6))) - np.eye(12)
        weights[5, 6] = weights[6, 5] = 0.5
        found = clustering.leiden_labels(csr_array(weights), 1.0, 0)
        assert found.tolist() == [0] * 6 + [1] * 6
        graph = igraph.Graph.Weighted_Adjacency(weights.tolist(), mode="undirected")
        best, one = (graph.modularity(labels, weights="weight") for labels in (found.tolist(), [0] * 12))
        assert best > 0.4
        assert one < 1e-12

    @pytest.mark.filterwarnings("error::bigembed.errors.ClustersWarning")
    def test_a_graph_of_rows(self) -> None:
        graph = be.build_neighbor_graph(ROWS, 10)
        found = be.cluster(graph, "leiden", resolution=0.2)
        assert adjusted_rand_score(TRUTH, found.labels) > 0.98
        assert adjusted_rand_score(found.labels, found.predict(ROWS)) > 0.98
        assert clustering.voted_labels(np.array([[2, 1, 1], [3, 2, 2]])).tolist() == [1, 2]

    def test_weights_and_edges_of_others(self) -> None:
        squared = be.build_neighbor_graph(ROWS, 10).to_scipy() ** 2
        squared.sort_indices()
        weights = clustering.local_weights(csr_array(squared))
        expected = clustering.largest_first(clustering.leiden_labels(weights, 0.2, 0))
        np.testing.assert_array_equal(be.cluster(weights, "leiden", resolution=0.2, n_subsets=0).labels, expected)


# ------------------------------------------------------------------------------------------------------------ jobs


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write rows and a job with clusters on them."""
    np.save(tmp_path / "rows.npy", ROWS)

    def job(clusters: str = "", method: str = "pca") -> Any:
        asked = f'name = "{method}"\n' + ("n_components = 2" if method == "pca" else "")
        return job_in(tmp_path, asked, output='table = "map.csv"\nmodel = "model"', more=f"[clusters]\n{clusters}")

    return job


def column(path: Path, name: str = "cluster") -> list[int]:
    with path.open() as file:
        return [int(line[name]) for line in csv.DictReader(file)]


@pytest.mark.filterwarnings("ignore::bigembed.errors.ComponentsWarning")
@pytest.mark.parametrize("clusters", ["", 'method = "kmeans"\nn_clusters = 4', 'method = "leiden"\nresolution = 0.2'])
def test_a_job_writes_clusters(clusters: str, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "leiden" in clusters:
        pytest.importorskip("igraph")
    job = write(clusters, "laplacian_eigenmaps" if "leiden" in clusters else "pca")
    ran, run_stage = {}, stages._run_stage
    monkeypatch.setattr(
        stages, "_run_stage", lambda stage, *more: (ran.setdefault(stage.name, stage), run_stage(stage, *more))
    )
    planned = [name for name, _ in plan_job(job).costs]
    assert planned.index("coordinates") < planned.index("clusters") < planned.index("stability")
    found = run_job(job)
    wrong = [
        line
        for name in ("clusters", "stability")
        for line in differences(ran[name], tmp_path / "run.zarr" / "stages" / name)
    ]
    assert not wrong
    labels = np.array(column(tmp_path / "map.csv"))
    assert adjusted_rand_score(TRUTH, labels) > 0.95
    said = found["certificate"]["clusters"]
    assert said["sizes"] == np.bincount(labels[labels >= 0]).tolist()
    assert min(said["jaccard"]) > 0.9
    assert run_job(job)["unchanged"]
    for color in (None, "cluster"):
        assert coloring_of(RunSummary.read(tmp_path / "run.zarr"), color, 900, tmp_path).name == "cluster"
    extend(tmp_path / "model", tmp_path / "rows.npy", tmp_path / "new.zarr", results=tmp_path / "new.csv")
    assert adjusted_rand_score(labels, column(tmp_path / "new.csv")) > 0.98
    with pytest.raises(errors.ExistingOutputError):
        extend(tmp_path / "model", tmp_path / "rows.npy", tmp_path / "new.zarr")


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@a_few(1, "method", ["kmeans", "hdbscan"])
def test_weights_of_the_rows(method: str, write: Any, tmp_path: Path) -> None:
    """Centers of k-means are means by weight, not of rows; HDBSCAN, which knows no weights, says so."""
    weights = np.where(ROWS[:, 0] > np.median(ROWS[:, 0]), 20.0, 1.0)
    np.save(tmp_path / "weights.npy", weights)
    write(f'method = "{method}"' + ("\nn_clusters = 3" if method == "kmeans" else ""), "umap")
    text = (tmp_path / "job.toml").read_text().replace('"rows.npy"', '"rows.npy"\nweights = "weights.npy"')
    (tmp_path / "job.toml").write_text(text.replace('"umap"', '"umap"\nn_epochs = 20'))
    found = run_job(read_job(tmp_path / "job.toml"))
    said = " ".join(found["certificate"]["warnings"].get("clusters", []))
    assert ("counts all rows alike" in said) == (method == "hdbscan")
    if method == "hdbscan":
        return
    coordinates, labels, centers = (
        read_array(tmp_path / "run.zarr" / "stages" / name)
        for name in ("coordinates/embedding", "clusters/labels", "clusters/centers")
    )
    for number, center in enumerate(centers):
        mine = labels == number
        np.testing.assert_allclose(center, np.average(coordinates[mine], axis=0, weights=weights[mine]), atol=0.05)
    mixed = [number for number in range(3) if len(np.unique(weights[labels == number])) == 2]
    assert any(np.abs(coordinates[labels == i].mean(axis=0) - centers[i]).max() > 0.2 for i in mixed)
