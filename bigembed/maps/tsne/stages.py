"""The stages of a map by attraction and repulsion that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.coordinates import write_map
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.map_stages import EdgeWeights, coordinates_stage, planned_edges, start_stages, weights_stage
from bigembed.maps.tsne.descent import DescentOptions, charge_block, force_descent_stage, join_charges
from bigembed.maps.tsne.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import ArraySpec
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import CSRBlock
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------ affinities


@dataclass(frozen=True)
class Affinities(EdgeWeights):
    """The joint probabilities p_ij of t-SNE; of a user's weights W/ΣW."""

    perplexity: float
    n: int
    numbers: ClassVar = 5
    operations: ClassVar = 30

    def scales(self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int) -> Array:
        """Return ρ², id of the k-th neighbor, β, m and log Z of each row."""
        from bigembed.maps.tsne.compiled import calibrate  # imports numba: only here

        return calibrate(block.indptr, block.indices, block.data, ids, reach, last, self.perplexity)

    def weigh(self, block: CSRBlock, ids: Array, scales: Array) -> tuple[Array, float, float]:
        """Return p_ij, Σ p and Σ p log p."""
        from bigembed.maps.tsne.compiled import joint

        return joint(block.indptr, block.indices, block.data, ids, scales, self.n)

    def unit(self, total: float, largest: float) -> float:
        """Return ΣW, by which the weights of a user's graph are divided."""
        return total

    def figures(self, weights: Array) -> tuple[float, float]:
        """Return Σ p and Σ p log p."""
        p = weights[weights > 0].astype(np.float64)
        return float(p.sum()), float(p @ np.log(p))

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ p and Σ p log p of all blocks."""
        mass, plogp = (float(tree_sum([part[i] for part in figures])) for i in range(2))
        return {"mass": mass, "plogp": plogp}


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with the field of all rows.


def field_stage(graph: GraphShape, m: int, dof: float) -> Stage:
    """Return the stage of the coordinates and the ``field`` of the map."""
    kept, transform = lattice_bytes(graph.n, m)
    field = ArraySpec("field", 1, transform // 32)
    return coordinates_stage(graph, m, {"dof": dof}, run_coordinates, field, kept + transform)


def run_coordinates(context: Context, graph: GraphShape, m: int, dof: float) -> dict[str, Any]:
    mapped = write_map(context, graph, m)
    space = StoredSpace(None, context.exchange, tuple(context.results("kernel")["rows"]))
    box = np.stack([mapped.low, mapped.high])
    spacing = spacing_for(box, dof)
    lattice = Lattice.covering(box, spacing, STEP)
    boxes = space.sweep(charge_map_block, writes=["charges"], arguments=(context.path("points"), spacing))
    field = context.path("field")
    [total] = map_blocks(write_field, [()], space=space, boxes=boxes, lattice=lattice, dof=dof, out=field)
    return {
        "n_components": m,
        "repeated_rows": mapped.repeated,
        "spacing": spacing,
        "low": list(lattice.low),
        "box": box.tolist(),
        "total": total,
    }


def charge_map_block(b: int, points: str, spacing: float) -> tuple[tuple[Array], Array]:
    """Return the charges of a block of the map, and its box."""
    return charge_block(b, read_array(f"{points}/{b}"), spacing)


def write_field(*, space: StoredSpace, boxes: list[Array], lattice: Lattice, dof: float, out: str) -> float:
    """Write the field of the map, and return its Z."""
    total = join_charges("charges", "field", space=space, boxes=boxes, lattice=lattice, dof=dof)
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
    asked: DescentOptions,
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
        force_descent_stage(graph, edges, asked, in_memory),
        field_stage(graph, m, asked.dof),
        *map_judgement_stages(graph, m, seed),
    ]
