"""What a fresh tree has to compile, each part by one of the processes of a run, before they collect the tests.

All of them import every module, in the same order: without this each would compile the same kernels at the same time,
and rewrite the assertions of the same files.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import dask
import pytest

ROOT = Path(__file__).parents[1]
EAGER = (
    "linalg.aggregate_functions",
    "linalg.lobpcg_compiled",
    "linalg.multigrid_compiled",
    "store.matrix_compiled",
    "neighbors.compiled",
)
"""Modules that compile when they are imported, the longest first."""
METHODS = ("umap weighed densities", "pacmap", "umap labels", "nmf", "pacmap cosine sparse")


def make_ready(claims: Path) -> None:
    """Takes one part after another that no other process has taken."""
    for number, part in enumerate(parts()):
        with suppress(FileExistsError):
            (claims / str(number)).touch(exist_ok=False)
            with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings(action="ignore"):
                part()  # (what fails is said when it is collected)


def parts() -> Iterator[Callable[[], object]]:
    yield partial(fit, "tsne")
    yield from (partial(importlib.import_module, f"bigembed.{name}") for name in EAGER)
    yield from (partial(fit, name) for name in METHODS)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        yield partial(importlib.import_module, ".".join(path.relative_to(ROOT).with_suffix("").parts))


def fit(name: str) -> None:
    """Compiles what no import does, in blocks as small as those of the suites."""
    from tests.blocks import limits_for
    from tests.cases import CASES, FEW_ROWS

    case = CASES[name]
    with limits_for(case, FEW_ROWS), dask.config.set(scheduler="synchronous"):
        case.fit(case.X(FEW_ROWS)).transform(case.new(FEW_ROWS))
