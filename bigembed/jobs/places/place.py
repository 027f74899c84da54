"""A place where block tasks run: its executor, its workers, and what the plan and the record need to know of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bigembed.blocks.rows import Executor
from bigembed.jobs.places.access import prove_access
from bigembed.jobs.places.worker_monitor import WorkerMonitor
from bigembed.store.blockwise.held_space import give_back
from bigembed.store.storage.paths import AnyPath

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Told the label, the tasks done and the tasks in all."""


def no_progress(label: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


@dataclass
class Place:
    """Where tasks run."""

    kind: str
    """``"process"`` (this one), ``"embedded"``, ``"remote"`` or ``"slurm"``."""
    executor: Executor
    workers: int = 1
    memory_limit: int | None = None
    """Bytes of one worker; None for no limit."""
    client: Any = None
    local_pids: dict[str, int] = field(default_factory=dict)
    """Processes on this machine that this one did not start, by role."""
    monitor: WorkerMonitor | None = None
    """Who looks after the workers of the client."""
    beside: Executor | None = None
    """What runs tasks in this process while the workers idle; None where they are not all on this machine."""

    def rest(self) -> None:
        """Let the workers give back memory that they do not use."""
        if self.monitor is not None:
            self.monitor.awaited(lambda: self.client.run(give_back, on_error="ignore", asynchronous=True))

    def prove_access(self, folder: AnyPath, source: str | None) -> None:
        """Every worker reads what this process wrote into ``folder``, writes there, and reads the input."""
        if self.client is not None:
            prove_access(self.client, folder, source, self.monitor)


def closed(what: Any, timeout: float) -> None:
    """Close a client or a cluster. One that does not answer must not hide how the job ended."""
    try:
        what.close(timeout=timeout)
    except Exception as error:
        logger.warning("%s did not close: %s: %s", type(what).__name__, type(error).__name__, error)
