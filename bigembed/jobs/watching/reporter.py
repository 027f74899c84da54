"""Where a job tells what it does: to whoever started it, to ``status.json``, to logs and to metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigembed.errors import BigembedError, FullDiskError
from bigembed.jobs.places.place import Progress, no_progress
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.units import size
from bigembed.jobs.watching.logs import Logs, logs, warnings_logged
from bigembed.jobs.watching.memory import MemoryPeak
from bigembed.jobs.watching.metrics import Metrics
from bigembed.jobs.watching.status import Status, outcome, status_of
from bigembed.jobs.watching.stopping import check
from bigembed.stages import Event, Observer, silent
from bigembed.store.lock import Owner
from bigembed.store.paths import FULL, AnyPath, at, free_bytes, nearest_folder


@dataclass(frozen=True)
class Wishes:
    """What a start of a job asks for, beside the job itself."""

    observer: Observer = silent
    """Told of stages."""
    progress: Progress = no_progress
    """Told of the tasks of a stage."""
    deadline: float | None = None
    """Seconds since 1970."""
    log: str | None = None
    """A file for a second copy of the log (JSON lines), or ``"-"`` for stderr."""
    metrics: Path | None = None
    """A Prometheus text file."""
    performance_report: Path | None = None
    """An HTML page on what every worker did when."""


@dataclass
class Telling:
    """Tells of one run: an observer of its stages, and of the tasks in them."""

    wishes: Wishes
    output: str
    status: Status
    logs: Logs
    metrics: Metrics
    stages: list[dict[str, Any]] = field(default_factory=list)
    peak: MemoryPeak | None = None
    predicted: dict[str, float] = field(default_factory=dict)
    """Planned seconds of each stage."""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    """Planned peaks of memory of each stage."""
    disk: int | None = None
    """Bytes that were planned to be written at the most."""

    def planned(self, plan: Plan) -> None:
        """What is to come."""
        found = plan.as_dict()
        self.status.planned([name for name, _ in plan.stages])
        self.logs.say("planned", event="planned", memory=found["memory"], passes=found["passes"])
        self.metrics.rows, self.metrics.passes = plan.shape[0], found["passes"]
        self.metrics.memory["planned"] = found["memory"]
        self.predicted, self.held, self.disk = plan.stage_seconds, plan.stage_memory, plan.disk_peak
        self.metrics.predicted = self.predicted
        self.metrics.write()

    def __call__(self, event: Event) -> None:
        if event.kind in ("done", "reused"):
            entry = {"name": event.stage, "reused": event.kind == "reused", "seconds": round(event.seconds, 3)}
            planned = self.predicted.get(event.stage)
            entry |= {"predicted_seconds": None if planned is None else round(planned, 3)}
            self.stages.append(
                entry
                | {
                    "memory": self.peak.lap() if self.peak else {},
                    "predicted_memory": self.held.get(event.stage, {}),
                }
            )
            if event.kind == "done":
                self.metrics.stages[event.stage] = event.seconds
        self.status.event(event)
        self.logs.event(event)
        self.metrics.state = "running"
        self.metrics.write()
        self.wishes.observer(event)

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        check(self.output, self.wishes.deadline)
        self.status.progress(label, done, total)
        self.logs.progress(label, done, total)
        self.wishes.progress(label, done, total)

    def full(self, error: OSError) -> str:
        """What to say of a disk that takes no more."""
        where = str(error.filename or self.output)
        free = free_bytes(nearest_folder(at(where)))
        planned = "" if self.disk is None else f"{size(self.disk)} were planned to be written at the most, "
        return (
            f"{where}: the disk is full ({error.strerror}); {planned}{size(free)} are free now. Free some, or put the "
            "output on a larger disk; what is finished is kept, and the same command goes on"
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A step of the job itself, told like a stage of the method."""
        self(Event("start", name))
        began = time.perf_counter()
        yield
        self(Event("done", name, time.perf_counter() - began))

    def __enter__(self) -> Telling:
        self.logs.say("started", event="started", **self.status.value["owner"])
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.peak is not None:
            self.metrics.memory["measured"] = self.peak.as_dict()
        state = outcome(error)
        if error is None:
            self.logs.say("done", event="done", exit_status=0)
        else:
            level = logging.WARNING if state == "interrupted" else logging.ERROR
            self.logs.say(str(error), level, event=state, exit_status=status_of(error), kind=type(error).__name__)


@contextmanager
def telling(
    wishes: Wishes, output: str, owner: Owner, status: AnyPath, metrics: Metrics, log: AnyPath | None = None
) -> Iterator[Telling]:
    """Around a job that holds its output; how it ends is told, too. ``log``: the log that the run keeps."""
    with ExitStack() as stack:
        written = stack.enter_context(logs(output, log, wishes.log))
        stack.enter_context(warnings_logged(written))
        standing = stack.enter_context(Status(status, owner, wishes.deadline))
        metrics.adopt(standing.value["last_success"])
        told = stack.enter_context(Telling(wishes, output, standing, written, metrics))
        try:
            yield told
        except OSError as error:
            if isinstance(error, BigembedError) or error.errno not in FULL:
                raise
            raise FullDiskError(told.full(error)) from error
