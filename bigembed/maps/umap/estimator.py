"""Uniform manifold approximation and projection of rows of any number, on a stored neighbor graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import STAGE as FRAME
from bigembed.estimator.graph_input import GraphShape, least_rows
from bigembed.estimator.on_graph import VIEW_QUERY_ARRAYS, StoredArray, ViewsEstimator, second_recall
from bigembed.maps.descended import DescendedEstimator
from bigembed.maps.descent import extension_of, rows_of_block
from bigembed.maps.graph_judgement import views_judgement_stage
from bigembed.maps.umap import sampling_stages, unrelated, without_unknown
from bigembed.maps.umap import views as two_views
from bigembed.maps.umap.density import MORE_EPOCHS, density_options, density_placement_of, not_shown
from bigembed.maps.umap.descent import GOING_ON, SamplingOptions, curve, epochs_for, placement_of
from bigembed.neighbors import graph_stages, row_weights, search
from bigembed.neighbors.given import GraphMetric
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.views import VIEWS, parted_views, unrelated_views, views_figures
from bigembed.rows import RowSource
from bigembed.rows.graph_source import GraphSource
from bigembed.rows.labels import read_labels
from bigembed.runtime import parameters
from bigembed.stages import Run, Stage


@dataclass(eq=False, repr=False)
class UMAP(DescendedEstimator, ViewsEstimator, registered="umap"):
    """Map rows or a graph by UMAP: near rows are near, and groups lie closer together than by t-SNE.

    A row is joined to its nearest rows by memberships a_{j|i} = exp(−max(0, d_ij − ρ_i)/σ_i), and w_ij = a_{j|i} +
    a_{i|j} − a_{j|i}·a_{i|j} (McInnes et al. 2018): the weights of umap-learn, for the same lists of neighbors.
    Coordinates y with similarities φ = 1/(1 + a·r^{2b}) descend on the cross-entropy of w and φ by sampled edges and
    rows (Appendix C): an edge takes part in w_ij/w_max of the epochs, and each time some rows that are drawn repel
    (negative samples). All rows move at once in an epoch, and what they draw follows from the seed, the epoch and the
    number of the row, so that a seed gives the same map on any cluster, in memory or by blocks through the store.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_neighbors : int ≥ 2
        The number of neighbors, the row itself not counted (umap-learn counts it: its 15 are 14 here). A graph that is
        given has its own.
    min_dist : float ≥ 0
        How far apart near rows are on the map, at most ``spread``.
    spread : float > 0
        The size of the map; a and b follow from it and ``min_dist``.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are, of which the n_neighbors smallest
        of each row count. ``transform`` then takes distances of new rows to the fitted ones (k, n): all of them, or,
        sparse, those to their nearest rows, as neighbors transformers leave them (fitted rows that would list a new
        row, and whose distance is not stored, are then unknown to it).
    n_epochs : int ≥ 1 or None
        The number of epochs; None is 500 for at most 10 000 rows, else 200; with ``densmap`` 200 more.
    learning_rate : float > 0
        The learning rate of the first epoch; it falls to 0.
    init : {"auto", "spectral", "pca", "random"}, array of shape (n, m), or path
        The start: "spectral" (eigenvectors of the walk on w), "pca" (principal coordinates), "random", an array in the
        order of the input, or the path of one. "auto" is "spectral" if that serves, else "pca", which the certificate
        says. Eigenvectors serve where a component holds 99 % of the rows, and each is carried by 5 % of them
        (participation): those that single out an island put all others on top of each other. A rule that was named and
        cannot be followed is a warning: without rows "pca" is "spectral", and eigenvectors that do not serve are taken.
        Rules are scaled to the standard deviation 3, and put rows beyond 12 there; an array is taken as it is. Of two
        views, "pca" takes the columns of the first.
    local_connectivity : float ≥ 1
        The number of the neighbor whose distance is ρ_i.
    set_op_mix_ratio : float in [0, 1]
        The share of the fuzzy union in w; the rest is the intersection a_{j|i}·a_{i|j}.
    view_columns : int ≥ 1 or None
        The number of columns of the first of two views of the rows, which stand side by side; the other columns are the
        second. Each view then has weights w of its own, which become one as ``views`` says; None is a single view.
    views : {"intersection", "union"}
        How the weights a and b of two views become one: as umap-learn's ``model1 * model2``, a^((1 − s)/s)·b for s =
        ``view_weight`` ≥ ½ and a·b^(s/(1 − s)) for less (rows are near that are near in both), or as its ``model1 +
        model2``, a + b − ab (near in either). Then each row's weights are scaled to the maximum 1, taken to the power
        for which they add up to log₂ 15, and joined with those of the other row by a fuzzy union again.
    view_weight : float in [0, 1]
        The weight s of the second view in an intersection: 0 is the first view alone, on the edges of both.
    target_metric : {"categorical", "euclidean", "l2"} or None
        Whether w follows the labels that ``fit`` is given as y (in a job ``[input] labels``), and how these are
        compared. With "categorical" w is multiplied by exp(−2.5/(1 − target_weight)) between classes, and by exp(−1)
        where a row has no label. With "euclidean" or "l2" y is a number for each row, whose own fuzzy graph, of as many
        neighbors, is intersected with w, as ``views`` has it with ``target_weight``. Then each row's strongest edge
        counts as one again. None leaves y unread: in a pipeline it may be there for another step.
    target_weight : float in [0, 1]
        How much y weighs against the rows, where ``target_metric`` is given. A numeric target changes little up to .3,
        and at .5 orders the map nearly alone.
    repulsion_strength : float ≥ 0
        The weight γ of the repulsion of each drawn row.
    negative_sample_rate : int ≥ 1
        The number of rows that are drawn each time an edge takes part.
    densmap : bool
        Whether the map shows densities (densMAP): in its last epochs a term raises the correlation of R_i, the
        logarithm of the mean w_ij d_ij² over the edges of row i, and r_i, that of the mean φ_ij ‖y_i − y_j‖² (Narayan,
        Berger, Cho 2021). New rows come to lie as densely as their distances to fitted rows say.
    dens_lambda : float ≥ 0
        The weight of that term.
    dens_frac : float in [0, 1]
        The share of the epochs, the last ones, in which it acts.
    dens_var_shift : float ≥ 0
        What is added to the variance of r, so that the term stays small where all r are alike.
    output_dens : bool
        Whether R and r are kept (``rad_orig_``, ``rad_emb_``) of a map without that term, too.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    in_memory : bool or "auto"
        Whether the weights (8 bytes an edge) and the points are held in memory, which needs room and tasks in this
        process or in workers on this machine only; "auto" holds them there where 2·n·n_neighbors edges and the points
        take up to 512 MiB. It changes nothing but time and memory.
    random_state : int, generator or None
        The seed of the graph, of random starts, and of all that is drawn.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress, and with it the cross-entropy every 50 epochs.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, has finished some of its blocks, or ends; and the
        cross-entropy every 50 epochs.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input, about mean 0: NumPy for NumPy input, else a lazy Dask array. Rows
        that are equal have the same coordinates. Turning or mirroring the map does not change φ; its orientation comes
        from ``init``.
    cross_entropy_ : float
        The cross-entropy of the map: −log φ of an edge and of the rows that it draws, on average over w. The part of
        drawn rows is an estimate from 16 of them a row.
    cross_entropies_ : array of shape (number of reports,)
        The cross-entropy every 50 epochs.
    rad_orig_, rad_emb_ : array of shape (n,)
        R before it is standardized, and r, in the order of the input; with ``densmap`` or ``output_dens``.
    n_neighbors_ : int or None
        The number of neighbors that was used; None for a user's weights.
    a_, b_ : float
        The parameters a and b of φ.
    n_epochs_, n_components_, n_features_in_ : int
        The numbers of epochs, of coordinates, and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph.
    certificate_ : dict
        How far the map can be trusted: cross-entropy, neighbors, recall; under "judgement" how well the map keeps
        neighborhoods, with standard errors; "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, there are fewer than 2 rows, or
        ``init`` is of another shape.
    InputTypeError
        If the graph is one of a radius, in which rows may have no neighbor at all, or new rows are given of a user's
        graph.

    Warns
    -----
    DegenerateWarning
        If there are fewer rows than neighbors, or rows repeat.
    RecallWarning
        If the recall is below its target.
    MapWarning
        If the map does not keep neighborhoods; or two views have nothing in common.
    ComponentsWarning
        If one of two views falls into parts that only the other one joins.

    Notes
    -----
    Every warning stands in the certificate, too. Cost: 2 passes over the rows, some 3 over the ordered copy, 10–40 over
    the graph for the spectral start, then ``n_epochs`` (an epoch of ``dens_frac`` counts four times) times at most
    2·n·n_neighbors edges, 8 bytes each, from memory or disk. Memory: with ``in_memory`` 12 bytes an edge and 16 + 48·m
    a row; without, some blocks and 65 536 drawn rows.

    A row steps along the mean force of its edges that take part: their sum could overshoot where all rows move at once
    (umap-learn applies each force before it computes the next). With labels of all rows it steps along the sum, of up
    to 16; with few labels, nearly along the mean. A new row starts among its nearest rows, and makes a third of the
    epochs by itself, while all fitted rows stay; one that equals a fitted row gets its coordinates.

    References
    ----------
    L. McInnes, J. Healy, J. Melville, UMAP: Uniform manifold approximation and projection for dimension reduction,
    arXiv:1802.03426 (2018). D. Kobak, G. Linderman, Initialization is critical for preserving global data structure in
    both t-SNE and UMAP, Nature Biotechnology 39 (2021). J. Melville, uwot, https://github.com/jlmelville/uwot, moves
    all rows at once, too (``batch``).

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> rows = np.concatenate([random.normal(size=(30, 5)), random.normal(size=(30, 5)) + 20])
    >>> umap = UMAP(n_neighbors=5, n_epochs=100).fit(rows)
    >>> left, right = umap.embedding_[:30], umap.embedding_[30:]
    >>> apart = np.linalg.norm(left.mean(axis=0) - right.mean(axis=0))
    >>> bool(apart > 2 * np.linalg.norm(left - left.mean(axis=0), axis=1).max()), umap.transform(rows[:2]).shape
    (True, (2, 2))
    """

    aligned = ("labels", "weights")
    saved_stages: ClassVar = {
        **graph_stages.QUERY_ARRAYS,
        **VIEW_QUERY_ARRAYS,
        "kernel": ("",),
        "start": ("",),
        "descent": ("objectives",),
        "coordinates": ("embedding", "points", "pool"),
        "map_radii": ("",),
        row_weights.WEIGHTS: ("values",),
    }

    _rad_orig, _rad_emb = StoredArray(), StoredArray()

    n_components: parameters.Count = 2
    _: KW_ONLY
    n_neighbors: Annotated[int, parameters.at_least(2)] = 15
    min_dist: parameters.Nonnegative = 0.1
    spread: parameters.Positive = 1.0
    metric: GraphMetric = "euclidean"
    n_epochs: parameters.Count | None = None
    learning_rate: parameters.Positive = 1.0
    init: Any = "auto"
    local_connectivity: Annotated[float, parameters.interval(1, closed="left")] = 1.0
    set_op_mix_ratio: Annotated[float, parameters.interval(0, 1, closed="both")] = 1.0
    view_columns: parameters.Count | None = None
    views: Annotated[str, parameters.one_of(*two_views.WAYS)] = two_views.INTERSECTION
    view_weight: Annotated[float, parameters.interval(0, 1, closed="both")] = 0.5
    target_metric: Annotated[str, parameters.one_of(*two_views.TARGETS)] | None = None
    target_weight: Annotated[float, parameters.interval(0, 1, closed="both")] = 0.5
    repulsion_strength: parameters.Nonnegative = 1.0
    negative_sample_rate: parameters.Count = 5
    densmap: bool = False
    dens_lambda: parameters.Nonnegative = 2.0
    dens_frac: Annotated[float, parameters.interval(0, 1, closed="both")] = 0.3
    dens_var_shift: parameters.Nonnegative = 0.1
    output_dens: bool = False
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.95
    algorithm: Annotated[str, parameters.one_of(*search.ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    in_memory: bool | parameters.Auto = "auto"
    random_state: parameters.Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, distances or a graph, with ``target_metric`` to labels, too.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`): of weights, or of distances to neighbors.
        y : array of shape (n,) or None
            The label of each row, in the order of the input, read only where ``target_metric`` is given: a sequence, a
            NumPy, pandas, Dask or zarr array, or the path of a Zarr array or .npy; integers, whole floats, booleans,
            text or dates. −1, NaN and None say that a row has none. Of a numeric target finite numbers, of all rows.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for: finite numbers above 0, of any scale, in the order of the input (a NumPy
            or Dask array, or the path of a Zarr array or .npy). Neighbors and w stay as they are; a row of weight m
            attracts and repels as m rows at its place do, and counts m times in the cross-entropy and in densities.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        self._refuse_radius(X)
        given = None if self.target_metric is None or y is None or self._numeric else read_labels(y)
        return self._fit_rows(X, weights=sample_weight, labels=y if self._numeric else given)

    def _rule(self, n: int) -> Rule:
        return Rule(max(1, min(self.n_neighbors, n - 1)))

    def _unfolding(self) -> str:
        if not self.densmap:
            return super()._unfolding()
        return "with densmap groups take the room of their densities: take a smaller dens_lambda, or more n_components"

    def _block_rows(self, k: int) -> int:
        return rows_of_block(k if self.view_columns is None and not self._numeric else 2 * k)

    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages; of two views the last one compares the map with both."""
        found = super().stages(source)
        split = None if isinstance(source, GraphSource) else self._split(source.shape[-1])
        if split is None:
            return found
        return [*found, views_judgement_stage(source, split, self.metric, int(self.n_components), self._seed())]

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        connectivity, mix = float(self.local_connectivity), float(self.set_op_mix_ratio)
        asked, start = self._asked(graph.n, seed), self._start()
        if self._published is not None:
            asked = asked.going_on(self._share(GOING_ON, graph.n))
        how, target, given = self._how(), None, graph.aligned
        first: list[Stage] = []
        if self.target_metric is not None and "labels" not in given:
            raise InputError(
                f"UMAP: target_metric={self.target_metric!r} needs {self._wanted()}: fit(X, y), in a job [input] "
                "labels. Or leave target_metric out"
            )
        graph = replace(graph, aligned={})
        if self._numeric:
            k = self._rule(graph.n).n_neighbors or 1
            first, graph = two_views.target_view(given["labels"], graph, k, self.recall, seed, self._block_rows(k))
            how = two_views.Combination(two_views.INTERSECTION, float(self.target_weight), target=True)
        elif self.target_metric is not None:
            target = without_unknown(read_labels(given["labels"])), float(self.target_weight)
        density, strength = None, self.dens_lambda if self.densmap else 0.0
        if self.densmap or self.output_dens:
            density = density_options(asked, graph, strength, self.dens_frac, self.dens_var_shift)
        return [*first, *sampling_stages(graph, connectivity, mix, asked, start, self._memory(), target, density, how)]

    @property
    def _numeric(self) -> bool:
        """Whether y is a number of each row, not its class."""
        return self.target_metric in two_views.NUMERIC

    def _wanted(self) -> str:
        return "a number for each row" if self._numeric else "a label for each row (−1 where there is none)"

    def _how(self) -> two_views.Combination | None:
        """Return how two views become one map; None where the rows are one."""
        return None if self.view_columns is None else two_views.Combination(self.views, float(self.view_weight))

    def _asked(self, n: int, seed: int) -> SamplingOptions:
        return SamplingOptions(
            int(self.n_components),
            *curve(float(self.min_dist), float(self.spread)),
            epochs_for(self.n_epochs, n) + (MORE_EPOCHS if self.densmap and self.n_epochs is None else 0),
            float(self.learning_rate),
            float(self.repulsion_strength),
            int(self.negative_sample_rate),
            seed,
        )

    def _require(self, need: parameters.Requirements) -> None:
        super()._require(need)
        need(self.view_columns is None or not self._numeric, "view_columns", "None, where a target is numeric")
        if parameters.is_number(self.min_dist) and parameters.is_number(self.spread):
            need(self.min_dist <= self.spread, "min_dist", f"at most spread, which is {self.spread:g}")

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, cross-entropies and the graph as attributes."""
        asked = run.parameters("descent")
        self.cross_entropies_ = self._set_map(run)
        self.cross_entropy_ = float(self.cross_entropies_[-1])
        self.a_, self.b_, self.n_epochs_ = asked["a"], asked["b"], asked["n_epochs"]
        self.n_neighbors_ = run.results("kernel")["n_neighbors"]
        if run.has("map_radii"):
            self._set_array("_rad_orig", "map_radii", "original")
            self._set_array("_rad_emb", "map_radii", "embedded")

    @property
    def rad_orig_(self) -> Any:
        """Return R of the rows fitted, (n,), before it is standardized."""
        return self._radii("_rad_orig")

    @property
    def rad_emb_(self) -> Any:
        """Return r of the rows fitted, (n,)."""
        return self._radii("_rad_emb")

    def _radii(self, name: str) -> Any:
        """Return radii of the rows fitted; AttributeError where nobody asked for them."""
        if name not in self.__dict__.get("_stored_arrays", {}) and name not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__} object has no attribute {name[1:] + '_'!r}: it is there after a fit with "
                "densmap or output_dens"
            )
        return getattr(self, name)

    def _certificate(self, run: Run) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "cross_entropy": self.cross_entropy_,
            "cross_entropies": self.cross_entropies_.tolist(),
            "epochs": self.n_epochs_,
            "n_neighbors": self.n_neighbors_,
            "curve": [self.a_, self.b_],
        }
        doubts: list[str] = []
        if labels := run.results("kernel").get("labels"):
            figures["labels"], doubts = labels, unrelated(labels)
        parted: list[str] = []
        if run.has(VIEWS) and self._numeric:
            figures["target"] = views_figures(run.results(VIEWS))
            doubts = two_views.unrelated_target(figures["target"])
        elif run.has(VIEWS):
            found = run.results(VIEWS)
            figures["views"] = views_figures(found)
            doubts, parted = [*doubts, *unrelated_views(found)], parted_views(found, least_rows(found["n"]))
        if run.has("map_radii"):
            figures["density_correlation"] = correlation = run.results("map_radii")["correlation"]
            doubts += not_shown(correlation, bool(self.densmap))
        out = self._certified(run, figures, "descent", self._degenerate(run))
        out["warnings"]["map"] = [*doubts, *out["warnings"]["map"]]
        if run.has(VIEWS) and not self._numeric:
            out["warnings"]["recall"] = [*out["warnings"]["recall"], *second_recall(run)]
            out["warnings"]["components"] = parted
        return out

    def _degenerate(self, run: Run) -> list[str]:
        others = run.results("survey")["n"] - 1 if self.n_neighbors_ is not None else self.n_neighbors
        if not self.n_neighbors_ == others < self.n_neighbors:
            return []
        return [f"n_neighbors={self.n_neighbors}, and there are {others + 1} rows: {others} were taken"]

    def _extension(self, run: Run) -> Extension:
        """Where a new row comes to rest among the fitted ones; a row that was fitted gets its ``embedding_``."""
        asked = SamplingOptions.of(run.parameters("descent"))
        if run.has(FRAME):  # (whose descent may have gone on from the map before: new rows make a whole one)
            whole = self._asked(sum(run.results("kernel")["rows"]), asked.seed)
            asked = replace(asked, n_epochs=whole.n_epochs, learning_rate=whole.learning_rate)
        placement = placement_of(run, asked, float(self.local_connectivity), self.metric)
        if how := self._how():
            return two_views.views_extension_of(two_views.views_placement_of(run, placement, how, self.metric))
        follows = run.parameters("descent").get("dens_lambda", 0) > 0
        return extension_of(density_placement_of(run, placement) if follows else placement)
