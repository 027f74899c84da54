"""Figures of single coordinates: how many rows carry them, whether they are determined, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.vector_space import tree_sum

# --------------------------------------------------------------------------------------------------- participation
# How many rows carry each coordinate: a coordinate carried by a handful of rows shows those rows and nothing else.

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

    (Of fewer than 100 rows, by at most a twentieth of them.) Of 15 coordinates of digits, breast cancer, iris, wine,
    mixtures and manifolds, k = 15: with the self-tuned scale it is the first of digits (1 row) and no other, the next
    having 8 % of the rows and 2 % of the mass; with the fixed scale all of Gaussian rows, 13 of digits, 10 of breast
    cancer.
    """
    few = (rows < FEW_SHARE * n) | (rows <= min(FEW_ROWS, n // 20))
    return np.asarray(few | (share < FEW_SHARE))


# --------------------------------------------------------------------------------------------------------- degrees
# Effective degrees: how many neighbors' worth of weight joins each row to the others.

LOW = 0.1
"""Rows whose weights to all others add up to less are cut off.

The walk (α = 0) leaves such a row in fewer than one of eleven steps. Measured (k = 15): all sets with a coordinate
carried by single rows have such rows (fixed scale: digits 14, breast cancer 12, Gaussian rows in three dimensions 48
of 5000; self-tuned digits 1, of degree .04, which is its first coordinate); no other set has any (smallest degrees:
fixed scale .16 iris, .27 and .9 mixtures, .6 wine, 2.3 and more on manifolds; self-tuned 1.8 and more).
"""
NAMED = 10


@dataclass(frozen=True)
class EffectiveDegrees:
    """Σ_{j≠i} K_ij over all rows."""

    smallest: float
    row: int
    """Internal id of the (first) row that has it."""
    below: int
    """Rows below ``limit``."""
    limit: float
    first: tuple[int, ...]
    """Internal ids of the first of them, at most ten."""


def effective_degrees(q: str, blocks: int, limit: float = LOW, weights: str = "") -> EffectiveDegrees:
    """Effective degrees q − 1 = Σ_{j≠i} K_ij from the row sums ``q/b`` of a kernel with K_ii = 1: one pass.

    With ``weights/b`` of the rows (of mean 1), by which q was summed, they are q − w: Σ_{j≠i} K_ij w_j.

    K_ij ≤ 1, so a degree counts neighbors that are near in the scale of the kernel. Near 0 the walk practically never
    leaves the row, and an eigenvector with λ ≈ 1 is spent on it. Differences below 1e-16 of q are lost: 0 is < 1e-15.
    Cost: one pass over q, one block in memory.
    """
    parts = map_blocks(degrees_block, [(b,) for b in range(blocks)], q=q, limit=limit, weights=weights)
    starts = offsets(part[0] for part in parts)
    smallest, owner = min((part[1], b) for b, part in enumerate(parts))
    first = np.concatenate([part[4] + starts[b] for b, part in enumerate(parts)])[:NAMED]
    row = int(starts[owner]) + parts[owner][2]
    return EffectiveDegrees(smallest, row, sum(part[3] for part in parts), limit, tuple(first.tolist()))


def degrees_block(b: int, *, q: str, limit: float, weights: str) -> tuple[int, float, int, int, Array]:
    """Rows, smallest degree and its row, number of rows below the limit and the first of them, of one block."""
    own = read_array(f"{weights}/{b}") if weights else 1.0
    degree = read_array(f"{q}/{b}").astype(np.float64).ravel() - own
    if not len(degree):
        return 0, float("inf"), 0, 0, np.zeros(0, np.int64)
    low, where = np.flatnonzero(degree < limit), int(np.argmin(degree))
    return len(degree), max(0.0, float(degree[where])), where, len(low), low[:NAMED]


# ------------------------------------------------------------------------------------------------------ separation
# Which eigenvectors are determined: residual against gap, groups of close eigenvalues, eigenvalues that are 1.

CLOSE = 10.0
"""A gap of at most ten residuals: the vectors may be turned by sin θ ≥ .1, some six degrees."""
WEIGHT_ROUNDING = 2.0**-24
"""Relative rounding of float32 weights."""
ROUNDING = 1e-14
NEAR = 1e-7


@dataclass(frozen=True)
class Separation:
    """How far each of m eigenvectors is determined by what was computed."""

    gap: Array
    """(m,) distance to the nearest other eigenvalue."""
    sin: Array
    """(m,) bound on the sine of the angle between the vector and the true one, at most 1."""
    groups: tuple[tuple[int, int], ...]
    """First and last (counted from 0) of the coordinates that may be rotated among each other."""
    cut: bool
    """The last coordinate cannot be distinguished from the first one left out: ask for one coordinate more or fewer."""


def separation(eigenvalues: Array, residuals: Array, left_out: float | None = None) -> Separation:
    """sin θ ≤ residual / gap of single vectors and of groups (Davis & Kahan 1970).

    ``eigenvalues`` (m,) descending with ``residuals`` ‖Sv − λv‖, and the largest one ``left_out`` (None if there is no
    other). The residual counts as at least 2⁻²⁴ (1 − λ): rounding the weights to float32 changes the Dirichlet form
    Σ w_ij (f_i − f_j)² by this share, so not even an exact solve separates closer eigenvalues. Neighbors whose gap
    is at most ten residuals form a group, in which the basis is one of many. The trivial eigenvalue 1 is known exactly
    and no neighbor. Cost: O(m).

    >>> separation(np.array([0.9, 0.5, 0.5]), np.full(3, 1e-8), 0.2).groups
    ((1, 2),)
    """
    values, m = np.asarray(eigenvalues, np.float64), len(eigenvalues)
    error = np.maximum(np.asarray(residuals, np.float64), np.maximum(WEIGHT_ROUNDING * np.abs(1 - values), ROUNDING))
    outer = -np.inf if left_out is None else float(left_out)
    below = np.abs(values - np.append(values[1:], outer))
    above = np.append(np.inf, below[:-1])
    larger = np.maximum(error, np.append(error[1:], 0.0))
    joined = below <= CLOSE * larger
    groups, first = [], 0
    for last in range(m):
        if joined[last] and last < m - 1:
            continue
        if last > first:
            groups.append((first, last))
        first = last + 1
    gap = np.minimum(above, below)
    sin = np.array([_bound(e, g) for e, g in zip(error, gap, strict=True)])
    return Separation(gap, sin, tuple(groups), bool(m and joined[-1]))


def _bound(error: float | np.floating, gap: float | np.floating) -> float:
    return float(error / gap) if gap > error else 1.0


def near_one(eigenvalues: Array, residuals: Array, tol: float, n: int) -> Array:
    """Which eigenvalues (m,) are 1 as far as the graph of n rows and the solve can show: near components.

    1 − λ ≤ max(min(r, tol), min(1e-7, n⁻²), 1e-14): the residual reaches 1; or the walk crosses more slowly than a
    path of n rows joined by weights of 1 (1 − λ ≈ π²/2n²), so that near-zero weights hold it up, not length; or
    rounding hides the difference. A residual above ``tol`` is that of an unfinished solve and shows nothing.

    >>> near_one(np.array([1 - 2e-13, 0.999]), np.array([1e-12, 1e-8]), 1e-6, 20_000).tolist()
    [True, False]
    """
    reach = np.minimum(np.asarray(residuals, np.float64), tol)
    return np.asarray(1 - np.asarray(eigenvalues) <= np.maximum(reach, max(min(NEAR, float(n) ** -2), ROUNDING)))


# -------------------------------------------------------------------------------------------------------- spectrum
# How many coordinates: the number at which the spectrum of the walk has a gap that is clear of chance.

CHANCE = 0.05
RATIO = 1.5
"""Rates that differ by less do not form a gap, however even the others lie."""
SHARE = 0.2
"""What a coordinate has to keep of the first when that has fallen to 1/e: the δ of the diffusion time."""
ONE = 1e-12


@dataclass(frozen=True)
class Choice:
    """A number of coordinates, and why."""

    n_components: int
    by_gap: bool
    """The spectrum has a clear gap there; otherwise the rule without one was taken."""
    ratio: float
    """(1 − λ_{m+1}) / (1 − λ_m)."""
    reason: str


def chosen_by_spectrum(eigenvalues: Array) -> Choice:
    """How many of M nontrivial eigenvalues λ_1 ≥ … ≥ λ_M to keep: m from 1 to M − 1, and why.

    The steps of log(1 − λ) say how much faster each coordinate decays than the one before. Eigenvalues with 1 − λ ≤
    :data:`ONE` (separate parts) are always kept. Of the steps among the others the largest, a share g of their sum, is
    a gap if the rate grows there by half at least, and if among as many random steps (exponential: levels without
    order) one is as large with probability ≤ K(1 − g)^(K − 1) ≤ .05 (K steps; Fisher 1929, first term, an upper bound).
    Then m is where it lies. Otherwise m ends at the separate parts, if there are any; or with the coordinates that keep
    a fifth of the first when that has fallen to 1/e, (λ_l/λ_1)^t > .2 with t = 1/(1 − λ_1): 1 − λ_l < 2.61 (1 − λ_1),
    the rule of ``delta`` at the time scale of the map.

    Found: k clusters k − 1; sphere 3 by gap; circle 2, interval and long swiss roll 1, square 3 by the rule, since a
    spectrum that grows by a power of l has no gap. Limits: it needs M of ten and more, twice what is expected; it sees
    levels, not what is new (a second dimension of a strip comes after the harmonics of the first: see
    :func:`~bigembed.quality.dimension.harmonics`), and takes coordinates of single rows for clusters, so leave them
    out first. Clusters of clusters have several gaps: the largest counts. Cost: O(M).

    >>> chosen_by_spectrum(1 - np.array([1e-4, 1.1e-4, 2e-4, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26])).n_components
    3
    """
    count = len(eigenvalues)
    if count < 2:
        raise InputError(f"choosing by the spectrum needs at least 2 eigenvalues besides the trivial one; got {count}")
    rates = np.maximum(1 - np.asarray(eigenvalues, np.float64), ONE)
    parts = min(int((rates <= ONE).sum()), count - 1)
    steps = np.maximum(np.diff(np.log(rates[parts:])), 0.0)
    if len(steps) and steps.sum() > 0:
        where = int(np.argmax(steps))
        share, ratio = float(steps[where] / steps.sum()), float(np.exp(steps[where]))
        chance = min(1.0, len(steps) * (1 - share) ** (len(steps) - 1)) if len(steps) > 1 else 1.0
        if chance <= CHANCE and ratio >= RATIO:
            m = parts + where + 1
            why = f"after coordinate {m} the rate 1 - λ grows {ratio:.3g} times, the largest gap of {count} eigenvalues"
            return Choice(m, True, ratio, f"{why} (by chance: p ≤ {chance:.2g})")
    if parts:
        ratio = float(rates[parts] / ONE)
        return Choice(parts, True, ratio, f"{parts} eigenvalues are 1: separate parts, and no clear gap beyond them")
    m = min(int((rates < (1 + np.log(1 / SHARE)) * rates[0]).sum()), count - 1)
    kept = "coordinate keeps" if m == 1 else "coordinates keep"
    why = f"no gap is clear of chance; {m} {kept} a fifth of the first at its own time scale"
    if m == count - 1:
        why += ", all that can be judged: compute more eigenvalues to see where they end"
    return Choice(m, False, float(rates[m] / rates[m - 1]), why)
