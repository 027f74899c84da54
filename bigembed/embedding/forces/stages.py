"""The stages of a map by attraction and repulsion that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from bigembed.embedding.forces.affinities import affinities_stage
from bigembed.embedding.forces.coordinates import coordinates_stage
from bigembed.embedding.forces.descent import descent_stage
from bigembed.embedding.forces.options import DescentOptions
from bigembed.embedding.forces.start import Scale, start_stage
from bigembed.embedding.graph.judgement import map_judgement_stages
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.errors import InputError
from bigembed.stages import Stage
from bigembed.store.rows.source import RowSource

USER_EDGES = 30
"""Edges of a row of a user's graph that a plan counts with."""
TOL, PASSES = 1e-4, 100
"""Of the eigenvectors that a map starts from."""


def neighbors_for(perplexity: float, n: int) -> int:
    """How many neighbors the affinities of a perplexity are taken over: 3·perplexity, of n − 1 others.

    >>> neighbors_for(30, 1000), neighbors_for(30, 50)
    (90, 49)
    """
    return max(1, min(n - 1, int(3 * perplexity)))


def perplexity_of(asked: float, neighbors: int) -> float:
    """The largest perplexity that this number of neighbors allows: a third of it.

    >>> perplexity_of(30.0, 90), perplexity_of(30.0, 60)
    (30.0, 20.0)
    """
    return max(1.0, min(asked, neighbors / 3) if neighbors < int(3 * asked) else asked)


def force_stages(
    graph: GraphShape,
    perplexity: float,
    asked: DescentOptions,
    start: str | RowSource,
    in_memory: bool | None,
    seed: int,
) -> list[Stage]:
    """Affinities, the start, the descent, coordinates, and how far to trust them."""
    m, (k, edges) = asked.n_components, planned_edges(graph)
    return [
        affinities_stage(graph, edges, perplexity_of(perplexity, k)),
        *start_stages(graph, m, start, seed),
        descent_stage(graph, edges, asked, in_memory),
        coordinates_stage(graph, m, asked.dof),
        *map_judgement_stages(graph, m, seed),
    ]


def planned_edges(graph: GraphShape) -> tuple[int, int]:
    """Neighbors of a row, and entries of the graph, that a plan counts with."""
    n = graph.n
    k = USER_EDGES if graph.weighted else n - 1 if graph.dense or graph.k is None else graph.k
    return k, min(n * n, 2 * n * k)


def start_stages(
    graph: GraphShape, m: int, start: str | RowSource, seed: int, policy: str = "joint", scale: Scale | None = None
) -> list[Stage]:
    """The start of a map, after the eigenvectors that it takes, of components by a ``policy``."""
    n, k = graph.n, planned_edges(graph)[0]
    if isinstance(start, RowSource) and start.shape != (n, m):
        raise InputError(f"init has shape {start.shape}; coordinates to start from must be (n, m) = {(n, m)}")
    if start in ("auto", "pca"):
        start = "spectral" if graph.rowless else "pca"
    begun = start_stage(graph, m, start, seed, scale)
    if start != "spectral":
        return [begun]
    spectrum, block = Spectrum(m, policy, TOL, PASSES, seed), min(graph.block, n)
    return [components_stage(graph.stage, n, k, block), solve_stage(spectrum, graph.stage, n, k, block), begun]
