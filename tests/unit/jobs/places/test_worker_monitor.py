"""Which workers are taken for frozen, and what is reported and done then."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bigembed.errors import InterruptedRun
from bigembed.jobs.places import worker_monitor as module
from bigembed.jobs.places.worker_monitor import WorkerMonitor


class Watched(WorkerMonitor):
    """A monitor over two workers that are not there: their heartbeats and their processor time are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout: float = 40.0) -> None:
        self.clock, self.beats, self.times, self.asked, self.told = 0.0, {"a": 1.0, "b": 1.0}, {}, [], []
        monkeypatch.setattr(module.time, "monotonic", lambda: self.clock)
        client = type("Client", (), {"status": "running", "scheduler": type("S", (), {"restart_workers": None})})
        super().__init__(
            client, timeout, lambda event: self.told.append((event.results["worker"], event.results["state"]))
        )

    def _heartbeats(self) -> dict[str, float]:
        return dict(self.beats)

    def _used(self, worker: str) -> float | None:
        return self.times.get(worker)

    def _ask(self, what: object, **named: object) -> None:
        self.asked.append(named["workers"])

    def passes(self, seconds: float, step: float = 5.0, busy: str = "", lively: str = "b") -> None:
        """Time, with a look every step; ``lively`` sends heartbeats meanwhile, ``busy`` uses its processor."""
        for _ in range(round(seconds / step)):
            self.clock += step
            self.beats |= dict.fromkeys(lively, self.clock)
            self.times |= dict.fromkeys(busy, self.clock)
            self.look()


def test_a_silent_worker_is_reported_and_then_given_up(monkeypatch):
    watched = Watched(monkeypatch)
    watched.passes(10, lively="ab")
    watched.passes(5)
    assert watched.told == []
    watched.passes(10)
    assert watched.told == [("a", "silent")]
    assert watched.signs["a"].reported.endswith("Z")
    watched.passes(30)
    assert watched.told == [("a", "silent"), ("a", "given up")]
    assert watched.asked == [["a"]]
    del watched.beats["a"]
    watched.passes(60)
    assert len(watched.told) == 2
    assert len(watched.asked) == 1


def test_what_does_not_help_is_tried_again(monkeypatch):
    watched = Watched(monkeypatch)
    watched.passes(40 + module.RESTART + 60)
    assert watched.asked == [["a"], ["a"]]


def test_one_that_computes_without_heartbeats_is_alive(monkeypatch):
    watched = Watched(monkeypatch)
    watched.times["a"] = 0.0
    watched.passes(600, busy="a")
    assert (watched.told, watched.asked) == ([], [])
    watched.passes(600)  # and then it is stuck
    assert watched.told[:2] == [("a", "silent"), ("a", "given up")]


def test_one_that_comes_back_is_reported(monkeypatch):
    watched = Watched(monkeypatch)
    watched.passes(20)
    watched.passes(10, lively="ab")
    assert watched.told == [("a", "silent"), ("a", "back")]
    watched.passes(20)
    del watched.beats["a"]
    watched.passes(5)
    assert watched.told[2:] == [("a", "silent"), ("a", "gone")]
    assert watched.asked == []


def test_a_job_that_was_suspended_itself_accuses_nobody(monkeypatch):
    watched = Watched(monkeypatch)
    watched.passes(10, lively="ab")
    watched.clock += 3600
    watched.look()
    watched.passes(10, lively="ab")
    assert (watched.told, watched.asked) == ([], [])


def test_a_scheduler_that_does_not_answer_is_left_to_others(monkeypatch):
    watched = Watched(monkeypatch)

    def late() -> dict[str, float]:
        raise TimeoutError

    monkeypatch.setattr(watched, "_heartbeats", late)
    watched.passes(600)
    assert (watched.told, watched.asked) == ([], [])


def test_an_answer_that_never_comes_is_not_waited_for_where_the_cluster_is_gone(monkeypatch):
    """Such as results that are fetched while the scheduler is stopped: whoever waits looks, and gives up."""
    monkeypatch.setattr(module, "TICK", 0.02)
    loop, ended = asyncio.new_event_loop(), threading.Event()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    looks = []

    async def never() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise InterruptedRun("gone")

    client = type("Client", (), {"status": "running", "loop": type("Loop", (), {"asyncio_loop": loop})})
    with pytest.raises(InterruptedRun, match="gone"):
        WorkerMonitor(client, 40.0).awaited(never, look)
    assert ended.wait(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
    assert looks == [0, 1, 2]
