"""Nonnegative factorization of the linearized kernel, K ≈ H Hᵀ: what a pass does on one block of rows.

With K = Z M Zᵀ, Z = U or (normalized) Z = W D^{−½} U, the matrix is never formed: A = ZᵀH, B = HᵀH and G = ZᵀZ give

    ‖K − H Hᵀ‖² = tr(M G M G) − 2 tr(Aᵀ M A) + tr(B²),

and a step for the rows of a block adds up the next A and B in the same pass:

    als      H ← ½ (H + N),  N = argmin_{N ≥ 0} ‖K − N Hᵀ‖, row by row from Z M A = K H and B;
    mu       H ← H ∘ (½ + ½ max(Z M A, 0)/(H B))                    (Ding, He & Simon 2005);
    careful  H ← H ∘ (max(Z M A, 0)/(H B))^¼, which minimizes a majorizer, so it cannot raise the objective.

Halfway to N the product is W Wᵀ = sym(H Nᵀ) + ¼ (H − N)(H − N)ᵀ: the better one-sided fit, symmetrized, up to second
order. In some 10 passes it comes closer than mu in 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bigembed.blocks.nonnegative import nonnegative_rows
from bigembed.blocks.rows import Array
from bigembed.kernels.linearized import LinearizedKernel, Normalization
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.passes import Parts
from bigembed.store.rows.row_blocks import RowBlock

STEPS = ("als", "mu")
SWEEPS, INEXACT = 20, 1e-6
"""How far N is solved for in a step."""
FLOOR = 0.1
"""Entries of the start that would be 0 get this times the root mean square of their column: a zero stays a zero."""


@dataclass(frozen=True)
class KernelFactors:
    """Z of rows, and M."""

    kernel: LinearizedKernel
    given: Normalization | None
    """None for the kernel as it is."""

    def scaled(self, u: Array) -> Array:
        """Z from the features; NaN for a row out of reach. ``u`` is used up."""
        if self.given is None:
            return u
        reach, weight = self.given.reach(u), self.given.weights(u)
        u *= np.sqrt(weight / np.where(reach > 0, reach, np.nan))[:, None]
        return u

    def tiles(self, block: RowBlock) -> Iterator[tuple[slice, Array]]:
        """(which rows, Z) along a block."""
        for part, u in self.kernel.tiles(block.rows):
            yield part, self.scaled(u)


def gram_block(block: RowBlock, factors: KernelFactors) -> Parts:
    """G = ZᵀZ; NaN where a row sum of the kernel is not positive."""
    gram = np.zeros((factors.kernel.size,) * 2)
    for _, z in factors.tiles(block):
        gram += z.T @ z
    return {"gram": gram}


def start_block(
    block: RowBlock, factors: KernelFactors, loads: Array, floors: Array, seed: int, held: Exchange
) -> Parts:
    """Both candidates of each column: the positive and the negative part of √λ v (NNDSVD), never below its floor.

    A column of ``loads`` that is zero (no eigenpair) gets random numbers. Left in the exchange; A, B and the squared
    norms of the parts are returned.
    """
    columns = loads.shape[1]
    out, masses = np.empty((block.rows.shape[0], 2 * columns)), np.zeros((2, columns))
    cross, gram = np.zeros((len(loads), 2 * columns)), np.zeros((2 * columns,) * 2)
    empty = ~loads.any(axis=0)
    noise = np.random.default_rng([seed, block.number])
    for part, z in factors.tiles(block):
        v = z @ loads
        v[:, empty] = np.abs(noise.standard_normal((len(v), int(empty.sum())))) * floors[empty] / FLOOR
        up, down = np.maximum(v, 0.0), np.maximum(-v, 0.0)
        masses += np.stack([(up**2).sum(axis=0), (down**2).sum(axis=0)])
        h = np.concatenate([np.maximum(up, floors), np.maximum(down, floors)], axis=1)
        out[part] = h
        cross += z.T @ h
        gram += h.T @ h
    held.put("rows0", block.number, {"own": out})
    return {"cross": cross, "gram": gram, "masses": masses}


def step_block(
    block: RowBlock,
    factors: KernelFactors,
    middle: Array,
    gram: Array,
    columns: Array,
    size: float,
    kind: str,
    read: str,
    write: str,
    held: Exchange,
) -> Parts:
    """One step with M A = ``middle`` and B = ``gram``; the next A and B. Row sums must be positive.

    ``columns`` and ``size`` choose and scale what is read.
    """
    start = held.get(read, block.number, "own")
    assert start is not None
    h = size * start[:, columns]
    fresh = np.empty_like(h)
    cross, after = np.zeros((len(middle), len(columns))), np.zeros_like(gram)
    for part, z in factors.tiles(block):
        fresh[part] = stepped(h[part], z @ middle, gram, kind)
        cross += z.T @ fresh[part]
        after += fresh[part].T @ fresh[part]
    held.put(write, block.number, {"own": fresh})
    return {"cross": cross, "gram": after}


def stepped(h: Array, image: Array, gram: Array, kind: str) -> Array:
    """The next rows of H from the present ones, K H and B."""
    if kind == "als":
        return 0.5 * (h + nonnegative_rows(image, gram, h, SWEEPS, INEXACT))
    down = h @ gram
    ratio = np.maximum(image, 0.0) / np.where(down > 0, down, np.inf)
    return np.asarray(h * (0.5 + 0.5 * ratio if kind == "mu" else ratio**0.25))


def objective(whole: float, cross: Array, middle: Array, gram: Array) -> float:
    """‖K − H Hᵀ‖² from ‖K‖², A, M A and B; not below 0."""
    return max(0.0, float(whole - 2 * np.vdot(cross, middle) + np.vdot(gram, gram)))
