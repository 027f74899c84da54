"""Graphs that are given, as edges or as distances: checked, brought into an order, and new rows of theirs.

Their stages are here: no rows, one block in the order of the input, or several of near nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np

from bigembed.distance.metrics import MetricName
from bigembed.errors import InputError
from bigembed.neighbors.given.edges import EDGE, MERGED_BYTES, PER_FILE, merge, scatter, spans
from bigembed.neighbors.given.order import DENSER, EDGES, line_stage, order_arrays
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, graph_arrays, senders_of, write_block
from bigembed.neighbors.survey import Shape
from bigembed.rows.graph_source import GraphSource
from bigembed.runtime.blocks import Array, bounds, by_owner, map_blocks
from bigembed.runtime.parameters import one_of
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, largest
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.spaces import StoredSpace

GIVEN = "precomputed"
"""The metric of distances that are given."""
GraphMetric = MetricName | Annotated[str, one_of(GIVEN)]
"""What a method on graphs takes for its metric."""


def is_given(metric: Any) -> bool:
    """Whether a metric says that distances are given."""
    return isinstance(metric, str) and metric == GIVEN


def described(shape: Shape) -> dict[str, Any]:
    """What a graph says of the rows that it was made of."""
    return {"n": shape.n, "d": shape.d, "dtype": shape.dtype, "metric": shape.metric}


def order_stage(shape: Shape, rule: Mapping[str, Any], block: int | None = None) -> Stage:
    """The order of the input, in blocks (of the rows of the shape, if not said otherwise)."""

    return Stage(
        "order",
        ("survey",),
        rule,
        partial(run_order, shape=shape, rule=rule, block=block),
        Cost.of(writes=order_arrays(shape.n)),
    )


def run_order(context: Context, shape: Shape, rule: Mapping[str, Any], block: int | None) -> dict[str, Any]:
    spans = bounds(shape.n, block or shape.block)
    write_array(context.path("blocks"), np.arange(len(spans)))
    write_array(context.path("starts"), np.array([0, *(stop for _, stop in spans)], np.int64))
    for b, (start, stop) in enumerate(spans):
        write_array(context.path(f"ids/{b}"), np.arange(start, stop))
    return {"blocks": len(spans), **rule}


def edge_cost(source: GraphSource, writes: Arrays) -> Cost:
    """Of the stage that reads a user's edges, exchanges and merges them."""
    edges, block = source.entries, min(source.block, source.n)
    in_block = min(edges, -(-edges // source.n) * block)
    merged = [ArraySpec("edges of a block", in_block, MERGED_BYTES, "u1")]
    return Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=writes,
        leaves=[ArraySpec("edges and those turned round", edges, EDGE.itemsize, "u1", 2)],
        task=largest(merged, [ArraySpec("edges of a file", min(edges, 2 * PER_FILE), 25)]),
        passes=1,
        scalar_ops=4 * edges,
        maps=4,
    )


def merged_arrays(source: GraphSource, values: str, reach: bool = False) -> Arrays:
    """Declare what the blocks of a user's graph write; ``reach``: with how far each node lists others."""
    found = [*graph_arrays(source.n, 2 * source.entries + source.n, values, "f8")]
    return [*found, ArraySpec("reach/*", source.n), ArraySpec("last/*", source.n, dtype="i8")] if reach else found


def mean_neighbors(source: GraphSource) -> int:
    """Edges that a node lists on average, loops and repeated ones counted: before they are read, for a plan."""
    return max(1, -(-source.entries // source.n))


def neighbors_of(listed: Array) -> int:
    """k of a graph of which ``listed[m]`` nodes list m others: what most nodes list, as they do in lists of k neighbors
    of any format; where no number is that of most, the mean one.

    >>> neighbors_of(np.array([0, 1, 0, 4])), neighbors_of(np.array([0, 2, 1, 1]))
    (3, 2)
    """
    nodes, usual = int(listed.sum()), int(np.argmax(listed))
    k = usual if 2 * int(listed[usual]) > nodes else -(-int(listed @ np.arange(len(listed))) // nodes)
    return max(1, min(k, nodes - 1))


def edge_shape(source: GraphSource) -> Shape:
    """What stands for rows: nodes."""
    return Shape(source.n, source.n, "float64", GIVEN, most=source.block)


def edge_graph_stages(source: GraphSource, survey: Stage | None = None) -> list[Stage]:
    """From edges with distances to the symmetric graph, with the scale of each node: the squared distance to its k-th
    neighbor, k by :func:`neighbors_of`.

    ``survey``: the stage that finds the edges, where they are not known before.
    """
    if source.values != "distances":
        raise InputError(
            "this graph has weights, and lengths of edges are needed. Open distances (values='distances'), or give the "
            "weights to a method that walks on them, such as DiffusionMap"
        )
    shape, rule = edge_shape(source), {"n_neighbors": source.listed or mean_neighbors(source), "radius": None}
    rule |= source.joins or {}
    lists, known, about = rule["radius"] is None, survey is None, described(shape)
    first = survey or Stage(
        "survey", (), {"source": source.fingerprint(), "metric": GIVEN}, partial(run_known, found=about)
    )

    parameters = source.rules() | ({"source": source.fingerprint()} if known else {})
    merged = merged_arrays(source, "squared", reach=known)
    k = rule["n_neighbors"]
    scales = [ArraySpec("nearest/*", source.n, k), ArraySpec("rho_squared/*", source.n)] if lists else []
    if source.n <= source.block:
        order, cost = order_stage(shape, rule, spans(source)[1]), edge_cost(source, [*merged, *scales])
        whole = partial(run_whole_graph, source=source, known=known, lists=lists, rule=rule)
        return [first, order, Stage("graph", ("survey", "order"), parameters, whole, cost)]
    join = partial(run_joined_edges, source=source, known=known, lists=lists, rule=rule)
    edges = Stage(EDGES, ("survey",), parameters, join, edge_cost(source, merged))
    size = source.n, 2 * source.entries, source.block
    return [first, *ordered_stages(edges, "graph", "squared", size, rule, scaled if lists else None, scales)]


def run_known(context: Context, found: dict[str, Any]) -> dict[str, Any]:
    """Results that nothing need be computed for."""
    return dict(found)


def run_whole_graph(
    context: Context, source: GraphSource, known: bool, lists: bool, rule: dict[str, Any]
) -> dict[str, Any]:
    """The graph of one block: in the order of the input."""
    joined = run_joined_edges(context, source, known, lists, rule)
    return scaled(context, joined) if lists else joined


def run_joined_edges(
    context: Context, source: GraphSource, known: bool, lists: bool, rule: dict[str, Any]
) -> dict[str, Any]:
    """The edges merged by blocks, in the order of the input."""
    there = source if known else source.found(context.of("survey"))
    found = scatter(context, there)
    alone = source.joins is not None
    counted = merge(context, there, found, "squared", alone=alone, reach=known)  # (else the survey writes it)
    k = neighbors_of(counted["listed"])
    context.note(f"{counted['edges']:,} edges of {source.n:,} nodes are joined; {found.loops:,} loops left out")
    kept = {name: counted[name] for name in ("blocks", "edges", "halo_rows", "zero_edges")}
    kept |= {"reach": len(found.senders)} if known else {}
    return kept | {"n_neighbors": k if lists else None, "radius": rule["radius"], "loops": found.loops}


def scaled(context: Context, joined: dict[str, Any]) -> dict[str, Any]:
    """Write how far the nearest neighbors of the nodes of all blocks are; adds to the results of the stage."""
    blocks = [(b,) for b in range(joined["blocks"])]
    map_blocks(scales_block, blocks, k=joined["n_neighbors"], out=context.path(""))
    return joined | {"scales": True}


def scales_block(b: int, *, k: int, out: str) -> None:
    """Squared distances to the k nearest neighbors of each node, ``nearest`` (rows, k), and to the last of them.

    A node with fewer neighbors has its farthest one several times.
    """
    squared, indptr = read_array(f"{out}squared/{b}"), read_array(f"{out}indptr/{b}")
    nearest = nearest_of(squared, indptr, k)
    write_array(f"{out}nearest/{b}", nearest)
    write_array(f"{out}rho_squared/{b}", nearest[:, -1])


def nearest_of(squared: Array, indptr: Array, k: int) -> Array:
    """The k smallest values of each row of a CSR block besides one 0, that of its diagonal; (rows, k), ascending.

    >>> nearest_of(np.array([0.0, 4.0, 1.0, 0.0, 4.0]), np.array([0, 3, 5]), 2).tolist()
    [[1.0, 4.0], [4.0, 4.0]]
    """
    counts = np.diff(indptr)
    row = np.repeat(np.arange(len(counts)), counts)
    ascending = squared[np.lexsort((squared, row))]
    place = 1 + np.minimum(np.arange(k), counts[:, None] - 2)
    return np.asarray(ascending[indptr[:-1, None] + place])


# --------------------------------------------------------------------------------------------------------- reordered
# The graph in the order of its nodes: stages, and the edges on their way there.

MOVED = "moved"

Finish = Callable[[Context, dict[str, Any]], dict[str, Any]]


def ordered_stages(
    edges: Stage,
    name: str,
    values: str,
    shape: tuple[int, int, int],
    rule: Mapping[str, Any],
    finish: Finish | None = None,
    finished: Arrays = (),
) -> list[Stage]:
    """The stage ``edges``, the order of its nodes, and the stage of this ``name``: the same graph in that order.

    ``values`` of it are weights ("given") or squared lengths ("squared"); ``shape`` are its nodes, its entries, and how
    many nodes a block holds at most. ``rule`` is among the results of the order, as it is where there is one block.
    ``finish`` writes what else there is by blocks (``finished``), and adds to the results.
    """
    n, entries, block = shape

    order = line_stage(n, entries, block, values, rule, edges.inputs)
    return [
        edges,
        order,
        Stage(
            name,
            (*edges.inputs, EDGES, "order"),
            {},
            partial(run_ordered, values=values, finish=finish),
            reorder_cost(n, entries, block, [*graph_arrays(n, entries + n, values, "f8"), *finished]),
        ),
    ]


def run_ordered(context: Context, values: str, finish: Finish | None) -> dict[str, Any]:
    found = reordered(context, values)
    joined = context.results(EDGES) | {key: found[key] for key in ("blocks", "halo_rows", "inside")}
    return finish(context, joined) if finish else joined


def reordered(context: Context, values: str) -> dict[str, Any]:
    """All blocks of the graph of the stage ``edges`` in the order of the stage ``order``.

    What they count, and the share of the edges that are ``inside`` a block.
    """
    matrix, exchange = context.home.matrix(EDGES, values), context.exchange
    starts = read_array(context.of("order", "starts")).tolist()
    space = StoredSpace(matrix, exchange)
    space.sweep(placed_block, writes=["place"], posts=["place"], arguments=(context.of("order", "places"),))
    sent = space.sweep(moved_block, reads=["place"], halos=["place"], arguments=(matrix, starts, exchange))
    senders = senders_of(sent, len(starts) - 1)
    shared: dict[str, Any] = {"exchange": exchange, "out": context.path(""), "name": values}
    found = map_blocks(arrived_block, list(enumerate(senders)), starts=starts, **shared)
    inside, joined = (sum(part[name] for part in found) for name in ("inside", "joined"))
    return finish_graph(context, found, starts) | {"inside": inside / max(1, joined)}


def reorder_cost(n: int, entries: int, block: int, writes: Arrays) -> Cost:
    """Of a stage that brings a graph into its order."""
    return Cost.of(
        reads=[ArraySpec("edges", entries, 2)],
        writes=writes,
        leaves=[ArraySpec("edges on their way", entries, 7, "f4")],
        task=[ArraySpec("edges", DENSER * -(-entries // n) * block, 20)],
        scalar_ops=4 * entries,
        maps=4,
    )


def placed_block(b: int, places: str) -> tuple[tuple[Array], None]:
    """Where the nodes of a block of the input go."""
    return (read_array(f"{places}/{b}")[:, None],), None


def moved_block(
    b: int, own: Array, halo: Array, matrix: StoredMatrix, starts: Sequence[int], exchange: Exchange
) -> tuple[tuple[()], list[int]]:
    """Leave the entries of a block of the input with the blocks that their rows are in. Returns those blocks."""
    block = matrix.block(b)
    row = np.repeat(own[:, 0], np.diff(block.indptr))
    column = np.concatenate([own[:, 0], halo[:, 0]])[block.indices]
    pieces: dict[str, Array] = {}
    receivers = []
    for receiver, at, inside in by_owner(starts, row):
        parts = {"row": inside.astype(np.int32), "column": column[at], "value": block.data[at]}
        pieces |= {f"{name}{receiver}": part for name, part in parts.items()}
        receivers.append(receiver)
    exchange.put(MOVED, b, pieces)
    return (), receivers


def arrived_block(
    b: int, senders: list[int], *, starts: Sequence[int], exchange: Exchange, out: str, name: str
) -> dict[str, Any]:
    """Write one block of the graph, of the entries that came for it."""
    found = [exchange.get_many(MOVED, sender, [f"row{b}", f"column{b}", f"value{b}"]) for sender in senders]
    row, column, value = (np.concatenate(part) for part in zip(*found, strict=True))
    del found
    block = csr_block(b, row, column, value, starts)
    rows = starts[b + 1] - starts[b]
    apart = block.indices != block.row
    counts = {"inside": apart & (block.indices < rows), "joined": apart}
    written = write_block(b, block, starts, exchange, out, name)
    return written | {key: int(np.count_nonzero(c)) for key, c in counts.items()}
