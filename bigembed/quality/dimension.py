"""Intrinsic dimension with standard errors, from the distances to the nearest neighbors: one pass over the lists."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array

KEPT = 0.9
"""Share of the ratios r₂/r₁ that are taken as they are; of the others only that they are larger."""
UNIT = 2.0**-20
"""Logarithms are added as multiples of it: whole numbers have the same sum in any order."""
DEPENDENCE = 2.0
"""Rows that are each other's neighbors share distances: a distance counts for two rows at most."""


@dataclass(frozen=True)
class Estimate:
    """A dimension."""

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

    def run(context: Context) -> dict[str, Any]:
        blocks = len(read_array(context.of("order", "starts"))) - 1
        return _chosen(intrinsic_dimension(context.of(lists, squared), blocks))

    return Stage("dimension", ("order", lists), {}, run, Cost(read=4 * n * n_neighbors, scalar_ops=n * n_neighbors))


def dimension_of_pairs_stage(n: int) -> Stage:
    """The stage that judges coordinates from the distances of all pairs."""

    def run(context: Context) -> dict[str, Any]:
        return _chosen(dimension_of_pairs(context.of("graph")))

    return Stage("dimension", ("graph",), {}, run, Cost(read=8 * n**2, scalar_ops=n**2, memory=24 * n**2))


def _chosen(found: Dimension) -> dict[str, Any]:
    chosen = found.likelihood if found.likelihood.value is not None else found.two_nearest
    return {"value": chosen.value or 0.0, **asdict(found)}


def dimension_within_stage(radius: float, edges: int) -> Stage:
    """The stage that judges coordinates from the edges of a graph of a radius: one pass over them."""

    def run(context: Context) -> dict[str, Any]:
        blocks = len(read_array(context.of("graph", "starts"))) - 1
        found = dimension_within(context.of("graph"), blocks, radius)
        return {"value": found.likelihood.value or 0.0, **asdict(found)}

    return Stage("dimension", ("graph",), {"radius": radius}, run, Cost(read=4 * edges, scalar_ops=edges))
