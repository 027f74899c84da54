"""An environment with nothing but what ``pip install bigembed`` brings: the main job, and each extra's error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {
    "rows.csv": "csv",
    "rows.parquet": "parquet",
    "rows.h5": "hdf5",
    "rows.h5ad": "anndata",
    "rows.nc": "netcdf",
    "s3://bucket/rows.zarr": "objects",
}


def run(*command: object, folder: Path, status: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=1200,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the repository, not only the package")
def test_without_extras_the_main_job_runs_and_each_missing_extra_is_named(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("bigembed", "workflows", "constraints"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.zarr", "*.png"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    run(sys.executable, "-m", "venv", "env", folder=tmp_path)
    python, command = tmp_path / "env/bin/python", tmp_path / "env/bin/bigembed"
    run(python, "-m", "pip", "install", "-q", "-c", "constraints/tested.txt", ".", folder=tree)
    installed = run(python, "-m", "pip", "list", "--format=freeze", folder=tmp_path).lower()
    for absent in ("anndata", "bokeh", "h5py", "netcdf4", "obstore", "pyarrow"):
        assert f"\n{absent}==" not in installed
    shutil.copy(ROOT / "workflows/quickstart.toml", tmp_path / "quickstart.toml")
    assert "converged" in run(command, "run", "quickstart.toml", folder=tmp_path)
    run(command, "verify", "quickstart.zarr", folder=tmp_path)
    run(command, "export", "quickstart.zarr", "coordinates.csv", folder=tmp_path)
    assert (tmp_path / "coordinates.csv").read_text().startswith("component,diffusionmap0,")
    for name, extra in OPTIONAL.items():
        if "://" not in name:
            (tmp_path / name).write_bytes(b"1,2\n")
        told = run(command, "ingest", name, "out.zarr", folder=tmp_path, status=2)
        assert f'pip install "bigembed[{extra}]"' in told
    told = run(command, "export", "quickstart.zarr", "coordinates.parquet", folder=tmp_path, status=2)
    assert 'pip install "bigembed[parquet]"' in told
    told = run(command, "run", "quickstart.toml", "--performance-report", "p.html", folder=tmp_path, status=2)
    assert 'pip install "bigembed[performance]"' in told
