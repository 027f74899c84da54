"""Variables of the environment in a job file: ``"rows-${DATE}.parquet"``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bigembed.errors import JobError

VARIABLE = re.compile(r"(\$?)\$\{(\w+)\}")
"""``${NAME}``; with one more ``$`` before it, it stands for itself."""


def with_environment(value: Any, file: Path, environment: Mapping[str, str] = os.environ) -> Any:
    """Tables of a job file with the values of the variables that its texts name; JobError lists those that are absent.

    >>> with_environment({"path": "rows-${DATE}.csv", "columns": ["$${x}"]}, Path("job.toml"), {"DATE": "2026-11-29"})
    {'path': 'rows-2026-11-29.csv', 'columns': ['${x}']}
    """
    absent = sorted({name for name in _names(value) if not environment.get(name)})
    if absent:
        raise JobError(
            f"{file}: names variables of the environment that are not set, or empty: {', '.join(absent)}. Set them, or "
            f"write $${{{absent[0]}}} where the text ${{{absent[0]}}} itself is meant"
        )
    return _filled(value, environment)


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (name for itself, name in VARIABLE.findall(value) if not itself)
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _names(part)


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: found[0][1:] if found[1] else environment[found[2]], value)
    if isinstance(value, dict):
        return {key: _filled(part, environment) for key, part in value.items()}
    return [_filled(part, environment) for part in value] if isinstance(value, list) else value
