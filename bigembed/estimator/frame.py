"""Maps laid over earlier ones: how two are aligned, and the stage that does so and says how far rows moved.

The frame belongs to the fitted map: its coordinates, those of new rows, and the way back from coordinates to rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.rows import RowSource, derived, row_maps
from bigembed.rows.opening import as_array
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks
from bigembed.runtime.parameters import declared
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store import at
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.vector_space import tree_sum

# --------------------------------------------------------------------------------------------------------- alignment
# One map laid over another of the same rows: the rotation, size and place at which they differ least. Coordinates that
# a method determines up to a rotation (of a group of eigenvalues, or of the whole map) are brought to those of an
# earlier map by orthogonal Procrustes, from sums over the rows that both have.

KINDS = ("orthogonal", "rigid", "similarity")
SEPARATION = 0.2
"""Relative gap of two eigenvalues below which their coordinates may turn into each other when rows are added."""
ROWS = 1 << 16
"""Rows of a block of arrays in memory."""


@dataclass(frozen=True)
class Alignment:
    """An affine map y = x A + b of coordinates, A a rotation (with reflections) times a scale."""

    matrix: Array
    """A (m, m)."""
    shift: Array
    """b (m,)."""
    scale: float
    """s, with AᵀA = s² I."""
    rows: int
    """Rows that it was found by."""

    def apply(self, coordinates: Array) -> Array:
        """Map coordinates into the frame: x A + b, each row by itself.

        Parameters
        ----------
        coordinates : array of shape (k, m)
            The coordinates x.

        Returns
        -------
        ndarray of shape (k, m)
            The coordinates in the frame.
        """
        return (
            row_maps.affine_block(np.asarray(coordinates, np.float64), np.zeros(len(self.shift)), self.matrix)
            + self.shift
        )

    def undo(self, coordinates: Array) -> Array:
        """Map coordinates back out of the frame: (y − b) Aᵀ/s².

        Parameters
        ----------
        coordinates : array of shape (k, m)
            The coordinates y in the frame.

        Returns
        -------
        ndarray of shape (k, m)
            The coordinates as the method made them.
        """
        return row_maps.affine_block(np.asarray(coordinates, np.float64), self.shift, self.matrix.T / self.scale**2)

    @classmethod
    def none(cls, m: int) -> Alignment:
        """Return the map that leaves m coordinates as they are.

        Parameters
        ----------
        m : int ≥ 1
            The number of coordinates.

        Returns
        -------
        Alignment
            The identity.
        """
        return cls(np.eye(m), np.zeros(m), 1.0, 0)


@declared
def align(
    coordinates: Any, reference: Any, *, kind: str = "similarity", groups: Sequence[int] | None = None
) -> Alignment:
    """Find the rotation, size and place that bring a map nearest to another one of the same rows.

    The matrix Q minimizes Σ_i ‖x_i Q − y_i‖² over orthogonal matrices: with Σ_i x_iᵀ y_i = U S Vᵀ it is U Vᵀ
    (Schönemann 1966), of each group of coordinates by itself, so that a group of one gets a sign. For "rigid" and
    "similarity" both maps are first moved to mean 0, and for "similarity" the result is scaled so that the rows spread
    as in the reference: s² = Σ ‖y − ȳ‖² / Σ ‖x − x̄‖². (The scale of least squares would shrink a map whose rows have
    moved.)

    Parameters
    ----------
    coordinates : array of shape (n, m)
        The map x to be moved.
    reference : array of shape (n, m)
        The map y that stays, of the same rows. Rows with NaN in either are left out.
    kind : {"similarity", "rigid", "orthogonal"}
        What may change: rotation, place and size; rotation and place; or the rotation about 0 alone, as for
        eigenvectors.
    groups : sequence of m int, or None
        The group of each coordinate: coordinates turn into each other within a group only
        (:func:`bigembed.near_groups` finds those of eigenvalues). None is one group.

    Returns
    -------
    Alignment
        The transformation: ``apply`` and ``undo`` take coordinates (k, m); ``matrix``, ``shift`` and ``scale`` define
        it, and ``rows`` is the number of rows that it was found from.

    Raises
    ------
    InputError
        If the shapes differ, no row is in both, or a parameter is out of its range.

    Notes
    -----
    Cost: one pass over both arrays, m³; memory: a block of rows. The determinant is free, so that maps may be mirrored.

    References
    ----------
    P. Schönemann, A generalized solution of the orthogonal Procrustes problem, Psychometrika 31 (1966).

    Examples
    --------
    >>> old = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> turned = 3 * old @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5
    >>> found = align(turned, old)
    >>> bool(np.allclose(found.apply(turned), old)), round(found.scale, 6)
    (True, 0.333333)
    """
    x, y = as_array(coordinates, "coordinates"), as_array(reference, "reference")
    if x.ndim != 2 or x.shape != y.shape or not all(one.dtype.kind in "buif" for one in (x, y)):
        raise InputError(f"maps of the same rows are numbers of one shape (n, m); got {x.shape} and {y.shape}")
    if kind not in KINDS:
        raise InputError(f"kind={kind!r}; allowed: {', '.join(map(repr, KINDS))}")
    m = x.shape[1]
    labels = np.zeros(m) if groups is None else as_array(groups, "groups")
    if labels.shape != (m,) or labels.dtype.kind not in "buif":
        raise InputError(f"groups has shape {labels.shape}; a number for each of the {m} coordinates is needed")
    sums = tree_sum([sums_block(x[low:high], y[low:high]) for low, high in bounds(len(x), ROWS)] or [np.zeros(1)])
    if not sums[0]:
        raise InputError("no row has finite coordinates in both maps: nothing says how one lies in the other")
    return solved(sums, m, groups=labels.tolist(), shift=kind != "orthogonal", scale=kind == "similarity")


def sums_block(x: Array, y: Array) -> Array:
    """Return n, Σx, Σy, Σ xᵀy, Σ‖x‖² and Σ‖y‖² of the rows that are finite in both, as one vector."""
    there = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    x, y = x[there].astype(np.float64), y[there].astype(np.float64)
    cross = np.einsum("ij,ik->jk", x, y)
    norms = [np.einsum("ij,ij->", z, z) for z in (x, y)]
    return np.concatenate([[len(x)], x.sum(axis=0), y.sum(axis=0), cross.ravel(), norms])


def solved(
    sums: Array, m: int, *, groups: Sequence[float] | None = None, shift: bool = True, scale: bool = False
) -> Alignment:
    """Return the alignment of two maps from their :func:`sums_block`."""
    n, cross, (xx, yy) = sums[0], sums[1 + 2 * m : -2].reshape(m, m), sums[-2:]
    x, y = (sums[1 + i * m : 1 + (i + 1) * m] / n * shift for i in range(2))
    cross, xx, yy = cross - n * np.outer(x, y), xx - n * (x @ x), yy - n * (y @ y)
    turn, labels = np.zeros((m, m)), np.zeros(m, int) if groups is None else np.asarray(groups)
    for label in dict.fromkeys(labels.tolist()):
        members = np.flatnonzero(labels == label)
        turn[np.ix_(members, members)] = nearest_rotation(cross[np.ix_(members, members)])
    size = float(np.sqrt(yy / xx)) if scale and xx > 0 and yy > 0 else 1.0
    return Alignment(size * turn, y - size * (x @ turn), size, int(n))


def nearest_rotation(cross: Array) -> Array:
    """Return U Vᵀ of a matrix U S Vᵀ; of a number its sign, 1 for 0.

    >>> nearest_rotation(np.array([[-2.0]])).tolist(), nearest_rotation(np.array([[0.0]])).tolist()
    ([[-1.0]], [[1.0]])
    """
    if len(cross) == 1:
        return np.where(cross < 0, -1.0, 1.0)
    left, _, right = np.linalg.svd(cross)
    return np.asarray(left @ right)


@declared
def near_groups(values: Any, separation: float = SEPARATION) -> list[int]:
    """Number the groups of eigenvalues that lie too close together for their eigenvectors to be told apart.

    Neighbors l and l + 1 in the order given are in one group where |μ_l − μ_{l+1}| is at most
    separation · max(|μ_l|, |μ_{l+1}|): a change of the matrix by a small part turns their eigenvectors into each other
    (Davis & Kahan 1970: by the change over the gap).

    Parameters
    ----------
    values : array of shape (m,)
        The eigenvalues, in order, measured from where they crowd: 1 − λ of a random walk, variances of PCA.
    separation : float ≥ 0
        The relative gap below which two of them are in one group.

    Returns
    -------
    list of int
        The number of the group of each eigenvalue, from 0 on.

    Raises
    ------
    InputError
        If the values are not a vector of numbers, or ``separation`` is negative.

    Notes
    -----
    Cost: m comparisons.

    References
    ----------
    C. Davis, W. Kahan, The rotation of eigenvectors by a perturbation III, SIAM Journal on Numerical Analysis 7 (1970).

    Examples
    --------
    >>> near_groups([0.010, 0.0102, 0.013, 0.0132, 0.02])
    [0, 0, 1, 1, 2]
    """
    found = as_array(values, "values")
    if found.ndim != 1 or found.dtype.kind not in "buif" or not np.isfinite(found).all():
        raise InputError(f"values: a vector of finite numbers is needed; got shape {found.shape}, {found.dtype}")
    if not separation >= 0:
        raise InputError(f"separation={separation!r}; allowed: a number ≥ 0")
    found = found.astype(np.float64)
    size = np.maximum(np.abs(found[1:]), np.abs(found[:-1]))
    apart = np.abs(np.diff(found)) > separation * size
    return np.concatenate([[0], np.cumsum(apart)]).astype(int).tolist() if len(found) else []


# ------------------------------------------------------------------------------------------------------------- frame

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
        kept = derived.kept_on_the_way(source)
        published, first = _along(kept, self.published), _along(kept, self.first)
        if published.shape[0] != source.shape[0]:
            return None
        start, shared = None if self.start is None else _along(kept, self.start), self.shared
        for one in kept:
            shared = one.count_before(shared)
        return FrameReference(published, first, self.since, shared, start)


def _along(kept: Sequence[derived.KeptRows], other: RowSource) -> RowSource:
    for one in kept:
        other = one.of(other)
    return other


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
    found, groups, shared, middle = Alignment.none(m), rule.groups(values, m), 0, np.zeros(m)
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
    figures = movement(moved, drifted, apart)
    return {"since": reference.since, "shared": shared, "scale": found.scale, "groups": groups, **figures}


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
