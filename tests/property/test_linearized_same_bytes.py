"""The linearized and nonnegative methods give the same bytes on any scheduler and for any chunking of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tests.blocks import FEW, blocks_for

SIZES = [FEW, pytest.param(140_000, marks=pytest.mark.slow)]
"""Rows: three canonical blocks, of few rows or of the usual number."""

METHODS: dict[str, Callable[[], Any]] = {
    "ldm": lambda: be.LinearizedDiffusionMap(3, alpha=0.5),
    "ldm_density": lambda: be.LinearizedDiffusionMap(3, epsilon="density", normalization="asymmetric"),
    "ldm_lanczos": lambda: be.LinearizedDiffusionMap(2, solver="lanczos"),
    "kernel_pca": lambda: be.LinearizedKernelPCA(3, epsilon="auto"),
    "nmf": lambda: be.NMF(2, max_iter=5),
    "kernel_nmf": lambda: be.LinearizedDiffusionNMF(2, max_iter=3),
}


@pytest.fixture(scope="module", params=SIZES)
def rows(request: Any) -> Iterator[np.ndarray]:
    found: np.ndarray = dataset("mixture", n=request.param, d=5, intrinsic=4).rows(0, request.param)
    with blocks_for(request.param):
        yield found - found.min()


@pytest.fixture(scope="module")
def stored(rows: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.zarr"
    array = zarr.create_array(str(path), shape=rows.shape, chunks=(999, 2), dtype=rows.dtype)
    array[...] = rows
    return path


def digest(method: str, X: Any, scheduler: str, workers: int = 1) -> str:
    with dask.config.set(scheduler=scheduler, num_workers=workers):
        fitted = METHODS[method]().fit(X)
        parts = np.asarray(fitted.embedding_), np.asarray(fitted.transform(np.asarray(X[:50])))
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@pytest.mark.parametrize("method", METHODS)
def test_same_bytes(method: str, rows: np.ndarray, stored: Path) -> None:
    n, wanted = len(rows), digest(method, rows, "synchronous")
    assert digest(method, rows, "threads", 3) == wanted
    assert digest(method, da.from_array(rows, chunks=((1, n // 2 - 1, n // 2 - 1, 1), (2, 3))), "threads", 2) == wanted
    assert digest(method, zarr.open_array(str(stored), mode="r"), "threads", 2) == wanted
    changed = rows.copy()
    changed[n // 2, 2] *= 1.5
    assert digest(method, changed, "synchronous") != wanted
