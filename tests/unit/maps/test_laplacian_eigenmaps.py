"""Laplacian eigenmaps: the generalized eigenproblem solved densely, scikit-learn's map, the diffusion map, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.datasets import load_iris, make_swiss_roll
from sklearn.manifold import SpectralEmbedding

import bigembed as be
from bigembed.errors import ComponentsWarning, InputError

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
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


@pytest.mark.parametrize(
    ("graph", "parameters", "epsilon"),
    [
        (GRAPH, {"bandwidth": "fixed", "epsilon": 3.0}, 3.0),
        (GRAPH, {"weights": "binary"}, None),
        (BALL, {}, 6.25),
        (BALL, {"weights": "binary"}, None),
    ],
)
def test_it_solves_the_generalized_eigenproblem(graph: Any, parameters: Any, epsilon: float | None) -> None:
    le = be.LaplacianEigenmaps(3, **parameters).fit(graph)
    values, vectors = solved(heat(graph, epsilon), 3)
    np.testing.assert_allclose(le.eigenvalues_, values, atol=1e-7)
    assert apart(le.embedding_, vectors) < 1e-5  # weights of rows in float64 are kept in float32
    wrong, others = solved(heat(graph, 2.0), 3)
    assert np.abs(le.eigenvalues_ - wrong).max() > 1e-5  # a control
    assert apart(le.embedding_, others) > 1e-2
    assert le.epsilon_ == epsilon


def test_distances_that_are_given_are_weighed_as_those_of_rows() -> None:
    given = be.open_graph(GRAPH.to_scipy(), values="distances")
    for parameters in ({"bandwidth": "fixed", "epsilon": 3.0}, {"weights": "binary"}):
        of_rows = be.LaplacianEigenmaps(2, **parameters).fit(GRAPH)
        found = be.LaplacianEigenmaps(2, **parameters).fit(given)
        assert apart(np.asarray(found.embedding_), of_rows.embedding_) < 1e-5


def test_it_is_the_diffusion_map_without_density_and_time() -> None:
    le, dm = be.LaplacianEigenmaps(4).fit(GRAPH), be.DiffusionMap(4, alpha=0, t=0).fit(GRAPH)
    np.testing.assert_array_equal(le.eigenvalues_, 1 - dm.eigenvalues_)
    np.testing.assert_array_equal(le.embedding_, dm.embedding_)
    new = ROLL[:5] + 0.01
    np.testing.assert_array_equal(le.transform(new), dm.transform(new))
    assert apart(le.embedding_, be.DiffusionMap(4, t=0).fit(GRAPH).embedding_) > 1e-3  # α = 1: a control


def test_it_is_the_spectral_embedding_of_scikit_learn() -> None:
    weights = heat(GRAPH, 3.0, diagonal=0.0)
    theirs = SpectralEmbedding(4, affinity="precomputed", eigen_solver="arpack", random_state=0)
    wanted = theirs.fit_transform(sparse.csr_matrix(weights)) * np.sqrt(weights.sum())  # drop_first, D^{-1/2} v
    found = be.LaplacianEigenmaps(4).fit(weights)
    assert apart(found.embedding_, wanted) < 1e-5
    with_own = be.LaplacianEigenmaps(4).fit(weights + sparse.eye_array(GRAPH.n))
    assert apart(with_own.embedding_, wanted) > 1e-3  # a control: they leave the diagonal out


def test_every_pair_of_few_rows() -> None:
    X = ROLL[:200]
    le = be.LaplacianEigenmaps(2, n_neighbors=None, epsilon=30.0).fit(X)
    kernel = np.exp(-(np.linalg.norm(X[:, None] - X, axis=2) ** 2) / 30.0)
    values, vectors = solved(sparse.csr_array(kernel), 2)
    np.testing.assert_allclose(le.eigenvalues_, values, atol=1e-6)
    assert apart(le.embedding_, vectors) < 1e-4


def test_default_coordinates_of_iris_follow_the_species() -> None:
    X, species = load_iris(return_X_y=True)
    le = be.LaplacianEigenmaps(2).fit(X)
    setosa = le.embedding_[species == 0, 0]
    assert np.ptp(setosa) < 1e-9  # the part that no neighbors join
    inside = le.embedding_[species > 0, 1]
    assert abs(np.corrcoef(inside, species[species > 0])[0, 1]) > 0.75


def test_islands_of_a_graph_of_weights_lie_in_the_middle() -> None:
    path = sparse.diags_array([np.ones(299), np.ones(299)], offsets=[-1, 1])
    pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.warns(ComponentsWarning, match="2 nodes in 1 island .* are at 0"):
        le = be.LaplacianEigenmaps(2).fit(sparse.block_diag([path, pair]).tocsr())
    assert (le.embedding_[-2:] == 0).all()
    assert le.labels_[-3:].tolist() == [0, -1, -1]
    alone = be.LaplacianEigenmaps(2).fit(path.tocsr())
    np.testing.assert_allclose(le.embedding_[:-2], alone.embedding_, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n_neighbors": 600}, "n_neighbors=600 needs at least 601 rows"),
        ({"weights": "binary", "epsilon": 2.0}, "'heat' where epsilon or bandwidth is given"),
        ({"weights": "binary", "n_neighbors": None}, "all pairs would weigh the same"),
        ({"radius": 1.0, "bandwidth": "adaptive"}, "'auto' or 'fixed' with a radius"),
    ],
)
def test_what_does_not_go_together_is_refused(parameters: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        be.LaplacianEigenmaps(**parameters).fit(ROLL)


def test_a_graph_of_a_radius_has_no_local_scale() -> None:
    with pytest.raises(InputError, match="the graph is one of a radius"):
        be.LaplacianEigenmaps(bandwidth="adaptive").fit(BALL)
    dense = be.build_neighbor_graph(ROLL[:50], None)
    with pytest.raises(InputError, match="a graph of every pair"):
        be.LaplacianEigenmaps(weights="binary").fit(dense)
