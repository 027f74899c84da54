"""Every method without a graph that takes weights of rows: a row of weight m is m copies of it, to rounding.

A new one is a line of ``WEIGHED``. What methods on a graph keep to, which see k neighbors and not k copies of one, is
in ``tests/unit/maps/test_row_weights.py`` and ``test_weighted_maps.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")

COUNTS = np.array([1, 3, 2, 1, 4, 1, 1, 2, 5, 1, 2, 1, 1, 3, 2, 1, 1, 1, 6, 2, 1, 1, 2, 1])
N = len(COUNTS)
COPIED = np.repeat(np.arange(N), COUNTS)
ROWS = np.random.default_rng(3).normal(size=(N, 3))
START = np.abs(np.random.default_rng(5).normal(size=(2, 3)))
WEIGHED: dict[str, tuple[Any, np.ndarray]] = {
    "classical, by columns": (lambda: be.ClassicalMDS(3), ROWS),
    "classical, a metric": (lambda: be.ClassicalMDS(3, metric="cityblock"), ROWS),
    "classical, given": (lambda: be.ClassicalMDS(3, metric="precomputed"), cdist(ROWS, ROWS, "cityblock")),
    "kernel, exact": (lambda: be.KernelPCA(3, gamma=0.3), ROWS),
    "kernel, given": (lambda: be.KernelPCA(3, kernel="precomputed"), np.exp(-cdist(ROWS, ROWS, "sqeuclidean"))),
    "kernel, landmarks": (lambda: be.KernelPCA(3, gamma=0.3, solver="nystrom", n_landmarks=N), ROWS),
    "landmark, by columns": (lambda: be.LandmarkMDS(2, landmarks=ROWS[:12]), ROWS),
    "landmark, a metric": (lambda: be.LandmarkMDS(2, landmarks=ROWS[:12], metric="cityblock"), ROWS),
    "principal components": (lambda: be.PCA(2), ROWS),
    "singular vectors": (lambda: be.TruncatedSVD(2), ROWS + 1),
    "factors": (lambda: be.NMF(2, init=START, max_iter=20), np.abs(ROWS)),
    "linearized walk": (lambda: be.LinearizedDiffusionMap(2), ROWS),
    "linearized walk, half": (lambda: be.LinearizedDiffusionMap(2, alpha=0.5, epsilon="density"), ROWS),
    "linearized kernel": (lambda: be.LinearizedKernelPCA(2, epsilon="auto"), ROWS),
    "linearized kernel, variances": (lambda: be.LinearizedKernelPCA(2, epsilon="bessel"), ROWS),
}


def turned(found: Any, wanted: Any) -> np.ndarray:
    """Coordinates with the signs of the wanted ones."""
    found = np.asarray(found)
    return found * np.where((found * np.asarray(wanted)).sum(axis=0) < 0, -1, 1)


@pytest.mark.parametrize("name", WEIGHED)
def test_a_row_of_weight_m_is_m_copies(name: str) -> None:
    make, given = WEIGHED[name]
    copies = given[np.ix_(COPIED, COPIED)] if given.shape == (N, N) else given[COPIED]
    mine, theirs = make().fit(given, sample_weight=COUNTS), make().fit(copies)
    if hasattr(theirs, "eigenvalues_"):
        np.testing.assert_allclose(mine.eigenvalues_, theirs.eigenvalues_, rtol=1e-7)
    wanted = np.asarray(theirs.embedding_)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(turned(mine.embedding_[COPIED], wanted), wanted, atol=1e-6 * scale)
    plain = make().fit(given)
    assert np.abs(turned(plain.embedding_[COPIED], wanted) - wanted).max() > 0.02 * scale  # a wrong answer
    ones = make().fit(given, sample_weight=np.ones(N))
    np.testing.assert_allclose(turned(ones.embedding_, plain.embedding_), plain.embedding_, atol=1e-9 * scale)
    if name != "factors":  # (whose new rows are solved for to a tolerance: test_rows.py)
        np.testing.assert_allclose(mine.transform(given), mine.embedding_, atol=1e-6 * scale)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan])
def test_weights_are_above_0(wrong: float) -> None:
    weights = np.ones(N)
    weights[3] = wrong
    for make in (lambda: be.KernelPCA(2), lambda: be.ClassicalMDS(2, metric="cityblock")):
        with pytest.raises(InputError, match=r"weights.*3"):
            make().fit(ROWS, sample_weight=weights)
