"""Jobs on the small method."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed.maps import REGISTRY
from tests.unit.jobs.small_method import NAME, PLACE


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The small method is known."""
    monkeypatch.setitem(REGISTRY, NAME, PLACE)


@pytest.fixture
def rows(tmp_path):
    """A .npy file of 3000 × 6 rows."""
    values = np.random.default_rng(0).normal(size=(3000, 6)).astype("f4")
    np.save(tmp_path / "rows.npy", values)
    return values


@pytest.fixture
def job(tmp_path):
    """A job of PCA on 200 × 3 rows."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(200, 3)))
    method = '[method]\nname = "pca"\nn_components = 2\n'
    (tmp_path / "job.toml").write_text(f'[input]\npath = "rows.npy"\n{method}[output]\npath = "run.zarr"\n')
    return tmp_path / "job.toml"


@pytest.fixture
def write_job(tmp_path):
    """Write a job file with the small method, and what follows it."""

    def write(method="", output="", cluster="", source='path = "rows.npy"', name="job.toml"):
        text = f'[input]\n{source}\n[method]\nname = "small"\n{method}\n[output]\npath = "run.zarr"\n{output}\n'
        (tmp_path / name).write_text(text + (f"[cluster]\n{cluster}\n" if cluster else ""))
        return tmp_path / name

    return write
