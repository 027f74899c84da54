"""Isomap of distances that are given, against scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist
from sklearn.manifold import Isomap as Reference
from sklearn.neighbors import kneighbors_graph, sort_graph_by_row_values

import bigembed as be
from bigembed.datasets import dataset
from bigembed.errors import DisconnectedGraphError, InputError, InputTypeError
from tests.blocks import blocks_of

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


@pytest.mark.parametrize("rule", RULES, ids=["neighbors", "radius"])
def test_given_distances_equal_scikit_learn(apart: np.ndarray, rule: dict[str, Any]) -> None:
    known, new = apart[:450, :450], apart[450:, :450]
    theirs = Reference(n_components=2, metric="precomputed", **rule).fit(known)
    ours = be.Isomap(2, metric="precomputed", **rule).fit(known)
    assert len(ours.graph_.matrix.rows) == 3
    np.testing.assert_allclose(ours.dist_matrix_, theirs.dist_matrix_, rtol=1e-6)
    sign = np.sign(np.sum(ours.embedding_ * theirs.embedding_, axis=0))
    np.testing.assert_allclose(ours.embedding_ * sign, theirs.embedding_, atol=1e-4)
    np.testing.assert_allclose(ours.transform(new) * sign, theirs.transform(new), atol=1e-3)
    np.testing.assert_allclose(ours.transform(known), ours.embedding_, atol=1e-3)


@pytest.mark.parametrize("rule", RULES, ids=["neighbors", "radius"])
def test_where_the_distances_lie_changes_nothing(apart: np.ndarray, rule: dict[str, Any], tmp_path: Path) -> None:
    wanted = be.Isomap(2, metric="precomputed", **rule).fit(apart).embedding_
    place = str(tmp_path / "apart.zarr")
    zarr.create_array(place, data=apart, chunks=(64, 500) if "radius" in rule else (500, 32))
    for given in (place, da.from_array(apart, chunks=(500, 32) if "radius" in rule else (64, 500))):
        found = be.Isomap(2, metric="precomputed", **rule).fit(given)
        np.testing.assert_array_equal(np.asarray(found.embedding_), wanted)


@pytest.mark.parametrize("solver", ["exact", "landmarks"])
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


def test_landmarks_come_near_to_exact(apart: np.ndarray) -> None:
    exact = be.Isomap(2, metric="precomputed").fit(apart)
    few = be.Isomap(2, metric="precomputed", solver="landmarks", n_landmarks=100).fit(apart)
    assert procrustes(exact.embedding_, few.embedding_)[2] < 0.01


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
        with pytest.raises(InputError, match="'error' or 'per-component'"):
            fit(apart, components=policy)
    with pytest.raises(InputTypeError, match="with metric='precomputed' only"):
        be.Isomap(2).fit(lengths)
    wrong, fitted = apart[:5].copy(), fit(apart)
    wrong[3, 0] = -1
    with pytest.raises(InputError, match="row 3 to the known row 0 is -1"):
        fitted.transform(wrong)
    with pytest.raises(InputTypeError, match="graph of given distances"):
        be.DiffusionMap(2).fit(fitted.graph_)


def test_components_of_a_graph_of_lengths(apart: np.ndarray) -> None:
    lengths = kneighbors_graph(apart, 15, mode="distance", metric="precomputed").tolil()
    lengths[:100, 100:] = 0
    lengths[100:, :100] = 0
    with pytest.raises(DisconnectedGraphError):
        be.Isomap(2, metric="precomputed").fit(lengths.tocsr())
