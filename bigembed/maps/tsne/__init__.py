"""t-SNE: attraction along the edges of a graph, and repulsion of all rows.

The stages that follow a neighbor graph, or a user's weights, are here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import write_map
from bigembed.maps.descended import EdgeWeights, coordinates_stage, planned_edges, start_stages, weights_stage
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.tsne import descent
from bigembed.neighbors.row_weights import values_path
from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages import ArraySpec, Context, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import CSRBlock
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------ affinities


@dataclass(frozen=True)
class Affinities(EdgeWeights):
    """The joint probabilities p_ij of t-SNE; of a user's weights W/ΣW. Of rows that count, of all pairs of copies."""

    perplexity: float
    n: int
    counts: ClassVar = True
    single: ClassVar[float] = 1.0
    """What one copy of a row weighs."""
    numbers: ClassVar = 5
    operations: ClassVar = 30

    def of(self, context: Context) -> Affinities:
        """Return these, or those of rows that count, if those of the run do."""
        return CountedAffinities(self.perplexity, self.n, descent.single_in(context)) if values_path(context) else self

    def scales(
        self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int, mass: Array | None = None
    ) -> Array:
        """Return ρ², id of the k-th neighbor, β, m and log Z of each row."""
        from bigembed.maps.tsne.compiled import calibrate  # imports numba: only here

        lengths, mass = (block.indptr, block.indices, block.data), np.ones(len(ids)) if mass is None else mass
        return calibrate(*lengths, ids, reach, last, self.perplexity, mass, self.single)

    def weigh(
        self, block: CSRBlock, ids: Array, scales: Array, mass: Array | None = None
    ) -> tuple[Array, float, float]:
        """Return p_ij, Σ p and Σ p log(p/w_i w_j)."""
        from bigembed.maps.tsne.compiled import joint

        lengths, mass = (block.indptr, block.indices, block.data), np.ones(len(ids)) if mass is None else mass
        return joint(*lengths, ids, scales, self.n, mass, self.single, self.perplexity)

    def unit(self, total: float, largest: float) -> float:
        """Return ΣW, by which the weights of a user's graph are divided."""
        return total

    def figures(self, weights: Array, pairs: Array | None = None) -> tuple[float, float]:
        """Return Σ p and Σ p log(p/w_i w_j)."""
        there = weights > 0
        p = weights[there].astype(np.float64)
        return float(p.sum()), float(p @ np.log(p if pairs is None else p / pairs[there]))

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ p and Σ p log p of all blocks."""
        mass, plogp = (float(tree_sum([part[i] for part in figures])) for i in range(2))
        return {"mass": mass, "plogp": plogp}


@dataclass(frozen=True)
class CountedAffinities(Affinities):
    """Those of rows that count, with what one copy of a row weighs."""

    single: float  # type: ignore[misc]


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with the field of all rows.


def field_stage(graph: GraphShape, m: int, dof: float) -> Stage:
    """Return the stage of the coordinates and the ``field`` of the map."""
    kept, transform = descent.lattice_bytes(graph.n, m)
    field = ArraySpec("field", 1, transform // 32)
    stage = coordinates_stage(graph, m, {"dof": dof}, run_coordinates, field, kept + transform)
    return replace(stage, inputs=(*stage.inputs, *graph.vectors))


def run_coordinates(context: Context, graph: GraphShape, m: int, dof: float) -> dict[str, Any]:
    mapped, mass = write_map(context, graph, m), values_path(context)
    space = StoredSpace(None, context.exchange, tuple(context.results("kernel")["rows"]))
    box = np.stack([mapped.low, mapped.high])
    spacing = descent.spacing_for(box, dof)
    lattice = descent.Lattice.covering(box, spacing, descent.STEP)
    boxes = space.sweep(charge_map_block, writes=["charges"], arguments=(context.path("points"), spacing, mass))
    field, single = context.path("field"), descent.single_in(context)
    [total] = map_blocks(
        write_field, [()], space=space, boxes=boxes, lattice=lattice, dof=dof, single=single, out=field
    )
    return {
        "n_components": m,
        "repeated_rows": mapped.repeated,
        "spacing": spacing,
        "low": list(lattice.low),
        "box": box.tolist(),
        "total": total,
    }


def charge_map_block(b: int, points: str, spacing: float, mass: str) -> tuple[tuple[Array], Array]:
    """Return the charges of a block of the map, and its box."""
    return descent.charge_block(b, read_array(f"{points}/{b}"), spacing, mass=mass)


def write_field(
    *, space: StoredSpace, boxes: list[Array], lattice: descent.Lattice, dof: float, single: float, out: str
) -> float:
    """Write the field of the map, and return its Z."""
    total = descent.join_charges("charges", "field", space=space, boxes=boxes, lattice=lattice, dof=dof, single=single)
    write_array(out, space.read("field", 0))
    return total


# ---------------------------------------------------------------------------------------------------------- stages


def neighbors_for(perplexity: float, n: int) -> int:
    """Return how many neighbors the affinities of a perplexity are taken over: 3·perplexity, of n − 1 others.

    >>> neighbors_for(30, 1000), neighbors_for(30, 50)
    (90, 49)
    """
    return max(1, min(n - 1, int(3 * perplexity)))


def perplexity_of(asked: float, neighbors: int) -> float:
    """Return the largest perplexity that this number of neighbors allows: a third of it.

    >>> perplexity_of(30.0, 90), perplexity_of(30.0, 60)
    (30.0, 20.0)
    """
    return max(1.0, min(asked, neighbors / 3) if neighbors < int(3 * asked) else asked)


def force_stages(
    graph: GraphShape,
    perplexity: float,
    asked: descent.DescentOptions,
    start: str | RowSource,
    in_memory: bool | None,
    seed: int,
) -> list[Stage]:
    """Return the stages: affinities, the start, the descent, coordinates, and how far to trust them."""
    m, (k, edges) = asked.n_components, planned_edges(graph)
    affinities = Affinities(perplexity_of(perplexity, k), graph.n)
    return [
        weights_stage(graph, edges, affinities, {"perplexity": affinities.perplexity}),
        *start_stages(graph, m, start, seed),
        descent.force_descent_stage(graph, edges, asked, in_memory),
        field_stage(graph, m, asked.dof),
        *map_judgement_stages(graph, m, seed),
    ]
