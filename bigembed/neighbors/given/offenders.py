"""What can be wrong with a user's edges, found by tasks and said in one error: how many, and the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.store.inputs.graph_source import SYMMETRIZE, GraphSource

NAMED = 10
"""Edges and nodes that an error names."""


def note_wrong(wrong: dict[str, Any], first: Array, second: Array, value: Array, source: GraphSource) -> None:
    """Add to ``wrong`` what is wrong with some edges: how many, and the first ones."""
    inside = [np.isfinite(ids) & (ids >= 0) & (ids < source.n) & (ids == np.floor(ids)) for ids in (first, second)]
    with np.errstate(over="ignore", invalid="ignore"):
        square = value.astype(np.float64) ** (1 if source.squared or source.values == "weights" else 2)
        bad = {
            "ids": ~(inside[0] & inside[1]),
            "values": ~(np.isfinite(value) & (value >= 0)),
            "large": np.isfinite(value) & (~np.isfinite(square) | ((square == 0) & (value != 0))),
            "above one": (value > 1) if source.symmetrize == "union" else np.zeros(len(value), bool),
        }
    for name, flags in bad.items():
        places = np.flatnonzero(flags)
        if len(places):
            count, named = wrong.get(name, (0, []))
            new = [(first[p].item(), second[p].item(), value[p].item()) for p in places[: NAMED - len(named)]]
            wrong[name] = count + len(places), named + new


SAID = {
    "ids": "have ids that are not integers from 0 to {last}. Number the nodes 0 … n − 1 (nodes says n)",
    "values": "have values that are NaN, infinite or negative; {values} are finite and ≥ 0. {advice}",
    "large": "have lengths whose squares leave the range of float64. Divide all by a number near them",
    "above one": "have weights above 1, and a + b − ab is a union of weights up to 1 only. Take symmetrize='max' or "
    "'mean', or divide",
}


def refuse_scattered(source: GraphSource, found: Sequence[dict[str, Any]]) -> None:
    """InputError that lists what is wrong with the edges, with the first ones."""
    advice = "A missing neighbor is −1; leave edges without a value out"
    if source.values == "weights":
        advice = 'Distances are read with values="distances"; leave edges without a value out'
    problems = []
    for name, said in SAID.items():
        parts = [part[name] for part in found if name in part]
        if parts:
            count, named = sum(part[0] for part in parts), [edge for part in parts for edge in part[1]][:NAMED]
            shown = ", ".join(f"{a:.17g} → {b:.17g}: {value:.6g}" for a, b, value in named)
            text = said.format(last=source.n - 1, values=source.values, advice=advice)
            problems.append(f"{count:,} edges {text}. The first: {shown}")
    if problems:
        raise InputError(". ".join(problems))


def refuse_merged(found: Sequence[dict[str, Any]], source: GraphSource, alone: bool = False) -> None:
    """InputError for edges listed twice, weights that are not symmetric, and, unless they may be ``alone``, nodes
    without edges, named by their ids."""

    def named(name: str) -> tuple[int, list[Any]]:
        return sum(part[name][0] for part in found), [one for part in found for one in part[name][1]][:NAMED]

    count, first = named("twice")
    if count:
        raise InputError(
            f"{count:,} edges are listed more than once in one direction: {_pairs(first)}. Say what becomes of them: "
            "duplicates='sum', 'min' or 'max'"
        )
    count, first = named("asymmetric")
    if count:
        shown = ", ".join(f"{i} → {j}: {a:.6g} and back {b:.6g}" for i, j, a, b in first)
        ways = " or ".join(repr(name) for name in SYMMETRIZE[source.values] if name != "error")
        whole = "max" if source.values == "weights" else "min"
        raise InputError(
            f"the graph is not symmetric: {count:,} values differ from those of the way back ({shown}). Say what "
            f"becomes of them: symmetrize={ways}; {whole!r} is right where each edge is listed once"
        )
    count, first = named("alone")
    if count and not alone:
        stay = ", or give them a weight to themselves" if source.values == "weights" else ""
        raise InputError(
            f"{count:,} nodes have no edge; the first are {first}. No walk and no path leads to them: leave them out "
            f"and number the others 0 … n − 1{stay}"
        )


def _pairs(edges: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{i} → {j}" for i, j in edges)
