"""What Zarr would lose silently is kept, or refused."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigembed.errors import BigembedError, DamagedError, InputError, MissingPathError, PlanError
from bigembed.rows.opening import missing_shards, open_array, open_zarr
from bigembed.rows.source import work_dtype
from bigembed.store import arrays
from bigembed.store.arrays import create_rows, read_array, read_rows, write_array, write_rows
from bigembed.store.files import reading_foreign
from bigembed.store.manifests import publish


@pytest.mark.parametrize("shape", [(7,), (5000, 64), (0, 3), (1, 1), (3, 0)])
def test_an_array_comes_back_with_shape_dtype_and_values(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    write_array(tmp_path / "a", array)
    got = read_array(tmp_path / "a")
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    if len(array) > 10:
        np.testing.assert_array_equal(read_array(tmp_path / "a", 5, 9), array[5:9])


def test_an_array_of_zeros_is_written_not_left_to_the_fill_value(tmp_path: Path) -> None:
    write_array(tmp_path / "a", np.zeros((3000, 64)))
    assert missing_shards(zarr.open_array(str(tmp_path / "a"))) == 0
    create_rows(tmp_path / "b", (100, 4), np.float64, 32)
    for start in range(0, 100, 32):
        write_rows(tmp_path / "b", start, np.zeros((min(32, 100 - start), 4)))
    assert missing_shards(open_zarr(tmp_path / "b")) == 0


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "u1", "bool", ">f8"])
@pytest.mark.parametrize("shape", [(1,), (30, 5), (7, 2, 3), (3_001, 4), (0,), (0, 5), (4, 0, 2)])
@pytest.mark.parametrize("chunk_rows", [None, 7])
def test_the_bytes_are_those_that_zarr_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, ...], chunk_rows: int | None
) -> None:
    array = (3 * np.random.default_rng(0).random(shape)).astype(dtype)
    write_array(tmp_path / "ours", array, chunk_rows=chunk_rows)
    np.testing.assert_array_equal(read_array(tmp_path / "ours"), array)  # as it is known from writing
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[...], array)
    monkeypatch.setattr(arrays, "simple", lambda dtype, ndim: False)
    write_array(tmp_path / "theirs", array, chunk_rows=chunk_rows)
    ours, theirs = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "ours", tmp_path / "theirs")
    )
    assert ours == theirs


@pytest.mark.parametrize("chunk_rows", [None, 7])
def test_an_array_of_another_process_is_read_as_it_was_written(tmp_path: Path, chunk_rows: int | None) -> None:
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    write_array(tmp_path / "a", values, chunk_rows=chunk_rows)
    arrays._made.clear()
    np.testing.assert_array_equal(read_array(tmp_path / "a", 5, 31), values[5:31])
    np.testing.assert_array_equal(read_rows(tmp_path / "a", np.array([39, 0, 8])), values[[39, 0, 8]])
    assert arrays._made  # (zarr was not asked)
    zarr.open_array(tmp_path / "a", mode="r+").attrs["more"] = 1
    arrays._made.clear()
    np.testing.assert_array_equal(read_array(tmp_path / "a"), values)
    assert not arrays._made


def test_threads_that_write_zeros_lose_no_chunk(tmp_path: Path) -> None:
    """zarr's switch for empty chunks is one for the whole process: one thread must not turn it back for another."""
    create_rows(tmp_path / "a", (800, 2), np.float64, 2)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda start: write_rows(tmp_path / "a", start, np.zeros((2, 2))), range(0, 800, 2)))
    assert missing_shards(open_zarr(tmp_path / "a")) == 0


def test_rewriting_an_array_is_seen_at_once(tmp_path: Path) -> None:
    write_array(tmp_path / "a", np.zeros(4))
    read_array(tmp_path / "a")
    write_array(tmp_path / "a", np.ones(6))
    np.testing.assert_array_equal(read_array(tmp_path / "a"), np.ones(6))


@pytest.mark.parametrize("shard_rows", [4096, 10])
def test_a_missing_shard_is_counted_and_refused(tmp_path: Path, shard_rows: int) -> None:
    create_rows(tmp_path / "a", (3 * shard_rows - 1, 16), np.float32, shard_rows)
    write_rows(tmp_path / "a", 0, np.ones((shard_rows, 16), np.float32))
    write_rows(tmp_path / "a", 2 * shard_rows, np.ones((shard_rows - 1, 16), np.float32))
    assert missing_shards(zarr.open_array(str(tmp_path / "a"))) == 1
    with pytest.raises(DamagedError, match="1 chunks are missing"):
        open_array(tmp_path / "a")


def test_every_flipped_byte_of_a_chunk_raises(tmp_path: Path) -> None:
    write_array(tmp_path / "a", np.arange(4096.0).reshape(64, 64))
    [chunk] = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "zarr.json"]
    whole = chunk.read_bytes()
    for position in range(0, len(whole), 997):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        chunk.write_bytes(bytes(damaged))
        with pytest.raises(DamagedError):
            read_array(tmp_path / "a")


def test_wrong_paths_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="no such path"):
        open_array(tmp_path / "nothing.zarr")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="not a Zarr array"):
        open_array(tmp_path / "folder")
    with pytest.raises(MissingPathError):
        open_array(tmp_path / "nothing.npy")


def test_open_array_takes_every_kind(tmp_path: Path) -> None:
    import dask.array as da

    rows = np.arange(20.0).reshape(10, 2)
    np.save(tmp_path / "rows.npy", rows)
    write_array(tmp_path / "rows.zarr", rows)
    for source in (
        rows,
        da.from_array(rows),
        tmp_path / "rows.npy",
        str(tmp_path / "rows.zarr"),
        zarr.open_array(str(tmp_path / "rows.zarr")),
    ):
        opened = open_array(source)
        assert isinstance(opened, da.Array)
        np.testing.assert_array_equal(opened.compute(), rows)


@pytest.mark.parametrize("dtype", ["complex64", "U5", "datetime64[s]", object])
def test_rows_that_are_not_numbers_are_refused(dtype: object) -> None:
    with pytest.raises(InputError, match="dtype"):
        work_dtype(dtype)


def test_a_damaged_chunk_of_a_lazy_array_is_damage(tmp_path):
    write_array(tmp_path / "rows.zarr", np.arange(40.0).reshape(20, 2))
    lazy = open_array(tmp_path / "rows.zarr")
    chunk = tmp_path / "rows.zarr" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[9] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(DamagedError, match=r"rows\.zarr"):
        lazy.compute(scheduler="synchronous")


def test_an_array_of_a_damaged_stage_is_not_opened(tmp_path):
    path = tmp_path / "run" / "stages" / "first" / "x"
    write_array(path, np.arange(4.0))
    publish(tmp_path / "run", "first", "key", {}, {}, {}, {}, {})
    assert open_array(path).shape == (4,)
    (path / "zarr.json").write_text((path / "zarr.json").read_text().replace("4", "6", 1))
    with pytest.raises(DamagedError, match="'first' is damaged"):
        open_array(path)


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many open files"), MemoryError("no")]
)
def test_exhausted_resources_are_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    write_array(tmp_path / "rows", np.ones((4, 2)))

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("bigembed.store.arrays._opened", fail)
    with pytest.raises((MemoryError, OSError)) as found:
        read_array(tmp_path / "rows")
    assert not isinstance(found.value, BigembedError)
    with pytest.raises(OSError if isinstance(error, OSError) else PlanError), reading_foreign("rows.npy"):
        raise error
