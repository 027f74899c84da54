"""A user's own weighted graph (seed 001): a symmetric sparse matrix, stored by row blocks."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np

from bigembed.blocks.csr import CSRBlock
from bigembed.blocks.rows import MAX_BLOCK_ROWS, Array, block_rows, bounds
from bigembed.errors import InputError
from bigembed.kernels.normalize import normalize_block, row_sums
from bigembed.neighbors.given.edges import merge, scatter
from bigembed.neighbors.given.graph import edge_cost
from bigembed.neighbors.given.order import EDGES, ordered_stages
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, write_block
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import write_array
from bigembed.store.blockwise.matrix import StoredMatrix, write_values
from bigembed.store.blockwise.stored_space import StoredSpace
from bigembed.store.inputs.graph_source import ENTRY_BYTES, GraphSource

SYMMETRIC = 1e-12
"""Largest |w_ij − w_ji| that counts as rounding, as a share of the largest weight of nodes i and j."""


def is_weights(X: Any) -> bool:
    """Whether X is a square scipy sparse matrix, which is read as weights."""
    return type(X).__module__.startswith("scipy.sparse") and X.ndim == 2 and X.shape[0] == X.shape[1]


def rows_of_block(X: Any) -> int:
    """Rows of a block of a sparse matrix: all of up to :data:`MAX_BLOCK_ROWS`, else about a million entries."""
    n = X.shape[0]
    return MAX_BLOCK_ROWS if n <= MAX_BLOCK_ROWS else block_rows(-(-X.nnz // n), ENTRY_BYTES)


def weight_stages(X: Any) -> list[Stage]:
    """Check a sparse matrix (square, symmetric, nonnegative, finite) and store it by row blocks, of near nodes where
    there are several."""
    matrix, block = _checked(X), rows_of_block(X)
    digest = sha256()
    for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data):
        digest.update(np.ascontiguousarray(part).tobytes())

    def run(context: Context) -> dict[str, Any]:
        spans = bounds(matrix.shape[0], block)
        starts = [start for start, _ in spans] + [matrix.shape[0]]
        found = []
        for b, (start, stop) in enumerate(spans):
            part = matrix[start:stop].tocoo()
            csr = csr_block(b, part.row.astype(np.int32), part.col.astype(np.int64), part.data, starts)
            found.append(write_block(b, csr, context.exchange, context.path(""), "given"))
        finish_graph(context, found, starts)
        return {"n": matrix.shape[0], "edges": int(matrix.nnz), "blocks": len(spans)}

    cost = Cost(disk=16 * matrix.nnz)
    return _by_nearness({"matrix": digest.hexdigest()}, run, cost, matrix.shape[0], int(matrix.nnz), block)


def edge_weight_stages(source: GraphSource) -> list[Stage]:
    """Weights from anywhere as :func:`weight_stages` stores them: exchanged to row blocks, each merged by a task."""

    def run(context: Context) -> dict[str, Any]:
        found = scatter(context, source)
        counted = merge(context, source, found, "given")
        entries = counted["edges"] + source.n
        return {"n": source.n, "edges": entries, "blocks": counted["blocks"], "loops": found.loops}

    parameters, cost = {"matrix": source.fingerprint()}, edge_cost(source, 24)
    return _by_nearness(parameters, run, cost, source.n, 2 * source.entries, source.block)


def _by_nearness(
    parameters: dict[str, Any], run: Callable[[Context], dict[str, Any]], cost: Cost, n: int, entries: int, block: int
) -> list[Stage]:
    """The stage ``weights`` that ``run`` writes, if that is one block; else that stage is ``edges``, in the order of
    the input, and ``weights`` are the same by nearness."""
    if n <= block:
        return [Stage("weights", (), parameters, run, cost)]
    return ordered_stages(Stage(EDGES, (), parameters, run, cost), "weights", "given", (n, entries, block), {})


def _checked(X: Any) -> Any:
    from scipy.sparse import csr_array

    matrix = csr_array(X).astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.shape[0] == 0:
        raise InputError("Found array with 0 sample(s): the weight matrix is empty")
    if not np.isfinite(matrix.data).all():
        raise InputError("Input contains NaN or infinity: some weights are not finite. Remove those edges")
    if (matrix.data < 0).any():
        raise InputError(
            f"{int((matrix.data < 0).sum())} weights are negative; a random walk needs weights ≥ 0. If these "
            "are distances, build weights from them first, for example exp(-d**2 / epsilon)"
        )
    top = matrix.data.max(initial=0.0)
    if top > 0:
        matrix.data = np.ldexp(matrix.data, -int(np.frexp(top)[1]))  # P has no scale; W may be near overflow
    _refuse_asymmetric(matrix)
    isolated = np.flatnonzero(matrix.sum(axis=1) == 0)
    if len(isolated):
        raise InputError(
            f"{len(isolated)} nodes have no edge; the first are {isolated[:10].tolist()}. A random walk "
            "cannot leave them: remove them, or give them a weight to themselves"
        )
    return matrix


def _refuse_asymmetric(matrix: Any) -> None:
    """InputError where w_ij and w_ji differ by more than rounding, beside the other weights of nodes i and j."""
    apart = abs(matrix - matrix.T).tocoo()
    row, column = apart.coords
    largest = matrix.max(axis=1).toarray().ravel()
    share = apart.data / np.maximum(np.maximum(largest[row], largest[column]), np.finfo(np.float64).tiny)
    if len(share) and share.max() > SYMMETRIC:
        i, j = row[np.argmax(share)], column[np.argmax(share)]
        raise InputError(
            f"the weight matrix is not symmetric: w[{i}, {j}] and w[{j}, {i}] differ by {share.max():.3g} of the "
            "largest weight of these nodes. Give (W + W.T) / 2, or W.maximum(W.T) for a directed graph of neighbors"
        )


def weighted_kernel_stage(alpha: float, n: int) -> Stage:
    """W/(q_i q_j)^α of a user's graph (nothing is added to it), and the degrees."""

    def run(context: Context) -> dict[str, Any]:
        given = context.home.matrix("weights", "given")
        space = StoredSpace(given, context.exchange)
        out = context.path("")
        space.sweep(given_density_block, writes=["q"], posts=["q"], arguments=(given, out))
        parts = space.sweep(given_weights_block, reads=["q"], halos=["q"], arguments=(given, alpha, out))
        return {"edges": sum(parts), "nonzero": sum(parts), "rows": list(given.rows), "alpha": alpha}

    return Stage("kernel", ("weights",), {"alpha": alpha}, run, Cost(passes=2, disk=24 * n))


def given_density_block(b: int, given: StoredMatrix, out: str) -> tuple[tuple[Array], None]:
    """q = W1 of one block."""
    block = given.block(b)
    q = row_sums(block.indptr, block.data)
    write_array(f"{out}q/{b}", q)
    return (q[:, None],), None


def given_weights_block(
    b: int, q: Array, halo_q: Array, given: StoredMatrix, alpha: float, out: str
) -> tuple[tuple[()], int]:
    """Normalized weights in the precision of the given ones, and degrees."""
    block: CSRBlock = given.block(b)
    weights = normalize_block(block, block.data, q[:, 0], halo_q[:, 0], alpha)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(block.indptr, weights))
    return (), len(weights)
