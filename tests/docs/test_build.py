"""The pages as they are built: no warnings, no link that leads nowhere, nothing from the network, nothing too wide."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bigembed.maps.registry import REGISTRY
from bigembed.store import manifests as manifest
from tests.docs.fences import blocks
from tests.integration.browser import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOOKED_AT = [
    "index.html", "gallery.html", "guide/methods.html", "guide/sizing.html", "reference/job_file.html",
    "reference/command_line.html", "reference/api/DiffusionMap.html",
]  # fmt: skip

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")


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


@pytest.mark.slow
def test_pages_are_whole(check: ModuleType, pages: Path) -> None:
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
def test_what_is_drawn_from_the_code_is_there(pages: Path, page: str, text: str) -> None:
    assert text in (pages / page).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_pages_in_a_browser(pages: Path, tmp_path: Path) -> None:
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
def site(tmp_path: Path) -> Path:
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
def test_the_check_finds(check: ModuleType, site: Path, file: str, text: str, found: str) -> None:
    assert check.problems(site) == []
    with (site / file).open("a") as page:
        page.write(text)
    assert [found in problem for problem in check.problems(site)] == [True]


def table_of(page: str, column: int) -> list[str]:
    """A column of the first table of a page."""
    lines = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.split("|")[column + 1].strip() for line in lines[1:]]


def test_every_method_is_in_the_table_of_the_guide() -> None:
    named: list[Any] = table_of("guide/methods.md", 0)
    assert [name for name in REGISTRY if not any(f"`{name} <" in cell for cell in named)] == []


def test_the_guide_installs_as_the_readme_does() -> None:
    first = next(blocks(DOCS / "guide" / "first_job.md")).text.splitlines()
    readme = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv"))
    assert readme.startswith(" && ".join(first[:2]))
