"""Nonnegative factorization of the linearized diffusion kernel (seed 004 §5): parts of a data set, by diffusion."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.maps.linearized.factors import STEPS, FactorOptions, factor_rows, factors_stage
from bigembed.maps.linearized.passes import RULES, KernelChoice, StoredKernel, kernel_stages
from bigembed.rows.passes import checked_shape
from bigembed.rows.source import RowSource
from bigembed.runtime.parameters import Count, Finite, Nonnegative, Positive, Seed, one_of
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array


@dataclass(eq=False, repr=False)
class LinearizedDiffusionNMF(RowwiseEstimator, registered="linearized_diffusion_nmf"):
    """Factorize the linearized diffusion kernel of all pairs of rows as K ≈ H Hᵀ, with H ≥ 0.

    A row of H says how much a row of the data belongs to each of m overlapping groups. K (n, n) is never formed:
    K = Z M Zᵀ with d + 2 features a row, so an iteration is one pass, in which each block takes a step for its rows of
    H and adds up ZᵀH and HᵀH; ‖K − H Hᵀ‖² follows from them. H lies in the store by row blocks. No iteration raises the
    objective: a step that would is taken again as one that provably cannot.
    The rows may have any sign, unlike those of :class:`NMF`, which factorizes the rows themselves: hence a class of
    its own. K is entrywise nonnegative for ε ≥ max ‖x − y‖², but not positive semidefinite (so not completely positive,
    against seed 004's abstract): an exact H need not exist, whatever m.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of columns of H.
    normalization : {"symmetric", "none"}
        What is factorized: "symmetric" takes the operator of LDM (seed 004 eq. 12), "none" the kernel (eq. 7).
    alpha : float
        The power of q, as in :class:`LinearizedDiffusionMap`.
    epsilon : float > 0, "auto" or "density"
        The scale of the kernel, as in :class:`LinearizedDiffusionMap`.
    beta : float ≥ 0
        The power β of epsilon="density".
    center : bool
        Whether r is measured from the mean of the rows, as in :class:`LinearizedDiffusionMap`.
    solver : {"als", "mu"}
        The step: "als" goes halfway to the nonnegative least squares solution; "mu" is multiplicative, and takes many
        more passes.
    init : {"nndsvda", "random"}
        The start: "nndsvda" takes parts of the leading eigenvectors, with zeros lifted; "random" draws it.
    tol : float ≥ 0
        When to stop: an iteration lowers the error ‖K − H Hᵀ‖ by no more than this times the first error.
    max_iter : int ≥ 1
        The iterations before it gives up with a ConvergenceWarning.
    random_state : int, generator or None
        The seed of everything that is drawn.
    outside : {"error", "nan"}
        What ``transform`` does with a row out of the kernel's reach.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all" or "map"
        What stays in ``workdir`` of the stages: all of it; or what the map, new rows and a saved model need, the rest
        deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The factor H: NumPy for NumPy input, else a Dask array over the store.
    objectives_ : array of shape (n_iter_ + 1,)
        ‖K − H Hᵀ‖² at the start and after each iteration, never increasing.
    reconstruction_err_ : float
        The error ‖K − H Hᵀ‖.
    n_iter_, n_components_, n_features_in_ : int
        The numbers of iterations, of components, and of columns of the rows.
    epsilon_ : float
        The ε that was used.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        As in :class:`LinearizedDiffusionMap`.
    KernelSignError
        As in :class:`LinearizedDiffusionMap`.
    OutOfReachError
        As in :class:`LinearizedDiffusionMap`.

    Notes
    -----
    Passes: mean, spread, (α > 0: t), G, start, one an iteration. Memory of a worker: a few blocks of rows (32 MiB) and
    d² numbers. Disk: H twice, 16 n m bytes, while it runs. ``transform`` gives h ≥ 0 of least
    ‖k(x, ·) − H h‖, which is the row of H for rows fitted where the iteration has converged.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

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

    frame_rule: ClassVar = FrameRule("none")
    saved_stages: ClassVar = {"scale": (), "coordinates": ("",)}

    n_components: Count = 2
    _: KW_ONLY
    normalization: Annotated[str, one_of("symmetric", "none")] = "symmetric"
    alpha: Finite = 0.0
    epsilon: Positive | Annotated[str, one_of(*RULES)] = "auto"
    beta: Nonnegative = 1.0
    center: bool = True
    solver: Annotated[str, one_of(*STEPS)] = "als"
    init: Annotated[str, one_of("nndsvda", "random")] = "nndsvda"
    tol: Nonnegative = 1e-4
    max_iter: Count = 200
    random_state: Seed = 0
    outside: Annotated[str, one_of("error", "nan")] = "error"

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: center, scale, degrees, and the iteration, which writes the coordinates."""
        self._check()
        n = checked_shape(source, at_least=2)[0]
        if self.n_components > n:
            raise InputError(f"n_components={self.n_components!r} must be between 1 and n_samples={n}")
        asked = FactorOptions(
            int(self.n_components),
            self.normalization == "symmetric",
            self.solver,
            self.init,
            float(self.tol),
            int(self.max_iter),
            self._seed(),
        )
        return [*kernel_stages(source, KernelChoice.of(self)), factors_stage(source, asked)]

    def _set_fitted(self, run: Run) -> None:
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
            "warnings": {"convergence": lost, "degenerate": degenerate},
        }

    def _extension(self, run: Run) -> Extension:
        found = run.results("coordinates")
        stored = StoredKernel.of(run, "coordinates", self.outside)
        return Extension(factor_rows, stored, found["n_components"], found["n_features"])
