"""The warnings of a page: those of the run, of its state and of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigembed.jobs.report.glossary import CATEGORIES
from bigembed.jobs.report.summary import RunSummary
from bigembed.jobs.units import size
from bigembed.store.published.superseded import explanation


@dataclass(frozen=True)
class Warned:
    """A kind of warning and its messages."""

    kind: str
    messages: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it is called."""
        return CATEGORIES[self.kind][0]

    @property
    def level(self) -> str:
        """``"bad"`` or ``"warn"``."""
        return CATEGORIES[self.kind][1]


def warnings_of(summary: RunSummary) -> list[Warned]:
    """All that was said, the worst first, each message once."""
    found: dict[str, list[str]] = {kind: [] for kind in CATEGORIES}
    for kind, messages in summary.certificate.get("warnings", {}).items():
        found[kind if kind in found else "other"] += messages
    known = {message for messages in found.values() for message in messages}
    found["other"] += [message for message in summary.record.get("warnings", []) if message not in known]
    for kind, messages in (*_own(summary).items(), *summary.extra.items()):
        found[kind] += messages
    return [Warned(kind, tuple(dict.fromkeys(messages))) for kind, messages in found.items() if messages]


def _own(summary: RunSummary) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    error = summary.status.get("error") or {}
    state = summary.status.get("state")
    if state in ("planned", "running") and not summary.finished:
        out["running"] = [f"It works on {summary.status.get('stage') or 'its plan'} as this page is written"]
    elif state == "failed" and not summary.finished:
        out["failed"] = [str(error.get("message", "it ended with an error"))]
    elif not summary.finished:
        out["unfinished"] = [_unfinished(summary, error)]
    for name, predicted, measured in summary.memory():
        if measured > predicted:
            out.setdefault("memory", []).append(
                f"{name} held {size(measured)}; {size(predicted)} were planned. Give the workers of the next run "
                "more room, and report it: the plan is meant to be an upper bound"
            )
    if summary.old:
        out["superseded"] = [
            "Not shown: "
            + "; ".join(explanation(name, why) for name, why in summary.old.items())
            + ". Run the job again"
        ]
    if any(line.flagged for line in summary.coordinates) and not any(summary.certificate.get("warnings", {}).values()):
        marked = ", ".join(str(line.number) for line in summary.coordinates if line.flagged)
        out["other"] = [f"Coordinates {marked}: see the amber cells of their table"]
    gone = [name for name in summary.record.get("keys", {}) if not summary.has(name)]
    if gone:
        out["damaged"] = [f"Published before, and gone now: {', '.join(gone)}. Run the job again to make them anew"]
    return out


def _unfinished(summary: RunSummary, error: Mapping[str, Any]) -> str:
    lines = summary.stages()
    left = [line.name for line in lines if line.state == "not made"]
    there = f"{len(lines) - len(left)} of {len(lines)} stages are there" if lines else "No stage is there yet"
    then = f"; still to come: {', '.join(left)}" if left else ""
    why = f"{error['message']}. " if error.get("message") else ""
    return f"{why}{there}{then}. Run the job again: it goes on from there"
