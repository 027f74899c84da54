"""The largest eigenpairs from the matrix itself, where it has at most a few thousand rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse

from bigembed.blocks.rows import Array, offsets
from bigembed.blocks.vector_space import assembled
from bigembed.eigen.base import EigenResult, Reason, extremes, gaps_of
from bigembed.eigen.krylov import leading_pairs
from bigembed.errors import InputError
from bigembed.operators.base import BlockOperator


def solve_dense_matrix(matrix: Any, n_components: int, *, deflate: Array | None = None) -> tuple[EigenResult, Array]:
    """The m largest eigenpairs of a symmetric matrix, dense or sparse, except the deflated ones; the vectors (n, m).

    ``deflate`` (n,) or (n, c) are known orthonormal eigenvectors T. Of the others only the next pair is computed, for
    the gaps: in a Krylov space where that is small (:mod:`bigembed.eigen.krylov`), or from the whole matrix with T
    moved below the spectrum, A − T T ᵀ (1 + 2‖A‖). Memory 3 n² numbers.
    """
    n = matrix.shape[0]
    known = np.zeros((n, 0)) if deflate is None else np.asarray(deflate, np.float64).reshape(n, -1)
    if not 1 <= n_components <= n - known.shape[1]:
        raise InputError(
            f"n_components={n_components}: {n} rows have {n - known.shape[1]} eigenpairs besides the "
            f"{known.shape[1]} known ones; ask for 1 to {n - known.shape[1]}"
        )
    matrix = matrix.astype(np.float64, copy=False)
    wanted = min(n_components + 1, n - known.shape[1])
    values, vectors = leading_pairs(matrix, wanted, known) or _reduced(matrix, max(known.shape[1], n - wanted), known)
    chosen = vectors[:, :n_components] * extremes(vectors[:, :n_components])[1]
    kept = values[:n_components].copy()
    left = values[n_components:]
    others = np.concatenate([left, np.einsum("ij,ij->j", known, matrix @ known)])
    result = EigenResult(
        eigenvalues=kept,
        vectors="",
        residuals=np.linalg.norm(matrix @ chosen - chosen * kept, axis=0),
        gap=float(kept[-1] - left[0]) if len(left) else float("inf"),
        gaps=gaps_of(kept, others),
        orthogonality=float(np.abs(chosen.T @ chosen - np.eye(n_components)).max()),
        passes=1,
        bytes_moved=0,
        iterations=1,
        converged=True,
        reason=Reason.CONVERGED,
        advice="",
    )
    return result, chosen


def _reduced(matrix: Any, last: int, known: Array) -> tuple[Array, Array]:
    """The eigenpairs from the ``last`` on in ascending order, given descending, by reduction to tridiagonal form."""
    whole: Any = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    drop = 1 + 2 * float(np.abs(whole).sum(axis=1).max())
    moved = (whole + whole.T) / 2 - drop * (known @ known.T)
    values, vectors = linalg.eigh(moved, subset_by_index=(last, len(whole) - 1))
    if len(values) < len(whole) - last:  # (LAPACK finds fewer where almost all are equal)
        values, vectors = (part[..., last:] for part in linalg.eigh(moved, driver="evd", overwrite_a=True))
    return values[::-1], vectors[:, ::-1]


def solve_dense(
    operator: BlockOperator, n_components: int, *, deflate: str | None = None, into: str = "V"
) -> EigenResult:
    """Assemble the operator (one pass), solve it densely, leave the vectors in the space under ``into``.

    Rows of scale 0 take no part and stay exactly 0. Memory of the coordinating process 4 n² numbers.
    """
    space = operator.space
    passes, moved = operator.passes, operator.bytes_moved
    operator.walk(entries_block, writes=["dense.entries"])
    blocks = range(len(space.rows))
    start = offsets(space.rows)
    n = int(start[-1])
    inside = assembled(space, operator.scale)[:, 0] != 0
    parts = [space.read("dense.entries", b) for b in blocks]
    space.drop("dense.entries")
    row = np.concatenate([part[:, 0] + start[b] for b, part in enumerate(parts)]).astype(int)
    _, value, block, inner = np.concatenate(parts).T
    whole = sparse.coo_array((value, (row, (start[block.astype(int)] + inner).astype(int))), shape=(n, n))
    known = None if deflate is None else assembled(space, deflate)[inside]
    result, chosen = solve_dense_matrix(whole.tocsr()[inside][:, inside], n_components, deflate=known)
    vectors = np.zeros((n, n_components))
    vectors[inside] = chosen
    for b in blocks:
        space.write(into, b, vectors[start[b] : start[b + 1]])
    counted = {"passes": operator.passes - passes, "bytes_moved": operator.bytes_moved - moved, "vectors": into}
    return EigenResult(**{**_fields(result), **counted})


def entries_block(block: int, rows: Any, scale: Array) -> tuple[tuple[Array], None]:
    """(row, value, source block, row in the source block) of each entry; own columns have this block."""
    matrix, source, source_row = rows
    coo = matrix.tocoo()
    row, column = coo.coords
    own = len(scale)
    blocks = np.concatenate([np.full(own, block), source])[column]
    inner = np.concatenate([np.arange(own), source_row])[column]
    return (np.stack([row, coo.data, blocks, inner], axis=1),), None


def _fields(result: EigenResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}
