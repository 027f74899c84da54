"""What the benchmarks have kept, as a table: one row for each side of each file in ``benchmarks/results``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
FIGURES = (("seconds", ("seconds",)), ("processor", ("processor", "cpu_seconds")),
           ("GiB", ("peak_gib", "measured_gib")), ("recall", ("recall",)))  # fmt: skip


def records() -> Iterator[dict[str, Any]]:
    """Yield what each file says, in the order of their names."""
    for path in sorted(FOLDER.glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def measured(record: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each side of a benchmark that took time, with its figures."""
    for side, row in record["rows"].items():
        timed = isinstance(row, dict) and any(isinstance(row.get(key), int | float) for key in ("seconds", "processor"))
        if timed and "ratio" not in side:
            found = (next((row[key] for key in keys if key in row), None) for _, keys in FIGURES)
            yield side, [shown(value) for value in found]


def shown(value: Any) -> str:
    """Return a number in few digits; nothing where there is none."""
    return f"{value:.4g}" if isinstance(value, int | float) else ""


class Results(SphinxDirective):
    """``{results}``: the table."""

    def run(self) -> list[nodes.Node]:
        """Return the table, and note the files that it is made of."""
        head = ["benchmark", "date", "side", *(name for name, _ in FIGURES)]
        lines = [".. list-table::", "   :header-rows: 1", ""]
        rows = [head]
        for record in records():
            given = ", ".join(f"{key} {value}" for key, value in record["parameters"].items())
            what = [f"{record['benchmark']}: {given}", record["date"]]
            rows += [[*what, side, *figures] for side, figures in measured(record)]
        for row in rows:
            cells = [cell.replace("_", r"\_").replace("*", r"\*") for cell in row]
            lines += [f"   {'* -' if not at else '  -'} {cell}" for at, cell in enumerate(cells)]
        for path in FOLDER.glob("*.json"):
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
