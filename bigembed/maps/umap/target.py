"""Numeric targets of UMAP: rows whose targets are near are neighbors in a second view, of one column.

The fuzzy graph of the targets, of as many neighbors as the rows have, is intersected with that of the rows, and each
row's strongest edge counts as one again: what umap-learn makes of a ``target_metric`` that is no discrete one, except
that it intersects with a_{j|i} of the targets, and here it is their union, as of two views. New rows have no target,
and are placed by the graph of the rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from typing import Any, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import GraphShape
from bigembed.estimator.preprocessing import with_cost_of_mapping
from bigembed.neighbors.every_pair import is_dense
from bigembed.neighbors.graph_stages import neighbor_stages
from bigembed.neighbors.survey import shape_of
from bigembed.neighbors.views import ERRORS
from bigembed.rows.derived import MappedSource
from bigembed.rows.passes import NAMED
from bigembed.rows.source import RowBlock, RowSource
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages import Stage, within

TARGET = "target-"
"""Before the names of the stages of the graph of the targets."""
NUMERIC = ("euclidean", "l2")
"""How numeric targets are compared: by their difference."""
RELATED = 1.15
"""Edges that the rows and their targets share, in units of those that chance gives, up to which targets say nothing."""


@dataclass(frozen=True)
class TargetColumn(MappedSource):
    """The targets of the rows as one column, known by what they are, wherever they lie."""

    content: str = ""

    @classmethod
    def of(cls, target: RowSource) -> Self:
        """Return the targets (n, 1) of a vector (n,), which is read once, in pieces."""
        n, digest = target.shape[0], sha256()
        for start, stop in bounds(n, max(1, target.block)):
            digest.update(np.asarray(target.read(start, stop), np.float64).tobytes())
        known: dict[str, Any] = {"base": target, "function": target_block, "content": digest.hexdigest()}
        return cls((n, 1), np.dtype(np.float64), stamp="numeric target", **known)

    def fingerprint(self) -> str:
        """Digest of the numbers."""
        return sha256(f"{self.shape} {self.stamp} {self.content}".encode()).hexdigest()


def target_view(
    target: RowSource, graph: GraphShape, k: int, recall: float, seed: int, most: int
) -> tuple[list[Stage], GraphShape]:
    """Return the stages of the graph of the targets, and the graph of rows with both as its views.

    ``k``: neighbors of a target; ``most``: rows of a block.
    """
    if graph.rowless:
        raise InputError(
            "UMAP: a numeric target is joined with the graph of rows, and this is a graph or distances. Give the rows, "
            "a NeighborGraph of rows, or classes (target_metric='categorical')"
        )
    if target.dtype.kind not in "buif":
        raise InputError(
            f"UMAP: a numeric target (y) is a finite number of every row, and this has dtype {target.dtype}. Classes "
            "are for target_metric='categorical'"
        )
    column = TargetColumn.of(target)
    shape = shape_of(column, "euclidean")
    stages = neighbor_stages(column, k, "euclidean", recall, seed, most=most)
    known: dict[str, Any] = {"row_bytes": shape.ordered_bytes, "dtype": shape.dtype}
    second = GraphShape(graph.n, min(most, shape.block), 1, k, dense=is_dense(k, shape), **known)
    both = replace(graph, k=k + (graph.n - 1 if graph.k is None else graph.k), dense=False, views=(graph, second))
    return [within(with_cost_of_mapping(stage, column), TARGET) for stage in stages], both


def target_block(block: RowBlock) -> Array:
    """Return the targets of a block as a column; InputError that names rows without one."""
    found = np.asarray(block.rows, np.float64).reshape(-1, 1)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise InputError(
            f"UMAP: a numeric target (y) is a finite number of every row, and {len(wrong)} of rows {block.start} to "
            f"{block.start + len(found) - 1} have none, the first of rows {(wrong[:NAMED] + block.start).tolist()}. "
            "Leave these rows out, and place them as new ones"
        )
    return found


def unrelated_target(found: dict[str, Any]) -> list[str]:
    """Say of the figures of both graphs that rows with near targets are no nearer than others; nothing where they are.

    >>> common = {"edges": [20_000, 20_000], "shared": 3000, "shared_by_chance": 400.0}
    >>> unrelated_target(common), unrelated_target(common | {"shared": 420})[0][:38]
    ([], '420 of 20,000 neighbors have targets t')
    """
    shared, chance = found["shared"], found["shared_by_chance"]
    if shared > RELATED * chance + ERRORS * sqrt(chance):
        return []
    return [
        f"{shared:,} of {found['edges'][0]:,} neighbors have targets that are near, and by chance {chance:,.0f} would: "
        "the target says next to nothing of the rows, and what is near on the map is so by the target alone. See "
        "whether y is in the order of the rows; or leave target_metric out"
    ]
