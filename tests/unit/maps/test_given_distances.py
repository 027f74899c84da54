"""Methods on graphs of distances that are given: against scikit-learn's Isomap, and against the rows themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array, vstack
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap as Reference
from sklearn.neighbors import KNeighborsTransformer, kneighbors_graph, sort_graph_by_row_values
from sklearn.pipeline import make_pipeline

import bigembed as be
from bigembed import rows as source
from bigembed.datasets import dataset
from bigembed.errors import ComponentsWarning, DisconnectedGraphError, InputError, InputTypeError
from bigembed.jobs.run import run_job
from bigembed.neighbors.given import distances as given_distances
from bigembed.rows import tiles
from bigembed.store.arrays import read_array, read_window
from tests.blocks import blocks_of
from tests.job_files import job_in
from tests.some import a_few

RULES = [{"n_neighbors": 14}, {"n_neighbors": None, "radius": 8.0}]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of at most 200 rows, so that edges cross borders."""
    with blocks_of(200):
        yield


@pytest.fixture(scope="module")
def apart() -> np.ndarray:
    """City-block distances of 500 rows of a surface: no Euclidean ones."""
    x = dataset("swiss_roll", n=500, noise=0.0, seed=0).rows(0, 500).astype(np.float64)
    return cdist(x, x, "cityblock")


@a_few(1, "rule", RULES, ids=["neighbors", "radius"])
def test_given_distances_equal_scikit_learn(apart: np.ndarray, rule: dict[str, Any]) -> None:
    known, new = apart[:450, :450], apart[450:, :450]
    theirs = Reference(n_components=2, metric="precomputed", **rule).fit(known)
    ours = be.Isomap(2, metric="precomputed", **rule).fit(known)
    assert len(ours.graph_.matrix.rows) > 2
    np.testing.assert_allclose(ours.dist_matrix_, theirs.dist_matrix_, rtol=1e-6)
    sign = np.sign(np.sum(ours.embedding_ * theirs.embedding_, axis=0))
    np.testing.assert_allclose(ours.embedding_ * sign, theirs.embedding_, atol=1e-4)
    np.testing.assert_allclose(ours.transform(new) * sign, theirs.transform(new), atol=1e-3)
    np.testing.assert_allclose(ours.transform(known), ours.embedding_, atol=1e-3)


@a_few(1, "solver", ["exact", "landmarks"])
def test_a_sparse_graph_of_lengths_equals_scikit_learn(apart: np.ndarray, solver: str) -> None:
    """Directed as a search leaves it, in any sparse format, with its diagonal or without."""
    lengths = kneighbors_graph(apart, 15, mode="distance", metric="precomputed")
    theirs = Reference(n_components=2, metric="precomputed", n_neighbors=14).fit(
        sort_graph_by_row_values(with_diagonal(lengths), warn_when_not_sorted=False)
    )
    for given in (lengths, lengths.tocoo(), with_diagonal(lengths)) if solver == "exact" else (lengths,):
        ours = be.Isomap(2, metric="precomputed", n_neighbors=14, solver=solver, n_landmarks=200).fit(given)
        assert procrustes(theirs.embedding_, ours.embedding_)[2] < (1e-9 if solver == "exact" else 1e-2)
    np.testing.assert_allclose(ours.geodesic_distances([0, 300]), theirs.dist_matrix_[[0, 300]], rtol=1e-6)


def with_diagonal(lengths: Any) -> Any:
    """The diagonal stored as zeros, as scikit-learn wants it."""
    coo = lengths.tocoo()
    n = np.arange(coo.shape[0])
    both = [np.concatenate(pair) for pair in ((coo.row, n), (coo.col, n), (coo.data, np.zeros(len(n))))]
    return type(coo)((both[2], (both[0], both[1])), shape=coo.shape).tocsr()


def test_what_is_no_distance_is_refused(apart: np.ndarray) -> None:
    def fit(given: Any, **parameters: Any) -> Any:
        return be.Isomap(2, metric="precomputed", **parameters).fit(given)

    lengths = kneighbors_graph(apart, 15, mode="distance", metric="precomputed")
    for given, message in (
        (apart[:, :400], r"square array \(n, n\), n ≥ 2; got shape \(500, 400\)"),
        (np.triu(apart), "not symmetric"),
        (-apart, "NaN, infinity or a negative number"),
        (-lengths, r"lengths of the graph are NaN, infinite or negative, the first that of \(0,"),
        (apart[:5, :5], "n_neighbors=15 needs at least 16 rows"),
    ):
        with pytest.raises(InputError, match=message):
            fit(given)
    for policy in ("largest", "bridge"):
        with pytest.raises(InputError, match="'auto', 'error' or 'per-component'"):
            fit(apart, components=policy)
    with pytest.raises(InputTypeError, match="with metric='precomputed' only"):
        be.Isomap(2).fit(lengths)
    wrong, fitted = apart[:5].copy(), fit(apart)
    wrong[3, 0] = -1
    with pytest.raises(InputError, match="row 3 to the known row 0 is -1"):
        fitted.transform(wrong)
    within = be.build_neighbor_graph(apart, None, radius=8.0, metric="precomputed")
    with pytest.raises(InputTypeError, match="graph of given distances"):
        be.DiffusionMap(2).fit(within)
    for method, message in (
        (be.DiffusionMap(n_neighbors=None, radius=8.0, epsilon=9.0), "n_neighbors nearest of the given distances"),
        (be.DiffusionMap(n_neighbors=None), "give n_neighbors, up to n − 1"),
        (be.DiffusionMap(solver="landmarks"), "Give rows or a NeighborGraph"),
        (be.LaplacianEigenmaps(components="bridge"), "'joint', 'per-component' or 'error'"),
    ):
        with pytest.raises((InputError, InputTypeError), match=message):
            method.set_params(metric="precomputed").fit(apart)
    with pytest.raises(InputError, match="candidates are rows"):
        be.build_neighbor_graph(apart, metric="precomputed", candidates=apart[:, :3])


@pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
def test_components_of_a_graph_of_lengths(apart: np.ndarray) -> None:
    lengths = kneighbors_graph(apart, 15, mode="distance", metric="precomputed").tolil()
    lengths[:100, 100:] = 0
    lengths[100:, :100] = 0
    with pytest.raises(DisconnectedGraphError):
        be.Isomap(2, metric="precomputed", components="error").fit(lengths.tocsr())
    with pytest.warns(ComponentsWarning) as said:
        found = be.Isomap(2, metric="precomputed").fit(lengths.tocsr())
    assert [re.sub("[0-9]+", "k", str(one.message))[:36] for one in said if one.category is ComponentsWarning] == [
        "the rows fall into k parts that no n",
        "k nodes in k islands (components of ",
    ]
    assert np.bincount(found.labels_ + 1).sum() == 500
    for part in np.unique(found.labels_[found.labels_ >= 0]):
        np.testing.assert_allclose(found.embedding_[found.labels_ == part].mean(axis=0), 0, atol=1e-4)
    assert (found.embedding_[found.labels_ == 0].std(axis=0) > 1).all()


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@a_few(1, "method", [be.DiffusionMap(3, tol=1e-9), be.Isomap(2), be.UMAP(2, n_neighbors=14, n_epochs=15)])
def test_new_rows_after_a_neighbors_transformer(method: Any, rows: np.ndarray, tmp_path: Path) -> None:
    """Of sparse lengths that were fitted: by all distances as after a dense fit, and by those a transformer stores."""
    known, new = rows[:450], rows[450:]
    near = KNeighborsTransformer(n_neighbors=15, mode="distance").fit(known)
    whole = method.set_params(metric="precomputed").fit(cdist(known, known))
    dense, sparse = cdist(new, known), near.transform(new)
    wanted, stored = np.asarray(whole.transform(dense)), np.asarray(whole.transform(sparse))
    found = make_pipeline(near, type(method)(**method.get_params())).fit(known)
    of_lengths = found[-1]
    size = np.abs(whole.embedding_).max()
    np.testing.assert_allclose(of_lengths.transform(dense), wanted, atol=1e-6 * size)
    np.testing.assert_allclose(found.transform(new), stored, atol=1e-6 * size)
    np.testing.assert_allclose(of_lengths.transform(cdist(known, known)), of_lengths.embedding_, atol=1e-3 * size)
    of_lengths.save(tmp_path / "model")
    np.testing.assert_array_equal(be.load(tmp_path / "model").transform(sparse), of_lengths.transform(sparse))
    wrong = sparse.copy()
    wrong.data[20] = -1
    with pytest.raises(InputError, match=r"the distance of row 1 to the known row .* is -1"):
        of_lengths.transform(wrong)
    empty = vstack([sparse[:2], csr_array((1, 450)), sparse[2:]], format="csr")
    with pytest.raises(InputError, match="row 2 stores none"):
        of_lengths.transform(empty)


@a_few(1, "scale", [1e200, 1e-200])
@pytest.mark.parametrize("method", [be.ClassicalMDS(2), be.LandmarkMDS(2, n_landmarks=40), be.Isomap(2)])
def test_distances_whose_squares_overflow_are_refused(method: Any, scale: float, apart: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"(over|under)flow.*Multiply all of them by 2\*\*"):
        method.set_params(metric="precomputed").fit(apart[:100, :100] * scale)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return dataset("swiss_roll", n=500, noise=0.0, seed=0).rows(0, 500).astype(np.float64)


@a_few(1, "method", [be.DiffusionMap(3), be.LaplacianEigenmaps(3), be.SpectralClustering(4)])
def test_distances_of_rows_give_the_map_of_the_rows(method: Any, rows: np.ndarray) -> None:
    """In several blocks in the order that the graph has, and new rows by their distances to the fitted ones."""
    known, new, between = rows[:450], rows[450:], cdist(rows, rows[:450])
    wanted = method.fit(known)
    embedding, placed = np.asarray(wanted.embedding_), np.asarray(wanted.transform(new))
    clone = type(method)(**method.get_params() | {"metric": "precomputed"})
    found = clone.fit(between[:450])
    sign = np.sign(np.sum(found.embedding_ * embedding, axis=0))
    assert apart_by(found.embedding_ * sign, embedding) < 1e-5
    assert apart_by(found.transform(between[:450]), found.embedding_) < 1e-5
    assert apart_by(found.transform(between[450:]) * sign, placed) < 1e-5
    wrong = np.asarray(type(clone)(**clone.get_params()).fit(between[:450] ** 0.5).embedding_)  # a control
    assert apart_by(wrong * np.sign(np.sum(wrong * embedding, axis=0)), embedding) > 1e-2


def apart_by(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, as a share of the largest number."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@a_few(1, "method", [be.UMAP(n_epochs=5), be.TSNE(perplexity=5, early_exaggeration_iter=2, n_iter=3)])
def test_weights_of_distances_are_those_of_the_rows(method: Any, rows: np.ndarray) -> None:
    """What descends is the same; where it starts, and what is drawn, follow from the order of the graph."""
    known, between = rows[:450], cdist(rows, rows[:450])
    said = "mass" if isinstance(method, be.UMAP) else "plogp"

    def kernel(given: np.ndarray, **parameters: Any) -> tuple[Any, list[float]]:
        fitted = type(method)(**method.get_params() | parameters).fit(given)
        results = fitted._run.results("kernel")
        return fitted, [results["edges"], results[said]]

    _, wanted = kernel(known)
    found, weights = kernel(between[:450], metric="precomputed")
    assert weights == pytest.approx(wanted, rel=1e-4)  # (weights are float32)
    _, wrong = kernel(cdist(known, known, "cityblock"), metric="precomputed")  # a control
    assert weights[0] == wanted[0] != wrong[0]
    np.testing.assert_allclose(found.transform(between[:20]), found.embedding_[:20])
    assert found.transform(between[450:]).shape == (50, 2)


def test_of_more_distances_sampled_rows_are_judged(rows: np.ndarray, tmp_path: Path) -> None:
    """The same bytes for chunks of any shape, and from a graph that was built before."""
    known = rows[:450]
    apart = cdist(known, known)
    wanted = be.DiffusionMap(3, metric="precomputed").fit(apart).certificate_["judgement"]["map"]
    zarr.create_array(tmp_path / "apart.zarr", data=apart, chunks=(130, 170))
    graph = be.build_neighbor_graph(tmp_path / "apart.zarr", metric="precomputed")
    assert be.DiffusionMap(3).fit(graph).certificate_["judgement"]["map"] == wanted
    whole = be.certify(known, be.DiffusionMap(3, metric="precomputed").fit(apart).embedding_, samples=450)
    assert wanted["samples"] == 400
    assert abs(wanted["trustworthiness"]["value"] - whole.trustworthiness) < 0.01


def test_each_chunk_is_read_once(apart: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of any shape; tasks of a few of them, as if there were many rows."""
    monkeypatch.setattr(given_distances, "TASK_ROWS", 128)
    wanted = be.build_neighbor_graph(apart, 7, metric="precomputed").to_scipy()
    for chunks in ((48, 60), (70, 500), (500, 40)):
        place = str(tmp_path / f"{chunks}.zarr")
        zarr.create_array(place, data=apart, chunks=chunks)
        touched: Counter[tuple[int, int]] = Counter()

        def window(path: Any, rows: Any, columns: Any, touched: Any = touched, chunks: Any = chunks) -> Any:
            spans = [
                range(start // size, -(-stop // size))
                for (start, stop), size in zip((rows, columns), chunks, strict=True)
            ]
            touched.update(product(*spans))
            return read_window(path, rows, columns)

        with monkeypatch.context() as patch:
            patch.setattr(source, "read_window", window)
            patch.setattr(tiles, "PANEL_BYTES", 1 << 18)
            found = be.build_neighbor_graph(place, 7, metric="precomputed")
        assert len(touched) == -(-500 // chunks[0]) * -(-500 // chunks[1])
        assert set(touched.values()) == {1}
        assert (found.to_scipy() != wanted).nnz == 0


def test_a_job_of_distances(apart: np.ndarray, tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "apart.zarr"), data=apart[:300, :300], chunks=(100, 300))
    run_job(job_in(tmp_path, 'name = "diffusion_map"\nmetric = "precomputed"', 'path = "apart.zarr"'))
    wanted = be.DiffusionMap(metric="precomputed").fit(apart[:300, :300]).embedding_
    np.testing.assert_array_equal(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"), wanted)
