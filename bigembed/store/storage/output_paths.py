"""Refuse output paths whose names would mislead: inside what is read, or with the suffix of another format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigembed.errors import InputError
from bigembed.store.storage.paths import AnyPath, PathLike, at

PICTURES, PAGES = (".png",), (".html", ".htm")
"""Suffixes of the files that pictures and pages are written as."""
OTHERS = (".npy", ".npz", ".csv", ".tsv", ".parquet", ".pq", ".h5ad", ".h5", ".hdf5", ".nc", ".nc4", ".png")
"""Suffixes of files that an array of ours, which is a folder, would be taken for."""


def require_suffix(path: PathLike, suffixes: Sequence[str], what: str) -> None:
    """:class:`InputError` for a file name with another suffix than one of these; a name without one says nothing.

    >>> require_suffix("map.PNG", PICTURES, "a picture is written as PNG")
    >>> require_suffix("map.svg", PICTURES, "a picture is written as PNG")
    Traceback (most recent call last):
        ...
    bigembed.errors.InputError: map.svg: a picture is written as PNG; give a name that ends in .png
    """
    if at(path).suffix.lower() not in ("", *suffixes):
        raise InputError(f"{path}: {what}; give a name that ends in {' or '.join(suffixes)}")


def require_array_name(path: PathLike) -> None:
    """:class:`InputError` where an array of Zarr would have the name of a file of another format."""
    if at(path).suffix.lower() in OTHERS:
        raise InputError(
            f"{path}: an array of Zarr is written there, which is a folder and no {at(path).suffix} file. Give a name "
            "that ends in .zarr; bigembed export makes a table (.parquet, .csv, .npy) of coordinates"
        )


def require_apart(source: PathLike, *outputs: PathLike | None) -> None:
    """:class:`InputError` where an output lies inside the source, or the source inside an output.

    >>> require_apart("points.zarr", "run.zarr", None)
    >>> require_apart("points.zarr", "points.zarr/run")
    Traceback (most recent call last):
        ...
    bigembed.errors.InputError: points.zarr/run: lies inside points.zarr, which is read. Choose a path outside of it
    """
    read = _place(source)
    for output in outputs:
        written = None if output is None else _place(output)
        if written is not None and read in written.parents:
            raise InputError(f"{output}: lies inside {source}, which is read. Choose a path outside of it")
        if written is not None and written in read.parents:
            raise InputError(f"{source}: is read, and lies inside the output {output}. Choose another output path")


def _place(path: PathLike) -> Path:
    """Where it lies, whatever links lead there; of a URL its parts."""
    place: AnyPath = at(path)
    return place.resolve() if isinstance(place, Path) else Path(str(place))
