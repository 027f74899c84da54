"""What other packages start from: accepted, in the order of the input, and scaled as they want it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris

import bigembed as be
from bigembed.errors import InputError, InputTypeError, LocalizedWarning

X = load_iris().data[50:]
GRAPH = be.build_neighbor_graph(X, 10)


def weights() -> Any:
    kernel = GRAPH.to_scipy()
    kernel.data = np.exp(-(kernel.data**2))
    return kernel


def residual(kernel: Any, start: Any) -> float:
    """Largest ‖Q^{-1/2} L Q^{-1/2} v − μ v‖ of columns r = Q^{-1/2} v."""
    q = np.asarray(kernel.sum(axis=1)).ravel()
    v = np.sqrt(q)[:, None] * start
    v /= np.linalg.norm(v, axis=0)
    image = (kernel @ (v / np.sqrt(q)[:, None])) / np.sqrt(q)[:, None]
    return float(np.linalg.norm(image - v * (v * image).sum(axis=0), axis=0).max())


def test_columns_are_eigenvectors_in_the_order_of_the_input() -> None:
    start = be.spectral_start(weights(), 3)
    assert isinstance(start, np.ndarray)
    assert residual(weights(), start) < 1e-4
    assert residual(weights(), start[::-1]) > 1e-2  # a control
    turned = np.random.default_rng(0).permutation(len(X))
    again = be.spectral_start(weights()[turned][:, turned], 3)
    np.testing.assert_allclose(again, start[turned], atol=1e-4)


def test_what_is_accepted() -> None:
    wanted = be.spectral_start(GRAPH)
    np.testing.assert_array_equal(be.spectral_start(be.LaplacianEigenmaps(5).fit(GRAPH)), wanted)
    row, column = (edges := weights().tocoo()).coords
    listed = be.open_graph(np.column_stack([row, column, edges.data]))
    np.testing.assert_array_equal(be.spectral_start(listed), be.spectral_start(weights()))
    fitted = type("UMAP", (), {"graph_": weights()})()
    np.testing.assert_array_equal(be.spectral_start(fitted), be.spectral_start(sparse.coo_matrix(weights())))


def test_scaled_for_open_tsne() -> None:
    """float64, standard deviation of the first column 1e-4: above that it warns."""
    start = be.spectral_start(weights(), scale="openTSNE")
    assert start.dtype == np.float64
    assert start[:, 0].std() == pytest.approx(1e-4)
    plain = be.spectral_start(weights())
    assert np.corrcoef(plain[:, 0], start[:, 0])[0, 1] > 0.9998
    assert (be.spectral_start(weights(), scale="openTSNE", random_state=1) != start).any()


def test_scaled_for_umap() -> None:
    start = be.spectral_start(weights(), 3, scale="umap", random_state=7)
    assert start.dtype == np.float32
    assert np.abs(start).max() == pytest.approx(10, abs=1e-3)
    assert start.shape == (100, 3)
    assert (be.spectral_start(weights(), 3, scale="umap", random_state=8) != start).any()


@pytest.mark.filterwarnings("ignore::bigembed.errors.ComponentsWarning")
def test_parts_are_apart_and_the_inside_of_one_is_shown() -> None:
    path = sparse.diags_array([np.ones(99), np.ones(99)], offsets=[-1, 1])
    pair = sparse.block_diag([path, path]).tocsr()
    assert len(np.unique(be.spectral_start(pair, scale="openTSNE"), axis=0)) == 200  # noise tells equal ones apart
    start = be.spectral_start(pair)
    assert np.ptp(start[:100, 0]) < 1e-6
    assert start[0, 0] * start[100, 0] < 0
    assert abs(np.corrcoef(start[:100, 1], np.cos(np.pi * np.arange(100) / 99))[0, 1]) > 0.999


def test_what_is_refused() -> None:
    alone = sparse.block_diag([weights(), sparse.csr_array((1, 1))]).tocsr()
    with pytest.raises(InputError, match=r"1 nodes have no edge; the first are \[100\]"):
        be.spectral_start(alone)
    with pytest.raises(InputError, match="not symmetric"):
        be.spectral_start(sparse.triu(weights()).tocsr())
    with pytest.raises(InputError, match="at least 101 rows"):
        be.spectral_start(weights(), 100)
    with pytest.raises(InputTypeError, match="this LaplacianEigenmaps has no graph_"):
        be.spectral_start(be.LaplacianEigenmaps())
    with pytest.raises(InputTypeError, match="'openTSNE' or 'umap'"):
        be.spectral_start(weights(), scale="tsne")


def test_a_localized_start_is_a_warning() -> None:
    """A pair of nodes that hangs by a weak edge on a ring of 100."""
    ring = sparse.diags_array([np.ones(99), np.ones(99), 1.0, 1.0], offsets=[-1, 1, 99, -99])
    graph = sparse.block_diag([ring, np.array([[0, 1.0], [1.0, 0]])]).tolil()
    graph[0, 100] = graph[100, 0] = 1e-4
    with pytest.warns(LocalizedWarning, match="coordinate 1 shows .* of the rows against all others"):
        be.spectral_start(graph.tocsr())
    with warnings.catch_warnings():
        warnings.simplefilter("error", LocalizedWarning)
        be.spectral_start(weights())


@pytest.mark.filterwarnings("ignore::bigembed.errors.ComponentsWarning")
@pytest.mark.parametrize("pairs", [1, 2])
def test_a_map_of_a_graph_warns_of_its_start_where_no_eigenvector_spreads_the_nodes(pairs: int) -> None:
    """Pairs of nodes that hang by weak edges on a ring of 100, each told from the rest by an eigenvector."""
    ring = sparse.diags_array([np.ones(99), np.ones(99), 1.0, 1.0], offsets=[-1, 1, 99, -99])
    graph = sparse.block_diag([ring, *[np.array([[0, 1.0], [1.0, 0]])] * pairs]).tolil()
    for pair in range(pairs):
        graph[40 * pair, 100 + 2 * pair] = graph[100 + 2 * pair, 40 * pair] = 1e-4
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        be.UMAP(2, n_epochs=10).fit(sparse.csr_array(graph.tocsr()))
    said = [str(one.message) for one in seen if "starts from eigenvectors" in str(one.message)]
    assert len(said) == pairs - 1
