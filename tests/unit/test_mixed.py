"""Tables of numbers and categories: factor analysis (FAMD, MCA) by a step and PCA, Gower's distance by a step and a
metric; missing values, unknown categories, new rows, jobs.
"""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigembed as be
from bigembed.errors import InputError, LocalizedWarning, MapWarning
from bigembed.jobs.extend import extend
from bigembed.jobs.run import run_job
from bigembed.rows.formats import open_reader
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array
from tests.job_files import job_in
from tests.some import a_few

N = 400
_RANDOM = np.random.default_rng(4)
_LATENT = _RANDOM.normal(size=N)
FRAME = pd.DataFrame(
    {
        "age": 40 + 10 * _LATENT + _RANDOM.normal(size=N),
        "job": np.array(["clerk", "nurse", "smith"])[np.digitize(_LATENT + _RANDOM.normal(size=N), [-0.5, 0.8])],
        "hours": 30 + 5 * _RANDOM.normal(size=N),
        "sex": np.array(["m", "f"])[(_RANDOM.random(N) < 0.3).astype(int)],
    }
)
CODED = np.column_stack(
    [np.unique(FRAME[name], return_inverse=True)[1] if name in ("job", "sex") else FRAME[name] for name in FRAME]
).astype(float)
CATEGORIES = [1, 3]
HOLES = np.where(_RANDOM.random(CODED.shape) < 0.1, np.nan, CODED)
HOLES[:, 2] = CODED[:, 2]


def famd_of(rows: np.ndarray, categories: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and coordinates by Pagès' definition, dense: masses 1/n, Z = (X − m)/s beside (G − p)/√p."""
    parts = []
    for j in range(rows.shape[1]):
        if j in categories:
            indicators = (rows[:, [j]] == np.unique(rows[:, j])).astype(float)
            shares = indicators.mean(axis=0)
            parts.append((indicators - shares) / np.sqrt(shares))
        else:
            parts.append(((rows[:, j] - rows[:, j].mean()) / rows[:, j].std())[:, None])
    u, s, _ = np.linalg.svd(np.hstack(parts), full_matrices=False)
    return s**2 / len(rows), u * s


def gower(x: np.ndarray, y: np.ndarray, ranges: np.ndarray, weights: np.ndarray) -> float:
    """Gower (1971), one pair."""
    total = count = 0.0
    for j, weight in enumerate(weights):
        if np.isnan(x[j]) or np.isnan(y[j]):
            continue
        total += weight * (float(x[j] != y[j]) if j in CATEGORIES else min(1.0, abs(x[j] - y[j]) / ranges[j]))
        count += weight
    return total / count if count else 1.0


def test_the_pca_of_scaled_rows_is_the_factor_analysis_of_mixed_data() -> None:
    """To rounding; without the roots of the shares it is another one."""
    fitted = be.Pipeline([be.MixedScaler(CATEGORIES), be.PCA(4)]).fit(CODED)
    values, coordinates = famd_of(CODED, CATEGORIES)
    found = fitted.method_.explained_variance_ * (N - 1) / N
    np.testing.assert_allclose(found, values[:4], rtol=1e-12)
    apart = np.abs(fitted.transform(CODED)) - np.abs(coordinates[:, :4])
    assert np.abs(apart).max() < 1e-10
    plain = be.Pipeline([be.OneHotEncoder(CATEGORIES), be.StandardScaler(), be.PCA(4)]).fit(CODED)
    assert np.abs(plain.method_.explained_variance_ / found - 1).max() > 0.01


def test_of_categories_alone_it_is_multiple_correspondence_analysis() -> None:
    """Against the singular values of the standardized residuals of the indicator matrix (Greenacre), squared."""
    rows = CODED[:, CATEGORIES]
    table = np.hstack([(rows[:, [j]] == np.unique(rows[:, j])) for j in range(2)]).astype(float)
    table /= table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    values = np.linalg.svd((table - expected) / np.sqrt(expected), compute_uv=False) ** 2
    fitted = be.Pipeline([be.MixedScaler([0, 1]), be.PCA(3)]).fit(rows)
    found = fitted.method_.explained_variance_ * (N - 1) / N
    np.testing.assert_allclose(found / 2, values[:3], rtol=1e-10)


def test_what_is_missing_or_unknown_says_nothing_or_is_refused() -> None:
    step = be.MixedScaler(CATEGORIES, unknown="mean", missing="mean").fit(HOLES)
    found = step.transform(np.array([[np.nan, np.nan, 30.0, 7.0]]))
    shares = [np.unique(HOLES[~np.isnan(HOLES[:, j]), j], return_counts=True)[1] for j in CATEGORIES]
    first, second = (np.sqrt(one / one.sum()) for one in shares)
    hours = (30.0 - HOLES[:, 2].mean()) / HOLES[:, 2].std()
    np.testing.assert_allclose(found[0], [0.0, *first, hours, *second], rtol=1e-12)
    numbers = HOLES[:, 0]
    np.testing.assert_allclose(step.transform(CODED)[:, 0], (CODED[:, 0] - np.nanmean(numbers)) / np.nanstd(numbers))
    strict = be.MixedScaler(CATEGORIES).fit(CODED)
    with pytest.raises(
        InputError, match=r"column 3 .*a category that the fitted rows did not have.*rows \[1\].*'mean'"
    ):
        strict.transform(np.array([[40.0, 1.0, 30.0, 1.0], [40.0, 1.0, 30.0, 7.0]]))
    with pytest.raises(InputError, match=r"column 0 .*miss a number \(NaN\), the first are rows \[0\]"):
        strict.transform(np.array([[np.nan, 1.0, 30.0, 1.0]]))
    with pytest.raises(InputError, match=r"column age: 1 of .*miss a number .*fit with missing='ignore'"):
        be.GowerEncoder(missing="error").fit_transform(FRAME.assign(age=[np.nan, *FRAME.age[1:]]))
    with pytest.raises(InputError, match="no value at all"):
        be.MixedScaler(missing="mean").fit(np.full((4, 1), np.nan))


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0]])
def test_distances_are_those_of_gower(weights: list[float] | None) -> None:
    """All pairs, with values missing; leaving the count of shared columns out gives others."""
    rows = HOLES[:60]
    encoded = be.GowerEncoder(CATEGORIES, weights=weights).fit(rows).transform(rows)
    found = be.build_neighbor_graph(encoded, None, metric="gower").to_scipy().toarray()
    ranges, w = np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0), np.array(weights or np.ones(4))
    expected = np.array([[gower(x, y, ranges, w) for y in rows] for x in rows])
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    manhattan = be.build_neighbor_graph(encoded[:, :4], None, metric="manhattan").to_scipy().toarray()
    assert np.abs(manhattan / 4 - expected).max() > 0.1


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
def test_a_planted_failure_is_said_of_both() -> None:
    """Categories that one row alone has make a coordinate of it; a map that is not made yet keeps nothing."""
    odd = FRAME.copy()
    odd.loc[7, ["job", "sex"]] = "astronaut", "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        be.Pipeline([be.MixedScaler(), be.PCA(2)]).fit(FRAME)
        be.Pipeline([be.GowerEncoder(), be.UMAP(metric="gower", n_epochs=100)]).fit(FRAME)
    with pytest.warns(LocalizedWarning, match="coordinate 1 is carried by few rows"):
        be.Pipeline([be.MixedScaler(), be.PCA(2)]).fit(odd)
    with pytest.warns(MapWarning, match="Trustworthiness is 0.[4-6]"):
        be.Pipeline([be.GowerEncoder(), be.UMAP(metric="gower", n_epochs=1, init="random")]).fit(FRAME)


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
def test_graphs_maps_and_certificates_have_the_distance() -> None:
    fitted = be.Pipeline([be.GowerEncoder(), be.DiffusionMap(n_components=8, metric="gower")]).fit(FRAME)
    encoded = be.GowerEncoder().fit_transform(FRAME)
    np.testing.assert_array_equal(encoded, be.GowerEncoder(CATEGORIES).fit_transform(CODED))
    assert fitted.method_.graph_.recall > 0.99
    near = fitted.transform(FRAME[:20])
    assert np.abs(near - fitted.transform(FRAME)[:20]).max() == 0.0
    kept = be.certify(encoded, fitted.transform(FRAME), n_neighbors=10, samples=100, metric="gower").figures
    assert kept["trustworthiness"]["value"] > 0.8
    with pytest.raises(InputError, match="two for each column"):
        be.build_neighbor_graph(CODED[:, :3], 5, metric="gower")
    with pytest.raises(InputError, match="weights has 2 numbers, and the rows have 4 columns"):
        be.GowerEncoder(CATEGORIES, weights=[1.0, 2.0]).fit(CODED)


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@a_few(1, ("step", "method"), [("mixed", 'name = "pca"\nn_components = 2'), ("gower", 'name = "umap"')])
def test_a_table_with_text_and_holes_in_a_job(step: str, method: str, tmp_path: Path) -> None:
    frame = FRAME.astype(object)
    frame.loc[5, "age"], frame.loc[6, "job"] = None, None
    frame.to_csv(tmp_path / "people.csv", index=False)
    more = 'missing = "mean"' if step == "mixed" else ""
    metric = 'metric = "gower"\nn_neighbors = 10\nn_epochs = 40' if step == "gower" else ""
    source = f'path = "people.csv"\n[[steps]]\nname = "{step}"\ncolumns = ["job", "sex"]\n{more}'
    run_job(job_in(tmp_path, f"{method}\n{metric}", source, 'model = "model"\ntable = "map.csv"'))
    extend(tmp_path / "model", tmp_path / "people.csv", tmp_path / "new.zarr", results=tmp_path / "new.csv")
    tables = []
    for name in ("map.csv", "new.csv"):
        with (tmp_path / name).open() as file:
            tables.append([[float(one) for one in line] for line in list(csv.reader(file))[1:]])
    assert len(tables[0]) == N
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-3)


UNKNOWN = {
    "one_hot": (be.OneHotEncoder, ["job", "sex"], "zeros"),
    "mixed": (be.MixedScaler, list(FRAME), "mean"),
    "gower": (be.GowerEncoder, list(FRAME), "other"),
}


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@a_few(2, ("step", "suffix"), [(step, suffix) for suffix in (".csv", ".parquet") for step in UNKNOWN], ids=str)
def test_columns_of_text_are_categories_in_jobs_and_other_texts_are_said(
    step: str, suffix: str, tmp_path: Path
) -> None:
    """As of a data frame; new rows with another text are refused by column and text, also as a data frame."""
    kind, names, instead = UNKNOWN[step]
    table = FRAME[names]
    strange = table.assign(job=[*table.job[:4], "pilot", *table.job[5:]])

    def written(frame: pd.DataFrame, name: str) -> Path:
        path = tmp_path / f"{name}{suffix}"
        _ = frame.to_csv(path, index=False) if suffix == ".csv" else frame.astype({"sex": "category"}).to_parquet(path)
        return path

    def run(more: str, path: str) -> np.ndarray:
        source = f'path = "{written(table, "rows").name}"\n[[steps]]\nname = "{step}"\n{more}'
        run_job(job_in(tmp_path, source=source, output=f'model = "{path}-model"', path=path))
        return np.asarray(read_array(tmp_path / path / "coordinates"))

    found = run("", "run.zarr")
    expected = be.Pipeline([kind(), be.PCA(2)]).fit(table)
    np.testing.assert_allclose(found, expected.embedding_, atol=1e-6)
    if step != "one_hot":
        np.testing.assert_array_equal(found, run('columns = ["sex", "job"]', "named.zarr"))
        other = be.Pipeline([kind([3]), be.PCA(2)]).fit(CODED)  # (with jobs as numbers)
        assert np.abs(np.abs(other.embedding_) - np.abs(found)).max() > 0.1
    said = rf"column job: 1 of the rows 0:400 .* rows \[4\], with 'pilot'.*fitted with unknown='error'.*'{instead}'"
    with pytest.raises(InputError, match=said):
        extend(tmp_path / "run.zarr-model", written(strange, "strange"), tmp_path / "new.zarr")
    for model in (expected, be.load(tmp_path / "run.zarr-model")):
        with pytest.raises(InputError, match=said):
            model.transform(strange)
    run(f'unknown = "{instead}"', "lenient.zarr")
    extend(tmp_path / "lenient.zarr-model", tmp_path / f"strange{suffix}", tmp_path / "new.zarr")
    placed = read_array(tmp_path / "new.zarr")
    np.testing.assert_allclose(np.delete(placed, 4, axis=0), np.delete(found, 4, axis=0), atol=1e-6)
    assert np.abs(placed[4] - found[4]).max() > 0.01


@pytest.mark.parametrize("step", UNKNOWN)
def test_numbers_that_are_no_category_are_said_with_their_column(step: str) -> None:
    kind, _, instead = UNKNOWN[step]
    table = pd.DataFrame(CODED, columns=list(FRAME))
    said = rf"the first are rows \[5\], with 7\. The model was fitted with unknown='error'.*'{instead}'"
    for rows, column in ((table, "column sex"), (CODED, r"column 3 \(counted from 0\)")):
        changed = np.where(np.arange(N)[:, None] * 4 + np.arange(4) == 5 * 4 + 3, 7.0, CODED)
        strange = pd.DataFrame(changed, columns=list(FRAME)) if rows is table else changed
        with pytest.raises(InputError, match=f"{column}: 1 of the rows 0:400 .*{said}"):
            kind(CATEGORIES).fit(rows).transform(strange)


def test_a_table_of_decimal_commas_has_its_columns_of_text(tmp_path: Path) -> None:
    """Missing numbers make no text of a column, and one word does, wherever it stands."""
    lines = ["age;kind;code", *(f"{row},5;{'oak' if row % 2 else 'ash'};{row % 3}" for row in range(300)), "NA;oak;x"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    found = open_reader(tmp_path / "rows.csv", Choice(text=True, missing=True))
    assert found.categories == {"kind": ("ash", "oak"), "code": ("0", "1", "2", "x")}
    assert open_reader(tmp_path / "rows.csv", Choice(text=True, columns=("age",))).categories == {}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_text_pass_the_steps_of_some_columns(suffix: str, tmp_path: Path) -> None:
    """Before and after them, in a job as in Python."""
    path = tmp_path / f"rows{suffix}"
    _ = FRAME.to_csv(path, index=False) if suffix == ".csv" else FRAME.to_parquet(path)
    before = 'name = "log1p"\ncolumns = ["hours"]\n[[steps]]\nname = "mixed"'
    after = 'name = "one_hot"\ncolumns = ["job", "sex"]\n[[steps]]\nname = "standardize"\ncolumns = ["age", "hours"]'
    made = {
        before: [be.Log1p(columns=["hours"]), be.MixedScaler()],
        after: [be.OneHotEncoder(["job", "sex"]), be.StandardScaler(columns=["age", "hours"])],
    }
    found = []
    for number, (steps, same) in enumerate(made.items()):
        run_job(job_in(tmp_path, source=f'path = "{path.name}"\n[[steps]]\n{steps}', path=f"run{number}.zarr"))
        found.append(read_array(tmp_path / f"run{number}.zarr" / "coordinates"))
        expected = be.Pipeline([*same, be.PCA(2)]).fit(FRAME).embedding_
        np.testing.assert_allclose(found[-1], expected, atol=1e-6)
    assert np.abs(np.abs(found[0]) - np.abs(found[1])).max() > 0.1
