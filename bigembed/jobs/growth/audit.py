"""Whether a model still fits the rows that came since: drift, in figures that a schedule can act on.

Some of the new rows are compared with as many of those fitted ("held" in ``audit.json``: each against all the others).

- ``growth``: rows that came or were deleted since, over the rows that the version is of.
- ``distance``: from each row to the nearest fitted one. Rows of the same kind have the same distances; the median
  ratio, and the share of new rows farther out than 99 of 100 fitted ones, say how far they are from it.
- ``misfit``: what the model leaves unexplained of a row (:mod:`bigembed.jobs.growth.audit`), compared in the same way.
- ``recall``: the share of the true nearest fitted rows that the search finds for new rows, where there is a graph.

Besides them ``far`` names columns in which some of the new rows lie far beyond all fitted ones, and the ranges of these
rows: in other units, say. No refresh mends that, so it makes none due.

A refresh is due when one of them is beyond its limit (:class:`Limits`) by more than chance explains (two standard
errors of a share).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator import columns_after, extension_of, run_of
from bigembed.estimator.extension import complete, leaves_out
from bigembed.estimator.likeness import judges_columns
from bigembed.estimator.preprocessing import mapped_new_rows
from bigembed.jobs.growth import Version, open_growth, place_for, refuse_unfitted, unchanged
from bigembed.jobs.growth.account import NAMED, Snapshot, snapshot
from bigembed.jobs.growth.frames import pending, places_of, seen_by
from bigembed.jobs.job import JobSpec
from bigembed.jobs.session import session
from bigembed.jobs.watching import RunOptions
from bigembed.maps import load
from bigembed.maps.walk.extension import WalkModel, self_weight
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Index, join_rows
from bigembed.neighbors.search import internal_ids, nearest_rows, recall_at, rows_at, summed_up
from bigembed.neighbors.survey import Shape
from bigembed.quality.likeness import column_limits, far_columns
from bigembed.rows import RowSource
from bigembed.rows.growing import StoreRows, deleted_rows
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.runtime.parameters import is_name
from bigembed.store import remove
from bigembed.store.exchange import Exchange
from bigembed.store.files import write_json

# ---------------------------------------------------------------------------------------------------------- misfit
# How badly a row fits a model: one number a row, comparable between rows fitted and new ones.


@dataclass(frozen=True)
class Misfit:
    """What is measured of each row, and how."""

    name: str
    meaning: str
    function: Callable[[Array], Array]
    """``function(rows)``: prepared rows (m, d) to (m,); larger is worse."""


def misfit_of(estimator: Any) -> Misfit | None:
    """Return the misfit of a model that was loaded: of a diffusion map the weight of a row on itself, of a map with an
    inverse the reconstruction error; None for others."""
    extension = extension_of(estimator)
    if isinstance(extension.model, WalkModel):
        meaning = "1 / (1 + Σ_j k(x, x_j)): share of the walk that stays at the row; 1 is out of reach of all fitted"
        return Misfit("self_weight", meaning, partial(self_weight, model=extension.model))
    if hasattr(estimator, "inverse_transform"):
        meaning = "‖x − x̂‖, x̂ the row that its coordinates stand for"
        named = tuple(name for name in estimator.get_params().values() if is_name(name))  # (allowed when it was loaded)
        function = partial(reconstruction_error, model=str(run_of(estimator).root), functions=named)
        return Misfit("reconstruction_error", meaning, function)
    return None


def reconstruction_error(rows: Array, model: str, functions: tuple[str, ...] = ()) -> Array:
    """‖x − x̂‖ (m,) of rows (m, d), x̂ from the coordinates of x by the model saved at a path."""
    estimator = load(model, functions)
    rebuilt = estimator.inverse_transform(extension_of(estimator).of_rows(rows))
    return np.asarray(np.linalg.norm(np.asarray(rows, np.float64) - rebuilt, axis=1))


def search_index(estimator: Any) -> Index | None:
    """Return the index by which new rows find their neighbors, for a model on a graph of nearest neighbors."""
    index = getattr(extension_of(estimator).model, "index", None)
    return index if isinstance(index, Index) else None


def compared_by(estimator: Any, source: RowSource) -> Shape:
    """Return how the rows of a model are compared: as its graph compares them; without one by Euclidean distances."""
    shape = getattr(extension_of(estimator).model, "shape", None)
    return shape if isinstance(shape, Shape) else Shape(source.shape[0], source.width, str(source.work), "euclidean")


def found_lists(rows: Array, index: Index) -> Array:
    """Internal ids of the fitted rows that the search joins to prepared rows: int64 (m, widest), −1 where there are
    no more."""
    joined = join_rows(rows, index)
    counts = np.diff(joined.indptr)
    lists = np.full((len(rows), int(counts.max(initial=1))), -1, np.int64)
    lists[np.arange(lists.shape[1]) < counts[:, None]] = joined.ids
    return lists


# ----------------------------------------------------------------------------------------------------------- audit

REPORT = "audit.json"
QUANTILES = (0.1, 0.5, 0.9, 0.99)
DUE = 7
"""Exit status of an audit that finds a refresh due."""


@dataclass(frozen=True)
class Limits:
    """When a refresh is due."""

    growth: float = 1.0
    """Rows that came or were deleted since, over rows fitted: at this share in any case."""
    ratio: float = 1.5
    """Median of the new rows over the median of the fitted ones, of distances and of misfits."""
    beyond: float = 0.05
    """Share of new rows beyond the 0.99-quantile of the fitted ones (which 0.01 of them are), of distances and of
    misfits."""
    recall: float = 0.9
    """Least recall of the search for new rows."""
    least: int = 100
    """Fewer new rows than these are judged by ``growth`` alone."""


def audit(
    job: JobSpec, options: RunOptions | None = None, *, limits: Limits | None = None, sample: int = 2_000, seed: int = 0
) -> dict[str, Any]:
    """Compare the rows that came since the last refresh with those it fitted; write ``audit.json``, return it.

    ``"due"`` lists the reasons for a refresh; empty, the model still fits. ``"far"`` lists columns in which some new
    rows are far outside of the fitted ones, and where. ``sample``: rows looked at of each kind,
    drawn by ``seed``. Three passes over the fitted rows at the most; memory as of one block of rows and the samples.
    Reads the growing embedding without holding it, so it may run beside a refresh. Raises :class:`MissingPathError`
    before the first refresh, :class:`LockedError` beside another audit, :class:`ChangedInputError`,
    :class:`InputError`.
    """
    limits, began = limits or Limits(), time.perf_counter()
    refuse_unfitted(job)
    if sample < 2:
        raise InputError(f"sample={sample}; at least 2 rows of each kind are compared")
    growth = open_growth(job.output_path)
    with session(job.output_path, options, job.method.name) as command:
        work = growth.root / "audit"
        work.mkdir(exist_ok=True)
        with command.hold_folder(work) as (reporter, _):
            there, version = snapshot(job.input_path), growth.current
            assert version is not None
            unchanged(job, version.ledger, seen_by(version, there), False, reporter)
            fitted, new = version.fitted, there.shape[0] - version.fitted
            figures: dict[str, Any] = {"growth": {"share": share_changed(job, version, there)}}
            judged = min(sample, max(0, new)) if new >= limits.least else 0
            if judged:
                with reporter.stage("audit"), place_for(job, there, reporter, fitted):
                    exchange = Exchange(str(work / "exchange"))
                    judged, found_of = _figures(job, version, there, judged, min(sample, fitted), seed, exchange)
                    figures |= found_of
            far = figures.pop("far", [])
            found = {
                "output": str(growth.root),
                "version": version.root.name,
                "rows": {"fitted": fitted, "new": new, "judged": judged},
                "pending": len(pending(version, job.input_path)),
                "figures": figures,
                "far": far,
                "limits": asdict(limits),
                "due": reasons(figures, limits),
                "seconds": round(time.perf_counter() - began, 3),
            }
            write_json(growth.root / REPORT, found)
    return found


def share_changed(job: JobSpec, version: Version, there: Snapshot) -> float:
    """Return the rows that came since, and those that were deleted since, over those that the version is of."""
    deleted = deleted_rows(job.input_path, there.shape[0])
    came = there.shape[0] - version.fitted - int(deleted[version.fitted :].sum())
    gone = max(0, int(deleted[: version.fitted].sum()) - version.deleted)
    return (came + gone) / max(1, version.fitted - version.deleted)


def _figures(
    job: JobSpec, version: Version, there: Snapshot, new: int, known: int, seed: int, exchange: Exchange
) -> tuple[int, dict[str, Any]]:
    """Distances, misfits, rows far away and recall of samples of ``new`` rows and of ``known``, fitted ones; and how
    many new rows are there to judge, without deleted ones and those that the steps leave out."""
    model, kept = load(version.model, job.functions), places_of(version)
    remove(exchange.root)  # of an audit that was killed
    source, all_rows = (_as_method_sees(model, there, rows) for rows in (version.fitted, there.shape[0]))
    source = source if kept is None else kept.of(source)
    n, known = source.shape[0], min(known, source.shape[0])
    shape = compared_by(model, source)
    every, fitted = (replace(shape, n=rows) for rows in (there.shape[0], n))
    generator = np.random.default_rng([seed, version.fitted])
    since = np.sort(generator.choice(there.shape[0] - version.fitted, new, replace=False))
    known_ids = np.sort(generator.choice(n, known, replace=False))
    gone = deleted_rows(job.input_path, there.shape[0])[version.fitted :]
    drawn = rows_at(all_rows, every, version.fitted + since)
    there_too = (complete(drawn) if leaves_out(getattr(model, "steps_", ())) else np.ones(new, bool)) & ~gone[since]
    drawn, ids, new = drawn[there_too], np.concatenate([n + since[there_too], known_ids]), int(there_too.sum())
    if not new:
        return 0, {}
    rows = np.concatenate([drawn, rows_at(source, fitted, known_ids)])
    if wrong := (version.fitted + since[there_too])[~np.isfinite(drawn).all(axis=1)].tolist():
        raise InputError(
            f"{there.path}: rows {wrong[:NAMED]} hold NaN or infinity, and maybe others. Drop or impute them"
        )
    index = search_index(model)
    k = min(index.n_neighbors if index else 1, n - 1)
    nearest, squared = nearest_rows(source, fitted, rows, ids, k, exchange)
    distances = np.sqrt(squared[:, 0].astype(np.float64))
    figures: dict[str, Any] = {"distance": compared(distances[:new], distances[new:])}
    exchange.put("rows", 0, {"new": rows[:new], "fitted": rows[new:]})
    if (misfit := misfit_of(model)) is not None:
        parts = map_blocks(misfit_block, [("new",), ("fitted",)], measure=misfit.function, exchange=exchange)
        figures["misfit"] = {"what": misfit.name, "meaning": misfit.meaning, **compared(*parts)}
    if index is not None:
        [lists] = map_blocks(found_block, [()], index=index, exchange=exchange)
        found = summed_up(recall_at(lists, internal_ids(Ordered.open(index.order), nearest[:new])), k)
        figures["recall"] = {"n_neighbors": k, "recall": found.recall, "standard_error": found.standard_error}
    if judges_columns(model):
        numbers, names = version.fitted + since[there_too], columns_after(model)
        figures["far"] = far_rows(rows[:new], rows[new:], numbers, names, spans_of(version, there.shape[0]))
    exchange.clear()
    remove(exchange.root)
    return new, figures


def spans_of(version: Version, n: int) -> list[tuple[int, int]]:
    """Return the ranges of rows that came since the fit: each that was placed at a time, and what has no place yet."""
    placed = [(one.start, one.stop) for one in version.ranges if one.start >= version.fitted]
    return [*placed, (version.covered, n)] if version.covered < n else placed


def far_rows(
    new: Array, fitted: Array, numbers: Array, names: Sequence[str], spans: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Return the columns in which some new rows lie far beyond the fitted ones, by more than chance, the most rows
    first: how many, how far, the first of them, and in which ranges of the rows (``spans``).

    >>> fitted, new = np.arange(100.0)[:, None], np.array([[5.0]] * 80 + [[900.0]] * 20)
    >>> far_rows(new, fitted, np.arange(100, 200), ["age"], [(100, 150), (150, 200)])[0]["ranges"]
    [{'start': 150, 'stop': 200, 'rows': 20, 'judged': 50}]
    """
    limits = column_limits(fitted, fitted.min(axis=0), fitted.max(axis=0))
    found = []
    for column, one in far_columns(new, limits, len(fitted)).items():
        far = numbers[one.rows]
        counts = [(start, stop, *(int(((each >= start) & (each < stop)).sum()) for each in (far, numbers)))
                  for start, stop in spans]  # fmt: skip
        ranges = [dict(zip(("start", "stop", "rows", "judged"), count, strict=True)) for count in counts if count[2]]
        name = str(names[column]) if names else str(column)
        said = {"column": name, "rows": len(far), "judged": len(new), "times": one.times}
        found.append({**said, "first": far[:NAMED].tolist(), "ranges": ranges})
    return sorted(found, key=lambda one: (-one["rows"], -one["times"]))


def _as_method_sees(model: Any, there: Snapshot, n: int) -> RowSource:
    """Return the first n rows after the steps before the method."""
    return mapped_new_rows(model, StoreRows((n, there.shape[1]), there.dtype, path=there.path))


def misfit_block(kind: str, *, measure: Any, exchange: Exchange) -> Array:
    """Misfits of one of the samples."""
    [rows] = exchange.get_many("rows", 0, [kind])
    return np.asarray(measure(rows))


def found_block(*, index: Any, exchange: Exchange) -> Array:
    """Search the nearest rows of a block of new rows."""
    [rows] = exchange.get_many("rows", 0, ["new"])
    return found_lists(rows, index)


def compared(new: Array, fitted: Array) -> dict[str, Any]:
    """Quantiles of both samples, the ratio of their medians, and the share of new ones beyond the 0.99-quantile of
    the fitted ones, with its standard error. The ratio is None where the median of the fitted ones is 0.

    >>> found = compared(np.array([1.0, 2.0, 30.0]), np.array([1.0, 2.0, 3.0]))
    >>> found["ratio"], round(found["beyond"], 3)
    (1.0, 0.333)
    """
    median, limit = float(np.median(fitted)), np.quantile(fitted, QUANTILES[-1])
    beyond = float(np.mean(new > limit))
    samples = {"new": new, "held": fitted}
    quantiles = {
        name: dict(zip(map(str, QUANTILES), np.quantile(values, QUANTILES).tolist(), strict=True))
        for name, values in samples.items()
    }
    ratio = float(np.median(new)) / median if median > 0 else None
    return quantiles | {
        "ratio": ratio,
        "beyond": beyond,
        "standard_error": float(np.sqrt(beyond * (1 - beyond) / len(new))),
    }


def reasons(figures: dict[str, Any], limits: Limits) -> list[str]:
    """Return why a refresh is due, by the figures of an audit; empty where none is.

    >>> reasons({"growth": {"share": 2.0}}, Limits())
    ['the rows that came or were deleted since are 2 of those fitted, at the limit of 1 or beyond']
    """
    out, share = [], figures["growth"]["share"]
    if share >= limits.growth:
        out.append(
            f"the rows that came or were deleted since are {share:.3g} of those fitted, at the limit of "
            f"{limits.growth:g} or beyond"
        )
    for name in ("distance", "misfit"):
        found = figures.get(name)
        if found and found["ratio"] is not None and found["ratio"] > limits.ratio:
            times = f"{found['ratio']:.3g} times that of fitted ones"
            out.append(f"the median {name} of new rows is {times} (limit {limits.ratio:g})")
        if found and found["beyond"] - 2 * found["standard_error"] > limits.beyond:
            out.append(
                f"{100 * found['beyond']:.3g} % of the new rows have a {name} that only 1 % of the fitted ones have "
                f"(limit {100 * limits.beyond:g} %)"
            )
    found = figures.get("recall")
    if found and found["recall"] + 2 * found["standard_error"] < limits.recall:
        out.append(f"the search finds {found['recall']:.3g} of the neighbors of new rows (limit {limits.recall:g})")
    return out
