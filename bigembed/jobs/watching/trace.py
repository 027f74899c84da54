"""A record of every task of a job: which stage it was of, when and where it ran, what it took and what it moved.

A line of JSON for each stage that starts or is done, and for each task as soon as its result is known; the first line
says what the job is. ``benchmarks/replay.py`` reads it. A later start of the job adds to the file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self

DIGITS = 6
"""Of seconds."""


class Trace:
    """Write lines of a trace, from any thread."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  (open until the job ends)
        self._lock, self._stage, self._maps = Lock(), "", count(1)
        self._write({"event": "job", "time": time.time(), "cores": os.cpu_count(), **about})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def stage(self, kind: str, name: str) -> None:
        """Record that a stage starts or is done."""
        self._stage = name if kind == "start" else ""
        self._write({"event": kind, "stage": name, "time": time.time()})

    def map(self, label: str, total: int, at_home: bool) -> Callable[[int, Mapping[str, Any]], None]:
        """Return what records the tasks of the next map; ``at_home``: each runs where what it needs is held."""
        known = {"event": "task", "stage": self._stage, "map": next(self._maps), "label": label, "of": total}
        if at_home:
            known["at_home"] = True

        def record(place: int, found: Mapping[str, Any]) -> None:
            rounded = {name: round(one, DIGITS) if isinstance(one, float) else one for name, one in found.items()}
            self._write({**known, "task": place, **rounded})

        return record

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
