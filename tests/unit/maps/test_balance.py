"""The bistochastic normalization of diffusion maps: sums, factors, new rows, and noise that differs from row to row."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

import bigembed as be
from bigembed.errors import InputError, InputTypeError
from bigembed.maps.walk import affinity
from bigembed.store.arrays import read_array
from tests.blocks import blocks_for
from tests.some import a_few

BALANCED = {"normalization": "bistochastic"}


def fit(X: Any, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return be.DiffusionMap(t=0, **given).fit(X)


def cloud(n: int = 400) -> np.ndarray:
    """Rows whose density differs by a factor of a hundred."""
    random = np.random.default_rng(0)
    return random.normal(size=(n, 3)) * np.exp(random.uniform(-1, 1, size=(n, 1)))


def factors(K: np.ndarray) -> np.ndarray:
    """x of a dense kernel, by Newton's method on x_i (K x)_i = 1."""
    x = 1 / np.sqrt(K.sum(axis=1))
    for _ in range(50):
        jacobian = np.diag(K @ x) + x[:, None] * K
        step = np.linalg.solve(jacobian, 1 - x * (K @ x))
        x = np.where(x + step > 0, x + step, x / 2)
    return x


def blocks_of(made: Any, name: str) -> np.ndarray:
    order = made._run.path("order")
    parts = range(len(made._run.results("kernel")["rows"]))
    out = np.empty(sum(made._run.results("kernel")["rows"]))
    out[np.concatenate([read_array(f"{order}/ids/{b}") for b in read_array(f"{order}/blocks")])] = np.concatenate(
        [read_array(f"{made._run.path('kernel', name)}/{b}") for b in parts]
    )
    return out


class TestFactors:
    """The factors, sums, eigenvalues and new rows are those of the dense kernel."""

    def test_of_all_pairs(self) -> None:
        X = cloud()
        made = fit(X, n_components=4, n_neighbors=None, epsilon=2.0, **BALANCED)
        K = np.exp(-cdist(X, X, "sqeuclidean") / 2.0)
        np.fill_diagonal(K, 0)
        x = factors(K)
        W = x[:, None] * K * x
        assert np.abs(W.sum(axis=1) - 1).max() < 1e-12
        assert np.abs(blocks_of(made, "degree") - 1).max() < 2e-6
        assert blocks_of(made, "q") == pytest.approx(1 / x, rel=1e-5)
        expected = np.sort(np.linalg.eigvalsh(W))[::-1][1:5]
        assert made.eigenvalues_ == pytest.approx(expected, abs=1e-6)
        assert fit(X, n_components=4, n_neighbors=None, epsilon=2.0).eigenvalues_ != pytest.approx(expected, abs=1e-3)
        assert made.certificate_["balance"]["converged"]

    @a_few(1, "blocks", [False, True])
    def test_on_a_graph_in_one_block_and_in_several(self, blocks: bool) -> None:
        X = cloud(600)
        with blocks_for(600) if blocks else warnings.catch_warnings():
            made = fit(X, n_components=3, n_neighbors=12, **BALANCED)
            assert (len(made._run.results("kernel")["rows"]) > 3) == blocks
            assert np.abs(blocks_of(made, "degree") - 1).max() < 2e-6
            assert np.abs(blocks_of(fit(X, n_neighbors=12), "degree") - 1).max() > 0.1
            size = np.abs(made.embedding_).max()
            assert np.abs(made.transform(X) - made.embedding_).max() < 2e-5 * size


class TestLimits:
    """What cannot be balanced is refused, or warned about."""

    def test_refusals(self) -> None:
        X = cloud(60)
        with pytest.raises(InputError, match="alpha"):
            fit(X, alpha=0.5, **BALANCED)
        with pytest.raises(InputError, match="target"):
            fit(X, target="laplace-beltrami", **BALANCED)
        with pytest.raises(InputError, match="solver"):
            fit(X, solver="landmarks", n_landmarks=20, **BALANCED)
        with pytest.raises(InputTypeError, match="bistochastic"):
            fit(be.datasets.ring_graph(20), **BALANCED)

    def test_a_kernel_that_has_no_factors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows around one that all of them are joined to, and to no other: no factors make these sums 1."""
        star = np.zeros((7, 8), dtype=int) - 1
        star[0, 1:7] = np.arange(1, 7)
        star[:, 0] = np.arange(7)
        star[1:, 1] = 0
        graph = be.open_graph(star, distances=np.where(star == np.arange(7)[:, None], 0.0, 1.0))
        monkeypatch.setattr(affinity, "PRODUCTS", 30)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            made = be.DiffusionMap(n_components=1, epsilon=1.0, **BALANCED).fit(graph)
        assert not made.certificate_["balance"]["converged"]
        assert any(issubclass(one.category, ConvergenceWarning) and "bistochastic" in str(one.message) for one in seen)
