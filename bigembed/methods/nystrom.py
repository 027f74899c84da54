"""Coordinates of new rows of a diffusion map: the α-correct Nyström formula."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError, InputTypeError
from bigembed.kernels.gaussian import gaussian_block
from bigembed.methods.coordinates import Scaling, rows_by_id, scaled
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Index, Joined, join_rows, nearest_kept
from bigembed.neighbors.survey import Shape, prepare
from bigembed.stages import Run
from bigembed.store.arrays import read_array

BATCH_ROWS = 4_096


@dataclass(frozen=True)
class Model:
    """What a task needs to extend: paths into the run or the saved model, and small numbers."""

    index: Index
    shape: Shape
    right: str
    labels: str
    density: str
    search: str
    epsilon: float
    alpha: float
    self_tuned: bool
    truncated: bool
    policy: str
    eigenvalues: Array
    scaling: Scaling


def model_of(run: Run) -> Model:
    """The extension model of a fitted run."""
    if not run.has("order"):
        raise InputTypeError(
            "transform needs the rows that were fitted; this map was fitted to a user's graph, which "
            "has no place for new rows"
        )
    survey, coordinates = run.results("survey"), run.results("coordinates")
    index = Index(
        run.path("order"),
        run.path("search"),
        run.path("shortlist"),
        run.path("partition", "centers"),
        run.results("search")["n_neighbors"],
        run.results("search")["n_probes"],
    )
    kernel = run.manifest("kernel").parameters
    return Model(
        index,
        Shape(survey["n"], survey["d"], survey["dtype"], survey["metric"]),
        run.path("solve", "right"),
        run.path("components", "labels"),
        run.path("kernel", "q"),
        run.path("search"),
        run.results("bandwidth")["epsilon"],
        kernel["alpha"],
        kernel["self_tuned"],
        kernel["truncated"],
        run.manifest("coordinates").parameters["policy"],
        read_array(run.path("solve", "eigenvalues")),
        Scaling(coordinates["t"], coordinates["n_components"]),
    )


def extend_rows(rows: Array, model: Model) -> Array:
    """Coordinates of new rows, checked and made ready for the search first."""
    rows = prepare(rows, model.shape)
    if model.shape.metric == "cosine" and (~rows.any(axis=1)).any():
        raise InputError("metric='cosine' is not defined for rows of zeros")
    return nystrom_rows(rows, model)


def nystrom_rows(rows: Array, model: Model) -> Array:
    """Nyström: ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j), then λ^t (the q_x^{-α} of the new row cancels)."""
    joined = join_rows(rows, model.index)
    ordered = Ordered.open(model.index.order)
    starts = np.array(ordered.starts)
    near = _Neighborhood(joined.ids, starts)
    label = near.read(model.labels)
    kernel = _kernel(joined, near, model) * near.read(model.density).astype(np.float64) ** -model.alpha
    of_edge = np.repeat(np.arange(len(rows)), np.diff(joined.indptr))
    home = _component(joined, kernel, label)
    if model.policy == "largest":
        home = np.where(home == 0, 0, -1)
    kernel = np.where(label == home[of_edge], kernel, 0.0)
    total = np.bincount(of_edge, kernel, minlength=len(rows))
    right = near.read(model.right)
    mean = np.stack([np.bincount(of_edge, kernel * column, minlength=len(rows)) for column in right.T], axis=1)
    inside = total > 0
    eigenvalues = model.eigenvalues
    own = eigenvalues[np.maximum(home, 0)] if eigenvalues.ndim == 2 else eigenvalues[None]
    safe = np.where(own == 0, 1.0, own)
    extended = np.where(inside[:, None], mean / np.where(inside, total, 1)[:, None] / safe, 0.0)
    coordinates = scaled(extended, np.maximum(home, 0), eigenvalues, model.scaling)
    outside = np.flatnonzero(~inside)
    for b in np.unique(joined.block[outside]):
        mine = outside[joined.block[outside] == b]
        nearest = nearest_kept(ordered, model.labels, int(b), rows[mine], joined.cell[mine])
        coordinates[mine] = rows_by_id(model.right, nearest, list(ordered.starts), eigenvalues, model.scaling)
    return coordinates


def _component(joined: Joined, kernel: Array, label: Array) -> Array:
    """Component of each new row: that of the row joined to it with the largest weight (ties by id)."""
    home = np.full(len(joined.indptr) - 1, -1, np.int64)
    of_edge = np.repeat(np.arange(len(home)), np.diff(joined.indptr))
    order = np.lexsort((joined.ids, -kernel, of_edge))
    first = np.flatnonzero(np.diff(joined.indptr))
    home[first] = label[order[joined.indptr[first]]]
    return home


def _kernel(joined: Joined, near: _Neighborhood, model: Model) -> Array:
    squared = joined.squared.astype(np.float64)
    if model.self_tuned:
        rho = np.repeat(joined.rho, np.diff(joined.indptr))
        squared = squared / (rho * np.sqrt(near.read(f"{model.search}/rho_squared").astype(np.float64)))
    return gaussian_block(squared, model.epsilon, truncated=model.truncated)


class _Neighborhood:
    """Values of per-row arrays at given internal ids, read block by block."""

    def __init__(self, ids: Array, starts: Array) -> None:
        self.ids = ids
        self.owner = np.searchsorted(starts, ids, side="right") - 1
        self.starts = starts

    def read(self, path: str) -> Array:
        """The array under ``path/b`` at every id."""
        out: Array | None = None
        for b in np.unique(self.owner):
            mine = self.owner == b
            part = read_array(f"{path}/{b}")[self.ids[mine] - self.starts[b]]
            if out is None:
                out = np.zeros((len(self.ids), *part.shape[1:]), part.dtype)
            out[mine] = part
        return np.zeros(0) if out is None else out
