"""From eigenvectors to coordinates in the order of the input: λ^t, truncation, rows that take those of another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks, offsets
from bigembed.embedding.graph.coordinates import write_coordinates
from bigembed.embedding.graph.parts import ISLAND, PLACING, parts_from
from bigembed.embedding.graph.replaced import find_replaced, first_replaced, keep_block, repeated_matrix
from bigembed.embedding.graph.shape import GraphShape
from bigembed.errors import InputError
from bigembed.neighbors.ordering.order import Ordered
from bigembed.quality.participation import carried_by_few, participation
from bigembed.quality.spectrum import ONE, chosen_by_spectrum
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, read_by_id
from bigembed.store.blockwise.parcels import journeys


@dataclass(frozen=True)
class Scaling:
    """Diffusion time and number of coordinates kept."""

    t: float
    count: int
    note: str = ""
    columns: tuple[int, ...] = ()
    """The eigenpairs kept, ascending; none: the first ``count``."""


def diffusion_time(first: float, last: float, delta: float) -> tuple[float, str]:
    """Smallest t with (|λ_d|/|λ_1|)^t ≤ δ (seed 000 eq. 29); where |λ_d| = |λ_1| it is 0/0: t = 1 and a note.

    >>> diffusion_time(0.9, 0.5, 0.2)
    (3.0, '')
    """
    ratio = abs(first) / abs(last) if last else math.inf
    if ratio <= 1.0 + 1e-9:  # but for rounding
        return 1.0, "t='auto' is undefined where |λ_m| = |λ_1| (eq. 29 is 0/0); t = 1 was taken"
    return float(math.ceil(math.log(1 / delta) / math.log(ratio) - 1e-12)) or 1.0, ""


def kept_by(eigenvalues: Array, t: float, delta: float, rule: str) -> tuple[int, ...]:
    """Places with |λ_l|^t > δ|λ_1|^t ("relative", seed 000 eq. 26) or > δ ("absolute", seed 001 eq. 9), |λ_1| largest.

    At least that of λ_1. A negative eigenvalue may be far down the list and large.

    >>> kept_by(np.array([0.9, 0.5, 0.1]), 1, 0.2, "relative"), kept_by(np.array([0.9, 0.1, -0.8]), 2, 0.2, "absolute")
    ((0, 1), (0, 2))
    """
    powers = np.abs(eigenvalues) ** t
    above = powers > delta * (powers.max() if rule == "relative" else 1.0)
    above[np.argmax(powers)] = True
    return tuple(np.flatnonzero(above).tolist())


def scaling_of(eigenvalues: Array, t: float | str, delta: float | None, truncation: str) -> Scaling:
    """Resolve t and the truncation from the eigenvalues (those of the largest component)."""
    first = eigenvalues[0] if eigenvalues.ndim == 2 else eigenvalues
    if isinstance(t, str):
        sizes = np.abs(first)
        time, note = diffusion_time(float(sizes.max()), float(sizes.min()), 0.2 if delta is None else delta)
        return Scaling(time, len(first), note)
    if t != int(t) and (eigenvalues < 0).any():
        raise InputError(
            f"t={t} is not an integer, and some eigenvalues are negative: λ^t is not real. Use an integer t"
        )
    columns = tuple(range(len(first))) if delta is None else kept_by(first, float(t), delta, truncation)
    whole = columns == tuple(range(len(columns)))
    return Scaling(float(t), len(columns), columns=() if whole else columns)


def chosen_components(eigenvalues: Array, few: Array) -> tuple[int, str]:
    """How many of the coordinates to keep by their eigenvalues, and why; those that ``few`` rows carry do not count.

    Coordinates that separate parts (λ = 1) are kept, and the others chosen by themselves: the parts say no more
    than the labels do.
    """
    first = eigenvalues[0] if eigenvalues.ndim == 2 else eigenvalues
    parts = int((1 - first <= ONE).sum())
    counted = np.flatnonzero(~few & (np.arange(len(first)) >= parts))
    if len(counted) < 2:
        return len(first), "all: fewer than two coordinates are carried by more than a handful of rows"
    choice = chosen_by_spectrum(first[counted])
    prefix = f"{parts} that tell parts apart, and of the others, counted by themselves: " if parts else ""
    return int(counted[choice.n_components - 1]) + 1, prefix + choice.reason


def coordinates_stage(
    policy: str, width: int, scaling: dict[str, Any], graph: GraphShape, auto: bool = False, rows: bool = True
) -> Stage:
    """``embedding`` (n, m) and ``labels`` (n,) in the order of the input; ``auto``: the spectrum decides how many.

    Two rows that change places may leave the kernel as it is. Without ``rows`` (of given distances and weights), nodes
    of islands are at 0, where eigenvectors have their mean.
    """
    n, block = graph.n, min(graph.block, graph.n)

    def run(context: Context) -> dict[str, Any]:
        eigenvalues = read_array(context.of("solve", "eigenvalues"))
        sizes = context.results("kernel")["rows"]
        chosen, reason = scaling_of(eigenvalues, **scaling), ""
        if auto:
            carried = participation(context.of("solve", "right"), context.of("kernel", "degree"), len(sizes))
            few = carried_by_few(carried.share, carried.rows, sum(sizes))
            kept, reason = chosen_components(eigenvalues, few)
            chosen = replace(chosen, count=kept)
        found = context.results("components")
        parts = parts_from(policy, found)
        order = context.of("order") if graph.ordered else None
        outside = parts.count < found["components"]
        placed = outside and order is not None and rows
        if outside and not placed and policy not in PLACING:
            raise InputError(
                "components='largest' needs rows to find the nearest row in the largest component; a "
                "user's graph has none. Use 'joint' or 'per-component', or cut the graph to a component"
            )
        equal = None if graph.weighted else repeated_matrix(context)
        filled: list[tuple[int, int]] = []
        if order is not None and (placed or equal is not None):
            filled = find_replaced(context, order, parts.count if rows else found["components"], equal, graph.by)
            tasks = [(b,) for b in range(len(sizes))]
            map_blocks(keep_block, tasks, exchange=context.exchange, out=context.path(""))
        starts = tuple(offsets(sizes).tolist())
        paths = context.of("solve", "right"), context.of("components", "labels")
        island = ISLAND if policy in PLACING else None
        walk = WalkCoordinates(*paths, starts, eigenvalues, chosen)
        write_coordinates(context, walk, order, bool(filled), parts.count, island)
        return {
            "t": chosen.t,
            "n_components": chosen.count,
            "columns": list(chosen.columns),
            "note": chosen.note,
            "reason": reason,
            "parts": parts.count,
            "filled_rows": sum(count for count, _ in filled),
            "repeated_rows": sum(count for _, count in filled),
            "first_filled": first_replaced(filled, Ordered.open(order), context.exchange) if order and placed else [],
            **({"unplaced_rows": n - sum(found["sizes"][: parts.count])} if outside and not placed else {}),
        }

    vectors, carried = 8 * n * width, (8 * width + 12) * n * journeys(-(-n // block))
    cost = Cost(
        read=vectors + 4 * n + carried,
        write=vectors + 4 * n + carried,
        maps=4,
        disk=vectors + 4 * n,
        scratch=vectors + 12 * n,
        memory=6 * block * (8 * width + 16),
    )
    inputs = (
        "kernel",
        "components",
        "solve",
        *(("order",) if graph.ordered else ()),
        *(() if graph.weighted else ("graph",)),
    )
    parameters = {**scaling, "policy": policy} | ({"auto": True} if auto else {})
    return Stage("coordinates", inputs, parameters, run, cost)


def scaled(right: Array, label: Array, eigenvalues: Array, scaling: Scaling) -> Array:
    """λ_l^t r_l (seed 000 eq. 24), with the eigenvalues of each row's component where they differ."""
    power = np.ones_like(eigenvalues) if scaling.t == 0 else eigenvalues**scaling.t  # (not whole only where λ ≥ 0)
    factor = power[label] if power.ndim == 2 else power[None]
    return (right * factor)[:, list(scaling.columns) or slice(scaling.count)]


@dataclass(frozen=True)
class WalkCoordinates:
    """Where a task finds the eigenvectors of the fitted rows, by blocks of the graph, and what they are scaled by."""

    right: str
    labels: str
    starts: tuple[int, ...]
    eigenvalues: Array
    scaling: Scaling

    @property
    def width(self) -> int:
        """Coordinates of a row."""
        return self.scaling.count

    def scaled(self, right: Array, label: Array) -> Array:
        """λ^t times eigenvectors of rows of these components."""
        return scaled(right, label, self.eigenvalues, self.scaling)

    def block(self, b: int, start: int = 0, stop: int | None = None) -> Array:
        """Coordinates of the rows ``start:stop`` of a block."""
        return self.scaled(*(read_array(f"{path}/{b}", start, stop) for path in (self.right, self.labels)))

    def of_rows(self, ids: Array) -> Array:
        """Coordinates of rows by their numbers in the graph."""
        return self.scaled(*(read_by_id(path, self.starts, ids) for path in (self.right, self.labels)))
