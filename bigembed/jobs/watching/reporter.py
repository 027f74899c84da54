"""What a job reports while it works: to whoever started it, to ``status.json``, to logs and to metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigembed.jobs.places.place import Progress, no_progress
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.units import size
from bigembed.jobs.watching.logs import Logs
from bigembed.jobs.watching.memory import MemoryPeak
from bigembed.jobs.watching.metrics import Metrics
from bigembed.jobs.watching.status import Status, outcome, status_of
from bigembed.jobs.watching.stopping import check
from bigembed.stages import Event, Observer, silent
from bigembed.store.storage.paths import at, free_bytes, nearest_folder


@dataclass(frozen=True)
class RunOptions:
    """Options of one start of a job, which do not change its results."""

    observer: Observer = silent
    """Called with each event of a stage."""
    progress: Progress = no_progress
    """Called with the label of a map, its tasks done and its tasks in all."""
    deadline: float | None = None
    """Seconds since 1970."""
    log: str | None = None
    """A file for a second copy of the log (JSON lines), or ``"-"`` for stderr."""
    metrics: Path | None = None
    """A Prometheus text file."""
    performance_report: Path | None = None
    """An HTML page on what every worker did when."""


@dataclass
class Reporter:
    """Reports on one run: an observer of its stages, and of the tasks in them."""

    options: RunOptions
    output: str
    status: Status
    logs: Logs
    metrics: Metrics
    stages: list[dict[str, Any]] = field(default_factory=list)
    peaks: list[MemoryPeak] = field(default_factory=list)
    """Measured at each place where it worked, the last one maybe still."""
    plan: Plan | None = None

    @property
    def measured(self) -> dict[str, int]:
        """Peaks of memory in bytes, by process, at any of the places."""
        found = [peak.as_dict() for peak in self.peaks]
        return {name: max(one[name] for one in found) for name in (found[0] if found else ())}

    @property
    def held(self) -> int:
        """Bytes of vectors that are planned to be in this process while its workers idle."""
        return 0 if self.plan is None else self.plan.peaks.held

    def planned(self, plan: Plan) -> None:
        """What is to come; :class:`PlanError` if it does not fit."""
        plan.refuse()
        self.plan, found = plan, plan.as_dict()
        self.status.planned([name for name, _ in plan.stages])
        self.logs.say(
            "planned", event="planned", memory=found["memory"], passes=found["passes"], vectors=found["vectors"]
        )
        self.metrics.rows, self.metrics.passes = plan.shape[0], found["passes"]
        self.metrics.memory["planned"] = found["memory"]
        self.metrics.predicted = plan.stage_seconds
        self.metrics.write()

    def __call__(self, event: Event) -> None:
        if event.kind in ("done", "reused"):
            entry = {"name": event.stage, "reused": event.kind == "reused", "seconds": round(event.seconds, 3)}
            planned = self.plan.stage_seconds.get(event.stage) if self.plan else None
            entry |= {"predicted_seconds": None if planned is None else round(planned, 3)}
            entry |= {"memory": self.peaks[-1].lap() if self.peaks else {}}
            entry |= {"predicted_memory": self.plan.stage_memory.get(event.stage, {}) if self.plan else {}}
            self.stages.append(entry)
            if event.kind == "done":
                self.metrics.stages[event.stage] = event.seconds
        self.status.event(event)
        self.logs.event(event)
        self.metrics.state = "running"
        self.metrics.write()
        self.options.observer(event)

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        check(self.output, self.options.deadline)
        self.status.progress(label, done, total)
        self.logs.progress(label, done, total)
        self.options.progress(label, done, total)

    def full(self, error: OSError) -> str:
        """What to say of a disk that takes no more."""
        where = str(error.filename or self.output)
        free = free_bytes(nearest_folder(at(where)))
        planned = "" if self.plan is None else f"{size(self.plan.disk_peak)} were planned to be written at the most, "
        return (
            f"{where}: the disk is full ({error.strerror}); {planned}{size(free)} are free now. Free some, or put the "
            "output on a larger disk; what is finished is kept, and the same command goes on"
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A step of the job itself, reported like a stage of the method."""
        self(Event("start", name))
        began = time.perf_counter()
        yield
        self(Event("done", name, time.perf_counter() - began))

    def __enter__(self) -> Reporter:
        self.logs.say("started", event="started", **self.status.value["owner"])
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.peaks:
            self.metrics.memory["measured"] = self.measured
        state = outcome(error)
        if error is None:
            self.logs.say("done", event="done", exit_status=0)
        else:
            level = logging.WARNING if state == "interrupted" else logging.ERROR
            self.logs.say(str(error), level, event=state, exit_status=status_of(error), kind=type(error).__name__)
