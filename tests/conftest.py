"""Cases of estimators, and a cluster of two worker processes that all tests of a process share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import dask
import pytest

from tests.blocks import on_workers
from tests.cases import CASES, Case


@pytest.fixture(params=CASES)
def case(request: Any) -> Case:
    """Each method and variant in turn."""
    return CASES[request.param]


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
