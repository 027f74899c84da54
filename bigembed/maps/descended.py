"""What methods share whose coordinates descend along the edges of a neighbor graph, as t-SNE and UMAP."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from bigembed.errors import InputTypeError
from bigembed.estimator.certificate import REPEATED, input_of, map_warnings, recall_warnings, spike_warnings
from bigembed.estimator.frame import FrameRule
from bigembed.estimator.on_graph import GraphEstimator
from bigembed.estimator.protocol import seed_of
from bigembed.maps.descent import rows_of_block
from bigembed.maps.start import RULES, not_followed, start_of
from bigembed.neighbors.graph import NeighborGraph
from bigembed.quality.neighborhoods import with_error
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Requirements
from bigembed.stages import Run, Stage
from bigembed.store.arrays import read_array

TRUSTED = 0.97
"""Trustworthiness from which a map is not asked whether it is folded, or has too few coordinates."""
PUBLISHED = "published"
"""The start of a map that goes on from the one before."""
FOLDED = 5.0
"""How much more trustworthiness than continuity is lost in a fold.

What a plane has no room for costs both: digits, MNIST and cells, with defaults, lose 0.9 to 2.4 times as much of the
former. A sphere whose halves lie on each other loses 24 times as much: there nothing is torn, and what is near on the
map may be far.
"""


class DescendedEstimator(GraphEstimator):
    """Base of the methods that take rows, a neighbor graph or weights, and move the points of a map step by step.

    They have the parameters below, and say in :meth:`_rule` how many neighbors they need.
    """

    frame_rule: ClassVar = FrameRule("whole", shift=True, scale=True)
    of_rows: ClassVar = ("init",)

    init: Any
    n_components: int
    in_memory: bool | str

    _published: RowSource | None = None
    """Where the rows of the next fit are on the map before, from which it goes on."""

    def stages(self, source: RowSource) -> list[Stage]:
        """List all stages; those of a map that goes on start where its rows are on the one before."""
        here = None if self._frame is None else self._frame.of(source)
        found = None if here is None else here.start
        self._published = found if found is not None and found.width == self.n_components else None
        return super().stages(source)

    def _start(self) -> str | RowSource:
        """Return what the map starts from: where its rows are on the one before, else as ``init`` says."""
        return start_of(self.init) if self._published is None else self._published

    def _share(self, least: float, n: int) -> float:
        """Return the share of its iterations that a map makes which goes on: at least that of the new rows."""
        known = 0 if self._frame is None else min(n, self._frame.shared)
        return max(least, 1.0 - known / n)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map to rows, distances or a graph.

        Parameters
        ----------
        X : array of shape (n, d) or (n, n), NeighborGraph, sparse matrix or graph
            Rows or distances (any kind that :func:`bigembed.open_array` takes), a NeighborGraph, symmetric sparse
            weights, or a graph of any size (:func:`bigembed.open_graph`): of weights, or of distances to neighbors.
        y : None
            Not used; scikit-learn's protocol has it.

        Returns
        -------
        Estimator
            The estimator itself.
        """
        self._refuse_radius(X)
        return self._fit_rows(X)

    def _refuse_radius(self, X: Any) -> None:
        if isinstance(X, NeighborGraph) and X.radius is not None:
            raise InputTypeError(
                f"{type(self).__name__} takes the nearest neighbors of every row, and a graph of a radius may join a "
                "row to none. Build the graph with n_neighbors"
            )

    def _block_rows(self, k: int) -> int:
        return rows_of_block(k)

    def _memory(self) -> bool | None:
        """Return whether weights and points are to be in memory; None where their size decides."""
        return None if isinstance(self.in_memory, str) else bool(self.in_memory)

    def _require(self, need: Requirements) -> None:
        need(self.init is not None, "init", f"{', '.join(map(repr, RULES))}, an array (n, m), or its path")

    def _set_map(self, run: Run) -> Array:
        """Set coordinates and the graph as attributes; the objectives."""
        self.n_components_ = run.results("coordinates")["n_components"]
        self._set_array("embedding_", "coordinates", "embedding")
        self._set_graph(run)
        return np.asarray(read_array(run.path("descent", "objectives")))

    def _certified(self, run: Run, figures: dict[str, Any], seed_in: str, degenerate: list[str]) -> dict[str, Any]:
        """Return a certificate of these figures, with start, recall, judgement, input and all warnings."""
        start, repeated = run.results("start"), run.results("coordinates")["repeated_rows"]
        started = start["start"] if self._published is None else PUBLISHED
        out = figures | {"start": started} | ({"start_reason": start["reason"]} if start.get("reason") else {})
        out |= {"repeated_rows": repeated, "seed": seed_of(self, run, seed_in)}
        out |= {stage: run.results(stage) for stage in ("recall", "judgement") if run.has(stage)}
        out |= input_of(run)
        judged = out.get("judgement", {})
        out["warnings"] = {
            "recall": recall_warnings(out),
            "degenerate": degenerate + repeated_rows(repeated, run),
            "localized": ([] if started == PUBLISHED else not_followed(self.init, start)) + spike_warnings(judged),
            "map": map_warnings(judged) or folded(judged),
        }
        return out


def folded(seen: dict[str, Any]) -> list[str]:
    """Say of a judgement that parts of the rows lie on top of each other, each of them well drawn."""
    found = seen.get("map", {})
    if "trustworthiness" not in found:
        return []
    trust, continuity = (found[name]["value"] for name in ("trustworthiness", "continuity"))
    if trust >= TRUSTED or 1.0 - trust <= FOLDED * (1.0 - continuity):
        return []
    return [
        f"trustworthiness is {with_error(found['trustworthiness'])}, and continuity {with_error(found['continuity'])}: "
        "neighbors are together, but lie on top of rows from elsewhere (a fold). Do not read groups or closeness from "
        "it; take init='pca' or 'random', more n_components, or an array as init"
    ]


def repeated_rows(repeated: int, run: Run) -> list[str]:
    """Say what a picture does not show of rows that repeat another one, where they are many."""
    if repeated <= REPEATED * sum(run.results("kernel")["rows"]):
        return []
    rows = "1 row repeats another one and has" if repeated == 1 else f"{repeated:,} rows repeat another one and have"
    return [f"{rows} its coordinates: the picture shows them as one point"]
