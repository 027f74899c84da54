"""The neighbor graph that a method starts from: what it is, what becomes of its components, and weights of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.errors import DisconnectedGraphError, InputError
from bigembed.neighbors.given import edge_cost, merged_arrays, ordered_stages
from bigembed.neighbors.given.edges import merge, scatter
from bigembed.neighbors.given.order import EDGES
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, graph_arrays, write_block
from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.neighbors.row_weights import WEIGHTS, values_path, weights_at
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.neighbors.views import VIEWS
from bigembed.rows import RowSource
from bigembed.rows.graph_source import ENTRY_BYTES, GraphSource
from bigembed.runtime.blocks import MAX_BLOCK_ROWS, Array, block_rows, bounds, is_scipy_sparse
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import CSRBlock, StoredMatrix, products, write_values
from bigembed.store.spaces import StoredSpace

# ------------------------------------------------------------------------------------------------------- normalize
# α-normalization of a kernel by blocks: K_ij / (q_i q_j)^α (seed 003; seed 000 eqs. 53–56).


def row_sums(indptr: Array, data: Array) -> Array:
    """Σ_j of each row of a CSR block in float64, in the order of the stored entries; empty rows give 0."""
    sums = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(data.astype(np.float64), indptr[filled])
    return sums


def normalize_block(block: CSRBlock, weights: Array, q: Array, halo_q: Array, alpha: float) -> Array:
    """K_ij / (q_i q_j)^α. The product q_i q_j is taken first, so the result is symmetric to the last bit.

    α = 0 leaves K. The right normalization K Q^{-α} of seed 000 (eq. 55) gives the same Markov
    matrix after its rows are normalized, since q_i^{−α} cancels there.
    """
    if alpha == 0:
        return weights
    both = products(block, q, halo_q)
    both **= alpha
    return np.divide(weights, both, out=both)


def with_weights(b: int, column: Array, path: str, density: str = "") -> Array:
    """A column (rows, 1) of one block, with the weights w of the rows as the second one, where ``path`` has any, and
    w√μ as the third one, where ``density`` has a μ."""
    if not (path or density):
        return column
    weights = weights_at(path, b, len(column))
    factor = [weights * np.sqrt(read_array(f"{density}/{b}"))] if density else []
    return np.column_stack([column, weights, *factor])


def weighted_sums(block: CSRBlock, kernel: Array, own: Array, halo: Array) -> Array:
    """Σ_j K_ij; where second columns of ``own`` (rows, 2) and ``halo`` are weights, Σ_j K_ij w_j."""
    if own.shape[1] > 1:
        kernel = kernel * np.concatenate([own[:, 1], halo[:, 1]])[block.indices]
    return row_sums(block.indptr, kernel)


def weigh_both(block: CSRBlock, weights: Array, own: Array, halo: Array) -> Array:
    """W_ij, or w_i W_ij w_j with w the last of several columns; symmetric to the last bit."""
    return weights * products(block, own[:, -1], halo[:, -1]) if own.shape[1] > 1 else weights


# ----------------------------------------------------------------------------------------------------------- shape
# What a method needs to know about the neighbor graph that it starts from.


@dataclass(frozen=True)
class GraphShape:
    """A graph of ``k`` neighbors, of a ``radius`` or of all pairs, or a user's weights."""

    n: int
    block: int
    """Rows of a block."""
    width: int = 1
    """Columns of the rows."""
    k: int | None = None
    radius: float | None = None
    dense: bool = False
    """Of all pairs as one block, without lists of neighbors."""
    given: bool = False
    """Of distances that were given, without rows."""
    sampled: bool = False
    """Of given distances of which those to sampled rows are kept, to judge a map by."""
    weighted: bool = False
    """A user's weights, without rows."""
    by: ByMetric | None = None
    """How rows are compared pair by pair, where distances are not the Euclidean ones of the rows that are ordered."""
    row_bytes: int = 8
    """Of a row that is ordered."""
    dtype: str = "float64"
    """Of the rows, and of the squared lengths of its edges."""
    edges: int | None = None
    """Entries, where they are known before it is built."""
    aligned: Mapping[str, RowSource] = field(default_factory=dict)
    """Vectors that belong to its rows, in the order of the input, which the method reads, and the graph does not."""
    vectors: tuple[str, ...] = ()
    """Stages with a number for each row, in its order: of :data:`~bigembed.neighbors.row_weights.KINDS`."""
    asked: int | None = None
    """Neighbors that were asked for, where lists hold more, because rows have weights."""
    views: tuple[GraphShape, GraphShape] | None = None
    """The graphs of two views of the rows, where its edges are those of either."""

    @property
    def planned_edges(self) -> int:
        """Entries that a plan counts with."""
        if self.edges is not None:
            return self.edges
        if self.radius is not None:
            return self.n * min(self.n, EDGES_PLANNED)
        return 2 * self.n * min(self.n, self.k or self.n)

    @property
    def stage(self) -> str:
        """The stage that holds its edges."""
        return "weights" if self.weighted else VIEWS if self.views else "graph"

    @property
    def rowless(self) -> bool:
        """Whether there are nodes and edges only."""
        return self.weighted or self.given

    @property
    def ordered(self) -> bool:
        """Whether its nodes are in an order of its own, that of a stage ``order``: not so of weights in one block."""
        return not self.weighted or self.n > self.block


# ----------------------------------------------------------------------------------------------------------- parts
# What to do with a graph of several components: which of them get their own coordinates, and how.
#
# Rows that lie off, and tiny groups of them, are to be expected in real data. By default a component is an **island**
# where it holds fewer rows than :func:`least_rows`; its rows take the coordinates of their nearest row in a larger
# one, and the label −1. The larger ones are **parts**. Several parts are embedded jointly: coordinates that separate
# the largest of them (λ = 1), at most half of all, then the eigenvectors of each. So any two rows have a distance,
# new rows have a place, and more coordinates show more of the inside of each part. Bridges would lead the first
# coordinates across edges that the data do not have; coordinates of single components cannot be compared with each
# other; and coordinates that separate parts say no more than the labels do, so that they must not be all that there
# is.

CHOICES = {
    "auto": " (small ones are placed, large ones embedded jointly)",
    "largest": " (the other rows take the coordinates of their nearest row in it)",
    "per-component": "",
    "bridge": "",
    "joint": "",
}
"""What may be done with several components, with what an error says of it."""
POLICIES = ("error", "largest", "per-component", "bridge", "joint")
MAX_SOLVED = 200
"""Components solved one by one; more are refused with advice."""
ISLANDS = "islands"
"""The default for rows: islands are placed, parts are embedded jointly."""
SEPARATED = "separated"
"""For clusters: islands are placed, and as many coordinates as there are separate the parts."""
PLACING = (ISLANDS, SEPARATED)
"""Islands are placed."""
ISLAND = -1
"""Label of the rows of islands."""


@dataclass(frozen=True)
class Parts:
    """The components with their own coordinates are the first ``count``; the other rows take their nearest row's."""

    count: int
    joint: bool
    """Several, in one set of coordinates."""
    per_component: bool
    """Each in its own coordinates."""
    half: bool = False
    """At most half of the coordinates separate parts."""

    @property
    def single(self) -> bool:
        """One component is embedded."""
        return not (self.joint or self.per_component)

    def contrasts(self, width: int) -> int:
        """How many of ``width`` coordinates separate parts."""
        return min(self.count - 1, width // 2 if self.half else width) if self.joint else 0


def least_rows(n: int) -> int:
    """Rows of the smallest component that counts as a part: 1 % of few rows, 100, or 0.1 % of many; at least 2.

    >>> least_rows(150), least_rows(1_797), least_rows(50_000), least_rows(1_000_000)
    (2, 18, 100, 1000)
    """
    return max(2, min(-(-n // 100), max(100, -(-n // 1_000))))


def parts_of(policy: str, sizes: Sequence[int], n: int, choices: Iterable[str] = CHOICES) -> Parts:
    """What is embedded of a graph of ``n`` rows in components of ``sizes`` rows, the largest first.

    Raises DisconnectedGraphError for several components where the policy is "error", or "bridge" did not join them;
    it names the ``choices``.
    """
    count = len(sizes)
    if count == 1 or policy == "largest":
        return Parts(1, False, False)
    if policy in ("error", "bridge"):
        offered = ", ".join(f"{name!r}{CHOICES[name]}" for name in choices)
        raise DisconnectedGraphError(
            f"the graph has {len(sizes)} connected components, of {_shown(sizes)} rows. Choose another components= "
            f"({offered}); or join more rows, by a larger n_neighbors or radius, or epsilon of a kernel"
        )
    if policy == "per-component":
        return Parts(count, False, True)
    if policy in PLACING:
        count = max(1, sum(size >= least_rows(n) for size in sizes))
    return Parts(count, count > 1, False, half=policy == ISLANDS)


def parts_from(policy: str, found: dict[str, Any], choices: Iterable[str] = CHOICES) -> Parts:
    """:func:`parts_of` the components that a stage found (of which it lists the largest)."""
    unlisted = found["components"] - len(found["sizes"])
    return parts_of(policy, [*found["sizes"], *[1] * unlisted], found["rows"], choices)


def require_rows(n_components: int, n: int, beside: int = 1) -> None:
    """InputError where n rows are too few: they have n eigenvectors, of which ``beside`` are no coordinates."""
    if n < n_components + beside:
        raise InputError(
            f"n_components={n_components} needs at least {n_components + beside} rows; got n_samples = {n}. Ask for "
            "fewer coordinates"
        )


def solved_sizes(parts: Parts, policy: str, sizes: Sequence[int], n_components: int) -> Sequence[int]:
    """Rows of the components that are solved one by one; InputError or DisconnectedGraphError where they cannot be."""
    if parts.single and sizes[0] <= n_components:
        raise InputError(
            f"n_components={n_components} needs a connected component of at least {n_components + 1} rows; the largest "
            f"has {sizes[0]}. Ask for fewer coordinates"
        )
    if parts.count > MAX_SOLVED and not parts.half:
        raise DisconnectedGraphError(
            f"components={policy!r} would solve {parts.count} components one by one (of {_shown(sizes)} rows); at most "
            f"{MAX_SOLVED}. Use components='largest', or raise n_neighbors or radius"
        )
    return sizes[: min(parts.count, MAX_SOLVED)]


def contrast(c: int, level: int, sums: Array) -> float:
    """Value on component c of the ``level``-th indicator coordinate at λ = 1 (seed 001, two disjoint rings).

    Components 0 … level−1 against component ``level``, Π-orthogonal to 1 and to each other, RᵀΠR = I. For two
    components of masses π₁, π₂ it is (√(π₂/π₁), −√(π₁/π₂)), proportional to the (n₂, −n₁) of the source.
    """
    share = sums / sums.sum()
    before, mass = share[:level].sum(), share[level]
    if c < level:
        return float(np.sqrt(mass / (before * (before + mass))))
    return -float(np.sqrt(before / (mass * (before + mass)))) if c == level else 0.0


def _shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:10])) + (", …" if len(sizes) > 10 else "")


# --------------------------------------------------------------------------------------------------------- weights
# A user's own weighted graph (seed 001): a symmetric sparse matrix, stored by row blocks.

SYMMETRIC = 1e-12
"""Largest |w_ij − w_ji| that counts as rounding, as a share of the largest weight of nodes i and j."""


def is_weights(X: Any) -> bool:
    """Whether X is a square scipy sparse matrix, which is read as weights."""
    return is_scipy_sparse(X) and X.ndim == 2 and X.shape[0] == X.shape[1]


def rows_of_block(X: Any) -> int:
    """Rows of a block of a sparse matrix: all of up to :data:`MAX_BLOCK_ROWS`, else about a million entries."""
    n = X.shape[0]
    return MAX_BLOCK_ROWS if n <= MAX_BLOCK_ROWS else block_rows(-(-X.nnz // n), ENTRY_BYTES)


def weight_stages(X: Any) -> list[Stage]:
    """Check a sparse matrix (square, symmetric, nonnegative, finite) and store it by row blocks, of near nodes where
    there are several."""
    matrix, block = _checked(X), rows_of_block(X)
    writes = graph_arrays(matrix.shape[0], int(matrix.nnz), "given", "f8")
    digest = sha256()
    for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data):
        digest.update(np.ascontiguousarray(part).tobytes())
    cost, run = Cost.of(writes=writes), partial(run_weights, matrix=matrix, block=block)
    return _by_nearness({"matrix": digest.hexdigest()}, run, cost, matrix.shape[0], int(matrix.nnz), block)


def run_weights(context: Context, matrix: Any, block: int) -> dict[str, Any]:
    """A sparse matrix of this process, stored by row blocks."""
    spans = bounds(matrix.shape[0], block)
    starts = [start for start, _ in spans] + [matrix.shape[0]]
    found = []
    for b, (start, stop) in enumerate(spans):
        part = matrix[start:stop].tocoo()
        csr = csr_block(b, part.row.astype(np.int32), part.col.astype(np.int64), part.data, starts)
        found.append(write_block(b, csr, starts, context.exchange, context.path(""), "given"))
    finish_graph(context, found, starts)
    return {"n": matrix.shape[0], "edges": int(matrix.nnz), "blocks": len(spans)}


def edge_weight_stages(source: GraphSource) -> list[Stage]:
    """Weights from anywhere as :func:`weight_stages` stores them: exchanged to row blocks, each merged by a task."""
    parameters, run = {"matrix": source.fingerprint()}, partial(run_edge_weights, source=source)
    cost = edge_cost(source, merged_arrays(source, "given"))
    return _by_nearness(parameters, run, cost, source.n, 2 * source.entries, source.block)


def run_edge_weights(context: Context, source: GraphSource) -> dict[str, Any]:
    """Weights of edges, exchanged to row blocks and merged there."""
    found = scatter(context, source)
    counted = merge(context, source, found, "given")
    entries = counted["edges"] + source.n
    return {"n": source.n, "edges": entries, "blocks": counted["blocks"], "loops": found.loops}


def _by_nearness(
    parameters: dict[str, Any], run: Callable[[Context], dict[str, Any]], cost: Cost, n: int, entries: int, block: int
) -> list[Stage]:
    """The stage ``weights`` that ``run`` writes, if that is one block; else that stage is ``edges``, in the order of
    the input, and ``weights`` are the same by nearness."""
    if n <= block:
        return [Stage("weights", (), parameters, run, cost)]
    return ordered_stages(Stage(EDGES, (), parameters, run, cost), "weights", "given", (n, entries, block), {})


def _checked(X: Any) -> Any:
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
            "largest weight of these nodes. Give (W + W.T) / 2, or W.maximum(W.T) for a directed graph of neighbors; "
            "if these are rows, as many as columns, and no weights, give build_neighbor_graph(rows)"
        )


def weighted_kernel_stage(alpha: float, n: int, entries: int, vectors: tuple[str, ...] = ()) -> Stage:
    """W/(q_i q_j)^α of a user's graph (nothing is added to it), and the degrees; with weights of the nodes among the
    ``vectors`` as of rows."""

    writes = [ArraySpec("weights/*", entries), ArraySpec("q/*", n), ArraySpec("degree/*", n)]
    cost = Cost.of(reads=[ArraySpec("edges", entries, 3)], writes=writes, passes=2)
    inputs = ("weights", *vectors)
    return Stage("kernel", inputs, {"alpha": alpha}, partial(run_weighted_kernel, alpha=alpha), cost)


def run_weighted_kernel(context: Context, alpha: float) -> dict[str, Any]:
    given = context.home.matrix("weights", "given")
    space = StoredSpace(given, context.exchange)
    out, mass = context.path(""), values_path(context)
    if mass:
        space.sweep(ones_block, writes=["ones"], posts=["ones"], arguments=(given.rows, mass))
        names = ["ones"]
        space.sweep(weighed_density_block, reads=names, halos=names, writes=["q"], posts=["q"], arguments=(given, out))
    else:
        space.sweep(given_density_block, writes=["q"], posts=["q"], arguments=(given, out))
    parts = space.sweep(given_weights_block, reads=["q"], halos=["q"], arguments=(given, alpha, out))
    found = {"edges": sum(parts), "nonzero": sum(parts), "rows": list(given.rows), "alpha": alpha}
    return found | ({WEIGHTS: True} if mass else {})


def ones_block(b: int, rows: Sequence[int], weights: str) -> tuple[tuple[Array], None]:
    """A column of ones, with the weights of the nodes beside it."""
    return (with_weights(b, np.ones((rows[b], 1)), weights),), None


def weighed_density_block(
    b: int, ones: Array, halo_ones: Array, given: StoredMatrix, out: str
) -> tuple[tuple[Array], None]:
    """q = Ww of one block, (rows, 2) with the weights w of the nodes, which stand beside a column of ones."""
    block = given.block(b)
    q = weighted_sums(block, block.data, ones, halo_ones)
    write_array(f"{out}q/{b}", q)
    return (np.column_stack([q, ones[:, 1]]),), None


def given_density_block(b: int, given: StoredMatrix, out: str) -> tuple[tuple[Array], None]:
    """q = W1 of one block."""
    block = given.block(b)
    q = row_sums(block.indptr, block.data)
    write_array(f"{out}q/{b}", q)
    return (q[:, None],), None


def given_weights_block(
    b: int, q: Array, halo_q: Array, given: StoredMatrix, alpha: float, out: str
) -> tuple[tuple[()], int]:
    """Normalized weights in the precision of the given ones, and degrees, both with the weights of the nodes."""
    block: CSRBlock = given.block(b)
    weights = weigh_both(block, normalize_block(block, block.data, q[:, 0], halo_q[:, 0], alpha), q, halo_q)
    write_values(f"{out}weights", b, weights)
    write_array(f"{out}degree/{b}", row_sums(block.indptr, weights))
    return (), len(weights)
