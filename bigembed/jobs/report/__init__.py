"""The page of a run: what stands in it, and its pictures.

What a run says of itself is here, from its records: state, warnings, stages, memory, certificate, how to repeat it.

Everything may be missing: a run that was stopped, one that Python made without a job, one whose files were touched.
What is missing is said, never guessed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tomli_w

from bigembed.errors import BigembedError, DamagedError
from bigembed.estimator import RUN_PARAMETERS
from bigembed.estimator.certificate import certificate, judged_certificate
from bigembed.jobs.inputs import older_source
from bigembed.jobs.parameters import documented, summary_of
from bigembed.jobs.places.cluster import KINDS
from bigembed.jobs.planning.resources import Peaks, Resources
from bigembed.jobs.record import ELSEWHERE, made_here, read_record
from bigembed.jobs.report.figures import (
    Entry,
    Figure,
    Line,
    compared,
    coordinate_lines,
    entries_of,
    map_figures,
    plain,
    shown,
)
from bigembed.jobs.watching.status import read_status
from bigembed.maps import REGISTRY, method
from bigembed.rows import MarkedRows, RowSource
from bigembed.rows.opening import open_zarr
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import uncalled
from bigembed.stages import Cost, Run
from bigembed.store import AnyPath, at, manifests
from bigembed.store.arrays import read_array
from bigembed.store.superseded import superseded

# -------------------------------------------------------------------------------------------------------- job file
# A recorded job as the TOML file that makes it again.


def job_file(job: Mapping[str, Any]) -> str:
    """Write the tables of a job as the text of a job file; nothing for a job without tables.

    >>> job_file({"method": {"epsilon": None, "name": "pca"}, "input": {"path": "x.npy", "ids": None}})
    '[method]\\nname = "pca"\\nepsilon = "none"\\n\\n[input]\\npath = "x.npy"\\n'
    """

    def table(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        first = {key: values[key] for key in ("name", "dataset") if key in values}
        given = {**first, **values}.items()  # (of a method also what is explicitly none)
        return {
            key: "none" if value is None else value for key, value in given if value is not None or name == "method"
        }

    return tomli_w.dumps(
        {
            name: [table(name, one) for one in values] if isinstance(values, list) else table(name, values)
            for name, values in job.items()
        }
    )


# -------------------------------------------------------------------------------------------------------- timeline
# The stages of a run as a timeline: from its record, its plan and its manifests, whichever are there.


@dataclass(frozen=True)
class StageLine:
    """A stage in the timeline: when it began after the first, how long it took, what it held."""

    name: str
    state: str
    """``"computed"``, ``"reused"`` or ``"not made"``."""
    start: float = 0.0
    seconds: float = 0.0
    earlier: float | None = None
    """Seconds that a reused stage took when it was made."""
    planned_seconds: float | None = None
    planned: int | None = None
    """Bytes of all processes together."""
    measured: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    """What the time was spent on when it was computed."""
    held: int = 0
    """Bytes of vectors that it was planned to have in memory or in files."""

    @property
    def computed_seconds(self) -> float:
        """How long it took when it was computed, in this start of the job or before."""
        return self.seconds or self.earlier or 0.0


def stage_lines(run: Run, record: Mapping[str, Any], status: Mapping[str, Any]) -> list[StageLine]:
    """In the order in which they ran; of a run that was stopped, those planned; else those that are there."""
    plan = record.get("plan", {})
    planned = {one["name"]: one for one in plan.get("stages", [])}
    logged = {one["name"]: one for one in record.get("stages") or []}
    published = run.published()
    # A step of a job that was stopped publishes nothing; before there is a stage, the rows are there.
    finished = [*status.get("finished_stages", []), *(["input"] if published else [])]
    lines: list[StageLine] = []
    start = 0.0
    for name in list(logged) or list(planned) or published:
        made, entry, asked = None, logged.get(name, {}), planned.get(name, {})
        with suppress(DamagedError):  # (which is a warning of the page)
            made = manifests.find(run.root, name)
        took = None if made is None else made.measured.get("seconds")
        reused = bool(entry.get("reused"))
        computed = not reused and bool(entry or made or name in finished)
        lines.append(
            StageLine(
                name,
                "reused" if reused else "computed" if computed else "not made",
                start,
                float(entry.get("seconds") or took or 0.0) if computed else 0.0,
                earlier=took if reused else None,
                planned_seconds=entry.get("predicted_seconds", asked.get("seconds")),
                planned=_planned_bytes(asked, plan["place"]) if asked and "place" in plan else None,
                measured=entry.get("memory", {}).get("total") or None,
                shares=entry.get("shares") or ({} if made is None else made.measured.get("shares", {})),
                held=int(asked.get("held") or 0),
            )
        )
        start += lines[-1].seconds
    return lines


def _planned_bytes(planned: Mapping[str, Any], place: Mapping[str, Any]) -> int:
    """Return bytes of all processes in a stage, by the plan's own arithmetic."""
    cost = Cost(**{name: value for name, value in planned.items() if name in Cost.__dataclass_fields__})
    return Peaks(Resources(**place), [cost]).total


# --------------------------------------------------------------------------------------------------------- summary

KNOWN = ("n", "d", "dtype", "content")
"""What the certificate says of the input and the page says anyway."""


@dataclass
class RunSummary:
    """A run, read; ``extra`` collects warnings of the page itself, by kind."""

    root: AnyPath
    run: Run
    record: dict[str, Any]
    status: dict[str, Any]
    old: dict[str, str] = field(default_factory=dict)
    """Stages that were made with other parameters or of other rows, each with how: nothing of them is shown."""
    extra: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, root: AnyPath) -> RunSummary:
        """From the files of a run."""
        found = cls(root, Run(root), {}, {}, superseded(root))
        for name, read in (("record", read_record), ("status", read_status)):
            try:
                setattr(found, name, read(root))
            except DamagedError as error:
                found.warn("damaged", f"{error}. Run the job again to make it anew")
        if not made_here(root, found.record):
            found.warn("damaged", f"{ELSEWHERE}: what was asked for is not known. Run the job again to make it anew")
            found.record = {"finished": False}
        if older := older_source(found.record):
            found.warn("older", f"{older[0].upper()}{older[1:]}")
        for name in found.run.published():
            try:
                found.run.manifest(name)
            except DamagedError as error:
                found.warn("damaged", f"{error}. Run the job again to make it anew")
        return found

    def has(self, stage: str) -> bool:
        """Return whether a stage is published, and its manifest as it was written."""
        with suppress(DamagedError):
            return self.run.has(stage)
        return False

    # ------------------------------------------------------------------------- what was asked

    @property
    def job(self) -> dict[str, Any]:
        """Tables of the job file; empty for a run that Python made."""
        return dict(self.record.get("job", {}))

    @property
    def method(self) -> str:
        """Name in the registry, or nothing."""
        return str(self.job.get("method", {}).get("name", ""))

    @cached_property
    def estimator(self) -> Any:
        """Return the estimator with its fitted attributes, None if the run does not have all that it needs."""
        if not self.method:
            return None
        try:
            found = method(self.method)(**uncalled(self.given))
            found.read_run(self.run, certificate={})
        except (BigembedError, AttributeError, KeyError, OSError, TypeError, ValueError):  # (another version made it)
            return None
        return found

    @property
    def given(self) -> dict[str, Any]:
        """Return the parameters that the job gives its method."""
        return {key: value for key, value in self.job.get("method", {}).items() if key != "name"}

    @property
    def title(self) -> str:
        """Class of the method, or the name of the folder."""
        return REGISTRY[self.method].partition(":")[2] if self.method in REGISTRY else self.method or self.root.name

    @property
    def source(self) -> str:
        """Return what the rows are called: their data set, or the last part of their path."""
        asked = self.job.get("input", {})
        if asked.get("path") and not asked.get("dataset"):  # (the rows may be those of a copy of it)
            return at(asked["path"]).name
        return str(asked.get("dataset") or at(self.record.get("plan", {}).get("input", self.root)).name)

    @cached_property
    def method_summary(self) -> str:
        """First line of what the method's class says of itself."""
        return summary_of(method(self.method)) if self.method in REGISTRY else ""

    def parameters(self) -> list[tuple[str, str, bool, str]]:
        """Name, value, whether it was given, and meaning of every parameter of the method."""
        given = self.given
        if self.method not in REGISTRY:
            return [(key, repr(value), True, "") for key, value in given.items()]
        kind = method(self.method)
        meaning = documented(inspect.getdoc(kind) or "")
        return [
            (name, repr(given.get(name, one.default)), name in given, meaning.get(name, ""))
            for name, one in inspect.signature(kind).parameters.items()
            if name not in RUN_PARAMETERS
        ]

    def input_lines(self) -> list[Entry]:
        """List where the rows lie, their shape, and what is known of them."""
        plan, asked = self.record.get("plan", {}), self.job.get("input", {})
        lines = [Entry("Rows", plan["input"])] if "input" in plan else []
        if shape := self.shape:
            lines.append(Entry("Shape", f"{shape[0]:,} × {shape[1]:,} {plan.get('dtype', '')}".strip()))
        lines += [Entry(key, shown(value)) for key, value in asked.items() if key != "path" and value is not None]
        known = self.certificate.get("input", {})
        return lines + [Entry(plain(key), shown(value)) for key, value in known.items() if key not in KNOWN]

    @property
    def shape(self) -> tuple[int, int] | None:
        """n and d, where they are recorded."""
        found = self.record.get("plan", {}).get("shape")
        if found is None and self.has("survey"):
            survey = self.run.results("survey")
            found = (survey["n"], survey["d"]) if "n" in survey and "d" in survey else None
        return (int(found[0]), int(found[1])) if found else None

    # ------------------------------------------------------------------------- what came of it

    @property
    def finished(self) -> bool:
        """Return whether the job ended; of a run without a job, whether it has coordinates."""
        return bool(self.record.get("finished", not self.record and not self.old and self.has("coordinates")))

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """As recorded; of a diffusion map that Python made, from its stages; else none."""
        if self.record or not self.has("judgement"):
            return dict(self.record.get("certificate", {}))
        found: dict[str, Any] = {}
        with suppress(BigembedError, KeyError, OSError):  # (stages of another method, or gone: a warning of the page)
            found = certificate(self.run, self.run.parameters("solve").get("tol", 0.0))
        return judged_certificate(found, self.run) if found else {}

    @property
    def drawn(self) -> dict[str, Any]:
        """Return the pair of coordinates to draw first, and why; empty where that is the first two."""
        return dict(self.certificate.get("drawn", {}))

    def verdict(self) -> str:
        """Return what can be said of a run without a warning: what was looked at, and what was not."""
        if not self.certificate:
            return (
                "No certificate was kept, so it is not known how far to trust the coordinates; bigembed certify "
                "compares them with the rows"
            )
        figures = {figure.name: figure.value for figure in self.figures}
        trust = f" Trustworthiness of the map is {figures['Trustworthiness']}." if figures else ""
        if self.coordinates:
            return (
                "The solve met its tolerance. Each coordinate is carried by many rows, is distinct from the others, "
                f"and is not a function of earlier ones.{trust}"
            )
        if figures:
            return f"The checks that this method makes were passed, and the map was compared with the rows.{trust}"
        return (
            "The checks that this method makes were passed. What the coordinates show of the rows is not among "
            "them: bigembed certify compares the two"
        )

    @cached_property
    def coordinates(self) -> list[Line]:
        """Return what each coordinate shows; none for a method that does not judge them."""
        return coordinate_lines(self.certificate, self.fitted("eigenvalues_"), self.fitted("residuals_"))

    @property
    def compared(self) -> str:
        """Return which rows the map was compared with."""
        return compared(self.certificate.get("judgement", {}).get("map", {}))

    @cached_property
    def figures(self) -> list[Figure]:
        """Of the map as a whole, where it was compared with the rows."""
        return map_figures(self.certificate.get("judgement", {}).get("map", {}))

    @property
    def separate(self) -> bool:
        """Return whether components have their own coordinates."""
        values = self.fitted("eigenvalues_")
        return values is not None and values.ndim == 2 and len(values) > 1

    def certificate_lines(self) -> list[Entry]:
        """List the figures of the certificate in words."""
        return entries_of(self.certificate)

    def solved(self) -> list[dict[str, Any]]:
        """Of each component that was solved: pairs, whether it converged, passes, residual, gap."""
        found = self.certificate.get("eigenpairs", {})
        return [
            {
                "component": name,
                "pairs": len(one.get("eigenvalues", [])),
                "converged": one.get("converged"),
                "reason": one.get("reason", ""),
                "passes": one.get("passes"),
                "residual": max(one.get("residuals", []), default=0.0),
                "gap": one.get("gap"),
            }
            for name, one in found.items()
        ]

    def fitted(self, name: str) -> Array | None:
        """Return a fitted attribute as float64, or None; where coordinates were judged one by one, those of the
        walk."""
        value = getattr(self.estimator, name, None)
        if name in ("eigenvalues_", "residuals_") and "near_one" in self.certificate.get("judgement", {}):
            with suppress(BigembedError, OSError):
                value = read_array(self.run.path("solve", name[:-1]))
        return None if value is None or not np.size(value) else np.asarray(value, np.float64)

    def bandwidth(self) -> dict[str, Any] | None:
        """Return the kernel sum over ε, its slope, and the ε that was chosen."""
        if not self.has("bandwidth"):
            return None
        names, run = ("epsilon", "log_sum", "slope"), self.run
        with suppress(BigembedError):
            curve = {name: read_array(run.path("bandwidth", f"ksum_{name}")) for name in names}
            return {**curve, "found": run.results("bandwidth")}
        return None

    def versions(self) -> dict[str, str]:
        """Packages and their versions when the run was made."""
        made = {"bigembed": self.record["version"]} if "version" in self.record else {}
        return {**made, **self.certificate.get("versions", {})}

    # --------------------------------------------------------------------------------- stages

    def stages(self) -> list[StageLine]:
        """List the stages with their times, in the order in which they ran."""
        return stage_lines(self.run, self.record, self.status)

    @property
    def seconds(self) -> float | None:
        """Of the last start, from end to end."""
        found = self.record.get("seconds")
        return None if found is None else float(found)

    @property
    def in_one_process(self) -> bool:
        """Whether all tasks ran in the process of the job."""
        kind = KINDS.get(self.record.get("plan", {}).get("place", {}).get("kind", ""))
        return kind is not None and kind.inside

    def memory(self) -> list[tuple[str, int, int]]:
        """Planned and measured peaks in bytes: all processes, a worker, the coordinator."""
        predicted, measured = self.record.get("predicted", {}), self.record.get("measured", {})
        names = {"total": "All processes", "worker": "A worker", "coordinator": "The coordinator"}
        if self.in_one_process:
            names = {"total": "The process"}
        return [
            (text, int(predicted[key]), int(measured[key]))
            for key, text in names.items()
            if predicted.get(key) and measured.get(key)
        ]

    # ------------------------------------------------------------------------------- warnings

    def warn(self, kind: str, message: str) -> None:
        """A warning of the page itself."""
        self.extra.setdefault(kind, []).append(message)

    # --------------------------------------------------------------------------------- repeat

    def job_file(self) -> str:
        """Return a job file that makes this run again, as TOML; empty for a run that Python made."""
        return job_file(self.job)


def rows_of_stage(run: Run, stage: str, name: str) -> RowSource:
    """Return an array of a run as rows; DamagedError where it is not, or not any more, the one that was published."""
    array = open_zarr(path := run.path(stage, name))
    return MarkedRows(tuple(map(int, array.shape)), np.dtype(array.dtype), path=path, marks=run.marks())
