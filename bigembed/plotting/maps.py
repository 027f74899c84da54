"""The map of any number of points: drawn one by one, or counted on a grid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import ACCENT, CLASSES, COLORMAP, DENSITY, PALE, colorbar, new_figure, save
from bigembed.plotting.stream import (
    Extent,
    Rows,
    blocks_of,
    class_numbers,
    classes_of,
    numbered,
    pair_of,
    rasterize,
    survey,
)

MANY = 20_000


def scatter(
    path: str | os.PathLike[str],
    coordinates: Rows,
    color: Rows = None,
    labels: Rows = None,
    title: str = "",
    axes: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> None:
    """A map of the points as a PNG: two of the coordinates, one pass for the limits and one to draw.

    ``color`` (a number for each row) gives a colour bar, ``labels`` (a class for each row) a legend;
    both in the form of ``coordinates``. Above 20 000 rows a pixel shows how many points it
    holds by its strength, and their mean colour. With one coordinate the other axis is the row.
    """
    if color is not None and labels is not None:
        raise InputError("scatter: color and labels were both given; at most one of them")
    extent = survey(coordinates, axes)
    figure, axis = new_figure(7.6, 6.2)
    names = names or (f"coordinate {axes[0] + 1}", f"coordinate {axes[1] + 1}")
    axis.set(xlabel=names[0], ylabel=names[1] if extent.columns > 1 else "row", title=title)
    axis.set(xlim=extent.x, ylim=extent.y)
    classes = classes_of(labels) if labels is not None else None
    values = labels if labels is not None else color
    if extent.count <= MANY:
        _draw_points(figure, axis, coordinates, values, classes, extent, axes)
    else:
        _draw_raster(figure, axis, coordinates, values, classes, extent, axes)
    outside = f", {extent.outside} outside the frame" if extent.outside else ""
    axis.text(
        1.0, 1.01, f"{extent.count:,} points{outside}", transform=axis.transAxes,
        ha="right", va="bottom", fontsize=8, color=PALE,
    )  # fmt: skip
    save(figure, path)


def _draw_points(
    figure: Any, axis: Any, coordinates: Rows, values: Rows, classes: Array | None, extent: Extent,
    axes: tuple[int, int],
) -> None:  # fmt: skip
    points = np.concatenate([pair_of(block, first, axes) for first, block in numbered(coordinates)])
    size = float(np.clip(30_000.0 / extent.count, 3.0, 26.0))
    style = {"s": size, "linewidths": 0, "alpha": 0.8 if extent.count < 5_000 else 0.6}
    if values is None:
        axis.scatter(*points.T, color=ACCENT, **style)
        return
    given = np.concatenate([np.asarray(block).ravel() for block in blocks_of(values)])
    _same_length(extent.count, len(given))
    if classes is None:
        drawn = axis.scatter(*points.T, c=given, cmap=COLORMAP, **style)
        colorbar(figure, drawn, axis)
        return
    which = class_numbers(given, classes)
    palette = np.array([*CLASSES[: len(classes)], PALE])
    axis.scatter(*points.T, c=palette[which], **style)
    _class_legend(axis, classes, bool((which == len(classes)).any()))


def _draw_raster(
    figure: Any, axis: Any, coordinates: Rows, values: Rows, classes: Array | None, extent: Extent,
    axes: tuple[int, int],
) -> None:  # fmt: skip
    """Count, mean value or mixed classes of every pixel; strength grows with the log of the count."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize, to_rgb

    layers = 1 if values is None else 2 if classes is None else len(classes) + 1
    grid, low, high = rasterize(coordinates, values, classes, extent, axes, layers)
    count = grid[0] if classes is None else grid.sum(axis=0)
    densest = max(float(np.quantile(count[count > 0], 0.995)), 1.0)
    strength = np.clip(np.log1p(count) / np.log1p(densest), 0.0, 1.0)
    if values is None:
        rgb = colormaps[DENSITY](0.3 + 0.7 * strength)[..., :3]
    elif classes is None:
        scale = Normalize(low, high if high > low else low + 1.0)
        rgb = colormaps[COLORMAP](scale(grid[1] / np.maximum(count, 1)))[..., :3]
        colorbar(figure, ScalarMappable(scale, COLORMAP), axis)
    else:
        palette = np.array([to_rgb(name) for name in (*CLASSES[: len(classes)], PALE)])
        rgb = np.tensordot(grid, palette, (0, 0)) / np.maximum(count, 1)[..., None]
        _class_legend(axis, classes, bool(grid[-1].any()))
    alpha = np.where(count > 0, 0.15 + 0.85 * strength, 0.0)
    axis.imshow(
        np.dstack([rgb, alpha]), origin="lower", extent=(*extent.x, *extent.y), aspect="auto",
        interpolation="antialiased",
    )  # fmt: skip


def _class_legend(axis: Any, classes: Array, others: bool) -> None:
    from matplotlib.lines import Line2D

    shown = [*zip(map(str, classes.tolist()), CLASSES, strict=False), *([("other", PALE)] if others else [])]
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=6, markeredgewidth=0, color=color, label=name)
        for name, color in shown
    ]
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def _same_length(rows: int, values: int) -> None:
    if rows != values:
        raise InputError(f"scatter: {values} colors or labels for {rows} rows")
