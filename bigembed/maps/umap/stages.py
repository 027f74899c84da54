"""The stages of a map by sampled edges and rows that follow a neighbor graph, or a user's weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import GraphShape, row_sums
from bigembed.maps.coordinates import write_map
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.start import Scale
from bigembed.maps.tsne.stages import planned_edges, start_stages, without_own
from bigembed.maps.umap.descent import POOL, SamplingOptions, chosen, sampled_descent_stage
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.stage import Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import StoredMatrix, write_values
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ----------------------------------------------------------------------------------------------------- memberships
# The stage of the fuzzy weights of UMAP on a stored graph, by row blocks: no process sees more than one.


def memberships_stage(graph: GraphShape, edges: int, connectivity: float, mix: float) -> Stage:
    """``kernel/weights`` w_ij on the graph, and their row sums ``degree``; Σ w and the largest w among the results.

    A user's weights W ≥ 0 are taken as they are, over the largest of them.
    """
    parameters: dict[str, Any] = {"local_connectivity": connectivity, "set_op_mix_ratio": mix}
    inputs: tuple[str, ...] = ("order", "graph") if graph.dense or graph.given else ("graph", "search")
    if graph.weighted:
        parameters, inputs = {"given": True}, ("weights",)

    block = min(graph.block, graph.n)
    cost = Cost(
        passes=2,
        read=24 * edges,
        write=4 * edges + 72 * graph.n,
        disk=4 * edges + 8 * graph.n,
        scratch=64 * graph.n,
        memory=40 * (-(-edges // graph.n)) * block,
        scalar_ops=80 * edges,
    )
    return Stage(
        "kernel", inputs, parameters, partial(run_memberships, graph=graph, connectivity=connectivity, mix=mix), cost
    )


def run_memberships(context: Context, graph: GraphShape, connectivity: float, mix: float) -> dict[str, Any]:
    given = context.home.matrix(graph.stage, "given" if graph.weighted else "squared")
    space, out = StoredSpace(given, context.exchange), context.path("")
    if graph.weighted:
        largest = max(space.sweep(largest_block, arguments=(given,)))
        if not largest > 0:
            raise InputError("the weights add up to 0: nothing attracts anything")
        parts = space.sweep(given_block, arguments=(given, largest, out))
        k = None
    else:
        starts = read_array(context.of("graph", "starts"))
        lists, k = _lists(context, graph)
        calibration = (given, lists, starts, k, connectivity)
        space.sweep(calibrate_block, writes=["scale"], posts=["scale"], arguments=calibration)
        parts = space.sweep(union_block, reads=["scale"], halos=["scale"], arguments=(given, starts, mix, out))
    return {
        "n_neighbors": k,
        "edges": sum(part[0] for part in parts),
        "rows": list(given.rows),
        "mass": float(tree_sum([part[1] for part in parts])),
        "largest": max(part[2] for part in parts),
    }


def _lists(context: Context, graph: GraphShape) -> tuple[str, int]:
    """Where the reach of the rows' lists of neighbors is, empty where it is everything; and how many these are."""
    if graph.dense:
        return "", graph.n - 1
    stage = "graph" if graph.given else "search"
    return context.of(stage), int(context.results(stage)["n_neighbors"])


def calibrate_block(
    b: int, distances: StoredMatrix, lists: str, starts: Array, k: int, connectivity: float
) -> tuple[tuple[Array], None]:
    """What the memberships of each row follow from."""
    from bigembed.maps.umap.compiled import calibrate  # imports numba: only here

    block = distances.block(b)
    count = len(block.indptr) - 1
    reach, last = np.full(count, np.inf), np.full(count, np.inf)
    if lists:
        reach = read_array(f"{lists}/rho_squared/{b}").astype(np.float64)
        if not lists.endswith("graph"):  # (a user's lists: of rows that are equally far all are in them)
            last = read_array(f"{lists}/kappa/{b}").astype(np.float64)
    found = calibrate(block.indptr, block.indices, block.data, block.ids(b, starts), reach, last, k, connectivity)
    return (found,), None


def union_block(
    b: int, scale: Array, halo: Array, distances: StoredMatrix, starts: Array, mix: float, out: str
) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write w_ij of one block and their row sums; edges, Σ w, largest w."""
    from bigembed.maps.umap.compiled import union

    block = distances.block(b)
    scales = np.concatenate([scale, halo])
    weights = union(block.indptr, block.indices, block.data, block.ids(b, starts), scales, mix)
    return (), _written(b, block.indptr, weights, out)


def largest_block(b: int, given: StoredMatrix) -> tuple[tuple[()], float]:
    """The largest weight of one block, without the weights of rows to themselves."""
    return (), float(without_own(b, given).max(initial=0.0))


def given_block(b: int, given: StoredMatrix, largest: float, out: str) -> tuple[tuple[()], tuple[int, float, float]]:
    """Write W/max W of one block and their row sums; edges, Σ w, largest w."""
    weights = (without_own(b, given) / largest).astype(np.float32)
    return (), _written(b, given.block(b).indptr, weights, out)


def _written(b: int, indptr: Array, weights: Array, out: str) -> tuple[int, float, float]:
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(indptr, weights))
    return len(weights), float(weights.sum(dtype=np.float64)), float(weights.max(initial=0.0))


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with a sample of them that repels new rows.


def coordinates_stage(graph: GraphShape, m: int, seed: int, n_epochs: int) -> Stage:
    """``embedding`` (n, m) in the order of the input, ``points`` by blocks of the graph, and the ``pool`` of the map.

    Rows that are equal have the coordinates of the first of them.
    """

    n, block, size = graph.n, min(graph.n, graph.block), 8 * graph.n * m
    pool = 8 * m * min(n, POOL + n // block)
    cost = Cost(
        read=4 * size,
        write=3 * size,
        disk=2 * size + pool,
        scratch=size + 16 * n,
        memory=max(6 * block * (8 * m + 16), 8 * block * m + 2 * pool),
        maps=4,
    )
    inputs = ("kernel", "descent", *(("order",) if graph.ordered else ()), *(() if graph.weighted else ("graph",)))
    return Stage(
        "coordinates",
        inputs,
        {"seed": seed, "n_epochs": n_epochs},
        partial(run_coordinates, graph=graph, m=m, seed=seed, n_epochs=n_epochs),
        cost,
    )


def run_coordinates(context: Context, graph: GraphShape, m: int, seed: int, n_epochs: int) -> dict[str, Any]:
    mapped = write_map(context, graph, m)
    rows = tuple(context.results("kernel")["rows"])
    map_blocks(
        write_pool, [()], points=context.path("points"), out=context.path("pool"), rows=rows, seed=seed,
        epoch=n_epochs,
    )  # fmt: skip
    return {"n_components": m, "repeated_rows": mapped.repeated}


def write_pool(*, points: str, out: str, rows: tuple[int, ...], seed: int, epoch: int) -> None:
    """Write the rows of the map that may be drawn."""
    shares = [read_array(f"{points}/{b}")[chosen(b, rows, seed, epoch)] for b in range(len(rows))]
    write_array(out, np.concatenate(shares))


# ---------------------------------------------------------------------------------------------------------- stages

SCALE = Scale(deviation=3.0, farthest=4.0, connected=0.99)
"""Of a start: about as large as the map will be, with which forces of length 1 to 4 have their sense."""


def sampling_stages(
    graph: GraphShape,
    connectivity: float,
    mix: float,
    asked: SamplingOptions,
    start: str | RowSource,
    in_memory: bool | None,
) -> list[Stage]:
    """Weights, the start, the descent, coordinates, and how far to trust them."""
    m, seed, edges = asked.n_components, asked.seed, planned_edges(graph)[1]
    if start in ("auto", "spectral"):
        start = "pca" if not graph.rowless and graph.n <= m else "spectral"  # (fewer eigenvectors than coordinates)
    policy = "joint" if graph.rowless else "largest"
    scale = Scale(SCALE.deviation, SCALE.farthest) if graph.rowless else SCALE
    return [
        memberships_stage(graph, edges, connectivity, mix),
        *start_stages(graph, m, start, seed, policy, scale),
        sampled_descent_stage(graph, edges, asked, in_memory),
        coordinates_stage(graph, m, seed, asked.n_epochs),
        *map_judgement_stages(graph, m, seed),
    ]
