"""The stage of the joint probabilities of t-SNE on a stored graph, by row blocks: no process sees more than one."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import tree_sum
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.kernels.normalize import row_sums
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.matrix import StoredMatrix, write_values
from bigembed.store.blockwise.stored_space import StoredSpace


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

    def run(context: Context) -> dict[str, Any]:
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
            space.sweep(
                calibrate_block, writes=["scale"], posts=["scale"], arguments=(given, lists, starts, perplexity)
            )
            shared = (given, starts, out)
            parts = space.sweep(joint_block, reads=["scale"], halos=["scale"], arguments=shared)
        return {
            "edges": sum(part[0] for part in parts),
            "rows": list(given.rows),
            "mass": float(tree_sum([part[1] for part in parts])),
            "plogp": float(tree_sum([part[2] for part in parts])),
        }

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
    return Stage("kernel", inputs, parameters, run, cost)


def calibrate_block(
    b: int, distances: StoredMatrix, lists: str, starts: Array, perplexity: float
) -> tuple[tuple[Array], None]:
    """What the affinities of each row follow from; ``lists``: where its k-th neighbor is, empty where all are."""
    from bigembed.kernels.perplexity import calibrate  # imports numba: only here

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
    from bigembed.kernels.perplexity import joint

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
