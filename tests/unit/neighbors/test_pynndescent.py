"""pynndescent: its lists as graphs and candidates, its search, its metrics; what its own tests ask of an index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pynndescent import NNDescent, distances
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

import bigembed as be
from bigembed.distance import FUNCTIONS, named
from bigembed.distance.pair_compiled import every_pair
from bigembed.errors import InputError, PlanError, RecallWarning
from bigembed.jobs.run import run_job
from bigembed.rows.opening import lengths_of
from tests.job_files import job_in
from tests.some import these
from tests.unit.neighbors.test_metrics import rows_for

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
N, K = 400, 10


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)


@dataclass
class Index:
    """What is read of an index: lists that scikit-learn finds, the row itself first, and the metric's name."""

    neighbor_graph: tuple[np.ndarray, np.ndarray]
    metric: str = "cosine"


@pytest.fixture(scope="module", params=["as it would be", pytest.param("its own", marks=pytest.mark.slow)])
def index(rows: np.ndarray, request: pytest.FixtureRequest) -> Any:
    """An index of the rows; pynndescent takes half a minute to compile what makes one."""
    if request.param == "its own":
        return NNDescent(rows, n_neighbors=K + 1, metric="cosine", random_state=0)
    found = NearestNeighbors(n_neighbors=K + 1, metric="cosine").fit(rows)
    distances, indices = found.kneighbors(rows)
    return Index((indices.astype("i4"), distances.astype("f4")))


class TestItsLists:
    """An index, its graph, umap's tuple: a graph wherever one is taken."""

    def test_each_form_is_the_graph_of_the_rows(self, rows: np.ndarray, index: Any) -> None:
        own = be.build_neighbor_graph(rows, K, metric="cosine")
        indices, values = index.neighbor_graph
        forms = [index, (indices, values, index), be.open_graph(index)]
        forms += [be.open_graph(index.neighbor_graph, metric="dot")]
        forms += [be.open_graph(indices, distances=values, metric="cosine")]
        wanted = be.DiffusionMap(2, metric="cosine", n_neighbors=K).fit(rows)
        for form in forms:
            built = be.build_neighbor_graph(form)
            here, there = built.to_scipy(), own.to_scipy()
            both = here.multiply(there > 0)
            assert both.nnz > 0.99 * there.nnz  # (it may miss a few)
            assert abs(both - there.multiply(here > 0)).max() < 1e-3  # (float32 of 1 - cos)
            np.testing.assert_allclose(be.DiffusionMap(2).fit(form).eigenvalues_, wanted.eigenvalues_, atol=5e-3)
        raw = be.build_neighbor_graph(index.neighbor_graph).to_scipy()  # nothing says what these are: a control
        assert abs(raw.multiply(there > 0) - there.multiply(raw > 0)).max() > 0.05
        for method in (be.UMAP(n_epochs=20), be.Isomap()):
            assert np.isfinite(method.fit(index).embedding_).all()
        assert np.shape(be.spectral_start(index, scale="umap")) == (N, 2)
        assert be.geodesic_distances(be.build_neighbor_graph(index), [3]).shape == (1, N)

    def test_they_are_candidates(self, rows: np.ndarray, index: Any) -> None:
        true = be.build_neighbor_graph(rows, K)
        found = be.build_neighbor_graph(rows, K, candidates=index)
        assert found.recall == 1.0
        assert abs(found.to_scipy() - true.to_scipy()).max() == 0
        missing = np.full((N, 3), -1)
        lists = be.open_graph(missing, distances=np.zeros((N, 3)))
        assert be.build_neighbor_graph(rows, K, candidates=lists).n_neighbors == K
        with pytest.raises(InputError, match="lists of neighbors hold numbers of rows, 0 to 399"):
            be.build_neighbor_graph(rows, K, candidates=(missing + N + 1, np.zeros((N, 3))))
        with pytest.raises(InputError, match="this graph is one of edges"):
            be.build_neighbor_graph(rows, K, candidates=be.open_graph(sparse.csr_array(np.eye(N))))
        with pytest.raises(InputError, match="goes with candidates of rows"):
            be.build_neighbor_graph(rows, K, candidates=index, n_candidates=20)

    @pytest.mark.parametrize(
        ("metric", "value", "length"),
        [("cosine", 0.5, 1.0), ("haversine", np.pi, 2.0), ("sqeuclidean", 9.0, 3.0)],
    )
    def test_values_become_lengths(self, metric: str, value: float, length: float) -> None:
        assert lengths_of(np.array([value]), metric)[0] == pytest.approx(length)
        near, apart = np.array([[1], [0]]), np.full((2, 1), value)
        graph = be.build_neighbor_graph(be.open_graph(near, distances=apart, metric=metric))
        assert graph.to_scipy()[[0], [1]].item() == pytest.approx(length)

    def test_what_is_no_distance_is_refused(self) -> None:
        near = np.array([[1], [0]])
        assert lengths_of(np.array([-1e-7]), "cosine")[0] == 0
        with pytest.raises(InputError, match="NaN, infinite or negative"):
            be.build_neighbor_graph(be.open_graph(near, distances=np.full((2, 1), -0.1), metric="cosine"))
        with pytest.raises(InputError, match="are lengths already: leave metric out"):
            be.open_graph(near, distances=np.ones((2, 1)), metric="manhattan")
        with pytest.raises(InputError, match="it is of distances, and these are weights"):
            be.open_graph(sparse.csr_array(np.eye(2)), metric="cosine")


class TestItsSearch:
    """``algorithm="pynndescent"``: its candidates at our distances, measured and linked as any lists are."""

    @pytest.mark.slow
    @pytest.mark.recipes  # (.ci/run makes it, beside other libraries)
    def test_lists_and_new_rows(self, monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> None:
        random = np.random.default_rng(1)
        x, new = random.normal(size=(1_500, 8)), random.normal(size=(50, 8))
        graph = be.build_neighbor_graph(x, K, algorithm="pynndescent")
        assert len(graph.matrix.rows) > 1
        assert graph.recall > 0.97
        assert graph.run.results("recall")["algorithm"] == "pynndescent"
        again = be.build_neighbor_graph(x, K, algorithm="pynndescent")
        assert abs(graph.to_scipy() - again.to_scipy()).max() == 0
        i, j = graph.to_scipy().nonzero()
        np.testing.assert_allclose(graph.to_scipy()[i, j], np.linalg.norm(x[i] - x[j], axis=1), rtol=1e-12)
        fitted = be.DiffusionMap(2, algorithm="pynndescent", n_neighbors=K).fit(x)
        np.testing.assert_allclose(fitted.transform(x[:40]), fitted.embedding_[:40], atol=1e-5)
        wanted = be.DiffusionMap(2, n_neighbors=K, recall=1.0).fit(x)
        apart = np.abs(fitted.transform(new) - wanted.transform(new)).max(axis=0)
        assert (apart < 0.1 * np.ptp(wanted.embedding_, axis=0)).all()

    @pytest.mark.slow
    def test_parameters_are_passed_on_and_a_missed_recall_is_said(self) -> None:
        x = np.random.default_rng(1).normal(size=(9_000, 24)).astype(np.float32)
        with pytest.warns(RecallWarning, match="pynndescent found no more: give it more iterations and trees"):
            few = be.build_neighbor_graph(x, 8, algorithm="pynndescent", algorithm_params={"n_trees": 1, "n_iters": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecallWarning)
            more = be.build_neighbor_graph(x, 8, algorithm="pynndescent")
        assert few.recall < more.recall - 0.05

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"algorithm": "cells", "algorithm_params": {"n_trees": 1}}, "they go with algorithm='pynndescent'"),
            ({"algorithm": "pynndescent", "algorithm_params": {"metric": "dot"}}, "metric; the rows, metric"),
            ({"algorithm": "pynndescent", "algorithm_params": {"trees": 1}}, "trees is no parameter of .*n_trees"),
            ({"algorithm": "pynndescent", "algorithm_params": {"n_trees": "4"}}, "n_trees; allowed: a number, True"),
            ({"algorithm": "pynndescent", "algorithm_params": {"n_trees": -3}}, r"pynndescent fails with .*: -3"),
        ],
    )
    def test_wrong_parameters_are_refused(self, rows: np.ndarray, arguments: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError, match=said):
            be.build_neighbor_graph(rows, K, **arguments)

    def test_the_plan_refuses_rows_that_do_not_fit_in_one_process(self, tmp_path: Path) -> None:
        np.save(tmp_path / "rows.npy", np.zeros((200_000, 16), np.float32))
        method = 'name = "diffusion_map"\nalgorithm = "pynndescent"'
        with pytest.raises(PlanError, match=r"a worker would hold .* \(stage 'search'.*Set \[cluster\] memory"):
            run_job(job_in(tmp_path, method, more='[cluster]\nmemory = "600 MiB"\nworkers = 1'))


OTHERWISE = {"gower", "jensenshannon", "true_angular", "bit_jaccard", "tsss"}
"""Of these pynndescent has the square, 1 − θ/π, −log of the share, and NaN where rounding makes a cosine above 1; or
nothing."""


class TestItsMetrics:
    @these(("kulsinski", "symmetric_kl", "wasserstein_1d"), "name", sorted({*named(FUNCTIONS)} - OTHERWISE))
    def test_they_are_what_it_calls_so(self, name: str) -> None:
        x = rows_for(name, 20).astype(np.float32)
        theirs = distances.named_distances[name]
        given = x.astype(np.uint8) if name.startswith("bit_") else x
        wanted = np.array([[theirs(a, b) for b in given] for a in given], np.float64)
        np.testing.assert_allclose(every_pair(x, x, name), wanted, rtol=2e-3, atol=2e-5)

    @pytest.mark.slow  # (it compiles for each metric)
    @pytest.mark.parametrize("kind", ["dense", "sparse"])
    @pytest.mark.parametrize("name", ["euclidean", "correlation", "spearmanr", "manhattan", "jaccard", "yule", "tsss"])
    def test_its_search_has_every_kind_of_metric(self, name: str, kind: str) -> None:
        """As its own tests of recall are, on rows of which all pairs are known."""
        x = rows_for(name, 500)
        given = x if kind == "dense" else sparse.csr_array(x)
        found = be.build_neighbor_graph(given, 8, metric=name, algorithm="pynndescent", recall=0.9)
        assert found.recall > 0.9
        true = be.build_neighbor_graph(given, 8, metric=name, algorithm="cells", recall=1.0)
        both = found.to_scipy().multiply(true.to_scipy() > 0).nnz
        assert both > 0.9 * (true.to_scipy() > 0).nnz
