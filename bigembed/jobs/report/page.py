"""``bigembed report``: one self-contained HTML page of a run of any method, and the warnings on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import ExistingOutputError, InputError, MissingPathError
from bigembed.jobs import duration, size
from bigembed.jobs.record import kind_of
from bigembed.jobs.report import RunSummary, StageLine
from bigembed.jobs.report.figures import CATEGORIES, HEADINGS, shown
from bigembed.jobs.report.leading import leading_of
from bigembed.jobs.report.run_map import CLOSE, Map, draw_map
from bigembed.maps.kernels import BINARY
from bigembed.plotting.vector import Mark, Series, chart, number
from bigembed.runtime import PARTS
from bigembed.runtime.blocks import Array
from bigembed.store import PAGES, AnyPath, PathLike, at, no_such_path, put, require_apart, require_suffix
from bigembed.store.superseded import explanation

# ---------------------------------------------------------------------------------------------------------- warned
# The warnings of a page: those of the run, of its state and of its files.


@dataclass(frozen=True)
class PageWarning:
    """A kind of warning and its messages."""

    kind: str
    messages: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the title under which warnings of this kind stand."""
        return CATEGORIES[self.kind][0]

    @property
    def level(self) -> str:
        """Return how bad they are: ``"bad"`` or ``"warn"``."""
        return CATEGORIES[self.kind][1]


def warnings_of(summary: RunSummary) -> list[PageWarning]:
    """Collect all warnings of a run, the worst first, each message once."""
    found: dict[str, list[str]] = {kind: [] for kind in CATEGORIES}
    for kind, messages in summary.certificate.get("warnings", {}).items():
        found[kind if kind in found else "other"] += messages
    known = {message for messages in found.values() for message in messages}
    for message in summary.record.get("warnings", []):
        _, _, of_method = message.partition(": ")  # (as it was given, after the name of the method)
        found["other"] += [message] if known.isdisjoint((message, of_method)) else []
    for kind, messages in (*_own(summary).items(), *summary.extra.items()):
        found[kind] += messages
    return [PageWarning(kind, tuple(dict.fromkeys(messages))) for kind, messages in found.items() if messages]


def _own(summary: RunSummary) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    error = summary.status.get("error") or {}
    state = summary.status.get("state")
    if state in ("planned", "running") and not summary.finished:
        out["running"] = [f"It works on {summary.status.get('stage') or 'its plan'} as this page is written"]
    elif state == "failed" and not summary.finished:
        out["failed"] = [str(error.get("message", "it ended with an error"))]
    elif not summary.finished:
        lines = summary.stages()
        left = [line.name for line in lines if line.state == "not made"]
        there = f"{len(lines) - len(left)} of {len(lines)} stages are there" if lines else "No stage is there yet"
        then = f"; still to come: {', '.join(left)}" if left else ""
        why = f"{error['message']}. " if error.get("message") else ""
        out["unfinished"] = [f"{why}{there}{then}. Run the job again: it goes on from there"]
    for name, predicted, measured in summary.memory():
        if measured > predicted:
            out.setdefault("memory", []).append(
                f"{name} held {size(measured)}; {size(predicted)} were planned. Give the workers of the next run "
                "more room, and report it: the plan is meant to be an upper bound"
            )
    if summary.old:
        reasons = "; ".join(explanation(name, why) for name, why in summary.old.items())
        out["superseded"] = [f"Not shown: {reasons}. Run the job again"]
    if any(line.flagged for line in summary.coordinates) and not any(summary.certificate.get("warnings", {}).values()):
        marked = ", ".join(str(line.number) for line in summary.coordinates if line.flagged)
        out["other"] = [f"Coordinates {marked}: see the amber cells of their table"]
    gone = [name for name in summary.record.get("keys", {}) if not summary.has(name)]
    if gone:
        out["damaged"] = [f"Published before, and gone now: {', '.join(gone)}. Run the job again to make them anew"]
    return out


# ------------------------------------------------------------------------------------------------------------ page
# ``bigembed report``: one self-contained HTML page of a run of any method. No scripts, no network.
#
# What a run says of itself is read by :mod:`bigembed.jobs.report`, the map is drawn by
# :mod:`bigembed.jobs.report.run_map`; this module puts both into the page.

TEMPLATE = "report.html"


def write_report(
    run: PathLike,
    out: PathLike | None = None,
    *,
    title: str | None = None,
    color: PathLike | None = None,
    ids: PathLike | None = None,
) -> dict[str, Any]:
    """Write the page of a run (finished, stopped or damaged) to ``out``, by default ``RUN`` with ``.html``.

    Parameters
    ----------
    run : path
        The path of a run.
    out : path
        The path of the page; an existing page of this program is replaced, another file is not.
    title : str
        The heading.
    color : str or None
        What the map is coloured by: the path of an array with a number or a label for each row (Zarr or .npy); a
        table and its column, ``"table.csv:NAME"``, joined by the ids of the run if it has a column of their name;
        ``"column:J"`` (column J of the input, from 0), ``"cluster"``, ``"component"`` or ``"none"``; by default what is
        known of the rows: labels of the job, the truth of its data set, clusters, or the components of the graph.
    ids : path or None
        The names of the rows of that array or table, ``"table.csv:NAME"`` or a vector, where they lie in another order
        than those of the run and no column is called as the ids of the run are.

    Returns
    -------
    dict
        ``page``, ``bytes``, ``seconds``, ``warnings`` (how many kinds), ``points`` (on the map).

    Raises
    ------
    MissingPathError
        If there is no run.
    InputError
        If a color does not fit.
    ExistingOutputError
        If another file is at ``out``.

    Cost: two passes over the coordinates and one or two over the colours, a block at a time; 60 MB of grids.
    """
    began = time.perf_counter()
    root = at(run).absolute()
    if not root.exists():
        raise MissingPathError(no_such_path(root, "run"))
    if kind_of(root) != "run":
        raise InputError(f"{root}: a model; a report is made of a run. Give the path that [output] of a job names")
    page = at(out).absolute() if out is not None else root.with_suffix(".html")
    refuse_page(page)
    require_apart(root / "stages", page)
    summary = RunSummary.read(root)
    drawn = draw_map(summary, None if color is None else str(color), ids=ids)
    text = render(summary, drawn, title)
    put(page, text.encode())
    return {
        "page": str(page),
        "bytes": len(text.encode()),
        "seconds": round(time.perf_counter() - began, 3),
        "warnings": len(warnings_of(summary)),
        "points": 0 if drawn is None else drawn.count - drawn.missing,
    }


def report_line(found: dict[str, Any]) -> str:
    """Write in a line where the page of a run lies, how much it shows, and how many kinds of warnings."""
    count = found["warnings"]
    kinds = "no warnings" if not count else f"{count} kind{'s' if count > 1 else ''} of warnings"
    return f"{found['page']}: {found['points']:,} points, {size(found['bytes'])}, {kinds}; {found['seconds']:.1f} s"


def render(summary: RunSummary, drawn: Map | None, title: str | None) -> str:
    """Return the page as text. Everything that a run says is escaped by the template."""
    from markupsafe import Markup

    drawings = [*((one, "") for one in spectra(summary)), *curves(summary)]
    charts = [(Markup(one), caption) for one, caption in drawings if one]
    return filled(
        TEMPLATE,
        drawn,
        summary=summary,
        title=title or f"{summary.title} of {summary.source}",
        warnings=warnings_of(summary),
        stages=(lines := summary.stages()),
        parts=PARTS,
        slow=slow_stages(lines, summary.record.get("plan", {}).get("vectors") or ""),
        charts=charts,
        headings=HEADINGS,
        tiles=tiles(summary),
        leading=leading_of(summary.record),
    )


def filled(template: str, drawn: Map | None, **given: Any) -> str:
    """Return a template of this folder with a map and what else it needs; everything given is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(loader=PackageLoader("bigembed.jobs.report"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"size": size, "seconds": duration, "shown": shown, "count": lambda value: f"{value:,}"}
    histogram = Markup(drawn.histogram) if drawn is not None and drawn.histogram else None
    return environment.get_template(template).render(map=drawn, histogram=histogram, **given)


def tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Return the few numbers that a person looks for first: name, value, a note."""
    found: list[tuple[str, str, str]] = []
    if summary.shape:
        n, d = summary.shape
        cells = summary.certificate.get("condense")
        count, inside = (cells["n"], f", in {cells['cells']:,} cells") if cells else (n, "")
        found.append(("Rows", f"{count:,}", f"of {d:,} columns{inside}"))
    width = getattr(summary.estimator, "n_components_", None)
    if width is not None:
        found.append(("Coordinates", shown(int(width)), summary.title))
    if summary.seconds is not None:
        workers = summary.record.get("plan", {}).get("place", {}).get("workers", 1)
        where = "in one process" if summary.in_one_process else f"on {workers} workers"
        planned = summary.record.get("predicted_seconds")
        note = where if planned is None else f"{duration(planned)} planned, {where}"
        found.append(("Time", duration(summary.seconds), note))
    for name, predicted, measured in summary.memory()[:1]:
        found.append(("Peak memory", size(measured), f"{size(predicted)} planned, {name[0].lower()}{name[1:]}"))
    recall = summary.certificate.get("recall")
    if isinstance(recall, dict) and "recall" in recall:
        found.append(("Recall", f"{recall['recall']:.3f}", f"target {recall.get('target', '–')}"))
    if "explained" in summary.certificate:
        found.append(("Variance kept", f"{100 * summary.certificate['explained']:.3g} %", "by the coordinates"))
    if "passes" in summary.certificate:
        converged = summary.certificate.get("converged")
        end = "over the data" if converged is None else "converged" if converged else "not converged"
        found.append(("Passes", shown(summary.certificate["passes"]), end))
    return found


def refuse_page(page: AnyPath) -> None:
    """A file that is not a page of this program is not overwritten, and a page is called one."""
    require_suffix(page, PAGES, "the page is written as HTML")
    if page.is_dir():
        raise ExistingOutputError(f"{page}: a folder. Give the path of a file")
    if page.exists() and b'name="generator" content="bigembed' not in page.read_bytes()[:2000]:
        raise ExistingOutputError(f"{page}: exists and is not a report. Nothing was changed; choose another path")


WORTH_IT, MOST = 0.1, 0.5
"""Share of all time from which on a stage is spoken of, and share of its own time that one part has to take."""
PLACES = {
    "computing": "its threads are busy; more of them make it quicker",
    "reading": "what it reads should lie on a quicker disk, or nearer",
    "writing": "[output] path, or [output] scratch, should lie on a quicker disk",
    "waiting": "its threads had no task, since one process did the work or had too little to hand out; more workers do "
    "not make it quicker",
}
IN_FILES = (
    "its vectors lie in files; they are in memory where all workers are on one machine, and the coordinating process "
    "has room for them"
)

IN_MEMORY = "the coordinating process computes with its vectors in memory, and the workers have nothing to do"


def slow_stages(stages: Sequence[StageLine], vectors: str = "") -> list[str]:
    """Say of the stages that took the most time what most of it went into; ``vectors``: where the plan says that those
    of solves are.
    """
    whole = sum(one.computed_seconds for one in stages)
    found = []
    for one in sorted(stages, key=lambda line: -line.computed_seconds):
        part, share = max(one.shares.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= MOST and one.computed_seconds >= WORTH_IT * whole:
            why = PLACES[part]
            if one.held and "in files" in vectors and part in ("reading", "writing"):
                why = IN_FILES
            if one.held and "coordinating process" in vectors and part == "waiting":
                why = IN_MEMORY
            found.append(f"{one.name}: {share:.0%} {part}: {why}".replace("%", " %", 1))
    return found


# ---------------------------------------------------------------------------------------------------------- charts
# The charts of the page of a run: spectra, gaps, the kernel sum.

SHOWN = 6
"""Components whose eigenvalues are drawn."""

FLAT, BEYOND = 0.01, 6
"""The kernel sum is drawn where its slope exceeds this share of the largest, and this number of scales beyond."""

SAME = 1e-6
"""Two scales that differ by less, relatively, are one."""


def spectra(summary: RunSummary) -> list[str]:
    """Eigenvalues with gaps and residuals; explained variance; the error of a descent: what the method has."""
    values, residuals = summary.fitted("eigenvalues_"), summary.fitted("residuals_")
    out = []
    if values is not None:
        out += [_eigenvalues(values), _gaps(values, residuals)]
    variance, share = summary.fitted("explained_variance_"), summary.fitted("explained_variance_ratio_")
    if share is not None:
        out.append(_variance(share))
        if variance is not None:
            out.append(_gaps(variance, residuals))
    objectives = summary.fitted("objectives_")
    if objectives is not None:
        steps = np.arange(len(objectives))
        text = f"From {objectives[0]:.4g} to {objectives[-1]:.4g}."
        out.append(chart(
            "objective", "Error of each iteration", text, [Series("squared error", steps, objectives)],
            x_label="iteration", y_label="squared error ‖A − WH‖²", log_y=True,
        ))  # fmt: skip
    return out


def _eigenvalues(values: Array) -> str:
    """Return the eigenvalues, a line for each component of the graph; where all are close to 1, how far they are from
    it."""
    rows = np.atleast_2d(values)
    close = bool(np.nanmin(values) > 1.0 - CLOSE and np.nanmax(values) < 1.0)
    names = ["eigenvalue"] if len(rows) == 1 else [f"component {order} of the graph" for order in range(len(rows))]
    kind = "stems" if len(rows) == 1 and not close else "both"
    pairs = np.arange(1, rows.shape[1] + 1)
    drawn = 1.0 - rows if close else rows
    text = f"{values.size} values from {np.nanmax(values):.9g} to {np.nanmin(values):.9g}."
    return chart(
        "eigenvalues", "Eigenvalues", text,
        [Series(name, pairs, row, kind) for name, row in zip(names[:SHOWN], drawn, strict=False)],
        x_label="pair", y_label="1 − λ" if close else "eigenvalue λ", log_y=close, integers=True,
    )  # fmt: skip


def _gaps(values: Array, residuals: Array | None) -> str:
    """Gaps to the next value and residuals: a residual far below its gap means that the vector is to be trusted."""
    first = np.atleast_2d(values)[0]
    gaps = np.abs(np.diff(first))
    series = [Series("gap to the next", np.arange(1, len(gaps) + 1), gaps, "both")]
    if residuals is not None:
        row = np.atleast_2d(residuals)[0]
        series.append(Series("residual", np.arange(1, len(row) + 1), row, "both"))
    widest = "" if not len(gaps) else f"The widest gap, {gaps.max():.4g}, follows pair {int(gaps.argmax()) + 1}."
    return chart(
        "gaps", "Gaps between eigenvalues, and residuals", widest, series, x_label="pair", y_label="gap to the next",
        log_y=True, integers=True,
    )  # fmt: skip


def _variance(share: Array) -> str:
    pairs = np.arange(1, len(share) + 1)
    whole = np.cumsum(share)
    series = [Series("share of variance", pairs, share, "bars"), Series("together", pairs, whole, "both")]
    return chart(
        "variance", "Explained variance", f"{len(share)} coordinates keep {100 * whole[-1]:.4g} % together.", series,
        x_label="coordinate", zero=True, integers=True,
    )  # fmt: skip


def curves(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the kernel sum over ε and its slope, each with a caption: the ε in units of this curve is marked, no
    other.

    The curve is that of one scale for all pairs of rows. The ε of a local bandwidth is a pure number.
    """
    found = summary.bandwidth()
    if found is None or found["found"].get("kernel") == BINARY:
        return []
    marks, caption = _scales(found["found"])
    steep = np.flatnonzero(found["slope"] > FLAT * found["slope"].max())
    part = slice(max(0, steep[0] - BEYOND), steep[-1] + BEYOND) if len(steep) else slice(None)
    part = _reaching(part, found["epsilon"], [mark.x for mark in marks])
    epsilon, log_sum, slope = (found[name][part] for name in ("epsilon", "log_sum", "slope"))
    dimension = found["found"].get("dimension")
    ends = f"ε from {epsilon.min():.3g} to {epsilon.max():.3g}. "
    implied = f"The steepest place implies dimension {dimension:.3g}." if dimension else ""
    return [
        (chart(
            "ksum", "Kernel sum against ε", ends + caption, [Series("log S(ε)", epsilon, log_sum)], marks=marks,
            x_label="ε, in squared units of the rows", y_label="log S(ε), mean of the kernel", log_x=True,
        ), caption),
        (chart(
            "slope", "Slope of the kernel sum", ends + implied, [Series("d log S / d log ε", epsilon, slope)],
            marks=marks, x_label="ε, in squared units of the rows",
            y_label="d log S / d log ε; its peak is half the dimension", log_x=True, zero=True,
        ), implied),
    ]  # fmt: skip


def _scales(found: dict[str, Any]) -> tuple[list[Mark], str]:
    """Return what to mark on the curve of the kernel sum, and what to say of the ε that was used."""
    chosen, kernel, advice = float(found["epsilon"]), found.get("kernel", "fixed"), found.get("ksum_epsilon")
    marks = [Mark(chosen, f"used: ε = {number(chosen)}")] if kernel == "fixed" else []
    used = f"ε = {number(chosen)} was used, one scale for all rows."
    if kernel != "fixed":
        used = (
            f"The scale that was used ({kernel}, ε = {number(chosen)}) is not on this axis: its ε is a pure number, "
            "which multiplies the scales of the rows."
        )
    if advice is None or (marks and abs(advice / chosen - 1) < SAME):
        return marks, used
    marks.append(Mark(float(advice), f"kernel sum: {number(float(advice))}"))
    return marks, f"{used} {number(float(advice))} is the advice of the kernel sum, for the complete kernel alone."


def _reaching(part: slice, epsilon: Array, marked: list[float]) -> slice:
    """Return the part of the curve, made longer where a mark lies outside."""
    inside = [at for at in marked if epsilon[0] <= at <= epsilon[-1]]
    places = np.searchsorted(epsilon, inside).tolist()
    start, stop, _ = part.indices(len(epsilon))
    return slice(max(0, min([start, *(at - 1 for at in places)])), max([stop, *(at + 1 for at in places)]))
