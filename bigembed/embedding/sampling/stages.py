"""The stages of a map by sampled edges and rows that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from bigembed.embedding.forces.stages import planned_edges, start_stages
from bigembed.embedding.forces.start import Scale
from bigembed.embedding.graph.judgement import map_judgement_stages
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.sampling.coordinates import coordinates_stage
from bigembed.embedding.sampling.descent import descent_stage
from bigembed.embedding.sampling.memberships import memberships_stage
from bigembed.embedding.sampling.options import SamplingOptions
from bigembed.stages import Stage
from bigembed.store.rows.source import RowSource

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
    m, seed, edges = asked.n_components, asked.seed, planned_edges(graph)[1]
    if start in ("auto", "spectral"):
        start = "pca" if not graph.rowless and graph.n <= m else "spectral"  # (fewer eigenvectors than coordinates)
    policy = "joint" if graph.rowless else "largest"
    scale = Scale(SCALE.deviation, SCALE.farthest) if graph.rowless else SCALE
    return [
        memberships_stage(graph, edges, connectivity, mix),
        *start_stages(graph, m, start, seed, policy, scale),
        descent_stage(graph, edges, asked, in_memory),
        coordinates_stage(graph, m, seed, asked.n_epochs),
        *map_judgement_stages(graph, m, seed),
    ]
