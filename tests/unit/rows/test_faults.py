"""Tables that cannot be read say why, where, and what to do: encodings, first lines, dates."""

from __future__ import annotations

import datetime
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bigembed as be
from bigembed.errors import InputError
from bigembed.rows.formats import ingest
from bigembed.rows.reader import Choice

COUNTS = "in a column that counts days or seconds from a date of your choice"
DAYS = pd.DataFrame({"a": np.arange(5.0), "day": pd.date_range("2024-01-01", periods=5)})
DATES = [datetime.date(2024, 1, day + 1) for day in range(5)]


def ingested(home, text, choice=None, ids=""):
    content = text if isinstance(text, bytes) else text.encode()
    (home / "x.csv").write_bytes(content)
    ingest(home / "x.csv", home / "x.zarr", choice, {"ids": ids} if ids else {})


@pytest.mark.parametrize("first", ["# exported 2024", "Sales of May", "# one,two"])
def test_a_first_line_that_is_none_of_names_is_said(first, tmp_path):
    with pytest.raises(InputError, match=rf"first line \('{first}'\) has fewer fields .* than row 2.*tail -n \+2"):
        ingested(tmp_path, f"{first}\na,b,c\n1,2,3\n")


def test_a_line_with_too_many_fields_is_not_blamed_on_the_first(tmp_path):
    with pytest.raises(InputError, match="Expected 2 columns, got 3") as caught:
        ingested(tmp_path, "a,b\n1,2\n3,4\n5,6,7\n")
    assert "tail" not in str(caught.value)


@pytest.mark.parametrize("lines", [0, 40_000])
def test_the_first_line_that_is_not_utf_8_is_said(lines, tmp_path):
    text = "name,b\n" + "x,2\n" * lines + "Müller,3\nKöln,4\n"
    with pytest.raises(
        InputError, match=rf"line {lines + 2} is not text .*0xfc.*Müller.*iconv -f WINDOWS-1252 -t UTF-8"
    ):
        ingested(tmp_path, text.encode("latin-1"), ids="name")
    ingested(tmp_path, text, Choice(columns=("b",)))  # the control


def test_utf_16_is_known_by_its_mark(tmp_path):
    with pytest.raises(InputError, match=r"text in UTF-16, as its first two bytes say.*iconv -f UTF-16 -t UTF-8"):
        ingested(tmp_path, "a,b\n1,2\n".encode("utf-16"))


@pytest.mark.parametrize(
    "column", [DAYS["day"], DAYS["day"] - DAYS["day"][0], DAYS["day"].dt.tz_localize("UTC"), DATES]
)
def test_dates_have_one_remedy_in_frames(column):
    for frame in (DAYS[["a"]].assign(day=column), pa.table({"a": np.arange(5.0), "day": list(column)})):
        with pytest.raises((InputError, TypeError), match=COUNTS) as caught:
            be.PCA(1).fit(frame)
        assert "OneHotEncoder" not in str(caught.value)


def test_text_and_dates_have_both_remedies_and_text_its_own():
    with pytest.raises((InputError, ValueError), match=f"OneHotEncoder.*{COUNTS}"):
        be.PCA(1).fit(DAYS.assign(kind=list("xyxyx")))
    with pytest.raises((InputError, ValueError), match="OneHotEncoder") as caught:
        be.PCA(1).fit(DAYS[["a"]].assign(kind=list("xyxyx")))
    assert COUNTS not in str(caught.value)


def test_dates_have_the_same_remedy_in_files(tmp_path):
    DAYS.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=COUNTS):
        ingest(tmp_path / "x.parquet", tmp_path / "x.zarr")
    with pytest.raises(InputError, match=COUNTS):
        ingested(tmp_path, DAYS.to_csv(index=False))
    with pytest.raises(InputError, match="invalid value") as caught:
        ingested(tmp_path, "a,b\n1,x\n2,y\n")
    assert COUNTS not in str(caught.value)


@pytest.mark.parametrize(
    ("revenue", "warned"),
    [
        (["11.257", "950", "1.004", "2.500", "17"], True),
        (["1.257", "950", "-1.004", "-7", "2.500"], True),
        (["11.257", "9.500", "1.004", "2.500", "1.000"], False),  # (three decimals, as some programs write them)
        (["11.257", "950.5", "1.004", "2.500", "17"], False),
        (["0.257", "950", "1.004", "2.500", "17"], False),
        (["1.257", "950", "1004", "2.500", "17"], False),
    ],
)
def test_points_that_may_separate_thousands_are_said(tmp_path, revenue, warned):
    lines = ["x;revenue", *(f"{number};{one}" for number, one in enumerate(revenue))]
    (tmp_path / "german.csv").write_text("\n".join(lines) + "\n")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        ingest(tmp_path / "german.csv", tmp_path / "rows.zarr")
    wanted = "column revenue: numbers such as .* a thousand times too small"
    assert [bool(re.search(wanted, str(one.message))) for one in given] == [True] * warned
    (tmp_path / "plain.csv").write_text("\n".join(lines).replace(";", ",") + "\n")  # (between commas nobody writes so)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ingest(tmp_path / "plain.csv", tmp_path / "others.zarr")
