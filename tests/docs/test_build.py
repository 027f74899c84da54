"""The pages as they are built, their rooms and figures."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bigembed.maps import REGISTRY, method_or_step
from bigembed.steps import REGISTRY as STEPS
from bigembed.store import manifests as manifest
from tests.docs.fences import blocks
from tests.integration.browser import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOOKED_AT = [
    "index.html", "gallery.html", "guide/methods.html", "guide/sizing.html", "reference/job_file.html",
    "reference/command_line.html", "reference/api/DiffusionMap.html",
]  # fmt: skip


@pytest.fixture(scope="module")
def check() -> ModuleType:
    """The script that CI runs on the pages."""
    spec = importlib.util.spec_from_file_location("check_pages", DOCS / "check_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip('needs Sphinx: pip install -c constraints/tested.txt -e ".[docs]"')
    folder = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-d", f"{folder}/trees"]
    done = subprocess.run([*command, str(DOCS), f"{folder}/html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def table_of(page: str, column: int) -> list[str]:
    """A column of the first table of a page."""
    lines = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.split("|")[column + 1].strip() for line in lines[1:]]


@pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")
class TestBuild:
    """The pages as they are built: no warnings, no link that leads nowhere, nothing from the network, nothing too
    wide."""

    @pytest.mark.slow
    def test_pages_are_whole(self, check: ModuleType, pages: Path) -> None:
        assert check.problems(pages) == []
        assert len(list(pages.rglob("*.html"))) > 40

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("page", "text"),
        [
            ("guide/deploy.html", "Numbers that must agree"),  # deploy/README.md
            ("reference/command_line.html", "--deadline"),
            ("reference/command_line.html", "NAME=VALUES"),
            ("reference/job_file.html", "no_workers_timeout"),
            ("reference/api/PCA.html", "svd_flip"),
            ("reference/stored_files.html", f"Format {manifest.FORMAT}."),
            ("architecture.html", "plotting"),
            ("adding_a_method.html", "smallest_gap"),
            ("gallery.html", "mixture.png"),
        ],
    )
    def test_what_is_drawn_from_the_code_is_there(self, pages: Path, page: str, text: str) -> None:
        assert text in (pages / page).read_text(encoding="utf-8")

    @pytest.mark.slow
    @pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
    def test_pages_in_a_browser(self, pages: Path, tmp_path: Path) -> None:
        browser = Browser(str(find_browser()), tmp_path)
        try:
            for page in LOOKED_AT:
                for width in (1500, 1400, 400):
                    browser.open(pages / page, width=width)
                    assert browser.ask("document.documentElement.scrollWidth") <= width, (page, width)
                    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == [], page
                    assert browser.complaints() == [], page
        finally:
            browser.close()

    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        """A page that is whole."""
        (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#part">b</a><img src="p.png">')
        (tmp_path / "b.html").write_text('<p id="part">B</p><a href="#part">here</a>')
        (tmp_path / "p.png").write_bytes(b"")
        (tmp_path / "s.css").write_text("/* see https://example.org/licence */ a { color: red }")
        return tmp_path

    @pytest.mark.parametrize(
        ("file", "text", "found"),
        [
            ("a.html", '<a href="c.html">', "leads nowhere"),
            ("a.html", '<a href="b.html#other">', "no place on the page"),
            ("a.html", '<a href="#other">', "no place on the page"),
            ("a.html", '<script src="https://cdn.example.org/x.js">', "names another host"),
            ("a.html", '<link href="//fonts.example.org/x.css">', "names another host"),
            ("s.css", "@import url(https://fonts.example.org/x.css);", "names another host"),
        ],
    )
    def test_the_check_finds(self, check: ModuleType, site: Path, file: str, text: str, found: str) -> None:
        assert check.problems(site) == []
        with (site / file).open("a") as page:
            page.write(text)
        assert [found in problem for problem in check.problems(site)] == [True]

    def test_every_method_is_in_the_table_of_the_guide(self) -> None:
        named: list[Any] = table_of("guide/methods.md", 0)
        assert [name for name in REGISTRY if not any(f"`{name} <" in cell for cell in named)] == []

    def test_the_guide_installs_as_the_readme_does(self) -> None:
        first = next(blocks(DOCS / "guide" / "first_job.md")).text.splitlines()
        readme = next(
            line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv")
        )
        assert readme.startswith(" && ".join(first[:2]))


PACKAGE = ROOT / "bigembed"
PAGE = ROOT / "docs" / "architecture.md"
NAMED = sorted(set(re.findall(r"`(\w+/[\w/.]*)`", PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")))


def rooms(folder: Path) -> set[str]:
    """Packages and modules of a folder."""
    return {path.stem for path in folder.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}


def tables() -> list[set[str]]:
    """The first column of each table of rooms."""
    text = PAGE.read_text(encoding="utf-8").partition("## Rooms")[2]
    found = re.findall(r"^\| room \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, flags=re.M)
    return [set(re.findall(r"^\| `(\w+)` \|", table, flags=re.M)) for table in found]


@pytest.mark.skipif(not PAGE.exists(), reason="needs the repository, not only the package")
class TestRooms:
    """The rooms of the package: the page on architecture and the linter name the same, and only such as exist."""

    def test_all_name_the_same_rooms(self) -> None:
        there = rooms(PACKAGE) - {"__init__"}
        contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
            "contracts"
        ]
        layers = next(one["layers"] for one in contracts if one["id"] == "floors")
        floors = [layer.split(" : ") for layer in layers]
        assert {room for floor in floors for room in floor} == there
        whole, *inner = tables()
        assert whole == there - {"errors"}
        for room, named in zip(("rows", "neighbors", "maps", "jobs"), inner, strict=True):
            assert named == {path.parent.name for path in (PACKAGE / room).glob("*/__init__.py")}, room

    def test_the_way_of_a_row_leads_downward(self) -> None:
        contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
        layers = next(one["layers"] for one in contracts["contracts"] if one["id"] == "floors")
        floor = {room: number for number, layer in enumerate(layers) for room in layer.split(" : ")}
        way = PAGE.read_text(encoding="utf-8").partition("## The way of a row")[2].partition("\n## ")[0]
        hops = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", way, flags=re.M)
        assert len(hops) > 10
        for above, below in hops:
            assert floor[above.partition(".")[0]] < floor[below.partition(".")[0]], (above, below)
            place = PACKAGE / above.replace(".", "/")
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            text = file.read_text(encoding="utf-8")
            room, _, name = f"bigembed.{below}".rpartition(".")
            assert re.search(rf"from {room}\.{name} import |from {room} import .*\b{name}\b", text), (above, below)

    def test_what_is_registered_is_what_the_classes_declare(self) -> None:
        places = {**REGISTRY, **STEPS}
        assert {name: method_or_step(name).registered for name in places} == {name: name for name in places}
        assert {place.partition(".maps.")[1] for place in REGISTRY.values()} == {".maps."}

    @pytest.mark.parametrize("named", NAMED)
    def test_the_page_names_files_that_there_are(self, named: str) -> None:
        assert (PACKAGE / named).exists() or (ROOT / named).exists() or named.startswith(("manifest/", "stages/"))


FIGURES_ROOT = Path(__file__).parents[2]
FIGURES = FIGURES_ROOT / "docs" / "figures"


@pytest.mark.skipif(not FIGURES.exists(), reason="needs the repository, not only the package")
class TestFigures:
    """The figures of the sources: the page has every picture that it names, and the command draws them."""

    def test_the_page_and_its_pictures(self):
        text = (FIGURES_ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
        named = re.findall(r"\(figures/(\w+\.png)\)", text)
        assert len(named) == len(set(named)) > 20
        assert set(named) == {path.name for path in FIGURES.glob("*.png")}
        assert len(re.findall(r"^(?:Seen|\*\*Not seen)\.", text, re.MULTILINE)) == len(named)
        assert "nan" not in text.lower().replace("finance", "")

    @pytest.mark.slow
    def test_the_command_draws_them_again(self, tmp_path):
        command = [sys.executable, str(FIGURES), "seed001", "seed004", "--out", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FIGURES_ROOT, env=None)
        assert done.returncode == 0, done.stderr
        verdicts = dict(line.split(": ") for line in done.stdout.splitlines())
        assert verdicts == {
            **dict.fromkeys(("seed001_ring", "seed001_complete", "seed001_two_rings"), "seen"),
            **dict.fromkeys(("seed001_shortcut", "seed004_1"), "not seen"),
        }
        assert {path.stem for path in tmp_path.glob("*.png")} == set(verdicts)
