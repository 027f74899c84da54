"""Where temporary files lie, and a cluster of two worker processes that all tests of a process share."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import dask
import pytest

from tests.blocks import on_workers

MEMORY = "/dev/shm"
ROOM = 4 << 30


def pytest_configure() -> None:
    """Temporary files lie in memory where there is room for them: thousands of tests write and sync small files."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"], tempfile.tempdir = MEMORY, None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """The scheduler of this test, with the blocks of this process."""
    on_workers(cluster)
    with cluster.as_current(), dask.config.set(scheduler=cluster.get):
        yield cluster
