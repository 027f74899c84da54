"""Maps: a folder for each family of methods, and what several of them share.

The methods by their names are here (a method is found by everything else through :data:`REGISTRY`), and what each
ends with: coordinates, written by blocks in the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from bigembed import _homes
from bigembed.errors import InputError, JobError, nearest
from bigembed.estimator.extension import leave_rows, restore
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.graph_rows import Repeats, repeats_of
from bigembed.neighbors.order import input_rows
from bigembed.rows import RowSource
from bigembed.rows.labels import Labels, classes_as_json
from bigembed.runtime.blocks import Array, block_rows, bounds, map_blocks, offsets
from bigembed.runtime.parameters import Functions
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.steps import REGISTRY as OWN_STEPS
from bigembed.steps import step as own_step
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.vector_space import tree_sum

CLASSES = {
    "alternating_diffusion_map": "AlternatingDiffusionMap",
    "classical_mds": "ClassicalMDS",
    "diffusion_map": "DiffusionMap",
    "hessian_lle": "HessianLLE",
    "isomap": "Isomap",
    "kernel_pca": "KernelPCA",
    "landmark_diffusion_map": "LandmarkDiffusionMap",
    "landmark_mds": "LandmarkMDS",
    "laplacian_eigenmaps": "LaplacianEigenmaps",
    "linear_discriminant": "LinearDiscriminantAnalysis",
    "linearized_diffusion_map": "LinearizedDiffusionMap",
    "linearized_diffusion_nmf": "LinearizedDiffusionNMF",
    "linearized_kernel_pca": "LinearizedKernelPCA",
    "local_tangent_space_alignment": "LocalTangentSpaceAlignment",
    "locally_linear_embedding": "LocallyLinearEmbedding",
    "modified_lle": "ModifiedLLE",
    "nmf": "NMF",
    "pacmap": "PaCMAP",
    "pca": "PCA",
    "phate": "PHATE",
    "spectral_clustering": "SpectralClustering",
    "truncated_svd": "TruncatedSVD",
    "tsne": "TSNE",
    "umap": "UMAP",
}
"""What each method is called in job files and saved models, and its class, which declares the same name."""
REGISTRY = {name: f"{_homes()[public]}:{public}" for name, public in CLASSES.items()}
"""Registered name of each method, and the place of its class."""


ABBREVIATIONS = {
    "dm": "diffusion_map",
    "fisher": "linear_discriminant",
    "hlle": "hessian_lle",
    "kpca": "kernel_pca",
    "lda": "linear_discriminant",
    "ldm": "linearized_diffusion_map",
    "lle": "locally_linear_embedding",
    "ltsa": "local_tangent_space_alignment",
    "mda": "linear_discriminant",
    "mds": "classical_mds",
    "mlle": "modified_lle",
    "spectral_embedding": "laplacian_eigenmaps",
    "svd": "truncated_svd",
}
"""What the field calls some methods; an error proposes their names here."""


def method(name: str) -> type[Any]:
    """The estimator class registered under ``name``; an unknown name is an error with the nearest known one."""
    module, _, attribute = REGISTRY[_known("method", name, sorted(REGISTRY))].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


STEPS = (*sorted(OWN_STEPS), "pca", "truncated_svd")
"""What can go before a method, by name: the steps, and the methods that make fewer columns of many."""


def step(name: str) -> type[Any]:
    """The class of a step; an unknown name is an error with the nearest known one."""
    return method_or_step(_known("step", name, STEPS))


def _known(kind: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        abbreviated = ABBREVIATIONS.get(name.lower())
        near = abbreviated if abbreviated in names else nearest(name, names)
        hint = f"; did you mean {near!r}?" if near else "."
        raise JobError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
    return name


def method_or_step(name: str) -> type[Any]:
    """The class of a method, or of a step, by its name."""
    return own_step(name) if name in OWN_STEPS else method(name)


def load(path: Any, functions: Functions = ()) -> Any:
    """Load the fitted estimator that ``save`` wrote, here or elsewhere; it extends to new rows as before.

    Parameters
    ----------
    path : path
        The path of a saved model: that of ``save``, or of ``[output] model`` in a job file.
    functions : mapping of str to function, or sequence
        What a model with a kernel or a metric of the user's own may call: a mapping from the name in it
        (``"module:name"``) to the function, or a list of modules (or of such names) that you trust. By default this is
        empty: nothing that a model names is imported.

    Returns
    -------
    estimator
        The estimator, of the class that was saved, with its fitted attributes.

    Raises
    ------
    MissingPathError
        If there is no such path.
    InputError
        If this is not a saved model, or it names a function which is not allowed.
    DamagedError
        If the model is incomplete, or of another format.

    Notes
    -----
    No pass over any rows; the model's arrays are read when they are asked for. Nothing is unpickled.

    Examples
    --------
    >>> import tempfile, numpy as np, bigembed as be
    >>> path = tempfile.mkdtemp() + "/model.zarr"
    >>> be.PCA(n_components=1).fit(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])).save(path)
    >>> be.load(path).transform(np.array([[6.0, 8.0]])).round(6).tolist()
    [[5.0]]
    """
    from bigembed.estimator.saving import load as load_model

    return load_model(path, method_or_step, functions)


# ------------------------------------------------------------------------------------------------------- coordinates
# What is written by blocks in the order of the input: coordinates, of eigenvectors, of blocks of a graph or of points
# of a map, and labels.

# ---------------------------------------------------------------------------------------------- fitted coordinates
# Coordinates of the fitted rows, written by blocks: from eigenvectors, or from what a pass left of each block.


def positive_weights(source: RowSource) -> Array | None:
    """Return the weights of all rows, (n,); None where they have none. InputError unless each is above 0."""
    if (given := source.aligned.get("weights")) is None:
        return None
    weights = np.concatenate([given.read(*span) for span in bounds(given.shape[0], given.block)]).astype(np.float64)
    if len(wrong := np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))):
        raise InputError(
            f"weights (sample_weight) must be finite and above 0: {len(wrong)} of {len(weights)} are not, the first of "
            f"rows {wrong[:10].tolist()}. Leave rows of weight zero out, which count for nothing"
        )
    return weights


def fitted_stage(n: int, m: int, dtype: Any, factor: float = 1.0, weights: RowSource | None = None) -> Stage:
    """``coordinates/embedding`` (n, m) = √λ v, as ``factor`` A λ from ``solve/matrix`` A = v/(factor √λ), by blocks.

    With ``weights`` w of the rows, A = w v/(factor √λ).
    """

    written = ArraySpec("embedding", n, m, dtype)
    cost = Cost.of([ArraySpec("matrix", n, m)], [written], task=[ArraySpec("coordinates", n, m, times=3)])
    run = partial(run_fitted, n=n, m=m, dtype=dtype, factor=factor, weights=weights)
    return Stage("coordinates", ("solve",), {"dtype": str(dtype)}, run, cost)


def run_fitted(
    context: Context, n: int, m: int, dtype: Any, factor: float, weights: RowSource | None
) -> dict[str, Any]:
    width, rows = context.results("solve")["n_components"], block_rows(m, 8)
    create_rows(context.path("embedding"), (n, width), dtype, rows)
    values = factor * read_array(context.of("solve", "eigenvalues"))
    paths = {"matrix": context.of("solve", "matrix"), "out": context.path("embedding")}
    map_blocks(fitted_block, bounds(n, rows), values=values, dtype=dtype, weights=weights, **paths)
    return {"n_components": width}


def fitted_block(
    start: int, stop: int, *, matrix: str, values: Any, out: str, dtype: Any, weights: RowSource | None
) -> None:
    """√λ v of some rows."""
    found = read_array(matrix, start, stop) * values
    if weights is not None:
        found /= np.asarray(weights.read(start, stop), np.float64)[:, None]
    write_rows(out, start, found.astype(dtype))


def write_finished(
    source: RowSource, exchange: Exchange, name: str, finish: Callable[[Array], Array], out: str, width: int, dtype: Any
) -> None:
    """An array (n, width) of what ``finish`` makes of the rows that each block left under ``name``."""
    create_rows(out, (source.shape[0], width), dtype, source.block, overwrite=True)
    spans = [(number, start) for number, (start, _) in enumerate(bounds(source.shape[0], source.block))]
    map_blocks(finished_block, spans, name=name, finish=finish, exchange=exchange, out=out)


def finished_block(
    number: int, start: int, *, name: str, finish: Callable[[Array], Array], exchange: Exchange, out: str
) -> None:
    """Finish and write one block."""
    write_rows(out, start, finish(exchange.piece(name, number, "own")))


# ------------------------------------------------------------------------------------------------- map coordinates
# Points of a map by blocks of its graph as coordinates: about their mean, in the order of the input.


@dataclass(frozen=True)
class Mapped:
    """What is known of a map once it is written."""

    low: Array
    high: Array
    """The box of all points."""
    repeated: int
    """Rows that have the coordinates of another one."""


def write_map(context: Context, graph: GraphShape, m: int) -> Mapped:
    """Write ``embedding`` (n, m) in the order of the input, and ``points`` by blocks of the graph, about their mean.

    Rows that are equal have the coordinates of the first of them.
    """
    rows, exchange = tuple(context.results("kernel")["rows"]), context.exchange
    blocks, points = [(b,) for b in range(len(rows))], context.of("descent", "points")
    mean = tree_sum(map_blocks(sum_block, blocks, points=points)) / graph.n
    out_rows = block_rows(m, 8)
    shared: dict[str, Any] = {"points": points, "mean": mean, "rows": rows, "exchange": exchange}
    order = context.of("order") if graph.ordered else ""
    repeats = repeats_of(context) if not graph.weighted else None
    found = map_blocks(
        points_block, blocks, order=order, repeats=repeats, out=context.path("points"), out_rows=out_rows, **shared
    )
    create_rows(context.path("embedding"), (graph.n, m), np.float64, out_rows)
    restore(exchange, len(rows), ("embedding",), graph.n, out_rows, context.path(""))
    low, high = np.min([box[0] for box, _ in found], axis=0), np.max([box[1] for box, _ in found], axis=0)
    return Mapped(low, high, sum(count for _, count in found))


def box_of(points: Array) -> Array:
    """Return the least and the largest of each coordinate, (2, m)."""
    columns = np.ascontiguousarray(points.T)  # (30 times as quick as along the rows)
    return np.stack([columns.min(axis=1), columns.max(axis=1)])


def sum_block(b: int, *, points: str) -> Array:
    """Σ y of one block."""
    return np.asarray(read_array(f"{points}/{b}").sum(axis=0))


def points_block(
    b: int, *, points: str, mean: Array, rows: tuple[int, ...], order: str, repeats: Repeats | None, out: str,
    out_rows: int, exchange: Exchange,
) -> tuple[Array, int]:  # fmt: skip
    """Write the points of a block about the mean, and leave them for the output; their box, and how many repeat."""
    starts = offsets(rows)
    found, repeated = read_array(f"{points}/{b}"), 0
    if repeats is not None:
        again, firsts = repeats.block(b)
        found[again] = read_by_id(points, starts.tolist(), firsts)
        repeated = len(again)
    found = found - mean
    write_array(f"{out}/{b}", found)
    ids = input_rows(order, b, starts)
    leave_rows(exchange, b, ids, {"embedding": found}, int(starts[-1]), out_rows)
    return box_of(found), repeated


# ----------------------------------------------------------------------------------------------------- coordinates
# Coordinates by the blocks of a graph, written in the order of the input.


class GraphCoordinates(Protocol):
    """Where a task finds the coordinates of fitted rows. Small and picklable."""

    @property
    def starts(self) -> Sequence[int]:
        """First row of each block of the graph, and n."""

    @property
    def width(self) -> int:
        """Coordinates of a row."""

    @property
    def labels(self) -> str:
        """Where the component of each row lies."""

    def block(self, b: int) -> Array:
        """Those of the rows of a block, (rows, width)."""

    def of_rows(self, ids: Array) -> Array:
        """Those of rows by their numbers in the graph, which others take, (len(ids), width)."""


def write_coordinates(
    context: Context,
    found: GraphCoordinates,
    order: str | None,
    replaced: bool,
    parts: int = 1,
    island: int | None = None,
    labels: str = "",
) -> None:
    """``embedding`` (n, width) and ``labels`` (n,); ``order``: where the graph says it, None for that of the input.

    ``replaced``: :func:`~bigembed.maps.graph_rows.find_replaced` left which rows take those of another one.
    ``island``: the label that rows outside the first ``parts`` components get; None leaves their own. ``labels``: where
    these components lie, if they are not those of ``found``.
    """
    blocks, n, out_rows = len(found.starts) - 1, int(found.starts[-1]), block_rows(found.width, 8)
    map_blocks(
        coordinates_block,
        [(b,) for b in range(blocks)],
        found=found,
        order=order,
        replaced=replaced,
        parts=parts,
        island=island,
        labels=labels or found.labels,
        out_rows=out_rows,
        exchange=context.exchange,
    )
    create_rows(context.path("embedding"), (n, found.width), np.float64, out_rows)
    create_rows(context.path("labels"), (n,), np.int32, out_rows)
    restore(context.exchange, blocks, ("embedding", "labels"), n, out_rows, context.path(""))


def coordinates_block(
    b: int,
    *,
    found: GraphCoordinates,
    order: str | None,
    replaced: bool,
    parts: int,
    island: int | None,
    labels: str,
    out_rows: int,
    exchange: Exchange,
) -> None:
    """The coordinates of one block, with those that its rows take of others, left for each block of the output."""
    label, coordinates = read_array(f"{labels}/{b}"), found.block(b)
    if replaced:
        rows, others = exchange.get_many("nearest", b, ["rows", "ids"])
        coordinates[rows] = found.of_rows(others)
    label = label if island is None else np.where(label < parts, label, np.int32(island))
    ids = input_rows(order, b, found.starts)
    leave_rows(exchange, b, ids, {"embedding": coordinates, "labels": label}, int(found.starts[-1]), out_rows)


# ------------------------------------------------------------------------------------------------------------ labels

LABEL_ROWS = 1 << 18


def labels_stage(labels: Labels) -> Stage:
    """``labels/codes`` (n,): the number of each row's class, −1 for none. Results: the classes and their sizes."""

    n = len(labels.codes)
    return Stage(
        "labels",
        (),
        {"labels": labels.fingerprint()},
        partial(run_labels, labels=labels),
        Cost.of(writes=[ArraySpec("codes", n, dtype="i4")], coordinator=[ArraySpec("codes", n, dtype="i4", times=5)]),
    )


def run_labels(context: Context, labels: Labels) -> dict[str, Any]:
    n = len(labels.codes)
    create_rows(context.path("codes"), (n,), np.int32, LABEL_ROWS, overwrite=True)
    for start, stop in bounds(n, LABEL_ROWS):
        write_rows(context.path("codes"), start, labels.codes[start:stop])
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    return {**classes_as_json(labels.classes), "sizes": sizes.tolist(), "missing": len(labels.missing)}
