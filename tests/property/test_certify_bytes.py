"""be.certify gives the same bytes on any scheduler, with any number of workers, for any chunking of both inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numba  # noqa: F401  (where it is loaded, it is used for fewer rows)
import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.quality.passes import COMPILED
from tests.blocks import blocks_for

N = 15_000
"""Rows: enough for compiled code."""


@pytest.fixture(scope="module")
def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Several canonical blocks of rows and of coordinates."""
    X = np.random.default_rng(0).normal(size=(N, 20)).astype(np.float32)
    X[::7] = np.round(X[::7])
    with blocks_for(N):
        yield X, X[:, :2] + np.float32(0.1)


def digest(X: Any, Y: Any) -> str:
    assert 60 * N * 20 >= COMPILED
    return json.dumps(be.certify(X, Y, samples=60, seed=3).as_dict())


@pytest.fixture(scope="module")
def wanted(rows: Any) -> str:
    with dask.config.set(scheduler="synchronous"):
        return digest(*rows)


def test_threads(rows: Any, wanted: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=3):
        assert digest(*rows) == wanted


@pytest.mark.parametrize("chunks", [((1, 7_333, 7_665, 1), -1), ((N,), -1), (1_999, 2)], ids=["ragged", "one", "few"])
def test_any_chunking_of_dask_arrays(rows: Any, wanted: str, chunks: Any) -> None:
    assert digest(*(da.from_array(part, chunks=chunks) for part in rows)) == wanted


def test_any_chunking_on_disk(rows: Any, wanted: str, tmp_path: Path) -> None:
    for name, part, size in zip("xy", rows, (1_191, 9_000), strict=True):
        array = zarr.create_array(str(tmp_path / name), shape=part.shape, chunks=(size, 2), dtype=part.dtype)
        array[...] = part
    assert digest(tmp_path / "x", tmp_path / "y") == wanted


@pytest.mark.cluster
def test_worker_processes(rows: Any, wanted: str, tmp_path: Path, client: Any) -> None:
    np.save(tmp_path / "x.npy", rows[0])
    assert digest(tmp_path / "x.npy", rows[1]) == wanted
