"""Where what belongs to a growing store lies, written so that a folder with all of it can be moved, copied, restored.

What moves together with the store is written from the folder on in which the store lies; all else as it is.
"""

from __future__ import annotations

import os
from pathlib import Path

from bigembed.jobs.job import JobSpec
from bigembed.store import AnyPath, PathLike, at, is_url


def written(place: PathLike, root: AnyPath, job: JobSpec) -> str:
    """Return how a path is written down in the store at ``root``.

    It moves together with the store where it lies in the same folder, or below it, and where the job file names both
    from its own folder on.
    """
    folder, path = str(_folder(root)), str(place)
    if path.startswith(f"{folder}/"):
        return path.removeprefix(f"{folder}/")
    return os.path.relpath(path, folder) if {path, job.output.path} <= job.relative else path


def located(text: str, root: AnyPath) -> AnyPath:
    """Return the path that was written down in the store at ``root``, which may lie elsewhere now.

    >>> str(located("in/points.zarr", at("s3://bucket/maps/g.zarr")))
    's3://bucket/maps/in/points.zarr'
    """
    if is_url(text) or os.path.isabs(text):
        return at(text)
    place = f"{_folder(root)}/{text}"
    return at(place if is_url(place) else os.path.normpath(place))


def _folder(root: AnyPath) -> AnyPath:
    """Return the folder in which a store lies, by its own name: job files name places without links, too."""
    return (root.resolve() if isinstance(root, Path) else root).parent
