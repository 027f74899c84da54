"""Spectral clustering: the normalized rows of Ng, Jordan & Weiss, scikit-learn's k-means and clusters, refusals."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralClustering as Theirs
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics import adjusted_rand_score

import bigembed as be
from bigembed.errors import ConvergenceWarning, DegenerateWarning, InputError, InputTypeError
from bigembed.maps import clusters
from bigembed.maps.clusters import best_centers, directions, labels_block, lloyd_block, spread_centers
from bigembed.rows.source import RowBlock

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
MOONS, HALF = make_moons(500, noise=0.08, random_state=0)
BLOBS, BLOB = make_blobs(300, centers=4, cluster_std=1.5, random_state=1)


def path_graph(n: int) -> Any:
    return sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]).tocsr()


def test_directions_are_the_normalized_rows_of_all_eigenvectors() -> None:
    kernel = np.exp(-(np.linalg.norm(BLOBS[:80, None] - BLOBS[:80], axis=2) ** 2) / 8)
    q = kernel.sum(axis=1)
    vectors = linalg.eigh(kernel / np.sqrt(np.outer(q, q)))[1]
    four = vectors[:, :-5:-1]
    wanted = four / np.linalg.norm(four, axis=1, keepdims=True)
    right = four / four[:, :1]  # r_l = v_l/v_0: Q^{-1/2} v up to a factor
    found = directions(right[:, 1:]) * np.sign(four[0, 0])
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert np.abs(directions(2 * right[:, 1:]) - wanted).max() > 0.1  # a control


def test_lloyd_goes_where_scikit_learn_goes() -> None:
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


def test_starts_are_rows_far_from_each_other() -> None:
    rows = np.repeat([[0.0], [1.0], [9.0]], 50, axis=0)
    for seed in range(5):
        chosen = spread_centers(rows, 3, np.random.default_rng(seed))
        assert sorted(chosen.ravel().tolist()) == [0.0, 1.0, 9.0]  # equal rows are at distance 0 of the first


@pytest.mark.parametrize("normalize_rows", [True, False])
def test_halves_of_the_moons(normalize_rows: bool) -> None:
    sc = be.SpectralClustering(2, normalize_rows=normalize_rows, random_state=0).fit(MOONS)
    assert adjusted_rand_score(HALF, sc.labels_) > 0.98
    assert adjusted_rand_score(HALF, KMeans(2, n_init=3, random_state=0).fit_predict(MOONS)) < 0.6  # a control
    np.testing.assert_array_equal(sc.predict(MOONS), sc.labels_)
    np.testing.assert_array_equal(sc.predict(da.from_array(MOONS, chunks=(99, 2))).compute(), sc.labels_)
    assert sc.cluster_centers_.shape == (2, 1 + normalize_rows)


def test_clusters_of_weights_are_those_of_scikit_learn() -> None:
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


def test_parts_are_clusters_and_islands_are_left_out() -> None:
    weights = sparse.block_diag([path_graph(100), path_graph(90), path_graph(80), path_graph(2)]).tocsr()
    labels = be.SpectralClustering(3).fit(weights).labels_
    assert labels.tolist() == [0] * 100 + [1] * 90 + [2] * 80 + [-1] * 2
    few = be.SpectralClustering(2).fit(weights)
    assert any("3 parts" in said for said in few.certificate_["warnings"]["components"])


def test_labels_of_nodes_without_a_place(tmp_path: Any) -> None:
    from bigembed.store.arrays import create_rows, read_array, write_array

    create_rows(tmp_path / "out", (3,), np.int32, 3)
    write_array(tmp_path / "parts", np.array([0, -1, 0], np.int32))
    block = RowBlock(0, 0, np.array([[0.0], [0.0], [5.0]]))
    labels_block(block, np.array([[0.0], [5.0]]), False, str(tmp_path / "parts"), str(tmp_path / "out"))
    assert read_array(tmp_path / "out").tolist() == [0, -1, 1]


def test_fewer_different_rows_than_clusters() -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 20, axis=0)
    with pytest.warns(DegenerateWarning, match="5 of 15 clusters have no rows"):
        sc = be.SpectralClustering(15, n_neighbors=45).fit(rows)
    assert np.bincount(sc.labels_).tolist() == [20] * 10


def test_k_means_that_stops_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="k-means stopped after 1 iterations"):
        be.SpectralClustering(6, n_init=1).fit(MOONS)


def test_more_clusters_than_rows() -> None:
    with pytest.raises(InputError, match=r"n_samples=10 should be >= n_clusters=20"):
        be.SpectralClustering(20, n_neighbors=3).fit(BLOBS[:10])
