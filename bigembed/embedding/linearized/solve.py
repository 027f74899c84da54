"""Eigenpairs of the linearized diffusion operator, and the map of rows that follows from them."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.eigen.factored import solve_factored
from bigembed.embedding.linearized.kernel import (
    KERNEL,
    SolverOptions,
    StoredKernel,
    farthest,
    keep_kernel,
    kernel_of,
    normalization_of,
    pass_cost,
    refuse_lost,
    refuse_negative,
)
from bigembed.embedding.linearized.lanczos import lanczos_cost, solve_by_lanczos
from bigembed.errors import InputError
from bigembed.kernels.linearized_map import LinearizedMap
from bigembed.kernels.linearized_sums import combine_sums, gram_block
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.rows.passes import reduce_rows
from bigembed.store.rows.source import RowSource

POWERS = {"eigenvector": 0.0, "sqrt": 0.5, "eigenvalue": 1.0}
"""Power of λ on the coordinates, by the name of their scaling."""


def solve_stage(source: RowSource, asked: SolverOptions) -> Stage:
    """Eigenvalues and B: one pass for G (factored), or the passes of block Lanczos."""
    size = source.shape[1] + 3

    def run(context: Context) -> dict[str, Any]:
        solve = solve_by_lanczos if asked.solver == "lanczos" else _solve_factored
        found = solve(source, asked, context)
        for name in ("eigenvalues", "coefficients", "residuals"):
            write_array(context.path(name), found.pop(name))
        return found | {"solver": asked.solver, "seed": asked.seed, "n_components": asked.n_components}

    if asked.solver == "lanczos":
        return Stage("solve", KERNEL, asdict(asked), run, lanczos_cost(source, asked.n_components))
    return Stage("solve", KERNEL, asdict(asked), run, pass_cost(source, size, 1, 8 * size * size), resumes=True)


def _solve_factored(source: RowSource, asked: SolverOptions, context: Context) -> dict[str, Any]:
    kernel, given, scale = kernel_of(context.home), normalization_of(context.home), context.results("scale")
    found = reduce_rows(
        source,
        gram_block,
        context.exchange,
        combine=combine_sums,
        partial_bytes=8 * kernel.size**2,
        kernel=kernel,
        given=given,
        far=farthest(context, kernel),
    )
    refuse_negative(scale, float(found["lowest degree"]), float(found["lowest entry"]))
    degrees = float(found["degrees"])
    trivial = None if given.second is None else given.second / np.sqrt(degrees)
    result = solve_factored(
        found["gram"], kernel.core, asked.n_components, scale["present"], deflate=trivial, order=asked.order
    )
    return {
        "eigenvalues": result.eigenvalues,
        "coefficients": result.coefficients,
        "residuals": result.residuals,
        "degrees": degrees,
        "gap": result.gap,
        "orthogonality": result.orthogonality,
        "rank": result.rank,
        "passes": 1,
        "converged": True,
        "advice": "",
    }


def map_stage(source: RowSource, m: int, normalization: str, scaling: str) -> Stage:
    """Everything that coordinates need, in one place, and the linear part of the map. No pass."""
    d = source.shape[1]

    def run(context: Context) -> dict[str, Any]:
        kernel, given, solve = kernel_of(context.home), normalization_of(context.home), context.results("solve")
        eigenvalues = read_array(context.of("solve", "eigenvalues"))
        loads = read_array(context.of("solve", "coefficients")) * np.abs(eigenvalues) ** POWERS[scaling]
        if scaling == "eigenvalue":
            loads = loads * np.where(eigenvalues < 0, -1.0, 1.0)
        symmetric = normalization == "symmetric"
        linear, offset = LinearizedMap(kernel, given, loads, solve["degrees"], symmetric).linear_part()
        numbers = keep_kernel(context)
        for name, array in {"loads": loads, "linear": linear, "offset": offset}.items():
            write_array(context.path(name), array)
        return numbers | {
            "degrees": solve["degrees"],
            "symmetric": symmetric,
            "n_components": m,
            "n_features": d,
            "dtype": str(source.work),
        }

    parameters = {"normalization": normalization, "scaling": scaling}
    return Stage("map", (*KERNEL, "solve"), parameters, run, Cost(disk=8 * d * (2 * m + 6), coordinator=64 * d * m))


@lru_cache(maxsize=2)
def open_map(stored: StoredKernel) -> LinearizedMap:
    """The map, read."""
    kernel, given, numbers = stored.read()
    return LinearizedMap(kernel, given, read_array(f"{stored.path}/loads"), numbers["degrees"], numbers["symmetric"])


def map_rows(rows: Array, stored: StoredKernel, epsilons: Array | None = None) -> Array:
    """Coordinates of rows; OutOfReachError, or NaN where that was asked for, beyond the reach of the kernel."""
    if epsilons is not None and not (np.isfinite(epsilons).all() and (epsilons > 0).all()):
        raise InputError(f"epsilons must be positive and finite numbers; the smallest is {np.min(epsilons):g}")
    coordinates = open_map(stored).coordinates(rows, epsilons)
    if stored.outside == "error":
        refuse_lost(np.isnan(coordinates[:, 0]))
    return coordinates
