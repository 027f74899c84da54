"""What the processes of a job hold at the most, and where the vectors of its solves are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bigembed.jobs.places.embedded import machine_memory, threads_beside
from bigembed.jobs.planning.resources import Resources
from bigembed.jobs.units import size
from bigembed.stages import Cost

MARGIN = 0.1
"""Share added to what processes are planned to hold: fragments that the allocator does not give back."""


@dataclass(frozen=True)
class Peaks:
    """Peaks of resident memory of processes in which stages of these costs run."""

    resources: Resources
    costs: Sequence[Cost]

    @property
    def worker(self) -> int:
        """Of one worker process (in this process: of the one process). Any may turn out to go through files."""
        alone = self.resources.kind == "process"
        held = [cost.memory + (cost.coordinator + cost.held if alone else 0) for cost in self.costs]
        return self.resources.worker + int((1 + MARGIN) * max(held, default=0))

    @property
    def coordinator(self) -> int:
        """Of the coordinating process."""
        if self.resources.kind == "process":
            return self.worker
        return self._coordinator([cost.coordinator + self.beside(cost) for cost in self.costs])

    @property
    def total(self) -> int:
        """Of all processes together: workers, coordinator, scheduler; of those, the workers idle beside a solve in the
        coordinating one."""
        if self.resources.kind == "process":
            return self.worker
        beside = self.resources.workers * self.resources.worker + self.coordinator
        return max(beside, self.resources.workers * self.worker + self._outside) + self.resources.others

    def fitting(self, machine: int, worker: int) -> int:
        """Workers of this size that such a machine holds beside the coordinating process."""
        return (machine - self._outside - self.resources.others) // worker

    @property
    def held(self) -> int:
        """Vectors of solves that the coordinating process holds at the most while the workers idle."""
        return max((cost.held for cost in self.costs if self.beside(cost)), default=0)

    def cost_of(self, cost: Cost) -> Cost:
        """With what it reads and writes where its vectors will be."""
        inside = (cost.held and self.resources.kind == "process") or self.beside(cost)
        if not inside:
            return cost
        twice = 2 * cost.checkpoint
        return replace(cost, read=int(cost.read / cost.passes), exchanged=twice, scratch=twice)

    def beside(self, cost: Cost) -> int:
        """Bytes of vectors of a stage and of tasks on them in the coordinating process; 0 where they are in files.

        They are there if all workers are on this machine, and together may hold as much as that.
        """
        where = self.resources
        if where.kind != "embedded" or not cost.held:
            return 0
        need = cost.held + self.threads * cost.memory
        idle = where.workers * where.worker
        spared = where.workers * (where.memory_limit or 0) - idle
        whole = idle + self._coordinator([cost.coordinator + need]) + where.others
        return need if (1 + MARGIN) * need <= spared and whole <= machine_memory() else 0

    @property
    def threads(self) -> int:
        """Threads that compute in the coordinating process."""
        return threads_beside(self.resources.workers)

    @property
    def vectors(self) -> str:
        """Where the vectors of a solve are, and why; empty where no stage has any."""
        largest = max(self.costs, key=lambda cost: cost.held, default=Cost())
        if not largest.held:
            return ""
        most = f"vectors of the solve: {size(largest.held)} at the most"
        if self.resources.kind == "process":
            return f"{most}, in the memory of this process, which has all tasks"
        if self.resources.kind != "embedded":
            return "vectors of the solve: in files, since its workers may be on several machines"
        if self.beside(largest):
            return (
                f"{most}, in the memory of the coordinating process, which solves with {self.threads} threads while "
                "the workers idle: all are on this machine, and together may hold as much"
            )
        return (
            f"{most}; in files, since the workers together may not hold them and the tasks on them "
            f"({size(largest.held + self.threads * largest.memory)})"
        )

    @property
    def _outside(self) -> int:
        """Of the coordinating process, where vectors are in files."""
        return self._coordinator([cost.coordinator for cost in self.costs])

    def _coordinator(self, held: Sequence[int]) -> int:
        compiler = self.resources.compiler if any(cost.held for cost in self.costs) else 0
        return int((1 + MARGIN) * (self.resources.coordinator + compiler + max(held, default=0)))
