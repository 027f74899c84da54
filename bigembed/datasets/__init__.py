"""Data sets: the synthetic ones of the source documents, block by block, and loaders for real ones.

The registry of them is here, images as rows, and what reads a set as a format.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets.closed_forms import complete_graph, disks, ring_graph, ring_graphs, us_cities
from bigembed.datasets.synthetic import (
    Dataset,
    Truth,
    circle,
    clusters,
    hypersphere,
    interval,
    mixture,
    plane,
    s_curve,
    spiral,
    swiss_roll,
    swiss_roll_mesh,
    torus,
)
from bigembed.errors import InputError, InputTypeError, MissingPathError, meant
from bigembed.rows.formats.binary import read_idx
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import declared

# ------------------------------------------------------------------------------------------------------------ images
# Images as rows: scikit-learn's digits, MNIST and COIL-20 from a folder of the user.

MNIST_FILES = {"train": "train", "test": "t10k"}
COIL_OBJECTS = 20
COIL_VIEWS = 72


def digits_block(start: int, stop: int, rng: Any, n: int, classes: int) -> tuple[Array, Truth]:
    """Rows of scikit-learn's digits: 64 pixels from 0 to 16."""
    rows, labels = _digits(classes)
    return rows[start:stop], {"label": labels[start:stop]}


@declared
def digits(n: int | None = None, classes: int = 10, dtype: str = "float32") -> Dataset:
    """Read the 1797 × 64 handwritten digits that come with scikit-learn (the first n). Truth: label.

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
    """Read MNIST from a ``folder`` with its idx files, compressed or not. Truth: label.

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
    """Read COIL-20 (processed) from the ``folder`` with its PNG files, or the one above it. Truth: label, angle."""
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
    """Draw Pacman turned about his center by 2πi/n, in ``size`` × ``size`` black or white pixels (seed 000, §9.4.2).

    Truth: angle.
    """
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
    """Turn a ``picture`` of yours about its center by 2πi/n (seed 000, §9.4.3).

    The picture is a path, of any format that Pillow reads; it is made grey and fitted into ``size`` × ``size`` pixels.
    Truth: angle.
    """
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


# ---------------------------------------------------------------------------------------------------------- registry

REGISTRY: dict[str, Callable[..., Dataset]] = {
    function.__name__: function
    for function in (
        circle,
        clusters,
        coil20,
        digits,
        disks,
        hypersphere,
        interval,
        mixture,
        mnist,
        pacman,
        plane,
        rotated,
        s_curve,
        spiral,
        swiss_roll,
        swiss_roll_mesh,
        torus,
        us_cities,
    )
}
"""Every data set by name."""

GRAPHS = {function.__name__: function for function in (complete_graph, ring_graph, ring_graphs)}
"""Graphs by name: weights, not rows, so they are not among the data sets of a job."""

__all__ = ["GRAPHS", "REGISTRY", "Dataset", "dataset", "parameters", *sorted(REGISTRY), *sorted(GRAPHS)]


def dataset(name: str, **given: Any) -> Dataset:
    """Make the data set of that name, with the parameters of its function.

    Parameters
    ----------
    name : str
        The name of the function, one of ``REGISTRY``.
    n : int ≥ 1
        The number of rows.
    seed : int ≥ 0
        The seed of the random rows.
    noise : float ≥ 0
        The standard deviation of Gaussian noise on every column, in units of the data.
    dtype : str
        The name of a floating-point type.
    **given : dict
        The parameters above, as far as the function takes them, and its own.

    Returns
    -------
    Dataset
        The data set, whose rows are made when they are asked for.

    Raises
    ------
    InputError
        If a name or a parameter is unknown (the nearest known one is named), or a value is out of range.

    Examples
    --------
    >>> dataset("swiss_roll", n=10_000_000, noise=0.05).rows(5_000_000, 5_000_002).shape
    (2, 3)
    """
    known = parameters(name)
    unknown = [key for key in given if key not in known]
    if unknown:
        hints = [f"{key!r}{meant(key, known)}" for key in unknown]
        raise InputError(f"data set {name!r}: unknown parameter {', '.join(hints)}; it has {', '.join(known)}")
    missing = [key for key, value in known.items() if value.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise InputError(f"data set {name!r}: parameter {', '.join(missing)} must be given")
    try:
        return REGISTRY[name](**given)
    except TypeError as error:
        raise InputTypeError(f"data set {name!r}: a parameter of the wrong type: {given} ({error})") from error


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The parameters of a data set, with their defaults."""
    if name not in REGISTRY:
        names = sorted(REGISTRY)
        raise InputError(f"no data set {name!r}{meant(name, names)}; there are {', '.join(names)}")
    return dict(inspect.signature(REGISTRY[name]).parameters)


# -------------------------------------------------------------------------------------------------- dataset reader
# A data set that is generated, read as a format: its rows, and the vectors that are known of them.

LOADING = {"digits": 160 << 20, "mnist": 256 << 20, "coil20": 48 << 20}
"""Bytes that a process holds to read these data sets: scikit-learn, all the images, Pillow."""


@dataclass(frozen=True)
class DatasetReader:
    """A data set, read as a format; what is known of its rows are its vectors, each read in the same way."""

    dataset: Dataset
    known: str | None = None
    """The name of the vector that it reads; None of the rows."""
    grain: int = 1
    row_ids: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dataset.shape if self.known is None else self.dataset.shape[:1]

    @property
    def dtype(self) -> np.dtype[Any]:
        made = self.dataset
        return np.dtype(made.dtype) if self.known is None else made.truth(0, 1)[self.known].dtype

    @property
    def names(self) -> Mapping[str, str]:
        return {name: str(values.dtype) for name, values in self.dataset.truth(0, 1).items() if values.ndim == 1}

    def vector(self, name: str) -> DatasetReader:
        """Return the reader of a vector that the generator knows of its rows, by its name."""
        return replace(self, known=name)

    @property
    def about(self) -> dict[str, Any]:
        """Describe the generated rows, so that they are recognized where they lie already."""
        made = self.dataset
        about = {"dataset": made.name, "shape": made.shape, "dtype": made.dtype, "seed": made.seed}
        return about | {"parameters": dict(made.parameters)}

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        made = self.dataset
        yield made.rows(start, stop) if self.known is None else made.truth(start, stop)[self.known]
