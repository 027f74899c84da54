"""Aggregates of the rows of one block, and a few functions on each that slow eigenvectors look like.

Aggregates are made by pairwise matching along heavy edges, repeated until they have the wanted
size. On each aggregate a stand the p lowest eigenvectors of its normalized Laplacian
(Neumann, spectral AMGe):

    N_a = D^{-1/2} (diag(W_aa 1) − W_aa) D^{-1/2},    N_a u = μ u,   u_0 = √d.

The first is the constant of plain aggregation, the others are its tilts and bends, or the
indicators of parts that hang together by weak edges. Pure block functions: no halo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, bounds
from bigembed.blocks.stripes import spread

TOGETHER = 64
"""Aggregates whose functions one thread makes at a time."""


def aggregates(inner: Any, active: Array, size: int) -> Array:
    """Aggregate number of each row, 0 … count−1 in row order, −1 where not active.

    inner: CSR array of the edges inside the block, values ≥ 0. Each round matches every row (then
    every aggregate) with the unmatched neighbor to which it has the heaviest total edge relative to
    √(size · size), as long as the pair has at most ``size`` rows. At the end aggregates smaller than
    size / 4 join the neighbor of the heaviest edge, up to 1.25 · size.
    """
    label = np.where(active, np.cumsum(active) - 1, -1)
    graph = inner[active][:, active].tocsr()
    members = np.ones(graph.shape[0])
    match, absorb = _compiled()
    for turn in range(int(np.ceil(np.log2(max(2, size)))) + 1):
        graph.sort_indices()
        join = absorb if turn == int(np.ceil(np.log2(max(2, size)))) else match
        pair, count = join(graph.indptr, graph.indices, graph.data, members, float(size))
        label[active] = pair[label[active]]
        gather = sparse.csr_array((np.ones(len(pair)), (np.arange(len(pair)), pair)), (len(pair), count))
        graph = (gather.T @ graph @ gather).tocsr()
        members = gather.T @ members
    return label


@cache
def _compiled() -> tuple[Callable[..., tuple[Array, int]], Callable[..., tuple[Array, int]]]:
    from numba import njit

    @njit(cache=True, nogil=True)
    def match(indptr: Array, indices: Array, data: Array, members: Array, limit: float) -> tuple[Array, int]:
        n = len(indptr) - 1
        pair = np.full(n, -1, np.int64)
        count = 0
        for i in range(n):
            if pair[i] >= 0:
                continue
            best, heaviest = -1, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if j != i and pair[j] < 0 and members[i] + members[j] <= limit:
                    weight = data[e] / np.sqrt(members[i] * members[j])
                    if weight > heaviest:
                        best, heaviest = j, weight
            pair[i] = count
            if best >= 0:
                pair[best] = count
            count += 1
        return pair, count

    @njit(cache=True, nogil=True)
    def absorb(indptr: Array, indices: Array, data: Array, members: Array, limit: float) -> tuple[Array, int]:
        n = len(indptr) - 1
        root = np.arange(n)
        total = members.copy()
        for i in range(n):
            if members[i] >= limit / 4 or root[i] != i:
                continue
            best, heaviest = -1, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                while root[j] != j:
                    j = root[j]
                if j != i and total[i] + total[j] <= 1.25 * limit and data[e] > heaviest:
                    best, heaviest = j, data[e]
            if best >= 0:
                root[i] = best
                total[best] += total[i]
        number = np.full(n, -1, np.int64)
        pair = np.empty(n, np.int64)
        count = 0
        for i in range(n):
            j = i
            while root[j] != j:
                j = root[j]
            if number[j] < 0:
                number[j] = count
                count += 1
            pair[i] = number[j]
        return pair, count

    return match, absorb


def local_basis(inner: Any, label: Array, scale: Array, functions: int) -> Array:
    """(rows, functions) float32: orthonormal columns on each aggregate, zero-padded, zero where label is −1.

    inner: CSR of A_ij = w_ij / √(d_i d_j) inside the block; scale = 1/√d. Cost g³ per aggregate of
    g rows.
    """
    basis = np.zeros((len(label), functions), np.float32)
    order = np.argsort(label, kind="stable")
    order = order[label[order] >= 0]
    cuts = np.searchsorted(label[order], np.arange(int(label.max(initial=-1)) + 2))
    place = np.zeros(len(label), np.int64)
    place[order] = np.arange(len(order)) - cuts[label[order]]
    matrix = (inner.indptr.astype(np.int64), inner.indices.astype(np.int64), inner.data.astype(np.float64))
    run = partial(
        local().fill_basis, bounds=cuts, order=order, place=place, label=label, pointer=matrix[0], index=matrix[1],
        data=matrix[2], scale=np.ascontiguousarray(scale), basis=basis,
    )  # fmt: skip
    checked(max(spread([partial(run, *part) for part in bounds(len(cuts) - 1, TOGETHER)]), default=0))
    return basis


@cache
def local() -> Any:
    """The compiled functions (:mod:`bigembed.eigen.local_functions`)."""
    from bigembed.eigen import local_functions  # imports numba: only here

    return local_functions


def lowest_beside(matrix: Array, unit: Array, functions: int) -> Array:
    """``unit``, which a positive semidefinite matrix of norm at most 2 maps to 0, and its next lowest eigenvectors, as
    columns. The matrix is written over."""
    rows = np.empty((min(functions, len(unit)), len(unit)))
    checked(local().lowest_beside(np.ascontiguousarray(matrix), unit, rows))
    return rows.T


def checked(info: int) -> None:
    """Raise what LAPACK reports."""
    if info:
        raise np.linalg.LinAlgError(f"eigenvectors of the rows of an aggregate: LAPACK ended with {info}")


def as_sparse(label: Array, basis: Array, count: int) -> Any:
    """P of one block, CSR (rows, count · p): unknown a·p + s is function s of aggregate a."""
    functions = basis.shape[1]
    columns = np.maximum(label, 0)[:, None] * functions + np.arange(functions)
    pointer = np.arange(len(label) + 1) * functions
    values = np.where(label[:, None] >= 0, basis, 0).astype(np.float64)
    return sparse.csr_array((values.ravel(), columns.ravel(), pointer), shape=(len(label), max(count, 1) * functions))
