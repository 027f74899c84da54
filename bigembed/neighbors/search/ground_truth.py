"""Ground truth: about a thousand sampled rows compared with *all* rows, once.

Their exact neighbors show, before the search, what recall any number of probed cells would have, so
the target is met by choice; after the search they measure it. Their distances give the histogram
from which global scales (Ksum, median) and the intrinsic dimension come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigembed.distance.metrics import RowMetric
from bigembed.neighbors import approximate_squared, empty_lists, search, update_lists
from bigembed.neighbors.order import ListedCells, Ordered
from bigembed.neighbors.search.by_metric import TILE_ENTRIES, ByMetric, Cells, by_metric, search_every
from bigembed.neighbors.search.probes import leave_near_blocks, listed_cells, probe_ranks
from bigembed.neighbors.survey import Shape
from bigembed.runtime.blocks import Array, by_owner, map_blocks, owner_of
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_rows, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import part_names, row_parts, rows_of_parts

# ------------------------------------------------------------------------------------------------- expected recall
# The recall to be expected of any number of probed cells, from sampled rows whose neighbors are known; the choice.

LONGER = (512, 1024)
"""Lengths of shortlists that are tried, one after the other, unless the stored ones reach the target soon.

A row far from the center of its cell has near rows in cells that are not near that center: the more of them the denser
the rows and the higher their dimension (mixture of 16 columns: of the neighbors of 10⁷ rows .9982 are in 256 cells, of
those of 3·10⁷ rows .9735, and .9987 in 512)."""
AMPLE = 4
"""Cells of a shortlist for each that a row probes, from which a longer one saves next to nothing."""
FEWER = 0.9
"""Share of the probed cells that a longer shortlist that is worth its room needs at most."""


def best_curve(
    sampled: str, ordered: Ordered, shortlist: str, length: int, target: float, exchange: Exchange, longer: bool = True
) -> Array:
    """The curve of the stored shortlists of a ``length`` if they reach the target soon; else the best of it and
    those of longer ones, where ``longer`` ones may be made.

    ``sampled``: where the stage keeps ids (q,), rows (q, d) and neighbors (q, k) of the sampled rows.
    """
    (curve,) = recall_curves(sampled, ordered, [length], exchange, shortlist)
    cells, pairs = int(read_array(f"{ordered.path}/cell_block_starts")[-1]), read_array(f"{sampled}neighbors").size
    if not longer or len(curve) == cells or reaches_soon(curve, target, pairs):
        return curve
    leave_near_blocks(ordered, exchange)
    for other in recall_curves(sampled, ordered, sorted({min(more, cells) for more in LONGER}), exchange):
        curve = better_curve(curve, other, target, pairs)
        if reaches_soon(curve, target, pairs):
            break
    return curve


def reaches_soon(curve: Array, target: float, pairs: int) -> bool:
    """Whether a curve (S,) reaches the target with a small part of the shortlists."""
    return bool(len(reached := reaching(curve, target, pairs)) and AMPLE * (reached[0] + 1) <= len(curve))


def better_curve(curve: Array, longer: Array, target: float, pairs: int) -> Array:
    """The curve of longer shortlists if it reaches the target with fewer cells, or where the other does not reach it;
    of two that do not the higher."""
    few, many = (reaching(one, target, pairs) for one in (longer, curve))
    if len(few) and len(many):
        return longer if few[0] + 1 <= FEWER * (many[0] + 1) else curve
    if len(few) or len(many):
        return longer if len(few) else curve
    return longer if longer[-1] > curve[-1] else curve


def recall_curves(
    sampled: str, ordered: Ordered, lengths: Sequence[int], exchange: Exchange, shortlist: str = ""
) -> list[Array]:
    """Share of the true neighbors that lie in the T cells nearest to a row, for T = 1, 2, …, S, of shortlists of each
    of some lengths S, ascending: the stored ones, or without a ``shortlist`` others that are made, of the near blocks.
    """
    own = owner_of(read_array(f"{ordered.path}/cell_starts"), read_array(f"{sampled}ids"))
    tasks = list(by_owner(read_array(f"{ordered.path}/cell_block_starts"), own))
    found = map_blocks(
        counts_block, tasks, sampled=sampled, ordered=ordered, lengths=lengths, exchange=exchange, shortlist=shortlist
    )
    totals = [np.sum(counts, axis=0) for counts in zip(*found, strict=True)]
    return [np.cumsum(counts)[:-1] / counts.sum() for counts in totals]


def counts_block(
    b: int, at: Array, cells: Array, *, sampled: str, ordered: Ordered, lengths: Sequence[int], exchange: Exchange,
    shortlist: str,
) -> list[Array]:  # fmt: skip
    """Of the sampled rows ``at`` some places, in some cells of a block: how many true neighbors are in the cell of each
    rank, and last in none that is listed; (S + 1,) for each length S."""
    rows, near = read_rows(f"{sampled}rows", at), read_rows(f"{sampled}neighbors", at)
    if shortlist:
        lists = read_array(f"{shortlist}/shortlist/{b}")[cells]
    else:
        first = int(read_array(f"{ordered.path}/cell_block_starts", b, b + 1)[0])
        lists = listed_cells(b, first + cells, ordered, exchange, lengths[-1])
    listed = ListedCells.read(ordered, np.unique(lists[lists >= 0]))
    lists = listed.places(lists)
    wanted = listed.places(owner_of(read_array(f"{ordered.path}/cell_starts"), near))
    counts = [np.zeros(min(length, lists.shape[1]) + 1) for length in lengths]
    for row, cell_list, cells_of_near in zip(rows, lists, wanted, strict=True):
        for count in counts:
            ranks = probe_ranks(row, cell_list[: len(count) - 1], listed.centers, cells_of_near)
            count += np.bincount(np.minimum(ranks, len(count) - 1), minlength=len(count))
    return counts


def reaching(curve: Array, target: float, pairs: int) -> Array:
    """Numbers of cells, less one, whose recall is above the target by two standard errors; of a target of 1 those that
    find all."""
    return np.flatnonzero(curve >= np.minimum(target + 2 * _error(curve, pairs), 1))


def choose_probes(curve: Array, target: float, pairs: int) -> int:
    """The fewest cells whose recall is above the target by two standard errors; where none reaches it, the fewest whose
    recall is within one of that of the whole shortlist; for a target of 1 the whole.

    >>> choose_probes(np.array([0.8, 0.9, 0.9]), 0.5, 100), choose_probes(np.array([0.8, 0.9, 0.9]), 0.99, 100)
    (1, 2)
    """
    if target >= 1:
        return len(curve)
    reached = reaching(curve, target, pairs)
    return int(reached[0] if len(reached) else np.argmax(curve >= curve[-1] - _error(curve, pairs)[-1])) + 1


def _error(curve: Array, pairs: int) -> Array:
    return np.asarray(np.sqrt(np.maximum(curve * (1 - curve), 0) / max(1, pairs)))


# ---------------------------------------------------------------------------------------------------- ground truth

SAMPLE_ROWS = 1_000
FEW = 200
SPREAD = 200
"""Sampled rows whose distances to all rows go into the histogram."""
BINS = 1 << 16
EXACT_ROWS = 8_192
"""Up to here every pair of rows is compared in the search too, without compiled code."""
_TILE_ROWS = 4_096


def truth_arrays(shape: Shape, k: int) -> Arrays:
    """Declare the exact neighbors of sampled rows."""
    size, dtype = sample_size(shape.n), shape.dtype
    lists = [ArraySpec("neighbors", size, k, "i8"), ArraySpec("squared", size, k, dtype)]
    rows = [ArraySpec("rows", size, shape.width, dtype), ArraySpec("ids", size, dtype="i8")]
    return [*rows, *lists, ArraySpec("reach", size, dtype=dtype), ArraySpec("histogram", BINS, dtype="i8")]


def truth_stage(
    shape: Shape,
    k: int,
    target: float,
    seed: int,
    algorithm: str = search.AUTO,
    room: Callable[[Shape, int, str], tuple[int, str]] = lambda shape, k, place: (shape.n, ""),
) -> Stage:
    """Exact neighbors of sampled rows, the distance histogram; how to search, and in how many cells.

    ``room``: how long the lists of NN-descent may get on the disk where exchanges lie, and what longer ones would
    take; asked once: what was decided is kept with the stage, whatever is free later.
    """

    size, by = sample_size(shape.n), by_metric(shape)
    cost = Cost.of(
        reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1")],
        writes=[*truth_arrays(shape, k), ArraySpec("recall_by_probes", 0)],
        leaves=[ArraySpec("sampled rows", size, shape.row_bytes, "u1", 2 if shape.sparse else 1)],
        task=[
            ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1"),
            ArraySpec("sampled rows", size, shape.row_bytes, "u1"),
            ArraySpec("tiles of distances", TILE_ENTRIES, times=6),
        ],
        coordinator=[
            ArraySpec("lists of blocks, histograms", size, 16 * k + 1000, "f4"),
            ArraySpec("sampled rows", size, shape.row_bytes, "u1", 2),
        ],
        passes=1,
        flops=2 * size * shape.n * shape.row_bytes / 4,
        scalar_ops=size * shape.n / 4,
        terms=shape.n * (size + min(size, FEW)) * by.listed if by else 0.0,
        maps=4,
    )
    parameters: dict[str, Any] = {"n_neighbors": k, "target": target, "seed": seed}
    if algorithm != search.AUTO:
        parameters["algorithm"] = algorithm
    return Stage(
        search.TRUTH,
        ("survey", "order", "shortlist"),
        parameters,
        partial(run_truth, shape=shape, k=k, target=target, seed=seed, algorithm=algorithm, room=room),
        cost,
        opens={"survey": ()},
    )


def run_truth(
    context: Context,
    shape: Shape,
    k: int,
    target: float,
    seed: int,
    algorithm: str,
    room: Callable[[Shape, int, str], tuple[int, str]],
) -> dict[str, Any]:
    truth = exact_truth(context, k, seed, by_metric(shape))
    ordered = Ordered.open(context.of("order"))
    length, cells = context.results("shortlist")["length"], context.results("order")["cells"]
    given = context.path(""), ordered, context.of("shortlist"), length, target, context.exchange
    curve = best_curve(*given, longer=algorithm not in search.LINKED)
    write_array(context.path("recall_by_probes"), curve)
    probes = choose_probes(curve, target, truth.neighbors.size)
    longest, lacks = room(shape, k, context.exchange.root)
    decided = search.chosen(algorithm, curve, target, probes, shape.n, cells, "" if longest else lacks)
    if decided.get("algorithm") == search.NN_DESCENT and longest and lacks:
        decided |= {"longest": longest, "lacks": f"lists longer than {longest} would take {lacks}"}
    if len(curve) > length and decided.get("algorithm") not in search.LINKED:
        decided["shortlist"] = len(curve)
    return {"n_probes": probes, "expected_recall": float(curve[probes - 1]), "witnesses": len(truth.ids), **decided}


def exact_truth(context: Context, k: int, seed: int, by: ByMetric | None = None) -> search.Truth:
    """Choose the sampled rows, compare them with all rows, and keep what was found: by internal ids."""
    ordered, exchange = Ordered.open(context.of("order")), context.exchange
    blocks = [(b,) for b in range(len(ordered.blocks))]
    map_blocks(choose_block, blocks, ordered=ordered, k=k, seed=seed, bounded=by is None, exchange=exchange)
    compared = part_names("compared", True) if ordered.columns else []
    left = [exchange.get_many("chosen", b, ["rows", "ids", "reach", *compared]) for (b,) in blocks]
    rows, ids, reach, *parts = (np.concatenate(pieces) for pieces in zip(*left, strict=True))
    if compared:  # together once: the task of each block would open what all blocks left
        exchange.put("sampled", 0, dict(zip(compared, parts, strict=True)))
    write_array(context.path("rows"), rows)
    write_array(context.path("ids"), ids)
    write_array(context.path("reach"), reach)
    unit = unit_of(context.results("survey"))
    fixed: dict[str, Any] = {"ordered": ordered, "k": k, "out": context.path(""), "seed": seed, "unit": unit, "by": by}
    map_blocks(truth_block, blocks, exchange=exchange, **fixed)
    near, squared = search.merged(search.stored_lists(search.TRUTH, len(blocks), exchange), len(ids), k)
    counts = np.zeros(BINS, np.int64)
    for (b,) in blocks:
        bins, inside = exchange.get_many(search.TRUTH, b, ["bins", "inside"])
        counts[bins] += inside
    write_array(context.path("neighbors"), near)
    write_array(context.path("squared"), squared)
    write_array(context.path("histogram"), np.append(counts, unit))
    return search.Truth(ids, near)


def unit_of(survey: Mapping[str, Any]) -> int:
    """e, so that no two entries of a column are 2ᵉ⁺¹ apart: distances are counted in units of 2ᵉ, whatever the data's.

    Rows 2ᵏ times as large have e + k, and the same counts.
    """
    if RowMetric(survey["metric"]).bounded or RowMetric(survey["metric"]).function_of_two:
        return 0
    return int(np.frexp(survey["high"] / 2 - survey["low"] / 2)[1])


def sample_size(n: int) -> int:
    """How many rows are sampled: a tenth, at least 200 and at most 1000."""
    return min(n, max(FEW, min(SAMPLE_ROWS, n // 10)))


def choose_block(b: int, *, ordered: Ordered, k: int, seed: int, bounded: bool = True, exchange: Exchange) -> None:
    """The block's share of the sampled rows, of sparse ones also as they are compared; the reach of each: no neighbor
    is farther than the k-th of its cell.

    ``bounded``: whether that is found; else the reach is infinite.
    """
    start, stop, n = ordered.starts[b], ordered.starts[b + 1], ordered.starts[-1]
    wanted = sample_size(n)
    share = round(stop * wanted / n) - round(start * wanted / n)
    chosen = _chosen(b, stop - start, share, seed)
    end = None if share else 1
    rows = ordered.rows(b, 0, end)
    if share and bounded:
        reach = reach_block(rows, chosen, ordered.cells(b)[0], k)
    else:
        reach = np.full(share, np.inf, rows.dtype)
    compared = row_parts(ordered.compared(b, 0, end)[chosen], "compared") if ordered.columns else {}
    exchange.put("chosen", b, {"rows": rows[chosen], "ids": chosen + start, "reach": reach, **compared})


def _chosen(b: int, rows: int, share: int, seed: int) -> Array:
    return np.sort(np.random.default_rng([seed, 2, b]).choice(rows, share, replace=False))


def spread_rows(n: int, seed: int) -> Array:
    """The rows, of n in one block, whose distances to all rows go into the histogram."""
    chosen = _chosen(0, n, sample_size(n), seed)
    return np.asarray(chosen[_draw_sorted(len(chosen), seed)])


def reach_block(rows: Array, chosen: Array, offsets: Array, k: int) -> Array:
    """A squared distance, (m,), just above that of the k-th other row of its cell, for each chosen row; ∞ if none."""
    reach = np.full(len(chosen), np.inf, rows.dtype)
    cell = owner_of(offsets, chosen)
    for c in np.unique(cell):
        mine, members = chosen[cell == c], np.arange(offsets[c], offsets[c + 1])
        if len(members) <= k:
            continue
        ids, squared = empty_lists(len(mine), k, rows.dtype)
        update_lists(ids, squared, rows[mine], mine, rows[members], members)
        reach[cell == c] = squared[:, -1]
    return np.asarray(np.nextafter(reach, np.array(np.inf, rows.dtype)))


def truth_block(
    b: int, *, ordered: Ordered, k: int, out: str, seed: int, unit: int, by: ByMetric | None, exchange: Exchange
) -> None:
    """All sampled rows against one block: its part of their neighbors, and of the histogram."""
    queries, query_ids = read_array(f"{out}rows"), read_array(f"{out}ids")
    if by is not None:
        if ordered.columns:
            queries = rows_of_parts(exchange.get_all("sampled", 0), ordered.columns, "compared")
        return _truth_by_metric(b, queries, query_ids, ordered, k, seed, unit, by, exchange)
    spread = _draw_sorted(len(queries), seed)
    rows, start = ordered.rows(b), ordered.starts[b]
    ids, squared = empty_lists(len(queries), k, rows.dtype)
    squared[:] = read_array(f"{out}reach")[:, None]  # most cells are out of reach, and not compared
    counts = np.zeros(BINS, np.int64)
    numbers = np.arange(start, start + len(rows), dtype=np.int64)
    if ordered.starts[-1] <= EXACT_ROWS:  # compiled only for large n
        update_lists(ids, squared, queries, query_ids, rows, numbers)
    else:
        cell_offsets, centers = ordered.cells(b)
        cells = Cells(np.arange(len(centers)), cell_offsets, rows, numbers, centers)
        search_every(ids, squared, queries, query_ids, cells)
    for first in range(0, len(rows), _TILE_ROWS):
        part = slice(first, first + _TILE_ROWS)
        counts += distance_counts(queries[spread], query_ids[spread], rows[part], numbers[part], unit)
    _leave(b, ids, squared, counts, exchange)


def _leave(b: int, ids: Array, squared: Array, counts: Array, exchange: Exchange) -> None:
    """Leave the lists of a block that hold a row, and the bins of the histogram that do."""
    bins = np.flatnonzero(counts)
    exchange.put(search.TRUTH, b, search.lists_found(ids, squared) | {"bins": bins, "inside": counts[bins]})


def _truth_by_metric(
    b: int, queries: Any, query_ids: Array, ordered: Ordered, k: int, seed: int, unit: int, by: ByMetric,
    exchange: Exchange,
) -> None:  # fmt: skip
    rows = ordered.compared(b)
    numbers = np.arange(ordered.starts[b], ordered.starts[b + 1], dtype=np.int64)
    ids, squared = empty_lists(len(query_ids), k, np.dtype(by.dtype))
    by.update_lists(ids, squared, queries, query_ids, rows, numbers)
    spread = _draw_sorted(len(query_ids), seed)
    counts = by.counts(queries[spread], query_ids[spread], rows, numbers, unit, BINS)
    _leave(b, ids, squared, counts, exchange)


def distance_counts(queries: Array, query_ids: Array, rows: Array, row_ids: Array, unit: int) -> Array:
    """Squared distances, in units of 2ᵉ (e = ``unit``), counted by the upper half of their float32 bit pattern,
    (65536,). A row is at 0 of itself."""
    approximate, _ = approximate_squared(np.ldexp(queries, -unit), np.ldexp(rows, -unit))
    squared = np.maximum(approximate, 0).astype(np.float32)
    squared[query_ids[:, None] == row_ids[None, :]] = 0.0
    return np.bincount(squared.ravel().view(np.uint32) >> 16, minlength=BINS)


def _draw_sorted(count: int, seed: int) -> Array:
    return np.sort(np.random.default_rng([seed, 3]).choice(count, min(SPREAD, count), replace=False))


def recall_stage(target: float) -> Stage:
    """Measured share of the true neighbors of the sampled rows that the lists hold."""

    run, opens = partial(run_recall, target=target), {"search": ("neighbors",)}
    return Stage("recall", ("order", "search", search.TRUTH), {"target": target}, run, opens=opens)


def run_recall(context: Context, target: float) -> dict[str, Any]:
    truth = search.Truth(read_array(context.of(search.TRUTH, "ids")), read_array(context.of(search.TRUTH, "neighbors")))
    ordered, k = Ordered.open(context.of("order")), truth.neighbors.shape[1]
    found = search.share_found(truth, context.of("search"), ordered, k)
    said = context.results(search.TRUTH)
    searched: dict[str, Any] = {name: said[name] for name in ("algorithm", "why", "forced") if name in said}
    if searched.get("algorithm") in search.LINKED:
        searched["recall_of_new_rows"] = context.results("search")["recall_of_new_rows"]
    if context.results("search").get("kept_short"):
        searched |= {"forced": True, "why": f"{said['why']}; {said['lacks']}"}
    advice = "" if found.recall >= target else _advice(context)
    return {
        "recall": found.recall,
        "standard_error": found.standard_error,
        "target": target,
        "rows": found.rows,
        "advice": advice,
        **searched,
    }


def _advice(context: Context) -> str:
    """What to do where the target was missed."""
    if (decided := context.results(search.TRUTH)).get("forced"):
        return (
            f"{decided['why']}. Give workers more memory, or what tasks exchange a larger disk (bigembed plan says "
            "what it takes); reduce the dimension first (PCA), or lower the target"
        )
    searched, listed = context.results("search"), len(read_array(context.of(search.TRUTH, "recall_by_probes")))
    probed = searched["n_probes"]
    done = f"{probed} cells were searched for each row; all {listed} on a shortlist would find hardly more"
    if searched.get("algorithm") == search.NN_DESCENT:
        done = f"NN-descent made {searched['rounds']} rounds with lists of up to {searched['list_length']} rows"
        if searched.get("kept_short"):
            return f"{done}; {decided['lacks']}. Give what tasks exchange a larger disk, or lower the target"
    if decided.get("algorithm") == search.GIVEN_LISTS:
        return "The lists that were given hold no more true neighbors: give longer ones, or leave them out"
    if decided.get("algorithm") == search.PYNNDESCENT:
        done = "pynndescent found no more: give it more iterations and trees (algorithm_params), or take 'nn-descent'"
    return (
        f"{done}. Such data have no near neighbors to speak of (high intrinsic dimension): reduce the dimension first "
        "(PCA), or lower the target"
    )
