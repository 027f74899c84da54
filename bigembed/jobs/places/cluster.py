"""Where block tasks run: in this process, on an embedded local cluster, on a running one, or on one in a queue.

Each place is a :class:`Place`: an executor for :func:`bigembed.blocks.rows.map_blocks` and what the plan and
the report need to know of it. ``distributed`` is imported only where it is used: small data never load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bigembed.blocks.threads import Threads
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.embedded import embedded, machine_memory
from bigembed.jobs.places.place import Place, Progress, no_progress
from bigembed.jobs.places.remote import remote
from bigembed.jobs.places.slurm import slurm
from bigembed.stages import Observer, silent

SMALL_BYTES, SMALL_ROWS = 64 << 20, 20_000
"""Input below both of which a job that names no cluster runs in this process."""
STARTED: Mapping[str, Callable[[ClusterTable, Progress, Observer, ExitStack], Place]] = {
    "embedded": embedded,
    "remote": remote,
    "slurm": slurm,
}
"""Places of other processes, by their kind."""


def choose(table: ClusterTable, shape: tuple[int, int], nbytes: int) -> str:
    """Which kind of place a job on rows of this shape gets."""
    if table.address:
        return "remote"
    if table.manager:
        return table.manager
    small = shape[0] <= SMALL_ROWS and nbytes < SMALL_BYTES
    return "process" if small and not table.given else "embedded"


@contextmanager
def cluster(
    table: ClusterTable, kind: str, progress: Progress = no_progress, observer: Observer = silent
) -> Iterator[Place]:
    """The place of this kind, closed at the end. ``observer`` hears of workers that are frozen."""
    if kind == "process":
        yield Place(kind, Threads(1, progress), 1, machine_memory())
        return
    with ExitStack() as stack:
        yield STARTED[kind](table, progress, observer, stack)
