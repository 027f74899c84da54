"""How a job stands: ``status.json``, written atomically from its start to its end, and the exit statuses.

What schedulers and people look at while the job runs, and after it failed: ``state`` (``planned``, ``running``,
``interrupted``, ``failed``, ``done``), the stage in work and the blocks done of it, since when, by whom, until when,
and the error with its exit status.
"""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress
from typing import Any, Self

from bigembed.errors import (
    BigembedError,
    DamagedError,
    ExistingOutputError,
    InputError,
    InputTypeError,
    InterruptedRun,
    JobError,
    LockedError,
    MissingPathError,
    PlanError,
    StoreAccessError,
    UnreachableError,
    WorkerAccessError,
)
from bigembed.jobs.places.cluster_table import redacted
from bigembed.jobs.watching.stopping import Stopped
from bigembed.stages import Event
from bigembed.store.storage import documents
from bigembed.store.storage.lock import Owner, holder, moment
from bigembed.store.storage.paths import FULL, AnyPath

NAME = "status.json"
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
SECONDS = 2.0
"""Between two writings of the progress of a stage."""
STATUS: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((InterruptedRun, UnreachableError, KeyboardInterrupt, Stopped), 5),
    ((LockedError,), 4),
    ((PlanError, MemoryError), 3),
    ((DamagedError,), 6),
    (
        (
            InputError,
            InputTypeError,
            MissingPathError,
            ExistingOutputError,
            JobError,
            WorkerAccessError,
            StoreAccessError,
        ),
        2,
    ),
)


def status_of(error: BaseException) -> int:
    """The exit status of an error; of a folder that is closed that of input."""
    own = next((status for kinds, status in STATUS if isinstance(error, kinds)), 1)
    closed = isinstance(error, OSError) and not isinstance(error, BigembedError) and error.errno in CLOSED
    return 2 if closed else own


def storage_advice(error: BaseException) -> str:
    """What to do about an error of the operating system that a full disk or a closed folder gives; of others nothing.

    >>> storage_advice(OSError(28, "No space left on device", "run.zarr"))[:20]
    'The disk is full. Fr'
    """
    code = error.errno if isinstance(error, OSError) else None
    if code in FULL:
        return "The disk is full. Free some of it, or put the output on another one; the same command goes on"
    if code in CLOSED:
        return "It may not be written there. Change the permissions, or choose another output path"
    return ""


def outcome(error: BaseException | None) -> str:
    """The state in which a job ends."""
    return "done" if error is None else "interrupted" if status_of(error) == 5 else "failed"


class Status:
    """Around a job that holds its output: keeps ``status.json`` true, also of how it ended."""

    def __init__(self, path: AnyPath, owner: Owner, deadline: float | None = None) -> None:
        self.path = path
        self.value: dict[str, Any] = {
            "state": "planned",
            "stage": None,
            "label": None,
            "done": 0,
            "total": None,
            "stages": [],
            "finished_stages": [],
            "frozen": [],
            "owner": owner.about(),
            "started": moment(time.time()),
            "deadline": None if deadline is None else moment(deadline),
            "error": None,
            **_kept(path),
        }
        self._written = 0.0
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        state = outcome(error)
        if error is None:
            idle = {"stage": None, "label": None, "done": 0, "total": None}
            self._write(state=state, last_success=moment(time.time()), **idle)
            return
        message = redacted(str(error)) or type(error).__name__
        self._write(state=state, error={"status": status_of(error), "kind": type(error).__name__, "message": message})

    def planned(self, stages: list[str]) -> None:
        """The stages to come are known."""
        self._write(stages=stages)

    def claimed(self, outputs: list[str]) -> None:
        """What this run has announced to write beside itself; ``job.json`` says it, too."""
        self._write(claimed=outputs)

    def event(self, event: Event) -> None:
        """A stage starts or ends; a worker gives no sign of life, or is given up."""
        if event.kind == "start":
            self._write(state="running", stage=event.stage, label=None, done=0, total=None)
        elif event.kind in ("done", "reused"):
            finished = [*self.value["finished_stages"], event.stage]
            self._write(state="running", stage=event.stage, finished_stages=finished)
        elif event.kind == "worker":
            others = [known for known in self.value["frozen"] if known["worker"] != event.results["worker"]]
            self._write(frozen=[*others, dict(event.results)])

    def progress(self, label: str, done: int, total: int) -> None:
        """Blocks of the stage in work; written now and then."""
        self.value |= {"label": label, "done": done, "total": total}
        if time.monotonic() - self._written > SECONDS:
            self._write()

    def _write(self, **changes: Any) -> None:
        with self._turn:
            self.value |= {**changes, "updated": moment(time.time())}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._put()
            self._written = time.monotonic()

    def _put(self) -> None:
        """On a full disk over the old text, in the room that it has; where even that fails no status is better."""
        value = documents.sealed(self.value)
        try:
            documents.write_json(self.path, value)
        except OSError as error:
            if error.errno not in FULL:
                raise
            try:
                with open(str(self.path), "r+b") as file:
                    file.write(documents.text_of(value))
                    file.truncate()
            except OSError:
                self.path.unlink(missing_ok=True)


def read_status(root: AnyPath) -> dict[str, Any]:
    """``status.json`` of a run, or ``{}``. What a process that was killed left as running is ``interrupted``.

    :class:`DamagedError` if it does not say what was written.
    """
    path = root / NAME
    found = documents.read_sealed(path) if path.exists() else {}
    if path.exists() and not isinstance(found.get("state"), str):
        raise DamagedError(f"{path}: damaged: not the status of a job")
    return _true(found, root)


def known_status(root: AnyPath) -> dict[str, Any]:
    """``status.json``, for a job that writes it anew: ``{}`` where it is damaged."""
    with suppress(DamagedError):
        return read_status(root)
    return {}


def _kept(path: AnyPath) -> dict[str, Any]:
    """What a job takes over from the one before it: when one ended well, and what it has announced to write."""
    found: dict[str, Any] = {}
    with suppress(DamagedError, MissingPathError):
        found = documents.read_sealed(path)
    return {name: found.get(name) for name in ("last_success", "claimed")}


def _true(value: dict[str, Any], held: AnyPath) -> dict[str, Any]:
    if value.get("state") in ("planned", "running") and holder(held) is None:
        message = "its process ended without a word (killed, or the machine went down); the same command goes on"
        return value | {"state": "interrupted", "error": {"status": 5, "kind": "InterruptedRun", "message": message}}
    return value
