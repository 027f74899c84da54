"""From geodesic distances to coordinates: by triangulation from landmarks, or by classical scaling of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator.graph_input import ISLAND, ISLANDS, parts_from
from bigembed.linalg.eigenpairs import extremes, signs_of
from bigembed.linalg.pairs import CenteredOperator, vector_blocks
from bigembed.maps import GraphCoordinates, graph_rows, mds, write_coordinates
from bigembed.maps.isomap import targets
from bigembed.maps.landmark_maps import FLOOR, classical, principal_axes, scaled, triangulated
from bigembed.neighbors.geodesic import KeptDistances
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import all_weights, values_path
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.rows import RowSource
from bigembed.rows.row_maps import Affine, AffineMap
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer
from bigembed.store import exchange, spaces, vector_space
from bigembed.store.arrays import read_array, read_by_id, read_rows, write_array

TILE_ROWS = 4_096
"""Rows placed at a time."""
PASSES = 25
"""Passes over all pairs that a plan counts with."""


# --- landmarks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LandmarkCoordinates:
    """Where a task finds distances to the landmarks and components, and the map of each embedded component."""

    kept: KeptDistances
    labels: str
    component: Array
    """(L,): the component of each landmark."""
    maps: dict[int, Affine]
    width: int
    weights: str = ""
    """Where the rows have their weights."""

    @classmethod
    def of(cls, context: Context, maps: dict[int, Affine], width: int) -> LandmarkCoordinates:
        """From the published stages."""
        starts = tuple(read_array(context.of("geodesics", "starts")).tolist())
        kept, labels = KeptDistances(context.of("geodesics"), starts), context.of("components", "labels")
        return cls(kept, labels, read_array(context.of("landmarks", "component")), maps, width, values_path(context))

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each block of the graph, and n."""
        return self.kept.starts

    def block(self, b: int) -> Array:
        """Coordinates (rows, width) of a block, zero outside the embedded components."""
        distances, label = self.kept.block(b), read_array(f"{self.labels}/{b}")
        out = np.zeros((len(label), self.width))
        for c in self.maps:
            mine = np.flatnonzero(label == c)
            for start, stop in bounds(len(mine), TILE_ROWS):
                out[mine[start:stop]] = self._of(distances[mine[start:stop]], c)
        return out

    def of_rows(self, ids: Array) -> Array:
        """Coordinates of rows of the largest component by their numbers in the graph."""
        return self._of(self.kept.rows(ids), 0)

    def _of(self, distances: Array, c: int) -> Array:
        return triangulated(distances[:, np.flatnonzero(self.component == c)], self.maps[c])


def map_arrays(count: int, m: int) -> Arrays:
    """The maps of the components, from distances to so many rows in all."""
    of_each = [ArraySpec("mean/*", count), ArraySpec("matrix/*", count, m), ArraySpec("offset/*", 0)]
    return [*of_each, *(ArraySpec(name, m) for name in ("eigenvalues", "residuals"))]


def landmark_solve_stage(
    policy: str, m: int, n: int, n_landmarks: int, block: int, vectors: tuple[str, ...] = ()
) -> Stage:
    """Classical scaling of the landmarks, turned to the principal axes of all rows: the map of each component.

    ``vectors``: the stage with the weights of the rows, if they have any, by which they count for these axes.
    """

    tiles = ArraySpec("tiles of distances", TILE_ROWS, n_landmarks, times=5)
    cost = Cost.of(
        reads=[ArraySpec("distances/*", n, n_landmarks, "f4", 2)],
        writes=map_arrays(n_landmarks, m),
        task=[ArraySpec("distances", block, n_landmarks), tiles],
        coordinator=[ArraySpec("distances between landmarks", n_landmarks, n_landmarks, times=7.5)],
    )
    return Stage(
        "solve",
        ("components", "landmarks", "geodesics", *vectors),
        {"policy": policy, "n_components": m},
        partial(run_landmark_solve, policy=policy, m=m),
        cost,
    )


def run_landmark_solve(context: Context, policy: str, m: int) -> dict[str, Any]:
    landmarks = LandmarkCoordinates.of(context, {}, m)
    between = np.square(read_array(context.of("geodesics", "between")))
    chosen = targets(context.results("components"), policy, m, 1)
    spectra, maps = {}, landmarks.maps
    for target in chosen:
        mine = np.flatnonzero(landmarks.component == target.number)
        maps[target.number], spectra[target.number] = classical(between[np.ix_(mine, mine)], m)
    blocks = [(b,) for b in range(len(landmarks.starts) - 1)]
    parts = map_blocks(moments_block, blocks, found=landmarks)
    variances = {}
    for c in maps:
        turn, offset, variances[c] = principal_axes(*vector_space.tree_sum([_Moments(part[c]) for part in parts]))
        maps[c] = maps[c].then(turn, offset)
    found = map_blocks(extremes_block, blocks, found=landmarks)
    for c in maps:
        sign = signs_of([part[c] for part in found])
        maps[c] = maps[c].then(np.diag(sign), np.zeros(m))
        AffineMap.within(context.path(""), c).write(maps[c])
    return _summary(
        context,
        [target.number for target in chosen],
        {c: _spectrum(spectra[c], variances[c], int(np.sum(landmarks.component == c))) for c in maps},
        m,
    ) | {"solver": "landmarks", "passes": 1, "converged": True}


class _Moments(tuple[Any, ...]):
    """Sums that are added one by one."""

    def __add__(self, other: Any) -> _Moments:
        return _Moments(a + b for a, b in zip(self, other, strict=True))


def moments_block(b: int, *, found: LandmarkCoordinates) -> dict[int, tuple[float, Array, Array]]:
    """For each component: rows of the block, Σ y, Σ y yᵀ; of rows with weights w Σ w, Σ w y, Σ w y yᵀ."""
    coordinates, label = found.block(b), read_array(f"{found.labels}/{b}")
    out = {}
    for c in found.maps:
        mine = coordinates[label == c]
        out[c] = float(len(mine)), mine.sum(axis=0), mine.T @ mine
        if found.weights:
            weights = read_array(f"{found.weights}/{b}")[label == c]
            out[c] = float(weights.sum()), weights @ mine, (mine * weights[:, None]).T @ mine
    return out


def extremes_block(b: int, *, found: LandmarkCoordinates) -> dict[int, Array]:
    """For each component: the largest |entry| of each column in the block, and its sign."""
    coordinates, label = found.block(b), read_array(f"{found.labels}/{b}")
    return {c: extremes(coordinates[label == c]) for c in found.maps}


def _spectrum(values: Array, variances: Array, count: int) -> dict[str, Any]:
    """What is said of the landmarks of one component: their spectrum, and what the coordinates leave of it."""
    kept = values[: len(variances)]
    positive = np.maximum(kept, 0.0)
    rest = float(np.sum(values**2) - np.sum(positive**2))
    return {
        "eigenvalues": variances.tolist(),
        "residuals": [0.0] * len(variances),
        "landmark_eigenvalues": values[:50].tolist(),
        "negative": int(np.sum(values < -FLOOR * abs(values[0]))),
        "lowest": float(values[-1]),
        "trace": float(values.sum()),
        "error": float(np.sqrt(max(0.0, rest)) / count),
        "positive": int(np.sum(values > FLOOR * abs(values[0]))),
    }


# --- all rows ------------------------------------------------------------------------------------


def exact_solve_stage(
    policy: str, m: int, n: int, tol: float, max_passes: int, seed: int, vectors: tuple[str, ...] = ()
) -> Stage:
    """Classical scaling of all rows of each component: block Lanczos on B = −½ H D² H, never formed.

    ``vectors``: the stage with the weights w of the rows, if they have any: then H = I − 1wᵀ/Σw, and the matrix is
    √w B √w.
    """

    parameters = {"policy": policy, "n_components": m, "tol": tol, "max_passes": max_passes, "seed": seed}
    width = max(2, m)
    cost = Cost.of(
        reads=[ArraySpec("pairs/*", n, n, "f4", PASSES)],
        writes=[*map_arrays(n, m), ArraySpec("rows/*", n, m)],
        leaves=[ArraySpec("vectors of the solve", n, width, times=14)],
        task=[buffer("panels of distances", 64 << 20), ArraySpec("vectors", n, width, times=4)],
        coordinator=[ArraySpec("vectors", n, m, times=3)],
        passes=PASSES,
    )
    return Stage(
        "solve",
        ("components", "geodesics", *(("order", *vectors) if vectors else ())),
        parameters,
        partial(run_exact_solve, policy=policy, m=m, tol=tol, max_passes=max_passes, seed=seed),
        cost,
    )


def run_exact_solve(context: Context, policy: str, m: int, tol: float, max_passes: int, seed: int) -> dict[str, Any]:
    chosen = targets(context.results("components"), policy, m)
    solved = {}
    for target in chosen:
        solved[target.number] = _classical_rows(context, target.number, target.rows, m, tol, max_passes, seed)
    return _summary(context, [t.number for t in chosen], solved, m) | {
        "solver": "exact",
        "passes": sum(part["passes"] for part in solved.values()),
        "converged": all(part["converged"] for part in solved.values()),
    }


def _classical_rows(
    context: Context, c: int, rows: int, m: int, tol: float, max_passes: int, seed: int
) -> dict[str, Any]:
    """Eigenpairs of one component, as coordinates V √λ and as the map of its rows."""
    source = RowSource((rows, rows), np.dtype(np.float32), path=context.of("geodesics", f"pairs/{c}"))
    space = spaces.StoredSpace(None, exchange.Exchange(f"{context.exchange.root}/component{c}"), vector_blocks(rows))
    weights: Array | None = None
    if path := values_path(context):
        every = all_weights(path, Ordered.open(context.of("order")).rows_of)
        weights = np.asarray(every)[read_array(context.of("geodesics", f"internal/{c}"))]
    operator = CenteredOperator(source, space, weights=weights)
    roots = np.ones(1) if weights is None else np.sqrt(weights)[:, None]
    values, vectors = np.zeros(m), np.zeros((rows, m))
    out = {"residuals": [0.0] * m, "passes": operator.passes, "converged": True, "reason": "", "advice": ""}
    lowest, wanted = 0.0, min(m, rows - 1)
    if operator.trace > 0 and wanted:
        values[:wanted], vectors[:, :wanted], result = mds.largest_pairs(operator, wanted, tol, max_passes, seed)
        lowest = min(0.0, result.lowest * operator.trace)
        out |= {
            "residuals": (result.residuals * operator.trace).tolist() + [0.0] * (m - wanted),
            "passes": operator.passes,
            "converged": bool(result.converged),
            "reason": str(result.reason),
            "advice": result.advice,
            "gap": float(result.gap * operator.trace),
        }
    floor = mds.rounding(operator, source)
    positive = np.where(values > floor, values, 0.0)
    AffineMap.within(context.path(""), c).write(scaled(operator.means, values, vectors * roots, m, floor))
    write_array(context.path(f"rows/{c}"), vectors / roots * np.sqrt(positive))
    rest = operator.norm**2 - float(positive @ positive)
    return out | {
        "eigenvalues": positive.tolist(),
        "lowest": lowest,
        "trace": operator.trace,
        "error": float(np.sqrt(max(0.0, rest)) / operator.total),
        "positive": int(np.count_nonzero(positive)),
    }


def _summary(context: Context, numbers: list[int], solved: dict[int, dict[str, Any]], m: int) -> dict[str, Any]:
    """Write ``eigenvalues`` and ``residuals`` ((m,), or (c, m) of several components); the rest as results."""
    for name in ("eigenvalues", "residuals"):
        values = np.array([solved[c][name] for c in numbers])
        write_array(context.path(name), values[0] if len(numbers) == 1 else values)
    return {"targets": numbers, "solved": {str(c): solved[c] for c in numbers}, "n_components": m}


@dataclass(frozen=True)
class SolvedCoordinates:
    """Where a task finds the coordinates V √λ of each embedded component, by its rows."""

    solve: str
    labels: str
    positions: str
    """Of each row of the graph in its component."""
    starts: tuple[int, ...]
    targets: tuple[int, ...]
    width: int

    def block(self, b: int) -> Array:
        """Coordinates (rows, width) of a block, zero outside the embedded components."""
        return self.of_rows(np.arange(self.starts[b], self.starts[b + 1]))

    def of_rows(self, ids: Array) -> Array:
        """Coordinates of rows by their numbers in the graph."""
        label, position = read_by_id(self.labels, self.starts, ids), read_rows(self.positions, ids)
        out = np.zeros((len(ids), self.width))
        for c in self.targets:
            out[label == c] = read_rows(f"{self.solve}/rows/{c}", position[label == c])
        return out


# --- both ----------------------------------------------------------------------------------------


def coordinates_stage(
    policy: str, m: int, n: int, block: int, n_landmarks: int = 0, by: ByMetric | None = None, parts: str = "components"
) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input: by landmarks, or (0) as they were solved.

    ``parts``: the stage whose components the labels name. By the policy of islands rows outside of the parts take the
    coordinates of their nearest row in them; where "components" are all that is known, without rows, they are at 0.
    """

    found = [ArraySpec("embedding", n, m), ArraySpec("labels", n, dtype="i4")]
    cost = Cost.of(
        reads=[ArraySpec("distances/*", n, n_landmarks, "f4")],
        writes=[*found, *(ArraySpec(f"{name}/*", 0, dtype="i8") for name in ("outside", "nearest"))],
        leaves=[*found, ArraySpec("numbers", n)],
        task=[
            ArraySpec("distances and coordinates", block, n_landmarks + 6 * m),
            ArraySpec("tiles of distances", TILE_ROWS, n_landmarks, times=5),
        ],
    )
    known = dict.fromkeys(("order", "components", parts))
    stages = (*known, *(("landmarks",) if n_landmarks else ()), "geodesics", "solve")
    return Stage(
        "coordinates",
        stages,
        {"policy": policy, "n_components": m},
        partial(run_coordinates, policy=policy, m=m, n=n, n_landmarks=n_landmarks, by=by, parts=parts),
        cost,
    )


def run_coordinates(
    context: Context, policy: str, m: int, n: int, n_landmarks: int, by: ByMetric | None, parts: str
) -> dict[str, Any]:
    order, targets = context.of("order"), context.results("solve")["targets"]
    found: GraphCoordinates
    if n_landmarks:
        maps = {c: AffineMap.within(context.of("solve"), c).read() for c in targets}
        found = LandmarkCoordinates.of(context, maps, m)
    else:
        paths = context.of("solve"), context.of("components", "labels"), context.of("geodesics", "positions")
        found = SolvedCoordinates(*paths, Ordered.open(order).starts, tuple(targets), m)
    joined, shown = context.results("components"), context.results(parts)
    rows = policy == "largest" or parts != "components"
    outside = rows and joined["components"] > 1
    filled = graph_rows.find_replaced(context, order, by=by) if outside else []
    first = graph_rows.first_replaced(filled, Ordered.open(order), context.exchange) if outside else []
    known: dict[str, Any] = {}
    if policy == ISLANDS:
        count = parts_from(policy, shown).count
        known = {"parts": count, "first_filled": first}
        known |= {} if rows else {"unplaced_rows": n - sum(shown["sizes"][: len(targets)])}
        write_coordinates(context, found, order, outside, count, ISLAND, context.of(parts, "labels"))
    else:
        write_coordinates(context, found, order, outside)
    return {"n_components": m, "filled_rows": sum(count for count, _ in filled), **known}
