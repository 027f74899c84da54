"""``fit``: what was given, which stages follow, what the results are. The same for every method."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed import errors
from bigembed.blocks.rows import MAX_BLOCK_ROWS
from bigembed.embedding.graph.shape import GraphShape
from bigembed.embedding.graph.weights import is_weights, weights_stage
from bigembed.errors import InputTypeError
from bigembed.estimator import AROUND
from bigembed.estimator.names import feature_names
from bigembed.estimator.progress import telling
from bigembed.estimator.warning import warn
from bigembed.neighbors.graph import NeighborGraph
from bigembed.neighbors.survey import METRICS
from bigembed.stages import Run, Stage, run_stages
from bigembed.store.input import column_source, row_source
from bigembed.store.streamed import StreamedRows

CATEGORIES = {
    "convergence": "ConvergenceWarning",
    "recall": "RecallWarning",
    "components": "ComponentsWarning",
    "degenerate": "DegenerateWarning",
    "localized": "LocalizedWarning",
    "separation": "SeparationWarning",
    "harmonic": "HarmonicWarning",
    "map": "MapWarning",
}
"""Names of the warnings of a certificate by category."""
STREAMED = 2
"""Passes up to which a Dask array is computed in each; for more it is written once."""


def fit_rows(estimator: Any, X: Any, *, sparse: bool = False, **beside: Any) -> Any:
    """Run the stages for rows, and set the fitted attributes.

    ``beside`` names vectors that belong to the rows (``weights``, ``labels``); None is left out. ``sparse``:
    whether the method takes sparse rows.
    """
    estimator._check()
    _need(estimator, X)
    run = Run(estimator.workdir)
    scratch = run.root / "exchange"
    source, in_memory = row_source(X, scratch, sparse=sparse)
    columns = {
        name: column_source(values, source.shape[0], scratch, name)
        for name, values in beside.items()
        if values is not None
    }
    source = replace(source, beside=columns)
    stages = estimator.stages(source, run)
    if isinstance(source, StreamedRows) and row_passes(stages) > STREAMED:
        source = source.settled(scratch)
        stages = estimator.stages(source, run)
    remember_features(estimator, X, source.shape[1])
    estimator._source = source
    return finish(estimator, stages, run, in_memory)


def row_passes(stages: Sequence[Stage]) -> float:
    """How often ``fit`` reads the rows as they were given: what follows reads a copy in the order of the graph."""
    last = next((number for number, stage in enumerate(stages) if stage.name == "order"), len(stages))
    return sum(stage.cost.passes for stage in stages[: last + 1] if not stage.on_demand)


def fit_spectral(estimator: Any, X: Any) -> Any:
    """The same for methods on a graph: rows, a graph, or weights."""
    estimator._check()
    _need(estimator, X)
    if isinstance(X, NeighborGraph):
        if X.metric not in METRICS:
            raise InputTypeError(
                f"{type(estimator).__name__} reads the rows beside the graph, which a graph of given distances does "
                "not hold; build the graph from rows"
            )
        run = Run(estimator.workdir, parents=[X.run])
        graph = GraphShape(X.n, X.block, X.n_features, X.n_neighbors, X.radius, X.dense)
        stages = estimator._after_graph(graph, estimator._seed())
        estimator.n_features_in_ = X.n_features
        return finish(estimator, stages, run, X.in_memory)
    if is_weights(X):
        run = Run(estimator.workdir)
        rest = estimator._after_graph(GraphShape(X.shape[0], MAX_BLOCK_ROWS, weighted=True), estimator._seed())
        estimator.n_features_in_ = X.shape[0]
        return finish(estimator, [weights_stage(X), *rest], run, True)
    return fit_rows(estimator, X)


def finish(estimator: Any, stages: Sequence[Stage], run: Run, in_memory: bool) -> Any:
    """Run the stages that are not on demand, set the fitted attributes, give the warnings of the certificate."""
    shared = any(parent.root == run.root for parent in run.parents)  # with the stages of a graph
    with telling(estimator, [stage for stage in stages if not stage.on_demand]) as todo:
        run_stages(todo, run, of=() if shared else stages)
    return adopt(estimator, stages, run, in_memory)


def adopt(estimator: Any, stages: Sequence[Stage], run: Run, in_memory: bool) -> Any:
    """Set the fitted attributes from published stages, give the warnings of the certificate."""
    estimator.__dict__.pop("_embedding", None)
    estimator._run, estimator._in_memory = run, in_memory
    estimator._parameters = snapshot(estimator.get_params())
    estimator._on_demand = [stage for stage in stages if stage.on_demand]
    estimator._adopt(run)
    estimator.certificate_ = estimator._certificate(run)
    for category, messages in estimator.certificate_.get("warnings", {}).items():
        for message in messages:
            warn(message, getattr(errors, CATEGORIES[category]))
    return estimator


def snapshot(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as they are now, whatever becomes of the dictionaries and arrays that were given."""
    return {
        name: deepcopy(value) if isinstance(value, (dict, list, np.ndarray)) else value
        for name, value in parameters.items()
        if name not in AROUND
    }


def write_output(estimator: Any) -> None:
    """Run the stages that ``fit`` left out (coordinates of all rows, written), and take their results."""
    waiting = getattr(estimator, "_on_demand", [])
    if waiting:
        run_stages(waiting, estimator._run)
        estimator._on_demand = []
        estimator.__dict__.pop("_embedding", None)
        estimator._adopt(estimator._run)


def remember_features(estimator: Any, X: Any, d: int) -> None:
    """``n_features_in_`` and, of a data frame, ``feature_names_in_``."""
    estimator.n_features_in_ = d
    names = feature_names(X)
    if names is not None:
        estimator.feature_names_in_ = names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _need(estimator: Any, X: Any) -> None:
    if X is None:
        raise InputTypeError(
            "fit needs rows, a NeighborGraph or a sparse matrix of weights; got None. This "
            f"{type(estimator).__name__} estimator requires X to be passed"
        )
