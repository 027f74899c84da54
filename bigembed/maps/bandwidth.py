"""The scale ε of the Gaussian kernel exp(−r²/ε) of a stored graph: by a rule from the data, or as given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.maps.kernels import BINARY, LOCAL, NARROW, TRUNCATED, cut_moment, gaussian_block
from bigembed.maps.scales import BINS, COUNTED, median_of_pairs, median_scale, weighted_histogram
from bigembed.neighbors.row_weights import WEIGHTS, values_path
from bigembed.neighbors.search import TRUTH
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array

# ------------------------------------------------------------------------------------------------------- bandwidth
# The scale ε of the Gaussian kernel exp(−r²/ε): by rule, from the data.
#
# Distances come as a histogram of squared distances of sampled rows to *all* rows (never to the graph alone, whose
# truncated sums make ε far too small), and as nearest-neighbor distances. Histogram bins are the upper 16 bits of the
# float32 bit pattern: logarithmic, 0.4 % half width.

GRID = 2.0 ** np.arange(-40, 41, 0.25)


@dataclass(frozen=True)
class KsumCurve:
    """S(ε) and its logarithmic slope (seed 000, eqs. 58–59) on a grid of ε."""

    epsilon: Array
    log_sum: Array
    slope: Array

    @property
    def best(self) -> float:
        """ε where the slope is largest."""
        return float(self.epsilon[int(np.argmax(self.slope))])

    @property
    def dimension(self) -> float:
        """Intrinsic dimension that the largest slope implies: 2 · max d log S / d log ε."""
        return 2 * float(np.max(self.slope))


def bin_values() -> Array:
    """Squared distance at the middle of each histogram bin; (65536,) float64, NaN where no number lies."""
    bits = (np.arange(BINS, dtype=np.uint32) << 16) | np.uint32(0x8000)
    with np.errstate(invalid="ignore"):  # patterns that are not numbers
        values = bits.view(np.float32).astype(np.float64)
    values[0] = 0.0
    return np.where(np.isfinite(values) & (values >= 0), values, np.nan)


def _in_units(counts: Array) -> tuple[Array, float]:
    """The counts, and the square of the unit that distances were counted in: 2ᵉ, where e stands behind the counts."""
    return counts[:BINS], float(np.ldexp(1.0, 2 * int(counts[BINS]))) if len(counts) > BINS else 1.0


def ksum(counts: Array) -> KsumCurve:
    """The Ksum test (seed 000 §9.7): S(ε) = mean exp(−r²/ε), slope = Σ (r²/ε) K / Σ K (eq. 59).

    Parameters
    ----------
    counts : array of shape (65536,), int64
        How many squared distances fall into each bin, self pairs included. One more number is e, where distances were
        counted in units of 2ᵉ.
    """
    counts, unit = _in_units(counts)
    values = bin_values()
    used = np.flatnonzero(counts)
    squared, weight = values[used], counts[used].astype(np.float64)
    positive = squared[squared > 0]
    if not len(positive):
        return KsumCurve(np.array([unit]), np.zeros(1), np.zeros(1))
    middle = 2.0 ** np.round(np.log2(np.median(positive)))
    epsilon = middle * GRID
    log_sum, slope = np.empty(len(epsilon)), np.empty(len(epsilon))
    for number, scale in enumerate(epsilon):
        ratio = squared / scale
        kernel = weight * np.exp(-ratio)
        total = kernel.sum()
        log_sum[number] = np.log(total / weight.sum())
        slope[number] = (ratio * kernel).sum() / total
    return KsumCurve(epsilon * unit, log_sum, slope)


def histogram_median(counts: Array, n: int) -> float:
    """Median squared distance over pairs of different rows, to within a bin (0.4 %), from distances to all n rows."""
    counts, unit = _in_units(counts)
    pairs = counts.astype(np.int64).copy()
    pairs[0] -= pairs.sum() // n  # each sampled row is at 0 of itself
    cumulative = np.cumsum(pairs)
    return unit * float(bin_values()[int(np.searchsorted(cumulative, cumulative[-1] / 2))])


# ----------------------------------------------------------------------------------------------------------- scale
# The scale of the kernel of a stored graph: ε by a rule or as given, and what the graph says of it.

RULES = ("auto", "ksum", "median", "max-min", "mean-min")
FLOOR = 0.01
"""Share of the median scale below which a row has none of its own: rows that repeat have neighbors at distance 0."""
LEAST = float(np.exp(-9.0))
"""Least weight in a graph with bridges, so that they carry some of the walk however long they are."""


@dataclass(frozen=True)
class Bandwidth:
    """The kernel: how ε is chosen, by a rule of :data:`RULES` or as a number, and what it multiplies."""

    epsilon: str | float
    kernel: str = "fixed"
    """"fixed", "binary" (no scale), or of :data:`~bigembed.maps.kernels.LOCAL`."""
    truncated: bool = False
    complete: bool = False
    """The graph holds every pair, so that global scales are meaningful."""
    bridged: bool = False
    """Edges are weighed at least :data:`LEAST`."""
    target: bool = False
    """The walk is to tend to an operator that was named."""
    within: bool = False
    """Edges that are longer than the scales of both rows weigh nothing."""

    @property
    def local(self) -> bool:
        """Whether the scale is that of the rows."""
        return self.kernel in LOCAL

    @property
    def natural(self) -> float:
        """ε of a local scale where it is "auto": :data:`NARROW` of the adaptive kernel, 1 else.

        A target wants the wide kernel: its α rests on the density, which more weights estimate with less noise (k = 15,
        uneven circle: the first eigenvalue of Laplace–Beltrami is 5 % off; with ½, 9 %).
        """
        return NARROW if self.kernel == "adaptive" and not self.target else 1.0

    def weights(self, squared: Array, epsilon: float) -> Array:
        """K of squared distances (over the scales of the rows, if it is local)."""
        if self.kernel == BINARY:
            return np.ones(squared.shape)
        least = LEAST if self.bridged else 0.0
        return gaussian_block(squared, epsilon, truncated=self.truncated, least=least)


KERNEL = "rule"
"""What the name of the kernel is called among the parameters of stored stages, whose keys keep it. Among the results of
the stage of the bandwidth it is called "kernel", and "rule" is how ε was chosen."""


def kernel_in(parameters: Mapping[str, Any]) -> str:
    """Return the name of the kernel from the parameters of a stored stage.

    >>> kernel_in({"rule": "adaptive"}), kernel_in({"self_tuned": True}), kernel_in({})
    ('adaptive', 'self-tuned', 'fixed')
    """
    return str(parameters.get(KERNEL, "self-tuned" if parameters.get("self_tuned") else "fixed"))  # (before 0.2)


def own_scales(rho: Array, floor: float) -> Array:
    """Scales ρ of rows, the median one where they are below ``floor``: copies that list only each other are then as
    near to the rows that list them as others are.

    >>> own_scales(np.array([0.0, 0.02, 3.0]), 0.01).tolist()
    [1.0, 0.02, 3.0]
    """
    return np.where(rho < floor, floor / FLOOR, rho)


@dataclass(frozen=True)
class Lengths:
    """Which stages hold what a scale follows from, and under what name lie distances to neighbors, nearest first."""

    order: str = "order"
    histogram: str = TRUTH
    """Of distances between all rows; empty where these are not known."""
    neighbors: str = "search"
    nearest: str = "squared"
    scales: str = ""
    """Where the scales of weighted rows are; empty where they are the distances to the k-th neighbor."""
    weighted: bool = False
    """Whether rows count by their weights."""

    @property
    def farthest(self) -> str:
        """The stage with the squared scale of each row."""
        return self.scales or self.neighbors


LISTS, PAIRS = Lengths(), Lengths("graph", "graph", "graph", "nearest")
"""Of lists of k nearest neighbors; of all pairs as one block."""
EDGES = Lengths("order", "", "graph", "nearest")
"""Of edges whose lengths were given."""


CURVE = [ArraySpec(f"ksum_{name}", 0) for name in ("epsilon", "log_sum", "slope")]
"""The Ksum curve, as it is stored."""


def bandwidth_stage(choice: Bandwidth, lengths: Lengths = LISTS, pairs_of: int = 0) -> Stage:
    """ε, with the Ksum curve and the dimension it implies. ``pairs_of``: the number of rows with weights
    of which all pairs are looked at, or 0."""
    parameters = {"epsilon": choice.epsilon, KERNEL: choice.kernel, "complete": choice.complete}
    parameters |= {"truncated": True} if choice.truncated else {}
    parameters |= {"natural": choice.natural} if choice.epsilon == "auto" and choice.natural != 1.0 else {}
    of_pairs = choice.epsilon == "median" and choice.complete
    parameters |= {"median": "pairs"} if of_pairs else {}
    everything = of_pairs or pairs_of or lengths.neighbors == lengths.order

    read = lengths.order, lengths.histogram, lengths.neighbors, lengths.scales, WEIGHTS if lengths.weighted else ""
    inputs = (*dict.fromkeys(filter(None, read)), "dimension")
    return Stage(
        "bandwidth",
        inputs,
        parameters,
        partial(run_bandwidth, choice=choice, lengths=lengths, of_pairs=of_pairs),
        Cost.of(
            reads=[ArraySpec("pairs", pairs_of, pairs_of)],
            writes=CURVE,
            task=[
                ArraySpec("pairs", pairs_of, pairs_of),
                ArraySpec("tiles of pairs", COUNTED * bool(pairs_of), times=8),
            ],
            coordinator=[ArraySpec("histogram and sums", BINS, times=2), ArraySpec("weights", pairs_of)],
        ),
        opens={} if everything else {lengths.neighbors: (lengths.nearest, "rho_squared")},
    )


def run_bandwidth(context: Context, choice: Bandwidth, lengths: Lengths, of_pairs: Any) -> dict[str, Any]:
    sizes = np.diff(read_array(context.of(lengths.order, "starts")))
    known, weights = lengths.histogram, values_path(context)
    counts = read_array(context.of(known, "histogram")) if known else np.zeros(BINS, np.int64)
    if weights and choice.complete and known:
        counts = weighted_histogram(
            context.of(lengths.neighbors), weights, sizes, int(counts[BINS]) if len(counts) > BINS else 0
        )
    curve = _written(ksum(counts), context)
    farthest = context.of(lengths.farthest, "rho_squared")
    kth = median_scale(farthest, sizes, weights)
    nearest = context.of(lengths.neighbors, lengths.nearest)
    median = median_of_pairs(context.of(lengths.neighbors), sizes, weights) if of_pairs else 0.0
    epsilon = _epsilon(choice, nearest, sizes, kth, curve.best, counts, median, weights)
    edge = 1.0 if choice.local else np.inf if choice.complete else kth
    return {
        **_scale(choice, epsilon, context.results("dimension")["value"], edge, curve),
        "median_kth": kth,
        "floor": FLOOR * _typical_scale(farthest, len(sizes), kth, choice.local),
    }


def bandwidth_within_stage(choice: Bandwidth, radius: float) -> Stage:
    """The kernel of a graph of a radius, for a given ε: it ends at the radius."""
    parameters = {"epsilon": choice.epsilon, KERNEL: choice.kernel, "complete": False, "radius": radius}
    parameters |= {"truncated": True} if choice.truncated else {}

    return Stage(
        "bandwidth",
        ("density", "dimension"),
        parameters,
        partial(run_bandwidth_within, choice=choice, radius=radius),
        Cost.of(writes=CURVE, coordinator=[ArraySpec("histogram and sums", BINS, times=2)]),
    )


def run_bandwidth_within(context: Context, choice: Bandwidth, radius: float) -> dict[str, Any]:
    curve = _written(ksum(read_array(context.of("density", "histogram"))), context)
    dimension = context.results("dimension")["value"]
    return _scale(choice, float(choice.epsilon), dimension, radius**2, curve) | {"radius": radius, "floor": 0.0}


def _written(curve: KsumCurve, context: Context) -> KsumCurve:
    for name, values in (("epsilon", curve.epsilon), ("log_sum", curve.log_sum), ("slope", curve.slope)):
        write_array(context.path(f"ksum_{name}"), values)
    return curve


def _scale(choice: Bandwidth, epsilon: float, dimension: float, edge: float, curve: KsumCurve) -> dict[str, Any]:
    """ε, what it implies for a kernel that ends at the squared distance ``edge``, and what the kernel sum says."""
    edge = min(edge, TRUNCATED * epsilon) if choice.truncated else edge
    whole = cut_moment(dimension, edge / epsilon) if dimension > 0 and edge > 0 else 1.0
    return {
        "epsilon": epsilon,
        "intrinsic_dimension": dimension,
        "effective_epsilon": epsilon * whole,
        "rule": str(choice.epsilon),
        "ksum_epsilon": curve.best,
        "dimension": curve.dimension,
        "kernel": choice.kernel,
    }


def _epsilon(
    choice: Bandwidth,
    nearest: str,
    sizes: Array,
    kth: float,
    ksum_best: float,
    counts: Array,
    median: float,
    weights: str,
) -> float:
    rule = choice.epsilon
    if not isinstance(rule, str):
        return float(rule)
    if counts.any() and not median:
        median = histogram_median(counts, int(sizes.sum()))  # of sampled rows to all, which an error tells
    if rule in ("ksum", "median") and not counts.any():
        raise InputError(
            f"epsilon={rule!r} is a global scale, and only the distances along edges were given. Take epsilon='auto', "
            "which fits the graph, or a number"
        )
    if rule in ("ksum", "median") and not choice.complete:
        value = ksum_best if rule == "ksum" else median
        raise InputError(
            f"epsilon={rule!r} is a global scale ({value:.4g}), which a graph of nearest neighbors cannot hold (the "
            f"median squared distance to the k-th neighbor is {kth:.4g}). Two routes: n_neighbors=None (the complete "
            "kernel, for small n), or epsilon='auto', which fits the graph"
        )
    if rule == "auto" and choice.local:
        return choice.natural
    if rule == "auto" and choice.complete:
        rule = "ksum"
    if rule in ("max-min", "mean-min"):
        largest, mean = _nearest(nearest, len(sizes), weights)
        epsilon = largest if rule == "max-min" else 2 * mean
    else:
        epsilon = {"auto": kth, "ksum": ksum_best, "median": median}[rule]
    if not epsilon > 0:
        raise InputError(
            f"epsilon={rule!r} gives {epsilon}: more than half of the rows have all their neighbors at distance 0 "
            "(identical rows). Take bandwidth='adaptive', raise n_neighbors, or give epsilon as a number"
        )
    return float(epsilon)


def _typical_scale(farthest: str, blocks: int, median: float, needed: bool) -> float:
    """The root of the ``median`` squared distance to the k-th neighbor; if it is 0, of the mean of those above 0.

    0 where all are 0, an error if it is ``needed``.
    """
    if median > 0:
        return float(np.sqrt(median))
    parts = map_blocks(positive_block, [(b,) for b in range(blocks)], farthest=farthest)
    count = sum(part[1] for part in parts)
    if not count and not needed:
        return 0.0
    if not count:
        raise InputError(
            "the rows are identical, or each repeats more than n_neighbors times: there is no distance to take a scale "
            "from. Drop repeated rows, or raise n_neighbors"
        )
    return float(np.sqrt(sum(part[0] for part in parts) / count))


def positive_block(b: int, *, farthest: str) -> tuple[float, int]:
    """Sum and number of the squared distances to the k-th neighbor that are not 0."""
    kth = read_array(f"{farthest}/{b}").astype(np.float64)
    return float(kth.sum()), int(np.count_nonzero(kth))


def _nearest(nearest: str, blocks: int, weights: str) -> tuple[float, float]:
    found = map_blocks(nearest_block, [(b,) for b in range(blocks)], squared=nearest, weights=weights)
    rows = sum(part[2] for part in found)
    return max(part[0] for part in found), sum(part[1] for part in found) / rows


def nearest_block(b: int, *, squared: str, weights: str = "") -> tuple[float, float, float]:
    """Largest, sum and number of the squared distances to the nearest neighbor, by the weights of the rows."""
    nearest = read_array(f"{squared}/{b}")[:, 0].astype(np.float64)
    if not weights:
        return float(nearest.max()), float(nearest.sum()), len(nearest)
    mass = read_array(f"{weights}/{b}")
    return float(nearest.max()), float(mass @ nearest), float(mass.sum())
