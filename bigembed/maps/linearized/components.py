"""Two ways to take the linearized kernel apart: principal components (seed 004 §2.3), and nonnegative factors (§5)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension, inverse
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.rowwise import RowwiseEstimator, WeightedRowwiseEstimator
from bigembed.maps.linear.principal import GRAM_COLUMNS, PrincipalOptions, principal_stages
from bigembed.maps.linearized import combine_sums, spread_block
from bigembed.maps.linearized.factors import STEPS, FactorOptions, factor_rows, factors_stage
from bigembed.maps.linearized.passes import RULES, KernelChoice, StoredKernel, kernel_stages
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape, reduce_rows
from bigembed.rows.row_maps import AffineMap, project
from bigembed.runtime.parameters import Count, Finite, Fraction, Nonnegative, Positive, Seed, at_least, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.store.arrays import read_array, write_array

EPSILON_RULES = ("auto", "bessel")
POWERS = {"eigenvector": -0.5, "sqrt": 0.0, "eigenvalue": 0.5}
"""Power of λ on the coordinates √λ_l u_l."""


@dataclass(eq=False, repr=False)
class LinearizedKernelPCA(WeightedRowwiseEstimator, registered="linearized_kernel_pca"):
    """Find the principal components of the linearized kernel 1 − ‖x − y‖²/ε of all pairs of rows.

    The kernel exp(−‖x − y‖²/ε) ≈ 1 − ‖x − y‖²/ε is double centered: K = (2/ε) C Cᵀ, C the centered rows.
    So its eigenvectors u_l are those of PCA and of classical MDS, whatever ε (seed 004 §2.3, §2.4): with
    ε = 2 the coordinates √λ_l u_l are those of MDS and the scores of PCA, with ε = 2(n − 1) the eigenvalues are PCA's
    variances.

    Parameters
    ----------
    n_components : int ≥ 1 or None
        The number m of coordinates, at most min(n, d); None takes all.
    epsilon : float > 0, "auto" or "bessel"
        The scale ε, in squared units of the data. "auto" is 4·max r², for which the kernel before centering is
        nonnegative (dense rows only); "bessel" is 2(W − 1), W the sum of the weights, n without.
    scaling : {"sqrt", "eigenvector", "eigenvalue"}
        How coordinates are scaled: √λ_l u_l ("sqrt", kernel PCA's and MDS's), u_l ("eigenvector") or λ_l u_l
        ("eigenvalue").
    tol : float in (0, 1)
        The largest residual of block Lanczos, which solves for more than 4096 columns of more rows, as in :class:`PCA`.
    max_passes : int ≥ 3
        The passes of block Lanczos before it gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of block Lanczos.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    eigenvalues_ : array of shape (m,)
        The eigenvalues of K, descending.
    components_ : array of shape (m, d)
        Orthonormal rows, the largest |entry| of each positive.
    mean_ : array of shape (d,)
        The mean of the rows.
    epsilon_ : float
        The ε that was used.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If there are fewer than two rows, rows hold NaN or infinity (they are named), parameters are out of range, or
        all rows are equal with "auto".

    Notes
    -----
    Cost: as PCA, one pass; with epsilon="auto" one more; one for coordinates. Memory of a worker: a block of rows
    (32 MiB) and d² numbers. Coordinates are linear in the row, in and out of the sample.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    J. Candañedo, Linearized Diffusion Map (seed 004), §2.3–2.4.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    >>> LinearizedKernelPCA(n_components=1).fit_transform(X).round(9).tolist()
    [[-5.0], [0.0], [5.0]]
    """

    follows_dtype = True
    compiled_from: ClassVar = inf
    frame_rule: ClassVar = FrameRule(values=("map", "eigenvalues"))
    saved_stages: ClassVar = {"moments": ("mean",), "solve": ("",), "map": ("",), "coordinates": ("embedding",)}
    shown_arrays: ClassVar = {"moments": ("mean",)}

    n_components: Count | None = 2
    _: KW_ONLY
    epsilon: Positive | Annotated[str, one_of(*EPSILON_RULES)] = 2.0
    scaling: Annotated[str, one_of(*POWERS)] = "sqrt"
    tol: Fraction = 1e-7
    max_passes: Annotated[int, at_least(3)] = 200
    random_state: Seed = 0

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: moments, components, the map, and, on demand, coordinates."""
        self._check()
        n, d = checked_shape(source, at_least=2)
        if self.n_components is not None and self.n_components > min(n, d):
            raise InputError(
                f"n_components={self.n_components!r} must be between 1 and min(n_samples, n_features)={min(n, d)}"
            )
        if self.n_components is None and d > GRAM_COLUMNS:
            raise InputError(f"n_components=None is for at most {GRAM_COLUMNS} columns; there are {d}: give a number")
        m = min(n, d) if self.n_components is None else int(self.n_components)
        epsilon = self.epsilon if isinstance(self.epsilon, str) else float(self.epsilon)
        asked = PrincipalOptions(m, False, float(self.tol), int(self.max_passes), self._seed())
        stages = [*principal_stages(source, asked), map_stage(source, m, epsilon, self.scaling)]
        return [*stages, self._output_stage(source, stages, m)]

    def _sparse(self) -> bool:
        return self.epsilon != "auto"

    def inverse_transform(self, X: Any) -> Any:
        """Return rows of coordinates: the point of the subspace that has them.

        Parameters
        ----------
        X : array of shape (k, m)
            The coordinates.

        Returns
        -------
        array of shape (k, d)
            The rows: NumPy for arrays in memory, else a lazy Dask array.
        """
        self._check_fitted()
        scale = read_array(self._run.path("map", "scale"))
        return inverse(self, X, self.components_ / np.where(scale > 0, scale, 1.0)[:, None], self.mean_)

    def _set_fitted(self, run: Run) -> None:
        self.mean_ = read_array(run.path("moments", "mean"))
        self.components_ = read_array(run.path("solve", "components"))
        self.eigenvalues_ = read_array(run.path("map", "eigenvalues"))
        self.epsilon_ = run.results("map")["epsilon"]
        self.n_components_ = len(self.eigenvalues_)

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, found = run.results("solve"), run.results("map")
        return {
            "solver": solve["solver"],
            "passes": solve["passes"] + 1 + found["passes"],
            "residual": solve["residual"] * found["factor"],
            "gap": solve["gap"] * found["factor"],
            "converged": solve["converged"],
            "epsilon": self.epsilon_,
            "seed": run.parameters("solve")["seed"],
            "warnings": {"convergence": [] if solve["converged"] else [solve["advice"]]},
        }

    def _extension(self, run: Run) -> Extension:
        moments, width = run.results("moments"), len(read_array(run.path("map", "eigenvalues")))
        scale = read_array(run.path("map", "scale"))
        model = AffineMap(run.path("solve", "components"), run.path("moments", "mean"), transposed=True, scale=scale)
        return Extension(project, model, width, moments["d"], dtype=moments["dtype"], sparse=True)


def map_stage(source: RowSource, m: int, epsilon: str | float, scaling: str) -> Stage:
    """λ_l = (2/ε)(W − 1) · variance, and the scale s_l = √(2/ε) λ_l^τ of a coordinate; one pass for ε = 4·max r²."""

    cost = summing_cost(source, 0, int(epsilon == "auto"))
    cost += Cost.of(writes=[ArraySpec("eigenvalues", m), ArraySpec("scale", m)])
    return Stage(
        "map",
        ("solve", "moments"),
        {"epsilon": epsilon, "scaling": scaling},
        partial(run_map, source=source, epsilon=epsilon, scaling=scaling),
        cost,
    )


def run_map(context: Context, source: RowSource, epsilon: str | float, scaling: str) -> dict[str, Any]:
    freedom = context.results("moments")["weight"] - 1
    scale = 2 * freedom if epsilon == "bessel" else epsilon
    if scale == "auto":
        mean = read_array(context.of("moments", "mean"))
        found = reduce_rows(source, spread_block, context.exchange, combine=combine_sums, center=mean)
        scale = 4 * float(found["radius"])
        if not scale > 0:
            raise InputError("all rows are equal, so epsilon='auto' is 0: give a number")
    factor = 2 * freedom / float(scale)
    values = factor * read_array(context.of("solve", "variance"))
    power = np.where(values > 0, np.where(values > 0, values, 1.0) ** POWERS[scaling], 0.0)
    write_array(context.path("eigenvalues"), values)
    write_array(context.path("scale"), np.sqrt(2 / float(scale)) * power)
    return {"epsilon": float(scale), "factor": factor, "passes": int(epsilon == "auto")}


# ------------------------------------------------------------------------------------------------------------ factors
# Nonnegative factorization of the linearized diffusion kernel: parts of a data set, by diffusion.


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
        The start: "nndsvda" takes the positive or negative parts of the leading eigenvectors, with zeros replaced by
        small numbers; "random" draws it.
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
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
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
