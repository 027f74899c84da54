"""From the eigenvectors of the components to coordinates in the order of the input: λ^t, truncation, the number of
coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import ISLAND, PLACING, GraphShape, Parts, contrast, parts_from
from bigembed.maps import write_coordinates
from bigembed.maps.graph_rows import find_replaced, first_replaced, keep_block, repeats_of, repeats_opened
from bigembed.neighbors.order import Ordered
from bigembed.quality.coordinates import ONE, carried_by_few, chosen_by_spectrum, participation
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import read_array, read_by_id, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.parcels import transfer_count

# -------------------------------------------------------------------------------------------------------- assemble
# From the eigenvectors of the components to one set of right eigenvectors, as the components policy says.


@dataclass(frozen=True)
class Column:
    """A coordinate: eigenvector ``index`` of component ``component``; or, for index −1, a contrast of components."""

    eigenvalue: float
    component: int
    index: int


def solution_arrays(n: int, m: int, averaged: bool = False) -> Arrays:
    """What a solve publishes; ``averaged``: with the eigenvectors averaged over neighbors, by landmarks."""
    names = ("right/*", "averaged/*") if averaged else ("right/*",)
    return [*(ArraySpec(name, n, m) for name in names), ArraySpec("eigenvalues", 0), ArraySpec("residuals", 0)]


def assemble(
    context: Context,
    weights: StoredMatrix,
    parts: Parts,
    width: int,
    solved: dict[int, dict[str, Any]],
    labels: str,
    degree: str,
    sums: Array,
) -> dict[str, Any]:
    """Put the vectors of the components that are embedded together, fix signs, write ``right/b``.

    By landmarks also ``averaged/b``: functions whose averages over the neighbors of a row are its eigenvector entries.
    ``sums``: of the degrees of each component.
    """
    tasks = [(b,) for b in range(len(weights.rows))]
    count = parts.count
    together = parts.joint
    columns: list[Column] = []
    if parts.single:
        columns = [Column(value, 0, k) for k, value in enumerate(solved[0]["eigenvalues"])]
    elif together:
        columns = [Column(1.0, c, -1) for c in range(1, parts.contrasts(width) + 1)]
        rest = [Column(v, c, k) for c, s in solved.items() for k, v in enumerate(s["eigenvalues"])]
        columns = (columns + sorted(rest, key=lambda column: -column.eigenvalue))[:width]
    files = {c: s.get("vectors", "") for c, s in solved.items()}
    by_landmarks = any("averaged" in s for s in solved.values())
    root = context.exchange.root
    shape: dict[str, Any] = {
        "labels": labels,
        "degree": degree,
        "starts": offsets(weights.rows),
        "columns": columns,
        "files": files,
        "blocks": {c: s["blocks"] for c, s in solved.items() if s.get("blocks") is not None},
        "width": width,
        "sums": sums,
        "together": together,
        "root": root,
        "factors": {},
    }
    extremes = map_blocks(right_block, tasks, exchange=context.exchange, **shape)
    signs = _signs(np.stack([part[0] for part in extremes]), np.stack([part[1] for part in extremes]))
    finish: dict[str, Any] = {"signs": signs, "labels": labels, "out": context.path(""), "exchange": context.exchange}
    map_blocks(signed_block, tasks, name="right", **finish)
    if by_landmarks:
        shape["files"] = {
            c: s.get("averaged", name) for (c, s), name in zip(solved.items(), files.values(), strict=True)
        }
        exact = {c: np.array(s["eigenvalues"]) for c, s in solved.items() if "averaged" not in s}
        shape["factors"] = {c: np.divide(1.0, v, out=np.zeros_like(v), where=v != 0) for c, v in exact.items()}
        map_blocks(right_block, tasks, exchange=context.exchange, **shape)
        map_blocks(signed_block, tasks, name="averaged", **finish)
    if columns:
        eigenvalues: Any = [column.eigenvalue for column in columns]
        residuals: Any = [
            0.0 if column.index < 0 else solved[column.component]["residuals"][column.index] for column in columns
        ]
    else:
        eigenvalues = [_padded(solved.get(c, {}).get("eigenvalues", []), width) for c in range(count)]
        residuals = [_padded(solved.get(c, {}).get("residuals", []), width) for c in range(count)]
    write_array(context.path("eigenvalues"), np.asarray(eigenvalues, np.float64))
    write_array(context.path("residuals"), np.asarray(residuals, np.float64))
    return {
        "solved": {
            str(c): {k: v for k, v in s.items() if k not in ("vectors", "averaged", "blocks")}
            for c, s in solved.items()
        },
        "averaged": by_landmarks,
        "columns": [[column.component, column.index] for column in columns],
        "converged": all(s["converged"] for s in solved.values()),
        "passes": sum(s["passes"] for s in solved.values()),
        "bytes_moved": sum(s["bytes_moved"] for s in solved.values()),
        "degree_sums": sums[:1000].tolist(),
    }


def degree_sums_block(b: int, *, labels: str, degree: str, count: int) -> Array:
    """Σd of each of the first components within the block."""
    label = np.minimum(read_array(f"{labels}/{b}"), count)
    return np.bincount(label, weights=read_array(f"{degree}/{b}"), minlength=count + 1)[:count]


def right_block(
    b: int,
    *,
    labels: str,
    degree: str,
    starts: Array,
    columns: list[Column],
    files: dict[int, str],
    blocks: dict[int, Sequence[int]],
    width: int,
    sums: Array,
    together: bool,
    root: str,
    factors: dict[int, Array],
    exchange: Exchange,
) -> tuple[Array, Array]:
    """R = Π^{-1/2} V of one block, unsigned; the largest |entry| of each column (and component) and its sign.

    ``factors`` multiply the vectors of a component: over λ they are what the walk averages to the eigenvectors.
    ``blocks``: those in which the vectors of a component lie, where it is not all.
    """
    label, d = read_array(f"{labels}/{b}"), read_array(f"{degree}/{b}")
    ids = np.arange(starts[b], starts[b + 1])
    total = sums.sum() if together else None
    right = np.zeros((len(label), width))
    per_component = not columns
    for c in np.unique(label[label < len(sums)]):
        rows = np.flatnonzero(label == c)
        if int(c) in files:
            place = int(np.searchsorted(blocks[int(c)], b)) if int(c) in blocks else b
            vectors = _vectors(int(c), files[int(c)], place, ids[rows], rows, root, exchange)
            vectors = vectors * factors.get(int(c), np.ones(vectors.shape[1]))
            scale = np.sqrt((sums[c] if total is None else total) / d[rows])[:, None]
            chosen = (
                range(vectors.shape[1])
                if per_component
                else [x.index for x in columns if x.component == c and x.index >= 0]
            )
            position = (
                list(chosen)
                if per_component
                else [k for k, x in enumerate(columns) if x.component == c and x.index >= 0]
            )
            right[rows[:, None], position] = (vectors * scale)[:, list(chosen)]
        for k, column in enumerate(columns):
            if column.index < 0:
                right[rows, k] = contrast(int(c), column.component, sums)
    exchange.put("right", b, {"right": right})
    groups = len(sums) if per_component else 1
    largest, sign = np.zeros((groups, width)), np.ones((groups, width))
    for group in range(groups):
        part = right[label == group] if per_component else right
        if len(part):
            where = np.argmax(np.abs(part), axis=0)
            entry = part[where, np.arange(width)]
            largest[group], sign[group] = np.abs(entry), np.where(entry < 0, -1.0, 1.0)
    return largest, sign


def _vectors(c: int, name: str, b: int, ids: Array, rows: Array, root: str, exchange: Exchange) -> Array:
    """Orthonormal eigenvectors of component c on the given rows of a block, which lie as its block b."""
    if name:
        found = Exchange(f"{root}/component{c}").get(name, b, "own")
        assert found is not None
        return found[rows]
    known, vectors = exchange.get("solved", c, "ids"), exchange.get("solved", c, "vectors")
    assert known is not None
    assert vectors is not None
    return vectors[np.searchsorted(known, ids)]


def _signs(largest: Array, sign: Array) -> Array:
    """Sign of the largest |entry| over all blocks (the first of equal ones), per group and column."""
    winner = np.argmax(largest, axis=0)
    return np.asarray(np.take_along_axis(sign, winner[None], axis=0)[0])


def signed_block(b: int, *, name: str, exchange: Exchange, signs: Array, labels: str, out: str) -> None:
    """Write R with the largest |entry| of each column positive (or, by the same signs, what is averaged to it)."""
    right = exchange.get("right", b, "right")
    assert right is not None
    group = read_array(f"{labels}/{b}") if len(signs) > 1 else np.zeros(len(right), int)
    write_array(f"{out}{name}/{b}", right * signs[group])


def _padded(values: list[float], width: int) -> list[float]:
    return values + [0.0] * (width - len(values))


# ----------------------------------------------------------------------------------------------------- coordinates
# From eigenvectors to coordinates in the order of the input: λ^t, truncation, rows that take those of another one.


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

    found = [ArraySpec("embedding", n, width), ArraySpec("labels", n, dtype="i4")]
    carried = [replace(one, times=transfer_count(-(-n // block))) for one in (*found, ArraySpec("row numbers", n))]
    cost = Cost.of(
        reads=found,
        writes=[*found, *(ArraySpec(f"{name}/*", 0, dtype="i8") for name in ("outside", "nearest"))],
        leaves=carried,
        task=[ArraySpec("coordinates, labels and numbers", block, width + 2, times=6)],
        maps=4,
    )
    inputs = (
        "kernel",
        "components",
        "solve",
        *(("order",) if graph.ordered else ()),
        *(() if graph.weighted else (graph.stage,)),
    )
    parameters = {**scaling, "policy": policy} | ({"auto": True} if auto else {})
    return Stage(
        "coordinates",
        inputs,
        parameters,
        partial(run_coordinates, policy=policy, scaling=scaling, graph=graph, auto=auto, rows=rows),
        cost,
        opens={"kernel": ("degree",) if auto else (), "components": ("labels",), graph.stage: repeats_opened},
    )


def run_coordinates(
    context: Context, policy: str, scaling: dict[str, Any], graph: GraphShape, auto: bool, rows: bool
) -> dict[str, Any]:
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
    repeats = None if graph.weighted else repeats_of(context)
    filled: list[tuple[int, int]] = []
    if order is not None and (placed or repeats is not None):
        filled = find_replaced(context, order, parts.count if rows else found["components"], repeats, graph.by)
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
        **({"unplaced_rows": graph.n - sum(found["sizes"][: parts.count])} if outside and not placed else {}),
    }


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
