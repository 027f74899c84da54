"""Structured logs: one JSON object a line, with time, level, run, stage and block, besides what a person reads.

Everything goes through :mod:`logging`: what the job reports (logger ``bigembed``) and the warnings of ``distributed``.
A log of :data:`LARGEST` bytes gets the name ``log.jsonl.1``, what had that name ``log.jsonl.2``, and so on.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from logging.handlers import RotatingFileHandler
from typing import Any

from bigembed.jobs.places import redacted
from bigembed.runtime import Event
from bigembed.runtime.outages import stores
from bigembed.store import AnyPath, at, is_url, put

NAME = "log.jsonl"
SECONDS = 10.0
"""Between two lines on the blocks of one map."""
LARGEST = 4 << 20
"""Bytes of a log, about; some twenty thousand lines."""
EARLIER = 4
"""Logs of that size that are kept beside it; older lines are deleted."""
LOGGERS = {"bigembed": logging.INFO, "distributed": logging.WARNING}
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of strict JSON: the four fields that place it, the message, and its extras."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record of the log as a line of JSON."""
        value: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "run": None,
            "stage": None,
            "block": None,
            "message": record.getMessage(),
            "logger": record.name,
        }
        value |= {key: entry for key, entry in vars(record).items() if key not in _OWN}
        if record.exc_info and record.exc_info[1] is not None:
            value["traceback"] = self.formatException(record.exc_info)
        return json.dumps(
            {key: redacted(entry) if isinstance(entry, str) else entry for key, entry in plain(value).items()}
        )


class FileLog(RotatingFileHandler):
    """A log that is appended to, up to its size.

    A disk that takes no more does not disturb the job here, which meets it itself.
    """

    def __init__(self, path: str) -> None:
        _end_line(path)
        super().__init__(path, maxBytes=LARGEST, backupCount=EARLIER, encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """Say what failed, unless it is the disk."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Close it; what no longer fits is lost."""
        with suppress(OSError):
            super().close()


def _end_line(path: str) -> None:
    """End the last line of a file, if it was torn: its process was killed, or the disk was full."""
    with suppress(OSError), open(path, "r+b") as file:
        if file.seek(0, 2) and file.seek(-1, 2) is not None and file.read(1) != b"\n":
            file.write(b"\n")


class ObjectLog(logging.Handler):
    """A log in an object store, where nothing can be appended to: the whole of it is written now and then."""

    def __init__(self, path: AnyPath) -> None:
        super().__init__()
        self.path, self._written = path, time.monotonic()
        self._text = path.read_text(encoding="utf-8") if path.is_file() else ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self._text += self.format(record) + "\n"
        if len(self._text) > LARGEST:
            with suppress(OSError), stores.without_waiting():  # (then with a later line)
                self._rotate()
        if time.monotonic() - self._written > SECONDS:
            self.flush()

    def _rotate(self) -> None:
        """Give this log, and those before it, the next number."""
        names = [f"{self.path}{number}" for number in ("", *(f".{k}" for k in range(1, EARLIER + 1)))]
        put(self.path, self._text.encode())
        for old, new in reversed([*pairwise(names)]):
            if at(old).is_file():
                put(new, at(old).read_bytes())
        self._text = ""

    def flush(self) -> None:
        """Write what there is; a store that is away gets it the next time."""
        self._written = time.monotonic()
        with suppress(OSError), stores.without_waiting():
            put(self.path, self._text.encode())

    def close(self) -> None:
        """The last lines, too."""
        self.flush()
        super().close()


_SILENT = logging.NullHandler()
"""Without any handler Python would print errors, which whoever runs the job shows already."""


class Logs:
    """Writes what a job reports to its loggers, each line with the run and the stage."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.stage: str | None = None
        self._last = 0.0
        self._silent = False
        self._logger = logging.getLogger("bigembed.jobs")
        self._logger.addHandler(_SILENT)

    def filter(self, record: logging.LogRecord) -> bool:
        """As a filter of a handler: say which run and stage a record belongs to."""
        record.run = self.run
        if getattr(record, "stage", None) is None:
            record.stage = self.stage
        return True

    def say(self, message: str, level: int = logging.INFO, **fields: Any) -> None:
        """A line."""
        if not self._silent:
            self._logger.log(level, message, extra={"stage": self.stage, **fields})

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Around a run inside of this one, whose own lines come to the same places."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def warning(self, message: Any, category: type[Warning]) -> Any:
        """Log a warning, which is shown as it is."""
        self.say(str(message), logging.WARNING, category=category.__name__)
        return message

    def event(self, event: Event, **fields: Any) -> None:
        """A stage starts, ends, is reused, or says something; a worker is frozen, or an object store away."""
        if event.kind in ("worker", "store"):
            self.say(event.message, logging.WARNING, event=event.kind, **event.results)
            return
        self.stage, self._last = event.stage, time.monotonic()
        if event.kind == "note":
            self.say(event.message, event="note")
        else:
            timed: dict[str, Any] = {"seconds": round(event.seconds, 3)} if event.kind == "done" else {}
            self.say(f"stage {event.kind}", event=event.kind, **timed, **fields)

    def progress(self, label: str, done: int, total: int) -> None:
        """Blocks of a map, now and then."""
        if time.monotonic() - self._last > SECONDS:
            self._last = time.monotonic()
            self.say("blocks", event="progress", label=label, block=done, total=total)


@contextmanager
def logs(run: str, *places: AnyPath | str | None) -> Iterator[Logs]:
    """Log into every place: a file (appended to), or ``"-"`` for stderr."""
    sink = Logs(run)
    handlers = [_handler(place, sink) for place in places if place is not None]
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name, level in LOGGERS.items():
        logger = logging.getLogger(name)
        logger.setLevel(min(level, logger.level or level))
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield sink
    finally:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.setLevel(levels[name])
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


@contextmanager
def warnings_changed(change: Callable[[Any, type[Warning]], Any]) -> Iterator[None]:
    """Show every warning inside as ``change(message, category)`` returns it; None is not shown."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any, **more: Any) -> None:
            if (changed := change(message, category)) is not None:
                shown(changed, category, *rest, **more)

        warnings.showwarning = show
        yield


def plain(value: Any) -> Any:
    """As strict JSON: NumPy values as Python's, no NaN or infinity (null)."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


class UnsilencedHandler(logging.Handler):
    """Hands on to a handler that writes; a cluster that silences its loggers would silence that one itself."""

    def __init__(self, to: logging.Handler) -> None:
        super().__init__()
        self.to = to

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        self.to.emit(record)

    def close(self) -> None:
        """Close what writes."""
        self.to.close()
        super().close()


def _handler(place: AnyPath | str, sink: Logs) -> logging.Handler:
    handler: logging.Handler
    if str(place) == "-":
        handler = logging.StreamHandler(sys.stderr)
    elif is_url(place):
        handler = ObjectLog(at(place))
    else:
        at(place).absolute().parent.mkdir(parents=True, exist_ok=True)
        handler = FileLog(str(place))
    handler.setFormatter(JsonLines())
    written = UnsilencedHandler(handler)
    written.addFilter(sink.filter)
    return written
