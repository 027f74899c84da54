"""Stored arrays: what Zarr would lose is kept or refused; chunks, rows, seals."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.errors import ContainsArrayError

import bigembed as be
from bigembed.errors import BigembedError, DamagedError, InputError, MissingPathError, PlanError
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.opening import missing_shards, open_array, open_zarr
from bigembed.rows.sparse import group_source, write_csr
from bigembed.store import arrays, chunks
from bigembed.store.arrays import create_rows, read_array, read_rows, read_window, write_array, write_rows
from bigembed.store.chunks import row_chunks
from bigembed.store.files import read_json, reading_foreign
from bigembed.store.metadata import SEAL, written_whole


class TestArrays:
    """What Zarr would lose silently is kept, or refused."""

    @pytest.mark.parametrize("shape", [(7,), (5000, 64), (0, 3), (1, 1), (3, 0)])
    def test_an_array_comes_back_with_shape_dtype_and_values(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        write_array(tmp_path / "a", array)
        got = read_array(tmp_path / "a")
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)
        arrays._made.clear()
        np.testing.assert_array_equal(read_array(tmp_path / "a"), array)
        if len(array) > 10:
            np.testing.assert_array_equal(read_array(tmp_path / "a", 5, 9), array[5:9])

    def test_an_array_of_zeros_is_written_not_left_to_the_fill_value(self, tmp_path: Path) -> None:
        write_array(tmp_path / "a", np.zeros((3000, 64)))
        assert missing_shards(zarr.open_array(str(tmp_path / "a"))) == 0
        create_rows(tmp_path / "b", (100, 4), np.float64, 32)
        for start in range(0, 100, 32):
            write_rows(tmp_path / "b", start, np.zeros((min(32, 100 - start), 4)))
        assert missing_shards(open_zarr(tmp_path / "b")) == 0

    @pytest.mark.parametrize("chunk_rows", [None, 7])
    def test_an_array_of_another_process_is_read_as_it_was_written(
        self, tmp_path: Path, chunk_rows: int | None
    ) -> None:
        values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
        write_array(tmp_path / "a", values, chunk_rows=chunk_rows)
        arrays._made.clear()
        assert written_whole(str(tmp_path / "a")) is not None  # (zarr need not open it)
        np.testing.assert_array_equal(read_array(tmp_path / "a", 5, 31), values[5:31])
        np.testing.assert_array_equal(read_rows(tmp_path / "a", np.array([39, 0, 8])), values[[39, 0, 8]])
        zarr.open_array(tmp_path / "a", mode="r+").attrs["more"] = 1
        assert written_whole(str(tmp_path / "a")) is None
        np.testing.assert_array_equal(read_array(tmp_path / "a"), values)

    def test_threads_that_write_zeros_lose_no_chunk(self, tmp_path: Path) -> None:
        """zarr's switch for empty chunks is one for the whole process: one thread must not turn it back for another."""
        create_rows(tmp_path / "a", (800, 2), np.float64, 2)
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda start: write_rows(tmp_path / "a", start, np.zeros((2, 2))), range(0, 800, 2)))
        assert missing_shards(open_zarr(tmp_path / "a")) == 0

    def test_rewriting_an_array_is_seen_at_once(self, tmp_path: Path) -> None:
        write_array(tmp_path / "a", np.zeros(4))
        read_array(tmp_path / "a")
        write_array(tmp_path / "a", np.ones(6))
        np.testing.assert_array_equal(read_array(tmp_path / "a"), np.ones(6))

    @pytest.mark.parametrize("shard_rows", [4096, 10])
    def test_a_missing_shard_is_counted_and_refused(self, tmp_path: Path, shard_rows: int) -> None:
        create_rows(tmp_path / "a", (3 * shard_rows - 1, 16), np.float32, shard_rows)
        write_rows(tmp_path / "a", 0, np.ones((shard_rows, 16), np.float32))
        write_rows(tmp_path / "a", 2 * shard_rows, np.ones((shard_rows - 1, 16), np.float32))
        assert missing_shards(zarr.open_array(str(tmp_path / "a"))) == 1
        with pytest.raises(DamagedError, match="1 chunks are missing"):
            open_array(tmp_path / "a")

    def test_every_flipped_byte_of_a_chunk_raises(self, tmp_path: Path) -> None:
        write_array(tmp_path / "a", np.arange(4096.0).reshape(64, 64))
        [chunk] = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "zarr.json"]
        whole = chunk.read_bytes()
        for position in range(0, len(whole), 997):
            damaged = bytearray(whole)
            damaged[position] ^= 1
            chunk.write_bytes(bytes(damaged))
            with pytest.raises(DamagedError):
                read_array(tmp_path / "a")

    def test_wrong_paths_say_what_is_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(MissingPathError, match="no such path"):
            open_array(tmp_path / "nothing.zarr")
        (tmp_path / "folder").mkdir()
        with pytest.raises(InputError, match="not a Zarr array"):
            open_array(tmp_path / "folder")
        with pytest.raises(MissingPathError):
            open_array(tmp_path / "nothing.npy")

    def test_open_array_takes_every_kind(self, tmp_path: Path) -> None:
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

    def test_a_damaged_chunk_of_a_lazy_array_is_damage(self, tmp_path):
        write_array(tmp_path / "rows.zarr", np.arange(40.0).reshape(20, 2))
        lazy = open_array(tmp_path / "rows.zarr")
        chunk = tmp_path / "rows.zarr" / "c" / "0" / "0"
        content = bytearray(chunk.read_bytes())
        content[9] ^= 1
        chunk.write_bytes(content)
        with pytest.raises(DamagedError, match=r"rows\.zarr"):
            lazy.compute(scheduler="synchronous")

    @pytest.mark.parametrize(
        "error",
        [RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many open files"), MemoryError("no")],
    )
    def test_exhausted_resources_are_not_damage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        write_array(tmp_path / "rows", np.ones((4, 2)))

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr("bigembed.store.arrays._opened", fail)
        with pytest.raises((MemoryError, OSError)) as found:
            read_array(tmp_path / "rows")
        assert not isinstance(found.value, BigembedError)
        with pytest.raises(OSError if isinstance(error, OSError) else PlanError), reading_foreign("rows.npy"):
            raise error


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


OTHERS: dict[str, dict[str, Any]] = {
    "gzip": {"codecs": [GzipCodec()]},
    "two compressors": {"codecs": [ZstdCodec(), GzipCodec()]},
    "columns in chunks": {"codecs": [], "chunks": (4, 2)},
    "chunks wider than the array": {"codecs": [], "chunks": (4, 5)},
    "big-endian": {"codecs": [], "serializer": BytesCodec(endian="big")},
    "format 2": {"codecs": "auto", "zarr_format": 2},
}


class TestChunks:
    """Chunks read by the thread itself: the same numbers as zarr reads, for every layout; damage is noticed."""

    @pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
    @pytest.mark.parametrize("codecs", READ_HERE.values(), ids=READ_HERE)
    @pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "?"])
    @pytest.mark.parametrize("shape", [(30, 3), (25,), (1, 2), (26, 2, 2)])
    def test_any_rows_as_zarr_reads_them(self, tmp_path, shape, dtype, codecs, shard):
        values = (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)
        array = stored(tmp_path / "a.zarr", values, shard, codecs, config={"write_empty_chunks": True})
        assert row_chunks(array, str(tmp_path / "a.zarr")) is not None
        read = array[...]
        for start, stop in [(0, shape[0]), (3, 9), (0, 4), (4, 8), (shape[0] - 1, shape[0]), (7, 7), (20, 10)]:
            found = read_array(tmp_path / "a.zarr", start, stop)
            np.testing.assert_array_equal(found, read[start:stop], strict=True)

    @pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
    def test_chunks_of_the_fill_value_that_were_not_written(self, tmp_path, shard):
        values = np.full((24, 2), 7.0)
        values[5] = 1.0
        array = stored(tmp_path / "a.zarr", values, shard, [], fill_value=7.0, config={"write_empty_chunks": False})
        assert row_chunks(array, str(tmp_path / "a.zarr")) is not None
        np.testing.assert_array_equal(read_array(tmp_path / "a.zarr"), values)

    @pytest.mark.parametrize("layout", OTHERS.values(), ids=OTHERS)
    def test_other_layouts_are_left_to_zarr(self, tmp_path, layout):
        values = np.random.default_rng(0).normal(size=(10, 3))
        array = stored(tmp_path / "a.zarr", values, None, **layout)
        assert row_chunks(array, str(tmp_path / "a.zarr")) is None
        np.testing.assert_array_equal(array[2:9], values[2:9])
        if array.metadata.zarr_format == 3:
            np.testing.assert_array_equal(read_array(tmp_path / "a.zarr", 2, 9), values[2:9])

    @pytest.mark.parametrize("shard", SHARDS.values(), ids=SHARDS)
    @pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
    def test_damage_is_noticed(self, tmp_path, shard, harm):
        path = tmp_path / "a.zarr"
        stored(path, np.arange(72.0).reshape(24, 3), shard, READ_HERE["blosc"])
        file = next(part for part in sorted((path / "c").rglob("*")) if part.is_file())
        content = bytearray(file.read_bytes())
        content[10] ^= 1
        file.write_bytes({"flip": content, "cut": content[:-7], "empty": b""}[harm])
        with pytest.raises(DamagedError, match=r"checksum|cut off"):
            read_array(path, 0, 4)
        np.testing.assert_array_equal(read_array(path, 12, 24), np.arange(72.0).reshape(24, 3)[12:])

    def test_chunks_longer_than_one_call_reads(self, tmp_path, monkeypatch):
        values = np.arange(72.0).reshape(24, 3)
        write_array(tmp_path / "a", values)
        monkeypatch.setattr(chunks, "READ_BYTES", 100)
        np.testing.assert_array_equal(read_array(tmp_path / "a"), values)
        file = next(part for part in (tmp_path / "a/c").rglob("*") if part.is_file())
        file.write_bytes(file.read_bytes()[:-50])
        with pytest.raises(DamagedError):
            read_array(tmp_path / "a")

    def test_the_index_of_a_shard_is_checked(self, tmp_path):
        path = tmp_path / "a.zarr"
        stored(path, np.arange(36.0).reshape(12, 3), 12, READ_HERE["blosc"])
        file = path / "c/0/0"
        content = bytearray(file.read_bytes())
        content[-10] ^= 1
        file.write_bytes(content)
        with pytest.raises(DamagedError, match="index of shard 0"):
            read_array(path)


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


class TestRowsFile:
    """Arrays of rows that are created and written here have the bytes of those that zarr makes."""

    @pytest.mark.parametrize("compress", [True, False])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8, bool])
    @pytest.mark.parametrize(("n", "tail"), [(250, (3,)), (200, ()), (40, (2, 2))])
    def test_files_are_those_of_zarr(
        self, tmp_path: Path, compress: bool, dtype: type, n: int, tail: tuple[int, ...]
    ) -> None:
        rows = (np.random.default_rng(0).random((n, *tail)) * 100).astype(dtype)
        by_zarr(tmp_path / "zarr", rows, 100, 100, compress)
        arrays.create_rows(tmp_path / "own", rows.shape, dtype, 100, compress=compress)
        for start in range(0, n, 100):
            arrays.write_rows(tmp_path / "own", start, rows[start : start + 100])
        assert files(tmp_path / "own") == files(tmp_path / "zarr")
        np.testing.assert_array_equal(arrays.read_array(tmp_path / "own"), rows)
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "own", mode="r")[...], rows)

    def test_shards_are_those_of_zarr(self, tmp_path: Path) -> None:
        rows = np.random.default_rng(0).random((5_000, 512))
        by_zarr(tmp_path / "zarr", rows, 256, 2_048, True)
        arrays.create_rows(tmp_path / "own", rows.shape, rows.dtype, 2_048)
        for start in range(0, 5_000, 2_048):
            arrays.write_rows(tmp_path / "own", start, rows[start : start + 2_048])
        assert files(tmp_path / "own") == files(tmp_path / "zarr")

    def test_what_is_no_whole_chunk_or_of_another_kind_is_written_by_zarr(self, tmp_path: Path) -> None:
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


N = 300


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


class TestSeal:
    """Rows that were sealed when they were written: whole chunks and shapes that are others are refused."""

    @pytest.fixture
    def rows(self):
        return np.random.default_rng(0).normal(size=(N, 3)).astype("f4")

    @pytest.fixture
    def small_shards(self, monkeypatch):
        monkeypatch.setattr("bigembed.rows.formats.copying.block_rows", lambda *_: 100)

    def test_whole_rows_are_read(self, tmp_path, rows, small_shards):
        path = ingested(tmp_path, rows)
        assert len(chunk_files(path)) == 3
        np.testing.assert_array_equal(read_array(path), rows)
        np.testing.assert_array_equal(be.open_array(path)[10::7, 1].compute(), rows[10::7, 1])
        for read in readers(path):
            read()

    def test_two_chunks_that_changed_places(self, tmp_path, rows, small_shards):
        path = ingested(tmp_path, rows)
        one, other = chunk_files(path)[:2]
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        refused(path)

    def test_an_older_chunk(self, tmp_path, rows, small_shards):
        path, old = ingested(tmp_path, rows), ingested(tmp_path / "old", rows + 1)
        shutil.copy2(chunk_files(old)[1], chunk_files(path)[1])
        refused(path)
        np.testing.assert_array_equal(read_array(path, 0, 100), rows[:100])

    @pytest.mark.parametrize("shape", [N + 1, N - 1, N + 1000])
    def test_another_shape(self, tmp_path, rows, shape):
        path = ingested(tmp_path, rows)
        metadata = read_json(path / "zarr.json")
        metadata["shape"][0] = shape
        (path / "zarr.json").write_text(json.dumps(metadata))
        refused(path)

    def test_text_and_sparse_rows(self, tmp_path, rows):
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

    def test_sealed_rows_grow(self, tmp_path, rows):
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
    def test_readers_see_whole_appends_whenever_one_is_killed(self, tmp_path, rows, stopped_at, step):
        path = ingested(tmp_path, rows[:100])
        with stopped_at(step):
            append_rows(path, rows[100:200] + 1)
        np.testing.assert_array_equal(be.open_array(path).compute(), rows[:100])
        assert append_rows(path, rows[100:]) == N  # (other ones than before)
        np.testing.assert_array_equal(read_array(path), rows)

    def test_what_has_no_seal_is_read_as_it_is(self, tmp_path, rows):
        path = ingested(tmp_path, rows)
        metadata = read_json(path / "zarr.json")
        del metadata["attributes"][SEAL]
        (path / "zarr.json").write_text(json.dumps(metadata))
        np.testing.assert_array_equal(read_array(path), rows)
        write_array(tmp_path / "own.zarr", rows)
        assert SEAL not in zarr.open_array(tmp_path / "own.zarr").attrs

    def test_attributes_of_the_user_are_no_damage(self, tmp_path, rows):
        path = ingested(tmp_path, rows)
        zarr.open_array(path, mode="r+").attrs["note"] = "mine"
        np.testing.assert_array_equal(read_array(path), rows)

    def test_coordinates_of_new_rows_are_sealed(self, tmp_path, rows):
        model = be.PCA(2).fit(rows)
        for name, values in (("a", rows), ("b", rows + 1)):
            model.transform_to(values, tmp_path / f"{name}.zarr")
        shutil.copy2(chunk_files(tmp_path / "b.zarr")[0], chunk_files(tmp_path / "a.zarr")[0])
        with pytest.raises(BigembedError, match="another one than was written"):
            be.open_array(tmp_path / "a.zarr").compute()
