"""Stages: what a method consists of, the run that holds what they publish, and what of it is used again.

What stages are written with is imported from here.
"""

from bigembed.stages.cost import Arrays, ArraySpec, Cost, buffer, largest, rows_of, summing_cost, window_of
from bigembed.stages.reuse import Immaterial, outdated, supersede
from bigembed.stages.runs import PartOfRun, Run, run_at
from bigembed.stages.stage import Context, Stage, keeping, locked, require_worker_memory, run_stages, within

__all__ = [
    "ArraySpec",
    "Arrays",
    "Context",
    "Cost",
    "Immaterial",
    "PartOfRun",
    "Run",
    "Stage",
    "buffer",
    "keeping",
    "largest",
    "locked",
    "outdated",
    "require_worker_memory",
    "rows_of",
    "run_at",
    "run_stages",
    "summing_cost",
    "supersede",
    "window_of",
    "within",
]  # fmt: skip
