"""PCA, and the way back from coordinates to rows."""

from __future__ import annotations

import pickle
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn import decomposition
from sklearn.decomposition import PCA

import bigembed as be
from bigembed.errors import ConvergenceWarning, InputError, MapWarning, NotFittedError
from bigembed.estimator.sampling import drawn_numbers
from bigembed.maps.linear import gram, principal
from bigembed.quality import FAITHFUL
from bigembed.rows import RowSource
from bigembed.runtime import blocks
from bigembed.stages import Run, run_stages
from tests.some import a_few

NAMES = (
    "components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_",
)  # fmt: skip


def rows_of(n=600, d=12, mean=0.0, dtype="f8", seed=0):
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(n, d)) @ generator.normal(size=(d, d)) + mean).astype(dtype)


def agree(found, wanted, rtol=1e-6):
    for name in NAMES:
        a, b = getattr(found, name), getattr(wanted, name)
        scale = np.max(np.abs(b)) or 1.0
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=rtol, err_msg=name)


class TestManyColumns:
    """Block Lanczos, with a limit lowered so that it is used."""

    @pytest.fixture(autouse=True)
    def few_columns_are_many(self, monkeypatch):
        monkeypatch.setattr(principal, "GRAM_COLUMNS", 20)

    @a_few(2, "n_components", [4, 0.9, 0.99])
    @pytest.mark.parametrize("thin", [False, True])
    def test_agrees_with_scikit_learn(self, n_components, thin):
        X = rows_of(800, 90, mean=3.0) * 0.9 ** np.arange(90)
        found = be.PCA(n_components, tol=1e-9).fit(sparse.csr_array(X) if thin else X)
        wanted = decomposition.PCA(n_components, svd_solver="full").fit(X)
        assert found.n_components_ == wanted.n_components_
        agree(found, wanted)
        assert found.certificate_["solver"] == "block Lanczos"
        assert found.certificate_["passes"] > 2

    def test_what_needs_the_covariance_is_refused(self):
        for asked in (None, "mle"):
            with pytest.raises(InputError, match="formed up to 20"):
                be.PCA(asked).fit(rows_of(100, 30))

    def test_stopping_early_is_a_warning(self):
        with pytest.warns(ConvergenceWarning, match="raise max_passes"):
            be.PCA(3, tol=1e-12, max_passes=3).fit(rows_of(3000, 400))


class TestFewRows:
    """Rows fewer than their columns, by the products of all pairs: several tasks, blocks and panels of columns."""

    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch):
        monkeypatch.setattr(principal, "LEAST_ITERATED", 100)
        monkeypatch.setattr(gram, "TASK_ROWS", 23)
        monkeypatch.setattr(gram, "TILE_COLUMNS", 77)
        monkeypatch.setattr(gram, "SUM_BYTES", 8 * 150 * 7)
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 8 * 150 * 9)
        monkeypatch.setattr(blocks, "MIN_BLOCK_ROWS", 9)

    @pytest.mark.parametrize("thin", [False, True])
    @pytest.mark.parametrize("mean", [0.0, 1e3])
    @a_few(2, "n_components", [4, 0.8, 0.99, None])
    def test_agrees_with_scikit_learn(self, n_components, mean, thin):
        X = rows_of(60, 150, mean=mean)
        found = be.PCA(n_components).fit(sparse.csr_array(X) if thin else X)
        wanted = decomposition.PCA(n_components, svd_solver="full").fit(X)
        assert found.certificate_["solver"] == "products of rows"
        assert found.certificate_["residual"] < 1e-9 * (1 + mean) * found.explained_variance_[0]
        assert found.n_components_ == wanted.n_components_
        tolerance = 1e-6 if thin and mean else 1e-9  # (a mean is taken off products of sparse rows, not off the rows)
        for each in (found, wanted):  # (the last of 60 centered rows has no variance, and is arbitrary)
            each.components_ = each.components_[:59]
        agree(found, wanted, tolerance)

    def test_directions_are_as_good_as_those_of_a_singular_value_decomposition(self):
        """However small their variances: they fall over twelve decades."""
        random = np.random.default_rng(1)
        left, right = (np.linalg.qr(random.normal(size=(rows, 20)))[0] for rows in (60, 150))
        X = (left * 10.0 ** -np.linspace(0, 6, 20)) @ right.T
        found = be.PCA(20, center=False).fit(X)
        np.testing.assert_allclose(found.singular_values_, 10.0 ** -np.linspace(0, 6, 20), rtol=1e-6)
        np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(20), atol=1e-13)
        errors = 1 - np.abs((found.components_ * right.T).sum(axis=1))
        assert (errors < 1e-8).all()

    def test_rows_without_variance_have_orthonormal_components(self):
        for X, rank in ((np.repeat(rows_of(12, 150), 5, axis=0), 11), (np.ones((30, 150)), 0)):
            found = be.PCA().fit(X)
            assert np.count_nonzero(found.explained_variance_) == rank
            np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(len(X)), atol=1e-12)
            np.testing.assert_allclose(found.inverse_transform(found.transform(X)), X, atol=1e-10)

    def test_weights_are_numbers_of_equal_rows(self):
        X, weights = rows_of(60, 150), np.random.default_rng(2).integers(0, 3, 60).astype(float)
        found = be.PCA(5).fit(X, sample_weight=weights)
        agree(found, decomposition.PCA(5, svd_solver="full").fit(X.repeat(weights.astype(int), axis=0)), 1e-9)
        assert be.PCA().fit(X, sample_weight=40 * weights).n_components_ == 60
        with pytest.raises(AssertionError):
            agree(found, decomposition.PCA(5, svd_solver="full").fit(X))

    def test_chunks_and_workers_change_nothing(self, tmp_path):
        X = rows_of(60, 150, dtype="f4")
        wanted = be.PCA(3).fit(X)
        for number, chunks in enumerate([(7, 150), (60, 11), (25, 40)]):
            stored = zarr.create_array(str(tmp_path / f"{number}.zarr"), shape=X.shape, chunks=chunks, dtype=X.dtype)
            stored[...] = X
            np.testing.assert_array_equal(be.PCA(3).fit(stored).components_, wanted.components_)

    def test_rows_are_read_as_often_as_planned(self, monkeypatch):
        X, read, run, take = rows_of(60, 150), [], Run(None), RowSource.read
        monkeypatch.setattr(RowSource, "read", lambda rows, a, b: read.append(b - a) or take(rows, a, b))
        moments, solve, _ = be.PCA(10).stages(RowSource(X.shape, X.dtype, array=X))
        run_stages([moments], run)
        read.clear()
        run_stages([moments, solve], run)
        assert solve.cost.passes == pytest.approx(2 + 2)  # (three tasks, and ten directions by seven)
        assert sum(read) / 60 == pytest.approx(solve.cost.passes + 1, abs=0.4)  # (and the rows of each task once more)

    def test_what_needs_more_products_is_refused(self, monkeypatch):
        monkeypatch.setattr(principal, "GRAM_COLUMNS", 120)
        monkeypatch.setattr(gram, "MOST_ROWS", 60)
        assert be.PCA().fit(rows_of(60, 150)).n_components_ == 60
        with pytest.raises(InputError, match=r"products of all 61 rows, formed up to 60; .*at most 61, or a share"):
            be.PCA().fit(rows_of(61, 150))
        with pytest.raises(InputError, match="'mle' needs at least as many rows as columns; there are 60 rows of 150"):
            be.PCA("mle").fit(rows_of(60, 150))


def test_the_solver_is_the_one_that_takes_least():
    """Few components of rows almost as many as columns are iterated on; there is no step at the most rows."""
    for shape, n_components, solver in (
        ((2_000, 52_793), 10, principal.dual),
        ((3_000, 60_000), 2, principal.dual),
        ((200, 4_000), 2, principal.dual),
        ((4_000, 4_200), 10, principal.iterated),
        ((4_096, 4_500), 3, principal.iterated),
        ((4_097, 4_500), 3, principal.iterated),
        ((4_000, 4_200), None, principal.dual),
        ((1_440, 16_384), 0.9, principal.dual),
        ((60, 1_024), 2, principal.direct),
    ):
        source = RowSource(shape, np.dtype("f4"))
        assert principal.solver_of(source, be.PCA(n_components)._asked()) is solver, (shape, n_components)


def test_rows_of_many_columns_are_judged_all_over_the_file():
    """They come in small blocks, and rows of a file may lie in groups."""
    for shape in ((4_000, 40_000), (8_000, 20_000), (20_000, 40_000)):
        numbers = drawn_numbers(RowSource(shape, np.dtype("f4")))
        counts = np.histogram(numbers, bins=4, range=(0, shape[0]))[0]
        assert (counts > 0.1 * len(numbers)).all(), (shape, counts)


class TestNoise:
    """Rows of a few factors, most of whose differences are noise, so that no map shows which rows are near."""

    @staticmethod
    def judged(rows, n_components):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = be.PCA(n_components).fit(rows)
        seen = found.certificate_["judgement"]["map"]
        assert seen["trustworthiness"]["value"] < FAITHFUL
        return seen["left_out"], [str(one.message) for one in said if one.category is MapWarning]

    @pytest.fixture
    def factors(self):
        random = np.random.default_rng(0)
        return 0.13 * random.normal(size=(900, 4)) @ random.normal(size=(4, 300)) + random.normal(size=(900, 300))

    @pytest.mark.parametrize("n_components", [4, 8])
    def test_a_map_that_leaves_out_noise_alone_is_good(self, factors, n_components):
        left, said = self.judged(factors, n_components)
        assert left["ratio"] < 1.15
        assert left["of_rows"] > 1.4
        assert said == []

    def test_what_is_left_out_beside_noise_is_said(self, factors):
        left, said = self.judged(factors, 2)
        assert left["ratio"] > 1.4
        assert "what the coordinates leave out is more than noise (its largest variance is" in said[0]

    def test_rows_of_noise_have_no_good_map(self, factors):
        left, said = self.judged(np.random.default_rng(0).permuted(factors, axis=0), 4)
        assert left["of_rows"] < 1.15
        assert "the rows look like noise (their largest variance is" in said[0]

    def test_columns_of_their_own_are_no_noise(self):
        """Of twelve columns eight have two values each: 256 groups, which one component does not show."""
        random = np.random.default_rng(0)
        shared = 0.8 * random.normal(size=(1000, 1)) + 0.1 * random.normal(size=(1000, 4))
        own = 0.9 * random.choice([-1.0, 1.0], (1000, 8)) + 0.05 * random.normal(size=(1000, 8))
        with pytest.warns(MapWarning, match="Trustworthiness is"):
            assert be.PCA(1).fit(np.hstack([shared, own])).certificate_["judgement"]["map"]["left_out"] == {}

    def test_rows_like_others_are_more_than_noise(self, factors):
        """A family among rows that are related to none."""
        factors[:60] = factors[0] + 0.7 * np.random.default_rng(1).normal(size=(60, 300))
        left, said = self.judged(factors, 2)
        assert left["ratio"] > 1.4
        assert said


class TestPCA:
    """PCA against scikit-learn, its edge cases, and its model."""

    @pytest.mark.parametrize(("mean", "dtype"), [(0, "f8"), (1e6, "f8"), (0, "f4"), (1e3, "f4")])
    @a_few(2, "n_components", [3, 0.8, "mle", None])
    def test_agrees_with_scikit_learn(self, mean, dtype, n_components):
        X = rows_of(mean=mean, dtype=dtype)
        found = be.PCA(n_components).fit(X)
        wanted = decomposition.PCA(n_components, svd_solver="full").fit(X.astype("f8"))
        assert found.n_components_ == wanted.n_components_
        agree(found, wanted)
        np.testing.assert_allclose(found.get_covariance(), wanted.get_covariance(), rtol=1e-6, atol=1e-6)
        tolerance = 1e-4 if dtype == "f4" else 1e-6
        np.testing.assert_allclose(found.transform(X), wanted.transform(X.astype("f8")), atol=tolerance)
        with pytest.raises(AssertionError):  # a control: other rows are distinguished
            agree(found, decomposition.PCA(found.n_components_).fit(X[: len(X) // 2].astype("f8")))

    def test_whitened_coordinates_and_back(self):
        X = rows_of()
        pca = be.PCA(5, whiten=True).fit(X)
        np.testing.assert_allclose(np.cov(pca.embedding_.T), np.eye(5), atol=1e-10)
        wanted = decomposition.PCA(5, whiten=True).fit(X)
        np.testing.assert_allclose(pca.inverse_transform(pca.embedding_), wanted.inverse_transform(wanted.transform(X)))
        np.testing.assert_allclose(be.PCA().fit(X).inverse_transform(be.PCA().fit_transform(X)), X, atol=1e-9)

    @pytest.mark.parametrize(
        ("X", "rank"),
        [
            (rows_of(5, 12), 4),
            (np.ones((20, 3)), 0),
            (np.c_[rows_of(50, 2), np.full(50, 7.0)], 2),
            (np.repeat(rows_of(1, 6), 30, axis=0) * np.linspace(-1, 1, 30)[:, None], 1),
            (rows_of(2, 2), 1),
        ],
        ids=["d > n", "constant", "a constant column", "a line", "two rows"],
    )
    def test_degenerate_rows(self, X, rank):
        pca = be.PCA().fit(X)
        assert pca.n_components_ == min(X.shape)
        assert np.count_nonzero(pca.explained_variance_) == rank
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(pca.n_components_), atol=1e-12)
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), X, atol=1e-10)
        assert np.isfinite(be.PCA(whiten=True).fit_transform(X)).all()

    @pytest.fixture
    def stored(self, tmp_path):
        X = rows_of(500, 8, dtype="f4")
        array = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(33, 3), dtype=X.dtype)
        array[...] = X
        return X, array, tmp_path

    def test_coordinates_are_lazy_and_no_pass_writes_them(self, stored):
        X, array, folder = stored
        pca = be.PCA(3, workdir=folder / "run").fit(array)
        assert pca._run.published() == ["judgement", "moments", "solve"]
        assert isinstance(pca.embedding_, da.Array)
        wanted = be.PCA(3).fit_transform(X)
        np.testing.assert_array_equal(pca.embedding_.compute(), wanted)
        np.testing.assert_array_equal(pca.embedding_[[499, 3]].compute(), wanted[[499, 3]])
        np.testing.assert_array_equal(pca.embedding_[17, 1:].compute(), wanted[17, 1:])
        np.testing.assert_array_equal(pca.transform(da.from_array(X, chunks=(100, 5))).compute(), wanted)

    def test_sparse_rows_are_never_made_dense(self, monkeypatch):
        X = sparse.random(2000, 50, density=0.05, random_state=0, format="csr")
        dense = X.toarray()
        wanted = decomposition.PCA(5, svd_solver="full").fit(dense)
        weights = np.random.default_rng(0).integers(0, 3, 2000)
        heavy = decomposition.PCA(5, svd_solver="full").fit(dense.repeat(weights, axis=0))
        shapes = []

        for kind in (sparse.csr_array, sparse.csc_array):

            def watched(self, *rest, toarray=kind.toarray, **more):
                shapes.append(self.shape)
                return toarray(self, *rest, **more)

            monkeypatch.setattr(kind, "toarray", watched)
        found = be.PCA(5).fit(X)
        agree(found, wanted)
        np.testing.assert_allclose(found.embedding_, wanted.transform(dense), atol=1e-9)
        agree(be.PCA(5).fit(X, sample_weight=weights), heavy)
        assert set(shapes) == {(50, 50), (2000, 50)}  # (few enough to be judged as dense ones)
        X.data[7] = np.nan
        with pytest.raises(InputError, match=rf"rows \[{np.searchsorted(X.indptr, 7, side='right') - 1}\]"):
            be.PCA(5).fit(X)

    @a_few(1, "whiten", [False, True])
    @pytest.mark.parametrize("n_components", [1, 4, None])
    def test_density_agrees_with_scikit_learn(self, n_components, whiten):
        X, new = rows_of(), rows_of()[:77] * 1.3
        ours = be.PCA(n_components, whiten=whiten).fit(X)
        theirs = decomposition.PCA(n_components, svd_solver="full").fit(X)  # (whitening does not change the density)
        np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(ours.score_samples(new), theirs.score_samples(new), rtol=1e-9)
        np.testing.assert_allclose(ours.score(new), theirs.score(new), rtol=1e-9)
        lazy = ours.score_samples(da.from_array(new, chunks=(11, 3)))
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy.compute(), ours.score_samples(new))
        np.testing.assert_allclose(ours.score_samples(sparse.csr_array(new)), theirs.score_samples(new), rtol=1e-9)
        np.testing.assert_array_equal(ours.score_samples(new[5:6]), ours.score_samples(new)[5:6])

    @pytest.mark.parametrize("kind", ["dense", "sparse", "weighted", "lanczos"])
    def test_without_centering_it_is_the_truncated_svd(self, kind, monkeypatch):
        X = rows_of(mean=3.0)
        if kind == "lanczos":
            monkeypatch.setattr(principal, "GRAM_COLUMNS", 5)
        weights = np.random.default_rng(1).integers(0, 4, len(X)) if kind == "weighted" else np.ones(len(X), int)
        known = np.repeat(X, weights, axis=0)
        given = sparse.csr_array(X) if kind == "sparse" else X
        found = be.PCA(4, center=False).fit(given, sample_weight=weights if kind == "weighted" else None)
        wanted = decomposition.TruncatedSVD(4, algorithm="arpack").fit(known)
        np.testing.assert_allclose(found.singular_values_, wanted.singular_values_, rtol=1e-7)
        np.testing.assert_allclose(found.explained_variance_, (wanted.transform(known) ** 2).mean(axis=0), rtol=1e-7)
        np.testing.assert_allclose(
            found.explained_variance_ratio_, found.singular_values_**2 / (known**2).sum(), rtol=1e-9
        )
        np.testing.assert_allclose(np.abs(found.transform(X)), np.abs(wanted.transform(X)), atol=1e-4)
        np.testing.assert_allclose(
            found.inverse_transform(found.transform(X)), wanted.inverse_transform(wanted.transform(X)), atol=1e-4
        )
        assert not found.mean_.any()
        assert not np.allclose(found.components_, be.PCA(4).fit(X).components_, atol=0.1)
        assert be.PCA(1, center=False).fit(X[:1]).singular_values_[0] == pytest.approx(np.linalg.norm(X[0]))

    @a_few(2, "parameters", [{}, {"n_components": 3}, {"n_components": 0.7, "whiten": True}, {"center": False}])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_batches_give_what_the_whole_gives(self, parameters, weighted, tmp_path):
        X = rows_of(mean=1e3)
        weights = np.random.default_rng(1).uniform(size=len(X)) * 3 if weighted else None
        whole = be.PCA(**parameters).fit(X, sample_weight=weights)
        for workdir in (None, tmp_path):
            batches = be.PCA(**parameters, workdir=workdir)
            for start, stop in ((0, 40), (40, 41), (41, 300), (300, 600)):
                part = X[start:stop] if start else da.from_array(X[start:stop], chunks=(7, 5))
                batches.partial_fit(part, sample_weight=None if weights is None else weights[start:stop])
            agree(batches, whole, 1e-8)
            np.testing.assert_allclose(batches.transform(X), whole.transform(X), atol=1e-6)
        assert (batches.n_samples_, batches.n_features_in_) == (600, 12)
        with pytest.raises(NotFittedError, match="does not hold the coordinates"):
            batches.embedding_
        agree(batches.fit(X[:100]).partial_fit(X[100:]), be.PCA(**parameters).fit(X), 1e-8)
        with pytest.raises(InputError, match="X has 5 features, but PCA is expecting 12"):
            batches.partial_fit(X[:, :5])
        with pytest.raises(InputError, match="does not hold the sums"):
            pickle.loads(pickle.dumps(batches)).partial_fit(X)


def rows(n: int = 300) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=(n, 5))) + np.arange(5)


class TestInverse:
    """From coordinates back to rows: any kind of input, lazily where it does not lie in memory."""

    @pytest.mark.parametrize("whiten", [False, True])
    def test_it_is_the_inverse_of_scikit_learn(self, whiten):
        theirs, ours = PCA(2, whiten=whiten).fit(rows()), be.PCA(2, whiten=whiten).fit(rows())
        np.testing.assert_allclose(
            ours.inverse_transform(ours.embedding_), theirs.inverse_transform(theirs.transform(rows()))
        )
