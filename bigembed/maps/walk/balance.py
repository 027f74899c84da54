"""The bistochastic normalization of a kernel: factors x with x_i Σ_{j≠i} K_ij x_j = 1, found by sweeps over its edges.

Noise of size σ_i at row i adds about σ_i² + σ_j² to squared distances in many dimensions, so it multiplies a Gaussian
kernel of one scale by a factor of each row, but for the diagonal, which stays 1. Without the diagonal the factors x
take it away: what is left is the kernel of the clean rows (Landa, Coifman & Kluger 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigembed.estimator.graph_input import row_sums
from bigembed.runtime.blocks import Array
from bigembed.store.arrays import write_array
from bigembed.store.matrix import StoredMatrix
from bigembed.store.spaces import StoredSpace

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
