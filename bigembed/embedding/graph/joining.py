"""With how many neighbors, or what radius, the parts of a graph would join: what the advice names."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.graph.ordered_rows import compared_rows, comparison
from bigembed.embedding.graph.parts import MAX_SOLVED, least_rows
from bigembed.neighbors.components.bridge import shortest_bridges
from bigembed.neighbors.ordering.order import Ordered
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.quality.spaces import EUCLIDEAN, Space
from bigembed.stages import Context
from bigembed.store.arrays.io import read_by_id


def joined_at(context: Context, stage: str, d: int, by: ByMetric | None) -> dict[str, Any]:
    """The ``n_neighbors`` and the ``radius`` that join all parts of a graph by the shortest edges between components.

    ``stage`` has found the components. What joins them is enough; other edges may join the parts with fewer neighbors.
    Nothing where there is one part, or so many components that nobody would join them. Cost: the search for bridges,
    and three passes over the ordered rows.
    """
    ordered, found = Ordered.open(context.of("order")), context.results(stage)
    n = int(ordered.starts[-1])
    parts = sum(size >= least_rows(n) for size in found["sizes"])
    if parts < 2 or found["components"] > MAX_SOLVED:
        return {}
    labels, count = context.of(stage, "labels"), found["components"]
    edges = shortest_bridges(count, count, ordered, labels, by)
    ends = edges[:, :2].astype(np.int64)
    owner = read_by_id(labels, ordered.starts, ends.ravel()).reshape(-1, 2)
    ranks = _ranks(context, ordered, d, by, ends).min(axis=0)
    reach = _reach(owner, ranks, parts)
    longest = _reach(owner, edges[:, 2], parts)
    return {"parts": parts, "n_neighbors": int(reach), "radius": float(np.sqrt(longest))}


def _reach(owner: Array, values: Array, parts: int) -> float:
    """The least value of an edge up to which the edges join the components 0 … ``parts`` − 1.

    >>> _reach(np.array([[0, 2], [2, 1], [0, 3]]), np.array([4.0, 7.0, 9.0]), 2)
    7.0
    """
    group = np.arange(owner.max() + 1)
    for edge in np.argsort(values, kind="stable"):
        a, b = group[owner[edge]]
        group[group == b] = a
        if (group[:parts] == group[0]).all():
            return float(values[edge])
    return np.inf


def _ranks(context: Context, ordered: Ordered, d: int, by: ByMetric | None, ends: Array) -> Array:
    """Of each edge (e, 2) which of the nearest rows of one end the other is, from 1, seen from both: (2, e)."""
    here, there = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.argsort(here, kind="stable")
    asked: dict[str, Any] = {"metric": EUCLIDEAN, **comparison(by)}
    space = Space("joining", compared_rows(ordered, d), context.exchange, here[order], **asked)
    space.ask(space.survey())
    others = there[order, None]
    ranks = np.empty(len(here), np.int64)
    ranks[order] = space.ranks(others, space.look(0, others)["far"])[:, 0]
    context.exchange.drop("joining-sampled")
    return ranks.reshape(2, -1)
