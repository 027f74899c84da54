"""scikit-learn's own estimator checks, on every estimator."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import bigembed as be

ESTIMATORS = [
    be.PCA(),
    be.LinearizedDiffusionMap(),
    be.LinearizedDiffusionNMF(),
    be.LinearizedKernelPCA(),
    be.NMF(),
    be.LinearDiscriminantAnalysis(),
    be.ClassicalMDS(),
    be.LandmarkMDS(),
    be.DiffusionMap(n_components=2, n_neighbors=5, components="bridge"),
    be.Isomap(n_components=1, n_neighbors=5, components="bridge"),
    be.KernelPCA(),
    be.LandmarkDiffusionMap(n_landmarks=10),
]
OTHERS = [
    be.LandmarkMDS(metric="cityblock"),
    be.Isomap(n_components=1, n_neighbors=5, solver="landmarks", n_landmarks=12, components="bridge"),
    be.KernelPCA(solver="nystrom", n_landmarks=10),
]
"""Other solvers of classes that are checked by default."""


def checks() -> list[Any]:
    """All checks of all estimators. They need not inherit from BaseEstimator, of which scikit-learn warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [pair for estimator in ESTIMATORS + OTHERS for pair in estimator_checks_generator(estimator)]
    slow = {repr(estimator) for estimator in OTHERS}
    return [
        pytest.param(
            estimator,
            check,
            id=f"{estimator}-{check.func.__name__}",
            marks=pytest.mark.slow if repr(estimator) in slow else (),
        )
        for estimator, check in pairs
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
