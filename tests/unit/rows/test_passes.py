"""Passes over rows: canonical blocks, chunks read once, sums in a fixed tree, offenders named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zarr

from bigembed.errors import InputError
from bigembed.rows.passes import checked_shape, reduce_rows, row_groups, task_runs, write_mapped
from bigembed.rows.source import RowBlock, RowSource, row_blocks, windows
from bigembed.runtime import blocks as rows_module
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange

N, D = 1003, 5


def sum_block(block: RowBlock) -> dict[str, np.ndarray]:
    return {"sum": block.rows.sum(axis=0, dtype="f8"), "rows": np.array(block.stop - block.start)}


def largest_block(block: RowBlock) -> dict[str, np.ndarray]:
    return {"most": block.rows.max(axis=0)}


def larger(left, right):
    return {"most": np.maximum(left["most"], right["most"])}


def doubled_block(block: RowBlock, factor: float) -> np.ndarray:
    return block.rows[:, :2] * factor


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows_module, "MIN_BLOCK_ROWS", 16)
    monkeypatch.setattr(rows_module, "MAX_BLOCK_ROWS", 64)


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(N, D)).astype("f4")


def zarr_source(values, folder, chunks):
    array = zarr.create_array(str(folder / f"{chunks}.zarr"), shape=values.shape, chunks=chunks, dtype=values.dtype)
    array[...] = values
    return RowSource(values.shape, values.dtype, path=str(folder / f"{chunks}.zarr"))


@pytest.mark.parametrize("chunks", [(64, 5), (1, 5), (10, 2), (37, 5), (100, 3), (1003, 1), (1002, 5), (5000, 5)])
def test_the_same_bytes_for_any_chunks(values, tmp_path, chunks):
    exchange = Exchange(str(tmp_path / "x"))
    memory = reduce_rows(RowSource(values.shape, values.dtype, array=values), sum_block, exchange)
    found = reduce_rows(zarr_source(values, tmp_path, chunks), sum_block, exchange)
    assert found["sum"].tobytes() == memory["sum"].tobytes()
    assert found["rows"] == N
    np.testing.assert_allclose(found["sum"], values.sum(axis=0, dtype="f8"))


@pytest.mark.parametrize("chunk", [10, 37, 100, 1003])
def test_a_task_reads_each_chunk_once(values, tmp_path, chunk, monkeypatch):
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


def test_windows_may_leave_gaps(values, tmp_path):
    source = zarr_source(values, tmp_path, (37, 2))
    blocks = list(row_blocks(source, [0, 1, 5, 15]))
    assert [block.start for block in blocks] == [0, 64, 320, 960]
    for block in blocks:
        np.testing.assert_array_equal(block.rows, values[block.start : block.stop])


def test_any_combination(values, tmp_path):
    source = RowSource(values.shape, values.dtype, array=values)
    found = reduce_rows(source, largest_block, Exchange(str(tmp_path)), combine=larger)
    np.testing.assert_array_equal(found["most"], values.max(axis=0))


def test_large_results_are_summed_over_more_rows(values):
    source = RowSource(values.shape, values.dtype, array=values)
    assert len(row_groups(source, 0)) == 16
    assert len(row_groups(source, 64 * D * 4)) == 2  # eight blocks behind a result as large as a block


def test_few_chunks_are_read_by_two_tasks(values, tmp_path):
    source = zarr_source(values, tmp_path, (37, D))
    assert len(task_runs(source, row_groups(source, 0))) == 16  # as many tasks as are worth it
    one = zarr_source(values, tmp_path, (1003, D))
    assert len(task_runs(one, row_groups(one, 0))) == 1


def test_every_offender_is_counted_and_the_first_are_named(values, tmp_path):
    values[[3, 700]] = np.nan
    values[1002, 4] = np.inf
    source = RowSource(values.shape, values.dtype, array=values)
    for propagates in (False, True):
        apart = rf"contains NaN: 2 of {N} rows do, .*rows \[3, 700\].*infinity: 1 of {N} rows do, .*rows \[1002\]"
        with pytest.raises(InputError, match=apart):
            reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True, propagates=propagates)


def test_large_finite_numbers_are_no_offenders(tmp_path):
    values = np.full((40, 2), 1e38, "f4")  # their squares overflow float32
    source = RowSource(values.shape, values.dtype, array=values)
    assert reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True)["rows"] == 40


def test_bad_weights_are_named(values, tmp_path):
    weights = np.ones(N)
    weights[[5, 80]] = -1, np.nan
    source = RowSource(
        values.shape, values.dtype, array=values, aligned={"weights": RowSource((N,), weights.dtype, array=weights)}
    )
    with pytest.raises(InputError, match=r"weights .* 2 of 1003 are not, the first of rows \[5, 80\]"):
        reduce_rows(source, sum_block, Exchange(str(tmp_path)), first=True)


def test_a_killed_pass_goes_on_with_what_is_missing(values, tmp_path, monkeypatch):
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


def test_rows_mapped_into_an_array(values, tmp_path):
    source = zarr_source(values, tmp_path, (37, 2))
    write_mapped(source, doubled_block, str(tmp_path / "out"), 2, "f8", factor=3.0)
    np.testing.assert_array_equal(read_array(tmp_path / "out"), values[:, :2].astype("f4") * 3.0)


def test_shapes_are_checked(values):
    source = RowSource(values.shape, values.dtype, array=values)
    assert checked_shape(source) == (N, D)
    with pytest.raises(InputError, match="minimum of 2"):
        checked_shape(replace(source, shape=(1, D)), at_least=2)
    with pytest.raises(InputError, match="weights have shape"):
        checked_shape(replace(source, aligned={"weights": RowSource((4,), np.dtype("f8"))}))
