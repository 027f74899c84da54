"""The project's docstrings as numpydoc and Sphinx take them.

numpydoc reads the sections. Text between them is written to be read in a terminal, with formulas in plain characters:
what reStructuredText would misread in it is escaped here, and errors under Raises and Warns become links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bigembed import errors

MARKUP = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`)", re.DOTALL)
PROBLEMS = re.compile(rf"^({'|'.join(name for name in dir(errors) if name.endswith(('Error', 'Warning')))})$", re.M)
EXAMPLE = re.compile(r"(Examples\n-+\n)?\s*>>>")
FIRST = 400
"""Before numpydoc, whose priority is Sphinx's default of 500."""


def escaped(text: str) -> str:
    """Return text in which only literals and roles are markup; sources are links."""
    return "".join(part if MARKUP.fullmatch(part) else _plain(part) for part in MARKUP.split(text))


def _plain(text: str) -> str:
    text = re.sub(r"([\\*|`])", r"\\\1", text)
    text = re.sub(r"(?<=\w)_(?!\w)", r"\\_", text)
    text = re.sub(r"(?m)^(\s*)(\w)\. ", r"\1\2\\. ", text)  # the initial of an author is no list
    return re.sub(r"\bseed (00\d)\b", r":ref:`seed \1 <seed-\1>`", text)


def paragraphs(text: str) -> Iterator[str]:
    """Yield what stands between blank lines: examples and literal blocks as they are, everything else escaped."""
    literal = False
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if literal and block.startswith("  "):
            yield block
            continue
        literal = block.endswith("::")
        yield block if EXAMPLE.match(block) else _linked(escaped(block))


def _linked(block: str) -> str:
    link = r":class:`~bigembed.errors.\1`"
    return PROBLEMS.sub(link, block) if re.match(r"(Raises|Warns)\n-", block) else block


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring of bigembed."""
    lines[:] = [*"\n\n".join(paragraphs("\n".join(lines))).splitlines(), ""]


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.connect("autodoc-process-docstring", process, priority=FIRST)
    return {"parallel_read_safe": True}
