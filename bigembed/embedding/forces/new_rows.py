"""New rows on a map by attraction and repulsion, which stays as it is: each by itself, whatever the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.extension import Grouping
from bigembed.embedding.graph.new_rows import block_of_rows, ready_rows
from bigembed.errors import InputTypeError
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import MAX_PAIRS, Joined
from bigembed.neighbors.radius_query import AnyIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.survey import Shape
from bigembed.runs import Run
from bigembed.store.arrays import read_array, read_by_id


@dataclass(frozen=True)
class PlacingModel:
    """What a task needs to place rows: paths into the run or the saved model, and small numbers."""

    index: AnyIndex
    shape: Shape
    starts: tuple[int, ...]
    points: str
    field: str
    version: str
    """Of what lies at the paths."""
    spacing: float
    low: tuple[int, ...]
    box: tuple[tuple[float, ...], tuple[float, ...]]
    total: float
    """Z of the map."""
    perplexity: float
    dof: float

    @property
    def width(self) -> int:
        """Coordinates of a row."""
        return len(self.box[0])


def model_of(run: Run, dof: float) -> PlacingModel:
    """The model of a fitted run."""
    if not run.has("survey"):
        raise InputTypeError(
            "transform needs the rows that were fitted; this map was fitted to a user's graph, which has no place for "
            "new rows"
        )
    survey, found = run.results("survey"), run.results("coordinates")
    return PlacingModel(
        any_index_of(run),
        Shape(survey["n"], survey["d"], survey["dtype"], survey["metric"]),
        Ordered.open(run.path("order")).starts,
        run.path("coordinates", "points"),
        run.path("coordinates", "field"),
        run.manifest("coordinates").digest,
        found["spacing"],
        tuple(found["low"]),
        (tuple(found["box"][0]), tuple(found["box"][1])),
        found["total"],
        run.manifest("kernel").parameters["perplexity"],
        dof,
    )


def grouping(model: PlacingModel) -> Grouping:
    """How new rows are brought to the blocks of fitted rows that they belong to."""
    blocks = len(Ordered.open(model.index.order).blocks)
    most = MAX_PAIRS // (2 * model.index.n_neighbors)  # type: ignore[union-attr]  # (no graph of a radius)
    return Grouping(block_of_rows, blocks, model.shape.row_bytes, most, partial(placing_memory, model))


def placing_memory(model: PlacingModel, rows: int) -> int:
    """Bytes that :func:`place_rows` holds at most for that number of rows, without the rows themselves."""
    edges = rows * 2 * model.index.n_neighbors  # type: ignore[union-attr]
    return joining_memory(model.index, model.shape, rows) + edges * (16 + 8 * model.width) + (64 << 20)


def place_rows(rows: Array, model: PlacingModel) -> Array:
    """Coordinates of finite new rows (n, m)."""
    rows = ready_rows(rows, model.shape)
    coordinates = np.empty((len(rows), model.width))
    for members, joined in join_parts(rows, model.index):
        coordinates[members] = _placed(joined, model)
    return coordinates


def _placed(joined: Joined, model: PlacingModel) -> Array:
    from bigembed.kernels.placing import place  # imports numba: only here

    return place(
        joined.indptr,
        joined.squared,
        read_by_id(model.points, model.starts, joined.ids),
        model.index.n_neighbors,  # type: ignore[union-attr]
        model.perplexity,
        1.0 / model.dof,
        model.spacing,
        np.array(model.low),
        _field(model.field, model.version),
        model.shape.n / model.total,
        np.array(model.box),
        (0,) * model.width,
    )


@lru_cache(maxsize=1)
def _field(path: str, version: str) -> Array:
    return read_array(path)
