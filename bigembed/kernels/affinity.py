"""The kernel of a stored graph: weights, normalization, degrees, one block at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.kernels.gaussian import local_squared_block
from bigembed.kernels.normalize import normalize_block, row_sums
from bigembed.kernels.scale import Bandwidth, own_scales
from bigembed.kernels.target import Target, Walk
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.matrix import StoredMatrix, write_values
from bigembed.store.blockwise.stored_space import StoredSpace


def kernel_stage(
    choice: Bandwidth,
    alpha: float,
    n: int,
    n_neighbors: int,
    block: int,
    graph: str = "graph",
    target: Target | None = None,
    scales: str = "search",
) -> Stage:
    """Weights K/(q_i q_j)^α on the graph, q = K1, and the degrees d of the normalized kernel.

    ``scales``: the stage with the distance to the k-th neighbor, which is the scale ρ of a row; empty: rows have one.

    With ``target`` α follows from the operator that is wanted and the dimension, q is divided by ρ^d, and the walk is
    held back where it would move too fast: see :mod:`bigembed.kernels.target`.
    """
    parameters: dict[str, Any] = {"alpha": alpha, "rule": choice.rule, "truncated": choice.truncated}
    parameters |= {"bridged": True} if choice.bridged else {}
    parameters |= {"target": target.name, "dimension": target.dimension} if target else {}

    def run(context: Context) -> dict[str, Any]:
        distances = context.home.matrix(graph)
        rows = distances.rows
        space = StoredSpace(distances, context.exchange)
        found = context.results("bandwidth")
        epsilon, farthest, out = found["epsilon"], context.of(scales, "rho_squared") if scales else "", context.path("")
        rho = space.sweep(rho_block, writes=["rho"], posts=["rho"], arguments=(farthest, found["floor"], rows))
        smallest = min(part[0] for part in rho)
        walk = target.walk(choice.local, found["intrinsic_dimension"], smallest) if target else None
        power = alpha if walk is None else walk.alpha
        shared = (distances, epsilon, choice, walk)
        space.sweep(density_block, reads=["rho"], halos=["rho"], writes=["q"], posts=["q"], arguments=(*shared, out))
        parts = space.sweep(weights_block, reads=["rho", "q"], halos=["rho", "q"], arguments=(*shared, power, out))
        stayed = sum(part[2] for part in parts) / sum(rows)
        floored = sum(part[1] for part in rho)
        return {
            "edges": sum(part[0] for part in parts),
            "nonzero": sum(part[1] for part in parts),
            "rows": list(rows),
            "alpha": power,
            "unit": walk.unit if walk else 0.0,
            "stayed": stayed,
            "floored": floored,
            **({"floored_to": "median"} if floored else {}),
        }

    def holds(results: Mapping[str, Any]) -> bool:
        # (before, rows below the floor were raised to the floor itself, and nothing said to what)
        return not (choice.local and results.get("floored")) or results.get("floored_to") == "median"

    edges = 2 * n * n_neighbors
    cost = Cost(
        passes=2,
        read=24 * edges,
        write=4 * edges + 24 * n,
        disk=(8 if target else 4) * edges + 16 * n,
        scratch=48 * n,
        memory=(48 if target else 40) * 2 * block * n_neighbors,
    )
    inputs = tuple(dict.fromkeys(name for name in (graph, scales, "bandwidth") if name))
    return Stage("kernel", inputs, parameters, run, cost, holds=holds)


def rho_block(b: int, farthest: str, floor: float, rows: Sequence[int]) -> tuple[tuple[Array], tuple[float, int]]:
    """Scale ρ of each row, (rows, 1): the distance to its k-th neighbor, or the median one; the smallest, and how
    many are below ``floor``. Where ``farthest`` is empty rows have one scale, 1."""
    if not farthest:
        return (np.ones((rows[b], 1)),), (1.0, 0)
    rho = np.sqrt(read_array(f"{farthest}/{b}")[:, None].astype(np.float64))
    raised = own_scales(rho, floor)
    return (raised,), (float(raised.min()), int(np.count_nonzero(rho < floor)))


def _unnormalized(
    b: int, rho: Array, halo_rho: Array, distances: StoredMatrix, epsilon: float, choice: Bandwidth
) -> Array:
    block = distances.block(b)
    squared = local_squared_block(block, rho[:, 0], halo_rho[:, 0], choice.rule) if choice.local else block.data
    return choice.weights(squared, epsilon)


def density_block(
    b: int,
    rho: Array,
    halo_rho: Array,
    distances: StoredMatrix,
    epsilon: float,
    choice: Bandwidth,
    walk: Walk | None,
    out: str,
) -> tuple[tuple[Array], None]:
    """q = K1 of one block, (rows, 1), the density of the rows up to a factor; kept for the extension to new rows."""
    mass = row_sums(distances.block(b).indptr, _unnormalized(b, rho, halo_rho, distances, epsilon, choice))
    q = mass if walk is None else walk.density(mass, rho[:, 0])
    write_array(f"{out}q/{b}", q)
    if walk is not None:
        write_array(f"{out}mass/{b}", mass)
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
    walk: Walk | None,
    alpha: float,
    out: str,
) -> tuple[tuple[()], tuple[int, int, float]]:
    """Write the normalized weights and their row sums, the degrees; edges, those that are not 0, Σ W_ii/d_i."""
    kernel = _unnormalized(b, rho, halo_rho, distances, epsilon, choice)
    block = distances.block(b)
    weights = normalize_block(block, kernel, q[:, 0], halo_q[:, 0], alpha)
    own = block.diagonal
    if walk is None:
        weights = weights.astype(np.float32)
    else:
        weights[own] = 0.0
        weights[own] = walk.held(row_sums(block.indptr, weights), rho[:, 0])
    degree = row_sums(block.indptr, weights)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", degree)
    stayed = np.divide(weights[own], degree, out=np.zeros(len(degree)), where=degree > 0)
    return (), (len(weights), int(np.count_nonzero(weights)), float(stayed.sum()))
