"""Values of parameters from the command line: they stand for those of the table [sweep]."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from bigembed.errors import JobError
from bigembed.jobs.job import JobSpec, SweepTable


def varied(job: JobSpec, texts: Sequence[str]) -> JobSpec:
    """The job with these values in its ``[sweep]``, instead of those of the same parameters; it may have had none."""
    if not texts:
        return job
    given, sweep = parse_values(texts), job.sweep or SweepTable()
    methods = given.pop("method", sweep.method)
    update = {"method": methods, "parameters": {**sweep.parameters, **given}}
    return job.model_copy(update={"sweep": sweep.model_copy(update=update)})


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values by parameter from texts such as ``n_neighbors=10,20``; words that are not TOML values are text.

    >>> parse_values(["k=10,20", "epsilon=auto,0.5"])
    {'k': [10, 20], 'epsilon': ['auto', 0.5]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip() or name.strip() in grid:
            raise JobError(f"--vary {text!r}; NAME=VALUE,VALUE,… is needed, each name once")
        grid[name.strip()] = [_value(part.strip()) for part in values.split(",")]
    return grid


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
