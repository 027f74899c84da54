"""The map of any number of points as a PNG with axes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from math import inf, isqrt
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.plotting import canvas, palette
from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------------ maps

PIXELS = 840
"""Of a side."""
NOTE = 95
"""Letters of a line of the note."""


def scatter(
    path: str | os.PathLike[str],
    coordinates: palette.Rows,
    color: palette.Rows = None,
    labels: palette.Rows = None,
    title: str = "",
    axes: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    note: str = "",
) -> None:
    """Draw a map of the points as a PNG: two of the coordinates, one pass for the limits and one to draw.

    Above 250 000 rows a pixel shows how many points it holds by its strength, and their mean colour. With one
    coordinate the other axis is the row.

    Parameters
    ----------
    path : path
        The path of the PNG.
    coordinates : array of shape (n, m)
        The coordinates, drawn by ``axes``: a NumPy, Dask or zarr array, a sequence of blocks, or a function that
        returns an iterator over blocks.
    color : array of shape (n,), or None
        A number for each row, which gives a colour bar; in the form of ``coordinates``, and read once more.
    labels : array of shape (n,), or None
        A class for each row, which gives a legend of the 20 most frequent ones; in the form of ``coordinates``, and
        read once more.
    title : str
        The title of the picture.
    axes : pair of int
        The two coordinates that are drawn, from 0.
    names : sequence of str, or None
        The names of the axes.
    note : str
        What stands below in small letters.
    """
    canvas.require_picture(path)
    figure, axis = canvas.new_figure(7.6, 6.2)
    draw_points(axis, coordinates, color, labels, axes, names, title)
    if note:
        lines = textwrap.fill(note, NOTE)
        axis.text(0.0, -0.12, lines, transform=axis.transAxes, ha="left", va="top", fontsize=8, color=palette.PALE)
    canvas.save(figure, path)


def plot_points(
    coordinates: palette.Rows,
    color: palette.Rows = None,
    labels: palette.Rows = None,
    axes: tuple[int, int] = (0, 1),
    *,
    ax: Any = None,
    title: str = "",
) -> Any:
    """Draw the map of :func:`scatter` into Matplotlib's axes, by default those of a new figure; they are returned."""
    axis = canvas.new_axes() if ax is None else ax
    draw_points(axis, coordinates, color, labels, axes, None, title)
    return axis


def draw_points(
    axis: Any,
    coordinates: palette.Rows,
    color: palette.Rows,
    labels: palette.Rows,
    axes: tuple[int, int],
    names: Sequence[str] | None,
    title: str,
) -> None:
    """Draw points, what their colours say, and how many there are."""
    if color is not None and labels is not None:
        raise InputError("scatter: color and labels were both given; at most one of them")
    columns = 1

    def pairs() -> Any:
        nonlocal columns
        for first, block in palette.numbered(coordinates):
            columns = block.shape[1]
            yield palette.pair_of(block, first, axes)

    limits = palette.limits_of(pairs, [0, 1])
    if limits.count == 0:
        raise InputError("scatter: there are no rows to draw")
    if limits.missing:
        raise InputError("scatter: the coordinates hold NaN or infinite values")
    values, paint = color, palette.paint_of(color, "numbers")
    if labels is not None:
        values, paint = labels, palette.paint_of(labels, "classes", most=inf).frequent()
    grid = canvas.count_points(pairs, [0, 1], limits, [canvas.View(0, 1, PIXELS)], values, paint)[0]
    names = names or (f"coordinate {axes[0] + 1}", f"coordinate {axes[1] + 1}")
    axis.set(xlabel=names[0], ylabel=names[1] if columns > 1 else "row", title=title)
    (left, low), (right, high) = limits.padded()
    picture = canvas.pixels_of(grid, paint, palette.LIGHT)
    axis.imshow(picture, origin="lower", extent=(left, right, low, high), aspect="auto", interpolation="antialiased")
    axis.set_box_aspect(1)
    explain(axis.figure, axis, paint, limits.count)
    outside = f", {grid.outside} outside the frame" if grid.outside else ""
    axis.text(
        1.0, 1.01, f"{limits.count:,} points{outside}", transform=axis.transAxes,
        ha="right", va="bottom", fontsize=8, color=palette.PALE,
    )  # fmt: skip


def explain(figure: Any, axis: Any, paint: palette.Paint, count: int) -> None:
    """What the colours say: a bar of numbers, or a legend of classes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.lines import Line2D

    if paint.kind == "numbers":
        colors = ListedColormap(palette.interpolate_colors(palette.RAMP, np.linspace(*palette.LIGHT.ramp, 256)))
        high = paint.high if paint.high > paint.low else paint.low + 1.0
        canvas.colorbar(figure, ScalarMappable(Normalize(paint.low, high), colors), axis)
    elif paint.kind == "classes":
        others = count > sum(paint.counts)
        shown = [*((name, color) for color, name, _ in paint.legend()), *([("other", palette.PALE)] if others else [])]
        handles = [
            Line2D([], [], marker="o", linestyle="", markersize=6, markeredgewidth=0, color=color, label=name)
            for name, color in shown
        ]
        axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def named(path: str | os.PathLike[str], x: Array, y: Array, names: Sequence[str], title: str = "") -> None:
    """Draw points with their names beside them, both axes to one scale, as a PNG.

    Parameters
    ----------
    path : path
        The path of the PNG.
    x, y : array of shape (n,)
        The coordinates of the points.
    names : sequence of str
        The names of the points.
    title : str
        The title of the picture.
    """
    if not len(x) == len(y) == len(names):
        raise InputError(f"named: {len(x)} and {len(y)} coordinates for {len(names)} names")
    figure, axis = canvas.new_figure(8.4, 5.4)
    axis.set(title=title, xlabel="coordinate 1", ylabel="coordinate 2", aspect="equal")
    low, high = palette.padded(float(min(x)), float(max(x)))
    axis.set(xlim=(low, high + 0.12 * (high - low)), ylim=palette.padded(float(min(y)), float(max(y))))
    axis.scatter(x, y, s=20, color=palette.ACCENT, linewidths=0)
    for across, up, name in zip(x, y, names, strict=True):
        axis.annotate(name, (across, up), xytext=(5, 3), textcoords="offset points", fontsize=8.5, color=palette.INK)
    canvas.save(figure, path)


# ------------------------------------------------------------------------------------------------------ thumbnails
# A map of images with some of them drawn where they lie, as many as fit without hiding each other.

THUMBNAIL_PIXELS = 1260
"""Of a side of the map."""
FADED = 0.55
"""Share of white in the points behind the images."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio, times 2⁶⁴: its multiples modulo 2⁶⁴ are the turns of the rows."""
BACK = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
"""The inverse: from a turn to its row."""
NOBODY = np.uint64((1 << 64) - 1)
TOGETHER = 4096
"""Pixels that are looked at at a time."""


def thumbnails(
    path: str | os.PathLike[str],
    coordinates: palette.Rows,
    images: palette.Rows,
    shape: tuple[int, int] | None = None,
    labels: palette.Rows = None,
    title: str = "",
    axes: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    side: int = 45,
    invert: bool = False,
) -> None:
    """Draw a map as a PNG with thumbnails of the images at their coordinates, thinned so that none hides another.

    Which are drawn does not depend on how the rows are sorted, nor on their blocks. Three passes over the coordinates
    and one over the images, up to the last that is drawn; the memory is that of a block, the grid and the images drawn.

    Parameters
    ----------
    path : path
        The path of the PNG.
    coordinates : array of shape (n, m)
        The coordinates, drawn by ``axes``: a NumPy, Dask or zarr array, a sequence of blocks, or a function that
        returns an iterator over blocks.
    images : array of shape (n, h·w)
        Grey values, in the same form as the coordinates.
    shape : pair of int, or None
        The height h and the width w of an image; by default it is square.
    labels : array of shape (n,), or None
        A class for each row: points and frames of the images have its colour.
    title : str
        The title of the picture.
    axes : pair of int
        The two coordinates that are drawn, from 0.
    names : sequence of str, or None
        The names of the axes.
    side : int
        The pixels of the longer side of a thumbnail, on a map of 1260 pixels.
    invert : bool
        Whether large values are dark.

    Raises
    ------
    InputError
        If the shape is not that of the images, coordinates are NaN or infinite, or lengths differ.
    """
    canvas.require_picture(path)
    if not (isinstance(side, int) and 8 <= side <= THUMBNAIL_PIXELS // 4):
        raise InputError(f"thumbnails: side={side!r}; an integer from 8 to {THUMBNAIL_PIXELS // 4} (pixels) is needed")

    def pairs() -> Any:
        for first, block in palette.numbered(coordinates):
            yield palette.pair_of(block, first, axes)

    limits = palette.limits_of(pairs, [0, 1])
    if limits.count == 0 or limits.missing:
        raise InputError(f"thumbnails: {limits.count} rows, {limits.missing} of them NaN or infinite; drop those")
    paint = palette.Paint() if labels is None else palette.paint_of(labels, "classes", most=inf).frequent()
    grid = canvas.count_points(pairs, [0, 1], limits, [canvas.View(0, 1, THUMBNAIL_PIXELS)], labels, paint)[0]
    picture = np.round(
        255 - (255 - canvas.pixels_of(grid, paint, palette.LIGHT).astype(np.float64)) * (1 - FADED)
    ).astype(np.uint8)
    chosen, places = rows_apart(pairs, limits, THUMBNAIL_PIXELS, side)
    drawn = _images(images, chosen, limits.count)
    frames = _frames(labels, chosen, paint)
    for values, (x, y), frame in zip(_scaled(drawn, invert), places, frames, strict=True):
        _paste(picture, values.reshape(_shape(shape, drawn.shape[1])), int(x), int(y), side, frame)
    figure, axis = canvas.new_figure(9.4, 8.6)
    across, up = names or (f"coordinate {axes[0] + 1}", f"coordinate {axes[1] + 1}")
    (left, low), (right, high) = limits.padded()
    axis.set(xlabel=across, ylabel=up, title=title)
    axis.imshow(picture, origin="lower", extent=(left, right, low, high), aspect="auto", interpolation="antialiased")
    axis.set_box_aspect(1)
    explain(figure, axis, paint, limits.count)
    axis.text(
        1.0, 1.01, f"{len(chosen):,} of {limits.count:,} images", transform=axis.transAxes,
        ha="right", va="bottom", fontsize=8, color=palette.PALE,
    )  # fmt: skip
    canvas.save(figure, path)


def rows_apart(rows: palette.Rows, limits: palette.Limits, size: int, side: int) -> tuple[Array, Array]:
    """Numbers (c,) ascending of rows whose squares of ``side`` pixels do not touch on a map of ``size``, and their
    centers (c, 2).

    Greedy, in the order of i φ mod 1 for row i, φ the golden ratio, which goes evenly through the rows, sorted by class
    or not; one pass. The same rows for any blocks.

    >>> points = np.array([[0.0, 0.0], [0.5, 0.5], [0.51, 0.5], [1.0, 1.0]])
    >>> rows_apart(points, palette.limits_of(points, [0, 1]), 400, 10)[0].tolist()
    [0, 2, 3]
    """
    turns = _first_turns(rows, limits, size, side // 2 + 1)
    centers = np.flatnonzero(turns != NOBODY)
    centers = centers[np.argsort(turns[centers])]
    blocked, chosen = np.zeros((size, size), bool), []
    for start in range(0, len(centers), TOGETHER):
        part = centers[start : start + TOGETHER]
        for y, x in zip(*divmod(part[~blocked.ravel()[part]], size), strict=True):
            if not blocked[y, x]:
                blocked[max(y - side, 0) : y + side + 1, max(x - side, 0) : x + side + 1] = True
                chosen.append(y * size + x)
    found = np.array(chosen, np.int64)
    numbers = (turns[found] * BACK).astype(np.int64)
    order = np.argsort(numbers)
    y, x = divmod(found[order], size)
    return numbers[order], np.stack([x, y], axis=1)


def _first_turns(rows: palette.Rows, limits: palette.Limits, size: int, edge: int) -> Array:
    """Of each pixel the turn of the row in it that comes first, (size²,); those on the edge belong to nobody."""
    low, high = limits.padded()
    turns = np.full(size * size, NOBODY)
    for first, block in palette.numbered(rows):
        at = np.floor((block - low) / (high - low) * size).astype(np.int64)
        inside = ((at >= edge) & (at < size - edge)).all(axis=1)
        mine = np.arange(first, first + len(block), dtype=np.uint64)[inside] * GOLDEN
        np.minimum.at(turns, at[inside, 1] * size + at[inside, 0], mine)
    return turns


def _images(images: palette.Rows, chosen: Array, count: int) -> Array:
    """The rows of the images chosen, (c, h·w)."""
    parts, end = [], 0
    for first, block in palette.numbered(images):
        end = first + len(block)
        here = chosen[(chosen >= first) & (chosen < end)] - first
        parts.append(np.asarray(block[here], dtype=np.float64))
        if len(chosen) and end > chosen[-1]:
            break
    if len(chosen) and end <= chosen[-1]:
        raise InputError(f"thumbnails: {end} images for {count} rows of coordinates")
    return np.concatenate(parts)


def _shape(shape: tuple[int, int] | None, pixels: int) -> tuple[int, int]:
    found = shape or (isqrt(pixels), isqrt(pixels))
    if found[0] * found[1] != pixels:
        raise InputError(f"thumbnails: images of {pixels} pixels, not of {found[0]} × {found[1]}; give shape=(h, w)")
    return found


def _scaled(images: Array, invert: bool) -> Array:
    """Grey values from 0 to 255, one scale for all images."""
    if not images.size:
        return images
    low, high = float(images.min()), float(images.max())
    grey = (images - low) / ((high - low) or 1.0)
    return 255.0 * (1.0 - grey if invert else grey)


def _frames(labels: palette.Rows, chosen: Array, paint: palette.Paint) -> list[Array]:
    """The colour of the frame of each image, bytes."""
    if labels is None:
        return [_bytes(palette.PALE)] * len(chosen)
    values = palette.Aligned(labels)
    found, done = [], 0
    for row in chosen.tolist():
        found.append(values.take(row + 1 - done)[-1:])
        done = row + 1
    if not found:
        return []
    order = palette.class_numbers(palette.as_labels(np.concatenate(found)), paint.classes)
    known, colors = 0 if paint.repeats else len(paint.classes), palette.CLASSES
    return [_bytes(colors[i % len(colors)] if i < known else palette.PALE) for i in order.tolist()]


def _bytes(color: str) -> Array:
    return np.round(255 * np.asarray(palette.rgb(color))).astype(np.uint8)


def _paste(picture: Array, image: Array, x: int, y: int, side: int, frame: Array) -> None:
    """Draw a grey image with a frame around its center; the lowest row of pixels is the first."""
    from PIL import Image

    height, width = image.shape
    scale = (side - 4) / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    small = Image.fromarray(np.round(image).astype(np.uint8)).resize(size, Image.Resampling.LANCZOS)
    pixels = np.asarray(small)[::-1]
    top, left = y - size[1] // 2, x - size[0] // 2
    picture[top - 2 : top + size[1] + 2, left - 2 : left + size[0] + 2] = frame
    picture[top : top + size[1], left : left + size[0]] = pixels[..., None]
