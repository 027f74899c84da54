"""What the certificate of an Isomap warns of: parts of the rows, solves that stopped, distances that no map has."""

from __future__ import annotations

from typing import Any

from bigembed.maps.landmark_rows import ENOUGH


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
