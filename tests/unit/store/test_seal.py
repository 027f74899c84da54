"""Rows that were sealed when they were written: whole chunks and shapes that are others are refused."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import scipy.sparse
import zarr

import bigembed as be
from bigembed.errors import BigembedError, DamagedError
from bigembed.rows.formats.registry import ingest, open_reader
from bigembed.rows.growing import append_rows
from bigembed.rows.sparse import group_source, write_csr
from bigembed.store.arrays import read_array, read_rows, read_window, write_array
from bigembed.store.files import read_json
from bigembed.store.writing import SEAL

N = 300


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 3)).astype("f4")


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr("bigembed.rows.formats.copying.block_rows", lambda *_: 100)


def ingested(folder, rows, name="x.zarr"):
    folder.mkdir(exist_ok=True)
    np.save(folder / "rows.npy", rows)
    ingest(folder / "rows.npy", folder / name)
    return folder / name


def chunk_files(path):
    return sorted(file for file in (path / "c").rglob("*") if file.is_file())


def readers(path):
    yield lambda: read_array(path)
    yield lambda: read_rows(path, np.arange(N))
    yield lambda: read_window(path, (0, N), (0, 1))
    yield lambda: be.open_array(path).compute()
    yield lambda: be.open_array(path)[::2].compute()
    yield lambda: list(open_reader(path).stream(0, N))
    yield lambda: be.PCA(1).fit(path)


def refused(path):
    for read in readers(path):
        with pytest.raises(DamagedError):
            read()


def test_whole_rows_are_read(tmp_path, rows, small_shards):
    path = ingested(tmp_path, rows)
    assert len(chunk_files(path)) == 3
    np.testing.assert_array_equal(read_array(path), rows)
    np.testing.assert_array_equal(be.open_array(path)[10::7, 1].compute(), rows[10::7, 1])
    for read in readers(path):
        read()


def test_two_chunks_that_changed_places(tmp_path, rows, small_shards):
    path = ingested(tmp_path, rows)
    one, other = chunk_files(path)[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    refused(path)


def test_an_older_chunk(tmp_path, rows, small_shards):
    path, old = ingested(tmp_path, rows), ingested(tmp_path / "old", rows + 1)
    shutil.copy2(chunk_files(old)[1], chunk_files(path)[1])
    refused(path)
    np.testing.assert_array_equal(read_array(path, 0, 100), rows[:100])


@pytest.mark.parametrize("shape", [N + 1, N - 1, N + 1000])
def test_another_shape(tmp_path, rows, shape):
    path = ingested(tmp_path, rows)
    metadata = read_json(path / "zarr.json")
    metadata["shape"][0] = shape
    (path / "zarr.json").write_text(json.dumps(metadata))
    refused(path)


def test_older_metadata(tmp_path, rows):
    path, old = ingested(tmp_path, rows), ingested(tmp_path / "old", rows[:200] + 1)
    shutil.copy2(old / "zarr.json", path / "zarr.json")
    refused(path)


def test_text_and_sparse_rows(tmp_path, rows):
    names = np.array([f"name {i}" for i in range(N)])
    np.save(tmp_path / "names.npy", names)
    np.save(tmp_path / "other.npy", names[::-1])
    for name, ids in (("x", "names"), ("y", "other")):
        np.save(tmp_path / "rows.npy", rows)
        ingest(tmp_path / "rows.npy", tmp_path / f"{name}.zarr", aligned={"ids": str(tmp_path / f"{ids}.npy")})
    assert read_array(tmp_path / "x-ids.zarr").tolist() == names.tolist()
    shutil.copy2(chunk_files(tmp_path / "y-ids.zarr")[0], chunk_files(tmp_path / "x-ids.zarr")[0])
    for read in (lambda: read_array(tmp_path / "x-ids.zarr"), lambda: read_rows(tmp_path / "x-ids.zarr", [3])):
        with pytest.raises(DamagedError, match="another one than was written"):
            read()

    matrix = scipy.sparse.random_array((N, 9), density=0.3, rng=0, format="csr")
    for name, scale in (("s", 1), ("t", 2)):
        write_csr(tmp_path / name, matrix * scale)
        ingest(tmp_path / name, tmp_path / f"{name}.zarr")
    found = group_source(tmp_path / "s.zarr")
    np.testing.assert_array_equal(found.read(0, N).toarray(), matrix.toarray())
    shutil.rmtree(tmp_path / "s.zarr" / "data")
    shutil.copytree(tmp_path / "t.zarr" / "data", tmp_path / "s.zarr" / "data")
    with pytest.raises(DamagedError, match="data is not the one that was written"):
        group_source(tmp_path / "s.zarr")


def test_sealed_rows_grow(tmp_path, rows):
    path = ingested(tmp_path, rows[:100])
    assert append_rows(path, rows[100:250]) == 250
    np.testing.assert_array_equal(read_array(path), rows[:250])
    before = shutil.copytree(path, tmp_path / "before.zarr")
    assert append_rows(path, rows[250:]) == N
    np.testing.assert_array_equal(be.open_array(path).compute(), rows)
    assert SEAL in zarr.open_array(path).attrs
    for name in ("zarr.json", chunk_files(path)[0].relative_to(path)):
        damaged = shutil.copytree(path, tmp_path / f"damaged-{os.path.basename(name)}")
        shutil.copy2(before / name, damaged / name)
        refused(damaged)


@pytest.mark.parametrize("step", range(4))
def test_readers_see_whole_appends_whenever_one_is_killed(tmp_path, rows, stopped_at, step):
    path = ingested(tmp_path, rows[:100])
    with stopped_at(step):
        append_rows(path, rows[100:200] + 1)
    np.testing.assert_array_equal(be.open_array(path).compute(), rows[:100])
    assert append_rows(path, rows[100:]) == N  # (other ones than before)
    np.testing.assert_array_equal(read_array(path), rows)


def test_what_has_no_seal_is_read_as_it_is(tmp_path, rows):
    path = ingested(tmp_path, rows)
    metadata = read_json(path / "zarr.json")
    del metadata["attributes"][SEAL]
    (path / "zarr.json").write_text(json.dumps(metadata))
    np.testing.assert_array_equal(read_array(path), rows)
    write_array(tmp_path / "own.zarr", rows)
    assert SEAL not in zarr.open_array(tmp_path / "own.zarr").attrs


def test_attributes_of_the_user_are_no_damage(tmp_path, rows):
    path = ingested(tmp_path, rows)
    zarr.open_array(path, mode="r+").attrs["note"] = "mine"
    np.testing.assert_array_equal(read_array(path), rows)


def test_coordinates_of_new_rows_are_sealed(tmp_path, rows):
    model = be.PCA(2).fit(rows)
    for name, given in (("a", rows), ("b", rows + 1)):
        model.transform_to(given, tmp_path / f"{name}.zarr")
    shutil.copy2(chunk_files(tmp_path / "b.zarr")[0], chunk_files(tmp_path / "a.zarr")[0])
    with pytest.raises(BigembedError, match="another one than was written"):
        be.open_array(tmp_path / "a.zarr").compute()
