"""A Prometheus text file on a run, for node_exporter's textfile collector: written with each stage and at the end.

It is replaced in one step, so that the collector never reads half of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from bigembed.errors import LockedError
from bigembed.jobs.watching.status import outcome, status_of
from bigembed.store.storage.paths import FULL

STATES = ("planned", "running", "interrupted", "failed", "done")


@dataclass
class Metrics:
    """What is known of a run, written to ``path``; with None nowhere."""

    path: Path | None
    run: str
    method: str = ""
    state: str = "planned"
    started: float = field(default_factory=time.time)
    last_success: float | None = None
    exit_status: int | None = None
    rows: int | None = None
    passes: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    predicted: dict[str, float] = field(default_factory=dict)
    """Planned seconds by stage."""
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    """``planned`` and ``measured`` peaks in bytes by process."""

    def __enter__(self) -> Self:
        if self.path is not None:
            import prometheus_client  # noqa: F401  (now, so that the plan counts its memory)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, LockedError):
            return  # these are the holder's
        self.state, self.exit_status = outcome(error), 0 if error is None else status_of(error)
        if error is None:
            self.last_success = time.time()
        self.write()

    def adopt(self, last_success: str | None) -> None:
        """Take over when the run last ended well, as its status says."""
        if last_success is not None:
            self.last_success = datetime.fromisoformat(last_success).timestamp()

    def write(self) -> None:
        """Replace the file."""
        if self.path is None:
            return
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        registry = CollectorRegistry()
        named = {"run": self.run, "method": self.method}

        def gauge(name: str, text: str, value: float | None, **labels: str) -> None:
            if value is not None:
                if name not in known:
                    known[name] = Gauge(f"bigembed_{name}", text, [*named, *labels], registry=registry)
                known[name].labels(**named, **labels).set(value)

        known: dict[str, Any] = {}
        for state in STATES:
            gauge("run_state", "1 for the state that the run is in.", float(state == self.state), state=state)
        gauge("run_started_time_seconds", "When the run was started.", self.started)
        gauge("run_last_success_time_seconds", "When the run last ended well.", self.last_success)
        gauge("run_exit_status", "Exit status of the run, once it ended.", self.exit_status)
        gauge("run_rows", "Rows of the input.", self.rows)
        gauge("run_passes", "Planned passes over the rows or the matrix.", self.passes)
        for stage, seconds in self.stages.items():
            gauge("stage_seconds", "Seconds that a stage took.", seconds, stage=stage)
        for stage, seconds in self.predicted.items():
            gauge("stage_planned_seconds", "Seconds that a stage was planned to take.", seconds, stage=stage)
        for kind, peaks in self.memory.items():
            for process, count in peaks.items():
                gauge("memory_bytes", "Peak of resident memory.", count, kind=kind, process=process)
        self.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        try:
            write_to_textfile(str(self.path), registry)
        except OSError as error:  # (the job itself meets a full disk, and says so)
            if error.errno not in FULL:
                raise
