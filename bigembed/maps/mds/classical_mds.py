"""Classical multidimensional scaling (Torgerson, Gower): coordinates whose distances are those given."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.distance import Metric, checked_metric
from bigembed.errors import InputError
from bigembed.estimator import extension, frame, rowwise, seed_of
from bigembed.estimator.moments import moments_stage
from bigembed.linalg.eigenpairs import extremes
from bigembed.maps import fitted_stage
from bigembed.maps.linear.principal import GRAM_COLUMNS, principal_directions
from bigembed.maps.mds import TILE, ByDistance, coordinates_by_distance, distance_solve_stage, kept_of
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import checked_shape, offenders, refuse, usable
from bigembed.rows.row_maps import AffineMap, project
from bigembed.runtime.blocks import bounds, map_blocks
from bigembed.runtime.parameters import Count, Fraction, Seed, at_least
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, rows_of
from bigembed.store.arrays import create_grid, create_rows, read_array, write_array, write_rows, write_window


@dataclass(eq=False, repr=False)
class ClassicalMDS(rowwise.RowwiseEstimator, registered="classical_mds"):
    """Embed distances of any kind, from an array larger than memory, or rows, by classical MDS (seed 000 §3).

    With Δ the squared distances and H = I − 11ᵀ/n, B = −½ H Δ H = V Λ Vᵀ, and the coordinates are V₊ Λ₊^{1/2} of the
    d₊ = min(m, number of positive eigenvalues) largest. B is never formed: a product with it is one pass over Δ.
    For Euclidean distances of rows this is PCA, and is computed as such: one pass over the rows, no distances.

    With weights w (``sample_weight``), H = I − 1wᵀ/Σw, and the eigenvectors are those of √w B √w divided by √w: the
    same as for w copies of each row.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates. Fewer come out where fewer eigenvalues are positive (with a warning).
    metric : str or function
        The distance between rows: a metric of SciPy's ``cdist``, a function of two blocks of rows that returns their
        distances, or "module:name" of one. With "precomputed" X holds the distances, n × n.
    metric_params : dict or None
        Keyword arguments of the metric.
    ids : bool
        Whether X holds one integer a row, the id of an object; the function then gets int64 arrays of ids.
    squared : bool
        Whether the distances given (or returned by the function) are squared.
    tol : float in (0, 1)
        The largest residual ‖Bv − λv‖ of the solver, relative to tr B.
    max_passes : int ≥ 3
        The passes over the distances before the solver gives up (with a warning).
    random_state : int, generator or None
        The seed of the start of the solver.
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
    embedding_ : array of shape (n, d₊)
        The coordinates: NumPy for NumPy input, else a lazy Dask array; float32 for float32 rows. Columns stand by
        descending eigenvalue; the largest |entry| of each (of rows and Euclidean distances: of each direction in the
        space of the rows) is positive.
    eigenvalues_ : array of shape (d₊,)
        The eigenvalues of B, descending: the sums of squares of the coordinates.
    negative_eigenvalues_ : array
        The negative eigenvalues of B beyond rounding, ascending: all of them for up to 1024 rows and for Euclidean
        distances; else the most negative one seen (an upper bound of the smallest), or none.
    explained_ : float
        Σ λ_i² of the coordinates over ‖B‖_F² (Mardia, Kent & Bibby 1979, §14.4): 1 is perfect.
    n_components_, n_features_in_ : int
        The numbers d₊ of coordinates and d of columns of the rows.
    certificate_ : dict
        How far the map can be trusted, with residuals, tr B, ‖B‖_F, passes.

    Raises
    ------
    InputError
        If distances are NaN, infinite, negative, nonzero on the diagonal or not symmetric beyond rounding (entries or
        rows are named, in the first pass); if no eigenvalue is positive, or parameters are out of range.

    Notes
    -----
    Cost. Euclidean rows: one pass for ``fit``, one for coordinates. Distances: one pass to check them, then one for
    each block of Lanczos vectors (5 to 15 in all), each reading n² numbers; memory of a worker 64 MiB and the vectors
    (8·n·m bytes), whatever the chunks. Rows with another metric: the distances are first written, 4·n² bytes of disk
    for float32 rows. ``transform`` is Gower's formula: new rows, or with "precomputed" their distances (k, n) to
    the rows fitted.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    W. Torgerson, Multidimensional scaling I, Psychometrika 17 (1952). J. Gower, Adding a point to vector diagrams in
    multivariate analysis, Biometrika 55 (1968). K. Mardia, J. Kent, J. Bibby, Multivariate Analysis (1979), §14.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 0.0], [4.0, 3.0]])
    >>> apart = np.linalg.norm(square[:, None] - square, axis=2)
    >>> mds = ClassicalMDS(metric="precomputed").fit(apart)
    >>> mds.eigenvalues_.round(6).tolist(), round(mds.explained_, 6)
    ([16.0, 9.0], 1.0)
    >>> np.abs(mds.transform(apart[:1])).round(6).tolist()
    [[2.0, 1.5]]
    """

    follows_dtype = True
    aligned = ("weights",)
    compiled_from: ClassVar = inf
    frame_rule: ClassVar = frame.FrameRule("whole", shift=True)
    saved_stages: ClassVar = {
        "moments": ("mean",),
        "distances": ("rows",),
        "solve": ("",),
        "coordinates": ("embedding",),
    }

    n_components: Count = 2
    _: KW_ONLY
    metric: Any = "euclidean"
    metric_params: dict[str, Any] | None = None
    ids: bool = False
    squared: bool = False
    tol: Fraction = 1e-8
    max_passes: Annotated[int, at_least(3)] = 300
    random_state: Seed = 0

    def _pairwise(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows or to distances.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n)
            Rows, or distances with metric="precomputed": any kind that :func:`bigembed.open_array` takes.
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
        """List the stages from rows or from distances to coordinates."""
        self._check()
        n, d = checked_shape(source, at_least=2)
        m, metric = int(self.n_components), self._metric()
        if metric is not None and metric.euclidean and d <= GRAM_COLUMNS:
            width = min(m, d, n - 1)
            stages = [moments_stage(source), scatter_solve_stage(m, n, d)]
            return [*stages, self._output_stage(source, stages, width)]
        if metric is None and n != d:
            raise InputError(f"metric='precomputed': distances form a square array (n, n); got shape {source.shape}")
        m = min(m, n - 1)
        first = [] if metric is None else [distances_stage(source, metric)]
        asked: dict[str, Any] = {"tol": self.tol, "max_passes": self.max_passes, "seed": self._seed()}
        solve = distance_solve_stage(source, m, made=bool(first), squared=bool(self.squared), **asked)
        dtype = "float64" if metric is None else source.work
        weights = source.aligned.get("weights")
        return [*first, solve, fitted_stage(n, m, dtype, -2.0, weights)]  # (of Gower's map A = −½ v/√λ)

    def _metric(self) -> Metric | None:
        """None: X holds the distances."""
        return None if self._pairwise() else checked_metric(self.metric, self.metric_params, bool(self.ids))

    def _check(self) -> None:
        super()._check()
        metric = self._metric()
        if metric is not None and metric.euclidean and self.squared:
            raise InputError(
                "squared=True is for distances given or returned by a function; metric='euclidean' needs none"
            )

    def _set_fitted(self, run: Run) -> None:
        solve = run.results("solve")
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.negative_eigenvalues_ = read_array(run.path("solve", "negative"))
        self.explained_ = solve["explained"]
        self.n_components_ = solve["n_components"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve = run.results("solve")
        return {
            **{name: value for name, value in solve.items() if name != "reason"},
            "eigenvalues": self.eigenvalues_.tolist(),
            "negative_eigenvalues": self.negative_eigenvalues_[:50].tolist(),
            "seed": seed_of(self, run, "solve"),
            "warnings": _warnings(solve, self),
        }

    def _extension(self, run: Run) -> extension.Extension:
        solve = run.results("solve")
        m = solve["n_components"]
        if run.has("moments"):
            moments = run.results("moments")
            model = AffineMap(run.path("solve", "components"), run.path("moments", "mean"), transposed=True)
            return extension.Extension(project, model, m, moments["d"], dtype=moments["dtype"])
        metric = self._metric()
        known = run.path("distances", "rows") if metric is not None else ""
        d = solve["n"] if metric is None else run.results("distances")["d"]
        by_distance = ByDistance(metric, known, AffineMap.within(run.path("solve")), bool(self.squared))
        dtype = run.parameters("coordinates").get("dtype", "float64")
        return extension.Extension(coordinates_by_distance, by_distance, m, d, dtype=dtype, cheap=False)


def _warnings(solve: dict[str, Any], estimator: ClassicalMDS) -> dict[str, list[str]]:
    convergence, degenerate = [], []
    if not solve["converged"]:
        convergence.append(
            f"the eigensolver stopped ({solve['reason']}) with residuals up to {max(solve['residuals']):.2g} of tr B "
            f"after {solve['passes']} passes. Raise max_passes, or tol if this is enough; or ask for a number of "
            "components that ends at a gap of the spectrum"
        )
    found, last = solve["n_components"], float(estimator.eigenvalues_[-1])
    if found < estimator.n_components:
        degenerate.append(
            f"n_components={estimator.n_components}: only {found} eigenvalues are positive beyond rounding, so there "
            f"are {found} coordinates"
        )
    elif len(estimator.negative_eigenvalues_) and -estimator.negative_eigenvalues_[0] > last:
        degenerate.append(
            f"an eigenvalue is more negative ({estimator.negative_eigenvalues_[0]:.4g}) than the last coordinate's is "
            f"positive ({last:.4g}): the distances are far from Euclidean, and that coordinate says little"
        )
    return {"convergence": convergence, "degenerate": degenerate}


# --- rows with Euclidean distances -----------------------------------------------------------------


def scatter_solve_stage(m: int, n: int, d: int) -> Stage:
    """Eigenpairs of the scatter S = Σ (x − mean)(x − mean)ᵀ: B has its eigenvalues, and coordinates (x − mean)·v."""

    return Stage(
        "solve",
        ("moments",),
        {"m": m},
        partial(run_scatter_solve, m=m, n=n),
        Cost.of(
            writes=[ArraySpec("components", m, d), *(ArraySpec(name, m) for name in ("eigenvalues", "negative"))],
            coordinator=[ArraySpec("scatter and vectors", d, d, times=6)],
        ),
    )


def run_scatter_solve(context: Context, m: int, n: int) -> dict[str, Any]:
    scatter = read_array(context.of("moments", "scatter"))
    values, vectors = principal_directions(scatter)
    kept = kept_of(values, 0.0, min(m, n - 1))
    vectors = vectors[:, :kept] * extremes(vectors[:, :kept])[1]
    write_array(context.path("components"), np.ascontiguousarray(vectors.T))
    write_array(context.path("eigenvalues"), values[:kept])
    write_array(context.path("negative"), np.zeros(0))
    total, trace = float(values @ values), float(values.sum())
    residuals = np.linalg.norm(scatter @ vectors - vectors * values[:kept], axis=0)
    return {
        "n": n,
        "n_components": kept,
        "positive": int(np.count_nonzero(values)),
        "trace": trace,
        "norm": total**0.5,
        "explained": float(values[:kept] @ values[:kept]) / total,
        "residuals": (residuals / trace).tolist(),
        "passes": 1,
        "solver": "scatter",
        "converged": True,
    }


TASK_ROWS = 2_048
"""Rows of a task; it reads all rows once."""


def distances_stage(source: RowSource, metric: Metric) -> Stage:
    """``distances/distances`` (n, n) in the work dtype, and ``distances/rows``, a copy of the rows.

    The rows are checked (finite); what the metric returns is not: whoever reads the distances first does that.
    """
    n, d = checked_shape(source)
    tasks = -(-n // TASK_ROWS)

    cost = Cost.of(
        reads=[rows_of(source, tasks + 1)],
        writes=[ArraySpec("distances", n, n, source.work), ArraySpec("rows", n, d, source.work)],
        task=[
            ArraySpec("tiles of distances", TASK_ROWS, TILE, times=3),
            ArraySpec("rows", TASK_ROWS, source.row_bytes, "u1", 4),
        ],
        passes=1 + tasks,
        flops=2 * n * n * d,
        scalar_ops=n * n,
        blocks=tasks,
    )
    parameters = {"source": source.fingerprint(), **metric.key()}
    return Stage("distances", (), parameters, partial(run_distances, source=source, metric=metric), cost)


def run_distances(context: Context, source: RowSource, metric: Metric) -> dict[str, Any]:
    n, d = source.shape
    rows, out = context.path("rows"), context.path("distances")
    create_rows(rows, (n, d), source.work, TASK_ROWS, overwrite=True)
    create_grid(out, (n, n), source.work, (TILE, TILE))
    spans = bounds(n, TASK_ROWS)
    refuse(map_blocks(copy_block, spans, source=source, out=rows), source)
    map_blocks(distances_block, spans, rows=RowSource((n, d), source.work, path=rows), metric=metric, out=out)
    return {"n": n, "d": d, "metric": metric.text}


def copy_block(start: int, stop: int, *, source: RowSource, out: str) -> dict[str, Any]:
    """Copy some rows; what is wrong with them."""
    rows = source.matrix(start, stop)
    found = offenders(RowBlock(0, start, rows))
    if usable(found):
        write_rows(out, start, rows)
    return found


def distances_block(start: int, stop: int, *, rows: RowSource, metric: Metric, out: str) -> None:
    """Distances of some rows to all, tile by tile."""
    own = rows.matrix(start, stop)
    for first, last in bounds(rows.shape[0], TILE):
        write_window(out, start, first, metric.between(own, rows.matrix(first, last)).astype(rows.work, copy=False))
