"""Rows condensed to cells: what they add up to, how wide they are, and that nothing but the rows decides them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import bigembed as be
from bigembed.distance import every_squared
from bigembed.errors import InputError, InputTypeError, MissingPathError
from bigembed.neighbors import centers_compiled, nearest_centers
from bigembed.neighbors import condense as module
from bigembed.neighbors import partition as cells
from bigembed.neighbors.centers_compiled import TRIED, leading, nearest_grouped
from bigembed.neighbors.compiled import nearest
from bigembed.neighbors.condensed import Condensed
from bigembed.neighbors.partition import Cells, add_rows, begin_cells, leading_rows
from tests.blocks import blocks_of
from tests.digests import published
from tests.executors import Killed, executor, maps
from tests.some import a_few

N, D = 3_000, 4


@pytest.fixture
def waves() -> Iterator[None]:
    """Blocks of 200 rows, of which three make a wave."""
    with blocks_of(200), pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WAVE", 3)
        yield


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(30, D)) * 8
    return (centers[np.sort(rng.integers(30, size=N))] + rng.normal(size=(N, D))).astype(np.float32)


def agrees(found: Any, X: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Counts, means and radii are those of the rows of each cell."""
    w = np.ones(len(X)) if weights is None else weights
    cell, c, X = found.cell, len(found.counts), X.astype(np.float64)
    counts = np.bincount(cell, w, minlength=c)
    np.testing.assert_array_equal(found.counts, counts)
    assert found.counts.dtype == (np.int64 if weights is None else np.float64)
    means = np.stack([np.bincount(cell, w * column, minlength=c) for column in X.T], axis=1) / counts[:, None]
    np.testing.assert_allclose(found.rows, means, atol=2e-6 * np.abs(X).max())
    squared = ((X - means[cell]) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.radius, np.sqrt(np.bincount(cell, w * squared, minlength=c) / counts), atol=1e-6)
    counted = w > 0
    assert (np.sqrt(squared[counted]) <= found.reach[cell[counted]] + 1e-6).all()
    within = (w * squared).sum()
    assert found.totals["within_share"] == pytest.approx(within / (w @ (X - w @ X / w.sum()) ** 2).sum(), rel=1e-5)


@pytest.mark.parametrize("asked", [{"rows": 200}, {"radius": 1.5}])
def test_cells_are_the_rows_in_them(asked: dict[str, Any], rows: np.ndarray, waves: None) -> None:
    found = be.condense(rows, **asked, cell=True)
    agrees(found, rows)
    assert int(found.counts.sum()) == N
    if "rows" in asked:
        assert 180 <= len(found.counts) <= 260
        usual = np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert found.totals["rms_radius"] < 0.15 * usual
    else:
        assert found.reach.max() <= 2 * 1.5
        assert found.radius.max() <= 1.5
        wider = be.condense(rows, radius=3.0)
        assert len(wider.counts) < len(found.counts)
        assert wider.reach.max() > 3.0  # so that the bound is one


def test_the_same_bytes_however_rows_are_stored(rows: np.ndarray, tmp_path: Path, waves: None) -> None:
    one = zarr.create_array(str(tmp_path / "rows.zarr"), shape=rows.shape, chunks=(170, D), dtype="f4")
    one[...] = rows
    kinds = {"numpy": rows, "zarr": str(tmp_path / "rows.zarr"), "dask": da.from_array(rows, chunks=(431, D))}
    asked = {"rows": 150, "cell": True}
    made = []
    for name, X in kinds.items():
        be.condense(X, **asked, workdir=tmp_path / name)
        made.append(stored_bytes(tmp_path / name))
    with dask.config.set(scheduler="threads", num_workers=3):
        be.condense(rows, **asked, workdir=tmp_path / "threads")
    made.append(stored_bytes(tmp_path / "threads"))
    assert made[0] == made[1] == made[2] == made[3]
    be.condense(rows, **asked, random_state=1, workdir=tmp_path / "other")
    assert stored_bytes(tmp_path / "other") != made[0]


def stored_bytes(path: Path) -> dict[str, bytes]:
    found = Condensed.open(path)
    return {name: getattr(found, name).compute().tobytes() for name in ("rows", "counts", "radius", "reach", "cell")}


@pytest.mark.parametrize(
    "label", ["scatter_sample", "begin_group", "scatter_rows", "condense", "write_cells", "label_rows"]
)
@pytest.mark.parametrize("at", [1, 3])
def test_killed_it_goes_on_with_the_same_bytes(
    label: str, at: int, rows: np.ndarray, tmp_path: Path, waves: None
) -> None:
    if at > 1 and label not in ("scatter_rows", "condense", "label_rows"):
        pytest.skip("there is one such map")
    np.save(tmp_path / "rows.npy", rows)
    asked = {"X": tmp_path / "rows.npy", "rows": 150, "cell": True}
    run, whole = maps()
    with executor(run):
        be.condense(**asked, workdir=tmp_path / "whole")
    assert whole["scatter_rows"] == 5
    run, _ = maps(label, at)
    with executor(run), pytest.raises(Killed):
        be.condense(**asked, workdir=tmp_path / "killed")
    be.condense(**asked, workdir=tmp_path / "killed")
    assert published(tmp_path / "killed") == published(tmp_path / "whole")
    assert not list((tmp_path / "killed").glob("exchange/*"))


def test_weights_add_up(rows: np.ndarray, waves: None) -> None:
    """Cells of cells: counts of a condensed input are its weights."""
    weights = np.random.default_rng(1).integers(0, 4, N).astype(float)
    found = be.condense(rows, 200, weights=weights, cell=True)
    agrees(found, rows, weights)
    assert found.counts.sum() == weights.sum()
    twice = be.condense(found.rows, 20, weights=found.counts)
    assert twice.counts.sum() == weights.sum()
    np.testing.assert_allclose(twice.counts @ twice.rows, weights @ rows, rtol=1e-5)
    plain = be.condense(found.rows, 20)
    assert plain.counts.sum() == len(found.counts)


def test_few_distinct_rows_are_the_cells(rows: np.ndarray, waves: None) -> None:
    distinct, times = np.unique(rows[:90], axis=0), np.arange(1, 91)
    repeated = np.random.default_rng(2).permutation(np.repeat(distinct, times, axis=0))
    found = be.condense(repeated, 90)
    order = np.lexsort(found.rows.T[::-1])
    np.testing.assert_array_equal(found.rows[order], distinct)
    np.testing.assert_array_equal(found.counts[order], times)
    assert found.totals["rms_radius"] == 0
    alone = be.condense(rows[:50], 1_000)
    assert sorted(map(tuple, alone.rows.tolist())) == sorted(map(tuple, rows[:50].tolist()))
    constant = be.condense(np.ones((700, 2)), 9)
    assert (constant.rows.tolist(), constant.counts.tolist()) == ([[1.0, 1.0]], [700])
    column = np.column_stack([rows[:, 0], np.full(N, 3.0)])
    assert (be.condense(column, 40).rows[:, 1] == 3).all()


def test_rows_that_the_first_wave_has_not_seen_open_cells(waves: None) -> None:
    """Far from all cells, a row is a cell of its own: it is in none that is usual otherwise."""
    X = np.random.default_rng(3).normal(size=(2_000, 2)).astype(np.float32)
    X[-1] = [60, 60]
    found = be.condense(X, 100, cell=True)
    assert found.counts[found.cell[-1]] == 1
    assert np.sort(found.radius)[-1] < 1


@a_few(1, "weighted", [False, True])
def test_no_cell_is_empty(weighted: bool, waves: None) -> None:
    """Centers whose rows have gone to cells opened nearer to them are left out, and the numbers of cells close up."""
    X = np.random.default_rng(5).standard_t(1.5, size=(N, 2))
    X = X[np.argsort(np.abs(X).sum(axis=1))]  # (the last waves open cells)
    weights = np.random.default_rng(1).integers(0, 2, N).astype(float) if weighted else None
    w = np.ones(N) if weights is None else weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cells, "filled", lambda cells: cells)
        assert np.min(be.condense(X, 200, weights=weights).counts) == 0
    found = be.condense(X, 200, weights=weights, cell=True)
    there = found.cell >= 0
    assert (w[~there] == 0).all()
    assert found.counts.min() > 0
    np.testing.assert_array_equal(np.bincount(found.cell[there], w[there]), found.counts)
    sums = np.stack([np.bincount(found.cell[there], (w * column)[there]) for column in X.T], axis=1)
    np.testing.assert_allclose(found.rows * found.counts[:, None], sums, rtol=1e-6, atol=1e-6)
    chunked = be.condense(da.from_array(X, chunks=(431, 2)), 200, weights=weights, cell=True)
    for name in ("rows", "counts", "radius", "reach", "cell"):
        np.testing.assert_array_equal(np.asarray(getattr(chunked, name)), getattr(found, name))


def test_cosine_condenses_directions(rows: np.ndarray) -> None:
    length = np.random.default_rng(4).uniform(0.1, 9, N)[:, None]
    found = be.condense(rows.astype(float), 100, metric="cosine", cell=True)
    scaled = be.condense(rows * length, 100, metric="cosine", cell=True)
    np.testing.assert_array_equal(found.cell, scaled.cell)
    agrees(found, rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True))


def test_compiled_leaders_are_the_same(rows: np.ndarray) -> None:
    for most in (5, 10_000):
        np.testing.assert_array_equal(leading(rows, 4.0, most), leading_rows(rows, 4.0, most))


def test_groups_of_centers_hold_the_nearest() -> None:
    draw = np.random.default_rng(8)
    smooth = np.cumsum(draw.normal(size=(5_000, 3)), axis=0)
    grid = draw.integers(0, 9, (5_000, 3))  # most rows are as near to several centers
    labels = np.empty(5_000, np.int64)
    assert nearest_grouped(smooth, smooth[::17], labels) == 5_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(centers_compiled, "WORTH", 10.0)
        for given in (smooth.astype(np.float32), smooth, grid.astype(np.float32), 1e-22 * smooth.astype(np.float32)):
            centers = given[::17].copy()
            centers[5] = centers[100]
            assert nearest_grouped(given, centers, labels) == 5_000
            np.testing.assert_array_equal(labels, every_squared(given, centers).argmin(axis=1))
            assert (labels != nearest_centers(given, centers + np.abs(given).mean() / 4)).any()
    wide = draw.normal(size=(5_000, 40)).astype(np.float32)  # groups leave nothing out
    assert nearest_grouped(wide, wide[:200], np.empty(5_000, np.int64)) == TRIED
    np.testing.assert_array_equal(nearest(wide, wide[:200]), nearest_centers(wide, wide[:200]))


@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_sums_are_the_same(rows: np.ndarray, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    start = begin_cells(Cells.empty(D, np.float32, weighted), rows[:500], 40, None, [0])
    weights = np.random.default_rng(2).uniform(size=len(rows)) if weighted else None
    whole, labels = add_rows(start, rows, weights)
    monkeypatch.setattr(cells, "FEW_ROWS", 0)
    assert np.array_equal(
        begin_cells(Cells.empty(D, np.float32, weighted), rows[:500], 40, None, [0]).centers, start.centers
    )
    compiled, same = add_rows(start, rows, weights)
    np.testing.assert_array_equal(labels, same)
    for name in ("counts", "sums", "squares", "far"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(whole, name))


def test_batches_of_any_rows_find_the_same_cells(rows: np.ndarray) -> None:
    start = begin_cells(Cells.empty(D, np.float32, False), rows[:500], 40, None, [0])
    whole, _ = add_rows(start, rows[:2_000], None)
    parts, labels = start, []
    for low in range(0, 2_000, 500):
        parts, one = add_rows(parts, rows[low : low + 500], None)
        labels.append(one)
    assert whole.counts.sum() == parts.counts.sum() == 2_000
    np.testing.assert_allclose(parts.sums.sum(axis=0), whole.sums.sum(axis=0), atol=1e-2 * len(rows))
    assert (np.concatenate(labels) >= 0).all()


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({}, InputError, "is needed"),
        ({"rows": 5, "radius": 1.0}, InputError, "one alone"),
        ({"rows": 5, "metric": "manhattan"}, InputError, "'euclidean' and 'cosine'"),
        ({"rows": 5, "weights": -np.ones(N)}, InputError, "weights must be finite and nonnegative"),
        ({"rows": 5, "weights": np.zeros(N)}, InputError, "nothing to condense"),
        ({"rows": 0}, InputTypeError, "an integer ≥ 1"),
        ({"radius": -1.0}, InputTypeError, "a number > 0"),
    ],
)
def test_bad_input(given: dict[str, Any], kind: type[Exception], words: str, rows: np.ndarray) -> None:
    with pytest.raises(kind, match=words):
        be.condense(rows, **given)


def test_bad_rows(rows: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputTypeError, match="sparse"):
        be.condense(sparse.csr_array(rows), 5)
    wrong = rows.copy()
    wrong[7, 1] = np.nan
    with pytest.raises(InputError, match=r"rows \[7\]"):
        be.condense(wrong, 5)
    with pytest.raises(MissingPathError, match="no rows were condensed"):
        Condensed.open(tmp_path)
