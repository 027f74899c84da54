"""Sampled rows of one component of a graph, from which landmarks are then chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks, offsets
from bigembed.landmarks.select import LandmarkChoice
from bigembed.neighbors.ordering.order import Ordered
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange


def component_sample(
    ordered: Ordered,
    labels: str,
    component: int,
    choice: LandmarkChoice,
    row_bytes: int,
    exchange: Exchange,
    with_rows: bool = True,
) -> dict[str, Array]:
    """The rows that a choice looks at in a component: ``ids`` in the order of the graph, ``original`` in that of the
    input, and ``rows`` themselves."""
    blocks = [(b,) for b in range(len(ordered.blocks))]
    first = offsets(map_blocks(count_block, blocks, labels=labels, component=component))
    ranks = choice.sample(int(first[-1]), row_bytes)
    parts = np.split(ranks, np.searchsorted(ranks, first[1:-1]))
    tasks = [(b, part - first[b]) for b, part in enumerate(parts) if len(part)]
    fixed: dict[str, Any] = {"labels": labels, "component": component, "with_rows": with_rows}
    map_blocks(pick_block, tasks, ordered=ordered, exchange=exchange, **fixed)
    found = [exchange.get_all("picked", b) for b, _ in tasks]
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def count_block(b: int, *, labels: str, component: int) -> int:
    """Rows of a component in a block."""
    return int(np.count_nonzero(read_array(f"{labels}/{b}") == component))


def pick_block(
    b: int, ranks: Array, *, ordered: Ordered, labels: str, component: int, with_rows: bool, exchange: Exchange
) -> None:
    """Leave the rows of a component that have the given ranks within the block."""
    local = np.flatnonzero(read_array(f"{labels}/{b}") == component)[ranks]
    pieces = {"ids": local + ordered.starts[b], "original": ordered.ids(b)[local]}
    exchange.put("picked", b, pieces | ({"rows": ordered.rows(b)[local]} if with_rows else {}))
