"""Arrays that grow: what readers see, what is left of a stopped append, what is noticed."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from scipy import sparse

import bigembed as be
from bigembed.errors import InputError, InputTypeError, LockedError, MissingPathError
from bigembed.rows import RowSource
from bigembed.rows.appending import append_file, append_rows
from bigembed.rows.formats import ingest
from bigembed.rows.formats.copying import link
from bigembed.rows.growing import StoreRows, append_source, rows_digest, stored_units
from bigembed.rows.reader import Choice
from bigembed.runtime import using
from bigembed.store import at, locks
from bigembed.store.arrays import read_array, write_array
from bigembed.store.attributes import COLUMNS, describe
from bigembed.store.locks import hold
from tests.some import a_few

LAYOUTS = [
    {"chunks": (64, 3)},
    {"chunks": (32, 3), "shards": (128, 3)},
    {"chunks": (64, 2)},
    {"chunks": (1500, 3)},
    {"chunks": (64, 3), "chunk_key_encoding": {"name": "v2", "separator": "."}},
]


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(1000, 3)).astype("f4")


def store(path, rows, **layout):
    array = zarr.create_array(str(path), shape=rows.shape, dtype=rows.dtype, **(layout or {"chunks": (64, 3)}))
    array[:] = rows
    return path


@a_few(3, "layout", LAYOUTS)
def test_appended_rows_are_there_in_any_layout(tmp_path, rows, layout):
    path, n = store(tmp_path / "x.zarr", rows[:100], **layout), 100
    for more in (1, 27, 5, 200, 300, 367):  # up to the end of a chunk, too
        assert append_rows(path, rows[n : n + more]) == n + more
        n += more
        np.testing.assert_array_equal(be.open_array(path), rows[:n])
        np.testing.assert_array_equal(read_array(path), rows[:n])
    assert n == 1000
    assert {path.name for path in tmp_path.iterdir()} == {"x.zarr", "x.zarr.growing"}
    assert [path.name for path in (tmp_path / "x.zarr.growing").iterdir()] == ["hold"]
    zarr.open_array(str(path)).append(rows[:7])  # other writers go on from there
    np.testing.assert_array_equal(read_array(path, 1000), rows[:7])


@pytest.mark.parametrize("step", [0, 4, 6, 9])
def test_a_stopped_append_changes_nothing_for_readers(tmp_path, rows, stopped_at, step):
    path = store(tmp_path / "x.zarr", rows[:100])
    with stopped_at(step):  # (metadata and four chunks aside, four chunks in their places, metadata last)
        append_rows(path, rows[100:300])
    np.testing.assert_array_equal(be.open_array(path), rows[:100])
    assert append_rows(path, rows[100:300]) == 300
    np.testing.assert_array_equal(read_array(path), rows[:300])


def test_attributes_and_shape_change_together(tmp_path, rows):
    path = store(tmp_path / "x.zarr", rows[:100])
    append_source(path, RowSource((50, 3), rows.dtype, array=rows[100:150]), {"ranges": [150]})
    append_source(path, RowSource((0, 3), rows.dtype, array=rows[:0]), {"note": "kept"})
    array = zarr.open_array(str(path))
    assert array.shape == (150, 3)
    assert dict(array.attrs) == {"ranges": [150], "note": "kept"}


def test_what_does_not_fit_is_refused(tmp_path, rows):
    path = store(tmp_path / "x.zarr", rows[:100])
    with pytest.raises(InputError, match=r"rows of shape \(3,\); rows of shape \(2,\) were given"):
        append_rows(path, rows[:, :2])
    with pytest.raises(MissingPathError, match="bigembed ingest ROWS"):
        append_rows(tmp_path / "none.zarr", np.zeros((2, 3)))
    with pytest.raises(InputError, match="would lose digits"):
        append_rows(path, rows.astype("f8"))
    old = zarr.create_array(str(tmp_path / "v2.zarr"), shape=(4, 3), dtype="f4", chunks=(2, 3), zarr_format=2)
    old[:] = 1
    with pytest.raises(InputError, match="version 3"):
        append_rows(tmp_path / "v2.zarr", rows[:3])
    (tmp_path / "x.zarr.growing").mkdir()
    with hold(tmp_path / "x.zarr.growing"), pytest.raises(LockedError, match="held by"):
        append_rows(path, rows[:3])
    np.testing.assert_array_equal(read_array(path), rows[:100])


def named(tmp_path, rows, ids, name="ids"):
    path = store(tmp_path / "x.zarr", rows[: len(ids)])
    write_array(tmp_path / f"x-{name}.zarr", np.asarray(ids))
    zarr.open_array(str(path)).attrs.update(link(path, {name: None}))
    return path


def test_what_lies_beside_rows_is_not_left_with_too_few(tmp_path, rows):
    path = named(tmp_path, rows, np.arange(100), "labels")
    with pytest.raises(InputError, match="labels are aligned with its rows and would be too few"):
        append_rows(path, rows[100:])
    np.testing.assert_array_equal(read_array(path), rows[:100])


def test_ids_are_appended_with_their_rows(tmp_path, rows):
    path = named(tmp_path, rows, np.arange(100))
    assert append_rows(path, rows[100:130], ids=np.arange(500, 530)) == 130
    assert append_rows(path, rows[100:130], ids=np.arange(500, 530), first=100) == 130
    np.testing.assert_array_equal(read_array(tmp_path / "x-ids.zarr"), [*range(100), *range(500, 530)])
    for wrong, match in [
        (None, "its rows have ids"),
        (np.arange(3), "one for each of the 30 rows"),
        (np.arange(90, 120), "name several rows"),
        ([*range(600, 629), 600], "name several rows"),
        ([f"row {i}" for i in range(30)], "do not fit"),
    ]:
        with pytest.raises(InputError, match=match):
            append_rows(path, rows[130:160], ids=wrong)
    np.testing.assert_array_equal(read_array(path), rows[:130])
    plain = store(tmp_path / "plain.zarr", rows[:10])
    with pytest.raises(InputError, match="have no ids"):
        append_rows(plain, rows[10:20], ids=np.arange(10))


def test_columns_of_a_frame_are_appended_by_their_names(tmp_path, rows):
    frame = pd.DataFrame(rows[:30, :3], columns=["a", "b", "c"])
    path = store(tmp_path / "named.zarr", rows[:30, :3])
    describe(at(path), {COLUMNS: ["a", "b", "c"]})
    for number, given in enumerate(
        (frame[["c", "a", "b"]], pa.Table.from_pandas(frame[["b", "c", "a"]]), rows[:30, :3])
    ):
        append_rows(path, given)
        np.testing.assert_array_equal(read_array(path)[30 * number + 30 :], rows[:30, :3])
    for wrong, said in [
        (frame.rename(columns={"a": "z"}), "missing: a; extra: z"),
        (frame[["a", "b"]], "missing: c"),
        (frame.assign(d=1.0), "extra: d"),
        (frame[["a", "b", "c", "c"]], "some of them twice"),
    ]:
        with pytest.raises(InputError, match=said):
            append_rows(path, wrong)
    assert len(read_array(path)) == 120


def test_ids_of_a_frame_are_named_by_their_column(tmp_path, rows):
    path = named(tmp_path, rows, np.array([f"row {i}" for i in range(100)], dtype=np.dtypes.StringDType()))
    frame = pd.DataFrame(rows[100:105], columns=["a", "b", "c"])
    frame.insert(1, "name", list("vwxyz"))
    append_rows(path, frame, ids="name")
    np.testing.assert_array_equal(read_array(path)[100:], rows[100:105])
    assert list(read_array(tmp_path / "x-ids.zarr")[100:]) == [*"vwxyz"]
    with pytest.raises(InputError, match="no column 'other'; there are a, name, b, c"):
        append_rows(path, frame, ids="other")


def test_ids_of_a_column_of_objects_are_text(tmp_path, rows):
    path = named(tmp_path, rows, np.array([f"row {i}" for i in range(100)], dtype=np.dtypes.StringDType()))
    append_rows(path, rows[100:103], ids=pd.Series(["x", "y", "z"], dtype=object))
    assert list(read_array(tmp_path / "x-ids.zarr")[100:]) == ["x", "y", "z"]


def test_ids_of_a_call_that_was_killed_before_its_rows_were_there_are_replaced(tmp_path, rows):
    path = named(tmp_path, rows, np.arange(100))
    append_rows(tmp_path / "x-ids.zarr", np.arange(700, 730))
    assert append_rows(path, rows[100:120], ids=np.arange(700, 720)) == 120
    np.testing.assert_array_equal(read_array(tmp_path / "x-ids.zarr"), [*range(100), *range(700, 720)])


def test_the_first_rows_stay_what_they_are_while_others_come(tmp_path, rows):
    path = store(tmp_path / "x.zarr", rows[:150])
    source = StoreRows((150, 3), rows.dtype, path=str(path), content="of 150")
    before = source.fingerprint()
    append_rows(path, rows[150:400])
    assert source.fingerprint() == before
    np.testing.assert_array_equal(source.read(100, 200), rows[100:150])
    later = StoreRows((40, 3), rows.dtype, path=str(path), offset=130, content="others")
    np.testing.assert_array_equal(later.read(5, 25), rows[135:155])
    assert later.fingerprint() != before
    assert RowSource((150, 3), rows.dtype, path=str(path)).fingerprint() != before  # by the files, which have changed


def test_digests_are_of_the_rows_not_of_their_storage(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows)
    paths = [store(tmp_path / f"{i}.zarr", rows, **layout) for i, layout in enumerate(LAYOUTS)]
    digests = {rows_digest(str(path), 10, 500) for path in [tmp_path / "x.npy", *paths]}
    assert len(digests) == 1
    changed = rows.copy()
    changed[499, 2] += 1e-6
    assert rows_digest(str(store(tmp_path / "y.zarr", changed)), 10, 500) not in digests
    assert rows_digest(str(tmp_path / "y.zarr"), 10, 499) == rows_digest(str(paths[0]), 10, 499)


def test_units_name_files_and_notice_writing(tmp_path, rows):
    path = store(tmp_path / "x.zarr", rows[:100], chunks=(64, 2))
    shape, dtype, units = stored_units(path)
    assert (shape, dtype) == ((100, 3), np.dtype("f4"))
    assert [(unit.start, unit.stop, unit.name) for unit in units] == [(0, 64, "c/0/0"), (64, 100, "c/1/0")]
    os.utime(path / "c/0/1", ns=(1, 1))
    assert [a.stamp == b.stamp for a, b in zip(units, stored_units(path)[2], strict=True)] == [False, True]
    metadata = json.loads((path / "zarr.json").read_text())
    assert metadata["shape"] == [100, 3]


def test_an_append_that_says_where_its_rows_belong_may_be_repeated(tmp_path, rows):
    path = store(tmp_path / "x.zarr", rows[:100])
    for _ in range(2):
        assert append_rows(path, rows[100:130], first=100) == 130
    assert append_rows(path, rows[130:140], first=130) == 140
    assert append_rows(path, rows[100:130], first=100) == 140  # a late repetition
    for wrong, first in ((rows[:30], 100), (rows[140:150], 141), (rows[100:150], 100), (rows[:3], -1)):
        with pytest.raises(InputError, match="Nothing was appended"):
            append_rows(path, wrong, first=first)
    np.testing.assert_array_equal(read_array(path), rows[:140])


def test_a_file_waits_for_another_append_and_says_for_whom(tmp_path, rows, monkeypatch):
    path = store(tmp_path / "x.zarr", rows[:100])
    np.save(tmp_path / "night.npy", rows[100:130])
    monkeypatch.setattr(locks, "AGAIN", 0.01)
    said, heard = [], threading.Event()

    def hear(event):
        said.append(event.message)
        heard.set()

    def other():
        with hold(folder):
            holding.set()
            heard.wait(20)

    (folder := tmp_path / "x.zarr.growing").mkdir()
    holding = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    holding.wait(20)
    with using(observer=hear):
        assert append_file(path, tmp_path / "night.npy") == (30, 0, 130, 0)
    thread.join()
    assert "held by" in said[0]
    np.testing.assert_array_equal(read_array(path), rows[:130])


def test_appends_of_files_at_the_same_time_are_all_there(tmp_path, rows, monkeypatch):
    path = store(tmp_path / "x.zarr", rows[:100])
    monkeypatch.setattr(locks, "AGAIN", 0.01)
    parts = [rows[100 + 20 * number : 120 + 20 * number] for number in range(4)]
    for number, part in enumerate(parts):
        np.save(tmp_path / f"{number}.npy", part)
    calls = [threading.Thread(target=append_file, args=(path, tmp_path / f"{number}.npy")) for number in range(4)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    found = read_array(path)
    assert found.shape == (180, 3)
    assert {part.tobytes() for part in parts} == {found[at : at + 20].tobytes() for at in range(100, 180, 20)}


def test_columns_without_names_are_appended_by_position_only_when_asked(tmp_path, rows):
    path = store(tmp_path / "named.zarr", rows[:30].astype("f8"), chunks=(64, 3))
    describe(at(path), {COLUMNS: ["a", "b", "c"]})
    frame = pd.DataFrame(rows[:30].astype("f8"), columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "headless.csv", index=False, header=False)
    np.save(tmp_path / "x.npy", frame.to_numpy())
    for number, name in enumerate(("headless.csv", "x.npy")):
        with pytest.raises(InputError, match=r"have no names, and those of .* have: a, b, c.*--by-position"):
            append_file(path, tmp_path / name)
        append_file(path, tmp_path / name, by_position=True)
        np.testing.assert_array_equal(read_array(path)[30 * (number + 1) :], frame.to_numpy())
    frame.to_csv(tmp_path / "names.csv", index=False)
    with pytest.raises(InputError, match="stand in another order"):
        append_file(path, tmp_path / "names.csv", Choice(columns=("c", "a", "b")))
    frame.rename(columns={"c": "z"}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(InputError, match="missing: c; extra: z"):
        append_file(path, tmp_path / "other.csv", Choice(columns=("a", "b", "z")))
    with pytest.raises(InputError, match=r"no columns c.*The store has them"):
        append_file(path, tmp_path / "other.csv")
    with pytest.raises(InputTypeError, match="not a path: bigembed append"):
        append_rows(path, str(tmp_path / "names.csv"))
    assert len(read_array(path)) == 90


def test_missing_values_come_only_when_asked(tmp_path, rows):
    path = store(tmp_path / "named.zarr", rows[:30].astype("f8"), chunks=(64, 3))
    describe(at(path), {COLUMNS: ["a", "b", "c"]})
    frame = pd.DataFrame(rows[:5].astype("f8"), columns=["a", "b", "c"])
    frame.loc[3, "b"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    for given in (frame, pa.Table.from_pandas(frame), frame.astype(object).where(frame.notna(), None)):
        with pytest.raises(InputError, match=r"columns b \(1\): in 1 of 5 rows, which are 3 .*missing=True"):
            append_rows(path, given)
    with pytest.raises(InputError, match=r"columns b \(1\): in 1 of 5 rows, which are 3 .*--allow-missing"):
        append_file(path, tmp_path / "gaps.csv")
    assert len(read_array(path)) == 30
    append_rows(path, frame, missing=True)
    append_file(path, tmp_path / "gaps.csv", Choice(missing=True))
    np.testing.assert_array_equal(read_array(path)[30:], np.concatenate([frame, frame]))


def test_rows_whose_ids_are_there_are_said_and_can_be_left_out(tmp_path, rows):
    path = named(tmp_path, rows, np.arange(100))
    append_rows(path, rows[100:130], ids=np.arange(500, 530))
    with pytest.raises(InputError, match=r"all 30 rows are in the store already.*\(500, 501, .*skip_known=True"):
        append_rows(path, rows[100:130], ids=np.arange(500, 530))
    with pytest.raises(InputError, match=r"10 of the 30 rows are in the store already"):
        append_rows(path, rows[100:130], ids=np.arange(520, 550))
    assert append_rows(path, rows[100:130], ids=np.arange(500, 530), skip_known=True) == 130
    assert append_rows(path, rows[120:150], ids=np.arange(520, 550), skip_known=True) == 150
    np.testing.assert_array_equal(read_array(path), rows[:150])
    np.testing.assert_array_equal(read_array(tmp_path / "x-ids.zarr"), [*range(100), *range(500, 550)])
    with pytest.raises(InputError, match="name several rows"):
        append_rows(path, rows[:2], ids=[7000, 7000], skip_known=True)
    for wrong in ({}, {"ids": np.arange(3), "first": 150}):
        with pytest.raises(InputError, match="skip_known: "):
            append_rows(path, rows[:3], skip_known=True, **wrong)


def test_no_rows_leave_a_sealed_array_as_it_was(tmp_path, rows):
    write_array(tmp_path / "x.zarr", rows[:100])
    assert append_rows(tmp_path / "x.zarr", rows[:0]) == 100
    np.save(tmp_path / "none.npy", rows[:0])
    assert append_file(tmp_path / "x.zarr", tmp_path / "none.npy") == (0, 0, 100, 0)
    assert append_rows(tmp_path / "x.zarr", rows[100:]) == 1000
    np.testing.assert_array_equal(read_array(tmp_path / "x.zarr"), rows)


def test_sparse_rows_do_not_grow_and_every_call_says_what_does(tmp_path, rows):
    sparse.save_npz(tmp_path / "first.npz", sparse.csr_array(rows[:100] * (rows[:100] > 0)))
    np.save(tmp_path / "ids.npy", np.arange(100))
    ingest(tmp_path / "first.npz", path := tmp_path / "x.zarr", aligned={"ids": str(tmp_path / "ids.npy")})
    for call in (
        lambda: append_rows(path, rows[:3]),
        lambda: append_file(path, tmp_path / "first.npz"),
        lambda: be.delete_rows(path, rows=[3]),
        lambda: stored_units(path),
    ):
        with pytest.raises(InputError, match=r"x\.zarr: holds sparse rows.*bigembed ingest FILE NEW.zarr --dense"):
            call()
    assert {one.name for one in tmp_path.iterdir()} == {"first.npz", "ids.npy", "x.zarr", "x-ids.zarr"}


def test_sparse_rows_of_a_file_are_appended_dense(tmp_path, rows):
    given = np.where(rows > 0, rows, 0)
    path = store(tmp_path / "x.zarr", given[:100])
    for name, part in (("day.npz", given[100:400]), ("csr.npz", given[400:])):
        sparse.save_npz(tmp_path / name, sparse.csr_array(part))
    ingest(tmp_path / "csr.npz", tmp_path / "csr.zarr")
    assert append_file(path, tmp_path / "day.npz") == (300, 0, 400, 0)
    assert append_file(path, tmp_path / "csr.zarr") == (600, 0, 1000, 0)
    np.testing.assert_array_equal(read_array(path), given)


def test_a_store_brings_the_ids_that_lie_beside_it(tmp_path, rows):
    path = named(tmp_path, rows, np.arange(100))
    np.save(tmp_path / "day.npy", rows[100:130])
    np.save(tmp_path / "day-ids.npy", np.arange(500, 530))
    with pytest.raises(InputError, match="its rows have ids"):  # the control
        append_file(path, tmp_path / "day.npy")
    ingest(tmp_path / "day.npy", tmp_path / "day.zarr", aligned={"ids": str(tmp_path / "day-ids.npy")})
    assert append_file(path, tmp_path / "day.zarr") == (30, 0, 130, 0)
    assert append_file(path, tmp_path / "day.zarr", skip_known=True) == (0, 30, 130, 0)
    np.save(tmp_path / "others.npy", np.arange(700, 730))
    assert append_file(path, tmp_path / "day.zarr", ids=str(tmp_path / "others.npy")) == (30, 0, 160, 0)
    np.testing.assert_array_equal(
        read_array(tmp_path / "x-ids.zarr"), [*range(100), *range(500, 530), *range(700, 730)]
    )
    plain = store(tmp_path / "plain.zarr", rows[:100])
    assert append_file(plain, tmp_path / "day.zarr") == (30, 0, 130, 0)  # a store without ids takes none
