"""How far a map from local conditions can be trusted: what its certificate warns of."""

from __future__ import annotations

from typing import Any

import numpy as np

TURNED = 0.1
"""Sine of the angle of a coordinate to the eigenvector from which it is called undetermined."""


def posed(solve: dict[str, Any], n: int, m: int) -> dict[str, Any]:
    """Why it was solved exactly or by landmarks: the first eigenvalue of the largest part beside rounding.

    Of all n rows it would be about λ (c/n)^{4/m} where c landmarks have λ, if the rows fill m dimensions.
    """
    first = solve["solved"]["0"]
    value, rounding = first["eigenvalues"][0], float(np.finfo(np.float64).eps) * first["norm"]
    all_rows = value * (first["rows"] / n) ** (4 / m) if solve["solver"] == "landmarks" else value
    return {
        "condition": first["condition"],
        "first_eigenvalue": value,
        "rounding": rounding,
        "first_eigenvalue_of_all_rows": all_rows,
        "well_posed": bool(value > rounding),
    }


def unconverged(solve: dict[str, Any]) -> list[str]:
    """Parts whose eigenvectors were not found to the end."""
    return [
        f"component {c} of the graph: the eigensolver stopped after {part['steps']} steps with coordinates that still "
        f"turn (sine {max(part['turns']):.2g}). Ask for another number of components, or raise n_neighbors"
        for c, part in solve["solved"].items()
        if not part["converged"]
    ]


def degenerate(solve: dict[str, Any]) -> list[str]:
    """Groups of rows that no row outside decides, beside each other in a part."""
    out = []
    for c, part in solve["solved"].items():
        if part["closed"] > 1:
            first = ", ".join(map(str, part["closed_rows"][0]))
            out.append(
                f"component {c} of the graph has {part['closed']} groups of rows whose neighbors all lie in the same "
                f"group (one holds the rows {first}): the first coordinates tell these groups apart. Drop rows that "
                "repeat, or raise n_neighbors"
            )
    return out


def left_open(solve: dict[str, Any]) -> list[str]:
    """Parts in which more coordinates than are asked for meet every condition; groups of rows are named elsewhere."""
    out = []
    for c, part in solve["solved"].items():
        asked, free = len(part["eigenvalues"]), part.get("free", 0)
        if free > asked and part["closed"] <= 1:
            out.append(
                f"component {c} of the graph: {free} or more independent coordinates meet all local conditions (their "
                f"eigenvalues are 0 but for rounding), and {asked} {'is' if asked == 1 else 'are'} asked for: rounding "
                "decides which are found. The conditions are too few. Raise n_neighbors, ask for more coordinates, or "
                "take another method (of HessianLLE with one component own_row='auto')"
            )
    return out


def undetermined(solve: dict[str, Any]) -> list[str]:
    """Coordinates that may be turned among themselves."""
    out = []
    for c, part in solve["solved"].items():
        turned = [at + 1 for at, turn in enumerate(part["turns"]) if turn > TURNED]
        if turned:
            numbers = ", ".join(map(str, turned))
            out.append(
                f"coordinates {numbers} of component {c} of the graph may be turned: their eigenvalues lie too close "
                "together, or to the next. Read them together, or ask for one component more or fewer"
            )
    return out
