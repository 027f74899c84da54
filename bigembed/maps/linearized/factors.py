"""Nonnegative factors of the linearized kernel: the formulas of an iteration, and the stage that goes on after a
stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bigembed.linalg.lanczos import solve_factored
from bigembed.linalg.nonnegative import nonnegative_rows
from bigembed.maps import write_finished
from bigembed.maps.descent import RowDescent
from bigembed.maps.linearized import LinearizedKernel, Normalization, passes
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer, summing_cost
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange

# ---------------------------------------------------------------------------------------------- nonnegative kernel
# Nonnegative factorization of the linearized kernel, K ≈ H Hᵀ: what a pass does on one block of rows.
#
# With K = Z M Zᵀ, Z = U or (normalized) Z = W D^{−½} U, the matrix is never formed: A = ZᵀH, B = HᵀH and G = ZᵀZ give
#
#     ‖K − H Hᵀ‖² = tr(M G M G) − 2 tr(Aᵀ M A) + tr(B²),
#
# and a step for the rows of a block adds up the next A and B in the same pass:
#
#     als      H ← ½ (H + N),  N = argmin_{N ≥ 0} ‖K − N Hᵀ‖, row by row from Z M A = K H and B;
#     mu       H ← H ∘ (½ + ½ max(Z M A, 0)/(H B))                    (Ding, He & Simon 2005);
#     careful  H ← H ∘ (max(Z M A, 0)/(H B))^¼, which minimizes a majorizer, so it cannot raise the objective.
#
# Halfway to N the product is W Wᵀ = sym(H Nᵀ) + ¼ (H − N)(H − N)ᵀ: the better one-sided fit, symmetrized, up to
# second order. In some 10 passes it comes closer than mu in 200.

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
    block: RowBlock, factors: KernelFactors, loads: Array, floors: Array, seed: int, store: Exchange
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
    store.put("rows0", block.number, {"own": out})
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
    store: Exchange,
) -> Parts:
    """One step with M A = ``middle`` and B = ``gram``; the next A and B. Row sums must be positive.

    ``columns`` and ``size`` choose and scale what is read.
    """
    start = store.get(read, block.number, "own")
    assert start is not None
    h = size * start[:, columns]
    fresh = np.empty_like(h)
    cross, after = np.zeros((len(middle), len(columns))), np.zeros_like(gram)
    for part, z in factors.tiles(block):
        fresh[part] = step_factors(h[part], z @ middle, gram, kind)
        cross += z.T @ fresh[part]
        after += fresh[part].T @ fresh[part]
    store.put(write, block.number, {"own": fresh})
    return {"cross": cross, "gram": after}


def step_factors(h: Array, image: Array, gram: Array, kind: str) -> Array:
    """The next rows of H from the present ones, K H and B."""
    if kind == "als":
        return 0.5 * (h + nonnegative_rows(image, gram, h, SWEEPS, INEXACT))
    down = h @ gram
    ratio = np.maximum(image, 0.0) / np.where(down > 0, down, np.inf)
    return np.asarray(h * (0.5 + 0.5 * ratio if kind == "mu" else ratio**0.25))


def objective(whole: float, cross: Array, middle: Array, gram: Array) -> float:
    """‖K − H Hᵀ‖² from ‖K‖², A, M A and B; not below 0."""
    return max(0.0, float(whole - 2 * np.vdot(cross, middle) + np.vdot(gram, gram)))


# --------------------------------------------------------------------------------------------------------- descent
# The iteration of the kernel's nonnegative factorization, resumable after every pass, and its map of new rows.

PLANNED = 80
"""Iterations that a plan counts on."""
TILE = 256
"""Rows of a product: each has this many, so a row's result does not depend on its batch."""


@dataclass(frozen=True)
class FactorOptions:
    """What is asked of the factorization."""

    n_components: int
    symmetric: bool
    solver: str
    init: str
    tol: float
    max_iter: int
    seed: int


def factors_stage(source: RowSource, asked: FactorOptions) -> Stage:
    """The iteration; its state is in the exchange after every pass. Writes H and what new rows need."""

    n, d, m = *source.shape, asked.n_components
    vectors, count = ArraySpec("vectors", n, m), min(asked.max_iter, PLANNED) + 2
    of_features = [ArraySpec("middle", d + 3, m), ArraySpec("gram", m, m), ArraySpec("objectives", 0)]
    cost = summing_cost(source, 8 * (d + 3) ** 2, count) + Cost.of(
        writes=[ArraySpec("embedding", n, m), *of_features, *passes.kernel_arrays(d)],
        vectors=[replace(vectors, times=4)],
        posts=[replace(vectors, times=count)],
        reads=[replace(vectors, times=count)],
        task=[ArraySpec("vectors", source.largest_block, m, times=6), buffer("features of a tile", 16 << 20)],
        coordinator=[ArraySpec("products", d + 3, m, times=10)],
        flops=6 * count * n * d * m,
        scalar_ops=2 * count * n * m * m,
        maps=2 * count,
    )
    parameters = asdict(asked) | {"source": source.fingerprint()}
    return Stage(
        "coordinates", passes.KERNEL, parameters, partial(run_factors, source=source, asked=asked), cost, resumes=True
    )


def run_factors(context: Context, source: RowSource, asked: FactorOptions) -> dict[str, Any]:
    return KernelDescent(source, asked, context).run("‖K − HHᵀ‖²")


class KernelDescent(RowDescent):
    """The descent of the factors A and B in memory; H lies in the exchange, under the name of its step."""

    state, objectives_at_start = ("cross", "gram", "columns", "size", "whole", "careful"), 1

    def __init__(self, source: RowSource, asked: FactorOptions, context: Context) -> None:
        self.asked, self.stuck = asked, False
        given = passes.normalization_of(context.home) if asked.symmetric else None
        self.factors = KernelFactors(passes.kernel_of(context.home), given)
        self.core = self.factors.kernel.core
        super().__init__(source, context, asked.tol, asked.max_iter)

    @property
    def converged(self) -> bool:
        """Whether another step would not help: also where nothing but rounding is left."""
        return self.stuck or self.last_step <= self.tol

    @property
    def rows(self) -> str:
        """Name of H in the exchange: a careful step has its own name, so that a killed one is never mixed up."""
        return f"rows{self.done}{'c' if self.done and self.careful[-1] else ''}"

    def begin(self) -> None:
        """G and ‖K‖², both candidates of each starting column, the better ones, and their best common size."""
        second = self._pass(gram_block, "gram")["gram"]
        if not np.isfinite(second).all():
            passes.refuse_sign(self.context.results("scale"), "row sum", 0.0)
        turned = self.core @ second
        m, n = self.asked.n_components, self.source.shape[0]
        loads = self._loads(second, n)
        floors = FLOOR * np.sqrt(np.maximum(np.einsum("ij,ij->j", loads, second @ loads), 0.0) / n)
        floors = np.where(floors > 0, floors, floors.max(initial=0.0) or FLOOR / np.sqrt(n))
        given: dict[str, Any] = {"seed": self.asked.seed, "store": self.exchange}
        found = self._pass(start_block, "start", loads=loads, floors=floors, **given)
        columns = np.arange(m) + m * (found["masses"][0] < found["masses"][1])
        cross, gram = found["cross"][:, columns], found["gram"][np.ix_(columns, columns)]
        fitted = float(np.vdot(cross, self.core @ cross))
        size = np.sqrt(max(fitted, np.finfo(float).tiny) / np.vdot(gram, gram))
        self.cross, self.gram, self.columns, self.size = size * cross, size**2 * gram, columns, float(size)
        self.whole = float(np.vdot(turned, turned.T))
        self.objectives = [objective(self.whole, self.cross, self.core @ self.cross, self.gram)]
        self.careful = np.zeros(0, np.int64)

    def _loads(self, second: Array, n: int) -> Array:
        """√λ B of the leading positive eigenpairs; zero columns without one, or where a random start is wanted."""
        m = self.asked.n_components
        loads = np.zeros((len(second), m))
        if self.asked.init == "nndsvda":
            pairs = solve_factored(second, self.core, min(m, n), n)
            scaled = pairs.coefficients * np.sqrt(np.maximum(pairs.eigenvalues, 0.0))
            loads[:, : scaled.shape[1]] = scaled
        return loads

    def move(self) -> None:
        """One pass, and one more where the step would raise the objective: that one is careful, and cannot."""
        read, middle = self.rows, self.core @ self.cross
        for careful, kind in ((False, self.asked.solver), (True, "careful")):
            write = f"rows{self.done + 1}{'c' if careful else ''}"
            found = self._pass(
                step_block,
                f"step{self.done + 1}{'c' if careful else ''}",
                middle=middle,
                gram=self.gram,
                columns=self.columns,
                size=self.size,
                kind=kind,
                read=read,
                write=write,
                store=self.exchange,
            )
            value = objective(self.whole, found["cross"], self.core @ found["cross"], found["gram"])
            if value <= self.objectives[-1]:
                break
            self.exchange.drop(write)
        else:  # nothing but rounding is left
            self.stuck = True
            return
        self.cross, self.gram = found["cross"], found["gram"]
        self.columns, self.size = np.arange(len(self.gram)), 1.0
        self.objectives.append(value)
        self.careful = np.append(self.careful, int(careful))
        self.keep()
        self.exchange.drop(read)

    def publish(self) -> dict[str, Any]:
        """H, and what new rows need: the kernel, M A and B."""
        context, m = self.context, self.asked.n_components
        finish = partial(scaled_columns, columns=self.columns, size=self.size)
        write_finished(self.source, self.exchange, self.rows, finish, context.path("embedding"), m, np.float64)
        numbers = passes.keep_kernel(context)
        arrays = {"gram": self.gram, "middle": self.core @ self.cross, "objectives": np.array(self.objectives)}
        for name, array in arrays.items():
            write_array(context.path(name), array)
        before = sum(context.results(stage)["passes"] for stage in ("center", "scale", "degrees"))
        return numbers | {
            "symmetric": self.asked.symmetric,
            "n_components": m,
            "n_features": self.source.shape[1],
            "careful_steps": int(self.careful.sum()),
            "converged": self.converged,
            "whole": self.whole,
            "passes": before + 2 + self.done + int(self.careful.sum()) + 2 * self.stuck,
            "seed": self.asked.seed,
        }

    def _pass(self, function: Any, label: str, **fixed: Any) -> Any:
        sums = 8 * self.factors.kernel.size ** (2 if label == "gram" else 1)
        return self.sums(function, label, partial_bytes=sums, factors=self.factors, **fixed)


def scaled_columns(rows: Array, columns: Array, size: float) -> Array:
    """Some of the columns, times a number."""
    return np.asarray(size * rows[:, columns])


@lru_cache(maxsize=2)
def open_factors(stored: passes.StoredKernel) -> tuple[KernelFactors, Array, Array]:
    """The kernel, M A and B."""
    kernel, given, numbers = stored.read()
    middle, gram = (read_array(f"{stored.path}/{name}") for name in ("middle", "gram"))
    return KernelFactors(kernel, given if numbers["symmetric"] else None), middle, gram


def factor_rows(rows: Array, stored: passes.StoredKernel) -> Array:
    """h ≥ 0 of least ‖k(x, ·) − H h‖: nonnegative least squares with HᵀH = B and Hᵀk(x, ·) = Aᵀ M z(x)."""
    factors, middle, gram = open_factors(stored)
    cross = np.empty((len(rows), len(gram)))
    tile = np.zeros((TILE, rows.shape[1]))
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        tile[: len(part)], tile[len(part) :] = part, factors.kernel.center
        cross[start : start + TILE] = (factors.scaled(factors.kernel.features(tile)) @ middle)[: len(part)]
    lost = np.asarray(np.isnan(cross).any(axis=1))
    if stored.outside == "error":
        passes.refuse_lost(lost)
    found = nonnegative_rows(np.where(lost[:, None], 0.0, cross), gram)
    found[lost] = np.nan
    return found
