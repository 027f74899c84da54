"""Rows of a growing store that are deleted: their ids come again, and what they held is erased."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError, MissingPathError
from bigembed.rows import deleting
from bigembed.rows.appending import append_file, append_rows
from bigembed.rows.deleting import delete_rows, purge_rows
from bigembed.rows.formats import ingest
from bigembed.rows.growing import deleted_rows
from bigembed.store.arrays import read_array

ROWS = np.random.default_rng(0).normal(size=(200, 3)).astype("f4") + 10
TEXTS, NUMBERS = np.array([f"c{number}" for number in range(200)]), np.arange(200) * 7


def store(home, ids=TEXTS, n=100):
    np.save(home / "rows.npy", ROWS[:n])
    np.save(home / "names.npy", ids[:n])
    ingest(home / "rows.npy", home / "x.zarr", aligned={"ids": str(home / "names.npy")})
    return home / "x.zarr"


def ids_in(path):
    return read_array(path.with_name("x-ids.zarr")).tolist()


class TestIdsThatComeAgain:
    """An id whose row is deleted names the row that is appended under it later, and no other."""

    @pytest.mark.parametrize("ids", [TEXTS, NUMBERS])
    def test_a_new_row_gets_the_id(self, ids, tmp_path):
        path = store(tmp_path, ids)
        with pytest.raises(InputError, match="in the store already"):  # the control
            append_rows(path, ROWS[:1], ids=ids[5:6])
        assert delete_rows(path, ids=ids[[5, 9]]) == 2
        assert append_rows(path, ROWS[100:101], ids=ids[5:6]) == 101
        with pytest.raises(InputError, match=r"1 of the 2 rows are in the store already"):
            append_rows(path, ROWS[:2], ids=ids[[5, 9]])
        assert append_rows(path, ROWS[101:104], ids=ids[[5, 9, 8]], skip_known=True) == 102
        assert ids_in(path) == [*ids[:100].tolist(), *ids[[5, 9]].tolist()]
        np.testing.assert_array_equal(read_array(path)[100:], ROWS[[100, 102]])

    def test_the_new_row_is_the_one_that_its_id_finds(self, tmp_path):
        path = store(tmp_path)
        for number in (100, 101, 102):
            delete_rows(path, ids=["c5"])
            append_rows(path, ROWS[number : number + 1], ids=["c5"])
        assert np.flatnonzero(deleted_rows(path, 103)).tolist() == [5, 100, 101]
        assert delete_rows(path, ids=["c5"]) == delete_rows(path, ids=["c5"]) == 4  # (again it is as it was)

    def test_files_say_how_many_came_again(self, tmp_path):
        path = store(tmp_path)
        np.save(tmp_path / "night.npy", ROWS[:3])
        np.save(names := tmp_path / "night-names.npy", TEXTS[[5, 6, 150]])
        delete_rows(path, ids=["c5", "c7"])
        done = append_file(path, tmp_path / "night.npy", ids=str(names), skip_known=True)
        assert done == (2, 1, 102, 1)
        assert done.said(True) == "2 rows appended (1 under an id whose row is deleted), 1 known, 102 in all"
        assert append_file(path, tmp_path / "night.npy", ids=str(names), skip_known=True) == (0, 3, 102, 0)


class TestErasing:
    """What deleted rows and their ids held is not in the store any more; all others are as they were, and sealed."""

    @pytest.mark.parametrize(("ids", "nothing"), [(TEXTS, ""), (NUMBERS, 0)])
    def test_rows_and_ids_are_erased_and_no_others(self, ids, nothing, tmp_path, monkeypatch):
        monkeypatch.setattr("bigembed.rows.formats.copying.block_rows", lambda *_: 32)
        path, gone = store(tmp_path, ids), np.array([3, 40, 41, 99])
        before = {file: file.stat().st_mtime_ns for file in (path / "c").rglob("*") if file.is_file()}
        assert len(before) == 4
        delete_rows(path, rows=gone)
        np.testing.assert_array_equal(read_array(path), ROWS[:100])  # the control: they are there
        assert purge_rows(path) == len(gone)
        expected = ROWS[:100].copy()
        expected[gone] = 0
        np.testing.assert_array_equal(read_array(path), expected)
        names = ids[:100].tolist()
        assert ids_in(path) == [nothing if number in gone else name for number, name in enumerate(names)]
        assert sum(file.stat().st_mtime_ns == time for file, time in before.items()) == 1  # shard 64:96 has none
        assert append_rows(path, ROWS[100:], ids=ids[100:]) == 200  # sealed as before
        np.testing.assert_array_equal(read_array(path), np.concatenate([expected, ROWS[100:]]))
        assert be.open_array(path).shape == (200, 3)

    def test_erased_ids_name_nothing(self, tmp_path):
        path = store(tmp_path, NUMBERS)  # row 0 has the id 0
        delete_rows(path, rows=[5])
        purge_rows(path)
        with pytest.raises(InputError, match="in the store already"):
            append_rows(path, ROWS[:1], ids=[0])
        assert append_rows(path, ROWS[:1], ids=[35]) == 101
        delete_rows(path, ids=[0])
        assert np.flatnonzero(deleted_rows(path, 101)).tolist() == [0, 5]

    def test_erased_again_nothing_is_written(self, tmp_path, monkeypatch):
        path = store(tmp_path)
        delete_rows(path, rows=[5])
        purge_rows(path)
        monkeypatch.setattr(deleting, "write_rows", None)
        assert purge_rows(path) == 1

    def test_killed_between_two_shards_the_store_can_be_read_and_grows(self, tmp_path, monkeypatch):
        monkeypatch.setattr("bigembed.rows.formats.copying.block_rows", lambda *_: 32)
        path = store(tmp_path)
        delete_rows(path, rows=[3, 99])
        move = deleting.move_files

        def killed(source, target, names):
            move(source, target, names[:1])
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(deleting, "move_files", lambda *a: killed(*a) if "x.zarr" in str(a[1]) else move(*a))
            with pytest.raises(KeyboardInterrupt):
                purge_rows(path)
        found = read_array(path)
        assert sorted(map(int, (found[[3, 99]] == 0).all(axis=1))) == [0, 1]
        assert append_rows(path, ROWS[100:110], ids=TEXTS[100:110]) == 110
        assert purge_rows(path) == 2
        expected = ROWS[:110].copy()
        expected[[3, 99]] = 0
        np.testing.assert_array_equal(read_array(path), expected)

    def test_what_cannot_be_erased(self, tmp_path):
        with pytest.raises(MissingPathError, match="no array whose rows could be erased"):
            purge_rows(tmp_path / "none.zarr")
        np.save(tmp_path / "x.npy", ROWS)
        with pytest.raises(InputError, match="not a Zarr array of version 3"):
            purge_rows(tmp_path / "x.npy")
        assert purge_rows(store(tmp_path)) == 0
