"""Chunks read by the thread itself: the same numbers as zarr reads, for every layout; damage is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

from bigembed.errors import DamagedError
from bigembed.store.arrays import read_array, read_rows
from bigembed.store.chunks import row_chunks

READ_HERE: dict[str, list[Any]] = {
    "plain": [],
    "checked": [Crc32cCodec()],
    "blosc": [BloscCodec(cname="zstd", clevel=1), Crc32cCodec()],
    "blosc without a checksum": [BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)],
    "zstd": [ZstdCodec(level=1), Crc32cCodec()],
    "zstd without a checksum": [ZstdCodec()],
}
SHARDS = {"files": None, "shards": 12}


def stored(path: Path, values: np.ndarray, shard: int | None, codecs: Any, **more: Any) -> zarr.Array:
    tail = values.shape[1:]
    array = zarr.create_array(
        path,
        shape=values.shape,
        dtype=values.dtype,
        chunks=more.pop("chunks", (4, *tail)),
        shards=None if shard is None else (shard, *tail),
        compressors=codecs,
        **more,
    )
    array[...] = values
    return array


@pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
@pytest.mark.parametrize("codecs", READ_HERE.values(), ids=READ_HERE)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "?"])
@pytest.mark.parametrize("shape", [(30, 3), (25,), (1, 2), (26, 2, 2)])
def test_any_rows_as_zarr_reads_them(tmp_path, shape, dtype, codecs, shard):
    values = (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)
    array = stored(tmp_path / "a.zarr", values, shard, codecs, config={"write_empty_chunks": True})
    assert row_chunks(array, str(tmp_path / "a.zarr")) is not None
    read = array[...]
    for start, stop in [(0, shape[0]), (3, 9), (0, 4), (4, 8), (shape[0] - 1, shape[0]), (7, 7), (20, 10)]:
        found = read_array(tmp_path / "a.zarr", start, stop)
        np.testing.assert_array_equal(found, read[start:stop], strict=True)


@given(start=st.integers(0, 40), stop=st.integers(0, 40))
def test_any_range(tmp_path_factory, start, stop):
    values = np.arange(111.0).reshape(37, 3)
    path = tmp_path_factory.getbasetemp() / "range.zarr"
    if not path.exists():
        stored(path, values, 12, READ_HERE["blosc"])
    np.testing.assert_array_equal(read_array(path, start, stop), values[start:stop])


@given(rows=st.lists(st.integers(0, 36), max_size=20))
@pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
def test_any_rows_in_any_order(tmp_path_factory, rows, shard):
    values = np.arange(111.0).reshape(37, 3)
    path = tmp_path_factory.getbasetemp() / f"rows{shard}.zarr"
    if not path.exists():
        stored(path, values, shard, READ_HERE["blosc"])
    np.testing.assert_array_equal(read_rows(path, np.array(rows, np.int64)), values[np.array(rows, np.int64)])


@pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
def test_chunks_of_the_fill_value_that_were_not_written(tmp_path, shard):
    values = np.full((24, 2), 7.0)
    values[5] = 1.0
    array = stored(tmp_path / "a.zarr", values, shard, [], fill_value=7.0, config={"write_empty_chunks": False})
    assert row_chunks(array, str(tmp_path / "a.zarr")) is not None
    np.testing.assert_array_equal(read_array(tmp_path / "a.zarr"), values)


OTHERS: dict[str, dict[str, Any]] = {
    "gzip": {"codecs": [GzipCodec()]},
    "two compressors": {"codecs": [ZstdCodec(), GzipCodec()]},
    "columns in chunks": {"codecs": [], "chunks": (4, 2)},
    "chunks wider than the array": {"codecs": [], "chunks": (4, 5)},
    "big-endian": {"codecs": [], "serializer": BytesCodec(endian="big")},
    "format 2": {"codecs": "auto", "zarr_format": 2},
}


@pytest.mark.parametrize("layout", OTHERS.values(), ids=OTHERS)
def test_other_layouts_are_left_to_zarr(tmp_path, layout):
    values = np.random.default_rng(0).normal(size=(10, 3))
    array = stored(tmp_path / "a.zarr", values, None, **layout)
    assert row_chunks(array, str(tmp_path / "a.zarr")) is None
    np.testing.assert_array_equal(array[2:9], values[2:9])
    if array.metadata.zarr_format == 3:
        np.testing.assert_array_equal(read_array(tmp_path / "a.zarr", 2, 9), values[2:9])


@pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
@pytest.mark.parametrize("harm", ["flip", "cut"])
def test_damage_is_noticed(tmp_path, shard, harm):
    path = tmp_path / "a.zarr"
    stored(path, np.arange(72.0).reshape(24, 3), shard, READ_HERE["blosc"])
    file = next(part for part in sorted((path / "c").rglob("*")) if part.is_file())
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content if harm == "flip" else content[:-7])
    with pytest.raises(DamagedError, match=r"checksum|cut off"):
        read_array(path, 0, 4)
    np.testing.assert_array_equal(read_array(path, 12, 24), np.arange(72.0).reshape(24, 3)[12:])


def test_the_index_of_a_shard_is_checked(tmp_path):
    path = tmp_path / "a.zarr"
    stored(path, np.arange(36.0).reshape(12, 3), 12, READ_HERE["blosc"])
    file = path / "c/0/0"
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedError, match="index of shard 0"):
        read_array(path)
