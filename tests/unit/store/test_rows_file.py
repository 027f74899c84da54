"""Arrays of rows that are created and written here have the bytes of those that zarr makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.errors import ContainsArrayError

from bigembed.store import arrays


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def by_zarr(place: Path, rows: Any, chunk: int, shard: int, compress: bool) -> None:
    array = zarr.create_array(
        place, shape=rows.shape, dtype=rows.dtype, chunks=(chunk, *rows.shape[1:]),
        shards=(shard, *rows.shape[1:]) if shard > chunk else None,
        compressors=[*([BloscCodec(cname="zstd", clevel=1)] if compress else []), Crc32cCodec()], fill_value=0,
        config={"write_empty_chunks": True},
    )  # fmt: skip
    array[...] = rows


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8, bool])
@pytest.mark.parametrize(("n", "tail"), [(250, (3,)), (200, ()), (40, (2, 2))])
def test_files_are_those_of_zarr(tmp_path: Path, compress: bool, dtype: type, n: int, tail: tuple[int, ...]) -> None:
    rows = (np.random.default_rng(0).random((n, *tail)) * 100).astype(dtype)
    by_zarr(tmp_path / "zarr", rows, 100, 100, compress)
    arrays.create_rows(tmp_path / "own", rows.shape, dtype, 100, compress=compress)
    for start in range(0, n, 100):
        arrays.write_rows(tmp_path / "own", start, rows[start : start + 100])
    assert files(tmp_path / "own") == files(tmp_path / "zarr")
    np.testing.assert_array_equal(arrays.read_array(tmp_path / "own"), rows)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "own", mode="r")[...], rows)


def test_shards_are_those_of_zarr(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((5_000, 512))
    by_zarr(tmp_path / "zarr", rows, 256, 2_048, True)
    arrays.create_rows(tmp_path / "own", rows.shape, rows.dtype, 2_048)
    for start in range(0, 5_000, 2_048):
        arrays.write_rows(tmp_path / "own", start, rows[start : start + 2_048])
    assert files(tmp_path / "own") == files(tmp_path / "zarr")


def test_what_is_no_whole_chunk_or_of_another_kind_is_written_by_zarr(tmp_path: Path) -> None:
    arrays.create_rows(tmp_path / "own", (250, 3), np.float64, 100)
    rows = np.arange(750, dtype=np.float32).reshape(250, 3)
    arrays.write_rows(tmp_path / "own", 0, rows[:100])
    arrays.write_rows(tmp_path / "own", 100, rows[100:150].astype(np.float64))
    arrays.write_rows(tmp_path / "own", 150, rows[150:].astype(np.float64))
    np.testing.assert_array_equal(arrays.read_array(tmp_path / "own"), rows)
    with pytest.raises(ContainsArrayError):
        arrays.create_rows(tmp_path / "own", (250, 3), np.float64, 100)
    arrays.create_rows(tmp_path / "own", (50, 3), np.float64, 100, overwrite=True)
    assert [*files(tmp_path / "own")] == ["zarr.json"]
