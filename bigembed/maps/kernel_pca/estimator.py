"""Kernel PCA: principal components in the feature space of a kernel, exactly or by landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from math import inf
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import linalg

from bigembed import errors
from bigembed.errors import InputError, PlanError
from bigembed.estimator.certificate import carried_warnings
from bigembed.estimator.extension import Extension, rows_of
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.maps import fitted_stage, kernel_pca
from bigembed.maps.kernels import KERNELS, Kernel, checked_kernel, in_tiles
from bigembed.maps.landmark_rows import MAX_LANDMARKS, SELECTIONS, all_rows_stage, duplicates_note, landmark_rows_stage
from bigembed.rows import RowSource, derived, passes, row_maps
from bigembed.runtime import parameters
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import read_array, write_array

EXACT_ROWS = 200_000
"""Rows up to which all pairs are computed in every pass (4·10¹⁰ values of the kernel)."""
COLUMNS = 2_048
"""Landmarks that rows are compared with at a time."""


@dataclass(eq=False, repr=False)
class KernelPCA(RowwiseEstimator, registered="kernel_pca"):
    """Find the kernel principal components (seed 004 §2.1) of rows whose kernel matrix fits nowhere.

    With K_ij = k(x_i, x_j) and H = I − 11ᵀ/n, the coordinates of the rows are √λ_l v_l for the leading eigenpairs of
    H K H, and Σ_i (k(x, x_i) − K̄_i) v_l(i)/√λ_l for a new row x, K̄ the row means (Schölkopf, Smola & Müller 1998).
    They are centered in the feature space and agree with those of scikit-learn up to sign. A row of weight w
    (``sample_weight``) counts as w copies: H subtracts weighted means, and √w H K Hᵀ √w has the eigenvectors √w v.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    kernel : {"rbf", "poly", "sigmoid", "cosine", "linear", "precomputed"}, function or str
        The kernel: "rbf" exp(−γ‖x − y‖²), "poly" (γ x·y + c)^degree, "sigmoid" tanh(γ x·y + c), "cosine", "linear"; a
        function of two blocks of rows that returns (len(a), len(b)) values, or "module:name" of one. With "precomputed"
        X is the kernel matrix (n, n), and for new rows their kernel with the fitted ones (k, n). If the kernel is not
        positive semidefinite, only coordinates of positive eigenvalues are kept.
    gamma : float > 0 or None
        The γ of the kernel; None is 1/d.
    degree : float > 0
        The degree of "poly".
    coef0 : float
        The constant c of "poly" and "sigmoid".
    kernel_params : dict or None
        Keyword arguments of a function.
    solver : {"exact", "nystrom"}
        The solver: "exact" computes kernel blocks on the fly in every pass (n ≤ 200 000); "nystrom" takes landmarks
        (any n).
    n_landmarks : int > n_components
        The number L of landmarks for solver="nystrom", at most 8192.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other, among 30·L sampled rows; "uniform" takes
        any.
    fit_inverse_transform : bool
        Whether ``inverse_transform`` is learned, by kernel ridge regression on all rows (solver="exact", at most 8192)
        or on the landmarks.
    alpha : float > 0
        The ridge of that regression.
    tol : float in (0, 1)
        The largest residual of the exact solver, as a share of ‖H K H‖_F.
    max_passes : int ≥ 3
        The passes over all pairs before the exact solver gives up (with a warning).
    random_state : int, generator or None
        The seed of everything that is drawn.
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
        The eigenvalues of H K H, descending and positive.
    residuals_ : array of shape (m,)
        The explicit ‖Av − λv‖ of the exact solver; of "nystrom" how far the eigenvalues are from those of half of the
        landmarks (with a warning where that is more than a tenth).
    embedding_ : array of shape (n, m)
        The coordinates; the largest |entry| of each is positive (solver="nystrom": over the landmarks).
    gamma_ : float or None
        The γ that was used; None where the kernel is given.
    n_features_in_ : int
        The number d of columns of the rows.
    n_components_ : int
        The number of coordinates: fewer than asked where eigenvalues are not above 1e-10 of the largest (with a
        warning).
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If parameters are out of range, rows or the kernel hold NaN or infinity (these are named), the kernel is not
        symmetric, or it cannot distinguish the rows.
    PlanError
        If there are too many rows for solver="exact".

    Notes
    -----
    Cost, exact: one pass over all pairs for the row means, then some 5–20 (n² values of the kernel each). Memory: three
    tiles of 2048 × 2048 and 16·n·m bytes a worker; never n². Nyström: a sample, one pass over the rows with n·L values
    of the kernel and n·L² products, one for the coordinates; 8·L² bytes a few times. Sparse rows are taken, and made
    dense a block at a time; the rows that are compared with (all, or the landmarks) are stored dense.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map; of many sparse rows it compares 400 with all, in three passes.

    References
    ----------
    B. Schölkopf, A. Smola, K.-R. Müller, Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10 (1998). C. Williams, M. Seeger, Using the Nyström method to speed up kernel machines, NIPS 13 (2001).

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, -1.0], [-2.0, 0.0]])
    >>> kpca = KernelPCA(n_components=1, kernel="linear").fit(rows)
    >>> kpca.eigenvalues_.round(6).tolist(), abs(kpca.embedding_).round(6).ravel().tolist()
    ([8.0], [0.0, 2.0, 0.0, 2.0])
    """

    follows_dtype = takes_sparse = True
    like_rows = ("eigenvalues_",)
    aligned = ("weights",)
    compiled_from: ClassVar = inf
    saved_stages: ClassVar = {
        "landmarks": ("rows",),
        "moments": ("mean",),
        "solve": ("mean", "matrix", "eigenvalues", "residuals"),
        "coordinates": ("embedding",),
        "inverse": ("",),
    }
    shown_arrays: ClassVar = {"solve": ("eigenvalues", "residuals")}

    n_components: parameters.Count = 2
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: parameters.Positive | None = None
    degree: parameters.Positive = 3
    coef0: parameters.Finite = 1
    kernel_params: dict[str, Any] | None = None
    solver: str = "exact"
    n_landmarks: int = 500
    landmarks: Annotated[str, parameters.one_of(*SELECTIONS)] = "max-min"
    fit_inverse_transform: bool = False
    alpha: parameters.Positive = 1.0
    tol: parameters.Fraction = 1e-8
    max_passes: Annotated[int, parameters.at_least(3)] = 200
    random_state: parameters.Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, or to kernel values.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n)
            Rows of any kind that :func:`bigembed.open_array` takes, sparse ones too, or kernel values with
            kernel="precomputed".
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for: finite numbers above 0.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: landmarks (or all rows), the map of kernel values to coordinates, coordinates."""
        self._check()
        n, d = passes.checked_shape(source, at_least=2)
        m, seed, weights = int(self.n_components), self._seed(), source.aligned.get("weights")
        if m >= n:
            raise InputError(f"n_components={m}: {n} rows have at most {n - 1} centered components; ask for fewer")
        if self._pairwise():
            first, pairs = kernel_pca.numbers_stage(source), kernel_pca.GivenKernel(source)
            shape = replace(kernel_pca.numbers_of(source), aligned=source.aligned)
            solve = kernel_pca.exact_solve_stage(shape, pairs, m, float(self.tol), int(self.max_passes), seed)
            return [first, solve, fitted_stage(n, m, source.work, weights=weights)]
        kernel, given, source = self._kernel(d), source, derived.densified(source)
        if self.solver == "nystrom":
            wanted = min(int(self.n_landmarks), n)
            stages = [
                landmark_rows_stage(source, wanted, self.landmarks, m + 1, seed),
                *kernel_pca.nystrom_stages(source, kernel, wanted, m),
                *self._back(kernel, wanted, d),
            ]
            return [*stages, self._output_stage(given, stages, m, against=wanted)]
        if n > EXACT_ROWS:
            raise PlanError(
                f"solver='exact' computes all pairs of rows in every pass, for n ≤ {EXACT_ROWS}; got n = {n}, "
                f"{n * n:.1e} values a pass. Use solver='nystrom' with n_landmarks={int(self.n_landmarks)} or more"
            )
        return [
            all_rows_stage(source),
            kernel_pca.exact_solve_stage(source, kernel, m, float(self.tol), int(self.max_passes), seed),
            fitted_stage(n, m, source.work, weights=weights),
            *self._back(kernel, n, d),
        ]

    def _back(self, kernel: Kernel, landmarks: int, d: int) -> list[Stage]:
        """The stage that learns the way back, if it is wanted."""
        if not self.fit_inverse_transform:
            return []

        def coordinates(rows: Array, context: Context) -> Array:
            return kernel_pca.project_by_kernel(
                rows,
                kernel_pca.ByKernel(kernel, context.of("landmarks", "rows"), kernel_pca.map_of(context.of("solve"))),
            )

        return [inverse_stage(kernel, float(self.alpha), landmarks, d, int(self.n_components), coordinates)]

    @property
    def inverse_transform(self) -> Callable[[Any], Any]:
        """Return rows (k, d) of coordinates (k, m), in memory or lazy as they are, after ``fit_inverse_transform``."""
        if not self.as_fitted().fit_inverse_transform:
            raise errors.NotFittedError("inverse_transform: was not learned; fit with fit_inverse_transform=True")
        return self._inverse_transform

    def _inverse_transform(self, X: Any) -> Any:
        self._check_fitted()
        known, dual = (read_array(self._run.path("inverse", name)) for name in ("known", "dual"))
        back = KernelInverse(self.as_fitted()._kernel(self._columns), known, dual)
        return rows_of(self, X, back, self.n_components_, self._columns)

    def _pairwise(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _kernel(self, d: int) -> Kernel:
        gamma = 1.0 / d if self.gamma is None else float(self.gamma)
        numbers = {"gamma": gamma, "degree": float(self.degree), "coef0": float(self.coef0)}
        return checked_kernel(self.kernel, self.kernel_params, **numbers)

    def _require(self, need: parameters.Requirements) -> None:
        need(
            self.kernel_params is None or self.kernel not in KERNELS,
            "kernel_params",
            "None, or keyword arguments of a function given as kernel",
        )
        able = not (self.fit_inverse_transform and self._pairwise())
        need(able, "fit_inverse_transform", "True or False; not with a given kernel, which does not hold the rows")
        solvers = ("exact",) if self._pairwise() else ("exact", "nystrom")
        need(self.solver in solvers, "solver", " or ".join(map(repr, solvers)))
        most = parameters.is_integer(self.n_landmarks) and self.n_landmarks <= MAX_LANDMARKS
        enough = most and parameters.is_integer(self.n_components) and self.n_landmarks > self.n_components
        need(enough or self.solver == "exact", "n_landmarks", f"an integer > n_components, at most {MAX_LANDMARKS}")

    def _check(self) -> None:
        super()._check()
        if not self._pairwise():
            checked_kernel(self.kernel, self.kernel_params)

    def _set_fitted(self, run: Run) -> None:
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = len(self.eigenvalues_)
        self.gamma_ = None if self._pairwise() else self._kernel(run.results("landmarks")["d"]).gamma

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, landmarks = run.results("solve"), run.results("landmarks")
        found = {
            **solve,
            "seed": run.parameters("solve").get("seed", run.parameters("landmarks").get("seed", 0)),
            "input": {name: landmarks[name] for name in ("n", "d", "dtype")},
            "landmarks": landmarks["landmarks"],
            "eigenvalues": self.eigenvalues_.tolist(),
        }
        stopped = "" if solve["reason"] == "landmarks" else f"the eigensolver stopped ({solve['reason']}). "
        convergence = [] if solve["converged"] else [stopped + solve["advice"]]
        degenerate = duplicates_note(landmarks)
        if self.n_components_ < self.n_components:
            degenerate.append(
                f"n_components={self.n_components}: only {self.n_components_} eigenvalues of the kernel are above "
                f"1e-10 of the largest (the lowest found is {solve['lowest']:.3g}), so there are as many coordinates"
            )
        smoother = "take a smoother kernel" if self.gamma_ is None else f"take a gamma below {self.gamma_:.3g}"
        few = carried_warnings(solve, f"{smoother}, or scale the columns")
        return found | {"warnings": {"convergence": convergence, "degenerate": degenerate, "localized": few}}

    def _extension(self, run: Run) -> Extension:
        landmarks, width = run.results("landmarks"), run.results("solve")["n_components"]
        found = kernel_pca.map_of(run.path("solve"))
        if self._pairwise():  # (rows are their kernel values)
            return Extension(row_maps.project, found, width, landmarks["d"], dtype=landmarks["dtype"])
        model = kernel_pca.ByKernel(self._kernel(landmarks["d"]), run.path("landmarks", "rows"), found)
        known = {"dtype": landmarks["dtype"], "cheap": False, "sparse": True}
        return Extension(kernel_pca.project_by_kernel, model, width, landmarks["d"], **known)


# --------------------------------------------------------------------------------------------------------- inverse
# From coordinates of kernel PCA back to rows, learned by kernel ridge regression (Bakır, Weston & Schölkopf 2004).

MOST_ROWS = 8_192
"""Rows (of the exact solver all, else the landmarks) up to which the regression is solved: 512 MiB."""


@dataclass(frozen=True)
class KernelInverse:
    """x(y) = k(y, Z) B: Z (L, m) the coordinates of known rows, B (L, d) what (k(Z, Z) + α I) B = X gives."""

    kernel: Kernel
    known: Array
    dual: Array

    def __call__(self, coordinates: Any) -> Array:
        """Rows (k, d) of coordinates (k, m)."""
        return in_tiles(
            lambda part: np.asarray(self.kernel(part, self.known) @ self.dual), coordinates, self.dual.shape[1]
        )


def inverse_stage(kernel: Kernel, alpha: float, landmarks: int, d: int, m: int, project: Any) -> Stage:
    """``inverse/known`` (L, m) and ``inverse/dual`` (L, d). ``project(rows, context)``: coordinates of known rows."""
    if landmarks > MOST_ROWS:
        raise PlanError(
            f"fit_inverse_transform solves a dense system of all rows that are compared with, at most {MOST_ROWS}; "
            f"there are {landmarks}. Use solver='nystrom' with fewer landmarks"
        )

    writes = [ArraySpec("known", landmarks, m), ArraySpec("dual", landmarks, d)]
    cost = Cost.of(
        writes=writes,
        coordinator=[ArraySpec("system", landmarks, landmarks, times=2), ArraySpec("rows", landmarks, m + d, times=3)],
        serial_flops=landmarks**3 / 3 + 2 * landmarks**2 * d,
    )
    return Stage(
        "inverse",
        ("landmarks", "solve"),
        {**kernel.key(), "alpha": alpha},
        partial(run_inverse, kernel=kernel, alpha=alpha, project=project),
        cost,
    )


def run_inverse(context: Context, kernel: Kernel, alpha: float, project: Any) -> dict[str, Any]:
    rows = np.asarray(read_array(context.of("landmarks", "rows")), np.float64)
    known = project(rows, context)
    system = kernel(known, known)
    system.flat[:: len(system) + 1] += alpha
    try:
        dual = linalg.solve(system, rows, assume_a="pos", overwrite_a=True)
    except linalg.LinAlgError as error:
        raise InputError(
            f"kernel={kernel.text}, alpha={alpha}: the kernel of the coordinates is not positive; raise alpha"
        ) from error
    write_array(context.path("known"), known)
    write_array(context.path("dual"), dual)
    return {"alpha": alpha}
