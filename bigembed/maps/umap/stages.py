"""The stages of a map by sampled edges and rows that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.coordinates import labels_stage, write_map
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.map_stages import EdgeWeights, coordinates_stage, planned_edges, start_stages, weights_stage
from bigembed.maps.start import Scale
from bigembed.maps.umap.density import DensityOptions, density_descent_stage, density_stage, radii_stage
from bigembed.maps.umap.descent import (
    SamplingOptions,
    mass_before,
    rows_of_pool,
    sampled_descent_stage,
    share_block,
)
from bigembed.maps.umap.labelled import labelled_stage
from bigembed.maps.umap.target import TARGET
from bigembed.maps.umap.views import Combination, combined_stage
from bigembed.neighbors.row_weights import values_path
from bigembed.neighbors.views import SECOND, views_stage
from bigembed.rows.labels import Labels
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import ArraySpec
from bigembed.stages.stage import Context, Stage, within
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import CSRBlock
from bigembed.store.vector_space import tree_sum

# ----------------------------------------------------------------------------------------------------- memberships


@dataclass(frozen=True)
class Memberships(EdgeWeights):
    """The fuzzy weights w_ij of UMAP; of a user's weights W/max W."""

    connectivity: float
    mix: float
    numbers: ClassVar = 4
    operations: ClassVar = 80

    def scales(self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int) -> Array:
        """Return ρ², id of the k-th neighbor, ρ and σ of each row."""
        from bigembed.maps.umap.compiled import calibrate  # imports numba: only here

        return calibrate(block.indptr, block.indices, block.data, ids, reach, last, k, self.connectivity)

    def weigh(self, block: CSRBlock, ids: Array, scales: Array) -> tuple[Array, float, float]:
        """Return w_ij, Σ w and the largest w."""
        from bigembed.maps.umap.compiled import union

        weights = union(block.indptr, block.indices, block.data, ids, scales, self.mix)
        return weights, *self.figures(weights)

    def unit(self, total: float, largest: float) -> float:
        """Return max W, by which the weights of a user's graph are divided."""
        return largest

    def figures(self, weights: Array) -> tuple[float, float]:
        """Return Σ w and the largest w."""
        return float(weights.sum(dtype=np.float64)), float(weights.max(initial=0.0))

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ w and the largest w of all blocks, and the neighbors of a row."""
        mass, largest = float(tree_sum([part[0] for part in figures])), max(part[1] for part in figures)
        return {"n_neighbors": k, "mass": mass, "largest": largest}


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with a sample of them that repels new rows.


def pool_stage(graph: GraphShape, m: int, seed: int, n_epochs: int) -> Stage:
    """Return the stage of the coordinates and the ``pool`` of the map."""
    block = min(graph.n, graph.block)
    pool = ArraySpec("pool", rows_of_pool(graph), m)
    parameters = {"seed": seed, "n_epochs": n_epochs}
    stage = coordinates_stage(graph, m, parameters, run_coordinates, pool, 8 * block * m + 2 * pool.nbytes)
    return replace(stage, inputs=(*stage.inputs, *graph.vectors))


def run_coordinates(context: Context, graph: GraphShape, m: int, seed: int, n_epochs: int) -> dict[str, Any]:
    mapped = write_map(context, graph, m)
    rows, masses = tuple(context.results("kernel")["rows"]), values_path(context)
    map_blocks(
        write_pool, [()], points=context.path("points"), out=context.path("pool"), rows=rows, seed=seed,
        epoch=n_epochs, masses=masses, before=mass_before(masses, rows),
    )  # fmt: skip
    return {"n_components": m, "repeated_rows": mapped.repeated}


def write_pool(
    *, points: str, out: str, rows: tuple[int, ...], seed: int, epoch: int, masses: str, before: Sequence[float]
) -> None:
    """Write the rows of the map that may be drawn."""
    parts = [share_block(b, read_array(f"{points}/{b}"), rows, seed, epoch, masses, before) for b in range(len(rows))]
    write_array(out, np.concatenate([share for (share,), _ in parts]))


# ---------------------------------------------------------------------------------------------------------- stages

SCALE = Scale(deviation=3.0, farthest=4.0, connected=0.99)
"""Of a start: about as large as the map will be, with which forces of length 1 to 4 have their sense."""


def sampling_stages(
    graph: GraphShape,
    connectivity: float,
    mix: float,
    asked: SamplingOptions,
    start: str | RowSource,
    in_memory: bool | None,
    target: tuple[Labels, float] | None = None,
    density: DensityOptions | None = None,
    how: Combination | None = None,
) -> list[Stage]:
    """Return the stages: weights, the start, the descent, coordinates, and how far to trust them.

    ``target``: labels that the weights follow, and how much; ``density``: what is asked of densities; ``how``: two
    views become one map.
    """
    m, seed, edges = asked.n_components, asked.seed, planned_edges(graph)[1]
    if start in ("auto", "spectral"):
        start = "pca" if not graph.rowless and graph.n <= m else "spectral"  # (fewer eigenvectors than coordinates)
    memberships = {"local_connectivity": connectivity, "set_op_mix_ratio": mix}
    policy = "joint" if graph.rowless else "largest"
    scale = Scale(SCALE.deviation, SCALE.farthest) if graph.rowless else SCALE
    fuzzy = Memberships(connectivity, mix)
    name = "kernel" if target is None else "memberships"
    first = graph
    if graph.views and how:
        weights = _of_views(graph, edges, fuzzy, memberships, how, name)
        first = graph.views[0] if how.target else graph
    else:
        weights = [weights_stage(graph, edges, fuzzy, memberships, name)]
    if target is not None:
        labels, weight = target
        weights += [labels_stage(labels), labelled_stage(graph, edges, weight)]
    if density is not None and density.dens_lambda > 0:
        descent = density_descent_stage(graph, edges, density, in_memory)
    else:
        descent = sampled_descent_stage(graph, edges, asked, in_memory)
    return [
        *weights,
        *start_stages(graph, m, start, seed, policy, scale),
        *([density_stage(graph, edges)] if density else []),
        descent,
        pool_stage(graph, m, seed, asked.n_epochs),
        *([radii_stage(graph, edges, density)] if density else []),
        *map_judgement_stages(first, m, seed),
    ]


def _of_views(
    graph: GraphShape, edges: int, fuzzy: Memberships, memberships: dict[str, float], how: Combination, name: str
) -> list[Stage]:
    """Return the stages of the weights of each view, of their edges over the same blocks, and of what comes of both.

    Memberships of targets are always those of the nearest one, and of the union.
    """
    assert graph.views is not None
    first, prefix = "first-memberships", TARGET if how.target else SECOND
    views, own = graph.views, [planned_edges(view)[1] for view in graph.views]
    second, of_second = fuzzy, memberships
    if how.target:
        second, of_second = Memberships(1.0, 1.0), {"local_connectivity": 1.0, "set_op_mix_ratio": 1.0}
    blocks = [min(view.n, view.block) for view in views]
    return [
        weights_stage(views[0], own[0], fuzzy, memberships, first),
        within(weights_stage(views[1], own[1], second, of_second, "memberships"), prefix),
        views_stage(graph.n, (blocks[0], blocks[1]), (own[0], own[1]), (first, f"{prefix}memberships"), prefix),
        combined_stage(graph, edges, how, first, name),
    ]
