"""The same rows by their path, as lazy arrays of every kind, and sliced: the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import bigembed as be
from tests.blocks import FEW, blocks_for

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D = FEW + 3, 6
CUT = (slice(123, FEW - 124), slice(1, 5))
ROWS = (np.random.default_rng(0).normal(size=(N, D)) * 2.0 ** np.arange(D) + 5).astype("f4")


def digest(X: Any) -> str:
    """Of what one pass makes of the rows, of what many do, and of a graph of a few."""
    few = (be.open_array(X) if isinstance(X, str) else X)[:1500]
    pca, linearized, graph = be.PCA(2).fit(X), be.LinearizedDiffusionMap(2).fit(few), be.build_neighbor_graph(few, 4)
    parts = (pca.components_, np.asarray(pca.embedding_), np.asarray(linearized.embedding_), graph.to_scipy().data)
    return sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def small_blocks() -> Iterator[None]:
    with blocks_for(N):
        yield


@pytest.fixture(scope="module")
def wanted(small_blocks: None) -> tuple[str, str]:
    return digest(ROWS), digest(ROWS[CUT])


@pytest.fixture(scope="module", params=[(1_999, 6), (4_000, 4)])
def path(request: Any, tmp_path_factory: Any) -> str:
    place = str(tmp_path_factory.mktemp("rows") / "rows.zarr")
    stored = zarr.create_array(place, shape=ROWS.shape, chunks=request.param, dtype="f4")
    stored[...] = ROWS
    return place


def lazy(path: str) -> list[Any]:
    """The stored rows, and the same rows as something that has to be computed."""
    stored = [be.open_array(path), da.from_zarr(path), da.from_zarr(path, chunks=(2_345, 5))]
    return [*stored, da.from_zarr(path) + np.float32(0), da.concatenate([stored[0][:777], stored[0][777:]])]


def test_all_rows(path: str, wanted: tuple[str, str]) -> None:
    assert digest(path) == wanted[0]
    assert {digest(X) for X in lazy(path)} == {wanted[0]}


def test_slices(path: str, wanted: tuple[str, str]) -> None:
    assert {digest(X[CUT]) for X in lazy(path)[1:4]} == {wanted[1]}


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_workers(path: str, wanted: tuple[str, str], client: Any) -> None:
    assert digest(lazy(path)[3][CUT]) == wanted[1]
    assert digest(lazy(path)[3].persist()[CUT]) == wanted[1]
