"""Jobs: what a TOML file describes, planned, run and resumed. The only home of distributed.Client.

Bytes, seconds and moments as people write and read them are here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from bigembed.errors import JobError


def size(count: float) -> str:
    """Write a number of bytes with its unit.

    >>> size(512), size(1536 * 1024), size(3.2 * 2**30)
    ('512 B', '1.5 MiB', '3.2 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def text_columns(table: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Return the lines of a table, its columns of one width: those of these numbers to the left, the others to the
    right.

    >>> text_columns([("stage", "time"), ("graph", "7 s")], [0])
    ['stage  time', 'graph   7 s']
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def duration(seconds: float | None) -> str:
    """Write a number of seconds as a duration.

    >>> duration(0.0004), duration(0.034), duration(3.21), duration(75.0), duration(7300.0), duration(None)
    ('0 s', '0.034 s', '3.2 s', '1 min 15 s', '2 h 1 min', '?')
    """
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.2g} s" if 0.001 <= seconds < 1 else f"{seconds:.1f} s" if seconds >= 1 else "0 s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


_UNITS = {"d": 86_400, "h": 3600, "m": 60, "min": 60, "s": 1}


def parse_deadline(text: str, now: float | None = None) -> float:
    """Return seconds since 1970 of a deadline: a duration from now, a time of day (the next one), or a date and time.

    Times without a zone are local.

    >>> parse_deadline("1h30m", now=1000.0), parse_deadline("45 s", now=1000.0)
    (6400.0, 1045.0)
    >>> parse_deadline("2026-11-22T06:00:00+00:00") - parse_deadline("2026-11-21T06:00Z")
    86400.0
    """
    now = time.time() if now is None else now
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)\b", re.sub(r"([a-z])(?=\d)", r"\1 ", text.strip().lower()))
    if parts and re.fullmatch(r"(\s*\d+(\.\d+)?\s*(d|h|min|m|s))+\s*", text.lower()):
        return now + sum(float(count) * _UNITS[unit] for count, unit in parts)
    try:
        if re.fullmatch(r"\s*\d{1,2}:\d{2}(:\d{2})?\s*", text):
            return _next(text.strip().zfill(5), now)
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError as error:
        raise JobError(
            f'deadline {text!r}; a duration such as "6h", "45m" or "1h30m", a time of day such as "06:30", or a date '
            'and time such as "2026-11-22T06:30"'
        ) from error


def _next(clock: str, now: float) -> float:
    """Return the next moment at which a local clock shows this time."""
    today = datetime.fromtimestamp(now)
    hour, minute, *second = (int(part) for part in clock.split(":"))
    at = today.replace(hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0)
    return (at if at > today else at + timedelta(days=1)).timestamp()
