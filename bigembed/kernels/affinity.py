"""The kernel of a stored graph: scale, weights, normalization, degrees, one block at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks
from bigembed.errors import InputError
from bigembed.kernels.bandwidth import BINS, exact_median, histogram_median, ksum, pattern_counts, total
from bigembed.kernels.gaussian import gaussian_block, self_tuned_block
from bigembed.kernels.normalize import normalize_block, row_sums
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import StoredMatrix, write_values
from bigembed.store.vectors import StoredSpace

RULES = ("auto", "ksum", "median", "max-min", "mean-min")


@dataclass(frozen=True)
class Bandwidth:
    """How ε is chosen: a rule of :data:`RULES` or a number, and whether it is scaled by ρ_i ρ_j."""

    epsilon: str | float
    self_tuned: bool = False
    truncated: bool = False
    complete: bool = False
    """The graph holds every pair, so that global scales are meaningful."""


def bandwidth_stage(choice: Bandwidth) -> Stage:
    """ε, with the Ksum curve and the dimension it implies."""
    parameters = {"epsilon": choice.epsilon, "self_tuned": choice.self_tuned, "complete": choice.complete}

    def run(context: Context) -> dict[str, Any]:
        counts = read_array(context.of("witness", "histogram"))
        curve = ksum(counts)
        for name, values in (("epsilon", curve.epsilon), ("log_sum", curve.log_sum), ("slope", curve.slope)):
            write_array(context.path(f"ksum_{name}"), values)
        blocks = len(read_array(context.of("order", "starts"))) - 1
        kth = _median(context, blocks)
        epsilon = _epsilon(choice, context, blocks, kth, curve.best, counts)
        return {
            "epsilon": epsilon,
            "rule": str(choice.epsilon),
            "ksum_epsilon": curve.best,
            "dimension": curve.dimension,
            "median_kth": kth,
        }

    return Stage("bandwidth", ("order", "witness", "search"), parameters, run, Cost(coordinator=16 * BINS))


def _epsilon(choice: Bandwidth, context: Context, blocks: int, kth: float, ksum_best: float, counts: Array) -> float:
    rule = choice.epsilon
    if not isinstance(rule, str):
        return float(rule)
    if rule in ("ksum", "median") and not choice.complete:
        value = ksum_best if rule == "ksum" else histogram_median(counts)
        raise InputError(
            f"epsilon={rule!r} is a global scale ({value:.4g}), which a graph of nearest neighbors cannot hold (the "
            f"median squared distance to the k-th neighbor is {kth:.4g}). Two routes: n_neighbors=None (the complete "
            "kernel, for small n), or epsilon='auto', which fits the graph"
        )
    if rule == "auto" and choice.self_tuned:
        return 1.0
    if rule == "auto" and choice.complete:
        rule = "ksum"
    if rule in ("max-min", "mean-min"):
        largest, mean = _nearest(context, blocks)
        epsilon = largest if rule == "max-min" else 2 * mean
    else:
        epsilon = {"auto": kth, "ksum": ksum_best, "median": histogram_median(counts)}[rule]
    if not epsilon > 0:
        raise InputError(
            f"epsilon={rule!r} gives {epsilon}: more than half of the rows have all their neighbors at distance 0 "
            "(identical rows). Remove duplicated rows, raise n_neighbors, or give epsilon as a number"
        )
    return float(epsilon)


def _median(context: Context, blocks: int) -> float:
    """Median of the squared distance to the k-th neighbor."""
    path = context.of("search")
    sizes = np.diff(read_array(context.of("order", "starts")))

    def histogram(high: int | None) -> Array:
        return total(map_blocks(kth_counts_block, [(b,) for b in range(blocks)], path=path, high=high))

    return exact_median(histogram, int(sizes.sum()))


def kth_counts_block(b: int, *, path: str, high: int | None) -> Array:
    """Counts of :func:`~bigembed.kernels.bandwidth.pattern_counts` for the k-th squared distances of a block."""
    return pattern_counts(read_array(f"{path}/squared/{b}")[:, -1], high)


def _nearest(context: Context, blocks: int) -> tuple[float, float]:
    found = map_blocks(nearest_block, [(b,) for b in range(blocks)], path=context.of("search"))
    rows = sum(part[2] for part in found)
    return max(part[0] for part in found), sum(part[1] for part in found) / rows


def nearest_block(b: int, *, path: str) -> tuple[float, float, int]:
    """Largest, sum and number of the squared distances to the nearest neighbor."""
    nearest = read_array(f"{path}/squared/{b}")[:, 0].astype(np.float64)
    return float(nearest.max()), float(nearest.sum()), len(nearest)


def kernel_stage(choice: Bandwidth, alpha: float, n: int, n_neighbors: int, block: int, graph: str = "graph") -> Stage:
    """Weights K/(q_i q_j)^α on the graph, q = K1, and the degrees d of the normalized kernel."""
    parameters = {"alpha": alpha, "self_tuned": choice.self_tuned, "truncated": choice.truncated}

    def run(context: Context) -> dict[str, Any]:
        rows = tuple(np.diff(read_array(context.of(graph, "starts"))).tolist())
        distances = StoredMatrix(
            context.of(graph), context.of(graph, "squared"), rows, context.home.manifest(graph).digest
        )
        space = StoredSpace(distances, context.exchange)
        epsilon = context.results("bandwidth")["epsilon"]
        search, out = context.of("search"), context.path("")
        space.sweep(rho_block, writes=["rho"], posts=["rho"], arguments=(search,))
        shared = (distances, epsilon, choice)
        space.sweep(density_block, reads=["rho"], halos=["rho"], writes=["q"], posts=["q"], arguments=(*shared, out))
        parts = space.sweep(weights_block, reads=["rho", "q"], halos=["rho", "q"], arguments=(*shared, alpha, out))
        edges, kept = sum(part[0] for part in parts), sum(part[1] for part in parts)
        return {"edges": edges, "nonzero": kept, "rows": list(rows)}

    edges = 2 * n * n_neighbors
    cost = Cost(
        passes=2,
        read=24 * edges,
        write=4 * edges + 24 * n,
        disk=4 * edges + 16 * n,
        scratch=48 * n,
        memory=40 * 2 * block * n_neighbors,
    )
    return Stage("kernel", (graph, "search", "bandwidth"), parameters, run, cost)


def rho_block(b: int, search: str) -> tuple[tuple[Array], None]:
    """Distance to the k-th neighbor, (rows, 1)."""
    return (np.sqrt(read_array(f"{search}/squared/{b}")[:, -1:].astype(np.float64)),), None


def _unnormalized(
    b: int, rho: Array, halo_rho: Array, distances: StoredMatrix, epsilon: float, choice: Bandwidth
) -> Array:
    block = distances.block(b)
    squared = block.data
    if choice.self_tuned:
        if not (rho.all() and halo_rho.all()):
            raise InputError(
                "the self-tuned kernel divides by the distance to the k-th neighbor, which is 0 for some "
                "rows (more than k identical rows). Remove duplicates or use the fixed bandwidth"
            )
        squared = self_tuned_block(block, rho[:, 0], halo_rho[:, 0])
    return gaussian_block(squared, epsilon, truncated=choice.truncated)


def density_block(
    b: int, rho: Array, halo_rho: Array, distances: StoredMatrix, epsilon: float, choice: Bandwidth, out: str
) -> tuple[tuple[Array], None]:
    """q = K1 of one block, (rows, 1); kept for the extension to new rows."""
    q = row_sums(distances.block(b).indptr, _unnormalized(b, rho, halo_rho, distances, epsilon, choice))
    write_array(f"{out}q/{b}", q)
    return (q[:, None],), None


def weights_block(
    b: int,
    rho: Array,
    q: Array,
    halo_rho: Array,
    halo_q: Array,
    distances: StoredMatrix,
    epsilon: float,
    choice: Bandwidth,
    alpha: float,
    out: str,
) -> tuple[tuple[()], tuple[int, int]]:
    """Write the normalized weights (float32) and their row sums, the degrees."""
    kernel = _unnormalized(b, rho, halo_rho, distances, epsilon, choice)
    block = distances.block(b)
    weights = normalize_block(block, kernel, q[:, 0], halo_q[:, 0], alpha).astype(np.float32)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(block.indptr, weights))
    return (), (len(weights), int(np.count_nonzero(weights)))
