"""Every command of the guide is run, in order, in a folder of the page; what the guide shows is what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.fences import Block, Folder, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
QUICK = {"guide/first_job.md"}
"""Pages of the default run; the others take longer."""

pytestmark = [
    pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package"),
    pytest.mark.timeout(600),
]


def marked(page: Path) -> object:
    """A page as a parameter of a test, slow where it is."""
    return pytest.param(page, id=str(page), marks=[] if str(page) in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if any(True for _ in blocks(DOCS / page))])
def test_the_page_is_true(page: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", tmp_path / "tools")
    try:
        for block in blocks(DOCS / page):
            folder.do(block)
    finally:
        folder.close()


def test_a_wrong_page_is_found(tmp_path: Path) -> None:
    folder = Folder(tmp_path, tmp_path / "tools")
    folder.do(Block("sh", "echo 1234 rows in 2 s", 1))
    folder.do(Block("text", "1234 rows in ... s\n", 2, ("output",)))
    with pytest.raises(AssertionError, match="the page shows"):
        folder.do(Block("text", "1235 rows in ... s\n", 2, ("output",)))
    with pytest.raises(AssertionError, match="line 7: exit status 3"):
        folder.do(Block("sh", "exit 3", 7))
    folder.do(Block("sh", "exit 3", 7, ("exits-3",)))
    folder.do(Block("python", "a = 1", 7))
    folder.do(Block("python", "print(a + 1)", 7))
    folder.do(Block("text", "2\n", 8, ("output",)))
    with pytest.raises(AssertionError, match="NameError: name 'b'"):
        folder.do(Block("python", "b", 7))
    folder.close()
    with pytest.raises(AssertionError, match="neither run nor output"):
        folder.do(Block("ruby", "puts 1", 9))
