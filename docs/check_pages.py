"""Whether built pages are whole and need no network: every link and anchor inside them leads somewhere, and no page
names another host.

    python docs/check_pages.py build/docs
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"href", "src", "srcset", "action", "data", "poster"}
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/1999/xhtml")
HOST = re.compile(r"""(?:https?:)?//[a-z0-9-]+(?:\.[a-z0-9-]+)+[^\s"'<>)]*""", re.IGNORECASE)


class Page(HTMLParser):
    """The links of a page and the places in it that a link can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element points to, and its name."""
        for name, value in attrs:
            if name in LOADS and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def problems(folder: Path) -> list[str]:
    """Everything that is wrong with the pages of a folder."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = [] if pages else [f"{folder}: no pages"]
    for path, page in pages.items():
        found += [f"{path.relative_to(folder)}: {what}" for link in page.links if (what := _wrong(path, link, pages))]
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".css", ".js"):
            text = _code(path.read_text(encoding="utf-8"))
            hosts = [host for host in HOST.findall(text) if not host.startswith(NAMESPACES)]
            found += [f"{path.relative_to(folder)}: names another host, {host}" for host in hosts]
    return found


def _wrong(page: Path, link: str, pages: dict[Path, Page]) -> str | None:
    """What is wrong with a link of a page."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return f"names another host, {link}"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return f"leads nowhere: {link}"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
        return f"leads to no place on the page: {link}"
    return None


def _code(text: str) -> str:
    """A style sheet or a script without its comments."""
    return re.sub(r"/\*.*?\*/|(?m:^\s*//.*$)", "", text, flags=re.DOTALL)


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    print("\n".join(wrong) or "every link leads somewhere, and no page needs the network")
    sys.exit(bool(wrong))
