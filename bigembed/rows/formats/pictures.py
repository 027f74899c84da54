"""Pictures as rows: a folder of PNG, JPEG, TIFF or BMP files of one size, each a row; or the pixels of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import DamagedError, InputError
from bigembed.rows.reader import TEXT, read_ranges
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, stored

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
FILE = "file"
"""The vector of their names."""


def picture_files(path: AnyPath) -> list[AnyPath]:
    """The pictures in a folder in the order of their names, or the one that a path names."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in SUFFIXES else []
    return [path / file.name for file in stored(path) if file.name.lower().endswith(SUFFIXES)]


@dataclass(frozen=True)
class PictureReader:
    """Pictures (n, height, width) or (n, height, width, channels), opened one by one."""

    files: tuple[AnyPath, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    mode: str
    """As Pillow calls it: numbers of pixels, and what they mean."""
    grain: int = 1
    names: ClassVar[Mapping[str, str]] = MappingProxyType({FILE: "text"})
    row_ids: ClassVar[str] = FILE

    def vector(self, name: str) -> FileNames:
        """The names of the files."""
        if name != FILE:
            raise InputError(f"{self.files[0].parent}: no vector {name!r}; there is {FILE}, the name of each picture")
        return FileNames(tuple(file.name for file in self.files))

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        """Pictures start to stop, in pieces."""
        for low, high in read_ranges(start, stop, 1, int(np.prod(self.shape[1:])) * self.dtype.itemsize):
            yield np.stack([self._one(file) for file in self.files[low:high]])

    def _one(self, file: AnyPath) -> Array:
        pixels, mode = read_picture(file)
        if (pixels.shape, mode) != (self.shape[1:], self.mode):
            raise InputError(
                f"{file}: {_about(pixels.shape, mode)}; the first, {self.files[0].name}, is "
                f"{_about(self.shape[1:], self.mode)}. Pictures that are rows have one size and one mode"
            )
        return pixels


@dataclass(frozen=True)
class FileNames:
    """The name of each picture."""

    held: tuple[str, ...]
    dtype: ClassVar[np.dtype[Any]] = TEXT
    grain: ClassVar[int] = 1

    @property
    def shape(self) -> tuple[int]:
        return (len(self.held),)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        yield np.array(self.held[start:stop], TEXT)


def open_pictures(files: Sequence[AnyPath]) -> PictureReader:
    """The pictures of a folder; the first says of what size all are."""
    pixels, mode = read_picture(files[0])
    return PictureReader(tuple(files), (len(files), *pixels.shape), pixels.dtype, mode)


def read_picture(file: AnyPath) -> tuple[Array, str]:
    """The pixels of a picture and their mode; of one with a palette its colours. DamagedError, InputError."""
    from PIL import Image

    try:
        with file.open("rb") as content, Image.open(content) as picture:
            if (pages := getattr(picture, "n_frames", 1)) > 1:
                raise InputError(f"{file}: holds {pages} pictures; write each into a file of its own")
            if picture.mode == "P":  # (whose pixels are numbers of colours)
                colours = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
                return np.asarray(colours), colours.mode
            return np.asarray(picture), picture.mode
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DamagedError(f"{file}: not readable as a picture ({error})") from error


def _about(shape: tuple[int, ...], mode: str) -> str:
    return f"{shape[1]} × {shape[0]} pixels of mode {mode}"
