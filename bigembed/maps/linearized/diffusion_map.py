"""The linearized diffusion map: diffusion coordinates of all pairs of rows in a few passes (seed 004)."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator import extension, frame, rowwise
from bigembed.linalg.lanczos import ORDERS
from bigembed.maps.linearized import EPSILONS
from bigembed.maps.linearized.passes import RULES, KernelChoice, SolverOptions, StoredKernel, kernel_stages
from bigembed.maps.linearized.solve import POWERS, map_rows, map_stage, solve_stage
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.runtime.parameters import Count, Finite, Fraction, Nonnegative, Positive, Seed, at_least, one_of
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

GRAM_COLUMNS = 4096
"""Columns up to which solver="auto" forms the matrix G (d² numbers)."""


@dataclass(eq=False, repr=False)
class LinearizedDiffusionMap(rowwise.RowwiseEstimator, registered="linearized_diffusion_map"):
    """Embed rows by a diffusion map of all pairs, with the kernel 1 − ‖x − y‖²/ε (LDM and LDM-A, seed 004 §3.2).

    The kernel is K = U M Uᵀ with d + 2 features a row (seed 004 eq. 7), so degrees, eigenvalues and coordinates
    follow from a fixed number of passes, however many components are wanted. With q = K1, w = q^{−α} and
    d_i = w_i (K w)_i, the symmetric operator is S = D^{−½} W K W D^{−½} (eqs. 10, 12 for α = 0) and the Markov matrix
    P = D^{−1} W K W (eqs. 11, 13); both have the eigenvalues 1 = λ_0, λ_1, … . The trivial pair is left out.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates, at most min(n − 1, d + 1).
    normalization : {"symmetric", "asymmetric"}
        "symmetric" is LDM: eigenvectors v of S, Σ v² = 1. "asymmetric" is LDM-A: right eigenvectors ψ of P, Σ π ψ² = 1
        with π = d/Σd, so they do not shrink with n.
    alpha : float
        The power of q: 0 as in the paper; ½ is Fokker–Planck; 1 takes the density out, as in diffusion maps.
    epsilon : float > 0, "auto" or "density"
        The scale ε, in squared units of the data. "auto" is 4·max r², r the distance to the center: the smallest that
        surely keeps K ≥ 0. "density" takes scales of rows ε_i = 4·max r²·(q*/q_i)^β (seed 004 §5), q* the largest row
        sum that a point can have. ``fit(X, epsilons=…)`` gives any other scales ε_i; then ε_ij = √(ε_i ε_j).
    beta : float ≥ 0
        The power β of epsilon="density".
    center : bool
        Whether r is measured from the mean of the rows. False measures it from the origin, as in the paper's formulas,
        where data far from the origin squeeze the spectrum.
    scaling : {"eigenvalue", "sqrt", "eigenvector"}
        How coordinates are scaled: by λ ("eigenvalue", the diffusion map at t = 1), by |λ|^½ ("sqrt"), or not
        ("eigenvector").
    order : {"algebraic", "magnitude"}
        The order of the eigenvalues: "algebraic" is descending, as in all spectral methods here; "magnitude" is by
        descending |λ| (seed 004 §3.1). K has at most one negative eigenvalue.
    solver : {"factored", "lanczos", "auto"}
        The solver: "factored" is exact and holds d² numbers; "lanczos" is block Lanczos on the matrix-free operator of
        eqs. 9–13, two passes a product, for very many columns; "auto" is factored up to 4096 columns.
    tol : float in (0, 1)
        The largest residual of block Lanczos, relative to the largest nontrivial |λ|.
    max_passes : int ≥ 3
        The passes of block Lanczos before it gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of block Lanczos.
    outside : {"error", "nan"}
        What ``transform`` does with a row out of the kernel's reach (a row sum ≤ 0).
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
        The eigenvalues in ``order``, the trivial one left out.
    residuals_ : array of shape (m,)
        The residuals of the eigenpairs of S.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.
    components_ : array of shape (m, d)
        The linear part of the map, which is its slope at the center: coordinates(x) = offset_ + components_ (x − c) +
        O(‖x − c‖²).
    offset_ : array of shape (m,)
        The coordinates of the center.
    mean_ : array of shape (d,)
        The center c.
    epsilon_ : float
        The ε that was used; with scales of rows, the one that they refer to.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If there are fewer than two rows, all rows are equal, rows hold NaN or infinity (they are named), or parameters
        are out of range.
    KernelSignError
        If ε is so small that the kernel was seen to be negative. An ε below 4·max r² that was not seen to be too small
        is a DegenerateWarning; so are wanted pairs that do not exist, whose coordinates are 0.
    OutOfReachError
        If new rows are out of reach, unless outside="nan".

    Notes
    -----
    Passes: mean, spread, (α > 0: t), G; coordinates one more: 4 or 5, with scales of rows one more. Memory of a
    worker: a few blocks of rows and d² numbers. Coordinates of rows fitted and of new rows come from one formula.
    Signs: the largest |coefficient| of a pair is positive. Sums are float64 in a fixed order.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    J. Candañedo, Linearized Diffusion Map (seed 004). R. Coifman, S. Lafon, Diffusion maps, ACHA 21 (2006).

    Examples
    --------
    >>> angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> ldm = LinearizedDiffusionMap(n_components=2).fit(np.column_stack([np.cos(angle), np.sin(angle)]))
    >>> ldm.eigenvalues_.round(12).tolist()
    [0.5, 0.5]
    """

    follows_dtype = True
    aligned = ("weights", EPSILONS)
    compiled_from: ClassVar = inf
    frame_rule: ClassVar = frame.FrameRule(top=1.0)
    saved_stages: ClassVar = {
        "center": (),
        "scale": (),
        "degrees": (),
        "solve": ("eigenvalues", "residuals"),
        "map": ("",),
        "coordinates": ("embedding",),
    }
    shown_arrays: ClassVar = {"solve": ("eigenvalues", "residuals")}

    n_components: Count = 2
    _: KW_ONLY
    normalization: Annotated[str, one_of("symmetric", "asymmetric")] = "symmetric"
    alpha: Finite = 0.0
    epsilon: Positive | Annotated[str, one_of(*RULES)] = "auto"
    beta: Nonnegative = 1.0
    center: bool = True
    scaling: Annotated[str, one_of(*POWERS)] = "eigenvalue"
    order: Annotated[str, one_of(*ORDERS)] = "algebraic"
    solver: Annotated[str, one_of("auto", "factored", "lanczos")] = "auto"
    tol: Fraction = 1e-9
    max_passes: Annotated[int, at_least(3)] = 1000
    random_state: Seed = 0
    outside: Annotated[str, one_of("error", "nan")] = "error"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, epsilons: Any = None) -> Self:
        """Fit the map to rows.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How often each row counts.
        epsilons : array of shape (n,), or None
            The scales ε_i of the rows, instead of ``epsilon``.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight, **{EPSILONS: epsilons})

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: center, scale, degrees, eigenpairs, the map, and, on demand, coordinates."""
        self._check()
        n, d = checked_shape(source, at_least=2)
        own = EPSILONS in source.aligned
        if self.n_components > min(n - 1, d + 1):
            raise InputError(
                f"n_components={self.n_components!r} must be between 1 and min(n_samples - 1, n_features + 1)="
                f"{min(n - 1, d + 1)}: the kernel has no more eigenvalues besides the trivial one"
            )
        if own and self.epsilon != "auto":
            raise InputError(
                f"epsilon={self.epsilon!r} and epsilons were both given; leave epsilon='auto' with epsilons"
            )
        choice = KernelChoice.of(self)
        solver = self.solver if self.solver != "auto" else "factored" if d <= GRAM_COLUMNS else "lanczos"
        asked = SolverOptions(int(self.n_components), self.order, solver, float(self.tol), int(self.max_passes), 0)
        if solver == "lanczos":
            asked = replace(asked, seed=self._seed())
        stages = [
            *kernel_stages(source, choice),
            solve_stage(source, asked),
            map_stage(source, asked.n_components, self.normalization, self.scaling),
        ]
        return [*stages, self._output_stage(source, stages, asked.n_components)]

    def transform(self, X: Any, epsilons: Any = None) -> Any:
        """Place new rows on the map by the formula of the rows fitted, row by row the same whatever the batch.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.
        epsilons : array of shape (k,), or None
            The scales of the new rows, which a map that was fitted with ``epsilons`` needs.

        Returns
        -------
        array of shape (k, m)
            The coordinates: NumPy for NumPy, else a lazy Dask array.
        """
        from bigembed.estimator.transform import transform

        self._check_fitted()
        return transform(self, X, **{EPSILONS: epsilons})

    def transform_to(self, X: Any, out: str | os.PathLike[str], epsilons: Any = None) -> None:
        """Place new rows on the map, block by block, and write their coordinates in one pass.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.
        out : path
            The path of the new Zarr array (n, m).
        epsilons : array of shape (k,), or None
            The scales of the new rows, which a map that was fitted with ``epsilons`` needs.
        """
        from bigembed.estimator.transform import transform_to

        self._check_fitted()
        transform_to(self, X, out, **{EPSILONS: epsilons})

    def _set_fitted(self, run: Run) -> None:
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.mean_ = read_array(run.path("map", "center"))
        self.components_ = read_array(run.path("map", "linear"))
        self.offset_ = read_array(run.path("map", "offset"))
        self.epsilon_ = run.results("scale")["epsilon"]
        self.n_components_ = len(self.eigenvalues_)

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, scale = run.results("solve"), run.results("scale")
        zeros = int(np.sum(self.eigenvalues_ == 0))
        degenerate = []
        if zeros:
            degenerate.append(
                f"{zeros} of {self.n_components_} components do not exist: the kernel has no further eigenvalue of "
                "this kind (rows in fewer directions, or fewer distinct rows, than components). Their eigenvalues and "
                "coordinates are 0; ask for fewer, or take order='magnitude' to have the negative eigenvalue"
            )
        if not scale["proved"]:
            degenerate.append(
                f"epsilon={scale['epsilon']:.6g} is below 4·max r² = {scale['enough']:.6g}: the kernel was not seen to "
                "be negative, but may be between rows that were not compared"
            )
        converged = solve["converged"]
        return {
            "solver": solve["solver"],
            "passes": sum(run.results(stage)["passes"] for stage in ("center", "scale", "degrees", "solve")),
            "converged": converged,
            "residuals": self.residuals_.tolist(),
            "gap": solve["gap"],
            "orthogonality": solve["orthogonality"],
            "rank": solve["rank"],
            "epsilon": scale["epsilon"],
            "kernel_nonnegative": "proved" if scale["proved"] else "not disproved",
            "seed": solve["seed"],
            "warnings": {"degenerate": degenerate, "convergence": [] if converged else [solve["advice"]]},
        }

    def _extension(self, run: Run) -> extension.Extension:
        shape = run.results("map")
        return extension.Extension(
            map_rows,
            StoredKernel.of(run, "map", self.outside),
            shape["n_components"],
            shape["n_features"],
            dtype=shape["dtype"],
            aligned=(EPSILONS,) if run.results("scale")["kind"] == "given" else (),
        )
