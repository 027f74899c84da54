"""The stages of an Isomap that follow a graph, and what its certificate warns of."""

from __future__ import annotations

from typing import Any

from bigembed.embedding.geodesics.distances import (
    all_distances_stage,
    graph_components_stage,
    landmark_distances_stage,
    landmarks_stage,
)
from bigembed.embedding.geodesics.scaling import coordinates_stage, exact_solve_stage, landmark_solve_stage
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.neighbors.components.bridge import bridge_stage
from bigembed.stages import Stage

AUTO_ROWS = 4_096
"""Up to here solver="auto" is exact."""


def geodesic_stages(asked: Any, graph: GraphShape, seed: int) -> list[Stage]:
    """Components, distances along the graph, their scaling, and coordinates.

    ``asked`` has the parameters of :class:`~bigembed.Isomap`.
    """
    n, m, policy, block = graph.n, int(asked.n_components), asked.components, min(graph.block, graph.n)
    edges, by = graph.planned_edges, graph.by
    if graph.given and policy in ("bridge", "largest"):
        raise InputError(
            f"components={policy!r} looks for near rows in other components, and distances that are given have no "
            "rows; allowed: 'error' or 'per-component'. Raise n_neighbors or radius, or add edges to the graph"
        )
    bridged = [bridge_stage(n, -(-edges // (2 * n)), by)] if policy == "bridge" else []
    first = [*bridged, graph_components_stage("bridge" if bridged else "graph", edges, n, block)]
    if asked.solver == "exact" or (asked.solver == "auto" and n <= AUTO_ROWS):
        return [
            *first,
            all_distances_stage(policy, m, n, edges),
            exact_solve_stage(policy, m, n, asked.tol, asked.max_passes, seed),
            coordinates_stage(policy, m, n, block, by=by),
        ]
    count = min(n, int(asked.n_landmarks))
    return [
        *first,
        landmarks_stage(policy, m, count, "uniform" if graph.given else asked.landmarks, graph.row_bytes, n, seed),
        landmark_distances_stage(n, edges, count, block),
        landmark_solve_stage(policy, m, n, count, block),
        coordinates_stage(policy, m, n, block, count, by),
    ]


def unconverged(solved: dict[str, Any]) -> list[str]:
    """Components of the graph whose eigensolver stopped early."""
    return [
        f"component {c} of the graph: the eigensolver stopped ({part['reason']}) with residuals up to "
        f"{max(part['residuals']):.2g} after {part['passes']} passes. {part['advice']}"
        for c, part in solved.items()
        if not part.get("converged", True)
    ]


def degenerate(out: dict[str, Any], m: int) -> list[str]:
    """Coordinates that are not there, and distances far from Euclidean."""
    messages = []
    short = {c: part["positive"] for c, part in out["eigenpairs"].items() if part["positive"] < m}
    if short:
        first = ", ".join(f"{count} in component {c}" for c, count in list(short.items())[:5])
        messages.append(
            f"fewer than {m} eigenvalues are positive ({first} of the graph); the other coordinates are 0. The "
            "rows, or the landmarks, span fewer dimensions: ask for fewer coordinates, or more landmarks"
        )
    far = [c for c, part in out["eigenpairs"].items() if -part["lowest"] > max(part["eigenvalues"][m - 1], 0.0)]
    if far and not short:
        messages.append(
            f"an eigenvalue of B is more negative ({out['eigenpairs'][far[0]]['lowest']:.3g}) than that of the last "
            f"coordinate is positive ({out['eigenpairs'][far[0]]['eigenvalues'][m - 1]:.3g}): the geodesic distances "
            "are far from those of points in space. The graph may have shortcuts (noise, too many neighbors), or the "
            "data holes"
        )
    landmarks = out.get("landmarks")
    if landmarks and landmarks["landmarks"] < landmarks["wanted"]:
        messages.append(
            f"{landmarks['landmarks']} landmarks of {landmarks['wanted']}: the sampled rows have no more distinct ones"
        )
    return messages
