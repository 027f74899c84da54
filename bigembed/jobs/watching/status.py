"""How a job stands, in ``status.json``, and what stops it before its end in good order."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Self

from bigembed import errors
from bigembed.errors import BigembedError, DamagedError, InterruptedRun, LockedError, MissingPathError
from bigembed.jobs import size
from bigembed.jobs.places import redacted
from bigembed.runtime import Event, moment
from bigembed.runtime.outages import stores
from bigembed.store import CLOSED, FULL, AnyPath, at, files, free_bytes, locks, nearest_folder, objects

# -------------------------------------------------------------------------------------------------------- stopping
# What stops a job before its end, in good order: a signal, or its deadline.

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TOGETHER = 1.0
_late: list[float] = []
"""The deadline that has signalled this process: whichever handler takes the signal, of a command within another."""
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
    turn, over = threading.Lock(), threading.Event()

    def stop(number: int, frame: Any) -> None:
        over.set()  # (the deadline would be a second signal, which acts at once)
        stores.hurried = True
        first = time.monotonic()

        def again(number: int, frame: Any) -> None:
            if time.monotonic() - first > TOGETHER:
                _restore(before)
                signal.raise_signal(number)

        for signum in before:
            signal.signal(signum, again)
        _stopped.append(_message(output, _late[0] if _late else signal.Signals(number).name))
        raise Stopped(_stopped[-1])

    def ring() -> None:
        """At the deadline, a signal to this process's main thread, as if somebody had sent it."""
        with turn:
            if not over.is_set():
                _late.append(deadline or 0.0)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    timer = threading.Timer(max(0.0, (deadline or 0.0) - time.time()), ring)
    timer.daemon = True
    main, hook = threading.current_thread() is threading.main_thread(), sys.unraisablehook
    if main:
        sys.unraisablehook = partial(_unsaid, hook)
    try:
        for signum in SIGNALS if main else ():
            before[signum] = signal.signal(signum, stop)
        check(output, deadline)
        if main and deadline is not None:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with turn:
                over.set()
    except Stopped as stopped:
        raise InterruptedRun(str(stopped)) from None
    except errors.UnreachableError:
        if not _stopped:
            raise
        raise InterruptedRun(_stopped[-1]) from None  # (what could not be written any more)
    finally:
        stores.hurried = False
        _stopped.clear()
        _late.clear()
        _restore(before)
        if main:
            sys.unraisablehook = hook


def _unsaid(hook: Callable[[Any], Any], lost: Any) -> None:
    """Print nothing of a signal whose exception Python drops: it stops the job all the same."""
    if lost.exc_type is not Stopped:
        hook(lost)


@contextmanager
def writing(output: str) -> Iterator[None]:
    """Around a command that writes an output, without a run: a signal stops it, and a full disk is named."""
    with stoppable(output), naming_full_disk(lambda error: full_disk(error, output)):
        yield


@contextmanager
def naming_full_disk(said: Callable[[OSError], str]) -> Iterator[None]:
    """:class:`FullDiskError`, with what is ``said`` of it, where a disk takes no more."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BigembedError) or error.errno not in FULL:
            raise
        raise errors.FullDiskError(said(error)) from error


def full_disk(error: OSError, output: str, planned: str = "") -> str:
    """Say in words which disk takes no more, and what to do."""
    where = str(error.filename or output)
    free = size(free_bytes(nearest_folder(at(where))))
    return (
        f"{where}: the disk is full ({error.strerror}); {planned}{free} are free now. Free some, or put the output on "
        "a larger disk; what is finished is kept, and the same command goes on"
    )


def check(output: str, deadline: float | None) -> None:
    """Stop here if the deadline is over, or if a signal came and its exception was lost."""
    if _stopped:
        raise Stopped(_stopped[-1])
    if deadline is not None and time.time() >= deadline:
        raise Stopped(_message(output, deadline))


def _message(output: str, cause: str | float | None) -> str:
    why = cause if isinstance(cause, str) else f"its deadline, {moment(cause or 0.0)}"
    return f"{output}: stopped by {why}. What is finished is kept; the same command goes on from there"


def _restore(handlers: dict[int, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


# ---------------------------------------------------------------------------------------------------------- status
# How a job stands: ``status.json``, written atomically from its start to its end, and the exit statuses.
#
# What schedulers and people look at while the job runs, and after it failed: ``state`` (``planned``, ``running``,
# ``interrupted``, ``failed``, ``done``), the stage in work and the blocks done of it, since when, by whom, until
# when, and the error with its exit status.

NAME = "status.json"
KEPT_OUTAGES = 20
"""The last outages of object stores that it tells of."""
KEPT_WARNINGS = 50
"""The last warnings that it has."""
SECONDS = 2.0
"""Between two writings of the progress of a stage."""
BAD_INPUT = (errors.InputError, errors.InputTypeError, MissingPathError, errors.ExistingOutputError, errors.JobError)
FRUITLESS = 3
"""Starts in a row that were stopped and have left nothing new, after which the next one is not worth it."""
STATUS: Mapping[int, tuple[type[BaseException], ...]] = {
    9: (errors.MovedError,),
    8: (errors.StalledRun,),
    5: (InterruptedRun, errors.UnreachableError, KeyboardInterrupt, Stopped),
    4: (LockedError,),
    3: (errors.PlanError, MemoryError),
    6: (DamagedError,),
    2: (*BAD_INPUT, errors.WorkerAccessError, errors.StoreAccessError),
}
"""Errors by exit status, the first that fits; of all others it is 1."""


def status_of(error: BaseException) -> int:
    """Return the exit status of an error; of a folder that is closed that of input."""
    own = next((status for status, kinds in STATUS.items() if isinstance(error, kinds)), 1)
    closed = isinstance(error, OSError) and not isinstance(error, BigembedError) and error.errno in CLOSED
    return 2 if closed else own


def storage_advice(error: BaseException) -> str:
    """Return what to do about an error of the operating system that a full disk or a closed folder gives; of others
    nothing.

    >>> storage_advice(OSError(28, "No space left on device", "run.zarr"))[:20]
    'The disk is full. Fr'
    """
    code = error.errno if isinstance(error, OSError) else None
    if code in FULL:
        return "The disk is full. Free some of it, or put the output on another one; the same command goes on"
    if code == errno.EROFS:
        return "It may not be written there. Choose another output path"
    if code in CLOSED:
        return "It may not be read, or may not be written there. Change the permissions, or choose another path"
    return ""


def outcome(error: BaseException | None) -> str:
    """Return the state in which a job ends."""
    return "done" if error is None else "interrupted" if status_of(error) == 5 else "failed"


class Status:
    """Around a job that holds its output: keeps ``status.json`` true, also of how it ended."""

    def __init__(self, path: AnyPath, owner: locks.Owner, deadline: float | None = None) -> None:
        self.path = path
        self.value: dict[str, Any] = {
            "state": "planned",
            "stage": None,
            "label": None,
            "done": 0,
            "total": None,
            "stages": [],
            "finished_stages": [],
            "remaining_seconds": None,
            "frozen": [],
            "outages": [],
            "warnings": [],
            "shares": {},
            "owner": owner.about(),
            "started": moment(time.time()),
            "deadline": None if deadline is None else moment(deadline),
            "error": None,
            **_kept(path),
        }
        self._written = 0.0
        self._began = False
        self._turn = threading.RLock()  # (who waits for the store of this file hears of it in the same thread)

    def __enter__(self) -> Self:
        self.write()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        state = outcome(error)
        if error is None:
            idle = {"remaining_seconds": None, "stage": None, "label": None, "done": 0, "total": None}
            self.write(state=state, last_success=moment(time.time()), **idle)
            return
        message = redacted(str(error)) or type(error).__name__
        found = {"status": status_of(error), "kind": type(error).__name__, "message": message}
        with suppress(errors.UnreachableError) if stores.hurried else nullcontext():
            self.write(state=state, error=found)

    @contextmanager
    def fruitful(self, left: Callable[[], str]) -> Iterator[None]:
        """Around the work of a run: :class:`StalledRun` where it was stopped often, and left nothing new.

        ``left`` says by a digest what there is for the next start to go on from.
        """
        try:
            yield
        except Stopped as stopped:
            known, now = self.value["left"], left()
            fruitless = int(self.value["fruitless"] or 0) + 1 if now == known else 0
            self.value |= {"left": now, "fruitless": fruitless}
            if fruitless >= FRUITLESS:
                message = (
                    f"{stopped}. But {fruitless} starts in a row have left nothing new: the window is shorter than a "
                    f"block of stage {self.value['stage']!r} takes, or than the workers take to start. Give more time"
                )
                raise errors.StalledRun(message) from None
            raise
        else:
            self.value |= {"left": None, "fruitless": None}

    def warning(self, message: Any, category: type[Warning]) -> None:
        """A warning of this start."""
        self._begin()
        said = {"category": category.__name__, "message": redacted(str(message))}
        self.write_soon(warnings=[*self.value["warnings"], said][-KEPT_WARNINGS:])

    @property
    def warned(self) -> Mapping[str, int]:
        """How many warnings there are of each category."""
        return Counter(one["category"] for one in self.value["warnings"])

    def _begin(self) -> None:
        """Forget the warnings of the start before this one, which has something to do."""
        if not self._began:
            self._began, self.value["warnings"] = True, []

    def event(self, event: Event) -> None:
        """A stage starts or ends; a worker gives no sign of life, or is given up; an object store is away or back."""
        if event.kind == "start":
            self._begin()
            self.write(state="running", stage=event.stage, label=None, done=0, total=None)
        elif event.kind in ("done", "reused"):
            finished = [*self.value["finished_stages"], event.stage]
            shares = {**self.value["shares"], **({event.stage: dict(event.shares)} if event.shares else {})}
            self.write(state="running", stage=event.stage, finished_stages=finished, shares=shares)
        elif event.kind == "worker":
            others = [known for known in self.value["frozen"] if known["worker"] != event.results["worker"]]
            self.write(frozen=[*others, dict(event.results)])
        elif event.kind == "store":
            times = {name: event.results[name] for name in ("since", "until", "ended")}
            outage = {**event.results, **{name: one and moment(one) for name, one in times.items()}}
            others = [known for known in self.value["outages"] if known["ended"] or known["store"] != outage["store"]]
            self.write_soon(outages=[*others, outage][-KEPT_OUTAGES:])

    def progress(self, label: str, done: int, total: int) -> None:
        """Blocks of the stage in work; written now and then."""
        self.value |= {"label": label, "done": done, "total": total}
        if time.monotonic() - self._written > SECONDS:
            self.write_soon()

    def write_soon(self, **changes: Any) -> None:
        """Write the file as :meth:`write`, but wait for no store that is away: it gets these entries with the next."""
        self.value |= changes
        away = isinstance(self.path, objects.ObjectPath) and self.path.root in stores.away
        if away or not self._turn.acquire(blocking=False):  # (or it is being written, maybe since long)
            return
        try:
            with suppress(errors.UnreachableError), stores.without_waiting():
                self.write()
        finally:
            self._turn.release()

    def write(self, **changes: Any) -> None:
        """Write the file, with these entries changed."""
        with self._turn:
            self.value |= {**changes, "updated": moment(time.time())}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._put()
            self._written = time.monotonic()

    def _put(self) -> None:
        """On a full disk over the old text, in the room that it has; where even that fails no status is better."""
        value = files.sealed(self.value)
        try:
            files.write_json(self.path, value)
        except OSError as error:
            if error.errno not in FULL:
                raise
            try:
                with open(str(self.path), "r+b") as file:
                    file.truncate(file.write(files.text_of(value)))
            except OSError:
                self.path.unlink(missing_ok=True)


def read_status(root: AnyPath, path: AnyPath | None = None) -> dict[str, Any]:
    """``status.json`` of a run, or ``{}``. What a process that was killed left as running is ``interrupted``.

    ``path``: where it lies, if not in the folder that is held.

    :class:`DamagedError` if it does not say what was written.
    """
    path = path or root / NAME
    try:
        found = files.read_sealed(path)
    except MissingPathError:
        return {}
    if not isinstance(found.get("state"), str):
        raise DamagedError(f"{path}: damaged: not the status of a job")
    if found.get("state") in ("planned", "running") and locks.holder(root) is None:
        message = "its process ended unexpectedly (killed, or the machine went down); the same command goes on"
        return found | {"state": "interrupted", "error": {"status": 5, "kind": "InterruptedRun", "message": message}}
    return found


def known_status(root: AnyPath) -> dict[str, Any]:
    """``status.json``, for a job that writes it anew: ``{}`` where it is damaged."""
    with suppress(DamagedError):
        return read_status(root)
    return {}


def _kept(path: AnyPath) -> dict[str, Any]:
    """Return what a job takes over from the one before it: when one ended well, what it has announced to write, and the
    warnings, which stay where nothing is left to do."""
    found: dict[str, Any] = {}
    with suppress(DamagedError, MissingPathError):
        found = files.read_sealed(path)
    kept = {name: found.get(name) for name in ("last_success", "claimed", "left", "fruitless")}
    return {**kept, "warnings": found.get("warnings") or []}
