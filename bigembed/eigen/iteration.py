"""One iteration of LOBPCG in two steps: the update of all vectors by coefficients, and the pass.

Each step reads the vectors of its state and publishes the next one (:mod:`bigembed.eigen.lobpcg` says which). What the
update has read of a block it needs no more: it may give way to what comes of it, so that one generation is there.
"""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import tree_sum
from bigembed.eigen.base import Reason, signs_of
from bigembed.eigen.coarse import NAMES
from bigembed.eigen.coarse_solve import Coarse
from bigembed.eigen.ritz import rayleigh_ritz
from bigembed.eigen.state import State
from bigembed.eigen.stopping import REFRESH, certified, open_columns
from bigembed.eigen.sweeps import (
    away_of,
    certify_block,
    extremes_block,
    product_block_grams,
    restricted_block,
    sign_block,
    update_block,
)
from bigembed.operators.base import BlockOperator


def coarse_of(operator: BlockOperator, state: State) -> Coarse:
    """The coarse problem, loaded once."""
    if "coarse" not in operator.cache:
        operator.cache["coarse"] = Coarse.load(operator.space, state.plan)
    found: Coarse = operator.cache["coarse"]
    return found


def update(operator: BlockOperator, state: State) -> State:
    """The next X, P, SX, SP by Rayleigh–Ritz in [X P W], and W of its residuals; no pass."""
    g, sizes = state.generation, state.sizes
    open_ = open_columns(state)
    gram = (state.gram - state.overlap.T @ state.overlap) * np.outer(open_, open_)
    form = state.form - state.overlap.T @ (state.known[:, None] * state.overlap)
    values, mix = rayleigh_ritz(gram, form, sizes[0])
    width = min(state.width, mix.shape[1])
    values, mix = values[:width], mix[:, :width]
    inverse = _directions(mix, gram, sizes[0])
    both = np.concatenate([mix, away_of(mix, inverse, sizes[0])], axis=1)
    names = _basis(sizes)
    restricted = [f"G.{g}", *([f"H.{g}"] if "W" in names else [])]
    _correct(operator, state, restricted, mix, values)
    vectors = [*(f"{a}.{g}" for a in names), *(f"A{a}.{g}" for a in names)]
    parts = operator.space.sweep(
        update_block,
        reads=[operator.scale, *NAMES, "T", f"Y.{g + 1}", "coarse.known", *restricted, *vectors],
        spends=vectors,
        writes=[f"{name}.{g + 1}" for name in ("X", "P", "W", "AX", "AP", "G")],
        posts=[f"W.{g + 1}"],
        arguments=(mix, inverse, values, state.overlap, state.known, sizes),
    )
    beside, images, overlap, squares = (tree_sum([part[k] for part in parts]) for k in range(4))
    residuals = np.sqrt(squares)
    return state.replaced(
        generation=g + 1,
        iteration=state.iteration + 1,
        updated=True,
        values=values,
        residuals=residuals,
        gram=_bordered(both.T @ gram @ both, beside),
        form=_bordered(both.T @ form @ both, images),
        overlap=overlap,
        sizes=(width, len(inverse), width),
        history=(*state.history, float(residuals[: state.n_components].max())),
    )


def multiply(operator: BlockOperator, state: State) -> State:
    """The pass: S W, and every :data:`~bigembed.eigen.stopping.REFRESH` iterations S X and S P as well."""
    g, names = state.generation, ["W"]
    if state.iteration % REFRESH == 0:
        names = _basis(state.sizes)
        operator.space.drop(f"AX.{g}", f"AP.{g}")
    parts = operator.product(
        [f"{name}.{g}" for name in names],
        [f"A{name}.{g}" for name in names],
        then=product_block_grams,
        reads=[*NAMES[:2]],
        writes=[f"H.{g}"],
        arguments=(len(names),),
    )
    fresh = tree_sum(parts)
    form, count = state.form.copy(), len(fresh)
    form[-count:, -count:] = fresh
    return state.replaced(form=form, updated=False)


def certify(operator: BlockOperator, state: State, reason: Reason) -> State:
    """Explicit residuals of X by one pass; if it disagrees, the iteration goes on from fresh products."""
    space, g = operator.space, state.generation
    space.drop(*(f"{name}.{g}" for name in ("P", "W", "AX", "AP", "G", "Y")))
    flips = signs_of(space.sweep(extremes_block, reads=[f"X.{g}"]))
    space.sweep(sign_block, reads=[f"X.{g}"], writes=[f"X.{g + 1}"], arguments=(flips,))
    parts = operator.product(
        [f"X.{g + 1}"],
        [f"AX.{g + 1}"],
        then=certify_block,
        reads=[*NAMES[:2], "T"],
        writes=[f"G.{g + 1}"],
        arguments=(state.values,),
    )
    gram, form, overlap, squares = (tree_sum([part[k] for part in parts]) for k in range(4))
    residuals = np.sqrt(squares)
    end = certified(state, reason, residuals)
    return state.replaced(
        generation=g + 1,
        updated=False,
        residuals=residuals,
        gram=gram,
        form=form,
        overlap=overlap,
        sizes=(len(gram), 0, 0),
        reason=None if end is None else end.value,
    )


def _basis(sizes: tuple[int, ...]) -> list[str]:
    return [name for name, size in zip("XPW", sizes, strict=True) if size]


def _directions(mix: Array, gram: Array, lead: int) -> Array:
    """What makes the new P, X without its part in the old one, of unit mass (0 for a column without mass)."""
    away = mix.copy()
    away[:lead] = 0
    mass = np.sqrt(np.maximum(np.einsum("ij,ij->j", away, gram @ away), 0.0))
    kept = mass > 1e-13
    return np.where(kept, 1 / np.where(kept, mass, 1.0), 0.0) if mass.any() else mass[:0]


def _bordered(inner: Array, beside: Array) -> Array:
    """A symmetric matrix of [X P W] from that of [X P], and the rows of W (without W itself: zeros there)."""
    size, width = len(inner), len(beside)
    out = np.zeros((size + width, size + width))
    out[:size, :size] = (inner + inner.T) / 2
    out[size:, : beside.shape[1]] = beside
    out[:size, size:] = beside[:, :size].T
    return out


def _correct(operator: BlockOperator, state: State, restricted: list[str], mix: Array, values: Array) -> None:
    """Y = L_c^{-1} Pᵀ R for the next X, from the restricted basis."""
    coarse = coarse_of(operator, state)
    operator.space.sweep(restricted_block, reads=restricted, writes=["coarse.right"], arguments=(mix, values))
    coarse.scatter(f"Y.{state.generation + 1}", coarse.correction("coarse.right"))
