"""NA and other words for missing values in text files: text in columns of categories, as in Parquet; told."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from bigembed.errors import FeatureNamesWarning, InputError
from bigembed.jobs.extend import extend
from bigembed.jobs.run import run_job
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.formats.copying import rows_of_reader
from bigembed.rows.reader import Choice
from bigembed.store import at
from bigembed.store.arrays import read_array
from tests.job_files import job_in

COUNTRIES = ("DE", "FR", "NA", "null", None)
STEPS = '[[steps]]\nname = "one_hot"\ncolumns = ["country"]\n[[steps]]\nname = "missing"\naction = "fill"\nwith = 0'


def frame_of(seed, countries=COUNTRIES, n=200):
    rng = np.random.default_rng(seed)
    country = np.array(countries, object)[rng.integers(len(countries), size=n)]
    return pd.DataFrame({"a": rng.normal(size=n), "country": country, "b": rng.normal(size=n)})


def read(path, **choice):
    reader = open_reader(at(path), Choice(missing=True, **choice))
    return np.concatenate(list(rows_of_reader(reader, 0, reader.shape[0]))), reader.categories


def said_by(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if one.category is FeatureNamesWarning]


@pytest.mark.filterwarnings("ignore::bigembed.errors.FeatureNamesWarning")
@pytest.mark.parametrize("chosen", [{"text": True}, {"categories": (("country", ()),)}])
def test_categories_are_those_of_parquet_and_words_are_told(tmp_path, chosen):
    frame = frame_of(0)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    wanted, texts = read(tmp_path / "x.parquet", **chosen)
    said = said_by(lambda: read(tmp_path / "x.csv", **chosen))
    found, same = read(tmp_path / "x.csv", **chosen)
    np.testing.assert_allclose(found, wanted)
    assert dict(same) == dict(texts) == {"country": ("DE", "FR", "NA", "null")}
    assert [int((frame.country == word).sum()) for word in ("NA", "null")] == [
        int(one.split("column country: ")[1].split()[0]) for one in said
    ]
    assert "'NA', which is read as a category, as in Parquet" in said[0]
    assert "write an empty field" in said[0]


def test_the_warning_is_no_damage_where_warnings_are_errors(tmp_path):
    frame_of(0).to_csv(tmp_path / "x.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FeatureNamesWarning, match="rows hold 'NA'"):
            read(tmp_path / "x.csv", text=True)


def test_words_in_columns_of_numbers_are_missing_and_nothing_is_said(tmp_path):
    (tmp_path / "x.csv").write_text("a,country,b\n1,DE,NA\nNA,FR,2\nnull,,NaN\n")
    assert said_by(lambda: read(tmp_path / "x.csv", text=True)) == []
    found, texts = read(tmp_path / "x.csv", text=True)
    np.testing.assert_array_equal(found, [[1, 0, np.nan], [np.nan, 1, 2], [np.nan, np.nan, np.nan]])
    assert dict(texts) == {"country": ("DE", "FR")}


@pytest.mark.filterwarnings("ignore::bigembed.errors.FeatureNamesWarning")
def test_a_word_that_a_model_does_not_know_stays_missing_and_is_told(tmp_path):
    """So it was read when an earlier version fitted the model: as a missing value, which is no category."""
    frame_of(0).to_csv(tmp_path / "x.csv", index=False)
    known = (("country", ("DE", "FR", "null")),)
    said = said_by(lambda: read(tmp_path / "x.csv", categories=known))
    found, _ = read(tmp_path / "x.csv", categories=known)
    codes = {"DE": 0, "FR": 1, "null": 2}
    np.testing.assert_array_equal(found[:, 1], [codes.get(one, np.nan) for one in frame_of(0).country])
    assert "'NA', which is read as a missing value, since no fitted row held it" in said[0]
    assert "'null', which is read as a category" in said[1]


@pytest.mark.filterwarnings("ignore")
def test_new_rows_in_csv_have_the_coordinates_of_those_in_parquet(tmp_path):
    frame_of(0).to_parquet(tmp_path / "x.parquet", index=False)
    job = job_in(tmp_path, source='path = "x.parquet"', more=STEPS, output='model = "model"')
    run_job(job)
    new = frame_of(1)
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet", index=False)
    for kind in ("csv", "parquet"):
        extend(tmp_path / "model", tmp_path / f"new.{kind}", tmp_path / f"{kind}.zarr")
    np.testing.assert_allclose(read_array(tmp_path / "csv.zarr"), read_array(tmp_path / "parquet.zarr"), rtol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_a_copy_of_an_earlier_version_is_made_anew(tmp_path, monkeypatch):
    """Its categories lack the words; what it says of itself is not what is asked now."""
    frame_of(0).to_csv(tmp_path / "x.csv", index=False)
    job = job_in(tmp_path, source='path = "x.csv"', more=STEPS)
    with monkeypatch.context() as earlier:
        earlier.setattr("bigembed.jobs.inputs.delimited_files", lambda path: [])
        earlier.setattr("bigembed.rows.formats.words.with_missing", as_earlier)
        run_job(job)
    before = read_array(tmp_path / "run-input.zarr")
    run_job(job)
    after = read_array(tmp_path / "run-input.zarr")
    words = frame_of(0).country.isin(["NA", "null"]).to_numpy()
    assert np.isnan(before[words, 1]).all()
    assert not np.isnan(after[words, 1]).any()


def as_earlier(batch, categories):
    column = pd.Series(batch["country"].to_pylist(), dtype=object) if "country" in batch.schema.names else None
    if column is None:
        return batch
    import pyarrow as pa

    gone = column.isin(["", "NA", "null"])
    place = batch.schema.names.index("country")
    return batch.set_column(place, "country", pa.array(column.where(~gone, None).tolist(), pa.string()))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e400"])
def test_infinity_is_refused_with_its_columns_and_rows(tmp_path, word, missing):
    lines = [f"{number},0.5,2" for number in range(300)]
    lines[17], lines[250] = f"1,{word},{word}", f"1,2,{word}"
    (tmp_path / "x.csv").write_text("\n".join(["a,b,c", *lines]))
    message = r"infinite in the columns b \(1\), c \(2\): in 2 of 300 rows, which are 17, 250 \(counted from 0\)"
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "x.csv", tmp_path / "x.zarr", Choice(missing=missing))
    assert not (tmp_path / "x.zarr").exists()
