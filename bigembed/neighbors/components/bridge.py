"""Bridges between the components of a neighbor graph: the shortest edges found, until it is connected.

Borůvka's scheme: in each round every component but the largest is joined to another by the shortest
edge found from its rows, so the number of components at least halves, and the bridges form a forest
over the components. Rows look for their nearest row outside in the 16 nearest cells that hold one.
Small components may be left as they are: no bridge leads to them or through them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array, map_blocks
from bigembed.blocks.squared import paired_squared
from bigembed.neighbors.components.connected import find_components
from bigembed.neighbors.exact import approximate_squared
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, write_block
from bigembed.neighbors.ordering.order import CellReader, Ordered
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, read_by_id, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix

MAX_ROUNDS = 40
ROWS_A_COMPONENT = 2_000
"""Rows of a component (spread over it) that look for a bridge."""
_CELLS = 16
APART = -1
"""Group of the components that no bridge leads to."""


def bridge_stage(
    n: int, n_neighbors: int, by: ByMetric | None = None, parts: Callable[[dict[str, Any]], int] | None = None
) -> Stage:
    """The graph with bridges between its components; ``bridges`` lists them (internal row, row, squared length).

    With ``parts``, which says how many of the components that were found (the largest first) are joined, the others
    stay apart, and a graph of one part is not written again.
    """

    def run(context: Context) -> dict[str, Any]:
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

    edges = 2 * n * n_neighbors
    return Stage(
        "bridge",
        ("order", "graph"),
        {"rows": ROWS_A_COMPONENT} | ({} if parts is None else {"parts": True}),
        run,
        Cost(passes=1, read=16 * edges, write=16 * edges, disk=8 * edges),
    )


def shortest_bridges(count: int, wanted: int, ordered: Ordered, labels: str, by: ByMetric | None) -> Array:
    """Edges that join the first ``wanted`` of ``count`` components: (row, row, squared distance)."""
    group: Array = np.where(np.arange(count) < wanted, np.arange(count), APART)
    chosen: list[tuple[float, float, float]] = []
    sizes = np.sum(
        map_blocks(sizes_block, [(b,) for b in range(len(ordered.blocks))], labels=labels, count=count), axis=0
    )
    for _ in range(MAX_ROUNDS):
        groups = int(group.max()) + 1
        if groups == 1:
            break
        largest = int(np.argmax(np.bincount(group[:wanted], weights=sizes[:wanted])))
        parts = map_blocks(
            nearest_other_block,
            [(b,) for b in range(len(ordered.blocks))],
            ordered=ordered,
            labels=labels,
            group=group,
            largest=largest,
            sizes=sizes,
            by=by,
        )
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


def nearest_other_block(
    b: int, *, ordered: Ordered, labels: str, group: Array, largest: int, sizes: Array, by: ByMetric | None
) -> list[tuple[int, float, int, int]]:
    """For each small group with rows here, the shortest edge found to another: (group, squared, row, other row)."""
    label = read_array(f"{labels}/{b}")
    mine = group[label]
    small = np.setdiff1d(mine, [largest, APART])
    if not len(small):
        return []
    step = np.maximum(1, sizes // ROWS_A_COMPONENT)
    rows, offsets = ordered.compared(b), ordered.cells(b)[0]
    cell = owner_of(offsets, np.arange(len(label)))
    reach = _Outside(ordered, labels, group, by)
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

    def __init__(self, ordered: Ordered, labels: str, group: Array, by: ByMetric | None) -> None:
        self.ordered, self.labels, self.group, self.by = ordered, labels, group, by
        self.cells = CellReader(ordered)
        parts = []
        for b in range(len(ordered.blocks)):
            of_row = group[read_array(f"{labels}/{b}")]
            offsets = (
                self.cells.starts[self.cells.block_starts[b] : self.cells.block_starts[b + 1] + 1] - ordered.starts[b]
            )
            there = np.where(of_row == APART, len(group), of_row)
            low, high = np.minimum.reduceat(there, offsets[:-1]), np.maximum.reduceat(of_row, offsets[:-1])
            parts.append(np.column_stack([low, high]))
        self.groups = np.concatenate(parts)

    def nearest(self, rows: Any, ids: Array, cell: int, g: int) -> tuple[float, int, int]:
        """The shortest edge from these rows of group g to a row of another group."""
        low, high = self.groups.T
        candidates = np.flatnonzero((high != APART) & ((low != g) | (high != g)))
        gaps, _ = approximate_squared(self.cells.centers[[cell]], self.cells.centers[candidates])
        near = candidates[np.argsort(gaps[0], kind="stable")[:_CELLS]]
        best = (np.inf, 0, 0)
        for c in near:
            ids_there, base = self.cells.ids(int(c)), self.ordered.starts[self.cells.block_of(int(c))]
            label = read_array(
                f"{self.labels}/{self.cells.block_of(int(c))}", ids_there[0] - base, ids_there[-1] + 1 - base
            )
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
    return write_block(b, new, exchange, out)
