"""The walk from row to landmark to row as stages: weights of blocks, s = Wᵀ1, G = Wᵀ D⁻¹ W, its eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from bigembed.errors import DisconnectedGraphError, InputError
from bigembed.linalg.eigenpairs import EigenResult, extremes, solve_dense_matrix
from bigembed.maps.kernels import Kernel, in_tiles, refuse_values, squared_distances, wrong_values
from bigembed.maps.landmark_rows import every_row
from bigembed.quality.coordinates import carried_by_few, participation_of
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, summing_cost
from bigembed.stages.cost import nbytes
from bigembed.store.arrays import read_array, write_array

# -------------------------------------------------------------------------------------------------------- roseland
# Diffusion by way of landmarks (Roseland; Shen & Wu 2022): x → landmark → y, without a neighbor graph.
#
# With W = k(X, landmarks) (n, L), s = Wᵀ1, d = W s and D = diag(d), the walk D⁻¹ W Wᵀ has the eigenvalues σ² and
# right eigenvectors ψ = D^{-1/2} u of the singular triples D^{-1/2} W = Σ u σ vᵀ. G = Wᵀ D⁻¹ W = V σ² Vᵀ is small,
# and
#
#     ψ_l(x) = √(1ᵀd) · (w(x)·v_l) / (σ_l · w(x)·s),
#
# normalized to Σ π ψ² = 1, π = d/Σd. σ₀ = 1 with v₀ = s/‖s‖ is the constant, and is left out. w(x) may be scaled, so
# a Gaussian is taken relative to the nearest landmark and never underflows: a row far from all has its values.
#
# A row of weight a is a copies of it: then s = Wᵀa, G = Wᵀ (a/d) W and π = a d/Σ a d, and all else is the same.

NEIGHBORS = 3
"""epsilon="auto" is the median squared distance of a landmark to its neighbor of this rank."""
RANK = 1e-12
"""σ² below this is rounding."""

PairFunction = Callable[[Any, Any], Array]


@dataclass(frozen=True)
class Walk:
    """w(x): a Gaussian of scale ε, or a function of two blocks of rows that is finite and ≥ 0."""

    epsilon: float
    function: PairFunction | None = None

    def __call__(self, rows: Any, landmarks: Array) -> tuple[Array, Array]:
        """w(x)/c (n, L) with a largest entry of 1, and c (n,); of a function w itself and 1."""
        if self.function is not None:
            return self.function(rows, landmarks), np.ones(len(rows))
        squared = squared_distances(np.asarray(rows, np.float64), np.asarray(landmarks, np.float64))
        near = squared.min(axis=1)
        squared -= near[:, None]
        squared /= -self.epsilon
        return np.exp(squared, out=squared), np.exp(-near / self.epsilon)


def auto_epsilon(landmarks: Array) -> float:
    """Median over the landmarks of the squared distance to the third nearest other (the farthest of fewer)."""
    squared = squared_distances(np.asarray(landmarks, np.float64), np.asarray(landmarks, np.float64))
    q = min(NEIGHBORS, len(squared) - 1)
    return float(np.median(np.partition(squared, q, axis=1)[:, q]))


def sums_block(weights: Array, scale: Array) -> Array:
    """The part of s = Wᵀ1 of one block: Σ c_i w̃_i."""
    return np.asarray(weights.T @ scale)


def gram_block(weights: Array, scale: Array, sums: Array) -> tuple[Array, Array]:
    """The part of G = Σ w_i w_iᵀ/d_i of one block, and w̃·s (n,): d_i = c_i (w̃_i·s), so a factor c_i is left in G."""
    reached = weights @ sums
    factor = np.sqrt(scale / np.where(reached > 0, reached, 1.0))
    scaled = weights * factor[:, None]
    return scaled.T @ scaled, reached


def landmark_parts(gram: Array) -> int:
    """Into how many parts the landmarks fall, between which nobody walks."""
    return int(connected_components(gram > 0, directed=False)[0])


def spectrum(gram: Array, sums: Array, n_components: int) -> tuple[EigenResult, Array]:
    """σ² descending and the matrix (L, m) of ψ(x) = (w(x)·matrix)/(w(x)·s), signs by the largest |entry| of v."""
    result, vectors = solve_dense_matrix(gram, n_components, deflate=sums / np.linalg.norm(sums))
    values = np.maximum(result.eigenvalues, 0.0)
    good = values > RANK
    root = np.sqrt(np.where(good, values, 1.0))
    matrix = np.where(good, vectors * extremes(vectors)[1] / root, 0.0) * np.linalg.norm(sums)
    return result, matrix


def coordinates_block(weights: Array, sums: Array, matrix: Array) -> Array:
    """ψ(x) (n, m); 0 for a row that reaches no landmark."""
    reached = weights @ sums
    return np.asarray((weights @ matrix) / np.where(reached > 0, reached, 1.0)[:, None])


def change_of_half(weights: Array, gram: Array, sums: Array, values: Array, matrix: Array) -> tuple[float, float]:
    """What every second landmark makes of the same rows: the largest change of λ, as a share of min(λ, 1 − λ), and the
    sine of the largest angle between the spans of ψ_1, …, ψ_m on the landmarks (by the mass that reaches these).

    ``weights`` (L, L) of the landmarks with each other, G of half of them, s, and what :func:`spectrum` found.
    """
    m = len(values)
    if len(gram) <= m or landmark_parts(gram) > 1:
        return 1.0, 1.0
    fewer, halved = spectrum(gram, sums[::2], m)
    moved = np.abs(fewer.eigenvalues - values) / np.maximum(np.minimum(values, 1 - values), RANK)
    mass = np.sqrt(sums)[:, None]
    spans = (coordinates_block(weights, sums, matrix), coordinates_block(weights[:, ::2], sums[::2], halved))
    first, second = (np.linalg.qr(mass * span)[0] for span in spans)
    return float(moved.max()), float(np.linalg.norm(first - second @ (second.T @ first), 2))


# --------------------------------------------------------------------------------------------------- landmark walk

TILE_ROWS = 2_048
FAR = 1e-300
"""Kernel of a row with its nearest landmark below which the row takes no part in the walk."""
CHANGES = 0.5
"""Share by which an eigenvalue of half of the landmarks may differ, and the sine by which their span may be turned."""


def advice_for(landmarks: int, moved: float, turned: float) -> str:
    """What to do where half of the landmarks give another walk."""
    return (
        f"Half of the landmarks give eigenvalues that differ by {100 * moved:.0f} % of λ or 1 − λ, and coordinates "
        f"whose span is turned by {np.degrees(np.arcsin(min(1.0, turned))):.0f}° (at most {100 * CHANGES:.0f} % and "
        f"{np.degrees(np.arcsin(CHANGES)):.0f}° are expected): {landmarks} landmarks do not show this walk. Raise "
        "n_landmarks or epsilon, or ask for a number of coordinates that ends at a gap of the spectrum"
    )


# --- one block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class UserFunction:
    """A user's function, its values checked: finite and ≥ 0."""

    kernel: Kernel

    def __call__(self, rows: Any, landmarks: Array) -> Array:
        """Values (n, L)."""
        values = self.kernel(rows, landmarks)
        refuse_values(self.kernel.text, wrong_values(values), "landmark")
        if values.min(initial=0.0) < 0:
            raise InputError(
                f"kernel={self.kernel.text}: gives {values.min():.6g}; a walk has weights ≥ 0. Take the exponential, "
                "or KernelPCA"
            )
        return values


@dataclass(frozen=True)
class LandmarkWalkModel:
    """Where a task finds the map of rows."""

    rows: str
    sums: str
    solve: str
    walk: Walk
    t: float


def walk_of(function: Kernel | None, epsilon: float | None) -> Walk:
    """The weights between rows and landmarks."""
    return Walk(float(epsilon or 1.0), None if function is None else UserFunction(function))


def extend(rows: Any, model: LandmarkWalkModel) -> Array:
    """λ^t ψ(x); InputError for rows of which a function reaches no landmark."""
    landmarks, sums = read_array(model.rows), read_array(model.sums)
    matrix = read_array(f"{model.solve}/matrix") * read_array(f"{model.solve}/eigenvalues") ** model.t

    def part(tile: Any) -> Array:
        weights, _ = model.walk(tile, landmarks)
        refuse_unreached(weights @ sums, 0)
        return coordinates_block(weights, sums, matrix)

    return in_tiles(part, rows, matrix.shape[1])


def tiles(block: RowBlock, landmarks: Array, walk: Walk) -> Any:
    """Weights and factors of a block, some rows at a time, with the number of the first."""
    for start, stop in bounds(len(block.rows), TILE_ROWS):
        yield block.start + start, *walk(block.rows[start:stop], landmarks)


def sums_of_block(block: RowBlock, *, landmarks: str, walk: Walk) -> Parts:
    """s = Σ w(x_i), (L,), of rows with weights by these."""
    points = read_array(landmarks)
    total = np.zeros(len(points))
    for first, weights, scale in tiles(block, points, walk):
        total += sums_block(weights, by_weight(block, scale, first))
    return {"sums": total}


def gram_of_block(block: RowBlock, *, landmarks: str, walk: Walk, sums: str) -> Parts:
    """G = Σ w w ᵀ/d (L, L), the same of half of the landmarks, and the rows that take no part."""
    points, s = read_array(landmarks), read_array(sums)
    half = s[::2]
    total, fewer, far = np.zeros((len(s), len(s))), np.zeros((len(half), len(half))), 0
    for first, weights, scale in tiles(block, points, walk):
        mass = by_weight(block, scale, first)
        part, reached = gram_block(weights, mass, s)
        refuse_unreached(reached, first)
        total += part
        fewer += gram_block(weights[:, ::2], mass, half)[0]
        far += int(np.count_nonzero(scale < FAR))
    return {"gram": total, "half": fewer, "far": np.array(far)}


def by_weight(block: RowBlock, scale: Array, first: int) -> Array:
    """Factors of some rows of a block, from number ``first`` on, times the weights of these."""
    weights = block.weights
    return scale if weights is None else scale * weights[first - block.start :][: len(scale)]


def refuse_unreached(reached: Array, first: int) -> None:
    """InputError for rows whose function is 0 for every landmark."""
    if not (reached > 0).all():
        rows = (np.flatnonzero(~(reached > 0))[:10] + first).tolist()
        raise InputError(
            f"kernel: rows {rows} of a block have the value 0 with every landmark: no walk leads to them. Give the "
            "function a wider reach, or take more landmarks"
        )


# --- stages --------------------------------------------------------------------------------------


def sums_stage(source: RowSource, function: Kernel | None, epsilon: float | str, n_landmarks: int) -> Stage:
    """ε, and s = Wᵀ1: the pass that reads all rows first, so it checks them."""

    parameters = {"epsilon": epsilon if function is None else None, "kernel": function and function.key()}
    cost = _pass_cost(source, n_landmarks, [ArraySpec("sums", n_landmarks)])
    return Stage(
        "sums", ("landmarks",), parameters, partial(run_sums, source=source, function=function, epsilon=epsilon), cost
    )


def run_sums(context: Context, source: RowSource, function: Kernel | None, epsilon: float | str) -> dict[str, Any]:
    path, scale = context.of("landmarks", "rows"), None
    if function is None:
        scale = auto_epsilon(read_array(path)) if epsilon == "auto" else float(epsilon)
    found = reduce_rows(
        source, sums_of_block, context.exchange, first=True, label="sums", landmarks=path, walk=walk_of(function, scale)
    )
    if not found["sums"].any():
        raise InputError("weights must contain at least one that is not zero: all are zero")
    write_array(context.path("sums"), found["sums"])
    return {"epsilon": scale}


def gram_stage(source: RowSource, function: Kernel | None, n_landmarks: int) -> Stage:
    """G = Wᵀ D⁻¹ W."""

    half = -(-n_landmarks // 2)
    grams = [ArraySpec("gram", n_landmarks, n_landmarks), ArraySpec("half", half, half)]
    cost = _pass_cost(source, n_landmarks, grams)
    return Stage(
        "gram",
        ("landmarks", "sums"),
        {"half": True},
        partial(run_gram, source=source, function=function, n_landmarks=n_landmarks),
        cost,
    )


def run_gram(context: Context, source: RowSource, function: Kernel | None, n_landmarks: int) -> dict[str, Any]:
    found = reduce_rows(
        source,
        gram_of_block,
        context.exchange,
        partial_bytes=8 * n_landmarks**2,
        label="gram",
        landmarks=context.of("landmarks", "rows"),
        walk=walk_of(function, context.results("sums")["epsilon"]),
        sums=context.of("sums", "sums"),
    )
    write_array(context.path("gram"), found["gram"])
    write_array(context.path("half"), found["half"])
    return {"far": int(found["far"])}


def _pass_cost(source: RowSource, n_landmarks: int, sums: Arrays) -> Cost:
    n, d = source.shape
    return summing_cost(source, nbytes(sums)) + Cost.of(
        writes=sums,
        task=[ArraySpec("tiles", TILE_ROWS, 3 * n_landmarks + 4 * d)],
        coordinator=[ArraySpec("kernel of the landmarks", n_landmarks, n_landmarks, times=3)],
        flops=n * (2 * d * n_landmarks + nbytes(sums) / 4),
        scalar_ops=n * n_landmarks,
    )


def solve_stage(m: int, t: float, n_landmarks: int, function: Kernel | None) -> Stage:
    """σ² and the matrix of ψ, from G; and how far they are from those of half of the landmarks."""

    return Stage(
        "solve",
        ("landmarks", "sums", "gram"),
        {"n_components": m, "t": t},
        partial(run_solve, m=m, function=function),
        Cost.of(
            writes=[ArraySpec("matrix", n_landmarks, m), ArraySpec("eigenvalues", m), ArraySpec("residuals", m)],
            coordinator=[ArraySpec("kernels of the landmarks", n_landmarks, n_landmarks, times=8)],
            serial_flops=10 * n_landmarks**3,
        ),
        parameters_of=("landmarks",),
    )


def run_solve(context: Context, m: int, function: Kernel | None) -> dict[str, Any]:
    gram, sums = read_array(context.of("gram", "gram")), read_array(context.of("sums", "sums"))
    if (count := landmark_parts(gram)) > 1:
        raise DisconnectedGraphError(
            f"the {len(gram)} landmarks fall into {count} parts that no walk joins. Raise epsilon, take more "
            "landmarks, or embed the parts apart"
        )
    result, matrix = spectrum(gram, sums, m)
    kept = int(np.sum(result.eigenvalues > RANK))
    if not kept:
        raise InputError(
            "the walk between the landmarks has no eigenvalue but the trivial one: every row reaches all landmarks "
            "alike. Lower epsilon"
        )
    write_array(context.path("matrix"), matrix[:, :kept])
    write_array(context.path("eigenvalues"), result.eigenvalues[:kept])
    write_array(context.path("residuals"), result.residuals[:kept])
    rows = read_array(context.of("landmarks", "rows"))
    weights, _ = walk_of(function, context.results("sums")["epsilon"])(rows, rows)
    values = result.eigenvalues[:kept]
    moved, turned = 0.0, 0.0
    if not every_row(context):
        half = read_array(context.of("gram", "half"))
        moved, turned = change_of_half(weights, half, sums, values, matrix[:, :kept])
    carried = participation_of(coordinates_block(weights, sums, matrix[:, :kept]), sums)
    advice = "" if max(moved, turned) <= CHANGES else advice_for(len(rows), moved, turned)
    return {
        "half_moved": moved,
        "half_turned": turned,
        "converged": not advice,
        "reason": "landmarks",
        "advice": advice,
        "participation": carried.share.tolist(),
        "carried_by_few": carried_by_few(carried.share, carried.rows, len(rows)).tolist(),
        "n_components": kept,
        "gap": float(result.gap) if np.isfinite(result.gap) else float(result.eigenvalues[kept - 1]),
        "orthogonality": float(result.orthogonality),
    }
