"""Where a job tells what it does: to whoever started it and to ``status.json``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigembed.jobs.cluster import Progress, no_progress
from bigembed.jobs.measure import MemoryPeak
from bigembed.jobs.status import Status
from bigembed.jobs.stopping import check
from bigembed.stages import Event, Observer, silent
from bigembed.store.lock import Owner


@dataclass(frozen=True)
class Wishes:
    """What a start of a job asks for, beside the job itself."""

    observer: Observer = silent
    """Told of stages."""
    progress: Progress = no_progress
    """Told of the tasks of a stage."""
    deadline: float | None = None
    """Seconds since 1970."""


@dataclass
class Telling:
    """Tells of one run: an observer of its stages, and of the tasks in them."""

    wishes: Wishes
    output: Path
    status: Status
    stages: list[dict[str, Any]] = field(default_factory=list)
    peak: MemoryPeak | None = None

    def __call__(self, event: Event) -> None:
        if event.kind in ("done", "reused"):
            entry = {"name": event.stage, "reused": event.kind == "reused", "seconds": round(event.seconds, 3)}
            self.stages.append(entry | {"memory": self.peak.lap() if self.peak else {}})
        self.status.event(event)
        self.wishes.observer(event)

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        check(self.output, self.wishes.deadline)
        self.status.progress(label, done, total)
        self.wishes.progress(label, done, total)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A step of the job itself, told like a stage of the method."""
        self(Event("start", name))
        began = time.perf_counter()
        yield
        self(Event("done", name, time.perf_counter() - began))


@contextmanager
def telling(wishes: Wishes, output: Path, owner: Owner, status: Path) -> Iterator[Telling]:
    """Around a job that holds its output; how it ends is told, too."""
    with ExitStack() as stack:
        yield Telling(wishes, output, stack.enter_context(Status(status, owner, wishes.deadline)))
