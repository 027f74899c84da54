"""Deadlines: how they are written, and that they stop a job as a signal does."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from datetime import datetime

import pytest

from bigembed.errors import InterruptedRun, JobError
from bigembed.jobs.units import parse_deadline
from bigembed.jobs.watching.status import Stopped, check, stoppable

NOON = datetime(2026, 11, 21, 12, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6h", 21600), ("45m", 2700), ("45min", 2700), ("1h30m", 5400), ("1d 2h", 93600), ("0.5h", 1800), ("90s", 90)],
)
def test_durations(text, seconds):
    assert parse_deadline(text, NOON) == NOON + seconds


@pytest.mark.parametrize(
    ("text", "hours"), [("12:30", 0.5), ("11:59", 23 + 59 / 60), ("6:30", 18.5), ("12:00:30", 30 / 3600), ("12:00", 24)]
)
def test_times_of_day_are_the_next_ones(text, hours):
    assert parse_deadline(text, NOON) == pytest.approx(NOON + 3600 * hours, abs=1e-3)


def test_dates():
    assert parse_deadline("2026-11-21T13:00", NOON) == NOON + 3600
    assert parse_deadline("1970-01-01T01:00:00+00:00", NOON) == 3600


@pytest.mark.parametrize("text", ["", "6", "6x", "h", "25:00", "tomorrow", "-5m", "1h 30", "2026-13-01"])
def test_what_is_no_deadline_is_refused(text):
    with pytest.raises(JobError, match="a duration such as"):
        parse_deadline(text, NOON)


def test_a_deadline_stops_what_waits(tmp_path):
    before, began = signal.getsignal(signal.SIGTERM), time.time()
    stopped = pytest.raises(InterruptedRun, match=r"stopped by its deadline, 20.*the same command goes on")
    with stopped, stoppable(tmp_path, began + 0.3):
        threading.Event().wait(20)
    assert 0.2 < time.time() - began < 10
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_deadline_that_is_over_starts_nothing(tmp_path):
    ran = []
    with pytest.raises(InterruptedRun, match="deadline"), stoppable(tmp_path, time.time() - 1):
        ran.append(1)
    assert not ran


def test_a_signal_is_told_by_its_name_although_there_is_a_deadline(tmp_path):
    with pytest.raises(InterruptedRun, match="stopped by SIGHUP"), stoppable(tmp_path, time.time() + 60):
        signal.raise_signal(signal.SIGHUP)


def test_a_signal_within_a_finalizer_is_not_lost(tmp_path, monkeypatch):
    class Closed:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("sys.unraisablehook", lambda lost: None)
    stopped = pytest.raises(InterruptedRun, match="stopped by SIGTERM")
    with stopped, stoppable(tmp_path):
        Closed()
        check("out", None)
    check("out", None)


def test_a_deadline_does_not_disturb_what_a_signal_is_stopping(tmp_path):
    @contextmanager
    def slow_to_close():
        try:
            yield
        finally:
            time.sleep(0.6)  # (SIGTERM would end this process now)

    stopped = pytest.raises(InterruptedRun, match="stopped by SIGINT")
    with stopped, stoppable(tmp_path, time.time() + 0.2), slow_to_close():
        signal.raise_signal(signal.SIGINT)


def test_what_ends_in_time_is_not_stopped(tmp_path):
    with stoppable(tmp_path, time.time() + 0.1):
        pass
    time.sleep(0.3)  # (a signal now would end this process)


def test_outside_of_the_main_thread_the_deadline_counts_between_tasks(tmp_path):
    caught = []

    def work():
        deadline = time.time() + 0.1
        try:
            with stoppable(tmp_path, deadline):
                for _ in range(200):
                    time.sleep(0.01)
                    check(tmp_path, deadline)
        except InterruptedRun as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert "deadline" in caught[0]
    with pytest.raises(Stopped):
        check(tmp_path, time.time() - 1)


def test_a_signal_that_comes_twice_is_one_and_a_later_one_acts_at_once(tmp_path, interruptible):

    @contextmanager
    def disturbed(pause):
        try:
            yield
        finally:
            time.sleep(pause)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(InterruptedRun, match="stopped by SIGTERM"), stoppable(tmp_path), disturbed(0.0):
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), stoppable(tmp_path), disturbed(1.1):
        signal.raise_signal(signal.SIGTERM)
