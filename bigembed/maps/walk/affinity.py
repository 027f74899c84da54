"""The kernel of a stored graph: weights, normalization, degrees, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import normalize_block, row_sums, weigh_both, weighted_sums, with_weights
from bigembed.maps.bandwidth import KERNEL, Bandwidth, own_scales
from bigembed.maps.kernels import Target, Walk, local_squared_block
from bigembed.maps.scales import EQUAL
from bigembed.neighbors.row_weights import DENSITY, WEIGHTS, values_path
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import StoredMatrix, write_values
from bigembed.store.spaces import StoredSpace


def kernel_stage(
    choice: Bandwidth,
    alpha: float,
    n: int,
    n_neighbors: int,
    block: int,
    graph: str = "graph",
    target: Target | None = None,
    scales: str = "search",
    vectors: tuple[str, ...] = (),
    balanced: bool = False,
) -> Stage:
    """Weights K/(q_i q_j)^α on the graph, q = K1, and the degrees d of the normalized kernel.

    ``scales``: the stage with the distance to the k-th neighbor, which is the scale ρ of a row; empty: rows have one.
    ``vectors``: of weights w of the rows q = Kw, and what is stored is w_i W_ij w_j and w_i d_i, d = Ww: then the walk
    is P_ij = W_ij w_j/d_i, its stationary distribution ∝ w_i d_i, and all that follows is as without weights.

    ``balanced``: in place of q the factors for which the sums of the rows without the diagonal are 1, and α = 1.

    With ``target`` α follows from the operator that is wanted and the dimension, q is divided by ρ^d, and the walk is
    held back where it would move too fast: see :mod:`bigembed.maps.kernels`.
    """
    parameters: dict[str, Any] = {"alpha": alpha, KERNEL: choice.kernel, "truncated": choice.truncated}
    parameters |= {"bridged": True} if choice.bridged else {}
    parameters |= {"target": target.name, "dimension": target.dimension} if target else {}
    parameters |= {"normalization": BISTOCHASTIC, "tol": TOL} if balanced else {}
    if balanced and vectors:
        raise InputError(
            "normalization='bistochastic' takes rows that count once: with sample_weight leave it out, or repeat rows"
        )

    def holds(results: Mapping[str, Any]) -> bool:
        # (before, rows below the floor were raised to the floor itself, and nothing said to what)
        return not (choice.local and results.get("floored")) or results.get("floored_to") == "median"

    edges = 2 * n * n_neighbors
    writes = [ArraySpec("weights/*", edges, dtype="f8" if target else "f4")]
    writes += [ArraySpec(f"{name}/*", n) for name in ("q", "degree", *(("mass",) if target or balanced else ()))]
    products = PLANNED if balanced else 0
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 2, "f4", 3 + products)],
        writes=writes,
        leaves=[ArraySpec("ρ, q and degrees of the rows and of the halo", n, 6 + 4 * bool(products))],
        task=[ArraySpec("edges", 2 * block * n_neighbors, 6 if target or balanced else 5)],
        passes=2 + products,
        scalar_ops=edges * products,
    )
    inputs = tuple(dict.fromkeys(name for name in (graph, scales, "bandwidth", *vectors) if name))
    more: dict[str, Any] = {"balanced": True} if balanced else {}
    return Stage(
        "kernel",
        inputs,
        parameters,
        partial(run_kernel, choice=choice, alpha=alpha, graph=graph, target=target, scales=scales, **more),
        cost,
        holds=holds,
        opens={scales: ("rho_squared",)} if scales and scales != graph else {},
    )


def run_kernel(
    context: Context,
    choice: Bandwidth,
    alpha: float,
    graph: str,
    target: Target | None,
    scales: str,
    balanced: bool = False,
) -> dict[str, Any]:
    distances = context.home.matrix(graph)
    rows = distances.rows
    space = StoredSpace(distances, context.exchange)
    found = context.results("bandwidth")
    epsilon, farthest, out = found["epsilon"], context.of(scales, "rho_squared") if scales else "", context.path("")
    mass, wanted = values_path(context), values_path(context, DENSITY)
    factors = (rows, mass, wanted)
    rho = space.sweep(rho_block, writes=["rho"], posts=["rho"], arguments=(farthest, found["floor"], *factors))
    smallest = min(part[0] for part in rho)
    walk = target.walk(choice.local, found["intrinsic_dimension"], smallest) if target else None
    power = alpha if walk is None else walk.alpha
    shared = (distances, epsilon, choice, walk)
    said: dict[str, Any] = {}
    if balanced:
        kernel = partial(_unnormalized, distances=distances, epsilon=epsilon, choice=choice)
        said, power = {"balance": balance(space, distances, kernel, out)}, 1.0
    else:
        space.sweep(density_block, reads=["rho"], halos=["rho"], writes=["q"], posts=["q"], arguments=(*shared, out))
    names = ["rho", "q"]
    parts = space.sweep(weights_block, reads=names, halos=names, arguments=(*shared, power, out, balanced))
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
        **({WEIGHTS: True} if mass else {}),
        **({DENSITY: True} if wanted else {}),
        **said,
    }


def rho_block(
    b: int, farthest: str, floor: float, rows: Sequence[int], weights: str, wanted: str
) -> tuple[tuple[Array], tuple[float, int]]:
    """Scale ρ of each row, (rows, 1): the distance to its k-th neighbor, or the median one; the smallest, and how
    many are below ``floor``. Where ``farthest`` is empty rows have one scale, 1. Where there are ``weights`` w they are
    a second column; where a density μ is ``wanted``, w√μ is a third one."""
    if not farthest:
        return (with_weights(b, np.ones((rows[b], 1)), weights, wanted),), (1.0, 0)
    rho = np.sqrt(read_array(f"{farthest}/{b}")[:, None].astype(np.float64))
    raised = own_scales(rho, floor)
    return (with_weights(b, raised, weights, wanted),), (float(raised.min()), int(np.count_nonzero(rho < floor)))


def _unnormalized(
    b: int, rho: Array, halo_rho: Array, distances: StoredMatrix, epsilon: float, choice: Bandwidth
) -> Array:
    block = distances.block(b)
    squared = local_squared_block(block, rho[:, 0], halo_rho[:, 0], choice.kernel) if choice.local else block.data
    weights = choice.weights(squared, epsilon)
    if choice.within:
        scales = np.concatenate([rho[:, 0], halo_rho[:, 0]]) ** 2
        reach = np.maximum(np.repeat(scales[: len(rho)], np.diff(block.indptr)), scales[block.indices])
        weights[block.data > reach * (1 + EQUAL)] = 0.0
    return weights


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
    """q = K1 of one block, (rows, 1), the density of the rows up to a factor; kept for the extension to new rows.

    Where rows have weights, a second column of ``rho``, q = Kw.
    """
    mass = weighted_sums(distances.block(b), _unnormalized(b, rho, halo_rho, distances, epsilon, choice), rho, halo_rho)
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
    balanced: bool = False,
) -> tuple[tuple[()], tuple[int, int, float]]:
    """Write the normalized weights and their row sums, the degrees; edges, those that are not 0, Σ W_ii/d_i. Of a
    ``balanced`` kernel the diagonal is 0.

    Where rows have weights, the last column of ``rho``, w_i W_ij w_j is written, and w_i d_i.
    """
    kernel = _unnormalized(b, rho, halo_rho, distances, epsilon, choice)
    block = distances.block(b)
    weights = weigh_both(block, normalize_block(block, kernel, q[:, 0], halo_q[:, 0], alpha), rho, halo_rho)
    own = block.diagonal
    if balanced:
        weights[own] = 0.0
    if walk is None:
        weights = weights.astype(np.float32)
    else:
        weights[own] = 0.0
        weights[own] = walk.stay_share(row_sums(block.indptr, weights), rho[:, 0])
    degree = row_sums(block.indptr, weights)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", degree)
    stayed = np.divide(weights[own], degree, out=np.zeros(len(degree)), where=degree > 0)
    stayed = stayed * rho[:, 1] if rho.shape[1] > 1 else stayed
    return (), (len(weights), int(np.count_nonzero(weights)), float(stayed.sum()))


# ----------------------------------------------------------------------------------------------------------- balance
# The bistochastic normalization of a kernel: factors x with x_i Σ_{j≠i} K_ij x_j = 1, found by sweeps over its edges.
#
# Noise of size σ_i at row i adds about σ_i² + σ_j² to squared distances in many dimensions, so it multiplies a Gaussian
# kernel of one scale by a factor of each row, but for the diagonal, which stays 1. Without the diagonal the factors x
# take it away: what is left is the kernel of the clean rows (Landa, Coifman & Kluger 2021).


ALPHA, BISTOCHASTIC = "alpha", "bistochastic"
NORMALIZATIONS = (ALPHA, BISTOCHASTIC)
"""K/(q_i q_j)^α with q = K1; or x_i K_ij x_j without the diagonal, whose rows sum to 1."""
TOL = 1e-6
"""Largest |x_i Σ_{j≠i} K_ij x_j − 1| with which the iteration ends."""
PRODUCTS = 200
"""Of the kernel with a vector, at the most."""
PLANNED = 36
"""That a plan counts with: digits, MNIST, cells and a tree in 100 dimensions take 34 to 41 at 15 neighbors."""

Kernel = Callable[..., Array]
"""``kernel(b, rho, halo_rho)``: K on the edges of a block. Picklable."""


def balance(space: StoredSpace, distances: StoredMatrix, kernel: Kernel, out: str) -> dict[str, Any]:
    """Leave the vector ``q`` = 1/x of all rows in the space, and write ``q/b`` and the sums K1, ``mass/b``; what is
    said of the iteration.

    x ← √(x/(K x)) from x = 1/√(K1), K without its diagonal: each step takes the geometric mean of x and of what
    Sinkhorn and Knopp take next, which is symmetric and does not swing.
    """
    shared = (distances, kernel)
    space.sweep(start_block, reads=["rho"], halos=["rho"], writes=["x0"], posts=["x0"], arguments=(*shared, out))
    largest, products = np.inf, 0
    while largest > TOL and products < PRODUCTS:
        before, after = f"x{products}", f"x{products + 1}"
        names = ["rho", before]
        found = space.sweep(factor_block, reads=names, halos=names, writes=[after], posts=[after], arguments=shared)
        largest, products = max(found), products + 1
        space.drop(before)
    space.sweep(inverse_block, reads=[f"x{products}"], writes=["q"], posts=["q"], arguments=(out,))
    return {"products": products, "largest": float(largest), "converged": bool(largest <= TOL)}


def unbalanced(found: dict[str, Any]) -> str:
    """What is said of a kernel whose factors were not found."""
    return (
        f"after {found['products']} products the sums of the bistochastic kernel are off by up to "
        f"{found['largest']:.2g}: some rows hang on so few others that no factors make all sums 1. Raise n_neighbors "
        "or epsilon, or take normalization='alpha'"
    )


def edges_of(b: int, rho: Array, halo: Array, distances: StoredMatrix, kernel: Kernel) -> tuple[Any, Array]:
    """A block of the graph, and K on its edges, 0 on the diagonal."""
    block, weights = distances.block(b), kernel(b, rho, halo)
    weights[block.diagonal] = 0.0
    return block, weights


def start_block(
    b: int, rho: Array, halo: Array, distances: StoredMatrix, kernel: Kernel, out: str
) -> tuple[tuple[Array], None]:
    """x = 1/√(K1) of one block, (rows, 1); K1 with the diagonal is written."""
    block, weights = edges_of(b, rho, halo, distances, kernel)
    total = row_sums(block.indptr, weights)
    write_array(f"{out}mass/{b}", total + 1.0)
    return (np.sqrt(_over(1.0, total))[:, None],), None


def factor_block(
    b: int, rho: Array, x: Array, halo: Array, halo_x: Array, distances: StoredMatrix, kernel: Kernel
) -> tuple[tuple[Array], float]:
    """√(x/(K x)) of one block, (rows, 1), and the largest |x K x − 1| of the x that came."""
    block, weights = edges_of(b, rho, halo, distances, kernel)
    product = row_sums(block.indptr, weights * np.concatenate([x, halo_x])[block.indices, 0])
    off = np.abs(x[:, 0] * product - 1.0)[product > 0]
    return (np.sqrt(_over(x[:, 0], product))[:, None],), float(off.max(initial=0.0))


def inverse_block(b: int, x: Array, out: str) -> tuple[tuple[Array], None]:
    """q = 1/x of one block, (rows, 1), which is written, too: K_ij/(q_i q_j) is what is balanced."""
    q = 1.0 / x
    write_array(f"{out}q/{b}", q[:, 0])
    return (q,), None


def _over(value: Array | float, total: Array) -> Array:
    """The quotient; 1 of a row that no edge leads to."""
    return np.divide(value, total, out=np.ones(len(total)), where=total > 0)
