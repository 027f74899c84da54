"""The stages of a run as a timeline: from its record, its plan and its manifests, whichever are there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bigembed.errors import DamagedError
from bigembed.jobs.planning.peaks import Peaks
from bigembed.jobs.planning.resources import Resources
from bigembed.runs import Run
from bigembed.stages import Cost
from bigembed.store.published import manifest as manifests
from bigembed.store.published.manifest import Manifest
from bigembed.store.storage.paths import AnyPath


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


def stage_lines(root: AnyPath, record: Mapping[str, Any], status: Mapping[str, Any]) -> list[StageLine]:
    """In the order in which they ran; of a run that was stopped, those planned; else those that are there."""
    plan = record.get("plan", {})
    planned = {one["name"]: one for one in plan.get("stages", [])}
    logged = {one["name"]: one for one in record.get("stages") or []}
    published = Run(root).published()
    # A step of a job that was stopped publishes nothing; before there is a stage, the rows are there.
    stepped = [*status.get("finished_stages", []), *(["input"] if published else [])]
    lines: list[StageLine] = []
    start = 0.0
    for name in list(logged) or list(planned) or published:
        line = _line(name, logged.get(name, {}), planned.get(name, {}), _made(root, name), name in stepped, start)
        held = _held(planned[name], plan["place"]) if name in planned and "place" in plan else None
        lines.append(replace(line, planned=held))
        start += line.seconds
    return lines


def _made(root: AnyPath, stage: str) -> Manifest | None:
    with suppress(DamagedError):  # (said elsewhere)
        return manifests.find(root, stage)
    return None


def _line(
    name: str, logged: Mapping[str, Any], planned: Mapping[str, Any], made: Manifest | None, stepped: bool, start: float
) -> StageLine:
    took = None if made is None else made.measured.get("seconds")
    reused = bool(logged.get("reused"))
    computed = not reused and bool(logged or made or stepped)
    return StageLine(
        name,
        "reused" if reused else "computed" if computed else "not made",
        start,
        float(logged.get("seconds") or took or 0.0) if computed else 0.0,
        earlier=took if reused else None,
        planned_seconds=logged.get("predicted_seconds", planned.get("seconds")),
        measured=logged.get("memory", {}).get("total") or None,
    )


def _held(planned: Mapping[str, Any], place: Mapping[str, Any]) -> int:
    """Bytes of all processes in a stage, by the plan's own arithmetic."""
    cost = Cost(**{name: value for name, value in planned.items() if name in Cost.__dataclass_fields__})
    return Peaks(Resources(**place), [cost]).total
