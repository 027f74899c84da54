"""The stages of a neighbor graph: from rows, by lists of nearest neighbors, to a symmetric graph by row blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.distance import MAPPED, named
from bigembed.errors import InputError
from bigembed.neighbors import graph_blocks, joined_to_all, order, search
from bigembed.neighbors.nn_descent import descend, descent_cost, fitting_length
from bigembed.neighbors.outside_lists import ByLists, ByPynndescent, Outside, outside_cost, outside_search
from bigembed.neighbors.radius import density_stage, every_pair_stage, is_dense, radius_graph_stage, recalled_stage
from bigembed.neighbors.search.every_block import search_stage
from bigembed.neighbors.search.ground_truth import EXACT_ROWS, recall_stage, truth_stage
from bigembed.neighbors.search.probes import SHORTLIST, shortlist_stage
from bigembed.neighbors.search.rerank import follow_stage, rerank_stage, reranked_recall_stage, reranked_truth_stage
from bigembed.neighbors.survey import Shape, refuse_few_rows, shape_of, survey_stage
from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array, by_owner, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, halo_of

# ------------------------------------------------------------------------------------------------------ symmetrize
# From lists of nearest neighbors to a symmetric graph: i ~ j if either is among the k nearest of the other.
#
# The reversed edges that cross a block border travel through the exchange, one file a block; no process sees more of
# the graph than one block and what other blocks sent it. Every task says whom it left something for, so that each
# block looks at its senders only and the work stays linear in the rows.


def graph_stage(shape: Shape, n_neighbors: int) -> Stage:
    """The symmetric graph by row blocks: structure, squared distances, outboxes."""

    edges, listed = graph_blocks.listed_entries(shape.n, n_neighbors), shape.largest_block * n_neighbors
    number, value = np.dtype(graph_blocks.id_type(shape.n)).itemsize, np.dtype(shape.dtype).itemsize
    cost = Cost.of(
        reads=[ArraySpec("lists", shape.n * n_neighbors, 4)],
        writes=graph_blocks.graph_arrays(shape.n, edges, dtype=shape.dtype),
        leaves=[
            ArraySpec("entries turned round", shape.n * n_neighbors, 4 + number + value, "u1"),
            ArraySpec("rows asked for", shape.n, dtype="i4"),
        ],
        task=[ArraySpec("entries of the lists", listed, 46 + 7 * value, "u1")],  # (measured of float32: 42 to 66)
        scalar_ops=edges,
        maps=3,
    )
    opens = {"search": ("neighbors", "squared")}
    return Stage("graph", ("order", "search"), {"n_neighbors": n_neighbors}, run_graph, cost, opens=opens)


def run_graph(context: Context) -> dict[str, Any]:
    starts = read_array(context.of("order", "starts")).tolist()
    blocks = range(len(starts) - 1)
    shared: dict[str, Any] = {"lists": context.of("search"), "starts": starts, "exchange": context.exchange}
    sent = map_blocks(reverse_block, [(b,) for b in blocks], **shared)
    found = map_blocks(join_block, list(enumerate(graph_blocks.senders_of(sent))), **shared, out=context.path(""))
    counted = graph_blocks.finish_graph(context, found, starts)
    return {name: counted[name] for name in ("blocks", "edges", "halo_rows", "zero_edges")}


def reverse_block(b: int, *, lists: str, starts: list[int], exchange: Exchange) -> list[int]:
    """Leave each edge (i → j) that goes to another block reversed with the block of j. Returns those blocks."""
    ids, squared = read_array(f"{lists}/neighbors/{b}"), read_array(f"{lists}/squared/{b}")
    outside, k = np.flatnonzero((ids < starts[b]) | (ids >= starts[b + 1])), ids.shape[1]
    near, values = ids.ravel()[outside], squared.ravel()[outside]
    del ids, squared
    sources = (starts[b] + outside // k).astype(graph_blocks.id_type(starts[-1]))
    pieces: dict[str, Array] = {}
    for block, at, rows in by_owner(starts, near):  # (sources stay ascending)
        pieces |= {f"row{block}": rows.astype(np.int32), f"source{block}": sources[at], f"squared{block}": values[at]}
    exchange.put("reversed", b, pieces)
    return [int(name[3:]) for name in pieces if name.startswith("row")]


def join_block(
    b: int, senders: list[int], *, lists: str, starts: list[int], exchange: Exchange, out: str
) -> dict[str, Any]:
    """Union of own and received edges, with the diagonal, as a CSR block; ask other blocks for the halo rows."""
    squared, names = read_array(f"{lists}/squared/{b}"), (f"row{b}", f"source{b}", f"squared{b}")
    ids = read_array(f"{lists}/neighbors/{b}").astype(graph_blocks.id_type(starts[-1]))
    parts = [[np.zeros(0, np.int32), ids[:0, 0], squared[:0, 0]]]
    parts += [exchange.get_many("reversed", sender, names) for sender in senders]
    received = graph_blocks.concatenated(parts)
    if starts[b + 1] - starts[b] == starts[-1] == ids.shape[1] + 1 and ids.min() >= 0:
        block = joined_to_all(ids, squared)
    else:
        union = union_block if starts[-1] <= EXACT_ROWS else union_compiled
        block = union(b, ids, squared, received, starts)
    return graph_blocks.write_block(b, block, starts, exchange, out)


def union_block(b: int, ids: Array, squared: Array, received: Sequence[Array], starts: list[int]) -> CSRBlock:
    """Lists ``ids``, ``squared`` (m, k), the same reversed, ``received`` edges, and the diagonal.

    Edges are received reversed: local rows, int32 (r,), who lists them, ascending for each row, and values.
    """
    own = np.arange(starts[b], starts[b + 1], dtype=ids.dtype)
    row, column, value = np.repeat(own, ids.shape[1]), ids.ravel(), squared.ravel()
    inside = (column >= starts[b]) & (column < starts[b + 1])
    rows = np.concatenate([row, column[inside], own]) - starts[b]
    return graph_blocks.csr_block(
        b,
        np.concatenate([rows.astype(np.int32), received[0]]),
        np.concatenate([column, row[inside], own, received[1]]),
        np.concatenate([value, value[inside], np.zeros(len(own), value.dtype), received[2]]),
        starts,
    )


def union_compiled(b: int, ids: Array, squared: Array, received: Sequence[Array], starts: list[int]) -> CSRBlock:
    """:func:`union_block`, compiled: the same block, several times faster, of arrays of fewer bytes. It changes
    ``ids``."""
    from bigembed.neighbors.compiled import union  # imports numba: only here

    (row, source, value), columns, count = received, ids.ravel(), starts[b + 1] - starts[b]
    outside = np.flatnonzero((columns < starts[b]) | (columns >= starts[b + 1])).astype(np.int32)
    away = columns[outside]
    far = np.union1d(np.unique(away), np.unique(source))
    columns -= starts[b]
    columns[outside] = count + np.searchsorted(far, away)
    crossing = outside[np.argsort(away, kind="stable")]
    del away, outside
    places = (count + np.searchsorted(far, source)).astype(np.int32)
    lists = columns.astype(np.int32, copy=False).reshape(ids.shape)
    indptr, indices, data = union(lists, squared, crossing, count + len(far), row, places, value)
    return CSRBlock(indptr, indices, data, *halo_of(starts, far))


# ---------------------------------------------------------------------------------------------------- graph stages
# The stages of a neighbor graph: from rows to a symmetric graph by row blocks that any method can use.

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
    algorithm: str = search.AUTO,
    outside: Outside | None = None,
) -> list[Stage]:
    """Stages from rows to the symmetric graph of k nearest neighbors, recall measured, of all within a radius, or of
    every pair. ``most``: rows of a block, at most; ``algorithm``: how lists of k are searched; ``outside``: what finds
    candidates for them instead."""
    shape = replace(shape_of(source, metric), most=most)
    if algorithm != search.WITHOUT_DESCENT:
        search.checked_algorithm(algorithm)
    if radius is not None:
        require_euclidean(shape, "a graph of a radius is")
        refuse_few_rows(None, shape.n)
        return [
            survey_stage(source, shape, seed),
            order.partition_stage(shape, seed),
            order.order_stage(source, shape, CELL_ROWS, seed),
            density_stage(shape, float(radius), seed),
            radius_graph_stage(shape, float(radius)),
        ]
    if is_dense(n_neighbors, shape):
        return [
            survey_stage(source, shape, seed),
            order.partition_stage(shape, seed),
            order.order_stage(source, shape, CELL_ROWS, seed),
            every_pair_stage(shape, seed),
            recalled_stage(shape.n, recall),
        ]
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    return [
        *search_stages(source, n_neighbors, metric, recall, seed, most, algorithm, outside),
        graph_stage(shape, k),
        recall_stage(recall),
    ]


def search_stages(
    source: RowSource,
    n_neighbors: int | None,
    metric: Any,
    recall: float,
    seed: int,
    most: int | None = None,
    algorithm: str = search.AUTO,
    outside: Outside | None = None,
) -> list[Stage]:
    """Stages from rows to the lists of their nearest neighbors."""
    if algorithm == search.PYNNDESCENT and outside is None:
        outside = ByPynndescent(seed)
    if isinstance(outside, ByLists):
        algorithm = search.GIVEN_LISTS
    shape = replace(shape_of(source, metric), most=most)
    k = n_neighbors if n_neighbors is not None else shape.n - 1
    refuse_few_rows(k, shape.n)
    return [
        survey_stage(source, shape, seed),
        order.partition_stage(shape, seed),
        order.order_stage(source, shape, CELL_ROWS, seed),
        shortlist_stage(shape.n, shape.ordered_bytes, CELL_ROWS),
        truth_stage(shape, k, recall, seed, algorithm, fitting_length),
        _search(shape, k, algorithm) if outside is None else _search_outside(shape, k, outside),
    ]


def _search(shape: Shape, k: int, algorithm: str) -> Stage:
    """The search, its cost with that of NN-descent wherever it may come to that."""
    stage = search_stage(shape, k, descend)
    every_cell = shape.n <= SHORTLIST * CELL_ROWS  # (on every shortlist)
    if algorithm in (search.CELLS, search.WITHOUT_DESCENT) or (algorithm == search.AUTO and every_cell):
        return stage
    return replace(stage, cost=descent_cost(stage.cost, shape, k, algorithm == search.NN_DESCENT))


def _search_outside(shape: Shape, k: int, outside: Outside) -> Stage:
    """The search among candidates that something else finds."""
    stage = search_stage(shape, k, outside_search(outside))
    parameters = {**stage.parameters, **outside.key()}
    return replace(stage, parameters=parameters, cost=outside_cost(stage.cost, shape, k, outside))


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
        reranked_truth_stage(shape, n_neighbors, seed),
        rerank_stage(shape, n_neighbors, n_candidates, given),
        graph_stage(shape, n_neighbors),
        reranked_recall_stage(recall, n_candidates, given),
    ]


def require_euclidean(shape: Shape, what: str) -> None:
    """InputError where distances are not those of dense rows in a Euclidean space."""
    if not shape.euclidean:
        rows = "sparse rows" if shape.sparse else f"metric={shape.compare.text!r}"
        raise InputError(
            f"{what} for dense rows and the metrics {', '.join(named(MAPPED))}, not for {rows}. Give n_neighbors alone"
        )
