"""The stage of the fuzzy weights of UMAP on a stored graph, by row blocks: no process sees more than one."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import tree_sum
from bigembed.embedding.forces.affinities import without_own
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.kernels.normalize import row_sums
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.matrix import StoredMatrix, write_values
from bigembed.store.blockwise.stored_space import StoredSpace


def memberships_stage(graph: GraphShape, edges: int, connectivity: float, mix: float) -> Stage:
    """``kernel/weights`` w_ij on the graph, and their row sums ``degree``; Σ w and the largest w among the results.

    A user's weights W ≥ 0 are taken as they are, over the largest of them.
    """
    parameters: dict[str, Any] = {"local_connectivity": connectivity, "set_op_mix_ratio": mix}
    inputs: tuple[str, ...] = ("order", "graph") if graph.dense or graph.given else ("graph", "search")
    if graph.weighted:
        parameters, inputs = {"given": True}, ("weights",)

    def run(context: Context) -> dict[str, Any]:
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
    return Stage("kernel", inputs, parameters, run, cost)


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
    from bigembed.kernels.fuzzy import calibrate  # imports numba: only here

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
    from bigembed.kernels.fuzzy import union

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
