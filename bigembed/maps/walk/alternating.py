"""Alternating diffusion: a walk that takes its steps in two views of the rows, one after the other.

P_v = x_i K_ij x_j, K the kernel of the view v without its diagonal and x the factors for which each row sums to 1
(:mod:`bigembed.maps.walk.affinity`), so that both walks are symmetric. A function of the rows that only one view shows
is averaged away by the step in the other one; what both show is kept (Lederman & Talmon 2018, who take P₁P₂). The
eigenvectors of ½(P₁P₂ + P₂P₁) (Shnitzer et al. 2019) are real, and those of a walk: first a step in either view, then
one in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator.graph_input import GraphShape
from bigembed.linalg import Multiply, SymmetricOperator, Then, compiled_product, hand_on
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.maps.walk import WalkOptions, coordinates, judgement, kernel_stages, spectral
from bigembed.neighbors.components import component_arrays, find_components
from bigembed.neighbors.views import SECOND, VIEWS, views_stage
from bigembed.runtime.blocks import Array, stripes
from bigembed.runtime.executors import run_on_idle_threads
from bigembed.stages import ArraySpec, Context, Cost, Stage, within
from bigembed.store.arrays import read_array, write_array
from bigembed.store.matrix import BlockMatrix, CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import VectorSpace, tree_sum

# ---------------------------------------------------------------------------------------------------------- operator
# The two steps of an alternating walk, in either order, over the edges of two matrices: A = ½ N (W₁W₂ + W₂W₁) N.
#
# The product of two sparse matrices has the edges of two steps, some hundreds a row, and is never formed.

MIDDLE = "alternating"
"""The vector between the two steps: W₂ N x beside W₁ N x."""


class AlternatingOperator(SymmetricOperator):
    """A = ½ N (W₁W₂ + W₂W₁) N on the vectors of ``space``, of two symmetric matrices over the same structure.

    ``scale`` names N, shape (rows, 1), posted. A product walks over both matrices twice.
    """

    halos = True

    def __init__(self, first: BlockMatrix, second: BlockMatrix, space: VectorSpace, scale: str = "scale") -> None:
        super().__init__(space, scale)
        self.first, self.second = first, second

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """½ N (W₁ y + W₂ z) of the vector of that name, y beside z."""
        return partial(second_step_block, self.first, self.second)

    def product(
        self,
        names: Sequence[str],
        into: Sequence[str] = (),
        *,
        then: Then | None = None,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
        descending: bool = False,
    ) -> list[Any]:
        """y = A x for every vector x of ``names``, kept or handed on, as :meth:`SymmetricOperator.product`."""
        given = (self.scale, *names)
        steps = self.first, self.second, len(names)
        moved = self.space.sweep(
            first_step_block, reads=given, halos=given, writes=[MIDDLE], posts=[MIDDLE], arguments=steps
        )
        self.passes, self.bytes_moved = self.passes + 1, self.bytes_moved + sum(moved)
        found = self._sweep(
            alternated_block,
            reads=(self.scale, MIDDLE, *names, *reads),
            halos=(self.scale, MIDDLE),
            writes=(*into, *writes),
            posts=posts,
            arguments=(self.multiplier([MIDDLE]), len(names), bool(into), then, tuple(arguments)),
            descending=descending,
        )
        self.space.drop(MIDDLE)
        return found


def times_block(stored: CSRBlock, own: Array, halo: Array) -> Array:
    """W x for the rows of one block, of x (rows, b) of its rows and (h, b) of its halo."""
    y, full = np.empty(own.shape), np.ones(len(own) + len(halo))
    data = stored.data if stored.data.dtype in (np.float32, np.float64) else stored.data.astype(np.float64)
    given = (stored.indptr.astype(np.int64), stored.indices.astype(np.int32, copy=False), data, full)
    x, far = np.ascontiguousarray(own), np.ascontiguousarray(halo)
    run_on_idle_threads([partial(compiled_product(), *stripe, *given, x, far, y) for stripe in stripes(len(own))])
    return y


def first_step_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[Array], int]:
    """W₂ N x beside W₁ N x of one block; bytes that came from other blocks."""
    *vectors, first, second, count = rest
    xs, (far_scale, *far) = vectors[:count], vectors[count:]
    own, halo = scale * np.hstack(xs), far_scale * np.hstack(far)
    steps = [times_block(matrix.block(block), own, halo) for matrix in (second, first)]
    return (np.hstack(steps),), far_scale.nbytes + halo.nbytes


def second_step_block(
    first: BlockMatrix, second: BlockMatrix, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """½ N (W₁ y + W₂ z) of one block, y beside z."""
    halo = halos[1]
    both = zip((first, second), np.split(xs[0], 2, axis=1), np.split(halo, 2, axis=1), strict=True)
    one, other = (times_block(matrix.block(block), own, far) for matrix, own, far in both)
    return 0.5 * scale * (one + other), halo.nbytes


def alternated_block(block: int, scale: Array, middle: Array, *rest: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = A x for the rows of one block, cut as the x are, then whatever else uses x and y."""
    *vectors, far_scale, far, multiply, count, kept, then, arguments = rest
    y, moved = multiply(block, scale, [middle], [far_scale, far])
    arrays, result = hand_on(block, y, vectors[:count], vectors[count:], kept, then, arguments)
    return arrays, (moved, result)


# ------------------------------------------------------------------------------------------------------------ stages

FIRST = "first-kernel"
"""The stage of the walk in the first view; that of the second is ``second-kernel``."""
PRODUCTS = 30
"""Of the operator with a block of vectors, that a plan counts with."""
MAX_BLOCKS = 12
"""Blocks of vectors that the solver keeps."""


@dataclass(frozen=True)
class Alternation:
    """What is asked of the solver."""

    n_components: int
    tol: float
    max_passes: int
    seed: int


def alternating_stages(asked: WalkOptions, graph: GraphShape, seed: int) -> list[Stage]:
    """Scales and kernel of each view, both over the same blocks, eigenvectors, coordinates, and how far to trust them.

    ``asked``: of the walk in each view.
    """
    assert graph.views is not None
    n, m, edges = graph.n, int(asked.n_components), graph.planned_edges
    first, second = (kernel_stages(asked, view, "joint") for view in graph.views)
    own = [view.planned_edges for view in graph.views]
    blocks = [min(view.n, view.block) for view in graph.views]
    solver = Alternation(m, asked.tol, asked.max_passes, seed)
    scaling = {"t": asked.t, "delta": None, "truncation": "relative"}
    return [
        *first[:-1],
        replace(first[-1], name=FIRST),
        *(within(stage, SECOND) for stage in second),
        views_stage(n, (blocks[0], blocks[1]), (own[0], own[1]), (FIRST, f"{SECOND}kernel")),
        degrees_stage(graph, edges),
        parts_stage(graph, edges),
        solve_stage(graph, edges, solver),
        coordinates.coordinates_stage("joint", m, scaling, graph, rows=False),
        judgement.judgement_stage(graph, m, asked.tol, seed, rows=False, lists=False, ordering=True),
    ]


def matrices_of(context: Context) -> tuple[StoredMatrix, StoredMatrix]:
    """Return the walks of both views, over the edges that either has."""
    return context.home.matrix(VIEWS, "first"), context.home.matrix(VIEWS, "second")


# ---------------------------------------------------------------------------------------------------------- degree


def degrees_stage(graph: GraphShape, edges: int) -> Stage:
    """``kernel/degree``: sums of the rows of ½(P₁P₂ + P₂P₁), which are 1 but for what balancing left."""
    n, block = graph.n, min(graph.block, graph.n)
    cost = Cost.of(
        reads=[ArraySpec("edges and walks of both views", edges, 2, times=2)],
        writes=[ArraySpec("degree/*", n)],
        leaves=[ArraySpec("sums of the rows and of the halo", n, 4)],
        task=[ArraySpec("edges", -(-edges // n) * block, 4)],
        passes=2,
        scalar_ops=4 * edges,
        maps=3,
    )
    return Stage("kernel", (VIEWS,), {}, run_degrees, cost)


def run_degrees(context: Context) -> dict[str, Any]:
    first, second = matrices_of(context)
    space = StoredSpace(first, context.exchange)
    space.sweep(ones_block, writes=["scale", "ones"], posts=["scale", "ones"], arguments=(first.rows,))
    operator, out = AlternatingOperator(first, second, space), context.path("")
    operator.product(["ones"], ["sums"], then=degree_block, arguments=(out,))
    return {"edges": context.results(VIEWS)["edges"], "rows": list(first.rows)}


def ones_block(b: int, rows: Sequence[int]) -> tuple[tuple[Array, Array], None]:
    """Return 1 for each row, twice."""
    ones = np.ones((rows[b], 1))
    return (ones, ones.copy()), None


def degree_block(b: int, ones: Array, sums: Array, out: str) -> tuple[tuple[()], None]:
    """Write the sums of the rows of a block."""
    write_array(f"{out}degree/{b}", sums[:, 0])
    return (), None


# ----------------------------------------------------------------------------------------------------------- parts


def parts_stage(graph: GraphShape, edges: int) -> Stage:
    """``components``: of the graph of the edges that either view has."""
    n, block = graph.n, min(graph.block, graph.n)
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=component_arrays(n),
        leaves=[ArraySpec("labels", n)],
        task=[ArraySpec("edges", -(-edges // n) * block, 4)],
        passes=2,
    )
    return Stage("components", (VIEWS,), {}, run_parts, cost)


def run_parts(context: Context) -> dict[str, Any]:
    return find_components(context.home.matrix(VIEWS, "first"), context.exchange, context.path(""))


# ----------------------------------------------------------------------------------------------------------- solve


def solve_stage(graph: GraphShape, edges: int, asked: Alternation) -> Stage:
    """``solve/right``: eigenvectors R, RᵀΠR = I; ``first`` and ``second``: P₁R and P₂R, for new rows; eigenvalues.

    Block Lanczos: of a walk over two views few eigenvalues are far from 0, the common ones.
    """
    n, m, block = graph.n, asked.n_components, min(graph.block, graph.n)
    width = max(2, m)
    vectors = ArraySpec("basis and vectors of a step", n, width, times=MAX_BLOCKS + 6)
    cost = Cost.of(
        reads=[
            ArraySpec("edges and walks of both views", edges, 2, times=PRODUCTS),
            replace(vectors, times=PRODUCTS * MAX_BLOCKS / 2),  # (the basis grows to MAX_BLOCKS)
        ],
        writes=[*coordinates.solution_arrays(n, m), ArraySpec("first/*", n, m), ArraySpec("second/*", n, m)],
        vectors=[vectors],
        posts=[replace(vectors, times=4 * PRODUCTS)],
        task=[
            ArraySpec("edges", -(-edges // n) * block, 4),
            ArraySpec("vectors", block, width, times=2 * (MAX_BLOCKS + 6)),
        ],
        passes=2 * PRODUCTS,
        scalar_ops=0.25 * PRODUCTS * width * edges,
        flops=PRODUCTS * n * width**2 * 4 * MAX_BLOCKS,
        maps=12 * PRODUCTS,
    )
    return Stage("solve", (VIEWS, "kernel"), asdict(asked), partial(run_solve, asked=asked), cost)


def run_solve(context: Context, asked: Alternation) -> dict[str, Any]:
    first, second = matrices_of(context)
    space, degree, out = StoredSpace(first, context.exchange), context.of("kernel", "degree"), context.path("")
    total = float(tree_sum(space.sweep(total_block, arguments=(degree,))))
    space.sweep(scale_block, writes=["scale", "trivial"], posts=["scale"], arguments=(degree, total))
    operator = AlternatingOperator(first, second, space)
    result = solve_lanczos(
        operator, asked.n_components, tol=asked.tol, seed=asked.seed, max_passes=asked.max_passes,
        max_blocks=MAX_BLOCKS, deflate="trivial",
    )  # fmt: skip
    space.sweep(right_block, reads=["V"], writes=["right"], posts=["right"], arguments=(degree, total, out))
    kept = space.sweep(averages_block, reads=["right"], halos=["right"], arguments=(first, second, degree, out))
    sums = tree_sum(kept)
    write_array(context.path("eigenvalues"), np.asarray(result.eigenvalues, np.float64))
    write_array(context.path("residuals"), np.asarray(result.residuals, np.float64))
    return {
        "solved": {"0": spectral.summary_of(result)},
        "averaged": False,
        "columns": [[0, k] for k in range(asked.n_components)],
        "converged": bool(result.converged),
        "passes": int(operator.passes),
        "bytes_moved": int(operator.bytes_moved),
        "agreement": (sums[2] / np.sqrt(np.maximum(sums[0] * sums[1], np.finfo(float).tiny))).tolist(),
    }


def total_block(b: int, degree: str) -> tuple[tuple[()], float]:
    """Return Σd of a block."""
    return (), float(read_array(f"{degree}/{b}").sum())


def scale_block(b: int, degree: str, total: float) -> tuple[tuple[Array, Array], None]:
    """Return 1/√d and the trivial vector √(d/Σd) of a block; 0 of a row that nothing leads to."""
    d = read_array(f"{degree}/{b}")[:, None]
    return (np.where(d > 0, 1.0 / np.sqrt(np.where(d > 0, d, 1.0)), 0.0), np.sqrt(d / total)), None


def right_block(b: int, vectors: Array, degree: str, total: float, out: str) -> tuple[tuple[Array], None]:
    """Return, and write, the right eigenvectors of a block."""
    d = read_array(f"{degree}/{b}")[:, None]
    right = vectors * np.sqrt(np.where(d > 0, total / np.where(d > 0, d, 1.0), 0.0))
    write_array(f"{out}right/{b}", right)
    return (right,), None


def averages_block(
    b: int, right: Array, halo: Array, first: StoredMatrix, second: StoredMatrix, degree: str, out: str
) -> tuple[tuple[()], Array]:
    """Write the averages P_v r of the eigenvectors over neighbors in each view; Σ d of their squares and product."""
    d = read_array(f"{degree}/{b}")
    averages = [times_block(matrix.block(b), right, halo) for matrix in (first, second)]
    for name, values in zip(("first", "second"), averages, strict=True):
        write_array(f"{out}{name}/{b}", values)
    one, other = averages
    return (), np.stack([d @ (one * one), d @ (other * other), d @ (one * other)])
