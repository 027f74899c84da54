"""Every row source: any range of its rows, in pieces, in blocks, and in another process, whatever they are stored in.

A new kind of row source is a line of ``SOURCES``: how it is made of ``ROWS`` in a folder.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse

from bigembed.rows import MarkedRows, RowSource, row_blocks, rows_at, windows
from bigembed.rows.derived import MappedSource, RowNumbers, densified, written_rows
from bigembed.rows.growing import StoreRows
from bigembed.rows.input import HDF5Rows, StreamedRows, row_source
from bigembed.rows.labels import Labels, read_labels
from bigembed.rows.sparse import SparseSource, group_source, held_source, write_csr

N, D = 203, 5
ROWS = np.where(np.random.default_rng(0).random((N, D)) < 0.5, 0, np.random.default_rng(1).normal(size=(N, D)))
RANGES = [(0, N), (0, 1), (N - 1, N), (39, 41), (60, 143)]


def at_npy(folder: Path) -> RowSource:
    np.save(folder / "rows.npy", ROWS)
    return rows_at(folder / "rows.npy")


def at_zarr(folder: Path, rows: np.ndarray = ROWS) -> RowSource:
    zarr.create_array(str(folder / "rows.zarr"), data=rows, chunks=(40, 3))
    return rows_at(folder / "rows.zarr")


def in_window(folder: Path) -> RowSource:
    """Rows and columns of a larger array, as a slice of a Dask array of it gives them."""
    wide = np.pad(ROWS, ((7, 3), (2, 4)), constant_values=9)
    zarr.create_array(str(folder / "wide.zarr"), data=wide, chunks=(40, 3))
    return row_source(da.from_zarr(str(folder / "wide.zarr"))[7:-3, 2:-4], folder)[0]


def in_store(folder: Path) -> RowSource:
    found = at_zarr(folder, np.concatenate([np.full((11, D), 9.0), ROWS]))
    return StoreRows((N, D), found.dtype, path=found.path, offset=11, content="digest")


def at_hdf5(folder: Path) -> RowSource:
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("x", data=ROWS, chunks=(40, 3))
    return row_source(h5py.File(folder / "rows.h5", "r")["x"], folder)[0]


def in_groups(folder: Path) -> RowSource:
    """Sparse rows in two stored groups, one after the other."""
    cut = 90
    for name, part in (("a", ROWS[:cut]), ("b", ROWS[cut:])):
        write_csr(folder / name, sparse.csr_array(part))
    found = group_source(folder / "a")
    entries = int(np.count_nonzero(ROWS))
    return replace(found, shape=(N, D), parts=((str(folder / "a"), cut), (str(folder / "b"), N - cut)), entries=entries)


def doubled(block: Any) -> Any:
    return block.rows * 2


def mapped(folder: Path) -> RowSource:
    halves = RowSource((N, D), ROWS.dtype, array=ROWS / 2)
    return MappedSource((N, D), np.dtype(float), base=halves, function=doubled, stamp="doubled")


SOURCES: dict[str, Callable[[Path], RowSource]] = {
    "an array": lambda folder: RowSource((N, D), ROWS.dtype, array=ROWS),
    "npy": at_npy,
    "zarr": at_zarr,
    "a window": in_window,
    "a growing store": in_store,
    "rows of a stage": lambda folder: MarkedRows((N, D), ROWS.dtype, path=at_zarr(folder).path),
    "written rows": lambda folder: written_rows(str(at_zarr(folder).path), mapped(folder)),
    "Dask": lambda folder: row_source(da.from_array(ROWS, chunks=(40, 3)) + 0, folder)[0],
    "HDF5": at_hdf5,
    "CSR": lambda folder: held_source(sparse.csr_array(ROWS)),
    "CSR groups": in_groups,
    "mapped": mapped,
    "dense of CSR": lambda folder: densified(held_source(sparse.csr_array(ROWS))),
    "numbers": lambda folder: RowNumbers((N,), np.dtype(np.int64)),
    "labels": lambda folder: read_labels([f"class {number % 7}" for number in range(N)]),
}
CHUNKED = {"zarr": 0, "a window": 7, "a growing store": 11, "rows of a stage": 0, "written rows": 0, "Dask": 0}
"""Sources in chunks of 40 rows, and how many rows of the first chunk lie before theirs."""
EXPECTED: dict[str, np.ndarray] = {"numbers": np.arange(N), "labels": np.arange(N) % 7}
"""The rows of a source that does not hold ``ROWS``."""


def dense(rows: Any) -> np.ndarray:
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


def test_every_source_of_the_rows_is_here(tmp_path: Path) -> None:
    """Other rooms have sources of their own, which they test; those that only stand for rows in a plan hold none."""
    made = {type(make(tmp_path / str(number))) for number, make in enumerate(map(in_own_folder, SOURCES.values()))}
    assert made == {
        RowSource, MarkedRows, StreamedRows, HDF5Rows, SparseSource, MappedSource, RowNumbers, Labels, StoreRows,
        type(SOURCES["written rows"](folder_in(tmp_path / "w"))),
    }  # fmt: skip


def in_own_folder(make: Callable[[Path], RowSource]) -> Callable[[Path], RowSource]:
    return lambda folder: make(folder_in(folder))


def folder_in(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", SOURCES)
class TestRowSource:
    """What all of them keep."""

    @pytest.fixture
    def source(self, name: str, tmp_path: Path) -> RowSource:
        return SOURCES[name](tmp_path)

    @pytest.fixture
    def rows(self, name: str) -> np.ndarray:
        return EXPECTED.get(name, ROWS)

    def test_any_range_is_those_rows_at_once_in_pieces_and_for_a_task(self, source: RowSource, rows: Any) -> None:
        assert source.shape == rows.shape
        assert source.width == (rows.shape[1] if rows.ndim == 2 else 1)
        for start, stop in RANGES:
            expected = rows[start:stop]
            found = source.read(start, stop)
            assert found.dtype == source.dtype
            np.testing.assert_array_equal(dense(found), expected)
            np.testing.assert_array_equal(np.concatenate([*map(dense, source.stream(start, stop))]), expected)
            np.testing.assert_array_equal(dense(source.part(start, stop).read(start, stop)), expected)
        assert source.read(3, 3).shape == (0, *rows.shape[1:])
        if not source.sparse and rows.ndim == 2:
            np.testing.assert_array_equal(source.window((60, 143), (1, 4)), rows[60:143, 1:4])

    def test_rows_are_worked_on_in_one_dtype_and_row_by_row_in_memory(self, source: RowSource, rows: Any) -> None:
        found = source.matrix(60, 143)
        single = np.can_cast(source.dtype, np.float32, "safe")
        assert found.dtype == source.work == (np.float32 if single else np.float64)
        assert sparse.issparse(found) == source.sparse
        assert source.sparse or found.flags.c_contiguous
        np.testing.assert_array_equal(dense(found), rows[60:143])

    def test_consecutive_spans_and_canonical_blocks_are_all_rows_once(self, source: RowSource, rows: Any) -> None:
        spans = [(0, 25), (25, 26), (26, 120), (150, N)]
        for (start, stop), found in zip(spans, windows(source, spans), strict=True):
            np.testing.assert_array_equal(dense(found), rows[start:stop])
        blocks = list(row_blocks(source, range(-(-N // source.block))))
        np.testing.assert_array_equal(np.concatenate([dense(block.rows) for block in blocks]), rows)
        assert [block.start for block in blocks] == list(range(0, N, source.block))

    def test_what_is_decompressed_together_ends_at_its_boundaries(
        self, source: RowSource, name: str, rows: Any
    ) -> None:
        ends = [source.boundary(row) for row in range(N + 1)]
        assert ends == sorted(ends)
        assert all(row <= end <= N for row, end in enumerate(ends))
        assert ends[-1] == N
        assert max(b - a for a, b in zip([0, *ends], ends, strict=False)) <= source.grain
        if (before := CHUNKED.get(name)) is not None:
            assert ends == [min(N, -(-(row + before) // 40) * 40 - before) for row in range(N + 1)]
        if rows.ndim == 2 and not source.sparse:
            assert 1 <= source.chunks[0] <= max(N, source.grain)

    def test_it_goes_to_another_process_and_is_known_by_its_fingerprint(
        self, source: RowSource, name: str, rows: Any, tmp_path: Path
    ) -> None:
        there = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(dense(there.read(39, 41)), rows[39:41])
        assert source.fingerprint() == source.fingerprint() == there.fingerprint()
        weighted = replace(source, aligned={"weights": RowSource((N,), np.dtype(float), array=np.ones(N))})
        [block] = list(row_blocks(weighted, [0]))[:1]
        np.testing.assert_array_equal(block.weights, np.ones(len(dense(block.rows))))


def test_the_task_of_a_block_carries_the_groups_that_it_reads_not_those_of_all_blocks(tmp_path: Path) -> None:
    spans = [(start, min(start + 7, N)) for start in range(0, N, 7)]
    for number, (start, stop) in enumerate(spans):
        write_csr(tmp_path / str(number), sparse.csr_array(ROWS[start:stop]))
    parts = tuple((str(tmp_path / str(number)), stop - start) for number, (start, stop) in enumerate(spans))
    source = replace(in_groups(folder_in(tmp_path / "two")), parts=parts)
    for start, stop in (*spans, (5, 9), *RANGES):
        part = source.part(start, stop)
        touched = [one for one, (low, high) in zip(parts, spans, strict=True) if low < stop and start < high]
        assert list(part.parts) == touched
        assert (part.block, part.row_bytes, part.shape) == (source.block, source.row_bytes, source.shape)
        for low, high in ((start, stop), ((start + stop) // 2, stop), (stop, stop)):
            np.testing.assert_array_equal(dense(part.read(low, high)), ROWS[low:high])
            np.testing.assert_array_equal(dense(part.part(low, high).read(low, high)), ROWS[low:high])
    few, many = (len(pickle.dumps(replace(source, parts=some).part(0, 7))) for some in (parts[:2], parts))
    assert few == many
