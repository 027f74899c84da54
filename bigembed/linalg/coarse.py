"""The coarse space of the two-level solver: aggregates of the rows of each block, and a few functions on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from bigembed.linalg import BlockOperator
from bigembed.runtime.blocks import Array, bounds, offsets
from bigembed.runtime.executors import run_on_idle_threads

# ------------------------------------------------------------------------------------------------------- aggregate
# Aggregates of the rows of one block, and a few functions on each that slow eigenvectors look like.
#
# Aggregates are made by pairwise matching along heavy edges, repeated until they have the wanted size. The functions on
# an aggregate a approximate the p lowest eigenvectors of its normalized Laplacian (Neumann, spectral AMGe):
#
#     N_a = D^{-1/2} (diag(W_aa 1) − W_aa) D^{-1/2},    N_a u = μ u,   u_0 = √d.
#
# The first is the constant of plain aggregation, the others are its tilts and bends, or the indicators of parts that
# hang together by weak edges. Pure block functions: no halo.

TOGETHER = 64
"""Aggregates whose functions one thread makes at a time."""
GUARDS = 7
"""Functions at least beyond those wanted in the iteration that makes them."""
LOOKED_AT = 8
"""Blocks of a large matrix that say how many functions its coarse space can have."""
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
        return cls(label, *level_kernels().grouped(label, int(label.max(initial=-1)) + 1))

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
    run, members = level_kernels(), active.astype(np.float64)
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
    run_on_idle_threads([partial(run, *part) for part in bounds(groups.count, TOGETHER)])
    return basis


@cache
def local() -> Any:
    """The compiled functions (:mod:`bigembed.linalg.aggregate_functions`)."""
    from bigembed.linalg import aggregate_functions  # imports numba: only here

    return aggregate_functions


@cache
def level_kernels() -> Any:
    """The compiled functions (:mod:`bigembed.linalg.multigrid_compiled`)."""
    from bigembed.linalg import multigrid_compiled  # imports numba: only here

    return multigrid_compiled


def start_of(rows: int, functions: int) -> Array:
    """The random columns from which functions on at most ``rows`` rows are made."""
    return np.random.default_rng(0).standard_normal((rows, -(-(functions + GUARDS - 1) // LANES) * LANES))


# ---------------------------------------------------------------------------------------------------------- coarse
# The coarse space of the two-level solver: aggregates, their functions, the Galerkin matrix.
#
#     L_c = Pᵀ (I − A) P,    P as in the section above, columns orthonormal.
#
# One pass over the matrix: a block makes its aggregates, its functions and its own part of L_c, and keeps the edges
# that cross to other blocks; a sweep over those alone, with the functions of the halo rows, gives the rest. No object
# of n rows is made in one process: the coordinating process holds L_c, what solves with it
# (:mod:`bigembed.linalg.multigrid`), and a few coarse vectors.
#
# Size. Aggregates have up to 64 rows with 16 functions (n ≤ 2e4) or 8 (n ≤ 2e5), then 128 with 8: some 12 rows an
# unknown, so that the number of passes holds as n grows (it goes as the diameter of what an unknown stands for). From
# 1.2e7 rows on functions become fewer, down to 4 (24 rows an unknown, a quarter more passes on a surface of 1e6 rows),
# and from 1.4e8 rows on aggregates become larger, so that unknowns are at most 6e6.

UNKNOWNS = (1_000_000, 6_000_000)
"""Unknowns up to which aggregates have 8 functions, and at most."""
FEWEST = 4
"""Functions on an aggregate at least, before some are left out because L_c would have too many entries."""
MOST = 16
"""Functions on an aggregate at most."""
ENTRIES = (1.0e6, 6.0e6, 5.0e7, 2.0e8)
"""Entries of L_c at most: 20 n from the first to the second, then 12 n up to the third, and 1.5 n up to the last; fewer
functions are kept where aggregates touch very many others."""
EXACT = 20_000
"""Unknowns up to which a sparse factor of L_c is tried; beyond, it is solved by multigrid cycles."""
FACTOR = 4.0e6
"""Estimated entries of the factor at most; of 1e7 (6 000 unknowns) a solve took twice a cycle (two passes fewer)."""
NAMES = ("coarse.label", "coarse.basis", "coarse.diagonal")
CUT = ("coarse.cut", "coarse.cut_index", "coarse.cut_values", "coarse.source")
"""The edges to other blocks, and the block of each row that they lead to."""
KEPT = (
    *NAMES,
    "coarse.pairs",
    "coarse.values",
    *CUT,
    "coarse.cross",
    "coarse.cross_values",
    "coarse.root",
    "coarse.known",
    "coarse.right",
)


def shape_of(n: int) -> tuple[int, int]:
    """Rows of an aggregate and functions on it, from n alone (aggregates come out at about ¾ of the limit).

    >>> shape_of(10_000), shape_of(100_000), shape_of(1_000_000), shape_of(30_000_000), shape_of(1_000_000_000)
    ((64, 16), (64, 8), (128, 8), (128, 4), (1024, 4))
    """
    if n <= 200_000:
        return 64, 16 if n <= 20_000 else 8
    size = 128
    few, most = UNKNOWNS
    while size < 1024 and n / (0.75 * size) * FEWEST > most:
        size *= 2
    return size, int(np.clip(few * 0.75 * size / n, FEWEST, 8))


def entries(n: int) -> float:
    """Entries of L_c at most, for n rows."""
    least, much, many, most = ENTRIES
    return float(max(np.clip(12.0 * n, np.clip(20.0 * n, least, much), many), min(1.5 * n, most)))


def unknowns(n: int) -> int:
    """Unknowns at most, of a component of n rows or of a smaller one (which may have more functions a row).

    >>> unknowns(15_000), unknowns(29_500), unknowns(1_000_000), unknowns(100_000_000)
    (5000, 6666, 83333, 4166666)
    """
    few, most = UNKNOWNS
    return max(min(n, 20_000) // 3, min(n, 200_000) // 6, min(n // 12, few), min(n // 24, most))


def held_here(n: int, width: int) -> int:
    """Bytes that the coordinating process holds: L_c, what its factor is made from and the factor; or the levels above
    L_c while they are made, or these and the vectors of a cycle, which take 64 bytes for each unknown and column.
    """
    size = unknowns(n)
    few, most = min(size, EXACT), entries(n)
    exact = 28 * min(most, ENTRIES[1], few**2) + 20 * min(FACTOR, few**2) + 64 * width * few
    own = min(most, size**2)
    levels = max(held_by_levels(own, size), 13 * own + (100 + 64 * width) * size)
    return int(exact if size <= EXACT else max(exact, levels))


def held_by_levels(entries: float, unknowns: int) -> float:
    """Bytes of L_c and of the levels over it while they are made.

    Most is needed where aggregates have one function: columns and the weights of edges, beside each entry, while
    aggregates are joined. Where they have more, L_c takes 4 bytes an entry, and all smaller levels as much again.
    """
    return 20 * entries + 400 * unknowns


def held_on_disk(n: int, width: int) -> int:
    """Bytes of what is of the coarse space in files: functions, L_c, and restrictions of two generations.

    Edges to other blocks are not counted: they are gone before the vectors of an iteration are there (in a file that is
    written over, their places go to these).
    """
    size, functions = unknowns(n), shape_of(n)[1]
    return int((4 * functions + 36) * n + 12 * min(entries(n), size**2) + 104 * width * size)


def held_by_block(n: int, rows: int, n_neighbors: int) -> int:
    """Bytes of the task that makes the coarse space of a block: (I − A) P, and the block's part of L_c, twice."""
    functions = max(shape_of(n)[1] * rows, MOST * min(rows, 20_000))  # (components of few rows have more of them)
    return int(12 * functions * n_neighbors + 28 * min(entries(n), ENTRIES[1], unknowns(rows) ** 2))


def build(operator: BlockOperator, size: int, functions: int, most: float = ENTRIES[1]) -> list[int]:
    """Aggregates, functions, Galerkin parts, left in the space; one pass. Aggregates per block, then p.

    Of 32 blocks and more a look at some goes before, which opens the halo lists of all.

    ``most``: entries of L_c at most.
    """
    functions = min(functions, affordable_by_sample(operator, size, functions, most))
    found = operator.walk(
        aggregate_block,
        writes=[*NAMES, "coarse.pairs", "coarse.values", *CUT, "coarse.root"],
        arguments=(size, functions, min(most, ENTRIES[1])),
    )
    counts = [count for count, _, _, _ in found]
    pairs = sum(inner + cut for _, inner, cut, _ in found)
    kept = min(affordable(pairs, functions, most), *(width for _, _, _, width in found))
    if kept < functions:
        operator.space.sweep(
            narrow_block,
            reads=["coarse.label", "coarse.basis", "coarse.values"],
            writes=["coarse.label", "coarse.basis", "coarse.values"],
            arguments=(kept,),
        )
    operator.space.sweep(
        cross_block,
        reads=["coarse.label", "coarse.basis", *CUT],
        halos=["coarse.label", "coarse.basis"],
        writes=["coarse.cross", "coarse.cross_values"],
        spends=CUT,
        arguments=(counts,),
    )
    return [*counts, kept]


def affordable_by_sample(operator: BlockOperator, size: int, functions: int, most: float) -> int:
    """Functions that a large matrix can have by some of its blocks: a task that makes 8 where 2 can be kept takes twice
    the time, and leaves 16 times the entries of L_c."""
    count = len(operator.space.rows)
    if count < 4 * LOOKED_AT:
        return functions
    chosen = tuple(np.linspace(0, count - 1, LOOKED_AT).astype(int).tolist())
    found = operator.space.sweep(
        pairs_block, reads=[operator.scale], halos=[operator.scale], arguments=(operator.entries, chosen, size)
    )
    rows, pairs = np.sum([found[b] for b in chosen], axis=0)
    return affordable(pairs * sum(operator.space.rows) / rows, functions, most)


def pairs_block(
    block: int, scale: Array, halo: Array, entries: Any, chosen: Sequence[int], size: int
) -> tuple[tuple[()], tuple[int, int]]:
    """Of a chosen block its rows, and the pairs of aggregates that touch."""
    if block not in chosen:
        return (), (0, 0)
    matrix = entries(block, scale, halo)[0]
    _, _, pairs = _touching(Rows.of(matrix), matrix.shape[1], scale[:, 0] != 0, size)
    return (), (len(scale), sum(pairs))


def _touching(rows: Rows, columns: int, active: Array, size: int) -> tuple[Groups, Array, tuple[int, int]]:
    """Aggregates of a block, how many others of it each of them touches, and the pairs inside and across borders."""
    groups = Groups.of(aggregates(rows, active, size))
    found, across = level_kernels().touching(groups.starts, groups.order, groups.label, *rows.parts, columns)
    return groups, found, (int(found.sum()), across // 4)


def aggregate_block(
    block: int, rows: Any, scale: Array, size: int, functions: int, most: float
) -> tuple[tuple[Array, ...], tuple[int, int, int, int]]:
    """Aggregates, functions, diagonal of A, own Galerkin blocks, crossing edges; counts for the plan."""
    matrix, source, _ = rows
    entries, active = Rows.of(matrix), scale[:, 0] != 0
    groups, found, (inside, across) = _touching(entries, matrix.shape[1], active, size)
    functions = affordable(inside, functions, most)
    basis = local_basis(entries, groups, scale[:, 0], functions)
    columns, values = _inner(entries, groups, basis, offsets(found))
    pairs = np.stack([np.repeat(np.arange(groups.count), found), columns], axis=1)
    root = np.bincount(groups.label[active], weights=basis[active, 0] / scale[active, 0], minlength=groups.count)
    crossing = level_kernels().crossing(*entries.parts)
    written = (groups.label, basis, matrix.diagonal()[:, None], pairs, values, *crossing, source, root)
    return written, (groups.count, len(pairs), across, functions)


def _inner(entries: Rows, groups: Groups, basis: Array, place: Array) -> tuple[Array, Array]:
    """Columns and blocks of the Galerkin matrix inside a block."""
    columns, values = np.empty(place[-1], np.int64), np.empty((place[-1], basis.shape[1], basis.shape[1]))
    run = partial(
        block_kernels().inner_blocks, starts=groups.starts, order=groups.order, label=groups.label,
        pointer=entries.pointer, index=entries.index, data=entries.data, basis=basis.astype(np.float64), place=place,
        columns=columns, blocks=values,
    )  # fmt: skip
    run_on_idle_threads([partial(run, *part) for part in bounds(groups.count, TOGETHER)])
    return columns, values


def affordable(pairs: float, functions: int, most: float) -> int:
    """Functions of an aggregate: few enough that the pairs of aggregates have at most ``most`` entries."""
    return int(np.clip(np.sqrt(most / max(1.0, pairs)), 1, functions))


def narrow_block(
    block: int, label: Array, basis: Array, values: Array, kept: int
) -> tuple[tuple[Array, Array, Array], None]:
    """Keep the first functions only."""
    return (label, np.ascontiguousarray(basis[:, :kept]), np.ascontiguousarray(values[:, :kept, :kept])), None


def cross_block(
    block: int, label: Array, basis: Array, pointer: Array, index: Array, data: Array, source: Array, far_label: Array,
    far_basis: Array, counts: list[int],
) -> tuple[tuple[Array, Array], None]:  # fmt: skip
    """−P_iᵀ A_ij P_j for the edges to other blocks: (own aggregate, other aggregate) and p × p values."""
    start, groups = offsets(counts), Groups.of(label)
    theirs = start[source] + far_label
    functions, far = (np.ascontiguousarray(part, np.float64) for part in (basis, far_basis))
    pairs, values = block_kernels().cross_blocks(
        groups.starts, groups.order, pointer, index, data, theirs, int(start[-1]), functions, far
    )
    pairs[:, 0] += start[block]
    return (pairs, values), None


@cache
def block_kernels() -> Any:
    """The compiled functions (:mod:`bigembed.linalg.lobpcg_compiled`)."""
    from bigembed.linalg import lobpcg_compiled  # imports numba: only here

    return lobpcg_compiled
