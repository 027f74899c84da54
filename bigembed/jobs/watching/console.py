"""What a command prints, on a terminal, as plain lines or as JSON lines: progress, results, errors."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, Self

import typer

from bigembed.errors import BigembedError, BigembedWarning
from bigembed.jobs import duration
from bigembed.jobs.places import redacted
from bigembed.jobs.watching.logs import plain
from bigembed.jobs.watching.status import status_of, storage_advice
from bigembed.runtime import Event

PLAIN_SECONDS = 60.0
"""Between two plain lines on what a stage is at."""
JSON_SECONDS = 1.0
LONG = 1.0
"""Seconds from which on a stage that is done gets a plain line; the log of the job has one for each."""
BAR_WIDTH = 20


class Console:
    """Around a command: prints what it reports, and turns an error into one message and an exit status."""

    def __init__(self, as_json: bool = False, debug: bool = False) -> None:
        self.as_json, self.debug = as_json, debug
        self.stage, self._last = "", time.monotonic()
        self.left: float | None = None
        """Seconds that what is left of the run will take."""
        self._bar: Any = None
        self._task: Any = None
        self._caught: Any = None

    def __enter__(self) -> Self:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("always", BigembedWarning)
        warnings.showwarning = self._warn
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._close_bar(error is not None)
        self._caught.__exit__(None, None, None)
        if error is None or isinstance(error, (typer.Exit, SystemExit)):
            return
        status = status_of(error)
        if self.debug:
            typer.echo(redacted("".join(traceback.format_exception(error))), err=True)
        known = isinstance(error, BigembedError)
        message = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
        if not known and (advice := storage_advice(error)):
            message = f"{error}. {advice}"
        if isinstance(error, KeyboardInterrupt):
            message = "stopped by the keyboard"
        message = redacted(message)
        if self.as_json:
            self._json({"event": "error", "status": status, "kind": type(error).__name__, "message": message})
        typer.echo(printable(f"error: {message}"), err=True)
        raise typer.Exit(status) from None

    def event(self, event: Event) -> None:
        """A stage starts, is done or reused, or says something; a worker is frozen, or an object store away."""
        if event.kind not in ("worker", "store"):
            self.stage = event.stage
        if event.kind == "start":
            self._last = time.monotonic()
        if self.as_json:
            self._json(
                {
                    "event": event.kind,
                    "stage": event.stage,
                    "seconds": round(event.seconds, 3),
                    "results": dict(event.results),
                    "message": event.message,
                }
            )
        elif event.kind in ("worker", "store"):
            self._line(f"{event.stage or self.stage}: {event.message}")
        elif event.kind == "note":
            self._now(f"{event.stage}: {event.message}", None)
        elif not self._show(event.stage, None) and event.kind == "done" and event.seconds >= LONG:
            self._line(f"{event.stage}: done in {event.seconds:.1f} s")

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        name = f"{self.stage}: {label}" if self.stage and label != self.stage else label
        if not self.as_json:
            left = "" if self.left is None else f"; about {duration(self.left)} left"
            self._now(name, (done, total), left)
        elif self._due(JSON_SECONDS):
            self._json({"event": "progress", "stage": self.stage, "label": label, "done": done, "total": total})

    def remaining(self, seconds: float) -> None:
        """How long what is left will take: said beside the tasks."""
        self.left = seconds
        if self.as_json:
            self._json({"event": "remaining", "stage": self.stage, "seconds": round(seconds, 1)})

    def result(self, value: dict[str, Any], lines: list[str]) -> None:
        """What the command found or did."""
        self._close_bar()
        if self.as_json:
            self._json({"event": "result", **value})
        else:
            typer.echo(printable("\n".join(lines)))

    def _due(self, seconds: float) -> bool:
        now = time.monotonic()
        if now - self._last < seconds:
            return False
        self._last = now
        return True

    def _now(self, name: str, count: tuple[int, int] | None, left: str = "") -> None:
        """Say what is at work just now: in the line that moves, elsewhere now and then in a line of its own."""
        if not self._show(f"{name}{left}", count) and self._due(PLAIN_SECONDS):
            self._line(f"{name}: {count[0]} of {count[1]}{left}" if count else name)

    def _show(self, name: str, count: tuple[int, int] | None) -> bool:
        """Show what is at work in the one line that moves; False where there is no terminal that could."""
        if self._bar is None and (not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"):
            return False
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            columns = TextColumn("{task.fields[count]}"), TimeElapsedColumn()
            said = TextColumn("{task.description}", table_column=cut, markup=False)
            same = sys.stderr.isatty()
            self._bar = Progress(
                BarColumn(BAR_WIDTH), *columns, said, transient=True, expand=True, redirect_stderr=same
            )
            self._task = self._bar.add_task(name, total=None, count="")
            self._bar.start()
        done, total = count or (0, None)
        text = f"{done}/{total}" if total else ""
        self._bar.update(self._task, description=printable(name), completed=done, total=total, count=text)
        return True

    def _line(self, text: str, err: bool = False) -> None:
        """Print a line, above the one that moves where that is on the same terminal."""
        if self._bar is not None and (not err or sys.stderr.isatty()):
            self._bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
        else:
            typer.echo(printable(text), err=err)

    def _close_bar(self, left: bool = False) -> None:
        """End the line that moves: it is erased, or ``left`` as it is, to say where the work stood."""
        if self._bar is not None:
            self._bar.live.transient = not left
            self._bar.stop()
            self._bar = None

    def _json(self, value: dict[str, Any]) -> None:
        typer.echo(json.dumps(plain(value)))

    def _warn(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        self._line(f"warning: {redacted(str(message))}", err=True)


# --------------------------------------------------------------------------------------- text


def printable(text: str) -> str:
    r"""Return text for a terminal: what names of files, columns or ids hold of control characters is escaped.

    >>> printable("a" + chr(27) + "[31m" + chr(0x202E))
    'a\\x1b[31m\\u202e'
    """
    return "".join(one if one == "\n" or one.isprintable() else one.encode("unicode_escape").decode() for one in text)


# -------------------------------------------------------------------------------------------------------------- streams
# Standard output and standard error of a command, which goes on when nobody reads them any more.

CLOSED = (errno.EPIPE, errno.EIO, errno.ECONNRESET)
"""Errors of a stream whose reader or terminal is gone, which is the reader's business."""


class LastingStream(io.FileIO):
    """A descriptor that takes whatever is written to it: what does not reach a reader is dropped.

    ``lost`` is the first error that is not a reader who left, such as a full disk; None where there was none.
    """

    lost: OSError | None = None

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)

    def write(self, data: Any) -> int:
        """Write some of the data, or drop all of it."""
        try:
            while (taken := super().write(data)) is None:  # a pipe that does not block, and is full
                _await_room(self.fileno())
            return taken
        except OSError as error:
            if error.errno not in CLOSED and self.lost is None:
                self.lost = error
            return memoryview(data).nbytes


def run_without_readers(app: Callable[[], Any]) -> None:
    """Run a console script to its end, and with its exit status, whether or not somebody reads what it prints.

    Only where all went well and the printed result is lost to a full disk, say, the status is 1.
    """
    out, _ = outlast_readers()
    try:
        app()
    except SystemExit as end:
        sys.stdout.flush()
        if out.lost is None or end.code:
            raise
        typer.echo(f"error: standard output: {out.lost.strerror}; what was to be printed there is lost", err=True)
        sys.exit(1)


def outlast_readers() -> list[LastingStream]:
    """Let standard output and standard error of this process outlast their readers; return what they write to.

    So a job ends as it would with a reader who stays, whichever part of it prints, and so does the interpreter, which
    flushes them at its end. One that was closed before the start is opened on nothing: its number would else be that
    of the next file, and whatever a library prints would be written there.
    """
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, descriptor)
            if nothing != descriptor:
                os.close(nothing)
    raw = []
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        kept = {} if before is None else {"encoding": before.encoding, "errors": before.errors}
        raw.append(LastingStream(descriptor))
        lines = before is not None and (before.line_buffering or before.write_through)
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw[-1]), line_buffering=lines, **kept))
    return raw


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _await_room(descriptor: int) -> None:
    import select

    watched = select.poll()
    watched.register(descriptor, select.POLLOUT)
    watched.poll()
