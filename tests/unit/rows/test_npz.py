"""Sparse rows of ``scipy.sparse.save_npz``: what a job and ``ingest`` read of them, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import DamagedError, InputError
from bigembed.jobs.run import run_job
from bigembed.rows.formats import ingest, npz, open_reader
from bigembed.rows.reader import Choice
from bigembed.rows.sparse import group_source
from bigembed.store import at
from bigembed.store.arrays import read_array
from tests.job_files import job_in

ROWS = sparse.csr_array(sparse.random_array((400, 30), density=0.1, rng=np.random.default_rng(0), dtype=np.float32))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few entries are many pieces."""
    monkeypatch.setattr(npz, "PIECE", 170)


def test_they_are_copied_sparse_or_dense(tmp_path: Path) -> None:
    for compressed in (True, False):
        sparse.save_npz(tmp_path / "rows.npz", ROWS, compressed=compressed)
        found = tmp_path / f"sparse-{compressed}.zarr"
        ingest(tmp_path / "rows.npz", found)
        assert (group_source(at(found)).matrix(0, 400) != ROWS).nnz == 0
    reader = open_reader(tmp_path / "rows.npz")
    for start, stop in ((0, 400), (37, 311), (399, 400)):
        whole = np.concatenate(list(reader.stream(start, stop)))
        np.testing.assert_array_equal(whole, ROWS[start:stop].toarray())
    ingest(tmp_path / "rows.npz", tmp_path / "dense.zarr", Choice(dense=True))
    np.testing.assert_array_equal(read_array(tmp_path / "dense.zarr"), ROWS.toarray())


def test_a_job_maps_them(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "rows.npz", ROWS)
    run_job(job_in(tmp_path, 'name = "truncated_svd"\nn_components = 2', source='path = "rows.npz"'))
    found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    np.testing.assert_allclose(found, be.TruncatedSVD(2).fit(ROWS).embedding_, atol=1e-6)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    sparse.save_npz(path, sparse.csc_array(ROWS))
    with pytest.raises(InputError, match=r"a matrix in csc format; rows are read of CSR. Save matrix\.tocsr\(\)"):
        ingest(path, tmp_path / "out")
    np.savez(path, a=np.ones((3, 2)))
    with pytest.raises(
        InputError, match=r"it holds a\.npy\. Compressed arrays cannot be read by blocks; save one with numpy\.save"
    ):
        ingest(path, tmp_path / "out")
    np.savez(path, format=b"csr", shape=[400], data=ROWS.data, indptr=ROWS.indptr, indices=ROWS.indices)
    with pytest.raises(InputError, match=r"shape \[400\]; rows must be a 2-dimensional array"):
        ingest(path, tmp_path / "out")
    sparse.save_npz(path, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=r"not readable as \.npz"):
        ingest(path, tmp_path / "out")
    parts = {"format": b"csr", "shape": [400, 30], "indptr": ROWS.indptr[:-1], "indices": ROWS.indices}
    np.savez(path, data=ROWS.data, **parts)
    with pytest.raises(DamagedError, match=r"indptr, indices, data do not fit each other and its shape \(400, 30\)"):
        ingest(path, tmp_path / "out")
    np.savez(path, data=ROWS.data, **parts | {"indptr": ROWS.indptr, "indices": ROWS.indices + 20})
    with pytest.raises(DamagedError, match="columns"):
        run_job(job_in(tmp_path, 'name = "truncated_svd"\nn_components = 2', source='path = "rows.npz"'))
