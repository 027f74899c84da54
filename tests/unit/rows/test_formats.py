"""Readers of input formats, and the copy into a checksummed array."""

from __future__ import annotations

import gzip
import struct

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

from bigembed import PCA
from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.rows.formats import binary as idx
from bigembed.rows.formats import copying, parquet
from bigembed.rows.formats.copying import write_dask
from bigembed.rows.formats.registry import ingest, open_reader
from bigembed.rows.opening import missing_shards, open_zarr
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array
from bigembed.store.attributes import source_of


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 100 rows, so that little data have many; one after the other."""
    for module in (copying, idx, parquet):
        monkeypatch.setattr(module, "block_rows", lambda d, itemsize: 100)
    with dask.config.set(scheduler="synchronous"):
        yield


def rows_of(dtype, n=1037, d=5):
    return np.arange(n * d).reshape(n, d).__mod__(120).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "u1", "i8", "?", ">f4", ">i2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_keeps_values_and_dtype(tmp_path, dtype, order):
    rows = np.asarray(rows_of(dtype), order=order)
    np.save(tmp_path / "rows.npy", rows)
    assert ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr") == rows.shape
    array = open_zarr(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(array[...], rows)
    assert array.dtype == rows.dtype.newbyteorder("=")
    assert missing_shards(array) == 0
    assert not (tmp_path / "rows.zarr.partial").exists()


@pytest.mark.parametrize("chunks", [(1037, 5), (7, 2), (100, 5), (333, 1)])
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_of_any_chunks(tmp_path, chunks, version):
    rows = rows_of("f4") + 1
    source = zarr.create_array(
        str(tmp_path / "raw.zarr"), shape=rows.shape, dtype="f4", chunks=chunks, zarr_format=version
    )
    source[...] = rows
    ingest(tmp_path / "raw.zarr", tmp_path / "rows.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), rows)


def test_absent_chunks_are_refused_or_filled_on_demand(tmp_path):
    source = zarr.create_array(str(tmp_path / "raw.zarr"), shape=(30, 2), dtype="f4", chunks=(10, 2), fill_value=7)
    source[:10] = 1.0
    with pytest.raises(DamagedError, match="--fill-absent"):
        ingest(tmp_path / "raw.zarr", tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()
    ingest(tmp_path / "raw.zarr", tmp_path / "rows.zarr", Choice(fill_absent=True))
    assert read_array(tmp_path / "rows.zarr").sum() == 20 + 40 * 7


@pytest.mark.parametrize("group", [50, 100, 333, 2000])
@pytest.mark.parametrize("folder", [False, True])
def test_parquet_of_any_row_groups(tmp_path, group, folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = rows_of("f4")
    table = pa.table({f"x{j}": rows[:, j] for j in range(5)})
    source = tmp_path / "rows.parquet"
    if folder:
        source = tmp_path / "rows"
        source.mkdir()
        pq.write_table(table.slice(0, 437), source / "a.parquet", row_group_size=group)
        pq.write_table(table.slice(437), source / "b.parquet", row_group_size=group)
    else:
        pq.write_table(table, source, row_group_size=group)
    ingest(source, tmp_path / "rows.zarr")
    found = read_array(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(found, rows)
    assert found.dtype == np.float32
    ingest(
        source,
        tmp_path / "two.zarr",
        Choice(
            columns=(
                "x3",
                "x1",
            )
        ),
    )
    np.testing.assert_array_equal(read_array(tmp_path / "two.zarr"), rows[:, [3, 1]])


def test_parquet_refusals_name_every_column(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1, 2], "c": [[1], [2]]}), tmp_path / "text.parquet")
    with pytest.raises(InputError, match=r"a \(string\), c \(list"):
        open_reader(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1, None], "b": [1, 2]}), tmp_path / "null.parquet")
    with pytest.raises(InputError, match="missing"):
        ingest(tmp_path / "null.parquet", tmp_path / "rows.zarr")
    with pytest.raises(InputError, match="no columns q; there are a int64, b int64"):
        open_reader(
            tmp_path / "null.parquet",
            Choice(
                columns=(
                    "a",
                    "q",
                )
            ),
        )
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not readable as Parquet"):
        open_reader(tmp_path / "bad.parquet")


def test_parquet_mixed_types_take_the_common_dtype(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": np.arange(3, dtype="i4"), "b": np.ones(3, "f4")}), tmp_path / "m.parquet")
    assert open_reader(tmp_path / "m.parquet").dtype == np.float64


def idx_bytes(array):
    codes = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
    code = codes[array.dtype.kind + str(array.dtype.itemsize)]
    head = struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_items_become_rows(tmp_path, dtype, packed):
    images = rows_of(dtype, 512, 12).reshape(512, 3, 4)
    path = tmp_path / ("train-images-idx3-ubyte" + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(idx_bytes(images)) if packed else idx_bytes(images))
    assert ingest(path, tmp_path / "rows.zarr") == (512, 12)
    np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), images.reshape(512, 12))
    assert open_zarr(tmp_path / "rows.zarr").dtype == np.dtype(dtype)


def test_idx_refusals(tmp_path):
    labels = tmp_path / "labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.arange(9, dtype="u1")))
    with pytest.raises(InputError, match="labels"):
        open_reader(labels)
    short = tmp_path / "short-idx3-ubyte"
    short.write_bytes(idx_bytes(np.zeros((500, 2, 2), "u1"))[:-7])
    with pytest.raises(DamagedError, match=r"header promises|not as long as its header"):
        ingest(short, tmp_path / "rows.zarr")
    assert list(tmp_path.glob("rows*")) == []
    whole = gzip.compress(idx_bytes(rows_of("u1", 500, 4).reshape(500, 2, 2)))
    cut = tmp_path / "cut-idx3-ubyte.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError):
        ingest(cut, tmp_path / "rows.zarr")


def test_refusals(tmp_path):
    with pytest.raises(MissingPathError, match="no such path"):
        ingest(tmp_path / "none.npy", tmp_path / "out")
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    with pytest.raises(InputError, match=r"numpy\.save"):
        ingest(tmp_path / "a.npz", tmp_path / "out")
    (tmp_path / "a.txt").write_text("1,2\n")
    with pytest.raises(InputError, match="Known"):
        ingest(tmp_path / "a.txt", tmp_path / "out")
    np.save(tmp_path / "empty.npy", np.ones((0, 3)))
    with pytest.raises(InputError, match="at least one row"):
        ingest(tmp_path / "empty.npy", tmp_path / "out")
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(InputError, match="2-dimensional"):
        ingest(tmp_path / "one.npy", tmp_path / "out")
    np.save(tmp_path / "complex.npy", np.ones((3, 3), complex))
    with pytest.raises(InputError, match="complex"):
        ingest(tmp_path / "complex.npy", tmp_path / "out")
    np.save(tmp_path / "object.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InputError, match="unpickling"):
        ingest(tmp_path / "object.npy", tmp_path / "out")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "one.npy").read_bytes()[:-3])
    with pytest.raises(InputError):
        ingest(tmp_path / "cut.npy", tmp_path / "out")
    zarr.create_group(str(tmp_path / "group.zarr"))
    with pytest.raises(InputError, match="not a Zarr array"):
        ingest(tmp_path / "group.zarr", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".h5ad", ".NC"])
def test_an_array_of_zarr_is_not_called_a_file_of_another_format(suffix, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    fitted = PCA(1).fit(tmp_path / "a.npy")
    out = tmp_path / f"out{suffix}"
    for write in (ingest, fitted.transform_to, PCA(1).fit_transform_to):
        with pytest.raises(InputError, match=r"an array of Zarr is written there.*ends in \.zarr"):
            write(tmp_path / "a.npy", out)
    assert not out.exists()


def test_existing_destination_is_untouched(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(ExistingOutputError):
        ingest(tmp_path / "a.npy", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_damage_of_the_source_is_found_and_nothing_is_left(tmp_path):
    np.save(tmp_path / "a.npy", rows_of("f4"))
    ingest(tmp_path / "a.npy", tmp_path / "a.zarr")
    chunk = next(path for path in (tmp_path / "a.zarr" / "c").rglob("*") if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[40] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(DamagedError):
        ingest(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()
    assert not (tmp_path / "b.zarr.partial").exists()


@pytest.mark.parametrize("chunks", [(1037, 5), (7, 2), (250, 1), ((1000, 37), (1, 4))])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_write_dask_whatever_the_chunks(tmp_path, chunks, scheduler):
    rows = rows_of("f4")
    with dask.config.set(scheduler=scheduler):
        write_dask(da.from_array(rows, chunks=chunks), tmp_path / "rows.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), rows)
    assert source_of(tmp_path / "rows.zarr") is None


def test_write_dask_keeps_what_is_whole_and_refuses_what_is_other(tmp_path):
    path = tmp_path / "rows.zarr"
    write_dask(da.ones((300, 2), chunks=50), path)
    stamp = (path / "zarr.json").stat().st_mtime_ns
    write_dask(da.ones((300, 2), chunks=70), path)
    assert (path / "zarr.json").stat().st_mtime_ns == stamp
    with pytest.raises(ExistingOutputError, match="holds"):
        write_dask(da.ones((301, 2)), path)


def test_a_failing_dask_array_leaves_nothing(tmp_path):
    def broken(block):
        raise ValueError("broken")

    array = da.ones((300, 2), chunks=50).map_blocks(broken, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(ValueError, match="broken"):
        write_dask(array, tmp_path / "rows.zarr")
    assert list(tmp_path.iterdir()) == []
