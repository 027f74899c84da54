"""t-SNE: the gradient of KL, as good as scikit-learn's, its start. What UMAP has, too: test_descending_maps.py."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.manifold import TSNE as InMemory
from sklearn.manifold import trustworthiness

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError
from tests.blocks import blocks_for
from tests.unit.maps.digits import digits

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")


def dense_affinities(tsne: Any) -> np.ndarray:
    """P in the order of the input."""
    weights, out = tsne._run.matrix("graph", "weights", "kernel"), np.zeros((len(tsne.embedding_),) * 2)
    starts, ids = np.concatenate([[0], np.cumsum(weights.rows)]), tsne.graph_.original_ids()
    for b in range(len(weights.rows)):
        block = weights.block(b)
        row = starts[b] + np.repeat(np.arange(weights.rows[b]), np.diff(block.indptr))
        out[ids[row], ids[block.ids(b, starts)[block.indices]]] = block.data
    return out


def kernel(points: np.ndarray, dof: float) -> tuple[np.ndarray, np.ndarray]:
    """w of all pairs, and 1/(1 + r²/ν)."""
    squared = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    w = np.exp(-squared) if dof == inf else (1 + squared / dof) ** -dof
    np.fill_diagonal(w, 0)
    return w, 1 / (1 + squared / dof)


def divergence(p: np.ndarray, points: np.ndarray, dof: float) -> float:
    w, on = kernel(points, dof)[0], p > 0
    return float((p[on] * np.log(p[on] / (w / w.sum())[on])).sum())


@pytest.mark.parametrize("dof", [0.5, 1.0, inf])
def test_a_step_is_along_the_gradient_and_the_divergence_is_that_of_all_pairs(dof: float) -> None:
    """One step without momentum, gains or exaggeration, of a map of ordinary size."""
    X, start = digits(200)[0], 3 * np.random.default_rng(0).normal(size=(200, 2))
    plain = {"early_exaggeration_iter": 0, "n_iter": 1, "momentum": 0.0, "gains": False, "max_step": 1e9}
    tsne = be.TSNE(perplexity=10, init=start, dof=dof, learning_rate=1.0, **plain).fit(X)  # type: ignore[arg-type]
    p, (w, pull) = dense_affinities(tsne), kernel(start, dof)
    apart = start[:, None] - start[None]
    gradient = (((p - w / w.sum()) * pull)[..., None] * apart).sum(axis=1)
    step = tsne.embedding_ - (start - start.mean(axis=0))
    assert np.linalg.norm(step + gradient) < 0.02 * np.linalg.norm(gradient)
    assert np.linalg.norm(step - gradient) > np.linalg.norm(gradient)
    assert p.sum() == pytest.approx(1, rel=1e-6)
    assert tsne.kl_divergence_ == pytest.approx(divergence(p, tsne.embedding_, dof), rel=3e-3)


def test_it_is_as_good_as_scikit_learns() -> None:
    X, y = digits()
    ours = be.TSNE(perplexity=20).fit(X)
    theirs = InMemory(perplexity=20, init="pca", random_state=0, max_iter=750, method="exact").fit(X)
    p = dense_affinities(ours)
    assert divergence(p, ours.embedding_, 1.0) < 1.02 * divergence(p, theirs.embedding_, 1.0)
    assert divergence(p, be.PCA(2).fit_transform(X), 1.0) > 2 * ours.kl_divergence_
    kept = trustworthiness(X, ours.embedding_, n_neighbors=15)
    assert kept > trustworthiness(X, theirs.embedding_, n_neighbors=15) - 0.01
    assert trustworthiness(X, be.PCA(2).fit_transform(X), n_neighbors=15) < kept - 0.05
    near = ((ours.embedding_[:, None] - ours.embedding_[None]) ** 2).sum(axis=-1) + np.diag(np.full(len(y), inf))
    assert (y[near.argmin(axis=1)] == y).mean() > 0.93


def test_a_model_is_saved_without_the_array_that_a_fit_started_from(tmp_path: Path) -> None:
    X = digits(100)[0]
    start = 1e-4 * np.random.default_rng(0).normal(size=(100, 2))
    tsne = be.TSNE(init=start, perplexity=5, early_exaggeration_iter=10, n_iter=10).fit(X)
    tsne.save(tmp_path / "model.zarr")
    loaded = be.load(tmp_path / "model.zarr")
    assert loaded.init == "auto"
    assert loaded.certificate_["start"] == "array"
    np.testing.assert_array_equal(loaded.transform(X), tsne.embedding_)


def test_a_start_is_in_the_order_of_the_input(tmp_path: Path) -> None:
    X, start = digits(300)[0], np.random.default_rng(0).normal(size=(300, 2))
    np.save(tmp_path / "start.npy", start)
    still = {"early_exaggeration_iter": 0, "n_iter": 1, "learning_rate": 1e-12}
    with blocks_for(300):
        tsne = be.TSNE(perplexity=5, init=tmp_path / "start.npy", **still).fit(X)  # type: ignore[arg-type]
    np.testing.assert_allclose(tsne.embedding_, start - start.mean(axis=0), atol=1e-9)


def test_what_cannot_be_mapped_is_said() -> None:
    X = digits(40)[0]
    with pytest.warns(DegenerateWarning, match="perplexity=30 needs 90 neighbors of each row, and there are 39"):
        tsne = be.TSNE(early_exaggeration_iter=5, n_iter=5).fit(X)
    assert tsne.perplexity_ == 13
    with pytest.raises(InputError, match="n_components=4; allowed: 1, 2 or 3"):
        be.TSNE(4).fit(X)
