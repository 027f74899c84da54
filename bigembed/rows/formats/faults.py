"""What is wrong with the text of a table that cannot be read: its encoding, or a first line that is none of names."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import Any

SHOWN = 40
"""Characters of a line that are shown."""
LINE = 1 << 26
"""Bytes of a line at the most."""
WIDER = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
GROUPED, SMALL = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+"), re.compile(r"[-+]?\d{1,3}")
LEAST = 3
"""Numbers with points between their thousands from which they are taken for such."""
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


def by_thousands(records: Iterable[Sequence[str]], names: Sequence[str]) -> str:
    """Return what to say where points may separate thousands, as in German, or nothing.

    So they do where the numbers of a column that have a point have three digits after each, three of them at least, and
    all others are whole ones of up to three digits.

    >>> by_thousands([["11.257"], ["950"], ["1.004"], ["2.500"]], ["revenue"])[:59]
    'column revenue: numbers such as 11.257 have three digits af'
    >>> by_thousands([["11.257"], ["950.5"], ["1.004"], ["2.500"]], ["revenue"])
    ''
    """
    whole = [record for record in records if len(record) == len(names)]
    for number, name in enumerate(names):
        fields = [record[number] for record in whole if record[number]]
        grouped = [field for field in fields if GROUPED.fullmatch(field)]
        plain = [field for field in fields if SMALL.fullmatch(field)]
        if len(grouped) >= LEAST and plain and len(grouped) + len(plain) == len(fields):
            return (
                f"column {name}: numbers such as {grouped[0]} have three digits after each point, and others, such as "
                f"{plain[0]}, have none. If the point separates thousands, they are read a thousand times too small: "
                "write numbers without it"
            )
    return ""


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
