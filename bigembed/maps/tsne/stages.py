"""The stages of a map by attraction and repulsion that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import GraphShape, row_sums
from bigembed.maps.coordinates import write_map
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.start import Scale, start_stage
from bigembed.maps.tsne.descent import DescentOptions, charge_block, force_descent_stage, join_charges
from bigembed.maps.tsne.field import STEP, Lattice, lattice_bytes, spacing_for
from bigembed.maps.walk.spectral import Spectrum, components_stage, solve_stage
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.stage import Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import StoredMatrix, write_values
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------ affinities
# The stage of the joint probabilities of t-SNE on a stored graph, by row blocks: no process sees more than one.


def affinities_stage(graph: GraphShape, edges: int, perplexity: float) -> Stage:
    """``kernel/weights`` p_ij on the graph, and their row sums; Σ p_ij log p_ij among the results.

    A user's weights W ≥ 0 are taken as they are: p = W/ΣW.
    """
    if graph.weighted:
        parameters: dict[str, Any] = {"given": True}
        inputs: tuple[str, ...] = ("weights",)
    else:
        parameters = {"perplexity": perplexity}
        inputs = ("order", "graph") if graph.dense or graph.given else ("graph", "search")

    block = min(graph.block, graph.n)
    cost = Cost(
        passes=2,
        read=24 * edges,
        write=4 * edges + 88 * graph.n,
        disk=4 * edges + 8 * graph.n,
        scratch=80 * graph.n,
        memory=40 * (-(-edges // graph.n)) * block,
        scalar_ops=30 * edges,
    )
    return Stage("kernel", inputs, parameters, partial(run_affinities, graph=graph, perplexity=perplexity), cost)


def run_affinities(context: Context, graph: GraphShape, perplexity: float) -> dict[str, Any]:
    given = context.home.matrix(graph.stage, "given" if graph.weighted else "squared")
    space, out = StoredSpace(given, context.exchange), context.path("")
    if graph.weighted:
        whole = tree_sum(space.sweep(mass_block, arguments=(given,)))
        if not whole > 0:
            raise InputError("the weights add up to 0: nothing attracts anything")
        parts = space.sweep(given_block, arguments=(given, whole, out))
    else:
        lists = "" if graph.dense else context.of("graph" if graph.given else "search")
        starts = read_array(context.of("graph", "starts"))
        space.sweep(calibrate_block, writes=["scale"], posts=["scale"], arguments=(given, lists, starts, perplexity))
        shared = (given, starts, out)
        parts = space.sweep(joint_block, reads=["scale"], halos=["scale"], arguments=shared)
    return {
        "edges": sum(part[0] for part in parts),
        "rows": list(given.rows),
        "mass": float(tree_sum([part[1] for part in parts])),
        "plogp": float(tree_sum([part[2] for part in parts])),
    }


def calibrate_block(
    b: int, distances: StoredMatrix, lists: str, starts: Array, perplexity: float
) -> tuple[tuple[Array], None]:
    """What the affinities of each row follow from; ``lists``: where its k-th neighbor is, empty where all are."""
    from bigembed.maps.tsne.compiled import calibrate  # imports numba: only here

    block = distances.block(b)
    ids = block.ids(b, starts)
    count = len(block.indptr) - 1
    reach, last = np.full(count, np.inf), np.zeros(count)
    if lists:
        reach = read_array(f"{lists}/rho_squared/{b}").astype(np.float64)
        last = np.full(count, np.inf)  # (of a user's lists: of rows that are equally far all are in them)
        if not lists.endswith("graph"):
            last = read_array(f"{lists}/kappa/{b}").astype(np.float64)
    return (calibrate(block.indptr, block.indices, block.data, ids, reach, last, perplexity),), None


def joint_block(
    b: int, scale: Array, halo: Array, distances: StoredMatrix, starts: Array, out: str
) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write p_ij of one block and their row sums; edges, Σ p, Σ p log p."""
    from bigembed.maps.tsne.compiled import joint

    block = distances.block(b)
    ids, scales = block.ids(b, starts), np.concatenate([scale, halo])
    weights, mass, plogp = joint(block.indptr, block.indices, block.data, ids, scales, int(starts[-1]))
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(block.indptr, weights))
    return (), (len(weights), mass, plogp)


def mass_block(b: int, given: StoredMatrix) -> tuple[tuple[()], float]:
    """Σ W of one block, without the weights of rows to themselves."""
    return (), float(without_own(b, given).sum())


def given_block(b: int, given: StoredMatrix, whole: float, out: str) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write W/ΣW of one block and their row sums; edges, Σ p, Σ p log p."""
    weights = (without_own(b, given) / whole).astype(np.float32)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(given.block(b).indptr, weights))
    p = weights[weights > 0].astype(np.float64)
    return (), (len(weights), float(p.sum()), float(p @ np.log(p)))


def without_own(b: int, given: StoredMatrix) -> Array:
    """Weights of one block, 0 of rows to themselves."""
    block = given.block(b)
    return np.where(block.indices == block.row, 0.0, block.data)


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with the field of all rows.


def coordinates_stage(graph: GraphShape, m: int, dof: float) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks of the graph, and ``field``.

    Rows that are equal have the coordinates of the first of them.
    """
    n, block = graph.n, min(graph.n, graph.block)

    size, (kept, transform) = 8 * n * m, lattice_bytes(n, m)
    cost = Cost(
        read=4 * size,
        write=4 * size,
        disk=2 * size + transform // 4,
        scratch=size + 16 * n,
        memory=max(6 * block * (8 * m + 16), kept + transform),
        maps=5,
    )
    inputs = ("kernel", "descent", *(("order",) if graph.ordered else ()), *(() if graph.weighted else ("graph",)))
    return Stage("coordinates", inputs, {"dof": dof}, partial(run_coordinates, graph=graph, m=m, dof=dof), cost)


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
    """Write the field of the map; its Z."""
    total = join_charges("charges", "field", space=space, boxes=boxes, lattice=lattice, dof=dof)
    write_array(out, space.read("field", 0))
    return total


# ---------------------------------------------------------------------------------------------------------- stages

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
        force_descent_stage(graph, edges, asked, in_memory),
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
