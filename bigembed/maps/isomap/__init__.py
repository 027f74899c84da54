"""Isomap: coordinates from shortest paths on a neighbor graph.

Geodesic distances as stages are here: components, landmarks, distances from them or between all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import PlanError
from bigembed.estimator.graph_input import parts_from, solved_sizes
from bigembed.maps.graph_rows import component_sample
from bigembed.maps.landmark_rows import LandmarkChoice, far_apart
from bigembed.neighbors.components import component_arrays, find_components
from bigembed.neighbors.geodesic import GROUP, cached_graph, distances_block, keep_distances, shortest_paths
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import values_path
from bigembed.runtime.blocks import bounds, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer
from bigembed.store import free_bytes
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.matrix import StoredMatrix

POLICIES = ("error", "largest", "per-component", "bridge")
EXACT_ROWS = 100_000
"""Rows of which all pairs of distances are written (40 GB)."""
PAIR_MIB = 16
"""Distances between all pairs that a task computes and writes."""


@dataclass(frozen=True)
class Target:
    """A component to be embedded."""

    number: int
    rows: int
    landmarks: int = 0


def lengths_in(context: Context, graphs: Sequence[str]) -> StoredMatrix:
    """The graph that is embedded, of squared lengths by row blocks: that of the first of the stages ``graphs``, or of
    the second where the first had no bridges to build."""
    name, *without = graphs
    return context.home.matrix(without[0] if without and not context.results(name)["bridges"] else name)


def graph_components_stage(graphs: Sequence[str], edges: int, n: int, block: int) -> Stage:
    """Connected components of a graph of distances (:func:`lengths_in`), of which 0 joins as well as any other.

    Where no bridges were built the first stage knows them.
    """

    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=component_arrays(n),
        leaves=[ArraySpec("labels", n)],
        task=[ArraySpec("edges", edges // max(1, n) * block, 8)],
        passes=2,
    )
    return Stage("components", tuple(graphs), {}, partial(run_graph_components, graphs=graphs), cost)


def run_graph_components(context: Context, graphs: Sequence[str]) -> dict[str, Any]:
    matrix, known = lengths_in(context, graphs), context.results(graphs[0])
    if len(graphs) > 1 and not known["bridges"]:
        for b in range(len(matrix.rows)):
            write_array(context.path(f"labels/{b}"), read_array(context.of(graphs[0], f"labels/{b}")))
        return {name: known[name] for name in ("components", "sizes", "rows")}
    return find_components(matrix, context.exchange, context.path(""))


def targets(found: dict[str, Any], policy: str, n_components: int, n_landmarks: int = 0) -> list[Target]:
    """Which components are embedded, with their share of the landmarks; DisconnectedGraphError as the policy says."""
    sizes = solved_sizes(parts_from(policy, found, ("auto", *POLICIES[1:])), policy, found["sizes"], n_components)
    total = sum(sizes)
    return [
        Target(c, size, min(size, max(n_components + 1, round(n_landmarks * size / total))))
        for c, size in enumerate(sizes)
        if size > 1 or len(sizes) == 1
    ]


# --- landmarks -----------------------------------------------------------------------------------


def landmarks_stage(
    policy: str, n_components: int, n_landmarks: int, selection: str, row_bytes: int, n: int, seed: int,
    vectors: tuple[str, ...] = (),
) -> Stage:  # fmt: skip
    """Rows that stand for all: ``ids`` (L,) internal, ascending in each ``component``, and ``rows`` of the input."""

    parameters: dict[str, Any] = {"policy": policy, "n_components": n_components, "n_landmarks": n_landmarks}
    parameters |= {"selection": selection, "seed": seed}
    sampled = LandmarkChoice(n_landmarks, selection, ()).sample_size(n, row_bytes)
    cost = Cost.of(
        reads=[ArraySpec("labels/*", n, dtype="i4")],
        writes=[ArraySpec(name, n_landmarks, dtype="i8") for name in ("ids", "rows", "component")],
        coordinator=[ArraySpec("sampled rows and their numbers", sampled, row_bytes + 24, "u1", 3)],
    )
    run = partial(run_landmarks, row_bytes=row_bytes, **parameters)
    return Stage("landmarks", ("order", "components", *vectors), parameters, run, cost)


def run_landmarks(
    context: Context, policy: str, n_components: int, n_landmarks: int, selection: str, row_bytes: int, seed: int
) -> dict[str, Any]:
    chosen = targets(context.results("components"), policy, n_components, n_landmarks)
    ordered, labels = Ordered.open(context.of("order")), context.of("components", "labels")
    far, parts, sampled = far_apart(selection), [], 0
    for target in chosen:
        choice = LandmarkChoice(target.landmarks, selection, (seed, 5, target.number))
        found = component_sample(
            ordered, labels, target.number, choice, row_bytes, context.exchange, far, values_path(context)
        )
        sampled += len(found["ids"])
        kept = choice.among(found["rows"]) if far else slice(None)
        parts.append((found["ids"][kept], found["original"][kept]))
    ids, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
    component = np.repeat([target.number for target in chosen], [len(part) for part, _ in parts])
    for name, array in {"ids": ids, "rows": rows, "component": component}.items():
        write_array(context.path(name), array)
    return {"landmarks": len(ids), "wanted": sum(t.landmarks for t in chosen), "sampled": sampled}


def landmark_distances_stage(graphs: Sequence[str], n: int, edges: int, n_landmarks: int, block: int) -> Stage:
    """Distances of every row to every landmark, ``distances/b`` (rows, L), and ``between`` landmarks (L, L)."""

    groups = -(-n_landmarks // GROUP)
    found = n, n_landmarks
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3, times=2 * groups - 1), ArraySpec("distances", *found, "f4", 5)],
        writes=[
            ArraySpec("distances/*", *found, "f4"),
            ArraySpec("between", n_landmarks, n_landmarks),
            ArraySpec("starts", 0, dtype="i8"),
        ],
        leaves=[ArraySpec("edges", edges, 3), ArraySpec("distances and what changed", *found, "f4", 5)],
        task=[
            ArraySpec("edges", block, 60 * edges // max(1, n), "u1"),
            ArraySpec("distances of a group", block, 5 * GROUP + 16, "f4"),
            ArraySpec("distances", block, n_landmarks),
        ],
        coordinator=[ArraySpec("distances between landmarks", n_landmarks, n_landmarks, times=3)],
        passes=2 * groups,
        maps=4,
        blocks=groups * -(-n // block),
    )
    return Stage(
        "geodesics",
        ("landmarks", "components", *graphs),
        {"squared": True},
        partial(run_landmark_distances, graphs=graphs),
        cost,
        resumes=True,
    )


def run_landmark_distances(context: Context, graphs: Sequence[str]) -> dict[str, Any]:
    ids, matrix = read_array(context.of("landmarks", "ids")), lengths_in(context, graphs)
    counted = shortest_paths(matrix, ids, context.exchange, note=context.note)
    between = keep_distances(matrix.rows, ids, context.exchange, context.path(""))
    write_array(context.path("between"), between)
    write_array(context.path("starts"), offsets(matrix.rows))
    return counted


# --- all pairs -----------------------------------------------------------------------------------


def all_distances_stage(graphs: Sequence[str], policy: str, n_components: int, n: int, edges: int) -> Stage:
    """Distances between all rows of each embedded component: ``pairs/c`` (n_c, n_c) float32, rows as in the input."""
    check_exact(n)

    each = ("members/*", "internal/*", "positions")
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3)],
        writes=[ArraySpec("pairs/*", n, n, "f4"), *(ArraySpec(name, n, dtype="i8") for name in each)],
        task=[
            ArraySpec("edges", edges, 8),
            buffer("distances of a task", 3 * (PAIR_MIB << 20)),
            ArraySpec("heap and distances of a row", n, 5),
        ],
        coordinator=[ArraySpec("labels and numbers", n, 8)],
        passes=1,
        scalar_ops=n * (edges + 4 * n),  # a heap for each row
        blocks=-(-4 * n * n // (PAIR_MIB << 20)),
    )
    parameters: dict[str, Any] = {"policy": policy, "n_components": n_components}
    run = partial(run_all_distances, graphs=graphs, **parameters)
    return Stage("geodesics", ("order", "components", *graphs), parameters, run, cost)


def run_all_distances(context: Context, graphs: Sequence[str], policy: str, n_components: int) -> dict[str, Any]:
    chosen = targets(context.results("components"), policy, n_components)
    need = sum(4 * t.rows**2 for t in chosen)
    free = free_bytes(context.home.root)
    if need > free:
        raise PlanError(
            f"distances between all rows take {need >> 20} MiB, and {free >> 20} MiB of disk are free at "
            f"{context.home.root}. Use solver='landmarks', or a workdir on a larger disk"
        )
    matrix = lengths_in(context, graphs)
    ordered = Ordered.open(context.of("order"))
    ids = np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])
    label = np.concatenate([read_array(context.of("components", f"labels/{b}")) for b in range(len(ordered.blocks))])
    position = np.full(len(ids), -1, np.int64)
    for target in chosen:
        internal = np.flatnonzero(label == target.number)
        internal = internal[np.argsort(ids[internal])]
        position[internal] = np.arange(len(internal))
        write_array(context.path(f"internal/{target.number}"), internal)
        write_array(context.path(f"members/{target.number}"), ids[internal])
        height = PAIR_MIB * max(1, (1 << 20) // (4 * target.rows))  # whole chunks of about 1 MiB
        path = context.path(f"pairs/{target.number}")
        create_rows(path, (target.rows,) * 2, np.float32, height, compress=False)
        map_blocks(
            pairs_block,
            [(target.number, *span) for span in bounds(target.rows, height)],
            matrix=matrix,
            out=context.path(""),
        )
    write_array(context.path("positions"), position)
    return {"rows": sum(t.rows for t in chosen), "components": [t.number for t in chosen]}


def check_exact(n: int) -> None:
    """PlanError if all pairs of n rows are too many."""
    if n > EXACT_ROWS:
        raise PlanError(
            f"solver='exact' writes distances between all pairs of rows, for n ≤ {EXACT_ROWS} (40 GB); got n = {n}, "
            f"which are {4 * n * n >> 30} GiB and as many shortest paths. Use solver='landmarks'"
        )


def pairs_block(c: int, start: int, stop: int, *, matrix: StoredMatrix, out: str) -> None:
    """Distances from some rows of a component to all its rows."""
    internal = read_array(f"{out}internal/{c}")
    distances = distances_block(cached_graph(matrix, True), internal[start:stop], internal)
    write_rows(f"{out}pairs/{c}", start, distances)
