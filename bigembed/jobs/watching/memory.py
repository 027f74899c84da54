"""The peak of the resident memory of all processes of a job."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from bigembed.jobs.planning.footprint import resident


class MemoryPeak:
    """Samples the resident memory of this process, those it started and ``others``, five times a second.

    ``total`` is the peak of their sum: client, scheduler, workers and all else.
    """

    interval = 0.2

    def __init__(self, others: dict[str, int] | None = None) -> None:
        self.others = others or {}
        self.total = self.coordinator = self.worker = 0
        self._lap = {"total": 0, "coordinator": 0, "worker": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        import psutil  # noqa: F401  (not first in the thread)

        self._sample([])
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._sample(self._processes())

    def as_dict(self) -> dict[str, int]:
        """Peaks in bytes."""
        return {"total": self.total, "coordinator": self.coordinator, "worker": self.worker}

    def lap(self) -> dict[str, int]:
        """Peaks since the last lap, in bytes."""
        found, self._lap = self._lap, {"total": 0, "coordinator": 0, "worker": 0}
        return found

    def _watch(self) -> None:
        looked, processes = 0.0, []
        while not self._stop.wait(self.interval):
            if time.monotonic() - looked > 1.0:
                processes, looked = self._processes(), time.monotonic()
            self._sample(processes)

    def _processes(self) -> list[Any]:
        import psutil

        found = psutil.Process().children(recursive=True)
        for pid in self.others.values():
            try:
                other = psutil.Process(pid)
                found += [other, *other.children(recursive=True)]
            except psutil.Error:
                continue
        return list({process.pid: process for process in found}.values())

    def _sample(self, processes: list[Any]) -> None:
        import psutil

        sizes = [0]
        for process in processes:
            try:
                sizes.append(int(process.memory_info().rss))
            except psutil.Error:
                continue
        own = resident()
        now = {"total": own + sum(sizes), "coordinator": own, "worker": max(sizes)}
        for name, value in now.items():
            setattr(self, name, max(getattr(self, name), value))
            self._lap[name] = max(self._lap[name], value)
