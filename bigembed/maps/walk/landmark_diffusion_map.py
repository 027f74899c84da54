"""Landmark diffusion maps (Roseland): the walk from row to landmark to row, in three passes, without a graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Self

from bigembed.errors import InputError
from bigembed.estimator import certificate, extension, frame, rowwise
from bigembed.maps.kernels import Kernel, checked_kernel
from bigembed.maps.landmark_rows import MAX_LANDMARKS, SELECTIONS, duplicates_note, landmark_rows_stage
from bigembed.maps.walk import landmark_walk
from bigembed.rows import RowSource
from bigembed.rows.passes import checked_shape
from bigembed.runtime.parameters import Auto, Count, Nonnegative, Positive, Requirements, Seed, is_integer, one_of
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array


@dataclass(eq=False, repr=False)
class LandmarkDiffusionMap(rowwise.RowwiseEstimator, registered="landmark_diffusion_map"):
    """Embed rows by a diffusion map by way of landmarks (Roseland).

    The walk is D⁻¹ W Wᵀ, with W = k(X, landmarks) and D = diag(W Wᵀ 1).

    The coordinates of row i are (λ_1^t ψ_1(i), …, λ_m^t ψ_m(i)), λ = σ² of the singular value decomposition of
    D^{-1/2} W, ψ = D^{-1/2} u with Σ π ψ² = 1, π = d/Σd; the constant is left out. As landmarks and rows grow, the walk
    tends to a diffusion that also depends on the density of the landmarks (Shen & Wu 2022): not the operator of
    :class:`DiffusionMap`. Far fewer landmarks than rows make it quick, and robust to noise.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_landmarks : int > n_components
        The number L of landmarks, at most 8192.
    landmarks : {"max-min", "uniform"}
        How landmarks are chosen: "max-min" takes rows far from each other, among 30·L sampled rows; "uniform" takes
        landmarks as dense as the rows.
    kernel : "gaussian", function or str
        The kernel: "gaussian" is exp(−‖x − z‖²/ε); a function of two blocks of rows returns (len(a), len(b)) finite
        values ≥ 0; a str "module:name" names such a function.
    epsilon : float > 0 or "auto"
        The scale ε, in squared units of the data; "auto" is the median squared distance of a landmark to its third
        nearest.
    t : float ≥ 0
        The diffusion time; 0 leaves eigenvectors unscaled.
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
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted.
    eigenvalues_ : array of shape (m,)
        The eigenvalues λ = σ², descending, in [0, 1].
    residuals_ : array of shape (m,)
        ‖G v − λ v‖ of the landmarks' own problem.
    epsilon_ : float or None
        The ε that was used; None for a function.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    certificate_ : dict
        How far the map can be trusted. It is ``converged`` where half of the landmarks give nearly the same walk:
        ``half_moved``, the largest change of an eigenvalue as a share of min(λ, 1 − λ), and ``half_turned``, the sine
        of the angle between the coordinates of both, are at most .5 (else a ConvergenceWarning).

    Raises
    ------
    InputError
        If parameters are out of range, rows or the kernel hold NaN or infinity (these are named), a function has
        negative values, or rows reach no landmark.
    DisconnectedGraphError
        If the walk does not join all landmarks.

    Notes
    -----
    Cost: a sample, then three passes over the rows, with n·L values of the kernel each and n·L² products in the second.
    Memory: 8·L² bytes and a tile of 2048 × L a few times. Eigenvectors with λ near 0 are noise divided by σ.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    C. Shen, H.-T. Wu, Scalability and robustness of spectral embedding: landmark diffusion is all you need,
    Information and Inference 11 (2022).

    Examples
    --------
    >>> import numpy as np
    >>> angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    >>> ldm = LandmarkDiffusionMap(n_landmarks=50, landmarks="uniform")
    >>> ldm.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)])).shape
    (400, 2)
    """

    aligned = ("weights",)
    follows_dtype = True
    compiled_from: ClassVar = inf
    frame_rule: ClassVar = frame.FrameRule(top=1.0)
    saved_stages: ClassVar = {
        "landmarks": ("rows",),
        "sums": ("sums",),
        "solve": ("matrix", "eigenvalues", "residuals"),
        "coordinates": ("embedding",),
    }
    shown_arrays: ClassVar = {"solve": ("eigenvalues", "residuals")}

    n_components: Count = 2
    _: KW_ONLY
    n_landmarks: int = 500
    landmarks: Annotated[str, one_of(*SELECTIONS)] = "max-min"
    kernel: Any = "gaussian"
    epsilon: Positive | Auto = "auto"
    t: Nonnegative = 1
    random_state: Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows.

        Parameters
        ----------
        X : array of shape (n, d)
            The rows, of any kind that :func:`bigembed.open_array` takes.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for, ≥ 0: a row of weight m counts as m copies of it. With landmarks="max-min"
            only, which do not follow the density.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(X, weights=sample_weight)

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: landmarks, s = Wᵀ1, G = Wᵀ D⁻¹ W, its eigenvectors and, on demand, coordinates."""
        self._check()
        n, _ = checked_shape(source, at_least=2)
        if self.landmarks == "uniform" and "weights" in source.aligned:
            raise InputError(
                "landmarks='uniform' are as dense as rows stand there, whatever these weigh, and the walk depends on "
                "that. With sample_weight take landmarks='max-min'"
            )
        m, wanted = int(self.n_components), min(int(self.n_landmarks), n)
        if m >= n:
            raise InputError(f"n_components={m}: {n} rows have at most {n - 1} coordinates; ask for fewer")
        function = self._function()
        epsilon = self.epsilon if isinstance(self.epsilon, str) else float(self.epsilon)
        stages = [
            landmark_rows_stage(source, wanted, self.landmarks, m + 1, self._seed()),
            landmark_walk.sums_stage(source, function, epsilon, wanted),
            landmark_walk.gram_stage(source, function, wanted),
            landmark_walk.solve_stage(m, float(self.t), wanted, function),
        ]
        return [*stages, self._output_stage(source, stages, m, against=wanted)]

    def _function(self) -> Kernel | None:
        own = callable(self.kernel) or ":" in self.kernel
        return checked_kernel(self.kernel) if own else None

    def _require(self, need: Requirements) -> None:
        most = is_integer(self.n_landmarks) and self.n_landmarks <= MAX_LANDMARKS
        enough = most and is_integer(self.n_components) and self.n_landmarks > self.n_components
        need(enough, "n_landmarks", f"an integer > n_components, at most {MAX_LANDMARKS}")
        known = callable(self.kernel) or (
            isinstance(self.kernel, str) and (self.kernel == "gaussian" or ":" in self.kernel)
        )
        need(known, "kernel", "'gaussian', a function of two blocks of rows, or 'module:name' of one")

    def _check(self) -> None:
        super()._check()
        self._function()

    def _set_fitted(self, run: Run) -> None:
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = len(self.eigenvalues_)
        self.epsilon_ = run.results("sums")["epsilon"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        landmarks, solve, gram = run.results("landmarks"), run.results("solve"), run.results("gram")
        degenerate = duplicates_note(landmarks)
        if gram["far"]:
            degenerate.append(
                f"{gram['far']} of {landmarks['n']} rows are too far from every landmark to take part in the walk; "
                "they have the coordinates of their nearest landmark. Raise epsilon or n_landmarks"
            )
        if self.n_components_ < self.n_components:
            degenerate.append(
                f"n_components={self.n_components}: only {self.n_components_} eigenvalues of it are above "
                f"{landmark_walk.RANK}, so there are as many coordinates. Lower epsilon or raise n_landmarks"
            )
        return {
            **solve,
            "passes": 2,
            "epsilon": self.epsilon_,
            "landmarks": landmarks["landmarks"],
            "far_rows": gram["far"],
            "eigenvalues": self.eigenvalues_.tolist(),
            "seed": run.parameters("landmarks")["seed"],
            "input": {name: landmarks[name] for name in ("n", "d", "dtype")},
            "warnings": {
                "convergence": [solve["advice"]] if solve["advice"] else [],
                "degenerate": degenerate,
                "localized": certificate.carried_warnings(solve, "raise epsilon"),
            },
        }

    def _extension(self, run: Run) -> extension.Extension:
        landmarks, solve = run.results("landmarks"), run.results("solve")
        model = landmark_walk.LandmarkWalkModel(
            run.path("landmarks", "rows"),
            run.path("sums", "sums"),
            run.path("solve"),
            landmark_walk.walk_of(self._function(), run.results("sums")["epsilon"]),
            run.parameters("solve")["t"],
        )
        return extension.Extension(
            landmark_walk.extend, model, solve["n_components"], landmarks["d"], dtype=landmarks["dtype"], cheap=False
        )
