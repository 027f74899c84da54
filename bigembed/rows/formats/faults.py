"""What is wrong with the text of a table that cannot be read: its encoding, or a first line that is none of names."""

from __future__ import annotations

import codecs
import re
from typing import Any

SHOWN = 40
"""Characters of a line that are shown."""
LINE = 1 << 26
"""Bytes of a line at the most."""
WIDER = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
TIME = re.compile(r"\d[-./:]\d\d?[-./:]\d")
"""How a date or a time of day is written."""


def is_time(text: str) -> bool:
    """Whether a text that is no number holds a date or a time.

    >>> is_time("invalid value '2024-01-31'"), is_time("invalid value '7 12:30:00'"), is_time("invalid value '1.2.x'")
    (True, True, False)
    """
    return TIME.search(text) is not None


def of_first_line(message: str, first: str) -> str:
    """Return what to say where the parser's message is that of a first line that is no line of names, or nothing.

    >>> of_first_line("Row #2: Expected 1 columns, got 3: a,b,c", "# of May")[:63]
    ". Its first line ('# of May') has fewer fields (1) than row 2 ("
    """
    found = WIDER.search(message)
    row, expected, got = map(int, found.groups()) if found else (0, 0, 0)
    if got <= expected or not (row == 2 or expected == 1 or first.lstrip().startswith(("#", "%", "//"))):
        return ""
    return (
        f". Its first line ({first[:SHOWN]!r}) has fewer fields ({expected}) than row {row} ({got}): if it is a "
        f"comment or a title, and not the names of the columns, take out what stands before these: tail -n +{row} "
        "FILE > NEW.csv"
    )


def of_encoding(raw: Any) -> str:
    """Return what to say of the bytes of a file that are not text in UTF-8: which line, and how to convert it.

    >>> from io import BytesIO
    >>> of_encoding(BytesIO("a,b\\n1,2\\n".encode("utf-16")))[:51]
    'it is text in UTF-16, as its first two bytes say. C'
    """
    for number, line in enumerate(iter(lambda: raw.readline(LINE), b""), 1):
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return f"it is text in UTF-16, as its first two bytes say. {_converted('UTF-16')}"
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            there = line[max(0, error.start - SHOWN // 2) : error.start + SHOWN // 2].decode("cp1252", "replace")
            return (
                f"line {number} is not text in UTF-8 (the byte 0x{line[error.start]:02x}; in WINDOWS-1252 it would be "
                f"{there.strip()!r}). {_converted('WINDOWS-1252')}, or from the encoding that it has"
            )
    return "it is not text in UTF-8"


def _converted(encoding: str) -> str:
    return f"Convert it: iconv -f {encoding} -t UTF-8 FILE > NEW.csv"
