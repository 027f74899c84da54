"""The ledger: what was there, and every way in which it may not be there any more."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zarr

from bigembed.errors import ChangedInputError, DamagedError
from bigembed.jobs.growth.account import Ledger, check, covering, new_ledger, snapshot, suspects
from bigembed.rows.growing import append_rows
from tests.executors import executor


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(1000, 3))


@pytest.fixture
def path(tmp_path, rows):
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(250, 3), dtype="f8", chunks=(100, 3))
    array[:] = rows[:250]
    return tmp_path / "x.zarr"


def taken(path):
    there = snapshot(path)
    return covering(new_ledger(there), there)


def read_by(call):
    """How many units were read, and what came out."""
    read = []

    def run(calls, label):
        read.extend(calls)
        return [each() for each in calls]

    with executor(run):
        return call(), len(read)


def test_nothing_is_read_where_nothing_was_written(path):
    ledger = taken(path)
    assert (ledger.n, [entry.stop for entry in ledger.entries]) == (250, [100, 200, 250])
    assert Ledger.from_dict(ledger.as_dict()) == ledger
    assert read_by(lambda: check(ledger, snapshot(path))) == (ledger, 0)
    assert read_by(lambda: check(ledger, snapshot(path), verify=True)) == (ledger, 3)


def test_only_the_last_unit_and_new_ones_are_read_after_an_append(path, rows):
    ledger = taken(path)
    append_rows(path, rows[250:420])
    there = snapshot(path)
    assert [entry.start for entry in suspects(ledger, there)] == [200]
    checked, count = read_by(lambda: check(ledger, there))
    assert (checked.content, count) == (ledger.content, 1)
    whole, count = read_by(lambda: covering(checked, there))
    assert (whole.n, count) == (420, 3)
    assert whole == taken(path)
    assert whole.content != ledger.content


def test_appending_by_zarr_is_the_same(path, rows):
    ledger = taken(path)
    zarr.open_array(str(path)).append(rows[250:420])
    assert covering(check(ledger, snapshot(path)), snapshot(path)) == taken(path)


def test_rewritten_in_other_chunks_or_touched_the_rows_are_the_same(path, rows, tmp_path):
    ledger = taken(path)
    for file in (path / "c").rglob("0"):
        os.utime(file)
    assert check(ledger, snapshot(path)).content == ledger.content
    array = zarr.create_array(str(path), shape=(250, 3), dtype="f8", chunks=(70, 3), overwrite=True)
    array[:] = rows[:250]
    assert check(ledger, snapshot(path)).content == ledger.content


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda z: z.__setitem__((150, 1), 0.0), r"in rows 100:200 of 250 \(shard c/1/0\)"),
        (lambda z: z.__setitem__((slice(150, 250), 1), 0.0), r"in rows 100:250 of 250 \(shards c/1/0, c/2/0\)"),
        (lambda z: z.resize((240, 3)), r"240 rows are there, and 250 were: rows 240:250 are gone \(shard c/2/0\)"),
        (lambda z: z.resize((90, 3)), r"rows 90:250 are gone \(shards c/0/0, c/1/0, c/2/0\)"),
    ],
)
def test_changed_and_missing_rows_are_named(path, damage, message):
    ledger = taken(path)
    damage(zarr.open_array(str(path)))
    with pytest.raises(ChangedInputError, match=message):
        check(ledger, snapshot(path))


def test_a_change_behind_unchanged_times_is_found_by_verify_alone(tmp_path, rows):
    path = tmp_path / "plain.zarr"
    array = zarr.create_array(str(path), shape=(250, 3), dtype="f8", chunks=(100, 3), compressors=None)
    array[:] = rows[:250]
    ledger, file = taken(path), path / "c" / "1" / "0"
    stat = file.stat()
    array[120] = 7.0
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    there = snapshot(path)
    assert check(ledger, there).content == ledger.content  # by size and time all is as it was
    with pytest.raises(ChangedInputError, match="100:200"):
        check(ledger, there, verify=True)


def test_other_columns_other_dtype_and_absent_chunks(path, rows, tmp_path):
    ledger = taken(path)
    for name, array, message in (
        ("d", rows[:250, :2], "2 columns now, and had 3"),
        ("t", rows[:250].astype("f4"), "float32 now, and were float64"),
    ):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(ChangedInputError, match=message):
            check(ledger, snapshot(tmp_path / f"{name}.npy"))
    (path / "c" / "1" / "0").unlink()
    with pytest.raises(DamagedError, match="1 chunks are missing"):
        snapshot(path)


def test_files_of_numpy_have_a_ledger_too(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows[:300])
    ledger = taken(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", rows)
    there = snapshot(tmp_path / "x.npy")
    assert covering(check(ledger, there), there) == taken(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", rows + 1)
    with pytest.raises(ChangedInputError, match=r"x\.npy"):
        check(ledger, snapshot(tmp_path / "x.npy"))
