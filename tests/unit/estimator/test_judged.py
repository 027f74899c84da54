"""Maps of every method are judged alike: what is wrong is said, whoever made the map, and what is right is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn import datasets
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import bigembed as be
from bigembed.errors import BigembedWarning, MapWarning
from bigembed.estimator import spec_of
from bigembed.estimator.preprocessing import with_judgement
from bigembed.estimator.sampling import ROWS
from bigembed.jobs.report.figures import columns_entries
from bigembed.jobs.sweep import quality_stages
from bigembed.rows import RowSource
from tests.some import a_few

MAPS: dict[str, Callable[[], Any]] = {
    "PCA": lambda: be.PCA(2),
    "ClassicalMDS": be.ClassicalMDS,
    "ClassicalMDS, manhattan": lambda: be.ClassicalMDS(metric="manhattan"),
    "LandmarkMDS": lambda: be.LandmarkMDS(n_landmarks=250),
    "KernelPCA": lambda: be.KernelPCA(gamma=0.01),
    "KernelPCA, landmarks": lambda: be.KernelPCA(gamma=0.01, solver="nystrom", n_landmarks=100),
    "LandmarkDiffusionMap": be.LandmarkDiffusionMap,
    "LinearizedKernelPCA": be.LinearizedKernelPCA,
    "LinearizedDiffusionMap": be.LinearizedDiffusionMap,
    "NMF": lambda: be.NMF(2),
    "Isomap": be.Isomap,
    "Isomap, landmarks": lambda: be.Isomap(solver="landmarks", n_landmarks=100),
    "LocallyLinearEmbedding": be.LocallyLinearEmbedding,
    "LocallyLinearEmbedding, landmarks": lambda: be.LocallyLinearEmbedding(solver="landmarks", n_landmarks=150),
    "DiffusionMap": be.DiffusionMap,
}


def random(n: int = 300, d: int = 10, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def spiked() -> np.ndarray:
    """A cloud, and three rows far from it."""
    return np.concatenate([0.05 * random(400, 3), [[50.0, 0, 0], [0, 60, 0], [70, 0, 0]]])


def said(estimator: Any, X: Any) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        fitted = estimator.fit(X)
    return {kind: " | ".join(texts) for kind, texts in fitted.certificate_["warnings"].items() if texts}


@a_few(6, "name", MAPS)
def test_a_map_that_keeps_few_neighbors_is_said(name: str) -> None:
    X = random()
    assert "Trustworthiness is 0." in said(MAPS[name](), abs(X) if name == "NMF" else X)["map"]


@a_few(4, "name", sorted(set(MAPS) - {"ClassicalMDS, manhattan", "LandmarkDiffusionMap"}))
def test_a_column_that_decides_all_distances_is_said(name: str) -> None:
    X = abs(random(300, 3)) * [1.0, 500.0, 1.0]
    found = said(MAPS[name](), X)["map"]
    assert "column 1 (from 0) of the rows holds 100 % of their variance" in found
    assert "Standardize" in found


@a_few(2, "name", sorted(set(MAPS) - {"ClassicalMDS, manhattan", "LandmarkDiffusionMap"}))
def test_two_columns_that_decide_all_distances_are_said(name: str) -> None:
    X = abs(random(300, 5)) * [1.0, 90.0, 1.0, 1.0, 60.0]
    assert "columns 1 and 4 (from 0) of the rows hold 99.9" in said(MAPS[name](), X)["map"]
    assert "decide" not in said(MAPS[name](), X * [1.0, 0.1, 1.0, 1.0, 0.1]).get("map", "")


@pytest.mark.parametrize(("rows", "few"), [("breast cancer as it is", 5), ("breast cancer", 0), ("iris", 0)])
@pytest.mark.parametrize("name", ["PCA", "LinearizedDiffusionMap"])
def test_few_columns_that_hold_the_variance_are_listed(name: str, rows: str, few: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        seen = MAPS[name]().fit(RIGHT[rows]()).certificate_["judgement"]
    assert len(seen["map"]["rows"]["few"]) == few
    assert [f"{few} of 30 hold" in one.value for one in columns_entries(seen)] == [True] * bool(few)


@pytest.mark.parametrize("name", ["PCA", "ClassicalMDS", "LandmarkMDS", "LinearizedKernelPCA", "Isomap"])
def test_a_coordinate_of_a_few_rows_is_said(name: str) -> None:
    assert "carried by few rows" in said(MAPS[name](), spiked())["localized"]


def test_landmarks_are_not_the_rows() -> None:
    """Far rows are many of the landmarks, and few of the rows."""
    far = np.linspace(5, 50, 10)[:, None] * [1.0, 0.3, 0.0]
    X = np.concatenate([random(1500, 3), far])
    asked: dict[str, Any] = {"solver": "landmarks", "n_landmarks": 60, "n_neighbors": 6, "random_state": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        fitted = be.LocallyLinearEmbedding(1, **asked).fit(X)
    spread = np.abs(fitted.embedding_[:, 0] - fitted.embedding_[:, 0].mean())
    few = int((spread > 0.1 * spread.max()).sum()) < 0.01 * len(X)
    assert few == bool(fitted.certificate_["warnings"]["localized"])
    assert few
    assert fitted.certificate_["judgement"]["rows_above_a_tenth"][0] > 5  # of 60 landmarks: not few


def standard(load: Callable[[], Any]) -> np.ndarray:
    rows = load().data
    return np.asarray((rows - rows.mean(axis=0)) / rows.std(axis=0))


RIGHT: dict[str, Callable[[], np.ndarray]] = {
    "iris": lambda: datasets.load_iris().data,
    "wine": lambda: standard(datasets.load_wine),
    "breast cancer": lambda: standard(datasets.load_breast_cancer),
    "breast cancer as it is": lambda: datasets.load_breast_cancer().data,
    "swiss roll": lambda: datasets.make_swiss_roll(600, random_state=0)[0],
}


@a_few(2, "rows", RIGHT)
@pytest.mark.parametrize("name", ["PCA", "ClassicalMDS", "LinearizedKernelPCA", "LinearizedDiffusionMap", "Isomap"])
def test_a_good_map_is_not_marked(name: str, rows: str) -> None:
    estimator = be.Isomap(components="largest") if name == "Isomap" else MAPS[name]()
    found = said(estimator, RIGHT[rows]())
    assert not {"map", "localized"} & set(found), found


def test_discriminants_have_figures_and_are_not_asked_to_keep_neighborhoods() -> None:
    X = random()
    fitted = be.LinearDiscriminantAnalysis().fit(X, (X[:, 0] > 0).astype(int))
    assert fitted.certificate_["judgement"]["map"]["trustworthiness"]["value"] < 0.8
    assert not any(fitted.certificate_["warnings"].values())


def test_rows_of_which_distances_are_given_or_functions_and_few_rows_are_not_judged() -> None:
    X = random(60)
    for estimator, rows in (
        (be.ClassicalMDS(metric="precomputed"), np.linalg.norm(X[:, None] - X, axis=2)),
        (be.KernelPCA(kernel="precomputed"), X @ X.T),
        (be.PCA(2), X[:30]),
    ):
        assert "judgement" not in estimator.fit(rows).certificate_


def test_a_step_is_not_a_map(tmp_path: Path) -> None:
    X = random(200)
    be.Pipeline([be.PCA(2), be.Isomap()], workdir=tmp_path / "run").fit(X)
    published = {path.stem for path in (tmp_path / "run/manifest").glob("*.json")}
    assert "judgement" in published
    assert "judgement" not in be.StandardScaler(workdir=tmp_path / "step").fit(X)._run.published()
    assert not {name for name in published if name.startswith("step") and "judgement" in name}


def test_many_rows_are_judged_by_a_sample_that_no_chunks_change(tmp_path: Path) -> None:
    X = random(3_000, 8)
    found = [be.PCA(2).fit(rows).certificate_["judgement"] for rows in (X, da.from_array(X, chunks=(700, 8)))]
    assert found[0] == found[1]
    assert (found[0]["map"]["n"], found[0]["map"]["of"]) == (ROWS, 3_000)


def test_points_of_a_sweep_are_compared_by_all_rows() -> None:
    """Figures of drawn rows among each other are not those against all rows, by which other methods are judged."""
    for n, more in ((ROWS, 0), (ROWS + 1, 1)):
        source = RowSource((n, 8), np.dtype("f8"), array=np.zeros((n, 8)))
        stages = with_judgement(spec_of(be.PCA(2)), be.PCA(2).stages(source), source)
        assert stages[-1].name == "judgement"
        assert len(quality_stages(stages, be.PCA(2), source)) == more


def test_repeated_rows_are_a_warning_where_they_are_many() -> None:
    X = random(300, 2)
    estimator = be.UMAP(n_epochs=5)
    assert estimator.fit(np.concatenate([X, X[:3]])).certificate_["repeated_rows"] == 3
    assert "repeat" not in said(estimator, np.concatenate([X, X[:3]])).get("degenerate", "")
    assert "30 rows repeat" in said(estimator, np.concatenate([X, X[:30]]))["degenerate"]
    few = np.concatenate([X, np.repeat(X[:1], 5, axis=0)])
    fitted = be.DiffusionMap(n_neighbors=5).fit(few)
    assert fitted.certificate_["near_duplicates"] == 6
    assert not fitted.certificate_["warnings"]["degenerate"]


def strip(n: int = 500) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(n, 2)) * [2.5, 1.0]


def test_the_pair_that_shows_most_passes_by_harmonics() -> None:
    X = strip()
    fitted = be.DiffusionMap(6).fit(X)
    x, y = fitted.certificate_["drawn"]["pair"]
    assert x == 0
    assert not fitted.certificate_["judgement"]["harmonic"][y]
    assert "harmonics" in fitted.certificate_["drawn"]["why"]
    assert abs(np.corrcoef(fitted.embedding_[:, y], X[:, 1])[0, 1]) > 0.8  # the other side of the strip
    assert "drawn" not in be.PCA(2).fit(X).certificate_


def test_the_pair_that_shows_most_is_not_a_contrast_of_parts() -> None:
    X = np.concatenate([random(300, 3), random(100, 3, 1) + 80, random(80, 3, 2) - 80])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        fitted = be.DiffusionMap(6).fit(X)
    drawn = fitted.certificate_["drawn"]
    shown = fitted.embedding_[:, drawn["pair"]]
    largest = fitted.labels_ == 0
    assert (np.ptp(shown[largest], axis=0) > 5 * np.ptp(shown[~largest], axis=0)).all()
    assert "the same all over each part" in drawn["why"]
    assert "the inside of part 0" in drawn["why"]


def test_the_advice_for_parts_names_the_neighbors_that_join_them() -> None:
    X = datasets.load_iris().data
    for make in (be.DiffusionMap, be.LocallyLinearEmbedding):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BigembedWarning)
            fitted = make(n_neighbors=15).fit(X)
            k = fitted.certificate_["judgement"]["joined"]["n_neighbors"]
            assert make(n_neighbors=k).fit(X).certificate_["components"] == 1
            assert make(n_neighbors=k - 1).fit(X).certificate_["components"] == 2
        assert f"n_neighbors={k}" in fitted.certificate_["warnings"]["components"][0]
    apart = be.DiffusionMap(n_neighbors=None, radius=2.0, epsilon=1.0).fit
    far = np.concatenate([random(100, 2), random(100, 2, 1) + np.array([40, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        text = apart(far).certificate_["warnings"]["components"][0]
        assert "Take radius=" in text
        radius = float(text.partition("radius=")[2].partition(",")[0])
        joined = be.DiffusionMap(n_neighbors=None, radius=radius, epsilon=500.0).fit(far)
        assert joined.certificate_["components"] == 1
        grouped = be.DiffusionMap(n_neighbors=4).fit(far).certificate_["warnings"]["components"][0]
    assert "groups of their own" in grouped


@a_few(1, ("action", "times"), [("default", 1), ("always", 7)])
def test_a_search_over_parameters_says_a_sentence_once(action: Any, times: int) -> None:
    """Of seven fits; a filter that asks for all warnings has all, and a search on another line says it again."""
    X = random(200)
    steps, parameters = make_pipeline(be.PCA(), KNeighborsClassifier()), {"pca__n_components": [1, 2]}
    with warnings.catch_warnings(record=True) as given:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        GridSearchCV(steps, parameters, cv=3).fit(X, (X[:, 0] > 0).astype(int))
        first = len(about(given))
        GridSearchCV(steps, parameters, cv=3).fit(X, (X[:, 0] > 0).astype(int))
    assert (first, len(about(given))) == (times, 2 * times)


def about(given: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [one for one in given if one.category is MapWarning and "Trustworthiness" in str(one.message)]
