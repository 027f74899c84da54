"""Linear discriminants, and the class scatters that they come from."""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.stats import ortho_group
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Peer

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, InputTypeError
from bigembed.maps.linear import class_scatter, gram, wide_discriminants
from bigembed.rows import RowSource
from bigembed.runtime import blocks as canonical
from bigembed.runtime.blocks import Array
from tests.some import a_few


def sample(n: int = 900, d: int = 6, c: int = 3, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, c, n)
    X = generator.normal(size=(n, d)) @ generator.normal(size=(d, d)) + 2 * generator.normal(size=(c, d))[labels]
    return X, labels


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestFewRows:
    """Rows fewer than their columns: what the scatters of all columns give, from the products of all rows."""

    NAMES = (
        *("scalings_", "coef_", "intercept_", "explained_variance_ratio_", "means_", "xbar_", "priors_", "embedding_"),
        "direction_",
    )

    @pytest.fixture
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Products in several tasks, blocks and panels of columns."""
        monkeypatch.setattr(wide_discriminants, "LEAST_ITERATED", 50)
        monkeypatch.setattr(gram, "TASK_ROWS", 23)
        monkeypatch.setattr(gram, "TILE_COLUMNS", 77)
        monkeypatch.setattr(gram, "SUM_BYTES", 8 * 150 * 4)
        monkeypatch.setattr(canonical, "MAX_BLOCK_ROWS", 9)
        monkeypatch.setattr(canonical, "MIN_BLOCK_ROWS", 9)

    @staticmethod
    def wide(c: int, apart: float = 2.0) -> tuple[Array, Array]:
        """60 rows of 150 columns, the last of which are constant in all classes, and in all rows."""
        X, labels = sample(60, 150, c)
        X += apart * np.random.default_rng(1).normal(size=(c, 150))[labels]
        X[:, -2], X[:, -1] = 0.1 + labels / 3, 0.1  # (whose means are rounded)
        return X, labels

    @pytest.mark.parametrize("apart", [2.0, 1e6])
    @pytest.mark.parametrize(
        ("c", "given"),
        [(3, {}), (2, {}), (4, {"n_components": 2}), (3, {"priors": [0.7, 0.3, 0.0]}), (3, {"priors": [2, 1, 1]})],
        ids=str,
    )
    def test_is_what_all_scatters_give(
        self, c: int, given: dict[str, Any], apart: float, few: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, y = self.wide(c, apart)
        ours = be.LinearDiscriminantAnalysis(**given).fit(X, y)
        assert ours.covariance_ is None
        monkeypatch.setattr(wide_discriminants, "LEAST_ITERATED", 1_000)
        wanted = be.LinearDiscriminantAnalysis(**given).fit(X, y)
        assert wanted.covariance_.shape == (150, 150)
        assert ours.certificate_["rank"] == wanted.certificate_["rank"] < 60
        for name in self.NAMES:
            one, other = getattr(ours, name), getattr(wanted, name)
            if other is not None:
                scale = np.abs(other[np.isfinite(other)]).max()
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7 * scale, err_msg=name)
        np.testing.assert_array_equal(ours.predict(X), wanted.predict(X))
        assert ours.certificate_["warnings"] == wanted.certificate_["warnings"]

    def test_agrees_with_scikit_learn(self, few: None) -> None:
        X, y = self.wide(3)
        X = X[:, :-2]  # (it takes the rounding of constant columns for scatter)
        ours, peer = be.LinearDiscriminantAnalysis().fit(X, y), Peer(solver="svd").fit(X, y)
        found, wanted = (one.transform(X) - one.transform(X).mean(axis=0) for one in (ours, peer))
        np.testing.assert_allclose(found @ np.linalg.lstsq(found, wanted)[0], wanted, atol=1e-6 * np.abs(wanted).max())
        np.testing.assert_allclose(ours.explained_variance_ratio_, peer.explained_variance_ratio_)
        np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-9)
        other = be.LinearDiscriminantAnalysis().fit(X, np.roll(y, 1))  # (a control)
        assert np.abs(other.explained_variance_ratio_ - peer.explained_variance_ratio_).max() > 1e-3

    def test_rows_without_labels_do_not_count(self, few: None) -> None:
        X, y = self.wide(3)
        labels = y.astype(float)
        labels[::5] = np.nan
        keep = np.isfinite(labels)
        ours = be.LinearDiscriminantAnalysis(missing_labels="ignore").fit(X, labels)
        wanted = be.LinearDiscriminantAnalysis().fit(X[keep], y[keep])
        assert len(ours.embedding_) == 60
        np.testing.assert_allclose(ours.scalings_, wanted.scalings_, atol=1e-8 * np.abs(wanted.scalings_).max())
        np.testing.assert_allclose(ours.coef_, wanted.coef_, atol=1e-8 * np.abs(wanted.coef_).max())

    def test_batches_begin_with_batches(self, few: None, tmp_path: Path) -> None:
        X, y = self.wide(3)
        fitted = be.LinearDiscriminantAnalysis().fit(X, y)
        with pytest.raises(InputError, match=r"did not form for rows fewer than these\. Begin with"):
            fitted.partial_fit(X, y)
        fitted.save(tmp_path / "model.zarr")
        np.testing.assert_array_equal(be.load(tmp_path / "model.zarr").predict_proba(X), fitted.predict_proba(X))


class TestLinearDiscriminant:
    """Linear discriminants of rows of any kind, against scikit-learn and against what must not matter."""

    @pytest.fixture
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Canonical blocks of 128 rows."""
        monkeypatch.setattr(canonical, "MAX_BLOCK_ROWS", 128)
        monkeypatch.setattr(canonical, "MIN_BLOCK_ROWS", 64)

    @a_few(1, "names", [None, ["cat", "dog", "emu"]])
    @pytest.mark.parametrize(
        "given",
        [{}, {"shrinkage": 0.2}, {"shrinkage": "auto"}, {"priors": [0.5, 0.3, 0.2]}, {"n_components": 1}],
        ids=str,
    )
    def test_agrees_with_scikit_learn(self, given: dict[str, Any], names: list[str] | None, small_blocks: None) -> None:
        X, y = sample()
        y = y if names is None else np.array(names)[y]
        new = sample(seed=1)[0]
        ours, peer = be.LinearDiscriminantAnalysis(**given).fit(X, y), Peer(solver="eigen", **given).fit(X, y)
        wanted = peer.transform(new)
        signs = np.sign((ours.transform(new) * wanted).sum(axis=0))
        np.testing.assert_allclose(ours.transform(new) * signs, wanted, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(ours.embedding_ * signs, peer.transform(X), rtol=1e-6, atol=1e-9)
        for name in ("decision_function", "predict_proba", "predict_log_proba"):
            np.testing.assert_allclose(getattr(ours, name)(new), getattr(peer, name)(new), rtol=1e-6, atol=1e-9)
        for name in ("coef_", "intercept_", "means_", "priors_", "covariance_", "explained_variance_ratio_"):
            np.testing.assert_allclose(getattr(ours, name), getattr(peer, name), rtol=1e-6, atol=1e-10)
        assert ours.predict(new).tolist() == peer.predict(new).tolist()
        assert ours.predict(new).dtype == peer.predict(new).dtype
        assert ours.score(X, y) == peer.score(X, y)
        other = Peer(solver="eigen", shrinkage=0.9).fit(X, y)
        assert not np.allclose(ours.coef_, other.coef_, rtol=1e-2)  # a control

    def test_passes_over_the_rows(self, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y = sample()
        seen: list[int] = []
        read = RowSource.read

        def counting(self: RowSource, start: int, stop: int) -> Any:
            seen.append((stop - start) if len(self.shape) == 2 and np.shares_memory(self.array, X) else 0)
            return read(self, start, stop)

        monkeypatch.setattr(RowSource, "read", counting)
        for shrinkage, passes in ((None, 1), (0.3, 1), ("auto", 2)):
            seen.clear()
            lda = be.LinearDiscriminantAnalysis(shrinkage=shrinkage).fit(X, y)
            assert sum(seen) == passes * len(X) == lda.certificate_["passes"] * len(X)

    def test_another_shrinkage_needs_no_new_pass(self, tmp_path: Path) -> None:
        X, y = sample()
        first = be.LinearDiscriminantAnalysis(workdir=tmp_path / "run").fit(X, y)
        stamp = (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns
        second = be.LinearDiscriminantAnalysis(shrinkage=0.5, workdir=tmp_path / "run").fit(X, y)
        assert (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns == stamp
        assert not np.allclose(first.coef_, second.coef_, rtol=1e-2)
        other = be.LinearDiscriminantAnalysis(workdir=tmp_path / "run").fit(X, 2 - y)
        assert (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns > stamp
        np.testing.assert_allclose(other.coef_[::-1], first.coef_, rtol=1e-8)

    @settings(max_examples=5)
    @given(seed=st.integers(0, 2**16), shift=st.sampled_from([0.0, 5.0, 1e5]), scale=st.sampled_from([1e-4, 1.0, 1e4]))
    def test_rotation_shift_scale_and_order_do_not_matter(self, seed: int, shift: float, scale: float) -> None:
        X, y = sample(300)
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(X))
        moved = scale * (X @ ortho_group.rvs(6, random_state=seed)) + shift * scale
        ours, other = (
            be.LinearDiscriminantAnalysis().fit(X, y),
            be.LinearDiscriminantAnalysis().fit(moved[order], y[order]),
        )
        np.testing.assert_allclose(other.explained_variance_ratio_, ours.explained_variance_ratio_, rtol=1e-5)
        np.testing.assert_allclose(other.predict_proba(moved), ours.predict_proba(X), rtol=1e-3, atol=1e-6)
        between = np.linalg.norm(ours.embedding_[:, None] - ours.embedding_[None], axis=2)
        again = np.linalg.norm(other.transform(moved)[:, None] - other.transform(moved)[None], axis=2)
        np.testing.assert_allclose(again, between, rtol=1e-4, atol=1e-4)
        turned = be.LinearDiscriminantAnalysis(shrinkage=0.5).fit(X * np.arange(1, 7), y)
        assert not np.allclose(turned.predict_proba(X * np.arange(1, 7)), ours.predict_proba(X), rtol=1e-3)  # a control

    # ------------------------------------------------------------------------------------ hard cases

    def test_more_columns_than_rows(self) -> None:
        X, y = sample(60, 200)
        new, _ = sample(600, 200)
        with pytest.warns(DegenerateWarning, match="of rank 57"):
            be.LinearDiscriminantAnalysis().fit(X, y)
        ours, peer = (
            be.LinearDiscriminantAnalysis(shrinkage="auto").fit(X, y),
            Peer("eigen", shrinkage="auto").fit(X, y),
        )
        np.testing.assert_allclose(ours.predict_proba(new), peer.predict_proba(new), rtol=1e-5, atol=1e-8)
        assert ours.scalings_.shape == (200, 2)

    @pytest.mark.parametrize("shrinkage", [None, "auto"])
    def test_a_class_of_one_row_has_a_mean_and_no_scatter(self, shrinkage: str | None) -> None:
        X, y = sample()
        X, y = np.vstack([X, 30 * np.ones(6)]), np.r_[y, 9]
        ours = be.LinearDiscriminantAnalysis(shrinkage=shrinkage).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs, of the class of one row
            peer = Peer("eigen", shrinkage=shrinkage).fit(X, y)
        assert ours.classes_.tolist() == [0, 1, 2, 9]
        assert ours.n_components_ == 3
        np.testing.assert_allclose(ours.covariance_, peer.covariance_, rtol=1e-8)
        np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
        assert ours.predict(X[-1:]).tolist() == [9]

    def test_rows_without_label(self) -> None:
        X, y = sample()
        some = y.astype(float)
        some[[3, 5, 800]] = np.nan
        with pytest.raises(
            InputError, match=r"Input y contains NaN: 3 of 900 rows have no label.*\[3, 5, 800\].*'ignore'"
        ):
            be.LinearDiscriminantAnalysis().fit(X, some)
        ours = be.LinearDiscriminantAnalysis(missing_labels="ignore").fit(X, some)
        kept = ~np.isnan(some)
        wanted = be.LinearDiscriminantAnalysis().fit(X[kept], y[kept])
        np.testing.assert_allclose(ours.coef_, wanted.coef_, rtol=1e-9)
        np.testing.assert_allclose(ours.xbar_, wanted.xbar_, rtol=1e-9)
        assert ours.embedding_.shape == (900, 2)
        assert ours.certificate_["missing_labels"] == 3
        words = np.array(["cat", "dog", None], object)[y]
        assert be.LinearDiscriminantAnalysis(missing_labels="ignore").fit(X, words).classes_.tolist() == ["cat", "dog"]
        assert be.LinearDiscriminantAnalysis().fit(X, y - 1).classes_.tolist() == [-1, 0, 1]  # −1 is a class
        auto = be.LinearDiscriminantAnalysis(missing_labels="ignore", shrinkage="auto").fit(X, some)
        peer = Peer("eigen", shrinkage="auto").fit(X[kept], y[kept])
        np.testing.assert_allclose(auto.coef_, peer.coef_, rtol=1e-6)

    def test_priors_that_do_not_sum_to_one_are_scaled_with_a_warning(self) -> None:
        X, y = sample()
        with pytest.warns(DegenerateWarning, match="priors do not sum to 1"):
            lda = be.LinearDiscriminantAnalysis(priors=[5, 3, 2]).fit(X, y)
        np.testing.assert_allclose(lda.priors_, [0.5, 0.3, 0.2])

    @a_few(2, "parameters", [{}, {"shrinkage": 0.3}, {"priors": [0.2, 0.3, 0.5]}, {"n_components": 1}])
    def test_batches_give_what_the_whole_gives(self, parameters):
        generator = np.random.default_rng(0)
        labels = np.array(["left", "right", "up"])[generator.integers(0, 3, 300)]
        X = generator.normal(size=(300, 5)) + 100.0 * (labels == "up")[:, None] + 1e3
        order = np.r_[
            np.flatnonzero(labels != "left")[:50], np.setdiff1d(np.arange(300), np.flatnonzero(labels != "left")[:50])
        ]
        X, labels = X[order], labels[order]
        whole, batches = (
            be.LinearDiscriminantAnalysis(**parameters).fit(X, labels),
            be.LinearDiscriminantAnalysis(**parameters),
        )
        if "priors" in parameters:
            cuts = [(50, 200), (0, 50), (200, 201), (201, 300)]
        else:
            cuts = [(0, 50), (50, 51), (51, 200), (200, 300)]
        for start, stop in cuts:
            batches.partial_fit(X[start:stop], labels[start:stop])
        for name in ("scalings_", "explained_variance_ratio_", "means_", "xbar_", "priors_", "covariance_", "coef_"):
            np.testing.assert_allclose(getattr(batches, name), getattr(whole, name), rtol=1e-6, atol=1e-9, err_msg=name)
        assert batches.classes_.tolist() == ["left", "right", "up"]
        assert batches.certificate_["class_sizes"] == whole.certificate_["class_sizes"]
        np.testing.assert_array_equal(batches.predict(X), whole.predict(X))

    def test_batches_that_cannot_be_added_are_refused(self):
        X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
        with pytest.raises(InputError, match="fourth moments"):
            be.LinearDiscriminantAnalysis(shrinkage="auto").partial_fit(X, y)
        with pytest.raises(InputError, match=r"not in classes: \[1\]"):
            be.LinearDiscriminantAnalysis().partial_fit(X, y, classes=[0, 2])
        with pytest.raises(InputError, match="greater than one"):
            be.LinearDiscriminantAnalysis().partial_fit(X[::2], y[::2], classes=[0, 1])
        fitted = be.LinearDiscriminantAnalysis().partial_fit(X, y, classes=[0, 1])
        with pytest.raises(InputTypeError, match="numbers in one batch and text in another"):
            fitted.partial_fit(X, ["a", "b"] * 10)
        again = be.LinearDiscriminantAnalysis().fit(X, y)
        np.testing.assert_allclose(fitted.coef_, again.coef_)
        np.testing.assert_allclose(again.partial_fit(X, y).priors_, [0.5, 0.5])


def sample_of_class_scatter(n: int = 300, d: int = 5, c: int = 4, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, c, n)
    codes[:c] = np.arange(c)
    mixing = generator.normal(size=(d, d))
    return generator.normal(size=(n, d)) @ mixing + 3 * generator.normal(size=(c, d))[codes], codes


def by_definition(rows: Array, codes: Array, c: int) -> tuple[Array, Array]:
    """Means m_c and scatters S_c, as seed 000 §4 writes them."""
    means = np.array([rows[codes == k].mean(axis=0) for k in range(c)])
    return means, np.array([(rows[codes == k] - means[k]).T @ (rows[codes == k] - means[k]) for k in range(c)])


def solved(
    rows: Array, codes: Array, shrinkage: float | str | None, priors: Array | None = None
) -> class_scatter.Covariances:
    c = int(codes.max()) + 1
    by_class = shrinkage == "auto" or priors is not None
    found = class_scatter.class_scatter_block(rows, codes, c, by_class)
    fourth = None
    if shrinkage == "auto":
        spread = [s / k for s, k in zip(found.scatter, found.counts, strict=True)]
        spread.append((found.scatter.sum(axis=0) + found.between()) / len(rows))
        means = np.vstack([found.means, found.mean])
        fourth = class_scatter.fourth_moments_block(
            rows, codes, means, np.array([class_scatter.scales_of(part) for part in spread])
        )
    return class_scatter.covariances(found, found.counts / len(rows) if priors is None else priors, shrinkage, fourth)


class TestClassScatter:
    """Class scatters and discriminant directions against the formulas of seed 000 and against scikit-learn."""

    @pytest.mark.parametrize("by_class", [False, True])
    @pytest.mark.parametrize("cuts", [[], [1], [7, 8, 150], [299]])
    def test_blocks_sum_to_the_scatters_of_all_rows(self, by_class: bool, cuts: list[int]) -> None:
        rows, codes = sample_of_class_scatter()
        means, scatters = by_definition(rows, codes, 4)
        parts = [
            class_scatter.class_scatter_block(part, code, 4, by_class)
            for part, code in zip(np.split(rows, cuts), np.split(codes, cuts), strict=True)
        ]
        found: class_scatter.ClassScatter = reduce(add, parts)
        np.testing.assert_allclose(found.means, means, rtol=1e-12)
        np.testing.assert_array_equal(found.counts, np.bincount(codes))
        np.testing.assert_allclose(found.scatter, scatters if by_class else scatters.sum(axis=0)[None], rtol=1e-11)
        centered = rows - rows.mean(axis=0)
        np.testing.assert_allclose(found.scatter.sum(axis=0) + found.between(), centered.T @ centered, rtol=1e-11)

    @settings(max_examples=15)
    @given(cuts=st.lists(st.integers(0, 300), max_size=6), offset=st.sampled_from([0.0, 1e6]))
    def test_any_cut_gives_the_same_however_far_the_rows_lie_from_zero(self, cuts: list[int], offset: float) -> None:
        rows, codes = sample_of_class_scatter()
        whole = class_scatter.class_scatter_block(rows, codes, 4)
        parts = zip(np.split(rows + offset, sorted(cuts)), np.split(codes, sorted(cuts)), strict=True)
        found = reduce(add, [class_scatter.class_scatter_block(part, code, 4) for part, code in parts])
        np.testing.assert_allclose(found.scatter, whole.scatter, rtol=1e-6 if offset else 1e-10)
        if offset:  # a control: the textbook one-pass formula Σxxᵀ − n m mᵀ does lose the scatter here
            raw = (rows + offset).T @ (rows + offset) - (found.counts[:, None] * found.means).T @ found.means
            assert not np.allclose(raw, whole.scatter[0], rtol=1e-6)

    def test_directions_solve_the_generalized_eigenproblem_of_the_source(self) -> None:
        rows, codes = sample_of_class_scatter()
        means, scatters = by_definition(rows, codes, 4)
        within, counts = scatters.sum(axis=0), np.bincount(codes)
        apart = means - rows.mean(axis=0)
        between = (counts[:, None] * apart).T @ apart
        values, vectors = eigh(between, within)
        found = class_scatter.discriminants(solved(rows, codes, None), 3, 1e-12).scalings
        wanted = vectors[:, ::-1][:, :3] * np.sqrt(len(rows))
        np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=1e-8)
        assert values[::-1][3:].max() < 1e-12 * values[-1]  # no more than c − 1 of them

    def test_a_singular_scatter_has_directions_in_its_range_only(self) -> None:
        rows, codes = sample_of_class_scatter()
        flat = np.column_stack([rows, rows[:, 0] + rows[:, 1], np.full(len(rows), 3.0)])
        found = class_scatter.discriminants(solved(flat, codes, None), 3, 1e-12)
        assert found.rank == 5
        np.testing.assert_array_equal(found.scalings[-1], 0)
        spread = np.cov((flat @ found.scalings).T, bias=True)
        whole = class_scatter.discriminants(solved(rows, codes, None), 3, 1e-12)
        np.testing.assert_allclose(spread, np.cov((rows @ whole.scalings).T, bias=True), atol=1e-8)
        assert class_scatter.discriminants(solved(flat, codes, 0.1), 3, 1e-12).rank == 7
