"""The performance report of ``distributed``: what every worker did when."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigembed.errors import BigembedWarning
from bigembed.jobs.places.place import Place


@contextmanager
def performance(place: Place, path: Path | None) -> Iterator[None]:
    """Record what the workers do, and write the page at the end, also of what fails."""
    if path is None:
        yield
        return
    if place.client is None:
        warnings.warn(
            f"{path}: not written; a job this small runs in this process (give workers to have a cluster)",
            BigembedWarning,
            stacklevel=2,
        )
        yield
        return
    from distributed import performance_report

    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".partial-{path.name}")
    report = performance_report(filename=str(partial))
    report.__enter__()
    try:
        yield
    finally:
        if place.client.status == "running":  # (a scheduler that is gone would be waited for)
            report.__exit__(None, None, None)
            os.replace(partial, path)
