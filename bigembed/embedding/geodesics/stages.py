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
from bigembed.embedding.graph.judgement import map_judgement_stages
from bigembed.embedding.graph.parts import ISLANDS, parts_from
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.landmark_rows import ENOUGH
from bigembed.errors import InputError
from bigembed.neighbors.components.bridge import bridge_stage
from bigembed.runs import Run
from bigembed.stages import Stage

AUTO_ROWS = 4_096
"""Up to here solver="auto" is exact."""


def geodesic_stages(asked: Any, graph: GraphShape, seed: int) -> list[Stage]:
    """Components, distances along the graph, their scaling, coordinates, and how far to trust them.

    ``asked`` has the parameters of :class:`~bigembed.Isomap`.
    """
    n, m, block = graph.n, int(asked.n_components), min(graph.block, graph.n)
    policy = ISLANDS if asked.components == "auto" else asked.components
    edges, by = graph.planned_edges, graph.by
    if graph.given and policy in ("bridge", "largest"):
        raise InputError(
            f"components={policy!r} looks for near rows in other components, and distances that are given have no "
            "rows; allowed: 'auto', 'error' or 'per-component'. Raise n_neighbors or radius, or add edges to the graph"
        )
    lengths, first = _components(policy, graph, edges, block)
    parts = "bridge" if policy == ISLANDS and not graph.given else "components"
    judgement = map_judgement_stages(graph, m, seed, parts="" if policy == "bridge" else parts)
    if asked.solver == "exact" or (asked.solver == "auto" and n <= AUTO_ROWS):
        return [
            *first,
            all_distances_stage(lengths, policy, m, n, edges),
            exact_solve_stage(policy, m, n, asked.tol, asked.max_passes, seed),
            coordinates_stage(policy, m, n, block, by=by, parts=parts),
            *judgement,
        ]
    count = min(n, int(asked.n_landmarks))
    return [
        *first,
        landmarks_stage(policy, m, count, "uniform" if graph.given else asked.landmarks, graph.row_bytes, n, seed),
        landmark_distances_stage(lengths, n, edges, count, block),
        landmark_solve_stage(policy, m, n, count, block),
        coordinates_stage(policy, m, n, block, count, by, parts),
        *judgement,
    ]


def _components(policy: str, graph: GraphShape, edges: int, block: int) -> tuple[tuple[str, ...], list[Stage]]:
    """The stages that may hold the graph that is embedded (:func:`lengths_in`); the bridges that the policy asks for,
    and the components of what is joined then."""
    n, k = graph.n, -(-edges // (2 * graph.n))
    lengths: tuple[str, ...] = ("graph",)
    bridges: list[Stage] = []
    if policy == "bridge":
        lengths, bridges = ("bridge",), [bridge_stage(n, k, graph.by)]
    if policy == ISLANDS and not graph.given:
        lengths, bridges = ("bridge", "graph"), [bridge_stage(n, k, graph.by, parts=joined_parts)]
    return lengths, [*bridges, graph_components_stage(lengths, edges, n, block)]


def joined_parts(found: dict[str, Any]) -> int:
    """How many components are parts, and none an island."""
    return parts_from(ISLANDS, found).count


def is_bridged(run: Run) -> bool:
    """Whether the graph that was embedded is one with bridges (of one part there are none to build)."""
    return run.has("bridge") and bool(run.results("bridge")["bridges"] or not run.results("bridge").get("parts"))


def parts_warnings(out: dict[str, Any], advice: str) -> list[str]:
    """Of a certificate: that the graph fell into parts, what the map shows of them, and what joins them."""
    parts, bridge = out["parts"], out.get("bridge")
    if parts == 1:
        return []
    sizes = ", ".join(f"{size:,}" for size in out["component_sizes"][:parts][:10])
    head = f"the rows fall into {parts} parts that no neighbors join, of {sizes}{', …' if parts > 10 else ''} rows "
    if bridge is None:
        return [
            f"{head}(labels_ names them). Nothing says how far they are from each other: each is embedded by itself, "
            f"about its own mean, and coordinates of different parts are not comparable. {advice}; or add edges to "
            "the graph"
        ]
    return [
        f"{head}(labels_ names them). Their shortest edges join them, the longest {bridge['longest']:.4g} long: how "
        f"the parts lie to each other on the map is decided by single edges. {advice}; or components='per-component' "
        "or 'largest'"
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
    if landmarks and landmarks["landmarks"] < ENOUGH * landmarks["wanted"]:
        messages.append(
            f"{landmarks['landmarks']} landmarks of {landmarks['wanted']}: the sampled rows have no more distinct ones"
        )
    return messages
