"""Random projections as steps: their entries, the distances that they keep, and scikit-learn's beside them."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy import sparse, stats
from scipy.spatial.distance import pdist
from sklearn import random_projection
from sklearn.random_projection import johnson_lindenstrauss_min_dim

import bigembed as be
from bigembed.errors import InputError, MapWarning
from bigembed.steps.random_projection import least_columns
from tests.some import a_few

_RANDOM = np.random.default_rng(0)
ROWS = _RANDOM.normal(size=(150, 3_000)) * _RANDOM.uniform(0.5, 1.5, 3_000)
THIN = sparse.csr_array(np.where(_RANDOM.random(ROWS.shape) < 0.05, ROWS, 0.0))
KINDS = {"gaussian": be.GaussianRandomProjection, "sparse": be.SparseRandomProjection}
PEERS: dict[str, Any] = {
    "gaussian": random_projection.GaussianRandomProjection,
    "sparse": random_projection.SparseRandomProjection,
}


def errors(found: Any, X: Any) -> Any:
    """Of all squared distances, relatively."""
    wanted = pdist(X.toarray() if sparse.issparse(X) else X, "sqeuclidean")
    return pdist(np.asarray(found), "sqeuclidean") / wanted - 1


@pytest.mark.parametrize("kind", KINDS)
def test_too_few_directions_are_warned_of(kind: str) -> None:
    """By how much squared distances are off, as the certificate has it, is what is measured."""
    with pytest.warns(MapWarning, match="2 random directions change squared distances by 100 %"):
        KINDS[kind](2).fit(ROWS)
    found = KINDS[kind](32).fit(ROWS)
    assert found.certificate_["warnings"]["map"] == []
    assert errors(found.embedding_, ROWS).std() == pytest.approx(found.certificate_["distance_error"], rel=0.2)


class TestDirections:
    """The entries of the matrix, as they are distributed."""

    def test_gaussian_entries_are_normal(self) -> None:
        found = be.GaussianRandomProjection(200).fit(ROWS).components_
        assert found.shape == (200, 3_000)
        scaled = np.sqrt(200) * found
        assert stats.kstest(scaled.ravel(), "norm").pvalue > 1e-3
        assert stats.kstest(1.01 * scaled.ravel(), "norm").pvalue < 1e-3  # a control
        assert np.abs(np.corrcoef(found)[np.triu_indices(200, 1)]).max() < 6 / np.sqrt(3_000)

    @pytest.mark.parametrize("density", ["auto", 1 / 3])
    def test_sparse_entries_are_signs_of_one_size(self, density: Any) -> None:
        found = be.SparseRandomProjection(200, density=density).fit(ROWS)
        wanted = 1 / np.sqrt(3_000) if density == "auto" else density
        assert found.density_ == pytest.approx(wanted)
        data, entries = found.components_.data, 200 * 3_000
        np.testing.assert_allclose(np.abs(data), 1 / np.sqrt(200 * wanted))
        assert stats.binomtest(len(data), entries, wanted).pvalue > 1e-3
        assert stats.binomtest(int((data > 0).sum()), len(data)).pvalue > 1e-3
        assert stats.binomtest(len(data), entries, 1.05 * wanted).pvalue < 1e-3  # a control
        each = np.bincount(found.components_.tocoo().coords[0], minlength=200)  # (columns of the result are alike)
        spread = each.var() / (3_000 * wanted * (1 - wanted))
        assert 0.7 < spread < 1.4


class TestDistances:
    """Distances are kept as the bound says, and as by scikit-learn's."""

    def test_the_number_of_columns_is_scikit_learns(self) -> None:
        for n in (2, 150, 10**6):
            for eps in (0.05, 0.1, 0.5, 0.99):
                assert least_columns(n, eps) == johnson_lindenstrauss_min_dim(n, eps=eps)

    @pytest.mark.parametrize("kind", KINDS)
    @a_few(1, "X", [ROWS, THIN], ids=["dense", "sparse"])
    def test_all_distances_are_within_eps(self, kind: str, X: Any) -> None:
        known = {} if kind == "gaussian" else {"density": 1 / 3}  # (of which the bound is proved)
        found = KINDS[kind](eps=0.3, **known).fit(X)
        assert found.n_components_ == johnson_lindenstrauss_min_dim(len(ROWS), eps=0.3)
        mine = errors(found.embedding_, X)
        assert np.abs(mine).max() < 0.3
        few = errors(KINDS[kind](30, **known).fit_transform(X), X)
        assert np.abs(few).max() > 0.3  # a control
        dense = {} if kind == "gaussian" else {"dense_output": True}
        peer = errors(PEERS[kind](eps=0.3, random_state=0, **known, **dense).fit_transform(X), X)
        assert 0.8 < mine.std() / peer.std() < 1.25
        assert few.std() > 2 * peer.std()

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_a_product_row_by_row(self, kind: str) -> None:
        found = KINDS[kind](20).fit(ROWS)
        matrix = found.components_.toarray() if kind == "sparse" else found.components_
        np.testing.assert_allclose(found.embedding_, ROWS @ matrix.T, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found.transform(ROWS[7:9]), found.embedding_[7:9])
        np.testing.assert_array_equal(found.transform(sparse.csr_array(ROWS[7:9])).shape, (2, 20))
        lazy = found.transform(da.from_array(ROWS, chunks=(37, 3_000)))
        np.testing.assert_array_equal(lazy.compute(), found.embedding_)
        assert found.get_feature_names_out()[1] == PEERS[kind](20).fit(ROWS).get_feature_names_out()[1]
        assert KINDS[kind](20).fit_transform(ROWS.astype("f4")).dtype == np.float32

    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"needs 4,294 columns for 150 rows, which have 3,000.*larger eps"):
            be.GaussianRandomProjection(eps=0.1).fit(ROWS)
        with pytest.raises(InputError, match="must be at most n_features, which is 3000"):
            be.SparseRandomProjection(3_001).fit(ROWS)
        with pytest.raises(InputError, match=r"density=1.5; allowed: a number in"):
            be.SparseRandomProjection(3, density=1.5).fit(ROWS)
        with pytest.raises(InputError, match="NaN"):
            be.GaussianRandomProjection(3).fit_transform(np.where(ROWS[3, 3] == ROWS, np.nan, ROWS))
