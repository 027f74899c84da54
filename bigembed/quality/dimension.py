"""Intrinsic dimension with standard errors, and which coordinates are new or functions of earlier ones (harmonics)."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from bigembed.runtime.blocks import Array, bounds, map_blocks, one_blas_thread
from bigembed.runtime.executors import chosen_executor, run_on_idle_threads
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_rows

# ------------------------------------------------------------------------------------------------------- dimension
# Intrinsic dimension with standard errors, from the distances to the nearest neighbors: one pass over the lists.

KEPT = 0.9
"""Share of the ratios r₂/r₁ that are taken as they are; of the others only that they are larger."""
UNIT = 2.0**-20
"""Logarithms are added as multiples of it: whole numbers have the same sum in any order."""
DEPENDENCE = 2.0
"""Rows that are each other's neighbors share distances: a distance counts for two rows at most."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the intrinsic dimension, with its standard error."""

    value: float | None
    """None where the distances do not determine it."""
    standard_error: float | None
    rows: int


@dataclass(frozen=True)
class Dimension:
    """Estimates from nearest neighbors."""

    two_nearest: Estimate
    likelihood: Estimate
    duplicates: int
    """Rows left out: identical to their nearest neighbor."""


def intrinsic_dimension(squared: str, blocks: int) -> Dimension:
    """Two estimates from squared distances to the k nearest neighbors, ascending, ``squared/b`` (rows, k).

    ``two_nearest``: μ = r₂/r₁ has P(μ > x) = x^−d (Facco et al. 2017), so log μ is exponential; the rate d by maximum
    likelihood, the largest tenth (outlying rows, near-duplicates) known only to exceed the others:
    d = N / (Σ log μ + (n − N) log μ_(N)), N = .9 n. ``likelihood``: d = (n(k − 1) − 1) / Σ_i Σ_{j<k} log(r_k/r_j),
    Levina & Bickel's with the averages of MacKay & Ghahramani (2005); k ≥ 2.

    Standard errors d √(2/N) and d √(2/(n(k − 1))): √2 of those of independent rows. Measured over 40 draws on flat
    tori, cubes, spheres and Gaussian rows of dimension 1 to 10: 1.0–1.5 and .97–1.6 times those (k = 15). They are
    errors of sampling, not of the model: edges of a set and uneven density bias both downward, the second more
    (n = 1000–2000: cube of dimension 5: 4.7 and 4.5, 10: 8.4 and 8.0; sphere of dimension 10: 9.3 and 8.9), noise
    thicker than r₁ upward, quantized rows (ties) upward without bound.

    Cost: one pass over the lists; 65 536 counts in one process. The same bytes for any blocks.

    References: E. Facco et al., Sci. Rep. 7 (2017); E. Levina, P. Bickel, NIPS (2004).
    """
    return _from_logarithms(map_blocks(logarithms_block, [(b,) for b in range(blocks)], squared=squared))


def dimension_of_pairs(graph: str) -> Dimension:
    """The dimension where all pairs are one block, ``graph/squared/0`` (n, n): the k = n − 1 nearest are all others."""
    return _from_logarithms(map_blocks(pairs_block, [(0,)], graph=graph))


def _from_logarithms(parts: list[dict[str, Any]]) -> Dimension:
    counts = np.zeros(1 << 16, np.int64)
    for part in parts:
        counts[part["bins"][0]] += part["bins"][1]
    rows, total, k = sum(p["rows"] for p in parts), sum(p["sum"] for p in parts), parts[0]["k"]
    terms = rows * (k - 1)
    likelihood = _estimate(terms - 1, terms, total * UNIT, rows)
    return Dimension(_censored(counts), likelihood, sum(p["duplicates"] for p in parts))


def dimension_within(graph: str, blocks: int, radius: float) -> Dimension:
    """The likelihood of a graph of all rows within R of each other (Levina & Bickel at a fixed radius).

    d = (N − 1) / Σ log(R/r) over its N edges, each counted from both of its rows; standard error d √(2/N). Edges of
    length 0 are left out. One pass over the edges; the same bytes for any blocks.
    """
    parts = map_blocks(within_block, [(b,) for b in range(blocks)], graph=graph, radius=radius)
    edges, total, rows, duplicates = (sum(part[at] for part in parts) for at in range(4))
    return Dimension(Estimate(None, None, 0), _estimate(edges - 1, edges, total * UNIT, rows), duplicates)


def within_block(b: int, *, graph: str, radius: float) -> tuple[int, int, int, int]:
    """Of one block: edges longer than 0, Σ log R/r in units, rows that have any, rows with another one at 0."""
    squared, starts = read_array(f"{graph}/squared/{b}").astype(np.float64), read_array(f"{graph}/indptr/{b}")
    apart = squared > 0
    logs = np.maximum(np.log(radius) - 0.5 * np.log(squared[apart]), 0.0)
    longer = np.add.reduceat(apart.astype(np.int64), starts[:-1])  # the diagonal leaves no row empty
    zeros = np.diff(starts) - longer
    rows, duplicates = int(np.count_nonzero(longer)), int(np.count_nonzero(zeros > 1))
    return len(logs), int(np.rint(logs / UNIT).astype(np.int64).sum()), rows, duplicates


def logarithms_block(b: int, *, squared: str) -> dict[str, Any]:
    """Of one block: counts of log r₂/r₁ by the upper halves of their bit patterns, and Σ log r_k/r_j in units."""
    every = read_array(f"{squared}/{b}").astype(np.float64)
    used = every[(every[:, 0] > 0) & np.isfinite(every[:, -1])]
    logs = 0.5 * np.log(used)
    ratios = (logs[:, 1] - logs[:, 0]).astype(np.float32) if every.shape[1] > 1 else np.zeros(0, np.float32)
    sums = np.rint((logs[:, -1:] - logs[:, :-1]).sum(axis=1) / UNIT).astype(np.int64)
    return {
        "rows": len(used),
        "duplicates": int((every[:, 0] == 0).sum()),
        "k": every.shape[1],
        "bins": np.stack(np.unique(ratios.view(np.uint32) >> 16, return_counts=True)).astype(np.int64),
        "sum": int(sums.sum()),
    }


def pairs_block(b: int, *, graph: str) -> dict[str, Any]:
    """What :func:`logarithms_block` gives of sorted lists of all others."""
    near, far = (read_array(f"{graph}/{name}/{b}").astype(np.float64) for name in ("nearest", "rho_squared"))
    n, used = len(near), (near[:, 0] > 0) & np.isfinite(far)
    squared = read_array(f"{graph}/squared/{b}").reshape(n, n)
    np.fill_diagonal(squared, 1.0)
    logs = np.array([np.log(row.astype(np.float64)).sum() for row in squared[used]])
    near, far = near[used], far[used]
    ratios = (0.5 * (np.log(near[:, 1]) - np.log(near[:, 0])) if n > 2 else np.zeros(0)).astype(np.float32)
    return {
        "rows": len(near),
        "duplicates": int((read_array(f"{graph}/nearest/{b}")[:, 0] == 0).sum()),
        "k": n - 1,
        "bins": np.stack(np.unique(ratios.view(np.uint32) >> 16, return_counts=True)).astype(np.int64),
        "sum": int(np.rint(0.5 * ((n - 1) * np.log(far) - logs) / UNIT).astype(np.int64).sum()),
    }


def _censored(counts: Array) -> Estimate:
    """The rate of exponential numbers given by counts of bit patterns, the largest tenth of them censored."""
    rows = int(counts.sum())
    kept = int(np.ceil(KEPT * rows))
    bins = np.flatnonzero(counts)
    if not rows:
        return Estimate(None, None, 0)
    values = ((bins.astype(np.uint32) << 16) | np.uint32(0x8000)).view(np.float32).astype(np.float64)
    values[bins == 0] = 0.0
    before = np.minimum(np.cumsum(counts[bins]), kept)
    taken = np.diff(before, prepend=0)
    last = float(values[np.searchsorted(before, kept)])
    return _estimate(kept, kept, float((taken * values).sum()) + (rows - kept) * last, rows)


def _estimate(above: int, terms: int, total: float, rows: int) -> Estimate:
    if above < 1 or not total > 0:
        return Estimate(None, None, rows)
    value = above / total
    return Estimate(value, value * float(np.sqrt(DEPENDENCE / terms)), rows)


def dimension_stage(n: int, n_neighbors: int, lists: str = "search", squared: str = "squared") -> Stage:
    """Intrinsic dimension of the rows, from the distances to their neighbors: one pass over the lists.

    ``lists``: the stage that has them, ``squared`` by name, nearest first.
    """

    return Stage(
        "dimension",
        ("order", lists),
        {},
        partial(run_dimension, lists=lists, squared=squared),
        Cost.of(reads=[ArraySpec("squared/*", n, n_neighbors, "f4")], scalar_ops=n * n_neighbors),
        opens={lists: (squared,)},
    )


def run_dimension(context: Context, lists: str, squared: str) -> dict[str, Any]:
    blocks = len(read_array(context.of("order", "starts"))) - 1
    return _chosen(intrinsic_dimension(context.of(lists, squared), blocks))


def dimension_of_pairs_stage(n: int) -> Stage:
    """The stage that judges coordinates from the distances of all pairs."""
    cost = Cost.of([ArraySpec("squared/*", n, n)], task=[ArraySpec("distances", n, n, times=3)], scalar_ops=n**2)
    return Stage("dimension", ("graph",), {}, run_dimension_of_pairs, cost)


def run_dimension_of_pairs(context: Context) -> dict[str, Any]:
    return _chosen(dimension_of_pairs(context.of("graph")))


def _chosen(found: Dimension) -> dict[str, Any]:
    chosen = found.likelihood if found.likelihood.value is not None else found.two_nearest
    return {"value": chosen.value or 0.0, **asdict(found)}


def dimension_within_stage(radius: float, edges: int) -> Stage:
    """The stage that judges coordinates from the edges of a graph of a radius: one pass over them."""

    return Stage(
        "dimension",
        ("graph",),
        {"radius": radius},
        partial(run_dimension_within, radius=radius),
        Cost.of(reads=[ArraySpec("squared/*", edges, dtype="f4")], scalar_ops=edges),
    )


def run_dimension_within(context: Context, radius: float) -> dict[str, Any]:
    blocks = len(read_array(context.of("graph", "starts"))) - 1
    found = dimension_within(context.of("graph"), blocks, radius)
    return {"value": found.likelihood.value or 0.0, **asdict(found)}


# ------------------------------------------------------------------------------------------------------- harmonics
# Which coordinates are new, and which are functions of earlier ones (harmonics): local linear regression.

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
    with one_blas_thread(), chosen_executor():
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


def harmonics_arrays(s: int, m: int) -> list[ArraySpec]:
    """Return the arrays that :func:`harmonics` of s rows and m coordinates holds, in this process."""
    threads = min(-(-s // STRIPE), os.cpu_count() or 1)
    fitted = min(NEIGHBORS + 2 * m, s)
    return [
        ArraySpec("distances of stripes", STRIPE, s, times=3 * threads),
        ArraySpec("nearest rows", s, fitted + max(fitted, round(NEARBY * s)), times=2),
        ArraySpec("rows of a fit", s * fitted, m, times=4),
    ]


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
        found = run_on_idle_threads([partial(nearest_rows, x, norms, *part, (few, many)) for part in bounds(s, STRIPE)])
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
