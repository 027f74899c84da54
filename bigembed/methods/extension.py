"""Coordinates of new rows: the α-correct Nyström formula, streamed block by block."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.errors import ExistingOutputError, InputError, InputTypeError
from bigembed.kernels.gaussian import gaussian_block
from bigembed.methods.base import feature_names
from bigembed.methods.coordinates import Scaling, rows_by_id, scaled
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Index, Joined, join_rows, nearest_kept
from bigembed.neighbors.survey import Shape, prepare, shape_of
from bigembed.stages import Run
from bigembed.store.arrays import RowSource, create_rows, open_array, read_array, write_rows
from bigembed.store.input import row_source

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


def model_of(estimator: Any) -> Model:
    """The extension model of a fitted estimator."""
    run: Run = estimator._run
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


def transform(estimator: Any, X: Any) -> Any:
    """Coordinates of new rows: NumPy for arrays in memory, a lazy Dask array otherwise."""
    import tempfile

    model = model_of(estimator)
    _check_names(estimator, X)
    if isinstance(X, (str, os.PathLike)) or hasattr(X, "dask"):
        scratch = Path(tempfile.mkdtemp(prefix="transform-", dir=estimator._run.root))
        transform_to(estimator, X, scratch / "coordinates")
        return open_array(scratch / "coordinates")
    source, _ = row_source(X, estimator._run.root / "exchange", "query")
    _check_width(source, model, estimator)
    spans = bounds(source.shape[0], BATCH_ROWS)
    return np.concatenate(map_blocks(extend_block, spans, source=source, model=model))


def transform_to(estimator: Any, X: Any, out: str | os.PathLike[str]) -> None:
    """Coordinates of new rows into a new Zarr array: written aside, renamed when whole."""
    model = model_of(estimator)
    target, partial = Path(out), Path(f"{os.fspath(out)}.partial")
    if target.exists():
        raise ExistingOutputError(f"{target}: exists already. Nothing was changed; choose another path")
    source, _ = row_source(X, estimator._run.root / "exchange", "query")
    _check_width(source, model, estimator)
    create_rows(partial, (source.shape[0], model.scaling.kept), np.float64, BATCH_ROWS, overwrite=True)
    map_blocks(extend_to_block, bounds(source.shape[0], BATCH_ROWS), source=source, model=model, out=str(partial))
    if target.exists():
        shutil.rmtree(partial)
        raise ExistingOutputError(f"{target}: was made by somebody else meanwhile. Nothing was changed")
    os.replace(partial, target)


def _check_width(source: RowSource, model: Model, estimator: Any) -> None:
    shape = shape_of(source, model.shape.metric)
    if shape.d != model.shape.d:
        raise InputError(
            f"X has {shape.d} features, but {type(estimator).__name__} is expecting {model.shape.d} features as input."
        )


def _check_names(estimator: Any, X: Any) -> None:
    fitted, given = getattr(estimator, "feature_names_in_", None), feature_names(X)
    if fitted is None or given is None:
        return
    if list(fitted) != list(given):
        unseen = [name for name in given if name not in set(fitted)]
        missing = [name for name in fitted if name not in set(given)]
        parts = ["The feature names should match those that were passed during fit."]
        if unseen:
            parts.append("Feature names unseen at fit time:\n- " + "\n- ".join(unseen[:5]))
        if missing:
            parts.append("Feature names seen at fit time, yet now missing:\n- " + "\n- ".join(missing[:5]))
        if not unseen and not missing:
            parts.append("Feature names must be in the same order as they were in fit.")
        raise InputError("\n".join(parts) + "\n")


def extend_to_block(start: int, stop: int, *, source: RowSource, model: Model, out: str) -> None:
    """Extend one batch and write it."""
    write_rows(out, start, extend_block(start, stop, source=source, model=model))


def extend_block(start: int, stop: int, *, source: RowSource, model: Model) -> Array:
    """Coordinates of rows ``start:stop``."""
    rows = prepare(source.read(start, stop), model.shape)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise InputError(
            f"Input contains NaN or infinity: {len(bad)} rows of {start}:{stop}, the first are rows "
            f"{(bad[:10] + start).tolist()}. Drop or impute them"
        )
    if model.shape.metric == "cosine" and (~rows.any(axis=1)).any():
        raise InputError(f"metric='cosine' is not defined for rows of zeros (in rows {start}:{stop})")
    return extend_rows(rows, model)


def extend_rows(rows: Array, model: Model) -> Array:
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
