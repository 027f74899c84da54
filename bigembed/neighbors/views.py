"""Two views of the same rows: some columns of each row, and the others. Their graphs over the same blocks.

Each view has a graph of its own, in an order of its own, in which near rows of that view are near: that of the first
is the order of the run, and the stages of the second stand under a prefix (:data:`SECOND`). What a method makes of the
edges of each is then joined over the blocks of the first: the edges that either view has, with a weight of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.neighbors.components import find_components
from bigembed.neighbors.graph_blocks import REPEATS, concatenated, finish_graph, graph_arrays, repeats_in, senders_of
from bigembed.neighbors.order import Ordered
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.derived import MappedSource
from bigembed.runtime.blocks import Array, bounds, map_blocks, owner_of
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store import arrays, spaces, vector_space
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, StoredMatrix, halo_of, write_structure, write_values
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, send

SECOND = "second-"
"""Before the names of the stages of the second view."""
VIEWS = "views"
"""The stage of the edges that either view has, over the blocks of the first, with weights ``first/b``, ``second/b``."""
APART = "apart"
"""Its array that is 0 where rows are equal in both views (or in the first, where that alone is of them), and on the
diagonal."""
MAPPED_IDS = {VIEWS: ("ids", "starts")}
"""What a query of new rows reads of that stage: numbers in the first order of the rows of the second, by its blocks."""

# ------------------------------------------------------------------------------------------------------------ rows


def view_of(source: RowSource, first: int, last: int) -> RowSource:
    """Return the columns ``first:last`` of rows, cut out whenever they are read."""
    shape, stamp = (source.shape[0], last - first), f"columns {first}:{last}"
    cut = partial(columns_block, first=first, last=last)
    base = replace(source, aligned={})
    return MappedSource(shape, source.work, base=base, function=cut, stamp=stamp, named=source.features[first:last])


def columns_block(block: RowBlock, *, first: int, last: int) -> Array:
    """Return some columns of the rows of a block."""
    return np.ascontiguousarray(block.rows[:, first:last])


# ---------------------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class ViewGraph:
    """The graph of a view, with its weights and its squared distances, as tasks open it."""

    weights: StoredMatrix
    squared: StoredMatrix
    order: str

    @classmethod
    def of(cls, context: Context, weighs: str, prefix: str = "") -> ViewGraph:
        """Return the graph of a view, whose edges the stage ``weighs`` has weighed."""
        weights, squared = (
            context.home.matrix(f"{prefix}graph", values, stage)
            for values, stage in (("weights", weighs), ("squared", ""))
        )
        return cls(weights, squared, context.of(f"{prefix}order"))


def numbers_block(b: int, *, order: str, span: int, exchange: Exchange) -> None:
    """Tell each span of the input where the rows of one block of a graph lie in it, and their numbers in the graph."""
    ordered = Ordered.open(order)
    ids = ordered.ids(b)
    place, receivers = by_receiver(ids // span, -(-ordered.starts[-1] // span))
    columns = {"at": ids[place] % span, "number": place + ordered.starts[b]}
    send(exchange, "numbers", b, {name: (column, receivers) for name, column in columns.items()})


def translate_block(
    number: int, size: int, *, first: Delivery, second: Delivery, starts: Sequence[int], exchange: Exchange
) -> None:
    """Tell the blocks of the second graph what the rows of a span of the input are in the first one."""
    here, there = first.to(number), second.to(number)
    numbers = np.empty(size, np.int64)
    numbers[here["at"]] = here["number"]
    owner = owner_of(starts, there["number"])
    place, receivers = by_receiver(owner, len(starts) - 1)
    at = (there["number"] - np.asarray(starts)[owner])[place]
    columns = {"at": at, "number": numbers[there["at"]][place]}
    send(exchange, "translated", number, {name: (column, receivers) for name, column in columns.items()})


def ids_block(b: int, translated: Delivery, out: str) -> tuple[tuple[Array], None]:
    """Return, and write, what the rows of a block of the second graph are in the first one, (rows, 1)."""
    found = translated.to(b)
    numbers = np.empty(len(found["at"]), np.int64)
    numbers[found["at"]] = found["number"]
    arrays.write_array(f"{out}ids/{b}", numbers)
    return (numbers[:, None],), None


def leave_edges_block(
    b: int, own: Array, halo: Array, graph: ViewGraph, starts: Sequence[int], exchange: Exchange
) -> tuple[tuple[()], list[int]]:
    """Leave the edges of a block of the second graph with the blocks of the first one; which ones these are."""
    block, squared = graph.weights.block(b), graph.squared.block(b).data
    kept = np.flatnonzero((block.data > 0) & (block.indices != block.row))
    both = np.concatenate([own, halo])[:, 0]
    row = both[block.row[kept]]
    owner = owner_of(starts, row)
    place, edges = by_receiver(owner, len(starts) - 1)
    number = row * int(starts[-1]) + both[block.indices[kept]]
    given = {"number": number, "weight": block.data[kept], "squared": squared[kept]}
    pieces: dict[str, Array] = {}
    for block_of in np.unique(owner).tolist():
        mine = place[edges[block_of] : edges[block_of + 1]]
        pieces |= {f"{name}{block_of}": values[mine] for name, values in given.items()}
    exchange.put("edges", b, pieces)
    return (), np.unique(owner).tolist()


def merged_block(
    b: int, numbers: list[Array], parts: list[Any], starts: Sequence[int], views: int = 2
) -> tuple[CSRBlock, Array, Array]:
    """Return the edges that either view has in a block: structure with the first weights, the second ones, and APART.

    ``numbers``: of each view its edges as row · n + column, without the diagonal. ``parts``: their weights and squared
    lengths; both lists are emptied. An edge of weight 0 is none. The diagonal is stored, with the weights 0. ``views``:
    of the rows, 1 where only the first of both is, and says which rows are equal.
    """
    n, low = int(starts[-1]), int(starts[b])
    rows = int(starts[b + 1]) - low
    own = np.arange(low, low + rows, dtype=np.int64)
    ends = np.cumsum([rows, *(len(part) for part in numbers)])
    every = np.concatenate([own * n + own, *numbers])
    numbers.clear()
    order = np.argsort(every, kind="stable")
    every = every[order]
    fresh = np.append(True, every[1:] != every[:-1])
    found, place = every[fresh], np.cumsum(fresh, dtype=np.int32) - np.int32(1)
    del every, fresh, own
    weights, zero = np.zeros((2, len(found)), np.float32), np.zeros(len(found), np.uint8)
    for view in range(len(parts)):
        weight, squared = parts.pop(0)
        of_view = (order >= ends[view]) & (order < ends[view + 1])
        which, at = order[of_view], place[of_view]
        which -= ends[view]
        weights[view, at] = weight[which]
        zero[at] += (squared[which] == 0) & (view < views)
    zero[place[order < rows]] = views
    del place, order, which, at, of_view, weight, squared
    row, column = (found // n - low).astype(np.int32), found
    column %= n
    inside = (column >= low) & (column < low + rows)
    far = np.unique(column[~inside])
    local = np.where(inside, column - low, rows + np.searchsorted(far, column)).astype(np.int32)
    del found, column
    order = np.argsort(2 * row + ~inside, kind="stable")  # (of one row its own block comes first; both ascend)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)
    del row, inside
    block = CSRBlock(indptr, local[order], weights[0, order], *halo_of(starts, far))
    return block, weights[1, order], (zero[order] < views).astype(np.uint8)


def own_edges(b: int, graph: ViewGraph, starts: Sequence[int]) -> tuple[Array, Array, Array]:
    """Return the edges of a block of the first graph, as row · n + column, their weights and squared lengths."""
    block, squared = graph.weights.block(b), graph.squared.block(b).data
    kept = np.flatnonzero((block.data > 0) & (block.indices != block.row))
    ids = block.ids(b, starts)
    number = ids[block.indices[kept]]
    number += ids[block.row[kept]] * int(starts[-1])
    return number, block.data[kept], squared[kept]


def join_block(
    b: int, senders: list[int], *, graph: ViewGraph, starts: Sequence[int], exchange: Exchange, out: str, views: int
) -> dict[str, Any]:
    """Write a block of the edges that either view has, and ask other blocks for its halo; how many edges there are."""
    names = ("number", "weight", "squared")
    left: list[list[Array]] = [[np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32)]]
    left += [exchange.get_many("edges", sender, [f"{name}{b}" for name in names]) for sender in senders]
    others, *theirs = concatenated(left)
    number, *mine = own_edges(b, graph, starts)
    numbers, parts = [number, others], [mine, theirs]
    first, spread = len(number), np.array([np.sum(part[1], dtype=np.float64) for part in parts])
    del number, others, mine, theirs
    made, second, apart = merged_block(b, numbers, parts, starts, views)
    write_structure(out, b, made)
    for name, values in (("first", made.data), ("second", second), (APART, apart)):
        write_values(f"{out}{name}", b, values)
    arrays.write_array(f"{out}{REPEATS}/{b}", repeats_in(b, replace(made, data=apart), starts))
    exchange.put("wanted", b, {str(source): rows for source, rows in made.segments()})
    rows = len(made.indptr) - 1
    return {
        "edges": len(made.data) - rows,
        "halo_rows": len(made.halo_rows),
        "zero_edges": int(np.count_nonzero(apart == 0)) - rows,
        "isolated": int(np.count_nonzero(np.diff(made.indptr) == 1)),
        "halo_of": made.halo_sources.tolist(),
        "spread": spread,
        "first": first,
        "second": int(np.count_nonzero(second)),
        "shared": int(np.count_nonzero((made.data > 0) & (second > 0))),
    }


# ----------------------------------------------------------------------------------------------------------- stage


def views_stage(
    n: int, blocks: tuple[int, int], edges: tuple[int, int], weighs: tuple[str, str], prefix: str = SECOND
) -> Stage:
    """``views``: the edges that either view has, over the blocks of the first, with the weights of both.

    Its results say, too, how many edges both have, the mean squared length of those of each view (``spread``), and of
    how many parts each graph is. ``blocks``: rows of a block of each view; ``edges``: entries of each graph;
    ``weighs``: the stages of their weights; ``prefix`` of the stages of the second view: another one than of views
    says that it is none of the rows, and that these are equal where they are so in the first.
    """
    entries, block = sum(edges) + n, min(max(blocks), n)
    plain = graph_arrays(n, entries, "first", "f4")
    cost = Cost.of(
        reads=[ArraySpec("edges, weights and lengths", sum(edges), 3, "f4", 2)],
        writes=[
            *plain,
            ArraySpec("second/*", entries, dtype="f4"),
            ArraySpec(f"{APART}/*", entries, dtype="u1"),
            ArraySpec(f"{REPEATS}/*", 0, 2, "i8"),
            ArraySpec("ids/*", n, dtype="i8"),
        ],
        leaves=[ArraySpec("edges of the second view", edges[1], 2), ArraySpec("numbers of rows", n, 8)],
        task=[ArraySpec("edges", -(-entries // n) * block, 60, "u1")],  # (measured: 52 to 56)
        passes=3,
        scalar_ops=15 * entries,
        maps=16,
    )
    inputs = tuple(f"{view}{name}" for view in ("", prefix) for name in ("order", "graph"))
    run = partial(run_views, span=block, weighs=weighs, prefix=prefix)
    return Stage(VIEWS, (*inputs, *weighs), {}, run, cost)


def run_views(context: Context, span: int, weighs: tuple[str, str], prefix: str) -> dict[str, Any]:
    first, second = ViewGraph.of(context, weighs[0]), ViewGraph.of(context, weighs[1], prefix)
    orders = [Ordered.open(graph.order) for graph in (first, second)]
    starts, theirs = (ordered.starts for ordered in orders)
    exchange, out, n = context.exchange, context.path(""), starts[-1]
    told = []
    for name, graph, ordered in zip(("first", "second"), (first, second), orders, strict=True):
        own = Exchange(f"{exchange.root}/{name}")
        blocks = [(b,) for b in range(len(ordered.blocks))]
        map_blocks(numbers_block, blocks, order=graph.order, span=span, exchange=own)
        told.append(merge_parcels(own, "numbers", len(blocks)))
    spans = [(number, stop - start) for number, (start, stop) in enumerate(bounds(n, span))]
    map_blocks(translate_block, spans, first=told[0], second=told[1], starts=theirs, exchange=exchange)
    translated = merge_parcels(exchange, "translated", len(spans))
    space = spaces.StoredSpace(second.weights, exchange)
    space.sweep(ids_block, writes=["ids"], posts=["ids"], arguments=(translated, out))
    sent = space.sweep(leave_edges_block, reads=["ids"], halos=["ids"], arguments=(second, starts, exchange))
    tasks = list(enumerate(senders_of(sent, len(starts) - 1)))
    views = 2 if prefix == SECOND else 1
    found = map_blocks(join_block, tasks, graph=first, starts=starts, exchange=exchange, out=out, views=views)
    counted: dict[str, Any] = finish_graph(context, found, list(starts))
    counted |= {name: sum(part[name] for part in found) for name in ("first", "second", "shared")}
    spread = vector_space.tree_sum([part["spread"] for part in found]) / np.maximum(
        1, [counted["first"], counted["second"]]
    )
    rows = tuple(int(size) for size in np.diff(starts))
    version = " ".join([first.weights.version, first.squared.version, second.weights.version, second.squared.version])
    merged = StoredMatrix(out.rstrip("/"), f"{out}first", rows, version)
    parts = {
        name: find_components(matrix, Exchange(f"{exchange.root}/parts/{name}"), f"{exchange.root}/parts/{name}/")
        for name, matrix in (("both", merged), ("first", first.squared), ("second", second.squared))
    }
    return counted | {
        "n": n,
        "rows": list(rows),
        "spread": spread.tolist(),
        "parts": {name: {key: part[key] for key in ("components", "sizes")} for name, part in parts.items()},
    }


# ------------------------------------------------------------------------------------------------------- judgement

CHANCE, ERRORS = 2.0, 3.0
"""Edges of both views, in units of those that chance gives, and standard errors of these, up to which the views have
nothing in common."""


def shared_by_chance(found: dict[str, Any]) -> float:
    """Return how many edges both views would have if one did not know of the other."""
    n = int(found["n"])
    return float(found["first"]) * float(found["second"]) / float(max(1, n * (n - 1)))


def views_figures(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a certificate says of two views, from the results of ``views``."""
    return {
        "edges": [found["first"], found["second"]],
        "shared": found["shared"],
        "shared_by_chance": shared_by_chance(found),
        **{f"parts_of_{name}": part["components"] for name, part in found["parts"].items()},
    }


def unrelated_views(found: dict[str, Any]) -> list[str]:
    """Say of the results of ``views`` that rows near in one view are not near in the other; nothing where they are.

    >>> common = {"n": 1000, "first": 20_000, "second": 20_000, "shared": 3000}
    >>> unrelated_views(common), unrelated_views(common | {"shared": 420})[0][:39]
    ([], '420 of 20,000 neighbors in the first vi')
    """
    chance = shared_by_chance(found)
    if found["first"] == found["n"] * (found["n"] - 1) or found["shared"] > CHANCE * chance + ERRORS * np.sqrt(chance):
        return []
    return [
        f"{found['shared']:,} of {found['first']:,} neighbors in the first view are neighbors in the second one, too, "
        f"and by chance {chance:,.0f} would be: the views have nothing in common that a map could show. See whether "
        "the rows of both are in the same order, and whether view_columns is where the second view begins"
    ]


def parted_views(found: dict[str, Any], least: int) -> list[str]:
    """Say of the results of ``views`` that the graph of one view falls apart where the other one joins it.

    ``least``: rows of a part that counts.
    """

    def large(name: str) -> list[int]:
        return [size for size in found["parts"][name]["sizes"] if size >= least]

    said = []
    for name, other in (("first", "second"), ("second", "first")):
        sizes = large(name)
        if len(sizes) > len(large("both")):
            shown = ", ".join(f"{size:,}" for size in sizes[:10]) + (", …" if len(sizes) > 10 else "")
            said.append(
                f"in the {name} view the rows fall into {len(sizes)} parts that no neighbors join, of {shown} rows, "
                f"and only the {other} view joins them: how these parts lie to each other on the map is of that view "
                "alone. Take more neighbors, so that the parts join in both"
            )
    return said
