"""The walk of a Laplacian eigenmap: heat or binary weights on a graph, as they are (seed 000 §9.3)."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.declared import Requirements
from bigembed.embedding.graph.parts import ISLANDS
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.walk.stages import WalkOptions
from bigembed.errors import InputError
from bigembed.kernels.gaussian import BINARY, LOCAL

EDGES = ("heat", BINARY)
"""Weights of the edges."""
REACH = 0.25
"""ε of a graph of a radius, over the squared radius: e⁻⁴ at its end, as the adaptive kernel has at least."""


def require_heat(asked: Any, need: Requirements) -> None:
    """What the parameters of the graph and of the weights need to go together."""
    need(
        asked.radius is None or asked.bandwidth not in LOCAL,
        "bandwidth",
        "'auto' or 'fixed' with a radius, for local scales are distances to the k nearest neighbors",
    )
    plain = asked.epsilon == "auto" and asked.bandwidth == "auto"
    need(asked.weights != BINARY or plain, "weights", "'heat' where epsilon or bandwidth is given")
    need(
        asked.weights != BINARY or asked.radius is not None or asked.n_neighbors is not None,
        "weights",
        "'heat' where n_neighbors is None: all pairs would weigh the same",
    )


def heat_walk(asked: Any, graph: GraphShape, islands: str = ISLANDS, **others: Any) -> WalkOptions:
    """The options of the walk for an estimator with the parameters of :class:`~bigembed.LaplacianEigenmaps`.

    ``islands``: the policy of components="auto".
    """
    others["components"] = islands if asked.components == "auto" else asked.components
    if asked.weights == BINARY and not graph.weighted:
        if graph.dense:
            raise InputError("weights='binary' on a graph of every pair: all weigh the same. Take weights='heat'")
        others |= {"bandwidth": BINARY, "epsilon": 1.0}  # (which multiplies nothing)
    elif graph.radius is not None:
        if asked.bandwidth in LOCAL:
            raise InputError(
                f"bandwidth={asked.bandwidth!r} takes scales from the k nearest neighbors, and the graph is one of a "
                "radius. Take bandwidth='auto'"
            )
        epsilon = REACH * float(graph.radius) ** 2 if asked.epsilon == "auto" else asked.epsilon
        others |= {"epsilon": epsilon}
    return WalkOptions.of(asked, **others)
