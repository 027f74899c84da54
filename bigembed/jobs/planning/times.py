"""How long stages take: as a plan has it, and what is left of a run that is at work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from bigembed.jobs.planning import Rates
from bigembed.runtime.client_executor import HANDED_OUT, calls_of_task
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
