"""Jobs on the small method."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed.maps import REGISTRY
from tests.job_files import job_file
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
    return job_file(tmp_path)


@pytest.fixture
def write_job(tmp_path):
    """Write a job file with the small method, and what follows it."""

    def write(method="", output="", cluster="", source='path = "rows.npy"', name="job.toml"):
        more = f"[cluster]\n{cluster}" if cluster else ""
        return job_file(tmp_path, f'name = "small"\n{method}', source, output, more, name=name)

    return write
