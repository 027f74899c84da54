"""How well a map shows its rows, where the method has no stage for that: sampled rows against each other.

The methods on a graph compare sampled rows with all rows, in passes that are few beside those of the graph. A linear
map takes one or two passes in all, and would take several times as long. So rows of a few blocks are drawn, mapped, and
judged by the same figures and limits; of rows that are no more than the sample, the figures are those of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.distance.metrics import NAMES
from bigembed.errors import InputError
from bigembed.estimator.protocol import MethodSpec, extension_in
from bigembed.quality.neighborhoods import NEIGHBORS, preserved
from bigembed.rows.graph_source import GraphSource
from bigembed.rows.source import RowBlock, RowSource, as_worked
from bigembed.runtime.blocks import Array, is_sparse, map_blocks
from bigembed.stages import ArraySpec, Context, Cost, Stage, rows_of, window_of
from bigembed.store.arrays import read_rows
from bigembed.store.parcels import stacked

NAME = "judgement"
ROWS, SAMPLES = 1_000, 200
"""Rows that are drawn, and those of them that are compared with all drawn ones."""
BLOCKS, SHARE = 4, 0.05
"""Canonical blocks that rows are drawn from, at least, and the share of all blocks beyond that."""
BYTES = 64 << 20
"""Of the drawn rows, at the most."""
FITTED_TO = ("labels", "weights", "target_density")
"""Vectors that a fit takes, and the map of a row does not."""
STREAM = 13
"""Of the random numbers of the sample."""


def with_judgement(method: MethodSpec, stages: Sequence[Stage], source: RowSource) -> list[Stage]:
    """The stages of a method and, where none of them judges the map of these rows, the one that does.

    Rows whose distances are functions of pairs, or are given, are not judged, nor are too few for neighborhoods.
    """
    estimator = method.estimator
    metric = getattr(estimator, "metric", "euclidean")
    shown = next((stage for stage in stages if stage.name == "coordinates"), None)
    there = any(stage.name == NAME for stage in stages) or isinstance(source, GraphSource)
    if (
        shown is None
        or there
        or not (compares_rows(method) and estimator.makes_maps)
        or source.shape[0] <= 2 * NEIGHBORS
    ):
        return list(stages)
    return [*stages, _judgement_stage(estimator, shown, source, metric)]


def compares_rows(method: MethodSpec) -> bool:
    """Whether its distances are those of rows, by a metric with a name."""
    metric = getattr(method.estimator, "metric", "euclidean")
    return isinstance(metric, str) and metric in NAMES and not method.pairs


def sampled_rows(source: RowSource, numbers: Array) -> RowBlock:
    """Rows of ascending numbers, with what is aligned with them; the blocks are read that they are in."""
    block, first = np.unique(numbers // source.block, return_index=True)
    tasks = list(zip(block.tolist(), np.split(numbers, first[1:]), strict=True))
    parts = map_blocks(pick_block, tasks, label="sample", source=source)
    aligned = {name: np.concatenate([others[name] for _, others in parts]) for name in source.aligned}
    return RowBlock(0, 0, stacked([rows for rows, _ in parts]), aligned)


def pick_block(number: int, numbers: Array, *, source: RowSource) -> tuple[Any, dict[str, Array]]:
    """Some rows of a canonical block, and what is aligned with them; of rows in this process no others are copied."""
    start = number * source.block
    stop = min(start + source.block, source.shape[0])
    inside = numbers - start
    aligned = {name: other.read(start, stop)[inside] for name, other in source.aligned.items()}
    if source.array is not None:
        return as_worked(source.array[numbers], source.work), aligned
    return source.part(start, stop).matrix(start, stop)[inside], aligned


def drawn_numbers(source: RowSource) -> Array:
    """Ascending numbers of the drawn rows, by the shape of the rows alone: all of few rows."""
    n, size = source.shape[0], source.block
    rng = np.random.default_rng([0, STREAM])
    blocks = np.sort(rng.choice(-(-n // size), _blocks(source), replace=False))
    starts = blocks * size
    counts = np.minimum(starts + size, n) - starts
    ends = np.cumsum(counts)
    chosen = np.sort(rng.choice(ends[-1], min(_rows(source), int(ends[-1])), replace=False))
    place = np.searchsorted(ends, chosen, side="right")
    return np.asarray(chosen - (ends - counts)[place] + starts[place])


def _blocks(source: RowSource) -> int:
    count = -(-source.shape[0] // source.block)
    return min(count, max(BLOCKS, int(SHARE * count)))


def _rows(source: RowSource) -> int:
    return min(source.shape[0], ROWS, max(2 * NEIGHBORS + 1, BYTES // _dense_bytes(source)))


def _dense_bytes(source: RowSource) -> int:
    """Of a row as it is compared: sparse rows are few enough to be dense, and nothing is compiled for them."""
    return source.width * source.work.itemsize


def _judgement_stage(estimator: Any, shown: Stage, source: RowSource, metric: str) -> Stage:
    source = replace(source, aligned={name: one for name, one in source.aligned.items() if name not in FITTED_TO})
    n, mapped = source.shape[0], shown.on_demand
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": 0, "metric": metric}

    share, drawn = _blocks(source) / -(-n // source.block), _rows(source)
    pairs = min(SAMPLES, drawn) * drawn
    sample = drawn, source.width, source.work
    cost = Cost.of(
        reads=[rows_of(source, share)],
        task=[*window_of(source), ArraySpec("drawn rows", *sample, times=3)],
        coordinator=[ArraySpec("drawn rows", *sample, times=6), ArraySpec("distances of pairs", pairs, times=8)],
        passes=share,
        flops=4.0 * pairs * source.width,
        scalar_ops=8 * pairs,
        maps=8,
    )
    inputs = shown.inputs if mapped else (shown.name,)
    parameters = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "metric": metric, "rows": drawn}
    parameters |= {"source": source.fingerprint()}
    return Stage(
        NAME,
        inputs,
        parameters,
        partial(run_judgement, estimator=estimator, source=source, asked=asked, mapped=mapped, n=n),
        cost,
        parameters_of=shown.parameters_of if mapped else (),
    )


def run_judgement(
    context: Context, estimator: Any, source: RowSource, asked: dict[str, Any], mapped: Any, n: int
) -> dict[str, Any]:
    numbers = drawn_numbers(source)
    extension = extension_in(estimator, context.home) if mapped else None
    beside = {name: source.aligned[name] for name in (extension.aligned if extension else ())}
    sample = sampled_rows(replace(source, aligned=beside), numbers)
    if extension:
        coordinates = extension.of_block(sample)
    else:
        coordinates = read_rows(context.of("coordinates", "embedding"), numbers)
    rows = sample.rows.toarray() if is_sparse(sample.rows) else sample.rows
    try:
        found = preserved(_in_memory(rows), _in_memory(coordinates), context.exchange, **asked)
    except InputError as error:  # (distances beyond float64, zeros by cosine)
        found = {"unmeasured": str(error)}
    return {"map": found | ({"of": n} if len(numbers) < n else {})}


def _in_memory(rows: Any) -> RowSource:
    """Rows of this process as a source."""
    return RowSource(tuple(rows.shape), rows.dtype, array=rows)
