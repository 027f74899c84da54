"""Candidates in one space, order in another: the hybrid neighbor search (seed 004, §5).

The candidates of a row are its nearest rows in a space where search is cheap, for example a few
principal components. Here they are ordered by the distances between other rows of the same points: the
points themselves, or coordinates of another map. The rows follow the row order of the candidates, so what
a block compares lies in few other blocks; no process holds more than a block of rows and the cells it asks for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bigembed.distance import paired_squared
from bigembed.neighbors import parts_of_pairs
from bigembed.neighbors.order import Ordered, order_arrays
from bigembed.neighbors.search import TRUTH, Truth, share_found
from bigembed.neighbors.search.every_block import leave_cells_block, list_arrays, write_lists
from bigembed.neighbors.search.ground_truth import EXACT_ROWS, exact_truth, truth_arrays
from bigembed.neighbors.survey import Shape, prepare
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import map_row_blocks
from bigembed.runtime.blocks import Array, map_blocks, offsets, owner_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, send


def follow_stage(source: RowSource, shape: Shape, given: Run, seed: int) -> Stage:
    """Rows in the order of the candidates, in blocks of whole cells that suit their own width. One pass."""

    rows = ArraySpec("rows", shape.n, shape.row_bytes, "u1")
    cost = Cost.of(
        reads=[rows],
        writes=order_arrays(shape, 1 + shape.n // 64),
        leaves=[rows, ArraySpec("numbers and places", shape.n, 3)],
        task=[ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 4)],
        coordinator=[ArraySpec("cells", shape.n // 64, 2)],
        passes=1,
    )
    parameters = {"candidates": given.digest("order"), "seed": seed}
    return Stage("order", ("survey",), parameters, partial(run_follow, source=source, shape=shape, given=given), cost)


def run_follow(context: Context, source: RowSource, shape: Shape, given: Run) -> dict[str, Any]:
    old = Ordered.open(given.path("order"))
    cell_starts = read_array(f"{old.path}/cell_starts")
    first_cells = block_cells(cell_starts, read_array(f"{old.path}/cell_block_starts"), shape.block)
    starts = cell_starts[first_cells]
    share: dict[str, Any] = {"exchange": context.exchange}
    map_blocks(places_block, [(b,) for b in range(len(old.blocks))], old=old, rows=shape.block, **share)
    places = merge_parcels(context.exchange, "places", len(old.blocks))
    spans = map_row_blocks(source, carry_block, shape=shape, places=places, starts=starts, **share)
    tasks = [(b, int(first), int(stop)) for b, (first, stop) in enumerate(pairwise(first_cells))]
    carried = merge_parcels(context.exchange, "carried", len(spans))
    map_blocks(settle_block, tasks, carried=carried, cell_starts=cell_starts, out=context.path(""))
    centers = [read_array(context.path(f"cell_centers_of/{b}")) for b in range(len(tasks))]
    for name, array in {
        "blocks": np.arange(len(tasks)),
        "starts": starts,
        "cell_block_starts": first_cells,
        "cell_starts": cell_starts,
        "cell_centers": np.concatenate(centers),
    }.items():
        write_array(context.path(name), array)
    return {"blocks": len(tasks), "largest": int(np.diff(starts).max()), "cells": len(cell_starts) - 1}


def block_cells(cell_starts: Array, block_starts: Array, rows: int) -> Array:
    """First cell of each block, and the number of cells: each given block in as few runs of cells as ``rows`` allow."""
    first = [0]
    for start, stop in pairwise(block_starts.tolist()):
        pieces = -(-int(cell_starts[stop] - cell_starts[start]) // rows)
        cuts = np.linspace(cell_starts[start], cell_starts[stop], pieces + 1)[1:-1]
        inner = owner_of(cell_starts[start : stop + 1], cuts) + start
        first += [*np.unique(inner[inner > start]).tolist(), stop]
    return np.array(first, np.int64)


def places_block(b: int, *, old: Ordered, rows: int, exchange: Exchange) -> None:
    """Tell each span of the input where the rows of one block of the candidates lie in it, and their internal ids."""
    ids = old.ids(b)
    order, receivers = by_receiver(ids // rows, -(-old.starts[-1] // rows))
    columns = {"at": ids[order] % rows, "internal": order + old.starts[b]}
    send(exchange, "places", b, {name: (column, receivers) for name, column in columns.items()})


def internal_ids_of(places: Delivery, span: RowBlock) -> Array:
    """The internal ids of the rows of a span of the input, by what :func:`places_block` told it."""
    found, internal = places.to(span.number), np.empty(span.stop - span.start, np.int64)
    internal[found["at"]] = found["internal"]
    return internal


def carry_block(span: RowBlock, *, shape: Shape, places: Delivery, starts: Array, exchange: Exchange) -> None:
    """Leave the rows of one span of the input with the blocks that they belong to."""
    internal = internal_ids_of(places, span)
    owner = owner_of(starts, internal)
    order, receivers = by_receiver(owner, len(starts) - 1)
    at = (internal - starts[owner])[order]
    columns = {"rows": prepare(span.rows, shape)[order], "at": at, "ids": order + span.start}
    send(exchange, "carried", span.number, {name: (column, receivers) for name, column in columns.items()})


def settle_block(b: int, first: int, stop: int, *, carried: Delivery, cell_starts: Array, out: str) -> None:
    """Put the rows of one block, of the cells first … stop, into their places."""
    cells = cell_starts[first : stop + 1] - cell_starts[first]
    found = carried.to(b)
    order = np.argsort(found["at"])
    rows, ids = found["rows"][order], found["ids"][order]
    centers = np.add.reduceat(rows.astype(np.float64), cells[:-1], axis=0) / np.diff(cells)[:, None]
    write_array(f"{out}rows/{b}", rows)
    write_array(f"{out}ids/{b}", ids)
    write_array(f"{out}cell_offsets/{b}", cells)
    write_array(f"{out}cell_centers_of/{b}", centers.astype(rows.dtype))


def reranked_truth_stage(shape: Shape, k: int, seed: int) -> Stage:
    """Exact neighbors of sampled rows, and the distance histogram, in the space that orders."""

    return Stage(
        TRUTH,
        ("survey", "order"),
        {"n_neighbors": k, "seed": seed},
        partial(run_reranked_truth, k=k, seed=seed),
        Cost.of(reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1")], writes=truth_arrays(shape, k), passes=1),
    )


def run_reranked_truth(context: Context, k: int, seed: int) -> dict[str, Any]:
    return {"witnesses": len(exact_truth(context, k, seed).ids)}


def rerank_stage(shape: Shape, k: int, n_candidates: int, given: Run) -> Stage:
    """The k nearest of the ``n_candidates`` first candidates of every row. One pass."""

    n, rows = shape.n, ArraySpec("rows", shape.n, shape.row_bytes, "u1")
    cost = Cost.of(
        reads=[replace(rows, times=3), ArraySpec("candidates", n, n_candidates, "f4", 3)],
        writes=list_arrays(n, k, shape.dtype),
        leaves=[rows],
        task=[
            ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 3),
            ArraySpec("candidates", shape.largest_block, n_candidates, times=5),
            buffer("tiles of distances", 32 << 20),
        ],
        passes=2,
    )
    parameters = {"n_neighbors": k, "n_candidates": n_candidates, "given": given.digest("search")}
    return Stage(
        "search", ("order",), parameters, partial(run_rerank, k=k, n_candidates=n_candidates, given=given), cost
    )


def run_rerank(context: Context, k: int, n_candidates: int, given: Run) -> dict[str, Any]:
    ordered = Ordered.open(context.of("order"))
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(leave_cells_block, blocks, ordered=ordered, exchange=context.exchange)
    fixed: dict[str, Any] = {"ordered": ordered, "k": k, "exchange": context.exchange, "out": context.path("")}
    lists: dict[str, Any] = {"candidates": given.path("search"), "starts": Ordered.open(given.path("order")).starts}
    map_blocks(rerank_block, blocks, n_candidates=n_candidates, **lists, **fixed)
    return {"n_neighbors": k, "candidates": n_candidates, "compared_per_row": n_candidates}


def rerank_block(
    b: int, *, ordered: Ordered, k: int, n_candidates: int, candidates: str, starts: tuple[int, ...],
    exchange: Exchange, out: str,
) -> None:  # fmt: skip
    """Order the candidates of the rows of one block by distance, ties by id, and keep k."""
    start, stop = ordered.starts[b], ordered.starts[b + 1]
    owner = int(owner_of(starts, start))
    ids = read_array(f"{candidates}/neighbors/{owner}", start - starts[owner], stop - starts[owner])[:, :n_candidates]
    rows = ordered.rows(b)
    squared = np.full(ids.shape, np.inf, rows.dtype)
    compare = pair_distances if ordered.starts[-1] <= EXACT_ROWS else compiled_pair_distances
    own = (ids >= start) & (ids < stop)
    squared[own] = compare(rows, rows, np.nonzero(own)[0], ids[own] - start)
    cell_starts, block_starts = (read_array(f"{ordered.path}/{name}") for name in ("cell_starts", "cell_block_starts"))
    home = np.where(ids >= 0, owner_of(ordered.starts, ids), b)
    for block in np.unique(home[home != b]).tolist():
        here = home == block
        cell = owner_of(cell_starts, ids[here])
        cells, place = np.unique(cell, return_inverse=True)
        parts = exchange.get_many("cells", block, [str(c) for c in (cells - block_starts[block]).tolist()])
        base = offsets(len(part) for part in parts)[place] - cell_starts[cell]
        squared[here] = compare(rows, np.concatenate(parts), np.nonzero(here)[0], ids[here] + base)
    order = np.lexsort((ids, squared), axis=1)[:, :k]
    write_lists(out, b, np.take_along_axis(ids, order, 1), np.take_along_axis(squared, order, 1))


def pair_distances(rows: Array, others: Array, i: Array, j: Array) -> Array:
    """Squared distances ‖rows[i] − others[j]‖² of pairs, in the dtype of the rows."""
    out = np.empty(len(i), rows.dtype)
    for part in parts_of_pairs(len(i), rows.shape[1]):
        with np.errstate(over="ignore"):
            out[part] = paired_squared(rows[i[part]], others[j[part]])
    return out


def compiled_pair_distances(rows: Array, others: Array, i: Array, j: Array) -> Array:
    """:func:`pair_distances`, compiled: the same bits."""
    from bigembed.neighbors.search.compiled import distances_of_pairs  # imports numba: only here

    out = np.empty(len(i), rows.dtype)
    distances_of_pairs(np.ascontiguousarray(rows), np.ascontiguousarray(others), i, j, out)
    return out


def reranked_recall_stage(target: float, n_candidates: int, given: Run) -> Stage:
    """Measured recall of the lists, beside that of the candidates before they were ordered, and of all of them."""

    parameters = {"target": target, "n_candidates": n_candidates, "given": given.digest("search")}
    return Stage(
        "recall",
        ("order", "search", TRUTH),
        parameters,
        partial(run_reranked_recall, target=target, n_candidates=n_candidates, given=given),
    )


def run_reranked_recall(context: Context, target: float, n_candidates: int, given: Run) -> dict[str, Any]:
    truth = Truth(read_array(context.of(TRUTH, "ids")), read_array(context.of(TRUTH, "neighbors")))
    k = truth.neighbors.shape[1]
    order = Ordered.open(given.path("order"))
    ordered = share_found(truth, context.of("search"), Ordered.open(context.of("order")), k)
    unordered = share_found(truth, given.path("search"), order, k)
    reachable = share_found(truth, given.path("search"), order, n_candidates)
    advice = (
        ""
        if ordered.recall >= target
        else (
            f"The candidates hold {reachable.recall:.4f} of the true neighbors. Raise n_candidates "
            f"({n_candidates}), or take candidates in more coordinates"
        )
    )
    return {
        "recall": ordered.recall,
        "standard_error": ordered.standard_error,
        "target": target,
        "rows": len(truth.ids),
        "recall_before": unordered.recall,
        "recall_of_candidates": reachable.recall,
        "advice": advice,
    }
