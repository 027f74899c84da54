"""Eigenpairs of the linearized diffusion operator by block Lanczos, and the map of rows that follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.linalg import FactoredOperator
from bigembed.linalg.lanczos import ZERO, signed, solve_factored, solve_lanczos
from bigembed.maps import linearized
from bigembed.maps.linearized import passes
from bigembed.rows import RowSource
from bigembed.rows.passes import reduce_rows
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store import matrix, spaces, vector_space
from bigembed.store.arrays import read_array, write_array

# --------------------------------------------------------------------------------------------------------- lanczos
# Block Lanczos on the matrix-free operator of the linearized diffusion map (seed 004 eqs. 9–13).

EXPECTED = 40
"""Passes of a solve that are planned: two a product, some 20 products."""
MAX_BLOCKS = 12


@dataclass(frozen=True)
class RowBlocks:
    """Canonical blocks as the rows of a space of vectors in which no block needs rows of another."""

    rows: tuple[int, ...]

    def block(self, b: int) -> matrix.CSRBlock:
        """No entries."""
        none = np.zeros(0, np.int32)
        indptr = np.zeros(self.rows[b] + 1, np.int64)
        return matrix.CSRBlock(indptr, none, np.zeros(0), none, np.zeros(1, np.int64), none)

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """Nothing is sent."""
        return []


@dataclass(frozen=True)
class RowFeatures:
    """The features of rows, made from the source when they are needed."""

    source: RowSource
    kernel: linearized.LinearizedKernel

    @property
    def size(self) -> int:
        """Features of a row."""
        return self.kernel.size

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Canonical blocks."""
        return bounds(self.source.shape[0], self.source.block)

    def aligned(self, block: int, name: str) -> Array | None:
        """An aligned vector of the rows of a block."""
        other = self.source.aligned.get(name)
        return None if other is None else np.asarray(other.read(*self.spans[block]), np.float64)

    def tiles(self, block: int) -> Iterator[tuple[slice, Array]]:
        """(which rows of the block, their features)."""
        rows = self.source.matrix(*self.spans[block])
        return self.kernel.tiles(rows, self.aligned(block, linearized.EPSILONS))


def solve_by_lanczos(source: RowSource, asked: passes.SolverOptions, context: Context) -> dict[str, Any]:
    """The largest eigenpairs besides the trivial one, and B = M UᵀN V Λ^{−1}, so that V = N U B."""
    kernel, given = passes.kernel_of(context.home), passes.normalization_of(context.home)
    scale = context.results("scale")
    features = RowFeatures(source, kernel)
    space = spaces.StoredSpace(RowBlocks(tuple(stop - start for start, stop in features.spans)), context.exchange)
    arguments = (features, given, passes.farthest(context, kernel))
    parts = space.sweep(degree_block, writes=["scale", "root"], posts=["scale"], arguments=arguments)
    passes.refuse_negative(scale, min(part[1] for part in parts), min(part[2] for part in parts))
    degrees = float(vector_space.tree_sum([part[0] for part in parts]))
    space.sweep(divide_block, reads=["root"], writes=["trivial"], arguments=(np.sqrt(degrees),))
    operator = FactoredOperator(features, kernel.core, space)
    result = solve_lanczos(
        operator,
        asked.n_components,
        tol=asked.tol,
        seed=asked.seed,
        max_passes=asked.max_passes,
        max_blocks=MAX_BLOCKS,
        deflate="trivial",
        which="magnitude" if asked.order == "magnitude" else "largest",
        relative=True,
    )
    values = np.asarray(result.eigenvalues)
    live = np.abs(values) > ZERO
    coefficients = np.where(live, kernel.core @ operator.gather(["V"]) / np.where(live, values, 1.0), 0.0)
    return {
        "eigenvalues": np.where(live, values, 0.0),
        "coefficients": signed(coefficients),
        "residuals": np.asarray(result.residuals),
        "degrees": degrees,
        "gap": float(result.gap),
        "orthogonality": float(result.orthogonality),
        "rank": int(live.sum()) + 1,
        "passes": operator.passes + 1,
        "converged": bool(result.converged),
        "advice": str(result.advice),
    }


def lanczos_cost(source: RowSource, m: int) -> Cost:
    """Passes over the rows, and the vectors of the basis in the exchange."""
    (n, d), width = source.shape, max(2, m)
    sums = ArraySpec("sums", d + 3, width)
    return passes.pass_cost(source, solution_arrays(d + 3, m), EXPECTED, 0) + Cost.of(
        reads=[ArraySpec("basis", n, width, times=EXPECTED * MAX_BLOCKS)],
        vectors=[ArraySpec("basis and vectors of a step", n, width, times=MAX_BLOCKS + 6)],
        posts=[ArraySpec("vectors of a step", n, width, times=3 * EXPECTED)],
        task=[ArraySpec("basis", source.largest_block, width, times=2 * (MAX_BLOCKS + 3)), replace(sums, times=4)],
        coordinator=[replace(sums, times=4 + -(-n // source.block))],
        flops=EXPECTED * n * width * (4 * (d + 3) + 4 * width * MAX_BLOCKS),
    )


def solution_arrays(size: int, m: int) -> Arrays:
    """What a solve publishes."""
    return [ArraySpec("coefficients", size, m), ArraySpec("eigenvalues", m), ArraySpec("residuals", m)]


def degree_block(
    block: int, features: RowFeatures, given: linearized.Normalization, far: Array
) -> tuple[tuple[Array, Array], tuple[float, float, float]]:
    """N = √m w/√d and √(m d) of each row; Σ m d, the smallest u·M t and u·far of a row with mass. One pass."""
    mass = features.aligned(block, "weights")
    start, stop = features.spans[block]
    scale, root = np.zeros((2, stop - start, 1))
    lowest = entry = np.inf
    for part, u in features.tiles(block):
        m = np.ones(len(u)) if mass is None else mass[part]
        weight, reach = given.weights(u), given.reach(u)
        inside = m > 0
        lowest = min(lowest, float(reach[inside].min(initial=np.inf)))
        entry = min(entry, float((u @ far)[inside].min(initial=np.inf)))
        good = inside & (reach > 0)
        ratio = np.where(good, weight / np.where(good, reach, 1.0), 0.0)
        scale[part, 0] = np.sqrt(np.where(good, m, 0.0) * ratio)
        root[part, 0] = np.sqrt(np.where(good, m * weight * reach, 0.0))
    return (scale, root), (float(np.sum(root**2)), lowest, entry)


def divide_block(block: int, root: Array, size: float) -> tuple[tuple[Array], None]:
    """The trivial vector √(m d/Σ m d)."""
    return (root / size,), None


# ----------------------------------------------------------------------------------------------------------- solve
# Eigenpairs of the linearized diffusion operator, and the map of rows that follows from them.

POWERS = {"eigenvector": 0.0, "sqrt": 0.5, "eigenvalue": 1.0}
"""Power of λ on the coordinates, by the name of their scaling."""


def solve_stage(source: RowSource, asked: passes.SolverOptions) -> Stage:
    """Eigenvalues and B: one pass for G (factored), or the passes of block Lanczos."""
    size, m = source.shape[1] + 3, asked.n_components
    if asked.solver == "lanczos":
        cost = lanczos_cost(source, m)
    else:
        cost = passes.pass_cost(source, solution_arrays(size, m), 1, 8 * size * size)
    return Stage("solve", passes.KERNEL, asdict(asked), partial(run_solve, source=source, asked=asked), cost)


def run_solve(context: Context, source: RowSource, asked: passes.SolverOptions) -> dict[str, Any]:
    solve = solve_by_lanczos if asked.solver == "lanczos" else _solve_factored
    found = solve(source, asked, context)
    for name in ("eigenvalues", "coefficients", "residuals"):
        write_array(context.path(name), found.pop(name))
    return found | {"solver": asked.solver, "seed": asked.seed, "n_components": asked.n_components}


def _solve_factored(source: RowSource, asked: passes.SolverOptions, context: Context) -> dict[str, Any]:
    kernel, given = passes.kernel_of(context.home), passes.normalization_of(context.home)
    scale = context.results("scale")
    found = reduce_rows(
        source,
        linearized.gram_block,
        context.exchange,
        combine=linearized.combine_sums,
        partial_bytes=8 * kernel.size**2,
        kernel=kernel,
        given=given,
        far=passes.farthest(context, kernel),
    )
    passes.refuse_negative(scale, float(found["lowest degree"]), float(found["lowest entry"]))
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

    parameters: dict[str, Any] = {"normalization": normalization, "scaling": scaling}
    writes = [ArraySpec("loads", d + 3, m), ArraySpec("linear", m, d), ArraySpec("offset", m), *passes.kernel_arrays(d)]
    cost = Cost.of(writes=writes, coordinator=[ArraySpec("loads", d, m, times=8)])
    run = partial(run_map, source=source, m=m, **parameters)
    return Stage("map", (*passes.KERNEL, "solve"), parameters, run, cost)


def run_map(context: Context, source: RowSource, m: int, normalization: str, scaling: str) -> dict[str, Any]:
    kernel, given = passes.kernel_of(context.home), passes.normalization_of(context.home)
    solve = context.results("solve")
    eigenvalues = read_array(context.of("solve", "eigenvalues"))
    loads = read_array(context.of("solve", "coefficients")) * np.abs(eigenvalues) ** POWERS[scaling]
    if scaling == "eigenvalue":
        loads = loads * np.where(eigenvalues < 0, -1.0, 1.0)
    symmetric = normalization == "symmetric"
    linear, offset = linearized.LinearizedMap(kernel, given, loads, solve["degrees"], symmetric).linear_part()
    numbers = passes.keep_kernel(context)
    for name, array in {"loads": loads, "linear": linear, "offset": offset}.items():
        write_array(context.path(name), array)
    return numbers | {
        "degrees": solve["degrees"],
        "symmetric": symmetric,
        "n_components": m,
        "n_features": source.shape[1],
        "dtype": str(source.work),
    }


@lru_cache(maxsize=2)
def open_map(stored: passes.StoredKernel) -> linearized.LinearizedMap:
    """The map, read."""
    kernel, given, numbers = stored.read()
    return linearized.LinearizedMap(
        kernel, given, read_array(f"{stored.path}/loads"), numbers["degrees"], numbers["symmetric"]
    )


def map_rows(rows: Array, stored: passes.StoredKernel, epsilons: Array | None = None) -> Array:
    """Coordinates of rows; OutOfReachError, or NaN where that was asked for, beyond the reach of the kernel."""
    if epsilons is not None and not (np.isfinite(epsilons).all() and (epsilons > 0).all()):
        raise InputError(f"epsilons must be positive and finite numbers; the smallest is {np.min(epsilons):g}")
    coordinates = open_map(stored).coordinates(rows, epsilons)
    if stored.outside == "error":
        passes.refuse_lost(np.isnan(coordinates[:, 0]))
    return coordinates
