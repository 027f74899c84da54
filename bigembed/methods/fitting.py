"""``fit`` of the spectral methods: what was given, which stages follow, what the results are."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import MAX_BLOCK_ROWS
from bigembed.errors import (
    ComponentsWarning,
    ConvergenceWarning,
    DegenerateWarning,
    InputTypeError,
    RecallWarning,
)
from bigembed.methods.base import feature_names, warn
from bigembed.methods.certificate import certificate
from bigembed.methods.weights import is_weights, weights_stage
from bigembed.neighbors.graph import NeighborGraph
from bigembed.stages import Run, run_stages
from bigembed.store.arrays import open_array, read_array
from bigembed.store.input import row_source


def fit_spectral(estimator: Any, X: Any) -> Any:
    """Run the stages for rows, a graph or weights, and set the fitted attributes."""
    estimator._check()
    if X is None:
        raise InputTypeError(
            "fit needs rows, a NeighborGraph or a sparse matrix of weights; got None. This "
            f"{type(estimator).__name__} estimator requires X to be passed"
        )
    if isinstance(X, NeighborGraph):
        run = Run(estimator.workdir, parents=[X.run])
        estimator.n_features_in_ = X.n_features
        stages = estimator._after_graph(X.n, X.block, estimator._seed(), "error", k=X.n_neighbors)
        in_memory = X.in_memory
    elif is_weights(X):
        run = Run(estimator.workdir)
        stage = weights_stage(X)
        estimator.n_features_in_ = X.shape[0]
        stages = [stage, *estimator._after_graph(X.shape[0], MAX_BLOCK_ROWS, estimator._seed(), "joint", weighted=True)]
        in_memory = True
    else:
        run = Run(estimator.workdir)
        source, in_memory = row_source(X, run.root / "exchange")
        stages = estimator.stages(source, run)
        estimator.n_features_in_ = source.shape[1]
        names = feature_names(X)
        if names is not None:
            estimator.feature_names_in_ = names
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    run_stages(stages, run)
    return adopt(estimator, run, in_memory)


def adopt(estimator: Any, run: Run, in_memory: bool) -> Any:
    """Set the fitted attributes from the published stages, and give the warnings of the certificate."""
    set_results(estimator, run, in_memory)
    estimator.certificate_ = certificate(estimator, run)
    _warn(estimator.certificate_)
    return estimator


def set_results(estimator: Any, run: Run, in_memory: bool) -> None:
    """Eigenvalues, coordinates and scales as attributes."""
    estimator._run, estimator._in_memory = run, in_memory
    estimator.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
    estimator.residuals_ = read_array(run.path("solve", "residuals"))
    coordinates = run.results("coordinates")
    estimator.t_ = coordinates["t"]
    estimator.n_components_ = coordinates["n_components"]
    estimator.epsilon_ = run.results("bandwidth")["epsilon"] if run.has("bandwidth") else None
    for name in ("embedding", "labels"):
        lazy = open_array(run.path("coordinates", name))
        setattr(estimator, f"{name}_", np.asarray(lazy) if in_memory else lazy)
    if run.has("graph"):
        estimator.graph_ = NeighborGraph(run)


def _warn(found: dict[str, Any]) -> None:
    for message in found["warnings"]["convergence"]:
        warn(message, ConvergenceWarning)
    for message in found["warnings"]["recall"]:
        warn(message, RecallWarning)
    for message in found["warnings"]["components"]:
        warn(message, ComponentsWarning)
    for message in found["warnings"]["degenerate"]:
        warn(message, DegenerateWarning)
