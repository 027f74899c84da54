"""The weights of UMAP: those of umap-learn for the same lists of neighbors, and those of a loop by the formulas."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.maps.umap.compiled import bandwidth
from bigembed.maps.umap.descent import curve

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
UMAP_LEARN = {
    0: {8: 0.6590043, 12: 0.6043636, 13: 1.0, 18: 0.2875665, 20: 0.3287093, 30: 0.9999999, 36: 0.5024907},
    17: {1: 0.5660945, 10: 0.5504966, 14: 1.0, 15: 0.5067115, 21: 0.9999999, 32: 0.9999999},
}
"""Rows of ``fuzzy_simplicial_set`` of umap-learn 0.5.12, of the exact lists of 5 neighbors (its 6) of :func:`rows`."""


def rows(n: int = 40) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(n, 3)) * [3.0, 1.0, 0.3]


def dense(umap: Any) -> np.ndarray:
    """W in the order of the input."""
    weights, out = umap._run.matrix("graph", "weights", "kernel"), np.zeros((len(umap.embedding_),) * 2)
    starts, ids = np.concatenate([[0], np.cumsum(weights.rows)]), umap.graph_.original_ids()
    for b in range(len(weights.rows)):
        block = weights.block(b)
        row = starts[b] + np.repeat(np.arange(weights.rows[b]), np.diff(block.indptr))
        out[ids[row], ids[block.ids(b, starts)[block.indices]]] = block.data
    return out


def by_formula(X: np.ndarray, k: int, connectivity: float, mix: float) -> np.ndarray:
    """W row by row, with the bandwidth by a root finder of SciPy's."""
    apart = cdist(X, X)
    a = np.zeros_like(apart)
    for i, row in enumerate(apart):
        near = np.argsort(row, kind="stable")[1 : k + 1]
        nonzero, whole = row[near][row[near] > 0], int(connectivity)
        rho = nonzero[whole - 1] + (connectivity - whole) * (nonzero[whole] - nonzero[whole - 1])
        beyond = np.maximum(row[near] - rho, 0)
        sigma = brentq(lambda s, d=beyond: np.exp(-d / s).sum() - log2(k + 1), 1e-9, 1e9, xtol=1e-14, rtol=1e-13)
        a[i, near] = np.exp(-beyond / sigma)
    return mix * (a + a.T - a * a.T) + (1 - mix) * a * a.T


@pytest.mark.parametrize(("connectivity", "mix"), [(1.0, 1.0), (2.5, 0.3)])
def test_weights_are_those_of_the_formulas_from_rows_and_from_given_lists(connectivity: float, mix: float) -> None:
    X = rows(300)
    asked: dict[str, Any] = {"local_connectivity": connectivity, "set_op_mix_ratio": mix, "n_epochs": 1}
    found = dense(be.UMAP(n_neighbors=8, init="random", **asked).fit(X))
    np.testing.assert_allclose(found, by_formula(X, 8, connectivity, mix), atol=1e-6)
    assert (found == found.T).all()
    near = np.argsort(cdist(X, X), axis=1)[:, :9]
    lists = be.open_graph(near, distances=np.take_along_axis(cdist(X, X), near, axis=1))
    np.testing.assert_allclose(dense(be.UMAP(init="random", **asked).fit(lists)), found, atol=1e-6)
    assert abs(found - by_formula(X, 9, connectivity, mix)).max() > 0.05
    assert abs(found - by_formula(X, 8, connectivity + 1, mix)).max() > 0.05


def test_weights_are_umap_learns() -> None:
    found = dense(be.UMAP(n_neighbors=5, n_epochs=1, init="random").fit(rows()))
    for row, stored in UMAP_LEARN.items():
        assert np.flatnonzero(found[row]).tolist() == list(stored)
        np.testing.assert_allclose(found[row, list(stored)], list(stored.values()), atol=1e-5)


def test_bandwidths_of_degenerate_lists_are_finite_or_leave_all_memberships_at_one() -> None:
    assert bandwidth(np.zeros(9), 9, 9, 1.0)[0] == 0
    assert 0 < bandwidth(np.zeros(9), 9, 9, 1.0)[1] < 1e-15
    assert bandwidth(np.array([2.0, 1.0]), 2, 15, 1.0) == (1.0, np.inf)
    rho, sigma = bandwidth(np.concatenate([np.zeros(12), [5.0, 3.0]]), 14, 14, 1.0)
    assert rho == 3
    assert sigma == pytest.approx(1e-3 * 8 / 15)


def test_the_curve_is_umap_learns() -> None:
    np.testing.assert_allclose(curve(0.1, 1.0), (1.576943460, 0.895060879), rtol=1e-6)
    np.testing.assert_allclose(curve(0.5, 1.0), (0.583030020, 1.334166993), rtol=1e-6)
