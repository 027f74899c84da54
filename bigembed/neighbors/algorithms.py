"""How the nearest rows are searched: the names, and which of them suits the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

CELLS, NN_DESCENT, AUTO = "cells", "nn-descent", "auto"
ALGORITHMS = (AUTO, CELLS, NN_DESCENT)
WITHOUT_DESCENT = "auto, without nn-descent"
"""What a plan makes of the automatic choice where the lists of NN-descent do not fit into the memory of a worker. It is
a parameter of the stage that decides, so that no run takes over what was decided where there is room, or none."""
LITTLE_MEMORY = "more memory than a worker may hold here"
ENOUGH = 0.98
"""Recall of all cells of a shortlist at which they are searched even if the target is higher."""


WORTH = 128
"""Cells a row from which the rounds of NN-descent take less time than the search of the cells, where these are a part
of all."""


def checked_algorithm(name: str) -> str:
    """The name; InputError unless it is one."""
    if name not in ALGORITHMS:
        raise InputError(f"algorithm={name!r}; allowed: {', '.join(map(repr, ALGORITHMS))}")
    return name


def chosen(
    asked: str, curve: Array, target: float, probes: int, n: int, cells: int, lacking: str = ""
) -> dict[str, Any]:
    """Which way n rows in a number of cells are searched, and why: from the recall of 1, 2, … cells, ``curve`` (S,), on
    sampled rows. ``lacking``: what NN-descent would take that is not there.

    Nothing where it is cells without being asked for, and would be wherever it runs: :func:`said` says why.
    """
    lacking = LITTLE_MEMORY if asked == WITHOUT_DESCENT else lacking
    if asked in (CELLS, NN_DESCENT):
        return {"algorithm": asked, "why": "asked for", "target": target}
    reached = bool(curve[-1] >= min(target, ENOUGH))
    if reached and (probes <= WORTH or cells < 4 * WORTH):
        return {}
    pairs = f"{probes} cells, some {probes * (n // cells)} rows, for each row"
    why = f"recall {curve[-1]:.3f} at most is expected of all cells on a shortlist: {pairs}; the target is {target:g}"
    if reached:
        why = f"recall {curve[probes - 1]:.3f} would take {pairs}, more time than rounds of NN-descent"
    if lacking:
        why += f". NN-descent, which would be taken for that, needs {lacking}"
        return {"algorithm": CELLS, "why": why, "target": target, "forced": True}
    return {"algorithm": NN_DESCENT, "why": why, "target": target}


def said(witness: Mapping[str, Any]) -> str:
    """Which way the rows are searched, and why, in words: from the results of the stage that decided it."""
    if "algorithm" in witness:
        return f"neighbors by {witness['algorithm']}: {witness['why']}"
    return (
        f"neighbors by {CELLS}: recall {witness['expected_recall']:.3f} is expected of {witness['n_probes']} cells for "
        "each row"
    )
