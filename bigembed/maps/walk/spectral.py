"""Eigenvectors of the random walk on a stored kernel, component by component.

P = D^{-1} W is similar to S = D^{-1/2} W D^{-1/2} (seed 000 eq. 31, seed 001 eq. 2). The spectrum
of a graph of several components is the union of their spectra, so each component is solved by
itself, with its exact trivial vector √d deflated: small ones densely, large ones by the
two-level LOBPCG on block vectors in the store.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.estimator.base import MANY_ROWS
from bigembed.estimator.graph_input import Parts, parts_from, solved_sizes
from bigembed.linalg import SparseOperator, lobpcg
from bigembed.linalg.coarse import held_by_block, held_here, held_on_disk
from bigembed.linalg.eigenpairs import EigenResult, solve_dense_matrix
from bigembed.maps.walk.coordinates import assemble, degree_sums_block, solution_arrays
from bigembed.maps.walk.landmark_solve import Landmarks, landmark_component, landmark_cost
from bigembed.neighbors.components import RESOLVED, component_arrays, find_components
from bigembed.neighbors.radius import COMPLETE_ROWS
from bigembed.neighbors.views import VIEWS
from bigembed.runtime import once, runtime_now, trim_heap, using
from bigembed.runtime.blocks import Array, LostVectorsError, bounds, map_blocks, offsets
from bigembed.runtime.executors import LocalPool
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer, largest
from bigembed.stages.cost import nbytes
from bigembed.stages.journal import own_steps
from bigembed.store import at, is_url, remove
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.files import read_sealed, sealed, write_json
from bigembed.store.matrix import KEPT_BYTES, STRUCTURE, CSRBlock, MemoryMatrix, StoredMatrix, halo_of
from bigembed.store.spaces import IN_FILES, SPILL, Checkpoints, Room, StoredSpace, claim_memory
from bigembed.store.vector_space import MemorySpace

DENSE_ROWS = MANY_ROWS - 1
GATHERED_ROWS = 65_536
"""Of a component that is solved by itself in one task, at the most, if it has not more than half of all rows."""
NOBODY = np.zeros(0, np.int64)
"""The rows of other blocks that a matrix of one block needs."""
LOSSES = 4
"""Times that a solve begins or goes on in the memory of workers, one of which was lost; the last time in files."""
PASSES = 30
"""Of a solve, for a plan: the benchmarked graphs take 13 to 36."""


@dataclass(frozen=True)
class Spectrum:
    """What is asked of the solver."""

    n_components: int
    components: str
    tol: float
    max_passes: int
    seed: int
    landmarks: Landmarks | None = None
    """Solve in a subspace made from landmarks; None solves exactly."""

    def by_landmarks(self, size: int) -> bool:
        """Whether a component of ``size`` rows is solved by landmarks; with fewer rows than landmarks exactly."""
        return self.landmarks is not None and size > self.landmarks.count

    def key(self) -> dict[str, Any]:
        """For the key of a stage."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def weights_of(context: Context) -> StoredMatrix:
    """The normalized kernel."""
    graph = next(name for name in ("bridge", VIEWS, "graph", "weights") if context.home.has(name))
    return context.home.matrix(graph, "weights", "kernel")


def components_stage(graph: str, n: int, n_neighbors: int, block: int) -> Stage:
    """Connected components of the kernel on the edges of a graph (one too weak for the solve joins nothing)."""

    edges = 2 * n * n_neighbors
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=component_arrays(n),
        leaves=[ArraySpec("labels", n)],
        task=[ArraySpec("edges", block * n_neighbors, 8)],
        passes=2,
    )
    opens = {"kernel": ("weights", "degree"), graph: STRUCTURE}
    return Stage("components", ("kernel", graph), {"resolved": RESOLVED}, run_components, cost, opens=opens)


def run_components(context: Context) -> dict[str, Any]:
    degree = context.of("kernel", "degree")
    return find_components(weights_of(context), context.exchange, context.path(""), degree=degree)


def solve_stage(asked: Spectrum, graph: str, n: int, n_neighbors: int, block: int) -> Stage:
    """Right eigenvectors R of P with RᵀΠR = I (seed 000 eq. 22), trivial one left out, in internal order."""

    cost = solve_cost(asked, n, n_neighbors, block)
    by = asked.landmarks
    scale = ("bandwidth",) if by and by.extension == "nystrom" else ()
    inputs = ("kernel", graph, "components", *(("order",) if by else ()), *scale)
    asks = ("kernel",) if scale else ()
    return Stage(
        "solve",
        inputs,
        asked.key(),
        partial(run_solve, asked=asked, n_neighbors=n_neighbors),
        cost,
        resumes=True,
        parameters_of=asks,
        opens={} if by else {"kernel": ("weights", "degree"), graph: STRUCTURE, "components": ("labels",)},
    )


def run_solve(context: Context, asked: Spectrum, n_neighbors: int) -> dict[str, Any]:
    found = context.results("components")
    parts = parts_from(asked.components, found)
    targets = _targets(asked, parts, found["sizes"])
    weights = weights_of(context)
    whole = len(weights.rows) == 1
    complete = whole and context.results("kernel")["edges"] == weights.rows[0] ** 2
    most = COMPLETE_ROWS if complete else DENSE_ROWS
    gathered = max(most, min(GATHERED_ROWS, sum(weights.rows) // 2))
    small = {c: wanted for c, size, wanted in targets if size <= gathered and not asked.by_landmarks(size)}
    labels = context.of("components", "labels")
    degree = context.of("kernel", "degree")
    if small and not whole:
        map_blocks(
            gather_block,
            [(b,) for b in range(len(weights.rows))],
            weights=weights,
            wanted=list(small),
            labels=labels,
            starts=offsets(weights.rows),
            exchange=context.exchange,
        )
    source: Any = (weights, labels) if whole else len(weights.rows)
    given = {"source": source, "most": most, "asked": asked, "exchange": context.exchange}
    solved = dict(zip(small, map_blocks(small_component, small.items(), **given), strict=True))
    # (One map for all components, whichever are solved already: maps come in the same order after a stop.)
    blocks = [(b,) for b in range(len(weights.rows))]
    sums = np.array(map_blocks(degree_sums_block, blocks, labels=labels, degree=degree, count=parts.count))
    for c, size, wanted in targets:
        if asked.landmarks is not None and asked.by_landmarks(size):
            solved[c] = landmark_component(context, weights, c, wanted, asked.landmarks, asked.seed, n_neighbors)
        elif c not in small:
            solved[c] = _large_component(context, weights, c, sums[:, c], wanted, asked)
    return assemble(context, weights, parts, asked.n_components, solved, labels, degree, sums.sum(axis=0))


def solve_cost(asked: Spectrum, n: int, n_neighbors: int, block: int) -> Cost:
    """Bytes from the width of the block of vectors.

    On the disk X and P are in double precision, W, with as many halo rows as own ones, and what is kept of S X, S P and
    S W in single; and what is of the coarse space.
    The largest task is the product that makes SX, SP and SW anew: with as many halo rows as own ones some
    30 arrays (rows, width), read, joined, scaled and multiplied (the update, in tiles, holds 15), with the rows of the
    matrix about six times; or the one that makes the coarse space. Beside vectors in memory it holds 15 such arrays,
    of which none is read, and of the matrix nothing. A small matrix is one task, of 40 n² bytes where it has to be
    reduced. Where vectors are in memory in part, a task reads the matrix and the others as in files.
    """
    if asked.landmarks is not None and asked.by_landmarks(n):
        return landmark_cost(asked.landmarks, asked.n_components, n, n_neighbors, block)
    width = lobpcg.block_width(asked.n_components)
    edges, rows = 2 * n * n_neighbors, min(block, n)
    writes = solution_arrays(n, asked.n_components)
    if n <= (COMPLETE_ROWS if n_neighbors >= n - 1 and n <= block else DENSE_ROWS):
        return Cost.of(
            reads=[ArraySpec("edges", edges, 3, "f4"), ArraySpec("dense matrix", n, n)],
            writes=writes,
            vectors=[ArraySpec("edges", edges, 5)],
            task=[ArraySpec("dense matrices", n, n, times=5)],
            passes=1,
            scalar_ops=edges,
            serial_flops=3 * n**3,
        )
    coarse = [buffer("coarse space of a block", held_by_block(n, rows, n_neighbors))]
    return Cost.of(
        reads=[ArraySpec("weights/*", edges, times=PASSES)],
        writes=writes,
        vectors=[*_vectors_in_files(n, width), buffer("coarse space", held_on_disk(n, width))],
        posts=_vectors_in_files(n, width, PASSES),
        task=[
            *largest(
                [ArraySpec("vectors", rows, width, times=30), ArraySpec("edges", rows, n_neighbors, times=18)], coarse
            ),
            buffer("what is kept between tasks", KEPT_BYTES),
        ],
        beside=largest([ArraySpec("vectors", rows, width, times=15)], coarse),
        coordinator=[buffer("coarse space", held_here(n, width))],
        held=solve_memory(n, edges, width),
        part=vectors_memory(n, width),
        crossing=4 * n * width * PASSES,
        passes=PASSES,
        flops=PASSES * 24 * n * width**2,
        scalar_ops=PASSES * edges,
        maps=4 * PASSES,
    )


def _vectors_in_files(n: int, width: int, times: int = 1) -> Arrays:
    """The vectors of one generation of a solve, or of several."""
    return [
        ArraySpec("X, P", n, width, times=2 * times),
        ArraySpec("R, LP, LW, W and its halos", n, width, "f4", times=5 * times),
    ]


def _targets(asked: Spectrum, parts: Parts, sizes: list[int]) -> list[tuple[int, int, int]]:
    """Which components are solved: (number, rows, eigenpairs wanted)."""
    wanted = asked.n_components - parts.contrasts(asked.n_components)
    if wanted <= 0:
        return []
    solved = solved_sizes(parts, asked.components, sizes, asked.n_components)
    return [(c, size, min(wanted, size - 1)) for c, size in enumerate(solved) if size > 1]


def gather_block(
    b: int, *, weights: StoredMatrix, wanted: list[int], labels: str, starts: Array, exchange: Exchange
) -> None:
    """Leave the entries of this block that belong to small components: rows, columns (internal ids), weights."""
    block, label = weights.block(b), read_array(f"{labels}/{b}")
    ids = block.ids(b, starts)
    column, row = ids[block.indices], np.repeat(ids[: len(label)], np.diff(block.indptr))
    of_row = np.repeat(label, np.diff(block.indptr))
    pieces: dict[str, Array] = {}
    for c in np.intersect1d(np.unique(label), wanted):
        mine = of_row == c
        pieces |= {f"row{c}": row[mine], f"column{c}": column[mine], f"weight{c}": block.data[mine]}
    exchange.put("small", b, pieces)


def small_component(
    c: int, wanted: int, *, source: Any, most: int, asked: Spectrum, exchange: Exchange
) -> dict[str, Any]:
    """Solve one small component in this process, densely up to ``most`` rows; its vectors stay in the exchange.

    ``source``: the matrix and where its labels lie, where it is one block; else how many blocks left their entries.
    """
    ids, weight = _gathered(c, source, exchange) if isinstance(source, int) else _members(c, *source)
    root = np.sqrt(weight.sum(axis=1))
    if len(ids) > most:
        result, vectors = _iterated(weight, root, wanted, asked)
    else:
        result, vectors = solve_dense_matrix(_normalized(weight, root), wanted, deflate=root / np.linalg.norm(root))
    exchange.put("solved", c, {"ids": ids, "vectors": vectors})
    return summary_of(result)


def _iterated(weight: Any, root: Array, wanted: int, asked: Spectrum) -> tuple[EigenResult, Array]:
    """Two-level LOBPCG on a component that is one block, whose vectors are in memory: what it takes follows from its
    own rows, not from all."""
    weight.sort_indices()
    matrix = MemoryMatrix(
        (CSRBlock(weight.indptr, weight.indices.astype(np.int32), weight.data, *halo_of([0], NOBODY)),)
    )
    space = MemorySpace(matrix)
    space.write("scale", 0, (1 / root)[:, None])
    space.write("trivial", 0, (root / np.linalg.norm(root))[:, None])
    operator = SparseOperator(matrix, space, "scale")
    with nullcontext() if runtime_now().executor else using(executor=LocalPool()), using(journal=None):
        state = lobpcg.init(
            operator, wanted, tol=asked.tol, seed=asked.seed, max_passes=asked.max_passes, deflate="trivial"
        )
        result = lobpcg.solve(operator, state)
    return result, space.read(result.vectors, 0)


def _gathered(c: int, blocks: int, exchange: Exchange) -> tuple[Array, Any]:
    """Internal ids of the rows of a component, and its weights as a CSR matrix, from what the blocks left."""
    parts = [[exchange.get("small", b, f"{name}{c}") for name in ("row", "column", "weight")] for b in range(blocks)]
    row, column, weight = (np.concatenate([p for p in part if p is not None]) for part in zip(*parts, strict=True))
    ids = np.unique(row)
    inside = np.isin(column, ids)  # edges too weak to join lead out of a component
    row, column = np.searchsorted(ids, row[inside]), np.searchsorted(ids, column[inside])
    return ids, csr_array((weight[inside].astype(np.float64), (row, column)), shape=(len(ids), len(ids)))


def _members(c: int, weights: StoredMatrix, labels: str) -> tuple[Array, Any]:
    """Internal ids of a component's rows and its weights, from a matrix of one block: dense where all are stored."""
    block, n = weights.block(0), weights.rows[0]
    ids = np.flatnonzero(read_array(f"{labels}/0") == c)
    if len(block.data) == n**2:
        matrix = block.data.reshape(n, n)
        return ids, (matrix if len(ids) == n else matrix[np.ix_(ids, ids)]).astype(np.float64)
    every = csr_array((block.data.astype(np.float64), block.indices, block.indptr), shape=(n, n))
    return ids, every if len(ids) == n else every[ids][:, ids]


def _normalized(weight: Any, root: Array) -> Any:
    """w_ij/(root_i root_j) in place, symmetric to the last bit."""
    if not isinstance(weight, np.ndarray):
        row = np.repeat(np.arange(len(root)), np.diff(weight.indptr))
        weight.data /= root[row] * root[weight.indices]
        return weight
    for start, stop in bounds(len(root), 256):
        weight[start:stop] /= np.outer(root[start:stop], root)
    return weight


def _large_component(
    context: Context, weights: StoredMatrix, c: int, degrees: Array, wanted: int, asked: Spectrum
) -> dict[str, Any]:
    """Two-level LOBPCG on the rows of one component: its blocks of the matrix, with vectors in memory or in files.

    ``degrees``: the sum of its degrees in each block. It makes no map of its own that a start after its end leaves out.
    """
    exchange = Exchange(f"{context.exchange.root}/component{c}")
    done_file = at(exchange.root) / "done.json"
    if done_file.exists():
        return read_sealed(done_file)
    if not is_url(exchange.root):
        remove(exchange.root + SPILL)  # (of a process that was killed)
    part = weights.part(np.flatnonzero(degrees > 0).tolist())
    n, edges = sum(part.rows), context.results("kernel")["edges"]
    width = lobpcg.block_width(asked.n_components)
    need = nbytes(solve_memory(n, edges * n // sum(weights.rows), width))
    vectors = 0 if is_url(exchange.root) else nbytes(vectors_memory(n, width))
    stored, total, result = StoredSpace(part, exchange), float(np.sum(degrees)), None
    for again in range(LOSSES):
        if result is None:
            with claim_memory(need, again < LOSSES - 1, vectors) as room:
                context.note(f"component {c} of the graph: matrix and vectors {room.where}")
                result = _solved(context, part, room, stored, c, total, wanted, asked)
    assert result is not None  # (what is in files cannot be lost)
    trim_heap()
    summary = summary_of(result) | {"vectors": result.vectors, "blocks": part.chosen}
    write_json(done_file, sealed(summary))
    return summary


def _solved(context: Context, weights: StoredMatrix, room: Room, *rest: Any) -> EigenResult | None:
    """Return the result of a solve; None where a worker is gone with vectors."""
    try:
        return _solve(context, weights, room, *rest)
    except LostVectorsError as error:
        context.note(f"{error}; going on from the last checkpoint")
        return None


def _solve(
    context: Context, weights: StoredMatrix, room: Room, stored: StoredSpace, c: int, total: float, wanted: int,
    asked: Spectrum,
) -> EigenResult:  # fmt: skip
    """From the start or the last checkpoint to vectors in ``stored``.

    The state is on disk after every step, or from time to time where its vectors are in memory; of a step in files a
    journal says which blocks are done.
    """
    state_file, steps = at(stored.exchange.root) / "state.json", f"{stored.exchange.root}-steps"
    matrix, space = room.open(weights, stored.exchange)
    with space, own_steps(steps) as step:  # (workers of the user's keep nothing, however it ends)
        operator = SparseOperator(matrix, space, "scale")
        checkpoints = Checkpoints(operator.space, stored)

        def publish(state: lobpcg.State) -> None:
            if checkpoints.due and not context.home.temporary:
                names = lobpcg.vectors_of(state, "scale")
                checkpoints.save(names)
                write_json(state_file, sealed(state.to_json()), indent=None)
                checkpoints.published(names)
            if not state.updated:
                context.note(f"component {c} of the graph: {state.describe()}")

        if state_file.exists():
            state = lobpcg.State.from_json(read_sealed(state_file))
            if room.in_memory and not stored.has(f"X.{state.generation}"):  # (stopped in files, within an update)
                with step(state.to_json()):
                    state = lobpcg.step(SparseOperator(*IN_FILES.open(weights, stored.exchange), "scale"), state)
            checkpoints.restore(lobpcg.vectors_of(state, "scale"))
            context.note(f"component {c} of the graph: going on from step {state.iteration}")
        else:
            if room.in_memory:
                remove(steps)
            with nullcontext() if room.in_memory else step("start"):
                once(stored.exchange.clear)
                given = context.of("components", "labels"), context.of("kernel", "degree"), c, total
                operator.space.sweep(
                    scale_block, writes=["scale", "trivial"], posts=["scale"], arguments=(*given, weights.chosen)
                )
                state = lobpcg.init(
                    operator, wanted, tol=asked.tol, seed=asked.seed, max_passes=asked.max_passes, deflate="trivial"
                )
        result = lobpcg.solve(operator, state, publish, nullcontext if room.in_memory else step)
        checkpoints.save([result.vectors])
    return result


def vectors_memory(n: int, width: int) -> Arrays:
    """What a solve holds in memory besides the matrix."""
    return [
        ArraySpec("X, P", n, width, times=2),
        ArraySpec("R, LP, LW, W and its halos; the restrictions of all", n, width, "f4", times=7),
        ArraySpec("coarse space", n, 30),
    ]


def solve_memory(n: int, edges: int, width: int) -> Arrays:
    """What a solve holds in memory."""
    return [
        *vectors_memory(n, width),
        ArraySpec("columns and values of the matrix (values in single precision, in part)", edges, 10, "u1"),
    ]


def scale_block(
    b: int, labels: str, degree: str, c: int, total: float, chosen: tuple[int, ...] | None
) -> tuple[tuple[Array, Array], None]:
    """s = 1/√d and the trivial vector √(d/Σd) on the rows of component c, zero elsewhere; ``chosen``: the blocks."""
    b = b if chosen is None else chosen[b]
    d, member = read_array(f"{degree}/{b}"), read_array(f"{labels}/{b}") == c
    inside = member & (d > 0)
    scale = np.where(inside, 1 / np.sqrt(np.where(inside, d, 1)), 0.0)
    trivial = np.where(inside, np.sqrt(d / total), 0.0)
    return (scale[:, None], trivial[:, None]), None


def summary_of(result: EigenResult) -> dict[str, Any]:
    """What is said of a solve."""
    return {
        "eigenvalues": np.asarray(result.eigenvalues).tolist(),
        "residuals": np.asarray(result.residuals).tolist(),
        "gap": float(result.gap),
        "gaps": np.asarray(result.gaps).tolist(),
        "orthogonality": float(result.orthogonality),
        "passes": int(result.passes),
        "bytes_moved": int(result.bytes_moved),
        "iterations": int(result.iterations),
        "converged": bool(result.converged),
        "reason": str(result.reason),
        "advice": str(result.advice),
    }
