"""Passes over rows, their tiles, and maps of single rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

from bigembed.errors import InputError
from bigembed.rows import RowBlock, RowSource, windows
from bigembed.rows import tiles as module
from bigembed.rows.passes import checked_shape, reduce_rows, row_groups, task_runs, whole_or_parts, write_mapped
from bigembed.rows.row_maps import affine_block
from bigembed.rows.tiles import tiles
from bigembed.runtime import blocks as rows_module
from bigembed.runtime.blocks import one_blas_thread
from bigembed.store.arrays import create_rows, read_array, write_rows
from bigembed.store.exchange import Exchange

N, D = 1003, 5


def sum_block(block: RowBlock) -> dict[str, np.ndarray]:
    return {"sum": block.rows.sum(axis=0, dtype="f8"), "rows": np.array(block.stop - block.start)}


def doubled_block(block: RowBlock, factor: float) -> np.ndarray:
    return block.rows[:, :2] * factor


def zarr_source(values, folder, chunks):
    array = zarr.create_array(str(folder / f"{chunks}.zarr"), shape=values.shape, chunks=chunks, dtype=values.dtype)
    array[...] = values
    return RowSource(values.shape, values.dtype, path=str(folder / f"{chunks}.zarr"))


class TestPasses:
    """Passes over rows: canonical blocks, chunks read once, sums in a fixed tree, offenders named."""

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch):
        monkeypatch.setattr(rows_module, "MIN_BLOCK_ROWS", 16)
        monkeypatch.setattr(rows_module, "MAX_BLOCK_ROWS", 64)

    @pytest.fixture
    def values(self):
        return np.random.default_rng(0).normal(size=(N, D)).astype("f4")

    @pytest.mark.parametrize("chunks", [(64, 5), (1, 5), (10, 2), (37, 5), (100, 3), (1003, 1), (1002, 5), (5000, 5)])
    def test_the_same_bytes_for_any_chunks(self, values, tmp_path, chunks):
        exchange = Exchange(str(tmp_path / "x"))
        memory = reduce_rows(RowSource(values.shape, values.dtype, array=values), sum_block, exchange)
        found = reduce_rows(zarr_source(values, tmp_path, chunks), sum_block, exchange)
        assert found["sum"].tobytes() == memory["sum"].tobytes()
        assert found["rows"] == N
        np.testing.assert_allclose(found["sum"], values.sum(axis=0, dtype="f8"))

    @pytest.mark.parametrize("chunk", [10, 37, 100, 1003])
    def test_a_task_reads_each_chunk_once(self, values, tmp_path, chunk, monkeypatch):
        source = zarr_source(values, tmp_path, (chunk, D))
        reads: list[int] = []
        read = RowSource.read

        def counted(self, start, stop):
            reads.extend(range(start // chunk, -(-stop // chunk)))
            return read(self, start, stop)

        monkeypatch.setattr(RowSource, "read", counted)
        spans = [(start, min(start + 64, N)) for start in range(0, N, 64)]
        np.testing.assert_array_equal(np.concatenate(list(windows(source, spans))), values)
        assert sorted(reads) == list(range(-(-N // chunk)))
        reads.clear()
        for span in spans:  # a control: block by block, chunks that straddle are read again
            list(windows(source, [span]))
        assert len(reads) > -(-N // chunk)

    def test_large_results_are_summed_over_more_rows(self, values):
        source = RowSource(values.shape, values.dtype, array=values)
        assert len(row_groups(source, 0)) == 16
        assert len(row_groups(source, 64 * D * 4)) == 2  # eight blocks behind a result as large as a block

    def test_few_chunks_are_read_by_two_tasks(self, values, tmp_path):
        source = zarr_source(values, tmp_path, (37, D))
        assert len(task_runs(source, row_groups(source, 0))) == 16  # as many tasks as are worth it
        one = zarr_source(values, tmp_path, (1003, D))
        assert len(task_runs(one, row_groups(one, 0))) == 1

    def test_every_offender_is_counted_and_the_first_are_named(self, values, tmp_path):
        values[[3, 700]] = np.nan
        values[1002, 4] = np.inf
        source = RowSource(values.shape, values.dtype, array=values)
        for propagates in (False, True):
            apart = rf"contains NaN: 2 of {N} rows do, .*rows \[3, 700\].*infinity: 1 of {N} rows do, .*rows \[1002\]"
            with pytest.raises(InputError, match=apart):
                reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True, propagates=propagates)

    def test_large_finite_numbers_are_no_offenders(self, tmp_path):
        values = np.full((40, 2), 1e38, "f4")  # their squares overflow float32
        source = RowSource(values.shape, values.dtype, array=values)
        assert reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True)["rows"] == 40

    def test_bad_weights_are_named(self, values, tmp_path):
        weights = np.ones(N)
        weights[[5, 80]] = -1, np.nan
        source = RowSource(
            values.shape, values.dtype, array=values, aligned={"weights": RowSource((N,), weights.dtype, array=weights)}
        )
        with pytest.raises(InputError, match=r"weights .* 2 of 1003 are not, the first of rows \[5, 80\]"):
            reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True)

    def test_a_killed_pass_goes_on_with_what_is_missing(self, values, tmp_path, monkeypatch):
        source, exchange = RowSource(values.shape, values.dtype, array=values), Exchange(str(tmp_path))
        whole = reduce_rows(source, sum_block, exchange)
        drop, calls = Exchange.drop, []
        monkeypatch.setattr(Exchange, "drop", lambda self, *names: None)
        reduce_rows(source, sum_block, exchange)
        (tmp_path / "sum_block" / "7").unlink()
        monkeypatch.setattr(Exchange, "drop", drop)

        def counted(block):
            calls.append(block.number)
            return sum_block(block)

        again = reduce_rows(source, counted, exchange, label="sum_block")
        assert calls == [7]
        assert again["sum"].tobytes() == whole["sum"].tobytes()

    def test_rows_mapped_into_an_array(self, values, tmp_path):
        source = zarr_source(values, tmp_path, (37, 2))
        write_mapped(source, doubled_block, str(tmp_path / "out"), 2, "f8", factor=3.0)
        np.testing.assert_array_equal(read_array(tmp_path / "out"), values[:, :2].astype("f4") * 3.0)

    def test_a_source_that_tasks_do_not_cut_is_sent_once(self, values, tmp_path, monkeypatch):
        source = zarr_source(values, tmp_path, (64, 5))
        groups = row_groups(source, 0)
        runs = task_runs(source, groups)
        assert whole_or_parts(source, groups, runs) == (source, [None] * len(runs))
        monkeypatch.setattr(RowSource, "part", lambda self, start, stop: replace(self, offset=-start))
        whole, parts = whole_or_parts(source, groups, runs)
        assert whole is None
        assert [-part.offset // source.block for part in parts] == [groups[low][0] for low, _ in runs]

    def test_shapes_are_checked(self, values):
        source = RowSource(values.shape, values.dtype, array=values)
        assert checked_shape(source) == (N, D)
        with pytest.raises(InputError, match="minimum of 2"):
            checked_shape(replace(source, shape=(1, D)), at_least=2)
        with pytest.raises(InputError, match="weights have shape"):
            checked_shape(replace(source, aligned={"weights": RowSource((4,), np.dtype("f8"))}))
        with pytest.raises(InputError, match="target_density has shape"):
            checked_shape(replace(source, aligned={"target_density": RowSource((4,), np.dtype("f8"))}))


TILES_N = 90


def square() -> np.ndarray:
    return np.random.default_rng(0).random((TILES_N, TILES_N), np.float32)


def stored(folder: Path, chunks: tuple[int, int]) -> RowSource:
    path = str(folder / f"{chunks[0]}-{chunks[1]}.zarr")
    zarr.create_array(path, shape=(TILES_N, TILES_N), chunks=chunks, dtype=np.float32)[...] = square()
    return RowSource((TILES_N, TILES_N), np.dtype(np.float32), path=path)


CHUNKS = [(1, TILES_N), (8, 8), (20, 33), (50, 50), (TILES_N, TILES_N), (TILES_N, 1), (13, TILES_N)]


class TestTiles:
    """Tiles of a square array: on one grid for any chunks, each chunk read once."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "TILE_ROWS", 7)
        monkeypatch.setattr(module, "TILE_COLUMNS", 11)
        monkeypatch.setattr(module, "PANEL_BYTES", 30 * TILES_N * 4)

    @pytest.mark.parametrize("chunks", CHUNKS)
    def test_the_grid_does_not_depend_on_the_chunks(self, chunks: tuple[int, int], tmp_path: Path) -> None:
        wanted = sorted(
            tiles(RowSource((TILES_N, TILES_N), np.dtype(np.float32), array=square()), 20, 61), key=lambda t: t[:2]
        )
        found = list(tiles(stored(tmp_path, chunks), 20, 61))
        rebuilt = np.full((TILES_N, TILES_N), np.nan)
        for row, column, values in found:
            assert values.dtype == np.float64
            rebuilt[row : row + len(values), column : column + values.shape[1]] = values
        np.testing.assert_array_equal(rebuilt[20:61], square()[20:61])
        assert np.isnan(rebuilt[:20]).all()
        assert np.isnan(rebuilt[61:]).all()
        for here, there in zip(sorted(found, key=lambda t: t[:2]), wanted, strict=True):
            assert here[:2] == there[:2]
            np.testing.assert_array_equal(here[2], there[2])
        for order in (0, 1):  # of the same rows by column, of the same columns by row
            for start in {tile[order] for tile in found}:
                others = [tile[1 - order] for tile in found if tile[order] == start]
                assert others == sorted(others)

    @pytest.mark.parametrize("chunks", [(20, 33), (50, 50), (13, TILES_N), (8, 8)])
    def test_a_chunk_is_read_once(
        self, chunks: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = stored(tmp_path, chunks)
        read: list[tuple[Any, Any]] = []
        window = RowSource.window

        def counted(self: RowSource, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
            if rows[0] < rows[1] and columns[0] < columns[1]:
                read.append((rows, columns))
            return window(self, rows, columns)

        monkeypatch.setattr(RowSource, "window", counted)
        list(tiles(source, 0, TILES_N))
        touched: dict[tuple[int, int], int] = {}
        for (a, b), (c, d) in read:
            for i in range(a // chunks[0], -(-b // chunks[0])):
                for j in range(c // chunks[1], -(-d // chunks[1])):
                    touched[i, j] = touched.get((i, j), 0) + 1
        assert len(touched) == -(-TILES_N // chunks[0]) * -(-TILES_N // chunks[1])
        assert max(touched.values()) == 1

    def test_shards_are_read_by_their_chunks(self, tmp_path: Path) -> None:
        path = str(tmp_path / "rows.zarr")
        create_rows(path, (TILES_N, TILES_N), np.float32, 45)
        for start in (0, 45):
            write_rows(path, start, square()[start : start + 45])
        found = list(tiles(RowSource((TILES_N, TILES_N), np.dtype(np.float32), path=path), 0, TILES_N))
        assert sum(tile.values.size for tile in found) == TILES_N * TILES_N


class TestAffine:
    """Affine maps: the same bits for a row in any batch."""

    @pytest.mark.parametrize("d", [1, 3, 64, 511])
    @pytest.mark.parametrize("k", [1, 2, 10, 33])
    def test_a_row_is_mapped_alike_in_any_batch(self, d, k):
        generator = np.random.default_rng(d + k)
        rows, mean = generator.normal(size=(700, d)).astype("f4"), generator.normal(size=d)
        matrix = generator.normal(size=(d, k))
        with one_blas_thread():
            whole = affine_block(rows, mean, matrix)
            chosen = generator.permutation(700)[:333]
            assert np.array_equal(affine_block(rows[chosen], mean, matrix), whole[chosen])
            assert np.array_equal(affine_block(rows[699:], mean, matrix), whole[699:])
        np.testing.assert_allclose(whole, (rows - mean) @ matrix, atol=1e-11)

    def test_sparse_rows(self):
        rows = sparse.random(50, 9, density=0.3, random_state=0, format="csr")
        mean, matrix = np.arange(9.0), np.random.default_rng(0).normal(size=(9, 3))
        np.testing.assert_allclose(affine_block(rows, mean, matrix), (rows.toarray() - mean) @ matrix, atol=1e-12)
