"""The sheet that every picture is drawn on: colours, axes, legend, and how it is written."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from bigembed.store.storage.output_paths import PICTURES, require_suffix
from bigembed.store.storage.paths import PathLike, put

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
    for axis in np.ravel(axes):
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(PALE)
        axis.tick_params(colors=INK, labelsize=8.5, color=PALE)
        axis.xaxis.label.set(color=INK, fontsize=9.5)
        axis.yaxis.label.set(color=INK, fontsize=9.5)
        axis.title.set(color=INK, fontsize=11.5)
        axis.set_axisbelow(True)
    return figure, axes


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
