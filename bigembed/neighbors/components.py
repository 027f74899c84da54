"""Connected components of a stored graph: found, bridged by their shortest edges, and the nearest rows of those with
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bigembed.distance import paired_squared
from bigembed.neighbors import about_mean, approximate_squared, approximate_to, empty_lists, update_lists
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, graph_arrays, write_block
from bigembed.neighbors.order import CellReader, Ordered
from bigembed.neighbors.search.by_metric import ByMetric, Cells, search_cells
from bigembed.neighbors.search.every_block import StoredCells
from bigembed.neighbors.search.ground_truth import EXACT_ROWS
from bigembed.neighbors.search.probes import Probing, group_probes, nearest_centers
from bigembed.neighbors.survey import compared_of
from bigembed.runtime.blocks import Array, map_blocks, offsets, owner_of
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import COMPILED, BlockMatrix, CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace

# ------------------------------------------------------------------------------------------------------- connected
# Connected components of a sparse matrix stored by row blocks: one walk over its edges.
#
# Each block finds the components of its edges; edges between blocks then link these, and only the links (pairs of
# component names) come together in one process.

MAX_LISTED = 1_000
RESOLVED = 1e-10
"""An edge joins two rows if W_ij/√(d_i d_j) is above it: a weaker one moves an eigenvalue by less than is resolved."""


def component_arrays(n: int) -> Arrays:
    """Declare what :func:`find_components` writes."""
    few = [ArraySpec("component_names", 0, dtype="i8"), ArraySpec("component_ranks", 0, dtype="i4")]
    return [ArraySpec("labels/*", n, dtype="i4"), *few]


def find_components(matrix: BlockMatrix, exchange: Exchange, out: str, *, degree: str = "") -> dict[str, Any]:
    """Write ``labels/b`` (int32, 0 is the largest component, ties by smallest row) and return count and sizes.

    ``degree`` says where the row sums of weights lie: an edge then joins if its weight is above :data:`RESOLVED` of
    them. Without it the matrix holds distances, and every edge joins.
    """
    space = StoredSpace(matrix, exchange)
    starts = offsets(matrix.rows)
    space.sweep(least_block, writes=["least"], posts=["least"], arguments=(matrix, degree))
    found = space.sweep(
        local_components_block, reads=["least"], writes=["label"], posts=["label"], arguments=(matrix, starts)
    )
    names_of = ["label", "least"]
    links = space.sweep(links_block, reads=names_of, halos=names_of, arguments=(matrix,))
    names = np.concatenate([part[0] for part in found])
    sizes = np.concatenate([part[1] for part in found])
    pairs = np.unique(np.concatenate(links), axis=0)
    ends = np.searchsorted(names, pairs)
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(len(names), len(names)))
    count, member = connected_components(graph, directed=False)
    totals = np.bincount(member, weights=sizes, minlength=count).astype(np.int64)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, member, names)
    rank = np.empty(count, np.int64)
    rank[np.lexsort((first, -totals))] = np.arange(count)
    write_array(f"{out}component_names", names)
    write_array(f"{out}component_ranks", rank[member].astype(np.int32))
    space.sweep(label_block, reads=["label"], arguments=(out,))
    sizes_by_rank = np.sort(totals)[::-1]
    return {"components": int(count), "sizes": sizes_by_rank[:MAX_LISTED].tolist(), "rows": int(starts[-1])}


def least_block(b: int, matrix: BlockMatrix, degree: str) -> tuple[tuple[Array], None]:
    """√(RESOLVED d) of each row, (rows, 1): the product of two is the least weight that joins; −1 for distances."""
    if not degree:
        return (np.full((matrix.rows[b], 1), -1.0),), None
    return (np.sqrt(RESOLVED * read_array(f"{degree}/{b}"))[:, None],), None


def local_components_block(
    b: int, least: Array, matrix: BlockMatrix, starts: Array
) -> tuple[tuple[Array], tuple[Array, Array]]:
    """Name each row by the smallest global id of its component within the block; names and their sizes."""
    block = matrix.block(b)
    if len(block.data) < COMPILED:
        first = first_joined(block, least)
    else:
        from bigembed.neighbors import compiled as compiled_components

        first = np.empty(len(least), np.int64)
        compiled_components.first_joined(*_edges(block), _column(least), first)
    sizes = np.bincount(first)
    names = np.flatnonzero(sizes)
    return ((first + starts[b])[:, None],), (names + starts[b], sizes[names])


def first_joined(block: CSRBlock, least: Array) -> Array:
    """The first row of the component of each row, by the edges within a small block."""
    rows, row = len(least), block.row
    inside = block.indices < row  # (of a symmetric matrix; those to later rows are the same)
    row, column = row[inside], block.indices[inside]
    joins = joining(block.data[inside], least[row, 0], least[column, 0])
    graph = coo_array((joins[joins], (row[joins], column[joins])), shape=(rows, rows))
    count, member = connected_components(graph, directed=False)
    first = np.full(count, rows)
    np.minimum.at(first, member, np.arange(rows))
    return first[member]


def joining(data: Array, own: Array, other: Array) -> Array:
    """Whether each edge joins its rows, with what is given of both."""
    return np.ones(len(data), bool) if len(own) and own[0] < 0 else np.asarray(data > own * other)


def links_block(
    b: int, label: Array, least: Array, halo: Array, halo_least: Array, matrix: BlockMatrix
) -> tuple[tuple[()], Array]:
    """Distinct pairs of names joined by an edge that leaves the block."""
    if not len(halo):
        return (), np.zeros((0, 2), np.int64)
    block = matrix.block(b)
    if len(block.data) < COMPILED:
        far = block.indices >= len(least)
        row, other = block.row[far], block.indices[far] - len(least)
        joins = joining(block.data[far], least[row, 0], halo_least[other, 0])
        return (), np.unique(np.column_stack([label[row[joins], 0], halo[other[joins], 0]]), axis=0)
    from bigembed.neighbors import compiled as compiled_components

    edges = _edges(block)
    ends = np.empty((2, np.count_nonzero(edges[1] >= len(least))), np.int64)
    given = (_column(each) for each in (least, halo_least, label, halo))
    count = compiled_components.links(*edges, *given, *ends)
    return (), np.unique(ends[:, :count].T, axis=0)


def _edges(block: CSRBlock) -> tuple[Array, Array, Array]:
    return block.indptr.astype(np.int64, copy=False), block.indices, block.data


def _column(values: Array) -> Array:
    return np.ascontiguousarray(values[:, 0])


def label_block(b: int, label: Array, out: str) -> tuple[tuple[()], None]:
    """Translate names into component numbers."""
    names, ranks = read_array(f"{out}component_names"), read_array(f"{out}component_ranks")
    write_array(f"{out}labels/{b}", ranks[np.searchsorted(names, label[:, 0])])
    return (), None


# ------------------------------------------------------------------------------------------------ nearest embedded
# The nearest row of the components that are embedded, for rows outside them.

_NEAREST_CELLS = 16
_TILE = 256


def nearest_embedded(
    ordered: Ordered,
    labels: str,
    given: Any,
    block: Array,
    cell: Array,
    parts: int = 1,
    by: ByMetric | None = None,
    embedded: Array | None = None,
) -> Array:
    """Internal id of the nearest row of the first ``parts`` components, for rows (n, d) in cells ``cell`` of ``block``.

    Searched exactly in the 16 cells nearest to their own (by center) that hold such rows;
    among equally near ones the lowest id. ``embedded``: which cells hold some (:func:`embedded_block` of all blocks),
    where many ask; else the labels of all rows are read.
    """
    cells, rows = StoredCells(ordered), compared_of(given)
    if embedded is None:
        blocks = range(len(ordered.blocks))
        embedded = np.concatenate([embedded_block(b, ordered=ordered, labels=labels, parts=parts) for b in blocks])
    open_cells = np.flatnonzero(embedded)
    home, of_home = np.unique(cells.block_starts[block] + cell, return_inverse=True)
    probes = _nearest_open(cells.centers, home, open_cells)[of_home]
    probing, nobody = group_probes(probes.astype(np.int32)), np.full(len(cell), -1, np.int64)
    ids, squared = empty_lists(len(nobody), 1, given.dtype)
    few = ordered.starts[-1] <= EXACT_ROWS  # compiled only for large n
    search = by.search_cells if by else _search_few if few else search_cells
    for span in cells.spans(probing.cells):
        search(ids, squared, rows, nobody, probing, _only(span.cells, span.read(labels) < parts))
    return ids[:, 0]


def embedded_block(b: int, *, ordered: Ordered, labels: str, parts: int) -> Array:
    """Which cells of block b hold rows of the first ``parts`` components."""
    before = np.concatenate([[0], np.cumsum(read_array(f"{labels}/{b}") < parts)])
    return np.diff(before[ordered.cells(b)[0]]) > 0


def _nearest_open(centers: Array, home: Array, open_cells: Array) -> Array:
    """The open cells (m, 16) whose centers are nearest to those of the cells ``home`` (m,), ties by number."""
    if len(open_cells) <= _NEAREST_CELLS:
        return np.broadcast_to(open_cells, (len(home), len(open_cells)))
    candidates = centers[open_cells]
    parts = [
        nearest_centers(centers[home[start : start + _TILE]], candidates, _NEAREST_CELLS)
        for start in range(0, len(home), _TILE)
    ]
    return np.asarray(open_cells[np.concatenate(parts)])


def _only(cells: Cells, kept: Array) -> Cells:
    """The cells with some of their rows."""
    offsets = np.concatenate([[0], np.cumsum(kept)])[cells.offsets]
    return Cells(cells.numbers, offsets, cells.rows[kept], cells.ids[kept], cells.centers)


def _search_few(ids: Array, squared: Array, rows: Array, row_ids: Array, probing: Probing, piece: Cells) -> None:
    """:func:`~bigembed.neighbors.search.by_metric.search_cells` without compiled code."""
    for c, number in enumerate(piece.numbers.tolist()):
        asking, part = probing.of(number), slice(int(piece.offsets[c]), int(piece.offsets[c + 1]))
        lists = ids[asking], squared[asking]
        if len(asking):
            update_lists(*lists, rows[asking], row_ids[asking], piece.rows[part], piece.ids[part])
            ids[asking], squared[asking] = lists


# ---------------------------------------------------------------------------------------------------------- bridge
# Bridges between the components of a neighbor graph: the shortest edges found, until it is connected.
#
# Borůvka's scheme: in each round every component but the largest is joined to another by the shortest edge found from
# its rows, so the number of components at least halves, and the bridges form a forest over the components. Rows look
# for their nearest row outside in the 16 nearest cells that hold one. Small components may be left as they are: no
# bridge leads to them or through them.

MAX_ROUNDS = 40
ROWS_A_COMPONENT = 2_000
"""Rows of a component (spread over it) that look for a bridge."""
_CELLS = 16
_LABELS = 16
"""Blocks whose labels are kept."""
APART = -1
"""Group of the components that no bridge leads to."""


def bridge_stage(
    n: int,
    n_neighbors: int,
    dtype: Any,
    by: ByMetric | None = None,
    parts: Callable[[dict[str, Any]], int] | None = None,
) -> Stage:
    """The graph with bridges between its components; ``bridges`` lists them (internal row, row, squared length).

    ``dtype``: that of the squared lengths of its edges.

    With ``parts``, which says how many of the components that were found (the largest first) are joined, the others
    stay apart, and a graph of one part is not written again.
    """

    edges = 2 * n * n_neighbors
    return Stage(
        "bridge",
        ("order", "graph"),
        {"rows": ROWS_A_COMPONENT} | ({} if parts is None else {"parts": True}),
        partial(run_bridge, by=by, parts=parts),
        Cost.of(
            reads=[ArraySpec("edges", edges, 2)],
            writes=[*component_arrays(n), *graph_arrays(n, edges, dtype=dtype), ArraySpec("bridges", 0, 3)],
            leaves=[ArraySpec("labels", n)],
            passes=1,
        ),
    )


def run_bridge(context: Context, by: ByMetric | None, parts: Callable[[dict[str, Any]], int] | None) -> dict[str, Any]:
    ordered = Ordered.open(context.of("order"))
    blocks = [(b,) for b in range(len(ordered.blocks))]
    given, out = context.home.matrix("graph"), context.path("")
    found = find_components(given, context.exchange, out)
    joined = found["components"] if parts is None else parts(found)
    if parts is not None and joined == 1:
        return {**found, "bridges": 0, "longest": 0.0, "parts": 1}
    bridges = shortest_bridges(found["components"], joined, ordered, f"{out}labels", by)
    write_array(f"{out}bridges", bridges)
    written = map_blocks(
        bridged_block,
        blocks,
        given=given,
        starts=list(ordered.starts),
        bridges=bridges,
        exchange=context.exchange,
        out=out,
    )
    finish_graph(context, written, ordered.starts)
    longest = float(np.sqrt(bridges[:, 2].max())) if len(bridges) else 0.0
    counted = {"bridges": len(bridges), "longest": longest}
    if parts is not None:
        return {**found, **counted, "parts": joined}
    return {"components": found["components"], "sizes": found["sizes"][:20], **counted}


def shortest_bridges(count: int, wanted: int, ordered: Ordered, labels: str, by: ByMetric | None) -> Array:
    """Edges that join the first ``wanted`` of ``count`` components: (row, row, squared distance)."""
    group: Array = np.where(np.arange(count) < wanted, np.arange(count), APART)
    chosen: list[tuple[float, float, float]] = []
    blocks = [(b,) for b in range(len(ordered.blocks))]
    sizes = np.sum(map_blocks(sizes_block, blocks, labels=labels, count=count), axis=0)
    for _ in range(MAX_ROUNDS):
        groups = int(group.max()) + 1
        if groups == 1:
            break
        largest = int(np.argmax(np.bincount(group[:wanted], weights=sizes[:wanted])))
        asked: dict[str, Any] = {"ordered": ordered, "labels": labels, "group": group}
        of_cells = np.concatenate(map_blocks(cell_groups_block, blocks, **asked))
        parts = map_blocks(nearest_other_block, blocks, of_cells=of_cells, largest=largest, sizes=sizes, by=by, **asked)
        best: dict[int, tuple[float, int, int]] = {}
        for source, squared, row, other in (edge for part in parts for edge in part):
            if source not in best or (squared, row, other) < best[source]:
                best[source] = (squared, row, other)
        ends = np.array([(row, other) for _, row, other in best.values()])
        owner = read_by_id(labels, ordered.starts, ends.ravel()).reshape(-1, 2)
        chosen += [(row, other, squared) for squared, row, other in best.values()]
        links = coo_array((np.ones(len(owner)), (group[owner[:, 0]], group[owner[:, 1]])), shape=(groups, groups))
        _, joined = connected_components(links, directed=False)
        group = np.where(group == APART, APART, joined[group])
    edges = np.array(sorted({(min(a, b), max(a, b), squared) for a, b, squared in chosen}), np.float64)
    return edges.reshape(-1, 3)


def sizes_block(b: int, *, labels: str, count: int) -> Array:
    """Rows of each component in a block."""
    return np.bincount(read_array(f"{labels}/{b}"), minlength=count)


def cell_groups_block(b: int, *, ordered: Ordered, labels: str, group: Array) -> Array:
    """Of each cell of a block the lowest and the highest group of its rows; no lowest, if they are apart."""
    of_row, starts = group[read_array(f"{labels}/{b}")], ordered.cells(b)[0][:-1]
    there = np.where(of_row == APART, len(group), of_row)
    return np.column_stack([np.minimum.reduceat(there, starts), np.maximum.reduceat(of_row, starts)])


def nearest_other_block(
    b: int,
    *,
    ordered: Ordered,
    labels: str,
    group: Array,
    of_cells: Array,
    largest: int,
    sizes: Array,
    by: ByMetric | None,
) -> list[tuple[int, float, int, int]]:
    """For each small group with rows here, the shortest edge found to another: (group, squared, row, other row).

    ``of_cells``: the lowest and the highest group in each cell of all blocks (:func:`cell_groups_block`).
    """
    label = read_array(f"{labels}/{b}")
    mine = group[label]
    small = np.setdiff1d(mine, [largest, APART])
    if not len(small):
        return []
    step = np.maximum(1, sizes // ROWS_A_COMPONENT)
    rows, offsets = ordered.compared(b), ordered.cells(b)[0]
    cell = owner_of(offsets, np.arange(len(label)))
    reach = _Outside(ordered, labels, group, of_cells, by)
    first = int(read_array(f"{ordered.path}/cell_block_starts", b, b + 1)[0])
    out = []
    for g in small:
        inside = np.flatnonzero(mine == g)
        inside = inside[:: int(step[label[inside]].max())]
        best = (np.inf, 0, 0)
        for c in np.unique(cell[inside]):
            members = inside[cell[inside] == c]
            best = min(best, reach.nearest(rows[members], members + ordered.starts[b], first + int(c), int(g)))
        out.append((int(g), float(best[0]), int(best[1]), int(best[2])))
    return out


class _Outside:
    """Rows of other groups in the cells nearest to a cell."""

    def __init__(self, ordered: Ordered, labels: str, group: Array, of_cells: Array, by: ByMetric | None) -> None:
        self.ordered, self.group, self.of_cells, self.by = ordered, group, of_cells, by
        self.cells = CellReader(ordered)
        self.label = lru_cache(maxsize=_LABELS)(lambda block: read_array(f"{labels}/{block}"))
        self.open_cells = lru_cache(maxsize=1)(self._open_cells)

    def _open_cells(self, g: int) -> tuple[Array, tuple[Array, Array, Array]]:
        """The cells with rows of a group besides g, and their centers."""
        low, high = self.of_cells.T
        candidates = np.flatnonzero((high != APART) & ((low != g) | (high != g)))
        return candidates, about_mean(self.cells.centers[candidates])

    def nearest(self, rows: Any, ids: Array, cell: int, g: int) -> tuple[float, int, int]:
        """The shortest edge from these rows of group g to a row of another group."""
        candidates, centers = self.open_cells(g)
        gaps, _ = approximate_to(self.cells.centers[[cell]], centers)
        near = candidates[_smallest(gaps[0], _CELLS)]
        best = (np.inf, 0, 0)
        for c in near:
            block, ids_there = int(self.cells.block_of(int(c))), self.cells.ids(int(c))
            base = self.ordered.starts[block]
            label = self.label(block)[ids_there[0] - base : ids_there[-1] + 1 - base]
            other = (self.group[label] != g) & (self.group[label] != APART)
            there, numbers = self.cells.rows(int(c))[other], ids_there[other]
            if self.by is not None:
                best = min(best, self.by.nearest_pair(rows, ids, there, numbers))
                continue
            approximate, slack = approximate_squared(rows, there)
            row, column = np.nonzero(approximate <= approximate.min() + 2 * slack.max())
            exact = paired_squared(rows[row], there[column]).astype(rows.dtype)
            winner = np.lexsort((numbers[column], ids[row], exact))[0]
            best = min(best, (float(exact[winner]), int(ids[row[winner]]), int(numbers[column[winner]])))
        return best


def _smallest(values: Array, count: int) -> Array:
    """The places of the smallest values, ascending; among equal ones the first places. NaN comes last."""
    if len(values) <= count:
        return np.argsort(values, kind="stable")
    near = np.flatnonzero(~(values > np.partition(values, count - 1)[count - 1]))
    return near[np.argsort(values[near], kind="stable")[:count]]


def bridged_block(
    b: int, *, given: StoredMatrix, starts: list[int], bridges: Array, exchange: Exchange, out: str
) -> dict[str, Any]:
    """One block of the graph with the bridges that touch its rows."""
    block = given.block(b)
    column = block.ids(b, starts)[block.indices]
    both = np.concatenate([bridges, bridges[:, [1, 0, 2]]])
    mine = both[(both[:, 0] >= starts[b]) & (both[:, 0] < starts[b + 1])]
    new = csr_block(
        b,
        np.concatenate([block.row, (mine[:, 0] - starts[b]).astype(np.int32)]),
        np.concatenate([column, mine[:, 1].astype(np.int64)]),
        np.concatenate([block.data, mine[:, 2].astype(block.data.dtype)]),
        starts,
    )
    return write_block(b, new, starts, exchange, out)
