"""Landmark MDS as stages: the scaling of the landmarks, how well they place rows, the principal axes of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from bigembed.blocks.affine import Affine, affine_block
from bigembed.blocks.distances import Metric, refuse_distances, refuse_square
from bigembed.blocks.moments import merge_moments, moments_block
from bigembed.blocks.rows import Array
from bigembed.eigen.base import extremes
from bigembed.embedding.affine import AffineMap
from bigembed.embedding.costs import pass_memory
from bigembed.embedding.fitted_coordinates import write_finished
from bigembed.embedding.linear.principal import FLAT, principal_directions
from bigembed.embedding.scaling.classical import kept_of
from bigembed.embedding.scaling.gower import ByDistance, coordinates_by_distance
from bigembed.embedding.scaling.landmark_sample import PROBES, SCATTER_COLUMNS
from bigembed.landmarks.stress import change, stress
from bigembed.landmarks.triangulate import FLOOR, classical, triangulated
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

SHARES = (2, 4)
"""One landmark in 2, and one in 4, is kept to see how the coordinates change."""
SLICE = 8 << 20
"""Distances that a task holds at a time."""


# --- Euclidean distances ---------------------------------------------------------------------------


def affine_solve_stage(source: RowSource, m: int, count: int) -> Stage:
    """``components`` (d₊, d): the row goes to (x − mean)·c_l. The axes are those of the landmarks, turned to all rows'.

    With Z the centered landmarks, B = ZZᵀ = V Λ Vᵀ, so L^# Z (x − z̄) is the projection on the axes Zᵀ v_i/√λ_i.
    """
    n, d = source.shape
    wide = d > SCATTER_COLUMNS

    def run(context: Context) -> dict[str, Any]:
        landmarks, mean = read_array(context.of("landmarks", "rows")), read_array(context.of("sample", "mean"))
        values, axes = landmark_axes(landmarks)
        kept = kept_of(values, 0.0, m)
        axes = axes[:, :kept]
        if wide:
            found = reduce_rows(
                source, projected_moments, context.exchange, combine=merge_moments, mean=mean, axes=axes
            )
            scatter = found["scatter"]
        else:
            scatter = axes.T @ read_array(context.of("sample", "scatter")) @ axes
        spread, turn = linalg.eigh(scatter)
        components = axes @ turn[:, ::-1]
        components *= extremes(components)[1]
        write_array(context.path("components"), np.ascontiguousarray(components.T))
        write_array(context.path("mean"), mean)
        write_array(context.path("eigenvalues"), np.maximum(spread[::-1], 0.0))
        write_array(context.path("landmark_eigenvalues"), np.pad(values, (0, max(0, len(landmarks) - len(values)))))
        measured = diagnostics(context, Metric("euclidean"), kept)
        return {"affine": True, "n_components": kept, "last": float(values[kept - 1]), "lowest": 0.0, **measured}

    cost = Cost(
        passes=1 if wide else 0,
        read=n * source.row_bytes if wide else 0,
        disk=8 * (d + count) * (m + 2),
        memory=pass_memory(source) if wide else 0,
        coordinator=60 * (min(count, d) ** 2 + count**2) + 8 * PROBES * (PROBES + 4 * count + d),
        serial_flops=10 * min(count, d) ** 3,
    )
    return Stage("solve", ("sample", "landmarks"), {"m": m}, run, cost)


def landmark_axes(rows: Array) -> tuple[Array, Array]:
    """Eigenvalues of B of landmarks (L, d) by Euclidean distance, descending, 0 where rounding; axes (d, ·)."""
    centered = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    if centered.shape[1] <= len(centered):
        return principal_directions(centered.T @ centered)
    values, vectors = linalg.eigh(centered @ centered.T)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    values[values <= FLAT * len(values) * values[0]] = 0.0
    good = values > 0
    return values, centered.T @ (vectors[:, good] / np.sqrt(values[good]))


def projected_moments(block: RowBlock, *, mean: Array, axes: Array) -> Parts:
    """Moments of one block of rows after the projection."""
    return moments_block(affine_block(block.rows, mean, axes))


# --- other distances -------------------------------------------------------------------------------


def distance_solve_stage(source: RowSource, metric: Metric, m: int, count: int) -> Stage:
    """The map of squared distances to coordinates, on the axes of the landmarks: ``mean``, ``matrix``, ``offset``."""

    def run(context: Context) -> dict[str, Any]:
        landmarks = read_array(context.of("landmarks", "rows"))
        between = metric.within(context).between(landmarks, landmarks)
        refuse_square(between, f"metric={metric.text}", "landmarks")
        found, values = classical(np.square(between), m)
        kept = kept_of(values, FLOOR * max(float(values[0]), 0.0), m)
        AffineMap.within(context.path("")).write(Affine(found.mean, found.matrix[:, :kept], np.zeros(kept)))
        write_array(context.path("landmark_eigenvalues"), values)
        return {
            "affine": False,
            "n_components": kept,
            "last": float(values[kept - 1]),
            "lowest": float(values[-1]),
            "negative_share": float(-values[values < 0].sum() / np.abs(values).sum()),
            **diagnostics(context, metric, kept),
        }

    held = 60 * count**2 + 8 * PROBES * (PROBES + 4 * count)
    cost = Cost(disk=8 * count * (m + 3), coordinator=held, serial_flops=10 * count**3)
    return Stage("solve", ("sample", "landmarks"), metric.key() | {"m": m}, run, cost)


def distance_coordinates_stage(source: RowSource, metric: Metric, m: int, count: int) -> Stage:
    """``embedding`` (n, d₊): all rows by their distances to the landmarks, turned to principal axes; and that map.

    One pass places the rows and takes second moments; they wait in the exchange to be turned.
    """
    n, d = source.shape

    def run(context: Context) -> dict[str, Any]:
        by, known = metric.within(context), context.of("landmarks", "rows")
        model = ByDistance(by, known, AffineMap.within(context.of("solve")))
        total = reduce_rows(
            source,
            triangulate_block,
            context.exchange,
            combine=merge_moments,
            label="triangulate",
            model=model,
            to=context.exchange,
        )
        found, mean = model.map.read(), total["mean"]
        spread, turn = linalg.eigh(total["scatter"])
        turn = turn[:, ::-1]
        landmarks = read_array(known)
        turn = turn * extremes((triangulated(by.between(landmarks, landmarks), found) - mean) @ turn)[1]
        AffineMap.within(context.path("")).write(found.then(turn, -mean @ turn))
        write_array(context.path("eigenvalues"), np.maximum(spread[::-1], 0.0))
        out = context.path("embedding")
        write_finished(source, context.exchange, "coordinates", Affine(mean, turn), out, len(mean), source.work)
        return {"n_components": len(mean)}

    size = n * m * source.work.itemsize
    cost = Cost(
        passes=1,
        read=n * source.row_bytes,
        write=8 * n * m + size,
        disk=size,
        scratch=8 * n * m,
        memory=pass_memory(source) + 6 * SLICE + 8 * count * (d + m) + 24 * min(n, source.block) * m,
        coordinator=24 * count * (count + d),
        flops=2 * n * count * (d + m),
        scalar_ops=n * count,
    )
    return Stage("coordinates", ("landmarks", "solve"), {"source": source.fingerprint()}, run, cost, resumes=True)


def triangulate_block(block: RowBlock, *, model: ByDistance, to: Exchange) -> Parts:
    """Leave the coordinates of one block in the exchange; their moments."""
    coordinates = coordinates_by_distance(block.rows, model, block.start)
    to.put("coordinates", block.number, {"own": coordinates})
    return moments_block(coordinates)


# --- how well --------------------------------------------------------------------------------------


def diagnostics(context: Context, metric: Metric, m: int) -> dict[str, Any]:
    """Stress and correlation on all pairs of the probes, and how far they move with a share of the landmarks."""
    probes, landmarks = read_array(context.of("sample", "probes")), read_array(context.of("landmarks", "rows"))
    order, by = read_array(context.of("landmarks", "order")), metric.within(context)
    apart, to, between = (by.between(*pair) for pair in ((probes,) * 2, (probes, landmarks), (landmarks,) * 2))
    refuse_square(apart, f"metric={metric.text}", "sampled rows")
    refuse_distances(to, metric)
    coordinates = triangulated(to, classical(np.square(between), m)[0])
    share, correlation = stress(apart, coordinates)
    moves = {str(part): change(between, to, order, m, part) for part in SHARES}
    return {
        "stress": share,
        "correlation": correlation,
        "change": {part: None if np.isnan(value) else value for part, value in moves.items()},
    }
