"""The stages of locally linear embedding and its variants, from rows or from a neighbor graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.embedding.alignment.conditions import Conditions, alignment_stage
from bigembed.embedding.alignment.exact import coordinates_stage, solve_stage
from bigembed.embedding.alignment.landmarks import landmark_coordinates_stage, landmark_solve_stage, landmarks_stage
from bigembed.embedding.geodesics.distances import graph_components_stage
from bigembed.embedding.graph.judgement import judgement_stage
from bigembed.embedding.graph.ordered_rows import OrderedRows
from bigembed.embedding.graph.parts import ISLANDS
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError, InputTypeError
from bigembed.neighbors.graph_stages import neighbor_stages
from bigembed.neighbors.ordering.survey import Shape
from bigembed.stages import Stage
from bigembed.store.rows.source import RowSource

AUTO_ROWS = 5_000
"""Up to here solver="auto" is exact."""


def by_landmarks(solver: str, n: int) -> bool:
    """Whether n rows are solved by landmarks."""
    return solver == "landmarks" or (solver == "auto" and n > AUTO_ROWS)


def row_stages(asked: Any, conditions: Conditions, source: RowSource, shape: Shape, seed: int) -> list[Stage]:
    """All stages from rows. ``asked`` has the parameters of :class:`~bigembed.LocallyLinearEmbedding`."""
    refuse_few(asked, shape.n)
    if by_landmarks(asked.solver, shape.n):
        return _landmark_stages(asked, conditions, source, shape, seed)
    graph = neighbor_stages(source, int(asked.n_neighbors), shape.metric, asked.recall, seed, algorithm=asked._search())
    return [*graph, *_exact_stages(asked, conditions, source, shape, seed)]


def graph_stages(asked: Any, conditions: Conditions, graph: GraphShape, seed: int) -> list[Stage]:
    """The stages that follow a neighbor graph, which decides what the neighbors are where the solve is exact."""
    if graph.rowless or graph.k is None or graph.dense:
        what = "a graph of your own has no rows" if graph.rowless else "this graph has no lists of k nearest neighbors"
        raise InputTypeError(
            f"{type(asked).__name__} reconstructs each row from its k nearest rows, and {what}. Give rows, or a "
            "NeighborGraph of n_neighbors"
        )
    shape = Shape(graph.n, graph.width, "float64", "euclidean")
    rows = OrderedRows((graph.n, graph.width), np.dtype(np.float64))
    if by_landmarks(asked.solver, graph.n):
        return _landmark_stages(asked, conditions, rows, shape, seed)
    return _exact_stages(asked, conditions, rows, shape, seed, graph.k)


def refuse_few(asked: Any, n: int) -> None:
    """InputError for fewer rows than the neighbors or the coordinates need."""
    k, m = int(asked.n_neighbors), int(asked.n_components)
    if n <= max(k, m):
        raise InputError(
            f"n_neighbors={k} and n_components={m} need at least {max(k, m) + 1} rows (the row itself is not "
            f"counted); got n_samples = {n}. Lower them, or give more rows"
        )


def policy_of(asked: Any) -> str:
    """What is done with several components."""
    return ISLANDS if asked.components == "auto" else str(asked.components)


def _exact_stages(
    asked: Any, conditions: Conditions, source: RowSource, shape: Shape, seed: int, k: int | None = None
) -> list[Stage]:
    n, m, near, policy = shape.n, int(asked.n_components), k or int(asked.n_neighbors), policy_of(asked)
    block = min(shape.block, n)
    return [
        graph_components_stage(("graph",), 2 * n * near, n, block),
        alignment_stage(conditions, shape, near),
        solve_stage(conditions, policy, n, near, m),
        coordinates_stage(policy, n, m, block),
        judgement_stage(source, shape, m, seed, ordered=True, parts="components"),
    ]


def _landmark_stages(asked: Any, conditions: Conditions, source: RowSource, shape: Shape, seed: int) -> list[Stage]:
    m, k, count = int(asked.n_components), int(asked.n_neighbors), min(shape.n, int(asked.n_landmarks))
    return [
        landmarks_stage(source, count, asked.landmarks, max(k, m) + 1, seed),
        landmark_solve_stage(conditions, policy_of(asked), count, k, m, shape.d),
        landmark_coordinates_stage(source, shape, count, k, m, float(asked.reg)),
        judgement_stage(source, shape, m, seed, ordered=isinstance(source, OrderedRows)),
    ]
