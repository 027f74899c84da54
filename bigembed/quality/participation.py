"""How many rows carry each coordinate: a coordinate carried by a handful of rows shows those rows and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks, offsets
from bigembed.blocks.vector_space import tree_sum
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

TENTH = 0.1
LEADING = 5
"""Rows named of each coordinate."""
FEW_SHARE = 0.01
FEW_ROWS = 5


@dataclass(frozen=True)
class Participation:
    """What carries each of m coordinates."""

    share: Array
    """(m,) (Σ π ψ²)² / Σ π ψ⁴, the share of the stationary mass that carries it."""
    rows: Array
    """(m,) int64, rows with |ψ| above a tenth of its largest."""
    leading: Array
    """(m, 5) int64, internal ids of the rows of largest π ψ², falling; −1 where fewer rows have any."""
    leading_share: Array
    """(m, 5) what each of them has of Σ π ψ²."""


def participation(right: str, degree: str, blocks: int) -> Participation:
    """Participation of the coordinates stored under ``right/b`` (rows, m), of degrees ``degree/b``: two passes.

    With π = d/Σd the share is (Σ π ψ²)² / Σ π ψ⁴ = (Σ d ψ²)² / (Σd Σ d ψ⁴), the inverse participation ratio of
    localization theory (Bell & Dean 1970) in the measure of the walk, and whatever the scale of ψ. It is 1 where
    |ψ| is the same everywhere, the mass of a set where ψ is ±1 on the set and 0 elsewhere (so π_i, some 1/n, for one
    row), 2/3 for a cosine, 1/3 for Gaussian numbers. A coordinate that is 0 everywhere has share 0 and no rows.

    Cost: two passes over ψ, one over d; some (rows, m) arrays of one block. Sums in a fixed tree over the blocks.
    """
    tasks = [(b,) for b in range(blocks)]
    parts = map_blocks(moments_block, tasks, right=right, degree=degree)
    starts = offsets(part[0] for part in parts)
    mass, second, fourth = (tree_sum([part[k] for part in parts]) for k in (1, 2, 3))
    largest = np.max([part[4] for part in parts], axis=0)
    weight = np.concatenate([part[5] for part in parts])
    ids = np.concatenate([np.where(part[6] < 0, -1, part[6] + starts[b]) for b, part in enumerate(parts)])
    order = np.lexsort((ids, -weight), axis=0)[:LEADING]
    top, names = np.take_along_axis(weight, order, axis=0), np.take_along_axis(ids, order, axis=0)
    used = second > 0
    rows = tree_sum(map_blocks(count_block, tasks, right=right, above=TENTH * largest))
    return Participation(
        np.where(used, second**2 / np.where(used, mass * fourth, 1.0), 0.0),
        np.where(used, rows, 0),
        names.T,
        (top / np.where(used, second, 1.0)).T,
    )


def participation_of(coordinates: Array, mass: Array) -> Participation:
    """:func:`participation` of coordinates (n, m) in memory, of rows of these masses (n,)."""
    square = coordinates**2
    weight = mass[:, None] * square
    second, fourth = weight.sum(axis=0), (weight * square).sum(axis=0)
    used = second > 0
    values, rows = leading_rows(weight)
    return Participation(
        np.where(used, second**2 / np.where(used, mass.sum() * fourth, 1.0), 0.0),
        (np.abs(coordinates) > TENTH * np.abs(coordinates).max(axis=0, initial=0.0)).sum(axis=0),
        rows.T,
        (values / np.where(used, second, 1.0)).T,
    )


def carried_figure(coordinates: RowSource, survey: Mapping[str, Array], exchange: Exchange) -> dict[str, Any]:
    """Participation of coordinates (n, m) about their mean, with the same mass for all rows: one pass over them.

    ``survey``: their means and limits. Of each coordinate the ``participation``, the ``rows_above_a_tenth`` of the
    largest distance from the mean, and whether it is ``carried_by_few``; one that is the same everywhere is not.
    """
    mean = survey["mean"]
    with np.errstate(over="ignore"):
        largest = np.maximum(survey["high"].ravel() - mean, mean - survey["low"].ravel())
    used = (survey["low"] < survey["high"]).ravel() & np.isfinite(largest) & (largest > 0)
    unit, name = np.where(used, largest, 1.0), "coordinates-carried"
    found = reduce_rows(coordinates, carried_block, exchange, label=name, mean=mean, unit=unit)
    n = coordinates.shape[0]
    used &= found["fourth"] > 0
    share = np.where(used, found["second"] ** 2 / (n * np.where(used, found["fourth"], 1.0)), 0.0)
    rows = np.where(used, found["rows"], 0)
    return {
        "participation": share.tolist(),
        "rows_above_a_tenth": rows.tolist(),
        "carried_by_few": (used & carried_by_few(share, rows, n)).tolist(),
    }


def carried_block(block: RowBlock, *, mean: Array, unit: Array) -> Parts:
    """Σ ψ², Σ ψ⁴ and the rows with |ψ| above a tenth, of the coordinates of a block about ``mean``, in a ``unit``."""
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.square((block.rows.astype(np.float64) - mean) / unit)
        parts = {"second": square.sum(axis=0), "fourth": np.square(square).sum(axis=0)}
    return parts | {"rows": (square > TENTH**2).sum(axis=0)}


def moments_block(b: int, *, right: str, degree: str) -> tuple[int, float, Array, Array, Array, Array, Array]:
    """Rows, Σd, Σ d ψ², Σ d ψ⁴, max |ψ|, and the largest d ψ² (5, m) with their rows, of one block."""
    psi, d = read_array(f"{right}/{b}"), read_array(f"{degree}/{b}").astype(np.float64)
    square = psi.astype(np.float64) ** 2
    weight = d[:, None] * square
    values, rows = leading_rows(weight)
    fourth = (weight * square).sum(axis=0)
    return len(d), float(d.sum()), weight.sum(axis=0), fourth, np.abs(psi).max(axis=0, initial=0.0), values, rows


def leading_rows(weight: Array) -> tuple[Array, Array]:
    """The largest entries of each column, (5, m), falling, the first of equal ones first, and their rows; −1 for none.

    >>> leading_rows(np.array([[1.0], [3.0], [0.0]]))[1].T.tolist()
    [[1, 0, -1, -1, -1]]
    """
    values, rows = np.zeros((LEADING, weight.shape[1])), np.full((LEADING, weight.shape[1]), -1, np.int64)
    for l, column in enumerate(weight.T):
        found = np.flatnonzero(column)
        if len(found) > LEADING:
            found = found[column[found] >= np.partition(column[found], -LEADING)[-LEADING]]
        found = found[np.argsort(-column[found], kind="stable")[:LEADING]]
        values[: len(found), l], rows[: len(found), l] = column[found], found
    return values, rows


def count_block(b: int, *, right: str, above: Array) -> Array:
    """(m,) rows of one block with |ψ| above a limit of each coordinate."""
    return np.asarray((np.abs(read_array(f"{right}/{b}")) > above).sum(axis=0))


def carried_by_few(share: Array, rows: Array, n: int) -> Array:
    """Which coordinates are carried by fewer than 1 % of the n rows or of the mass, or by at most five rows, (m,) bool.

    (By a twentieth of fewer than 100 rows.) Of 15 coordinates of digits, breast cancer, iris, wine, mixtures and
    manifolds, k = 15: with the self-tuned scale it is the first of digits (1 row) and no other, the next having 8 % of
    the rows and 2 % of the mass; with the fixed scale all of Gaussian rows, 13 of digits, 10 of breast cancer.
    """
    few = (rows < FEW_SHARE * n) | (rows <= min(FEW_ROWS, n // 20))
    return np.asarray(few | (share < FEW_SHARE))
