"""Two-level LOBPCG for the largest eigenpairs of S = D^{-1/2} W D^{-1/2}: the iteration, and one step of it in two
sweeps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.linalg import BlockOperator, lobpcg_sweeps
from bigembed.linalg.coarse import KEPT, NAMES, build, entries, shape_of
from bigembed.linalg.eigenpairs import ADVICE, EigenResult, Reason, gaps_of, rayleigh_ritz, solve_dense, turn_vectors
from bigembed.linalg.lobpcg_sweeps import State
from bigembed.linalg.multigrid import Coarse
from bigembed.runtime.blocks import Array, one_blas_thread
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------- iteration
# One iteration of LOBPCG in two steps: the update of all vectors by coefficients, and the pass.
#
# Each step reads the vectors of its state and returns the next state (the section ``lobpcg`` below says which vectors).
# The update reads each block of a vector once, so the results may take its place: only one generation is stored.


def coarse_of(operator: BlockOperator, state: State) -> Coarse:
    """The coarse problem, loaded once."""
    if "coarse" not in operator.cache:
        operator.cache["coarse"] = Coarse.load(operator.space, state.plan)
    found: Coarse = operator.cache["coarse"]
    return found


def update(operator: BlockOperator, state: State) -> State:
    """The next X, P, R, LP by Rayleigh–Ritz in [X P W], and W; no pass."""
    g, sizes = state.generation, state.sizes
    open_ = lobpcg_sweeps.open_columns(state)
    gram = (state.gram - state.overlap.T @ state.overlap) * np.outer(open_, open_)
    form = state.form - state.overlap.T @ (state.known[:, None] * state.overlap)
    values, mix = rayleigh_ritz(gram, form, sizes[0])
    width = min(state.width, mix.shape[1])
    values, mix = values[:width], mix[:, :width]
    inverse = _directions(mix, gram, sizes[0])
    both = np.concatenate([mix, lobpcg_sweeps.away_of(mix, inverse, sizes[0])], axis=1)
    names = _basis(sizes)
    restricted = [f"G.{g}", *([f"H.{g}"] if "W" in names else [])]
    _correct(operator, state, restricted, mix, values)
    vectors = [*(f"{a}.{g}" for a in names), *(f"{IMAGES[a]}.{g}" for a in names)]
    parts = operator.space.sweep(
        lobpcg_sweeps.update_block,
        reads=[operator.scale, *NAMES, "T", f"Y.{g + 1}", "coarse.known", *restricted, *vectors],
        spends=vectors,
        writes=[f"{name}.{g + 1}" for name in ("X", "P", "W", "R", "LP", "G")],
        posts=[f"W.{g + 1}"],
        arguments=(mix, inverse, values, state.values, state.overlap, state.known, sizes),
        descending=g % 2 == 0,
    )
    beside, overlap, squares = (tree_sum([part[k] for part in parts]) for k in range(3))
    residuals = np.sqrt(squares)
    return state.replaced(
        generation=g + 1,
        iteration=state.iteration + 1,
        updated=True,
        values=values,
        residuals=residuals,
        gram=_bordered(both.T @ gram @ both, beside),
        form=_bordered(both.T @ form @ both, np.zeros_like(beside)),
        overlap=overlap,
        sizes=(width, len(inverse), width),
        history=(*state.history, float(residuals[: state.n_components].max())),
    )


def multiply(operator: BlockOperator, state: State) -> State:
    """The pass: S W, and every :data:`~bigembed.linalg.lobpcg_sweeps.REFRESH` iterations S X and S P as well."""
    g, names, before = state.generation, ["W"], _basis((*state.sizes[:2], 0))
    if state.iteration % lobpcg_sweeps.REFRESH == 0:
        names, before = _basis(state.sizes), []
        operator.space.drop(f"R.{g}", f"LP.{g}")
    parts = operator.product(
        [f"{name}.{g}" for name in names],
        then=lobpcg_sweeps.image_block,
        reads=[*NAMES[:2], *(f"{name}.{g}" for name in before)],
        writes=[*(f"{IMAGES[name]}.{g}" for name in names), f"H.{g}"],
        arguments=(len(names), state.values),
        descending=g % 2 == 1,
    )
    fresh = tree_sum(parts)
    form, count = state.form.copy(), fresh.shape[1]
    form[:, -count:] = fresh
    form[-count:] = fresh.T
    return state.replaced(form=form, updated=False)


def certify(operator: BlockOperator, state: State, reason: Reason) -> State:
    """Explicit residuals of X by one pass; if they are too large, the iteration goes on from the fresh products."""
    space, g = operator.space, state.generation
    space.drop(*(f"{name}.{g}" for name in ("P", "W", "R", "LP", "G", "Y")))
    turn_vectors(space, f"X.{g}", f"X.{g + 1}")
    parts = operator.product(
        [f"X.{g + 1}"],
        then=lobpcg_sweeps.certify_block,
        reads=[*NAMES[:2], "T"],
        writes=[f"R.{g + 1}", f"G.{g + 1}"],
        arguments=(state.values,),
    )
    gram, form, overlap, squares = (tree_sum([part[k] for part in parts]) for k in range(4))
    residuals = np.sqrt(squares)
    end = lobpcg_sweeps.certified(state, reason, residuals)
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
    """Factors that scale P, the new X without its part in the old X, to unit mass; 0 for a column without mass."""
    away = mix.copy()
    away[:lead] = 0
    mass = np.sqrt(np.maximum(np.einsum("ij,ij->j", away, gram @ away), 0.0))
    kept = mass > 1e-13
    return np.where(kept, 1 / np.where(kept, mass, 1.0), 0.0) if mass.any() else mass[:0]


def _bordered(inner: Array, beside: Array) -> Array:
    """A symmetric matrix of [X P W] from that of [X P] and the rows of W, ``beside``."""
    size, width = len(inner), len(beside)
    out = np.zeros((size + width, size + width))
    out[:size, :size] = (inner + inner.T) / 2
    out[size:, : beside.shape[1]] = beside
    out[:size, size:] = beside[:, :size].T
    return out


def _correct(operator: BlockOperator, state: State, restricted: list[str], mix: Array, values: Array) -> None:
    """Y = L_c^{-1} Pᵀ R for the next X, from the restricted basis."""
    coarse = coarse_of(operator, state)
    operator.space.sweep(
        lobpcg_sweeps.restricted_block, reads=restricted, writes=["coarse.right"], arguments=(mix, values)
    )
    coarse.scatter(f"Y.{state.generation + 1}", coarse.correction("coarse.right"))


# ---------------------------------------------------------------------------------------------------------- lobpcg
# Two-level LOBPCG for the largest eigenpairs of S = D^{-1/2} W D^{-1/2}, out of core.
#
# The right eigenvectors of P = D^{-1} W are D^{-1/2} v (seed 000 eqs. 21, 22, 31; seed 001 eq. 2). With L = I − S,
# the residual R = S X − X Λ and the coarse space P of :mod:`bigembed.linalg.coarse`,
#
#     W = R / diag(L) + P L_c^{-1} Pᵀ R,        [X P W] → Rayleigh–Ritz,
#
# one pass an iteration. Both parts are free of passes. L_c^{-1} is a factor where L_c is small and one multigrid
# cycle elsewhere (:mod:`bigembed.linalg.multigrid`): linear in any case. The restriction Pᵀ R is linear in the
# restricted basis Pᵀ[X P W SX SP SW], which is kept, so the coarse solution is ready before the sweep that makes R.
# Of the images S X, S P and S W what is kept is R, L P = P − S P and L W = W − S W, in single precision. An iteration
# is
#
#     restrict  reads Pᵀ[X P W SX SP SW], writes Pᵀ R; the coordinating process solves with L_c
#     sweep A   reads X P W R LP LW, writes the next X P W R LP: update, residual norms, W, Gram matrix
#     sweep B   the pass, reads X P W: S W and its products with X, P and W; writes LW and PᵀSW
#
# Rounding of the images affects only W (the directions that are tried) and R, which a certificate computes anew: the
# matrix BᵀSB is summed from S W before it is rounded, and from then on follows by coefficients. (If it is summed from
# the rounded images, its errors are 6e-8 of what cancels where directions of [X P W] are nearly dependent, and Ritz
# values above 1 came up.) All of seven matrices take as many passes to 1e-6 as with images in double precision, and as
# many or up to three more to 1e-9 and 1e-11; but a closed curve to 1e-11, below rounding, ended with residuals of 70 in
# double precision, and ends with 6e-9 now.
#
# Known eigenvectors T (√d of the component) are projected out by coefficients: B − T TᵀB needs TᵀB only. Once the
# wanted residuals are small by recurrence, a pass over X certifies them explicitly; if it finds them too large, the
# iteration goes on from the fresh products. Every 20 iterations R and LP are made anew in the same pass as LW. With b =
# 1.5 m columns an iteration reads 52 b + 8 p and writes 32 b bytes a row (p functions); a block task holds about 14 b
# numbers a row, the coordinating process L_c and its factor or smaller levels. The vectors of a generation are dropped
# block by block as the update uses them (``spends``), and results take their place, so that 32 b bytes a row are
# stored, in memory or in files. W is in single precision, and S W is the product with the rounded W: as many passes
# (10⁵ rows: swiss roll 13 to 1e-6 and 21 to 1e-9, sphere 19 and 33, mixture in 16 dimensions 18), half of the bytes
# that cross borders. Rows of a block are cut into stripes for threads that are idle. Of the Gram matrices only the rows
# of W are summed over the rows of the vectors: the entries of the new X and P follow from their coefficients, until a
# certificate computes them anew. Processor time of an iteration, 15 columns, on a machine under load (before the sweeps
# were compiled; SciPy's product alone): swiss roll of 2·10⁵ rows .18 s (.33; .021), of 5·10⁵ .38 (.76; .055), MNIST of
# 70 000 .10 (.18; .021). The start takes .8 s at 2·10⁵ rows of the swiss roll, 1.0 at 3·10⁵ (1.6 and 2.4 with LAPACK's
# eigenvectors on each aggregate and SciPy's products). BLAS has one thread throughout: with two, the coordinating
# process rounds differently, and BLAS threads that wait take processor time from the block tasks (2·10⁵ rows, other
# work on the machine: 4.4 s with one, 6.4 to 8.6 with two; 3.9 s with products in registers and single-precision
# vectors multiplied as they are).
#
# Passes to ‖Sv − λv‖ ≤ 1e-6 and ≤ (1 − λ)/10, ten pairs, k = 15 (sphere 12), everything counted, by
# ``benchmarks/eigenpairs.py`` and ``coarse_solve.py`` (in brackets: one constant function on aggregates of 16, W = .7
# R / diag + 1.5 P y, the same data and columns, as tried when the local functions were new):
#
#     rows                     10⁵         3·10⁵   10⁶     10⁷
#     swiss roll, noise .05    13 (27)     18      21      28
#     sphere with relief       15          22      23      27
#     64-d mixture             16 (38)     36      35      21 (16-d)
#
# Before the cycle, with 25 steps of conjugate gradients on an L_c of at most 1.5e5 unknowns: 36 (mixture, 3·10⁵), 19
# (swiss roll, 10⁶) and 42 (mixture, 10⁶); a surface of 9.2·10⁶ rows was at 8.5e-6 after 59.
#
# Tried and left out: P in single precision, too (an eighth fewer bytes; as many passes to 1e-6, on the way to 1e-9
# and 1e-11 five of seven matrices stagnate or have Ritz values above 1), P from X and the X before, whose S-images
# are written anyway (half of the bytes written; as many passes to 1e-6, on the way to 1e-9 Ritz values above 1 on the
# mixture, unless directions of mass below 1e-5 go, which takes 22 passes for 15 on a closed curve), three guards for
# five where ten pairs are wanted (43 passes for 23 on the sphere, whose eigenvalues come in groups; 2 more on the
# mixture of 10⁶ rows), twice as many coarse eigenvectors carried up (the same passes), files in shared memory instead
# of on disk (the same processor time), R / diag and P y as separate columns (one pass fewer, twice the vectors), a
# second P (no fewer), weights .5 … 1 and 1 … 1.5 of the two parts (±1), exact solves of blocks of 200 or 6000 rows as
# smoother (2–3 fewer), smoothed P (2–3 fewer, but L_c fills up in 12 dimensions). Of the coarse space (sphere, 3·10⁵
# rows, 20 passes with aggregates of 128 rows and 8 functions): 64 with 4 (27), 256 with 16 (21, and twice the
# entries). Of the cycle (mixture of 10⁵ rows, 64 with 4 functions, 20 passes with a factor): the next level once (26,
# on 16 aggregates joined) or twice (23), two whole cycles (22), 8 joined (21); of a closed curve of 10⁵ rows: one 21,
# two 17, four 14, a factor 13; of a surface of 10⁶ rows one 20, two 18, two steps of conjugate gradients 18. The
# first eigenvectors of L_c improved on its first level too: one pass fewer on the sphere, one more on the mixture.
#
# Other starts (``benchmarks/warm_start.py``) save little: residuals of X₀ are some 3e-3 already, and an iteration
# makes them 2.2 times smaller, so that to halve the passes a start would have to come within 4e-5. Eigenvectors of
# the first 10⁵ rows of 1.1·10⁵, carried to the other rows by their neighbors, are at 1.2e-3 (2.2e-3 on the sphere; of
# all lists of neighbors some change, a little everywhere). Beside X₀ in the first Rayleigh–Ritz they take 12 passes
# for 13 (swiss roll), 14 for 15 (sphere) and 14 for 14 (mixture, 5·10⁴ of 5.5·10⁴); of the first 99 % of the rows 10
# for 13 (swiss roll). In place of X₀: 18 for 14 on the mixture. Ten guards for five: as many passes. So a fit depends
# on its rows alone, not on the runs before it.

__all__ = ["State", "block_width", "finish", "init", "solve", "step", "vectors_of"]

FEW, FEW_GUARDS, GUARDS = 3, 3, 5
"""Up to ``FEW`` wanted pairs have ``FEW_GUARDS`` guards, more at least ``GUARDS``. Two pairs with five guards take as
many passes as with three, or one or two fewer (eight sets, real and made), and two fifths more vectors to read and
write in each; four with three guards took 32 passes instead of 22 on a sphere, whose eigenvalues come in groups."""
NOISE = (3e-4, 3e-2)
"""Bounds of the noise in a starting vector of length one, which is ten times tol between them."""


def block_width(n_components: int) -> int:
    """Columns of the block of vectors: those wanted, and others that guard them.

    >>> block_width(2), block_width(4), block_width(20)
    (5, 9, 30)
    """
    return n_components + (FEW_GUARDS if n_components <= FEW else max(GUARDS, (n_components + 1) // 2))


@one_blas_thread()
def init(
    operator: BlockOperator,
    n_components: int,
    *,
    tol: float = 1e-6,
    seed: int = 0,
    max_passes: int = 200,
    guards: int | None = None,
    deflate: str | None = None,
) -> State:
    """Coarse space, X₀ = P · lowest eigenvectors of L_c and a little noise, S X₀: two passes.

    ``guards`` (default half as many as wanted, at least 5; 3 where at most 3 are wanted) are pairs carried along in
    addition to the wanted ones. ``deflate`` names orthonormal eigenvectors (rows, c) in the space, which are left out,
    and dropped from it unless the problem is solved densely.
    A problem of few rows is marked to be solved densely by :func:`finish`.
    """
    if n_components < 1 or not tol > 0 or max_passes < 4 or (guards is not None and guards < 0):
        raise InputError(
            f"n_components={n_components}, tol={tol}, max_passes={max_passes}, guards={guards}: "
            "n_components ≥ 1, tol > 0, max_passes ≥ 4 and guards ≥ 0 are needed"
        )
    space = operator.space
    sizes = space.sweep(lobpcg_sweeps.sizes_block, reads=[operator.scale, *([deflate] if deflate else [])])
    active, known = sum(rows for rows, _ in sizes), sizes[0][1]
    if n_components > active - known:
        raise InputError(
            f"n_components={n_components}: the operator has {active} rows and {known} known eigenvectors; "
            f"ask for at most {active - known}"
        )
    width = block_width(n_components) if guards is None else n_components + guards
    state = State(n_components=n_components, width=width, tol=tol, seed=seed, max_passes=max_passes, deflate=deflate)
    if active < max(5 * (width + known), 300):
        return state.replaced(dense=True)
    return _counted(operator, state, lambda: _start(operator, state, active, known))


@one_blas_thread()
def step(operator: BlockOperator, state: State) -> State:
    """Half an iteration: the update, from vectors of generation g to those of g + 1, or the pass (of the last X alone,
    into g + 2, where a certificate is due)."""
    if state.dense or state.reason is not None:
        return state
    if not state.updated:
        return _counted(operator, state, lambda: update(operator, state))
    reason = lobpcg_sweeps.reason_of(state)
    if reason is None:
        return _counted(operator, state, lambda: multiply(operator, state))
    return _counted(operator, state, lambda: certify(operator, state, reason))


@one_blas_thread()
def finish(operator: BlockOperator, state: State) -> EigenResult:
    """The result of a state that has stopped; its vectors are in the space under ``"V"``. No pass."""
    if state.dense:
        return solve_dense(operator, state.n_components, deflate=state.deflate, into="V")
    if state.reason is None:
        raise InputError("the solver has not stopped yet; call step until state.reason is set")
    m, space = state.n_components, operator.space
    parts = space.sweep(lobpcg_sweeps.final_block, reads=[f"X.{state.generation}"], writes=["V"], arguments=(m,))
    gram = tree_sum(parts)
    values = np.asarray(state.values)
    left = values[m:]
    reason = Reason(state.reason)
    return EigenResult(
        eigenvalues=values[:m],
        vectors="V",
        residuals=np.asarray(state.residuals)[:m],
        gap=float(values[m - 1] - left[0]) if len(left) else float("inf"),
        gaps=gaps_of(values[:m], np.concatenate([left, state.known])),
        orthogonality=float(np.abs(gram - np.eye(m)).max()),
        passes=state.passes,
        bytes_moved=state.bytes_moved,
        iterations=state.iteration,
        converged=reason == Reason.CONVERGED,
        reason=reason,
        advice=ADVICE[reason],
    )


@one_blas_thread()
def solve(
    operator: BlockOperator,
    state: State,
    on_step: Callable[[State], None] | None = None,
    during: Callable[[Any], AbstractContextManager[Any]] = nullcontext,
) -> EigenResult:
    """Step until the state stops.

    ``on_step`` gets every new state, and may publish it; what is not read from there on is dropped after that.
    ``during`` gives the context of a step from the state that it begins with.
    """
    space = operator.space
    if on_step is not None:
        on_step(state)
    while not state.dense and state.reason is None:
        with during(state.to_json()):
            before, state = state, step(operator, state)
        if on_step is not None:
            on_step(state)
        there = {f"{name}.{g}" for name in VECTORS for g in range(before.generation - 1, state.generation + 1)}
        space.drop(*sorted(there - set(vectors_of(state, operator.scale))))
    with during(state.to_json()):
        result = finish(operator, state)
    space.drop(*(f"{name}.{state.generation}" for name in VECTORS if name != "X"), *KEPT, "T")
    operator.cache.pop("coarse", None)
    return result


def vectors_of(state: State, scale: str) -> list[str]:
    """Names of the vectors that a step from this state reads, as far as they are there."""
    own = ("X", "P", "W", "R", "LP", "G") if state.updated else ("X", "P", "W", "R", "LP", "LW", "G", "H")
    known = [state.deflate or ""] if state.dense else ["T"]
    return [scale, *known, *KEPT, *(f"{name}.{state.generation}" for name in own)]


IMAGES = {"X": "R", "P": "LP", "W": "LW"}
"""What is kept of the images of the basis, in single precision: R = S X − X Λ, L P = P − S P and L W = W − S W."""
VECTORS = ("X", "P", "W", *IMAGES.values(), "G", "H", "Y")
"""Of a generation: the basis, its images, their restrictions, and the coarse part of W."""


def _counted(operator: BlockOperator, state: State, run: Callable[[], State]) -> State:
    passes, moved = operator.passes, operator.bytes_moved
    new = run()
    return new.replaced(
        passes=state.passes + operator.passes - passes, bytes_moved=state.bytes_moved + operator.bytes_moved - moved
    )


def _start(operator: BlockOperator, state: State, active: int, known: int) -> State:
    space, width = operator.space, state.width
    operator.cache.pop("coarse", None)
    state = state.replaced(plan=tuple(build(operator, *shape_of(active), entries(active))))
    coarse = coarse_of(operator, state)
    modes = coarse.solver.lowest(width + known, state.seed)[:, known:]
    coarse.scatter("Y.0", modes)
    deflate = [state.deflate] if state.deflate else []
    space.sweep(
        lobpcg_sweeps.start_block,
        reads=[operator.scale, *NAMES[:2], "Y.0", *deflate],
        writes=["X.0", "T"],
        spends=["Y.0", *deflate],
        arguments=(width, state.seed, float(np.clip(10 * state.tol, *NOISE)) * active**-0.5),
    )
    parts = operator.product(
        ["X.0", "T"], then=lobpcg_sweeps.first_block, reads=[*NAMES[:2]], writes=["R.0", "G.0", "coarse.known"]
    )
    gram, form, overlap, theta, error = (tree_sum([part[k] for part in parts]) for k in range(5))
    wrong = float(np.sqrt(np.max(error, initial=0.0)))
    if wrong > 1e-5:
        raise InputError(
            f"deflate={state.deflate!r} is not made of eigenvectors: ‖At − θt‖ = {wrong:.1e}; "
            "give orthonormal eigenvectors, or none"
        )
    known_values, ones = np.diag(theta).copy(), np.ones(width)
    return state.replaced(gram=gram, form=form, overlap=overlap, known=known_values, values=ones, sizes=(width, 0, 0))
