"""Rows and their ids are one: whatever happened to the source between two runs, an id names its own row."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import BigembedError, ExistingOutputError
from bigembed.jobs.export import export
from bigembed.jobs.extend import extend
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.rows.reader import Choice

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
N = 400
JOB = """
[input]
path = "rows.parquet"
columns = ["a", "b", "c"]
ids = "name"
[method]
name = "pca"
n_components = 2
[output]
path = "run.zarr"
model = "model.zarr"
"""


@pytest.fixture
def frame():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)) * [3, 2, 1], columns=list("abc"))
    return table.assign(name=[f"row {number:04d}" for number in range(N)])


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    return read_job(tmp_path / "job.toml")


def agrees(table, source):
    """Whether each id of a table stands beside the coordinates of its own row."""
    if set(table["id"]) != set(source["name"]):
        return False
    rows = source.set_index("name").loc[table["id"], list("abc")].to_numpy()
    expected = be.PCA(n_components=2).fit(source[list("abc")].to_numpy()).transform(rows)
    found = table.drop(columns="id").to_numpy()
    return len(table) == len(source) and np.allclose(np.abs(found), np.abs(expected), atol=1e-6)


def exported(folder, name="table.csv"):
    export(folder / "run.zarr", folder / name)
    return pd.read_csv(folder / name)


def with_gaps(frame):
    return frame.assign(a=frame["a"].where(~frame.index.isin([5, 70])))


def test_a_file_that_was_repaired_after_a_failed_run(job, frame, tmp_path):
    with_gaps(frame).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(BigembedError, match="missing"):
        run_job(job)
    repaired = with_gaps(frame).dropna()
    repaired.to_parquet(tmp_path / "rows.parquet")
    run_job(job)
    table = exported(tmp_path)
    assert agrees(table, repaired)
    for wrong in (frame["name"][: len(table)], np.roll(repaired["name"], 1)):
        assert not agrees(table.assign(id=np.asarray(wrong)), repaired)


def test_rows_of_another_order_are_copied_anew(job, frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet")
    run_job(job)
    assert agrees(exported(tmp_path), frame)
    other = frame.sample(frac=1, random_state=1).reset_index(drop=True)
    other.to_parquet(tmp_path / "rows.parquet")
    run_job(job)
    table = exported(tmp_path, "again.csv")
    assert agrees(table, other)
    assert table["id"].tolist() == other["name"].tolist()


def test_an_untouched_or_only_rewritten_file_is_not_copied_again(job, frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet")
    run_job(job)
    assert run_job(job)["unchanged"]
    frame.to_parquet(tmp_path / "rows.parquet")  # the same rows at another time
    run_job(job)
    assert agrees(exported(tmp_path), frame)


def test_a_foreign_file_in_the_place_of_the_ids_is_left(job, frame, tmp_path):
    from bigembed.store.arrays import read_array, write_array

    write_array(tmp_path / "run-input-ids.zarr", np.arange(N))
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ExistingOutputError, match="not a copy of ids that this job made"):
        run_job(job)
    assert read_array(tmp_path / "run-input-ids.zarr").tolist() == list(range(N))


def test_new_rows_that_were_repaired(job, frame, tmp_path):
    frame.to_parquet(tmp_path / "rows.parquet")
    run_job(job)
    new = frame.assign(name=[f"new {number}" for number in range(N)])[::-1].reset_index(drop=True)
    choice = Choice(columns=("a", "b", "c"))
    arguments = tmp_path / "model.zarr", tmp_path / "new.parquet", tmp_path / "out.zarr"
    with_gaps(new).to_parquet(tmp_path / "new.parquet")
    with pytest.raises(BigembedError, match="missing"):
        extend(*arguments, aligned={"ids": "name"}, choice=choice)
    repaired = with_gaps(new).dropna()
    repaired.to_parquet(tmp_path / "new.parquet")
    extend(*arguments, aligned={"ids": "name"}, choice=choice)
    export(tmp_path / "out.zarr", tmp_path / "new.csv")
    table = pd.read_csv(tmp_path / "new.csv")
    assert table["id"].tolist() == repaired["name"].tolist()
    expected = be.load(tmp_path / "model.zarr").transform(repaired[list("abc")])
    np.testing.assert_allclose(table.drop(columns="id").to_numpy(), expected, atol=1e-9)
