"""Around everything that works: stopped in good order, recorded while it is held, with a place for its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bigembed.errors import BigembedError, FullDiskError, needed
from bigembed.jobs.inputs import Input
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.places.place import ClusterTable, Place
from bigembed.jobs.watching import logs, status
from bigembed.jobs.watching.reporter import MemoryPeak, Metrics, Reporter, RunOptions, Trace, performance
from bigembed.jobs.watching.status import stoppable
from bigembed.runtime.outages import stores
from bigembed.runtime.runtime import using
from bigembed.store.locks import Lock, Owner, hold
from bigembed.store.paths import FULL, AnyPath


@dataclass(frozen=True)
class Session:
    """A command that works, from before it holds its output to its end."""

    output: str
    options: RunOptions
    metrics: Metrics

    @contextmanager
    def reported(self, owner: Owner, status_file: AnyPath, log: AnyPath | None = None) -> Iterator[Reporter]:
        """Around what holds its output: how it stands and how it ends is written. ``log``: the log that is kept."""
        with (
            logs.logs(self.output, log, self.options.log) as written,
            logs.warnings_changed(written.warning),
            status.Status(status_file, owner, self.options.deadline) as standing,
        ):
            if (last := standing.value["last_success"]) is not None:
                self.metrics.last_success = datetime.fromisoformat(last).timestamp()
            made = Reporter(self.options, self.output, standing, written, self.metrics)
            with made as reporter, stores.heard(reporter.hear):
                try:
                    yield reporter
                except OSError as error:
                    if isinstance(error, BigembedError) or error.errno not in FULL:
                        raise
                    raise FullDiskError(reporter.full(error)) from error

    @contextmanager
    def hold_folder(self, root: AnyPath) -> Iterator[tuple[Reporter, Lock]]:
        """Hold a folder; its status and log are kept there."""
        with hold(root) as lock, self.reported(lock.owner, root / status.NAME, root / logs.NAME) as reporter:
            yield reporter, lock


@contextmanager
def session(output: Any, options: RunOptions | None, name: str, scratch: str | None = None) -> Iterator[Session]:
    """Around a command: a signal or the deadline stops it, metrics say how it ends; exchanges lie in ``scratch``."""
    options = options or RunOptions()
    metrics = Metrics(options.metrics, str(output), name)
    with stoppable(str(output), options.deadline), metrics, using(scratch=scratch):
        if options.performance_report is not None:
            needed("bokeh", "performance", "--performance-report")
        yield Session(str(output), options, metrics)


@contextmanager
def working(
    table: ClusterTable, kind: str, reporter: Reporter, prepare: Callable[[Place], Any] | None = None
) -> Iterator[tuple[Place, Any]]:
    """Around the tasks of a command: a place of this kind as the executor, its memory measured, its stages observed.

    ``prepare``: makes of the place what the command works on, with its plan; :class:`PlanError` if that does not fit.
    """
    with using(progress=reporter.progress, observer=reporter), cluster(table, kind) as place:
        prepared = None if prepare is None else prepare(place)
        if prepared is not None:
            reporter.planned(prepared.plan)
        room = None if place.executor.in_this_process else reporter.vector_memory
        with (
            MemoryPeak(place.local_pids) as peak,
            traced(reporter, place),
            using(executor=place.executor, vector_memory=room, worker_memory=reporter.worker_memory),
            using(recorder=reporter.trace and reporter.trace.map),
            performance(place, reporter.options.performance_report),
        ):
            reporter.peaks.append(peak)
            yield place, prepared


@contextmanager
def traced(reporter: Reporter, place: Place) -> Iterator[None]:
    """Record every task of a place in a file, if that is asked for."""
    if (path := reporter.options.trace) is None:
        yield
        return
    about = {"run": reporter.output, "rows": reporter.plan and list(reporter.plan.shape), "place": place.kind}
    with Trace(path, about) as reporter.trace:
        yield


def copied(rows: Input, reporter: Reporter) -> Input:
    """Return the rows of a command, copied or generated if they were not, as a stage of their own."""
    if rows.written:
        return rows
    with reporter.stage("input"):
        return rows.ready()
