"""The processes of a job, and what they hold before any data: for its plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bigembed.jobs.places.cluster import choose
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.embedded import embedded_memory, machine_memory, worker_count
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.calibrate import Rates
from bigembed.jobs.planning.footprint import footprint, imported_here
from bigembed.stages import Cost

PUBLISH = 0.02
"""Seconds that a stage takes at the least: its manifest, synced; its folders."""
TASK_HERE = 1e-4
"""Seconds of a task in this process, besides its work."""
MESSAGES = 3
"""Of one map, besides those of its tasks: to hand it out, to hear of its end, to fetch the results."""


@dataclass(frozen=True)
class TimeModel:
    """Rates of one process, how many work at a time, and what tasks and the start take besides the work."""

    rates: Rates
    at_once: int
    task: float
    """Seconds of handing out one task and taking its result."""
    start: float
    """Seconds until the workers stand and have done their first task."""

    def seconds(self, cost: Cost, blocks: int) -> float:
        """Of a stage; ``blocks``: canonical blocks of the rows.

        >>> rates = Rates(read=1e8, write=1e8, product=1e9, look=1e7)
        >>> round(TimeModel(rates, 2, 0.0, 1.0).seconds(Cost(passes=1, read=10**8, flops=2e9), 4), 2)
        1.52
        >>> round(TimeModel(rates, 2, 0.0, 1.0).seconds(Cost(passes=1, read=10**8, flops=2e9), 1), 2)
        3.02
        """
        blocks = max(1, cost.blocks or blocks)
        rates, busy = self.rates, min(self.at_once, blocks)
        # What is kept is read once more, for its digests.
        work = (cost.read + cost.disk) / rates.read + cost.write / rates.write
        work += cost.exchanged / rates.exchange
        work += cost.flops / rates.product + cost.scalar_ops / rates.look + cost.terms / rates.term
        maps = cost.maps or max(1.0, cost.passes)
        return PUBLISH + maps * (MESSAGES + blocks / busy) * self.task + work / busy + cost.serial_flops / rates.product


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
    compiler: int = 0
    """What compiled functions add to the coordinating process from the first solve on."""


def resources_of(
    table: ClusterTable,
    shape: tuple[int, int],
    nbytes: int,
    place: Place | None,
    picture: bool,
    compiled: bool,
    renew: bool = False,
    bare: bool = False,
) -> Resources:
    """Where a job on rows of this shape will run, and the measured footprints of the processes there.

    ``picture``: whether it draws one; ``compiled``: whether a job in this process compiles functions; ``renew``:
    whether to measure them again; ``bare``: whether workers never load numba, whatever the rows are.
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
    compiler, later = (feet.compiler, 0) if "numba" in sys.modules else (0, feet.compiler)
    worker = feet.worker - (feet.compiler if bare else 0)
    coordinator = feet.coordinator + (feet.picture if picture else 0) + compiler
    if kind == "embedded":
        workers, limit = worker_count(table), embedded_memory(table)
        return Resources(kind, workers, limit, worker, coordinator, feet.helper, feet.task, feet.start, later)
    workers = place.workers if place else table.workers or 1
    remote_limit = place.memory_limit if place else table.memory
    others = feet.coordinator
    return Resources(kind, workers, remote_limit, worker, coordinator, others, feet.task, compiler=later)
