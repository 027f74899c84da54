"""Any layout on disk gives the same rows; ids against Python's own sets and dictionaries."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.errors import InputError
from bigembed.rows import RowSource, reader
from bigembed.rows.formats import copying as ids_module
from bigembed.rows.formats import open_reader
from bigembed.rows.formats.copying import check_ids, positions
from bigembed.rows.reader import TEXT, Choice, read_ranges

SHAPES = st.tuples(st.integers(1, 60), st.integers(1, 7))
NAMES = st.one_of(
    st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
)


def rows_of(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(shape).integers(-99, 99, shape).astype("f8")


def part_of(data: Any, n: int) -> tuple[int, int]:
    start = data.draw(st.integers(0, n - 1))
    return start, data.draw(st.integers(start + 1, n))


def held(names: list[Any]) -> RowSource:
    values = np.array(names, TEXT) if isinstance(names[0], str) else np.array(names, np.int64)
    return RowSource(values.shape, values.dtype, array=values)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 300), st.integers(1, 1 << 27))
def test_pieces_cover_a_range_once_and_cut_where_chunks_end(start: int, length: int, chunk: int, size: int) -> None:
    found = list(read_ranges(start, start + length, chunk, size))
    assert [row for low, high in found for row in range(low, high)] == list(range(start, start + length))
    fitting = max(1, reader.BLOCK_BYTES // size)
    if chunk <= 8 * fitting:
        assert all(high % chunk == 0 for _, high in found[:-1])
    assert max(high - low for low, high in found) <= max(fitting, min(chunk, 8 * fitting))


@given(SHAPES, st.data())
@settings(max_examples=20)
def test_hdf5_and_netcdf_of_any_chunks(shape: tuple[int, int], data: Any) -> None:
    h5py, netcdf = pytest.importorskip("h5py"), pytest.importorskip("netCDF4")
    rows, chunks = rows_of(shape), tuple(data.draw(st.integers(1, size)) for size in shape)
    start, stop = part_of(data, shape[0])
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(reader, "BLOCK_BYTES", data.draw(st.integers(1, 999))),
    ):
        with h5py.File(Path(folder) / "a.h5", "w") as file:
            file.create_dataset("rows", data=rows, chunks=chunks)
        with netcdf.Dataset(Path(folder) / "a.nc", "w") as file:
            for name, size in zip("nd", shape, strict=True):
                file.createDimension(name, size)
            file.createVariable("rows", "f8", ("n", "d"), chunksizes=chunks)[:] = rows
        for name in ("a.h5", "a.nc"):
            found = list(open_reader(Path(folder) / name).stream(start, stop))
            np.testing.assert_array_equal(np.concatenate(found), rows[start:stop])


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.data())
@settings(max_examples=20)
def test_fields_of_any_dimensions_by_points(sizes: list[int], data: Any) -> None:
    netcdf = pytest.importorskip("netCDF4")
    count = int(np.prod(sizes))
    fields = np.arange(2 * count, dtype="f8").reshape(2, *sizes)
    start, stop = part_of(data, count)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(reader, "BLOCK_BYTES", data.draw(st.integers(1, 99))),
    ):
        with netcdf.Dataset(Path(folder) / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
            names = [f"d{axis}" for axis in range(len(sizes))]
            for name, size in zip(names, sizes, strict=True):
                file.createDimension(name, size)
            for number in range(2):
                file.createVariable(f"v{number}", "f8", names)[:] = fields[number]
        found = list(open_reader(Path(folder) / "a.nc", Choice(array=("v0", "v1"))).stream(start, stop))
        np.testing.assert_array_equal(np.concatenate(found), fields.reshape(2, -1).T[start:stop])


@given(NAMES, st.integers(1, 7))
def test_repeated_ids_are_found_and_nothing_else(names: list[Any], piece: int) -> None:
    with mock.patch.object(ids_module, "PIECE", piece):
        if len(set(names)) == len(names):
            check_ids(held(names))
            return
        with pytest.raises(InputError, match=rf"^ids: {sum(names.count(one) > 1 for one in set(names))} of them"):
            check_ids(held(names))


@given(NAMES, st.randoms(use_true_random=False), st.integers(1, 7))
def test_the_row_of_each_name(names: list[Any], generator: Any, piece: int) -> None:
    names = list(dict.fromkeys(names))
    order = list(range(len(names)))
    generator.shuffle(order)
    wanted = held([names[row] for row in order])
    with mock.patch.object(ids_module, "PIECE", piece):
        found, absent = positions(held(names), wanted)
        assert (found.tolist(), absent) == (order, [])
        if len(names) > 1:
            others = [names[row] for row in order[:-1]] + [
                names[0] * 2 + type(names[0])(1) if isinstance(names[0], str) else 7
            ]
            if others[-1] not in names:
                found, absent = positions(held(names), held(others))
                assert (found.tolist(), absent) == ([*order[:-1], -1], [str(others[-1])])
