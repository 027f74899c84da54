"""Scales of the rows of a graph: medians of squared distances that lie by blocks, and distances that hold a mass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt
from typing import Any

import numpy as np

from bigembed.neighbors.query import Joined
from bigembed.neighbors.row_weights import WEIGHTS, all_weights, values_path
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace

# ----------------------------------------------------------------------------------------------------------- medians

BINS = 1 << 16
QUARTERS = 4
"""Of 16 bits, in a float64."""
HALF_ROUNDING = 1e-12
COUNTED = 1 << 20
"""Squared distances that are counted at a time."""


def exact_median(histogram: Callable[[int | None], Array], total: int) -> float:
    """Exact lower median of nonnegative numbers spread over blocks, from four histograms of 65 536 counts.

    ``histogram(None)`` counts the first 16 bits of the patterns of float64; ``histogram(known)`` the next 16 of those
    that begin with the bits of ``known`` (behind a leading 1). For nonnegative numbers the order of the patterns is
    that of the numbers.
    """
    rank, known = (total - 1) // 2, 1
    for level in range(QUARTERS):
        counts = np.cumsum(histogram(known if level else None))
        digit = int(np.searchsorted(counts, rank, side="right"))
        rank -= int(counts[digit - 1]) if digit else 0
        known = known << 16 | digit
    return float(np.array([known & (1 << 64) - 1], np.uint64).view(np.float64)[0])


def weighted_median(histogram: Callable[[int | None], Array], mass: float) -> float:
    """:func:`exact_median` of numbers that count by weights, of this ``mass`` together: the least number that, with all
    smaller ones, has half of it."""
    below, known, half = 0.0, 1, mass / 2 * (1 - HALF_ROUNDING)
    for level in range(QUARTERS):
        counts = below + np.cumsum(histogram(known if level else None))
        digit = min(int(np.searchsorted(counts, half)), len(counts) - 1)
        below = float(counts[digit - 1]) if digit else below
        known = known << 16 | digit
    return float(np.array([known & (1 << 64) - 1], np.uint64).view(np.float64)[0])


def pattern_counts(values: Array, known: int | None, weights: Array | None = None) -> Array:
    """One block's part of :func:`exact_median`: 16 bits of the patterns of nonnegative numbers, and counts; with
    ``weights`` what the numbers weigh.

    Only those that occur, (2, m) int64 (float64 of weights): many blocks come together in one process.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    level = 0 if known is None else (known.bit_length() - 1) // 16
    if known is not None:
        here = bits >> np.uint64(64 - 16 * level) == np.uint64(known - (1 << 16 * level))
        bits, weights = bits[here], None if weights is None else weights[here]
    digits = bits >> np.uint64(48 - 16 * level) & np.uint64(0xFFFF)
    if weights is None:
        return np.stack(np.unique(digits.astype(np.int64), return_counts=True)).astype(np.int64)
    found, place = np.unique(digits.astype(np.int64), return_inverse=True)
    return np.stack([found, np.bincount(place, weights, len(found))])


def total(parts: Sequence[Array]) -> Array:
    """Sum of the counts of :func:`pattern_counts`, (65536,): int64 (exact in any order), or float64 of weights."""
    counts = np.zeros(BINS, np.result_type(np.int64, *parts))
    for part in parts:
        counts[part[0].astype(np.int64)] += part[1]
    return counts


def median_scale(farthest: str, sizes: Array, weights: str) -> float:
    """Median of the squared distance to the k-th neighbor, over the rows by their weights."""

    def histogram(high: int | None) -> Array:
        fixed: dict[str, Any] = {"farthest": farthest, "high": high} | ({"weights": weights} if weights else {})
        return total(map_blocks(kth_counts_block, [(b,) for b in range(len(sizes))], **fixed))

    count = int(sizes.sum())
    return weighted_median(histogram, count) if weights else exact_median(histogram, count)


def median_of_pairs(graph: str, sizes: Array, weights: str) -> float:
    """Median of the squared distances of all pairs, which the blocks of a complete graph or its lists hold."""
    known = all_weights(weights, sizes)

    def histogram(high: int | None) -> Array:
        fixed: dict[str, Any] = {"squared": f"{graph}/squared", "high": high}
        fixed |= {} if known is None else {"graph": graph, "weights": known, "sizes": sizes}
        return total(map_blocks(pair_counts_block, [(b,) for b in range(len(sizes))], **fixed))

    n = int(sizes.sum())
    if known is None:
        return exact_median(histogram, n * (n - 1))
    return weighted_median(histogram, float(np.square(known.sum()) - np.square(known).sum()))


def pair_counts_block(
    b: int, *, squared: str, high: int | None, graph: str = "", weights: Array | None = None, sizes: Array | None = None
) -> Array:
    """Counts of :func:`~bigembed.maps.scales.pattern_counts` for the squared distances of a block to all rows:
    lists (rows, n − 1), or a matrix as one vector, whose diagonal is left out. ``weights`` (n,) of all rows: a pair
    counts by the product of those of its two rows."""
    if weights is not None and sizes is not None:
        counts = total([pattern_counts(part, high, mass) for part, mass in pairs_of_block(b, graph, weights, sizes)])
    else:
        values = read_array(f"{squared}/{b}")
        if values.ndim == 1:
            values = np.delete(values, slice(None, None, isqrt(len(values)) + 1))
        values = values.ravel()
        counts = total([pattern_counts(values[start:stop], high) for start, stop in bounds(len(values), COUNTED)])
    kept = np.flatnonzero(counts)
    return np.stack([kept, counts[kept]])


def pairs_of_block(b: int, graph: str, weights: Array, sizes: Array) -> Iterator[tuple[Array, Array]]:
    """Squared distances of the rows of a block to all other rows, and the products of their weights, some rows at a
    time; of a row with itself the product is 0."""
    first, count = int(sizes[:b].sum()), int(sizes[b])
    values = read_array(f"{graph}/squared/{b}").reshape(count, -1)
    ids = read_array(f"{graph}/neighbors/{b}") if values.shape[1] < len(weights) else None
    for start, stop in bounds(count, max(1, COUNTED // values.shape[1])):
        others = weights if ids is None else weights[ids[start:stop]]
        products = weights[first + start : first + stop, None] * others
        if ids is None:
            products[np.arange(stop - start), np.arange(first + start, first + stop)] = 0.0
        yield values[start:stop].ravel(), products.ravel()


def kth_counts_block(b: int, *, farthest: str, high: int | None, weights: str = "") -> Array:
    """Counts of :func:`~bigembed.maps.scales.pattern_counts` for the k-th squared distances of a block."""
    return pattern_counts(read_array(f"{farthest}/{b}"), high, read_array(f"{weights}/{b}") if weights else None)


def weighted_histogram(graph: str, weights: str, sizes: Array, exponent: int) -> Array:
    """The histogram of all pairs of a complete graph in units of 2^``exponent``, each by the product of the weights of
    its rows, each row with itself among them; then the exponent."""
    known, counts = all_weights(weights, sizes), np.zeros(BINS + 1)
    assert known is not None
    blocks = [(b,) for b in range(len(sizes))]
    for part in map_blocks(weighted_bins_block, blocks, graph=graph, weights=known, sizes=sizes, exponent=exponent):
        counts[part[0].astype(np.int64)] += part[1]
    counts[0] += np.square(known).sum()
    counts[BINS] = exponent
    return counts


def weighted_bins_block(b: int, *, graph: str, weights: Array, sizes: Array, exponent: int) -> Array:
    """Bins that occur and what the pairs in them weigh, of one block."""
    counts = np.zeros(BINS)
    for values, products in pairs_of_block(b, graph, weights, sizes):
        bins = np.ldexp(values.astype(np.float64), -2 * exponent).astype(np.float32).view(np.uint32) >> 16
        counts += np.bincount(bins, products, BINS)
    kept = np.flatnonzero(counts)
    return np.stack([kept, counts[kept]])


# ------------------------------------------------------------------------------------------------------- mass scales
# The distance within which a row has the mass of its k neighbors, not k rows.
#
# A row of weight m is m copies of it, so "the k-th neighbor" is taken in mass: with weights of mean 1 the rows within
# ρ_i, row i itself among them, weigh k + 1. Where all weights are one that is the distance to the k-th neighbor; of
# copies, m̄ of a row on average, it is that to neighbor (k + 1) m̄ − 1. Light rows need more than k neighbors for it, so
# ``WIDER`` times as many are searched; and edges that are longer than the scales of both rows weigh nothing. Where more
# than a tenth of the lists of a given graph hold less mass, all scales take the mass that nine tenths of them hold.

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


def in_mass(joined: Joined, weights: Array, wanted: float, least: int, dimension: float) -> Joined:
    """The same edges, with scales ρ of the new rows by the mass of their neighbors, as fitted rows have them.

    A new row that is one of the fitted rows has its weight, another one the mean weight 1.
    """
    count = len(joined.indptr) - 1
    of_edge = np.repeat(np.arange(count), np.diff(joined.indptr))
    squared, limit = joined.squared.astype(np.float64), np.square(joined.rho)[of_edge]
    kept = squared <= limit * (1 + EQUAL)
    twins, own = twins_of(joined, of_edge), np.ones(count)
    own[of_edge[twins]] = weights[twins]
    kept[twins] = False
    lists = as_lists(some_edges(joined.indptr, kept), squared[kept], weights[kept])
    return replace(joined, rho=np.sqrt(reach_in_mass(*lists, own, wanted, least, dimension)))


def twins_of(joined: Joined, of_edge: Array) -> Array:
    """The edge of each new row to the fitted row that it is: of its edges of length 0 the first."""
    zeros = np.flatnonzero(joined.squared == 0)
    return zeros[np.unique(of_edge[zeros], return_index=True)[1]]


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
        "their rows would have. Raise n_neighbors, or give weights that vary less. Where weights say which density the "
        "rows were to have (a biased simulation), a diffusion map takes that as target_density instead"
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
    """Counts of :func:`~bigembed.maps.scales.pattern_counts` of these masses."""
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
