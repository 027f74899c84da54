"""Linear discriminants of rows of any kind, against scikit-learn and against what must not matter."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Peer

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, InputTypeError
from bigembed.rows.source import RowSource
from bigembed.runtime import blocks as canonical
from bigembed.runtime.blocks import Array


def sample(n: int = 900, d: int = 6, c: int = 3, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, c, n)
    X = generator.normal(size=(n, d)) @ generator.normal(size=(d, d)) + 2 * generator.normal(size=(c, d))[labels]
    return X, labels


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canonical blocks of 128 rows."""
    monkeypatch.setattr(canonical, "MAX_BLOCK_ROWS", 128)
    monkeypatch.setattr(canonical, "MIN_BLOCK_ROWS", 64)


@pytest.mark.parametrize("names", [None, ["cat", "dog", "emu"]])
@pytest.mark.parametrize(
    "given",
    [{}, {"shrinkage": 0.2}, {"shrinkage": "auto"}, {"priors": [0.5, 0.3, 0.2]}, {"n_components": 1}],
    ids=str,
)
def test_agrees_with_scikit_learn(given: dict[str, Any], names: list[str] | None, small_blocks: None) -> None:
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


def test_two_classes_as_in_the_source_and_in_scikit_learn() -> None:
    X, y = sample(c=2)
    ours, peer = be.LinearDiscriminantAnalysis().fit(X, y), Peer(solver="eigen").fit(X, y)
    centered = X - np.array([X[y == label].mean(axis=0) for label in (0, 1)])[y]
    w = np.linalg.solve(centered.T @ centered, X[y == 0].mean(axis=0) - X[y == 1].mean(axis=0))
    np.testing.assert_allclose(ours.direction_, w / np.linalg.norm(w), rtol=1e-8)
    np.testing.assert_allclose(np.abs(ours.direction_ @ ours.scalings_), np.linalg.norm(ours.scalings_), rtol=1e-10)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-6)
    assert ours.coef_.shape == (1, 6)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), rtol=1e-6, atol=1e-12)
    assert be.LinearDiscriminantAnalysis().fit(*sample()).direction_ is None


@pytest.mark.parametrize("shrinkage", [None, "auto"])
def test_any_kind_of_rows_and_labels_in_any_chunks_gives_the_same_bytes(
    shrinkage: str | None, small_blocks: None, tmp_path: Path
) -> None:
    X, y = sample()
    words = np.array(["cat", "dog", "emu"])[y]
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(77, 4), dtype=X.dtype)
    stored[:] = X
    text = zarr.create_array(tmp_path / "y.zarr", shape=y.shape, chunks=(100,), dtype=str)
    text[:] = words
    wanted = be.LinearDiscriminantAnalysis(shrinkage=shrinkage).fit(X, words)
    for rows, labels in [
        (da.from_array(X, chunks=(91, 5)), da.from_array(words, chunks=250)),
        (tmp_path / "x.zarr", tmp_path / "y.zarr"),
        (stored, text),
        (X, words.tolist()),
    ]:
        found = be.LinearDiscriminantAnalysis(shrinkage=shrinkage).fit(rows, labels)
        for name in ("scalings_", "coef_", "intercept_", "covariance_"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        np.testing.assert_array_equal(np.asarray(found.embedding_), wanted.embedding_)


def test_lazy_rows_give_lazy_answers() -> None:
    X, y = sample()
    names = np.array(["cat", "dog", "emu"])
    lda = be.LinearDiscriminantAnalysis().fit(X, names[y])
    lazy = da.from_array(X, chunks=(200, 3))
    for name in ("transform", "predict", "predict_proba", "decision_function", "predict_log_proba"):
        found = getattr(lda, name)(lazy)
        assert isinstance(found, da.Array)
        assert found.shape == getattr(lda, name)(X).shape
        np.testing.assert_array_equal(found.compute(), getattr(lda, name)(X))
    assert lda.score(lazy, da.from_array(names[y], chunks=111)) == lda.score(X, names[y])
    assert isinstance(be.LinearDiscriminantAnalysis().fit(lazy, y).embedding_, da.Array)


def test_passes_over_the_rows(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_another_shrinkage_needs_no_new_pass(tmp_path: Path) -> None:
    X, y = sample()
    first = be.LinearDiscriminantAnalysis(workdir=tmp_path / "run").fit(X, y)
    stamp = (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns
    second = be.LinearDiscriminantAnalysis(shrinkage=0.5, workdir=tmp_path / "run").fit(X, y)
    assert (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns == stamp
    assert not np.allclose(first.coef_, second.coef_, rtol=1e-2)
    other = be.LinearDiscriminantAnalysis(workdir=tmp_path / "run").fit(X, 2 - y)
    assert (tmp_path / "run/manifest/scatter.json").stat().st_mtime_ns > stamp
    np.testing.assert_allclose(other.coef_[::-1], first.coef_, rtol=1e-8)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), shift=st.sampled_from([0.0, 5.0, 1e5]), scale=st.sampled_from([1e-4, 1.0, 1e4]))
def test_rotation_shift_scale_and_order_do_not_matter(seed: int, shift: float, scale: float) -> None:
    X, y = sample(300)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(X))
    moved = scale * (X @ ortho_group.rvs(6, random_state=seed)) + shift * scale
    ours, other = be.LinearDiscriminantAnalysis().fit(X, y), be.LinearDiscriminantAnalysis().fit(moved[order], y[order])
    np.testing.assert_allclose(other.explained_variance_ratio_, ours.explained_variance_ratio_, rtol=1e-5)
    np.testing.assert_allclose(other.predict_proba(moved), ours.predict_proba(X), rtol=1e-3, atol=1e-6)
    between = np.linalg.norm(ours.embedding_[:, None] - ours.embedding_[None], axis=2)
    again = np.linalg.norm(other.transform(moved)[:, None] - other.transform(moved)[None], axis=2)
    np.testing.assert_allclose(again, between, rtol=1e-4, atol=1e-4)
    turned = be.LinearDiscriminantAnalysis(shrinkage=0.5).fit(X * np.arange(1, 7), y)
    assert not np.allclose(turned.predict_proba(X * np.arange(1, 7)), ours.predict_proba(X), rtol=1e-3)  # a control


def test_rows_twice_are_the_same() -> None:
    X, y = sample(300)
    ours = be.LinearDiscriminantAnalysis(shrinkage=0.1).fit(X, y)
    twice = be.LinearDiscriminantAnalysis(shrinkage=0.1).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(twice.scalings_, ours.scalings_, rtol=1e-9)
    some = be.LinearDiscriminantAnalysis(shrinkage=0.1).fit(np.vstack([X, X[:90]]), np.r_[y, y[:90]])
    assert not np.allclose(some.scalings_, ours.scalings_, rtol=1e-3)  # a control


# ------------------------------------------------------------------------------------ hard cases


def test_a_singular_scatter_is_a_warning_and_shrinkage_helps() -> None:
    X, y = sample()
    flat = np.column_stack([X, np.full(len(X), 7.0), X[:, 0] - X[:, 1], y])  # the last column tells all
    with pytest.warns(DegenerateWarning, match="of rank 6 in 9 columns.*shrinkage='auto'"):
        lda = be.LinearDiscriminantAnalysis().fit(flat, y)
    np.testing.assert_allclose(lda.predict_proba(flat), be.LinearDiscriminantAnalysis().fit(X, y).predict_proba(X))
    assert lda.certificate_["rank"] == 6
    shrunk = be.LinearDiscriminantAnalysis(shrinkage=1e-3).fit(flat, y)
    assert shrunk.score(flat, y) == 1.0 > lda.score(flat, y)


def test_more_columns_than_rows() -> None:
    X, y = sample(60, 200)
    new, _ = sample(600, 200)
    with pytest.warns(DegenerateWarning, match="of rank 57"):
        be.LinearDiscriminantAnalysis().fit(X, y)
    ours, peer = be.LinearDiscriminantAnalysis(shrinkage="auto").fit(X, y), Peer("eigen", shrinkage="auto").fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(new), peer.predict_proba(new), rtol=1e-5, atol=1e-8)
    assert ours.scalings_.shape == (200, 2)


@pytest.mark.parametrize("shrinkage", [None, "auto"])
def test_a_class_of_one_row_has_a_mean_and_no_scatter(shrinkage: str | None) -> None:
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


def test_rows_without_label() -> None:
    X, y = sample()
    some = y.astype(float)
    some[[3, 5, 800]] = np.nan
    with pytest.raises(InputError, match=r"Input y contains NaN: 3 of 900 rows have no label.*\[3, 5, 800\].*'ignore'"):
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


@pytest.mark.parametrize(
    ("given", "change", "said"),
    [
        ({}, lambda X, y: (X, np.zeros(len(X))), "greater than one; the labels hold one class, 0.0"),
        ({"missing_labels": "ignore"}, lambda X, y: (X, np.full(len(X), np.nan)), "the labels hold none"),
        ({}, lambda X, y: (X, np.arange(len(X))), "more than the number of classes; got 60 labelled rows in 60"),
        ({}, lambda X, y: (X, y[1:]), r"inconsistent numbers of samples: \[60, 59\]|labels have shape \(59,\)"),
        ({}, lambda X, y: (X, X[:, 0]), "Unknown label type: continuous"),
        ({}, lambda X, y: (np.where(np.arange(60)[:, None] == 7, np.nan, X), y), r"contains NaN: 1 of 60 rows.*\[7\]"),
        ({}, lambda X, y: (np.where(np.arange(60)[:, None] == 7, np.inf, X), y), "infinity"),
        ({"n_components": 3}, lambda X, y: (X, y), r"min\(n_features, n_classes - 1\) = 2; got 3"),
        ({"priors": [0.5, 0.5]}, lambda X, y: (X, y), r"shape \(2,\); there are 3 classes"),
        ({"priors": [0.5, 0.7, -0.2]}, lambda X, y: (X, y), "priors=.*nonnegative"),
        ({"shrinkage": 1.5}, lambda X, y: (X, y), r"shrinkage=1.5; allowed: 'auto', a number in \[0, 1\] or None"),
        ({"shrinkage": "lots"}, lambda X, y: (X, y), "shrinkage='lots'"),
        ({"missing_labels": "drop", "tol": -1}, lambda X, y: (X, y), "missing_labels='drop'.*tol=-1"),
    ],
)
def test_what_cannot_be_fitted(given: dict[str, Any], change: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        be.LinearDiscriminantAnalysis(**given).fit(*change(*sample(60)))


def test_priors_that_do_not_sum_to_one_are_scaled_with_a_warning() -> None:
    X, y = sample()
    with pytest.warns(DegenerateWarning, match="priors do not sum to 1"):
        lda = be.LinearDiscriminantAnalysis(priors=[5, 3, 2]).fit(X, y)
    np.testing.assert_allclose(lda.priors_, [0.5, 0.3, 0.2])


@pytest.mark.parametrize("kind", ["int", "text", "bool", "date", "bytes"])
def test_saved_and_pickled_it_predicts_the_same(kind: str, tmp_path: Path) -> None:
    X, y = sample(c=2 if kind == "bool" else 3)
    labels = {
        "int": y * 10 - 5,
        "text": np.array(["cat", "dog", "emu"])[y],
        "bool": y > 0,
        "date": np.datetime64("2020-01-01") + y,
        "bytes": np.array([b"cat", b"dog", b"emu"])[y],
    }[kind]
    lda = be.LinearDiscriminantAnalysis().fit(X, labels)
    lda.save(tmp_path / "model.zarr")
    for copy in (be.load(tmp_path / "model.zarr"), pickle.loads(pickle.dumps(lda))):
        np.testing.assert_array_equal(copy.predict(X), lda.predict(X))
        assert copy.predict(X).dtype == labels.dtype
        np.testing.assert_array_equal(copy.predict_proba(X), lda.predict_proba(X))
        np.testing.assert_array_equal(copy.transform(X), lda.transform(X))
        np.testing.assert_array_equal(copy.classes_, np.unique(labels))


@pytest.mark.parametrize("parameters", [{}, {"shrinkage": 0.3}, {"priors": [0.2, 0.3, 0.5]}, {"n_components": 1}])
def test_batches_give_what_the_whole_gives(parameters):
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


def test_batches_that_cannot_be_added_are_refused():
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
