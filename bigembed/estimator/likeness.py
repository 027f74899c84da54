"""Whether new rows are like those that were fitted: what a map says of rows of another kind means nothing.

A map places any row: temperatures in kelvin beside those in °C, columns in another order, fill values. Sampled new
rows are compared with what a model keeps of the columns (:mod:`bigembed.quality.likeness`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import MapWarning
from bigembed.estimator import columns_after, extension_of, run_of
from bigembed.estimator.extension import complete
from bigembed.estimator.filled import unlike_filled
from bigembed.estimator.moments import STAGE, account_of, missing_in, sentence
from bigembed.estimator.preprocessing import JUDGEMENT
from bigembed.estimator.reporting import warn
from bigembed.estimator.sampling import drawn_numbers, sampled_rows
from bigembed.neighbors.given import GIVEN
from bigembed.neighbors.query import Index, join_rows
from bigembed.neighbors.survey import SCALED, Shape, prepare
from bigembed.quality.figures import LISTED
from bigembed.quality.likeness import (
    GROUPED,
    LIMITS,
    OUTSIDE,
    REACH,
    Far,
    far_columns,
    more_missing,
    outside,
    unlike_columns,
)
from bigembed.rows import RowSource
from bigembed.rows.reader import columns_named, listed
from bigembed.rows.row_maps import inadmissible
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.stages import Run
from bigembed.store import arrays

SEARCHED, FROM = 32, 128
"""New rows that are searched, and of how many: a part of what their coordinates take."""
BYTES = 8 << 20
"""Of the new rows that are looked at."""
SHOWN = 3
"""Columns that are far in some rows, and of each the rows, that are named."""
BY_ROW = (*SCALED, "haversine", GIVEN)
"""Metrics for which the columns of a row say nothing by themselves, or are made anew."""


@dataclass(frozen=True)
class Likeness:
    """What some of the new rows show beside those fitted."""

    warning: str = ""
    """In what they are unlike; empty where they are not, or where nothing is known."""
    missing: tuple[dict[str, Any], ...] = ()
    """What each step that fills missing values finds in them (:func:`bigembed.estimator.moments.account_of`), with its
    number and name (``step``), of how many new rows (``of``), and all of that in words (``said``)."""


def warn_of_unlike(estimator: Any, source: RowSource, first: int = 0) -> Likeness:
    """Give a MapWarning where new rows, as the steps before the method make them, are unlike those fitted.

    Of many rows those of a few blocks are looked at. Where the model has an index of the fitted rows, some are searched
    in it. ``first``: the number of the first row, for what is said of single rows.
    """
    accounts, filled = _filled(estimator, source, first)
    said = _unlike(estimator, source, filled, first)
    if said:
        warn(said, MapWarning)
    return Likeness(said, tuple(accounts))


def _unlike(estimator: Any, source: RowSource, filled: Sequence[str], first: int) -> str:
    """Say in what new rows are unlike those fitted, of which columns were ``filled`` far less often."""
    run: Run = run_of(estimator)
    limits, reach = (_kept(run, name) for name in (LIMITS, REACH))
    found: dict[str, Any] = {"filled": filled} if filled else {}
    if sparse := unlike_filled(estimator, source, lambda raw: _looked_at(raw)[1]):
        found |= {"sparse": sparse}
    if limits is not None or reach is not None:
        numbers, rows = _looked_at(source)
        there = complete(rows)
        numbers, rows = numbers[there] + first, rows[there]
        by_column = rows.shape[0] and not source.sparse and judges_columns(estimator)
        if limits is not None and by_column and limits.shape[1] == source.shape[1]:  # (it may be judged by others)
            found |= unlike_columns(rows, limits)
            found |= _far_besides(found, _far(run, rows, limits), numbers)
        if reach is not None and (share := _outside(estimator, rows, reach)) > OUTSIDE:
            found |= {"outside": share}
    after = " after the steps" if getattr(estimator, "steps_", ()) else ""
    return _said(found, columns_after(estimator), after) if found else ""


def _far(run: Run, rows: Array, limits: Array) -> dict[int, Far]:
    """Columns that are far in some rows: those of which the rows that were looked at in the fit show the range."""
    seen = run.results(JUDGEMENT).get("map", {})
    grouped = _kept(run, GROUPED) if "of" in seen else np.zeros(limits.shape[1], bool)
    if grouped is None:  # (of a model that an earlier version fitted to some blocks of a file, which may be sorted)
        return {}
    return {column: one for column, one in far_columns(rows, limits, seen.get("n", 0)).items() if not grouped[column]}


def judges_columns(estimator: Any) -> bool:
    """Whether the columns of a row say something by themselves, by the metric."""
    return getattr(estimator, "metric", "") not in BY_ROW


def _far_besides(found: Mapping[str, Any], far: Mapping[int, Far], numbers: Array) -> dict[str, Any]:
    """Columns that are far in some of the rows looked at, of these numbers: those of which ``found`` says nothing."""
    known = {*found.get("moved", ()), *found.get("fills", ())}
    left = {column: one for column, one in far.items() if column not in known}
    if not left or found.get("moved_count", 0) > LISTED:
        return {}
    return {"far": left, "numbers": numbers}


def _looked_at(source: RowSource) -> tuple[Array, Any]:
    """Numbers of some of the new rows, of a few blocks, and these rows; of wide ones as fit into :data:`BYTES`."""
    numbers = drawn_numbers(source)
    most = max(FROM, BYTES // max(1, int(source.row_bytes)))
    if len(numbers) > most:
        numbers = numbers[np.linspace(0, len(numbers) - 1, most).astype(int)]
    return numbers, sampled_rows(replace(source, aligned={}), numbers).rows


def _filled(estimator: Any, source: RowSource, first: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Accounts of the steps that fill missing values, and the columns that they fill far more often than those of the
    fitted rows, in words."""
    accounts: list[dict[str, Any]] = []
    more: list[str] = []
    steps = getattr(estimator, "steps_", ())
    for number in range(len(steps) - 1, -1, -1):
        step, source = steps[number], getattr(source, "base", None) or source
        if not (getattr(step, "takes_missing", False) and hasattr(step, "missing_")) or step.drops:
            continue
        names, (numbers, rows) = columns_after(estimator, number), _looked_at(source)
        found = account_of(run_of(step).results(STAGE), rows, numbers + first, names)
        of = "" if len(numbers) == source.shape[0] else f", of which {len(numbers):,} were looked at"
        name = f"{number + 1} {type(step).registered}"
        said = f"{name}: of {source.shape[0]:,} new rows{of}, {sentence(found)}" if of else f"{name}: {sentence(found)}"
        accounts.insert(0, {"step": name, "of": source.shape[0], **found, "said": said})
        more += _more_filled(step, rows, names)
    return accounts, more


def _more_filled(step: Any, rows: Any, names: Sequence[str]) -> list[str]:
    new, m, fitted, n = missing_in(rows), rows.shape[0], step.missing_, step.n_samples_
    return [
        f"{columns_named([c], names)} ({100 * new[c] / m:.3g} %, {100 * fitted[c] / n:.2g} % of the fitted)"
        for c in np.flatnonzero(more_missing(new, m, fitted, n)).tolist()
    ]


def _outside(estimator: Any, rows: Any, reach: Array) -> float:
    """The share of the first new rows that lie outside of the fitted ones, by the index of a model."""
    model = extension_of(estimator).model
    index, shape = (getattr(model, name, None) for name in ("index", "shape"))
    if rows.shape[0] < FROM or not (isinstance(index, Index) and isinstance(shape, Shape)):
        return 0.0
    some = rows[np.unique(np.linspace(0, rows.shape[0] - 1, SEARCHED).astype(int))]
    if is_sparse(some) != shape.sparse or inadmissible(some, shape.compare.text)[0].any():
        return 0.0
    joined = join_rows(prepare(some, shape), index)
    return outside(joined.indptr, joined.squared, reach, shape.compare.unrelated)


def _kept(run: Run, name: str) -> Array | None:
    """Return an array by which new rows are judged; None where a run or a model does not keep it."""
    if not run.has(JUDGEMENT):
        return None
    manifest = run.manifest(JUDGEMENT)
    there = name not in manifest.dropped and any(file.split("/")[0] == name for file in manifest.files)
    return arrays.read_array(run.path(JUDGEMENT, name)) if there else None


def _said(found: Mapping[str, Any], names: Sequence[str], after: str) -> str:
    said = list(found.get("sparse", ()))
    if "moved" in found:
        count, which = found["moved_count"], columns_named(found["moved"], names)
        where = f"{count} in all; in the first" if count > 1 else "there"
        said.append(
            f"in {which} most new rows lie beyond nearly all fitted ones: "
            f"{where} their median is {found['median']:.6g}{after}, and the fitted ones are from {found['least']:.6g} "
            f"to {found['most']:.6g}. Compare units, scaling and the order of the columns"
        )
    if "filled" in found:
        said.append(f"far more values are missing and filled in {listed(found['filled'])}")
    if "outside" in found:
        said.append(
            f"{100 * found['outside']:.0f} % of them lie farther from the fitted rows than these lie apart: the map "
            "has not seen this part of the space, and puts them where the nearest fitted rows are"
        )
    if "fills" in found:
        said.append(
            f"in {columns_named(found['fills'], names)} one value stands far beyond all others, and beyond the "
            "fitted ones, again and again: it may stand for missing values"
        )
    if "small" in found:
        said.append(
            f"most columns hold no value above {found['small']:.2g} times those of the fitted rows. Compare "
            "units and scaling"
        )
    if "far" in found:
        said += _far_said(found["far"], found["numbers"], names, after)
    who = "Some of the new rows" if found.keys() == {"far", "numbers"} else "The new rows"
    return f"{who} are unlike those fitted, and their coordinates may mean nothing: {'; '.join(said)}"


def _far_said(far: Mapping[int, Far], numbers: Array, names: Sequence[str], after: str = "") -> list[str]:
    """Say of the first columns in how many of the rows looked at, of these numbers, they are far, and how far."""
    order = sorted(far.items(), key=lambda item: (-len(item[1].rows), -item[1].times))
    said = []
    for column, one in order[:SHOWN]:
        first = listed(map(str, numbers[one.rows[:SHOWN]].tolist())) + ", …" * (len(one.rows) > SHOWN)
        where = (
            f"in {len(one.rows):,} of {len(numbers):,} rows looked at {columns_named([column], names)} is far outside"
        )
        said.append(f"{where}, up to {one.times:.3g} times the range of the fitted rows{after} (rows {first})")
    more = [f"and so are {len(far) - SHOWN} other columns"] if len(far) > SHOWN else []
    return [*said, *more, "look at these rows, and compare units"]
