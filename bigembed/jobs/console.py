"""What a command prints, on a terminal, as plain lines or as JSON lines: progress, results, errors."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
import traceback
import warnings
from typing import Any, Self

import typer

from bigembed.errors import BigembedError, BigembedWarning
from bigembed.estimator import AROUND
from bigembed.jobs.logs import plain
from bigembed.jobs.status import status_of, storage_advice
from bigembed.jobs.where import redacted
from bigembed.stages import Event
from bigembed.store.paths import UNLIMITED

PLAIN_SECONDS = 10.0
"""Between two plain lines on the tasks of one map."""
JSON_SECONDS = 1.0


class Console:
    """Around a command: prints what it tells, and turns an error into one message and an exit status."""

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
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                transient=True,
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


def plan_lines(plan: Any) -> list[str]:
    """A plan for people."""
    from bigembed.jobs.plan import size

    n, d = plan.shape
    lines = [f"{plan.input} ({n:,} × {d} {plan.dtype}) → {plan.output}", ""]
    planned = plan.stage_seconds
    head = ("stage", "passes", "read", "write", "kept", "scratch", "a task", "coordinator", "time")
    table = [head] + [
        (
            f"{name}{' *' if name in plan.published else ''}",
            f"{cost.passes:g}",
            *(size(value) for value in (cost.read, cost.write, cost.disk, cost.scratch, cost.memory, cost.coordinator)),
            duration(planned.get(name)),
        )
        for name, cost in plan.stages
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines += [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    if plan.published:
        lines.append("* there already, with these parameters and inputs: used again")
    lines += [f"{damage}; it will be made anew" for damage in plan.damaged]
    place = plan.place
    where = {
        "process": "in this process",
        "embedded": f"{place.workers} workers on this machine",
        "remote": f"{place.workers} workers of a running cluster",
        "slurm": f"{place.workers} workers in jobs of Slurm",
    }[place.kind]
    limit = f" of {size(place.memory_limit)}" if place.memory_limit else ""
    lines += [
        "",
        f"passes {plan.total('passes'):g}, read {size(plan.total('read'))}, written {size(plan.total('write'))}",
        f"runs {where}{limit}",
        f"memory at the most: {size(plan.worker_peak)} a worker, "
        f"{size(plan.coordinator_peak)} the coordinator, {size(plan.total_peak)} all processes",
        f"time: about {duration(plan.seconds)} on a machine like this one, its start included",
        f"disk: {size(plan.disk_peak)} more at the most, {size(plan.total('disk'))} kept"
        + ("" if plan.free_disk == UNLIMITED else f"; {size(plan.free_disk)} free"),
    ]
    return lines


def run_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of a run for people."""
    from bigembed.jobs.plan import size

    output = found["plan"]["output"]
    made = [output, *found["outputs"]]
    if found["unchanged"]:
        return [
            f"{output}: done already, and nothing it depends on has changed; nothing to do",
            *certificate_lines(found),
        ]
    reused = sum(stage["reused"] for stage in found["stages"])
    measured, predicted = found["measured"], found["predicted"]
    return [
        f"{found['n']:,} × {found['d']} in {found['seconds']:.1f} s; "
        f"{len(found['stages'])} stages, {reused} of them reused",
        f"memory of all processes: {size(measured['total'])} at the most, {size(predicted['total'])} planned",
        f"time: {duration(found['seconds'])}, {duration(found['predicted_seconds'])} planned; "
        + ", ".join(
            f"{stage['name']} {duration(stage['seconds'])} ({duration(stage['predicted_seconds'])})"
            for stage in found["stages"]
            if not stage["reused"]
        ),
        *certificate_lines(found),
        "written: " + ", ".join(made),
    ]


def duration(seconds: float | None) -> str:
    """Seconds for people.

    >>> duration(0.034), duration(7.25), duration(135), duration(9000), duration(None)
    ('0.03 s', '7.2 s', '2.2 min', '2.5 h', '?')
    """
    if seconds is None:
        return "?"
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def extend_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of an extension for people."""
    from bigembed.jobs.plan import size

    measured, predicted = found["measured"], found["predicted"]
    return [
        f"{found['output']}: {found['n']:,} rows, {found['n_components']} coordinates, {found['seconds']:.1f} s",
        f"memory of all processes: {size(measured['total'])} at the most, {size(predicted['total'])} planned; "
        f"time planned: {duration(found['predicted_seconds'])}",
    ]


def verify_lines(found: dict[str, Any]) -> list[str]:
    """The outcome of a verification for people."""
    from bigembed.jobs.plan import size
    from bigembed.store.superseded import told

    files, count = (
        sum(stage["files"] for stage in found["stages"]),
        sum(stage["bytes"] for stage in found["stages"]),
    )
    whole = "as published" if found.get("deep", True) else "names, sizes and metadata as published"
    state = "damaged" if found["problems"] else whole if found["finished"] else f"{whole}, unfinished"
    return [
        f"{found['path']}: {len(found['stages'])} stages, {files} files, {size(count)}: {state}",
        *(f"  {told(name, why)}" for name, why in found["superseded"].items()),
        *(f"  {line}; nobody reads it" for line in found["unlisted"]),
        *([] if found["digest"] else ["  model.json has no digest (saved by an earlier version): it is not compared"]),
        *_readable(found),
    ]


def _readable(found: dict[str, Any]) -> list[str]:
    """The certificate in words; of one that says what none says, that."""
    try:
        return certificate_lines(found, whole=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return [f"  the certificate cannot be shown ({type(error).__name__}: {str(error)[:200]})"]


def certificate_lines(found: dict[str, Any], whole: bool = False) -> list[str]:
    """The certificate in words: how many kinds of warnings; ``whole``: each warning, every coordinate and figure."""
    from bigembed.jobs.report.figures import coordinate_lines, map_figures, text_table
    from bigembed.jobs.report.words import CATEGORIES, entries_of

    certificate = found.get("certificate", {})
    kinds = {kind: messages for kind, messages in certificate.get("warnings", {}).items() if messages}
    titles = [CATEGORIES.get(kind, CATEGORIES["other"])[0] for kind in kinds]
    if not whole:
        single = {key: value for key, value in certificate.items() if not isinstance(value, (dict, list))}
        return [*(f"  {one.name}: {one.value}" for one in entries_of(single)), *(f"  amber: {one}" for one in titles)]
    lines = []
    for title, messages in zip(titles, kinds.values(), strict=True):
        lines += [f"  amber: {title}", *(f"    {message}" for message in messages)]
    lines += [f"  {one.name}: {one.value}{_amber(one.flagged)}" for one in entries_of(certificate)]
    lines += [f"  {line}" for line in text_table(coordinate_lines(certificate, *_spectrum(found)))]
    judged = map_figures(certificate.get("judgement", {}).get("map", {}))
    lines += [f"  {one.name}: {one.value} (shuffled {one.chance}){_amber(one.flagged)}" for one in judged]
    return lines


def _spectrum(found: dict[str, Any]) -> tuple[Any, Any]:
    """Eigenvalues and residuals of the coordinates of a run, as stored; None, None where they cannot be read."""
    from bigembed.stages import Run
    from bigembed.store.arrays import read_array
    from bigembed.store.paths import at

    if found.get("kind") != "run":
        return None, None
    try:
        run = Run(at(found["path"]))
        values, residuals = (read_array(run.path("solve", name)) for name in ("eigenvalues", "residuals"))
    except (BigembedError, KeyError, OSError):  # (damage is said elsewhere)
        return None, None
    return values, residuals


def _amber(flagged: bool) -> str:
    return " (amber)" if flagged else ""


def describe_methods() -> list[dict[str, Any]]:
    """Every method: name, class, one line, parameters with defaults and meaning."""
    from bigembed.methods import REGISTRY, method

    return [_describe(name, method(name)) for name in sorted(REGISTRY)]


def _describe(name: str, cls: type[Any]) -> dict[str, Any]:
    meaning = documented(inspect.getdoc(cls) or "")
    parameters = [
        {
            "name": key,
            "default": None if parameter.default is inspect.Parameter.empty else parameter.default,
            "meaning": meaning.get(key, ""),
        }
        for key, parameter in inspect.signature(cls).parameters.items()
        if key not in AROUND
    ]
    return {
        "name": name,
        "class": cls.__name__,
        "summary": (inspect.getdoc(cls) or "").split("\n")[0],
        "parameters": parameters,
    }


def documented(text: str) -> dict[str, str]:
    """What a numpydoc docstring says of each parameter.

    >>> documented("Does.\\n\\nParameters\\n----------\\na : int\\n    Number.\\nb, c : rest\\n    of it\\n")
    {'a': 'int Number.', 'b': 'rest of it', 'c': 'rest of it'}
    """
    match = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.S | re.M)
    entries: dict[str, list[str]] = {}
    for line in (match[1] if match else "").splitlines():
        head = re.match(r"(\w+(?:, \w+)*) : (.*)", line)
        if head:
            about = [head[2]]
            entries |= dict.fromkeys(head[1].split(", "), about)
        elif line.startswith(" ") and entries:
            about.append(line.strip())
    return {key: " ".join(parts) for key, parts in entries.items()}


def method_lines(methods: list[dict[str, Any]]) -> list[str]:
    """The methods for people."""
    lines = []
    for entry in methods:
        lines += [f"{entry['name']}: {entry['summary']}"]
        lines += [f"  {p['name']} = {p['default']!r}  {p['meaning']}" for p in entry["parameters"]]
    return lines
