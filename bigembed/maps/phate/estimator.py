"""PHATE of rows of any number, on a stored neighbor graph."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Self

from bigembed.errors import InputTypeError
from bigembed.estimator import certificate, extension, frame, graph_input, on_graph, seed_of
from bigembed.estimator.base import MANY_ROWS
from bigembed.maps import descended, descent, landmark_rows, phate, scales
from bigembed.maps.phate.potential import PhateOptions
from bigembed.neighbors import given, graph_stages, row_weights, search
from bigembed.neighbors.given.distances import Rule
from bigembed.neighbors.graph import NeighborGraph
from bigembed.runtime import parameters
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

LISTED = 4
"""Neighbors that are searched for each that gives the scale of a row, by default."""
CUT = 0.1
"""Mean weight of the kernel where lists of neighbors end, from which the map is warned of."""
STRESSED = 0.4
"""Stress-1 from which the coordinates may be too few for the potential distances.

With two of them digits have .20, MNIST .17, cells .03, trees of twenty branches .27 and .38 (trustworthiness .99), the
corners of a simplex of 30 .31; with one of them three branches have .48 (.85), the corners .49. Sixty groups apart have
.41 in the plane and nothing is wrong (.998), so that a map that can be trusted is not asked.
"""
GONE, FADED, LINE = 0.01, 0.25, 0.1
"""Modes of the walk that are left after t steps, below which a map shows nothing; or no more than a line, where the
second coordinate is less than that share of the first as well.

By t="auto" iris has 4.5, wine and breast cancer 1.5 and 1.8, digits 4.1, MNIST 1.8, cells 3.1 and 4.7, diabetes 2.1,
COIL-20 13, a mammoth 32, and shares of .29 to .86; after 100 steps wine .39 and .14, and it is the same arc; after 1000
iris .19 and .05, wine and diabetes .001 and less, the mammoth 4.6 and .72.
"""


@dataclass(eq=False, repr=False)
class PHATE(on_graph.WeightedGraphEstimator, registered="phate"):
    """Map rows by PHATE: trajectories, branches and clusters of a diffusion, in few dimensions.

    The kernel decays with the power ``decay`` of the distance over ε_i, that to the k-th neighbor: K_ij =
    (exp(−(r_ij/ε_i)^decay) + exp(−(r_ij/ε_j)^decay))/2 (Moon et al. 2019). With C the rows of each landmark, P = D⁻¹K
    and D_c the degrees of a landmark, D_c⁻¹ Cᵀ K · D⁻¹ K C is the walk from landmark to row to landmark; its t-th power
    has rows p_c, the potentials are U_c = −log(p_c + 1e-7), and the landmarks have places y_c with ‖y_c − y_c'‖ as near
    as can be to ‖U_c − U_c'‖ (metric scaling). A row is at Σ_c P(i, c) y_c: the mean over its neighbors of the places
    of their landmarks. Of at most ``n_landmarks`` rows each is a landmark, and the walk is P itself.

    Parameters
    ----------
    n_components : int ≥ 1
        The number m of coordinates.
    n_neighbors : int ≥ 1
        The number k of the neighbor whose distance is the scale ε of a row, the row itself not counted (``knn`` of
        phate).
    decay : float > 0
        The power of the kernel. At 40, nearly all within ε has weight 1, and nearly all beyond none.
    n_candidates : int ≥ n_neighbors, or "auto"
        The number of neighbors that are searched for each row: all of them to which the kernel is above 1e-4 are
        edges. "auto" is 4·n_neighbors. A graph that is given has its own. The certificate says how large the kernel
        still is where lists end.
    n_landmarks : int > n_components
        The number L of landmarks, at most 8192. A landmark is a group of near rows, found by k-means in each block of
        the graph (one a block at least) from rows that the walk has averaged over their neighbors; with given
        distances, a group of rows from which the walk leads to the same places. With at most L rows, each is a
        landmark.
    t : int ≥ 1 or "auto"
        The diffusion time. "auto" is the knee of the von Neumann entropy H(t) = −Σ η log η, η = σᵗ/Σσᵗ, of the singular
        values σ of the walk between landmarks; as in phate its place is counted from 0, while H begins with t = 1.
    t_max : int ≥ 5
        The largest time: t="auto" looks for the knee among 1 … t_max.
    gamma : float in [−1, 1]
        The potential: −log(p + 1e-7) at 1, p at −1, and 2 p^{(1−γ)/2}/(1 − γ) between.
    mds : {"metric", "classical"}
        The scaling of the potential distances. "metric" starts from the classical one.
    metric : str or function
        The distance between rows: "euclidean", "cosine" (between rows scaled to length one), another one of
        :func:`bigembed.build_neighbor_graph`, or a function of two rows. With "precomputed" X holds distances (n, n),
        all of them, or as a SciPy sparse matrix the lengths of the edges there are.
    recall : float in (0, 1]
        The target share of true neighbors in the graph; it is measured, and warned about where missed.
    algorithm : {"auto", "cells", "nn-descent", "pynndescent"}
        How neighbors are searched. "cells" searches exactly in the cells of near rows; "nn-descent" is for rows of high
        intrinsic dimension; "auto" takes cells unless these would miss ``recall`` and NN-descent fits.
    algorithm_params : dict or None
        Parameters for ``pynndescent.NNDescent``, such as n_trees or n_iters, with algorithm="pynndescent"; else None.
    random_state : int, generator or None
        The seed of the graph and of the landmarks.
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
        The coordinates, in the order of the input, in units of potential distances: NumPy for NumPy input, else a lazy
        Dask array. The landmarks have mean 0 and their principal axes, the largest |entry| of each positive. Rows that
        are equal have the same coordinates.
    t_ : int
        The diffusion time that was used.
    entropy_ : array of shape (t_max,)
        The von Neumann entropies of t = 1 … t_max.
    stress_ : float
        Kruskal's stress-1 of the landmarks: the root of Σ (‖y_c − y_c'‖ − d_cc')² over Σ d_cc'².
    n_landmarks_ : int
        The number of landmarks.
    labels_ : array of shape (n,)
        The component of the graph of each row, 0 the largest.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    graph_ : NeighborGraph
        The neighbor graph.
    certificate_ : dict
        How far the map can be trusted: stress, the times that fit the knee nearly as well, how many modes of the walk
        are left after t steps ("modes"), components, recall; under "judgement" how well the map keeps neighborhoods,
        with standard errors; "warnings".

    Raises
    ------
    InputError
        If rows hold NaN or infinity (they are named), or parameters are out of range.
    InputTypeError
        If X is a graph of weights or of a radius, or new rows are given of a user's graph.

    Warns
    -----
    ConvergenceWarning
        If metric scaling does not come to rest.
    ComponentsWarning
        If the graph is not connected.
    RecallWarning
        If the recall is below its target.
    DegenerateWarning
        If rows repeat, the kernel is cut, or the entropy has no clear knee.
    MapWarning
        If the stress is high and neighborhoods are not kept well, or these are not kept at all, or t is so large that
        the walk has forgotten where it began.

    Notes
    -----
    Every warning stands in the certificate, too.
    Cost: 2 passes over the rows, some 4 over the ordered copy, 14 sweeps over the graph; then some 30 L³ operations and
    100 times L² in one process. Memory: a few canonical blocks a worker, and 7 arrays of L² numbers (224 MB for 2000
    landmarks). phate reduces rows of more than 100 columns by PCA first; here that is a step before
    (:class:`bigembed.PCA` in a pipeline).

    References
    ----------
    K. Moon et al., Visualizing structure and transitions in high-dimensional biological data, Nature Biotechnology 37
    (2019). W. Johnson, J. Lindenstrauss, Extensions of Lipschitz mappings into a Hilbert space (1984).

    Examples
    --------
    >>> import numpy as np
    >>> line = np.linspace(0, 1, 200)[:, None] * np.ones(3)
    >>> phate = PHATE(n_components=1, t=100).fit(line)
    >>> steps = np.diff(phate.embedding_[:, 0])
    >>> bool((steps > 0).all() or (steps < 0).all()), phate.transform(line[:2] + 1e-3).shape
    (True, (2, 1))
    """

    of_lengths = True
    frame_rule: ClassVar = frame.FrameRule("whole", shift=True, scale=True)
    compiled_from: ClassVar = MANY_ROWS
    saved_stages: ClassVar = {
        **graph_stages.QUERY_ARRAYS,
        "kernel": ("",),
        "landmarks": ("",),
        "potential": ("points", "entropy"),
        "coordinates": ("embedding", "labels", "points"),
        row_weights.WEIGHTS: ("values",),
    }
    shown_arrays: ClassVar = {"potential": ("entropy",)}

    n_components: parameters.Count = 2
    _: KW_ONLY
    n_neighbors: parameters.Count = 5
    decay: parameters.Positive = 40.0
    n_candidates: parameters.Count | parameters.Auto = "auto"
    n_landmarks: int = 2000
    t: parameters.Count | parameters.Auto = "auto"
    t_max: Annotated[int, parameters.at_least(5)] = 100
    gamma: Annotated[float, parameters.interval(-1, 1, closed="both")] = 1.0
    mds: Annotated[str, parameters.one_of("metric", "classical")] = "metric"
    metric: given.GraphMetric = "euclidean"
    recall: Annotated[float, parameters.interval(0, 1, closed="right")] = 0.95
    algorithm: Annotated[str, parameters.one_of(*search.ALGORITHMS)] = "auto"
    algorithm_params: dict[str, Any] | None = None
    random_state: parameters.Seed = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph of nearest neighbors,
            or a graph of distances of any size (:func:`bigembed.open_graph`).
        y : None
            Not used; scikit-learn's protocol has it.
        sample_weight : array of shape (n,), or None
            How many rows each row stands for: finite numbers above 0, in the order of the input. The walk is that of so
            many copies of each row, and scales reach as much mass as k + 1 rows have.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        if isinstance(X, NeighborGraph) and X.radius is not None:
            raise InputTypeError(
                "PHATE takes the scale of a row from its nearest neighbors, and a graph of a radius may join a row to "
                "none. Build the graph with n_neighbors"
            )
        return self._fit_rows(X, weights=sample_weight)

    def _rule(self, n: int) -> Rule:
        asked = LISTED * self.n_neighbors if isinstance(self.n_candidates, str) else int(self.n_candidates)
        return Rule(max(1, min(asked, n - 1)))

    def _after_graph(self, graph: graph_input.GraphShape, seed: int) -> list[Stage]:
        return phate.phate_stages(graph, self._asked(seed))

    def _asked(self, seed: int) -> PhateOptions:
        return PhateOptions(
            int(self.n_components),
            int(self.n_neighbors),
            float(self.decay),
            int(self.n_landmarks),
            self.t if isinstance(self.t, str) else int(self.t),
            int(self.t_max),
            float(self.gamma),
            self.mds,
            seed,
        )

    def _require(self, need: parameters.Requirements) -> None:
        least = self.n_components + 1 if parameters.is_integer(self.n_components) else 2
        enough = parameters.is_integer(self.n_landmarks) and least <= self.n_landmarks <= landmark_rows.MAX_LANDMARKS
        need(enough, "n_landmarks", f"an integer > n_components, at most {landmark_rows.MAX_LANDMARKS}")
        asked: Any = self.n_candidates
        if parameters.is_integer(asked) and parameters.is_integer(self.n_neighbors):
            need(asked >= self.n_neighbors, "n_candidates", "at least n_neighbors, or 'auto'")

    def _set_fitted(self, run: Run) -> None:
        """Coordinates, entropies, the time and the stress as attributes."""
        found = run.results("potential")
        self.t_, self.stress_ = found["t"], found["stress"]
        self.entropy_ = read_array(run.path("potential", "entropy"))
        self.n_landmarks_ = run.results("landmarks")["landmarks"]
        self.n_components_ = found["n_components"]
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_array("labels_", "coordinates", "labels")
        self._set_graph(run)

    def _certificate(self, run: Run) -> dict[str, Any]:
        found, kernel, parts = (run.results(stage) for stage in ("potential", "kernel", "components"))
        n = parts["rows"]
        out: dict[str, Any] = {
            "stress": found["stress"],
            "classical_stress": found["classical_stress"],
            "converged": found["converged"],
            "iterations": found["steps"],
            "t": found["t"],
            "knee": found["knee"],
            **({"knees": found["knees"]} if "knees" in found else {}),
            **({"modes": found["modes"]} if "modes" in found else {}),
            "landmarks": run.results("landmarks")["landmarks"],
            "cut": kernel["cut"] / n,
            "n_neighbors": kernel["n_neighbors"],
            "components": parts["components"],
            "component_sizes": parts["sizes"][:20],
            "repeated_rows": run.results("coordinates")["repeated_rows"],
            "seed": seed_of(self, run, "judgement", "survey"),
            **certificate.input_of(run),
            **(scales.weights_in(run) if run.has(f"{row_weights.WEIGHTS}_sum") else {}),
        }
        out |= {stage: run.results(stage) for stage in ("recall", "judgement") if run.has(stage)}
        seen = out.get("judgement", {})
        out["warnings"] = {
            "convergence": [] if found["converged"] else [_unrested(found)],
            "recall": certificate.recall_warnings(out),
            "components": _apart(out, n),
            "degenerate": descended.repeated_rows(out["repeated_rows"], run) + _cut(out) + self._unclear(found),
            "localized": certificate.spike_warnings(seen),
            "map": _forgotten(found) + _stressed(found, self.n_components_, seen) + certificate.map_warnings(seen),
        }
        return out

    def _unclear(self, found: dict[str, Any]) -> list[str]:
        if not isinstance(self.t, str) or found["clear"]:
            return []
        first, at, last = found["knee"]
        if "knees" in found:
            one, other = found["knees"]
            return [
                f"the entropy of the diffusion has two knees, at t={one} and t={other}: it falls, rests, and falls "
                f"again. t={at} was taken, and other landmarks might decide otherwise. Look at entropy_, and compare "
                "maps of both"
            ]
        return [
            f"the entropy of the diffusion has no clear knee: t from {first} to {last} fit two lines nearly as well as "
            f"t={at}, which was taken. Look at entropy_, and compare maps of a few t"
        ]

    def _extension(self, run: Run) -> extension.Extension:
        """The mean over the neighbors of a new row of the places of their landmarks, by the kernel; a row that was
        fitted gets its ``embedding_``."""
        return descent.extension_of(phate.placement_of(run, run.parameters("kernel"), self.metric))


def _unrested(found: dict[str, Any]) -> str:
    return (
        f"metric scaling did not come to rest in {found['steps']} iterations (stress {found['stress']:.4g}). Take "
        "another t, or mds='classical'"
    )


def _apart(out: dict[str, Any], n: int) -> list[str]:
    """What a map of a disconnected graph does not say."""
    if out["components"] <= 1:
        return []
    sizes = ", ".join(f"{size:,}" for size in out["component_sizes"][:10])
    return [
        f"the graph has {out['components']} components of {sizes}{', …' if out['components'] > 10 else ''} rows "
        "(labels_ names them), between which nobody walks: all potential distances between two of them are about the "
        f"same, and how they lie to each other on the map says nothing. {certificate.joining_advice(out, '')}"
    ]


def _cut(out: dict[str, Any]) -> list[str]:
    if out["cut"] <= CUT:
        return []
    return [
        f"the kernel ends where it still is {out['cut']:.2f} on average, at the {out['n_neighbors']} neighbors that "
        "were searched. Raise n_candidates or decay, or lower n_neighbors"
    ]


def _forgotten(found: dict[str, Any]) -> list[str]:
    """What a map does not show because the walk is the same from wherever it began."""
    modes, spread = found.get("modes"), found.get("spread", ())
    line = len(spread) > 1 and spread[1] < LINE * spread[0]
    if modes is None or modes >= (FADED if line else GONE):
        return []
    shown = "one line" if line and modes >= GONE else "a point for each part of the graph, and rounding"
    knee = found["knee"][1]
    auto = "" if knee == found["t"] else f"t='auto' (the knee of the entropy is t={knee}), or "
    return [
        f"after t={found['t']} steps the walk has forgotten where it began ({max(0.0, modes):.2g} of its modes are "
        f"left): from everywhere it leads to the same places, and the map is {shown}. Take {auto}a smaller t"
    ]


def _stressed(found: dict[str, Any], m: int, seen: dict[str, Any]) -> list[str]:
    trusted = seen.get("map", {}).get("trustworthiness", {"value": 0.0})["value"] >= descended.TRUSTED
    if found["stress"] <= STRESSED or trusted:
        return []
    return [
        f"the stress of the landmarks is {found['stress']:.2f}: {m} {'coordinate is' if m == 1 else 'coordinates are'} "
        "too few for the potential distances. Ask for more coordinates, or a larger t"
    ]
