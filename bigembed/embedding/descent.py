"""An iteration that lowers an objective, whose state is in the exchange after every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from bigembed.stages import Context
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.source import RowSource


class Descent(ABC):
    """Goes on where a killed run stopped; ``state`` names the attributes that are its state besides the objectives.

    A step writes what it makes of each row to the exchange under its own name, so that steps are never mixed up.
    """

    state: ClassVar[tuple[str, ...]]
    before: ClassVar[int] = 0
    """Objectives that there are before the first step."""
    objectives: list[float]

    def __init__(self, context: Context, tol: float, max_iter: int) -> None:
        self.context, self.exchange = context, context.exchange
        self.tol, self.max_iter = tol, max_iter
        if not self.exchange.has("state", 0):
            self.begin()
            self.keep()
        for name, value in self.exchange.get_all("state", 0).items():
            setattr(self, name, value if value.ndim else value.item())
        self.objectives = list(map(float, self.objectives))

    @abstractmethod
    def begin(self) -> None:
        """Set the state before the first step."""

    @abstractmethod
    def step(self) -> None:
        """One iteration, at the end of which the state is kept."""

    @abstractmethod
    def publish(self) -> dict[str, Any]:
        """Write what was found; the results of the stage."""

    @property
    def done(self) -> int:
        """Iterations so far."""
        return len(self.objectives) - self.before

    def run(self, objective: str) -> dict[str, Any]:
        """Steps until one takes no more than ``tol`` off the error, or there were ``max_iter``; then the results."""
        while self.done < self.max_iter and not self.converged:
            self.step()
            self.context.note(f"iteration {self.done}: {objective} = {self.objectives[-1]:.6g}")
        return self.publish() | {"iterations": self.done, "last_step": min(self.last_step, 1.0)}

    @property
    def converged(self) -> bool:
        """Whether another step would not help."""
        return self.last_step <= self.tol

    @property
    def last_step(self) -> float:
        """What the last iteration took off the error, as a share of the first error; infinite before."""
        if len(self.objectives) < 2:
            return float("inf")
        first, before, now = (np.sqrt(self.objectives[i]) for i in (0, -2, -1))
        return float((before - now) / first) if first else 0.0

    def keep(self) -> None:
        """Publish the state: from here a killed run goes on."""
        self.exchange.put("state", 0, {name: np.array(getattr(self, name)) for name in ("objectives", *self.state)})


class RowDescent(Descent):
    """A descent of which a step is a pass over the rows."""

    def __init__(self, source: RowSource, context: Context, tol: float, max_iter: int) -> None:
        self.source = source
        super().__init__(context, tol, max_iter)

    def sums(self, function: Callable[..., Parts], label: str, **fixed: Any) -> Parts:
        """One pass over the rows: see :func:`bigembed.store.rows.passes.reduce_rows`."""
        return reduce_rows(self.source, function, self.exchange, label=label, **fixed)
