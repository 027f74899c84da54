"""Refuse an output path inside what is read: it would be taken for a part of it, or be deleted with it."""

from __future__ import annotations

from pathlib import Path

from bigembed.errors import InputError
from bigembed.store.storage.paths import AnyPath, PathLike, at


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
