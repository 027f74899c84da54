"""Whether new rows are like those that were fitted: what a map says of rows of another kind means nothing.

A map places any row: temperatures in kelvin beside those in °C, columns in another order, fill values. Sampled new
rows are compared with what a model keeps of the columns (:mod:`bigembed.quality.likeness`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.errors import MapWarning
from bigembed.estimator import method_columns, run_of
from bigembed.estimator.preprocessing import JUDGEMENT, drawn_numbers, sampled_rows
from bigembed.estimator.reporting import warn
from bigembed.neighbors.given import GIVEN
from bigembed.neighbors.survey import SCALED
from bigembed.quality.likeness import LIMITS, unlike_columns
from bigembed.rows import RowSource
from bigembed.stages import Run
from bigembed.store import arrays

NAMED = 5
"""Columns that a warning names."""
BY_ROW = (*SCALED, "haversine", GIVEN)
"""Metrics for which the columns of a row say nothing by themselves, or are made anew."""


def warn_of_unlike(estimator: Any, source: RowSource) -> str:
    """Give a MapWarning where new rows, as the steps before the method make them, are unlike those fitted.

    Returns what it says, or nothing.
    """
    if said := unlike(estimator, source):
        warn(said, MapWarning)
    return said


def unlike(estimator: Any, source: RowSource) -> str:
    """Say in which columns new rows are unlike those fitted; empty where they are not, or where nothing is known.

    Of many rows those of a few blocks are looked at.
    """
    run: Run = run_of(estimator)
    if source.sparse or getattr(estimator, "metric", "") in BY_ROW or not kept_limits(run):
        return ""
    limits = arrays.read_array(run.path(JUDGEMENT, LIMITS))
    if limits.shape[1] != source.shape[1]:
        return ""  # (the map was judged by other columns than it reads)
    rows = sampled_rows(replace(source, aligned={}), drawn_numbers(source)).rows
    found = unlike_columns(rows[np.isfinite(rows).all(axis=1)], limits)
    after = " after the steps" if getattr(estimator, "steps_", ()) else ""
    return _said(found, method_columns(estimator), after) if found else ""


def kept_limits(run: Run) -> bool:
    """Return whether a run keeps the limits of the columns of the rows that were fitted."""
    if not run.has(JUDGEMENT):
        return False
    manifest = run.manifest(JUDGEMENT)
    return LIMITS not in manifest.dropped and any(name.split("/")[0] == LIMITS for name in manifest.files)


def _said(found: Mapping[str, Any], names: Sequence[str], after: str) -> str:
    said = []
    if "moved" in found:
        count, which = found["moved_count"], _listed(found["moved"], names)
        more = ", …" if count > NAMED else ""
        where = "in the first" if count > 1 else "there"
        said.append(
            f"in {count} column{'s' * (count > 1)} ({which}{more}) most new rows lie beyond nearly all fitted ones: "
            f"{where} their median is {found['median']:.6g}{after}, and the fitted ones are from {found['least']:.6g} "
            f"to {found['most']:.6g}. Compare units, scaling and the order of the columns"
        )
    if "fills" in found:
        count, which = len(found["fills"]), _listed(found["fills"], names)
        said.append(
            f"in {count} column{'s' * (count > 1)} ({which}) one value stands far beyond all others, and beyond the "
            "fitted ones, again and again: it may stand for missing values"
        )
    if "small" in found:
        said.append(
            f"most columns hold no value above {found['small']:.2g} times those of the fitted rows. Compare "
            "units and scaling"
        )
    return f"The new rows are unlike those fitted, and their coordinates may mean nothing: {'; '.join(said)}"


def _listed(columns: Sequence[int], names: Sequence[str]) -> str:
    if len(names):
        return ", ".join(repr(names[column]) for column in columns[:NAMED])
    return ", ".join(map(str, columns[:NAMED])) + ", from 0"
