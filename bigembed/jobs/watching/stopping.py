"""What stops a job before its end, in good order: a signal, or its deadline."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bigembed.errors import InterruptedRun
from bigembed.store.storage.lock import moment

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TOGETHER = 1.0
_stopped: list[str] = []
"""What stopped the job: kept for :func:`check`, since Python drops what is raised within a finalizer or a callback of
its garbage collection."""


class Stopped(BaseException):
    """Something asked the job to stop. Not an Exception, so that nothing on the way takes it for a failure."""


@contextmanager
def stoppable(output: str, deadline: float | None = None) -> Iterator[None]:
    """The first SIGTERM, SIGINT or SIGHUP, or the deadline, is :class:`InterruptedRun`; a later one acts at once.

    Signals within ``TOGETHER`` seconds are one: a queue signals every process of a job, and its script passes it on.
    ``deadline``: seconds since 1970. Outside of the main thread Python takes no signals; there the deadline counts
    where :func:`check` is called.
    """
    before: dict[int, Any] = {}
    why: list[str] = []
    over = threading.Event()

    def stop(number: int, frame: Any) -> None:
        over.set()  # (the deadline would be a second signal, which acts at once)
        first = time.monotonic()

        def again(number: int, frame: Any) -> None:
            if time.monotonic() - first > TOGETHER:
                _restore(before)
                signal.raise_signal(number)

        for signum in before:
            signal.signal(signum, again)
        cause = why[0] if why else signal.Signals(number).name
        _stopped.append(_message(output, cause))
        raise Stopped(_stopped[-1])

    main = threading.current_thread() is threading.main_thread()
    if main:
        for signum in SIGNALS:
            before[signum] = signal.signal(signum, stop)
    try:
        if deadline is None:
            yield
        else:
            check(output, deadline)
            with _timer(deadline, why, over, main):
                yield
    except Stopped as stopped:
        raise InterruptedRun(str(stopped)) from None
    finally:
        _stopped.clear()
        _restore(before)


def check(output: str, deadline: float | None) -> None:
    """Stop here if the deadline is over, or if a signal came and its exception was lost."""
    if _stopped:
        raise Stopped(_stopped[-1])
    if deadline is not None and time.time() >= deadline:
        raise Stopped(_message(output, _by(deadline)))


@contextmanager
def _timer(deadline: float, why: list[str], over: threading.Event, main: bool) -> Iterator[None]:
    """At the deadline, a signal to this process's main thread, as if somebody had sent it."""
    turn = threading.Lock()

    def ring() -> None:
        with turn:
            if not over.is_set():
                why.append(_by(deadline))
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    timer = threading.Timer(max(0.0, deadline - time.time()), ring)
    timer.daemon = True
    if main:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turn:
            over.set()


def _by(deadline: float) -> str:
    return f"its deadline, {moment(deadline)}"


def _message(output: str, cause: str) -> str:
    return f"{output}: stopped by {cause}. What is finished is kept; the same command goes on from there"


def _restore(handlers: dict[int, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)
