"""From geodesic distances to coordinates: by triangulation from landmarks, or by classical scaling of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.affine import Affine
from bigembed.blocks.rows import Array, block_rows, bounds, map_blocks
from bigembed.blocks.vectors import tree_sum
from bigembed.eigen.base import extremes, signs_of
from bigembed.embedding.affine import AffineMap
from bigembed.embedding.geodesics.distances import targets
from bigembed.embedding.graph.input_order import leave_coordinates, restore_block
from bigembed.embedding.graph.placed import fill_block
from bigembed.embedding.scaling.classical import largest_pairs, rounding
from bigembed.landmarks.triangulate import FLOOR, classical, principal_axes, scaled, triangulated
from bigembed.neighbors.order import Ordered
from bigembed.operators.centered import CenteredOperator
from bigembed.operators.pairs import vector_blocks
from bigembed.paths.geodesic import KeptDistances
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.source import RowSource
from bigembed.store.vectors import StoredSpace

TILE_ROWS = 4_096
"""Rows placed at a time."""
PASSES = 25
"""Passes over all pairs that a plan counts with."""


# --- landmarks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placing:
    """Where a task finds distances to the landmarks, components, and which landmarks are of which."""

    kept: KeptDistances
    labels: str
    component: Array
    """(L,): the component of each landmark."""

    @classmethod
    def of(cls, context: Context) -> Placing:
        """From the published stages."""
        starts = tuple(read_array(context.of("geodesics", "starts")).tolist())
        return cls(
            KeptDistances(context.of("geodesics"), starts),
            context.of("components", "labels"),
            read_array(context.of("landmarks", "component")),
        )

    def place(self, b: int, maps: dict[int, Affine], width: int) -> tuple[Array, Array]:
        """Coordinates (rows, m) of a block, zero outside the embedded components; and the components."""
        distances, label = self.kept.block(b), read_array(f"{self.labels}/{b}")
        out = np.zeros((len(label), width))
        for c, found in maps.items():
            columns, mine = np.flatnonzero(self.component == c), np.flatnonzero(label == c)
            for start, stop in bounds(len(mine), TILE_ROWS):
                rows = mine[start:stop]
                out[rows] = triangulated(distances[rows][:, columns], found)
        return out, label


def landmark_solve_stage(policy: str, m: int, n: int, n_landmarks: int, block: int) -> Stage:
    """Classical scaling of the landmarks, turned to the principal axes of all rows: the map of each component."""

    def run(context: Context) -> dict[str, Any]:
        placing = Placing.of(context)
        between = np.square(read_array(context.of("geodesics", "between")))
        chosen = targets(context.results("components"), policy, m, 1)
        maps, spectra = {}, {}
        for target in chosen:
            mine = np.flatnonzero(placing.component == target.number)
            maps[target.number], spectra[target.number] = classical(between[np.ix_(mine, mine)], m)
        blocks = [(b,) for b in range(len(placing.kept.starts) - 1)]
        parts = map_blocks(moments_block, blocks, placing=placing, maps=maps, width=m)
        variances = {}
        for c in maps:
            turn, offset, variances[c] = principal_axes(*tree_sum([part[c] for part in parts]))
            maps[c] = maps[c].then(turn, offset)
        found = map_blocks(extremes_block, blocks, placing=placing, maps=maps, width=m)
        for c in maps:
            sign = signs_of([part[c] for part in found])
            maps[c] = maps[c].then(np.diag(sign), np.zeros(m))
            AffineMap.within(context.path(""), c).write(maps[c])
        return _summary(
            context,
            [target.number for target in chosen],
            {c: _spectrum(spectra[c], variances[c], int(np.sum(placing.component == c))) for c in maps},
            m,
        ) | {"solver": "landmarks", "passes": 1, "converged": True}

    cost = Cost(
        read=8 * n * n_landmarks,
        disk=8 * n_landmarks * (m + 1),
        memory=8 * block * n_landmarks + 40 * TILE_ROWS * n_landmarks,
        coordinator=60 * n_landmarks**2,
    )
    return Stage("solve", ("components", "landmarks", "geodesics"), {"policy": policy, "n_components": m}, run, cost)


class _Moments(tuple[Any, ...]):
    """Sums that are added one by one."""

    def __add__(self, other: Any) -> _Moments:
        return _Moments(a + b for a, b in zip(self, other, strict=True))


def moments_block(b: int, *, placing: Placing, maps: dict[int, Affine], width: int) -> dict[int, _Moments]:
    """For each component: rows of the block, Σ y, Σ y yᵀ."""
    placed, label = placing.place(b, maps, width)
    out = {}
    for c in maps:
        mine = placed[label == c]
        out[c] = _Moments((float(len(mine)), mine.sum(axis=0), mine.T @ mine))
    return out


def extremes_block(b: int, *, placing: Placing, maps: dict[int, Affine], width: int) -> dict[int, Array]:
    """For each component: the largest |entry| of each column in the block, and its sign."""
    placed, label = placing.place(b, maps, width)
    return {c: extremes(placed[label == c]) for c in maps}


def _spectrum(values: Array, variances: Array, count: int) -> dict[str, Any]:
    """What is said of the landmarks of one component: their spectrum, and what the coordinates leave of it."""
    kept = values[: len(variances)]
    positive = np.maximum(kept, 0.0)
    rest = float(np.sum(values**2) - np.sum(positive**2))
    return {
        "eigenvalues": variances.tolist(),
        "residuals": [0.0] * len(variances),
        "landmark_eigenvalues": values[:50].tolist(),
        "negative": int(np.sum(values < -FLOOR * abs(values[0]))),
        "lowest": float(values[-1]),
        "trace": float(values.sum()),
        "error": float(np.sqrt(max(0.0, rest)) / count),
        "positive": int(np.sum(values > FLOOR * abs(values[0]))),
    }


def landmark_coordinates_stage(policy: str, m: int, n: int, n_landmarks: int, block: int) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input, by the map of each component."""

    def run(context: Context) -> dict[str, Any]:
        placing = Placing.of(context)
        ordered = Ordered.open(context.of("order"))
        maps = {c: AffineMap.within(context.of("solve"), c).read() for c in context.results("solve")["targets"]}
        blocks, out_rows = [(b,) for b in range(len(ordered.blocks))], block_rows(m, 8)
        fill = policy == "largest" and context.results("components")["components"] > 1
        filled = fill_rows(context, blocks, ordered) if fill else 0
        map_blocks(
            placed_block,
            blocks,
            ordered=ordered,
            placing=placing,
            maps=maps,
            width=m,
            out_rows=out_rows,
            fill=fill,
            exchange=context.exchange,
        )
        create_rows(context.path("embedding"), (n, m), np.float64, out_rows)
        create_rows(context.path("labels"), (n,), np.int32, out_rows)
        spans = [(number, *span) for number, span in enumerate(bounds(n, out_rows))]
        map_blocks(restore_block, spans, blocks=len(blocks), kept=m, exchange=context.exchange, out=context.path(""))
        return {"n_components": m, "filled_rows": filled}

    cost = Cost(
        read=4 * n * n_landmarks,
        write=16 * n * m,
        disk=8 * n * m + 4 * n,
        scratch=8 * n * m + 12 * n,
        memory=8 * block * n_landmarks + 40 * TILE_ROWS * n_landmarks,
    )
    stages = ("order", "components", "landmarks", "geodesics", "solve")
    return Stage("coordinates", stages, {"policy": policy, "n_components": m}, run, cost)


def fill_rows(context: Context, blocks: list[tuple[int]], ordered: Ordered) -> int:
    """Find the nearest row of the largest component for each row outside it; how many there are."""
    labels = context.of("components", "labels")
    filled = map_blocks(fill_block, blocks, ordered=ordered, labels=labels, exchange=context.exchange)
    return sum(outside for outside, _ in filled)


def placed_block(
    b: int,
    *,
    ordered: Ordered,
    placing: Placing,
    maps: dict[int, Affine],
    width: int,
    out_rows: int,
    fill: bool,
    exchange: Exchange,
) -> None:
    """Place the rows of a block, and leave each block of the output its part."""
    placed, label = placing.place(b, maps, width)
    if fill:
        outside, nearest = exchange.get_many("nearest", b, ["rows", "ids"])
        if len(outside):
            columns = np.flatnonzero(placing.component == 0)
            placed[outside] = triangulated(placing.kept.rows(nearest)[:, columns], maps[0])
    leave_coordinates(exchange, b, ordered.ids(b), placed, label, out_rows)


# --- all rows ------------------------------------------------------------------------------------


def exact_solve_stage(policy: str, m: int, n: int, tol: float, max_passes: int, seed: int) -> Stage:
    """Classical scaling of all rows of each component: block Lanczos on B = −½ H D² H, never formed."""

    def run(context: Context) -> dict[str, Any]:
        chosen = targets(context.results("components"), policy, m)
        solved = {}
        for target in chosen:
            solved[target.number] = _classical_rows(context, target.number, target.rows, m, tol, max_passes, seed)
        return _summary(context, [t.number for t in chosen], solved, m) | {
            "solver": "exact",
            "passes": sum(part["passes"] for part in solved.values()),
            "converged": all(part["converged"] for part in solved.values()),
        }

    parameters = {"policy": policy, "n_components": m, "tol": tol, "max_passes": max_passes, "seed": seed}
    cost = Cost(
        passes=PASSES,
        read=PASSES * 4 * n * n,
        disk=8 * n * (m + 1),
        scratch=8 * n * 14 * max(2, m),
        memory=(64 << 20) + 8 * n * 4 * max(2, m),
        coordinator=24 * n * m,
    )
    return Stage("solve", ("components", "geodesics"), parameters, run, cost)


def _classical_rows(
    context: Context, c: int, rows: int, m: int, tol: float, max_passes: int, seed: int
) -> dict[str, Any]:
    """Eigenpairs of one component, as coordinates V √λ and as the map of its rows."""
    source = RowSource((rows, rows), np.dtype(np.float32), path=context.of("geodesics", f"pairs/{c}"))
    space = StoredSpace(None, Exchange(f"{context.exchange.root}/component{c}"), vector_blocks(rows))
    operator = CenteredOperator(source, space)
    values, vectors = np.zeros(m), np.zeros((rows, m))
    out = {"residuals": [0.0] * m, "passes": operator.passes, "converged": True, "reason": "", "advice": ""}
    lowest, wanted = 0.0, min(m, rows - 1)
    if operator.trace > 0 and wanted:
        values[:wanted], vectors[:, :wanted], result = largest_pairs(operator, wanted, tol, max_passes, seed)
        lowest = min(0.0, result.lowest * operator.trace)
        out |= {
            "residuals": (result.residuals * operator.trace).tolist() + [0.0] * (m - wanted),
            "passes": operator.passes,
            "converged": bool(result.converged),
            "reason": str(result.reason),
            "advice": result.advice,
            "gap": float(result.gap * operator.trace),
        }
    floor = rounding(operator, source)
    positive = np.where(values > floor, values, 0.0)
    AffineMap.within(context.path(""), c).write(scaled(operator.means, values, vectors, m, floor))
    write_array(context.path(f"rows/{c}"), vectors * np.sqrt(positive))
    rest = operator.norm**2 - float(positive @ positive)
    return out | {
        "eigenvalues": positive.tolist(),
        "lowest": lowest,
        "trace": operator.trace,
        "error": float(np.sqrt(max(0.0, rest)) / rows),
        "positive": int(np.count_nonzero(positive)),
    }


def _summary(context: Context, numbers: list[int], solved: dict[int, dict[str, Any]], m: int) -> dict[str, Any]:
    """Write ``eigenvalues`` and ``residuals`` ((m,), or (c, m) of several components); the rest as results."""
    for name in ("eigenvalues", "residuals"):
        values = np.array([solved[c][name] for c in numbers])
        write_array(context.path(name), values[0] if len(numbers) == 1 else values)
    return {"targets": numbers, "solved": {str(c): solved[c] for c in numbers}, "n_components": m}


def exact_coordinates_stage(policy: str, m: int, n: int) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input."""

    def run(context: Context) -> dict[str, Any]:
        ordered, labels = Ordered.open(context.of("order")), context.of("components", "labels")
        blocks = [(b,) for b in range(len(ordered.blocks))]
        ids = np.concatenate([ordered.ids(b) for (b,) in blocks])
        label = np.concatenate([read_array(f"{labels}/{b}") for (b,) in blocks])
        embedding, of_row = np.zeros((n, m)), np.empty(n, np.int32)
        of_row[ids] = label
        for c in context.results("solve")["targets"]:
            embedding[read_array(context.of("geodesics", f"members/{c}"))] = read_array(
                context.of("solve", f"rows/{c}")
            )
        filled = 0
        if policy == "largest" and context.results("components")["components"] > 1:
            filled = fill_rows(context, blocks, ordered)
            for (b,) in blocks:
                outside, nearest = context.exchange.get_many("nearest", b, ["rows", "ids"])
                embedding[ids[outside + ordered.starts[b]]] = embedding[ids[nearest]]
        write_array(context.path("embedding"), embedding)
        write_array(context.path("labels"), of_row)
        return {"n_components": m, "filled_rows": filled}

    cost = Cost(write=8 * n * m, disk=8 * n * m + 4 * n, coordinator=8 * n * (3 * m + 4))
    stages = ("order", "components", "geodesics", "solve")
    return Stage("coordinates", stages, {"policy": policy, "n_components": m}, run, cost)
