"""From the transitions between landmarks to their places on a map: diffusion time, potentials, metric scaling.

Everything here but the stage is a function of arrays (L, L) or smaller, in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from bigembed.estimator.graph_input import GraphShape
from bigembed.linalg.eigenpairs import extremes, signs_of
from bigembed.maps.kernels import squared_distances
from bigembed.maps.phate.landmarks import landmark_count
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_array, write_array

# ------------------------------------------------------------------------------------------------------------ time
# The diffusion time where the von Neumann entropy of Pᵗ goes over from a quick fall (noise) to a slow one (structure).

LEAST = float(np.finfo(np.float64).eps)
NEARLY = 1.1
"""Times the least error of two lines, up to which another place fits nearly as well."""


def entropies(values: Array, count: int) -> Array:
    """Return H(t) = −Σ η log η with η = σᵗ/Σ σᵗ, t = 1 … count (Moon et al. 2019).

    σ are the singular values of P, which the authors' program takes.

    >>> entropies(np.array([1.0, 1.0]), 2).round(4).tolist(), entropies(np.array([1.0, 0.0]), 1).round(4).tolist()
    ([0.6931, 0.6931], [0.0])
    """
    power, out = np.array(values, np.float64), np.empty(count)
    for t in range(count):
        share = power / power.sum() + LEAST
        out[t] = -(share @ np.log(share))
        power = power * values
    return out


FALL = 0.2
"""Share of its largest |value| that a curve with a knee falls by at the least."""
RESTS = 0.75
"""Of how much a curve falls in a doubling of time before and after: so little between is a rest, and two knees."""


@dataclass(frozen=True)
class Knee:
    """Where a falling curve has its knee, between which places it might be as well, and whether it is clear.

    It is where these places are within a factor of three, and do not end with the curve, and the curve falls, once.
    ``several``: its two knees, where it falls, rests and falls again.
    """

    at: int
    first: int
    last: int
    clear: bool
    several: tuple[int, ...] = ()


def knee_of(curve: Array) -> Knee:
    """Return the place i, counted from 0, where two lines fit a curve with the least sum of |errors|.

    One is on the points up to i, the other on those from i on. Each is the line of least squares; the second one of the
    points from i − 1 on, as the authors' program has it, so that the same place is found. The ends have no knee.

    >>> knee_of(np.array([9.0, 6.0, 3.0, 0.0, 0.0, 0.0, 0.0])).at
    3
    """
    error = _misfits(curve)
    near = np.flatnonzero(error <= NEARLY * error.min() + 1e-9 * float(np.abs(curve).max(initial=1.0)))
    first, last, several = int(near[0]) + 1, int(near[-1]) + 1, _knees(curve)
    falls = float(curve[0] - curve[-1]) > FALL * float(np.abs(curve).max(initial=0.0))
    clear = falls and last <= 3 * first and last < len(curve) - 2 and not several
    return Knee(int(np.argmin(error)) + 1, first, last, clear, several)


def _knees(curve: Array) -> tuple[int, ...]:
    """Return both knees of a curve that falls, rests, and falls again by no less; of any other nothing.

    By how much it falls from t to 2t: with one knee that grows, and then dies out; a straight end, along which it grows
    again, falls by less than the beginning.
    """
    half = len(curve) // 2
    if half < 3:
        return ()
    fall = curve[:half] - curve[1 : 2 * half : 2]
    before, after = np.maximum.accumulate(fall), np.maximum.accumulate(fall[::-1])[::-1]
    deepest = np.where(after >= before, RESTS * before - fall, 0.0)
    rest = int(np.argmax(deepest))
    if deepest[rest] <= 0.0:
        return ()
    early, late = curve[: 2 * rest + 2], curve[rest:]
    return int(np.argmin(_misfits(early))) + 1, rest + int(np.argmin(_misfits(late))) + 1


def _misfits(curve: Array) -> Array:
    """Return the sum of |errors| of two lines that meet at each place between the ends."""
    return np.array([_misfit(curve[: i + 1], 0) + _misfit(curve[i - 1 :], 1) for i in range(1, len(curve) - 1)])


def _misfit(y: Array, left_out: int) -> float:
    """Return Σ |error| of the line of least squares of evenly spaced points, without the first ones."""
    x = np.arange(len(y)) - (len(y) - 1) / 2
    slope = float(x @ y) / float(x @ x)
    return float(np.abs(y - y.mean() - slope * x)[left_out:].sum())


# ------------------------------------------------------------------------------------------------------- potential

ADDED = 1e-7
"""Added to a probability before its logarithm is taken."""


def potentials(transitions: Array, gamma: float) -> Array:
    """Return the informational potentials of rows of Pᵗ (Moon et al. 2019).

    They are −log(p + 1e-7) for γ = 1, p for γ = −1, and 2 p^{(1−γ)/2}/(1 − γ) between.

    >>> potentials(np.array([[0.25]]), 0.0).tolist(), potentials(np.array([[0.25]]), -1.0).tolist()
    ([[1.0]], [[0.25]])
    """
    if gamma == 1:
        return np.asarray(-np.log(transitions + ADDED))
    power = (1.0 - gamma) / 2
    return np.asarray(transitions**power / power)


def modes_left(power: Array) -> float:
    """Return the trace of Pᵗ without 1 for each part that nobody leaves: how many modes the walk remembers after t.

    >>> modes_left(np.eye(3)), modes_left(np.full((4, 4), 0.25))
    (0.0, 0.0)
    """
    walk: Any = csr_array(power > 0)
    parts, _ = connected_components(walk, directed=False)
    return float(np.trace(power)) - int(parts)


def potential_distances(power: Array, gamma: float) -> Array:
    """Return distances (L, L) between the potentials of the rows of Pᵗ."""
    found = potentials(power, gamma)
    squared = squared_distances(found, found)
    squared = (squared + squared.T) / 2
    np.fill_diagonal(squared, 0.0)
    return np.sqrt(squared)


# --------------------------------------------------------------------------------------------------------- scaling
# Metric multidimensional scaling from the classical one.

STEPS = 500
"""Of the descent, at the most."""
SETTLED = 1e-8
"""A step that takes a smaller share off the stress is the last."""


def classical_points(distances: Array, m: int) -> Array:
    """Return points (n, m) by classical scaling of distances.

    They are the leading eigenvectors of −½ H D² H times the roots of their eigenvalues; zeros where an eigenvalue is
    not positive.
    """
    n, squared = len(distances), np.square(distances)
    mean = squared.mean(axis=0)
    kept = min(m, n)
    inner = -0.5 * (squared - mean - mean[:, None] + mean.mean())
    values, vectors = linalg.eigh(inner, subset_by_index=[n - kept, n - 1])
    out = np.zeros((n, m))
    out[:, :kept] = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    return out


@dataclass(frozen=True)
class Scaled:
    """Points (L, m) by metric scaling, Kruskal's stress-1 of them and of the start, and whether the descent rested."""

    points: Array
    stress: float
    started: float
    steps: int
    converged: bool


def metric_points(distances: Array, start: Array, steps: int = STEPS) -> Scaled:
    """Return points with the least Σ_{i<j} (‖y_i − y_j‖ − d_ij)², from a start, by at most so many steps of L-BFGS."""
    shape, count = start.shape, len(start)
    unit = float(np.sqrt(np.square(distances).mean()))
    if not unit > 0:
        return Scaled(start, 0.0, 0.0, 0, True)
    distances = distances / unit

    def objective(flat: Array) -> tuple[float, Array]:
        points = flat.reshape(shape)
        between = cdist(points, points)
        rest = between - distances
        total = float(np.einsum("ij,ij->", rest, rest)) / count**2
        np.divide(rest, between, out=rest, where=between > 0)
        np.fill_diagonal(rest, 0.0)
        return total, (4.0 / count**2) * (rest.sum(axis=1)[:, None] * points - rest @ points).ravel()

    begin = start.ravel() / unit
    first = objective(begin)[0]
    if not steps:
        return Scaled(start, float(np.sqrt(first)), float(np.sqrt(first)), 0, True)
    options: Any = {"maxiter": steps, "maxfun": 4 * steps, "ftol": SETTLED, "gtol": 0.0}
    descend: Any = minimize
    found = descend(objective, begin, jac=True, method="L-BFGS-B", options=options)
    points, count_of_steps = unit * np.asarray(found.x).reshape(shape), int(found.nit)
    return Scaled(points, float(np.sqrt(found.fun)), float(np.sqrt(first)), count_of_steps, count_of_steps < steps)


def in_axes(points: Array) -> Array:
    """Return points about their mean, turned to their principal axes, the largest |entry| of each column positive."""
    centered = points - points.mean(axis=0)
    turn = linalg.svd(centered, full_matrices=False)[2]
    turned = np.zeros(points.shape)
    turned[:, : len(turn)] = centered @ turn.T
    return turned * signs_of([extremes(turned)])


# ----------------------------------------------------------------------------------------------------------- stage


@dataclass(frozen=True)
class PhateOptions:
    """What is asked of the diffusion between landmarks, and of the map."""

    n_components: int
    n_neighbors: int
    decay: float
    n_landmarks: int
    t: int | str
    t_max: int
    gamma: float
    mds: str
    seed: int


def potential_stage(graph: GraphShape, asked: PhateOptions) -> Stage:
    """``points`` (L, m) of the landmarks, about their mean, and ``entropy`` (t_max,)."""
    count, m = landmark_count(graph, asked.n_landmarks), asked.n_components
    auto = isinstance(asked.t, str)
    cost = Cost.of(
        reads=[ArraySpec("operator", count, count)],
        writes=[ArraySpec("points", count, m), ArraySpec("entropy", asked.t_max)],
        task=[ArraySpec("distances between landmarks", count, count, times=7)],
        passes=0,
        maps=1,
        serial_flops=(30.0 if auto else 20.0) * float(count) ** 3,
    )
    parameters = {"n_components": m, "t": asked.t, "gamma": asked.gamma, "mds": asked.mds, "t_max": asked.t_max}
    return Stage("potential", ("operator",), parameters, partial(run_potential, asked=asked), cost)


def run_potential(context: Context, asked: PhateOptions) -> dict[str, Any]:
    paths = {"operator": context.of("operator", "operator"), "out": context.path("")}
    [found] = map_blocks(scale_landmarks, [()], asked=asked, **paths)
    return dict(found)


def scale_landmarks(*, operator: str, out: str, asked: PhateOptions) -> dict[str, Any]:
    """Write the entropies and the points of the landmarks; return t, the stress, and how the descent ended."""
    transitions = read_array(operator)
    curve = entropies(linalg.svdvals(transitions), asked.t_max)
    knee = knee_of(curve)
    t = knee.at if isinstance(asked.t, str) else int(asked.t)
    write_array(f"{out}entropy", curve)
    power = np.linalg.matrix_power(transitions, t)
    del transitions
    modes, distances = modes_left(power), potential_distances(power, asked.gamma)
    del power
    start = classical_points(distances, asked.n_components)
    scaled = metric_points(distances, start, 0 if asked.mds == "classical" else STEPS)
    points = in_axes(scaled.points)
    write_array(f"{out}points", points)
    return {
        "t": t,
        "knee": [knee.first, knee.at, knee.last],
        "clear": knee.clear,
        **({"knees": list(knee.several)} if knee.several else {}),
        "stress": scaled.stress,
        "classical_stress": scaled.started,
        "steps": scaled.steps,
        "converged": scaled.converged,
        "n_components": asked.n_components,
        "potential": float(np.median(distances)),
        "modes": modes,
        "spread": points.std(axis=0).tolist(),
    }
