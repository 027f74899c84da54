"""The rooms of the package: README, the page on architecture and the linter name the same, and only such as exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bigembed.maps.registry import REGISTRY, method_or_step
from bigembed.steps import REGISTRY as STEPS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bigembed"
PAGE = ROOT / "docs" / "architecture.md"
NAMED = sorted(set(re.findall(r"`(\w+/[\w/.]*)`", PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")))

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the repository, not only the package")


def rooms(folder: Path) -> set[str]:
    """Packages and modules of a folder."""
    return {path.stem for path in folder.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}


def tables() -> list[set[str]]:
    """The first column of each table of rooms."""
    text = PAGE.read_text(encoding="utf-8").partition("## Rooms")[2]
    found = re.findall(r"^\| room \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, flags=re.M)
    return [set(re.findall(r"^\| `(\w+)` \|", table, flags=re.M)) for table in found]


def test_all_name_the_same_rooms() -> None:
    there = rooms(PACKAGE) - {"__init__"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["id"] == "floors")
    floors = [layer.split(" : ") for layer in layers]
    drawn = (ROOT / "README.md").read_text(encoding="utf-8").partition("`lint-imports`")[2].partition("## ")[0]
    assert {room for floor in floors for room in floor} == there
    assert [line.strip().split(" · ") for line in drawn.splitlines() if line.startswith("    ")] == floors
    whole, *inner = tables()
    assert whole == there - {"errors"}
    for room, named in zip(("rows", "neighbors", "maps", "jobs"), inner, strict=True):
        assert named == {path.parent.name for path in (PACKAGE / room).glob("*/__init__.py")}, room


def test_the_way_of_a_row_leads_downward() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(one["layers"] for one in contracts["contracts"] if one["id"] == "floors")
    floor = {room: number for number, layer in enumerate(layers) for room in layer.split(" : ")}
    way = PAGE.read_text(encoding="utf-8").partition("## The way of a row")[2].partition("\n## ")[0]
    hops = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", way, flags=re.M)
    assert len(hops) > 10
    for above, below in hops:
        assert floor[above.partition(".")[0]] < floor[below.partition(".")[0]], (above, below)
        text = (PACKAGE / f"{above.replace('.', '/')}.py").read_text(encoding="utf-8")
        room, _, name = f"bigembed.{below}".rpartition(".")
        assert re.search(rf"from {room}\.{name} import |from {room} import .*\b{name}\b", text), (above, below)


def test_what_is_registered_is_what_the_classes_declare() -> None:
    places = {**REGISTRY, **STEPS}
    assert {name: method_or_step(name).registered for name in places} == {name: name for name in places}
    assert {place.partition(".maps.")[1] for place in REGISTRY.values()} == {".maps."}


@pytest.mark.parametrize("named", NAMED)
def test_the_page_names_files_that_there_are(named: str) -> None:
    assert (PACKAGE / named).exists() or (ROOT / named).exists() or named.startswith(("manifest/", "stages/"))
