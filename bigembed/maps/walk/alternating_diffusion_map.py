"""Alternating diffusion maps: coordinates by what two views of the rows have in common."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.estimator.certificate import certificate
from bigembed.estimator.extension import Extension, Grouping
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.graph_input import GraphShape, least_rows, require_rows
from bigembed.estimator.on_graph import VIEW_QUERY_ARRAYS, ViewsEstimator, second_recall, split_of
from bigembed.maps.bandwidth import Bandwidth, kernel_in
from bigembed.maps.graph_rows import View, block_of_first, split_rows, views_of
from bigembed.maps.landmark_maps import divided
from bigembed.maps.scales import twins_of
from bigembed.maps.walk import WalkOptions
from bigembed.maps.walk.affinity import BISTOCHASTIC, unbalanced
from bigembed.maps.walk.alternating import FIRST, alternating_stages
from bigembed.maps.walk.coordinates import Scaling, WalkCoordinates
from bigembed.maps.walk.extension import Neighborhood, kernel_of_edges
from bigembed.neighbors import graph_stages, order, query
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.search import ALGORITHMS
from bigembed.neighbors.views import SECOND, VIEWS, parted_views, unrelated_views, views_figures
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Auto, Count, Fraction, Nonnegative, Positive, Seed, at_least, interval, one_of
from bigembed.stages import PartOfRun, Run, Stage
from bigembed.store.arrays import read_array

COMMON = 0.75
"""Correlation of the averages of a coordinate over neighbors in one view and in the other, from which both show it.

Of two sensors of a common angle it is .97 and more, of unrelated ones .6 and less.
"""


@dataclass(eq=False, repr=False)
class AlternatingDiffusionMap(ViewsEstimator, registered="alternating_diffusion_map"):
    """Embed rows by what two views of them have in common, by alternating diffusion.

    A row is what two sensors say of one thing, side by side: the first ``view_columns`` columns are one view, the
    others the second. In each view v a walk P_v = x_i K_ij x_j steps to near rows, K the kernel on the graph of k
    nearest neighbors without its diagonal and x the factors for which each row sums to 1 (Sinkhorn), so that P_v is
    symmetric. What only one view shows (its noise, things that it alone sees) the step in the other view averages away;
    what both show is left (Lederman & Talmon 2018, who take P₁P₂, whose eigenvectors need not be real). Coordinates are
    λ_l^t ψ_l by the eigenvectors of S = ½(P₁P₂ + P₂P₁) (Shnitzer et al. 2019), which is symmetric, with S1 = 1, ψ of
    mean 0 and variance 1, and the trivial ψ_0 = 1 left out. The product is never formed.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    view_columns : int ≥ 1 or None
        The number of columns of the first view, less than all; None is the first half of them (rounded up).
    n_neighbors : int ≥ 2
        The number k of neighbors in each view, the row itself not counted. A step averages over some k rows: what only
        one view shows is left with some 1/√k of its size, so that more neighbors show fainter common things.
    epsilon : float > 0 or "auto"
        The scale ε of both kernels: with bandwidth="adaptive" a pure number (½ for "auto"), with "fixed" in squared
        units of the data; "auto" is then the median squared distance to the k-th neighbor in each view.
    bandwidth : {"adaptive", "fixed"}
        The scales s_ij of K = exp(−d_ij²/(ε s_ij)): "adaptive" is (ρ_i² + ρ_j²)/2, ρ the distance to the k-th neighbor;
        "fixed" is 1.
    t : float ≥ 0 or "auto"
        The diffusion time. 0 leaves eigenvectors unscaled; "auto" takes the smallest with (|λ_m|/|λ_1|)^t ≤ 0.2.
    metric : {"euclidean", "cosine"}
        The distance between rows in each view.
    recall : float in (0, 1]
        The target share of true neighbors in the graphs; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    tol : float in (0, 1)
        The largest residual ‖Sψ − λψ‖ of the eigenpairs.
    max_passes : int ≥ 4
        The passes over the edges before the solver gives up (with a warning); a product takes two.
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
        The coordinates, in the order of the input: NumPy for NumPy input, else a lazy Dask array. Rows that are equal
        in both views have the same coordinates.
    eigenvalues_ : array of shape (m,)
        The eigenvalues λ of S, descending, the trivial one left out.
    residuals_ : array of shape (m,)
        ‖Sψ − λψ‖ of each eigenpair.
    agreement_ : array of shape (m,)
        The correlation of P₁ψ and P₂ψ, the averages of a coordinate over neighbors in either view: near 1 for what both
        show, .6 or less for what they do not.
    t_ : float
        The diffusion time that was used.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    labels_ : array of shape (n,)
        The component of each row in the graph of neighbors in either view, 0 the largest.
    graph_ : NeighborGraph
        The neighbor graph of the first view.
    certificate_ : dict
        How far the map can be trusted: solver, passes, gaps, recall; under "views" the edges that both views have,
        beside those that chance would give them, the parts that each graph falls into, and the agreement; under
        "judgement" what each coordinate shows; "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, or no column is left for the second
        view.
    InputTypeError
        If a graph, distances or sparse rows are given, which have no columns of two views.

    Warns
    -----
    MapWarning
        If the views have nothing in common: neighbors in one are not neighbors in the other, or the averages of a
        coordinate in both do not agree.
    ComponentsWarning
        If the rows of one view fall into parts that only the other one joins, or those of both into parts.
    ConvergenceWarning
        If the solve, or the balancing of a kernel, stops early.
    DegenerateWarning
        If there are fewer rows than neighbors, or rows repeat.
    RecallWarning
        If the recall in either view is below its target.
    HarmonicWarning
        If a coordinate is a function of earlier ones.
    SeparationWarning
        If eigenvalues are too close together.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: for each view 2 passes over its columns, some 3 over the ordered copy, and 40 over the sparse kernel to
    balance it; then 20–60 passes over the edges of both, at most 4·k·n entries. Memory: a few canonical blocks (32 MiB)
    a worker; nothing of size n·d or n·m in one process.

    A new row is placed by ψ(x) = λ⁻¹·½(Σ_j p₁(x, j) (P₂ψ)(j) + Σ_j p₂(x, j) (P₁ψ)(j)), over the fitted rows that the
    graph of either view would join to it; a row that was fitted gets its ``embedding_`` back, to ``tol``.

    References
    ----------
    R. Lederman, R. Talmon, Learning the geometry of common latent variables using alternating-diffusion, ACHA 44
    (2018). T. Shnitzer, M. Ben-Chen, L. Guibas, R. Talmon, H.-T. Wu, Recovering hidden components in multimodal data
    with composite diffusion operators, SIAM J. Math. Data Science 1 (2019). B. Landa, R. Coifman, Y. Kluger, Doubly
    stochastic normalization of the Gaussian kernel is robust to heteroskedastic noise, SIAM J. Math. Data Science 3
    (2021).

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> common, mine, yours = 2 * np.pi * random.random((3, 400))
    >>> first = np.column_stack([np.cos(common), np.sin(common), np.cos(mine), np.sin(mine)])
    >>> second = np.column_stack([np.cos(common), np.sin(common), np.cos(yours), np.sin(yours)])
    >>> map_ = AlternatingDiffusionMap(view_columns=4).fit(np.hstack([first, second]))
    >>> bool((map_.agreement_ > 0.9).all())
    True
    """

    frame_rule: ClassVar = FrameRule(top=1.0)
    takes_graphs = False
    takes_sparse = False
    saved_stages: ClassVar = {
        **graph_stages.QUERY_ARRAYS,
        **VIEW_QUERY_ARRAYS,
        "bandwidth": ("",),
        f"{SECOND}bandwidth": ("",),
        FIRST: ("q",),
        f"{SECOND}kernel": ("q",),
        "kernel": ("",),
        "components": ("labels",),
        "solve": ("right", "first", "second", "eigenvalues", "residuals"),
        "coordinates": ("embedding", "labels"),
    }
    shown_arrays: ClassVar = {"solve": ("eigenvalues", "residuals")}

    n_components: Count = 2
    _: KW_ONLY
    view_columns: Count | None = None
    n_neighbors: Annotated[int, at_least(2)] = 30
    epsilon: Positive | Auto = "auto"
    bandwidth: Annotated[str, one_of("adaptive", "fixed")] = "adaptive"
    t: Nonnegative | Auto = 1
    metric: Annotated[str, one_of("euclidean", "cosine")] = "euclidean"
    recall: Annotated[float, interval(0, 1, closed="right")] = 0.95
    algorithm: Annotated[str, one_of(*ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    tol: Fraction = 1e-6
    max_passes: Annotated[int, at_least(4)] = 600
    random_state: Seed = 0

    def _split(self, d: int) -> int:
        return split_of(-(-d // 2) if self.view_columns is None else int(self.view_columns), d)

    def _rule(self, n: int) -> Rule:
        return Rule(max(1, min(self.n_neighbors, n - 1)))

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        require_rows(self.n_components, graph.n, beside=2)
        asked = WalkOptions.of(self, normalization=BISTOCHASTIC, alpha=1.0)
        return alternating_stages(asked, graph, seed)

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, eigenvalues and the graph of the first view as attributes."""
        found = run.results("solve")
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.agreement_ = np.array(found["agreement"])
        self.t_ = run.results("coordinates")["t"]
        self.n_components_ = run.results("coordinates")["n_components"]
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_array("labels_", "coordinates", "labels")
        self._set_graph(run)

    def _certificate(self, run: Run) -> dict[str, Any]:
        out, found = certificate(run, self.tol), run.results(VIEWS)
        agreement = np.array(run.results("solve")["agreement"])
        balance = [run.results(stage)["balance"] for stage in (FIRST, f"{SECOND}kernel")]
        out["views"] = views_figures(found) | {
            "agreement": agreement.tolist(),
            "unbalanced": [one["largest"] for one in balance],
        }
        warnings = {**out["warnings"]}
        warnings["recall"] = [*warnings["recall"], *second_recall(run)]
        warnings["components"] = [*_apart(out), *parted_views(found, least_rows(found["n"]))]
        warnings["convergence"] = [
            *warnings.get("convergence", []),
            *(unbalanced(one) for one in balance if not one["converged"]),
        ]
        if found["n"] <= self.n_neighbors:
            few = f"n_neighbors={self.n_neighbors}, and there are {found['n']} rows: {found['n'] - 1} were taken"
            warnings["degenerate"] = [few, *warnings["degenerate"]]
        warnings["map"] = [*unrelated_views(found), *not_common(agreement, np.asarray(self.eigenvalues_))]
        return out | {"warnings": warnings}

    def _extension(self, run: Run) -> Extension:
        """ψ(x) = λ⁻¹ ½ (Σ_j p₁(x, j) (P₂ψ)(j) + Σ_j p₂(x, j) (P₁ψ)(j)), over the fitted rows j near x in each view."""
        model = model_of(run, self.metric)
        d = sum(view.shape.d for view in model.views)
        blocks = len(order.Ordered.open(run.path("order")).blocks)
        row_bytes, most = sum(view.shape.row_bytes for view in model.views), query.MAX_PAIRS // (4 * self.n_neighbors)
        near = Grouping(block_of_first, blocks, row_bytes, most, partial(extension_memory, model))
        return Extension(extend_rows, model, model.fitted.width, d, grouping=near, cheap=False)


def _apart(found: dict[str, Any]) -> list[str]:
    """Say that the graphs of both views together fall into parts."""
    if found["components"] <= 1:
        return []
    sizes = ", ".join(f"{size:,}" for size in found["component_sizes"][:10])
    return [
        f"the rows fall into {found['components']} parts that neighbors of neither view join, of {sizes} rows (labels_ "
        "names them): the first coordinates separate them. Take more neighbors, so that the parts join; or more "
        "coordinates"
    ]


def not_common(agreement: Array, eigenvalues: Array) -> list[str]:
    """Say which coordinates are not of what both views show.

    >>> not_common(np.array([0.99, 0.9]), np.array([0.9, 0.8]))
    []
    """
    few = np.flatnonzero(agreement < COMMON)
    if not len(few):
        return []
    numbers, first = ", ".join(str(one + 1) for one in few.tolist()), int(few[0])
    advice = (
        "There is nothing that both views show. See whether their rows are in the same order, and whether view_columns "
        "is where the second view begins"
        if first == 0
        else f"Beyond the coordinates before it there is nothing that both show: take n_components={first}, or more "
        "neighbors, which average more of the rest away"
    )
    what = f"coordinate {numbers} is" if len(few) == 1 else f"coordinates {numbers} are"
    return [
        f"{what} not of what both views have in common: the averages of coordinate {first + 1} over neighbors in one "
        f"view and in the other correlate by {agreement[first]:.2f} (λ = {eigenvalues[first]:.2g}). {advice}"
    ]


# -------------------------------------------------------------------------------------------------------- new rows


@dataclass(frozen=True)
class ViewWalk:
    """The kernel of a view, and what the walk of the other one makes of the eigenvectors."""

    bandwidth: Bandwidth
    epsilon: float
    search: str
    floor: float
    density: str
    averaged: str


@dataclass(frozen=True)
class AlternatingModel:
    """What a task needs to extend: paths into the run or the saved model, and small numbers."""

    views: tuple[View, View]
    walks: tuple[ViewWalk, ViewWalk]
    fitted: WalkCoordinates
    n_neighbors: int


def model_of(run: Run, metric: Any = None) -> AlternatingModel:
    """Return the extension model of a fitted run."""
    views, found = views_of(run, metric), run.results("coordinates")
    walks = []
    for part, kernel, other in ((run, FIRST, "second"), (PartOfRun(run, SECOND), "kernel", "first")):
        scale, asked = part.results("bandwidth"), part.parameters(kernel)
        lists = "search" if part.has("search") else "graph"
        choice = Bandwidth(scale["epsilon"], kernel_in(asked), asked["truncated"])
        density = part.path(kernel, "q")
        walks.append(
            ViewWalk(
                choice, scale["epsilon"], part.path(lists), scale.get("floor", 0.0), density, run.path("solve", other)
            )
        )
    fitted = WalkCoordinates(
        run.path("solve", "right"),
        run.path("components", "labels"),
        tuple(order.Ordered.open(run.path("order")).starts),
        read_array(run.path("solve", "eigenvalues")),
        Scaling(found["t"], found["n_components"], columns=tuple(found.get("columns", ()))),
    )
    k = max(view.n_neighbors for view in views)
    return AlternatingModel(views, (walks[0], walks[1]), fitted, k)


def extension_memory(model: AlternatingModel, rows: int) -> int:
    """Return the bytes that :func:`extend_rows` holds for so many rows, without the rows themselves."""
    edges = rows * 4 * model.n_neighbors
    return sum(view.memory(rows) for view in model.views) + 40 * edges + rows * 40 * model.fitted.width + (32 << 20)


def extend_rows(rows: Array, model: AlternatingModel) -> Array:
    """Return coordinates of finite new rows, (n, m)."""
    count, eigenvalues = len(rows), model.fitted.eigenvalues
    mean = np.zeros((count, len(eigenvalues)))
    if not count:
        return np.zeros((0, model.fitted.width))
    for view, walk, part in zip(model.views, model.walks, split_rows(rows, model), strict=True):
        joined = view.edges(part)
        own_starts = np.array(view.starts or model.fitted.starts)
        near = Neighborhood(joined.ids, own_starts)
        kernel = kernel_of_edges(joined, near, walk) / near.read(walk.density).astype(np.float64)
        of_edge = np.repeat(np.arange(count), np.diff(joined.indptr))
        kernel[twins_of(joined, of_edge)] = 0.0
        there = Neighborhood(view.in_first(joined.ids), np.array(model.fitted.starts))
        total, sums = there.sums(kernel, of_edge, count, walk.averaged, len(eigenvalues))
        mean += 0.5 * np.where(total[:, None] > 0, sums / np.where(total > 0, total, 1.0)[:, None], 0.0)
    return model.fitted.scaled(divided(mean, eigenvalues[None]), np.zeros(count, np.int64))
