"""Every command of the guide is run, in order, in a folder of the page; what the guide shows is what is printed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigembed import errors
from tests.docs.fences import Block, Folder, blocks
from tests.s3 import ABSENT, serving, weed

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
QUICK = {"reference/stored_files.md"}
"""Pages of the default run; the others take longer."""

pytestmark = [
    pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package"),
    pytest.mark.timeout(600),
]


def marked(page: Path) -> object:
    """A page as a parameter of a test, slow where it is."""
    return pytest.param(page, id=str(page), marks=[] if str(page) in QUICK else [pytest.mark.slow])


@pytest.fixture
def environment(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the commands of a page find in their environment: of the one on object stores, a server."""
    if page.name != "object_stores.md":
        yield {}
        return
    if weed() is None:
        pytest.skip(ABSENT)
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server.environment


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if any(True for _ in blocks(DOCS / page))])
def test_the_page_is_true(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", tmp_path / "tools", environment)
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


def test_every_error_and_warning_has_its_remedy() -> None:
    text = (DOCS / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL))
    bases = (errors.BigembedError, errors.BigembedWarning)
    classes = {name: kind for name in dir(errors) if inspect.isclass(kind := getattr(errors, name))}
    known = {name for name, kind in classes.items() if issubclass(kind, bases) and kind not in bases}
    assert set(said) == known
    assert [name for name, what in said.items() if "*Remedy*" not in what] == []
