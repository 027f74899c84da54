"""The coarse solve of the eigensolver beside a whole pass: processor time in one process, all in memory.

    python benchmarks/eigenpairs.py --data sphere_with_relief --n 1000000 --no-arpack
    python benchmarks/coarse_solve.py --data sphere_with_relief --n 1000000 --copies 10

The first command leaves the kernel; the second solves it again on block vectors in memory, with the time of
loading the coarse problem and of solving it in each pass, and of SciPy's product of the same blocks. ``--copies``:
then the coarse matrix of as many copies of that graph side by side, which has the shape of one of so many times the
rows; loading and one solve of it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from common import table
from scipy.sparse import csr_array

from bigembed.linalg import SparseOperator, lobpcg
from bigembed.linalg.multigrid import BlockRows, Coarse, Multigrid, multigrid
from bigembed.maps.walk.coordinates import degree_sums_block
from bigembed.maps.walk.spectral import scale_block, weights_of
from bigembed.runtime import silent
from bigembed.runtime.blocks import one_blas_thread
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import MemoryMatrix
from bigembed.store.vector_space import MemorySpace

PAIRS = 10


def operator_of(run: str) -> SparseOperator:
    """The largest component of a stored kernel, in memory."""
    home = Run(run)
    stored = weights_of(Context(Stage("bench", (), {}, lambda _: {}), home, Exchange(run), silent))
    matrix = MemoryMatrix(tuple(stored.block(b) for b in range(len(stored.rows))))
    space = MemorySpace(matrix)
    labels, degree = str(home.path("components", "labels")), str(home.path("kernel", "degree"))
    blocks = range(len(matrix.rows))
    total = float(np.sum([degree_sums_block(b, labels=labels, degree=degree, count=1) for b in blocks]))
    space.sweep(scale_block, writes=["scale", "trivial"], posts=["scale"], arguments=(labels, degree, 0, total, None))
    return SparseOperator(matrix, space, "scale")


def timed(seconds: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the processor time of its calls added up."""

    def run(*arguments: Any) -> Any:
        began = time.process_time()
        out = function(*arguments)
        seconds[name] += time.process_time() - began
        return out

    return run


def bare_product(operator: SparseOperator, columns: int) -> float:
    """Processor time of SciPy's product of the same blocks, the median of seven."""
    random, seconds = np.random.default_rng(0), []
    blocks = [operator.matrix.block(b) for b in range(len(operator.space.rows))]
    shapes = [(len(block.indptr) - 1, len(block.indptr) - 1 + len(block.halo_rows)) for block in blocks]
    matrices = [
        csr_array((block.data.astype(np.float64), block.indices, block.indptr.astype(np.int32)), shape=shape)
        for block, shape in zip(blocks, shapes, strict=True)
    ]
    vectors = [random.standard_normal((width, columns)) for _, width in shapes]
    for _ in range(7):
        began = time.process_time()
        for matrix, x in zip(matrices, vectors, strict=True):
            matrix @ x
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))


def copied(rows: BlockRows, copies: int) -> BlockRows:
    """As many copies of a block matrix along the diagonal."""
    count, pairs = len(rows.constant), len(rows.index)
    pointer = np.concatenate([[0], *(rows.pointer[1:] + c * pairs for c in range(copies))])
    index = np.concatenate([rows.index + c * count for c in range(copies)]).astype(np.int32)
    return BlockRows(pointer, index, np.tile(rows.blocks, (copies, 1, 1)), np.tile(rows.constant, (copies, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sphere_with_relief")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--copies", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    operator = operator_of(f"{given.folder}/eigen-{given.data}-{given.n}.zarr")
    seconds: dict[str, float] = defaultdict(float)
    load, correction = Coarse.load, Coarse.correction
    Coarse.load = timed(seconds, "load", load)  # type: ignore[method-assign]
    Coarse.correction = timed(seconds, "coarse", correction)  # type: ignore[method-assign]
    with one_blas_thread():
        state = lobpcg.init(operator, PAIRS, deflate="trivial", max_passes=200)
        solver = operator.cache["coarse"].solver
        began = time.process_time()
        result = lobpcg.solve(operator, state)
        passes = time.process_time() - began
        row: dict[str, Any] = {
            "passes": result.passes,
            "residual": float(result.residuals.max()),
            "unknowns": sum(state.plan[:-1]) * state.plan[-1],
            "pass": passes / (result.passes - 2),
            "product": bare_product(operator, state.width),
            "coarse": seconds["coarse"] / result.iterations,
            "share": seconds["coarse"] / passes,
            "load": seconds["load"],
        }
        row["pass_over_product"] = row["pass"] / row["product"]
        print({"operator": sum(operator.space.rows), **row})
        found = {"solve": row}
        if given.copies and isinstance(solver, Multigrid):
            rows = copied(solver.levels[0].rows, given.copies)
            began = time.process_time()
            large = multigrid(rows)
            loaded = time.process_time() - began
            right = np.random.default_rng(0).standard_normal((rows.size, state.width)).astype(np.float32)
            began = time.process_time()
            large.solve(right)
            cycle = time.process_time() - began
            found["copies"] = {"unknowns": rows.size, "coarse": cycle, "load": loaded, "share": cycle / given.copies}
            found["copies"]["share"] /= row["pass"]
    table("coarse_solve", {"data": given.data, "n": given.n, "copies": given.copies}, found)


if __name__ == "__main__":
    main()
