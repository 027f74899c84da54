"""What the levels over a coarse matrix take while they are made, measured in a process of its own, beside the plan."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from bigembed.linalg import coarse, multigrid

SIDE = 14


def grid(side: int) -> multigrid.BlockRows:
    """The Laplacian of a torus in four dimensions, one function a node: each touches 80 others."""
    places = np.arange(side**4, dtype=np.int32).reshape((side,) * 4)
    steps = product((-1, 0, 1), repeat=4)
    index = np.sort(np.stack([np.roll(places, step, range(4)).ravel() for step in steps], axis=1), axis=1)
    blocks = np.where(index == np.arange(side**4)[:, None], 80.001, -1.0).astype(np.float32) / 80
    pointer = np.arange(side**4 + 1) * index.shape[1]
    return multigrid.BlockRows(pointer, index.ravel(), blocks.reshape(-1, 1, 1), np.ones((side**4, 1)))


def held(name: str) -> int:
    """Bytes of this process, now (``VmRSS``) or at the most (``VmHWM``)."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def small() -> None:
    """Compiles; what that leaves in the heap would take in what is measured, were it not in a process of its own."""
    multigrid.multigrid(grid(6)).lowest(5, 0)


def peak(full: bool) -> tuple[int, int]:
    """Bytes that making the levels adds to the matrix, and entries of the second level. ``full``: with as many
    functions there as there are elsewhere."""
    if full:
        multigrid.affordable = lambda pairs, functions, most: functions  # type: ignore[assignment]
    small()
    rows = grid(SIDE)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = held("VmRSS")
    levels = multigrid.multigrid(rows).levels
    return held("VmHWM") - before, levels[1].rows.blocks.size


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is measured by Linux")
def test_levels_take_what_is_planned(monkeypatch):
    """Where many aggregates of one function touch many others, the next level has fewer functions; with all of them it
    would have several times the entries of the matrix."""
    rows = grid(SIDE)
    planned = coarse.held_by_levels(rows.blocks.size, rows.size)
    own = rows.blocks.nbytes + rows.index.nbytes + rows.pointer.nbytes
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.setenv(name, "65536")  # what is given back is taken anew, and so counted
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        fresh.submit(small).result()
        added, entries = fresh.submit(peak, False).result()
        control, many = fresh.submit(peak, True).result()
    assert entries <= rows.blocks.size
    assert 0.85 * planned < own + added <= 1.15 * planned
    assert many > 2 * rows.blocks.size
    assert own + control > 1.15 * planned
