"""The project's docstrings as reStructuredText.

They are written to be read in a terminal: sections under a line of dashes, an entry ``name : what`` a line, formulas in
plain characters. Here sections become rubrics, entries definition lists, and what markup would misread is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bigembed import errors

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Notes", "References", "Examples")
ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<what>.*)")
MARKUP = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`)", re.DOTALL)
PROBLEMS = re.compile(rf"\b({'|'.join(name for name in dir(errors) if name.endswith(('Error', 'Warning')))})\b")


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each section; those before the first one under the empty name."""
    found: dict[str, list[str]] = {"": []}
    lines = text.splitlines()
    here, skip = "", False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if skip:
            skip = False
        elif line in SECTIONS and set(below) == {"-"}:
            here, skip = line, True
            found[here] = []
        else:
            found[here].append(line)
    return found


def entries(lines: list[str]) -> list[tuple[list[str], str]]:
    """(names, what) of each entry of a section; what stands outside of entries has no names."""
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        entry = ENTRY.fullmatch(line)
        if entry:
            found.append((entry["names"].split(", "), [entry["what"]]))
        elif line.startswith("    ") and found:
            found[-1][1].append(line.strip())
        elif line.strip():
            found.append(([], [line]))
    return [(names, "\n".join(what)) for names, what in found]


def escaped(text: str) -> str:
    """Text in which only literals and roles are markup; sources are links."""
    return "".join(part if MARKUP.fullmatch(part) else _plain(part) for part in MARKUP.split(text))


def _plain(text: str) -> str:
    text = re.sub(r"([\\*|`])", r"\\\1", text)
    text = re.sub(r"(?<=\w)_(?!\w)", r"\\_", text)
    text = re.sub(r"(?m)^(\s*)(\w)\. ", r"\1\2\\. ", text)  # the initial of an author is no list
    return re.sub(r"\bseed (00\d)\b", r":ref:`seed \1 <seed-\1>`", text)


def _term(name: str) -> str:
    return f":class:`~bigembed.errors.{name}`" if PROBLEMS.fullmatch(name) else f"``{name}``"


def _linked(text: str) -> str:
    parts = MARKUP.split(escaped(text))
    link = r":class:`~bigembed.errors.\1`"
    return "".join(part if MARKUP.fullmatch(part) else PROBLEMS.sub(link, part) for part in parts)


def paragraphs(lines: list[str]) -> Iterator[str]:
    """Blocks between blank lines: examples and literal blocks as they are, everything else escaped."""
    literal = False
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if literal and block.startswith("  "):
            yield block
            continue
        literal = block.endswith("::")
        yield block if block.lstrip().startswith(">>>") else escaped(block)


def restructured(text: str) -> list[str]:
    """The docstring, line by line, for Sphinx."""
    out: list[str] = []
    for name, lines in sections(text).items():
        if name:
            out += ["", f".. rubric:: {name}", ""]
        if name in ("Parameters", "Attributes", "Raises"):
            for names, what in entries(lines):
                if not names:
                    out += ["", _linked(what), ""]
                    continue
                out.append(", ".join(_term(one) for one in names))
                out += ["    " + line for line in escaped(what).splitlines()]
        else:
            out += "\n\n".join(paragraphs(lines)).splitlines()
    return [*out, ""]


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring of bigembed."""
    lines[:] = restructured("\n".join(lines))


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
