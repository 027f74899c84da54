"""Scales of weighted rows: the distance within which a row has the mass of its k neighbors, not k rows.

A row of weight m is m copies of it, so "the k-th neighbor" is taken in mass: with weights of mean 1 the rows within
ρ_i, row i itself among them, weigh k + 1. Where all weights are one that is the distance to the k-th neighbor; of
copies, m̄ of a row on average, it is that to neighbor (k + 1) m̄ − 1. Light rows need more than k neighbors for that, so
:data:`WIDER` times as many are searched; and edges that are longer than the scales of both rows weigh nothing. Where a
graph is given whose lists do not hold as much (a tenth of the rows have less), all scales hold as much as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bigembed.maps.medians import exact_median, pattern_counts, total
from bigembed.neighbors.row_weights import WEIGHTS, values_path
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace

SCALES = "mass_scales"
"""The stage with the squared scales, ``rho_squared/b``, in the order of the graph."""
WIDER = 3
"""Times k neighbors are searched of weighted rows."""
FEW = 3
"""A scale reaches the k/3 nearest rows at the least, however heavy they are: rows that weigh more than all their
neighbors together would be alone within theirs."""
SHORT = 0.1
"""Share of the rows whose lists may hold less mass than is wanted."""
ROUNDING = 1e-9
EQUAL = 1e-6
"""By how much, as a share, a squared distance in float32 may exceed the square of a scale that it gave."""


def reach_in_mass(squared: Array, weights: Array, own: Array, wanted: float, least: int, dimension: float) -> Array:
    """Squared distance within which each row has the mass of its neighbors: (rows,).

    Parameters
    ----------
    squared : array of shape (rows, k)
        Squared distances to the neighbors, ascending; infinite where a row has fewer.
    weights : array of shape (rows, k)
        Weights of these neighbors, 0 where a row has fewer; those of all rows have mean 1.
    own : array of shape (rows,)
        Weights of the rows themselves.
    wanted : float
        The mass, with that of the row itself.
    least : int
        Neighbors that are within at the least.
    dimension : float
        The intrinsic dimension d: where all neighbors weigh less, their mass is taken to grow by r^d beyond the last; 0
        where it is not known, and the last one counts.

    Examples
    --------
    >>> near, ones = np.array([[1.0, 4.0, 9.0]]), np.ones(1)
    >>> reach_in_mass(near, np.ones((1, 3)), ones, 4.0, 1, 2.0).tolist()
    [9.0]
    >>> reach_in_mass(near, np.array([[1.0, 2.0, 1.0]]), ones, 4.0, 1, 2.0).tolist()  # 1 + 1 + 2
    [4.0]
    >>> reach_in_mass(near, np.full((1, 3), 1 / 3), ones, 4.0, 1, 2.0).tolist()  # half of it: √2 times as far
    [18.0]
    """
    last, place = np.maximum(np.isfinite(squared).sum(axis=1) - 1, 0), np.arange(len(own))
    mass = own[:, None] + np.cumsum(weights, axis=1)
    reached = mass >= wanted * (1 - ROUNDING)
    short = ~reached.any(axis=1)
    first = np.minimum(np.maximum(np.where(short, last, np.argmax(reached, axis=1)), least - 1), last)
    found = np.where(np.isfinite(squared[:, 0]), squared[place, first], 0.0).astype(np.float64)
    if dimension > 0 and short.any():
        found[short] *= (wanted / mass[short, -1]) ** (2.0 / dimension)
    return np.asarray(found)


def least_neighbors(k: int) -> int:
    """Neighbors that a scale reaches at the least."""
    return max(1, -(-k // FEW))


def as_lists(indptr: Array, squared: Array, weights: Array) -> tuple[Array, Array]:
    """Edges in CSR as lists (rows, k), ascending, filled up with infinite distances and weights of 0."""
    counts = np.diff(indptr)
    row = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(row)) - np.repeat(indptr[:-1] - indptr[0], counts)
    lists, masses = (np.full((len(counts), max(1, counts.max(initial=0))), filler) for filler in (np.inf, 0.0))
    lists[row, place], masses[row, place] = squared, weights
    order = np.argsort(lists, axis=1, kind="stable")
    return np.take_along_axis(lists, order, axis=1), np.take_along_axis(masses, order, axis=1)


def some_edges(indptr: Array, kept: Array) -> Array:
    """``indptr`` of the edges that are kept."""
    return np.concatenate([[0], np.cumsum(kept)])[indptr]


LITTLE = 0.75
"""Of the mass of k rows that scales hold, below which weights reach too far for the lists."""


def weights_in(run: Run) -> dict[str, Any]:
    """What the certificate of a map says of the weights of its rows."""
    found = run.results(f"{WEIGHTS}_sum")
    said: dict[str, Any] = {name: found[name] for name in ("sum", "least", "most")}
    if run.has(SCALES):
        scales, asked = run.results(SCALES), run.parameters(SCALES)["n_neighbors"]
        held = scales["wanted"] / (asked + 1)
        said |= {"n_neighbors": asked, "held": held, "short": scales["short"], "n": found["n"]}
    return {WEIGHTS: said}


def scale_warnings(certificate: Mapping[str, Any]) -> list[str]:
    """A warning where the lists of neighbors are too short for the weights of the rows.

    >>> scale_warnings({"row_weights": {"n_neighbors": 15, "held": 1.0, "short": 3, "n": 1_000}})
    []
    """
    found = certificate[WEIGHTS]
    if found.get("held", 1.0) >= LITTLE and found.get("short", 0) <= SHORT * found.get("n", 1):
        return []
    return [
        f"weights reach from {found['least']:.4g} to {found['most']:.4g}, and the neighbors of light rows weigh less "
        f"than n_neighbors={found['n_neighbors']} rows of mean weight ({found['short']:,} of {found['n']:,} rows; "
        f"scales hold {100 * found['held']:.0f} % of that). Light and heavy regions have other scales than copies of "
        "their rows would have. Raise n_neighbors, or give weights that vary less"
    ]


def mass_scales_stage(lists: str, n: int, k: int, n_neighbors: int, block: int) -> Stage:
    """Scales of all rows by the mass of k neighbors; ``lists``: the stage with the distance to the last of all
    ``n_neighbors``."""
    edges = 2 * n * n_neighbors
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 2, "f4", 2), ArraySpec("rho_squared/*", n, times=2)],
        writes=[ArraySpec("rho_squared/*", n)],
        leaves=[ArraySpec("weights of the rows and of the halo, masses", n, 3)],
        task=[ArraySpec("edges", 2 * min(block, n) * n_neighbors, 8)],
        passes=2,
        scalar_ops=8 * edges,
        maps=7,
    )
    inputs = tuple(dict.fromkeys(("graph", lists, WEIGHTS, "dimension")))
    return Stage(SCALES, inputs, {"n_neighbors": k}, partial(run_mass_scales, lists=lists, k=k), cost)


def run_mass_scales(context: Context, lists: str, k: int) -> dict[str, Any]:
    distances, exchange, out = context.home.matrix("graph"), context.exchange, context.path("")
    space, dimension = StoredSpace(distances, exchange), context.results("dimension")["value"]
    space.sweep(own_block, writes=["w"], posts=["w"], arguments=(values_path(context),))
    shared = (distances, context.of(lists, "rho_squared"))
    space.sweep(masses_block, reads=["w"], halos=["w"], writes=["mass"], arguments=shared)
    rows = list(distances.rows)

    def histogram(known: int | None) -> Array:
        return total(map_blocks(mass_counts_block, [(b,) for b in range(len(rows))], exchange=exchange, known=known))

    wanted = min(k + 1.0, exact_median(histogram, 2 * int(SHORT * sum(rows)) + 1))
    found = space.sweep(
        scales_block, reads=["w"], halos=["w"], arguments=(*shared, wanted, least_neighbors(k), float(dimension), out)
    )
    return {"rows": rows, "wanted": wanted, "least": least_neighbors(k), "short": sum(found)}


def own_block(b: int, weights: str) -> tuple[tuple[Array], None]:
    """Weights of the rows of one block, (rows, 1)."""
    return (read_array(f"{weights}/{b}")[:, None],), None


def lists_of_block(b: int, w: Array, halo_w: Array, distances: StoredMatrix, farthest: str) -> tuple[Array, Array]:
    """Squared distances to the neighbors in the list of each row, and their weights, ascending: of its edges those that
    are no longer than the last one listed."""
    block: CSRBlock = distances.block(b)
    kept = block.data <= np.repeat(read_array(f"{farthest}/{b}"), np.diff(block.indptr))
    kept[block.diagonal] = False
    weights = np.concatenate([w[:, 0], halo_w[:, 0]])[block.indices[kept]]
    return as_lists(some_edges(block.indptr, kept), block.data[kept].astype(np.float64), weights)


def masses_block(b: int, w: Array, halo_w: Array, distances: StoredMatrix, farthest: str) -> tuple[tuple[Array], None]:
    """What each row of one block and its neighbors weigh together, (rows, 1)."""
    _, weights = lists_of_block(b, w, halo_w, distances, farthest)
    return (w + np.cumsum(weights, axis=1)[:, -1:],), None


def mass_counts_block(b: int, *, exchange: Exchange, known: int | None) -> Array:
    """Counts of :func:`~bigembed.maps.medians.pattern_counts` of these masses."""
    return pattern_counts(exchange.piece("mass", b, "own")[:, 0], known)


def scales_block(
    b: int,
    w: Array,
    halo_w: Array,
    distances: StoredMatrix,
    farthest: str,
    wanted: float,
    least: int,
    dimension: float,
    out: str,
) -> tuple[tuple[()], int]:
    """Write the squared scales of one block; how many rows have too light neighbors."""
    squared, weights = lists_of_block(b, w, halo_w, distances, farthest)
    write_array(f"{out}rho_squared/{b}", reach_in_mass(squared, weights, w[:, 0], wanted, least, dimension))
    return (), int(np.count_nonzero(w[:, 0] + weights.sum(axis=1) < wanted * (1 - ROUNDING)))
