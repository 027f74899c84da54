"""A map of few points with their names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.plotting.canvas import ACCENT, INK, new_figure, padded, save


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
