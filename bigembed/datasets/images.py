"""Images as rows: scikit-learn's digits, MNIST and COIL-20 from a folder of the user."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets.synthetic import Dataset, Truth
from bigembed.errors import InputError, MissingPathError
from bigembed.rows.formats.binary import read_idx
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import declared

# ---------------------------------------------------------------------------------------------------------- images

MNIST_FILES = {"train": "train", "test": "t10k"}
COIL_OBJECTS = 20
COIL_VIEWS = 72


def digits_block(start: int, stop: int, rng: Any, n: int, classes: int) -> tuple[Array, Truth]:
    """Rows of scikit-learn's digits: 64 pixels from 0 to 16."""
    rows, labels = _digits(classes)
    return rows[start:stop], {"label": labels[start:stop]}


@declared
def digits(n: int | None = None, classes: int = 10, dtype: str = "float32") -> Dataset:
    """The 1797 × 64 handwritten digits that come with scikit-learn (the first n). Truth: label.

    ``classes``: the number of classes, from 0 on; 5 leaves the 901 digits 0 to 4 of seed 002.
    """
    if not (isinstance(classes, int) and 1 <= classes <= 10):
        raise InputError(f"data set 'digits': classes = {classes!r}; it must be an integer from 1 to 10")
    total = len(_digits(classes)[1])
    parameters = {"classes": classes}
    return Dataset("digits", (_first("digits", n, total), 64), digits_block, 0, dtype, parameters, granule=None)


def mnist_block(start: int, stop: int, rng: Any, n: int, folder: str, part: str) -> tuple[Array, Truth]:
    """Rows of MNIST: 784 pixels from 0 to 255; ``part="all"`` is train, then test."""
    images, labels = _mnist(folder, part)
    return images[start:stop], {"label": labels[start:stop]}


@declared
def mnist(folder: str | Path, part: str = "train", n: int | None = None, dtype: str = "float32") -> Dataset:
    """MNIST from a ``folder`` with its idx files, compressed or not. Truth: label.

    ``part``: ``"train"`` (60 000 rows), ``"test"`` (10 000) or ``"all"``. Raises
    :class:`MissingPathError` naming every file that is not there.
    """
    if part not in (*MNIST_FILES, "all"):
        raise InputError(f"data set 'mnist': part = {part!r}; it must be 'train', 'test' or 'all'")
    where = str(Path(folder).resolve())
    total = len(_mnist(where, part)[1])
    shape = (_first("mnist", n, total), 784)
    return Dataset("mnist", shape, mnist_block, 0, dtype, {"folder": where, "part": part}, granule=None)


def coil20_block(start: int, stop: int, rng: Any, n: int, folder: str) -> tuple[Array, Truth]:
    """Rows of COIL-20: 128 × 128 pixels from 0 to 255; row 72·o + v is view v (5° each) of object o."""
    from PIL import Image

    number = np.arange(start, stop)
    rows = np.empty((len(number), 128 * 128), dtype=np.uint8)
    for position, row in enumerate(number):
        path = Path(folder) / _coil_name(int(row))
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L"))
        if pixels.shape != (128, 128):
            raise InputError(f"{path}: an image of {pixels.shape}; COIL-20 (processed) has 128 × 128")
        rows[position] = pixels.ravel()
    return rows, {"label": number // COIL_VIEWS, "angle": number % COIL_VIEWS * 5}


@declared
def coil20(folder: str | Path, n: int | None = None, dtype: str = "float32") -> Dataset:
    """COIL-20 (processed) from the ``folder`` with its PNG files, or the one above it. Truth: label, angle."""
    base = Path(folder).resolve()
    nested = base / "coil-20-proc"
    base = nested if nested.is_dir() else base
    total = COIL_OBJECTS * COIL_VIEWS
    _require([base / _coil_name(row) for row in range(total)], f"COIL-20 in {str(folder)!r}")
    shape = (_first("coil20", n, total), 128 * 128)
    return Dataset("coil20", shape, coil20_block, 0, dtype, {"folder": str(base)}, granule=None)


@lru_cache(maxsize=2)
def _digits(classes: int) -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    bunch = load_digits(n_class=classes)
    return bunch.data, bunch.target


@lru_cache(maxsize=2)
def _mnist(folder: str, part: str) -> tuple[Array, Array]:
    parts = list(MNIST_FILES) if part == "all" else [part]
    stems = [f"{MNIST_FILES[name]}-{kind}" for name in parts for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    paths = [_either(Path(folder) / stem) for stem in stems]
    _require(paths, f"MNIST ({part}) in {folder!r}", "compressed (.gz) or not")
    arrays = [read_idx(path) for path in paths]
    for path, images, labels in zip(paths[::2], arrays[::2], arrays[1::2], strict=True):
        if images.shape != (len(labels), 28, 28):
            raise InputError(f"{path}: shape {images.shape} for {len(labels)} labels; MNIST has (labels, 28, 28)")
    images = np.concatenate([array.reshape(-1, 784) for array in arrays[::2]])
    return images, np.concatenate(arrays[1::2]).astype(np.int64)


def _either(path: Path) -> Path:
    """The file itself, or its compressed form if only that exists."""
    compressed = path.with_name(path.name + ".gz")
    return compressed if compressed.exists() and not path.exists() else path


def _coil_name(row: int) -> str:
    return f"obj{row // COIL_VIEWS + 1}__{row % COIL_VIEWS}.png"


def _require(paths: list[Path], what: str, form: str = "") -> None:
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        note = f" ({form})" if form else ""
        raise MissingPathError(
            f"{what}: {len(missing)} of {len(paths)} files are missing: {names}{note}; "
            "bigembed downloads nothing, so give the folder that holds them"
        )


def _first(name: str, n: int | None, total: int) -> int:
    if n is not None and not 1 <= n <= total:
        raise InputError(f"data set {name!r}: n = {n}; it has {total} rows")
    return total if n is None else n


# --------------------------------------------------------------------------------------------------------- rotated
# One picture turned by n angles: a closed curve in the space of its pixels (seed 000, §9.4.2 and §9.4.3).

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
