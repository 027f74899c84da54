"""What a job that was stopped left on the disk: its stages go on from there, or begin by deleting it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from bigembed.errors import DamagedError, ExistingOutputError
from bigembed.runs import Run
from bigembed.stages import exchange_home, exchanging
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import AnyPath, PathLike


def remains(roots: Iterable[AnyPath], scratch: PathLike | None) -> tuple[int, int]:
    """Bytes of stages that were begun and not published, and of their exchanges; none are counted in object stores.

    ``roots``: where the job keeps its runs, some of which may not be there yet; ``scratch``: the folder of exchanges,
    if they do not lie in the runs.
    """
    begun = exchanged = 0
    for root in dict.fromkeys(roots):
        if not (root / "zarr.json").exists():
            continue
        try:
            run, stages = Run(root), root / "stages"
        except (DamagedError, ExistingOutputError):  # (whoever goes on from it says so, or clears it away)
            continue
        with exchanging(scratch):
            exchanged += space(exchange_home(run))
        published = run.published()
        begun += (
            sum(space(place) for place in stages.iterdir() if place.name not in published) if stages.is_dir() else 0
        )
    return begun, exchanged


def space(folder: AnyPath) -> int:
    """Bytes on the disk below a folder."""
    total = 0
    if not isinstance(folder, ObjectPath):
        for place, _, files in os.walk(folder):
            for name in files:
                with suppress(FileNotFoundError):  # (another process may clear it away)
                    total += 512 * os.lstat(os.path.join(place, name)).st_blocks
    return total
