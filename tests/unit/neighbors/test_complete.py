"""Every pair of a few rows: bit by bit what the search with lists would find."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.distance.pairwise import every_squared, paired_squared
from bigembed.neighbors.exact import all_others, empty_lists, exact_block, joined_to_all, merge_pairs
from bigembed.neighbors.graph_stages import union_block
from bigembed.neighbors.search.recall import recall_at


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("d", [1, 3, 8, 9, 17, 64, 130])
def test_distances_are_those_of_pairs_bit_by_bit(dtype, d):
    rng = np.random.default_rng(d)
    a, b = rng.normal(size=(19, d)).astype(dtype), rng.normal(size=(530, d)).astype(dtype)
    i, j = np.indices((19, 530)).reshape(2, -1)
    np.testing.assert_array_equal(every_squared(a, b).ravel(), paired_squared(a[i], b[j]))


def merged_lists(rows, k):
    """Lists of all pairs by merging: what is left where nothing is known to be complete."""
    ids, squared = empty_lists(len(rows), k, rows.dtype)
    i, j = np.nonzero(~np.eye(len(rows), dtype=bool))
    with np.errstate(over="ignore"):
        merge_pairs(ids, squared, i, j, paired_squared(rows[i], rows[j]).astype(rows.dtype))
    return ids, squared


@pytest.mark.parametrize("rows", ["normal", "ties", "far", "one", "two"])
@pytest.mark.parametrize("more", [-3, 0, 4])
def test_lists_are_those_of_the_general_way(rows, more):
    rng = np.random.default_rng(0)
    values = {
        "normal": rng.normal(size=(60, 5)),
        "ties": rng.integers(0, 2, size=(60, 3)).astype("f4"),
        "far": 1e200 * rng.normal(size=(20, 3)),  # squares beyond the largest number
        "one": rng.normal(size=(1, 2)),
        "two": rng.normal(size=(2, 2)),
    }[rows]
    k = max(1, len(values) - 1 + more)
    for found, wanted in zip(exact_block(values, k), merged_lists(values, k), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_query_that_is_no_row_has_them_all():
    rows, ids = np.arange(4.0)[:, None], np.array([3, 5, 6, 9])
    found, squared = all_others(np.array([[1.2]]), np.array([-1]), rows, ids, 9)
    assert found.tolist() == [[5, 6, 3, 9]]
    np.testing.assert_allclose(squared, [[0.04, 0.64, 1.44, 3.24]])


@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_the_graph_of_complete_lists_is_the_union(kind):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(30, 4)) if kind == "normal" else rng.integers(0, 2, size=(30, 2)).astype("f8")
    ids, squared = exact_block(rows, 29)
    nothing = np.zeros(0, np.dtype([("row", np.int32), ("source", np.int64), ("squared", squared.dtype)]))
    found, wanted = joined_to_all(ids, squared), union_block(0, ids, squared, nothing, [0, 30])
    for name in found.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype


def test_recall_holds_no_cube():
    lists = np.tile(np.arange(4000), (300, 1))
    truth = np.tile(np.arange(4000)[::-1], (300, 1))
    assert recall_at(lists, truth).tolist() == [1.0] * 300  # (a cube of comparisons would hold 4.8 GB)
    assert recall_at(np.array([[0, -1], [1, 2]]), np.array([[-1, 0], [0, 2]])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_new_rows_are_extended_over_every_fitted_row(alpha):
    """ψ(x) = Σ_j p(x, j) ψ(j) / λ, p(x, j) ∝ k(x, x_j) q_j^{-α} over all j, the farthest row too."""
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(7, 3))
    found = be.DiffusionMap(n_components=2, n_neighbors=None, alpha=alpha, epsilon=8.0).fit(X)
    q = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 8.0).sum(axis=1)
    weights = np.exp(-((Y[:, None] - X) ** 2).sum(axis=2) / 8.0) * q**-alpha
    walk = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.transform(Y), walk @ found.embedding_ / found.eigenvalues_, atol=1e-7)
    np.testing.assert_allclose(found.transform(X), found.embedding_, atol=1e-6)
