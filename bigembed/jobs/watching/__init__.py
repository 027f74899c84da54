"""What a running job says of itself, to whoever started it and to files: events, memory, metrics, performance."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self

from bigembed.errors import BigembedWarning, LockedError
from bigembed.jobs import places, planning, size
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.planning.times import RemainingTime
from bigembed.jobs.watching.logs import Logs
from bigembed.jobs.watching.status import SECONDS, Status, check, full_disk, outcome, status_of
from bigembed.runtime import Event, Observer, Progress, no_progress, runtime_now, silent
from bigembed.runtime.outages import Outage
from bigembed.store import FULL

# ---------------------------------------------------------------------------------------------------------- memory
# The peak of the resident memory of all processes of a job.


PROCESSES = ("total", "coordinator", "worker")


class MemoryPeak:
    """Samples the resident memory of this process, those it started and ``others``, five times a second.

    ``peaks["total"]`` is the peak of their sum: client, scheduler, workers and all else.
    """

    interval = 0.2

    def __init__(self, others: dict[str, int] | None = None) -> None:
        self.others = others or {}
        self.peaks = dict.fromkeys(PROCESSES, 0)
        """Bytes, by process."""
        self._lap = dict.fromkeys(PROCESSES, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        import psutil  # noqa: F401  (not first in the thread)

        self._sample([])
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._sample(self._processes())

    def lap(self) -> dict[str, int]:
        """Return the peaks of memory since the last call, in bytes."""
        found, self._lap = self._lap, dict.fromkeys(PROCESSES, 0)
        return found

    def _watch(self) -> None:
        looked, processes = 0.0, []
        while not self._stop.wait(self.interval):
            if time.monotonic() - looked > 1.0:
                processes, looked = self._processes(), time.monotonic()
            self._sample(processes)

    def _processes(self) -> list[Any]:
        import psutil

        found = psutil.Process().children(recursive=True)
        for pid in self.others.values():
            with suppress(psutil.Error):
                other = psutil.Process(pid)
                found += [other, *other.children(recursive=True)]
        return list({process.pid: process for process in found}.values())

    def _sample(self, processes: list[Any]) -> None:
        import psutil

        sizes = [0]
        for process in processes:
            with suppress(psutil.Error):
                sizes.append(int(process.memory_info().rss))
        own = planning.resident()
        now = {"total": own + sum(sizes), "coordinator": own, "worker": max(sizes)}
        for peaks in (self.peaks, self._lap):
            peaks |= {name: max(peaks[name], value) for name, value in now.items()}


# --------------------------------------------------------------------------------------------------------- metrics
# A Prometheus text file on a run, for node_exporter's textfile collector: written with each stage and at the end.
#
# It is replaced in one step, so that the collector never reads half of it.

STATES = ("planned", "running", "interrupted", "failed", "done")
LAST_SUCCESS = "bigembed_run_last_success_time_seconds"


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
    warnings: Mapping[str, int] = field(default_factory=dict)
    """How many by category, of the start that had something to do last."""
    away: int = 0
    """Object stores that do not answer now."""
    outages: list[float] = field(default_factory=list)
    """Seconds of each outage that is over."""
    remaining: float | None = None
    """Seconds that what is left takes, as far as is known."""

    def __enter__(self) -> Self:
        if self.path is not None:  # (prometheus_client is loaded now, so that the plan counts its memory)
            self.last_success = self._last_success_there(self.path)
        return self

    def _last_success_there(self, path: Path) -> float | None:
        """Return when the run last ended well, as the file of an earlier start says: this one may fail before it has
        read the status of the run."""
        from prometheus_client.parser import text_string_to_metric_families

        with suppress(OSError, ValueError):  # (none yet, or not ours)
            for family in text_string_to_metric_families(path.read_text()):
                for sample in family.samples:
                    if sample.name == LAST_SUCCESS and sample.labels.get("run") == self.run:
                        return float(sample.value)
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, LockedError):
            return  # these are the holder's
        self.state, self.exit_status = outcome(error), 0 if error is None else status_of(error)
        if error is None:
            self.last_success = time.time()
        self.write()

    def write(self) -> None:
        """Replace the file."""
        if self.path is None:
            return
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        registry = CollectorRegistry()
        named = {"run": self.run, "method": self.method}

        def gauge(name: str, text: str, values: Mapping[Any, float | None], *labels: str) -> None:
            there = {label: value for label, value in values.items() if value is not None}
            made = Gauge(f"bigembed_{name}", text, [*named, *labels], registry=registry) if there else None
            for label, value in there.items():
                made.labels(*named.values(), *label).set(value)  # type: ignore[union-attr]

        states = {(state,): float(state == self.state) for state in STATES}
        gauge("run_state", "1 for the state that the run is in.", states, "state")
        gauge("run_started_time_seconds", "When the run was started.", {(): self.started})
        gauge(LAST_SUCCESS.removeprefix("bigembed_"), "When the run last ended well.", {(): self.last_success})
        gauge("run_exit_status", "Exit status of the run, once it ended.", {(): self.exit_status})
        gauge("run_rows", "Rows of the input.", {(): self.rows})
        gauge("run_passes", "Planned passes over the rows or the matrix.", {(): self.passes})
        took, planned = ({(stage,): value for stage, value in one.items()} for one in (self.stages, self.predicted))
        gauge("stage_seconds", "Seconds that a stage took.", took, "stage")
        gauge("stage_planned_seconds", "Seconds that a stage was planned to take.", planned, "stage")
        remaining = 0.0 if self.state == "done" else self.remaining
        gauge("run_remaining_seconds", "Seconds that what is left of the run will take.", {(): remaining})
        said = {(category,): float(count) for category, count in self.warnings.items()}
        gauge("run_warnings", "Warnings of the run.", said or {("",): 0.0}, "category")
        gauge("stores_away", "Object stores that do not answer.", {(): self.away})
        gauge("store_outages", "Outages of object stores in this run that are over.", {(): len(self.outages)})
        gauge("store_outage_seconds", "Seconds that they took.", {(): sum(self.outages)})
        memory = {(kind, process): count for kind, one in self.memory.items() for process, count in one.items()}
        gauge("memory_bytes", "Peak of resident memory.", memory, "kind", "process")
        self.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        try:
            write_to_textfile(str(self.path), registry)
        except OSError as error:  # (the job itself meets a full disk, and says so)
            if error.errno not in FULL:
                raise


# ----------------------------------------------------------------------------------------------------- performance
# The performance report of ``distributed``: what every worker did when.


@contextmanager
def performance(place: places.Place, path: Path | None) -> Iterator[None]:
    """Record what the workers do, and write the page at the end, also of what fails."""
    if path is None:
        yield
        return
    if place.client is None:
        warnings.warn(
            f"{path}: not written; a job this small runs in this process (give workers to have a cluster)",
            BigembedWarning,
            stacklevel=2,
        )
        yield
        return
    from distributed import performance_report

    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".partial-{path.name}")
    report = performance_report(filename=str(partial))
    report.__enter__()
    try:
        yield
    finally:
        if place.client.status == "running":  # (a scheduler that is gone would be waited for)
            report.__exit__(None, None, None)
            os.replace(partial, path)


# -------------------------------------------------------------------------------------------------------- reporter
# What a job reports while it works: to whoever started it, to ``status.json``, to logs and to metrics.


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
    trace: Path | None = None
    """A file with a line for each task."""
    remaining: Callable[[float], object] = float
    """Called now and then with the seconds that what is left will take, as far as is known."""


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
    away: dict[str, Outage] = field(default_factory=dict)
    """Object stores that do not answer now."""
    answered: dict[str, float] = field(default_factory=dict)
    """When the last outage of each was over, since 1970."""
    trace: Trace | None = None
    """Records each task."""
    left: RemainingTime | None = None
    """What is left of a run whose plan says how long it takes."""
    told: float = 0.0
    """When it was last said."""
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def measured(self) -> dict[str, int]:
        """Return peaks of memory in bytes, by process, at any of the places."""
        found = [one.peaks for one in self.peaks]
        return {name: max(peaks[name] for peaks in found) for name in (PROCESSES if found else ())}

    @property
    def vector_memory(self) -> int:
        """Return bytes of vectors that are planned to be in this process while its workers idle."""
        return 0 if self.plan is None else self.plan.peaks.vector_memory

    @property
    def worker_memory(self) -> int:
        """Return bytes of vectors that each worker on another machine is planned to hold."""
        return 0 if self.plan is None else self.plan.peaks.worker_memory

    def planned(self, plan: Plan) -> None:
        """What is to come; :class:`PlanError` if it does not fit."""
        plan.refuse()
        self.plan, found = plan, plan.as_dict()
        self.status.write(stages=[name for name, _ in plan.stages])
        known = {name: found[name] for name in ("memory", "passes", "vectors")}
        self.logs.say("planned", event="planned", **known)
        self.metrics.rows, self.metrics.passes = plan.shape[0], found["passes"]
        self.metrics.memory["planned"] = found["memory"]
        self.metrics.predicted = plan.stage_seconds
        todo = {name: one for name, one in plan.outline.items() if name not in plan.published}
        self.left = RemainingTime.of(todo) if todo else None
        self.metrics.write()

    def hear(self, outage: Outage) -> None:
        """What this process knows of an object store."""
        self(outage.event())

    def _merged(self, outage: Outage) -> Outage | None:
        """What is new of an outage, of which each process of the job tells; None if nothing is."""
        with self.turn:
            if outage.ended is None:
                if outage.store in self.away:
                    return None
                since = max(
                    outage.since, self.answered.get(outage.store, 0.0)
                )  # (another process may have had an answer)
                outage = self.away[outage.store] = replace(outage, since=since)
            elif (known := self.away.pop(outage.store, None)) is None:
                return None
            else:
                outage = replace(outage, since=known.since)
                self.answered[outage.store] = outage.since + outage.seconds
                self.metrics.outages.append(outage.seconds)
            self.metrics.away = len(self.away)
            return outage

    def __call__(self, event: Event) -> None:
        if event.kind == "store":
            if (outage := self._merged(Outage(**event.results))) is None:
                return
            event = outage.event()
        if event.kind in ("done", "reused"):
            planned = self.plan.stage_seconds.get(event.stage) if self.plan else None
            self.stages.append(
                {
                    "name": event.stage,
                    "reused": event.kind == "reused",
                    "seconds": round(event.seconds, 3),
                    "shares": dict(event.shares),
                    "predicted_seconds": None if planned is None else round(planned, 3),
                    "memory": self.peaks[-1].lap() if self.peaks else {},
                    "predicted_memory": self.plan.stage_memory.get(event.stage, {}) if self.plan else {},
                }
            )
            if self.left is not None:
                self.left.end(event.stage, event.seconds if event.kind == "done" else None)
            if event.kind == "done":
                self.metrics.stages[event.stage] = event.seconds
        elif event.kind == "start" and self.left is not None:
            self.left.start(event.stage)
        if self.trace is not None and event.kind in ("start", "done"):
            self.trace.stage(event.kind, event.stage)
        self.status.event(event)
        self.logs.event(event)
        self.metrics.state = "running"
        self.metrics.write()
        self.options.observer(event)

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        check(self.output, self.options.deadline)
        if (clock := runtime_now().clock) is not None and self.status.value["stage"]:
            self.status.value["shares"][self.status.value["stage"]] = clock.shares()
        if self.left is not None:
            self.left.progress(label, done, total)
            if time.monotonic() - self.told > SECONDS:
                self.told = time.monotonic()
                self.remaining(self.left.seconds())
        self.status.progress(label, done, total)
        self.logs.progress(label, done, total)
        self.options.progress(label, done, total)

    def remaining(self, seconds: float) -> None:
        """How long what is left takes, as far as is known now."""
        self.status.value["remaining_seconds"] = self.metrics.remaining = round(seconds, 1)
        self.metrics.write()
        self.options.remaining(seconds)

    def full(self, error: OSError) -> str:
        """Say in words which disk takes no more, and what to do."""
        planned = "" if self.plan is None else f"{size(self.plan.disk_peak)} were planned to be written at the most, "
        return full_disk(error, self.output, planned)

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
        if error is None:
            self.logs.say("done", event="done", exit_status=0)
            return
        state = outcome(error)
        level = logging.WARNING if state == "interrupted" else logging.ERROR
        self.logs.say(str(error), level, event=state, exit_status=status_of(error), kind=type(error).__name__)


# ------------------------------------------------------------------------------------------------------------- trace
# A record of every task of a job: which stage it was of, when and where it ran, what it took and what it moved.

DIGITS = 6
"""Of seconds."""


class Trace:
    """Write lines of a trace, from any thread."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  (open until the job ends)
        self._lock, self._stage, self._maps = Lock(), "", count(1)
        self._write({"event": "job", "time": time.time(), "cores": os.cpu_count(), **about})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def stage(self, kind: str, name: str) -> None:
        """Record that a stage starts or is done."""
        self._stage = name if kind == "start" else ""
        self._write({"event": kind, "stage": name, "time": time.time()})

    def map(self, label: str, total: int, at_home: bool) -> Callable[[int, Mapping[str, Any]], None]:
        """Return what records the tasks of the next map; ``at_home``: each runs where what it needs is held."""
        known = {"event": "task", "stage": self._stage, "map": next(self._maps), "label": label, "of": total}
        if at_home:
            known["at_home"] = True

        def record(place: int, found: Mapping[str, Any]) -> None:
            rounded = {name: round(one, DIGITS) if isinstance(one, float) else one for name, one in found.items()}
            self._write({**known, "task": place, **rounded})

        return record

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
