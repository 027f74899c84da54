"""Tables as others write them: files that differ, other kinds of columns, separators and words of CSV, ids."""

from __future__ import annotations

import csv
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed.errors import InputError
from bigembed.rows import RowSource
from bigembed.rows.formats import delimited, ingest, open_reader
from bigembed.rows.formats.delimited import DelimitedReader
from bigembed.rows.formats.tables import Table, write_table
from bigembed.rows.input import row_source
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array

USED = Choice(columns=("amount", "qty"))
FIRST: dict[str, Any] = {"amount": [1.5, 2.5], "qty": [1, 2], "note": ["a", "b"]}


def folder_of(folder: Path, *tables: dict[str, Any], **options: Any) -> Path:
    """A folder with a Parquet file for each table."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"part-{number}.parquet", **options)
    return folder


def read(path: Path, choice: Choice | None = None, step: int = 1 << 20) -> np.ndarray:
    found = open_reader(path, choice)
    n = found.shape[0]
    pieces = [piece for start in range(0, n, step) for piece in found.stream(start, min(n, start + step))]
    return np.concatenate(pieces)


class TestFolders:
    """Files of a folder of Parquet that are not of one schema."""

    @pytest.mark.parametrize(
        "second",
        [
            {"qty": [3, 4], "note": ["c", "d"], "amount": [7.0, 8.0]},
            {**FIRST, "more": [1, 2]},
            {"amount": [7.0, 8.0], "qty": [3, 4]},
            {**FIRST, "note": [1, 2]},
        ],
        ids=["order", "extra", "absent", "other type"],
    )
    @pytest.mark.parametrize("turned", [False, True])
    def test_columns_are_taken_by_name_and_others_may_differ(
        self, second: dict[str, Any], turned: bool, tmp_path: Path
    ) -> None:
        tables = [second, FIRST] if turned else [FIRST, second]
        path = folder_of(tmp_path / "parts", *tables)
        wanted = np.concatenate([np.column_stack([one["amount"], one["qty"]]) for one in tables])
        np.testing.assert_array_equal(read(path, USED), wanted)
        assert not np.array_equal(wanted[:, ::-1], wanted)  # (as columns by their places would be)
        model = Choice(expected=USED.columns)
        np.testing.assert_array_equal(read(path, model), wanted)

    @pytest.mark.parametrize(
        ("kinds", "dtype"),
        [
            (["int64", "float64"], "f8"),
            (["float32", "int16"], "f4"),
            (["int32", "int64"], "i8"),
            (["int16", "uint16", "float32"], "f4"),
            (["bool", "uint8"], "u1"),
            (["null", "float32"], "f4"),
        ],
    )
    @pytest.mark.parametrize("order", [1, -1])
    def test_numbers_are_read_in_the_common_dtype(
        self, kinds: list[str], dtype: str, order: int, tmp_path: Path
    ) -> None:
        pa = pytest.importorskip("pyarrow")
        values = {"null": [None] * 5, "bool": [True, False, True, False, True]}
        tables = [{"x": pa.array(values.get(kind, [3, 1, 4, 1, 5]), kind)} for kind in kinds[::order]]
        path = folder_of(tmp_path / "parts", *tables, row_group_size=2)
        missing = "null" in kinds
        found = read(path, Choice(columns=("x",), missing=missing))
        assert found.dtype == np.dtype(dtype) == open_reader(path, Choice(columns=("x",), missing=missing)).dtype
        wanted = [np.nan if one is None else one for table in tables for one in table["x"].to_pylist()]
        np.testing.assert_array_equal(found[:, 0], np.array(wanted, dtype))
        for step in (1, 3):
            assert read(path, Choice(columns=("x",), missing=missing), step).tobytes() == found.tobytes()

    def test_halves_of_a_later_file_are_kept(self, tmp_path: Path) -> None:
        path = folder_of(tmp_path / "parts", FIRST, {"amount": [1.0], "qty": [1.25], "note": ["c"]})
        ingest(path, tmp_path / "rows.zarr", USED, {"ids": "note"})
        assert read_array(tmp_path / "rows.zarr")[:, 1].tolist() == [1.0, 2.0, 1.25]  # (as integers 1, 2, 1)
        assert read_array(tmp_path / "rows-ids.zarr").tolist() == ["a", "b", "c"]

    def test_whole_numbers_that_another_file_makes_floats_are_not_rounded(self, tmp_path: Path) -> None:
        path = folder_of(tmp_path / "parts", {"x": [0.5]}, {"x": [2**53 + 1]})
        with pytest.raises(InputError, match=r"column x: integers beyond 2\^53"):
            read(path)

    def test_what_is_wrong_names_the_file_and_the_column_alone(self, tmp_path: Path) -> None:
        lacking = folder_of(tmp_path / "lacking", FIRST, {"amount": [1.0], "other": [2]})
        other = folder_of(tmp_path / "other", FIRST, {**FIRST, "qty": ["x", "y"]})
        for path, said in (
            (lacking, "lacking/part-1.parquet: no column qty"),
            (other, f"other/part-1.parquet: column qty is string, and int64 in {other}/part-0.parquet"),
        ):
            for choice in (USED, Choice(expected=USED.columns)):
                with pytest.raises(InputError) as error:
                    open_reader(path, choice)
                assert str(error.value) == f"{tmp_path}/{said}"
            with pytest.raises(InputError) as error:
                ingest(path, tmp_path / "rows.zarr", Choice(columns=("amount",)), {"ids": "qty"})
            assert str(error.value) == f"{tmp_path}/{said}"
            assert read(path, Choice(columns=("amount",))).shape[1] == 1

    def test_without_columns_all_files_need_the_same_names(self, tmp_path: Path) -> None:
        one, turned = {"a": [1], "b": [2.5], "c": [3]}, {"c": [6], "b": [5], "a": [4]}
        np.testing.assert_array_equal(read(folder_of(tmp_path / "same", one, turned)), [[1, 2.5, 3], [4, 5, 6]])
        other = folder_of(tmp_path / "other", one, turned, {"a": [1], "x": [2], "c": [3]})
        with pytest.raises(InputError) as error:
            open_reader(other)
        assert str(error.value) == (
            f"{other}/part-2.parquet: other columns than in {other}/part-0.parquet (missing: b; extra: x). Choose "
            "columns that all files have (columns)"
        )
        with pytest.raises(InputError, match=r"part-1\.parquet: .* \(extra: x\)\."):
            open_reader(folder_of(tmp_path / "extra", one, {**one, "x": [0]}))


class TestKinds:
    """Columns that are numbers of another kind, or none."""

    VALUES = ("0.10", "12345678901234.57", "-7.25", "99999999999999999.99")

    @pytest.mark.parametrize("width", [128, 256])
    def test_decimals_are_read_as_the_nearest_floats(self, width: int, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        kind = getattr(pa, f"decimal{width}")(20, 2)
        table = {"x": pa.array([Decimal(one) for one in self.VALUES], kind), "n": [1, 2, 3, 4]}
        path = folder_of(tmp_path / "parts", table, {"x": [0.1], "n": [5]}, row_group_size=3)
        found = read(path)
        assert found[:, 0].tolist() == [*map(float, self.VALUES), 0.1]
        assert found[0, 0] != np.float32(0.1)
        assert read(path, step=1).tobytes() == found.tobytes()
        table["x"] = pa.array([None, *map(Decimal, self.VALUES[1:])], kind)
        holed = folder_of(tmp_path / "holed", table)
        assert np.isnan(read(holed, Choice(missing=True))[:, 0]).tolist() == [True, False, False, False]
        with pytest.raises(InputError, match=r"missing in the columns x \(1\)"):
            read(holed)

    def test_whole_decimals_that_float64_would_round_are_refused(self, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        for number, whole in enumerate((2**53, 2**53 + 1)):
            path = folder_of(tmp_path / str(number), {"x": pa.array([Decimal(whole)], pa.decimal128(20, 0))})
            if whole == 2**53:
                assert read(path).tolist() == [[2.0**53]]
                continue
            with pytest.raises(InputError, match=r"the integer 9007199254740993, beyond 2\^53"):
                read(path)

    def test_decimals_beside_the_rows_are_text_as_ids_and_numbers_as_weights(self, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        ids, weights = [Decimal(7), Decimal(10**19)], [Decimal("0.5"), Decimal("2.25")]
        table = {"x": [1.0, 2.0], "id": pa.array(ids, pa.decimal128(20, 0)), "w": weights}
        path = folder_of(tmp_path / "parts", table)
        ingest(path, tmp_path / "rows.zarr", Choice(columns=("x",)), {"ids": "id", "weights": "w"})
        assert read_array(tmp_path / "rows-ids.zarr").tolist() == ["7", "10000000000000000000"]
        assert read_array(tmp_path / "rows-weights.zarr").tolist() == [0.5, 2.25]

    def test_decimals_of_a_data_frame_are_the_same_floats(self) -> None:
        pandas, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
        frame = pytest.importorskip("dask.dataframe")
        kind = pandas.ArrowDtype(pa.decimal128(20, 2))
        column = pandas.array([Decimal(one) for one in self.VALUES], dtype=kind)
        rows = pandas.DataFrame({"x": column, "n": [1.0, 2.0, 3.0, 4.0]})
        for given in (rows, rows.astype({"x": object}), frame.from_pandas(rows, npartitions=2)):
            source, _ = row_source(given, Path())
            assert source.read(0, 4)[:, 0].tolist() == [*map(float, self.VALUES)]
        rows.loc[1, "x"] = None
        source, _ = row_source(frame.from_pandas(rows, npartitions=2), Path())
        assert np.isnan(source.read(0, 4)[:, 0]).tolist() == [False, True, False, False]
        with pytest.raises(InputError, match=r"the integer 9007199254740993, beyond 2\^53"):
            row_source(pandas.DataFrame({"x": [Decimal(2**53 + 1)]}), Path())

    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            (date(2020, 1, 1), "date32[day]"),
            (datetime(2020, 1, 1), "timestamp[us]"),
            (timedelta(1), "duration[us]"),
            (time(1), "time64[us]"),
        ],
    )
    def test_dates_and_times_say_their_column_and_what_to_do(self, value: Any, kind: str, tmp_path: Path) -> None:
        path = folder_of(tmp_path / "parts", {"when": [value], "x": [1.0]})
        with pytest.raises(InputError) as error:
            open_reader(path)
        assert f"columns that are not numbers: when ({kind}). Choose" in str(error.value)
        assert "become numbers where the table is written" in str(error.value)
        with pytest.raises(InputError) as error:
            open_reader(folder_of(tmp_path / "text", {"when": ["a"]}))
        assert "Dates" not in str(error.value)


def csv_of(path: Path, text: str) -> Path:
    pytest.importorskip("pyarrow")
    path.write_text(text, encoding="utf-8", newline="")
    return path


class TestPatterns:
    """Columns by patterns: those that are meant, of Parquet and CSV, and what means none."""

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_columns_are_left_out_or_chosen(self, tmp_path, suffix):
        table = {"id": ["x", "y"], "b0": [0, 1], "b1": [1, 1], "smiles": ["C", "O"], "activity": [5.0, 6.0]}
        path = tmp_path / "rows.csv"
        if suffix == ".csv":
            path.write_text("id,b0,b1,smiles,activity\nx,0,1,C,5\ny,1,1,O,6\n")
        else:
            path = folder_of(tmp_path / "rows", table)
        for columns in (["b*"], ["!smiles", "!activity"], ["![sa]*"], ["b?"]):
            choice = Choice(columns=tuple(columns), aligned=("id",))
            reader = open_reader(path, choice)
            assert reader.features == ("b0", "b1"), columns
            assert np.concatenate([*reader.stream(0, 2)]).tolist() == [[0, 1], [1, 1]]
        assert open_reader(path, Choice(columns=("activity", "b*"))).features == ("activity", "b0", "b1")
        for columns in (["c*"], ["!activty"], ["b*", "c"]):
            with pytest.raises(InputError, match=r"no columns? (is called|c)"):
                open_reader(path, Choice(columns=tuple(columns)))


class TestSeparators:
    """What separates the fields of a CSV."""

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.csv.zip"])
    @pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
    def test_each_is_found_in_tables_as_pandas_writes_them(self, mark: str, name: str, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        rows = pandas.DataFrame({"id": ["a,\t;|", 'b"', "c\nd"], "a": [1.5, 2, -3], 'b|\t";,': [4, 5, 6]})
        rows.to_csv(tmp_path / name, sep=mark, index=False)
        found = open_reader(tmp_path / name, Choice(columns=("a", 'b|\t";,')))
        np.testing.assert_array_equal(np.concatenate(list(found.stream(0, 3))), [[1.5, 4], [2, 5], [-3, 6]])
        ids: Any = found
        assert np.concatenate(list(ids.vector("id").stream(0, 3))).tolist() == rows["id"].tolist()

    @pytest.mark.parametrize(
        ("text", "columns"),
        [
            ('"a\tb"\n1\n', ("a\tb",)),
            ('"a\tb",c\n1,2\n', ("a\tb", "c")),
            ("a\tb,c|d\n1,2\n", ("a\tb", "c|d")),
            ("a|b,c\n1,2\n", ("a|b", "c")),
            ("a|b,c\n", ("a|b", "c")),
            ("temp, C\tdepth\n1\t2\n", ("temp, C", "depth")),
            ("a;x\tb;y\tc\n1\t2\t3\n", ("a;x", "b;y", "c")),
            ('"a\n,x"|b\n1|2\n', ("a\n,x", "b")),
            ('5" pipe\tb\n1\t2\n', ('5" pipe', "b")),
            ("a\tb\n\n1\t2\n", ("a", "b")),
            (",".join(f"column {number}|" for number in range(20_000)) + "\n", None),
        ],
    )
    def test_marks_in_quotes_and_in_names_are_none(
        self, text: str, columns: tuple[str, ...] | None, tmp_path: Path
    ) -> None:
        path = csv_of(tmp_path / "rows.csv", text)
        wanted = columns or tuple(text.strip().split(","))
        assert delimited.open_delimited(path, Choice()).columns == wanted

    def test_a_short_line_is_refused_by_the_separator_of_the_first(self, tmp_path: Path) -> None:
        for mark in ("\t", "|"):
            path = csv_of(tmp_path / "rows.csv", f"a{mark}b\n1\n")
            with pytest.raises(InputError, match=f"needs 2 fields with {re.escape(repr(mark))} between them"):
                open_reader(path)

    @pytest.mark.parametrize("mark", [",", "|"])
    def test_text_longer_than_what_is_looked_at_is_read_over(self, mark: str, tmp_path: Path) -> None:
        path = csv_of(tmp_path / "rows.csv", f"a{mark}text\n1{mark}{200_000 * 'x'}\n2{mark}y\n")
        np.testing.assert_array_equal(read(path, Choice(columns=("a",))), [[1], [2]])

    def test_commas_before_decimals_are_no_separators(self, tmp_path: Path) -> None:
        path = csv_of(tmp_path / "rows.csv", "1,5\t2,5\n3\t4\n")
        assert len(delimited.open_delimited(path, Choice()).columns) == 2
        path = csv_of(tmp_path / "points.csv", "1.5|2\n3|4\n")
        np.testing.assert_array_equal(read(path), [[1.5, 2], [3, 4]])


class TestWords:
    """Columns of a CSV that hold True and False."""

    @pytest.mark.parametrize("words", [("True", "False"), ("true", "false"), ("TRUE", "FALSE")])
    @pytest.mark.parametrize("piece", [8, 1 << 20])
    def test_a_column_of_them_is_1_and_0(
        self, words: tuple[str, str], piece: int, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(DelimitedReader, "piece", piece)
        yes, no = words
        path = csv_of(tmp_path / "rows.csv", f"a,b,c\n1,{yes},{no}\n2,{no},{no}\n3,{yes},{yes}\n")
        np.testing.assert_array_equal(read(path), [[1, 1, 0], [2, 0, 0], [3, 1, 1]])
        holed = csv_of(tmp_path / "holed.csv", f"a,b\n1,\n2,NaN\n3,{no}\n4,{yes}\n5,\n")
        found = read(holed, Choice(missing=True))[:, 1]
        np.testing.assert_array_equal(found, [np.nan, np.nan, 0, 1, np.nan])
        with pytest.raises(InputError, match=r"missing in the columns b \(3\): in 3 of 5 rows, which are 0, 1, 4"):
            read(holed)

    def test_it_is_the_column_of_parquet(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas")
        rows = pandas.DataFrame({"a": [1.5, 2.5], "b": [True, False]})
        rows.to_csv(tmp_path / "rows.csv", index=False)
        rows.to_parquet(tmp_path / "rows.parquet")
        np.testing.assert_array_equal(read(tmp_path / "rows.csv"), read(tmp_path / "rows.parquet"))

    @pytest.mark.parametrize("entries", ["True x", "x True", "True 1", "0.5 False", "True TrUe", "yes no"])
    def test_other_text_and_numbers_among_them_are_refused(
        self, entries: str, tmp_path: Path, monkeypatch: Any
    ) -> None:
        for piece in (8, 1 << 20):
            monkeypatch.setattr(DelimitedReader, "piece", piece)
            path = csv_of(tmp_path / "rows.csv", "\n".join(["a,b", *(f"1,{one}" for one in entries.split())]))
            with pytest.raises(InputError, match=r"In column b: Row #\d: invalid value .*True and False alone"):
                read(path)

    def test_labels_stay_text_and_weights_are_numbers(self, tmp_path: Path) -> None:
        path = csv_of(tmp_path / "rows.csv", "a,b\n1,True\n2,False\n")
        ingest(path, tmp_path / "rows.zarr", Choice(columns=("a",)), {"labels": "b", "weights": "b"})
        assert read_array(tmp_path / "rows-labels.zarr").tolist() == ["True", "False"]
        assert read_array(tmp_path / "rows-weights.zarr").tolist() == [1, 0]

    @pytest.mark.parametrize(
        ("text", "columns"),
        [
            ("1,True\n2,False\n", ("0", "1")),
            ("True,False\nTrue,True\n", ("0", "1")),
            ("False,True\n3,4\n", ("False", "True")),
            ("flag,1\nTrue,2\n", ("flag", "1")),
            ("True,False\n", ("True", "False")),
        ],
    )
    def test_a_first_line_of_them_is_a_row_if_lines_hold_them(
        self, text: str, columns: tuple[str, ...], tmp_path: Path
    ) -> None:
        found = delimited.open_delimited(csv_of(tmp_path / "rows.csv", text), Choice())
        assert (found.columns, found.shape[0]) == (columns, text.count("\n") - (columns[0] != "0"))


class TestBeside:
    """Columns beside the rows: ids, labels, weights."""

    @pytest.mark.parametrize("kind", ["int64", "string"])
    def test_ids_that_are_missing_say_where_and_what_to_do(self, kind: str, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        ids = pa.array([7, None, 9], "int64").cast(kind)
        path = folder_of(tmp_path / "parts", {"x": [1.0, 2.0, 3.0], "id": ids})
        for name in ("ids", "labels"):
            with pytest.raises(InputError, match=r"columns id \(1\): in 1 of 3 rows, which are 1 \(counted") as error:
                ingest(path, tmp_path / "rows.zarr", Choice(columns=("x",), missing=True), {name: "id"})
            assert "Ids, labels and weights cannot be missing" in str(error.value)
            assert "'missing'" not in str(error.value)
        rows = folder_of(tmp_path / "rows", {"x": [1.0, None]})
        with pytest.raises(InputError, match=r"by the step 'missing'"):  # (which helps there)
            read(rows)

    def test_weights_and_ids_of_a_csv_say_so_too(self, tmp_path: Path) -> None:
        path = csv_of(tmp_path / "rows.csv", "x,w,id\n1,2,a\n2,,\n")
        for name, column, said in (
            ("weights", "w", r"columns w \(1\): .* which are 1 .* cannot be missing"),
            ("ids", "id", r"first is row 1 \(counted from 0\).*leave those rows out"),
        ):
            with pytest.raises(InputError, match=said):
                ingest(path, tmp_path / "rows.zarr", Choice(columns=("x",), missing=True), {name: column})

    def test_ids_that_are_plain_numbers_stay_so_in_a_csv(self, tmp_path: Path) -> None:
        numbers = ["-1", "+2", "-3.5", "-1e5", "+1.5E-3", "12"]
        formulas = ["-1+2", "=1", "-x", "--1", "+", "-1.", "@1", "-1\n", "'-1", "-.5", "-1e"]
        ids = np.array(numbers + formulas)
        values = np.zeros((len(ids), 1))
        aligned = {"id": RowSource(ids.shape, ids.dtype, array=ids)}
        table = Table(RowSource(values.shape, values.dtype, array=values), ("x",), aligned)
        write_table(table, tmp_path / "rows.csv")
        with open(tmp_path / "rows.csv", encoding="utf-8", newline="") as file:
            found = [row[0] for row in csv.reader(file)][1:]
        assert found == numbers + [f"'{one}" for one in formulas]
        pytest.importorskip("pyarrow")
        ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", Choice(columns=("x",)), {"ids": "id"})
        assert read_array(tmp_path / "rows-ids.zarr").tolist() == ids.tolist()
