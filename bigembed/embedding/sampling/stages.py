"""The stages of a map by sampled edges and rows that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from bigembed.embedding.forces.stages import PASSES, TOL, USER_EDGES
from bigembed.embedding.forces.start import Scale, start_stage
from bigembed.embedding.graph.judgement import map_judgement_stages
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.sampling.coordinates import coordinates_stage
from bigembed.embedding.sampling.descent import descent_stage
from bigembed.embedding.sampling.memberships import memberships_stage
from bigembed.embedding.sampling.options import SamplingOptions
from bigembed.embedding.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.errors import InputError
from bigembed.stages import Stage
from bigembed.store.source import RowSource

SCALE = Scale(deviation=3.0, farthest=4.0, connected=0.99)
"""Of a start: about as large as the map will be, with which forces of length 1 to 4 have their sense."""


def sampling_stages(
    graph: GraphShape,
    connectivity: float,
    mix: float,
    asked: SamplingOptions,
    start: str | RowSource,
    in_memory: bool | None,
) -> list[Stage]:
    """Weights, the start, the descent, coordinates, and how far to trust them."""
    n, m, seed = graph.n, asked.n_components, asked.seed
    k = USER_EDGES if graph.weighted else n - 1 if graph.dense or graph.k is None else graph.k
    edges = min(n * n, 2 * n * k)
    rows = not (graph.weighted or graph.given)
    if isinstance(start, RowSource) and start.shape != (n, m):
        raise InputError(f"init has shape {start.shape}; coordinates to start from must be (n, m) = {(n, m)}")
    if start == "pca" and not rows:
        start = "spectral"
    if start == "spectral" and rows and n <= m:  # (fewer eigenvectors than coordinates)
        start = "pca"
    block = min(graph.block, n)
    scale = SCALE if rows else Scale(SCALE.deviation, SCALE.farthest)
    spectrum = Spectrum(m, "largest" if rows else "joint", TOL, PASSES, seed)
    eigenvectors = [components_stage(n, k, block), solve_stage(spectrum, n, k, block)] if start == "spectral" else []
    return [
        memberships_stage(graph, edges, connectivity, mix),
        *eigenvectors,
        start_stage(graph, m, start, seed, scale),
        descent_stage(graph, edges, asked, in_memory),
        coordinates_stage(graph, m, seed, asked.n_epochs),
        *map_judgement_stages(graph, m, seed),
    ]
