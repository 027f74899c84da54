"""Kernel PCA: principal components in the feature space of a kernel.

Its stages are here: the map from kernel values to coordinates, kernels that are given, and the way back to rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.linalg.eigenpairs import extremes, solve_dense_matrix
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.moments import merge_moments, moments_block, require_weight
from bigembed.linalg.pairs import VECTOR_ROWS, KernelOperator, vector_blocks
from bigembed.maps import landmark_maps, landmark_rows, positive_weights
from bigembed.maps.kernels import TILE, Kernel, in_tiles, refuse_values, wrong_values
from bigembed.quality.coordinates import carried_by_few, participation_of
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.rows.row_maps import Affine, AffineMap
from bigembed.runtime.blocks import Array, block_rows, bounds, is_sparse, map_blocks
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer, rows_of, summing_cost
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import assembled

# ----------------------------------------------------------------------------------------------------- coordinates
# Coordinates of kernel PCA: of a row by its kernel values.

COLUMNS = 2_048
"""Known rows whose kernel values a task holds at a time."""


@dataclass(frozen=True)
class ByKernel:
    """Where a task finds the rows that others are compared with, and the map of kernel values."""

    kernel: Kernel
    known: str
    map: AffineMap


def map_of(solve: str) -> AffineMap:
    """The map of kernel values that a solve left."""
    return AffineMap(f"{solve}/matrix", f"{solve}/mean")


def project_by_kernel(rows: Any, model: ByKernel) -> Array:
    """(k(x) − mean) A, k(x) the kernel of x with every known row, :data:`COLUMNS` of these at a time."""
    if is_sparse(rows):
        tiles = bounds(rows.shape[0], TILE)
        return np.concatenate([project_by_kernel(rows[start:stop].toarray(), model) for start, stop in tiles])
    coordinates: Any = 0.0
    for start, stop in bounds(len(read_array(model.map.mean)), COLUMNS):
        known, found = read_array(model.known, start, stop), model.map.read(start, stop)
        product = partial(_product, kernel=model.kernel, known=known, found=found)
        coordinates = coordinates + in_tiles(product, rows, found.matrix.shape[1])
    return np.asarray(coordinates)


def _product(tile: Any, kernel: Kernel, known: Array, found: Affine) -> Array:
    values = kernel(tile, known)
    refuse_values(kernel.text, wrong_values(values), "landmark")
    return np.asarray((values - found.mean) @ found.matrix)


# ----------------------------------------------------------------------------------------------------------- given
# Kernel PCA of a kernel matrix that is given: tiles are read where they lie, and rows are known by their numbers.


@dataclass(frozen=True)
class GivenKernel:
    """K of a stored (n, n) matrix, as a function of two blocks of row numbers, each ascending by one."""

    source: RowSource
    own: ClassVar[bool] = True  # (so its symmetry is checked)
    text: ClassVar[str] = "precomputed"

    def __call__(self, rows: Any, others: Any) -> Array:
        """Entries of K for all pairs, float64: a copy, for operators work in place."""
        spans = [(int(numbers[0, 0]), int(numbers[-1, 0]) + 1) for numbers in (rows, others)]
        return np.array(self.source.window(spans[0], spans[1]), np.float64)

    def key(self) -> dict[str, Any]:
        """What the values depend on in addition to the rows."""
        return {"kernel": self.text}


def numbers_of(source: RowSource) -> RowSource:
    """The shape of the numbers of the rows, (n, 1)."""
    return RowSource((source.shape[0], 1), np.dtype(np.float64))


def numbers_stage(source: RowSource) -> Stage:
    """``landmarks/rows`` (n, 1): the numbers of the rows of a kernel matrix (n, n)."""
    n, d = source.shape
    if n != d:
        raise InputError(f"kernel='precomputed': a kernel matrix is square (n, n); got shape {source.shape}")

    parameters = {"source": source.fingerprint(), "selection": "precomputed"}
    cost = Cost.of(writes=[ArraySpec("rows", n, 1)])
    return Stage("landmarks", (), parameters, partial(run_numbers, source=source, n=n), cost)


def run_numbers(context: Context, source: RowSource, n: int) -> dict[str, Any]:
    step = block_rows(1, 8)
    create_rows(context.path("rows"), (n, 1), np.float64, step)
    for start, stop in bounds(n, step):
        write_rows(context.path("rows"), start, np.arange(start, stop, dtype=np.float64)[:, None])
    return {"n": n, "d": n, "dtype": str(source.work), "landmarks": n, "wanted": n}


# ----------------------------------------------------------------------------------------------------------- solve
# The map from kernel values to coordinates, as stages: from all pairs of rows, or from landmarks.
#
# Both leave the same: ``solve/mean`` (L,), ``solve/matrix`` (L, m), ``solve/eigenvalues`` and ``residuals`` (m,),
# with coordinates y(x) = (k(x) − mean) matrix, k(x) the kernel of x with the L landmarks (all rows, for the exact
# solver).

DENSE_ROWS = 2_000
"""Rows up to which the kernel is formed, in one task, and solved densely."""
PASSES = 15
"""Passes over all pairs that a plan counts with."""
MOVES = 0.1
"""Share by which an eigenvalue of the landmarks may differ from that of half of them."""
SYMMETRIC = 1e-5
"""Largest |k(x, y) − k(y, x)| as a share of the largest |k| that counts as rounding."""


# --- all pairs -----------------------------------------------------------------------------------


def exact_solve_stage(
    source: RowSource, kernel: Kernel | GivenKernel, m: int, tol: float, max_passes: int, seed: int
) -> Stage:
    """Leading eigenpairs of H K H, K never stored: block Lanczos, or densely for few rows."""
    n = source.shape[0]

    d, width = source.shape[1], max(2, m)
    dense, blocks = n <= DENSE_ROWS, -(-n // VECTOR_ROWS)
    cost = Cost.of(
        reads=[rows_of(source, (2 if dense else PASSES) * blocks)],
        writes=solution_arrays(n, m),
        leaves=[ArraySpec("vectors of the solve", n, width, times=14)],
        task=[buffer("kernel and vectors of a block", task_bytes(n, d, width, kernel.own))],
        coordinator=[ArraySpec("means", n, times=5), ArraySpec("vectors", VECTOR_ROWS, m, times=24)],
        passes=2 if dense else PASSES,
        flops=0 if dense else 2 * PASSES * n * n * (d + 2 * width),
        scalar_ops=2 * (1 if dense else PASSES) * n * n,
        serial_flops=9 * n**3 if dense else 0,
        maps=2 * PASSES,
        blocks=blocks,
    )
    parameters = {**kernel.key(), "n_components": m, "tol": tol, "max_passes": max_passes, "seed": seed}
    run = partial(run_exact_solve, source=source, kernel=kernel, m=m, tol=tol, max_passes=max_passes, seed=seed)
    return Stage("solve", ("landmarks",), parameters, run, cost)


def run_exact_solve(
    context: Context, source: RowSource, kernel: Kernel | GivenKernel, m: int, tol: float, max_passes: int, seed: int
) -> dict[str, Any]:
    n = source.shape[0]
    rows = RowSource((n, source.shape[1]), source.work, path=context.of("landmarks", "rows"))
    space = StoredSpace(None, Exchange(f"{context.exchange.root}/space"), vector_blocks(n))
    weights = positive_weights(source)
    operator = KernelOperator(rows, space, kernel, text=kernel.text, symmetric=not kernel.own, weights=weights)
    if operator.norm <= 1e-12 * n * max(operator.size / n, np.finfo(np.float64).tiny):
        raise InputError(
            f"kernel={kernel.text}: all {n} rows are the same to the kernel; there is nothing to map. Take another "
            "gamma, or look at the rows"
        )
    if n <= DENSE_ROWS:
        known: dict[str, Any] = {"space": space, "unit": operator.norm, "weights": weights}
        [solved] = map_blocks(dense_task, [(0,)], source=rows, kernel=kernel, m=m, **known)
    else:
        solved = _summary(solve_lanczos(operator, m, tol=tol, seed=seed, max_passes=max_passes))
    values = np.array(solved["eigenvalues"]) * operator.norm
    largest = max(float(np.abs(values).max()), abs(solved["lowest"]) * operator.norm)
    kept = int(np.sum(values > landmark_maps.NYSTROM_FLOOR * largest))
    if not kept:
        raise InputError(
            f"kernel={kernel.text}: the centered kernel has no positive eigenvalue among the leading {m}, so "
            "no coordinates"
        )
    spans = [(b, *span) for b, span in enumerate(bounds(n, VECTOR_ROWS))]
    create_rows(context.path("matrix"), (n, kept), np.float64, VECTOR_ROWS)
    roots = np.sqrt(values[:kept])
    if weights is not None:  # (signs are those of the coordinates)
        roots *= extremes(assembled(space, "V")[:, :kept] / np.sqrt(weights)[:, None])[1]
    given = source.aligned.get("weights")
    map_blocks(matrix_block, spans, space=space, roots=roots, weights=given, out=context.path("matrix"))
    write_array(context.path("mean"), operator.means)
    write_array(context.path("eigenvalues"), values[:kept])
    write_array(context.path("residuals"), np.array(solved["residuals"])[:kept] * operator.norm)
    numbers = ("reason", "advice", "converged", "iterations", "orthogonality")
    return {name: solved[name] for name in numbers} | {
        "solver": "dense" if n <= DENSE_ROWS else "lanczos",
        "n_components": kept,
        "passes": operator.passes + (1 if n <= DENSE_ROWS else 0),
        "gap": solved["gap"] * operator.norm,
        "lowest": solved["lowest"] * operator.norm,
        "trace": operator.trace,
        "norm": operator.norm,
        **carried(read_array(context.path("matrix")), weights),
    }


def task_bytes(n: int, d: int, width: int, own: bool) -> int:
    """Bytes of a task of the exact solver: tiles of the kernel, rows in float64, vectors whole; or all densely."""
    tile = min(n, VECTOR_ROWS)
    if n <= DENSE_ROWS:
        return 6 * 8 * n * n + 6 * 8 * n * d  # (measured: 4.2 matrices)
    blocks = 12 * 8 * tile * width * 4  # what the sweeps of Lanczos read of the basis
    return (5 if own else 4) * 8 * tile * tile + 8 * 8 * tile * d + 3 * 8 * n * width + blocks


def dense_task(
    _: int,
    *,
    source: RowSource,
    kernel: Kernel | GivenKernel,
    m: int,
    space: StoredSpace,
    unit: float,
    weights: Array | None,
) -> dict[str, Any]:
    """The m leading eigenpairs of H K H / s from the whole matrix; vectors are left in the space under ``V``."""
    n = source.shape[0]
    rows = source.matrix(0, n)
    matrix = kernel(rows, rows)
    means = np.average(matrix, axis=0, weights=weights)
    centered = (matrix - means - means[:, None] + np.average(means, weights=weights)) / unit
    trivial = np.full(n, n**-0.5)
    if weights is not None:
        root = np.sqrt(weights)
        centered, trivial = centered * np.outer(root, root), root / np.linalg.norm(root)
    result, vectors = solve_dense_matrix(centered, m, deflate=trivial)
    for b, (start, stop) in enumerate(bounds(n, VECTOR_ROWS)):
        space.write("V", b, vectors[start:stop])
    return _summary(result) | {"lowest": float(np.linalg.eigvalsh(centered)[0])}


def _summary(result: Any) -> dict[str, Any]:
    return {
        "eigenvalues": result.eigenvalues.tolist(),
        "residuals": result.residuals.tolist(),
        "reason": str(result.reason),
        "advice": result.advice,
        "converged": bool(result.converged),
        "iterations": int(result.iterations),
        "orthogonality": float(result.orthogonality),
        "gap": float(result.gap) if np.isfinite(result.gap) else 0.0,
        "lowest": float(result.lowest),
    }


def carried(matrix: Array, weights: Array | None = None) -> dict[str, Any]:
    """The share of the rows that carries each coordinate, and whether these are few; ``weights`` by which they count
    stand in the matrix, too."""
    coordinates = matrix if weights is None else matrix / weights[:, None]
    found = participation_of(coordinates, np.ones(len(coordinates)) if weights is None else weights)
    return {
        "participation": found.share.tolist(),
        "carried_by_few": carried_by_few(found.share, found.rows, len(coordinates)).tolist(),
    }


def matrix_block(
    b: int, start: int, stop: int, *, space: StoredSpace, roots: Array, weights: RowSource | None, out: str
) -> None:
    """v/√λ of one block of rows; √w times that of rows with weights."""
    found = space.read("V", b)[:, : len(roots)] / roots
    if weights is not None:
        found *= np.sqrt(np.asarray(weights.read(start, stop), np.float64))[:, None]
    write_rows(out, start, found)


def solution_arrays(count: int, m: int) -> Arrays:
    """What a solve publishes, of so many rows that others are compared with."""
    of_each = [ArraySpec("mean", count), ArraySpec("matrix", count, m)]
    return [*of_each, ArraySpec("eigenvalues", m), ArraySpec("residuals", m)]


# --- landmarks -----------------------------------------------------------------------------------


def nystrom_stages(source: RowSource, kernel: Kernel, n_landmarks: int, m: int) -> list[Stage]:
    """One pass for the moments of k(x) over all rows, then a problem of the size of the landmarks."""
    n, d = source.shape
    moments = [ArraySpec("mean", n_landmarks), ArraySpec("scatter", n_landmarks, n_landmarks)]
    size = moments[1].nbytes

    pass_cost = summing_cost(source, size) + Cost.of(
        writes=moments,
        task=[ArraySpec("tiles", VECTOR_ROWS, n_landmarks + d, times=4), moments[1]],
        flops=2 * n * n_landmarks * (d + n_landmarks),
        scalar_ops=n * n_landmarks,
    )
    solve_cost = Cost.of(
        writes=solution_arrays(n_landmarks, m),
        coordinator=[ArraySpec("kernels of the landmarks", n_landmarks, n_landmarks, times=10)],
        serial_flops=20 * n_landmarks**3,
    )
    sums = partial(run_nystrom_moments, source=source, kernel=kernel, size=size)
    solve = partial(run_nystrom_solve, kernel=kernel, m=m)
    inputs, parameters = ("landmarks", "moments"), {**kernel.key(), "n_components": m}
    return [
        Stage("moments", ("landmarks",), kernel.key(), sums, pass_cost),
        Stage("solve", inputs, parameters, solve, solve_cost, parameters_of=("landmarks",)),
    ]


def run_nystrom_moments(context: Context, source: RowSource, kernel: Kernel, size: int) -> dict[str, Any]:
    path = context.of("landmarks", "rows")
    found = reduce_rows(
        source,
        kernel_moments,
        context.exchange,
        combine=merge_moments,
        partial_bytes=size,
        first=True,
        kernel=kernel,
        landmarks=path,
    )
    require_weight(found)
    write_array(context.path("mean"), found["mean"])
    write_array(context.path("scatter"), found["scatter"])
    return {"n": source.shape[0]}


def run_nystrom_solve(context: Context, kernel: Kernel, m: int) -> dict[str, Any]:
    rows = read_array(context.of("landmarks", "rows"))
    between = between_landmarks(kernel, rows)
    mean = read_array(context.of("moments", "mean"))
    scatter = read_array(context.of("moments", "scatter"))
    found = landmark_maps.centered_map(between, mean, scatter, m)
    if not len(found.values):
        raise InputError(
            f"kernel={kernel.text}: all {context.results('moments')['n']} rows are the same to the kernel, or it has "
            "no positive eigenvalue: "
            "nothing to map. Take another gamma, or look at the rows"
        )
    coordinates = (between - mean) @ found.matrix
    sign = extremes(coordinates)[1]
    write_array(context.path("matrix"), found.matrix * sign)
    write_array(context.path("mean"), mean)
    write_array(context.path("eigenvalues"), found.values)
    half = slice(None, None, 2)
    fewer = landmark_maps.centered_map(between[half, half], mean[half], scatter[half, half], len(found.values)).values
    change = np.abs(found.values - np.pad(fewer, (0, len(found.values) - len(fewer))))
    every = landmark_rows.every_row(context)
    moved = 0.0 if every else float((change / found.values).max())
    write_array(context.path("residuals"), np.zeros_like(change) if every else change)
    return {
        "solver": "nystrom",
        "n_components": len(found.values),
        "rank": found.rank,
        "passes": 1,
        "gap": float(found.values[-1] - found.next),
        "lowest": found.lowest,
        **carried(coordinates),
        "converged": moved <= MOVES,
        "reason": "landmarks",
        "advice": ""
        if moved <= MOVES
        else f"Half of the landmarks give eigenvalues that differ by {100 * moved:.0f} % (at most "
        f"{100 * MOVES:.0f} % is expected): {len(rows)} landmarks do not show this kernel. Raise n_landmarks, take "
        "a smaller gamma, or solver='exact'.",
    }


def kernel_moments(block: RowBlock, *, kernel: Kernel, landmarks: str) -> Parts:
    """Count, mean (L,) and scatter (L, L) of k(x) over the rows of one block."""
    others = read_array(landmarks)
    total: Parts | None = None
    for start, stop in bounds(len(block.rows), VECTOR_ROWS):
        values = kernel(block.rows[start:stop], others)
        refuse_values(kernel.text, wrong_values(values, block.start + start), "landmark")
        part = moments_block(values, None if block.weights is None else block.weights[start:stop])
        total = part if total is None else merge_moments(total, part)
    assert total is not None
    return total


def between_landmarks(kernel: Kernel, rows: Array) -> Array:
    """K among the landmarks (L, L); InputError where it is not finite or not symmetric."""
    found = kernel(rows, rows)
    refuse_values(kernel.text, wrong_values(found), "landmark")
    uneven = np.abs(found - found.T)
    if uneven.max() > SYMMETRIC * np.abs(found).max():
        i, j = np.unravel_index(int(np.argmax(uneven)), uneven.shape)
        raise InputError(
            f"kernel={kernel.text}: is not symmetric, k(x, y) ≠ k(y, x): landmarks {i} and {j} have "
            f"{found[i, j]:.6g} and {found[j, i]:.6g}. Give (k(x, y) + k(y, x)) / 2"
        )
    return found
