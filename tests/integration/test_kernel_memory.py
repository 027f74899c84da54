"""Kernel PCA of more rows than the memory holds the kernel of: planned, and measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
[input]
dataset = "swiss_roll"
n = 20000
noise = 0.05
path = "rows.zarr"
[method]
name = "kernel_pca"
n_components = 3
gamma = 0.02
tol = 1e-4
[output]
path = "run.zarr"
model = "model.zarr"
[cluster]
workers = 1
memory = "900 MiB"
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_the_kernel_of_20_000_rows_is_never_held(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(tmp_path / "job.toml")], check=True, timeout=280)
    record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
    planned, measured = record["predicted"], record["measured"]
    kernel = 8 * 20_000**2
    assert measured["worker"] <= planned["worker"] < 900 << 20 < kernel
    assert measured["total"] <= planned["total"] < kernel
    assert record["certificate"]["converged"]
    assert record["certificate"]["passes"] <= 30
    assert (tmp_path / "model.zarr" / "model.json").exists()
