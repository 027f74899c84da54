"""The processes of a job, and what they hold before any data: for its plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bigembed.jobs.places.cluster import choose
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.embedded import embedded_memory, machine_memory, worker_count
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.footprint import footprint, imported_here
from bigembed.jobs.planning.time_model import TASK_HERE

UNCOMPILED_ROWS = 4096
"""Up to here a small job compiles nothing, and this process's own footprint says what it needs."""

FIRST_USE = 16 << 20
"""Code, buffers and log files that this process touches only when it works."""


@dataclass(frozen=True)
class Resources:
    """What the plan knows of where the job runs; bytes, by process."""

    kind: str
    workers: int
    memory_limit: int | None
    worker: int
    """Footprint of a worker."""
    coordinator: int
    """Footprint of the coordinating process (for an embedded cluster with its scheduler)."""
    others: int
    """Scheduler and helper processes."""
    task: float = 0.0
    """Seconds of handing out a task."""
    start: float = 0.0
    """Seconds until the processes there stand."""


def resources_of(
    table: ClusterTable,
    shape: tuple[int, int],
    nbytes: int,
    place: Place | None,
    picture: bool,
    compiled: bool,
    renew: bool = False,
) -> Resources:
    """Where a job on rows of this shape will run, and the measured footprints of the processes there.

    ``picture``: whether it draws one; ``compiled``: whether a job in this process compiles functions; ``renew``:
    whether to measure them again.
    """
    kind = place.kind if place else choose(table, shape, nbytes)
    if kind == "process":
        if not compiled:
            here = imported_here(picture) + FIRST_USE
            return Resources(kind, 1, machine_memory(), here, here, 0, TASK_HERE)
        feet = footprint(renew)
        one = feet.single + (feet.picture if picture else 0)
        return Resources(kind, 1, machine_memory(), one, one, 0, TASK_HERE)
    feet = footprint(renew)
    # (the modules of the method are loaded by now: the coordinator of one with compiled functions has their compiler)
    coordinator = feet.coordinator + (feet.picture if picture else 0) + (feet.compiler if "numba" in sys.modules else 0)
    if kind == "embedded":
        workers, limit = worker_count(table), embedded_memory(table)
        return Resources(kind, workers, limit, feet.worker, coordinator, feet.helper, feet.task, feet.start)
    workers = place.workers if place else table.workers or 1
    remote_limit = place.memory_limit if place else table.memory
    return Resources(kind, workers, remote_limit, feet.worker, coordinator, feet.coordinator, feet.task)
