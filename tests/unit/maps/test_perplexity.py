"""Affinities have the perplexity asked for, and are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.manifold._t_sne import _joint_probabilities

import bigembed as be
from bigembed.maps.tsne.compiled import precision


def entropy(gaps: np.ndarray, beta: float, log_z: float) -> float:
    p = np.exp(-beta * gaps - log_z)
    assert p.sum() == pytest.approx(1, rel=1e-9)
    return float(-(p @ np.log(np.maximum(p, 1e-300))))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_row_has_the_entropy_of_its_perplexity(scale: float) -> None:
    gaps = scale * np.sort(np.random.default_rng(0).random(60)) ** 3
    gaps -= gaps[0]
    assert entropy(gaps, *precision(gaps, 60, 20.0)) == pytest.approx(np.log(20), abs=1e-9)
    assert entropy(gaps, *precision(gaps, 60, 21.0)) != pytest.approx(np.log(20), abs=1e-3)


def test_where_no_precision_has_it_p_is_even() -> None:
    """Fewer rows than the perplexity; all at one distance; more at the least distance than the perplexity."""
    assert precision(np.array([0.0, 1.0, 5.0]), 3, 30.0) == (0.0, np.log(3))
    assert precision(np.zeros(40), 40, 30.0) == (0.0, np.log(40))
    gaps = np.concatenate([np.zeros(20), np.ones(20)])
    p = np.exp(-precision(gaps, 40, 10.0)[0] * gaps)
    assert p[:20].min() == 1
    assert p[20:].max() < 1e-12


def test_joint_probabilities_are_scikit_learns() -> None:
    """Of all pairs, which they bisect in float32 to an entropy within 1e-5."""
    X = np.random.default_rng(1).normal(size=(80, 4)) * [3, 1, 1, 0.1]
    graph = be.build_neighbor_graph(X, n_neighbors=79)
    tsne = be.TSNE(perplexity=20, early_exaggeration_iter=1, n_iter=1).fit(graph)
    weights = tsne._run.matrix("graph", "weights", "kernel").block(0)
    ids = graph.original_ids()
    ours = np.zeros((80, 80))
    row = np.repeat(np.arange(80), np.diff(weights.indptr))
    ours[ids[row], ids[weights.indices]] = weights.data
    theirs = np.zeros((80, 80))
    theirs[np.triu_indices(80, 1)] = _joint_probabilities(cdist(X, X, "sqeuclidean"), 20, 0)
    theirs += theirs.T
    assert (ours == ours.T).all()
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * theirs.max())
    assert abs(ours[::-1] - theirs).max() > 0.1 * theirs.max()
