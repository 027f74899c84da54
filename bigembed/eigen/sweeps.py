"""What LOBPCG does on one block of rows: the mathematics of :mod:`bigembed.eigen.lobpcg`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.stripes import spread, stripes
from bigembed.blocks.vector_space import tree_sum
from bigembed.eigen.aggregate import Groups
from bigembed.eigen.base import extremes


def active_block(block: int, scale: Array) -> tuple[tuple[()], int]:
    """Rows of the solved component."""
    return (), int(np.count_nonzero(scale))


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
    block: int, x: Array, t: Array, ax: Array, at: Array, label: Array, basis: Array
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    """Restricted [X, SX] and T; XᵀX, XᵀSX, TᵀX, TᵀST, and ‖St − θt‖² with the θ of this block."""
    theta = t.T @ at
    sums = (x.T @ x, x.T @ ax, t.T @ x, theta, _error(t, at))
    return (restrict(label, basis, x, ax), restrict(label, basis, t)), sums


def _error(t: Array, at: Array) -> Array:
    """Squared deviation of At from t times its row-wise ratio's weighted mean in this block."""
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
    compiled().combine(*given, out, at, c.shape[1])
    return out


def update_block(
    block: int, scale: Array, label: Array, basis: Array, diagonal: Array, t: Array, y: Array, *rest: Any
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Sweep A on one block: X, P, SX, SP by coefficients, R, W, and of the Gram matrices what is of W.

    W is in single precision: any vectors near R / diag + P_c y serve, as long as S W is that of the very same ones.

    PᵀX, PᵀP, … follow by the same coefficients from the restricted basis; only PᵀW is a product. Results take the
    place of spent vectors that may be written.
    """
    *arrays, mix, inverse, values, overlap, known, sizes = rest
    count = sum(size > 0 for size in sizes)
    restricted_t, restricted, *apart = arrays[: -2 * count]
    none, vectors = np.zeros((len(scale), 0)), iter(arrays[-2 * count :])
    x, p, w, ax, ap, aw = (next(vectors) if size else none for size in (*sizes, *sizes))
    w = w.astype(np.float32, copy=False)
    first, last = np.split(mix, sizes[:1])
    drift, drift_rest = overlap[:, : sizes[0]] @ first, overlap[:, sizes[0] :] @ last
    cp, cw = np.split(last, [sizes[1]])
    m, moved = len(values), len(inverse)
    new_x, new_ax, new_w = _place(x, m), _place(ax, m), _place(w, m)
    new_p, new_ap = _place(p, moved), _place(ap, moved)
    weight = (scale[:, 0] != 0) / np.maximum(1 - diagonal[:, 0], 1e-3)
    given = (
        x, p, w, ax, ap, aw, first, cp, cw, t, drift, drift_rest, known[:, None] * drift, known[:, None] * drift_rest,
        values, inverse if moved else np.ones(m), weight, label, basis, _filled(y),
    )  # fmt: skip
    run = partial(_updated, tuple(map(np.ascontiguousarray, given)), (new_x, new_p, new_w, new_ax, new_ap))
    sums = spread([partial(run, *stripe) for stripe in stripes(len(scale))])
    both = np.concatenate([mix, away_of(mix, inverse, sizes[0])], axis=1)
    drift, wide = overlap @ both, both.shape[1]
    # The restricted images come last, as in [B SB]: PᵀSW follows with the pass.
    coarse = np.empty((len(restricted), 2 * wide + m))
    basis_of = partial(_combined, restricted, 0, [], both, restricted_t, drift, coarse, 0)
    images = partial(_combined, restricted, len(mix), apart, both, restricted_t, known[:, None] * drift, coarse)
    parts = spread([basis_of, partial(images, wide + m), partial(restrict, label, basis, new_w)])
    coarse[:, wide : wide + m] = parts[-1]
    gram, form, together, squares = (tree_sum([part[k] for part in sums]) for k in range(4))
    return (new_x, new_p, new_w, new_ax, new_ap, coarse), (gram, form, together, squares[0])


def _filled(y: Array) -> Array:
    """In double precision, with columns of zeros up to a multiple of what a processor takes at a time."""
    out = np.zeros((len(y), -(-y.shape[1] // LANES) * LANES))
    out[:, : y.shape[1]] = y
    return out


def _updated(given: tuple[Array, ...], places: tuple[Array, ...], start: int, stop: int) -> tuple[Array, ...]:
    """Rows start … stop − 1 in their places; the sums over them."""
    m, wide, known = len(given[14]), places[0].shape[1] + places[1].shape[1], given[9].shape[1]
    sums = (np.zeros((m, wide + m)), np.zeros((m, wide)), np.zeros((known, wide + m)), np.zeros((1, m)))
    compiled().update(start, stop, *given, *places, *sums)
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


def product_block_grams(block: int, *rest: Any) -> tuple[tuple[Array], Array]:
    """Within the pass: BᵀSB for the vectors B that were multiplied, and the restriction of their images."""
    *vectors, count = rest
    xs, ys, (label, basis) = vectors[:count], vectors[count : 2 * count], vectors[2 * count :]
    whole, image = _beside(xs), _beside(ys)
    inner = [partial(_inner, whole, image, *stripe) for stripe in stripes(len(whole))]
    restricted, *sums = spread([partial(restrict, label, basis, ys[-1]), *inner])
    return (restricted,), tree_sum(sums)


def _inner(x: Array, y: Array, start: int, stop: int) -> Array:
    """xᵀy over some rows."""
    columns = x.shape[1]
    out = np.zeros([-(-columns // LANES) * LANES] * 2)
    compiled().inner(start, stop, x, y, out)
    return out[:columns, :columns]


def _beside(vectors: Sequence[Array]) -> Array:
    """Vectors side by side."""
    return np.ascontiguousarray(vectors[0] if len(vectors) == 1 else np.concatenate(vectors, axis=1))


def certify_block(
    block: int, x: Array, ax: Array, label: Array, basis: Array, t: Array, values: Array
) -> tuple[tuple[Array], tuple[Array, ...]]:
    """Explicit residuals and the matrices to go on with."""
    residual = ax - x * values
    squares = np.einsum("ij,ij->j", residual, residual)
    return (restrict(label, basis, x, ax),), (x.T @ x, x.T @ ax, t.T @ x, squares)


def extremes_block(block: int, x: Array) -> tuple[tuple[()], Array]:
    """Largest |entry| of each column and its sign."""
    return (), extremes(x)


def sign_block(block: int, x: Array, flips: Array) -> tuple[tuple[Array], None]:
    """Signs by the rule, ready for other blocks to read."""
    return (x * flips,), None


def final_block(block: int, x: Array, wanted: int) -> tuple[tuple[Array], Array]:
    """The wanted columns and their Gram matrix."""
    v = np.ascontiguousarray(x[:, :wanted])
    return (v,), v.T @ v


LANES = 8
"""Columns that a processor takes at a time in the compiled kernels."""


@cache
def compiled() -> Any:
    """The compiled kernels (:mod:`bigembed.eigen.update_kernel`)."""
    from bigembed.eigen import update_kernel  # imports numba: only here

    return update_kernel


def prolong(label: Array, basis: Array, y: Array) -> Array:
    """P_c y on the rows of a block."""
    out = np.empty((len(label), y.shape[1]))
    compiled().prolong(label, basis, np.ascontiguousarray(y, np.float64), out)
    return out


def restrict(label: Array, basis: Array, *vectors: Array) -> Array:
    """P_cᵀ of some vectors."""
    groups, x = Groups.of(label), _beside(vectors)
    out = np.zeros((max(1, groups.count) * basis.shape[1], x.shape[1]))
    compiled().restrict(groups.starts, groups.order, basis, x, out)
    return out
