"""The page on where people run it is ``deploy/README.md``; its links to files are names here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = "guide/deploy"
README = Path(__file__).resolve().parents[2] / "deploy" / "README.md"


def fill(app: Any, docname: str, source: list[str]) -> None:
    """Put the text of the file below what the page says itself."""
    if docname == PAGE:
        text = README.read_text(encoding="utf-8").partition("\n")[2]
        source[0] += re.sub(r"\[([^\]]+)\]\((?!#|\w+:)[^)]+\)", r"\1", text)
        app.env.note_dependency(str(README))


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
