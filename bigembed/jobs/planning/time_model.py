"""How long a stage takes: its bytes and operations at the rates of the machine that were measured."""

from __future__ import annotations

from dataclasses import dataclass

from bigembed.jobs.planning.calibrate import Rates
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
