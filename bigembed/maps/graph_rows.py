"""The rows of a graph in its order, those that take the coordinates of others, samples, and new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bigembed.errors import InputTypeError
from bigembed.maps.landmark_rows import LandmarkChoice
from bigembed.neighbors.components import embedded_block, nearest_embedded
from bigembed.neighbors.given import GIVEN
from bigembed.neighbors.given.query import AnyIndex, GivenIndex, any_index_of, join_parts, joining_memory
from bigembed.neighbors.graph_blocks import REPEATS, repeats_in
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Joined, in_row_order, locate_blocks
from bigembed.neighbors.row_weights import values_path
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.neighbors.survey import SCALED, Shape, kind_of_fitted, prepare, refuse_inadmissible, shape_in
from bigembed.neighbors.views import APART, SECOND, VIEWS
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import LEAST_32, MOST_32, refuse_block, refuse_size
from bigembed.runtime.blocks import BLOCK_BYTES, Array, is_sparse, map_blocks, offsets, owner_of
from bigembed.stages import Context, PartOfRun, Run
from bigembed.store.arrays import read_array, read_by_id, read_rows, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.manifests import Manifest
from bigembed.store.matrix import STRUCTURE, StoredMatrix
from bigembed.store.parcels import stacked

# -------------------------------------------------------------------------------------------------------- new rows
# New rows beside those of a graph: made ready as they were, and brought to the blocks that they belong to.


class Located(Protocol):
    """A model whose new rows are located among the fitted ones, which were rows."""

    @property
    def index(self) -> AnyIndex:
        """Where the fitted rows are."""

    @property
    def shape(self) -> Shape:
        """What the fitted rows were like."""


def block_of_rows(rows: Array, model: Located, start: int) -> Array:
    """The block of the fitted rows that each new row belongs to, as they were ordered; ``start`` numbers the first."""
    refuse_block(RowBlock(0, start, rows))
    assert not isinstance(model.index, GivenIndex)
    ready = ready_rows(rows, model.shape, start)
    return locate_blocks(ready, Ordered.open(model.index.order), model.index.centers)


def fitted_shape(run: Run, metric: Any = None) -> Shape:
    """What the fitted rows were like; InputTypeError where a user's weights were fitted, which have no rows."""
    survey = run.results("survey") if run.has("survey") else {"metric": GIVEN}
    if survey["metric"] == GIVEN and not survey.get("all_pairs") and not run.has("survey"):
        raise InputTypeError(
            "transform needs the rows that were fitted; this map was fitted to a user's weights, which "
            "have no place for new rows. Fit the rows, or distances, or their lengths along the edges of a graph"
        )
    if survey["metric"] == GIVEN and not survey.get("all_pairs") and "reach" not in run.results("graph"):
        raise InputTypeError(
            "transform of this map of a user's graph of distances needs to know how far its rows list others, which "
            "earlier versions did not keep. Fit it again"
        )
    return shape_in(survey, metric)


def ready_rows(rows: Any, shape: Shape, start: int = 0) -> Any:
    """New rows as the fitted ones were made ready for the search, sparse ones with their sketches; given distances.

    ``start`` numbers the first row, for errors.
    """
    if shape.metric == GIVEN:
        return rows
    rows = kind_of_fitted(rows, shape)
    values = rows.data if is_sparse(rows) else rows
    if shape.metric not in SCALED and shape.dtype == "float32" and (size := _size(values)) > MOST_32:
        refuse_size(size, MOST_32, LEAST_32)
    refuse_inadmissible(rows, shape, start)
    return prepare(rows, shape)


def _size(values: Array) -> float:
    return float(np.abs(values).max(initial=0))


# ---------------------------------------------------------------------------------------------------- ordered rows
# The rows of a graph in its order, and their coordinates, as sources of rows.


@dataclass(frozen=True)
class OrderedRows(RowSource):
    """The rows in the order of the graph."""

    ordered: Ordered | None = None

    def read(self, start: int, stop: int) -> Array:
        """Rows ``start:stop``."""
        assert self.ordered is not None
        parts = [self.ordered.rows(b, low, high) for b, low, high in spans_of(self.ordered.starts, start, stop)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def grain(self) -> int:
        return 1

    def fingerprint(self) -> str:
        return ""  # (the stage that they are read in depends on their order)


@dataclass(frozen=True)
class OrderedValues(RowSource):
    """A number for each row in the order of the graph, in an array for each block at the path."""

    starts: tuple[int, ...] = ()

    def read(self, start: int, stop: int) -> Array:
        """Those of the rows ``start:stop``."""
        parts = [read_array(f"{self.path}/{b}", low, high) for b, low, high in spans_of(self.starts, start, stop)]
        return np.concatenate(parts)

    @property
    def grain(self) -> int:
        return 1

    def fingerprint(self) -> str:
        """Nothing: the stage that reads them has that of the weights among its inputs."""
        return ""


@dataclass(frozen=True)
class OrderedSparse(OrderedRows):
    """Sparse rows, as they are compared, in the order of the graph."""

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop`` as a CSR array."""
        assert self.ordered is not None
        return stacked([self.ordered.compared(*span) for span in spans_of(self.ordered.starts, start, stop)])

    def matrix(self, start: int, stop: int) -> Any:
        """The same rows, which are in the work dtype."""
        return self.read(start, stop)

    @property
    def sparse(self) -> bool:
        return True

    @property
    def block(self) -> int:
        """Rows of a canonical block."""
        assert self.ordered is not None
        return max(self.ordered.rows_of)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row is planned with."""
        return max(1, BLOCK_BYTES // self.block)


def compared_rows(ordered: Ordered, d: int) -> OrderedRows:
    """The rows of a graph, of d columns, in its order, as distances are taken of them."""
    n, dtype = ordered.starts[-1], ordered.rows(0, 0, 1).dtype
    if ordered.columns:
        return OrderedSparse((n, ordered.columns), dtype, ordered=ordered)
    return OrderedRows((n, d), dtype, ordered=ordered)


def comparison(by: ByMetric | None) -> dict[str, Any]:
    """How the rows of a graph are compared, for :func:`~bigembed.quality.preserved`."""
    return {} if by is None else {"metric": by.metric, "mapped": True}


@dataclass(frozen=True)
class InOrder(RowSource):
    """Coordinates that lie at a path in the order of the input, in the order of the graph."""

    ordered: Ordered | None = None

    def read(self, start: int, stop: int) -> Array:
        """Coordinates of rows ``start:stop`` of the graph."""
        assert self.ordered is not None
        assert self.path is not None
        spans = spans_of(self.ordered.starts, start, stop)
        ids = np.concatenate([self.ordered.ids(b)[low:high] for b, low, high in spans])
        return read_rows(self.path, ids)

    @property
    def grain(self) -> int:
        return 1


def ordered_weights(context: Context, starts: Sequence[int]) -> OrderedValues | None:
    """The weights of the rows in the order of a graph; None where they have none."""
    path = values_path(context)
    known = tuple(map(int, starts))
    return OrderedValues((known[-1],), np.dtype(np.float64), path=path, starts=known) if path else None


def spans_of(starts: Sequence[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The blocks that hold the rows ``start:stop``: number, and first and last row in it."""
    first = int(owner_of(starts, start))
    spans = []
    for b in range(first, len(starts) - 1):
        if starts[b] >= stop:
            break
        low, high = max(start, starts[b]), min(stop, starts[b + 1])
        spans.append((b, low - starts[b], high - starts[b]))
    return spans


# -------------------------------------------------------------------------------------------------------- replaced
# Rows that take the coordinates of another row: those outside the components that are embedded, and repeated ones.
#
# Which of many equal rows are neighbors is decided by their numbers, so that their eigenvector entries differ a
# little. They are one point: all have the coordinates of the first.

NAMED = 5
"""Rows that a warning names."""


def find_replaced(
    context: Context, order: str, parts: int = 1, repeats: Repeats | None = None, by: ByMetric | None = None
) -> list[tuple[int, int]]:
    """Find the rows that take the coordinates of another one: how many of each block are outside, and repeated."""
    ordered, labels = Ordered.open(order), context.of("components", "labels")
    blocks = [(b,) for b in range(len(ordered.blocks))]
    fixed: dict[str, Any] = {"ordered": ordered, "labels": labels, "parts": parts}
    outside = parts < context.results("components")["components"]
    embedded = np.concatenate(map_blocks(embedded_block, blocks, **fixed)) if outside else None
    return map_blocks(fill_block, blocks, exchange=context.exchange, repeats=repeats, by=by, embedded=embedded, **fixed)


def first_replaced(filled: list[tuple[int, int]], ordered: Ordered, exchange: Exchange) -> list[int]:
    """Numbers in the input of the first :data:`NAMED` rows that were placed by their nearest row."""
    ids = [ordered.ids(b)[exchange.piece("nearest", b, "rows")[:count]] for b, (count, _) in enumerate(filled) if count]
    return np.sort(np.concatenate(ids))[:NAMED].tolist()  # type: ignore[no-any-return]


def fill_block(
    b: int,
    *,
    ordered: Ordered,
    labels: str,
    exchange: Exchange,
    parts: int,
    repeats: Repeats | None,
    by: ByMetric | None,
    embedded: Array | None,
) -> tuple[int, int]:
    """Leave the rows of block b that take the coordinates of another one, and the internal ids of these; how many.

    Rows outside the first ``parts`` components take those of their nearest row in these; rows that repeat another one
    take those of the first such row.
    """
    label = read_array(f"{labels}/{b}")
    outside = np.flatnonzero(label >= parts)
    nearest = np.zeros(0, np.int64)
    if len(outside):
        offsets, _ = ordered.cells(b)
        cell = owner_of(offsets, outside)
        rows = ordered.located(b)[outside]
        nearest = nearest_embedded(ordered, labels, rows, np.full(len(cell), b), cell, parts, by, embedded)
    repeated, firsts = repeats.block(b) if repeats else (outside[:0], nearest[:0])
    inside = label[repeated] < parts
    repeated, firsts = repeated[inside], firsts[inside]
    pieces = {"rows": np.concatenate([outside, repeated]), "ids": np.concatenate([nearest, firsts])}
    exchange.put("nearest", b, pieces)
    return len(outside), len(repeated)


def repeats_opened(graph: Manifest | None) -> tuple[str, ...]:
    """Return the arrays of a graph that tell which rows repeat others: none where no two are equal."""
    if graph is None or not graph.results.get("zero_edges"):
        return ()
    return (REPEATS,) if REPEATS in graph.arrays else (*STRUCTURE, "squared", APART)  # (of an earlier version)


@dataclass(frozen=True)
class Repeats:
    """Where a task finds which rows of a graph equal others."""

    path: str
    starts: tuple[int, ...]
    lengths: StoredMatrix | None = None
    """Lengths of the edges of a graph that an earlier version made: it did not write down which rows repeat others."""

    def block(self, b: int) -> tuple[Array, Array]:
        """Return rows of block b that repeat another one, and the first of the rows that equal each."""
        if self.lengths is None:
            found = read_array(f"{self.path}/{b}")
        else:
            found = repeats_in(b, self.lengths.block(b), self.starts)
        return found[:, 0], found[:, 1]


def repeats_of(context: Context) -> Repeats | None:
    """Return which rows repeat others, by the edges of length 0; None if there are none."""
    name, values = (VIEWS, APART) if context.home.has(VIEWS) else ("graph", "squared")
    found = context.home.manifest(name)
    if not found.results["zero_edges"]:
        return None
    if REPEATS not in found.arrays:
        lengths = context.home.matrix(name, values)
        return Repeats("", tuple(offsets(lengths.rows).tolist()), lengths)
    return Repeats(context.of(name, REPEATS), ())


def keep_block(b: int, *, exchange: Exchange, out: str) -> None:
    """Keep which rows of block b were placed (``outside``), and by which ones (``nearest``, internal ids)."""
    for name, key in (("outside", "rows"), ("nearest", "ids")):
        write_array(f"{out}{name}/{b}", exchange.piece("nearest", b, key))


# ------------------------------------------------------------------------------------------------ component sample
# Sampled rows of one component of a graph, from which landmarks are then chosen.


def component_sample(
    ordered: Ordered,
    labels: str,
    component: int,
    choice: LandmarkChoice,
    row_bytes: int,
    exchange: Exchange,
    with_rows: bool = True,
    weights: str = "",
) -> dict[str, Array]:
    """The rows that a choice looks at in a component: ``ids`` in the order of the graph, ``original`` in that of the
    input, and ``rows`` themselves. ``weights``: where the rows have weights, by which they are drawn then."""
    blocks = [(b,) for b in range(len(ordered.blocks))]
    first = offsets(map_blocks(count_block, blocks, labels=labels, component=component))
    masses = None
    if weights:
        masses = np.concatenate(map_blocks(masses_block, blocks, labels=labels, component=component, weights=weights))
    ranks = choice.sample(int(first[-1]), row_bytes, masses)
    parts = np.split(ranks, np.searchsorted(ranks, first[1:-1]))
    tasks = [(b, part - first[b]) for b, part in enumerate(parts) if len(part)]
    fixed: dict[str, Any] = {"labels": labels, "component": component, "with_rows": with_rows}
    map_blocks(pick_block, tasks, ordered=ordered, exchange=exchange, **fixed)
    found = [exchange.get_all("picked", b) for b, _ in tasks]
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def count_block(b: int, *, labels: str, component: int) -> int:
    """Rows of a component in a block."""
    return int(np.count_nonzero(read_array(f"{labels}/{b}") == component))


def masses_block(b: int, *, labels: str, component: int, weights: str) -> Array:
    """Weights of the rows of a component in a block."""
    return np.asarray(read_array(f"{weights}/{b}")[read_array(f"{labels}/{b}") == component])


def pick_block(
    b: int, ranks: Array, *, ordered: Ordered, labels: str, component: int, with_rows: bool, exchange: Exchange
) -> None:
    """Leave the rows of a component that have the given ranks within the block."""
    local = np.flatnonzero(read_array(f"{labels}/{b}") == component)[ranks]
    pieces = {"ids": local + ordered.starts[b], "original": ordered.ids(b)[local]}
    exchange.put("picked", b, pieces | ({"rows": ordered.rows(b)[local]} if with_rows else {}))


@dataclass(frozen=True)
class View:
    """How new rows of a view find their edges to the fitted ones."""

    index: AnyIndex
    shape: Shape
    ids: str = ""
    """Where the numbers of its rows in the order of the first view lie, by its own blocks; empty of the first."""
    starts: tuple[int, ...] = ()

    @property
    def n_neighbors(self) -> int:
        """Neighbors of a row."""
        return self.index.n_neighbors  # type: ignore[union-attr]

    def edges(self, rows: Array) -> Joined:
        """Return the edges of new rows of this view."""
        return in_row_order(list(join_parts(ready_rows(rows, self.shape), self.index)), np.dtype(np.float64))

    def in_first(self, ids: Array) -> Array:
        """Return the numbers in the order of the first view of fitted rows by their numbers in this one."""
        return read_by_id(self.ids, self.starts, ids) if self.ids else ids

    def memory(self, rows: int) -> int:
        """Return the bytes that :meth:`edges` holds for so many rows."""
        return joining_memory(self.index, self.shape, rows)


def views_of(run: Run, metric: Any = None) -> tuple[View, View]:
    """Return both views of a fitted run; ``metric``: as the caller gave it."""
    part = PartOfRun(run, SECOND)
    shapes = [shape_in(one.results("survey"), metric) for one in (run, part)]
    starts = tuple(Ordered.open(part.path("order")).starts)
    first, second = (any_index_of(one, shape) for one, shape in zip((run, part), shapes, strict=True))
    return View(first, shapes[0]), View(second, shapes[1], run.path(VIEWS, "ids"), starts)


class OfViews(Protocol):
    """A model of two views."""

    @property
    def views(self) -> tuple[View, View]:
        """How new rows find their edges."""


def split_rows(rows: Array, model: OfViews) -> list[Array]:
    """Return the columns of each view."""
    return np.split(rows, [model.views[0].shape.d], axis=1)


def block_of_first(rows: Array, model: OfViews, start: int) -> Array:
    """Return the block of the first view that each new row belongs to; ``start`` numbers the first row."""
    refuse_block(RowBlock(0, start, rows))
    index: Any = model.views[0].index
    given = ready_rows(split_rows(rows, model)[0], model.views[0].shape, start)
    return locate_blocks(given, Ordered.open(index.order), index.centers)
