"""Pairwise controlled manifold approximation of rows of any number, on a stored neighbor graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.distance.metrics import MetricName
from bigembed.errors import InputTypeError
from bigembed.estimator.extension import Extension
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.descended import DescendedEstimator, one_sided, planned_edges, start_stages
from bigembed.maps.descent import extension_of
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.pacmap import Drawing, drawn_stage, near_stage
from bigembed.maps.pacmap.descent import RESTING, PairOptions, pair_descent_stage, placement_of, pool_stage
from bigembed.maps.start import Scale
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.graph_stages import QUERY_ARRAYS
from bigembed.neighbors.search import ALGORITHMS
from bigembed.runtime import parameters
from bigembed.stages import Run, Stage

BESIDE = 50
"""Neighbors that near pairs are chosen among, beyond their number."""
SCALE = Scale(deviation=0.01)
"""Of a start: below the first step of a row, which is as long as the learning rate."""
GOING_ON = 0.5
"""Least share of the iterations of the last phase that a map makes which goes on from the one before."""
UNRESTED = 0.005
"""Share of the loss that is lost in the last ten iterations of a map that has not come to rest: maps of real rows with
defaults lose .0015 at the most, and ten times as much with a fifth of the iterations."""
CONNECTED = 0.95
"""Continuity from which a map is not asked whether it is torn."""
TORN = 2.5
"""How much more continuity than trustworthiness is lost in a map that is torn.

What a plane has no room for costs both: digits, MNIST, cells and a cube with defaults lose .5 to 1.7 times as much of
the former. Without the first two phases, from a random start, they and manifolds lose 3 to 20 times as much: parts that
belong together lie where they began.
"""
PHASES = "an integer ≥ 0 (of the last phase), or three integers ≥ 0, not all 0"


def _are_phases(value: Any) -> bool:
    if parameters.is_integer(value):
        return bool(value >= 0)
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return False
    return all(parameters.is_integer(one) and one >= 0 for one in value) and sum(value) > 0


@dataclass(eq=False, repr=False)
class PaCMAP(DescendedEstimator, registered="pacmap"):
    """Map rows by PaCMAP: near rows are near, and the arrangement of groups at large is kept, too.

    The loss is that of Wang et al. (2021, eq. 1): with d̃ = 1 + ‖y_i − y_j‖², w_near d̃/(10 + d̃) of near pairs, w_mid
    d̃/(10⁴ + d̃) of mid-near pairs, and w_far/(1 + d̃) of further pairs. Near pairs of a row are its ``n_neighbors``
    neighbors with the smallest d²_ij/(σ_i σ_j) among ``n_neighbors`` + 50, σ_i the mean distance to the 4th to 6th
    neighbor. A mid-near pair is the second nearest of six rows that are drawn, a further pair is drawn. Adam descends
    in three phases: w_mid falls from 1000 to 3, so that the map is arranged at large; then w_near = 3; then w_mid = 0,
    and each neighborhood finds its shape. Weights, phases, rate and defaults are those of the authors' program, pacmap.

    All rows move at once, each along its own pairs, from where the others were, and a seed gives the same map on any
    cluster, in memory or by blocks through the store. Up to 50 000 rows every pair moves both of its ends, and the map
    is that of the program up to its random numbers. For more rows, mid-near and further pairs are drawn from a sample
    of 50 000 rows, taken evenly from all parts of the input. A row then draws twice as many pairs, which move that row
    only: by as much, but distances at large are kept somewhat less exactly.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_neighbors : int ≥ 1 or None
        The number of near pairs of a row; None is 10 for at most 10 000 rows, else 10 + 15·(log10 n − 4).
    MN_ratio : float ≥ 0
        The number of mid-near pairs over that of near pairs.
    FP_ratio : float > 0
        The number of further pairs over that of near pairs.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows.
    num_iters : int ≥ 0 or three of them
        The numbers of iterations of the three phases; one number is (100, 100, that number).
    learning_rate : float > 0
        The rate of Adam.
    init : {"pca", "auto", "random"}, array of shape (n, m), or path
        The start: "pca" (principal coordinates), which "auto" is, "random", an array in the order of the input, or the
        path of one. Rules are scaled to the standard deviation 0.01; an array is taken as it is.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    in_memory : bool or "auto"
        Whether pairs and points are held in memory, which needs room and tasks in this process or in workers on this
        machine only; "auto" holds them there where they take up to 512 MiB. It changes nothing but time and memory.
    random_state : int, generator or None
        The seed of the graph, of a random start, and of the pairs that are drawn.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress, and with it the loss every 50 iterations.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, has finished some of its blocks, or ends; and the
        loss every 50 iterations.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input, about mean 0: NumPy for NumPy input, else a lazy Dask array. Rows
        that are equal have the same coordinates. The map may be turned and mirrored without any change to the loss.
    loss_ : float
        The loss of the map over all pairs, by the weights of the last iteration: the number that pacmap shows.
    losses_ : array of shape (number of reports,)
        The loss every 50 iterations, at the end of each phase, and ten iterations before the last.
    reports_ : array of shape (number of reports,)
        After how many iterations these were measured.
    n_neighbors_, n_mid_near_, n_further_ : int
        The numbers of pairs of a row. Of few rows they are fewer than asked for, so that all are different.
    num_iters_ : tuple of int
        The numbers of iterations of the three phases; of a map that goes on from the one before only some of the last.
    n_components_, n_features_in_ : int
        The numbers of coordinates, and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph.
    certificate_ : dict
        How far the map can be trusted: the loss at the end of each phase and whether it has come to rest, recall; under
        "judgement" how well the map keeps neighborhoods, with standard errors; "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), parameters are out of range, there are fewer than 2 rows, or
        ``init`` is of another shape.
    InputTypeError
        If a graph is given that was not made of rows: mid-near pairs need distances between rows that are not
        neighbors.

    Warns
    -----
    ConvergenceWarning
        If the loss still falls where the descent ends.
    DegenerateWarning
        If there are fewer rows than pairs, or rows repeat.
    RecallWarning
        If the recall is below its target.
    MapWarning
        If the map does not keep neighborhoods, or is torn.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: 2 passes over the rows, some 4 over the ordered copy, then an iteration reads at most 2·n·n_neighbors near
    pairs, 8 bytes each, and 2·(MN_ratio + FP_ratio)·n·n_neighbors drawn ones, 2 bytes each, from memory or disk.
    Memory: with ``in_memory`` these and 16 + 48·m bytes a row; without, some blocks and 50 000 points. Nothing of size
    n·d in one process.

    The program first takes rows of more than 100 columns to 100 principal coordinates; here that is a step:
    ``Pipeline([PCA(100), PaCMAP()])``.

    A new row starts among its nearest rows and makes the iterations of the last phase while all fitted rows stay; each
    by itself, whatever rows come with it. A row that equals a fitted one gets its coordinates.

    References
    ----------
    Y. Wang, H. Huang, C. Rudin, Y. Shaposhnik, Understanding how dimension reduction tools work: an empirical approach
    to deciphering t-SNE, UMAP, TriMap, and PaCMAP for data visualization, Journal of Machine Learning Research 22
    (2021). D. Kingma, J. Ba, Adam: a method for stochastic optimization, ICLR (2015).

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> rows = np.concatenate([random.normal(size=(60, 5)), random.normal(size=(60, 5)) + 20])
    >>> pacmap = PaCMAP().fit(rows)
    >>> left, right = pacmap.embedding_[:60], pacmap.embedding_[60:]
    >>> apart = np.linalg.norm(left.mean(axis=0) - right.mean(axis=0))
    >>> bool(apart > 2 * np.linalg.norm(left - left.mean(axis=0), axis=1).max()), pacmap.transform(rows[:2]).shape
    (True, (2, 2))
    """

    saved_stages: ClassVar = {
        **QUERY_ARRAYS,
        "kernel": (),
        "pairs": (),
        "start": ("",),
        "descent": ("objectives",),
        "coordinates": ("embedding", "points", "pool"),
    }
    takes_graphs: ClassVar = False

    n_components: parameters.Count = 2
    _: KW_ONLY
    n_neighbors: parameters.Count | None = 10
    MN_ratio: parameters.Nonnegative = 0.5
    FP_ratio: parameters.Positive = 2.0
    metric: MetricName = "euclidean"
    num_iters: Annotated[Any, parameters.Kind(PHASES, _are_phases)] = (100, 100, 250)
    learning_rate: parameters.Positive = 1.0
    init: Any = "pca"
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.95
    algorithm: Annotated[str, parameters.one_of(*ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    in_memory: bool | parameters.Auto = "auto"
    random_state: parameters.Seed = 0

    def _rule(self, n: int) -> Rule:
        return Rule(max(1, min(self._pairs(n)[0] + BESIDE, n - 1)))

    def _pairs(self, n: int) -> tuple[int, int, int]:
        """Return the numbers of near, mid-near and further pairs of each of n rows, as the authors have them."""
        near = self.n_neighbors if self.n_neighbors is not None else round(10 + 15 * max(0.0, np.log10(n) - 4))
        mid, far = round(near * self.MN_ratio), max(1, round(near * self.FP_ratio))
        if near + mid + far >= n:
            near = max(1, int(n / (1 + self.MN_ratio + self.FP_ratio)))
            mid, far = int(near * self.MN_ratio), max(1, int(near * self.FP_ratio))
        return int(near), int(mid), int(far)

    def _phases(self) -> tuple[int, int, int]:
        if parameters.is_integer(self.num_iters):
            return 100, 100, int(self.num_iters)
        first, second, third = map(int, self.num_iters)
        return first, second, third

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        if graph.rowless:
            raise InputTypeError(
                "PaCMAP reads rows, or a NeighborGraph of rows: its mid-near pairs are told by distances between rows "
                "that are no neighbors, which a graph or a sparse matrix of edges does not have. Give the rows"
            )
        m, edges = int(self.n_components), planned_edges(graph)[1]
        near, mid, far = self._pairs(graph.n)
        near = min(near, graph.k or near)
        drawing = Drawing(mid, far, seed)
        asked = PairOptions(m, self._phases(), float(self.learning_rate), seed)
        if self._published is not None:
            asked = asked.going_on(self._share(GOING_ON, graph.n))
        pairs = min(edges, 2 * graph.n * near)
        return [
            near_stage(graph, edges, near),
            drawn_stage(graph, drawing),
            *start_stages(graph, m, self._start(), seed, scale=SCALE),
            pair_descent_stage(graph, pairs, mid + far, asked, self._memory()),
            pool_stage(graph, m, seed),
            *map_judgement_stages(graph, m, seed),
        ]

    def _require(self, need: parameters.Requirements) -> None:
        need(
            self.init is not None and not (isinstance(self.init, str) and self.init == "spectral"),
            "init",
            "'pca', 'auto', 'random', an array (n, m), or its path",
        )

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, losses and the graph as attributes."""
        asked, drawn = PairOptions.of(run.parameters("descent")), run.parameters("pairs")
        self.losses_ = self._set_map(run)
        self.loss_, self.reports_ = float(self.losses_[-1]), np.array(asked.reports())
        self.num_iters_ = asked.phases
        self.n_neighbors_ = run.results("kernel")["n_neighbors"]
        self.n_mid_near_, self.n_further_ = drawn["mid"], drawn["far"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "loss": self.loss_,
            "losses": dict(zip(map(str, self.reports_.tolist()), self.losses_.tolist(), strict=True)),
            "iterations": list(self.num_iters_),
            "n_neighbors": self.n_neighbors_,
            "pairs": [self.n_neighbors_, self.n_mid_near_, self.n_further_],
        }
        out = self._certified(run, figures, "descent", self._degenerate(run))
        out["warnings"]["map"] = out["warnings"]["map"] or torn(out.get("judgement", {}))
        told = self.losses_.tolist(), self.reports_.tolist(), self._phases(), self.num_iters_
        out["warnings"] |= {"convergence": unrested(*told)}
        return out

    def _degenerate(self, run: Run) -> list[str]:
        asked = self.n_neighbors
        if asked is None or self.n_neighbors_ >= asked:
            return []
        n = run.results("survey")["n"]
        return [f"n_neighbors={asked}, and there are {n} rows: {self.n_neighbors_} were taken"]

    def _extension(self, run: Run) -> Extension:
        """Where a new row comes to rest among the fitted ones; a row that was fitted gets its ``embedding_``."""
        return extension_of(placement_of(run, 2 * run.parameters("pairs")["far"], self.metric))


def torn(seen: dict[str, Any]) -> list[str]:
    """Say of a judgement that what belongs together lies in several places, each of them well drawn."""
    what = (
        "neighbors on the map are neighbors, but many neighbors lie in other places (a tear). Do not read gaps or "
        "separate groups from it; take init='pca', and the iterations of the first two phases, (100, 100, 250)"
    )
    return one_sided(seen, "continuity", "trustworthiness", CONNECTED, TORN, what)


def unrested(
    losses: Sequence[float], reports: Sequence[int], asked: Sequence[int], made: Sequence[int] | None = None
) -> list[str]:
    """Say that the loss still falls where the descent ends, or that its last phase was not made.

    ``asked``: the iterations of the three phases; ``made``: those of a map that goes on from the one before.

    >>> unrested([900.0, 500.0, 480.0], [200, 440, 450], (100, 100, 250))[0][:40]
    'the loss fell by 4 % in the last 10 iter'
    >>> unrested([900.0, 500.0, 499.0], [200, 440, 450], (100, 100, 250))
    []
    >>> unrested([500.0, 480.0], [15, 25], (100, 100, 50), (0, 0, 25))[0][-78:]
    'num_iters, which are (100, 100, 50); a map that goes on made 25 of the last 50'
    """
    last = asked[2] if made is None else made[2]
    some = "" if last == asked[2] else f"; a map that goes on made {last} of the last {asked[2]}"
    fell = 1.0 - losses[-1] / losses[-2] if len(losses) > 1 and losses[-2] > 0 else 0.0
    if last > RESTING:
        if fell <= UNRESTED:
            return []
        said = f"the loss fell by {100 * fell:.2g} % in the last {reports[-1] - reports[-2]} iterations"
        return [f"{said}: the map has not come to rest. Raise num_iters, which are {tuple(asked)}{some}"]
    return [
        f"num_iters={tuple(asked)}: in so few iterations of the last phase no neighborhood finds its shape{some}. Take "
        "some 250"
    ]
