"""What a command prints, on a terminal, as plain lines or as JSON lines: progress, results, errors."""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from typing import Any, Self

import typer

from bigembed.errors import BigembedError, BigembedWarning
from bigembed.jobs.places.cluster_table import redacted
from bigembed.jobs.watching.logs import plain
from bigembed.jobs.watching.status import status_of, storage_advice
from bigembed.stages import Event

PLAIN_SECONDS = 10.0
"""Between two plain lines on the tasks of one map."""
JSON_SECONDS = 1.0


class Console:
    """Around a command: prints what it reports, and turns an error into one message and an exit status."""

    def __init__(self, as_json: bool = False, debug: bool = False) -> None:
        self.as_json, self.debug = as_json, debug
        self.stage, self._last = "", time.monotonic()
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
        self._close_bar()
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
        """A stage starts, is done or reused, or says something; or a worker is frozen."""
        if event.kind != "worker":
            self.stage, self._last = event.stage, time.monotonic()
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
        elif event.kind == "start":
            if not self._show(f"{event.stage} …", None):
                self._line(f"{event.stage}: started")
        elif event.kind in ("note", "worker"):
            self._line(f"{event.stage or self.stage}: {event.message}")
        else:
            self._line(f"{event.stage}: " + (f"done in {event.seconds:.1f} s" if event.kind == "done" else "reused"))

    def progress(self, label: str, done: int, total: int) -> None:
        """Tasks of a map."""
        name = f"{self.stage}: {label}" if self.stage and label != self.stage else label
        if self.as_json:
            if self._due(JSON_SECONDS):
                self._json({"event": "progress", "stage": self.stage, "label": label, "done": done, "total": total})
        elif not self._show(name, (done, total)) and self._due(PLAIN_SECONDS):
            self._line(f"{name}: {done} of {total}")

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

    def _show(self, name: str, count: tuple[int, int] | None) -> bool:
        """On a terminal, in the bar."""
        if not sys.stdout.isatty():
            return False
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), transient=True
            )
            self._task = self._bar.add_task(name, total=None)
            self._bar.start()
        done, total = count or (0, None)
        self._bar.update(self._task, description=name, completed=done, total=total)
        return True

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(printable(text), markup=False, highlight=False)
        else:
            typer.echo(printable(text))

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _json(self, value: dict[str, Any]) -> None:
        typer.echo(json.dumps(plain(value)))

    def _warn(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        typer.echo(printable(f"warning: {redacted(str(message))}"), err=True)


# --------------------------------------------------------------------------------------- text


def printable(text: str) -> str:
    r"""Text for a terminal: what names of files, columns or ids hold of control characters is escaped.

    >>> printable("a" + chr(27) + "[31m" + chr(0x202E))
    'a\\x1b[31m\\u202e'
    """
    return "".join(one if one == "\n" or one.isprintable() else one.encode("unicode_escape").decode() for one in text)
