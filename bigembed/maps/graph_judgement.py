"""The stage that measures how well a map on a graph, or of rows, keeps the neighborhoods of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import MAX_SOLVED, GraphShape, least_rows
from bigembed.maps.graph_rows import InOrder, OrderedValues, compared_rows, comparison, ordered_weights
from bigembed.neighbors.components import shortest_bridges
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.neighbors.survey import Shape
from bigembed.neighbors.views import VIEWS
from bigembed.quality import cost_of, preserved
from bigembed.quality.passes import EUCLIDEAN, DistancesToSample, Space, distances_block
from bigembed.rows import RowBlock, RowSource, derived, opening, row_maps, rows_at
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store import at
from bigembed.store.arrays import create_rows, read_array, read_by_id, write_rows

# --------------------------------------------------------------------------------------------------------- joining
# With how many neighbors, or what radius, the parts of a graph would join: what the advice names.


def joined_at(context: Context, stage: str, d: int, by: ByMetric | None) -> dict[str, Any]:
    """The ``n_neighbors`` and the ``radius`` that join all parts of a graph by the shortest edges between components.

    ``stage`` has found the components. What joins them is enough; other edges may join the parts with fewer neighbors.
    Nothing where there is one part, or so many components that nobody would join them. Cost: the search for bridges,
    and a pass over the ordered rows.
    """
    ordered, found = Ordered.open(context.of("order")), context.results(stage)
    n = int(ordered.starts[-1])
    parts = sum(size >= least_rows(n) for size in found["sizes"])
    if parts < 2 or found["components"] > MAX_SOLVED:
        return {}
    labels, count = context.of(stage, "labels"), found["components"]
    edges = shortest_bridges(count, count, ordered, labels, by)
    ends = edges[:, :2].astype(np.int64)
    owner = read_by_id(labels, ordered.starts, ends.ravel()).reshape(-1, 2)
    ranks = _ranks(context, ordered, d, by, ends).min(axis=0)
    reach = _reach(owner, ranks, parts)
    longest = _reach(owner, edges[:, 2], parts)
    return {"parts": parts, "n_neighbors": int(reach), "radius": float(np.sqrt(longest))}


def _reach(owner: Array, values: Array, parts: int) -> float:
    """The least value of an edge up to which the edges join the components 0 … ``parts`` − 1.

    >>> _reach(np.array([[0, 2], [2, 1], [0, 3]]), np.array([4.0, 7.0, 9.0]), 2)
    7.0
    """
    group = np.arange(owner.max() + 1)
    for edge in np.argsort(values, kind="stable"):
        a, b = group[owner[edge]]
        group[group == b] = a
        if (group[:parts] == group[0]).all():
            return float(values[edge])
    return np.inf


def _ranks(context: Context, ordered: Ordered, d: int, by: ByMetric | None, ends: Array) -> Array:
    """Of each edge (e, 2) which of the nearest rows of one end the other is, from 1, seen from both: (2, e)."""
    here, there = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.argsort(here, kind="stable")
    asked: dict[str, Any] = {"metric": EUCLIDEAN, **comparison(by)}
    space = Space("joining", compared_rows(ordered, d), context.exchange, here[order], **asked)
    numbers, place = np.unique(here, return_inverse=True)
    rows = space.prepared(ordered.compared_rows(numbers))
    space.leave(rows[place[order]])
    other = np.searchsorted(numbers, there[order, None])  # (each end of an edge is one of both)
    far = distances_block(rows[place[order]], other, rows, 0, space.pairwise)
    ranks = np.empty(len(here), np.int64)
    ranks[order] = space.ranks(there[order, None], far)[:, 0]
    context.exchange.drop("joining-sampled")
    return ranks.reshape(2, -1)


# -------------------------------------------------------------------------------------------------------- own rows
# The rows of a graph that have coordinates of their own, without those that take another row's, as sources of rows.


@dataclass(frozen=True)
class OwnRows(derived.KeptRows):
    """Those rows of a source in the order of the graph, in blocks as large as its own."""

    @property
    def sparse(self) -> bool:
        return self.source.sparse

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    @property
    def block(self) -> int:
        return self.source.block


def own_rows(context: Context, ordered: Ordered, sources: Sequence[RowSource]) -> Sequence[RowSource]:
    """Of sources in the order of the graph, the rows that the stage ``coordinates`` did not place by their nearest row.

    Such rows lie at the place of another one, so they say nothing of how well a map shows neighborhoods. One pass over
    the labels leaves a mask, a byte a row, as long as the stage works.
    """
    found = context.results("coordinates")
    if not found.get("filled_rows"):
        return sources
    n, size, mask = int(ordered.starts[-1]), min(source.block for source in sources[:2]), f"{context.exchange.root}/own"
    labels = InOrder((n,), np.dtype(np.int32), path=context.of("coordinates", "labels"), ordered=ordered)
    create_rows(mask, (n,), np.uint8, size, overwrite=True)
    counts = map_blocks(mask_block, bounds(n, size), labels=labels, parts=found.get("parts", 1), out=mask)
    kept: dict[str, Any] = {"mask": mask, "counts": tuple(counts), "mask_block": size}
    return [OwnRows((sum(counts), *source.shape[1:]), source.dtype, base=source, **kept) for source in sources]


def mask_block(start: int, stop: int, *, labels: InOrder, parts: int, out: str) -> int:
    """Write which of the rows ``start:stop`` have coordinates of their own; return how many do."""
    label = labels.read(start, stop)
    own = (label >= 0) & (label < parts)
    write_rows(out, start, own.astype(np.uint8))
    return int(np.count_nonzero(own))


# ------------------------------------------------------------------------------------------------------- judgement

SAMPLES = 400
"""Rows that are compared with all rows."""
NEIGHBORS = 15
AGAIN = 0.2
"""A coordinate of which regression on earlier ones leaves less is called a harmonic: 96 % of its variance is there.

Harmonics of manifolds leave .17 and less. Groups of rows differ from them in what is left among nearby rows
(:func:`~bigembed.quality.dimension.harmonics`).
"""


def preserved_given(context: Context, n: int, m: int, seed: int) -> dict[str, Any]:
    """Figures of the coordinates against the given distances of sampled rows to all rows."""
    sample, kept = read_array(context.of("survey", "sample")), context.of("survey", "sampled")
    rows = DistancesToSample((n, len(sample)), opening.open_zarr(kept).dtype, path=kept, sample=sample)
    shown = RowSource((n, m), np.dtype(np.float64), path=context.of("coordinates", "embedding"))
    weights = rows_at(at(context.of(WEIGHTS, "given"))) if context.home.has(WEIGHTS) else None
    return preserved(rows, shown, context.exchange, n_neighbors=NEIGHBORS, seed=seed, weights=weights)


def given_cost(n: int, m: int) -> Cost:
    """What :func:`preserved_given` takes."""
    double = np.dtype(np.float64)
    rows = DistancesToSample((n, min(n, SAMPLES)), double)
    return cost_of(rows, RowSource((n, m), double), n_neighbors=NEIGHBORS, samples=SAMPLES)


def given_judgement_stage(n: int, m: int, seed: int, vectors: tuple[str, ...] = ()) -> Stage:
    """How well the coordinates keep the neighborhoods that given distances say."""

    return Stage(
        "judgement",
        ("survey", "coordinates", *weights_among(vectors)),
        {"seed": seed},
        partial(run_given_judgement, n=n, m=m, seed=seed),
        given_cost(n, m),
    )


def weights_among(vectors: tuple[str, ...]) -> tuple[str, ...]:
    """The stage with the weights of the rows, by which figures are means; of the vectors that a graph has, if any."""
    return (WEIGHTS,) if WEIGHTS in vectors else ()


def run_given_judgement(context: Context, n: int, m: int, seed: int) -> dict[str, Any]:
    return {"map": preserved_given(context, n, m, seed)} if n > 2 * NEIGHBORS else {}


def map_judgement_stages(graph: GraphShape, m: int, seed: int, parts: str = "") -> list[Stage]:
    """The stage that measures how well a map of a graph shows the rows; none of a user's graph, which has no rows.

    ``parts``: the stage with the parts of the graph that the map depends on, so that what joins them is worth knowing.
    """
    if graph.sampled:
        return [given_judgement_stage(graph.n, m, seed, graph.vectors)]
    if graph.rowless or graph.views:  # (two views: by views_judgement_stage)
        return []
    rows = RowSource((graph.n, graph.width), np.dtype(np.float64))
    shape = Shape(graph.n, graph.width, "float64", "")
    return [judgement_stage(rows, shape, m, seed, ordered=True, by=graph.by, parts=parts, vectors=graph.vectors)]


def preserved_in_order(
    context: Context, ordered: Ordered, d: int, shown: RowSource, seed: int, by: ByMetric | None
) -> dict[str, Any]:
    """Figures of coordinates in the order of a graph against its rows of d columns, of rows with their own ones."""
    weights, starts = ordered_weights(context, ordered.starts), tuple(map(int, ordered.starts))
    ids = OrderedValues((starts[-1],), np.dtype(np.int64), path=context.of("order", "ids"), starts=starts)
    sources = (compared_rows(ordered, d), shown, ids, *(() if weights is None else (weights,)))
    rows, own, numbers, *mass = own_rows(context, ordered, sources)
    given: dict[str, Any] = comparison(by) | {"numbers": numbers} | ({"weights": mass[0]} if mass else {})
    return preserved_rows(context, rows, own, seed, kept=context.path(""), **given)


def preserved_rows(context: Context, rows: RowSource, shown: RowSource, seed: int, **compared: Any) -> dict[str, Any]:
    """Figures of the coordinates of rows against these; nothing of too few rows."""
    if rows.shape[0] <= 2 * NEIGHBORS:
        return {}
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": seed, **compared}
    try:
        return preserved(rows, shown, context.exchange, **asked)
    except InputError as error:  # distances beyond float64
        return {"unmeasured": str(error)}


def judgement_stage(
    source: RowSource,
    shape: Shape,
    m: int,
    seed: int,
    *,
    ordered: bool,
    by: ByMetric | None = None,
    parts: str = "",
    vectors: tuple[str, ...] = (),
) -> Stage:
    """How well the coordinates keep the neighborhoods of the rows.

    ``ordered``: rows are read in the order of a graph. ``parts``: the stage that has found the parts of the graph; what
    would join them is then found, too. ``vectors``: those of the graph; if weights of the rows are among them, figures
    are means by weight. Without a graph the weights come with the rows.
    """
    n = shape.n
    rows, coordinates = RowSource((n, shape.d), np.dtype(shape.dtype)), RowSource((n, m), np.dtype(np.float64))

    inputs = ("order", *((parts,) if parts else ()), "coordinates", *weights_among(vectors))
    cost = cost_of(rows, coordinates, n_neighbors=NEIGHBORS, samples=SAMPLES, terms=by.listed if by else 0.0, kept=True)
    parameters = {"seed": seed, "samples": SAMPLES, "source": "" if ordered else source.fingerprint()}
    run = partial(run_judgement, source=source, shape=shape, m=m, seed=seed, ordered=ordered, by=by, parts=parts)
    return Stage("judgement", inputs if ordered else ("coordinates",), parameters, run, cost)


def run_judgement(
    context: Context, source: RowSource, shape: Shape, m: int, seed: int, ordered: bool, by: ByMetric | None, parts: str
) -> dict[str, Any]:
    place = (shape.n, m), np.dtype(np.float64)
    shown = RowSource(*place, path=context.of("coordinates", "embedding"))
    if not ordered:
        mass = {name: one for name, one in source.aligned.items() if name == "weights"}
        found = preserved_rows(context, replace(source, aligned={}), shown, seed, kept=context.path(""), **mass)
    else:
        lies = Ordered.open(context.of("order"))
        shown = InOrder(*place, path=shown.path, ordered=lies)
        found = preserved_in_order(context, lies, shape.d, shown, seed, by)
    joined = joined_at(context, parts, shape.d, by) if parts else {}
    return ({"map": found} if found else {}) | ({"joined": joined} if joined else {})


# ------------------------------------------------------------------------------------------------------- two views
# A map of two views against both: distances of the rows side by side, each view in units of its neighbors' distances.


def views_judgement_stage(source: RowSource, split: int, metric: Any, m: int, seed: int) -> Stage:
    """How well the coordinates keep the neighborhoods of both views; rows that are near in both are neighbors.

    ``split``: columns of the first view.
    """
    (n, d), weighted = source.shape, (WEIGHTS,) if "weights" in source.aligned else ()
    shown = RowSource((n, m), np.dtype(np.float64))
    cost = cost_of(RowSource((n, d), np.dtype(np.float64)), shown, n_neighbors=NEIGHBORS, samples=SAMPLES)
    source = replace(source, aligned={})
    parameters = {"seed": seed, "samples": SAMPLES, "source": source.fingerprint(), "split": split}
    run = partial(run_views_judgement, source=source, split=split, metric=metric, shown=shown, seed=seed)
    return Stage("judgement", (VIEWS, "coordinates", *weighted), parameters, run, cost)


def run_views_judgement(
    context: Context, source: RowSource, split: int, metric: Any, shown: RowSource, seed: int
) -> dict[str, Any]:
    first, second = (1.0 / float(np.sqrt(size)) if size > 0 else 1.0 for size in context.results(VIEWS)["spread"])
    function = partial(side_by_side, split=split, metric=metric, factors=(first, second))
    rows = derived.MappedSource(source.shape, np.dtype(np.float64), base=source, function=function)
    shown = replace(shown, path=context.of("coordinates", "embedding"))
    mass = {"weights": rows_at(at(context.of(WEIGHTS, "given")))} if context.home.has(WEIGHTS) else {}
    found = preserved_rows(context, rows, shown, seed, **mass)
    return {"map": found} if found else {}


def side_by_side(block: RowBlock, *, split: int, metric: Any, factors: tuple[float, float]) -> Array:
    """Both views of the rows of a block as they are compared, each times its factor."""
    views = np.split(np.asarray(block.rows, np.float64), [split], axis=1)
    mapped = (row_maps.mapped_rows(view, metric, "float64") for view in views)
    return np.hstack([factor * view for view, factor in zip(mapped, factors, strict=True)])
