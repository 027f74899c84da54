"""New rows of an Isomap, placed by their paths to the landmarks, and what its certificate warns of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator.extension import Grouping
from bigembed.estimator.graph_input import ISLANDS
from bigembed.maps.graph_rows import block_of_rows, ready_rows
from bigembed.maps.landmark_maps import triangulated
from bigembed.maps.landmark_rows import ENOUGH
from bigembed.neighbors.components import nearest_embedded
from bigembed.neighbors.geodesic import KeptDistances
from bigembed.neighbors.given import GIVEN, query
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import Joined
from bigembed.neighbors.search.by_metric import by_metric
from bigembed.neighbors.survey import Shape, shape_in
from bigembed.rows.row_maps import AffineMap
from bigembed.runtime.blocks import Array, bounds
from bigembed.stages import Run
from bigembed.store.arrays import read_array, read_by_id, read_rows

# --------------------------------------------------------------------------------------------------------- extension

BATCH_ROWS = 8_192
HELD_BYTES = 64 << 20
"""Distances of fitted rows that a task holds."""


@dataclass(frozen=True)
class GeodesicModel:
    """What a task needs to extend: paths into the run or the saved model, and small numbers."""

    index: query.AnyIndex
    shape: Shape
    labels: str
    geodesics: str
    solve: str
    starts: tuple[int, ...]
    targets: tuple[int, ...]
    component: Array | None
    """Component of each landmark; None where all rows are their own landmarks."""
    policy: str
    width: int

    @property
    def single(self) -> bool:
        """Whether the largest component is all that has coordinates of its own, and rows say what is near it."""
        given = isinstance(self.index, query.GivenIndex)
        return not given and self.policy in ("largest", ISLANDS) and self.targets == (0,)

    def columns(self, c: int) -> int:
        """Landmarks of a component."""
        if self.component is None:
            return len(read_array(f"{self.solve}/mean/{c}"))
        return int(np.count_nonzero(self.component == c))

    def distances(self, ids: Array, c: int) -> Array:
        """Distances (len(ids), L_c) of fitted rows of a component to its landmarks."""
        if self.component is None:
            return read_rows(f"{self.geodesics}/pairs/{c}", read_rows(f"{self.geodesics}/positions", ids))
        return KeptDistances(self.geodesics, self.starts).rows(ids)[:, np.flatnonzero(self.component == c)]


def model_of(run: Run, metric: Any = None) -> GeodesicModel:
    """The extension model of a fitted run; ``metric``: what the caller gave, by which a function is known."""
    survey, exact = run.results("survey"), run.results("solve")["solver"] == "exact"
    shape = shape_in(survey, metric)
    return GeodesicModel(
        _index(run, shape),
        shape,
        run.path("components", "labels"),
        run.path("geodesics"),
        run.path("solve"),
        Ordered.open(run.path("order")).starts,
        tuple(run.results("solve")["targets"]),
        None if exact else read_array(run.path("landmarks", "component")),
        run.parameters("coordinates")["policy"],
        run.results("solve")["n_components"],
    )


def _index(run: Run, shape: Shape) -> query.AnyIndex:
    if shape.metric == GIVEN:
        return query.given_index_of(run, both=False)
    return query.any_index_of(run, shape)


def grouping(model: GeodesicModel) -> Grouping | None:
    """How new rows are brought to the blocks of fitted rows that they belong to; rows of distances need not be."""
    if isinstance(model.index, query.GivenIndex) or model.shape.sparse:
        return None
    blocks = len(Ordered.open(model.index.order).blocks)
    return Grouping(block_of_rows, blocks, model.shape.row_bytes, BATCH_ROWS, partial(extension_memory, model))


def extension_memory(model: GeodesicModel, rows: int) -> int:
    """Bytes that :func:`extend_rows` holds at most for that number of rows, without the rows themselves."""
    return query.joining_memory(model.index, model.shape, rows) + 3 * HELD_BYTES + 16 * rows * model.width


def extend_rows(rows: Any, model: GeodesicModel) -> Array:
    """Coordinates of finite new rows (n, m), each the same whatever the others."""
    rows = ready_rows(rows, model.shape)
    coordinates = np.zeros((rows.shape[0], model.width))
    for members, joined in query.join_parts(rows, model.index):
        coordinates[members] = _place_joined(rows[members], joined, model)
    return coordinates


def _place_joined(rows: Any, joined: Joined, model: GeodesicModel) -> Array:
    """Coordinates of new rows from their edges."""
    label = read_by_id(model.labels, model.starts, joined.ids)
    home = _home(joined, label, model.single)
    out = np.zeros((rows.shape[0], model.width))
    for c in model.targets:
        found = AffineMap.within(model.solve, c).read()
        mine = np.flatnonzero(home == c)
        mine = mine[np.lexsort((joined.cell[mine], joined.block[mine]))]  # rows that are near each other, together
        for part, edges, ends in _pieces(joined, label, mine, c, model.columns(c)):
            ids, place = np.unique(joined.ids[edges], return_inverse=True)
            lengths = np.sqrt(joined.squared[edges].astype(np.float64))
            through = model.distances(ids, c)[place] + lengths[:, None]
            out[part] = triangulated(np.minimum.reduceat(through, ends, axis=0), found)
    outside = np.flatnonzero(home < 0)
    if len(outside) and 0 in model.targets:
        found = AffineMap.within(model.solve, 0).read()
        nearest = _nearest(rows[outside], joined, outside, model)
        for start, stop in bounds(len(outside), max(1, HELD_BYTES // (8 * model.columns(0)))):
            out[outside[start:stop]] = triangulated(model.distances(nearest[start:stop], 0), found)
    return out


def _nearest(rows: Any, joined: Joined, outside: Array, model: GeodesicModel) -> Array:
    """The row of the largest component that is nearest to each row that no edge leads to."""
    ordered = Ordered.open(model.index.order)
    if isinstance(model.index, query.GivenIndex):
        whole = np.concatenate([read_array(f"{model.labels}/{b}") for b in range(len(ordered.blocks))])
        return query.nearest_given(rows, model.index, whole, 1)
    where, by = (joined.block[outside], joined.cell[outside]), by_metric(model.shape)
    return nearest_embedded(ordered, model.labels, rows, *where, by=by)


def _home(joined: Joined, label: Array, single: bool) -> Array:
    """Component of each new row: that of the nearest row joined to it (ties by id); −1 for a row without neighbors."""
    count = len(joined.indptr) - 1
    of_edge = np.repeat(np.arange(count), np.diff(joined.indptr))
    if single:
        return np.where(np.bincount(of_edge[label == 0], minlength=count) > 0, 0, -1)
    home = np.full(count, -1, np.int64)
    order = np.lexsort((joined.ids, joined.squared, of_edge))
    some = np.flatnonzero(np.diff(joined.indptr))
    home[some] = label[order[joined.indptr[some]]]
    return home


def _pieces(joined: Joined, label: Array, rows: Array, c: int, columns: int) -> Iterator[tuple[Array, Array, Array]]:
    """New rows in bounded pieces: the rows, their edges into component c, and where each row's edges begin.

    Of a row that equals fitted ones only the edges to these are taken: the shortest path is that of the fitted row.
    """
    most = max(1, HELD_BYTES // (8 * columns))
    part: list[int] = []
    edges: list[Array] = []
    held = 0
    for row in rows.tolist():
        mine = np.arange(joined.indptr[row], joined.indptr[row + 1])
        mine = mine[label[mine] == c]
        same = joined.squared[mine] == 0
        mine = mine[same] if same.any() else mine
        if part and held + len(mine) > most:
            yield _piece(part, edges)
            part, edges, held = [], [], 0
        part.append(row)
        edges.append(mine)
        held += len(mine)
    if part:
        yield _piece(part, edges)


def _piece(part: list[int], edges: list[Array]) -> tuple[Array, Array, Array]:
    sizes = [len(mine) for mine in edges]
    return np.array(part), np.concatenate(edges), np.cumsum([0, *sizes[:-1]])


# ------------------------------------------------------------------------------------------------------- certificate


def parts_warnings(out: dict[str, Any], advice: str) -> list[str]:
    """Of a certificate: that the graph fell into parts, what the map shows of them, and what joins them."""
    parts, bridge = out["parts"], out.get("bridge")
    if parts == 1:
        return []
    sizes = ", ".join(f"{size:,}" for size in out["component_sizes"][:parts][:10])
    head = f"the rows fall into {parts} parts that no neighbors join, of {sizes}{', …' if parts > 10 else ''} rows "
    if bridge is None:
        return [
            f"{head}(labels_ names them). Nothing says how far they are from each other: each is embedded by itself, "
            f"about its own mean, and coordinates of different parts are not comparable. {advice}; or add edges to "
            "the graph"
        ]
    return [
        f"{head}(labels_ names them). Their shortest edges join them, the longest {bridge['longest']:.4g} long: how "
        f"the parts lie to each other on the map is decided by single edges. {advice}; or components='per-component' "
        "or 'largest'"
    ]


def unconverged(solved: dict[str, Any]) -> list[str]:
    """Components of the graph whose eigensolver stopped early."""
    return [
        f"component {c} of the graph: the eigensolver stopped ({part['reason']}) with residuals up to "
        f"{max(part['residuals']):.2g} after {part['passes']} passes. {part['advice']}"
        for c, part in solved.items()
        if not part.get("converged", True)
    ]


def degenerate(out: dict[str, Any], m: int) -> list[str]:
    """Coordinates that are not there, and distances far from Euclidean."""
    messages = []
    short = {c: part["positive"] for c, part in out["eigenpairs"].items() if part["positive"] < m}
    if short:
        first = ", ".join(f"{count} in component {c}" for c, count in list(short.items())[:5])
        messages.append(
            f"fewer than {m} eigenvalues are positive ({first} of the graph); the other coordinates are 0. The "
            "rows, or the landmarks, span fewer dimensions: ask for fewer coordinates, or more landmarks"
        )
    far = [c for c, part in out["eigenpairs"].items() if -part["lowest"] > max(part["eigenvalues"][m - 1], 0.0)]
    if far and not short:
        messages.append(
            f"an eigenvalue of B is more negative ({out['eigenpairs'][far[0]]['lowest']:.3g}) than that of the last "
            f"coordinate is positive ({out['eigenpairs'][far[0]]['eigenvalues'][m - 1]:.3g}): the geodesic distances "
            "are far from those of points in space. The graph may have shortcuts (noise, too many neighbors), or the "
            "data holes"
        )
    landmarks = out.get("landmarks")
    if landmarks and landmarks["landmarks"] < ENOUGH * landmarks["wanted"]:
        messages.append(
            f"{landmarks['landmarks']} landmarks of {landmarks['wanted']}: the sampled rows have no more distinct ones"
        )
    return messages
