"""New sparse rows whose columns, values or entries are others are warned of; those of the same kind are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

import bigembed as be
from bigembed import estimator as estimators
from bigembed.estimator import run_of
from bigembed.estimator.filled import filled_stage
from bigembed.quality.filled import FILLED, PLACES, kind_of, unlike_sparse
from bigembed.rows.sparse import held_source

N, D = 1_200, 600
FEW = 20


def users(n: int, kind: str = "counts", groups: int = 4, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Users × items of power-law popularity, each group with items of its own; and the groups of the users."""
    rng = np.random.default_rng(seed)
    popular, item = rng.permutation(1 / np.arange(1, D + 1)), rng.integers(groups, size=D)
    group, entries = rng.integers(groups, size=n), np.clip(rng.pareto(1.5, n) * 12 + 2, 2, 200).astype(int)
    shares = [popular * np.where(item == one, 12, 1) for one in range(groups)]
    column = [rng.choice(D, m, p=shares[g] / shares[g].sum()) for g, m in zip(group, entries, strict=True)]
    values = rng.geometric(0.5, entries.sum()).astype(np.float32)
    X = sparse.csr_array(sparse.coo_array((values, (np.repeat(np.arange(n), entries), np.concatenate(column))), (n, D)))
    if kind == "marks":
        X.data[:] = 1
    if kind == "weights":  # (as TF-IDF: logarithms, rows of length one)
        filled = np.bincount(X.indices, minlength=D)
        X.data = np.log1p(X.data) * np.log(n / (1 + filled))[X.indices]
        X = sparse.csr_array(X.multiply(1 / sparse.linalg.norm(X, axis=1)[:, None]))
    return X, group


def permuted(X: Any) -> Any:
    return X[:, np.random.default_rng(1).permutation(D)]


def marks(X: Any) -> Any:
    return sparse.csr_array((np.ones_like(X.data), X.indices, X.indptr), X.shape)


def lost(X: Any) -> Any:
    there = np.random.default_rng(2).random(len(X.data)) < 0.07
    found = sparse.csr_array((np.where(there, X.data, 0), X.indices, X.indptr), X.shape)
    found.eliminate_zeros()
    return found


FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "permuted": (permuted, "columns"),
    "shifted": (lambda X: X[:, np.roll(np.arange(D), 1)], "columns"),
    "thousandfold": (lambda X: 1000 * X, "size"),
    "thousandths": (lambda X: X / 1000, "size"),
    "marks": (marks, "varied"),
    "lost": (lost, "entries"),
}
SAID = {
    "columns": "Check that the columns are the same and in the same order",
    "size": "Compare units and scaling",
    "varied": "hold several values",
    "entries": "Check that no entries are lost",
}


@pytest.mark.parametrize("count", [FEW, 200, N])
@pytest.mark.parametrize("kind", ["counts", "weights"])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_no_other(fault: str, kind: str, count: int) -> None:
    X, _ = users(2 * N, kind)
    make, what = FAULTS[fault]
    found = unlike_sparse(sparse.csr_array(make(X[N : N + count])), *kind_of(X[:N]))
    assert what in found
    assert fault in ("marks", "lost") or set(found) == {what}


@pytest.mark.parametrize("count", [1, 2, 7, 19, FEW, 200, N])
@pytest.mark.parametrize("kind", ["counts", "marks", "weights"])
def test_rows_of_the_same_kind_or_of_one_group_are_like_those_fitted(kind: str, count: int) -> None:
    X, group = users(2 * N, kind)
    known, new = kind_of(X[:N]), X[N:]
    assert unlike_sparse(new[:count], *known) == {}
    for one in range(4):
        assert unlike_sparse(new[group[N:] == one][:count], *known) == {}


def test_words_of_one_language_of_many_are_like_those_fitted() -> None:
    """Groups that have no column in common: each fills the popular ones of its own."""
    rng = np.random.default_rng(0)
    language, order = np.arange(N) % 10, rng.permutation(D)
    share = 1 / np.arange(1, D // 10 + 1)
    words = [order[one * (D // 10) + rng.choice(D // 10, 30, p=share / share.sum())] for one in language]
    X = sparse.csr_array(sparse.coo_array((np.ones(30 * N), (np.repeat(np.arange(N), 30), np.concatenate(words)))))
    known = kind_of(X[: N // 2])
    for one in range(10):
        new = X[N // 2 :][language[N // 2 :] == one]
        assert unlike_sparse(new, *known) == {}
        assert set(unlike_sparse(permuted(new), *known)) == {"columns"}


def test_images_of_one_digit_are_like_those_fitted() -> None:
    X, y = load_digits(return_X_y=True)
    known = kind_of(sparse.csr_array(X[:1000]))
    for digit in range(10):
        new = sparse.csr_array(X[1000:][y[1000:] == digit])
        assert unlike_sparse(new, *known) == {}
        order = np.random.default_rng(0).permutation(64)
        assert set(unlike_sparse(sparse.csr_array(new[:, order]), *known)) == {"columns"}


def test_rows_without_entries_say_nothing_of_columns_and_values() -> None:
    X, _ = users(N)
    stored = sparse.csr_array((np.zeros(5), np.arange(5), np.arange(6)), (5, D))
    for new in (sparse.csr_array((5, D)), stored):
        assert set(unlike_sparse(new, *kind_of(X))) == {"entries"}
    assert set(unlike_sparse(X[:FEW], *kind_of(sparse.csr_array((N, D))))) == {"entries", "varied"}


def test_marks_in_place_of_counts_and_the_other_way_round() -> None:
    counts, other = users(N)[0], users(N, "marks")[0]
    assert unlike_sparse(other, *kind_of(counts))["varied"][0] == 0
    assert unlike_sparse(counts, *kind_of(other))["varied"][1] == 0
    assert "varied" not in unlike_sparse(other, *kind_of(counts), valued=False)


# ------------------------------------------------------------------------------------------------------- new rows


def said(estimator: Any, X: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.transform(X)
    return [str(one.message) for one in caught if "unlike those fitted" in str(one.message)]


MODELS: dict[str, Callable[[], Any]] = {
    "nmf": lambda: be.NMF(3, max_iter=5),
    "truncated_svd": lambda: be.TruncatedSVD(3),
    "after a logarithm and lengths": lambda: be.Pipeline([be.Log1p(), be.Normalizer(), be.TruncatedSVD(3)]),
    "after lengths, on a graph": lambda: be.Pipeline([be.Normalizer(), be.TruncatedSVD(5), be.DiffusionMap(2)]),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[request.param]().fit(users(2 * N)[0][:N])


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_models_say_it_of_the_rows_as_they_were_given(fitted: Any, fault: str | None) -> None:
    new = users(2 * N)[0][N : N + 300]
    if fault is None:
        assert said(fitted, new) == said(fitted, new[:1]) == []
        return
    make, what = FAULTS[fault]
    [text] = said(fitted, sparse.csr_array(make(new)))
    assert SAID[what] in text


def test_dense_new_rows_are_compared_with_sparse_ones() -> None:
    X = users(2 * N)[0]
    model = be.TruncatedSVD(3).fit(X[:N])
    assert said(model, X[N : N + 100].toarray()) == []
    assert SAID["columns"] in said(model, permuted(X[N : N + 100]).toarray())[0]


@pytest.mark.filterwarnings("ignore")
def test_lengths_are_not_compared_by_a_metric_that_takes_them_away() -> None:
    X = users(2 * N)[0]
    model = be.DiffusionMap(2, metric="cosine").fit(X[:N])
    assert said(model, 1000 * X[N:]) == []
    assert SAID["columns"] in said(model, permuted(X[N:]))[0]


def test_a_saved_model_knows_it_and_one_that_lacks_it_is_not_refused(tmp_path: Any, monkeypatch: Any) -> None:
    X = users(2 * N)[0]
    for keep in ("all", "map", "coordinates"):
        be.TruncatedSVD(3, keep=keep, workdir=tmp_path / keep).fit(X[:N]).save(tmp_path / f"{keep}-model")
        loaded = be.load(tmp_path / f"{keep}-model")
        assert {name.split("/")[0] for name in run_of(loaded).manifest(FILLED).files} == {PLACES}
        assert SAID["columns"] in said(loaded, permuted(X[N:]))[0]
        assert said(loaded, X[N:]) == []
    monkeypatch.setattr(estimators, "LIKENESS", {"judgement": estimators.LIKENESS["judgement"]})
    be.TruncatedSVD(3).fit(X[:N]).save(tmp_path / "earlier")
    assert said(be.load(tmp_path / "earlier"), permuted(X[N:])) == []


def test_what_is_kept_is_a_number_a_column(tmp_path: Any) -> None:
    X = users(N)[0]
    cost = filled_stage(held_source(X)).cost
    assert [(one.name, one.nbytes) for one in cost.arrays] == [(PLACES, 4 * D)]
    assert FILLED not in be.PCA(2, workdir=tmp_path).fit(X.toarray())._run.published()
