"""Lists that something else found, made exact: by pynndescent in one process, or handed over with the rows.

What comes from outside only says which rows may be near. It is joined to the rows of the nearest cells, every distance
is computed as in any other search, and the lists are linked as those of NN-descent are. So recall is measured, equal
rows are ordered, and new rows walk along the lists, all without the library that found them.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from types import NoneType
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from bigembed.distance import CENTERED, FUNCTIONS, known
from bigembed.errors import InputError
from bigembed.neighbors import empty_lists, merge_pairs
from bigembed.neighbors.nn_descent import MORE_BY_PAIRS, bytes_held, link_lists, nearest_cells
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search import GIVEN_LISTS, PYNNDESCENT, TRUTH, Truth, every_block, rerank
from bigembed.neighbors.search.by_metric import ByMetric, by_metric
from bigembed.neighbors.survey import Shape
from bigembed.rows.edges import fingerprint_of, read_range
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.stages import Context, Cost
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import stacked

CELLS_JOINED = 4
"""Cells whose rows are compared with each row, too: a row then has as many neighbors as are asked for."""
PAIRS = 1 << 20
"""Pairs of a block that are compared at a time."""
COMPILED_BYTES = 512 << 20
"""What pynndescent and its compiled code take, whatever the rows; measured, and rounded up."""
ENTRY_BYTES = 40
"""Of an entry of its lists while it searches; measured (200 000 rows, lists of 26)."""
DEFAULTS = {"n_jobs": 1}
"""How it is called unless asked otherwise: its lists depend on the number of threads."""
RESERVED = ("data", "metric", "metric_kwds", "n_neighbors", "random_state", "init_graph", "init_dist", "compressed")
"""What is said by other parameters, or not to be said here."""


@dataclass(frozen=True)
class ByPynndescent:
    """Candidates of all rows by :class:`pynndescent.NNDescent`, in one task that holds all rows."""

    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    words = PYNNDESCENT

    def key(self) -> dict[str, Any]:
        """What the lists depend on, besides the rows and the seed (which the rows were ordered by)."""
        return {PYNNDESCENT: DEFAULTS | dict(self.parameters)}

    def memory(self, shape: Shape, k: int) -> int:
        """Bytes that the one task holds."""
        columns = shape.filled * 8 if shape.filled is not None else 4 * shape.width
        return shape.n * (2 * shape.row_bytes + 2 * columns + ENTRY_BYTES * listed(shape.n, k)) + COMPILED_BYTES

    def leave(self, ordered: Ordered, shape: Shape, k: int, exchange: Exchange) -> None:
        """Leave the candidates of each block (internal ids, −1 for none) in the exchange."""
        rows = ordered.compared_rows(np.arange(ordered.starts[-1]))
        data, metric = as_pynndescent_has_them(rows, shape)
        found = run_pynndescent(data, metric, listed(shape.n, k) + 1, self.seed, DEFAULTS | dict(self.parameters))
        for b, (start, stop) in enumerate(zip(ordered.starts, ordered.starts[1:], strict=False)):
            exchange.put("outside", b, {"ids": found[start:stop].astype(np.int64)})


@dataclass(frozen=True)
class ByLists:
    """Candidates of all rows that were handed over: numbers of rows of the input, (n, any), −1 for none."""

    indices: Any
    """A reader of the array."""
    words = GIVEN_LISTS

    def key(self) -> dict[str, Any]:
        """What the lists depend on, besides the rows."""
        return {"given": fingerprint_of(self.indices)}

    def memory(self, shape: Shape, k: int) -> int:
        """Bytes that the one task holds."""
        rows, width = self.indices.shape
        return int(2 * self.indices.dtype.itemsize * rows * width + 16 * shape.n + (32 << 20))

    def leave(self, ordered: Ordered, shape: Shape, k: int, exchange: Exchange) -> None:
        """Leave the candidates of each block (internal ids, −1 for none) in the exchange."""
        given, blocks = read_range(self.indices, 0, shape.n), range(len(ordered.blocks))
        if given.dtype.kind not in "iu" or given.min(initial=-1) < -1 or given.max(initial=-1) >= shape.n:
            raise InputError(
                f"candidates: lists of neighbors hold numbers of rows, 0 to {shape.n - 1}, or −1 for none; got "
                f"{given.dtype} from {given.min():g} to {given.max():g}"
            )
        numbers = [ordered.ids(b) for b in blocks]
        internal = np.full(shape.n + 1, -1, np.int64)  # (the last one is that of −1)
        internal[np.concatenate(numbers)] = np.arange(shape.n)
        for b in blocks:
            exchange.put("outside", b, {"ids": internal[given[numbers[b]].astype(np.int64)]})


Outside = ByPynndescent | ByLists


def listed(n: int, k: int) -> int:
    """Entries of the lists that pynndescent is asked for, a row itself not counted."""
    return min(n - 1, k + MORE_BY_PAIRS)


def outside_by(parameters: Mapping[str, Any] | None, algorithm: str, seed: int) -> Outside | None:
    """What finds candidates with parameters of its own; None where the algorithm is known by its name alone."""
    given = checked_parameters(parameters, algorithm)
    return ByPynndescent(seed, given) if given else None


def checked_parameters(parameters: Mapping[str, Any] | None, algorithm: str) -> dict[str, Any]:
    """Parameters for ``NNDescent``; InputError for those that it does not have, or that other parameters say."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError(f"algorithm_params={parameters!r}; a dict of parameters by name is needed, or None")
    given = dict(parameters or {})
    if given and algorithm != PYNNDESCENT:
        raise InputError(
            f"algorithm_params={given!r}; they go with algorithm={PYNNDESCENT!r}, and algorithm={algorithm!r}"
        )
    if wrong := sorted(name for name in given if name in RESERVED):
        raise InputError(
            f"algorithm_params: {', '.join(wrong)}; the rows, metric, n_neighbors and random_state of this call count, "
            "and no index is kept"
        )
    given = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    if odd := sorted(name for name, value in given.items() if not isinstance(value, (bool, int, float, NoneType))):
        raise InputError(f"algorithm_params: {', '.join(odd)}; allowed: a number, True, False or None")
    if given:
        from pynndescent import NNDescent

        there = [name for name in signature(NNDescent).parameters if name not in RESERVED]
        if unknown := sorted(set(given) - set(there)):
            raise InputError(
                f"algorithm_params: {', '.join(unknown)} is no parameter of pynndescent's NNDescent; there are "
                f"{', '.join(there)}"
            )
    return given


# ------------------------------------------------------------------------------------------------------ the search


def take_outside(
    context: Context, ordered: Ordered, shape: Shape, k: int, target: float, outside: Outside
) -> dict[str, Any]:
    """Find the k nearest rows of every row among its candidates and the rows of the nearest cells; what a search stage
    returns."""
    exchange, out, by = context.exchange, context.path(""), by_metric(shape)
    pairs = nearest_cells(context, ordered, shape, k, CELLS_JOINED)
    map_blocks(leave_outside, [()], outside=outside, ordered=ordered, shape=shape, k=k, exchange=exchange)
    blocks = [(b,) for b in range(len(ordered.blocks))]
    compared = map_blocks(join_outside_block, blocks, ordered=ordered, k=k, by=by, exchange=exchange, out=out)
    exchange.drop("outside")
    truth = Truth(read_array(context.of(TRUTH, "ids")), read_array(context.of(TRUTH, "neighbors")))
    known_of_new = link_lists(context, ordered, shape, k, truth, target)
    return {
        "n_neighbors": k,
        **known_of_new,
        "algorithm": outside.words,
        "compared_per_row": (pairs + sum(compared)) / shape.n,
    }


def leave_outside(*, outside: Outside, ordered: Ordered, shape: Shape, k: int, exchange: Exchange) -> None:
    """Leave the candidates of all blocks; in a task of its own, since it holds all of them."""
    outside.leave(ordered, shape, k, exchange)


def join_outside_block(
    b: int, *, ordered: Ordered, k: int, by: ByMetric | None, exchange: Exchange, out: str
) -> int:  # fmt: skip
    """Take the candidates of a block into its lists of the nearest cells, each at its distance; how many there were."""
    start, near, squared = ordered.starts[b], read_array(f"{out}neighbors/{b}"), read_array(f"{out}squared/{b}")
    given = exchange.piece("outside", b, "ids")
    given = np.sort(given, axis=1)
    fresh = (given >= 0) & (given != start + np.arange(len(given))[:, None])
    fresh[:, 1:] &= given[:, 1:] != given[:, :-1]
    ids, kept = empty_lists(len(near), k, squared.dtype)
    real = np.nonzero(near >= 0)
    merge_pairs(ids, kept, real[0], near[real], squared[real])
    rows, own = ordered.compared(b), np.arange(start, ordered.starts[b + 1])
    for low, high in bounds(len(given), max(1, PAIRS // max(1, given.shape[1]))):
        at, place = np.nonzero(fresh[low:high])
        wanted = given[low:high][at, place]
        new = ~(near[low:high][at] == wanted[:, None]).any(axis=1)
        at, wanted = at[new], wanted[new]
        if len(at):
            found = _squared_of_pairs(rows[low:high], own[low:high], at, wanted, ordered, by, squared.dtype)
            merge_pairs(ids, kept, at + low, wanted, found)
    every_block.write_lists(out, b, ids, kept)
    return int(fresh.sum())


def _squared_of_pairs(
    rows: Any, numbers: Array, at: Array, wanted: Array, ordered: Ordered, by: ByMetric | None, dtype: Any
) -> Array:
    """Squared distances of pairs of one of some rows and a row of an internal id."""
    every, place = np.unique(wanted, return_inverse=True)
    others = ordered.compared_rows(every)
    if by is None:
        return rerank.compiled_pair_distances(rows, others, at, place)
    together = np.concatenate([numbers, every])
    order = np.argsort(together, kind="stable")  # (a pair is compared with the row of the lower number first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_pairs = by.of_pairs(stacked([rows, others])[order])
    limits = np.full(len(at), np.inf, dtype)
    return np.asarray(of_pairs(rank[at].astype(np.int32), rank[len(numbers) + place].astype(np.int32), limits))


def outside_cost(cells: Cost, shape: Shape, k: int, outside: Outside) -> Cost:
    """What a plan counts with: the search of the cells, one task that holds all rows, and the walk that is measured."""
    memory = max(cells.memory, outside.memory(shape, k), bytes_held(shape, k))
    lists = 12 * shape.n * k
    return replace(
        cells,
        memory=memory,
        disk=cells.disk + 2 * lists,
        scratch=cells.scratch + 8 * shape.n * listed(shape.n, k) + 20 * lists // 12,
        scalar_ops=cells.scalar_ops + 40 * shape.n * listed(shape.n, k) ** 2,
        maps=cells.maps + 6,
    )


# ----------------------------------------------------------------------------------------------------- pynndescent

_ONE = threading.Lock()
"""Its compiled loops run in numba's threads, of which one process has one set."""


def as_pynndescent_has_them(rows: Any, shape: Shape) -> tuple[Any, Any]:
    """Rows as pynndescent takes them, and its metric that orders them alike: a name or a compiled function."""
    metric = shape.compare
    if is_sparse(rows) and metric.name in CENTERED:
        data, found = rows[:, :-1].tocsr(), "correlation"
    elif metric.mapped:
        data, found = rows if is_sparse(rows) else rows - rows.mean(axis=0, dtype=np.float64), "euclidean"
    elif metric.function_of_two:
        return _plain(rows), _function(metric.function if metric.own else metric.text, is_sparse(rows), shape.d)
    else:
        data, found = rows, metric.text
    return _plain(data), found


def _plain(rows: Any) -> Any:
    if not is_sparse(rows):
        return np.ascontiguousarray(rows, np.float32)
    found = csr_matrix((rows.data.astype(np.float32), rows.indices, rows.indptr), shape=rows.shape)
    found.sort_indices()
    return found


def _function(metric: str | Callable[..., float], sparse: bool, width: int) -> Any:
    """A compiled function of two rows, of our definition: of dense rows, or of the parts of sparse ones."""
    from bigembed.distance.pair_compiled import compiled

    if not isinstance(metric, str):
        return compiled(metric)
    assert known(metric).graphs == FUNCTIONS
    from bigembed.distance.pair_compiled import function_of_rows

    return function_of_rows(metric, sparse, width)


def run_pynndescent(data: Any, metric: Any, n_neighbors: int, seed: int, parameters: Mapping[str, Any]) -> Array:
    """The lists (n, ``n_neighbors``) that pynndescent finds: numbers of rows, −1 for none."""
    from pynndescent import NNDescent

    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # (recall is measured, and short lists are filled by the cells)
        try:
            index = NNDescent(data, metric=metric, n_neighbors=n_neighbors, random_state=seed, **parameters)
        except Exception as error:
            if parameters == DEFAULTS:
                raise
            raise InputError(
                f"pynndescent fails with algorithm_params={ {**parameters} } ({type(error).__name__}: {error}). Leave "
                "them out, or take others"
            ) from error
        return np.asarray(index.neighbor_graph[0])


def outside_search(outside: Outside) -> Callable[..., dict[str, Any]]:
    """The search by lists from outside, as a search stage takes it."""
    return partial(take_outside, outside=outside)
