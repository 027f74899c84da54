"""How badly a row fits a model: one number a row, comparable between rows fitted and new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.blocks.functions import is_name
from bigembed.blocks.rows import Array
from bigembed.embedding.walk.extension import WalkModel, self_weight
from bigembed.methods import load
from bigembed.neighbors.query import Index, join_rows


@dataclass(frozen=True)
class Misfit:
    """What is measured of each row, and how."""

    name: str
    meaning: str
    function: Callable[[Array], Array]
    """``function(rows)``: prepared rows (m, d) to (m,); larger is worse."""


def misfit_of(estimator: Any) -> Misfit | None:
    """The misfit of a model that was loaded: of a diffusion map the weight of a row on itself, of a map with an
    inverse the reconstruction error; None for others."""
    extension = estimator._map()
    if isinstance(extension.model, WalkModel):
        meaning = "1 / (1 + Σ_j k(x, x_j)): share of the walk that stays at the row; 1 is out of reach of all fitted"
        return Misfit("self_weight", meaning, partial(self_weight, model=extension.model))
    if hasattr(estimator, "inverse_transform"):
        meaning = "‖x − x̂‖, x̂ the row that its coordinates stand for"
        named = tuple(name for name in estimator.get_params().values() if is_name(name))  # (allowed when it was loaded)
        function = partial(reconstruction_error, model=str(estimator._run.root), functions=named)
        return Misfit("reconstruction_error", meaning, function)
    return None


def reconstruction_error(rows: Array, model: str, functions: tuple[str, ...] = ()) -> Array:
    """‖x − x̂‖ (m,) of rows (m, d), x̂ from the coordinates of x by the model saved at a path."""
    estimator = load(model, functions)
    extension = estimator._map()
    rebuilt = estimator.inverse_transform(extension.of_rows(rows))
    return np.asarray(np.linalg.norm(np.asarray(rows, np.float64) - rebuilt, axis=1))


def search_index(estimator: Any) -> Index | None:
    """The index by which new rows find their neighbors, for a model on a graph of nearest neighbors."""
    index = getattr(estimator._map().model, "index", None)
    return index if isinstance(index, Index) else None


def found_lists(rows: Array, index: Index) -> Array:
    """Internal ids of the fitted rows that the search joins to prepared rows: int64 (m, widest), −1 where there are
    no more."""
    joined = join_rows(rows, index)
    counts = np.diff(joined.indptr)
    lists = np.full((len(rows), int(counts.max(initial=1))), -1, np.int64)
    lists[np.arange(lists.shape[1]) < counts[:, None]] = joined.ids
    return lists
