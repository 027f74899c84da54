"""What functions of a fitted walk need of it: its stages, the order of the input, columns that belong to its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, InputTypeError
from bigembed.neighbors.ordering.order import Ordered
from bigembed.runs import Run
from bigembed.stages import Context
from bigembed.store.arrays.io import read_array, read_by_id
from bigembed.store.inputs.input import column_source, row_source
from bigembed.store.rows.source import RowSource, rows_at
from bigembed.store.rows.sparse import is_csr_group
from bigembed.store.storage.paths import AnyPath, at, is_path


def run_of(fitted: Any, what: str) -> Run:
    """The run of a map whose walk is there; InputTypeError for another one, and for a saved model."""
    if not hasattr(fitted, "_check_fitted"):
        raise InputTypeError(f"{what} takes a fitted map of a walk, such as DiffusionMap; got {type(fitted).__name__}")
    fitted._check_fitted()
    run: Run = fitted._run
    run.check()
    if run.kind == "model" or not all(run.has(stage) for stage in ("kernel", "components", "solve", "coordinates")):
        why = "a saved model does not hold its walk" if run.kind == "model" else f"{type(fitted).__name__} has none"
        raise InputTypeError(f"{what} needs the walk of a fitted map, and {why}. Fit a DiffusionMap")
    return run


@dataclass(frozen=True)
class InputOrder:
    """Which rows of the input the blocks of the graph hold. Small and picklable."""

    starts: tuple[int, ...]
    ordered: Ordered | None
    """None where the graph has the order of the input."""

    @classmethod
    def of(cls, context: Context) -> Self:
        """That of a fitted walk."""
        rows = context.results("kernel")["rows"]
        ordered = Ordered.open(context.of("order")) if context.home.has("order") else None
        return cls(tuple(np.cumsum([0, *rows]).tolist()), ordered)

    @property
    def blocks(self) -> int:
        """Blocks of the graph."""
        return len(self.starts) - 1

    def ids(self, b: int) -> Array:
        """Rows of the input in one block."""
        return self.ordered.ids(b) if self.ordered else np.arange(self.starts[b], self.starts[b + 1])


@dataclass(frozen=True)
class WalkVectors:
    """Where a task finds the eigenvectors of the rows, by blocks of the graph."""

    right: str
    degree: str
    labels: str
    replaced: str
    """Which rows have the coordinates of another one; empty where none has."""
    order: InputOrder
    symmetric: bool

    @classmethod
    def of(cls, context: Context, symmetric: bool) -> Self:
        """Those of a fitted walk."""
        found = context.results("coordinates")
        replaced = context.of("coordinates") if found["filled_rows"] or found["repeated_rows"] else ""
        paths = context.of("solve", "right"), context.of("kernel", "degree"), context.of("components", "labels")
        return cls(*paths, replaced, InputOrder.of(context), symmetric)

    def block(self, b: int) -> Array:
        """Eigenvectors of the rows of a block; of a row that repeats another one those of that one."""
        out, weight = read_array(f"{self.right}/{b}"), read_array(f"{self.degree}/{b}")
        if self.replaced:
            rows, ids = (read_array(f"{self.replaced}/{name}/{b}") for name in ("outside", "nearest"))
            out[rows] = read_by_id(self.right, self.order.starts, ids)
            weight[rows] = read_by_id(self.degree, self.order.starts, ids)
        return out * np.sqrt(weight)[:, None] if self.symmetric else out


def inputs_of(run: Run) -> tuple[str, ...]:
    """The stages that a function of the walk depends on."""
    order = ("order",) if run.has("order") else ()
    graph = next(name for name in ("bridge", "graph", "weights") if run.has(name))
    return ("kernel", graph, "components", "solve", "coordinates", *order)


@dataclass(frozen=True)
class ColumnVector(RowSource):
    """One column, from an array of one dimension."""

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``, (rows, 1)."""
        return np.asarray(super().read(start, stop)).reshape(-1, 1)


def columns_source(columns: Any, n: int, scratch: AnyPath) -> tuple[RowSource, bool, bool]:
    """Columns (n, c) or (n,) that belong to the rows of the input; whether in memory, and whether a vector."""
    if is_path(columns):
        path = at(columns).absolute()
        flat = not is_csr_group(path) and len(rows_at(path).shape) == 1
    else:
        flat = getattr(columns, "ndim", None) == 1 or (not hasattr(columns, "shape") and np.ndim(columns) == 1)
    if flat:
        vector = column_source(columns, n, scratch, "columns")
        source: RowSource = ColumnVector((n, 1), vector.dtype, vector.path, vector.array, offset=vector.offset)
        in_memory = not is_path(columns) and not hasattr(columns, "dask")
    else:
        source, in_memory = row_source(columns, scratch, "columns", sparse=True)
    if source.shape[0] != n:
        raise InputError(f"the columns have {source.shape[0]:,} rows, the map has {n:,}; give one for each")
    if source.dtype.kind not in "buif":
        raise InputError(f"the columns hold {source.dtype}; numbers are needed. Encode text first")
    return source, in_memory, flat
