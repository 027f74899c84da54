"""The stages of a neighbor graph: from rows to a symmetric graph by row blocks that any method can use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bigembed.blocks.metrics import MAPPED
from bigembed.errors import InputError
from bigembed.neighbors.algorithms import AUTO, CELLS, NN_DESCENT, WITHOUT_DESCENT, checked_algorithm
from bigembed.neighbors.every_pair import every_pair_stage, is_dense, recalled_stage
from bigembed.neighbors.nn_descent import descend, descent_cost, lacking_room
from bigembed.neighbors.ordering.order import order_stage, partition_stage
from bigembed.neighbors.ordering.survey import Shape, shape_of, survey_stage
from bigembed.neighbors.radius import density_stage, radius_graph_stage
from bigembed.neighbors.search.every_block import search_stage
from bigembed.neighbors.search.ground_truth import recall_stage, witness_stage
from bigembed.neighbors.search.rerank import follow_stage, rerank_stage, reranked_recall_stage, true_witness_stage
from bigembed.neighbors.search.shortlist import SHORTLIST, shortlist_stage
from bigembed.neighbors.symmetrize import graph_stage
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.rows.source import RowSource

CELL_ROWS = 192

QUERY_ARRAYS = {
    "survey": ("reach", "last"),
    "partition": ("centers",),
    "shortlist": ("shortlist",),
    "recall": ("",),
    "order": (
        "rows",
        "ids",
        "places",
        "blocks",
        "starts",
        "cell_offsets",
        "cell_centers_of",
        "cell_centers",
        "cell_starts",
        "cell_block_starts",
        "points",
        "columns",
    ),
    "search": (
        "rho_squared",
        "kappa",
        "shortlist",
        "probed",
        "asked",
        "asked_indptr",
        "links",
        "sources",
        "sources_indptr",
    ),
    "density": ("cell_radii",),
    "edges": ("reach", "last"),
    "graph": ("rho_squared", "reach", "last"),
}
"""Stages and arrays of a graph that a query of new rows reads: what a saved model keeps."""


def neighbor_stages(
    source: RowSource,
    n_neighbors: int | None,
    metric: Any,
    recall: float,
    seed: int,
    *,
    radius: float | None = None,
    most: int | None = None,
    algorithm: str = AUTO,
) -> list[Stage]:
    """Stages from rows to the symmetric graph of k nearest neighbors, recall measured, of all within a radius, or of
    every pair. ``most``: rows of a block, at most; ``algorithm``: how lists of k are searched."""
    shape = replace(shape_of(source, metric), most=most)
    if algorithm != WITHOUT_DESCENT:
        checked_algorithm(algorithm)
    if radius is not None:
        require_euclidean(shape, "a graph of a radius is")
        if shape.n < 2:
            raise InputError(f"a graph needs at least 2 rows; got n_samples = {shape.n}")
        return [
            survey_stage(source, shape, seed),
            partition_stage(shape, seed),
            order_stage(source, shape, CELL_ROWS, seed),
            density_stage(shape, float(radius), seed),
            radius_graph_stage(shape, float(radius)),
        ]
    if is_dense(n_neighbors, shape):
        return [
            survey_stage(source, shape, seed),
            partition_stage(shape, seed),
            order_stage(source, shape, CELL_ROWS, seed),
            every_pair_stage(shape, seed),
            recalled_stage(shape.n, recall),
        ]
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    return [
        *search_stages(source, n_neighbors, metric, recall, seed, most, algorithm),
        graph_stage(shape.n, k, shape.block),
        recall_stage(recall),
    ]


def search_stages(
    source: RowSource,
    n_neighbors: int | None,
    metric: Any,
    recall: float,
    seed: int,
    most: int | None = None,
    algorithm: str = AUTO,
) -> list[Stage]:
    """Stages from rows to the lists of their nearest neighbors."""
    shape = replace(shape_of(source, metric), most=most)
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    if shape.n < k + 1 or k < 1:
        raise InputError(
            f"n_neighbors={n_neighbors} needs at least {max(k, 1) + 1} rows (the row itself is not "
            f"counted); got n_samples = {shape.n}. Lower n_neighbors or give more rows"
        )
    return [
        survey_stage(source, shape, seed),
        partition_stage(shape, seed),
        order_stage(source, shape, CELL_ROWS, seed),
        shortlist_stage(shape.n, shape.ordered_bytes, CELL_ROWS),
        witness_stage(shape, k, recall, seed, algorithm, lacking_room),
        _search(shape, k, algorithm),
    ]


def _search(shape: Shape, k: int, algorithm: str) -> Stage:
    """The search, its cost with that of NN-descent wherever it may come to that."""
    stage = search_stage(shape, k, descend)
    every_cell = shape.n <= SHORTLIST * CELL_ROWS  # (on every shortlist)
    if algorithm in (CELLS, WITHOUT_DESCENT) or (algorithm == AUTO and every_cell):
        return stage
    return replace(stage, cost=descent_cost(stage.cost, shape, k, algorithm == NN_DESCENT))


def rerank_stages(
    source: RowSource, given: Run, n_neighbors: int, n_candidates: int, metric: Any, recall: float, seed: int
) -> list[Stage]:
    """Stages from candidate lists of other rows of the same points to the graph of these rows."""
    shape = shape_of(source, metric)
    require_euclidean(shape, "candidates are")
    n = given.results("survey")["n"]
    if n != shape.n:
        raise InputError(f"candidates were found among {n} rows, X has {shape.n}; both must be of the same points")
    if not 1 <= n_neighbors <= n_candidates:
        raise InputError(
            f"n_neighbors={n_neighbors} of n_candidates={n_candidates} candidates; it must be from 1 to n_candidates"
        )
    return [
        survey_stage(source, shape, seed),
        follow_stage(source, shape, given, seed),
        true_witness_stage(shape, n_neighbors, seed),
        rerank_stage(shape, n_neighbors, n_candidates, given),
        graph_stage(shape.n, n_neighbors, shape.block),
        reranked_recall_stage(recall, n_candidates, given),
    ]


def require_euclidean(shape: Shape, what: str) -> None:
    """InputError where distances are not those of dense rows in a Euclidean space."""
    if not shape.euclidean:
        rows = "sparse rows" if shape.sparse else f"metric={shape.compare.text!r}"
        raise InputError(
            f"{what} for dense rows and the metrics {', '.join(MAPPED)}, not for {rows}. Give n_neighbors alone"
        )
