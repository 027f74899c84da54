"""How the nearest rows are searched: the names, and which of them suits the rows."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

CELLS, NN_DESCENT, AUTO = "cells", "nn-descent", "auto"
ALGORITHMS = (AUTO, CELLS, NN_DESCENT)
ENOUGH = 0.98
"""Recall of all cells of a shortlist at which they are searched even if the target is higher."""


def checked_algorithm(name: str) -> str:
    """The name; InputError unless it is one."""
    if name not in ALGORITHMS:
        raise InputError(f"algorithm={name!r}; allowed: {', '.join(map(repr, ALGORITHMS))}")
    return name


def chosen(asked: str, curve: Array, target: float, probes: int, cell_rows: int) -> dict[str, Any]:
    """Which way the rows are searched, and why: from the recall of 1, 2, … cells, ``curve`` (S,), on sampled rows."""
    pairs = f"{probes} cells, some {probes * cell_rows} rows, for each row"
    if asked != AUTO:
        return {"algorithm": asked, "why": "asked for"}
    if curve[-1] >= min(target, ENOUGH):
        return {"algorithm": CELLS, "why": f"recall {curve[probes - 1]:.3f} is expected of {pairs}"}
    why = f"recall {curve[-1]:.3f} at most is expected of all cells on a shortlist: {pairs}; the target is {target:g}"
    return {"algorithm": NN_DESCENT, "why": why}
