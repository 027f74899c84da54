"""One picture turned by n angles: a closed curve in the space of its pixels (seed 000, §9.4.2 and §9.4.3)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.declared import declared
from bigembed.blocks.rows import Array
from bigembed.datasets.dataset import Dataset, Truth
from bigembed.errors import InputError, MissingPathError

RADIUS = 0.46
"""Of Pacman, in sides of the picture: all of him stays inside at every angle."""
MOUTH = np.pi / 3
"""Angle between his jaws."""


def pacman_block(start: int, stop: int, rng: Any, n: int, size: int) -> tuple[Array, Truth]:
    """Pixels of Pacman turned by 2πi/n, 255 where he is and 0 elsewhere: row by row from the top."""
    turn = 2.0 * np.pi * np.arange(start, stop) / n
    side = (np.arange(size) - (size - 1) / 2.0) / size
    x, y = np.meshgrid(side, -side)
    direction = np.arctan2(y, x).ravel()
    from_mouth = np.abs(np.angle(np.exp(1j * (direction[None] - turn[:, None]))))
    distance = np.hypot(x, y).ravel()
    inside = (distance > 0) & (distance <= RADIUS) & (from_mouth > MOUTH / 2.0)
    return np.where(inside, 255.0, 0.0), {"angle": turn}


@declared
def pacman(n: int = 200, size: int = 65, dtype: str = "float32") -> Dataset:
    """Pacman turned about his center by 2πi/n, ``size`` × ``size`` black or white pixels (seed 000, §9.4.2).
    Truth: angle."""
    _check_size("pacman", size)
    return Dataset("pacman", (n, size * size), pacman_block, 0, dtype, {"size": size}, granule=None)


def rotated_block(start: int, stop: int, rng: Any, n: int, picture: str, size: int) -> tuple[Array, Truth]:
    """Pixels of the picture turned by 2πi/n, by bilinear interpolation; what lies outside it is white."""
    from scipy.ndimage import map_coordinates

    original = _picture(picture, size)
    turn = 2.0 * np.pi * np.arange(start, stop) / n
    middle = (size - 1) / 2.0
    y, x = np.mgrid[:size, :size] - middle
    rows = np.empty((len(turn), size * size))
    for row, angle in zip(rows, turn, strict=True):
        c, s = np.cos(angle), np.sin(angle)
        places = np.stack([middle + c * y + s * x, middle - s * y + c * x])
        map_coordinates(original, places.reshape(2, -1), row, order=1, cval=255.0)
    return rows, {"angle": turn}


@declared
def rotated(picture: str | Path, n: int = 200, size: int = 500, dtype: str = "float32") -> Dataset:
    """A ``picture`` of yours (a path; any format that Pillow reads), in grey, fitted into ``size`` × ``size`` pixels
    and turned about its center by 2πi/n (seed 000, §9.4.3). Truth: angle."""
    _check_size("rotated", size)
    path = Path(picture).resolve()
    if not path.is_file():
        raise MissingPathError(f"data set 'rotated': {path}: no such picture; bigembed brings none with it")
    _picture(str(path), size)
    parameters = {"picture": str(path), "size": size}
    return Dataset("rotated", (n, size * size), rotated_block, 0, dtype, parameters, granule=None)


@lru_cache(maxsize=1)
def _picture(path: str, size: int) -> Array:
    """The picture in grey, as large as fits, in the middle of a white square."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            image.thumbnail((size, size))
            grey = np.asarray(image.convert("L"), dtype=np.float64)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"data set 'rotated': {path}: not a picture that can be read ({error})") from error
    square = np.full((size, size), 255.0)
    top, left = (size - grey.shape[0]) // 2, (size - grey.shape[1]) // 2
    square[top : top + grey.shape[0], left : left + grey.shape[1]] = grey
    return square


def _check_size(name: str, size: int) -> None:
    if not (isinstance(size, int) and size >= 8):
        raise InputError(f"data set {name!r}: size = {size!r}; it must be an integer of at least 8 (pixels)")
