"""What maps are drawn on: the sheet of every picture, with curves (spectra, bandwidths), and maps as pixels."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.plotting import palette
from bigembed.runtime.blocks import Array
from bigembed.store import PICTURES, PathLike, put, require_suffix

# ---------------------------------------------------------------------------------------------------------- canvas
# The sheet that every picture is drawn on: colours, axes, legend, and how it is written.


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
        axis.spines[["left", "bottom"]].set_color(palette.PALE)
        axis.tick_params(colors=palette.INK, labelsize=8.5, color=palette.PALE)
        axis.xaxis.label.set(color=palette.INK, fontsize=9.5)
        axis.yaxis.label.set(color=palette.INK, fontsize=9.5)
        axis.title.set(color=palette.INK, fontsize=11.5)
        axis.set_axisbelow(True)


def colorbar(figure: Any, drawn: Any, axis: Any) -> None:
    bar = figure.colorbar(drawn, ax=axis, shrink=0.75, aspect=32, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, color=palette.PALE)
    if bar.solids is not None:
        bar.solids.set_alpha(1.0)


def legend(axis: Any) -> None:
    axis.legend(frameon=False, fontsize=9, labelcolor=palette.INK)


def require_picture(path: PathLike) -> None:
    """InputError for the name of another format."""
    require_suffix(path, PICTURES, "a picture is written as PNG")


def save(figure: Any, path: PathLike) -> None:
    """Written in one step: a reader never sees half a picture."""
    require_picture(path)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=140, metadata={"Software": None})
    put(path, picture.getbuffer())


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
    upper.vlines(number, min(0.0, values.min()), values, color=palette.ACCENT, alpha=0.25, linewidth=2)
    upper.plot(number, values, "o", color=palette.ACCENT, markersize=5)
    upper.set(ylabel="eigenvalue λ", title=title)
    upper.set_ylim(palette.padded(float(values.min()), float(values.max())))
    for given, label, color, marker in (
        (1.0 - values, "1 − λ", palette.ACCENT, "o"),
        (gaps, "gap to the next", palette.PALE, "s"),
        (residuals, "residual ‖Av − λv‖", palette.WARM, "D"),
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
    upper.loglog(grid, sums, color=palette.ACCENT, linewidth=1.8)
    upper.set(ylabel="kernel sum S(ε)", title=title)
    lower.semilogx(grid, slope, color=palette.ACCENT, linewidth=1.8)
    peak = int(np.argmax(slope))
    lower.plot(grid[peak], slope[peak], "o", color=palette.WARM, markersize=6)
    found = 2.0 * float(slope[peak]) if dimension is None else dimension
    lower.annotate(
        f"steepest at ε = {grid[peak]:.3g}, dimension {found:.2f}",
        (grid[peak], slope[peak]),
        xytext=(0, 9),
        textcoords="offset points",
        ha="right" if peak > len(grid) // 2 else "left",
        fontsize=9,
        color=palette.WARM,
    )
    lower.set(xlabel="ε", ylabel="d log S / d log ε", ylim=(0.0, 1.25 * float(slope[peak])))
    for axis in (upper, lower):
        axis.grid(color="#e7e9ec")
        if chosen is not None:
            axis.axvline(chosen, color=palette.INK, linewidth=1.1, linestyle="--", label=f"ε = {chosen:.4g}")
    if chosen is not None:
        legend(upper)
    save(figure, path)


# ------------------------------------------------------------------------------------------------------------ raster
# Maps as pixels, light and dark: all pairs of coordinates counted in one walk over the rows.
#
# Few points are discs with smooth edges; many are counted, and a pixel shows by its strength how many it holds. The
# memory is that of a block and the grids, whatever the number of rows. (Counting is what Datashader does too, and a
# test holds the counts against its. As a dependency it would bring 130 MB of packages, 220 MB of resident memory and
# two seconds of imports and compilation, for counts that NumPy makes as fast: 8 and 12 ms for 10⁶ points.)

FEW = 250_000
"""Rows up to which points are discs."""
INKED = 0.08
"""Share of the picture that discs of few points would cover, one beside the other."""
OPACITY = 0.8
TOGETHER = 16_384
"""Discs that are drawn at a time."""
BAND = 64
"""Rows of pixels that are coloured at a time."""
SPARSE = ((0.015, 2), (0.05, 1))
"""Shares of pixels that hold points, and how far pixels are widened below each."""
DISC = 0.55
"""Where on the scale of densities the colour of a disc lies."""
COLORS = 128
"""Of a PNG: as many as the strengths and colours of a pixel need, and few bytes."""


@dataclass(frozen=True)
class View:
    """A pair of columns (positions among those that the limits were taken of), and the pixels of a side."""

    x: int
    y: int
    size: int


@dataclass
class Grid:
    """What the pixels of a view hold: the count of points (of discs, their cover), and sums for their colour."""

    view: View
    count: Array
    layers: Array
    radius: float
    """Of the discs, in pixels; 0 where points are counted."""
    outside: int = 0


def count_points(
    rows: palette.Rows, columns: Sequence[int], limits: palette.Limits, views: Sequence[View],
    values: palette.Rows = None, paint: palette.Paint | None = None,
) -> list[Grid]:  # fmt: skip
    """Walk over the rows once; a grid for each view. ``values``: a number or a label for each row.

    Rows that are not finite in all ``columns`` are left out. Raises InputError if values and rows are not equally many.
    """
    paint = paint or palette.Paint()
    low, high = limits.padded()
    drawn = limits.count - limits.missing
    grids = [
        Grid(view, np.zeros(view.size**2), np.zeros((paint.layers, view.size**2)), disc_radius(drawn, view.size))
        for view in views
    ]
    stream = None if values is None else palette.Aligned(values)
    for _, block in palette.numbered(rows):
        part = block[:, list(columns)].astype(np.float64)
        there = np.isfinite(part).all(axis=1)
        weights = [] if stream is None else paint.weights(stream.take(len(part))[there])
        place = (part[there] - low) / (high - low)
        for grid in grids:
            _add(grid, place[:, [grid.view.x, grid.view.y]], weights)
    if stream is not None:
        stream.finish()
    for grid in grids:
        grid.count = grid.count.reshape(grid.view.size, -1)
        grid.layers = grid.layers.reshape(-1, *grid.count.shape)
    return grids


def disc_radius(count: int, size: int) -> float:
    """Radius of the points in pixels; 0 for more than :data:`FEW`, which are counted.

    >>> disc_radius(100, 800), disc_radius(10**7, 800)
    (6.0, 0.0)
    """
    if count > FEW:
        return 0.0
    most = 7.0 * size / 800
    return round(min(max(math.sqrt(INKED * size**2 / (math.pi * max(count, 1))), 0.85), max(most, 1.6) - 1.0), 3)


def _add(grid: Grid, place: Array, weights: list[Array]) -> None:
    """Count points at shares of the width and height."""
    size = grid.view.size
    inside = np.all((place >= 0.0) & (place <= 1.0), axis=1)
    grid.outside += int(len(place) - inside.sum())
    at = np.minimum(place[inside] * size, np.nextafter(size, 0))
    shares = [weight[inside] for weight in weights]
    if grid.radius:
        for start in range(0, len(at), TOGETHER):
            cells, cover, which = _discs(at[start : start + TOGETHER], grid.radius, size)
            grid.count += np.bincount(cells, cover, size * size)
            for layer, share in zip(grid.layers, shares, strict=True):
                layer += np.bincount(cells, cover * share[start + which], size * size)
        return
    cells = at[:, 1].astype(np.int64) * size + at[:, 0].astype(np.int64)
    grid.count += np.bincount(cells, minlength=size * size)
    for layer, share in zip(grid.layers, shares, strict=True):
        layer += np.bincount(cells, share, size * size)


def _discs(at: Array, radius: float, size: int) -> tuple[Array, Array, Array]:
    """Pixels that discs touch, how much of each they cover, and which disc it is."""
    reach = math.ceil(radius)
    steps = np.arange(-reach, reach + 1)
    dx, dy = (offset.ravel() for offset in np.meshgrid(steps, steps))
    x, y = np.floor(at[:, :1]) + dx, np.floor(at[:, 1:]) + dy
    cover = np.clip(radius + 0.5 - np.hypot(x + 0.5 - at[:, :1], y + 0.5 - at[:, 1:]), 0.0, 1.0)
    kept = (cover > 0) & (x >= 0) & (x < size) & (y >= 0) & (y < size)
    cells = (y * size + x)[kept].astype(np.int64)
    return cells, cover[kept], np.nonzero(kept)[0]


def pixels_of(grid: Grid, paint: palette.Paint, scheme: palette.Scheme) -> Array:
    """The picture on the plate of a scheme, (size, size, 3) of bytes, the lowest row of pixels first."""
    few, size = bool(grid.radius), grid.view.size
    count, layers = (grid.count, grid.layers) if few else widen_points(grid.count, grid.layers)
    strength = log_of(count) if few or paint.kind != "density" else rank_of(count)
    pixels = np.empty((size, size, 3), np.uint8)
    for start in range(0, size, BAND):
        band = slice(start, start + BAND)
        pixels[band] = _blend(count[band], layers[:, band], strength[band], few, paint, scheme)
    return pixels


def png(grid: Grid, paint: palette.Paint, scheme: palette.Scheme) -> bytes:
    """The picture of :func:`pixels_of` as a small file, upwards as the coordinates grow."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels_of(grid, paint, scheme)[::-1]))
    image = image.quantize(COLORS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _blend(
    count: Array, layers: Array, strength: Array, few: bool, paint: palette.Paint, scheme: palette.Scheme
) -> Array:
    """Some rows of pixels: discs let others shine through, counted points are the stronger the more there are."""
    if paint.kind != "density":
        colors = paint.colors(count, layers, scheme)
    else:
        colors = palette.interpolate_colors(scheme.density, np.full(count.shape, DISC) if few else strength)
    alpha: Array
    if few:
        alpha = 1.0 - (1.0 - OPACITY) ** count
    else:
        alpha = (count > 0) * (1.0 if paint.kind == "density" else 0.35 + 0.65 * strength)
    blended = palette.rgb(scheme.plate) * (1.0 - alpha[..., None]) + colors * alpha[..., None]
    return np.round(255 * blended).astype(np.uint8)


def widen_points(count: Array, layers: Array) -> tuple[Array, Array]:
    """Pixels of a picture that is almost empty (points along a curve), widened so that they are seen.

    Counts and sums go to the neighboring pixels with the weights of a smooth disc: colours stay means.
    """
    share = np.count_nonzero(count) / count.size
    radius = next((radius for most, radius in SPARSE if share < most), 0)
    if not radius:
        return count, layers
    wide, sums = np.zeros_like(count), np.zeros_like(layers)
    for dy, dx in product(range(-radius, radius + 1), repeat=2):
        weight = min(max(radius + 0.5 - math.hypot(dx, dy), 0.0), 1.0)
        if weight:
            to, of = _shifted(dy, dx, count.shape)
            wide[to] += weight * count[of]
            sums[(slice(None), *to)] += weight * layers[(slice(None), *of)]
    return wide, sums


def _shifted(dy: int, dx: int, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where a picture goes that is moved by (dy, dx), and the part of it that stays inside."""
    to = tuple(slice(max(d, 0), length + min(d, 0)) for d, length in zip((dy, dx), shape, strict=True))
    of = tuple(slice(max(-d, 0), length + min(-d, 0)) for d, length in zip((dy, dx), shape, strict=True))
    return (to[0], to[1]), (of[0], of[1])


def rank_of(count: Array) -> Array:
    """Strength by rank among the pixels that hold points: differences show in dense and in thin parts."""
    held = count > 0
    if not held.any():
        return np.zeros(count.shape)
    levels, where, pixels = np.unique(count[held], return_inverse=True, return_counts=True)
    below = np.cumsum(pixels) - pixels
    strength = np.zeros(count.shape)
    strength[held] = (below / below[-1] if len(levels) > 1 else np.full(1, 0.5))[where]
    return strength


def log_of(count: Array) -> Array:
    """Strength by the logarithm of the count, up to the densest half percent."""
    held = count[count > 0]
    densest = max(float(np.quantile(held, 0.995)), 1.0) if len(held) else 1.0
    strength: Array = np.clip(np.log1p(count) / np.log1p(densest), 0.0, 1.0)
    return strength
