"""Columns to colour a map by, whose rows stand in another order than those of the map: joined by their names."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed import errors
from bigembed import viewer as scene
from bigembed.cli import app
from bigembed.jobs.report import RunSummary
from bigembed.jobs.report.page import write_report
from bigembed.jobs.report.run_map import coloring_of
from bigembed.jobs.run import run_job
from bigembed.runtime.blocks import Array
from tests.job_files import job_in
from tests.view_folder import Folder, contents, read_back

N = 60
NAMES = [f"document {number}" for number in range(N)]
ORDER = np.random.default_rng(1).permutation(N)
ROWS = np.random.default_rng(0).normal(size=(N, 4))


def held(number: int) -> float:
    """The value of a row, as float32 has it."""
    return float(np.float32(ROWS[number, 0]))


def topic(number: int) -> str:
    return f"topic {number % 5}"


def frame(order: Any = ORDER) -> Any:
    """The rows of a table with names, in some order."""
    columns = {"value": ROWS[order, 0], "count": order % 5, "topic": [topic(number) for number in order]}
    return pandas.DataFrame({"doc": [NAMES[number] for number in order], **columns})


def shown(page: Path) -> dict[str, Any]:
    """The entries of the columns of a page by the number of the row; None where one is missing."""
    folder = Folder(page)
    found = read_back(folder)
    classes = {column["name"]: column["classes"] for column in folder.columns if column["kind"] == "class"}
    out = {}
    for name in {"value", "count", "topic"} & found.keys():
        values = dict(zip(found["rows"], found[name], strict=True))
        out[name] = {row: _named(value, classes.get(name)) for row, value in values.items()}
    return out | {"ids": dict(zip(found["rows"], found["ids"], strict=True)) if "ids" in found else {}}


def _named(value: Any, classes: Any) -> Any:
    if classes is not None:
        return None if value == 65535 else classes[value]
    return None if np.isnan(value) else value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose ids are a column of its table."""
    folder = tmp_path_factory.mktemp("run")
    table = pandas.DataFrame(ROWS, columns=list("abcd"))
    table.insert(0, "doc", NAMES)
    table.to_csv(folder / "rows.csv", index=False)
    run_job(job_in(folder, source='path = "rows.csv"\nids = "doc"'))
    return folder / "run.zarr"


def write(kind: str, table: Any, folder: Path) -> str:
    path = folder / f"table.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("block", [None, 16])
def test_a_table_is_joined_by_the_column_of_the_ids(
    kind: str, block: int | None, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block is not None:
        monkeypatch.setattr("bigembed.viewer.columns.BLOCK", block)
        monkeypatch.setattr(scene, "BLOCK", block)
    path = write(kind, frame(), tmp_path)
    be.view(run, tmp_path / "page", columns=f"{path}:value,count,topic")
    found = shown(tmp_path / "page")
    assert found["value"] == {number: held(number) for number in range(N)}
    assert found["count"] == {number: str(number % 5) for number in range(N)}
    assert found["topic"] == {number: topic(number) for number in range(N)}
    assert found["ids"] == dict(enumerate(NAMES))


def test_without_names_columns_are_taken_by_position(run: Path, tmp_path: Path) -> None:
    """The control: a join that is none, of which a warning says so."""
    with pytest.warns(errors.FeatureNamesWarning, match="has no column 'doc'.*row i is taken for row i"):
        be.view(run, tmp_path / "page", columns=write("csv", frame().drop(columns="doc"), tmp_path) + ":value")
    assert shown(tmp_path / "page")["value"] == {row: held(number) for row, number in enumerate(ORDER)}


def test_rows_that_a_table_lacks_are_missing_and_others_are_left_out(run: Path, tmp_path: Path) -> None:
    order = np.array([*ORDER[:40], *range(N, N + 70)])
    table = pandas.concat([frame(ORDER[:40]), pandas.DataFrame({"doc": [f"other {i}" for i in range(70)], "value": 1.0,
                           "count": 9, "topic": "other"})])  # fmt: skip
    assert len(order) == len(table)
    with pytest.warns(errors.FeatureNamesWarning, match="20 of the 60 rows of the map are not there"):
        be.view(run, tmp_path / "page", columns=f"{write('parquet', table, tmp_path)}:value,count,topic")
    found, there = shown(tmp_path / "page"), set(ORDER[:40].tolist())
    for name, of in (("value", held), ("count", lambda number: str(number % 5)), ("topic", topic)):
        assert found[name] == {number: of(number) if number in there else None for number in range(N)}


def test_ids_beside_columns_say_their_order(run: Path, tmp_path: Path) -> None:
    columns: dict[str, Array] = {"value": ROWS[ORDER, 0]}
    np.save(tmp_path / "count.npy", ORDER % 5)
    names = np.array(NAMES)[ORDER]
    be.view(run, tmp_path / "page", columns=columns | {"count": tmp_path / "count.npy"}, ids=names)
    found = shown(tmp_path / "page")
    assert found["value"] == {number: held(number) for number in range(N)}
    assert found["count"] == {number: str(number % 5) for number in range(N)}
    assert found["ids"] == dict(enumerate(NAMES))
    with pytest.raises(errors.InputError, match=r"value: shape \(59,\); there are 60 names of its rows"):
        be.view(run, tmp_path / "other", columns={"value": ROWS[1:, 0]}, ids=names)


def test_names_of_which_few_are_others_are_joined_and_these_are_missing(run: Path, tmp_path: Path) -> None:
    names = np.array(NAMES)[ORDER].astype(object)
    names[3] = "another"
    with pytest.warns(errors.FeatureNamesWarning, match="1 of the 60 rows of the map are not there"):
        be.view(run, tmp_path / "page", columns={"value": ROWS[ORDER, 0]}, ids=names)
    found = shown(tmp_path / "page")["value"]
    assert found == {number: held(number) if number != ORDER[3] else None for number in range(N)}


def test_ids_of_another_kind_name_the_rows(run: Path, tmp_path: Path) -> None:
    """Also where some of them are ids of the run."""
    for number, ids in enumerate((NAMES, ["document 7", *(f"name {n}" for n in range(N - 1))])):
        said = pytest.warns(errors.FeatureNamesWarning, match="not among the names given: row i of the columns")
        with said if number else nullcontext():
            be.view(run, tmp_path / f"page{number}", columns={"value": ROWS[:, 0]}, ids=ids)
        found = shown(tmp_path / f"page{number}")
        assert found["value"] == {row: held(row) for row in range(N)}
        assert found["ids"] == dict(enumerate(ids))
        be.view(run, tmp_path / f"names{number}", ids=ids)  # (no columns that could be another row's: no warning)


def test_a_data_frame_is_joined_by_its_column_or_its_index(run: Path, tmp_path: Path) -> None:
    for number, given in enumerate((frame(), frame().set_index("doc"), {"value": frame().set_index("doc")["value"]})):
        be.view(run, tmp_path / f"page{number}", columns=given)
        assert shown(tmp_path / f"page{number}")["value"] == {row: held(row) for row in range(N)}


def test_a_report_is_coloured_by_a_column_that_is_joined(run: Path, tmp_path: Path) -> None:
    path = write("csv", frame(ORDER[:50]), tmp_path)
    summary = RunSummary.read(run)
    for name, of in (("value", lambda number: ROWS[number, 0]), ("topic", topic)):
        with pytest.warns(errors.FeatureNamesWarning, match="10 of the 60 rows of the map are not there"):
            found = coloring_of(summary, f"{path}:{name}", N, tmp_path)
        values = np.concatenate(list(found.values()))
        assert found.name == name
        assert [values[number] for number in ORDER[:50]] == [of(number) for number in ORDER[:50]]
        assert [str(values[number]) for number in ORDER[50:]] == [{"value": "nan", "topic": ""}[name]] * 10
    with pytest.warns(errors.FeatureNamesWarning, match="10 of the 60"):
        write_report(run, tmp_path / "page.html", color=f"{path}:topic")
    assert "topic 3" in (tmp_path / "page.html").read_text()
    with (
        pytest.warns(errors.FeatureNamesWarning, match="10 of the 60"),
        pytest.raises(errors.InputError, match=r"table\.csv holds 4 columns; choose one"),
    ):
        write_report(run, tmp_path / "page.html", color=path)


def test_a_report_is_coloured_by_names_that_are_called_otherwise(run: Path, tmp_path: Path) -> None:
    path, summary = write("csv", frame().rename(columns={"doc": "file"}), tmp_path), RunSummary.read(run)
    found = coloring_of(summary, f"{path}:value", N, tmp_path, ids=f"{path}:file")
    np.testing.assert_array_equal(np.concatenate(list(found.values())), ROWS[:, 0])
    with pytest.warns(errors.FeatureNamesWarning, match=r"which column has these names: --ids .*table.csv:NAME"):
        control = coloring_of(summary, f"{path}:value", N, tmp_path)
    assert not np.array_equal(np.concatenate(list(control.values())), ROWS[:, 0])
    asked = ["--color", f"{path}:topic", "--ids", f"{path}:file"]
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "page.html"), *asked])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_of_numbers_are_shown_as_they_stand(kind: str, tmp_path: Path) -> None:
    """Of 64 bits too: float64 would make one of two."""
    numbers = 2**60 + np.arange(N)
    path = write(kind, pandas.DataFrame({"source": numbers, "value": ROWS[:, 0]}), tmp_path)
    for out in ("page", "again"):
        be.view(ROWS[:, :2], tmp_path / out, columns=f"{path}:value", ids=f"{path}:source")
    assert shown(tmp_path / "page")["ids"] == dict(enumerate(map(str, numbers.tolist())))
    assert contents(tmp_path / "page") == contents(tmp_path / "again")
    written = be.view(ROWS[:, :2], tmp_path / "page", columns=f"{path}:value", ids=f"{path}:source").page.stat()
    assert be.view(ROWS[:, :2], tmp_path / "page", columns=f"{path}:value", ids=f"{path}:source").page.stat() == written
    be.view(ROWS[:, :2], tmp_path / "floats", ids=np.arange(N) / 2)
    assert shown(tmp_path / "floats")["ids"] == {row: f"{row / 2:g}" for row in range(N)}
    with pytest.raises(errors.InputError, match=r"ids: .*: choose one column: .*:NAME; there are source"):
        be.view(ROWS[:, :2], tmp_path / "page", ids=path)


def test_names_that_join_nothing_are_refused(run: Path, tmp_path: Path) -> None:
    table = frame()
    strange = table.assign(doc=[f"text {number}" for number in range(N)])
    with pytest.raises(errors.InputError, match=r"the column doc: none of its names is that of a row of the map, such"):
        be.view(run, tmp_path / "page", columns=write("csv", strange, tmp_path) + ":value")
    twice = pandas.concat([table, table[:3]])
    with pytest.raises(errors.InputError, match=r"ids: 3 of them name several rows: 'document "):
        be.view(run, tmp_path / "page", columns=write("csv", twice, tmp_path) + ":value")


class TestFittedFrames:
    """An estimator remembers the index of the data frame that it was fitted to."""

    def fitted(self, order: Any) -> Any:
        return be.PCA(n_components=2).fit(pandas.DataFrame(ROWS[order], columns=list("abcd"), index=order))

    def test_columns_are_joined_by_the_index(self, tmp_path: Path) -> None:
        table = frame(np.arange(N))
        for number, order in enumerate((ORDER, ORDER[:50], np.arange(N)[::-1])):
            for other, columns in enumerate((table, table.loc[ORDER], table["value"].to_frame())):
                out = tmp_path / f"page{number}-{other}"
                self.fitted(order).view(out, columns=columns)
                found = shown(out)
                assert found["value"] == {row: held(name) for row, name in enumerate(order)}
                assert found["ids"] == {row: str(name) for row, name in enumerate(order)}

    def test_rows_without_an_index_are_taken_by_position(self, tmp_path: Path) -> None:
        fitted = be.PCA(n_components=2).fit(ROWS)
        fitted.view(tmp_path / "page", columns=frame(np.arange(N)).loc[ORDER])
        assert shown(tmp_path / "page")["value"] == {row: held(name) for row, name in enumerate(ORDER)}

    def test_given_ids_name_the_rows_and_the_index_still_joins(self, tmp_path: Path) -> None:
        """Numbers among the ids are names, and no order of rows."""
        table = frame(np.arange(N))
        fitted = be.PCA(n_components=2).fit(pandas.DataFrame(ROWS))
        fitted.view(tmp_path / "page", columns=table.loc[ORDER], ids=ORDER)
        found = shown(tmp_path / "page")
        assert found["value"] == {row: held(row) for row in range(N)}
        assert found["ids"] == {row: str(name) for row, name in enumerate(ORDER)}
