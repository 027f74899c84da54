"""How long what is left of a run will take: as planned, corrected by what the run has taken so far.

A plan knows the machine, not how busy it is, and of the stores no more than a short measurement. A stage that mostly
moves bytes says how quick the stores really are, and one that mostly computes how quick the processors are: what is
left of each kind is scaled by what its stages have taken of their planned time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

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
