"""Columns of categories: numbers as scikit-learn encodes them, text of tables by name, and for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

import bigembed as be
from bigembed.errors import InputError
from bigembed.jobs.extend import extend
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.store.arrays import read_array

_RANDOM = np.random.default_rng(7)
TABLE = pd.DataFrame(
    {
        "id": [f"r{number}" for number in range(300)],
        "height": _RANDOM.normal(size=300),
        "kind": _RANDOM.choice(["oak", "ash", "elm, wych"], 300),
        "town": _RANDOM.choice([10, 20], 300),
        "width": _RANDOM.normal(size=300),
    }
)
STEPS = [{"name": "one_hot", "columns": ["kind", "town"]}, {"name": "missing"}, {"name": "standardize"}]


def expected(table: pd.DataFrame) -> np.ndarray:
    """The columns in their order, by scikit-learn."""
    encoder = OneHotEncoder(sparse_output=False)
    parts = make_column_transformer(
        ("passthrough", ["height"]), (encoder, ["kind", "town"]), ("passthrough", ["width"]), remainder="drop"
    )
    return np.asarray(parts.fit_transform(table), float)


def test_numbers_as_scikit_learn_has_them() -> None:
    rows = np.column_stack([_RANDOM.integers(0, 5, 400), _RANDOM.normal(size=400), 3.5 * (np.arange(400) % 3)])
    found = be.OneHotEncoder([0, 2]).fit(rows)
    theirs = OneHotEncoder(sparse_output=False).fit_transform(rows[:, [0, 2]])
    np.testing.assert_array_equal(found.embedding_[:, [0, 1, 2, 3, 4, 6, 7, 8]], theirs)
    np.testing.assert_array_equal(found.embedding_[:, 5], rows[:, 1])
    assert found.get_feature_names_out().tolist()[4:7] == ["x0_4", "x1", "x2_0"]
    rows[7, 2] = -1
    with pytest.raises(InputError, match=r"column 2 .* did not have, the first are rows \[7\]"):
        found.transform(rows)
    assert be.OneHotEncoder([0, 2], unknown="zeros").fit(rows[8:]).transform(rows)[7, 6:].tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="more than most=3 categories"):
        be.OneHotEncoder([0], most=3).fit(rows)
    with pytest.raises(InputError, match="infinity"):
        be.OneHotEncoder([0]).fit(np.array([[1.0], [np.inf]]))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_text_of_a_table_by_name_and_for_new_rows(suffix: str, tmp_path: Path) -> None:
    def written(table: pd.DataFrame, name: str) -> Path:
        path = tmp_path / f"{name}{suffix}"
        _ = table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
        return path

    def job(**output: str) -> Any:
        tables = {"input": {"path": str(written(TABLE, "rows")), "ids": "id"}, "steps": STEPS, "output": output}
        return parse_job(tables | {"method": {"name": "pca", "n_components": 2}}, tmp_path / "job.toml")

    asked = job(path="run.zarr", model="model")
    assert dict(make_plan(asked).stages)["step1-one_hot-categories"].passes == 1
    run_job(asked)
    found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    plain = be.Pipeline([be.StandardScaler(), be.PCA(2)]).fit(expected(TABLE))
    np.testing.assert_allclose(found, plain.embedding_, atol=1e-9)
    model = be.load(tmp_path / "model")
    assert model.steps_[0].categories_ == [["ash", "elm, wych", "oak"], ["10", "20"]]
    assert model.steps_[1].feature_names_in_.tolist()[1:5] == ["kind_ash", "kind_elm, wych", "kind_oak", "town_10"]
    few = TABLE[TABLE.kind != "ash"].iloc[:20]  # (the texts of the model count, not those of the new table)
    extend(tmp_path / "model", written(few, "few"), tmp_path / "few.zarr", aligned={"ids": "id"})
    np.testing.assert_array_equal(read_array(tmp_path / "few.zarr"), found[few.index])
    holes = few.assign(kind=[None, *few.kind[1:]])
    extend(tmp_path / "model", written(holes, "holes"), tmp_path / "holes.zarr", aligned={"ids": "id"})
    assert np.isnan(read_array(tmp_path / "holes.zarr")).any(axis=1).tolist() == [True] + 19 * [False]
    other = few.assign(kind=[*few.kind[:4], "yew", *few.kind[5:]])
    with pytest.raises(InputError, match=r"did not have, the first are rows \[4\]"):
        extend(tmp_path / "model", written(other, "other"), tmp_path / "other.zarr", aligned={"ids": "id"})


def test_numbers_that_a_step_before_has_changed_are_no_categories(tmp_path: Path) -> None:
    TABLE.to_parquet(tmp_path / "rows.parquet")
    steps = [{"name": "standardize"}, STEPS[0]]
    tables = {"input": {"path": "rows.parquet", "ids": "id"}, "steps": steps, "output": {"path": "run.zarr"}}
    with pytest.raises(InputError, match="column kind does not hold its categories any more"):
        run_job(parse_job(tables | {"method": {"name": "pca"}}, tmp_path / "job.toml"))


def test_columns_of_a_table_that_is_not_copied_yet_are_chosen_by_name(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    source = {"path": "rows.csv", "columns": ["height", "town", "width"]}
    steps = [{"name": "columns", "columns": ["width", "height"]}]
    tables = {"input": source, "steps": steps, "method": {"name": "pca"}, "output": {"path": "run.zarr"}}
    run_job(parse_job(tables, tmp_path / "job.toml"))
    found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    np.testing.assert_array_equal(found, be.PCA().fit_transform(TABLE[["width", "height"]].to_numpy()))


def test_text_of_a_data_frame_in_memory_as_jobs_have_it(tmp_path: Path) -> None:
    table = TABLE.drop(columns="id").assign(town=TABLE.town.astype(str), kind=TABLE.kind.astype("category"))
    made = be.Pipeline([be.OneHotEncoder(["kind", "town"]), be.Missing(), be.PCA(n_components=3)])
    theirs = expected(TABLE)
    found = made.fit(table)
    np.testing.assert_allclose(found.embedding_, be.PCA(n_components=3).fit_transform(theirs), atol=1e-9)
    np.testing.assert_array_equal(be.OneHotEncoder(["town", "kind"]).fit(table).transform(table), theirs)
    assert found.steps_[0].categories_ == [["ash", "elm, wych", "oak"], ["10", "20"]]
    found.save(tmp_path / "model")
    holes = table.copy()
    holes.loc[3, "kind"] = None
    new = be.load(tmp_path / "model").transform(holes.astype({"kind": object}))
    np.testing.assert_array_equal(np.isnan(new).any(axis=1), np.arange(300) == 3)
    np.testing.assert_array_equal(new[4:], np.asarray(found.embedding_)[4:])
    with pytest.raises(InputError, match=r"did not have, the first are rows \[5\]"):
        found.transform(holes.assign(kind=np.where(np.arange(300) == 5, "yew", "oak")))
    with pytest.raises(InputError, match="columns kind hold text"):
        be.Pipeline([be.OneHotEncoder(["town"]), be.PCA(n_components=2)]).fit(table)
