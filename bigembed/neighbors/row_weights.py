"""Columns of the input in the order of a graph, and weights of the rows: checked, of a mean of one, two stages.

A row of weight w counts as w rows. What a method makes of that is its own matter; here is what all of them read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Self

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.search.rerank import internal_ids_of, places_block
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import NAMED, map_row_blocks
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks, owner_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, send
from bigembed.store.vector_space import tree_sum

# ----------------------------------------------------------------------------------------------------- input order
# Columns of the input brought to the blocks of a graph, panel by panel.


@dataclass(frozen=True)
class InputOrder:
    """Which rows of the input the blocks of the graph hold. Small and picklable."""

    starts: tuple[int, ...]
    ordered: Ordered | None
    """None where the graph has the order of the input."""

    @classmethod
    def of(cls, context: Context, rows: Sequence[int]) -> Self:
        """That of the stage ``order``, where it is among the inputs; else blocks of so many rows follow the input."""
        if context.home.has("order"):
            ordered = Ordered.open(context.of("order"))
            return cls(ordered.starts, ordered)
        return cls(tuple(np.cumsum([0, *rows]).tolist()), None)

    @property
    def blocks(self) -> int:
        """Blocks of the graph."""
        return len(self.starts) - 1

    def ids(self, b: int) -> Array:
        """Rows of the input in one block."""
        return self.ordered.ids(b) if self.ordered else np.arange(self.starts[b], self.starts[b + 1])


def carry(columns: RowSource, order: InputOrder, panels: Sequence[slice], exchange: Exchange) -> list[Delivery]:
    """Leave each panel of the columns, or a vector, with the blocks of the graph: one pass. InputError for NaN and
    infinity."""
    places = None
    if order.ordered is not None:
        blocks = [(b,) for b in range(order.blocks)]
        map_blocks(places_block, blocks, old=order.ordered, rows=columns.block, exchange=exchange)
        places = merge_parcels(exchange, "places", order.blocks)
    found = map_row_blocks(columns, carry_columns, panels=list(panels), order=order, places=places, exchange=exchange)
    if rows := [row for part in found for row in part]:
        raise InputError(
            f"the columns hold NaN or infinity: in {len(rows):,} rows or more, the first are {rows[:10]}. Fill or drop "
            "them first"
        )
    return [merge_parcels(exchange, f"carried{number}", len(found)) for number in range(len(panels))]


def carry_columns(
    span: RowBlock, *, panels: Sequence[slice], order: InputOrder, places: Delivery | None, exchange: Exchange
) -> list[int]:
    """Leave the columns of some rows of the input with the blocks of the graph; rows that are not finite."""
    internal = internal_ids_of(places, span) if places else np.arange(span.start, span.stop)
    owner = owner_of(order.starts, internal)
    rows, receivers = by_receiver(owner, order.blocks)
    at = (internal - np.array(order.starts)[owner])[rows]
    bad = np.zeros(len(internal), bool)
    for number, columns in enumerate(panels):
        part = span.rows[:, columns] if span.rows.ndim == 2 else span.rows[:, None]
        part = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        bad |= ~np.isfinite(part).all(axis=1)
        carried = {"at": (at, receivers), "columns": (part[rows], receivers)}
        send(exchange, f"carried{number}", span.number, carried)
    return (np.flatnonzero(bad) + span.start).tolist()[:1_000]


# ------------------------------------------------------------------------------------------------------- row weights

WEIGHTS = "row_weights"
"""The stage with the weights of the rows: in the order of the graph as ``values/b``, in that of the input as ``given``,
of mean 1."""
DENSITY = "target_density"
"""The stage with the density that the rows are to have, in the same way."""
KINDS = {"weights": WEIGHTS, DENSITY: DENSITY}
"""Vectors that are brought into the order of a graph, by what they are called beside the rows, and their stages."""
CALLED = {"weights": "weights (sample_weight)", DENSITY: "target_density"}
RATIO = 1e12
"""The largest over the least of them, at most: products of two stay in the range of float32."""


def row_weight_stages(kind: str, given: RowSource, block: int, ordered: bool) -> tuple[Stage, Stage]:
    """The stage that checks a vector with one positive number a row, before anything else is computed; and the one
    that divides it by its mean and brings it into the order of a graph.

    ``block``: rows of a block of the graph, at most; ``ordered``: whether it has an order of its own.
    """
    n, name = given.shape[0], KINDS[kind]
    vector, check = ArraySpec(kind, n), f"{name}_sum"
    summed = Stage(
        check,
        (),
        {"source": given.fingerprint()},
        partial(run_sum, kind=kind, given=given),
        Cost.of(reads=[vector], task=[ArraySpec(kind, given.largest_block, times=6)], scalar_ops=n, maps=1),
    )
    cost = Cost.of(
        reads=[vector],
        writes=[ArraySpec("values/*", n), ArraySpec("given", n)],
        leaves=[ArraySpec("values and their places", n, 4)],
        task=[ArraySpec("values and their places", max(min(block, n), given.largest_block), 10)],
        scalar_ops=10 * n,
        maps=5,
    )
    inputs = (check, *(("order",) if ordered else ()))
    return summed, Stage(name, inputs, {}, partial(run_in_order, check=check, given=given, block=block), cost)


def run_sum(context: Context, kind: str, given: RowSource) -> dict[str, Any]:
    """Sum and limits of the vector; InputError that names the rows where it cannot be used."""
    found, n = map_row_blocks(given, sum_block), given.shape[0]
    if count := sum(part["wrong"] for part in found):
        first = [row for part in found for row in part["first"]][:NAMED]
        what = "rows of weight zero out, which count for nothing" if kind == "weights" else "those rows out"
        raise InputError(
            f"{CALLED[kind]} must be finite and above 0: {count} of {n} are not, the first of rows {first}. "
            f"Leave {what}"
        )
    total = float(tree_sum([part["sum"] for part in found]))
    least, most = min(part["least"] for part in found), max(part["most"] for part in found)
    if not np.isfinite(total) or most > RATIO * least:
        raise InputError(
            f"{CALLED[kind]} reach from {least:.3g} to {most:.3g}; the largest may be {RATIO:.0e} times the least, and "
            "their sum a number of float64. Raise the least, or leave those rows out"
        )
    content = sha256("".join(part["digest"] for part in found).encode()).hexdigest()
    return {"n": n, "sum": total, "least": least, "most": most, "content": content}


def sum_block(block: RowBlock) -> dict[str, Any]:
    """Sum and limits of one block, and the rows whose number is not finite and positive."""
    values = np.asarray(block.rows, np.float64)
    good = np.isfinite(values) & (values > 0)
    wrong = np.flatnonzero(~good)
    with np.errstate(over="ignore"):
        total = float(values[good].sum())
    return {
        "digest": sha256(values.tobytes()).hexdigest(),
        "sum": total,
        "least": float(values[good].min(initial=np.inf)),
        "most": float(values[good].max(initial=0.0)),
        "wrong": len(wrong),
        "first": (wrong[:NAMED] + block.start).tolist(),
    }


def run_in_order(context: Context, check: str, given: RowSource, block: int) -> dict[str, Any]:
    """The vector over its mean, in the order of the graph."""
    n = given.shape[0]
    order = InputOrder.of(context, [stop - start for start, stop in bounds(n, block)])
    mean = context.results(check)["sum"] / n
    [carried] = carry(given, order, [slice(None)], context.exchange)
    tasks = [(b,) for b in range(order.blocks)]
    map_blocks(values_block, tasks, carried=carried, mean=mean, out=context.path(""))
    carried.drop()
    create_rows(context.path("given"), (n,), np.float64, given.block)
    map_row_blocks(given, given_block, mean=mean, out=context.path("given"))
    return {"mean": mean}


def given_block(block: RowBlock, *, mean: float, out: str) -> None:
    """Write the vector of some rows of the input, over the mean."""
    write_rows(out, block.start, np.asarray(block.rows, np.float64) / mean)


def values_block(b: int, *, carried: Delivery, mean: float, out: str) -> None:
    """Write the vector of one block, over the mean."""
    found = carried.to(b)
    write_array(f"{out}values/{b}", found["columns"][np.argsort(found["at"]), 0] / mean)


# ------------------------------------------------------------------------------------------------------- in a task
# How a stage that declares them as an input reads them.


def values_path(home: Context | Run, stage: str = WEIGHTS) -> str:
    """Where the weights of the rows lie, by blocks; empty where rows have none, or the stage does not declare them."""
    run: Any = home.home if isinstance(home, Context) else home
    return run.path(stage, "values") if run.has(stage) else ""


def weights_at(path: str, b: int, count: int) -> Array:
    """Weights of the ``count`` rows of a block; ones where ``path`` is empty."""
    return read_array(f"{path}/{b}") if path else np.ones(count)


def all_weights(path: str, rows: Sequence[int] | Array) -> Array | None:
    """Weights of all rows, (n,), in the order of the graph; None where ``path`` is empty."""
    return np.concatenate([read_array(f"{path}/{b}") for b in range(len(rows))]) if path else None
