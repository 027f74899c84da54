"""Which coordinates are new, and which are functions of earlier ones (harmonics): local linear regression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks, one_blas_thread
from bigembed.blocks.stripes import spread, working
from bigembed.store.arrays.io import read_rows

ROWS = 2_000
HARMONIC = 0.35
NEARBY, LOCAL = 0.1, 0.3
"""Among the nearest tenth of the rows regression has to explain 91 % of what a coordinate does there."""
NEIGHBORS = 20
"""Rows that a fit is made from, and two more for every coordinate that it is a function of."""
STRIPE = 250
"""Rows whose distances to all others a thread has at a time."""
RIDGE = 1e-3
STEPS, STEPPED = 10, 0.5
_TAG = 12


@dataclass(frozen=True)
class Harmonics:
    """What regression on earlier coordinates leaves of each of m coordinates."""

    residual: Array
    """(m,) r_l in units of the standard deviation of ψ_l; 1 where nothing was there to regress on."""
    stepped: Array
    """(m,) bool: the coordinate jumps between parts of the rows (or is constant on the sample), and is not judged."""
    harmonic: Array
    """(m,) bool: r_l < 0.35 and ``local`` < 0.3, a function of earlier coordinates."""
    local: Array
    """(m,) the same residual in units of the standard deviation of ψ_l among the nearest tenth of the rows."""
    rows: int
    """Rows of the sample."""


def harmonics(sample: Array, limit: float = HARMONIC) -> Harmonics:
    """Residual r_l of the leave-one-out local linear regression of ψ_l on the earlier new coordinates.

    r_l² = Σ_i (ψ_l(i) − fit_{−i}(ψ_earlier(i)))² / Σ_i (ψ_l(i) − mean)² over the rows of ``sample`` (s, m); r_1 = 1.
    Near 0 the coordinate is a function of earlier ones: on an interval all of cos(lx) are functions of cos x.

    It differs from the source (Gaussian weights of width median distance / 3, all earlier coordinates) in three ways.
    The weights exp(−3 r²/h²) go over the 20 + 2p nearest rows, h the distance of the last, so that the scale follows
    the rows (the median is 0 between equal rows, and too wide for fast harmonics). Only coordinates found new are
    regressed on, since a function of all earlier ones is one of them: p stays small. A coordinate with more than half
    of its range in its ten widest gaps jumps between parts (clusters, outlying rows): what is left of it inside the
    parts is too small to see, so it counts as new and is not regressed on.

    On eigenvectors of 2 000–5 000 rows of circle, interval, sphere, sheets and swiss roll the harmonics among the
    first ten have r ≤ .17 (one of the roll .34), new coordinates r ≥ .90; noise has r ≥ 1. At the limit, .35, 88 % of
    the variance is explained.

    Where earlier coordinates set groups of rows apart, all but overlapping, the level of each group is explained and r
    is small, though ψ_l separates groups that overlap. So what is left is also compared with the spread of ψ_l among
    the tenth of the rows that is nearest by the earlier coordinates: by a harmonic that is explained too (it leaves
    .01–.25 on circle, sphere, sheets, torus, Gaussian rows; .33–.4 of the fourth of a long strip), the levels of groups
    are not (six Gaussian clusters that touch: r = .06–.11, local 1.2–2.3; coordinates 3 and 4 of handwritten digits,
    which raise the share of digits classified right from .80 to .94: r = .12 and .19, local .49 and .38).

    Cost: O(m s² p) for the neighbors, O(m s p³) for the fits; below 1 s for s = 2000, m = 10. In one process.

    Reference: C. Dsilva, R. Talmon, R. Coifman, I. Kevrekidis, Parsimonious representation of nonlinear dynamical
    systems through manifold learning, ACHA 44 (2018).

    >>> x = np.linspace(0, np.pi, 200)
    >>> harmonics(np.cos(np.outer(x, [1, 2, 3]))).harmonic.tolist()
    [False, True, True]
    """
    s, m = sample.shape
    if not s:
        return Harmonics(np.ones(m), np.ones(m, bool), np.zeros(m, bool), np.ones(m), 0)
    unit, moving = _standardized(np.asarray(sample, np.float64))
    stepped = _stepped(unit) | ~moving
    residual, local, new = np.ones(m), np.ones(m), list[int]()
    near: Near | None = None
    with one_blas_thread(), working():
        for l in np.flatnonzero(~stepped).tolist():
            if new and s > 2 * len(new) + 2:
                earlier = np.take(unit, new, axis=1)
                near = near or Near.of(earlier)
                residual[l] = float(np.sqrt(np.mean((unit[:, l] - local_linear(earlier, unit[:, l], near)) ** 2)))
                if residual[l] < limit:
                    around = local_spread(unit[:, l], near)
                    local[l] = residual[l] / around if around > 0 else 1.0
            if not (residual[l] < limit and local[l] < LOCAL):
                new.append(l)
                near = None
    return Harmonics(residual, stepped, (residual < limit) & (local < LOCAL), local, s)


@dataclass(frozen=True)
class Near:
    """The nearest other rows of each row by number, ascending: found once for all functions fitted on the same rows."""

    fitted: Array
    """(s, 20 + 2p), those that a fit is made from."""
    around: Array
    """(s, K) the nearest tenth of the rows, or as many as those."""

    @classmethod
    def of(cls, x: Array) -> Self:
        """Those of the rows of x (s, p), in stripes on the threads that are idle."""
        s, p = x.shape
        few = min(NEIGHBORS + 2 * p, s - 1)
        many = min(max(few, round(NEARBY * s)), s - 1)
        norms = np.einsum("ip,ip->i", x, x)
        found = spread([partial(nearest_rows, x, norms, *part, (few, many)) for part in bounds(s, STRIPE)])
        return cls(*(np.concatenate(part) for part in zip(*found, strict=True)))


def nearest_rows(x: Array, norms: Array, start: int, stop: int, counts: tuple[int, ...]) -> list[Array]:
    """Numbers of the nearest other rows of the rows ``start:stop`` of x (s, p), ascending, for each count of them."""
    apart = norms[start:stop, None] + norms
    apart -= 2 * x[start:stop] @ x.T
    apart[np.arange(stop - start), np.arange(start, stop)] = np.inf
    order = np.argpartition(apart, [count - 1 for count in counts], axis=1)
    return [np.sort(order[:, :count], axis=1) for count in counts]


def local_linear(x: Array, y: Array, near: Near) -> Array:
    """Leave-one-out local linear fit of y (s,) at the rows of x (s, p), s > 2p + 2."""
    s, p = x.shape
    k = near.fitted.shape[1]
    offset = x[near.fitted] - x[:, None]
    squared = np.einsum("ikp,ikp->ik", offset, offset)
    width = squared.max(axis=1)
    width[width == 0] = 1.0
    weight = np.exp(-3 * squared / width[:, None])
    basis = np.concatenate([np.ones((s, k, 1)), offset / np.sqrt(width)[:, None, None]], axis=2)
    weighted = basis * weight[..., None]
    gram = weighted.transpose(0, 2, 1) @ basis
    slopes = np.arange(1, p + 1)
    gram[:, slopes, slopes] += RIDGE * weight.sum(axis=1)[:, None]
    right = weighted.transpose(0, 2, 1) @ y[near.fitted][..., None]
    return np.asarray(np.linalg.solve(gram, right)[:, 0, 0])


def local_spread(y: Array, near: Near) -> float:
    """Standard deviation of y (s,) among the nearest tenth of the rows, the root of its mean square."""
    return float(np.sqrt(np.mean(np.var(y[near.around], axis=1))))


def _standardized(sample: Array) -> tuple[Array, Array]:
    """Columns of mean 0 and mean square 1, and which of them vary by more than rounding."""
    centered = sample - sample.mean(axis=0)
    size = np.sqrt(np.mean(centered**2, axis=0))
    moving = size > 1e-12 * np.abs(sample).max(axis=0, initial=0.0)
    return centered / np.where(moving, size, 1.0), moving


def _stepped(unit: Array) -> Array:
    """Which columns have more than half of their range in their ten widest gaps (fewer of fewer than 200 rows)."""
    gaps = np.sort(np.diff(np.sort(unit, axis=0), axis=0), axis=0)[::-1]
    widest = gaps[: max(1, min(STEPS, len(unit) // 20))].sum(axis=0)
    return np.asarray(widest > STEPPED * gaps.sum(axis=0))


def sampled(right: str, sizes: tuple[int, ...], seed: int, wanted: int = ROWS) -> Array:
    """At most ``wanted`` rows (s, m) of the coordinates under ``right/b``, blocks of ``sizes`` rows: a uniform sample.

    Each block gives its share of the rows, drawn by the seed and its number. Reads only the chunks of these rows.
    """
    n, start, tasks = sum(sizes), 0, []
    wanted = min(wanted, n)
    for b, size in enumerate(sizes):
        share = (start + size) * wanted // n - start * wanted // n
        tasks.append((b, size, share))
        start += size
    return np.concatenate(map_blocks(sample_block, tasks, right=right, seed=seed))


def sample_block(b: int, size: int, share: int, *, right: str, seed: int) -> Array:
    """``share`` rows of one block of coordinates, (share, m), in their order."""
    chosen = np.sort(np.random.default_rng([seed, _TAG, b]).choice(size, share, replace=False))
    return read_rows(f"{right}/{b}", chosen)
