"""Truncated singular value decomposition against scikit-learn's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import decomposition

import bigembed as be
from bigembed.errors import ConvergenceWarning, InputError, LocalizedWarning, MapWarning
from bigembed.estimator import preprocessing
from bigembed.maps.linear import principal
from tests.some import a_few

NAMES = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")
TOPICS = 8


@pytest.fixture(scope="module")
def words():
    """Documents of topics that overlap, as sparse weights of words (tf–idf)."""
    random = np.random.default_rng(0)
    topics = random.dirichlet(np.full(600, 0.05), TOPICS) * np.geomspace(1.0, 0.6, TOPICS)[:, None]
    counts = random.poisson(40 * random.dirichlet(np.full(TOPICS, 0.3), 900) @ topics)
    rare = np.log(len(counts) / (1 + (counts > 0).sum(axis=0)))
    return sparse.csr_array(counts * rare)


def agree(found, X, m, tolerance=1e-6):
    wanted = decomposition.TruncatedSVD(m, algorithm="arpack", tol=1e-12).fit(X)
    for name in NAMES:
        a, b = np.asarray(getattr(found, name)), getattr(wanted, name)
        np.testing.assert_allclose(a / np.abs(b).max(), b / np.abs(b).max(), atol=tolerance, err_msg=name)
    np.testing.assert_allclose(found.transform(X), wanted.transform(X), atol=tolerance * wanted.singular_values_[0])
    back = wanted.inverse_transform(wanted.transform(X))
    np.testing.assert_allclose(found.inverse_transform(found.transform(X)), back, atol=tolerance * np.abs(back).max())


class TestTruncatedSVD:
    """The attributes, coordinates and rows of scikit-learn's, dense, sparse and of many columns."""

    @a_few(1, "columns", [4096, 100])
    @pytest.mark.parametrize("dense", [False, True])
    def test_agrees_with_scikit_learn(self, words, columns, dense, monkeypatch):
        monkeypatch.setattr(principal, "GRAM_COLUMNS", columns)
        X = words.toarray() if dense else words
        found = be.TruncatedSVD(5, tol=1e-9).fit(X)
        agree(found, words, 5)
        assert found.certificate_["solver"] == ("covariance" if columns == 4096 else "block Lanczos")
        with pytest.raises(AssertionError):  # a control: the mean taken off gives other directions
            agree(be.PCA(5).fit(words), words, 5)

    def test_few_components_of_many_columns_are_iterated(self, words, monkeypatch):
        """The covariance is not formed where it and its solve would take many times the operations of the passes."""
        monkeypatch.setattr(principal, "LEAST_ITERATED", 100)
        wide, tall = words.toarray()[:60], np.tile(words.toarray(), (8, 1))
        for rows, m, solver in (
            (words, 3, "block Lanczos"),
            (words, 400, "covariance"),
            (wide, 2, "products of rows"),
            (tall, 3, "covariance"),
        ):
            found = be.TruncatedSVD(m, tol=1e-9).fit(rows)
            assert found.certificate_["solver"] == solver
            agree(found, rows, m)
        with pytest.raises(InputError, match=r"did not form for so many columns. Begin with partial_fit"):
            be.TruncatedSVD(2).fit(wide).partial_fit(wide)
        begun = be.TruncatedSVD(2).partial_fit(wide[:30]).partial_fit(wide[30:])
        agree(begun, wide, 2)

    @pytest.mark.parametrize("many", [False, True])
    def test_sparse_rows_are_judged_against_all(self, words, many, monkeypatch):
        """As dense ones if they are few; both are the figures of certify."""
        monkeypatch.setattr(preprocessing, "BYTES", 1 << 16 if many else 1 << 26)
        found = be.TruncatedSVD(5).fit(words)
        judged = found.certificate_["judgement"]["map"]
        samples = 400 if many else 200
        assert (judged["n"], judged["samples"], judged.get("of")) == (900, samples, None)
        expected = be.certify(words, found.embedding_, samples=samples).figures
        for name in ("preservation", "trustworthiness", "continuity", "triplets"):
            assert judged[name]["value"] == pytest.approx(expected[name]["value"], rel=1e-12)

    def test_is_pca_about_zero(self, words):
        found, same = be.TruncatedSVD(4).fit(words), be.PCA(4, center=False).fit(words)
        assert np.array_equal(found.components_, same.components_)
        assert np.array_equal(found.transform(words), same.transform(words))
        assert np.array_equal(found.singular_values_, same.singular_values_)

    def test_too_many_components_are_refused(self):
        with pytest.raises(InputError, match="n_components=4 must be between 1 and"):
            be.TruncatedSVD(4).fit(np.eye(3))


class TestCertificate:
    """Planted failures, and a map that is good and quiet."""

    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    def test_a_planted_failure_is_said(self, words, monkeypatch):
        random = np.random.default_rng(3)
        places = random.normal(size=(400, 4))
        rows = 30.0 + np.hstack([places, 0.02 * random.normal(size=(400, 120))])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            be.TruncatedSVD(5).fit(rows)
        with pytest.warns(MapWarning, match="Trustworthiness is 0.[4-6]"):
            be.TruncatedSVD(1).fit(rows)  # (whose only coordinate is what all rows share)
        odd = rows - 30.0
        odd[7] *= 1_000.0
        with pytest.warns(LocalizedWarning, match="coordinate 1 is carried by few rows"):
            be.TruncatedSVD(5).fit(odd)
        monkeypatch.setattr(principal, "GRAM_COLUMNS", 100)
        with pytest.warns(ConvergenceWarning, match="TruncatedSVD: the eigensolver stopped"):
            be.TruncatedSVD(8, max_passes=3).fit(words)
