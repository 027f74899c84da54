"""What a job compiles before it can work: functions of which numba keeps nothing on this machine yet.

Numba keeps compiled code beside the source (or in ``NUMBA_CACHE_DIR``), so that only the first use takes the time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import bigembed
from bigembed.stages import Cost

SECONDS = {
    "blocks.edge_pairs": 0.3,
    "blocks.nonnegative": 1.3,
    "eigen.galerkin": 2.0,
    "eigen.local_functions": 9.5,
    "eigen.matching": 4.5,
    "eigen.update_kernel": 4.8,
    "kernels.forces": 3.0,
    "kernels.fuzzy": 3.2,
    "kernels.perplexity": 2.0,
    "kernels.sampling": 1.5,
    "neighbors.components.compiled": 1.1,
    "neighbors.edges": 1.8,
    "neighbors.ordering.nearest": 1.1,
    "neighbors.search.topk": 2.2,
    "operators.row_product": 1.9,
    "quality.compiled": 4.4,
}
"""Processor time that the functions of a module take to compile, for the usual types (2 cores, 2026-11-23)."""
SOLVE = ("eigen.galerkin", "eigen.local_functions", "eigen.matching", "eigen.update_kernel", "operators.row_product")
"""Modules of a solve by iteration."""
STAGES = {
    "components": ("neighbors.components.compiled",),
    "factors": ("blocks.nonnegative",),
    "graph": ("neighbors.edges",),
    "judgement": ("quality.compiled",),
    "kernel": ("blocks.edge_pairs",),
    "order": ("neighbors.ordering.nearest",),
    "search": ("neighbors.search.topk",),
    "witness": ("neighbors.search.topk",),
}
"""Modules of the other stages, by their names."""
METHODS = {
    "tsne": {"kernel": ("kernels.perplexity",), "descent": ("kernels.forces",)},
    "umap": {"kernel": ("kernels.fuzzy",), "descent": ("kernels.sampling",)},
}
"""Where a method has others; these are used however few the rows are."""


def compilation_seconds(method: str, stages: Iterable[tuple[str, Cost]], few: bool) -> float:
    """What compiling takes at first use; 0 where all of it is kept. ``few``: rows that most stages take as they are."""
    own = METHODS.get(method, {})
    wanted: set[str] = set()
    # In a sweep the point that a stage is of follows its name.
    listed = [(label.partition(" ")[0], cost) for label, cost in stages]
    graph = any(name == "graph" for name, _ in listed)
    for name, cost in listed:
        if name == "judgement" and not graph:
            continue  # (a sample is judged without compiled functions)
        wanted |= set(own.get(name, () if few else SOLVE if cost.held else STAGES.get(name, ())))
    return sum(SECONDS[module] for module in wanted if not is_kept(module))


def is_kept(module: str) -> bool:
    """Whether numba keeps compiled functions of a module as it is now, for this Python."""
    source = Path(bigembed.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    index = f"{source.stem}.*.py{sys.version_info.major}{sys.version_info.minor}*.nbi"
    written = source.stat().st_mtime
    return any(file.stat().st_mtime >= written for folder in _folders(source) for file in folder.glob(index))


def _folders(source: Path) -> Iterator[Path]:
    """Where numba keeps what it compiled of a file."""
    below = f"{source.parent.name}_*"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield from Path(chosen).glob(below)
        return
    yield source.parent / "__pycache__"
    yield from Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "numba").glob(below)
