"""Local linear conditions on coordinates, and the alignment matrix of all rows of a graph, solved in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bigembed.errors import PlanError
from bigembed.estimator.graph_input import CHOICES, Parts, contrast, parts_from, solved_sizes
from bigembed.linalg.eigenpairs import extremes
from bigembed.linalg.smallest import MOST_BYTES, SmallestPairs, smallest_pairs
from bigembed.maps.graph_judgement import AGAIN
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import all_weights, values_path
from bigembed.neighbors.survey import Shape
from bigembed.quality.coordinates import participation_of
from bigembed.quality.dimension import ROWS, harmonics
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer
from bigembed.store.arrays import read_array, write_array

# ------------------------------------------------------------------------------------------------------ conditions
# Local linear conditions on coordinates, by blocks of rows: what locally linear embedding and its variants differ in.
#
# Around each row i with neighbors j_1 … j_k a method states r conditions on the coordinates,
#
#     A_i (y_i, y_{j_1}, …, y_{j_k}) ≈ 0,      A_i (r, 1 + k), rows that sum to 0,
#
# and the map is the least-squares solution Y of all of them: the smallest eigenvectors of the alignment matrix AᵀA, A
# of the A_i one under the other (Zhang & Zha 2004). For locally linear embedding r = 1 and A_i = (1, −w_i).
#
# Where rows have masses m, Σ m_i |A_i y|² is least under Σ m_i y_i y_iᵀ = I: with D the masses on the diagonal the
# eigenvectors u of D^{-1/2} Aᵀ D A D^{-1/2} give y = D^{-1/2} u.

TILE_BYTES = 16 << 20
"""Of the neighbors of a tile of rows, in float64."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a method. Small and picklable."""

    function: Callable[..., Array]
    """``function(rows (n, d), near (n, k, d), **parameters)``: A (n, r, 1 + k), in float64."""
    count: int
    """r."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    level: Callable[..., Array] | None = None
    """Where the conditions hang on the median over all rows of a figure of each: ``level(rows, near, **parameters)``,
    (n,); ``function`` then gets the median as ``level``, too."""

    def key(self) -> dict[str, Any]:
        """For the key of a stage."""
        return {"conditions": self.function.__name__, **self.parameters}

    def at(self, level: float) -> Conditions:
        """With a known level."""
        return replace(self, parameters={**self.parameters, "level": level}, level=None)

    def of_rows(self, rows: Array, ids: Array) -> Array:
        """A (n, r, 1 + k) of all rows, in this process, from the numbers of their neighbors (n, k)."""
        tiles = [slice(*span) for span in tile_bounds(ids, rows.shape[1])]
        points, known = np.asarray(rows, np.float64), self
        if self.level is not None:
            found = [self.level(points[tile], points[ids[tile]], **self.parameters) for tile in tiles]
            known = self.at(float(np.median(np.concatenate(found))))
        return np.concatenate([known.function(points[tile], points[ids[tile]], **known.parameters) for tile in tiles])


def tile_bounds(ids: Array, d: int) -> list[tuple[int, int]]:
    """Rows whose neighbors are held at a time."""
    return bounds(len(ids), max(1, TILE_BYTES // (8 * d * (1 + ids.shape[1]))))


def alignment_stage(conditions: Conditions, shape: Shape, k: int) -> Stage:
    """``rows/b`` (rows, r (1 + k)), the conditions around each row of a block, from the lists of its neighbors.

    The rows of neighbors in other blocks are read as they are needed; a task holds a tile of them.
    """

    entries = conditions.count * (1 + k)
    n, rows, item = shape.n, shape.largest_block, np.dtype(shape.dtype).itemsize
    writes = [ArraySpec("rows/*", n, entries)]
    writes += [ArraySpec("levels/*", n)] if conditions.level is not None else []
    cost = Cost.of(
        reads=[ArraySpec("rows and lists", n, 2 * shape.row_bytes + (8 + item) * k, "u1")],
        writes=writes,
        task=[
            ArraySpec("rows", rows, shape.row_bytes, "u1"),
            ArraySpec("lists, and conditions twice", rows, k + entries, times=2),
            buffer("tiles of neighbors", 8 * min(TILE_BYTES, 8 * shape.d * (1 + k) * rows)),
            ArraySpec("conditions of a tile", TILE_BYTES // (8 * shape.d), conditions.count, times=3),
        ],
        coordinator=[ArraySpec("levels", n)],
        passes=1,
        flops=shape.n * (2.0 * k * k * shape.d + k**3),
    )
    return Stage(
        "alignment",
        ("order", "search"),
        {**conditions.key(), "n_neighbors": k},
        partial(run_alignment, conditions=conditions),
        cost,
    )


def run_alignment(context: Context, conditions: Conditions) -> dict[str, Any]:
    ordered, lists = Ordered.open(context.of("order")), context.of("search", "neighbors")
    blocks, known = [(b,) for b in range(len(ordered.blocks))], conditions
    fixed: dict[str, Any] = {"ordered": ordered, "lists": lists}
    if conditions.level is not None:
        map_blocks(levels_block, blocks, conditions=conditions, out=context.path(""), **fixed)
        levels = [read_array(context.path(f"levels/{b}")) for (b,) in blocks]
        known = conditions.at(float(np.median(np.concatenate(levels))))
    map_blocks(conditions_block, blocks, conditions=known, out=context.path(""), **fixed)
    return {"conditions": conditions.count, **known.parameters}


def levels_block(b: int, *, ordered: Ordered, lists: str, conditions: Conditions, out: str) -> None:
    """The figures of one block whose median is the level."""
    assert conditions.level is not None
    found = [conditions.level(rows, near, **conditions.parameters) for rows, near in _tiles(b, ordered, lists)]
    write_array(f"{out}levels/{b}", np.concatenate(found))


def conditions_block(b: int, *, ordered: Ordered, lists: str, conditions: Conditions, out: str) -> None:
    """The conditions of one block."""
    found = [conditions.function(rows, near, **conditions.parameters) for rows, near in _tiles(b, ordered, lists)]
    flat = np.concatenate(found)
    write_array(f"{out}rows/{b}", flat.reshape(len(flat), -1))


def _tiles(b: int, ordered: Ordered, lists: str) -> Iterator[tuple[Array, Array]]:
    """Some rows of a block (n, d) and their neighbors (n, k, d) in float64, tile after tile."""
    rows, ids = ordered.rows(b), read_array(f"{lists}/{b}")
    for start, stop in tile_bounds(ids, rows.shape[1]):
        wanted, place = np.unique(ids[start:stop], return_inverse=True)
        near = ordered.take(wanted).astype(np.float64)
        yield rows[start:stop].astype(np.float64), near[place.reshape(stop - start, -1)]


def assembled(conditions: Array, ids: Array, members: Array) -> Any:
    """A (N, c) sparse of the rows ``members`` (c,) ascending, all of whose neighbors are among them."""
    count, r = len(members), conditions.shape[1]
    columns = np.searchsorted(members, np.concatenate([members[:, None], ids[members]], axis=1))
    every = np.repeat(columns, r, axis=0)
    indptr = np.arange(0, every.size + 1, columns.shape[1])
    found = sparse.csr_array((conditions[members].ravel(), every.ravel(), indptr), shape=(count * r, count))
    found.eliminate_zeros()
    return found


def neighborhoods(rows: Array, near: Array, own_row: bool) -> tuple[Array, slice]:
    """The points (n, q, d) around each row, with or without the row itself, and their columns in its conditions."""
    return (np.concatenate([rows[:, None], near], axis=1), slice(0, None)) if own_row else (near, slice(1, None))


# ----------------------------------------------------------------------------------------------------------- solve
# The alignment matrix of a set of rows in memory: its smallest eigenvectors, part by part, as coordinates.

NAMED = 5


@dataclass(frozen=True)
class Solved:
    """Coordinates of n rows, and what is said of them."""

    coordinates: Array
    """(n, m), 0 for rows outside the parts; the mean square of a column over the rows embedded is 1."""
    eigenvalues: Array
    """(m,) ascending; (c, m) of parts that have their own coordinates."""
    residuals: Array
    """‖AᵀAv − λv‖, shaped like ``eigenvalues``."""
    results: dict[str, Any]


def pairs_of(conditions: Array, ids: Array, members: Array, m: int, masses: Array | None) -> SmallestPairs:
    """The m smallest eigenpairs of the alignment matrix of some rows, but its constant vector; with ``masses`` of all
    rows the vectors y of the weighted problem, Σ m_i y_i² = 1."""
    found, width = assembled(conditions, ids, members), min(m, len(members) - 1)
    if masses is None:
        return smallest_pairs(found, width)
    root = np.sqrt(masses[members])
    scaled = sparse.diags_array(np.repeat(root, conditions.shape[1])) @ found @ sparse.diags_array(1.0 / root)
    pairs = smallest_pairs(scaled.tocsr(), width, null=root / np.linalg.norm(root))
    vectors = pairs.vectors / root[:, None]
    return replace(pairs, vectors=vectors * extremes(vectors)[1])


def solve_parts(
    conditions: Array,
    ids: Array,
    label: Array,
    parts: Parts,
    sizes: Sequence[int],
    policy: str,
    m: int,
    masses: Array | None = None,
) -> Solved:
    """The m smallest eigenvectors of each part but its constant vector, put together as the policy says.

    ``conditions`` (n, r, 1 + k) around each row, ``ids`` (n, k) its neighbors, ``label`` (n,) its component; ``masses``
    (n,) where rows have them.
    """
    chosen = solved_sizes(parts, policy, sizes, m)
    members = [np.flatnonzero(label == c) for c in range(len(chosen))]
    pairs = [pairs_of(conditions, ids, own, m, masses) for own in members]
    weights = [float(len(own) if masses is None else masses[own].sum()) for own in members]
    each = np.zeros((2, len(pairs), m))
    out = np.zeros((len(label), m))
    for c, (own, found) in enumerate(zip(members, pairs, strict=True)):
        width = len(found.values)
        each[0, c, :width], each[1, c, :width] = found.values, found.residuals
        out[own, :width] = found.vectors * np.sqrt(weights[c])
    inside = np.flatnonzero(label < len(chosen))
    if parts.joint:
        columns = _joint(out, members, pairs, parts, np.array(weights))
        shown = np.array([each[:, c, index] if index >= 0 else (0.0, 0.0) for c, index in columns]).T
        out *= extremes(out[inside])[1]
    else:
        columns = [(0, index) for index in range(m)]
        shown = each if parts.per_component else each[:, 0]
    results: dict[str, Any] = {
        "solved": {str(c): _summary(found, members[c], ids) for c, found in enumerate(pairs)},
        "columns": [list(column) for column in columns],
        "converged": all(found.converged for found in pairs),
        **_judged(out[inside], inside, np.ones(len(inside)) if masses is None else masses[inside]),
    }
    return Solved(out, shown[0], shown[1], results)


def _joint(
    out: Array, members: Sequence[Array], pairs: Sequence[SmallestPairs], parts: Parts, sizes: Array
) -> list[tuple[int, int]]:
    """Fill in columns that tell parts apart (index −1), then eigenvectors of parts by eigenvalue; which they are.

    ``sizes``: rows of the parts, or their mass.
    """
    m = out.shape[1]
    columns = [(c, -1) for c in range(1, parts.contrasts(m) + 1)]
    rest = [(value, c, index) for c, found in enumerate(pairs) for index, value in enumerate(found.values)]
    columns = (columns + [(c, index) for _, c, index in sorted(rest)])[:m]
    out[:] = 0.0
    for at, (c, index) in enumerate(columns):
        if index >= 0:
            out[members[c], at] = pairs[c].vectors[:, index] * np.sqrt(sizes.sum())
        else:
            for number, own in enumerate(members):
                out[own, at] = contrast(number, c, sizes)
    return columns


def _summary(found: SmallestPairs, members: Array, ids: Array) -> dict[str, Any]:
    closed = closed_groups(np.searchsorted(members, ids[members]))
    return {
        "rows": len(members),
        "eigenvalues": found.values.tolist(),
        "residuals": found.residuals.tolist(),
        "gaps": np.where(np.isfinite(found.gaps), found.gaps, 0.0).tolist(),
        "turns": found.turns.tolist(),
        "norm": found.norm,
        "condition": float(found.norm / max(found.values[0], np.finfo(np.float64).tiny)),
        "band": found.band,
        "factor_bytes": 8 * len(members) * (found.band + 1),
        "steps": found.steps,
        "converged": found.converged,
        "free": found.free,
        "closed": len(closed),
        "closed_rows": [members[group][:NAMED].tolist() for group in closed[:NAMED]],
    }


def closed_groups(ids: Array) -> list[Array]:
    """Groups of rows whose neighbors (n, k) all lie in the group, and that reach each other: the smallest first.

    Beside each other they have coordinates of their own: the alignment matrix has an eigenvalue 0 for each.

    >>> [group.tolist() for group in closed_groups(np.array([[1], [0], [1], [4], [3]]))]
    [[0, 1], [3, 4]]
    """
    n, k = ids.shape
    graph = csr_array((np.ones(n * k, np.int8), ids.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    count, group = connected_components(graph, directed=True, connection="strong")
    leaves = np.zeros(count, bool)
    leaves[group[(group[ids] != group[:, None]).any(axis=1)]] = True
    found = [np.flatnonzero(group == number) for number in np.flatnonzero(~leaves)]
    return sorted(found, key=lambda rows: (len(rows), int(rows[0])))


def _judged(coordinates: Array, rows: Array, masses: Array) -> dict[str, Any]:
    """How many rows carry each coordinate, and which coordinates are functions of earlier ones."""
    n = len(coordinates)
    carried = participation_of(coordinates, masses)
    found = harmonics(coordinates[np.linspace(0, n - 1, min(n, ROWS)).astype(int)], AGAIN)
    leading = np.argsort(-np.abs(coordinates), axis=0, kind="stable")[:NAMED].T
    return {
        "participation": carried.share.tolist(),
        "rows_above_a_tenth": carried.rows.tolist(),
        "leading_rows": rows[leading].tolist(),
        "harmonic_residual": found.residual.tolist(),
        "harmonic_local": found.local.tolist(),
        "harmonic": found.harmonic.tolist(),
    }


def solve_memory(n: int, k: int, count: int, m: int) -> int:
    """Bytes that :func:`solve_parts` holds at most for n rows: conditions, AᵀA, its factor, vectors."""
    entries = n * count * (1 + k)
    gram = min(n * n, n * (1 + k) ** 2)  # (all conditions of a row are on the same neighbors)
    return 48 * entries + 44 * gram + min(8 * n * n, MOST_BYTES) + 8 * n * 24 * (m + 6)


def solve_flops(n: int, m: int) -> float:
    """Operations of :func:`solve_parts` at most: the factor, and some ten steps."""
    band = min(n, MOST_BYTES // (8 * n))
    return float(n) * band * (band + 80.0 * (m + 4))


# ----------------------------------------------------------------------------------------------------------- exact
# The alignment matrix of all rows of a graph, solved in one process, and coordinates in the order of the input.

EXACT_ROWS = 50_000
"""Rows of which an exact solve is tried."""
POLICIES = {name: words for name, words in CHOICES.items() if name != "bridge"}


def solve_stage(conditions: Conditions, policy: str, n: int, k: int, m: int, vectors: tuple[str, ...] = ()) -> Stage:
    """``coordinates/b`` (rows, m) of the rows of each block, ``eigenvalues`` and ``residuals``: one task holds all."""
    check_exact(n)

    cost = Cost.of(
        reads=[ArraySpec("conditions", n, conditions.count * (1 + k)), ArraySpec("lists", n, 3 * k, "f4")],
        writes=[ArraySpec("coordinates/*", n, m), *(ArraySpec(name, m) for name in ("eigenvalues", "residuals"))],
        task=[buffer("conditions, their products and the factor", solve_memory(n, k, conditions.count, m))],
        coordinator=[ArraySpec("labels and numbers", n, times=3)],
        flops=solve_flops(n, m),
        maps=1,
        blocks=1,
    )
    stages = ("order", "search", "alignment", "components", *vectors)
    return Stage(
        "solve",
        stages,
        {"policy": policy, "n_components": m, "most": MOST_BYTES},
        partial(run_solve, conditions=conditions, policy=policy, m=m),
        cost,
    )


def run_solve(context: Context, conditions: Conditions, policy: str, m: int) -> dict[str, Any]:
    found = context.results("components")
    parts = parts_from(policy, found, POLICIES)
    ordered = Ordered.open(context.of("order"))
    paths = {
        "conditions": context.of("alignment", "rows"),
        "lists": context.of("search", "neighbors"),
        "labels": context.of("components", "labels"),
        "out": context.path(""),
        "weights": values_path(context),
    }
    asked = {"starts": ordered.starts, "parts": parts, "sizes": found["sizes"], "policy": policy, "m": m}
    [results] = map_blocks(solve_task, [(conditions.count,)], **asked, **paths)
    names = {b: ordered.ids(b) for b in range(len(ordered.blocks))}
    return {**named(results, names, ordered), "solver": "exact", "n_components": m, "parts": parts.count}


def check_exact(n: int) -> None:
    """PlanError if n rows are too many for one process."""
    if n > EXACT_ROWS:
        raise PlanError(
            f"solver='exact' solves for all rows in one process, for n ≤ {EXACT_ROWS}; got n = {n}. Use "
            "solver='landmarks', or 'auto'"
        )


def solve_task(
    count: int,
    *,
    starts: tuple[int, ...],
    parts: Parts,
    sizes: list[int],
    policy: str,
    m: int,
    conditions: str,
    lists: str,
    labels: str,
    out: str,
    weights: str,
) -> dict[str, Any]:
    """Solve for all rows, and write their coordinates by block."""
    blocks = range(len(starts) - 1)
    every, ids, label = (
        np.concatenate([read_array(f"{path}/{b}") for b in blocks]) for path in (conditions, lists, labels)
    )
    masses = all_weights(weights, np.diff(starts))
    solved = solve_parts(every.reshape(len(ids), count, -1), ids, label, parts, sizes, policy, m, masses)
    for b in blocks:
        write_array(f"{out}coordinates/{b}", solved.coordinates[starts[b] : starts[b + 1]])
    write_array(f"{out}eigenvalues", solved.eigenvalues)
    write_array(f"{out}residuals", solved.residuals)
    return solved.results


def named(results: dict[str, Any], names: Mapping[int, Array], ordered: Ordered) -> dict[str, Any]:
    """The results with rows by their numbers in the input."""
    every = np.concatenate([names[b] for b in range(len(ordered.blocks))])
    out = {**results, "leading_rows": every[np.array(results["leading_rows"])].tolist()}
    for part in out["solved"].values():
        part["closed_rows"] = [np.sort(every[np.array(group)]).tolist() for group in part["closed_rows"]]
    return out
