"""The first page: short, its code prints what it shows, its figures are those of the benchmarks, its links lead on; and
the words of all pages."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.fences import Folder, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
SET_UP = "python3 -m venv"
WORDS = 700
RIDDLES = re.compile(
    r"\b(witness\w*|crews?|settled|adopt\w*|riddles?|in flight|is told|are told|of one mind)\b", re.IGNORECASE
)
"""Words of our own that say nothing to a stranger, or mean another thing to everybody else."""
OURS = {"architecture.md", "adding_a_method.md", "reliability.md"}
"""Pages for those who change the program."""
SOURCES = {
    "neighbor graph": [("neighbors-n4000000-k15", "ours"), ("neighbors-n4000000-k15", "peer")],
    "PCA": [("linear-n4000000-d256", "ours"), ("linear-n4000000-d256", "randomized")],
    "diffusion map": [("end_to_end-n10000000-d16-workers2", "bigembed")],
    "diffusion map of 10⁸ × 16": [("hundred_million-n100000000", "bigembed")],
    "the same of 10⁸ × 16": [("condense-n100000000-cells1000000-noise0.002", "condensed")],
    "Isomap": [("isomap-landmarks-n1000000-k30-landmarks200", side) for side in ("ours", "peer")],
    "t-SNE": [("tsne-n70000-perplexity30-out_of_coreFalse", side) for side in ("ours", "openTSNE")],
    "UMAP": [("umap-n70000-seeds1-out_of_coreFalse", side) for side in ("ours 0", "umap-learn 0")],
}
"""Where the figures of a row of the table are from: of bigembed, and of the peer."""

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="needs the repository, not only the package")


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_short_enough_to_be_read() -> None:
    assert len(text().split()) <= WORDS


def test_links_and_pictures_are_there() -> None:
    named = re.findall(r'\]\(([^)#]+)\)|(?:src|srcset)="([^"]+)"', text())
    paths = [link or picture for link, picture in named]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for picture in (picture for _, picture in named if picture):
        assert "light" in picture or picture.replace("dark", "light") in paths


@pytest.mark.slow
def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", tmp_path / "tools")
    (folder.root / "workflows").unlink()  # (a job writes beside its file)
    shutil.copytree(ROOT / "workflows", folder.root / "workflows", ignore=shutil.ignore_patterns("*.zarr", "*.png"))
    (folder.root / ".venv" / "bin").mkdir(parents=True)  # (its commands are found already)
    (folder.root / ".venv" / "bin" / "activate").touch()
    shown = 0
    try:
        for block in blocks(PAGE):
            if block.language == "text":
                folder.compare(block)
                shown += 1
            elif not block.text.startswith(SET_UP):
                folder.do(block)
    finally:
        folder.close()
    assert shown == 1
    assert (folder.root / "workflows" / "quickstart.html").exists()


def test_the_figures_are_those_of_the_benchmarks() -> None:
    rows = re.findall(r"(?m)^\|([^|]+)\|([^|]+)\|([^|]+)\|$", text().partition("|task|")[2].partition("\n\n")[0])
    table = {task.partition(",")[0]: (ours, peer) for task, ours, peer in rows if task.strip("-")}
    assert set(table) == set(SOURCES)
    for task, sources in SOURCES.items():
        for (file, side), cell in zip(sources, table[task], strict=False):
            found = json.loads((RESULTS / f"{file}.json").read_text())["rows"][side]
            seconds, gib = re.search(r"([\d.]+) s, ([\d.]+) GiB", cell).groups()  # type: ignore[union-attr]
            assert float(seconds) == pytest.approx(found["seconds"], rel=0.02), cell
            assert float(gib) == pytest.approx(found.get("peak_gib", found.get("measured_gib")), abs=0.006), cell


def test_the_pages_are_free_of_words_of_our_own() -> None:
    pages = [PAGE, *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name not in OURS)]
    assert len(pages) > 40
    found = {
        path.name: RIDDLES.findall(re.sub(r"```.*?```|`[^`]+`", "", path.read_text(), flags=re.S)) for path in pages
    }
    assert {name: words for name, words in found.items() if words} == {}
