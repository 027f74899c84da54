"""Eigenvalues of the walk beside those of the operator that it tends to, on rows drawn evenly and 10 : 1 unevenly.

    python benchmarks/spectra.py

Circle, sphere, flat torus and square sheet of 20 000 rows, k = 15. The first five distinct eigenvalues of the operator
are known, or computed on a fine grid (every density depends on one coordinate only, so the variables separate). Those
of the walk that belong to each are averaged. ``ratios``: the largest error of μ_l/μ_1, in percent. ``first``: the error
of μ_1 itself, in percent, where the walk has the units of the rows (a target, or one scale).

    default (no target)     Laplace–Beltrami of the metric in which the rows are even: Δ f = −μ p^{2/d} f for d = 2
    a target, or α          Δ + c ∇log p · ∇,  c = 0 (Laplace–Beltrami, α = 1), 1 (Fokker–Planck, ½), 2 (random walk, 0)
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import table
from scipy.linalg import eigh

import bigembed as be
from bigembed.errors import BigembedWarning
from bigembed.maps.kernels import DRIFT

DISTINCT, SAME = 5, 1e-3
SLOPE = 9 / 11
"""Of the uneven density p = 1 + s cos x: 10 : 1 between its ends."""
GRID, WAVES = 600, 9
FIXED = {"fixed, α = 1": 1.0, "fixed, α = ½": 0.5, "fixed, α = 0": 0.0}


@dataclass(frozen=True)
class Manifold:
    """Rows from a coordinate x, on which their density depends, and another in [0, 1)."""

    dimension: int
    ends: tuple[float, float]
    """Of x."""
    periodic: bool
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray]
    area: Callable[[np.ndarray], np.ndarray] = np.ones_like
    """J(x): of the rows at x, all values of the other coordinate."""
    twice: bool = True
    """Waves along the other coordinate come in pairs."""


def on_circle(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(x), np.sin(x)])


def on_sphere(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    turn = 2 * np.pi * u
    return np.column_stack([np.sin(x) * np.cos(turn), np.sin(x) * np.sin(turn), np.cos(x)])


def on_torus(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.column_stack([on_circle(x, u), on_circle(2 * np.pi * u, u)])


def on_sheet(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.pi * u])


SETS = {
    "circle": Manifold(1, (0, 2 * np.pi), True, on_circle),
    "sphere": Manifold(2, (0, np.pi), False, on_sphere, np.sin),
    "torus": Manifold(2, (0, 2 * np.pi), True, on_torus),
    "sheet": Manifold(2, (0, np.pi), False, on_sheet, twice=False),
}


def density(x: np.ndarray, uneven: bool) -> np.ndarray:
    return 1 + SLOPE * np.cos(x) * uneven


def sample(shape: Manifold, n: int, uneven: bool, rng: np.random.Generator) -> np.ndarray:
    """Rows of the density; by its distribution function on a grid."""
    x = np.linspace(*shape.ends, 100_001)
    p = density(x, uneven) * shape.area(x)
    below = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2)])
    return shape.rows(np.interp(rng.uniform(0, below[-1], n), below, x), rng.uniform(size=n))


def spectrum(shape: Manifold, uneven: bool, c: float, metric: bool) -> np.ndarray:
    """Eigenvalues of −(Δ + c ∇log p · ∇), over p^{2/d} where ``metric``, with multiplicity.

    For each wave number m along the other coordinate −(w f′)′ + w m²/J² f = μ w r f with w = J p^c, r = 1 or p^{2/d}:
    by finite volumes on a grid of x.
    """
    low, high = shape.ends
    step = (high - low) / GRID
    middle, edge = low + step * (np.arange(GRID) + 0.5), low + step * np.arange(1, GRID + 1)
    flux = shape.area(edge) * density(edge, uneven) ** c / step**2
    if not shape.periodic:
        flux[-1] = 0.0
    stiff = np.diag(flux + np.roll(flux, 1)) - np.diag(flux[:-1], 1) - np.diag(flux[:-1], -1)
    stiff[0, -1] = stiff[-1, 0] = -flux[-1]
    area, p = shape.area(middle), density(middle, uneven)
    mass = area * p**c
    root = 1 / np.sqrt(mass * (p ** (2 / shape.dimension) if metric else 1.0))
    found = []
    for m in range(WAVES if shape.dimension > 1 else 1):
        matrix = stiff + np.diag(mass * m**2 / area**2)
        values = eigh(root[:, None] * matrix * root, eigvals_only=True, subset_by_index=[0, 2 * WAVES])
        found += [values] * (2 if m and shape.twice else 1)
    return np.sort(np.concatenate(found))[1:]


def levels(values: np.ndarray) -> list[slice]:
    """Where the first distinct eigenvalues lie."""
    ends = np.flatnonzero(np.diff(values) > SAME * values[:-1])[:DISTINCT] + 1
    return [slice(int(start), int(stop)) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]


def compared(graph: be.NeighborGraph, exact: np.ndarray, **given: Any) -> dict[str, Any]:
    """Errors of the eigenvalues of a map, in percent."""
    place = levels(exact)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        found = be.DiffusionMap(place[-1].stop, tol=1e-4, t=0, **given).fit(graph)
    mine = np.array([found.generator_eigenvalues_[at].mean() for at in place])
    truth = np.array([exact[at].mean() for at in place])
    ratios = 100 * ((mine / mine[0]) / (truth / truth[0]) - 1)
    out = {"ratios": float(np.abs(ratios).max()), "pairs": place[-1].stop}
    if given.get("target") or given.get("bandwidth") == "fixed":
        out["first"] = float(100 * (mine[0] / truth[0] - 1))
    return out | {"seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    given = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in given.sets:
        shape = SETS[name]
        for uneven in (False, True):
            graph = be.build_neighbor_graph(sample(shape, given.n, uneven, np.random.default_rng(0)), given.k)
            label = f"{name}, {'uneven' if uneven else 'even'}"
            within = spectrum(shape, uneven, 1 - 2 / shape.dimension, metric=True)
            rows[f"{label}: default"] = compared(graph, within)
            for target, c in DRIFT.items():
                rows[f"{label}: {target}"] = compared(graph, spectrum(shape, uneven, c, False), target=target)
            for kind, alpha in FIXED.items():
                exact = spectrum(shape, uneven, 2 - 2 * alpha, False)
                rows[f"{label}: {kind}"] = compared(graph, exact, bandwidth="fixed", alpha=alpha)
    part = {} if len(given.sets) == len(SETS) else {"sets": "-".join(given.sets)}
    table("spectra", {"n": given.n, "k": given.k, **part}, rows)


if __name__ == "__main__":
    main()
