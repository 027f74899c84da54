"""The search in near cells: which ones a row probes, what it finds there, the recall to be expected.

How rows are searched is here, and recall@k: the share of true nearest neighbors that lists hold (seed 001).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors import empty_lists, update_lists
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.survey import Shape, prepare, shape_of
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.input import row_source
from bigembed.rows.passes import map_row_blocks
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import Run
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange

TRUTH = "witness"
"""The stage that finds the true neighbors of sampled rows, under the name that stored runs have for it."""

# ------------------------------------------------------------------------------------------------------ algorithms
# How the nearest rows are searched: the names, and which of them suits the rows.

CELLS, NN_DESCENT, PYNNDESCENT, AUTO = "cells", "nn-descent", "pynndescent", "auto"
ALGORITHMS = (AUTO, CELLS, NN_DESCENT, PYNNDESCENT)
GIVEN_LISTS = "given lists"
"""Lists that came with the rows are made exact; no name that may be asked for."""
LINKED = (NN_DESCENT, PYNNDESCENT, GIVEN_LISTS)
"""Ways whose lists are not those of the probed cells, and along which new rows walk."""
WITHOUT_DESCENT = "auto, without nn-descent"
"""What a plan makes of the automatic choice where the lists of NN-descent do not fit into the memory of a worker. It is
a parameter of the stage that decides, so that no run takes over what was decided where there is room, or none."""
LITTLE_MEMORY = "more memory than a worker may hold here"
ENOUGH = 0.98
"""Recall of all cells of a shortlist at which they are searched even if the target is higher."""


WORTH = 128
"""Cells a row beyond which the rounds of NN-descent take less time than the search of the cells, where there are at
least four times as many cells in all."""


def checked_algorithm(name: str) -> str:
    """The name; InputError unless it is one."""
    if name not in ALGORITHMS:
        raise InputError(f"algorithm={name!r}; allowed: {', '.join(map(repr, ALGORITHMS))}")
    return name


def chosen(
    asked: str, curve: Array, target: float, probes: int, n: int, cells: int, lacking: str = ""
) -> dict[str, Any]:
    """Which way n rows in a number of cells are searched, and why: from the recall of 1, 2, … cells, ``curve`` (S,), on
    sampled rows. ``lacking``: what NN-descent would take that is not there.

    Nothing where it is cells without being asked for, and would be wherever it runs: :func:`describe_search` says why.
    """
    lacking = LITTLE_MEMORY if asked == WITHOUT_DESCENT else lacking
    if asked in (CELLS, *LINKED):
        return {"algorithm": asked, "why": "asked for", "target": target}
    reached = bool(curve[-1] >= min(target, ENOUGH))
    if reached and (probes <= WORTH or cells < 4 * WORTH):
        return {}
    pairs = f"{probes} cells, some {probes * (n // cells)} rows, for each row"
    why = f"recall {curve[-1]:.3f} at most is expected of all cells on a shortlist: {pairs}; the target is {target:g}"
    if reached:
        why = f"recall {curve[probes - 1]:.3f} would take {pairs}, more time than rounds of NN-descent"
    if lacking:
        why += f". NN-descent, which would be taken for that, needs {lacking}"
        return {"algorithm": CELLS, "why": why, "target": target, "forced": True}
    return {"algorithm": NN_DESCENT, "why": why, "target": target}


def describe_search(results: Mapping[str, Any]) -> str:
    """Which way the rows are searched, and why, in words: from the results of the stage that decided it."""
    if "algorithm" in results:
        return f"neighbors by {results['algorithm']}: {results['why']}"
    return (
        f"neighbors by {CELLS}: recall {results['expected_recall']:.3f} is expected of {results['n_probes']} cells for "
        "each row"
    )


# ---------------------------------------------------------------------------------------------------------- recall
# recall@k: the share of true nearest neighbors that lists hold (seed 004, §4.2), on sampled rows against all rows.

COMPILED_PAIRS = 1 << 24
"""More pairs than these are compared by compiled code."""


@dataclass(frozen=True)
class Truth:
    """Some rows, and their true nearest neighbors."""

    ids: Array
    """int64 (q,)."""
    neighbors: Array
    """int64 (q, k), nearest first."""


@dataclass(frozen=True)
class Recall:
    """Measured share of true neighbors, over sampled rows."""

    recall: float
    standard_error: float
    rows: int
    n_neighbors: int


def missed(measured: Mapping[str, Any]) -> str:
    """The warning that a measured recall is below its target."""
    return (
        f"recall of the neighbor graph is {measured['recall']:.4f} ± {measured['standard_error']:.4f}, "
        f"below the target {measured['target']}. {measured.get('advice', '')}"
    )


def doubts(measured: Mapping[str, Any]) -> list[str]:
    """What speaks against the lists of a graph: a recall below its target; that they would be others elsewhere."""
    if measured["recall"] < measured["target"]:
        return [missed(measured)]
    if measured.get("forced"):
        by_cells = measured["algorithm"] == CELLS
        how = "by cells, since NN-descent does" if by_cells else "by NN-descent with short lists, since longer ones do"
        return [
            f"neighbors were searched {how} not fit: {measured['why']}. The target is met (recall "
            f"{measured['recall']:.4f}), but where there is room the same job finds other neighbors, and its "
            "coordinates differ by as much"
        ]
    return []


def recall_at(lists: Array, truth: Array) -> Array:
    """|lists_i ∩ truth_i| / k of each row, (q,): lists (q, any) and truth (q, k) hold ids, −1 for none.

    >>> recall_at(np.array([[1, 2, 3]]), np.array([[3, 4]])).tolist()
    [0.5]
    """
    first = (max(truth.max(initial=0), lists.max(initial=0)) + 2) * np.arange(len(truth), dtype=np.int64)[:, None] + 1
    hits = np.isin(truth + first, lists + first) & (truth >= 0)
    return np.asarray(hits.mean(axis=1))


def summed_up(shares: Array, n_neighbors: int) -> Recall:
    """Mean and standard error of the shares of single rows."""
    error = float(np.std(shares) / np.sqrt(len(shares)))
    return Recall(float(shares.mean()), error, len(shares), n_neighbors)


def share_found(truth: Truth, search: str, ordered: Ordered, width: int) -> Recall:
    """Recall of the first ``width`` of the stored lists, for rows given by internal ids."""
    sampled = np.sort(truth.ids)
    tasks = [
        (b, start, stop)
        for b, (start, stop) in enumerate(pairwise(ordered.starts))
        if np.searchsorted(sampled, start) < np.searchsorted(sampled, stop)
    ]
    shares = np.concatenate(map_blocks(share_block, tasks, truth=truth, search=search, width=width))
    return summed_up(shares, truth.neighbors.shape[1])


def share_block(b: int, start: int, stop: int, *, truth: Truth, search: str, width: int) -> Array:
    """Recall of each of the rows that lie in one block."""
    mine = np.flatnonzero((truth.ids >= start) & (truth.ids < stop))
    lists = read_array(f"{search}/neighbors/{b}")[truth.ids[mine] - start, :width]
    return recall_at(lists, truth.neighbors[mine])


def internal_ids(ordered: Ordered, numbers: Array) -> Array:
    """Internal ids of rows of the input, in the shape of ``numbers``."""
    wanted, place = np.unique(numbers, return_inverse=True)
    found = map_blocks(internal_block, [(b,) for b in range(len(ordered.blocks))], ordered=ordered, wanted=wanted)
    out = np.empty(len(wanted), np.int64)
    for at, ids in found:
        out[at] = ids
    return out[place].reshape(numbers.shape)


def internal_block(b: int, *, ordered: Ordered, wanted: Array) -> tuple[Array, Array]:
    """Which of the wanted rows (ascending) lie in one block, and their internal ids."""
    _, at, here = np.intersect1d(wanted, ordered.ids(b), assume_unique=True, return_indices=True)
    return at, here + ordered.starts[b]


def exact_neighbors(X: Any, ids: Array, n_neighbors: int, metric: str = "euclidean") -> tuple[Array, Array]:
    """The k nearest of all rows to some of them, exactly: row numbers int64 (q, k) and squared distances (q, k).

    ``X`` is any kind of rows; ``ids`` (q,) are the numbers of the rows asked for, which are not their own
    neighbors. Ties go to the smaller number. One pass over the rows; the queries are held in every task.

    >>> exact_neighbors(np.arange(5.0)[:, None], np.array([0, 3]), 2)[0].tolist()
    [[1, 2], [2, 4]]
    """
    home = Run(None)
    source, _ = row_source(X, home.root / "exchange")
    shape, ids = shape_of(source, metric), np.asarray(ids, np.int64)
    exchange = Exchange(str(home.root / "exchange"))
    if not 1 <= n_neighbors < shape.n:
        raise InputError(f"n_neighbors={n_neighbors}; with {shape.n} rows it must be from 1 to {shape.n - 1}")
    if len(ids) and not (ids.min() >= 0 and ids.max() < shape.n):
        raise InputError(f"row numbers from {ids.min()} to {ids.max()}; the rows are numbered 0 to {shape.n - 1}")
    return nearest_rows(source, shape, rows_at(source, shape, ids), ids, n_neighbors, exchange)


def rows_at(source: RowSource, shape: Shape, ids: Array) -> Array:
    """The rows of these numbers (q, d), as they are searched."""
    spans = bounds(shape.n, source.block)
    order = np.argsort(ids, kind="stable")
    cuts = np.searchsorted(ids[order], [start for start, _ in spans[1:]])
    wanted = {number: ids[part] for number, part in enumerate(np.split(order, cuts)) if len(part)}
    parts = map_row_blocks(source, rows_block, given=wanted, shape=shape)
    rows = np.empty((len(ids), shape.width), shape.dtype)
    rows[order] = np.concatenate([rows[:0], *parts])
    return rows


def nearest_rows(
    source: RowSource, shape: Shape, queries: Array, query_ids: Array, k: int, exchange: Exchange
) -> tuple[Array, Array]:
    """The k nearest of all rows to queries (q, d): numbers int64 (q, k) and squared distances (q, k).

    A row whose number is that of the query is left out. One pass over the rows.
    """
    asked: dict[str, Any] = {"queries": queries, "query_ids": query_ids, "k": k}
    spans = map_row_blocks(source, nearest_block, shape=shape, exchange=exchange, **asked)
    return merged(stored_lists("nearest", len(spans), exchange), len(queries), k)


def rows_block(block: RowBlock, wanted: Array, *, shape: Shape) -> Array:
    """The rows of a block that have these numbers."""
    return np.asarray(prepare(block.rows, shape)[wanted - block.start])


def nearest_block(
    block: RowBlock, *, shape: Shape, queries: Array, query_ids: Array, k: int, exchange: Exchange
) -> None:
    """The k nearest rows of a block to every query."""
    rows = prepare(block.rows, shape)
    found, squared = empty_lists(len(queries), k, rows.dtype)
    from bigembed.neighbors.search.by_metric import by_metric, search_rows

    by, many = by_metric(shape), len(queries) * shape.n > COMPILED_PAIRS
    compare: Any = by.update_lists if by else search_rows if many else update_lists
    compare(found, squared, queries, query_ids, rows, np.arange(block.start, block.stop, dtype=np.int64))
    exchange.put("nearest", block.number, lists_found(found, squared))


Lists = tuple[Array, Array, Array]
"""Some of the queries, and ids and squared distances of the nearest rows of a block to each."""


def lists_found(ids: Array, squared: Array) -> dict[str, Array]:
    """The lists that hold a row, with their queries: most blocks are far from most queries."""
    queries = np.flatnonzero((ids >= 0).any(axis=1))
    return {"queries": queries, "ids": ids[queries], "squared": squared[queries]}


def stored_lists(name: str, blocks: int, exchange: Exchange) -> Iterator[Lists]:
    """What each block left of :func:`lists_found`, one block at a time."""
    for block in range(blocks):
        queries, ids, squared = exchange.get_many(name, block, ["queries", "ids", "squared"])
        yield queries, ids, squared


def merged(parts: Iterator[Lists], queries: int, k: int) -> tuple[Array, Array]:
    """The k nearest of the lists of all blocks, by (squared distance, id)."""
    ids, squared = np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf)
    for mine, more_ids, more in parts:
        squared = squared.astype(more.dtype, copy=False)
        every, both = np.concatenate([ids[mine], more_ids], axis=1), np.concatenate([squared[mine], more], axis=1)
        last = np.where(every < 0, np.iinfo(np.int64).max, every)
        order = np.lexsort((last, both), axis=1)[:, :k]
        ids[mine], squared[mine] = np.take_along_axis(every, order, 1), np.take_along_axis(both, order, 1)
    return ids, squared
