"""t-distributed stochastic neighbor embedding of rows of any number, on a stored neighbor graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from bigembed.estimator.extension import Extension
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.descended import DescendedEstimator
from bigembed.maps.descent import extension_of
from bigembed.maps.tsne import force_stages, neighbors_for
from bigembed.maps.tsne.descent import GOING_ON, DescentOptions, placement_of
from bigembed.neighbors import given, graph_stages, row_weights, search
from bigembed.neighbors.given.distances import Rule
from bigembed.runtime import parameters
from bigembed.stages import Run, Stage


def _is_tail(value: Any) -> bool:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return bool(number and value > 0)


Tail = Annotated[float, parameters.Kind("a number > 0, or infinity", _is_tail)]


@dataclass(eq=False, repr=False)
class TSNE(DescendedEstimator, registered="tsne"):
    """Map rows, a graph, or weights to one to three dimensions by t-SNE: near rows are near on the map.

    p_{j|i} ∝ exp(−‖x_i − x_j‖²/2σ_i²) over the 3·perplexity nearest rows of i, σ_i by the perplexity, and
    p_ij = (p_{j|i} + p_{i|j})/2n (seed 000 eqs. 13–15); q_ij = w_ij/Z with w = (1 + r²/ν)^{−ν}, r = ‖y_i − y_j‖, ν =
    ``dof``, and Z = Σ_{i≠j} w_ij (eq. 17 for ν = 1). The coordinates y descend on KL(p‖q) (eqs. 18–20): attraction
    along every edge of the stored graph, repulsion of all rows as a convolution on a lattice. The result is the same
    from memory and from disk: where affinities fit, they and the points are in memory; else each iteration reads them
    by row blocks.

    A row of weight w (``sample_weight``) is w rows at one place: p_{j|i} ∝ w_j exp(…), the perplexity is over copies,
    of which those of row i lie at distance 0, and Z is Σ w_i w_j over all pairs of copies. Weights are divided by their
    mean first.

    Parameters
    ----------
    n_components : int from 1 to 3
        The number m of coordinates.
    perplexity : float > 0
        The effective number of neighbors of a row; less than 1 is taken for 1. At most it is a third of the neighbors
        there are, for few rows (n − 1)/3, and it is lowered to that with a DegenerateWarning.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are, of which the 3·perplexity smallest
        of each row count. ``transform`` then takes distances of new rows to the fitted ones (k, n): all of them, or,
        sparse, those to their nearest rows, as neighbors transformers leave them (fitted rows that would list a new
        row, and whose distance is not stored, are then unknown to it).
    init : {"auto", "pca", "spectral", "random"}, array of shape (n, m), or path
        The start: "pca" (principal coordinates), "spectral" (eigenvectors of the walk on p; where less than 5 % of the
        rows carry one, "pca"), "random", an array in the order of the input, or the path of one. "auto" is "pca", and
        "spectral" without rows. A rule that was named and is not followed is a warning. Rules are scaled so that the
        first coordinate has the standard deviation 1e-4; an array is taken as it is.
    dof : float > 0, or infinity
        The ν of the tails. 1 is t-SNE, ``inf`` is symmetric SNE (w = exp(−r²)), and below 1 tails are heavier and
        clusters finer (Kobak et al. 2019).
    early_exaggeration : float > 0
        The factor of p in the first iterations, as a rule ≥ 1.
    early_exaggeration_iter : int ≥ 0
        How many first iterations there are.
    exaggeration : float > 0
        The factor of p in the iterations that follow, as a rule ≥ 1.
    n_iter : int ≥ 1
        How many iterations follow.
    learning_rate : float > 0 or "auto"
        The learning rate; "auto" is n over the exaggeration (Belkina et al. 2019).
    early_momentum, momentum : float in [0, 1)
        The momentum of the first and of the second phase (α of eq. 20).
    early_compression : float ≥ 0
        The λ of λ‖y‖²/2, which is added in the first phase (seed 000 §8.6.1).
    gains : bool
        Whether each coordinate has a learning rate that adapts to the signs of its gradients (Jacobs 1988).
    max_step : float > 0
        The longest step of a row.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    in_memory : bool or "auto"
        Whether the affinities (8 bytes an edge) and the points are held in memory, which needs room and tasks in this
        process or in workers on this machine only; "auto" holds them there where 6·n·perplexity edges and the points
        take up to 512 MiB. It changes nothing but time and memory.
    random_state : int, generator or None
        The seed of the graph and of random starts.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress, and with it the divergence every 50 iterations.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, has finished some of its blocks, or ends; and the
        divergence every 50 iterations.

    Attributes
    ----------
    embedding_ : array of shape (n, m)
        The coordinates, in the order of the input, about mean 0: NumPy for NumPy input, else a lazy Dask array. Rows
        that are equal have the same coordinates. Turning or mirroring the map does not change KL; its orientation comes
        from ``init``.
    kl_divergence_ : float
        The divergence KL(p‖q) of the map, without exaggeration; its sum of w is that of the lattice.
    kl_divergences_ : array of shape (number of reports,)
        The divergence every 50 iterations. In the first phase it need not fall.
    perplexity_ : float or None
        The perplexity that was used; None for a user's weights.
    n_iter_, n_components_, n_features_in_ : int
        The numbers of iterations of both phases, of coordinates, and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph.
    certificate_ : dict
        How far the map can be trusted: divergence, perplexity, recall; under "judgement" how well the map keeps
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
        If the perplexity is lowered, or rows repeat.
    RecallWarning
        If the recall is below its target.
    MapWarning
        If the map does not keep neighborhoods.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: 4 passes over the rows (with PCA), some 5 over the ordered copy, then ``early_exaggeration_iter + n_iter``
    times 6·n·perplexity edges, 8 bytes each, from memory or disk, and transforms of a lattice of two nodes a unit of
    the map. Memory: with ``in_memory`` 12 bytes an edge and 112 a row; without, some blocks; and the lattice.
    Nothing of size n·d in one process. The repulsive forces, in the root of the sum of squares, are within 2 % of the
    sums over all pairs for 2 000 rows of standard deviation 5, and within 5 % for 700 rows of standard deviation 30,
    which lie far apart (``tests/unit/maps/test_descents.py``).

    A new row has the place where the forces on it vanish while all fitted rows stay: attraction by its own p over its
    neighbors, repulsion by the field of the map. A row that equals a fitted one gets its coordinates.

    References
    ----------
    L. van der Maaten, G. Hinton, Visualizing data using t-SNE, JMLR 9 (2008). G. Hinton, S. Roweis, Stochastic neighbor
    embedding, NIPS (2002). G. Linderman et al., Fast interpolation-based t-SNE, Nature Methods 16 (2019). D. Kobak et
    al., Heavy-tailed kernels reveal a finer cluster structure in t-SNE visualisations, ECML (2019). A. Belkina et al.,
    Automated optimized parameters for t-SNE, Nature Communications 10 (2019). D. Kobak, P. Berens, The art of using
    t-SNE for single-cell transcriptomics, Nature Communications 10 (2019). M. Cameron, lecture notes, §8 (seed 000).

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> rows = np.concatenate([random.normal(size=(30, 5)), random.normal(size=(30, 5)) + 20])
    >>> tsne = TSNE(perplexity=5, n_iter=100).fit(rows)
    >>> left, right = tsne.embedding_[:30], tsne.embedding_[30:]
    >>> apart = np.linalg.norm(left.mean(axis=0) - right.mean(axis=0))
    >>> bool(apart > 2 * np.linalg.norm(left - left.mean(axis=0), axis=1).max()), tsne.transform(rows[:2]).shape
    (True, (2, 2))
    """

    aligned = ("weights",)
    saved_stages: ClassVar = {
        **graph_stages.QUERY_ARRAYS,
        "kernel": ("",),
        "start": ("",),
        row_weights.WEIGHTS: ("values",),
        "descent": ("objectives",),
        "coordinates": ("embedding", "points", "field"),
    }

    n_components: Annotated[int, parameters.at_least(1)] = 2
    _: KW_ONLY
    perplexity: parameters.Positive = 30.0
    metric: given.GraphMetric = "euclidean"
    init: Any = "auto"
    dof: Tail = 1.0
    early_exaggeration: parameters.Positive = 12.0
    early_exaggeration_iter: Annotated[int, parameters.at_least(0)] = 250
    exaggeration: parameters.Positive = 1.0
    n_iter: Annotated[int, parameters.at_least(1)] = 500
    learning_rate: parameters.Positive | parameters.Auto = "auto"
    early_momentum: Annotated[float, parameters.interval(0, 1, closed="left")] = 0.5
    momentum: Annotated[float, parameters.interval(0, 1, closed="left")] = 0.8
    early_compression: parameters.Nonnegative = 0.0
    gains: bool = True
    max_step: parameters.Positive = 5.0
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.95
    algorithm: Annotated[str, parameters.one_of(*search.ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    in_memory: bool | parameters.Auto = "auto"
    random_state: parameters.Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`): of weights, or of distances to neighbors.
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for: finite numbers above 0, in the order of the input. With counts the map is
            that of so many copies of each row, of a perplexity that is larger by the mean count.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        self._refuse_radius(X)
        return self._fit_rows(X, weights=sample_weight)

    def _rule(self, n: int) -> Rule:
        return Rule(neighbors_for(self.perplexity, n))

    def _after_graph(self, graph: GraphShape, seed: int) -> list[Stage]:
        start, asked = self._start(), self._asked()
        if self._published is not None:
            asked = asked.going_on(self._share(GOING_ON, graph.n))
        return force_stages(graph, float(self.perplexity), asked, start, self._memory(), seed)

    def _asked(self) -> DescentOptions:
        return DescentOptions(
            int(self.n_components),
            float(self.dof),
            float(self.early_exaggeration),
            int(self.early_exaggeration_iter),
            float(self.exaggeration),
            int(self.n_iter),
            None if isinstance(self.learning_rate, str) else float(self.learning_rate),
            float(self.early_momentum),
            float(self.momentum),
            float(self.early_compression),
            bool(self.gains),
            float(self.max_step),
        )

    def _require(self, need: parameters.Requirements) -> None:
        need(self.n_components in (1, 2, 3), "n_components", "1, 2 or 3: repulsion is computed on a lattice")
        super()._require(need)

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, divergences and the graph as attributes."""
        self.kl_divergences_ = self._set_map(run)
        self.kl_divergence_ = float(self.kl_divergences_[-1])
        self.n_iter_ = run.results("descent")["iterations"]
        self.perplexity_ = run.parameters("kernel").get("perplexity")

    def _certificate(self, run: Run) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "kl_divergence": self.kl_divergence_,
            "kl_divergences": self.kl_divergences_.tolist(),
            "iterations": self.n_iter_,
            "perplexity": self.perplexity_,
        }
        return self._certified(run, figures, "start", self._degenerate())

    def _degenerate(self) -> list[str]:
        if self.perplexity_ is None or self.perplexity_ >= self.perplexity:
            return []
        return [
            f"perplexity={self.perplexity:g} needs {int(3 * self.perplexity)} neighbors of each row, and there are "
            f"{max(1, round(3 * self.perplexity_))}: perplexity {self.perplexity_:.3g} was taken"
        ]

    def _extension(self, run: Run) -> Extension:
        """Where the forces of the fitted rows on a new one vanish; a row that was fitted gets its ``embedding_``."""
        return extension_of(placement_of(run, float(self.dof), self.metric))
