"""Classical scaling of distances that lie in an array: B = −½ H Δ H = V Λ Vᵀ, never formed where it is large."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import assembled
from bigembed.eigen.base import EigenResult, extremes
from bigembed.eigen.lanczos import solve_lanczos
from bigembed.embedding.affine import AffineMap
from bigembed.embedding.scaling.all_distances import TILE
from bigembed.errors import InputError
from bigembed.landmarks.triangulate import centered, scaled
from bigembed.operators.centered import CenteredOperator
from bigembed.operators.pairs import VECTOR_ROWS, vector_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import write_array
from bigembed.store.blockwise.stored_space import StoredSpace
from bigembed.store.rows.source import RowSource
from bigembed.store.rows.tiles import PANEL_BYTES, TILE_COLUMNS

DENSE_ROWS = 1_024
"""Distances between at most this number of rows are solved densely, with all eigenvalues."""
PASSES = 15
"""Passes over all pairs that a plan counts with."""
NOISE = 4.0
"""Rounding of the distances, in units of its expected effect on an eigenvalue."""


def distance_solve_stage(
    source: RowSource, m: int, *, made: bool, squared: bool, tol: float, max_passes: int, seed: int
) -> Stage:
    """Check the distances in one pass, then the largest eigenpairs of B; Gower's map, eigenvalues, what is negative.

    ``source`` are the distances; or, where the stage "distances" ``made`` them, the rows.
    """
    n, dtype = source.shape[0], source.work if made else source.dtype

    def run(context: Context) -> dict[str, Any]:
        given = RowSource((n, n), dtype, path=context.of("distances", "distances")) if made else source
        operator = CenteredOperator(given, StoredSpace(None, context.exchange, vector_blocks(n)), squared=squared)
        context.note(f"{n} × {n} distances are finite, symmetric and zero on the diagonal")
        mean = operator.means
        noise = rounding(operator, given)
        solved = _dense if n <= DENSE_ROWS else _lanczos
        values, vectors, negative, found = solved(operator, given, mean, m, (tol, max_passes, seed))
        kept = kept_of(values, noise, m)
        values, vectors = values[:kept], vectors[:, :kept]
        residuals = found["residuals"][:kept] / operator.trace
        AffineMap.within(context.path("")).write(scaled(mean, values, vectors, kept, noise))
        write_array(context.path("eigenvalues"), values)
        negative = negative[negative < -noise]
        write_array(context.path("negative"), negative)
        return {
            "n": n,
            "n_components": kept,
            "trace": operator.trace,
            "norm": operator.norm,
            "explained": min(1.0, float(values @ values) / operator.norm**2),
            "rounding": noise,
            "passes": operator.passes,
            **found,
            "residuals": residuals.tolist(),
            "converged": bool(found["converged"] or (residuals <= max(tol, noise / operator.trace)).all()),
        }

    parameters: dict[str, Any] = {"m": m, "squared": squared, "tol": tol, "max_passes": max_passes, "seed": seed}
    if not made:
        parameters["source"] = source.fingerprint()
    cost = Cost(
        passes=PASSES,
        read=PASSES * n * n * dtype.itemsize,
        disk=8 * n * (m + 1),
        scratch=8 * n * 16 * width_of(m),
        memory=3 * panel_bytes(n, dtype.itemsize, (TILE, TILE) if made else source.chunks) + 8 * n * 4 * width_of(m),
        coordinator=40 * n * (m + 2) + (40 * n * n if n <= DENSE_ROWS else 0),
        flops=4 * PASSES * n * n * width_of(m),
        serial_flops=9 * n**3 if n <= DENSE_ROWS else 0,
        maps=2 * PASSES,
        blocks=-(-n // VECTOR_ROWS),
    )
    return Stage("solve", ("distances",) if made else (), parameters, run, cost)


def panel_bytes(n: int, itemsize: int, chunks: tuple[int, int]) -> int:
    """Largest panel of distances that a task holds: see :func:`bigembed.store.rows.tiles.panels`."""
    rows = min(n, max(chunks[0], VECTOR_ROWS))
    return max(PANEL_BYTES, rows * min(n, chunks[1] + TILE_COLUMNS) * itemsize)


def width_of(m: int) -> int:
    """Columns of a Lanczos block: a pass costs the reading of Δ, so more columns than wanted save passes."""
    return 2 * m + 4


def kept_of(values: Array, noise: float, m: int) -> int:
    """How many of the eigenvalues, descending, are positive beyond rounding, at most m; InputError if none is."""
    kept = int(np.count_nonzero(values[:m] > noise))
    if not kept:
        raise InputError(
            "no eigenvalue of B is positive beyond rounding, so there are no coordinates: all rows are equal, or the "
            "distances are those of no points at all"
        )
    return kept


def rounding(operator: CenteredOperator, source: RowSource) -> float:
    """What an eigenvalue of B may be by the rounding of the distances alone.

    A symmetric matrix of independent errors of size σ has eigenvalues up to 2 σ √n (Wigner); here σ is the precision
    of the stored numbers times the mean of Δ.
    """
    n = source.shape[0]
    stored = np.finfo(source.dtype).eps if source.dtype.kind == "f" else np.finfo(float).eps
    return float(NOISE * stored * operator.mean * np.sqrt(n) + 64 * np.finfo(float).eps * operator.norm)


Solved = tuple[Array, Array, Array, dict[str, Any]]


def _dense(operator: CenteredOperator, source: RowSource, mean: Array, m: int, asked: tuple[float, int, int]) -> Solved:
    """All eigenvalues of B; the m largest with vectors, negative ones ascending."""
    n = source.shape[0]
    squares = np.array(source.window((0, n), (0, n)), np.float64)
    if not operator.squared:
        np.square(squares, out=squares)
    form = centered(squares, mean)
    values, vectors = linalg.eigh(form)
    operator.passes += 1
    top = vectors[:, ::-1][:, :m]
    top = top * extremes(top)[1]
    found = {
        "positive": int(np.count_nonzero(values > rounding(operator, source))),
        "residuals": np.linalg.norm(form @ top - top * values[::-1][:m], axis=0),
        "solver": "dense",
        "converged": True,
    }
    return values[::-1][:m], top, values[values < 0], found


def _lanczos(
    operator: CenteredOperator, source: RowSource, mean: Array, m: int, asked: tuple[float, int, int]
) -> Solved:
    """The m largest eigenpairs of B, and the smallest Ritz value if it is negative."""
    values, vectors, result = largest_pairs(operator, m, *asked, block=min(width_of(m), len(mean)))
    lowest = result.lowest * operator.trace
    found = {
        "residuals": result.residuals * operator.trace,
        "gap": result.gap,
        "bytes_moved": result.bytes_moved,
        "solver": "lanczos",
        "converged": result.converged,
        "reason": str(result.reason),
    }
    return values, vectors, np.array([lowest] if lowest < 0 else []), found


def largest_pairs(
    operator: CenteredOperator, m: int, tol: float, max_passes: int, seed: int, block: int | None = None
) -> tuple[Array, Array, EigenResult]:
    """The m largest eigenvalues of B, their vectors (n, m), and what the solver says, in units of tr B."""
    result = solve_lanczos(operator, m, tol=tol, seed=seed, max_passes=max_passes, block=block)
    return result.eigenvalues * operator.trace, assembled(operator.space, "V"), result
