"""A cluster of two worker processes that the tests of this folder share: starting one costs more than most of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import dask
import pytest

from tests.blocks import on_workers


@pytest.fixture(scope="package")
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
