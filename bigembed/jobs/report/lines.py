"""What commands print of their outcomes for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bigembed.errors import BigembedError
from bigembed.jobs import duration, size, text_columns
from bigembed.jobs.report import figures
from bigembed.jobs.report.leading import leading_lines
from bigembed.quality import FIGURES
from bigembed.rows.reader import listed
from bigembed.stages import Run
from bigembed.store import UNLIMITED, arrays, at, superseded

LONGEST = 4
"""Stages whose times are printed after a run; the page of the run has all of them."""

FAR_COLUMNS = 5
"""Columns that are printed in which an audit finds rows far away; ``audit.json`` has all."""


def plan_lines(plan: Any) -> list[str]:
    """Write a plan in lines to print."""
    n, d = plan.shape
    lines = [f"{plan.input} ({n:,} × {d} {plan.dtype}) → {plan.output}", ""]
    planned = plan.stage_seconds
    head = ("stage", "passes", "read", "write", "kept", "scratch", "a task", "coordinator", "time")
    table = [head] + [
        (
            f"{name}{' *' if name in plan.published else ''}",
            f"{cost.passes:g}",
            size(cost.read + cost.exchanged),
            size(cost.write + cost.exchanged),
            *(size(value) for value in (cost.disk, cost.scratch, cost.memory)),
            size(cost.coordinator + plan.peaks.solve_memory(cost)),
            duration(planned.get(name)),
        )
        for name, cost in plan.costs
    ]
    lines += text_columns(table, [0])
    if plan.published:
        lines.append("* there already, with these parameters and inputs: used again")
    lines += [f"{damage}; it will be made anew" for damage in plan.damaged]
    lines += plan.notes
    resources = plan.resources
    where = resources.of.words.format(workers=resources.workers)
    limit = f" of {size(resources.memory_limit)}" if resources.memory_limit else ""
    lines += [
        "",
        f"passes {plan.total('passes'):g}, read {size(plan.total('read') + plan.total('exchanged'))}, "
        f"written {size(plan.total('write') + plan.total('exchanged'))}",
        f"runs {where}{limit}",
        *([plan.peaks.vectors] if plan.peaks.vectors else []),
        f"memory at the most: {size(plan.peaks.worker)} a worker, "
        f"{size(plan.peaks.coordinator)} the coordinator, {size(plan.peaks.total)} all processes",
        f"time: {time_words(plan)}"
        + (f"; {duration(plan.compilation)} more for compilation at first use" if plan.compilation else ""),
        *(line for window in plan.windows for line in window.lines()),
        f"disk: {size(plan.disk_peak)} more at the most, {size(plan.disk_kept)} kept"
        + ("" if plan.free_disk == UNLIMITED else f"; {size(plan.free_disk)} free"),
    ]
    return lines


def time_words(plan: Any) -> str:
    """Say how long a job takes: a lower bound where nobody knows how quick the files are that all workers share."""
    seconds, where, doubt = duration(plan.seconds), plan.resources, plan.rates.doubt if plan.rates else ""
    if plan.lower_bound:
        alone = f"as if each of the {where.workers} workers had files of its own as quick as those here{doubt}"
        return (
            f"at least {seconds}, {alone}; through the files that all of them share go {size(plan.moved)}, "
            f"{duration(plan.moved / 2**30)} at 1 GiB a second: say how quick they are ([cluster] bandwidth)"
        )
    if plan.apart:
        shared = f"with files of {size(where.bandwidth)} a second that all {where.workers} workers share"
        return f"about {seconds} on machines like this one, {shared}{doubt}"
    return f"about {seconds} on a machine like this one, its start included{doubt}"


def run_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of a run in lines to print."""
    output = found["plan"]["output"]
    made = [output, *found["outputs"]]
    if found["unchanged"]:
        return [
            f"{output}: done already, and nothing it depends on has changed; nothing to do",
            *certificate_lines(found, repeated=True),
        ]
    reused = sum(stage["reused"] for stage in found["stages"])
    measured, predicted = found["measured"], found["predicted"]
    return [
        f"{found['n']:,} × {found['d']}{_condensed(found)} in {found['seconds']:.1f} s; "
        f"{len(found['stages'])} stages, {reused} of them reused",
        f"memory of all processes: {size(measured['total'])} at the most, {size(predicted['total'])} planned",
        f"time: {duration(found['seconds'])}, {duration(found['predicted_seconds'])} planned"
        + f"{_compiled(found['plan'])}{_longest(found['stages'])}",
        *certificate_lines(found),
        "written: " + ", ".join(made),
    ]


def _longest(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return the stages that took longest, each with what was planned of it: of twenty most take no time."""
    done = sorted((one for one in stages if not one["reused"]), key=lambda one: -one["seconds"])
    shown = [
        f"{one['name']} {duration(one['seconds'])} ({duration(one['predicted_seconds'])} planned)"
        for one in done[:LONGEST]
    ]
    return f"; longest: {', '.join(shown)}" if shown else ""


def _condensed(found: dict[str, Any]) -> str:
    """Return of how many rows these are the cells."""
    cells = found.get("certificate", {}).get("condense")
    return f" (cells of {cells['n']:,} rows)" if cells else ""


def _compiled(plan: dict[str, Any]) -> str:
    """Return what compiling was planned to take beside that."""
    seconds = plan.get("compilation", 0.0)
    return f" and {duration(seconds)} for compilation at first use" if seconds else ""


def extend_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of an extension in lines to print."""
    if found["unchanged"]:
        return [f"{found['output']}: done already, of this model and these rows; nothing to do"]
    measured, predicted = found["measured"], found["predicted"]
    return [
        f"{found['output']}: {found['n']:,} rows, {found['n_components']} coordinates, {found['seconds']:.1f} s",
        *_left_out(found),
        f"memory of all processes: {size(measured['total'])} at the most, {size(predicted['total'])} planned; "
        f"time planned: {duration(found['predicted_seconds'])}{_compiled(found)}",
    ]


def verify_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of a verification in lines to print."""
    files, count = (sum(stage["files"] for stage in found["stages"]), sum(stage["bytes"] for stage in found["stages"]))
    state_of_files = "as published" if found.get("deep", True) else "names, sizes and metadata as published"
    state = "damaged" if found["problems"] else state_of_files if found["finished"] else f"{state_of_files}, unfinished"
    return [
        f"{found['path']}: {len(found['stages'])} stages, {files} files, {size(count)}: {state}",
        *_dropped_lines(found["stages"]),
        *(f"  {superseded.explanation(name, why)}" for name, why in found["superseded"].items()),
        *([f"  {found['older']}"] if found.get("older") else []),
        *(f"  {line}; nobody reads it" for line in found["unlisted"]),
        *([] if found["digest"] else ["  model.json has no digest (saved by an earlier version): it is not compared"]),
        *_readable(found),
    ]


def _dropped_lines(stages: list[dict[str, Any]]) -> list[str]:
    """Return what was dropped on purpose, which is no damage."""
    gone = [f"{stage['name']} ({', '.join(stage['dropped'])})" for stage in stages if stage.get("dropped")]
    return [f"  dropped, as [output] keep has it: {'; '.join(gone)}"] if gone else []


def _readable(found: dict[str, Any]) -> list[str]:
    """Return the certificate in words; of one that says what none says, that."""
    try:
        return certificate_lines(found, in_full=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return [f"  the certificate cannot be shown ({type(error).__name__}: {str(error)[:200]})"]


def certificate_lines(found: dict[str, Any], in_full: bool = False, repeated: bool = False) -> list[str]:
    """Return the certificate in words: the kinds of warnings, and the figures of the map.

    ``repeated``: the warnings themselves, too, which only the run that made the map has printed. ``in_full``: these,
    and every coordinate and figure.
    """
    certificate = found.get("certificate", {})
    kinds = {kind: messages for kind, messages in certificate.get("warnings", {}).items() if messages}
    titles = [figures.CATEGORIES.get(kind, figures.CATEGORIES["other"])[0] for kind in kinds]
    warned = [
        line
        for title, messages in zip(titles, kinds.values(), strict=True)
        for line in (f"  warning: {title}", *(f"    {one}" for one in messages if in_full or repeated))
    ]
    seen = certificate.get("judgement", {}).get("map", {})
    judged = [
        f"  {one.name}: {one.value} (shuffled {one.chance}){_doubtful(one.flagged)}"
        for one in figures.map_figures(seen)
    ]
    if judged:
        judged.append(f"    ({figures.compared(seen)})")
    elif why := figures.not_compared(certificate):
        judged.append(f"  {why}")
    few = figures.columns_entries(certificate.get("judgement", {}))
    judged += [f"  {one.name}: {one.value}. {one.meaning}" for one in few if not in_full]
    if not in_full:
        single = {key: value for key, value in certificate.items() if not isinstance(value, (dict, list))}
        single |= {key: value for key, value in certificate.items() if key == "steps"}
        single |= {key: value for key, value in certificate.items() if key == "clusters" and "method" in value}
        return [
            *(f"  {one.name}: {one.value}" for one in figures.entries_of(single)),
            *leading_lines(found),
            *judged,
            *warned,
        ]
    table = figures.text_table(figures.coordinate_lines(certificate, *_spectrum(found)))
    entries = [f"  {one.name}: {one.value}{_doubtful(one.flagged)}" for one in figures.entries_of(certificate)]
    return [*warned, *entries, *(f"  {line}" for line in table), *judged]


def _spectrum(found: dict[str, Any]) -> tuple[Any, Any]:
    """Eigenvalues and residuals of the coordinates of a run, as stored; None, None where they cannot be read."""
    if found.get("kind") != "run":
        return None, None
    try:
        run = Run(at(found["path"]))
        values, residuals = (arrays.read_array(run.path("solve", name)) for name in ("eigenvalues", "residuals"))
    except (BigembedError, KeyError, OSError):  # (damage is said elsewhere)
        return None, None
    return values, residuals


def _doubtful(flagged: bool) -> str:
    return " (doubtful)" if flagged else ""


def refresh_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of a refresh in lines to print."""
    if found["unchanged"]:
        return [f"{found['output']}: {found['fitted']:,} rows fitted, and nothing has changed; nothing to do"]
    return [
        f"{found['output']}: {found['fitted']:,} rows fitted in {found['seconds']:.1f} s",
        f"model: {found['model']}",
        f"coordinates: {found['coordinates']}",
        *_moved(found.get("frame", {})),
        *_left_out(found),
    ]


def _moved(frame: dict[str, Any]) -> list[str]:
    """Return how far the rows of a growing embedding moved, where its map was laid over the one before."""
    shares = [frame.get(name, {}).get(quantile) for quantile in ("0.5", "0.99") for name in ("moved", "drift")]
    if None in shares:
        return []
    half, drift, most, drift_of_most = (f"{100 * share:.2g} %" for share in shares)
    return [
        f"half of the rows moved at most {half} of the map's diameter, and {drift} since {frame['since']}; "
        f"99 of 100 {most} and {drift_of_most}"
    ]


def _left_out(found: dict[str, Any]) -> list[str]:
    """Return how many rows are deleted, or miss values: where a step leaves them out, and where one fills these."""
    deleted = [f"{found['deleted']:,} rows are deleted and have NaN for coordinates"] if found.get("deleted") else []
    missing = [f"{found['left_out']:,} rows miss values and have NaN for coordinates"] if found["left_out"] else []
    return [*deleted, *missing, *(account["said"] for account in found.get("missing", ()))]


def growth_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of an extension of a growing embedding in lines to print."""
    where = f"{found['rows']:,} rows have coordinates, {found['fitted']:,} of them fitted"
    other = "the job file asks for other parameters than the current model has; a refresh makes such a one"
    return [
        f"{found['output']}: "
        + ("no new rows; nothing to do" if found["unchanged"] else f"{found['placed']:,} rows placed"),
        f"{where}: {found['coordinates']}",
        *_left_out(found),
        *_pending(found),
        *([other] if found["other_parameters"] else []),
    ]


def _pending(found: Mapping[str, Any]) -> list[str]:
    """Say how many rows are deleted that are shown for now.

    >>> _pending({"pending": 1}), _pending({"pending": 0})
    (['1 row is deleted and still shown until the next refresh'], [])
    """
    count = found["pending"]
    said = "1 row is" if count == 1 else f"{count:,} rows are"
    return [f"{said} deleted and still shown until the next refresh"] if count else []


def status_lines(found: Mapping[str, Any]) -> list[str]:
    """How a job stands, in lines to print."""
    lines = [f"{found['output']}: {found['state']}, {found.get('updated')}"]
    if found["exit"] == 4:
        blocks = f", {found['label']}: {found['done']} of {found['total']}" if found.get("label") else ""
        left = found.get("remaining_seconds")
        lines.append(f"  stage {found['stage']}{blocks}" + ("" if left is None else f"; some {left:.0f} s are left"))
    if found.get("error"):
        lines.append(f"  status {found['exit']}: {found['error']['message']}")
    lines += [f"  {one['category']}: {one['message']}" for one in found.get("warnings") or ()]
    return lines


def audit_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of an audit in lines to print."""
    rows, lines = found["rows"], []
    lines.append(
        f"{found['output']}: {rows['new']:,} rows since the fit of {rows['fitted']:,}; judged by {rows['judged']:,}"
    )
    for name, values in found["figures"].items():
        shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items() if isinstance(value, (int, float)))
        lines.append(f"  {name}: {shown}")
    lines += _pending(found) + _far_lines(found["far"])
    fits = "no refresh is due, but look at the rows that are far" if found["far"] else "the model fits"
    return [*lines, *([f"refresh due: {reason}" for reason in found["due"]] or [fits])]


def _far_lines(far: list[dict[str, Any]]) -> list[str]:
    """Return in which columns new rows are far outside of those fitted, and in which ranges of the rows."""
    lines = []
    for one in far[:FAR_COLUMNS]:
        where = listed(
            f"{part['start']}:{part['stop']} ({part['rows']:,} of {part['judged']:,})" for part in one["ranges"]
        )
        lines.append(
            f"  far: column {one['column']} in {one['rows']:,} of {one['judged']:,} new rows looked at, up to "
            f"{one['times']:.3g} times the range of the fitted rows: in rows {where}; the first is {one['first'][0]}"
        )
    more = len(far) - FAR_COLUMNS
    return [*lines, *([f"  far: {more} other columns as well"] if more > 0 else [])]


def sweep_lines(found: dict[str, Any]) -> list[str]:
    """Write the outcome of a sweep in lines to print, one for each point."""
    measured = figures.measured_in(found["rows"])
    table = [("point", *(FIGURES[key][0] for key in measured), "stages", "time", "coordinates")]
    for row in found["rows"]:
        own = dict(figures.figures_of(row))
        shown = [own.get(FIGURES[key][0], "–") for key in measured]
        stages = f"{row['stages_computed']} of {row['stages']}"
        end = f"refused: {row['error']}" if row["error"] else row["coordinates"]
        table.append((row["point"], *shown, stages, duration(row["seconds"]), end))
    return [
        *text_columns(table, range(len(table[0]))),
        *([f"These are {found['compare']}."] if found["compare"] else []),
        f"{found['points']} points, {found['stages']} stages computed for {found['asked']} asked; "
        f"{found['seconds']:.1f} s",
        f"table: {found['table']}",
        f"page: {found['page']}",
        *([f"pages of every row: {found['view']}"] if found["view"] else []),
    ]
