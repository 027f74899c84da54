"""What a plan says beside its figures: what would fit instead, how neighbors are searched, what is compiled at first
use, what does not fit into the time that one start has.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import bigembed
from bigembed.errors import BigembedError
from bigembed.jobs import duration, size
from bigembed.maps.umap.views import TARGET
from bigembed.neighbors import graph_stages, nn_descent, search
from bigembed.neighbors.search.probes import SHORTLIST
from bigembed.stages import Cost, Run, Stage

# ---------------------------------------------------------------------------------------------------- alternatives
# What would fit where a plan does not: another solver or search, or fewer landmarks, planned in the same way.

SOLVERS = ("landmarks", "nystrom")
"""Of a parameter ``solver``: those that take less than all pairs of rows."""
FEWEST = 16
"""Landmarks below which none are proposed."""


def alternatives(given: Any, fits: Callable[[Any], bool]) -> list[dict[str, Any]]:
    """Changes of the parameters of an estimator with which it fits, at most one of each kind.

    ``fits`` plans an estimator.
    """

    def works(changes: dict[str, Any]) -> bool:
        with suppress(BigembedError):  # the method does not know it, or says itself that it cannot
            return fits(type(given)(**given.get_params() | changes))
        return False

    solvers = SOLVERS if "solver" in inspect.signature(type(given)).parameters else ()
    # The automatic choice takes NN-descent only where there is room for its lists.
    algorithms = (search.AUTO,) if getattr(given, "algorithm", "") in (search.NN_DESCENT, search.PYNNDESCENT) else ()
    without = {"algorithm_params": None} if getattr(given, "algorithm_params", None) else {}
    count = getattr(given, "n_landmarks", None)
    fewer = [count >> halved for halved in range(1, count.bit_length())] if isinstance(count, int) else []
    choices: list[list[dict[str, Any]]] = [
        [{"solver": name} for name in solvers if name != given.solver],
        [{"algorithm": name, **without} for name in algorithms],
        [{"n_landmarks": landmarks} for landmarks in fewer if landmarks >= FEWEST],
    ]
    found = [next(filter(works, kind), None) for kind in choices]
    return [changes for changes in found if changes is not None]


# ----------------------------------------------------------------------------------------------------- search note
# What a plan says of what is known only when the rows are seen: how neighbors are searched, passes of a solve.


LABELS = "labels"
"""Of the rows of a job, and the stage that reads them."""


def search_notes(stages: Sequence[Stage], reused: Sequence[str], run: Run) -> list[str]:
    """At most one line; none where every cell is on a shortlist, so that cells are certain."""
    truth = next((stage for stage in stages if stage.name == search.TRUTH and "target" in stage.parameters), None)
    if truth is None:
        return []
    if search.TRUTH in reused and run.has(search.TRUTH):  # (not one that is superseded, and taken up again)
        return [search.describe_search(run.results(search.TRUTH))]
    asked = truth.parameters.get("algorithm", search.AUTO)
    if asked == search.WITHOUT_DESCENT:
        return [
            f"neighbors by cells: NN-descent, which algorithm={search.AUTO!r} takes if sampled rows show that "
            f"{search.WORTH} cells for each row would miss recall {truth.parameters['target']:g}, does not fit here. "
            "Where it would have been taken, the certificate and a warning say so; on a larger machine the job then "
            "finds other neighbors"
        ]
    if asked != search.AUTO:
        return [f"neighbors by {asked}: asked for"]
    rows = next((stage.parameters["shape"][0] for stage in stages if stage.name == "survey"), 0)
    if rows <= SHORTLIST * graph_stages.CELL_ROWS:
        return []
    k = truth.parameters["n_neighbors"]
    more = size(nn_descent.bytes_on_disk(rows, k, nn_descent.longest_list(rows, k), 8))
    return [
        f"neighbors by cells, or by NN-descent (then search takes twice as long, or more, and up to {more} more of the "
        f"disk) if sampled rows show that {search.WORTH} cells for each row would miss recall "
        f"{truth.parameters['target']:g}; by cells in any case if the disk lacks room for its first lists"
    ]


def may_descend(stages: Sequence[Stage]) -> bool:
    """Return whether it is left to sampled rows if neighbors are searched by NN-descent."""
    return any(
        stage.name == search.TRUTH and "target" in stage.parameters and "algorithm" not in stage.parameters
        for stage in stages
    )


def pass_notes(stages: Sequence[Stage], reused: Sequence[str]) -> list[str]:
    """Write a line for each stage whose passes depend on the rows."""
    return [
        f"{stage.name}: {stage.cost.passes:g} passes are planned, enough where variances decay; a flat spectrum takes "
        f"more, at most max_passes = {stage.cost.most_passes:g}"
        for stage in stages
        if stage.cost.most_passes > stage.cost.passes and stage.name not in reused
    ]


def label_notes(aligned: Iterable[str], stages: Sequence[Stage]) -> list[str]:
    """Write a line for labels of a job that its method could follow, and does not: no stage reads them."""
    if LABELS not in aligned or any(stage.name in (LABELS, f"{TARGET}survey") for stage in stages):
        return []
    return [
        "[input] labels: the map does not follow them, and is only coloured by them. It follows them with [method] "
        'target_metric = "categorical", or "euclidean" where they are numbers'
    ]


# ----------------------------------------------------------------------------------------------------- compilation
# What a job compiles before it can work: functions of which numba keeps nothing on this machine yet.
#
# Numba keeps compiled code beside the source (or in ``NUMBA_CACHE_DIR``), so that only the first use takes the time.

SECONDS = {
    "distance.sparse_compiled": 10.0,
    "linalg.aggregate_functions": 9.5,
    "linalg.lobpcg_compiled": 6.8,
    "linalg.multigrid_compiled": 4.5,
    "linalg.nonnegative_compiled": 1.3,
    "maps.pacmap.compiled": 9.0,
    "maps.tsne.compiled": 5.0,
    "maps.umap.compiled": 9.0,
    "neighbors.compiled": 4.0,
    "neighbors.search.compiled": 2.2,
    "quality.compiled": 4.4,
    "store.matrix_compiled": 2.2,
}
"""Processor time that the functions of a module take to compile, for the usual types (2 cores, 2026-11-23; those of
PaCMAP and UMAP 2026-11-28, of sparse rows 2026-11-29)."""
SOLVE = ("linalg.aggregate_functions", "linalg.lobpcg_compiled", "linalg.multigrid_compiled", "store.matrix_compiled")
"""Modules of a solve by iteration."""
STAGES = {
    "components": "neighbors.compiled",
    "factors": "linalg.nonnegative_compiled",
    "graph": "neighbors.compiled",
    "judgement": "quality.compiled",
    "kernel": "store.matrix_compiled",
    "order": "neighbors.compiled",
    "search": "neighbors.search.compiled",
    search.TRUTH: "neighbors.search.compiled",
}
"""The module of each of the other stages, by their names."""
METHODS = {name: f"maps.{name}.compiled" for name in ("pacmap", "tsne", "umap")}
"""Modules of the kernels and descents of methods, which are used however few the rows are."""


def compilation_seconds(method: str, stages: Iterable[tuple[str, Cost]], few: bool) -> float:
    """Return what compiling takes at first use; 0 where all of it is kept. ``few``: rows that most stages take as they
    are."""
    wanted: set[str] = set()
    # In a sweep the point that a stage is of follows its name.
    listed = [(label.partition(" ")[0], cost) for label, cost in stages]
    graph = any(name == "graph" for name, _ in listed)
    for name, cost in listed:
        if name == "judgement" and not graph:
            if cost.passes > 1:  # (drawn rows are judged without compiled functions, sparse ones against all with them)
                wanted.update(("distance.sparse_compiled", STAGES[name]))
            continue
        if name in ("kernel", "descent", "extend") and method in METHODS:
            wanted.add(METHODS[method])
        elif not few:
            wanted.update(SOLVE if cost.held else [STAGES[name]] if name in STAGES else [])
    return sum(SECONDS[module] for module in wanted if not is_kept(module))


def is_kept(module: str) -> bool:
    """Return whether numba keeps compiled functions of a module as it is now, for this Python."""
    source = Path(bigembed.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    index = f"{source.stem}.*.py{sys.version_info.major}{sys.version_info.minor}*.nbi"
    written = source.stat().st_mtime
    return any(file.stat().st_mtime >= written for folder in _folders(source) for file in folder.glob(index))


def _folders(source: Path) -> Iterator[Path]:
    """Yield where numba keeps what it compiled of a file."""
    below = f"{source.parent.name}_*"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield from Path(chosen).glob(below)
        return
    yield source.parent / "__pycache__"
    yield from Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "numba").glob(below)


# --------------------------------------------------------------------------------------------------------- windows
# What a job does in starts that have a deadline, or with workers that a queue ends: the next one goes on with the
# blocks that are left.


@dataclass(frozen=True)
class WindowPlan:
    """A window of time that each start has, or each worker, and what is to do in it."""

    of: str
    """``"start"`` or ``"worker"``."""
    seconds: float
    start: float
    """Seconds until the first task of a start."""
    stages: tuple[tuple[str, float, float], ...]
    """Of each stage its name, its seconds, and those of a block of it, which is done again if it was not finished."""

    @property
    def room(self) -> float:
        """Return seconds of work in a window."""
        return max(0.0, self.seconds - self.start)

    @property
    def longer(self) -> list[tuple[str, float, float]]:
        """Return the stages that do not fit into one window, and go on in the next."""
        return [stage for stage in self.stages if self.room < stage[1] and stage[2] <= self.room]

    @property
    def impossible(self) -> list[tuple[str, float, float]]:
        """Return the stages of which a window does not hold one block."""
        return [stage for stage in self.stages if stage[2] > self.room]

    @property
    def starts(self) -> int | None:
        """Return how many starts it takes, about: each may lose a block; None where they never end."""
        work, lost = sum(stage[1] for stage in self.stages), max((stage[2] for stage in self.longer), default=0.0)
        if self.impossible or work <= self.room:
            return None if self.impossible else 1
        return ceil(work / max(self.room - lost, self.room / 2))

    def problems(self) -> list[str]:
        """List what cannot be done in such windows, each with what can."""
        if not self.room and self.stages:
            more = duration(2 * (self.start + max(block for *_, block in self.stages)))
            return [
                f"a {self.of} has {duration(self.seconds)}, and its processes take {duration(self.start)} to start: it "
                f"would do nothing. Give {more} or more"
            ]
        return [
            f"stage {name!r}: a block of it takes about {duration(block)}, and a {self.of} has {duration(self.seconds)}"
            + (f", of which it works for {duration(self.room)}" if self.start else "")
            + f": none would finish one. Give {duration(2 * (self.start + block))} or more"
            for name, _, block in self.impossible
        ]

    def lines(self) -> list[str]:
        """Write what is done in the windows."""
        head = f"windows of {duration(self.seconds)} for each {self.of}: "
        if self.starts == 1:
            return [f"{head}one has time for all of it"] if self.of == "start" else []
        over = [
            f"stage {name!r} does not fit into one ({duration(seconds)}); it goes on in the next, with the blocks that "
            f"are left (one takes about {duration(block)})"
            for name, seconds, block in self.longer
        ]
        count = [] if self.starts is None else [f"{head}about {self.starts} of them; what one has finished is kept"]
        return [*count, *over]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        names = {"longer": self.longer, "impossible": self.impossible}
        return {
            "of": self.of,
            "seconds": self.seconds,
            "starts": self.starts,
            **{key: [name for name, *_ in stages] for key, stages in names.items()},
            "block_seconds": {name: block for name, _, block in self.stages},
        }
