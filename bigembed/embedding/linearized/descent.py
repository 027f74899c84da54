"""The iteration of the kernel's nonnegative factorization, resumable after every pass, and its map of new rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bigembed.blocks.nonnegative import nonnegative_rows
from bigembed.blocks.rows import Array
from bigembed.eigen.factored import solve_factored
from bigembed.embedding.costs import summing_cost
from bigembed.embedding.descent import RowDescent
from bigembed.embedding.fitted_coordinates import write_finished
from bigembed.embedding.linearized.kernel import (
    KERNEL,
    StoredKernel,
    keep_kernel,
    kernel_of,
    normalization_of,
    refuse_lost,
    refuse_sign,
)
from bigembed.kernels.nonnegative_kernel import FLOOR, KernelFactors, gram_block, objective, start_block, step_block
from bigembed.stages import Context, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.rows.source import RowSource

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

    def run(context: Context) -> dict[str, Any]:
        return KernelDescent(source, asked, context).run("‖K − HHᵀ‖²")

    n, d, m = *source.shape, asked.n_components
    vectors, sums = 8 * n * m, 8 * (d + 3) ** 2
    passes = min(asked.max_iter, PLANNED) + 2
    cost = summing_cost(
        source,
        sums,
        passes,
        read=passes * vectors,
        write=passes * vectors,
        scratch=4 * vectors,
        disk=vectors + 8 * (d + 3) * (m + 6),
        memory=6 * 8 * min(source.block, n) * m + (16 << 20),
        coordinator=80 * (d + 3) * m,
        flops=6 * passes * n * d * m,
        scalar_ops=2 * passes * n * m * m,
        maps=2 * passes,
    )
    parameters = asdict(asked) | {"source": source.fingerprint()}
    return Stage("coordinates", KERNEL, parameters, run, cost, resumes=True)


class KernelDescent(RowDescent):
    """A and B; H in the exchange under the name of its step."""

    state, before = ("cross", "gram", "columns", "size", "whole", "careful"), 1

    def __init__(self, source: RowSource, asked: FactorOptions, context: Context) -> None:
        self.asked, self.stuck = asked, False
        given = normalization_of(context.home) if asked.symmetric else None
        self.factors = KernelFactors(kernel_of(context.home), given)
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
            refuse_sign(self.context.results("scale"), "row sum", 0.0)
        turned = self.core @ second
        m, n = self.asked.n_components, self.source.shape[0]
        loads = self._loads(second, n)
        floors = FLOOR * np.sqrt(np.maximum(np.einsum("ij,ij->j", loads, second @ loads), 0.0) / n)
        floors = np.where(floors > 0, floors, floors.max(initial=0.0) or FLOOR / np.sqrt(n))
        found = self._pass(start_block, "start", loads=loads, floors=floors, seed=self.asked.seed, held=self.exchange)
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

    def step(self) -> None:
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
                held=self.exchange,
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
        numbers = keep_kernel(context)
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
def open_factors(stored: StoredKernel) -> tuple[KernelFactors, Array, Array]:
    """The kernel, M A and B."""
    kernel, given, numbers = stored.read()
    middle, gram = (read_array(f"{stored.path}/{name}") for name in ("middle", "gram"))
    return KernelFactors(kernel, given if numbers["symmetric"] else None), middle, gram


def factor_rows(rows: Array, stored: StoredKernel) -> Array:
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
        refuse_lost(lost)
    found = nonnegative_rows(np.where(lost[:, None], 0.0, cross), gram)
    found[lost] = np.nan
    return found
