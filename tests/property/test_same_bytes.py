"""The same job gives the same bytes on any scheduler, with any number of workers, for any chunking of the input."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.datasets import dataset
from tests.blocks import FEW, blocks_for, on_workers

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
SIZES = [FEW, pytest.param(70_000, marks=pytest.mark.slow)]
"""Rows: more than one canonical block, of few rows or of the usual number."""


def digest(X: Any) -> str:
    dm = be.DiffusionMap(n_components=2, n_neighbors=6, tol=1e-3, components="largest").fit(X)
    assert len(dm.graph_.matrix.rows) > 1
    parts = (
        np.asarray(dm.embedding_),
        dm.eigenvalues_,
        np.asarray(dm.labels_),
        dm.transform(np.asarray(X[:50])),
    )
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module", params=SIZES)
def rows(request: Any) -> Iterator[np.ndarray]:
    with blocks_for(request.param):
        yield dataset("swiss_roll", n=request.param, noise=0.05).rows(0, request.param)


@pytest.fixture(scope="module")
def wanted(rows: np.ndarray) -> str:
    with dask.config.set(scheduler="synchronous"):
        return digest(rows)


def test_threads(rows: np.ndarray, wanted: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=3):
        assert digest(rows) == wanted


@pytest.mark.parametrize("kind", ["ragged", "one"])
def test_any_chunking_of_a_dask_array(rows: np.ndarray, wanted: str, kind: str) -> None:
    n = len(rows)
    chunks = {"ragged": ((1, n // 2, n - n // 2 - 2, 1), (2, 1)), "one": ((n,), (3,))}
    assert digest(da.from_array(rows, chunks=chunks[kind])) == wanted


def test_any_chunking_of_a_zarr_array(rows: np.ndarray, wanted: str, tmp_path: Path) -> None:
    array = zarr.create_array(str(tmp_path / "rows.zarr"), shape=rows.shape, chunks=(1_999, 2), dtype=rows.dtype)
    array[...] = np.asfortranarray(rows)
    assert digest(array) == wanted


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_worker_processes(rows: np.ndarray, wanted: str, client: Any) -> None:
    assert digest(rows) == wanted


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers(rows: np.ndarray, wanted: str, workers: int) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        on_workers(client)
        assert digest(rows) == wanted


def test_other_rows_give_other_bytes(rows: np.ndarray, wanted: str) -> None:
    assert digest(rows[::-1].copy()) != wanted
