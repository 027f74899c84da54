"""The processes of a job, what they hold at the most, and what a stopped job left on the disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bigembed.errors import DamagedError, ExistingOutputError, uses_scikit_learn
from bigembed.estimator.base import MANY_ROWS
from bigembed.jobs import size
from bigembed.jobs.places import TRIMMED, ClusterTable, Place, PlaceKind, cluster
from bigembed.jobs.places.cluster import machine_memory
from bigembed.jobs.planning import SCIKIT_LEARN, footprint, imported_here
from bigembed.jobs.planning.times import TASK_HERE
from bigembed.runtime import using
from bigembed.stages import Cost, Run
from bigembed.stages.stage import MARGIN, exchange_home
from bigembed.store import AnyPath, PathLike, objects, spaces

# ------------------------------------------------------------------------------------------------------- resources
# The processes of a job, and what they hold before any data: for its plan.

COMPILER = 208 << 20
"""Numba and what it compiles anew, in this process, for a job of few rows: measuring takes longer than the job."""

KEPT_OF_TASKS = 96 << 10
"""Bytes that the process which hands out tasks keeps for each block of a job (measured: t-SNE, 12 and 195 blocks)."""

FIRST_USE = 16 << 20
"""Code, buffers and log files that a process touches only when it works."""


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
    bandwidth: float | None = None
    """Bytes a second that workers on several machines together read and write; None where nobody knows."""

    @property
    def of(self) -> PlaceKind:
        """Return what is known of this kind of place."""
        return cluster.KINDS[self.kind]


def resources_of(
    table: ClusterTable,
    shape: tuple[int, int],
    nbytes: int,
    place: Place | None,
    picture: bool,
    compiled: bool,
    renew: bool = False,
    bare: bool = False,
    loading: int = 0,
) -> Resources:
    """Return where a job on rows of this shape will run, and the measured footprints of the processes there.

    ``picture``: whether it draws one; ``compiled``: whether a job in this process compiles functions; ``renew``:
    whether to measure them again; ``bare``: whether workers never load numba, whatever the rows are; ``loading``: bytes
    of what every process loads that reads the source (:attr:`~bigembed.jobs.inputs.Input.loading`).
    """
    kind = place.kind if place else cluster.choose(table, shape, nbytes)
    if cluster.KINDS[kind].inside:
        if not compiled or shape[0] < MANY_ROWS:
            here = imported_here(picture) + FIRST_USE + (COMPILER if compiled else 0) + loading
            return Resources(kind, 1, machine_memory(), here, here, 0, TASK_HERE)
        feet = footprint(renew)
        one = feet.single + (feet.picture if picture else 0) + (SCIKIT_LEARN if uses_scikit_learn() else 0) + loading
        return Resources(kind, 1, machine_memory(), one, one, 0, TASK_HERE)
    feet = footprint(renew)
    # (the modules of the method are loaded by now: the coordinator of one with compiled functions has their compiler)
    compiler, later = (feet.compiler, 0) if "numba" in sys.modules else (0, feet.compiler)
    worker = feet.worker - (feet.compiler - FIRST_USE if bare else 0) + loading
    coordinator = feet.coordinator + FIRST_USE + (feet.picture if picture else 0) + compiler + loading
    coordinator += SCIKIT_LEARN if uses_scikit_learn() else 0
    if cluster.KINDS[kind].local:
        workers, limit = cluster.worker_count(table), cluster.embedded_memory(table)
        return Resources(kind, workers, limit, worker, coordinator, feet.helper, feet.task, feet.start, later)
    workers = place.workers if place else table.workers or 1
    remote_limit = place.memory_limit if place else table.memory
    others = feet.coordinator
    known = kind, workers, remote_limit, worker, coordinator, others, feet.task
    return Resources(*known, compiler=later, bandwidth=table.bandwidth)


# ----------------------------------------------------------------------------------------------------------- peaks
# What the processes of a job hold at the most, and where the vectors of its solves are.


@dataclass(frozen=True)
class Peaks:
    """Peaks of resident memory of processes in which stages of these costs run."""

    resources: Resources
    costs: Sequence[Cost]
    blocks: int = 0
    """Canonical blocks of the rows."""

    @property
    def worker(self) -> int:
        """Of one worker process (in this process: of the one process). Any may turn out to go through files."""
        alone = self.resources.of.inside
        held = [
            max(cost.memory, cost.memory - cost.spared + cost.held) + cost.coordinator
            if alone
            else cost.memory + self.share_of_worker(cost)
            for cost in self.costs
        ]
        return self.resources.worker + int((1 + MARGIN) * max(held, default=0))

    @property
    def coordinator(self) -> int:
        """Of the coordinating process."""
        if self.resources.of.inside:
            return self.worker
        return self._coordinator([cost.coordinator + self.solve_memory(cost) for cost in self.costs])

    @property
    def total(self) -> int:
        """Of all processes together: workers, coordinator, scheduler; of those, the workers idle beside a solve in the
        coordinating one."""
        if self.resources.of.inside:
            return self.worker
        beside = self.resources.workers * self.resources.worker + self.coordinator
        return max(beside, self._workers + self._coordinator_alone) + self.resources.others

    @property
    def _workers(self) -> int:
        """Of all workers together. A stage of one task is in one of them; of those that had the task before, each keeps
        what the allocator does not give back."""
        one = max((cost.memory for cost in self.costs if cost.blocks == 1), default=0)
        several = max((cost.memory for cost in self.costs if cost.blocks != 1), default=0)
        other = self.resources.worker + int((1 + MARGIN) * max(several, min(one, TRIMMED)))
        return self.worker + (self.resources.workers - 1) * other

    def fitting(self, machine: int, worker: int) -> int:
        """Workers of this size that such a machine holds beside the coordinating process."""
        return (machine - self._coordinator_alone - self.resources.others) // worker

    @property
    def vector_memory(self) -> int:
        """Vectors of solves that the coordinating process holds at the most while the workers idle."""
        found = [self.part_of(cost) or (cost.held if self._holds_all(cost) else 0) for cost in self.costs]
        return max(found, default=0)

    @property
    def worker_memory(self) -> int:
        """Vectors of solves that a worker on another machine holds at the most."""
        return max((self.share_of_worker(cost) for cost in self.costs), default=0)

    def share_of_worker(self, cost: Cost) -> int:
        """Return bytes of vectors of a stage that each worker holds; 0 where they are in files or in one process.

        Workers hold them together if they may be on several machines and each has room for its share beside a task.
        """
        where = self.resources
        if where.of.inside or where.of.local or not cost.crossing or where.memory_limit is None:
            return 0
        share = int(spaces.UNEVEN * cost.held / where.workers)
        whole = where.worker + int((1 + MARGIN) * (cost.memory + share))
        return share if whole <= where.memory_limit else 0

    def cost_of(self, cost: Cost) -> Cost:
        """With what it reads and writes where its vectors will be."""
        twice = 2 * cost.checkpoint
        if self.share_of_worker(cost):
            crossing, once = cost.crossing, int(cost.read / cost.passes)
            return replace(cost, read=once, exchanged=crossing + cost.checkpoint, scratch=crossing + twice)
        inside = (cost.held and self.resources.of.inside) or self.solve_memory(cost)
        if not inside:
            return cost
        if (part := self.part_of(cost)) and not self.resources.of.inside:
            left = cost.part - part
            return replace(cost, exchanged=twice + cost.exchanged * left // cost.part, scratch=twice + left, maps=1)
        return replace(cost, read=int(cost.read / cost.passes), exchanged=twice, scratch=twice, maps=1)

    def solve_memory(self, cost: Cost) -> int:
        """Return bytes of vectors of a stage and of tasks on them in the coordinating process; 0 where they are in
        files.

        They are there if all workers are on this machine, and what they may hold together is enough for all, or for a
        part of them (:meth:`part_of`).
        """
        if self._holds_all(cost):
            return cost.held + self.threads * (cost.memory - cost.spared)
        if not self.part_of(cost):
            return 0
        return min(cost.part, self.vector_memory) + self.threads * cost.memory  # (which is the room of any stage)

    def part_of(self, cost: Cost) -> int:
        """Return bytes of vectors of a stage in the coordinating process where it cannot hold all of them, and has the
        others in a file; 0 where that is not so."""
        if not (self.resources.of.local and cost.part) or self._holds_all(cost):
            return 0
        room = min(cost.part, self._spared(cost) - self.threads * cost.memory)
        return room if room >= cost.part / spaces.PARTS else 0

    def _holds_all(self, cost: Cost) -> bool:
        need = cost.held + self.threads * (cost.memory - cost.spared)
        return bool(self.resources.of.local and cost.held and need <= self._spared(cost))

    def _spared(self, cost: Cost) -> int:
        """Return what a stage may hold in the coordinating process while the workers idle."""
        where = self.resources
        idle = where.workers * where.worker
        others = idle + self._coordinator([cost.coordinator]) + where.others
        spared = min(where.workers * (where.memory_limit or 0) - idle, machine_memory() - others)
        return int(spared / (1 + MARGIN))

    @property
    def threads(self) -> int:
        """Threads that compute in the coordinating process."""
        return cluster.coordinator_threads(self.resources.workers)

    @property
    def vectors(self) -> str:
        """Return where the vectors of a solve are, and why; empty where no stage has any."""
        largest = max(self.costs, key=lambda cost: cost.held, default=Cost())
        if not largest.held:
            return ""
        most = f"vectors of a solve or descent: {size(largest.held)} at the most"
        if self.resources.of.inside:
            return f"{most}, in the memory of this process, which runs all tasks"
        if share := self.share_of_worker(largest):
            return f"{most}, in the memory of {self.resources.workers} workers, {size(share)} each at the most"
        if not self.resources.of.local:
            return "vectors of a solve or descent: in files, since its workers may be on several machines"
        if part := self.part_of(largest):
            return (
                f"{most}; {size(part)} of them in the memory of the coordinating process, the rest in a file of it. It "
                f"works with {self.threads} threads while the workers idle: what they may hold together is not enough "
                "for all"
            )
        if self.solve_memory(largest):
            return (
                f"{most}, in the memory of the coordinating process, which works with {self.threads} threads while "
                "the workers idle: they are on this machine, and what they may hold together is enough"
            )
        return (
            f"{most}; in files, since the workers together may not hold them and the tasks on them "
            f"({size(largest.held + self.threads * (largest.memory - largest.spared))})"
        )

    @property
    def _coordinator_alone(self) -> int:
        """Of the coordinating process, where vectors are in files."""
        return self._coordinator([cost.coordinator for cost in self.costs])

    def _coordinator(self, held: Sequence[int]) -> int:
        compiler = self.resources.compiler if any(cost.held for cost in self.costs) else 0
        kept = KEPT_OF_TASKS * max((cost.blocks or self.blocks for cost in self.costs), default=0)
        return self.resources.coordinator + compiler + kept + int((1 + MARGIN) * max(held, default=0))


# --------------------------------------------------------------------------------------------------------- remains
# What a job that was stopped left on the disk: its stages go on from there, or begin by deleting it.


def remains(runs: Iterable[Run], scratch: PathLike | None) -> tuple[int, int]:
    """Return bytes of stages that were begun and not published, and of their exchanges; none are counted in object
    stores.

    ``runs``: those of the job; ``scratch``: the folder of exchanges, if they do not lie in the runs.
    """
    begun = exchanged = 0
    for run in runs:
        with using(scratch=scratch):
            exchanged += space(exchange_home(run))
        published, stages = run.published(), run.root / "stages"
        if stages.is_dir():
            begun += sum(space(place) for place in stages.iterdir() if place.name not in published)
    return begun, exchanged


def runs_at(roots: Iterable[AnyPath]) -> Iterator[Run]:
    """Open the runs that are at these paths; what is damaged is left to whoever goes on from it."""
    for root in dict.fromkeys(roots):
        if (root / "zarr.json").exists():
            with suppress(DamagedError, ExistingOutputError):
                yield Run(root)


def space(folder: AnyPath) -> int:
    """Count the bytes that the files below a folder take on the disk."""
    total = 0
    for place, _, files in () if isinstance(folder, objects.ObjectPath) else os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # (another process may clear it away)
                total += 512 * os.lstat(os.path.join(place, name)).st_blocks
    return total
