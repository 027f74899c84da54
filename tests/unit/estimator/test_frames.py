"""Data frames in and out, as scikit-learn has them: names, index, pipelines, configuration; a notebook's page."""

from __future__ import annotations

import pickle
import re
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigembed as be
from bigembed.errors import FeatureNamesWarning, InputError


def frame(n: int = 30) -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(n, 3))
    return pd.DataFrame(values, columns=["a", "b", "c"], index=[f"row {i}" for i in range(n)])


def assert_same(ours, theirs):
    pd.testing.assert_frame_equal(ours, theirs)


def test_pipelines_and_configuration_are_followed_as_by_scikit_learn():
    X = frame()
    ours, theirs = (make_pipeline(StandardScaler(), kind(2)).set_output(transform="pandas") for kind in (be.PCA, PCA))
    assert_same(ours.fit(X).transform(X), theirs.fit(X).transform(X))
    assert_same(ours.fit_transform(X), theirs.fit_transform(X))
    np.testing.assert_array_equal(ours.get_feature_names_out(), theirs.get_feature_names_out())
    for pair in ((be.PCA(2), PCA(2)), (be.PCA(2), PCA(2))):
        with sklearn.config_context(transform_output="pandas"):
            assert_same(*(one.fit_transform(X.to_numpy()) for one in pair))
            assert_same(*(one.fit_transform(X) for one in pair))
            assert isinstance(pair[0].set_output(transform="default").transform(X), np.ndarray)
    fitted = be.PCA(2).set_output(transform="pandas").fit(X)
    assert_same(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))
    assert isinstance(fitted.embedding_, np.ndarray)
    assert isinstance(be.PCA(2).set_output(transform="pandas").fit_transform(da.from_array(X.to_numpy())), da.Array)
    assert isinstance(fitted.set_output().transform(X), pd.DataFrame)
    with pytest.raises(InputError, match="one of default, pandas, polars"):
        be.PCA().set_output(transform="xarray")


def test_frames_of_polars():
    pl = pytest.importorskip("polars")
    X = pl.DataFrame(frame().to_numpy(), schema=["a", "b", "c"])
    fitted = be.PCA(2).set_output(transform="polars").fit(X)
    assert fitted.transform(X).columns == ["pca0", "pca1"]
    np.testing.assert_array_equal(fitted.transform(X).to_numpy(), fitted.embedding_)


@pytest.mark.parametrize("named", [True, False])
def test_the_warning_about_names_is_that_of_scikit_learn(named):
    X = frame()
    fit, new = (X, X.to_numpy()) if named else (X.to_numpy(), X)
    with pytest.warns(UserWarning, match="feature names") as theirs:
        PCA(2).fit(fit).transform(new)
    fitted = be.PCA(2).fit(fit)
    with pytest.warns(FeatureNamesWarning) as ours:
        fitted.transform(new)
    assert [str(one.message) for one in ours] == [str(one.message) for one in theirs]
    assert ours[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.transform(fit)


def test_names_of_two_kinds_are_refused_as_by_scikit_learn():
    X = frame().rename(columns={"a": 1})
    for kind in (PCA, be.PCA):
        with pytest.raises(TypeError, match=r"\['int', 'str'\] as feature name / column name types"):
            kind(2).fit(X)
    assert not hasattr(be.PCA(2).fit(X.set_axis([1, 2, 3], axis=1)), "feature_names_in_")


def test_a_notebook_shows_parameters_and_the_fit():
    page = be.PCA(2, whiten=True)._repr_html_()
    assert "not fitted" in page
    assert re.search(r"whiten</th><td><b>True</b>", page)
    assert re.search(r"tol</th><td>1e-07<", page)
    assert re.search(r"rows</th><td>30<", be.PCA(2).fit(frame())._repr_html_())
    with pytest.warns(be.errors.ConvergenceWarning):
        stopped = be.NMF(2, max_iter=1).fit(frame().abs())
    assert "<li>NMF stopped at max_iter=1" in stopped._repr_html_()
    assert "<script" not in be.KernelPCA(kernel="<script>")._repr_html_()
    assert "be.PCA" not in make_pipeline(StandardScaler(), be.PCA(2))._repr_html_()
