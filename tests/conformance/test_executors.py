"""Every executor of block tasks: results in the order of the calls, errors of a call, progress, and where tasks are.

A new executor is a class here that inherits :class:`ExecutorContract` and says how it is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import dask
import numpy as np
import pytest
from distributed.protocol.pickle import dumps

from bigembed.errors import InputError
from bigembed.runtime import StageClock, using
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.runtime.executors import CurrentClient, DaskScheduler, LocalPool
from tests.integration import block_tasks as tasks


class ExecutorContract:
    """What every executor keeps; a subclass gives the fixture ``made``."""

    here = True
    """Whether tasks run in this process."""

    @pytest.fixture
    def made(self) -> Iterator[Any]:
        raise NotImplementedError

    @pytest.mark.parametrize("count", [0, 1, 50])
    def test_results_are_in_the_order_of_the_calls(self, made: Any, count: int) -> None:
        squares = [number * number for number in range(count)]
        assert made.run([partial(tasks.square, number) for number in range(count)], "square") == squares
        with using(executor=made):
            assert map_blocks(tasks.square, [(number,) for number in range(count)]) == squares

    def test_arguments_that_calls_have_in_common_are_sent_once(self, made: Any, monkeypatch: Any) -> None:
        sent: list[int] = []
        if isinstance(made, ClientExecutor):
            whole = made.client.map

            def weighed(*given: Any, **named: Any) -> Any:
                sent.extend(len(dumps(one)) for one in given[1])
                return whole(*given, **named)

            monkeypatch.setattr(made.client, "map", weighed)
        table = np.arange(50_000.0)
        with using(executor=made, clock=StageClock()):
            assert map_blocks(tasks.looked_up, [(number,) for number in range(30)], table=table) == [*range(30)]
            assert map_blocks(tasks.looked_up, [(7,)], table=table) == [7]
            given = {"table": table, "made": lambda entry: -int(entry)}  # (which pickle alone cannot send)
            assert map_blocks(tasks.looked_up, [(number,) for number in range(9)], **given) == [*range(0, -9, -1)]
        assert sum(sent) < 60_000 + table.nbytes  # (one call is sent with them; 30 copies would be 12 MB)

    def test_an_error_of_a_call_is_that_error_and_the_executor_goes_on(self, made: Any) -> None:
        with using(executor=made):
            with pytest.raises(InputError, match=r"block \d+ holds NaN"):
                map_blocks(tasks.wrong, [(number,) for number in range(20)])
            assert map_blocks(tasks.square, [(3,)]) == [9]

    def test_progress_rises_to_the_number_of_calls_and_changes_no_result(self, made: Any) -> None:
        heard: list[tuple[str, int, int]] = []
        found = made.run([partial(tasks.square, i) for i in range(9)], "square", lambda *counted: heard.append(counted))
        assert found == [number * number for number in range(9)]
        done = [one for _, one, _ in heard]
        assert done == sorted(done)
        assert {(label, total) for label, _, total in heard} <= {("square", 9)}
        assert done[-1:] == ([9] if self.here or isinstance(made, ClientExecutor) else [])

    def test_what_tasks_take_is_counted_where_they_run(self, made: Any) -> None:
        with using(executor=made, clock=(clock := StageClock())):
            map_blocks(tasks.pid, [(0.05,)] * 4)
            map_blocks(tasks.read, [(0.05,)] * 4)
        assert clock.seconds >= 0.4
        assert clock.seconds > clock.reading >= 0.2
        assert clock.threads == made.threads
        assert sum(clock.shares().values()) == pytest.approx(1, abs=0.003)

    def test_it_says_whether_tasks_are_in_this_process(self, made: Any) -> None:
        there = set(made.run([partial(tasks.pid, 0.0)] * 4, "pid"))
        assert made.in_this_process == self.here == (os.getpid() in there)
        assert len(there) == 1 or not self.here
        assert made.free_memory() is None
        assert made.threads >= len(there)
        assert made.pool is None or made.pool.run([partial(tasks.square, 3)], "") == [9]


class TestLocalPool(ExecutorContract):
    """Threads of this process; of one thread the calls are taken where they are handed over."""

    @pytest.fixture(params=[1, 3])
    def made(self, request: Any) -> Iterator[LocalPool]:
        with LocalPool(request.param) as pool:
            yield pool


class TestDaskInThisProcess(ExecutorContract):
    """Dask's schedulers of this process, with its threads or a pool of our own in their place."""

    @pytest.fixture(params=["synchronous", "threads", "threads that are lent"])
    def made(self, request: Any) -> Iterator[DaskScheduler]:
        name, *lent = request.param.split(" that ")
        with dask.config.set(scheduler=name, num_workers=3), DaskScheduler(lends_threads=bool(lent)) as found:
            yield found


@pytest.mark.cluster
class TestDaskClient(ExecutorContract):
    """Whatever client Dask has been given."""

    here = False

    @pytest.fixture
    def made(self, client: Any) -> Iterator[CurrentClient]:
        with CurrentClient(client) as found:
            yield found


@pytest.mark.cluster
class TestClientOfAJob(ExecutorContract):
    """The client of a job, who keeps few tasks in flight. What it does about workers that are lost: test_cluster.py."""

    here = False

    @pytest.fixture
    def made(self, client: Any) -> ClientExecutor:
        return ClientExecutor(client, 60)


def test_every_executor_is_here() -> None:
    """Those that the package has: a class with ``run``, ``free_memory`` and ``in_this_process``."""
    from bigembed.runtime import client_executor, executors

    asked = {"run", "free_memory", "in_this_process"}
    every = [one for module in (executors, client_executor) for one in vars(module).values() if isinstance(one, type)]
    found = {one for one in every if not getattr(one, "_is_protocol", False) and asked <= {*dir(one)}}
    assert found == {LocalPool, DaskScheduler, ClientExecutor, CurrentClient}
