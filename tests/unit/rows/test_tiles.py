"""Tiles of a square array: on one grid for any chunks, each chunk read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bigembed.rows import source as module
from bigembed.rows.source import RowSource, tiles
from bigembed.store.arrays import create_rows, write_rows

N = 90


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE_ROWS", 7)
    monkeypatch.setattr(module, "TILE_COLUMNS", 11)
    monkeypatch.setattr(module, "PANEL_BYTES", 30 * N * 4)


def square() -> np.ndarray:
    return np.random.default_rng(0).random((N, N), np.float32)


def stored(folder: Path, chunks: tuple[int, int]) -> RowSource:
    path = str(folder / f"{chunks[0]}-{chunks[1]}.zarr")
    zarr.create_array(path, shape=(N, N), chunks=chunks, dtype=np.float32)[...] = square()
    return RowSource((N, N), np.dtype(np.float32), path=path)


CHUNKS = [(1, N), (8, 8), (20, 33), (50, 50), (N, N), (N, 1), (13, N)]


@pytest.mark.parametrize("chunks", CHUNKS)
def test_the_grid_does_not_depend_on_the_chunks(chunks: tuple[int, int], tmp_path: Path) -> None:
    wanted = sorted(tiles(RowSource((N, N), np.dtype(np.float32), array=square()), 20, 61), key=lambda t: t[:2])
    found = list(tiles(stored(tmp_path, chunks), 20, 61))
    rebuilt = np.full((N, N), np.nan)
    for row, column, values in found:
        assert values.dtype == np.float64
        rebuilt[row : row + len(values), column : column + values.shape[1]] = values
    np.testing.assert_array_equal(rebuilt[20:61], square()[20:61])
    assert np.isnan(rebuilt[:20]).all()
    assert np.isnan(rebuilt[61:]).all()
    for here, there in zip(sorted(found, key=lambda t: t[:2]), wanted, strict=True):
        assert here[:2] == there[:2]
        np.testing.assert_array_equal(here[2], there[2])
    for order in (0, 1):  # of the same rows by column, of the same columns by row
        for start in {tile[order] for tile in found}:
            others = [tile[1 - order] for tile in found if tile[order] == start]
            assert others == sorted(others)


@pytest.mark.parametrize("chunks", [(20, 33), (50, 50), (13, N), (8, 8)])
def test_a_chunk_is_read_once(chunks: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stored(tmp_path, chunks)
    read: list[tuple[Any, Any]] = []
    window = RowSource.window

    def counted(self: RowSource, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
        if rows[0] < rows[1] and columns[0] < columns[1]:
            read.append((rows, columns))
        return window(self, rows, columns)

    monkeypatch.setattr(RowSource, "window", counted)
    list(tiles(source, 0, N))
    touched: dict[tuple[int, int], int] = {}
    for (a, b), (c, d) in read:
        for i in range(a // chunks[0], -(-b // chunks[0])):
            for j in range(c // chunks[1], -(-d // chunks[1])):
                touched[i, j] = touched.get((i, j), 0) + 1
    assert len(touched) == -(-N // chunks[0]) * -(-N // chunks[1])
    assert max(touched.values()) == 1


def test_shards_are_read_by_their_chunks(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.zarr")
    create_rows(path, (N, N), np.float32, 45)
    for start in (0, 45):
        write_rows(path, start, square()[start : start + 45])
    found = list(tiles(RowSource((N, N), np.dtype(np.float32), path=path), 0, N))
    assert sum(tile.values.size for tile in found) == N * N
