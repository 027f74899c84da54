"""Vectors of a job that are columns of a table of their own: joined by ids, and made anew where anything changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bigembed.errors import InputError, MissingPathError
from bigembed.jobs.run import plan_job, run_job
from bigembed.rows.formats import ingest
from bigembed.runtime.blocks import Array
from bigembed.stages import Run
from bigembed.store.arrays import read_array
from tests.job_files import job_in

N = 90
METHOD = 'name = "linear_discriminant"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows of three groups as .npy and as a table of named rows; their groups in order, and in another order."""
    random = np.random.default_rng(0)
    groups = random.integers(0, 3, N)
    rows = random.normal(size=(N, 4)) + 3 * random.normal(size=(3, 4))[groups]
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "groups.npy", groups)
    named = [f"s{number}" for number in range(N)]
    table: dict[str, Any] = {"sample": named, "group": [f"g{group}" for group in groups], "number": groups}
    write(tmp_path / "meta.csv", table)
    order = [*random.permutation(N).tolist(), 0]
    other = {name: [values[number] for number in order] for name, values in table.items()}
    other["sample"][-1] = "another"
    write(tmp_path / "other.csv", other)
    parquet.write_table(
        pa.table({name: pa.array(values) for name, values in other.items()}), tmp_path / "other.parquet"
    )
    np.save(tmp_path / "ids.npy", np.array(named))
    write(tmp_path / "rows.csv", {"sample": named, **{f"v{column}": rows[:, column] for column in range(4)}})
    ingest(tmp_path / "rows.csv", tmp_path / "ingested.zarr", aligned={"ids": "sample"})
    return tmp_path


def write(path: Path, table: Mapping[str, Sequence[Any] | Array]) -> None:
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def coordinates(folder: Path, source: str, name: str = "run.zarr") -> Array:
    run_job(job_in(folder, METHOD, source, path=name))
    return read_array(Run(folder / name).path("coordinates", "embedding"))


@pytest.mark.parametrize(
    "source",
    [
        'path = "rows.npy"\nlabels = "meta.csv:group"',
        'path = "rows.npy"\nids = "meta.csv:sample"\nlabels = "meta.csv:number"',
        'path = "rows.npy"\nids = "meta.csv:sample"\nlabels = "other.csv:group"',
        'path = "rows.npy"\nids = "meta.csv:sample"\nlabels = "other.parquet:group"',
        'path = "rows.csv"\nids = "sample"\nlabels = "other.parquet:number"',
        'path = "rows.npy"\nids = "ids.npy"\nlabels = "other.csv:group"',
        'path = "ingested.zarr"\nlabels = "other.csv:group"',
    ],
)
def test_labels_are_those_of_the_rows_whatever_the_order_of_the_table(folder: Path, source: str) -> None:
    expected = coordinates(folder, 'path = "rows.npy"\nlabels = "groups.npy"', "expected.zarr")
    plan_job(job_in(folder, METHOD, source))
    assert not list(folder.glob("run*"))  # (a plan writes nothing)
    np.testing.assert_array_equal(coordinates(folder, source), expected)
    np.save(folder / "groups.npy", np.roll(np.load(folder / "groups.npy"), 1))  # (a control)
    other = coordinates(folder, 'path = "rows.npy"\nlabels = "groups.npy"', "other.zarr")
    assert np.abs(other - expected).max() > 0.1


def test_a_table_that_has_changed_is_read_again(folder: Path) -> None:
    source = 'path = "rows.npy"\nids = "meta.csv:sample"\nlabels = "other.csv:group"'
    before = coordinates(folder, source)
    np.testing.assert_array_equal(coordinates(folder, source), before)
    text = (folder / "other.csv").read_text().splitlines()
    (folder / "other.csv").write_text("\n".join([text[0], *reversed(text[1:])]) + "\n")
    np.testing.assert_array_equal(coordinates(folder, source), before)
    (folder / "other.csv").write_text("\n".join(text).replace(",g0,", ",g1,"))
    after = coordinates(folder, source)
    assert after.shape == (N, 1)
    np.testing.assert_array_equal(coordinates(folder, source.replace("other.csv:group", "groups.npy")), before)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('path = "rows.npy"\nlabels = "other.csv:group"', r"shape \(91,\); one entry for each of the 90 rows"),
        ('path = "rows.npy"\nlabels = "meta.csv:kind"', "no column 'kind'; there are sample.*group.*number"),
        ('path = "rows.npy"\nlabels = "absent.csv:group"', "absent.csv:group'?: no such path"),
        ('path = "rows.csv"\nids = "sample"\nlabels = "few.csv:group"', "1 of 90 rows have no row in .*few.csv.*'s7'"),
        ('path = "rows.csv"\nids = "sample"\nlabels = "twice.csv:group"', r"ids: 1 of them name several rows: 's3'"),
        ('path = "rows.npy"\nids = "ids.npy"\nlabels = "few.csv:group"', "1 of 90 rows have no row in .*few.csv.*'s7'"),
        ('path = "rows.npy"\nids = "ids.npy"\nlabels = "both.csv:group"', "stand in several columns, name, sample"),
        ('path = "rows.csv"\nids = "sample"\nlabels = "renamed.csv:group"', "has no column 'sample' by which to find"),
    ],
)
def test_what_cannot_be_found_is_said(folder: Path, source: str, message: str) -> None:
    lines = (folder / "other.csv").read_text().splitlines()
    (folder / "few.csv").write_text("\n".join(line for line in lines if not line.startswith("s7,")) + "\n")
    (folder / "twice.csv").write_text("\n".join([*lines, "s3,g0,0"]) + "\n")
    (folder / "renamed.csv").write_text("\n".join(lines).replace("sample,", "name,"))
    both = "\n".join(f"{line.split(',')[0]},{line}" for line in lines)
    (folder / "both.csv").write_text(both.replace("sample", "name", 1))
    with pytest.raises((InputError, MissingPathError), match=message):
        plan_job(job_in(folder, METHOD, source))
    with pytest.raises((InputError, MissingPathError), match=message):
        run_job(job_in(folder, METHOD, source))
    assert not (folder / "run.zarr" / "stages").exists()
