"""Isomap by landmarks gives the same bytes on any scheduler and with any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import dask
import numpy as np
import pytest

import bigembed as be
from bigembed.datasets import dataset
from tests.blocks import FEW, blocks_for, on_workers

SIZES = [FEW, pytest.param(70_000, marks=pytest.mark.slow)]
"""Rows: more than one canonical block, of few rows or of the usual number."""


def digest(X: np.ndarray) -> str:
    found = be.Isomap(2, n_neighbors=8, solver="landmarks", n_landmarks=12).fit(X)
    assert len(found.graph_.matrix.rows) > 1
    parts = (np.asarray(found.embedding_), found.eigenvalues_, found.landmarks_, found.transform(X[:50]))
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module", params=SIZES)
def rows(request: Any) -> Iterator[np.ndarray]:
    with blocks_for(request.param):
        yield dataset("swiss_roll", n=request.param).rows(0, request.param)


@pytest.fixture(scope="module")
def wanted(rows: np.ndarray) -> str:
    with dask.config.set(scheduler="synchronous"):
        return digest(rows)


def test_threads(rows: np.ndarray, wanted: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=3):
        assert digest(rows) == wanted


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_worker_processes(rows: np.ndarray, wanted: str, client: Any) -> None:
    assert digest(rows) == wanted


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [1, 3])
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
