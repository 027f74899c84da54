"""Sparse rows from memory, Dask and Zarr."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

from bigembed.errors import DamagedError, InputError, InputTypeError
from bigembed.rows.input import row_source
from bigembed.rows.sparse import SparseSource, held_source, stored, write_csr


@pytest.fixture
def matrix():
    return sparse.random(500, 40, density=0.1, random_state=0, format="csr", dtype="f4")


def dask_of(matrix, chunks):
    blocks = da.from_array(matrix.toarray(), chunks=chunks)
    return blocks.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=matrix.dtype))


@pytest.mark.parametrize("kind", ["csr", "csc", "group", "dask", "dask columns", "stored"])
def test_any_range_of_rows(matrix, kind, tmp_path):
    write_csr(tmp_path / "group", matrix)
    given = {
        "csr": matrix,
        "csc": matrix.tocsc(),
        "group": tmp_path / "group",
        "dask": dask_of(matrix, (77, 40)),
        "dask columns": dask_of(matrix, (499, 13)),
    }
    source = (
        stored(held_source(matrix), tmp_path / "parts")
        if kind == "stored"
        else row_source(given[kind], tmp_path, sparse=True)[0]
    )
    assert isinstance(source, SparseSource)
    assert source.entries == matrix.nnz
    for start, stop in ((0, 500), (76, 78), (499, 500), (10, 10)):
        found = source.matrix(start, stop)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.toarray(), matrix[start:stop].toarray())


def test_version_two_groups_are_read(matrix, tmp_path):
    group = zarr.open_group(str(tmp_path / "v2"), mode="w", zarr_format=2)
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [500, 40]})
    for name in ("indptr", "indices", "data"):
        array = group.create_array(
            name, shape=getattr(matrix, name).shape, chunks=(100,), dtype=getattr(matrix, name).dtype
        )
        array[...] = getattr(matrix, name)
    source, _ = row_source(tmp_path / "v2", tmp_path, sparse=True)
    np.testing.assert_array_equal(source.matrix(3, 300).toarray(), matrix[3:300].toarray())


def test_what_is_no_csr_group_is_refused(matrix, tmp_path):
    write_csr(tmp_path / "group", matrix)
    zarr.open_group(str(tmp_path / "group")).attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(InputError, match="tocsr"):
        row_source(tmp_path / "group", tmp_path, sparse=True)


def test_columns_out_of_range_are_damage(matrix, tmp_path):
    write_csr(tmp_path / "group", matrix)
    zarr.open_group(str(tmp_path / "group")).attrs["shape"] = [500, 30]
    source, _ = row_source(tmp_path / "group", tmp_path, sparse=True)
    with pytest.raises(DamagedError, match="out of range"):
        source.read(0, 500)


def test_methods_for_dense_rows_refuse_sparse_ones(matrix, tmp_path):
    write_csr(tmp_path / "group", matrix)
    for given in (matrix, tmp_path / "group", dask_of(matrix, (77, 40))):
        with pytest.raises(InputTypeError, match=r"dense|sparse"):
            row_source(given, tmp_path)


def test_blocks_and_fingerprint_follow_the_entries(matrix, tmp_path):
    source = held_source(matrix)
    assert source.block == held_source(matrix.tocsc()).block
    other = matrix.copy()
    other.data[0] += 1
    assert source.fingerprint() != held_source(other).fingerprint()
