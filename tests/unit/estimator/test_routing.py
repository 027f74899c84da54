"""Metadata routing: what scikit-learn's routers may pass to which method."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigembed as be


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def data():
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    return generator.normal(size=(90, 4)) + y[:, None] * np.array([1.0, 0, 0, 0]), y, generator.uniform(size=90)


@pytest.mark.skipif(sklearn.__version__ < "1.8", reason="scikit-learn's own classifier refuses these weights below 1.8")
def test_a_pipeline_that_ends_in_the_discriminant_scores():
    X, y, weights = data()
    ours = make_pipeline(StandardScaler(), be.LinearDiscriminantAnalysis()).fit(X, y)
    theirs = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(X, y)
    assert ours.score(X, y) == theirs.score(X, y)
    weighted = make_pipeline(StandardScaler(), be.LinearDiscriminantAnalysis().set_score_request(sample_weight=True))
    expected = np.average(theirs.predict(X) == y, weights=weights)
    assert weighted.fit(X, y).score(X, y, sample_weight=weights) == expected
    scaled = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), weighted[-1])
    found = cross_validate(scaled, X, y, cv=3, params={"sample_weight": weights})
    assert np.isfinite(found["test_score"]).all()


def test_weights_reach_the_fit_that_asked_for_them():
    X, y, weights = data()
    asked = be.PCA(2).set_fit_request(sample_weight=True)
    pipeline = make_pipeline(asked, be.LinearDiscriminantAnalysis()).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline[0].mean_, be.PCA(2).fit(X, sample_weight=weights).mean_)
    renamed = make_pipeline(be.PCA(2).set_fit_request(sample_weight="shares"), be.LinearDiscriminantAnalysis())
    np.testing.assert_array_equal(renamed.fit(X, y, shares=weights)[0].mean_, pipeline[0].mean_)
    assert clone(asked).get_metadata_routing().fit.requests == {"sample_weight": True}
    ignored = make_pipeline(be.PCA(2).set_fit_request(sample_weight=False), be.LinearDiscriminantAnalysis())
    with pytest.raises(TypeError, match="sample_weight"):
        ignored.fit(X, y, sample_weight=weights)
    unsaid = make_pipeline(be.PCA(2), be.LinearDiscriminantAnalysis())
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
        unsaid.fit(X, y, sample_weight=weights)


def test_what_is_routed_is_what_the_methods_take():
    assert be.PCA().get_metadata_routing().fit.requests == PCA().get_metadata_routing().fit.requests | {
        "sample_weight": None
    }
    assert be.LinearizedDiffusionMap().get_metadata_routing().transform.requests == {"epsilons": None}
    with pytest.raises(TypeError, match="Unexpected args"):
        be.PCA().set_fit_request(weights=True)
