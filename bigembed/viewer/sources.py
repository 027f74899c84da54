"""Coordinates of any kind as a scene, with the graph, or the nearest rows, that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.distance.metrics import checked_metric, require_columns
from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.quality.passes import Space
from bigembed.rows import RowSource, derived, rows_at
from bigembed.rows.input import row_source
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import is_integer
from bigembed.stages import Run
from bigembed.store import arrays, at, exchange
from bigembed.viewer import BLOCK, Scene
from bigembed.viewer.sorting import NEAREST

PRODUCTS = 1 << 37
"""Of numbers, in all distances between sampled and all rows, about."""
LEAST_SAMPLED, MOST_SAMPLED, SAMPLE_NUMBERS = 512, 16_384, 1 << 22

# ------------------------------------------------------------------------------------------------------------ graph


@dataclass(frozen=True)
class RunGraph:
    """The graph of a run: lists of nearest rows where they were searched, else its shortest edges."""

    run: Run
    stage: str = "graph"

    @cached_property
    def _ordered(self) -> Ordered:
        return Ordered.open(self.run.path("order"))

    @property
    def starts(self) -> Sequence[int]:
        """First number of each block, and how many rows there are."""
        return self._ordered.starts

    @property
    def digest(self) -> str:
        """Of what the edges were made from."""
        return self.run.manifest(self.stage).digest

    @property
    def listed(self) -> Array | None:
        """None: every row has a list."""
        return None

    def prepare(self) -> None:
        """Nothing: it is there."""

    def rows(self, block: int) -> Array:
        """The row that each number of a block is."""
        return self._ordered.ids(block)

    def lists(self, block: int, k: int) -> tuple[Array, Array]:
        """Numbers of the nearest rows, nearest first, −1 where there are fewer; and their distances."""
        if self.run.holds("search"):
            ids, squared = (
                arrays.read_array(self.run.path("search", f"{name}/{block}")) for name in ("neighbors", "squared")
            )
            return ids[:, :k].astype(np.int64), np.sqrt(squared[:, :k].astype(np.float32))
        found, starts = self.run.matrix(self.stage).block(block), self.starts
        own, column = np.arange(starts[block], starts[block + 1]), found.ids(block, starts)[found.indices]
        edge = np.flatnonzero(own[found.row] != column)
        edge = edge[np.lexsort((found.data[edge], found.row[edge]))]
        row = found.row[edge]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        edge, row, rank = (one[rank < k] for one in (edge, row, rank))
        ids, far = np.full((len(own), k), -1, np.int64), np.zeros((len(own), k), np.float32)
        ids[row, rank], far[row, rank] = column[edge], np.sqrt(found.data[edge])
        return ids, far


def graph_of(run: Run, rows: int) -> RunGraph | None:
    """The graph of the rows of a run, if it has one; a saved model keeps no lists and no edges."""
    if run.kind == "model" or not (run.holds("order") and (run.holds("graph") or run.holds("search"))):
        return None
    found = RunGraph(run, "graph" if run.holds("graph") else "search")
    return found if found.starts[-1] == rows else None


def count_sampled(n: int, d: int) -> int:
    """How many rows are compared with all n rows of d columns: fewer of more and of wider rows.

    >>> count_sampled(1797, 64), count_sampled(10**6, 16), count_sampled(10**8, 500)
    (1797, 8589, 512)
    """
    most = min(n, MOST_SAMPLED, max(1, SAMPLE_NUMBERS // max(d, 1)))
    return min(most, max(LEAST_SAMPLED, PRODUCTS // (n * max(d, 16))))


@dataclass(frozen=True)
class SampledNeighbors:
    """The nearest rows of sampled rows among all rows, found in two passes, exactly: where there is no graph."""

    source: RowSource
    metric: Any
    folder: str
    """Where passes leave what they find."""
    required: bool
    """Whether rows that cannot be compared are refused; else no row has a list then."""

    @property
    def starts(self) -> Sequence[int]:
        """First number of each block, and how many rows there are."""
        return [*range(0, self.source.shape[0], BLOCK), self.source.shape[0]]

    @property
    def digest(self) -> str:
        """Of the rows and of the metric."""
        return f"{self.source.fingerprint()} {self.metric}"

    @property
    def listed(self) -> Array | None:
        """The sampled rows; None where all are, as of few."""
        return None if len(self._sample) == self.source.shape[0] else self._sample

    @property
    def _sample(self) -> Array:
        n, d = self.source.shape
        return np.sort(np.random.default_rng(0).choice(n, count_sampled(n, d), replace=False))

    def prepare(self) -> None:
        """Find them."""
        _ = self._found

    @cached_property
    def _found(self) -> tuple[Array, Array, Array]:
        sample, metric = self._sample, checked_metric(self.metric)
        try:
            require_columns(metric, self.source.width, self.source.sparse)
            space = Space("rows", self.source, exchange.Exchange(self.folder), sample, metric)
            space.ask(space.survey())
            found = space.look(min(NEAREST, self.source.shape[0] - 1), np.zeros((len(sample), 0), np.int64))
        except InputError:
            if self.required:
                raise
            return sample[:0], np.zeros((0, NEAREST), np.int64), np.zeros((0, NEAREST), np.float32)
        return sample, found["ids"], np.sqrt(found["squared"]).astype(np.float32)

    def rows(self, block: int) -> Array:
        """The row that each number of a block is: the number itself."""
        return np.arange(self.starts[block], self.starts[block + 1])

    def lists(self, block: int, k: int) -> tuple[Array, Array]:
        """Rows that are nearest, nearest first, −1 where the row is none of the sample; and their distances."""
        sample, ids, far = self._found
        start, stop = self.starts[block : block + 2]
        mine = slice(*np.searchsorted(sample, [start, stop]))
        out = (
            np.full((stop - start, ids[:, :k].shape[1]), -1),
            np.zeros((stop - start, ids[:, :k].shape[1]), np.float32),
        )
        for whole, some in zip(out, (ids, far), strict=True):
            whole[sample[mine] - start] = some[mine, :k]
        return out


def neighbors_of_rows(given: Any, metric: Any, n: int, scratch: Path) -> SampledNeighbors:
    """The nearest rows among those that a map is of; InputError where these are not n."""
    known = isinstance(given, RowSource)
    source = given if known else row_source(given, at(scratch), "rows", sparse=True)[0]
    if len(source.shape) != 2 or source.shape[0] != n:
        raise InputError(
            f"rows: shape {source.shape}; the map has {n:,} rows, and one of these belongs to each of them"
        )
    return SampledNeighbors(source, metric, str(scratch / "nearest"), not known)


def rows_behind(run: Run, source: RowSource) -> bool:
    """Whether some stage of a run was made of these very rows."""
    stamp = source.fingerprint()
    return any(run.parameters(stage).get("source") == stamp for stage in run.published())


# ---------------------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True)
class Components(RowSource):
    """The component of the graph that each row lies in, as text: its number, or that it is an island."""

    numbers: RowSource | None = None

    def read(self, start: int, stop: int) -> Array:
        assert self.numbers is not None
        found = self.numbers.read(start, stop)
        return np.where(found < 0, np.bytes_("island"), found.astype(self.dtype))

    def fingerprint(self) -> str:
        assert self.numbers is not None
        return f"components {self.numbers.fingerprint()}"


def columns_of_run(run: Run, certificate: Mapping[str, Any]) -> list[tuple[str, RowSource]]:
    """What a run knows of its rows: clusters and, where there are several, components."""
    found: list[tuple[str, RowSource]] = []
    if run.has("clusters") and (place := at(run.path("clusters", "labels"))).exists():
        found.append(("cluster", rows_at(place)))
    if sum(certificate.get("component_sizes", ())[1:]) and (place := at(run.path("coordinates", "labels"))).exists():
        numbers = rows_at(place)
        found.append(("component", Components(numbers.shape, np.dtype("S20"), numbers=numbers)))
    return found


# ------------------------------------------------------------------------------------------------------------ scene

PAIRS = 3
"""Coordinates whose pairs are all shown, of few rows."""
FEW_ROWS = 200_000


def scene_of(
    coordinates: Any,
    scratch: Path,
    *,
    rows: Any = None,
    metric: Any = "euclidean",
    kept: derived.KeptRows | None = None,
    **known: Any,
) -> Scene:
    """The scene of coordinates of any kind, with what else is ``known``, by the fields of :class:`Scene`.

    ``rows``: those that the map is of, whose nearest rows by ``metric`` are found where there is no graph. ``kept``:
    which rows of the input these are; ids and columns may be of all of them.
    """
    source, _ = row_source(coordinates, at(scratch), "coordinates")
    if len(source.shape) != 2:
        raise InputError(f"coordinates have shape {source.shape}; they are an array (n, m)")
    if kept is not None:
        every, vectors = (kept.source.shape[0],), [("", known.get("ids")), *known.get("columns", ())]
        fitting = [(name, kept.of(one) if one is not None and one.shape == every else one) for name, one in vectors]
        known |= {"ids": fitting[0][1], "columns": tuple(fitting[1:])}
    if rows is not None and source.shape[0] > 1:
        known["graph"] = neighbors_of_rows(rows, metric, source.shape[0], scratch)
    names = known.pop("names", None) or tuple(f"coordinate {number + 1}" for number in range(source.width))
    pairs = known.pop("pairs", None)
    chosen = first_pairs(*source.shape) if pairs is None else checked_pairs(pairs, source.width)
    return Scene(coordinates=source, names=tuple(names), pairs=chosen, **known)


def checked_pairs(pairs: Any, width: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of coordinates as tuples; :class:`InputError` where they are something else, or none."""
    given = pairs if isinstance(pairs, Iterable) else ()
    found = tuple(tuple(pair) if isinstance(pair, Iterable) else () for pair in given)
    fine = [len(pair) == 2 and all(is_integer(axis) and 0 <= axis < max(width, 2) for axis in pair) for pair in found]
    if not (found and all(fine)):
        raise InputError(f"pairs={pairs!r}; allowed: pairs of the coordinates 0 to {width - 1}, like [(0, 1)]")
    return found


def first_pairs(rows: int, width: int, first: Sequence[int] = (0, 1)) -> tuple[tuple[int, int], ...]:
    """The pairs that are shown where none was asked for.

    >>> first_pairs(1000, 5), first_pairs(10**7, 5), first_pairs(1000, 5, (0, 3))
    (((0, 1), (0, 2), (1, 2)), ((0, 1),), ((0, 3), (0, 1), (0, 2), (1, 2)))
    """
    shown = [(int(first[0]), int(first[1]))]
    if rows <= FEW_ROWS:
        count = min(width, PAIRS)
        shown += [(x, y) for x in range(count) for y in range(x + 1, count) if (x, y) not in shown]
    return tuple(shown)
