"""The smallest method with stages: the first columns, centered. For tests of jobs."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import BigembedWarning, InputError
from bigembed.estimator.base import Estimator
from bigembed.maps import REGISTRY
from bigembed.rows import RowSource
from bigembed.rows.opening import open_array
from bigembed.runtime.blocks import block_rows, bounds, map_blocks
from bigembed.stages.cost import Cost
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows

NAME = "small"
PLACE = "tests.unit.jobs.small_method:Small"


def register() -> None:
    """Make ``method.name = "small"`` known."""
    REGISTRY[NAME] = PLACE


def mean_block(start: int, stop: int, source: RowSource, pause: float) -> np.ndarray:
    time.sleep(pause)
    return source.read(start, stop).astype(np.float64).sum(axis=0)


def center_block(start: int, stop: int, source: RowSource, mean: list[float], width: int, out: str) -> None:
    write_rows(out, start, (source.read(start, stop) - np.array(mean))[:, :width])


class Small(Estimator):
    """The first columns, centered.

    Parameters
    ----------
    n_components : int
        Columns kept.
    pause : float
        Seconds that each block sleeps.
    memory : int
        Bytes that a task claims to need.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        pause: float = 0.0,
        memory: int = 1 << 20,
        warns: str | None = None,
        n_neighbors: int | None = 5,
        workdir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_components, self.pause, self.memory = n_components, pause, memory
        self.warns, self.n_neighbors, self.workdir = warns, n_neighbors, workdir

    def stages(self, source: RowSource) -> list[Stage]:
        n, d = source.shape
        if self.n_components > d:
            raise InputError(f"n_components={self.n_components}; the rows have {d} columns")
        spans = bounds(n, block_rows(d, source.dtype.itemsize))
        width, pause, warns = self.n_components, self.pause, self.warns  # (a stage reads these, and not the estimator)
        size = n * width * 8

        def mean(context: Context) -> dict[str, Any]:
            sums = map_blocks(mean_block, spans, label="mean", source=source, pause=pause)
            return {"mean": (np.sum(sums, axis=0) / n).tolist()}

        def center(context: Context) -> dict[str, Any]:
            out = context.path("embedding")
            create_rows(out, (n, width), "f8", block_rows(d, source.dtype.itemsize))
            fixed = {"mean": context.results("mean")["mean"], "width": width, "out": out}
            map_blocks(center_block, spans, label="center", source=source, **fixed)
            if warns:
                warnings.warn(warns, BigembedWarning, stacklevel=2)
            return {"n": n}

        key = {"source": source.fingerprint()}
        cost = Cost(passes=1, read=n * d * source.dtype.itemsize, memory=self.memory)
        kept = Cost(1, read=cost.read, write=size, disk=size, memory=self.memory, coordinator=1 << 16)
        return [Stage("mean", (), key, mean, cost), Stage("center", ("mean",), {"m": self.n_components}, center, kept)]

    def _check(self) -> None:
        """What can be wrong is known with the rows: see ``stages``."""

    def _set_fitted(self, run: Run) -> None:
        self.mean_ = np.array(run.results("mean")["mean"])
        self.embedding_ = open_array(run.path("center", "embedding"))
        self.n_components_ = self.n_components
        self.eigenvalues_ = np.ones(self.n_components)

    def _certificate(self, run: Run) -> dict[str, Any]:
        return {"mean": float(run.results("mean")["mean"][0])}

    def save(self, path: Any) -> None:
        Path(path).mkdir()
        write_array(Path(path) / "mean", self.mean_)


def mean_of(path: Any) -> np.ndarray:
    """What :meth:`Small.save` wrote."""
    return read_array(Path(path) / "mean")
