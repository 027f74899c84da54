"""What the time of a stage goes into: each part is counted once, in whichever thread or process, and they sum to 1."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from bigembed import runtime
from bigembed.runtime import PARTS, StageClock, reads, run_timed, using, writes
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.executors import DaskScheduler, LocalPool, run_on_idle_threads
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage, run_stages
from bigembed.store.arrays import read_array, write_array


class Time:
    """A clock that goes when it is told, each thread its own."""

    def __init__(self, monkeypatch):
        self.here = threading.local()
        monkeypatch.setattr(runtime, "time", SimpleNamespace(perf_counter=lambda: getattr(self.here, "now", 0.0)))

    def passes(self, seconds):
        self.here.now = getattr(self.here, "now", 0.0) + seconds


@pytest.fixture
def passing(monkeypatch):
    return Time(monkeypatch).passes


def test_a_task_reads_writes_and_computes(passing):
    @reads
    def read(seconds):
        passing(seconds)

    @writes
    def write(seconds):
        passing(seconds)
        read(10)  # (to write: not counted again)

    def task():
        read(2)
        passing(3)
        write(4)
        return "done"

    assert run_timed(task)[:4] == ("done", 19.0, 2.0, 14.0)
    assert run_timed(lambda: read(1))[:4] == (None, 1.0, 1.0, 0.0)


def test_what_fails_was_read_all_the_same(passing):
    @reads
    def read(seconds):
        passing(seconds)
        raise OSError

    def task():
        for _ in range(2):
            with suppress(OSError):
                read(1)

    assert run_timed(task)[1:4] == (2.0, 2.0, 0.0)


def test_the_parts_sum_to_one_and_waiting_is_what_is_left(passing):
    stage = StageClock(threads=2)
    stage.add(runtime.Timed(None, 6.0, 2.0, 1.0))
    stage.add(runtime.Timed(None, 5.0, 0.0, 2.0))
    passing(10)
    assert stage.shares() == {"computing": 0.3, "reading": 0.1, "writing": 0.15, "waiting": 0.45}


def test_threads_that_help_a_task_count_for_it():
    gate = threading.Barrier(2)

    def stripe():
        gate.wait(10)  # (both threads are at it)
        time.sleep(0.05)
        return threading.get_ident()

    stage = StageClock()
    with LocalPool(2) as pool, using(executor=pool, clock=stage):
        (threads,) = map_blocks(run_on_idle_threads, [([stripe, stripe],)])
    assert len(set(threads)) == 2
    assert stage.threads == 2
    assert stage.seconds > 0.1  # of both


def test_what_the_coordinating_process_does_by_itself_is_work_of_its_threads_and_workers_wait_for_it(passing):
    read = reads(passing)

    def shares(here):
        stage = StageClock(threads=2, here=here)
        with stage.mapping():
            passing(4)  # (it waits for its tasks)
        stage.add(runtime.Timed(None, 6.0, 1.0, 0.0))
        read(2)
        passing(4)
        return stage.shares()

    assert shares(True) == {"computing": 0.45, "reading": 0.15, "writing": 0.0, "waiting": 0.4}
    assert shares(False) == {"computing": 0.25, "reading": 0.05, "writing": 0.0, "waiting": 0.7}


def read_much(block, path):
    for _ in range(20):
        read_array(path)
    return block


@pytest.mark.parametrize(
    "made", [lambda: LocalPool(1), lambda: LocalPool(3), DaskScheduler, lambda: DaskScheduler(True)]
)
def test_every_executor_of_this_process_counts_its_tasks(tmp_path, made):
    write_array(tmp_path / "x", np.ones((4_000, 50)))
    stage = StageClock()
    with made() as executor, using(executor=executor, clock=stage):
        assert map_blocks(read_much, [(block, str(tmp_path / "x")) for block in range(6)]) == [*range(6)]
    assert stage.reading > 0.8 * stage.seconds > 0
    shares = stage.shares()
    assert [*shares] == [*PARTS]
    assert sum(shares.values()) == pytest.approx(1, abs=0.003)
    assert shares["reading"] > 5 * shares["computing"]


def test_nothing_is_counted_outside_of_a_stage(tmp_path):
    write_array(tmp_path / "x", np.ones((4, 5)))
    with LocalPool(2) as pool, using(executor=pool):
        assert map_blocks(read_much, [(3, str(tmp_path / "x"))]) == [3]


def test_a_stage_publishes_its_shares_and_says_them(tmp_path):
    write_array(tmp_path / "x", np.ones((4_000, 50)))
    events = []

    def work(context):
        map_blocks(read_much, [(block, str(tmp_path / "x")) for block in range(4)])
        time.sleep(0.2)
        return {}

    run = Run(tmp_path / "run")
    with using(observer=events.append):
        run_stages([Stage("work", (), {}, work)], run)
        run_stages([Stage("work", (), {}, work)], Run(tmp_path / "run"))
    shares = run.manifest("work").measured["shares"]
    assert sum(shares.values()) == pytest.approx(1, abs=0.003)
    assert shares["reading"] > 0
    assert shares["waiting"] > 0
    assert [event.shares for event in events if event.kind == "done"] == [shares]
