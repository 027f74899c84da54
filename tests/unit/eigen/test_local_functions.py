"""The functions on aggregates, by LAPACK called from compiled code: right in threads that share one heap."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bigembed.eigen.local_functions import lowest_beside

SHARED_HEAP = {"MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
"""What one thread frees the other one gets at once (of glibc)."""


def laplacian(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """I − D^{-1/2} A D^{-1/2} of a complete graph with random weights, and the vector that it maps to 0."""
    rng = np.random.default_rng(seed)
    weights = rng.random((int(rng.integers(20, 130)),) * 2)
    weights += weights.T
    degree = weights.sum(axis=1)
    unit = np.sqrt(degree / degree.sum())
    return np.eye(len(unit)) - weights / np.sqrt(np.outer(degree, degree)), unit


def wrong(calls: int) -> int:
    """Calls of two threads at a time whose vectors are not NumPy's."""
    cases = [laplacian(seed) for seed in range(20)]
    wanted = [np.linalg.eigh(matrix)[1][:, 1:5] for matrix, _ in cases]

    def differs(call: int) -> bool:
        (matrix, unit), vectors = cases[call % 20], wanted[call % 20]
        rows = np.empty((5, len(unit)))
        info = lowest_beside(matrix.copy(), unit, rows)
        return bool(info) or not np.abs(np.abs(rows[1:] @ vectors) - np.eye(4)).max() < 1e-8

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(differs, range(calls)))


def test_two_threads_find_what_numpy_finds():
    command = [sys.executable, "-c", f"from {__name__} import wrong; print(wrong(3000))"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | SHARED_HEAP)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stdout[-300:] + done.stderr[-300:]


def test_a_wrong_unit_vector_is_seen():
    matrix, unit = laplacian(0)
    rows = np.empty((5, len(unit)))
    lowest_beside(matrix.copy(), np.roll(unit, 1), rows)
    assert np.abs(np.abs(rows[1:] @ np.linalg.eigh(matrix)[1][:, 1:5]) - np.eye(4)).max() > 1e-4
