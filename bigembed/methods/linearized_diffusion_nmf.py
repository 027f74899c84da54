"""Nonnegative factorization of the linearized diffusion kernel (seed 004 §5): parts of a data set, by diffusion."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bigembed.blocks.nonnegative import nonnegative_rows
from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.eigen.factored import solve_factored
from bigembed.errors import InputError, OutOfReachError
from bigembed.kernels.linearized import Normalization
from bigembed.kernels.nonnegative_kernel import (
    FLOOR,
    STEPS,
    KernelFactors,
    gram_block,
    objective,
    start_block,
    step_block,
)
from bigembed.methods.base import Requirements, is_integer, is_number
from bigembed.methods.certificate import versions
from bigembed.methods.linearized import (
    RULES,
    KernelChoice,
    kernel_of,
    kernel_stages,
    linearized_kernel,
    normalization_of,
    refuse_sign,
)
from bigembed.methods.rowwise import RowwiseEstimator, pass_memory
from bigembed.stages import Context, Cost, Run, Stage
from bigembed.store.arrays import RowSource, create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.passes import checked_shape, reduce_rows

if TYPE_CHECKING:
    from bigembed.methods.extension import Extension

PLANNED = 40
TILE = 256


class LinearizedDiffusionNMF(RowwiseEstimator):
    """Symmetric nonnegative factorization K ≈ H Hᵀ of the linearized diffusion kernel of all pairs of rows.

    A row of H says how much a row of the data belongs to each of m overlapping groups. K (n, n) is never formed:
    K = Z M Zᵀ with d + 2 features a row, so an iteration is one pass, in which each block takes a step for its rows of
    H and adds up ZᵀH and HᵀH; ‖K − H Hᵀ‖² follows from them. H lies in the store by row blocks. No iteration raises the
    objective: a step that would is taken again as one that provably cannot.
    The rows may have any sign, unlike those of :class:`NMF`, which factorizes the rows themselves: hence a class of
    its own. K is entrywise nonnegative for ε ≥ max ‖x − y‖², but not positive semidefinite (so not completely positive,
    against seed 004's abstract): an exact H need not exist, whatever m.

    Parameters
    ----------
    n_components : int ≥ 1, the number m of columns of H.
    normalization : "symmetric" (the operator of LDM, seed 004 eq. 12) or "none" (the kernel, eq. 7).
    alpha, epsilon, beta, center : as in :class:`LinearizedDiffusionMap`.
    solver : "als" (halfway to the nonnegative least squares solution) or "mu" (multiplicative, many more passes).
    init : "nndsvda" (parts of the leading eigenvectors, zeros lifted) or "random".
    tol : float ≥ 0. Stop when an iteration lowers the error ‖K − H Hᵀ‖ by no more than this times the first error.
    max_iter : int ≥ 1. Iterations before it gives up with a ConvergenceWarning.
    random_state : int, None or a generator.
    outside : "error" or "nan". What ``transform`` does with a row out of the kernel's reach.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.

    Attributes
    ----------
    embedding_ : (n, m), H: NumPy for NumPy input, else a Dask array over the store.
    objectives_ : (n_iter_ + 1,) ‖K − H Hᵀ‖² at the start and after each iteration, never increasing.
    reconstruction_err_ : float, ‖K − H Hᵀ‖. n_iter_, n_components_, n_features_in_ : int. epsilon_ : float.
    certificate_ : dict.

    Raises
    ------
    InputError, KernelSignError, OutOfReachError : as in :class:`LinearizedDiffusionMap`.

    Notes
    -----
    Passes: mean, spread, (α > 0: t), G, start, one an iteration. ``transform`` gives h ≥ 0 of least
    ‖k(x, ·) − H h‖, which is the row of H for rows fitted where the iteration has converged.

    References
    ----------
    C. Ding, X. He, H. Simon, On the equivalence of nonnegative matrix factorization and spectral clustering, SDM 2005,
    for solver="mu". J. Candañedo, Linearized Diffusion Map (seed 004), §5.

    Examples
    --------
    >>> rows = np.concatenate([np.zeros((20, 2)), np.full((20, 2), 3.0)]) + np.arange(40)[:, None] / 100
    >>> groups = LinearizedDiffusionNMF(n_components=2).fit_transform(rows).argmax(axis=1)
    >>> len(set(groups[:20])), len(set(groups[20:])), bool(groups[0] != groups[-1])
    (1, 1, True)
    """

    registered = "linearized_diffusion_nmf"
    kept: ClassVar = {"scale": (), "coordinates": ("",)}

    def __init__(
        self,
        n_components: int = 2,
        *,
        normalization: str = "symmetric",
        alpha: float = 0.0,
        epsilon: str | float = "auto",
        beta: float = 1.0,
        center: bool = True,
        solver: str = "als",
        init: str = "nndsvda",
        tol: float = 1e-4,
        max_iter: int = 200,
        random_state: Any = 0,
        outside: str = "error",
        workdir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_components = n_components
        self.normalization = normalization
        self.alpha = alpha
        self.epsilon = epsilon
        self.beta = beta
        self.center = center
        self.solver = solver
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.outside = outside
        self.workdir = workdir

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit rows (any kind that :func:`bigembed.open_array` takes)."""
        from bigembed.methods.fitting import fit_rows

        fit_rows(self, X)
        return self

    def stages(self, source: RowSource, run: Run) -> list[Stage]:
        """Center, scale, degrees, and the iteration, which writes the coordinates."""
        self._check()
        n = checked_shape(source, at_least=2)[0]
        if self.n_components > n:
            raise InputError(f"n_components={self.n_components!r} must be between 1 and n_samples={n}")
        epsilon = self.epsilon if isinstance(self.epsilon, str) else float(self.epsilon)
        choice = KernelChoice(bool(self.center), epsilon, float(self.beta), float(self.alpha))
        asked = Asked(
            int(self.n_components),
            self.normalization == "symmetric",
            self.solver,
            self.init,
            float(self.tol),
            int(self.max_iter),
            self._seed(),
        )
        return [*kernel_stages(source, choice), factors_stage(source, asked)]

    def _check(self) -> None:
        need = Requirements(self)
        need(is_integer(self.n_components) and self.n_components >= 1, "n_components", "an integer ≥ 1")
        need(self.normalization in ("symmetric", "none"), "normalization", "'symmetric' or 'none'")
        need(is_number(self.alpha), "alpha", "a finite number")
        need(
            self.epsilon in RULES if isinstance(self.epsilon, str) else is_number(self.epsilon) and self.epsilon > 0,
            "epsilon",
            f"a number > 0 or one of {', '.join(RULES)}",
        )
        need(is_number(self.beta) and self.beta >= 0, "beta", "a number ≥ 0")
        need(isinstance(self.center, (bool, np.bool_)), "center", "True or False")
        need(self.solver in STEPS, "solver", f"one of {', '.join(STEPS)}")
        need(self.init in ("nndsvda", "random"), "init", "'nndsvda' or 'random'")
        need(is_number(self.tol) and self.tol >= 0, "tol", "a number ≥ 0")
        need(is_integer(self.max_iter) and self.max_iter >= 1, "max_iter", "an integer ≥ 1")
        need(self.outside in ("error", "nan"), "outside", "'error' or 'nan'")
        need.refuse()

    def _adopt(self, run: Run) -> None:
        found = run.results("coordinates")
        self.objectives_ = read_array(run.path("coordinates", "objectives"))
        self.reconstruction_err_ = float(np.sqrt(self.objectives_[-1]))
        self.n_iter_, self.n_components_ = found["iterations"], found["n_components"]
        self.epsilon_ = found["epsilon"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        found, scale = run.results("coordinates"), run.results("scale")
        lost, degenerate = [], []
        if not found["converged"]:
            lost.append(
                f"stopped at max_iter={self.n_iter_} while an iteration still lowered the error by "
                f"{found['last_step']:.2g} of the first one. Raise max_iter, or tol if this is enough"
            )
        if not scale["proved"]:
            degenerate.append(
                f"epsilon={scale['epsilon']:.6g} is below 4·max r² = {scale['enough']:.6g}: the kernel may be negative "
                "between some rows, which no H can follow"
            )
        return {
            "passes": found["passes"],
            "iterations": self.n_iter_,
            "converged": found["converged"],
            "relative_error": self.reconstruction_err_ / np.sqrt(found["whole"]),
            "careful_steps": found["careful_steps"],
            "kernel_nonnegative": "proved" if scale["proved"] else "not disproved",
            "seed": found["seed"],
            "versions": versions(),
            "warnings": {"convergence": lost, "degenerate": degenerate},
        }

    def _extension(self, run: Run) -> Extension:
        from bigembed.methods.extension import Extension

        found = run.results("coordinates")
        stored = StoredFactors(
            run.path("coordinates"), run.manifest("coordinates").digest, json.dumps(found), self.outside
        )
        return Extension(belong, stored, found["n_components"], found["n_features"])


# --- stage ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What is asked of the factorization."""

    n_components: int
    symmetric: bool
    solver: str
    init: str
    tol: float
    max_iter: int
    seed: int


def factors_stage(source: RowSource, asked: Asked) -> Stage:
    """The iteration; its state is in the exchange after every pass. Writes H and what new rows need."""

    def run(context: Context) -> dict[str, Any]:
        descent = _Descent(source, asked, context)
        while not descent.finished():
            descent.step()
            context.note(f"iteration {descent.done}: ‖K − HHᵀ‖² = {descent.objectives[-1]:.6g}")
        return descent.publish()

    n, d, m = *source.shape, asked.n_components
    vectors, sums = 8 * n * m, 8 * (d + 3) ** 2
    passes = min(asked.max_iter, PLANNED) + 2
    cost = Cost(
        passes=passes,
        read=passes * (n * source.row_bytes + vectors),
        write=passes * vectors,
        scratch=4 * vectors + sums * min(256, -(-n // source.block)),
        disk=vectors + 8 * (d + 3) * (m + 6),
        memory=pass_memory(source) + 6 * 8 * min(source.block, n) * m + 4 * sums + (16 << 20),
        coordinator=10 * sums + 80 * (d + 3) * m,
    )
    return Stage("coordinates", ("degrees",), vars(asked), run, cost, resumes=True)


class _Descent:
    """A, B and the objectives so far; H in the exchange under the name of its step."""

    def __init__(self, source: RowSource, asked: Asked, context: Context) -> None:
        self.source, self.asked, self.context = source, asked, context
        self.exchange = context.exchange
        given = normalization_of(context.home) if asked.symmetric else None
        self.factors = KernelFactors(kernel_of(context.home), given)
        self.core = self.factors.kernel.core
        self.stuck = False
        if not self.exchange.has("state", 0):
            self._begin()
        state = self.exchange.get_all("state", 0)
        self.cross, self.gram, self.columns = state["cross"], state["gram"], state["columns"]
        self.size, self.whole = float(state["size"]), float(state["whole"])
        self.objectives: list[float] = state["objectives"].tolist()
        self.careful: list[int] = state["careful"].tolist()

    @property
    def done(self) -> int:
        return len(self.objectives) - 1

    @property
    def rows(self) -> str:
        """Name of H in the exchange: a careful step has a name of its own, so that a killed one is never mixed up."""
        return f"rows{self.done}{'c' if self.careful and self.careful[-1] else ''}"

    def _begin(self) -> None:
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
        self.careful = []
        self._keep()

    def _loads(self, second: Array, n: int) -> Array:
        """√λ B of the leading positive eigenpairs; zero columns where there are none, or a random start is wanted."""
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
        self.careful.append(int(careful))
        self._keep()
        self.exchange.drop(read)

    def last_step(self) -> float:
        """What the last iteration took off the error, as a share of the first error."""
        if not self.done:
            return 1.0
        first, before, now = (np.sqrt(self.objectives[i]) for i in (0, -2, -1))
        return float((before - now) / first) if first else 0.0

    def finished(self) -> bool:
        return self.stuck or self.done >= self.asked.max_iter or self.last_step() <= self.asked.tol

    def publish(self) -> dict[str, Any]:
        """H, and what new rows need: the kernel, M A and B."""
        context, n, m = self.context, self.source.shape[0], self.asked.n_components
        spans = bounds(n, self.source.block)
        out = context.path("embedding")
        create_rows(out, (n, m), np.float64, self.source.block, overwrite=True)
        fixed: dict[str, Any] = {
            "held": self.exchange,
            "name": self.rows,
            "columns": self.columns,
            "size": self.size,
            "out": out,
        }
        map_blocks(copy_block, [(number, start) for number, (start, _) in enumerate(spans)], **fixed)
        kernel, given = self.factors.kernel, normalization_of(context.home)
        assert given.first is not None
        assert given.second is not None
        arrays = {"center": kernel.center, "first": given.first, "second": given.second, "gram": self.gram}
        arrays |= {"mean_z": read_array(context.of("scale", "mean_z")), "middle": self.core @ self.cross}
        for name, array in arrays.items():
            write_array(context.path(name), array)
        write_array(context.path("objectives"), np.array(self.objectives))
        numbers = {name: context.results("scale")[name] for name in ("kind", "epsilon", "mean_s", "beta")}
        before = sum(context.results(stage)["passes"] for stage in ("center", "scale", "degrees"))
        return numbers | {
            "alpha": given.alpha,
            "symmetric": self.asked.symmetric,
            "n_components": m,
            "n_features": self.source.shape[1],
            "iterations": self.done,
            "careful_steps": sum(self.careful),
            "converged": bool(self.stuck or self.last_step() <= self.asked.tol),
            "last_step": self.last_step(),
            "whole": self.whole,
            "passes": before + 2 + self.done + sum(self.careful) + 2 * self.stuck,
            "seed": self.asked.seed,
        }

    def _pass(self, function: Any, label: str, **fixed: Any) -> Any:
        sums = 8 * self.factors.kernel.size ** (2 if label == "gram" else 1)
        return reduce_rows(
            self.source,
            function,
            self.exchange,
            partial_bytes=sums,
            label=label,
            factors=self.factors,
            **fixed,
        )

    def _keep(self) -> None:
        """Publish the state: from here a killed run goes on."""
        numbers = {"size": np.array(self.size), "whole": np.array(self.whole)}
        lists = {"objectives": np.array(self.objectives), "careful": np.array(self.careful, np.int64)}
        arrays = {"cross": self.cross, "gram": self.gram, "columns": self.columns}
        self.exchange.put("state", 0, numbers | lists | arrays)


def copy_block(number: int, start: int, *, held: Exchange, name: str, columns: Array, size: float, out: str) -> None:
    """One block of H from the exchange to where it stays."""
    rows = held.get(name, number, "own")
    assert rows is not None
    write_rows(out, start, size * rows[:, columns])


# --- new rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredFactors:
    """Where a task finds the kernel, M A and B."""

    path: str
    digest: str
    """Of the stage: a worker keeps the last factors that it opened under it."""
    numbers: str
    """Results of the stage, as JSON."""
    outside: str


@lru_cache(maxsize=2)
def open_factors(stored: StoredFactors) -> tuple[KernelFactors, Array, Array]:
    """The kernel, M A and B."""
    numbers = json.loads(stored.numbers)
    names = ("center", "mean_z", "first", "second", "middle", "gram")
    center, mean_z, first, second, middle, gram = (read_array(f"{stored.path}/{name}") for name in names)
    given = Normalization(numbers["alpha"], first, second) if numbers["symmetric"] else None
    return KernelFactors(linearized_kernel(center, numbers, mean_z), given), middle, gram


def belong(rows: Array, stored: StoredFactors) -> Array:
    """h ≥ 0 of least ‖k(x, ·) − H h‖: nonnegative least squares with HᵀH = B and Hᵀk(x, ·) = Aᵀ M z(x)."""
    factors, middle, gram = open_factors(stored)
    cross = np.empty((len(rows), len(gram)))
    tile = np.zeros((TILE, rows.shape[1]))
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        tile[: len(part)], tile[len(part) :] = part, factors.kernel.center
        cross[start : start + TILE] = (factors.scaled(factors.kernel.features(tile)) @ middle)[: len(part)]
    lost = np.asarray(np.isnan(cross).any(axis=1))
    if stored.outside == "error" and lost.any():
        raise OutOfReachError(
            f"{int(lost.sum())} of {len(rows)} rows are so far from the rows fitted that their row of the linearized "
            f"kernel has no positive sum; the first are rows {np.flatnonzero(lost)[:10].tolist()} of these. Drop them, "
            "fit with a larger epsilon, or take outside='nan' to have NaN there"
        )
    found = nonnegative_rows(np.where(lost[:, None], 0.0, cross), gram)
    found[lost] = np.nan
    return found
