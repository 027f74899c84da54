"""Landmark MDS (de Silva, Tenenbaum): some rows by classical scaling, all others by their distances to them."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.distance import Metric, checked_metric
from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.maps import mds
from bigembed.maps.landmark_rows import ENOUGH
from bigembed.maps.mds import landmark_axes
from bigembed.neighbors.given import GIVEN, is_given
from bigembed.rows import RowSource, passes, row_maps
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Requirements, Seed, at_least
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

MOVED = 1 / 3
"""Change of the coordinates by half of the landmarks above which more of them are recommended."""


@dataclass(eq=False, repr=False)
class LandmarkMDS(RowwiseEstimator, registered="landmark_mds"):
    """Embed any number of rows, by any distance, by landmark MDS (seed 000 §3).

    L landmarks are placed by classical MDS of their squared distances Δ: −½ H Δ H = V Λ Vᵀ, of which the d₊ positive
    among the m largest eigenvalues are kept. A row with squared distances δ to them lies at −½ L^# (δ − μ), where L^#
    has the rows v_iᵀ/√λ_i and μ is the mean column of Δ; then all are turned to their principal axes. For Euclidean
    distances ‖x‖² cancels (L^# 1 = 0): the map is affine in x, y = (x − mean) A with A (d, m), without distances. A row
    of weight w (``sample_weight``) counts as w rows in the mean and the axes of all rows.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_landmarks : int > n_components
        The number L of landmarks; at most all rows are taken. 100 to 500 are usual.
    landmarks : {"max-min", "uniform", "k-means"}, array of shape (L,) or (L, d)
        How landmarks are chosen: "max-min" takes each as far as can be from those before, among 30·L sampled rows, so
        that the first of them outline the data; "uniform" takes any; "k-means" takes centers of the same sample. Given
        landmarks are numbers of rows (L,), or rows (L, d).
    metric : str or function
        The distance between rows: a metric of SciPy's ``cdist``, a function of two blocks of rows that returns their
        distances (len(a), len(b)), or "module:name" of one. A row must get the same distances in any block. With
        "precomputed" X holds the distances (n, n), of which the rows of the landmarks and of 100 others are read;
        ``transform`` takes distances of new rows to the fitted ones (k, n), and looks at those to the landmarks.
    metric_params : dict or None
        Keyword arguments of the metric.
    ids : bool
        Whether the objects are not vectors: X then holds one integer a row, (n, 1) or (n,), the id of an object, and
        the function gets two int64 arrays of ids, (a,) and (b,).
    random_state : int, generator or None
        The seed of the sample, of uniform landmarks, and of the start of k-means.
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
        The coordinates: NumPy for NumPy input, else a lazy Dask array. Columns stand by descending variance; the
        largest |entry| of each among the landmarks (Euclidean: of each direction in the space of the rows) is positive.
    eigenvalues_ : array of shape (d₊,)
        The sums of squares of the coordinates of all rows, as of :class:`ClassicalMDS`.
    landmark_eigenvalues_ : array of shape (L,)
        The eigenvalues of −½ H Δ H, descending; negative ones say how far the distances are from Euclidean.
    landmarks_ : array of shape (L, d)
        The rows of the landmarks; of given distances (L, 1), their numbers.
    n_landmarks_ : int
        The number L of landmarks.
    landmark_ids_ : array of shape (L,), int
        The numbers of the landmarks, −1 where they are not rows of the input.
    stress_ : float
        Kruskal's stress-1 on all pairs of 400 sampled rows (100 of given distances).
    landmark_change_ : float
        How far these rows move, as a share of their spread and after a Procrustes alignment, if half of the landmarks
        place them. Near 0, there are enough landmarks; NaN where half are too few.
    n_components_, n_features_in_ : int
        The numbers d₊ of coordinates and d of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If there are not more landmarks than n_components; if distances are NaN, infinite, negative, nonzero between a
        row and itself or not symmetric (beyond rounding); if no eigenvalue is positive, or parameters are out of range.

    Notes
    -----
    Cost. Euclidean: one pass for ``fit`` (sample and second moments; a second one for more than 512 columns), one for
    coordinates. Other distances: one pass to check and sample the rows, one with n·L distances that writes the
    coordinates. Memory of a worker: a block of rows (32 MiB) and 8 MiB of distances; of the coordinator: the sample
    (64 MiB) and a few L² numbers. Given distances: L + 100 of their rows are read, with the chunks that they lie in
    (little, where chunks are small or of few rows), and are kept in the run; "max-min" reads them one after the other,
    or, where that would read more than the whole array, reads the array twice.
    ``fit`` reads rows of a few blocks once more (four blocks, or a twentieth of all) and compares 1 000 of them with
    each other, to judge the map.

    References
    ----------
    V. de Silva, J. Tenenbaum, Sparse multidimensional scaling using landmark points, Stanford (2004).
    J. Kruskal, Multidimensional scaling by optimizing goodness of fit, Psychometrika 29 (1964).

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3)) * [3, 2, 0]
    >>> mds = LandmarkMDS(n_landmarks=20).fit(rows)
    >>> mds.embedding_.shape, round(mds.stress_, 6)
    ((1000, 2), 0.0)

    Words by the number of letters that differ:

    >>> words = ["stone", "store", "score", "spore", "spire", "crane"]
    >>> def differ(a, b):
    ...     return np.array([[sum(x != y for x, y in zip(words[i], words[j])) for j in b] for i in a])
    >>> LandmarkMDS(n_landmarks=6, metric=differ, ids=True).fit(np.arange(6)).embedding_.shape
    (6, 2)
    """

    follows_dtype = True
    aligned = ("weights",)
    compiled_from: ClassVar = inf
    frame_rule: ClassVar = FrameRule("whole", shift=True)
    saved_stages: ClassVar = {
        "sample": ("",),
        "landmarks": ("rows", "ids", "order"),
        "solve": ("",),
        "coordinates": ("embedding", "mean", "matrix", "offset", "eigenvalues"),
    }
    shown_arrays: ClassVar = {"landmarks": ("rows", "ids")}

    n_components: Count = 2
    _: KW_ONLY
    n_landmarks: Annotated[int, at_least(2)] = 200
    landmarks: Any = "max-min"
    metric: Any = "euclidean"
    metric_params: dict[str, Any] | None = None
    ids: bool = False
    random_state: Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, ids or distances.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n)
            Rows of any kind that :func:`bigembed.open_array` takes, ids, or distances.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for, by which the mean and the principal axes of all rows are taken.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        return self._fit_rows(_one_column(X) if self.ids else X, weights=sample_weight)

    def transform(self, X: Any) -> Any:
        """Place new rows (or ids) on the map.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind of rows that ``fit`` takes.

        Returns
        -------
        array of shape (k, m)
            The coordinates: NumPy for NumPy, else a lazy Dask array.
        """
        return super().transform(_one_column(X) if self.as_fitted().ids else X)

    def stages(self, source: RowSource) -> list[Stage]:
        """List the stages: the sample, landmarks, their scaling, coordinates."""
        self._check()
        n, d = passes.checked_shape(source, at_least=2)
        asked, metric, m = self._asked(n, d), self._metric(), int(self.n_components)
        if isinstance(metric, landmark_axes.GivenDistances):
            numbers, width = landmark_axes.numbers_of(source), min(m, asked.count - 1)
            solve = landmark_axes.distance_solve_stage(numbers, metric, width, asked.count)
            last = landmark_axes.distance_coordinates_stage(numbers, metric, width, asked.count)
            return [landmark_axes.drawn_stage(numbers, asked), landmark_axes.kept_stage(numbers, asked), solve, last]
        affine = metric.euclidean
        first = [mds.sample_stage(source, asked, affine), mds.landmarks_stage(source, asked, metric)]
        if affine:
            width = min(m, d, asked.count - 1)
            stages = [*first, landmark_axes.affine_solve_stage(source, m, asked.count)]
            return [*stages, self._output_stage(source, stages, width)]
        width = min(m, asked.count - 1)
        solve = landmark_axes.distance_solve_stage(source, metric, width, asked.count)
        return [*first, solve, landmark_axes.distance_coordinates_stage(source, metric, width, asked.count)]

    def _pairwise(self) -> bool:
        return is_given(self.metric)

    def _metric(self) -> Metric:
        if self._pairwise():
            return landmark_axes.GivenDistances(GIVEN)
        return checked_metric(self.metric, self.metric_params, bool(self.ids))

    def _asked(self, n: int, d: int) -> mds.LandmarkOptions:
        """Which landmarks, for rows of this shape."""
        seed = self._seed()
        if isinstance(self.landmarks, str):
            return mds.LandmarkOptions(self.landmarks, min(n, int(self.n_landmarks)), seed)
        given = np.asarray(self.landmarks)
        if given.ndim == 1:
            outside = given[(given < 0) | (given >= n)]
            if len(outside):
                raise InputError(f"landmarks: rows {outside[:10].tolist()} are outside 0 … {n - 1}")
        elif given.shape[1] != d:
            raise InputError(f"landmarks are rows of {given.shape[1]} columns; those of X have {d}")
        if len(given) <= self.n_components:
            raise InputError(_too_few(len(given), self.n_components))
        return mds.LandmarkOptions("rows" if given.ndim == 2 else "ids", len(given), seed, given)

    def _require(self, need: Requirements) -> None:
        if isinstance(self.landmarks, str):
            need(
                self.landmarks in mds.SELECTIONS,
                "landmarks",
                f"one of {', '.join(mds.SELECTIONS)}, numbers of rows, or rows",
            )
        else:
            given = np.asarray(self.landmarks)
            numbers = given.dtype.kind in ("iu" if given.ndim == 1 else "iuf") and bool(np.isfinite(given).all())
            need(given.ndim in (1, 2) and numbers, "landmarks", "a selection, integers (L,) or finite rows (L, d)")
        rows = isinstance(self.landmarks, str) and self.landmarks == "k-means"
        need(not (self.ids and rows), "landmarks", "not 'k-means' with ids=True, because objects have no mean")
        rows = rows or np.ndim(self.landmarks) == 2
        pairwise = self._pairwise()
        need(not (pairwise and rows), "landmarks", "'max-min', 'uniform' or numbers of rows with given distances")
        need(not (pairwise and self.ids), "ids", "False where distances are given: X holds them, and no ids")

    def _check(self) -> None:
        super()._check()
        if isinstance(self.landmarks, str) and self.n_landmarks <= self.n_components:
            raise InputError(_too_few(self.n_landmarks, self.n_components))
        self._metric()

    def _set_fitted(self, run: Run) -> None:
        solve, chosen = run.results("solve"), run.results("landmarks")
        affine = run.has("solve") and solve["affine"]
        self.eigenvalues_ = read_array(run.path("solve" if affine else "coordinates", "eigenvalues"))
        self.landmark_eigenvalues_ = read_array(run.path("solve", "landmark_eigenvalues"))
        self.landmarks_ = read_array(run.path("landmarks", "rows"))
        self.landmark_ids_ = read_array(run.path("landmarks", "ids"))
        self.stress_, self.landmark_change_ = solve["stress"], _number(solve["change"]["2"])
        self.n_components_, self.n_landmarks_ = solve["n_components"], chosen["landmarks"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        solve, chosen = run.results("solve"), run.results("landmarks")
        return {
            "landmarks": chosen,
            **solve,
            "eigenvalues": self.eigenvalues_.tolist(),
            "seed": run.parameters("sample")["seed"],
            "warnings": {"degenerate": _warnings(solve, chosen, self)},
        }

    def _extension(self, run: Run) -> Extension:
        solve, sample = run.results("solve"), run.results("sample")
        m, d = solve["n_components"], sample["d"]
        if solve["affine"]:
            model = row_maps.AffineMap(run.path("solve", "components"), run.path("solve", "mean"), transposed=True)
            return Extension(row_maps.project, model, m, d, dtype=sample["dtype"])
        found = row_maps.AffineMap.within(run.path("coordinates"))
        if self._pairwise():
            by_distance = mds.ByDistance(None, "", found, columns=run.path("landmarks", "ids"))
            return Extension(mds.coordinates_by_distance, by_distance, m, d, dtype=sample["dtype"], cheap=False)
        by_distance = mds.ByDistance(self._metric(), run.path("landmarks", "rows"), found)
        return Extension(mds.coordinates_by_distance, by_distance, m, d, dtype=sample["dtype"], cheap=False)


def _one_column(X: Any) -> Any:
    """Ids as rows of one column."""
    if isinstance(X, (str, os.PathLike)) or getattr(X, "ndim", None) == 2:
        return X
    column: Array = X[:, None] if hasattr(X, "dask") else np.asarray(X).reshape(-1, 1)
    return column


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _too_few(landmarks: int, components: int) -> str:
    return (
        f"{landmarks} landmarks span at most {landmarks - 1} coordinates; n_components={components} needs at least "
        f"{components + 1} of them"
    )


def _warnings(solve: dict[str, Any], chosen: dict[str, Any], estimator: LandmarkMDS) -> list[str]:
    """Coordinates that are not there, landmarks that repeat each other or are too few, distances far from Euclidean."""
    messages, m = [], solve["n_components"]
    if min(chosen["distinct"], chosen["landmarks"]) < ENOUGH * chosen["wanted"]:
        messages.append(
            f"{chosen['distinct']} distinct landmarks of {chosen['wanted']} wanted: the rows repeat each other. Copies "
            "count as often as they are there"
        )
    if m < estimator.n_components:
        messages.append(
            f"n_components={estimator.n_components}: only {m} eigenvalues of the landmarks are positive beyond "
            f"rounding, so there are {m} coordinates"
        )
    elif -solve["lowest"] > solve["last"]:
        messages.append(
            f"an eigenvalue of the landmarks is more negative ({solve['lowest']:.4g}) than the last coordinate's is "
            f"positive ({solve['last']:.4g}): the distances are far from Euclidean, and that coordinate says little"
        )
    if chosen["landmarks"] < chosen["sampled"] and _number(solve["change"]["2"]) > MOVED:
        messages.append(
            f"half of the landmarks would move the rows by {solve['change']['2']:.0%} of their spread: take more than "
            f"n_landmarks={chosen['landmarks']}, or fewer components"
        )
    return messages
