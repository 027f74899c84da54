"""Stripes of a block on threads that are idle: their results in order, whoever took them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Barrier, BrokenBarrierError, get_ident
from typing import Any

import dask
import numpy as np
import pytest

from bigembed.runtime.blocks import STRIPE, run_tasks, stripes
from bigembed.runtime.executors import LocalPool, chosen_executor, run_on_idle_threads
from bigembed.runtime.runtime import using
from bigembed.store.vector_space import MemorySpace
from tests.executors import executor, maps


def test_stripes_cover_the_rows() -> None:
    assert stripes(0) == [(0, 0)]
    assert stripes(2 * STRIPE + 5) == [(0, STRIPE), (STRIPE, 2 * STRIPE), (2 * STRIPE, 2 * STRIPE + 5)]


def test_an_idle_thread_helps_and_a_busy_one_does_not() -> None:
    meeting, alone = Barrier(2, timeout=20), Barrier(2, timeout=0.2)

    def meet(place: int) -> tuple[int, int]:
        meeting.wait()  # (needs two threads)
        return place, get_ident()

    def task(place: int) -> bool:
        meeting.wait()  # (both threads have tasks)
        met = True
        if place:
            with suppress(BrokenBarrierError):
                run_on_idle_threads([alone.wait, alone.wait])
            met = not alone.broken
        meeting.wait()
        return met

    with LocalPool(2) as pool, using(executor=pool):
        found = run_on_idle_threads([partial(meet, place) for place in range(4)])
        assert pool.run([partial(task, place) for place in range(2)], "") == [True, False]
    assert [place for place, _ in found] == [0, 1, 2, 3]
    assert len({thread for _, thread in found}) == 2


def test_whoever_waits_for_a_task_helps_with_its_stripes_whichever_thread_has_it() -> None:
    meeting, begun = Barrier(2, timeout=20), Barrier(2, timeout=20)

    def task(place: int) -> int:
        begun.wait()
        if place:
            run_on_idle_threads([meeting.wait, meeting.wait])  # (as soon as the other thread is done with its own task)
        return place

    with LocalPool(2) as pool, using(executor=pool):
        for _ in range(20):
            assert pool.run([partial(task, place) for place in range(2)], "") == [0, 1]
            assert pool.run([partial(task, 1 - place) for place in range(2)], "") == [1, 0]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_in_any_thread_is_raised_and_the_pool_goes_on(threads: int) -> None:
    begun: list[int] = []

    def fail(place: int) -> None:
        begun.append(place)
        raise ValueError(str(place))

    def task(place: int) -> None:
        run_on_idle_threads([partial(fail, place) for place in range(100)])

    def heard(label: str, done: int, total: int) -> None:
        if done:
            raise KeyError(done)

    with LocalPool(threads) as pool, using(executor=pool):
        for call in (fail, task):
            begun.clear()
            with pytest.raises(ValueError, match=r"\d"):
                pool.run([partial(call, place) for place in range(100)], "")
            assert len(begun) < 2 * threads
        with pytest.raises(KeyError, match="1"):
            pool.run([partial(abs, place) for place in range(-100, 0)], "", heard)
        assert pool.run([partial(abs, -place) for place in range(100)], "") == list(range(100))


def thread_block(block: int) -> tuple[tuple[()], list[Any]]:
    return (), run_on_idle_threads([partial(np.add, block, k) for k in range(3)])


@pytest.mark.parametrize("sizes", [(4,), (4, 2, 1)])
def test_sweeps_in_memory_spread_on_any_scheduler(sizes: tuple[int, ...]) -> None:
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=3):
            with chosen_executor() as chosen:
                assert (chosen.pool.count if chosen.pool else 1) == (3 if scheduler == "threads" else 1)
            found = MemorySpace(sizes=sizes).sweep(thread_block)
        assert found == [[block, block + 1, block + 2] for block in range(len(sizes))]
    with executor(maps()[0]), chosen_executor() as chosen:
        assert (chosen.pool.count if chosen.pool else 1) == 1


def test_whoever_hears_of_tasks_hears_of_sweeps_in_memory() -> None:
    heard: list[tuple[str, int, int]] = []
    with using(progress=lambda *counted: heard.append(counted)):
        MemorySpace(sizes=(4, 2, 1)).sweep(thread_block)
    assert heard == [("thread_block", done, 3) for done in (1, 2, 3)]


def test_maps_go_to_a_pool_where_dask_would_run_them_in_threads() -> None:
    def thread() -> int:
        return get_ident()

    with dask.config.set(num_workers=3):
        with chosen_executor() as chosen:
            assert chosen.pool.count == 3
            assert get_ident() not in run_tasks([thread] * 9, "thread")
            with chosen_executor() as same, using(executor=LocalPool(2)), chosen_executor() as other:
                assert same is chosen
                assert other is not chosen
            with executor(maps()[0]), chosen_executor():
                assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
        with dask.config.set(scheduler="synchronous"), chosen_executor():
            assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
        assert get_ident() not in run_tasks([thread] * 9, "thread")


def test_an_interrupt_in_compiled_code_is_that_interrupt() -> None:
    def call(place: int) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    with LocalPool(2) as pool, using(executor=pool), pytest.raises(KeyboardInterrupt):
        pool.run([partial(call, place) for place in range(2)], "")
    with LocalPool(2) as pool, using(executor=pool), pytest.raises(SystemError, match="alone"):
        pool.run([partial(_raise, SystemError("alone")) for _ in range(2)], "")


def _raise(error: Exception) -> None:
    raise error
