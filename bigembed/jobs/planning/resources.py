"""The processes of a job, what they hold at the most, what a stopped job left on the disk, and what time is left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil

from bigembed.errors import DamagedError, ExistingOutputError, uses_scikit_learn
from bigembed.estimator.base import MANY_ROWS
from bigembed.jobs import size
from bigembed.jobs.places import TRIMMED, ClusterTable, Place, PlaceKind, cluster
from bigembed.jobs.places.cluster import machine_memory
from bigembed.jobs.planning import SCIKIT_LEARN, Rates, footprint, imported_here
from bigembed.runtime import using
from bigembed.runtime.client_executor import HANDED_OUT, calls_of_task
from bigembed.stages import Cost, Run
from bigembed.stages.stage import MARGIN, exchange_home
from bigembed.store import AnyPath, PathLike, objects, spaces

# ------------------------------------------------------------------------------------------------------- resources
# The processes of a job, and what they hold before any data: for its plan.

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
    shared: float | None = None
    """Bytes a second that all of them together read and write; None where each has its own disk, or nobody knows."""
    hands_out: bool = False
    """Whether they are so many that handing out tasks may take longer than the tasks."""

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
        moving = (cost.read + cost.disk) / rates.read + cost.write / rates.write
        moving += cost.exchanged / rates.exchange
        computing = cost.flops / rates.product + cost.scalar_ops / rates.look + cost.terms / rates.term
        maps = cost.maps or max(1.0, cost.passes)
        work = computing / busy + max(moving / busy, moved(cost) / self.shared if self.shared else 0.0)
        if self.hands_out:
            several = calls_of_task(blocks, busy, (computing + moving) / (maps * blocks))
            work = max(work, maps * ceil(blocks / several) * HANDED_OUT)
        return PUBLISH + maps * (MESSAGES + blocks / busy) * self.task + work + self.alone(cost)

    def alone(self, cost: Cost) -> float:
        """Of what one process does while the others wait."""
        return cost.serial_flops / self.rates.product + cost.serial_ops / self.rates.look

    def block_seconds(self, cost: Cost, blocks: int) -> float:
        """Of what a stage cannot be stopped in without doing it again: a task, and what one process does alone.

        >>> rates = Rates(read=1e8, write=1e8, product=1e9, look=1e7)
        >>> round(TimeModel(rates, 2, 0.0, 1.0).block_seconds(Cost(passes=1, read=10**8, flops=2e9), 4), 2)
        0.75
        """
        blocks, alone = max(1, cost.blocks or blocks), self.alone(cost)
        work = self.seconds(cost, blocks) - PUBLISH - alone
        rounds = -(-blocks // min(self.at_once, blocks)) * (cost.maps or max(1.0, cost.passes))
        return max(work / rounds, alone) + cost.checkpoint / self.rates.read

    def outline(self, cost: Cost, blocks: int) -> PlannedStage:
        """Return what is planned of the time of a stage; ``blocks`` as in :meth:`seconds`."""
        seconds = self.seconds(cost, blocks)
        still = self.seconds(replace(cost, read=0, write=0, disk=0, exchanged=0), blocks)
        kind = "moving" if still < seconds / 2 else "computing"
        return PlannedStage(seconds, kind, cost.maps or max(1.0, cost.passes))


def moved(cost: Cost) -> int:
    """Return the bytes that a stage moves through its files: what tasks leave for each other is written and read."""
    return cost.read + cost.disk + cost.write + 2 * cost.exchanged


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
        return max((cost.held for cost in self.costs if self.solve_memory(cost)), default=0)

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
        return replace(cost, read=int(cost.read / cost.passes), exchanged=twice, scratch=twice, maps=1)

    def solve_memory(self, cost: Cost) -> int:
        """Return bytes of vectors of a stage and of tasks on them in the coordinating process; 0 where they are in
        files.

        They are there if all workers are on this machine, and what they may hold together is enough.
        """
        where = self.resources
        if not (where.of.local and cost.held):
            return 0
        need = cost.held + self.threads * (cost.memory - cost.spared)
        idle = where.workers * where.worker
        spared = where.workers * (where.memory_limit or 0) - idle
        whole = idle + self._coordinator([cost.coordinator + need]) + where.others
        return need if (1 + MARGIN) * need <= spared and whole <= machine_memory() else 0

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


# ---------------------------------------------------------------------------------------------------- remaining time
# How long what is left of a run will take: as planned, corrected by what the run has taken so far.
#
# A plan knows the machine, not how busy it is, and of the stores no more than a short measurement. A stage that mostly
# moves bytes says how quick the stores really are, and one that mostly computes how quick the processors are: what is
# left of each kind is scaled by what its stages have taken of their planned time.


PRIOR = 1.0
"""Seconds that a kind of stages is believed to have taken as planned before any of them was measured."""
ALMOST = 0.98
"""Share of a stage that is believed to be done at the most, as long as it is at work."""


@dataclass(frozen=True)
class PlannedStage:
    """What a plan says of the time of a stage."""

    seconds: float
    kind: str
    """``"moving"`` bytes or ``"computing"``, whichever takes more of the planned time."""
    maps: float = 1.0
    """Maps over the blocks, one after another."""


@dataclass
class RemainingTime:
    """What is left of a run, by its stages: those that are done, the one at work, and those to come."""

    todo: dict[str, PlannedStage]
    measured: list[tuple[PlannedStage, float]] = field(default_factory=list)
    """Stages that were computed, and seconds that each took."""
    stage: str = ""
    began: float = 0.0
    mapped: int = 0
    """Maps of the stage at work that are done."""
    counted: tuple[str, int, int] = ("", 0, 1)
    """Label of the map at work, its tasks done, and its tasks in all."""

    @classmethod
    def of(cls, planned: Mapping[str, PlannedStage]) -> RemainingTime:
        """Return the time of all stages that are to be computed."""
        return cls(dict(planned))

    def start(self, stage: str) -> None:
        """A stage is at work from now on."""
        self.stage, self.began, self.mapped, self.counted = stage, time.monotonic(), 0, ("", 0, 1)

    def end(self, stage: str, seconds: float | None) -> None:
        """A stage is there: computed in so many seconds, or reused (None)."""
        planned = self.todo.pop(stage, None)
        if planned is not None and seconds is not None:
            self.measured.append((planned, seconds))
        self.stage = ""

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map of the stage at work; a count that falls, or another label, is the next map."""
        known, before, of = self.counted
        if (label, total) != (known, of) or done < before:
            self.mapped += bool(known)
        self.counted = label, done, total

    def ratio(self, kind: str, more: tuple[float, float] = (0.0, 0.0)) -> float:
        """Return what stages of a kind have taken of their planned time; of a kind without any, what all have.

        ``more``: planned and measured seconds to count with them.
        """
        pairs = [(one.seconds, took, one.kind) for one, took in self.measured]
        own = [(planned, took) for planned, took, other in pairs if other == kind]
        counted = [*(own or [(planned, took) for planned, took, _ in pairs]), more]
        took, planned = sum(one for _, one in counted), sum(one for one, _ in counted)
        return (took + PRIOR) / (planned + PRIOR)

    def seconds(self) -> float:
        """Return how long what is left takes, as far as is known now."""
        at_work = self.todo.get(self.stage)
        left, more = 0.0, (0.0, 0.0)
        if at_work is not None:
            passed = time.monotonic() - self.began
            whole = self._whole(at_work, passed)
            left, more = max(0.0, whole - passed), (at_work.seconds, whole)
        for name, one in self.todo.items():
            if name != self.stage:
                same = at_work is not None and (one.kind == at_work.kind or not self.measured)
                left += one.seconds * self.ratio(one.kind, more if same else (0.0, 0.0))
        return left

    def _whole(self, stage: PlannedStage, passed: float) -> float:
        """Return the seconds of the stage at work: by its plan at first, from its middle on by its tasks alone."""
        planned = stage.seconds * self.ratio(stage.kind)
        _, done, total = self.counted
        share = min(ALMOST, (self.mapped + done / max(1, total)) / max(1.0, stage.maps))
        by_tasks = passed / share if share else planned
        believed = min(1.0, 2 * share)
        return max(believed * by_tasks + (1 - believed) * planned, passed)
