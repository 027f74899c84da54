"""The floors of the package as a picture, from the contract that import-linter checks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


def floors() -> list[list[str]]:
    """Rooms of each floor that exist, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["id"] == "floors")
    rooms = [[room.strip(" ()") for room in layer.split(":")] for layer in layers]
    return [there for floor in rooms if (there := [room for room in floor if _exists(room)])]


def _exists(room: str) -> bool:
    place = ROOT / "bigembed" / room
    return place.is_dir() or place.with_suffix(".py").exists()


class Floors(SphinxDirective):
    """``{floors}``: one row a floor."""

    def run(self) -> list[nodes.Node]:
        """A list in a list, drawn by the style sheet."""
        rows = nodes.bullet_list(classes=["floors"])
        for floor in floors():
            line = nodes.paragraph()
            for room in floor:
                line += [nodes.literal(room, room), nodes.Text(" ")]
            rows += nodes.list_item("", line)
        return [rows]


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.add_directive("floors", Floors)
    return {"parallel_read_safe": True}
