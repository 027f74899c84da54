"""The map of any number of points as a PNG with axes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import ACCENT, INK, PALE, colorbar, new_figure, padded, require_picture, save
from bigembed.plotting.limits import limits_of
from bigembed.plotting.paint import LIGHT, RAMP, Paint, along, paint_of
from bigembed.plotting.raster import View, count_points, pixels_of
from bigembed.plotting.stream import Rows, numbered, pair_of

PIXELS = 840
"""Of a side."""
NOTE = 95
"""Letters of a line of the note."""


def scatter(
    path: str | os.PathLike[str],
    coordinates: Rows,
    color: Rows = None,
    labels: Rows = None,
    title: str = "",
    axes: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    note: str = "",
) -> None:
    """A map of the points as a PNG: two of the coordinates, one pass for the limits and one to draw.

    ``color`` (a number for each row) gives a colour bar, ``labels`` (a class for each row) a legend of the 20 most
    frequent ones; both in the form of ``coordinates``, and read once more. Above 250 000 rows a pixel shows how many
    points it holds by its strength, and their mean colour. With one coordinate the other axis is the row. A ``note``
    stands below in small letters.
    """
    require_picture(path)
    if color is not None and labels is not None:
        raise InputError("scatter: color and labels were both given; at most one of them")
    columns = 1

    def pairs() -> Any:
        nonlocal columns
        for first, block in numbered(coordinates):
            columns = block.shape[1]
            yield pair_of(block, first, axes)

    limits = limits_of(pairs, [0, 1])
    if limits.count == 0:
        raise InputError("scatter: there are no rows to draw")
    if limits.missing:
        raise InputError("scatter: the coordinates hold NaN or infinite values")
    paint = paint_of(color, "numbers") if labels is None else paint_of(labels, "classes", most=inf).frequent()
    values = color if labels is None else labels
    grid = count_points(pairs, [0, 1], limits, [View(0, 1, PIXELS)], values, paint)[0]
    figure, axis = new_figure(7.6, 6.2)
    names = names or (f"coordinate {axes[0] + 1}", f"coordinate {axes[1] + 1}")
    axis.set(xlabel=names[0], ylabel=names[1] if columns > 1 else "row", title=title)
    (left, low), (right, high) = limits.padded()
    picture = pixels_of(grid, paint, LIGHT)
    axis.imshow(picture, origin="lower", extent=(left, right, low, high), aspect="auto", interpolation="antialiased")
    axis.set_box_aspect(1)
    explain(figure, axis, paint, limits.count)
    outside = f", {grid.outside} outside the frame" if grid.outside else ""
    axis.text(
        1.0, 1.01, f"{limits.count:,} points{outside}", transform=axis.transAxes,
        ha="right", va="bottom", fontsize=8, color=PALE,
    )  # fmt: skip
    if note:
        lines = textwrap.fill(note, NOTE)
        axis.text(0.0, -0.12, lines, transform=axis.transAxes, ha="left", va="top", fontsize=8, color=PALE)
    save(figure, path)


def explain(figure: Any, axis: Any, paint: Paint, count: int) -> None:
    """What the colours say: a bar of numbers, or a legend of classes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.lines import Line2D

    if paint.kind == "numbers":
        colors = ListedColormap(along(RAMP, np.linspace(*LIGHT.ramp, 256)))
        high = paint.high if paint.high > paint.low else paint.low + 1.0
        colorbar(figure, ScalarMappable(Normalize(paint.low, high), colors), axis)
    elif paint.kind == "classes":
        others = count > sum(paint.counts)
        shown = [*((name, color) for color, name, _ in paint.legend()), *([("other", PALE)] if others else [])]
        handles = [
            Line2D([], [], marker="o", linestyle="", markersize=6, markeredgewidth=0, color=color, label=name)
            for name, color in shown
        ]
        axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def named(path: str | os.PathLike[str], x: Array, y: Array, names: Sequence[str], title: str = "") -> None:
    """Points (n,) with their names beside them, both axes to one scale, as a PNG."""
    if not len(x) == len(y) == len(names):
        raise InputError(f"named: {len(x)} and {len(y)} coordinates for {len(names)} names")
    figure, axis = new_figure(8.4, 5.4)
    axis.set(title=title, xlabel="coordinate 1", ylabel="coordinate 2", aspect="equal")
    low, high = padded(float(min(x)), float(max(x)))
    axis.set(xlim=(low, high + 0.12 * (high - low)), ylim=padded(float(min(y)), float(max(y))))
    axis.scatter(x, y, s=20, color=ACCENT, linewidths=0)
    for across, up, name in zip(x, y, names, strict=True):
        axis.annotate(name, (across, up), xytext=(5, 3), textcoords="offset points", fontsize=8.5, color=INK)
    save(figure, path)
