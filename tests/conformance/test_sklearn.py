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
    be.LandmarkMDS(metric="cityblock"),
    be.DiffusionMap(n_components=2, n_neighbors=5, components="bridge"),
    be.Isomap(n_components=1, n_neighbors=5, components="bridge"),
    be.Isomap(n_components=1, n_neighbors=5, solver="landmarks", n_landmarks=12, components="bridge"),
    be.KernelPCA(),
    be.KernelPCA(solver="nystrom", n_landmarks=10),
    be.LandmarkDiffusionMap(n_landmarks=10),
]


def checks() -> list[Any]:
    """All checks of all estimators. They need not inherit from BaseEstimator, of which scikit-learn warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [pair for estimator in ESTIMATORS for pair in estimator_checks_generator(estimator)]
    return [pytest.param(estimator, check, id=f"{estimator}-{check.func.__name__}") for estimator, check in pairs]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
