"""What LOBPCG does on one block of rows, the small matrices that it keeps, and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.linalg.coarse import LANES, Groups, block_kernels
from bigembed.linalg.eigenpairs import Reason
from bigembed.runtime.blocks import Array, stripes
from bigembed.runtime.executors import run_on_idle_threads
from bigembed.store.vector_space import tree_sum

# ----------------------------------------------------------------------------------------------------------- state
# The small part of a running LOBPCG: numbers and small matrices; the vectors are in the space.

_ARRAYS = ("values", "residuals", "gram", "form", "overlap", "known")


def _empty() -> Array:
    return np.zeros(0)


@dataclass(frozen=True)
class State:
    """What a step needs in addition to the vectors X.g, P.g, W.g, R.g, LP.g, LW.g, G.g, H.g of generation g."""

    n_components: int
    width: int
    """Pairs iterated on: wanted and guards."""
    tol: float
    seed: int
    max_passes: int
    deflate: str | None = None
    dense: bool = False
    """Too few rows for iteration: ``finish`` solves densely."""
    plan: tuple[int, ...] = ()
    """Aggregates of each block, then functions per aggregate."""
    generation: int = 0
    iteration: int = 0
    updated: bool = False
    """Whether S W is still to be made: the state is between the two steps of an iteration."""
    sizes: tuple[int, ...] = (0, 0, 0)
    """Columns of X, P, W."""
    values: Array = field(default_factory=_empty)
    """Ritz values, descending; ones before the first."""
    residuals: Array = field(default_factory=_empty)
    gram: Array = field(default_factory=_empty)
    """BᵀB of the basis B = [X P W]."""
    form: Array = field(default_factory=_empty)
    """BᵀSB; of W once S W is made."""
    overlap: Array = field(default_factory=_empty)
    """TᵀB with the known vectors T."""
    known: Array = field(default_factory=_empty)
    """Eigenvalues of the known vectors."""
    history: tuple[float, ...] = ()
    """Largest wanted residual of each iteration."""
    passes: int = 0
    bytes_moved: int = 0
    reason: str | None = None
    """Why it stopped; None while it runs."""

    def replaced(self, **changes: Any) -> State:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, lists and strings; floats survive exactly."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in _ARRAYS:
            array = np.asarray(out[name])
            out[name] = {"shape": list(array.shape), "entries": [float(x) for x in array.ravel()]}
        for name in ("plan", "sizes", "history"):
            out[name] = list(out[name])
        return out

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> State:
        """The state that :meth:`to_json` wrote."""
        out = dict(json)
        for name in _ARRAYS:
            out[name] = np.asarray(json[name]["entries"], np.float64).reshape(json[name]["shape"])
        for name in ("plan", "sizes", "history"):
            out[name] = tuple(json[name])
        return cls(**out)

    def describe(self) -> str:
        """One line on how far it is."""
        if self.dense:
            return "few rows: solved densely"
        if not self.history:
            return f"start: {self.passes} passes"
        end = f", {self.reason}" if self.reason else ""
        return f"iteration {self.iteration}: {self.passes} passes, largest residual {self.history[-1]:.1e}{end}"


# -------------------------------------------------------------------------------------------------------- stopping
# When LOBPCG stops, and which of its directions are still of use.

RELATIVE = 0.1
"""c of the second stopping rule r ≤ c (1 − λ)."""
REFRESH = 20
"""Iterations after which what is kept of S X and S P is made anew."""
PATIENCE = 15
ROUNDING = 1e-11
"""A residual below it that no longer falls is at the level of rounding."""


def limits(state: State, values: Array) -> Array:
    """r ≤ tol and r ≤ c (1 − λ), the latter down to tol / 10⁴."""
    return np.asarray(np.clip(RELATIVE * np.abs(1 - values[: state.n_components]), 1e-4 * state.tol, state.tol))


def reason_of(state: State) -> Reason | None:
    """Whether to stop before the next pass: on the wanted pairs, not on the guards. A certificate costs one more."""
    m = state.n_components
    if np.all(state.residuals[:m] <= (1 - 1e-6) * limits(state, state.values)):
        return Reason.CONVERGED
    if state.passes + 2 > state.max_passes:
        return Reason.MAX_PASSES
    history = state.history
    if len(history) > 1 and history[-2] < ROUNDING and history[-1] > 0.5 * history[-2]:
        return Reason.STAGNATED
    if len(history) > 2 * PATIENCE and min(history[-PATIENCE:]) > 0.7 * min(history[:-PATIENCE]):
        return Reason.STAGNATED
    return None


def certified(state: State, reason: Reason, residuals: Array) -> Reason | None:
    """What explicit residuals make of a reason to stop; None to go on, since they disagree and passes are left."""
    if np.all(residuals[: state.n_components] <= limits(state, state.values)):
        return Reason.CONVERGED
    if reason != Reason.CONVERGED:
        return reason
    goes_on = len(state.history) < 3 * REFRESH and state.passes + 3 < state.max_passes
    return None if goes_on else Reason.STAGNATED


def open_columns(state: State) -> Array:
    """1 for the columns of [X P W] to use, 0 for P and W of pairs already solved: those are noise."""
    x, p, w = state.sizes
    solved = np.zeros(x)
    if p or w:
        least = np.full(x, 1e-2 * state.tol)
        least[: state.n_components] = 1e-2 * limits(state, state.values)
        solved = (state.residuals <= np.maximum(least, 1e-13)).astype(np.float64)
    return 1.0 - np.concatenate([np.zeros(x), solved[:p], solved[:w]])


# ---------------------------------------------------------------------------------------------------------- sweeps
# What LOBPCG does on one block of rows: the mathematics of :mod:`bigembed.linalg.lobpcg`.


def sizes_block(block: int, scale: Array, *known: Array) -> tuple[tuple[()], tuple[int, int]]:
    """Rows of the solved component, and how many known vectors there are."""
    return (), (int(np.count_nonzero(scale)), sum(vectors.shape[1] for vectors in known))


def start_block(
    block: int, scale: Array, label: Array, basis: Array, modes: Array, *rest: Any
) -> tuple[tuple[Array, Array], None]:
    """X₀ = P · coarse eigenvectors and some noise, filled up with random columns; a posted copy of the known vectors.

    Without noise a coarse space that shares a symmetry of the graph could leave copies of an eigenvalue out for good.
    """
    *known, width, seed, noise = rest
    x = np.random.default_rng([seed, block]).standard_normal((len(scale), width)) * (scale != 0)
    x[:, : modes.shape[1]] *= noise
    x[:, : modes.shape[1]] += prolong(label, basis, modes)
    return (x, known[0] if known else np.zeros((len(scale), 0))), None


def first_block(
    block: int, x: Array, t: Array, sx: Array, st: Array, label: Array, basis: Array
) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
    """S X − X, restricted [X, SX] and T; XᵀX, XᵀSX, TᵀX, TᵀST, and ‖St − θt‖² with the θ of this block."""
    theta = t.T @ st
    sums = (x.T @ x, x.T @ sx, t.T @ x, theta, _error(t, st))
    return (_single(sx - x), restrict(label, basis, x, sx), restrict(label, basis, t)), sums


def _single(image: Array) -> Array:
    """A difference of images and vectors as it is kept: in single precision, since the vectors hold most digits."""
    return image.astype(np.float32)


def _error(t: Array, at: Array) -> Array:
    """‖At − θt‖² of each column over the rows of this block, with θ = tᵀAt / tᵀt of these rows alone."""
    mass = np.einsum("ij,ij->j", t, t)
    theta = np.einsum("ij,ij->j", t, at) / np.where(mass > 0, mass, 1.0)
    return np.asarray(((at - t * theta) ** 2).sum(axis=0))


def restricted_block(block: int, restricted: Array, *rest: Any) -> tuple[tuple[Array], None]:
    """PᵀR for the next X, from the restricted basis Pᵀ[B SB]: (PᵀSB) C − (PᵀB) C Λ."""
    *last, mix, values = rest
    images = _combined(restricted, len(mix), last, mix)
    images -= _combined(restricted, 0, [], mix * values)
    return (images,), None


def _combined(
    a: Array, first: int, last: Sequence[Array], c: Array, t: Array | None = None, drift: Array | None = None,
    into: Array | None = None, at: int = 0,
) -> Array:  # fmt: skip
    """[a_first … last] c − t drift, where the last columns may stand apart; into columns of an array from ``at`` on."""
    rest = np.ascontiguousarray(last[0]) if last else np.zeros((len(a), 0))
    t, drift = (np.zeros((len(a), 0)), np.zeros((0, c.shape[1]))) if t is None or drift is None else (t, drift)
    out = np.empty((len(a), c.shape[1])) if into is None else into
    given = np.ascontiguousarray(a), first, rest, _filled(c), np.ascontiguousarray(t), _filled(-drift)
    block_kernels().combine(*given, out, at, c.shape[1])
    return out


def update_block(
    block: int, scale: Array, label: Array, basis: Array, diagonal: Array, t: Array, y: Array, *rest: Any
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Sweep A on one block: X, P, R, LP by coefficients, W, and the rows of W in the Gram matrix.

    W is in single precision: any vectors near R / diag + P_c y serve, as long as S W is computed from the same ones.

    PᵀX, PᵀP, … follow by the same coefficients from the restricted basis; only PᵀW is a product. Results take the
    place of spent vectors that may be written.
    """
    *arrays, mix, inverse, values, before, overlap, known, sizes = rest
    count = sum(size > 0 for size in sizes)
    restricted_t, restricted, *apart = arrays[: -2 * count]
    vectors = iter(arrays[-2 * count :])
    x, p, w, r, lp, lw = (next(vectors) if size else np.zeros((len(scale), 0)) for size in (*sizes, *sizes))
    w, r, lp, lw = (image.astype(np.float32, copy=False) for image in (w, r, lp, lw))
    first, last = np.split(mix, sizes[:1])
    drift, drift_rest = overlap[:, : sizes[0]] @ first, overlap[:, sizes[0] :] @ last
    cp, cw = np.split(last, [sizes[1]])
    m, moved = len(values), len(inverse)
    new_x, new_r, new_w = _place(x, m), _place(r, m), _place(w, m)
    new_p, new_lp = _place(p, moved), _place(lp, moved)
    weight = (scale[:, 0] != 0) / np.maximum(1 - diagonal[:, 0], 1e-3)
    given = (
        x, p, w, r, lp, lw, first, cp, cw, before[:, None] * first - first * values, t, drift, drift_rest,
        drift * (known[:, None] - values), (1 - known)[:, None] * drift_rest, 1 - values,
        inverse if moved else np.ones(m), weight, label, basis, _filled(y),
    )  # fmt: skip
    run = partial(_updated, tuple(map(np.ascontiguousarray, given)), (new_x, new_p, new_w, new_r, new_lp))
    sums = run_on_idle_threads([partial(run, *stripe) for stripe in stripes(len(scale))])
    both = np.concatenate([mix, away_of(mix, inverse, sizes[0])], axis=1)
    drift, wide = overlap @ both, both.shape[1]
    # The restricted images come last, as in [B SB]: PᵀSW follows with the pass.
    coarse = np.empty((len(restricted), 2 * wide + m))
    basis_of = partial(_combined, restricted, 0, [], both, restricted_t, drift, coarse, 0)
    images = partial(_combined, restricted, len(mix), apart, both, restricted_t, known[:, None] * drift, coarse)
    parts = run_on_idle_threads([basis_of, partial(images, wide + m), partial(restrict, label, basis, new_w)])
    coarse[:, wide : wide + m] = parts[-1]
    gram, together, squares = (tree_sum([part[k] for part in sums]) for k in range(3))
    return (new_x, new_p, new_w, new_r, new_lp, coarse), (gram, together, squares[0])


def _filled(y: Array) -> Array:
    """In double precision, with columns of zeros up to a multiple of what a processor takes at a time."""
    out = np.zeros((len(y), -(-y.shape[1] // LANES) * LANES))
    out[:, : y.shape[1]] = y
    return out


def _updated(given: tuple[Array, ...], places: tuple[Array, ...], start: int, stop: int) -> tuple[Array, ...]:
    """Rows start … stop − 1 in their places; the sums over them."""
    m, known = places[0].shape[1], given[10].shape[1]
    wide = m + places[1].shape[1]
    sums = (np.zeros((m, wide + m)), np.zeros((known, wide + m)), np.zeros((1, m)))
    block_kernels().update(start, stop, *given, *places, *sums)
    return sums


def away_of(mix: Array, inverse: Array, lead: int) -> Array:
    """Coefficients of P: those of X without its part in the old X, each divided by its mass."""
    away = mix[:, : len(inverse)] * inverse
    away[:lead] = 0
    return away


def _place(spent: Array, columns: int) -> Array:
    """Where a result goes: in the place of a vector that nobody reads again, if it is of that shape and not mapped."""
    fits = spent.flags.owndata and spent.flags.writeable and spent.shape[1] == columns and spent.flags.c_contiguous
    return spent if fits else np.empty((len(spent), columns), spent.dtype)


def image_block(block: int, *rest: Any) -> tuple[tuple[Array, ...], Array]:
    """Within the pass: what is kept of the images of the last vectors of B = [X P W], PᵀSW, and their columns of BᵀSB.

    PᵀSW and BᵀSB are computed from the images before these are rounded. Of S X the residual S X − X Λ is kept, of S P
    and S W the differences P − S P and W − S W.
    """
    *vectors, count, values = rest
    xs, ys, (label, basis, *before) = vectors[:count], vectors[count : 2 * count], vectors[2 * count :]
    kept = [np.empty(y.shape, np.float32) for y in ys]
    forms = [partial(_forms, [*before, *xs], ys, kept, *stripe) for stripe in stripes(len(label))]
    restricted, *sums = run_on_idle_threads([partial(restrict, label, basis, ys[-1]), *forms])
    if not before:  # (all of B was multiplied)
        kept[0] = _single(ys[0] - xs[0] * values)
        kept[1:-1] = [_single(x - y) for x, y in zip(xs[1:-1], ys[1:-1], strict=True)]
    return (*kept, restricted), tree_sum(sums)


def _forms(basis: Sequence[Array], images: Sequence[Array], kept: Sequence[Array], start: int, stop: int) -> Array:
    """Bᵀ times some images over some rows; writes W less each image, too, which is of use for the last one only."""
    x, *p, w = basis
    columns, places = x.shape[1], [*range(0, len(basis) - 1), 2]
    out = np.zeros((len(images), 3, *[-(-columns // LANES) * LANES] * 2))
    given = x, p[0] if p else np.zeros((len(x), 0)), w
    for image, place, sums in zip(images, kept, out, strict=True):
        block_kernels().image(start, stop, *given, image, place, sums.reshape(-1, sums.shape[-1]))
    return np.block([[sums[k, :columns, :columns] for sums in out] for k in places])


def _join_columns(vectors: Sequence[Array]) -> Array:
    """Put the columns of several arrays of vectors into one array."""
    return np.ascontiguousarray(vectors[0] if len(vectors) == 1 else np.concatenate(vectors, axis=1))


def certify_block(
    block: int, x: Array, sx: Array, label: Array, basis: Array, t: Array, values: Array
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    """Explicit residuals and the matrices to go on with."""
    residual = sx - x * values
    squares = np.einsum("ij,ij->j", residual, residual)
    return (_single(residual), restrict(label, basis, x, sx)), (x.T @ x, x.T @ sx, t.T @ x, squares)


def final_block(block: int, x: Array, wanted: int) -> tuple[tuple[Array], Array]:
    """The wanted columns and their Gram matrix."""
    v = np.ascontiguousarray(x[:, :wanted])
    return (v,), v.T @ v


def prolong(label: Array, basis: Array, y: Array) -> Array:
    """P_c y on the rows of a block."""
    out = np.empty((len(label), y.shape[1]))
    block_kernels().prolong(label, basis, np.ascontiguousarray(y, np.float64), out)
    return out


def restrict(label: Array, basis: Array, *vectors: Array) -> Array:
    """P_cᵀ of some vectors."""
    groups, x = Groups.of(label), _join_columns(vectors)
    out = np.zeros((max(1, groups.count) * basis.shape[1], x.shape[1]))
    block_kernels().restrict(groups.starts, groups.order, basis, x, out)
    return out
