"""A map in the frame of an earlier one: the stage that lays its coordinates over them, and says how far rows moved.

The frame belongs to the fitted map: its coordinates, those of new rows, and the way back from coordinates to rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.linalg.alignment import Alignment, near_groups, solved, sums_block
from bigembed.rows.derived import KeptRows, kept_on_the_way
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.paths import at
from bigembed.store.vector_space import tree_sum

STAGE = "frame"
SHOWN = "coordinates", "embedding"
"""Where coordinates lie that no frame has changed."""
LOOKED_AT = 1 << 18
"""Rows that quantiles of movements are taken of, at the most, evenly spread over all."""
QUANTILES = (0.5, 0.9, 0.99)
REACH = 0.99
"""Quantile of the distances from the middle of a map that half its diameter is."""


@dataclass(frozen=True)
class FrameRule:
    """What a method leaves open of its coordinates, and an earlier map decides."""

    kind: str = "groups"
    """``"groups"``: a rotation within groups of near eigenvalues; ``"whole"``: any rotation; ``"none"``: nothing."""
    shift: bool = False
    scale: bool = False
    values: tuple[str, str] = ("solve", "eigenvalues")
    """The stage and the array of the eigenvalues, the first of which belong to the coordinates."""
    top: float | None = None
    """Where they crowd: 1 for a random walk; None where it is 0."""

    def groups(self, values: Array, m: int) -> list[int]:
        """Return the group of each of m coordinates; each by itself where there are not as many eigenvalues."""
        if self.kind == "whole":
            return [0] * m
        if values.ndim != 1 or len(values) < m or not np.isfinite(values[:m]).all():
            return list(range(m))
        return near_groups(values[:m] if self.top is None else self.top - values[:m])


@dataclass(frozen=True)
class FrameReference:
    """The published map that a new one is laid over. Small and picklable."""

    published: RowSource
    """Its coordinates (N, m), one row for every row of the input as it is now: NaN for those that it does not show."""
    first: RowSource
    """The coordinates (N, m) of the first map of the frame."""
    since: str
    """The name of that first map."""
    shared: int
    """Rows ``0:shared`` were fitted there: by them the new map is laid over it."""
    start: RowSource | None = None
    """The published coordinates as its method made them, before they were laid over anything."""

    def of(self, source: RowSource) -> FrameReference | None:
        """Return the reference of the rows of a source that a method reads; None where they are not known any more."""
        kept = kept_on_the_way(source)
        published, first = _along(kept, self.published), _along(kept, self.first)
        if published.shape[0] != source.shape[0]:
            return None
        start = None if self.start is None else _along(kept, self.start)
        return FrameReference(published, first, self.since, _count(kept, self.shared), start)


def _along(kept: Sequence[KeptRows], other: RowSource) -> RowSource:
    for one in kept:
        other = one.of(other)
    return other


def _count(kept: Sequence[KeptRows], shared: int) -> int:
    for one in kept:
        shared = one.count_before(shared)
    return shared


# ----------------------------------------------------------------------------------------------------------- stage


def with_frame(
    reference: FrameReference | None, rule: FrameRule, stages: Sequence[Stage], source: RowSource
) -> list[Stage]:
    """Return the stages of a method and, where an earlier map is to be kept to, the one that lays its map over it."""
    shown = next((stage for stage in stages if stage.name == SHOWN[0]), None)
    here = None if reference is None or shown is None else reference.of(source)
    if shown is None or here is None:
        return list(stages)
    read = [stage.name for stage in stages if stage.name == rule.values[0] and rule.kind == "groups"]
    return [*stages, frame_stage(here, rule, shown, tuple(read))]


def frame_stage(reference: FrameReference, rule: FrameRule, shown: Stage, read: tuple[str, ...]) -> Stage:
    """``frame/embedding`` (n, m), ``moved`` (n,), ``first`` (n, m), and the map: ``matrix`` (m, m), ``shift`` (m,)."""
    n, m = reference.published.shape
    known = {"published": reference.published.fingerprint(), "first": reference.first.fingerprint()}
    parameters = {**known, "since": reference.since, "shared": reference.shared}
    parameters["rule"] = [rule.kind, rule.shift, rule.scale]
    block = min(n, block_rows(m, 8))
    cost = Cost.of(
        reads=[ArraySpec("maps", n, m, times=5)],
        writes=[ArraySpec("embedding", n, m), ArraySpec("first", n, m), ArraySpec("moved", n)],
        task=[ArraySpec("blocks of the maps", block, m, times=12)],
        coordinator=[ArraySpec("movements", min(n, 2 * LOOKED_AT), 3, times=3)],
        maps=2,
    )
    call = partial(run_frame, reference=reference, rule=rule, read=read)
    return Stage(STAGE, (SHOWN[0], *read), parameters, call, cost, on_demand=shown.on_demand)


def run_frame(context: Context, reference: FrameReference, rule: FrameRule, read: tuple[str, ...]) -> dict[str, Any]:
    path = context.of(*SHOWN)
    like = read_array(path, 0, 0)
    n, m, known = reference.published.shape[0], like.shape[1], reference.published.width
    spans = bounds(n, block_rows(m, 8))
    values = read_array(context.of(*rule.values)) if read and at(context.of(*rule.values)).exists() else np.zeros(0)
    found, groups, shared = Alignment.none(m), rule.groups(values, m), 0
    middle = np.zeros(m)
    if m == known:
        sums = tree_sum(map_blocks(shared_sums, spans, path=path, reference=reference))
        shared = int(sums[0])
        if shared and rule.kind != "none":
            found = solved(sums, m, groups=groups, shift=rule.shift, scale=rule.scale)
        middle = sums[1 + m : 1 + 2 * m] / max(shared, 1)
    arrays = {"embedding": ((n, m), like.dtype), "first": ((n, m), np.float64), "moved": ((n,), np.float64)}
    for name, (shape, dtype) in arrays.items():
        create_rows(context.path(name), shape, dtype, spans[0][1], overwrite=True)
    write_array(context.path("matrix"), found.matrix)
    write_array(context.path("shift"), found.shift)
    stride = max(1, -(-n // LOOKED_AT))
    parts = map_blocks(
        place_block, spans, path=path, out=context.path(""), reference=reference, frame=found, middle=middle,
        stride=stride, known=m == known,
    )  # fmt: skip
    moved, drifted, apart = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {
        "since": reference.since,
        "shared": shared,
        "scale": found.scale,
        "groups": groups,
        **movement(moved, drifted, apart),
    }


def movement(moved: Array, drifted: Array, apart: Array) -> dict[str, Any]:
    """Return how far rows moved, since the map before and since the first, as shares of the diameter of the map before.

    ``moved``, ``drifted``: of each row, NaN where it was not there; ``apart``: from the middle of the map before. The
    diameter is twice the distance that 99 of 100 rows have from the middle.

    >>> movement(np.array([1.0, 3.0, np.nan]), np.array([5.0, np.nan, np.nan]), np.array([10.0, 10.0, np.nan]))["moved"]
    {'0.5': 0.1, '0.9': 0.14, '0.99': 0.149}
    """
    there = apart[np.isfinite(apart)]
    diameter = 2 * float(np.quantile(there, REACH)) if len(there) else 0.0
    return {"diameter": diameter, "moved": _shares(moved, diameter), "drift": _shares(drifted, diameter)}


def _shares(lengths: Array, diameter: float) -> dict[str, float]:
    there = lengths[np.isfinite(lengths)]
    if not len(there) or not diameter > 0:
        return {}
    return {str(q): float(round(np.quantile(there, q) / diameter, 12)) for q in QUANTILES}


def shared_sums(start: int, stop: int, *, path: str, reference: FrameReference) -> Array:
    """Return the sums of a block of both maps that the frame follows from."""
    stop = min(stop, max(start, reference.shared))
    return sums_block(read_array(path, start, stop), reference.published.read(start, stop))


def place_block(
    start: int, stop: int, *, path: str, out: str, reference: FrameReference, frame: Alignment, middle: Array,
    stride: int, known: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Write a block of the coordinates in the frame, those of its first map, and how far each row moved.

    Returns the distances of every ``stride``-th row: to its published place, to its first one, and how far that
    published place is from the middle.
    """
    placed = frame.apply(read_array(path, start, stop))
    before, first = (
        one.read(start, stop) if known else np.full(placed.shape, np.nan)
        for one in (reference.published, reference.first)
    )
    first = np.where(np.isfinite(before), first, np.nan)  # (of a row that is another one now)
    moved, drifted, apart = (np.linalg.norm(one, axis=1) for one in (placed - before, placed - first, before - middle))
    write_rows(f"{out}embedding", start, placed)
    write_rows(f"{out}first", start, first)
    write_rows(f"{out}moved", start, moved)
    chosen = slice(-start % stride, None, stride)
    return moved[chosen], drifted[chosen], apart[chosen]


# ------------------------------------------------------------------------------------------------------------ read


def place_of(run: Any) -> tuple[str, str]:
    """Return the stage and the array of the coordinates of a run or of a model: in its frame, where it has one."""
    return (STAGE, SHOWN[1]) if run.has(STAGE) else SHOWN


def frame_in(run: Run) -> Alignment | None:
    """Return the frame of a run or of a saved model, where it has one."""
    if not run.has(STAGE):
        return None
    found = run.results(STAGE)
    matrix, shift = (read_array(run.path(STAGE, name)) for name in ("matrix", "shift"))
    return Alignment(matrix, shift, float(found["scale"]), int(found["shared"]))


def frame_figures(run: Run) -> dict[str, Any]:
    """Return what a certificate says of the frame of a run; nothing where it has none."""
    return {STAGE: dict(run.results(STAGE))} if run.has(STAGE) else {}
