"""Stripes of a block on threads that are idle: their results in order, whoever took them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, BrokenBarrierError, get_ident
from typing import Any

import dask
import numpy as np
import pytest

from bigembed.blocks.rows import executor, threads
from bigembed.blocks.stripes import STRIPE, Crew, spread, stripes
from bigembed.blocks.vector_space import MemorySpace
from tests.executors import maps


def test_stripes_cover_the_rows() -> None:
    assert stripes(0) == [(0, 0)]
    assert stripes(2 * STRIPE + 5) == [(0, STRIPE), (STRIPE, 2 * STRIPE), (2 * STRIPE, 2 * STRIPE + 5)]


def test_an_idle_thread_helps_and_a_busy_one_does_not() -> None:
    crew, meeting = Crew(2), Barrier(2, timeout=20)

    def meet(place: int) -> tuple[int, int]:
        meeting.wait()  # (needs two threads)
        return place, get_ident()

    with crew():
        found = spread([partial(meet, place) for place in range(4)])
    assert [place for place, _ in found] == [0, 1, 2, 3]
    assert len({thread for _, thread in found}) == 2
    alone = Barrier(2, timeout=0.2)
    with crew(), ThreadPoolExecutor(1) as other:  # both threads have tasks
        task = crew()
        other.submit(task.__enter__).result()
        with pytest.raises(BrokenBarrierError):
            spread([alone.wait, alone.wait])
        other.submit(task.__exit__, None, None, None).result()
    crew.close()


def test_an_error_in_any_thread_is_raised() -> None:
    crew, meeting = Crew(2), Barrier(2, timeout=20)

    def fail(place: int) -> None:
        meeting.wait()
        raise ValueError(str(place))

    with crew(), pytest.raises(ValueError, match=r"[01]"):
        spread([partial(fail, place) for place in range(2)])
    crew.close()


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
