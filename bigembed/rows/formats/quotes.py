"""Quotes of a CSV that are never closed: a parser would take the lines behind one for a part of its field."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

QUOTE = re.compile(b'"')
ENDS = (b"\n", b"\r")
MARK = b"\xef\xbb\xbf"
"""What may stand before the first character of a text in UTF-8."""
PIECE = 1 << 20
LONGEST = 16 << 20
"""Bytes of a record at the most: a quote that is never closed takes all that follows for its field."""


@dataclass
class Quotes:
    """Finds a quote that is never closed, in text that comes in pieces.

    As parsers have it, a field that begins with a quote goes on to the next one that is not doubled. Where it goes over
    lines and something else than a separator or the end of a line follows, that next quote was to open
    another field, and the first one was never closed.
    """

    separator: str
    wrong: int | None = None
    """Where the first such quote stands: bytes before it."""
    _opened: int | None = None
    _lines: bool = False
    """Whether the field that is open goes over lines."""
    _doubled: bool = False
    """Whether the next quote is the second of two."""
    _held: bytes = b"\n"
    """The last two bytes: what a quote is depends on the bytes beside it."""
    _before: int = -1
    """Bytes before those that are held; a line end is thought before the first."""

    @property
    def open(self) -> bool:
        """Whether a field in quotes goes on; known where the last byte ends a line."""
        return self._opened is not None

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        text = self._held + piece
        if self._before < 0 and text.startswith(MARK, 1):
            text = b"\n" * (1 + len(MARK)) + text[1 + len(MARK) :]
        between, first = (*ENDS, self.separator.encode()), 0
        for found in QUOTE.finditer(text, 1, len(text) - 1):
            here = found.start()
            following = text[here + 1 : here + 2]
            if self.wrong is not None:
                return
            if self._doubled:
                self._doubled = False
            elif self._opened is None:
                if text[here - 1 : here] in between:
                    self._opened, first = self._before + here, here
            elif following == b'"':
                self._doubled = True
            else:
                if following not in between and (self._lines or _over_lines(text, first, here)):
                    self.wrong = self._opened
                self._opened, self._lines = None, False
        self._lines = self._opened is not None and (self._lines or _over_lines(text, first, len(text) - 2))
        self._before += len(text) - len(text[-2:])
        self._held = text[-2:]

    def end(self) -> None:
        """Nothing follows."""
        self.feed(b"\n")
        if self.wrong is None:
            self.wrong = self._opened


def records(file: Any, quotes: Quotes, size: int) -> Iterator[bytes]:
    """A text in pieces that end where a record does, all of which is shown to :class:`Quotes`; ``size``: bytes that are
    read at a time."""
    held = b""
    while read := file.read(size):
        end = 1 + max(map(read.rfind, ENDS))
        quotes.feed(read[:end])
        if end and not quotes.open:
            yield held + read[:end]
            held = read[end:]
        else:
            held += read
        if len(held) > LONGEST:
            raise csv.Error(f"a record of more than {LONGEST:,} bytes")
        quotes.feed(read[end:])
    quotes.end()
    if held:
        yield held


def line_of(file: Any, place: int) -> int:
    """The number of the line, from 1 on, that so many bytes of a file go before."""
    ends, returns = 0, 0
    while place and (piece := file.read(min(place, PIECE))):
        ends, returns, place = ends + piece.count(b"\n"), returns + piece.count(b"\r"), place - len(piece)
    return 1 + (ends or returns)


def _over_lines(text: bytes, first: int, last: int) -> bool:
    """Whether a line ends in a part of a text."""
    return any(text.find(end, first, last) >= 0 for end in ENDS)
