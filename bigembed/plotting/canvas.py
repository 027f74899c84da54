"""The sheet that every picture is drawn on, and curves: spectra and bandwidths."""

from __future__ import annotations

import os
from io import BytesIO
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array
from bigembed.store.paths import PICTURES, PathLike, put, require_suffix

# ---------------------------------------------------------------------------------------------------------- canvas
# The sheet that every picture is drawn on: colours, axes, legend, and how it is written.

INK = "#2b2f36"
PALE = "#8a919c"
ACCENT = "#2f6fb0"
WARM = "#d1603d"
COLORMAP = "viridis"
CLASSES = (
    "#4269d0", "#efb118", "#ff725c", "#3ca951", "#97bbf5", "#a463f2", "#9c6b4e", "#ff8ab7",
    "#6cc5b0", "#5f6770", "#1b4f9c", "#a87900", "#c23b22", "#1f7a34", "#5b8fd6", "#6a2bb8",
    "#5e3f2c", "#c74f80", "#2f8a76", "#b4bac3",
)  # fmt: skip


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, sharex: bool = False) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, sharex=sharex)
    style(axes)
    return figure, axes


def new_axes(columns: int = 1) -> Any:
    """Axes of a new figure of pyplot, which a notebook shows."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, columns, figsize=(6.6 * columns**0.6, 5.4 if columns == 1 else 3.6), layout="constrained")
    style(axes)
    return axes


def style(axes: Any) -> None:
    """Few lines, small letters."""
    for axis in np.ravel(axes):
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(PALE)
        axis.tick_params(colors=INK, labelsize=8.5, color=PALE)
        axis.xaxis.label.set(color=INK, fontsize=9.5)
        axis.yaxis.label.set(color=INK, fontsize=9.5)
        axis.title.set(color=INK, fontsize=11.5)
        axis.set_axisbelow(True)


def colorbar(figure: Any, drawn: Any, axis: Any) -> None:
    bar = figure.colorbar(drawn, ax=axis, shrink=0.75, aspect=32, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, color=PALE)
    if bar.solids is not None:
        bar.solids.set_alpha(1.0)


def legend(axis: Any) -> None:
    axis.legend(frameon=False, fontsize=9, labelcolor=INK)


def require_picture(path: PathLike) -> None:
    """InputError for the name of another format."""
    require_suffix(path, PICTURES, "a picture is written as PNG")


def save(figure: Any, path: PathLike) -> None:
    """Written in one step: a reader never sees half a picture."""
    require_picture(path)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=140, metadata={"Software": None})
    put(path, picture.getbuffer())


def padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.03 * (high - low) or 0.03 * max(abs(low), 1.0)
    return low - pad, high + pad


# ---------------------------------------------------------------------------------------------------------- curves
# Spectra and bandwidth curves.


def spectrum(
    path: str | os.PathLike[str],
    eigenvalues: Array,
    residuals: Array | None = None,
    gaps: Array | None = None,
    title: str = "",
) -> None:
    """Draw eigenvalues and, where given, residuals and gaps of each pair, as a PNG.

    Above: λ. Below, on a logarithmic scale: 1 − λ, the residual and the gap to the next
    eigenvalue. A residual well below its gap means that the single vector is to be trusted.

    Parameters
    ----------
    path : path
        The path of the PNG.
    eigenvalues : array of shape (m,)
        The eigenvalues λ.
    residuals : array of shape (m,), or None
        The residuals of the pairs.
    gaps : array of shape (m,), or None
        The gap of each pair to the next eigenvalue.
    title : str
        The title of the picture.
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
    """Draw the kernel sum S(ε) and its slope d log S / d log ε, with the chosen ε, as a PNG.

    Twice the largest slope is the intrinsic dimension that the test implies (seed 000, §9.7).

    Parameters
    ----------
    path : path
        The path of the PNG.
    epsilons : array of shape (e,)
        The scales ε.
    ksum : array of shape (e,)
        The kernel sum at each scale.
    chosen : float or None
        The scale that was chosen.
    dimension : float or None
        The dimension that is written in the picture; None is twice the largest slope.
    title : str
        The title of the picture.
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
