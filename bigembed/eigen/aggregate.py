"""Aggregates of the rows of one block, and a few functions on each that slow eigenvectors look like.

Aggregates are made by pairwise matching along heavy edges, repeated until they have the wanted
size. On each aggregate a stand functions near to the p lowest eigenvectors of its normalized Laplacian
(Neumann, spectral AMGe):

    N_a = D^{-1/2} (diag(W_aa 1) − W_aa) D^{-1/2},    N_a u = μ u,   u_0 = √d.

The first is the constant of plain aggregation, the others are its tilts and bends, or the
indicators of parts that hang together by weak edges. Pure block functions: no halo.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.blocks.stripes import spread

TOGETHER = 64
"""Aggregates whose functions one thread makes at a time."""
GUARDS = 9
"""Functions at least beyond those wanted in the iteration that makes them."""
LANES = 8
"""Columns that a processor takes at a time."""


@dataclass(frozen=True)
class Rows:
    """A sparse matrix as compiled functions take it: CSR, columns of other blocks after those of the rows."""

    pointer: Array
    index: Array
    data: Array

    @classmethod
    def of(cls, matrix: Any) -> Rows:
        """Of a SciPy matrix in CSR form."""
        return cls(
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data.astype(np.float64, copy=False),
        )

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """Pointer, columns, values."""
        return self.pointer, self.index, self.data


@dataclass(frozen=True)
class Groups:
    """The rows of each aggregate."""

    label: Array
    """Aggregate of each row, −1 for none."""
    starts: Array
    order: Array
    """Those of aggregate a are order[starts[a] : starts[a + 1]], ascending."""

    @classmethod
    def of(cls, label: Array) -> Groups:
        """By their labels."""
        return cls(label, *matching().grouped(label, int(label.max(initial=-1)) + 1))

    @property
    def count(self) -> int:
        """Aggregates."""
        return len(self.starts) - 1

    @property
    def place(self) -> Array:
        """The place of each row in its aggregate."""
        place = np.zeros(len(self.label), np.int64)
        place[self.order] = np.arange(len(self.order)) - np.repeat(self.starts[:-1], np.diff(self.starts))
        return place


def aggregates(rows: Rows, active: Array, size: int) -> Array:
    """Aggregate number of each row, 0 … count−1 in row order, −1 where not active.

    Values of the rows are ≥ 0. Each round matches every row (then
    every aggregate) with the unmatched neighbor to which it has the heaviest total edge relative to
    √(size · size), as long as the pair has at most ``size`` rows. At the end aggregates smaller than
    size / 4 join the neighbor of the heaviest edge, up to 1.25 · size.
    """
    run, members = matching(), active.astype(np.float64)
    label, rounds = np.where(active, np.arange(len(active)), -1), int(np.ceil(np.log2(max(2, size))))
    for turn in range(rounds + 1):
        pair, count = (run.match if turn < rounds else run.absorb)(*rows.parts, members, float(size))
        label[active] = pair[label[active]]
        if turn < rounds:
            rows, inner = Rows(*run.joined(*rows.parts, pair, count)), pair >= 0
            members = np.bincount(pair[inner], members[inner]).astype(np.float64)
    return label


def local_basis(rows: Rows, groups: Groups, scale: Array, functions: int) -> Array:
    """(rows, functions) float32: orthonormal columns on each aggregate, zero-padded, zero where label is −1.

    rows: A_ij = w_ij / √(d_i d_j); scale = 1/√d. Cost g³/6 per aggregate of g rows.
    """
    basis = np.zeros((len(groups.label), functions), np.float32)
    run = partial(
        local().fill_basis, bounds=groups.starts, order=groups.order, place=groups.place, label=groups.label,
        pointer=rows.pointer, index=rows.index, data=rows.data, scale=np.ascontiguousarray(scale),
        start=start_of(int(np.diff(groups.starts).max(initial=0)), functions), basis=basis,
    )  # fmt: skip
    spread([partial(run, *part) for part in bounds(groups.count, TOGETHER)])
    return basis


@cache
def local() -> Any:
    """The compiled functions (:mod:`bigembed.eigen.local_functions`)."""
    from bigembed.eigen import local_functions  # imports numba: only here

    return local_functions


@cache
def matching() -> Any:
    """The compiled functions (:mod:`bigembed.eigen.matching`)."""
    from bigembed.eigen import matching as kernels  # imports numba: only here

    return kernels


def start_of(rows: int, functions: int) -> Array:
    """The random columns from which functions on at most ``rows`` rows are made."""
    return np.random.default_rng(0).standard_normal((rows, -(-(functions + GUARDS - 1) // LANES) * LANES))
