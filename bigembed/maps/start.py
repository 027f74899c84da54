"""Where the rows of a map by attraction and repulsion start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, InputError
from bigembed.estimator.graph_input import GraphShape
from bigembed.estimator.moments import moments_of_block
from bigembed.linalg import CovarianceOperator, eigenpairs, lanczos
from bigembed.linalg.moments import merge_moments
from bigembed.maps.graph_rows import OrderedRows, OrderedValues
from bigembed.maps.linear.principal import GRAM_COLUMNS, principal_directions
from bigembed.neighbors.order import Ordered, input_rows
from bigembed.neighbors.row_weights import values_path
from bigembed.rows import RowSource, passes, row_maps
from bigembed.rows.input import in_memory, row_source
from bigembed.runtime.blocks import Array, bounds, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer, largest, rows_of, window_of
from bigembed.stages.cost import sums_of_groups
from bigembed.store import at
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange

SIZE = 1e-4
"""Standard deviation of the first coordinate."""
STREAM = 31
"""Of random numbers."""
RULES = ("auto", "pca", "spectral", "random")
CARRIED = 0.05
"""Least participation of each eigenvector that a map starts from, as a share of the rows.

Of a set that an eigenvector tells from all others it is the share of the set: the other rows, all at one place, would
have to find theirs by chance. Eigenvectors of digits, MNIST, a swiss roll, Gaia's stars, a mammoth and cells have .1 to
.65; those that single out islands among places on a sphere .02 and less.
"""


def start_of(init: Any) -> str | RowSource:
    """Return what a map is asked to start from: a rule, or coordinates (an array, or the path of one)."""
    if isinstance(init, str) and init in RULES:
        return init
    try:
        if not in_memory(init):
            return row_source(init, at("."))[0]
        array = np.asarray(init, np.float64)
    except (BigembedError, TypeError, ValueError) as error:
        allowed = ", ".join(map(repr, RULES))
        raise InputError(f"init: {error}. Allowed: {allowed}, an array (n, m), or the path of one") from error
    return RowSource(array.shape, array.dtype, array=array)


def not_followed(init: Any, found: Mapping[str, Any]) -> list[str]:
    """Return what to warn of a map that starts by another rule than was asked; ``found``: the results of its start."""
    taken, reason = found["start"], found.get("reason", "")
    if isinstance(init, str) and init in RULES and init not in ("auto", taken):
        without = "there are no rows, only a graph" if init == "pca" else "there are as few rows as coordinates"
        return [f"init={init!r} was not followed: {reason or without}. The map starts as by init={taken!r}"]
    if taken == "spectral" and reason:
        return [
            f"the map starts from eigenvectors, of which {reason}, and without rows there is no better start: groups "
            "may lie on top of each other. Give coordinates as init, or leave these nodes out"
        ]
    return []


@dataclass(frozen=True)
class Scale:
    """How large a start by a rule is, and when eigenvectors serve for one."""

    deviation: float = SIZE
    """Standard deviation of the first coordinate; of each by eigenvectors."""
    farthest: float = np.inf
    """Deviations from the mean at the most: rows beyond are put there."""
    connected: float = 0.0
    """Share of the rows in the largest component from which its eigenvectors serve; else principal coordinates do."""

    def apply(self, points: Array) -> Array:
        """Return points of the size :data:`SIZE`, scaled."""
        if self == SMALL:
            return points
        most = self.farthest * self.deviation
        return np.clip(points * (self.deviation / SIZE), -most, most)


SMALL = Scale()
"""As t-SNE has it."""


def start_stage(graph: GraphShape, m: int, start: str | RowSource, seed: int, scale: Scale = SMALL) -> Stage:
    """``start/points`` (rows, m) by blocks of the graph: by a rule, or coordinates in the order of the input."""
    n, d, block, spectral = graph.n, graph.width, min(graph.n, graph.block), start == "spectral"
    source = OrderedRows((n, d), np.dtype(np.float64))
    pca = start == "pca" or (spectral and not graph.rowless)
    size = 8 * d * (d if d <= GRAM_COLUMNS else 1)
    made = [*window_of(source), buffer("sums", 4 * size)] if pca else []
    of_block = [ArraySpec("points", block, m, times=3), ArraySpec("rows", block * pca, source.row_bytes, "u1", 3)]
    cost = Cost.of(
        reads=[rows_of(source, 2 * pca), ArraySpec("coordinates", n, m, times=2)],
        writes=[ArraySpec("points/*", n, m)],
        leaves=sums_of_groups(source, size) if pca else (),
        task=largest(made, of_block),
        coordinator=[buffer("sums", 6 * size * pca)],
        passes=2 * pca,
        flops=2 * n * d * min(d, GRAM_COLUMNS) if pca else 0,
    )
    rule = start.fingerprint() if isinstance(start, RowSource) else start
    parameters = {"start": rule, "n_components": m, "seed": seed}
    if scale != SMALL and isinstance(start, str):
        parameters |= asdict(scale)
    if spectral:
        parameters["carried"] = CARRIED
    inputs = (
        "kernel",
        *(("order",) if graph.ordered else ()),
        *(("solve",) if spectral else ()),
        *(("components",) if spectral and scale.connected else ()),
        *graph.vectors,
    )
    call = partial(run_start, graph=graph, m=m, start=start, seed=seed, scale=scale)
    return Stage("start", inputs, parameters, call, cost)


def run_start(
    context: Context, graph: GraphShape, m: int, start: str | RowSource, seed: int, scale: Scale
) -> dict[str, Any]:
    rows, rule, reason = context.results("kernel")["rows"], start, ""
    mass = values_path(context)
    blocks = [(b,) for b in range(len(rows))]
    shared: dict[str, Any] = {"m": m, "seed": seed, "out": context.path("points"), "scale": scale}
    if rule == "spectral":
        vectors = context.of("solve", "right")
        moments = np.sum(map_blocks(spectral_moments, blocks, vectors=vectors, m=m, mass=mass), axis=0)
        reason = localized(moments, graph.n)
        if graph.rowless and (participation(moments, graph.n) >= CARRIED).any():
            reason = ""  # (one that spreads the rows is enough: such maps are as good as from principal coordinates)
        if scale.connected and context.results("components")["sizes"][0] < scale.connected * graph.n:
            reason = "the graph is in several parts"
        if reason and not graph.rowless:
            context.note(f"{reason}: principal coordinates to start from")
            rule = "pca"
    if isinstance(rule, RowSource):
        source, order = rule, context.of("order") if graph.ordered else ""
        if source.array is not None:  # (tasks may be in other processes)
            source, _ = row_source(source.array, at(context.exchange.root), "start")
        map_blocks(given_block, blocks, source=source, order=order, rows=tuple(rows), out=context.path("points"))
    elif rule == "pca":
        ordered = Ordered.open(context.of("order"))
        mean, matrix = leading(ordered, graph.n, graph.width, m, seed, context.exchange, mass)
        map_blocks(principal_block, blocks, ordered=ordered, mean=mean, matrix=matrix, **shared)
    elif rule == "spectral":
        map_blocks(spectral_block, blocks, vectors=vectors, sizes=np.sqrt(moments[0] / graph.n), **shared)
    else:
        map_blocks(random_block, [(b, count) for b, count in enumerate(rows)], **shared)
    return {"start": rule if isinstance(rule, str) else "array", "reason": reason, "seed": seed}


def leading(
    ordered: Ordered, n: int, d: int, m: int, seed: int, exchange: Exchange, mass: str = ""
) -> tuple[Array, Array]:
    """Return the mean (d,), and principal directions (d, ≤ m) that give coordinates of size :data:`SIZE`.

    Directions without variance are left out. ``mass``: where the rows have their masses, of mean 1, if they count.
    """
    weights = OrderedValues((n,), np.dtype(np.float64), path=mass, starts=ordered.starts)
    source = OrderedRows(
        (n, d), ordered.rows(0, 0, 1).dtype, ordered=ordered, aligned={"weights": weights} if mass else {}
    )
    diagonal = d > GRAM_COLUMNS
    size = 8 * d * (1 if diagonal else d)
    found = passes.reduce_rows(
        source,
        moments_of_block,
        exchange,
        combine=merge_moments,
        partial_bytes=size,
        label="moments",
        diagonal=diagonal,
    )
    mean, count = found["mean"], min(m, n, d)
    if diagonal:
        operator = CovarianceOperator(source, mean, float(n), exchange)
        result = lanczos.solve_lanczos(
            operator, count, tol=1e-3, seed=seed, max_passes=60, block=count + 8, relative=True
        )
        values, vectors = result.eigenvalues, operator.space.read("V", 0)[:, :count]
    else:
        values, vectors = principal_directions(found["scatter"] / n)
    kept = int(np.count_nonzero(values[:count] > 1e-12 * values[0]))
    vectors = vectors[:, :kept] * eigenpairs.extremes(vectors[:, :kept])[1]
    return mean, vectors * (SIZE / np.sqrt(values[0]) if kept else 1.0)


def principal_block(
    b: int, *, ordered: Ordered, mean: Array, matrix: Array, m: int, seed: int, scale: Scale, out: str
) -> None:
    """Write principal coordinates of a block; random where there are fewer than m."""
    points = random_points(b, ordered.size(b), m, seed)
    if matrix.shape[1]:
        points[:, : matrix.shape[1]] = row_maps.affine_block(ordered.rows(b), mean, matrix)
    write_array(f"{out}/{b}", scale.apply(points))


def spectral_moments(b: int, *, vectors: str, m: int, mass: str = "") -> Array:
    """Return Σ r² and Σ r⁴ of the eigenvectors of one block, (2, m), of rows that count by their masses."""
    right = read_array(f"{vectors}/{b}")[:, :m]
    if mass:
        masses = read_array(f"{mass}/{b}")
        return np.stack([masses @ right**2, masses @ right**4])
    return np.stack([np.einsum("ij,ij->j", right, right), (right**4).sum(axis=0)])


def localized(moments: Array, n: int) -> str:
    """Say which eigenvectors few of the n rows carry, by their :func:`spectral_moments`; nothing where none is.

    >>> localized(np.array([[4.0, 4.0], [4.0, 16.0]]), 4), localized(np.array([[100.0], [10_000.0]]), 100)
    ('', 'coordinate 1 shows 1 % of the rows against all others')
    """
    share = participation(moments, n)
    least = int(share.argmin()) if len(share) else 0
    if not len(share) or share[least] >= CARRIED:
        return ""
    return f"coordinate {least + 1} shows {100 * share[least]:.2g} % of the rows against all others"


def participation(moments: Array, n: int) -> Array:
    """Return the share of the n rows that carries each eigenvector, 1 of one that is 0.

    >>> participation(np.array([[4.0, 4.0, 0.0], [4.0, 16.0, 0.0]]), 4).tolist()
    [1.0, 0.25, 1.0]
    """
    second, fourth = moments
    return np.where(fourth > 0, second**2 / np.where(fourth > 0, n * fourth, 1.0), 1.0)


def spectral_block(b: int, *, vectors: str, sizes: Array, m: int, seed: int, scale: Scale, out: str) -> None:
    """Write eigenvectors of a block, each of size :data:`SIZE`; what rounding leaves equal differs by 1 % of that."""
    right = read_array(f"{vectors}/{b}")[:, :m]
    points = 0.01 * random_points(b, len(right), m, seed)
    points[:, : right.shape[1]] += right * np.where(sizes > 0, SIZE / np.where(sizes > 0, sizes, 1.0), 0.0)
    write_array(f"{out}/{b}", scale.apply(points))


def random_block(b: int, count: int, *, m: int, seed: int, scale: Scale, out: str) -> None:
    """Write normal numbers."""
    write_array(f"{out}/{b}", scale.apply(random_points(b, count, m, seed)))


def random_points(b: int, count: int, m: int, seed: int) -> Array:
    """Return normal numbers of standard deviation :data:`SIZE`, (count, m), of a block."""
    return SIZE * np.random.default_rng([seed, STREAM, b]).normal(size=(count, m))


def given_block(b: int, *, source: RowSource, order: str, rows: tuple[int, ...], out: str) -> None:
    """Write the given coordinates of a block of the graph; reads all of them, a block at a time."""
    ids = input_rows(order, b, offsets(rows))
    points = np.empty((len(ids), source.width))
    for low, high in bounds(source.shape[0], source.block):
        here = np.flatnonzero((ids >= low) & (ids < high))
        if len(here):
            points[here] = source.matrix(low, high)[ids[here] - low]
    if not np.isfinite(points).all():
        wrong = np.sort(ids[~np.isfinite(points).all(axis=1)])[:10].tolist()
        raise InputError(f"init holds NaN or infinity, first in rows {wrong}; coordinates to start from must be finite")
    write_array(f"{out}/{b}", points)
