"""Fits from Python on the current Dask client: workers that die, freeze, retire or are not there; clients in odd
places.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, worker_client

import bigembed as be
from bigembed.errors import BigembedWarning, ClusterError, InputError, InterruptedRun, PlanError
from bigembed.jobs.places.cluster import KEPT, LOST
from bigembed.runtime import using
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.client_executor import INLINE
from bigembed.runtime.executors import SETTINGS, CurrentClient, executor_now
from tests.blocks import blocks_of
from tests.integration import block_tasks as tasks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
FEW = "tests.integration.few_rows"
"""Of workers that are started anew, too: blocks of few rows."""
ROWS = np.random.default_rng(0).normal(size=(1500, 6)).astype(np.float32)


@contextmanager
def started(workers: int = 2, **options: Any) -> Iterator[Client]:
    """A cluster of the user's and its client, the current one of this context only."""
    asked = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None, "preload": [FEW], **options}
    with (
        dask.config.set({"distributed.admin.tick.interval": "500ms", LOST: KEPT}),
        LocalCluster(n_workers=workers, **asked) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        yield client


@pytest.fixture(scope="module")
def of_two() -> Iterator[Client]:
    with started() as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def few_rows_a_block() -> Iterator[None]:
    """Small blocks for all fits of this file: those in two threads at once cannot each set them back."""
    with blocks_of(300):
        yield


@pytest.fixture(scope="module")
def expected() -> bytes:
    with dask.config.set(scheduler="synchronous"):
        return fitted(ROWS)


def fitted(rows: Any, when: Callable[[], Any] | None = None, stage: str = "search", **parameters: Any) -> bytes:
    """The coordinates; ``when`` is called as a stage begins."""

    def observe(event: Any) -> None:
        if when is not None and (event.kind, event.stage) == ("start", stage):
            when()

    with using(observer=observe):
        found = be.DiffusionMap(2, n_neighbors=8, random_state=0, **parameters).fit(rows).embedding_
        return np.asarray(found).tobytes()


def test_a_fit_survives_a_worker_that_is_killed(of_two: Client, expected: bytes) -> None:
    def kill() -> None:
        os.kill(next(iter(of_two.run(os.getpid).values())), signal.SIGKILL)

    assert fitted(ROWS, kill) == expected


def test_passing_trouble_is_tried_again_and_ours_is_not(of_two: Client, tmp_path: Any) -> None:
    assert isinstance(executor_now(), CurrentClient)
    assert map_blocks(tasks.fail_twice, [(i,) for i in range(3)], folder=str(tmp_path)) == [0, 1, 2]
    with pytest.raises(InputError, match="Input X contains NaN: 1 of 1500 rows"):
        fitted(np.where(np.arange(1500)[:, None] == 7, np.nan, ROWS))


def test_a_lost_connection_to_the_scheduler_costs_no_more_than_its_tasks(of_two: Client) -> None:
    def lose() -> None:
        of_two.loop.add_callback(of_two.scheduler_comm.comm.abort)

    (timer := threading.Timer(0.7, lose)).start()
    found = map_blocks(tasks.square_beside, [(b,) for b in range(12)], pause=0.3, table=np.zeros(INLINE))
    timer.join()
    assert found == [b * b for b in range(12)]


@pytest.mark.parametrize("wrong", ["10min", -3, "soon"])
def test_a_wait_that_cannot_be_read_is_refused(of_two: Client, wrong: Any) -> None:
    with dask.config.set({SETTINGS[1]: wrong}), pytest.raises(InputError, match=r"bigembed.frozen-timeout .*'10m'"):
        fitted(ROWS)


def test_without_workers_a_fit_ends_and_says_what_to_do() -> None:
    with started(0) as client, dask.config.set({SETTINGS[0]: "1s"}):
        began = time.monotonic()
        with pytest.raises(ClusterError, match=r'no worker for 1 s .*Start workers, or wait.*"10m"') as raised:
            fitted(ROWS)
        assert time.monotonic() - began < 60
        assert client.scheduler.address in str(raised.value)


@pytest.mark.slow
def test_workers_that_always_die_are_an_error_of_ours() -> None:
    """In a cluster of its own: once, one of its workers was not there again a minute later."""
    with started(), pytest.raises(ClusterError, match=r"was given up: the workers that ran it died.*memory_limit"):
        map_blocks(tasks.die_always, [(1,)])


def test_a_cluster_that_is_closed_is_an_error_of_ours() -> None:
    with started() as client:
        timer = threading.Timer(1.0, client.close)
        timer.start()
        with pytest.raises(InterruptedRun, match=r"scheduler at tcp://127.* is gone.*call it again"):
            map_blocks(tasks.square, [(i, 0.2) for i in range(100)])
        timer.join()


@pytest.mark.slow
def test_an_asynchronous_client_is_refused_by_name_and_taken_in_a_thread(of_two: Client, expected: bytes) -> None:
    async def refused() -> bytes:
        async with Client(of_two.scheduler.address, asynchronous=True, set_as_default=False) as client:
            with client.as_current():
                with pytest.raises(ClusterError, match=r"asynchronous.*await asyncio.to_thread\(estimator.fit, X\)"):
                    fitted(ROWS)
                return await asyncio.to_thread(fitted, ROWS)

    assert asyncio.run(refused()) == expected


def fit_inside(rows: Any) -> bytes:
    return fitted(rows)


def fit_with_worker_client(rows: Any) -> bytes:
    with worker_client() as client, client.as_current():
        return fitted(rows)


@pytest.mark.parametrize("work", [fit_inside, pytest.param(fit_with_worker_client, marks=pytest.mark.slow)])
def test_a_fit_inside_a_task_takes_no_place_of_the_tasks_it_waits_for(work: Any, expected: bytes) -> None:
    with started(1) as client:
        assert client.submit(work, ROWS).result(timeout=200) == expected
        assert client.submit(tasks.square, 3).result(timeout=60) == 9


def test_a_fit_that_no_worker_can_hold_is_refused_before_it_begins(of_two: Client, tmp_path: Any) -> None:
    begun = tmp_path / "begun"
    rows = da.from_array(ROWS, chunks=500).map_blocks(touched, str(begun), dtype="f4", meta=ROWS[:0])
    wide = da.concatenate([rows] * 9000, axis=1)
    with started(1, memory_limit="400MiB") as client:
        client.wait_for_workers(1)
        with pytest.raises(PlanError, match=r"worker tcp.* would hold .*, 1 at a time; .* 380 MiB.*memory_limit"):
            be.PCA(2).fit(wide)
    assert not begun.exists()
    with blocks_of(300):
        be.PCA(2).fit(rows)  # (a control)
    assert begun.exists()


def test_workers_that_are_paused_are_not_waited_for_without_end() -> None:
    memory = {"pause": 0.02, "terminate": False, "spill": False, "target": False}  # (a bare worker holds more)
    settings = {SETTINGS[0]: "1s", **{f"distributed.worker.memory.{name}": share for name, share in memory.items()}}
    with dask.config.set(settings), started(1, memory_limit="1GiB") as client:
        for work in (partial(map_blocks, tasks.square, [(3,)]), partial(be.PCA(2).fit, da.ones((300, 3)) + 1)):
            while {about["status"] for about in client.scheduler_info(n_workers=-1)["workers"].values()} != {"paused"}:
                time.sleep(0.05)
            with pytest.raises(ClusterError, match=r"no worker (took a task )?for 1 s"):
                work()


def touched(block: Any, path: str) -> Any:
    open(path, "w").close()
    return block


def test_annotations_of_dask_hold_for_the_tasks(of_two: Client) -> None:
    first = next(iter(of_two.scheduler_info(n_workers=-1)["workers"]))
    with dask.annotate(workers=[first]):
        assert set(map_blocks(tasks.pid, [(0.01,)] * 20)) == {of_two.run(os.getpid)[first]}


@pytest.mark.parametrize("method", [be.PCA(3), be.LandmarkMDS(2, n_landmarks=150), be.DiffusionMap(2)], ids=repr)
def test_rows_of_many_columns_do_not_travel_with_the_tasks(of_two: Client, tmp_path: Any, method: Any) -> None:
    """Arrays go through the store: what is sent with the tasks of a map, Dask's graph, stays small."""
    rows, path = np.random.default_rng(0).normal(size=(400, 3_000)), str(tmp_path / "rows.npy")
    np.save(path, rows)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "200 kB"}), warnings.catch_warnings():
        warnings.filterwarnings("error", message="Sending large graph")
        warnings.simplefilter("ignore", BigembedWarning)
        method.fit(be.open_array(path))
        with pytest.warns(UserWarning, match="Sending large graph"):  # a control
            map_blocks(np.sum, [(rows,)])
