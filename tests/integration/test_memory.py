"""The memory of every process stays under the plan, and does not grow with the number of rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bigembed.maps.registry import REGISTRY
from tests.cases import sizes, write_job

JOB = """
[input]
dataset = "swiss_roll"
n = {n}
noise = 0.05
path = "rows.zarr"
[method]
name = "diffusion_map"
n_components = 2
n_neighbors = 10
tol = 1e-4
components = "largest"
[output]
path = "run.zarr"
[cluster]
workers = 2
memory = "1 GiB"
"""


def peaks(folder: Path, n: int) -> tuple[dict[str, int], dict[str, int], int]:
    """Planned and measured resident peaks of a whole job, and the vectors that the coordinating process holds."""
    folder.mkdir()
    (folder / "job.toml").write_text(JOB.format(n=n))
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(folder / "job.toml")], check=True, timeout=280)
    record = json.loads((folder / "run.zarr" / "job.json").read_text())
    assert "while the workers idle" in record["plan"]["vectors"]
    return record["predicted"], record["measured"], max(stage["held"] for stage in record["plan"]["stages"])


@pytest.mark.cluster
@pytest.mark.parametrize("n", [33_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_memory_is_planned_and_does_not_grow_with_the_rows(tmp_path: Path, n: int) -> None:
    small_plan, small, fewer = peaks(tmp_path / "small", n)
    large_plan, large, more = peaks(tmp_path / "large", 2 * n)
    assert small["total"] <= small_plan["total"]
    assert large["total"] <= large_plan["total"]
    rows_added = n * 3 * 4 + n * 2 * 8
    assert large["worker"] <= 1.15 * small["worker"]  # block sizes differ a little from one partition to the next
    assert large["total"] <= 1.15 * small["total"] + 8 * rows_added + more - fewer


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_memory_of_every_method_is_planned(tmp_path: Path, name: str, large: bool) -> None:
    job = write_job(tmp_path, name, sizes(name)[large])
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, timeout=280)
    record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
    assert {stage["name"] for stage in record["stages"]} >= set(record["keys"])
    for process, planned in record["predicted"].items():
        assert record["measured"][process] <= planned, process
    for stage in record["stages"]:
        assert stage["predicted_seconds"] > 0
        for process, held in stage["memory"].items():
            assert held <= record["predicted"][process], (stage["name"], process)
