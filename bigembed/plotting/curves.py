"""Spectra and bandwidth curves."""

from __future__ import annotations

import os

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import ACCENT, INK, PALE, WARM, legend, new_figure, padded, save


def spectrum(
    path: str | os.PathLike[str],
    eigenvalues: Array,
    residuals: Array | None = None,
    gaps: Array | None = None,
    title: str = "",
) -> None:
    """Eigenvalues and, where given, residuals and gaps of each pair, as a PNG.

    Above: λ. Below, on a logarithmic scale: 1 − λ, the residual and the gap to the next
    eigenvalue. A residual well below its gap means that the single vector is to be trusted.
    """
    values = np.asarray(eigenvalues, dtype=np.float64).ravel()
    if not len(values):
        raise InputError("spectrum: no eigenvalues were given")
    number = np.arange(1, len(values) + 1)
    figure, (upper, lower) = new_figure(6.8, 6.2, rows=2)
    upper.vlines(number, min(0.0, values.min()), values, color=ACCENT, alpha=0.25, linewidth=2)
    upper.plot(number, values, "o", color=ACCENT, markersize=5)
    upper.set(ylabel="eigenvalue λ", title=title)
    upper.set_ylim(padded(float(values.min()), float(values.max())))
    for given, label, color, marker in (
        (1.0 - values, "1 − λ", ACCENT, "o"),
        (gaps, "gap to the next", PALE, "s"),
        (residuals, "residual ‖Av − λv‖", WARM, "D"),
    ):
        if given is not None:
            shown = np.asarray(given, dtype=np.float64).ravel()
            positive = np.where(shown > 0, shown, np.nan)
            lower.plot(number[: len(shown)], positive, marker=marker, color=color, label=label,
                       linewidth=1, markersize=4.5)  # fmt: skip
    lower.set_yscale("log")
    lower.set(xlabel="pair")
    legend(lower)
    for axis in (upper, lower):
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(axis="y", color="#e7e9ec")
    save(figure, path)


def bandwidth(
    path: str | os.PathLike[str],
    epsilons: Array,
    ksum: Array,
    chosen: float | None = None,
    dimension: float | None = None,
    title: str = "",
) -> None:
    """The kernel sum S(ε) and its slope d log S / d log ε, with the chosen ε, as a PNG.

    Twice the largest slope is the intrinsic dimension that the test implies (seed 000, §9.7).
    """
    grid = np.asarray(epsilons, dtype=np.float64).ravel()
    sums = np.asarray(ksum, dtype=np.float64).ravel()
    if len(grid) != len(sums) or len(grid) < 3 or not (np.all(grid > 0) and np.all(sums > 0)):
        raise InputError(f"bandwidth: {len(grid)} scales and {len(sums)} sums; equally many, at least 3, all positive")
    slope = np.gradient(np.log(sums), np.log(grid))
    figure, (upper, lower) = new_figure(6.8, 6.2, rows=2, sharex=True)
    upper.loglog(grid, sums, color=ACCENT, linewidth=1.8)
    upper.set(ylabel="kernel sum S(ε)", title=title)
    lower.semilogx(grid, slope, color=ACCENT, linewidth=1.8)
    peak = int(np.argmax(slope))
    lower.plot(grid[peak], slope[peak], "o", color=WARM, markersize=6)
    found = 2.0 * float(slope[peak]) if dimension is None else dimension
    lower.annotate(
        f"steepest at ε = {grid[peak]:.3g}, dimension {found:.2f}",
        (grid[peak], slope[peak]),
        xytext=(0, 9),
        textcoords="offset points",
        ha="right" if peak > len(grid) // 2 else "left",
        fontsize=9,
        color=WARM,
    )
    lower.set(xlabel="ε", ylabel="d log S / d log ε", ylim=(0.0, 1.25 * float(slope[peak])))
    for axis in (upper, lower):
        axis.grid(color="#e7e9ec")
        if chosen is not None:
            axis.axvline(chosen, color=INK, linewidth=1.1, linestyle="--", label=f"ε = {chosen:.4g}")
    if chosen is not None:
        legend(upper)
    save(figure, path)
