"""Stripes of a block on threads that are idle: their results in order, whoever took them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Barrier, BrokenBarrierError, get_ident
from typing import Any

import dask
import numpy as np
import pytest

from bigembed.runtime.blocks import executor, run_tasks, threads, ticking
from bigembed.runtime.local_pool import STRIPE, spread, stripes, working
from bigembed.store.vector_space import MemorySpace
from tests.executors import maps


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
                spread([alone.wait, alone.wait])
            met = not alone.broken
        meeting.wait()
        return met

    with working(2) as crew:
        found = spread([partial(meet, place) for place in range(4)])
        assert crew.run([partial(task, place) for place in range(2)]) == [True, False]
    assert [place for place, _ in found] == [0, 1, 2, 3]
    assert len({thread for _, thread in found}) == 2


def test_whoever_waits_for_a_task_helps_with_its_stripes_whichever_thread_has_it() -> None:
    meeting, begun = Barrier(2, timeout=20), Barrier(2, timeout=20)

    def task(place: int) -> int:
        begun.wait()
        if place:
            spread([meeting.wait, meeting.wait])  # (as soon as the other thread is done with its own task)
        return place

    with working(2) as crew:
        for _ in range(20):
            assert crew.run([partial(task, place) for place in range(2)]) == [0, 1]
            assert crew.run([partial(task, 1 - place) for place in range(2)]) == [1, 0]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_in_any_thread_is_raised_and_the_crew_goes_on(threads: int) -> None:
    begun: list[int] = []

    def fail(place: int) -> None:
        begun.append(place)
        raise ValueError(str(place))

    def task(place: int) -> None:
        spread([partial(fail, place) for place in range(100)])

    def heard(done: int) -> None:
        raise KeyError(done)

    with working(threads) as crew:
        for call in (fail, task):
            begun.clear()
            with pytest.raises(ValueError, match=r"\d"):
                crew.run([partial(call, place) for place in range(100)])
            assert len(begun) < 2 * threads
        with pytest.raises(KeyError, match="1"):
            crew.run([partial(abs, place) for place in range(-100, 0)], heard)
        assert crew.run([partial(abs, -place) for place in range(100)]) == list(range(100))


def thread_block(block: int) -> tuple[tuple[()], list[Any]]:
    return (), spread([partial(np.add, block, k) for k in range(3)])


@pytest.mark.parametrize("sizes", [(4,), (4, 2, 1)])
def test_sweeps_in_memory_spread_on_any_scheduler(sizes: tuple[int, ...]) -> None:
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=3):
            assert threads() == (3 if scheduler == "threads" else 1)
            found = MemorySpace(sizes=sizes).sweep(thread_block)
        assert found == [[block, block + 1, block + 2] for block in range(len(sizes))]
    with executor(maps()[0]):
        assert threads() == 1


def test_whoever_hears_of_tasks_hears_of_sweeps_in_memory() -> None:
    heard: list[tuple[str, int, int]] = []
    with ticking(lambda *said: heard.append(said)):
        MemorySpace(sizes=(4, 2, 1)).sweep(thread_block)
    assert heard == [("thread_block", done, 3) for done in (1, 2, 3)]


def test_maps_go_to_the_crew_where_dask_would_run_them_in_threads() -> None:
    def thread() -> int:
        return get_ident()

    with dask.config.set(num_workers=3):
        with working() as crew:
            found = set(run_tasks([thread] * 9, "thread"))
            assert found <= {helper.ident for helper in crew._helpers} | {get_ident()}
            assert len(crew._helpers) == 2
            with working() as same, working(2) as other:
                assert same is crew
                assert other is not crew
            with executor(maps()[0]), working():
                assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
        with dask.config.set(scheduler="synchronous"), working():
            assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
        assert get_ident() not in run_tasks([thread] * 9, "thread")


def test_an_interrupt_in_compiled_code_is_that_interrupt() -> None:
    def call(place: int) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    with working(2) as crew, pytest.raises(KeyboardInterrupt):
        crew.run([partial(call, place) for place in range(2)])
    with working(2) as crew, pytest.raises(SystemError, match="alone"):
        crew.run([partial(_raise, SystemError("alone")) for _ in range(2)])


def _raise(error: Exception) -> None:
    raise error
