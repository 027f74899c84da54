"""The charts of the page of a run: spectra, gaps, the kernel sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.jobs.report.map import CLOSE
from bigembed.jobs.report.summary import RunSummary
from bigembed.maps.kernels import BINARY
from bigembed.plotting.vector import Mark, Series, chart, number
from bigembed.runtime.blocks import Array

SHOWN = 6
"""Components whose eigenvalues are drawn."""

FLAT, BEYOND = 0.01, 6
"""The kernel sum is drawn where its slope exceeds this share of the largest, and this number of scales beyond."""

SAME = 1e-6
"""Two scales that differ by less, relatively, are one."""


def spectra(summary: RunSummary) -> list[str]:
    """Eigenvalues with gaps and residuals; explained variance; the error of a descent: what the method has."""
    values, residuals = summary.fitted("eigenvalues_"), summary.fitted("residuals_")
    out = []
    if values is not None:
        out += [_eigenvalues(values), _gaps(values, residuals)]
    variance, share = summary.fitted("explained_variance_"), summary.fitted("explained_variance_ratio_")
    if share is not None:
        out.append(_variance(share))
        if variance is not None:
            out.append(_gaps(variance, residuals))
    objectives = summary.fitted("objectives_")
    if objectives is not None:
        steps = np.arange(len(objectives))
        out.append(
            chart(
                "objective",
                "Error of each iteration",
                f"From {objectives[0]:.4g} to {objectives[-1]:.4g}.",
                [Series("squared error", steps, objectives)],
                x_label="iteration",
                y_label="squared error ‖A − WH‖²",
                log_y=True,
            )
        )
    return out


def _eigenvalues(values: Array) -> str:
    """The eigenvalues, a line for each component of the graph; where all are close to 1, how far they are from it."""
    rows = np.atleast_2d(values)
    close = bool(np.nanmin(values) > 1.0 - CLOSE and np.nanmax(values) < 1.0)
    names = ["eigenvalue"] if len(rows) == 1 else [f"component {order} of the graph" for order in range(len(rows))]
    kind = "stems" if len(rows) == 1 and not close else "both"
    pairs = np.arange(1, rows.shape[1] + 1)
    drawn = 1.0 - rows if close else rows
    said = f"{values.size} values from {np.nanmax(values):.9g} to {np.nanmin(values):.9g}."
    return chart(
        "eigenvalues", "Eigenvalues", said,
        [Series(name, pairs, row, kind) for name, row in zip(names[:SHOWN], drawn, strict=False)],
        x_label="pair", y_label="1 − λ" if close else "eigenvalue λ", log_y=close, whole=True,
    )  # fmt: skip


def _gaps(values: Array, residuals: Array | None) -> str:
    """Gaps to the next value and residuals: a residual far below its gap means that the vector is to be trusted."""
    first = np.atleast_2d(values)[0]
    gaps = np.abs(np.diff(first))
    series = [Series("gap to the next", np.arange(1, len(gaps) + 1), gaps, "both")]
    if residuals is not None:
        row = np.atleast_2d(residuals)[0]
        series.append(Series("residual", np.arange(1, len(row) + 1), row, "both"))
    widest = "" if not len(gaps) else f"The widest gap, {gaps.max():.4g}, follows pair {int(gaps.argmax()) + 1}."
    return chart(
        "gaps", "Gaps between eigenvalues, and residuals", widest, series, x_label="pair", y_label="gap to the next",
        log_y=True, whole=True,
    )  # fmt: skip


def _variance(share: Array) -> str:
    pairs = np.arange(1, len(share) + 1)
    whole = np.cumsum(share)
    series = [Series("share of variance", pairs, share, "bars"), Series("together", pairs, whole, "both")]
    return chart(
        "variance", "Explained variance", f"{len(share)} coordinates keep {100 * whole[-1]:.4g} % together.", series,
        x_label="coordinate", zero=True, whole=True,
    )  # fmt: skip


def curves(summary: RunSummary) -> list[tuple[str, str]]:
    """The kernel sum over ε and its slope, each with a caption: the ε in units of this curve is marked, no other.

    The curve is that of one scale for all pairs of rows. The ε of a local bandwidth is a pure number.
    """
    found = summary.bandwidth()
    if found is None or found["found"].get("kernel") == BINARY:
        return []
    marks, caption = _scales(found["found"])
    steep = np.flatnonzero(found["slope"] > FLAT * found["slope"].max())
    part = slice(max(0, steep[0] - BEYOND), steep[-1] + BEYOND) if len(steep) else slice(None)
    part = _reaching(part, found["epsilon"], [mark.x for mark in marks])
    epsilon, log_sum, slope = (found[name][part] for name in ("epsilon", "log_sum", "slope"))
    dimension = found["found"].get("dimension")
    ends = f"ε from {epsilon.min():.3g} to {epsilon.max():.3g}. "
    said = f"The steepest place implies dimension {dimension:.3g}." if dimension else ""
    return [
        (chart(
            "ksum", "Kernel sum against ε", ends + caption, [Series("log S(ε)", epsilon, log_sum)], marks=marks,
            x_label="ε, in squared units of the rows", y_label="log S(ε), mean of the kernel", log_x=True,
        ), caption),
        (chart(
            "slope", "Slope of the kernel sum", ends + said, [Series("d log S / d log ε", epsilon, slope)],
            marks=marks, x_label="ε, in squared units of the rows",
            y_label="d log S / d log ε; its peak is half the dimension", log_x=True, zero=True,
        ), said),
    ]  # fmt: skip


def _scales(found: dict[str, Any]) -> tuple[list[Mark], str]:
    """What to mark on the curve of the kernel sum, and what to say of the ε that was used."""
    chosen, kernel, advice = float(found["epsilon"]), found.get("kernel", "fixed"), found.get("ksum_epsilon")
    marks = [Mark(chosen, f"used: ε = {number(chosen)}")] if kernel == "fixed" else []
    used = f"ε = {number(chosen)} was used, one scale for all rows."
    if kernel != "fixed":
        used = (
            f"The scale that was used ({kernel}, ε = {number(chosen)}) is not on this axis: its ε is a pure number, "
            "which multiplies the scales of the rows."
        )
    if advice is None or (marks and abs(advice / chosen - 1) < SAME):
        return marks, used
    marks.append(Mark(float(advice), f"kernel sum: {number(float(advice))}"))
    return marks, f"{used} {number(float(advice))} is the advice of the kernel sum, for the complete kernel alone."


def _reaching(part: slice, epsilon: Array, marked: list[float]) -> slice:
    """The part of the curve, made longer where a mark lies outside."""
    inside = [at for at in marked if epsilon[0] <= at <= epsilon[-1]]
    places = np.searchsorted(epsilon, inside).tolist()
    start, stop, _ = part.indices(len(epsilon))
    return slice(max(0, min([start, *(at - 1 for at in places)])), max([stop, *(at + 1 for at in places)]))
