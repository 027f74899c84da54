"""What a job that was stopped left on the disk: its stages go on from there, or begin by deleting it."""

from __future__ import annotations

import os
from contextlib import suppress

from bigembed.runs import Run
from bigembed.stages import exchange_home, exchanging
from bigembed.store.objects import ObjectPath
from bigembed.store.paths import AnyPath, PathLike


def remains(run: Run, scratch: PathLike | None) -> tuple[int, int]:
    """Bytes of stages that were begun and not published, and of their exchanges; none are counted in object stores.

    ``scratch``: the folder of exchanges, if they do not lie in the run.
    """
    with exchanging(scratch):
        home = exchange_home(run)
    published, stages = run.published(), run.root / "stages"
    begun = [place for place in stages.iterdir() if place.name not in published] if stages.is_dir() else []
    return sum(map(space, begun)), space(home)


def space(folder: AnyPath) -> int:
    """Bytes on the disk below a folder."""
    total = 0
    if not isinstance(folder, ObjectPath):
        for place, _, files in os.walk(folder):
            for name in files:
                with suppress(FileNotFoundError):  # (another process may clear it away)
                    total += 512 * os.lstat(os.path.join(place, name)).st_blocks
    return total
