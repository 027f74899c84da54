"""The complete kernel as one dense block: what lists of all other rows give, in one task and without them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

import bigembed as be
from bigembed.distance.pairwise import all_squared, every_squared
from bigembed.errors import InputError
from bigembed.maps.walk import spectral
from bigembed.rows.input import row_source

pytestmark = pytest.mark.filterwarnings(  # of Gaussian rows, which have outlying ones
    *(f"ignore::bigembed.errors.{name}" for name in ("LocalizedWarning", "DegenerateWarning", "MapWarning"))
)


def rows(n=150, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def reference(X, epsilon, alpha, m):
    """Eigenvalues of the complete diffusion map, from the formulas."""
    kernel = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / epsilon)
    q = kernel.sum(axis=1)
    weights = (kernel / np.outer(q, q) ** alpha).astype("f4").astype("f8")
    root = np.sqrt(weights.sum(axis=1))
    return linalg.eigvalsh(weights / np.outer(root, root))[-2 : -m - 2 : -1]


@pytest.mark.parametrize("d", [1, 5, 16, 17])
@pytest.mark.parametrize("n", [1, 15, 16, 511, 513, 1100])
def test_distances_of_rows_with_themselves_are_those_of_pairs(n, d):
    X = rows(n, d)
    np.testing.assert_array_equal(all_squared(X), every_squared(X, X))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epsilon": "median", "alpha": 0.5},
        {"epsilon": "max-min"},
        {"epsilon": "mean-min", "alpha": 0.0},
        {"bandwidth": "adaptive"},
        {"bandwidth": "self-tuned", "epsilon": 0.5},
        {"target": "fokker-planck"},
        {"truncated": True, "epsilon": 9.0},
        {"metric": "cosine"},
        {"components": "bridge"},
        {"solver": "landmarks", "n_landmarks": 40},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "default",
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_map_is_that_of_lists_of_all_other_rows(options, dtype):
    X = rows().astype(dtype)
    X[7] = X[3]
    new = rows(20, seed=1).astype(dtype)
    asked = {"n_components": 3, "tol": 1e-9, **options}
    dense = be.DiffusionMap(n_neighbors=None, **asked).fit(X)
    lists = be.DiffusionMap(n_neighbors=149, **asked).fit(X)
    assert dense.graph_.dense
    assert not lists.graph_.dense
    assert not dense._run.has("search")
    np.testing.assert_allclose(dense.eigenvalues_, lists.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(dense.embedding_, lists.embedding_, atol=1e-9)
    np.testing.assert_allclose(dense.transform(new), lists.transform(new), atol=1e-9)
    np.testing.assert_allclose(dense.generator_eigenvalues_, lists.generator_eigenvalues_, rtol=1e-6)
    one, other = dense.certificate_, lists.certificate_
    for name in ("recall", "dimension", "bandwidth"):
        assert one[name].keys() == other[name].keys()
    assert one["dimension"]["two_nearest"] == pytest.approx(other["dimension"]["two_nearest"])
    assert one["dimension"]["likelihood"] == pytest.approx(other["dimension"]["likelihood"])
    assert one["dimension"]["duplicates"] == other["dimension"]["duplicates"] == 2
    assert one["warnings"].keys() == other["warnings"].keys()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_more_rows_than_are_solved_one_by_one(alpha, monkeypatch):
    """One dense block of more rows than a sparse component that is solved in memory may have."""
    monkeypatch.setattr(spectral, "DENSE_ROWS", 500)
    X = rows(spectral.DENSE_ROWS + 100, 2)
    found = be.DiffusionMap(4, n_neighbors=None, epsilon=1.0, alpha=alpha).fit(X)
    np.testing.assert_allclose(found.eigenvalues_, reference(X, 1.0, alpha, 4), atol=1e-12)
    assert found.residuals_.max() < 1e-11
    assert found.certificate_["passes"] == 1
    np.testing.assert_allclose(found.transform(X[::50]), found.embedding_[::50], atol=1e-6)


def test_copies_of_an_eigenvalue_of_a_complete_kernel():
    """The corners of a cube: K is a product, and λ = ((1 − w)/(1 + w))ʲ, w = exp(−4/ε), C(d, j) times."""
    corners = 2.0 * ((np.arange(1 << 9)[:, None] >> np.arange(9)) & 1) - 1
    found = be.DiffusionMap(12, n_neighbors=None, epsilon=2.0).fit(corners)
    step = np.tanh(2 / 2.0)
    np.testing.assert_allclose(found.eigenvalues_, [step] * 9 + [step**2] * 3, atol=1e-7)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_rows(n):
    X = np.arange(float(n))[:, None] ** 2
    graph = be.build_neighbor_graph(X, None)
    assert (graph.n_neighbors, graph.edges, graph.recall, graph.recall_in(X).recall) == (n - 1, n * (n - 1), 1.0, 1.0)
    np.testing.assert_allclose(graph.to_scipy().toarray(), np.abs(X - X.T))


@pytest.mark.parametrize("n", [1, 4097])
def test_too_few_and_too_many_rows(n):
    with pytest.raises(InputError, match=rf"2 ≤ n ≤ 4096; got n_samples = {n}"):
        be.DiffusionMap(1, n_neighbors=None).fit(np.zeros((n, 1)))


def test_one_graph_serves_several_methods(tmp_path):
    X = rows(60, 2)
    graph = be.build_neighbor_graph(X, None, workdir=tmp_path / "graph")
    again = be.build_neighbor_graph(X, None, workdir=tmp_path / "graph")
    whole = be.DiffusionMap(2, n_neighbors=None).fit(X)
    for given in (graph, again):
        np.testing.assert_array_equal(be.DiffusionMap(2).fit(given).embedding_, whole.embedding_)
    new, lists = rows(5, 2, seed=1), be.build_neighbor_graph(X, 59)
    straight, other = be.Isomap(2).fit(graph), be.Isomap(2).fit(lists)
    np.testing.assert_allclose(straight.embedding_, other.embedding_, atol=1e-9)
    np.testing.assert_allclose(straight.transform(new), other.transform(new), atol=1e-9)
    with pytest.raises(InputError, match="of every pair"):
        be.build_neighbor_graph(X, 5, candidates=graph)


def test_the_memory_of_the_stages_follows_the_rows_that_are_there():
    """640 MiB and twice that, not what a canonical block of 65 536 rows of all pairs would hold."""
    X = rows(4000, 2)
    estimator = be.DiffusionMap(n_neighbors=None)
    source, _ = row_source(X, "unused")
    costs = {stage.name: stage.cost.memory for stage in estimator.stages(source)}
    assert max(costs.values()) <= 80 * 4000**2
    assert costs["graph"] <= costs["solve"] <= 40 * 4000**2
