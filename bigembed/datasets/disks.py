"""Two disks and a corridor between them: near by shortest paths, far for a random walk."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from bigembed.blocks.declared import declared, interval
from bigembed.blocks.rows import Array
from bigembed.datasets.dataset import Dataset, Truth


def disks_block(
    start: int, stop: int, rng: np.random.Generator, n: int, gap: float = 0.6, width: float = 0.15
) -> tuple[Array, Truth]:
    """Uniform by area on two disks of radius 1 with centers at x = ±(1 + gap/2), and a strip between (seed 002)."""
    count = stop - start
    areas = np.array([np.pi, np.pi, gap * width])
    label = np.searchsorted(np.cumsum(areas / areas.sum()), rng.uniform(0.0, 1.0, count)).clip(max=2)
    radius, angle = np.sqrt(rng.uniform(0.0, 1.0, count)), rng.uniform(0.0, 2.0 * np.pi, count)
    along, across = rng.uniform(-0.5, 0.5, count) * gap, rng.uniform(-0.5, 0.5, count) * width
    center = np.where(label == 0, -1.0, 1.0) * (1.0 + gap / 2.0)
    strip = label == 2
    x = np.where(strip, along, center + radius * np.cos(angle))
    y = np.where(strip, across, radius * np.sin(angle))
    return np.stack([x, y], axis=1), {"label": label}


@declared
def disks(
    n: int = 1000,
    gap: Annotated[float, interval(0)] = 0.6,
    width: Annotated[float, interval(0, 2)] = 0.15,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Two disks of radius 1, ``gap`` apart, and a corridor of that ``width`` between them (seed 002, figure 2).

    Truth: label, 0 and 1 for the disks, 2 for the corridor.
    """
    return Dataset("disks", (n, 2), disks_block, seed, dtype, {"gap": float(gap), "width": float(width)})
